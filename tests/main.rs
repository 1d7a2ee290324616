//! The tests of the whole binary, one program of them all: what they share is compiled once.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod applied;
mod by_hand;
mod cc;
mod clinic;
mod containers;
mod dial;
mod doctor;
mod faults;
mod gate;
mod gate_stat;
mod heal;
mod left_behind;
mod outcome;
mod peers;
mod programs;
mod serve;
mod support;
mod words;
