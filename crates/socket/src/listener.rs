//! The listener over tokio.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net;
use std::path::Path;

use lastbyte_sys::watch;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{ToSocketAddrs, lookup_host};

use crate::address::{Address, Socket};
use crate::blocking;
use crate::blocking::listener::{Incoming, ListenOptions, accepted, error};
use crate::error::{Operation, SocketError};
use crate::shared::{self, ReadSide, Shared, WriteSide};
use crate::stream::Stream;
use crate::watched::Registered;

/// Waits for connections, over tokio: see [`blocking::Listener`].
#[derive(Debug)]
pub struct Listener<S: Socket = TcpStream> {
    io: AsyncFd<S::Listener>,
    local: Address,
    multipath: bool,
    resets: bool,
}

/// A [`Listener`] for TCP.
pub type TcpListener = Listener<TcpStream>;

/// A [`Listener`] on a Unix socket.
pub type UnixListener = Listener<net::UnixStream>;

impl TcpListener {
    /// Listens on an address, with default options; port 0 lets the kernel choose one. For a name
    /// with several addresses it listens on the first that works, as tokio does. Needs a running
    /// runtime.
    ///
    /// # Errors
    /// Why it cannot listen on the address.
    pub async fn bind(address: impl ToSocketAddrs) -> Result<Self, SocketError> {
        Self::bind_with(address, &ListenOptions::default()).await
    }

    /// Listens on an address. The options apply to every accepted connection.
    ///
    /// # Errors
    /// The option that could not be set, or why it cannot listen on the address.
    pub async fn bind_with(
        address: impl ToSocketAddrs,
        options: &ListenOptions,
    ) -> Result<Self, SocketError> {
        let listener = blocking::Listener::bind_to_first(lookup_host(address).await, options)?;
        Self::registered(listener)
    }

    /// The address listened on, with the port that the kernel chose.
    ///
    /// # Errors
    /// None that is known: a listener over TCP has an internet address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        shared::internet(Some(&self.local))
    }
}

impl UnixListener {
    /// Listens on a path, which must not exist yet. Needs a running runtime.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE` if the path exists.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, SocketError> {
        let listener = blocking::UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Self::registered(listener)
    }

    /// The address listened on.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.local.clone())
    }
}

impl<S: Socket> Listener<S> {
    /// Takes a blocking listener over to tokio. Needs a running runtime.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking or registered.
    pub fn from_blocking(listener: blocking::Listener<S>) -> Result<Self, SocketError> {
        listener.set_nonblocking(true)?;
        Self::registered(listener)
    }

    fn registered(listener: blocking::Listener<S>) -> Result<Self, SocketError> {
        let blocking::Listener { io, local, multipath, resets } = listener;
        match watch::register(io, Interest::READABLE) {
            Ok(io) => Ok(Self { io, local, multipath, resets }),
            Err(cause) => Err(error(Operation::Listen, &local, cause)),
        }
    }

    /// Takes the next connection.
    ///
    /// # Errors
    /// The kernel's, such as `EMFILE`; most are transient.
    pub async fn accept(&self) -> Result<Stream<S>, SocketError> {
        let failed = |cause| error(Operation::Accept, &self.local, cause);
        let (socket, peer) =
            self.io.async_io(Interest::READABLE, S::accept).await.map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let shared = accepted(socket, self.multipath, peer).map_err(failed)?;
        let shared = shared.map(Registered::new).map_err(failed)?;
        Ok(watched(shared, self.multipath, self.resets))
    }
}

impl<S: Socket> AsFd for Listener<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.get_ref().as_fd()
    }
}

impl Incoming {
    /// Registers the connection with this thread's event loop. Needs a running runtime.
    ///
    /// # Errors
    /// When the socket cannot be registered. The connection is closed then.
    pub fn watch(self) -> io::Result<Stream> {
        let Self { io, multipath, resets, local, peer } = self;
        let shared = accepted(io, multipath, Some(peer.into()))?;
        let shared = Shared { local: local.map(Address::from), ..shared };
        Ok(watched(shared.map(Registered::new)?, multipath, resets))
    }
}

fn watched<S: Socket>(shared: Shared<Registered<S>>, multipath: bool, resets: bool) -> Stream<S> {
    let mut stream = Stream::of_sides(shared, ReadSide::default(), WriteSide::default());
    // Which options an MPTCP connection inherits from its listener is not known.
    stream.resets = (resets && !multipath).then_some(true);
    stream
}
