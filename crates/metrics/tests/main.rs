//! The tests of statistics from outside, one program of them all.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod counting;
mod exposition;
mod reading;
