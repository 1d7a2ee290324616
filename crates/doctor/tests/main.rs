//! The tests of the doctor with the kernel and over recordings, one program of them all. Each sees all that
//! happens on the machine: they run one at a time (`.config/nextest.toml`).

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

#[cfg(feature = "bpf")]
mod flood;
#[cfg(feature = "bpf")]
mod kernel;
#[cfg(feature = "bpf")]
mod loss;
mod many;
#[cfg(feature = "bpf")]
mod refused;
mod replay;
mod served;
mod tables;
mod tracefs;
