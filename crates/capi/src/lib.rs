//! The C face: `liblastbyte` and `lastbyte.h`.
//!
//! It forbids a panic, or a pointer that nobody looked at, to cross over to C. Nothing is decided
//! here: each function looks at what it was given, asks the crate `lastbyte`, and says the answer in
//! numbers and `errno`.
//!
//! The text above each public item is C's: cbindgen carries it over into `include/lastbyte.h`,
//! which a test compares. Structs cross as plain numbers, never as Rust enums, so that no number
//! that C may write into them is undefined here.

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
