//! Decides how a connection ended, and what held it back, from what the kernel said.
//!
//! This crate forbids I/O and clocks: its machines take events and the time (`now`) as arguments
//! and return what is to be done next. Whoever drives them does the system calls: see
//! `lastbyte-socket`. So every decision here can be tested without a network and replayed.
//!
//! - [`Delivery`], [`Receipt`], [`PeerEnd`], [`End`]: the words, never one for another.
//! - [`finish`]: end a connection so that nothing is lost, and know it.
//! - [`pump`]: join two connections, and let neither's end look like another.
//! - [`race`]: which address of a host to connect to, and when; [`order`] and [`history`] say which
//!   is better.
//! - [`account`]: what became of a flow through a relay.
//! - [`request`], [`socks5`], [`http_connect`]: what a client asks of a proxy, and how it is told.
//! - [`Report`]: what two tasks with one socket have to tell each other.
//! - [`diag`]: other programs' sockets, as the kernel lists them.
//! - [`sample`]: `struct tcp_info` read with care, and [`sample::LimitedBy`].

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

// Files that the tests share with the fuzzer name this crate as others do.
#[cfg(test)]
extern crate self as lastbyte_core;

pub mod account;
mod delivery;
pub mod diag;
pub mod finish;
pub mod history;
pub mod http_connect;
pub mod order;
pub mod pump;
pub mod race;
mod report;
pub mod request;
pub mod sample;
pub mod socks5;
pub mod text;

pub use delivery::{Delivery, End, EndEvidence, Kind, PeerEnd, Receipt};
pub use report::Report;
