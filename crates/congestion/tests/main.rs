//! The tests of the catalogue with the kernel, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

#[cfg(feature = "bpf")]
mod load;
#[cfg(feature = "bpf")]
#[path = "../../../tests/support/names.rs"]
mod names;
#[cfg(feature = "bpf")]
mod safety;
#[cfg(feature = "bpf")]
mod untied;
mod walk;
