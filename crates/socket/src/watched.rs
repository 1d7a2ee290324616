//! The sockets of tokio that watch those of the standard library.

use std::fmt;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::task::{Context, Poll};

use lastbyte_sys::socket;
use tokio::io::{Interest, Ready};
use tokio::net;

use crate::carrier::{Address, Carrier};

/// A socket of tokio, TCP or Unix.
#[allow(unnameable_types, reason = "it seals `Carrier`")]
pub trait Watched: AsFd + fmt::Debug + Send + Sync + Unpin + Sized + 'static {
    #[doc(hidden)]
    type Std: Carrier;
    #[doc(hidden)]
    fn from_std(socket: Self::Std) -> io::Result<Self>;
    #[doc(hidden)]
    fn into_std(self) -> io::Result<Self::Std>;
    #[doc(hidden)]
    fn local(&self) -> Option<Address>;
    #[doc(hidden)]
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;
    #[doc(hidden)]
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    #[doc(hidden)]
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    #[doc(hidden)]
    fn try_io<R>(&self, of: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
}

/// What tokio has for a socket of the standard library.
#[allow(unnameable_types, reason = "it seals `Carrier`")]
pub trait WatchedCarrier {
    #[doc(hidden)]
    type Tokio: Watched<Std = Self>;
    #[doc(hidden)]
    type TokioListener: fmt::Debug + Send + Sync + Unpin + 'static;
    #[doc(hidden)]
    fn watch_listener(listener: <Self as Carrier>::Listener) -> io::Result<Self::TokioListener>
    where
        Self: Carrier;
    #[doc(hidden)]
    fn poll_accept(listener: &Self::TokioListener, cx: &mut Context<'_>) -> Accepted<Self::Tokio>;
}

/// The next connection and its peer's address.
type Accepted<S> = Poll<io::Result<(S, Option<Address>)>>;

macro_rules! watched {
    ($std:ty, $listener:ty, $tokio:ty, $tokio_listener:ty, $address:path) => {
        impl Watched for $tokio {
            type Std = $std;

            fn from_std(socket: $std) -> io::Result<Self> {
                <$tokio>::from_std(socket)
            }

            fn into_std(self) -> io::Result<$std> {
                <$tokio>::into_std(self)
            }

            fn local(&self) -> Option<Address> {
                self.local_addr().ok().map($address)
            }

            async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                <$tokio>::ready(self, interest).await
            }

            fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$tokio>::poll_read_ready(self, cx)
            }

            fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$tokio>::poll_write_ready(self, cx)
            }

            fn try_io<R>(&self, of: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                <$tokio>::try_io(self, of, io)
            }
        }

        impl WatchedCarrier for $std {
            type Tokio = $tokio;
            type TokioListener = $tokio_listener;

            fn watch_listener(listener: $listener) -> io::Result<$tokio_listener> {
                listener.set_nonblocking(true)?;
                <$tokio_listener>::from_std(listener)
            }

            fn poll_accept(listener: &$tokio_listener, cx: &mut Context<'_>) -> Accepted<$tokio> {
                let accepted = listener.poll_accept(cx);
                accepted.map_ok(|(socket, peer)| (socket, Some($address(peer))))
            }
        }
    };
}

watched!(TcpStream, TcpListener, net::TcpStream, net::TcpListener, Address::Ip);
watched!(UnixStream, UnixListener, net::UnixStream, net::UnixListener, tokio_unix_address);

fn tokio_unix_address(address: net::unix::SocketAddr) -> Address {
    if let Some(path) = address.as_pathname() {
        Address::Path(PathBuf::from(path))
    } else if let Some(name) = address.as_abstract_name() {
        Address::Abstract(name.to_owned())
    } else {
        Address::Unnamed
    }
}

/// A socket that tokio watches.
#[derive(Debug)]
pub(crate) struct Registered<S: Carrier>(pub(crate) S::Tokio);

impl<S: Carrier> Registered<S> {
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        S::Tokio::from_std(socket).map(Self)
    }

    /// Reads what is there. A short read is no empty queue: the kernel stops at an urgent byte.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, || socket::receive_now(self, room))
    }

    /// Writes by `send` some of `most` bytes. Where it took fewer the queue is full: the readiness
    /// is cleared, and the next write need not ask in vain.
    pub(crate) fn send(
        &self,
        most: usize,
        send: impl FnOnce(&Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut taken = None;
        let result = self.0.try_io(Interest::WRITABLE, || {
            let bytes = send(self)?;
            taken = Some(bytes);
            // As tokio clears a readiness: not if an event came meanwhile.
            if 0 < bytes && bytes < most {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(bytes)
            }
        });
        taken.map_or(result, Ok)
    }

    /// Forgets a readiness, so that the next event wakes.
    pub(crate) fn clear(&self, interest: Interest) {
        let _ = self.0.try_io(interest, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

impl<S: Carrier> AsFd for Registered<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
