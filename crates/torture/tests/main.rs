//! The tests of the torture of proxies, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod over_link;
mod program;
mod suite;
mod support;
