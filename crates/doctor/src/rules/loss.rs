//! Bytes that did not arrive.

use super::Rule;

/// The rules of class loss.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![]
}
