//! Connections that are established late or not at all: LB401 to LB405.

mod attempts;
mod ports;
mod queue;
#[cfg(test)]
mod tests;

use super::Rule;

/// The rules of class connect.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![
        Box::<attempts::Attempts>::default(),
        Box::<queue::ListenQueue>::default(),
        Box::<ports::LocalPorts>::default(),
    ]
}
