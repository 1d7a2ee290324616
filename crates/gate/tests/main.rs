//! The tests of gates that run in this process, one program of them all.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod descriptors;
mod running;
mod statistics;
mod steps;
mod support;
mod watch;
