//! One stream socket, done right: it counts its bytes, knows how its peer ended, and can prove that
//! what was written arrived.
//!
//! This crate forbids an end without a word: a stream read to its end says [`End`], a finished one
//! returns a [`Receipt`] or an error that holds the receipt so far. Decisions are made in
//! `lastbyte-core`, system calls in `lastbyte-sys`; here they meet.
//!
//! - [`Stream`] and [`Listener`]: blocking, over TCP; [`UnixStream`] and [`UnixListener`].
//! - [`AsyncStream`] and [`AsyncListener`] (feature `tokio`): the same over tokio.
//! - [`finish_fd`], [`info`], [`ended`]: for descriptors of others, with less to say.
//! - [`ConnectOptions`]: how a connection is opened; [`source_of`]: where it would come from.
//! - [`Tune`]: options of a connection, set before it is there or while it runs; [`Granted`]:
//!   what the kernel made of them.

#![forbid(unsafe_code)]

#[cfg(feature = "tokio")]
mod async_halves;
#[cfg(feature = "tokio")]
mod async_now;
#[cfg(feature = "tokio")]
mod async_stream;
mod book;
mod carrier;
mod connect;
mod error;
mod fd;
mod finish;
mod halves;
mod listener;
mod source;
mod stream;
mod tune;
#[cfg(feature = "tokio")]
mod watched;

#[cfg(feature = "tokio")]
pub use async_halves::{AsyncReadHalf, AsyncWriteHalf};
#[cfg(feature = "tokio")]
pub use async_now::Read;
#[cfg(feature = "tokio")]
pub use async_stream::{AsyncListener, AsyncStream, AsyncUnixListener, AsyncUnixStream};
pub use carrier::{Address, Carrier, Ends};
pub use connect::ConnectOptions;
pub use error::{FinishError, Operation, SocketError};
pub use fd::{
    Counted, congestion, duplicate, ended, finish_fd, finish_fd_counted, finish_fd_while, info,
    prepare, set_congestion,
};
pub use halves::{ReadHalf, WriteHalf};
pub use lastbyte_core::finish::{Drain, FinishOptions, Unproven};
pub use lastbyte_core::sample::{FastOpen, State, TcpInfo};
pub use lastbyte_core::{Delivery, End, Kind, PeerEnd, Receipt};
pub use listener::{Incoming, ListenOptions, Listener, UnixListener};
pub use source::source_of;
pub use stream::{Sampler, Stream, UnixStream};
pub use tune::{Granted, Keepalive, Multipath, Tune};
