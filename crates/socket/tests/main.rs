//! The tests of sockets with the kernel, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod bad_input;
mod connect;
mod fast_open;
mod finish;
#[cfg(feature = "tokio")]
mod listen;
mod observed_end;
mod source;
mod streams;
mod support;
mod truth;
mod tune;
