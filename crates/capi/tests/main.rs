//! The tests of the C face, one program of them all.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod c;
mod header;
