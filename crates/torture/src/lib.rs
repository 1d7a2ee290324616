//! A torture suite for TCP proxies: both ends of every connection are in one process, so that it
//! knows what one end did and what the other end saw.
//!
//! This crate forbids a proxy's own word for what it did: it knows only an address to connect to,
//! and reads no log, exit code or statistics. What counts is which bytes arrived, and whether the
//! stream ended by a FIN or a reset, as the kernel counts ([`lastbyte_socket::End`]).
//!
//! A [`Case`] is data: what each end does ([`Step`]), what each has to see ([`Expected`]), and why
//! plain TCP does so. [`cases::all`] has them all. A [`Testbed`] is the proxy between the two ends;
//! if the proxy's address is the upstream's, it is plain TCP. [`tally::row`] plays a case and
//! judges it.

#![forbid(unsafe_code)]

mod case;
pub mod cases;
mod content;
mod end;
mod script;
pub mod tally;
mod testbed;

pub use case::{Bytes, Case, Expected, Group, Outcome, Pair, Play};
pub use content::Content;
pub use end::{Ending, Observed};
pub use script::{Role, Step, Writing};
pub use testbed::{Setup, Testbed, TestbedError, Waits};
