//! Stream sockets that count their bytes, know how the peer's stream ended, and can prove that
//! written bytes arrived.
//!
//! This crate forbids an unexplained end: a stream read to its end reports [`End`], and a finished
//! stream returns a [`Receipt`] or an error that contains the receipt so far. `lastbyte-core`
//! decides, `lastbyte-sys` makes the system calls, and this crate connects the two.
//!
//! - [`TcpStream`], [`TcpListener`], [`UnixStream`], [`UnixListener`] (feature `tokio`): over
//!   tokio. Both streams are a [`Stream`] over a [`Socket`].
//! - [`blocking`]: the same types without an event loop.
//! - [`Finish`]: what a finish has to prove, and within which time.
//! - [`finish_fd`], [`info`], [`observed_end`]: for descriptors of other code, about which less is
//!   known.
//! - [`ConnectOptions`]: how to open a connection; [`source_of`]: its source address.
//! - [`SocketOptions`]: socket options, set before the connection opens or while it is open;
//!   [`Granted`]: the values that the kernel granted.

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
