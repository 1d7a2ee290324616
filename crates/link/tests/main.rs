//! The tests of links that carry packets, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod corpus;
mod network;
mod path;
