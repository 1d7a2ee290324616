//! Connections that come late or not at all.

use super::Rule;

/// The rules of class connect.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![]
}
