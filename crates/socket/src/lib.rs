//! One TCP socket, done right: it counts its bytes, knows how its peer ended, and can prove that
//! what was written arrived.
//!
//! This crate forbids an end without a word: a stream read to its end says [`End`], a finished one
//! returns a [`Receipt`] or an error that holds the receipt so far. Decisions are made in
//! `lastbyte-core`, system calls in `lastbyte-sys`; here they meet.
//!
//! - [`Stream`] and [`Listener`]: blocking.
//! - [`AsyncStream`] (feature `tokio`): the same over tokio.
//! - [`Tune`]: options of a connection, set before it is there or while it runs; [`Granted`]:
//!   what the kernel made of them.

#![forbid(unsafe_code)]

#[cfg(feature = "tokio")]
mod async_stream;
mod book;
mod error;
mod finish;
mod listener;
mod stream;
mod tune;

#[cfg(feature = "tokio")]
pub use async_stream::AsyncStream;
pub use error::{FinishError, Operation, SocketError};
pub use lastbyte_core::finish::{FinishOptions, Unproven};
pub use lastbyte_core::sample::TcpInfo;
pub use lastbyte_core::{Delivery, End, PeerEnd, Receipt};
pub use listener::Listener;
pub use stream::{Sampler, Stream};
pub use tune::{Granted, Keepalive, Tune};
