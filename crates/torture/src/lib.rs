//! A torture suite for TCP proxies: both ends of every connection in one process, so that what one
//! side did and what the other saw are both known.
//!
//! This crate forbids a proxy's own word for what it did: it knows of no proxy but an address to
//! connect to, and of none's log, exit code or statistics. What counts is which bytes came, and
//! whether the end was a FIN or a reset, by the kernel's count ([`lastbyte_socket::End`]).
//!
//! A [`Case`] is data: what each end does ([`Step`]), what each has to see ([`Expected`]), and why
//! plain TCP does so. [`cases::all`] has them. A [`Bed`] is the proxy between the two ends; with the
//! proxy's address that of the upstream, it is plain TCP. [`tally::row`] plays a case and judges it.

#![forbid(unsafe_code)]

mod bed;
mod case;
pub mod cases;
mod content;
mod end;
mod script;
pub mod tally;

pub use bed::{Asked, Bed, BedError, Waits};
pub use case::{Bytes, Case, Expected, Group, Outcome, Pair, Play};
pub use content::Content;
pub use end::{Ending, Seen};
pub use script::{Role, Step, Writing};
