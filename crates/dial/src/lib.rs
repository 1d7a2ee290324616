//! From a name and a port to a connected socket, by the address that works, first.
//!
//! This crate forbids waiting for what is not needed: no answer waits for another one, no attempt for
//! a dead one's time-out, and nobody is told of a connection before there is one. What to do next is
//! decided in `lastbyte-core` (`race`, `order`, `history`); here the questions are asked and the
//! sockets opened.
//!
//! - [`connect()`]: one call, `connect("example.org:443").await?`; [`blocking`]: without an event loop.
//! - [`Dialer`]: with a resolver and a memory of its own, over tokio; [`blocking::Dialer`].
//! - [`Resolver`]: DNS by this crate, or `getaddrinfo`.
//! - [`Timeline`]: what happened, and when; [`DialError`] holds one too.
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
