//! Connects to a host by name and port, using the address that works first.
//!
//! This crate forbids unnecessary waiting: no answer waits for another one, and no attempt for the
//! time-out of a dead one. `lastbyte-core` decides what to do next (`race`, `order`, `history`);
//! this crate asks the DNS questions and opens the sockets.
//!
//! - [`connect()`]: one call, `connect("example.org:443").await?`; [`blocking`]: without an event loop.
//! - [`Dialer`]: with a resolver and a history of its own, over tokio; [`blocking::Dialer`] without
//!   an event loop.
//! - [`Resolver`]: this crate's DNS client, or `getaddrinfo`.
//! - [`Timeline`]: what happened, and when; [`DialError`] contains one too.
//! - `tower` (feature `tower`): a connector for hyper's client.

#![forbid(unsafe_code)]

pub mod blocking;
mod connect;
mod destination;
mod dialer;
mod error;
mod host;
mod literal;
mod options;
mod resolve;
mod sources;
mod timeline;
#[cfg(feature = "tower")]
pub mod tower;

pub use connect::{connect, connect_with};
pub use destination::{Destination, ToDestination};
pub use dialer::Dialer;
pub use error::{DialError, FailedAttempt, Undialed};
pub use host::{BadHost, Host};
pub use lastbyte_core::race::{Because, Parameters, Question};
pub use options::{DialOptions, Dialed, Families, Veto};
pub use resolve::{
    Answer, Answers, Found, Origin, QueryError, ResolvConf, Resolver, ResolverError,
};
pub use timeline::{Event, Timeline, What};
