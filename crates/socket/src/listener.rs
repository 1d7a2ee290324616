//! The blocking listener.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net;
use std::path::Path;
use std::time::Duration;

use lastbyte_sys::{poll, socket};

use crate::book::Shared;
use crate::carrier::{Address, Carrier, Ends};
use crate::error::{Operation, SocketError};
use crate::stream::Stream;
use crate::tune::Tune;

/// Connections that wait to be accepted. Closing the listener resets them.
const BACKLOG: i32 = 1024;

/// Waits for connections.
#[derive(Debug)]
pub struct Listener<S: Carrier = TcpStream> {
    pub(crate) io: S::Listener,
    pub(crate) local: Address,
}

/// A [`Listener`] on a Unix socket.
pub type UnixListener = Listener<net::UnixStream>;

impl Listener {
    /// Listens on an address; port 0 lets the kernel choose one. The options count for every
    /// accepted connection: the kernel passes all of a [`Tune`] on.
    ///
    /// # Errors
    /// Names the option that could not be set, or why the address cannot be had.
    pub fn listen(address: SocketAddr, tune: &Tune) -> Result<Self, SocketError> {
        let failed = |cause| error(Operation::Listen, &address.into(), cause);
        let fd = socket::open_tcp(address).map_err(failed)?;
        tune.apply(&fd)?;
        // Accepted connections take it over: no call for each of them.
        socket::set_oob_inline(&fd, true).map_err(failed)?;
        socket::bind(&fd, address).map_err(failed)?;
        socket::listen(&fd, BACKLOG).map_err(failed)?;
        let io = TcpListener::from(fd);
        let local = io.local_addr().map_err(failed)?.into();
        Ok(Self { io, local })
    }

    /// The address listened on, with the port that the kernel chose.
    ///
    /// # Panics
    /// Never: a listener over TCP has an internet address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local.ip().expect("a TCP listener has an internet address")
    }
}

impl UnixListener {
    /// Listens on a path, which must not be there yet.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE` where something has that name.
    pub fn listen_unix(path: impl AsRef<Path>) -> Result<Self, SocketError> {
        let local = Address::Path(path.as_ref().to_owned());
        match net::UnixListener::bind(path) {
            Ok(io) => Ok(Self { io, local }),
            Err(cause) => Err(error(Operation::Listen, &local, cause)),
        }
    }
}

impl<S: Carrier> Listener<S> {
    /// Takes the next connection.
    ///
    /// # Errors
    /// The kernel's, such as `EMFILE`; most pass by themselves.
    pub fn accept(&self) -> Result<Stream<S>, SocketError> {
        accept(&self.io).map_err(|cause| error(Operation::Accept, &self.local, cause))
    }

    /// Takes the next connection, waiting at most `timeout`.
    ///
    /// # Errors
    /// `TimedOut` when none came; otherwise as [`Listener::accept`].
    pub fn accept_within(&self, timeout: Duration) -> Result<Stream<S>, SocketError> {
        let failed = |cause| error(Operation::Accept, &self.local, cause);
        if poll::wait_for(&self.io, poll::READABLE, timeout).map_err(failed)?.readable {
            return self.accept();
        }
        Err(failed(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Carrier> AsFd for Listener<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

/// Takes the next connection of a listener of ours: its kind and its options are known.
pub(crate) fn accept<S: Carrier>(listener: &S::Listener) -> io::Result<Stream<S>> {
    let (io, peer) = S::accept(listener)?;
    Ok(Stream::of(Shared::new(io, S::KIND, true, peer)))
}

pub(crate) fn error(operation: Operation, local: &Address, cause: io::Error) -> SocketError {
    SocketError::new(operation, Ends { local: Some(local.clone()), peer: None }, cause)
}
