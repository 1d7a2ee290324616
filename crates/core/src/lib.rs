//! Decides how a connection ended, and what limited it, from what the kernel reports.
//!
//! This crate forbids I/O and clocks: its machines take events and the time (`now`) as arguments
//! and return what to do next. A driver makes the system calls: see `lastbyte-socket`. So every
//! decision can be tested without a network, and replayed.
//!
//! - [`Delivery`], [`Receipt`], [`PeerEnd`], [`End`]: how far bytes came, and how a stream ended.
//! - [`finish`]: end a connection without losing bytes, and prove it.
//! - [`pump`]: relay between two connections, so that each end is passed on as what it was.
//! - [`race`]: which address of a host to connect to, and when; [`order`] and [`history`] rank the
//!   addresses.
//! - [`account`]: the record of a flow through a relay.
//! - [`request`], [`socks5`], [`http_connect`]: what a client requests of a proxy, in two
//!   protocols.
//! - [`Report`]: what a writer leaves for a reader of the same socket.
//! - [`diag`]: the sockets of other programs, as the kernel lists them.
//! - [`sample`]: `struct tcp_info` as this kernel fills it, and [`sample::LimitedBy`].

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

// Files shared between the tests and the fuzzer refer to this crate by its name.
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
