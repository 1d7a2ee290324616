//! One stream socket, done right: it counts its bytes, knows how its peer ended, and can prove that
//! what was written arrived.
//!
//! This crate forbids an end without a word: a stream read to its end says [`End`], a finished one
//! returns a [`Receipt`] or an error that holds the receipt so far. Decisions are made in
//! `lastbyte-core`, system calls in `lastbyte-sys`; here they meet.
//!
//! - [`TcpStream`], [`TcpListener`], [`UnixStream`], [`UnixListener`] (feature `tokio`): over tokio.
//!   [`Stream`] is what both streams are, over whichever [`Socket`].
//! - [`blocking`]: the same by the same names, for programs without an event loop.
//! - [`Finish`]: what is wanted of the end of a stream.
//! - [`finish_fd`], [`info`], [`observed_end`]: for descriptors of others, with less to say.
//! - [`ConnectOptions`]: how a connection is opened; [`source_of`]: where it would come from.
//! - [`SocketOptions`]: options of a connection, set before it is there or while it runs; [`Granted`]:
//!   what the kernel made of them.

#![forbid(unsafe_code)]

mod address;
pub mod blocking;
mod builder;
mod connect;
#[cfg(feature = "tokio")]
mod drive;
mod error;
mod fd;
mod finish;
mod granted;
#[cfg(feature = "tokio")]
mod halves;
#[cfg(feature = "tokio")]
mod listener;
#[cfg(feature = "tokio")]
mod now;
mod options;
mod shared;
mod source;
#[cfg(feature = "tokio")]
mod stream;
#[cfg(feature = "tokio")]
mod watched;

pub use address::{Address, Endpoints, Socket};
pub use blocking::listener::{Incoming, ListenOptions};
pub use blocking::stream::Sampler;
pub use builder::{Finish, FinishAsync, FinishBlocking};
pub use error::{FinishError, Operation, SocketError};
pub use fd::{
    Counted, congestion, duplicate, finish_fd, finish_fd_counted, finish_fd_while, info,
    observed_end, prepare, set_congestion,
};
pub use granted::{Granted, Multipath};
#[cfg(feature = "tokio")]
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
pub use lastbyte_core::finish::{Drain, FinishOptions, Unproven};
pub use lastbyte_core::sample::{FastOpen, State, TcpInfo};
pub use lastbyte_core::{Delivery, End, Kind, PeerEnd, Receipt};
#[cfg(feature = "tokio")]
pub use listener::{Listener, TcpListener, UnixListener};
#[cfg(feature = "tokio")]
pub use now::Read;
pub use options::{ConnectOptions, Keepalive, SocketOptions};
pub use source::source_of;
#[cfg(feature = "tokio")]
pub use stream::{Stream, TcpStream, UnixStream};
