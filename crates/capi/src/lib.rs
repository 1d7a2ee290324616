//! The C interface: `liblastbyte` and `lastbyte.h`.
//!
//! This crate forbids panics that unwind into C, and unchecked pointers. It decides nothing: each
//! function checks its arguments, calls the crate `lastbyte`, and returns the result as numbers and
//! `errno`.
//!
//! The comment on each public item is written for C: cbindgen copies it to `include/lastbyte.h`,
//! and a test compares the two. Structs contain plain numbers, never Rust enums, so that any number
//! from C is defined behaviour here.

#![allow(unsafe_code, reason = "C hands over pointers, and finds functions by their bare names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is C's, where every function is unsafe: it says what a pointer has to be"
)]

mod boundary;
mod connection;
mod dial;
mod finish;
mod receipt;
mod types;

pub use connection::{
    Info, lb_congestion, lb_ended, lb_info, lb_prepare, lb_set_congestion, lb_version,
};
pub use dial::{DialOptions, Dialed, lb_dial};
pub use finish::{Options, lb_finish, lb_finish_options};
pub use receipt::{Receipt, lb_receipt_text};
pub use types::{
    End, Family, Level, Peer, ResolvedBy, Undialed, Why, lb_end_name, lb_level_name, lb_peer_name,
    lb_undialed_name, lb_why_name,
};
