//! The tests of experiments, over links and of records, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod fairness;
mod foreign;
mod latency;
mod limits;
mod page;
mod remote;
mod support;
mod vanishing_peers;
