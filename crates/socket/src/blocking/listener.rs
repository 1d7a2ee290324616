//! The blocking listener.

use std::io;
use std::net::{self, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix;
use std::path::Path;
use std::time::Duration;

use lastbyte_core::Kind;
use lastbyte_sys::{poll, socket};

use crate::address::{Address, Endpoints, Socket, kind_of};
use crate::blocking::Stream;
use crate::error::{Operation, SocketError};
use crate::options::SocketOptions;
use crate::shared::{self, Shared};

/// The length of the accept queue. The kernel caps it at `net.core.somaxconn`, by default 4,096.
/// Closing the listener resets the connections in it.
const BACKLOG: i32 = 4096;

/// How to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Options for every accepted connection, which inherits all of them from the listener.
    pub socket: SocketOptions,
    /// Whether to accept Multipath TCP (RFC 8684) as well as plain TCP, if this kernel supports it.
    pub mptcp: bool,
    /// The initial receive buffer of a connection, in bytes, if [`SocketOptions::receive_buffer`]
    /// does not fix one. A client can send this much before the program reads. The kernel autotunes
    /// the buffer from there, and an idle connection uses no memory for it.
    ///
    /// It has no effect where the kernel could not autotune from there: before Linux 5.14, and over
    /// MPTCP.
    pub first_buffer: Option<u32>,
    /// Whether closing an accepted connection is a reset: see `Stream::reset_when_closed`. Then its
    /// end never looks clean by accident, even if this program dies. [`Listener::change`] does not
    /// change it.
    pub reset_when_closed: bool,
}

/// Waits for connections.
#[derive(Debug)]
pub struct Listener<S: Socket = TcpStream> {
    pub(crate) io: S::Listener,
    pub(crate) local: Address,
    /// Accepted connections may use MPTCP.
    pub(crate) multipath: bool,
    /// [`ListenOptions::reset_when_closed`].
    pub(crate) resets: bool,
}

/// A [`Listener`] for TCP.
pub type TcpListener = Listener<TcpStream>;

/// A [`Listener`] on a Unix socket.
pub type UnixListener = Listener<unix::net::UnixStream>;

impl Listener {
    /// Listens on an address, with default options; port 0 lets the kernel choose one. For a name
    /// with several addresses it listens on the first that works, as the standard library does.
    ///
    /// # Errors
    /// Why it cannot listen on the address.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, SocketError> {
        Self::bind_with(address, &ListenOptions::default())
    }

    /// Listens on an address. The options apply to every accepted connection.
    ///
    /// # Errors
    /// The option that could not be set, or why it cannot listen on the address.
    pub fn bind_with(
        address: impl ToSocketAddrs,
        options: &ListenOptions,
    ) -> Result<Self, SocketError> {
        let listener = Self::bind_to_first(address.to_socket_addrs(), options)?;
        listener.set_nonblocking(false)?;
        Ok(listener)
    }

    /// Listens on the first address that works; the listener is non-blocking.
    pub(crate) fn bind_to_first(
        addresses: io::Result<impl Iterator<Item = SocketAddr>>,
        options: &ListenOptions,
    ) -> Result<Self, SocketError> {
        let failed = |cause| SocketError::new(Operation::Listen, Endpoints::default(), cause);
        let mut last = None;
        for address in addresses.map_err(failed)? {
            match Self::bind_to(address, options) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| failed(io::ErrorKind::InvalidInput.into())))
    }

    fn bind_to(address: SocketAddr, options: &ListenOptions) -> Result<Self, SocketError> {
        let failed = |cause| error(Operation::Listen, &address.into(), cause);
        let fd = options.open(address)?;
        Self::begin(fd, address, options.reset_when_closed).map_err(failed)
    }

    fn begin(fd: OwnedFd, address: SocketAddr, resets: bool) -> io::Result<Self> {
        let multipath = socket::protocol(&fd)? == socket::PROTOCOL_MPTCP;
        // Accepted connections inherit it, which saves a call for each. MPTCP refuses it.
        if !multipath {
            socket::set_oob_inline(&fd, true)?;
        }
        socket::bind(&fd, address)?;
        socket::listen(&fd, BACKLOG)?;
        let io = net::TcpListener::from(fd);
        let local = io.local_addr()?.into();
        Ok(Self { io, local, multipath, resets })
    }

    /// Takes the next connection of a listener that is [non-blocking](Self::set_nonblocking), if there
    /// is one.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; otherwise as [`Listener::accept`].
    pub fn accept_now(&self) -> Result<Incoming, SocketError> {
        let failed = |cause| error(Operation::Accept, &self.local, cause);
        let (fd, peer) = socket::accept_now(&self.io).map_err(failed)?;
        // If the listener has one address, its connections have the same: no call is needed.
        let local = self.address().filter(|local| !local.ip().is_unspecified());
        let Self { multipath, resets, .. } = *self;
        Ok(Incoming { io: fd.into(), multipath, resets, local, peer })
    }

    /// Changes the options of connections accepted from now on, from `before` to `how`. An option
    /// of `before` that `how` does not set returns to the kernel's default.
    ///
    /// # Errors
    /// The option that could not be set. The options before it are set.
    pub fn change(&self, before: &ListenOptions, how: &ListenOptions) -> Result<(), SocketError> {
        let failed = |cause| error(Operation::Listen, &self.local, cause);
        // An untouched socket has the kernel's defaults.
        let untouched = self.local_addr().and_then(socket::open_tcp).map_err(failed)?;
        before.socket.undo(&self.io, &untouched).map_err(failed)?;
        how.socket.apply_to(&self.io)?;
        how.begin_with_buffer(&self.io).map_err(failed)
    }

    /// The address listened on, with the port that the kernel chose.
    ///
    /// # Errors
    /// None that is known: a listener over TCP has an internet address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        shared::internet(Some(&self.local))
    }

    fn address(&self) -> Option<SocketAddr> {
        self.local.ip()
    }
}

impl ListenOptions {
    /// Sets the options of every accepted [socket](field@Self::socket).
    #[must_use]
    pub fn socket(self, socket: SocketOptions) -> Self {
        Self { socket, ..self }
    }

    /// Whether to take connections of [multipath TCP](field@Self::mptcp) too.
    #[must_use]
    pub fn mptcp(self, mptcp: bool) -> Self {
        Self { mptcp, ..self }
    }

    /// Sets the [receive buffer](field@Self::first_buffer) that a connection begins with, in bytes.
    #[must_use]
    pub fn first_buffer(self, bytes: u32) -> Self {
        Self { first_buffer: Some(bytes), ..self }
    }

    /// Whether closing an accepted connection is a [reset](field@Self::reset_when_closed).
    #[must_use]
    pub fn reset_when_closed(self, on: bool) -> Self {
        Self { reset_when_closed: on, ..self }
    }

    /// Checks whether the options can be set for an address, without listening on it.
    ///
    /// # Errors
    /// Names the option that could not be set.
    pub fn check(&self, address: SocketAddr) -> Result<(), SocketError> {
        self.open(address).map(drop)
    }

    /// Opens a non-blocking socket with these options.
    fn open(&self, address: SocketAddr) -> Result<OwnedFd, SocketError> {
        let failed = |cause| error(Operation::Listen, &address.into(), cause);
        let multipath = if self.mptcp {
            socket::open_mptcp_nonblocking(address).map_err(failed)?
        } else {
            None
        };
        let fd = match multipath {
            Some(fd) => fd,
            None => socket::open_tcp_nonblocking(address).map_err(failed)?,
        };
        self.socket.apply(&fd)?;
        self.begin_with_buffer(&fd).map_err(failed)?;
        if self.reset_when_closed {
            socket::set_linger(&fd, Some(Duration::ZERO)).map_err(failed)?;
        }
        Ok(fd)
    }

    /// Sets the initial buffer and unlocks it again: accepted connections inherit both.
    fn begin_with_buffer(&self, fd: &impl AsFd) -> io::Result<()> {
        let (Some(bytes), None) = (self.first_buffer, self.socket.receive_buffer) else {
            return Ok(());
        };
        // A buffer that stayed fixed would limit a fast path for good.
        let lock = socket::buffer_lock(fd);
        let Ok(lock) = lock.and_then(|lock| socket::set_buffer_lock(fd, lock).map(|()| lock))
        else {
            return Ok(());
        };
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        if socket::force_receive_buffer(fd, bytes).is_err() {
            socket::set_receive_buffer(fd, bytes)?;
        }
        socket::set_buffer_lock(fd, lock & !socket::RECEIVE_BUFFER_LOCKED)
    }
}

/// An accepted connection that is not yet registered with an event loop.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) io: TcpStream,
    /// The listener's kind: over MPTCP each connection has one of its own.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "asked when it is watched"))]
    pub(crate) multipath: bool,
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "told when it is watched"))]
    pub(crate) resets: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: SocketAddr,
}

impl Incoming {
    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Our address, if the listener has only one.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Closes it by an immediate reset: nothing of it stays in the kernel.
    pub fn discard(self) {
        // A socket that is gone already needs no reset.
        let _ = socket::set_linger(&self.io, Some(Duration::ZERO));
    }
}

impl UnixListener {
    /// Listens on a path, which must not exist yet.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE` if the path exists.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, SocketError> {
        let local = Address::Path(path.as_ref().to_owned());
        match unix::net::UnixListener::bind(path) {
            Ok(io) => Ok(Self { io, local, multipath: false, resets: false }),
            Err(cause) => Err(error(Operation::Listen, &local, cause)),
        }
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
    /// Takes the next connection.
    ///
    /// # Errors
    /// The kernel's, such as `EMFILE`; most are transient.
    pub fn accept(&self) -> Result<Stream<S>, SocketError> {
        let failed = |cause| error(Operation::Accept, &self.local, cause);
        let (io, peer) = S::accept(&self.io).map_err(failed)?;
        accepted(io, self.multipath, peer).map(Stream::of).map_err(failed)
    }

    /// Sets whether [`Listener::accept`] fails with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, on: bool) -> Result<(), SocketError> {
        S::set_listener_nonblocking(&self.io, on)
            .map_err(|cause| error(Operation::Set("O_NONBLOCK"), &self.local, cause))
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

impl<S: Socket> AsFd for Listener<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

/// The state of an accepted connection. From a plain TCP or Unix listener its kind and options are
/// known; over MPTCP each connection has its own.
pub(crate) fn accepted<S: Socket>(
    io: S,
    multipath: bool,
    peer: Option<Address>,
) -> io::Result<Shared<S>> {
    let kind = if multipath { kind_of(&io)? } else { S::KIND };
    let shared = Shared::new(io, kind, true, peer);
    if multipath && kind == Kind::Tcp {
        shared.keep_urgent()?;
    }
    Ok(shared)
}

pub(crate) fn error(operation: Operation, local: &Address, cause: io::Error) -> SocketError {
    SocketError::new(operation, Endpoints { local: Some(local.clone()), peer: None }, cause)
}
