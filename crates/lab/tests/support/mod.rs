//! What several tests use.

pub(crate) mod experiment;
