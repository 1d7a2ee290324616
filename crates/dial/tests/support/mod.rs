//! What several tests use.

pub(crate) mod dns;
pub(crate) mod ports;
