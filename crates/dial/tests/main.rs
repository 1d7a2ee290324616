//! The tests of dials and of the resolver from outside, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod connect;
mod descriptors;
mod dial;
mod questions;
mod resolve;
mod spoof;
mod support;
mod system;
#[cfg(feature = "tower")]
mod tower;
