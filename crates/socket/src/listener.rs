//! The blocking listener.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net;
use std::path::Path;
use std::time::Duration;

#[cfg(feature = "tokio")]
use lastbyte_core::Kind;
use lastbyte_sys::{poll, socket};

#[cfg(feature = "tokio")]
use crate::async_stream::AsyncStream;
use crate::book::Shared;
#[cfg(feature = "tokio")]
use crate::book::{ReadSide, WriteSide};
#[cfg(feature = "tokio")]
use crate::carrier::kind_of;
use crate::carrier::{Address, Carrier, Ends};
use crate::error::{Operation, SocketError};
use crate::stream::Stream;
use crate::tune::Tune;
#[cfg(feature = "tokio")]
use crate::watched::Registered;

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`, which is 4,096
/// by itself. Closing the listener resets them.
const BACKLOG: i32 = 4096;

/// How to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenOptions {
    /// Options for every accepted connection: the kernel passes all of a [`Tune`] on.
    pub tune: Tune,
    /// Takes connections of Multipath TCP (RFC 8684) beside those of plain TCP, where this kernel has
    /// it.
    pub mptcp: bool,
    /// The receive buffer that a connection begins with, in bytes, where [`Tune::receive_buffer`] does
    /// not fix one. So much a client can send before anything is read. The kernel goes on sizing
    /// the buffer from there, and an idle connection takes no memory for it.
    ///
    /// It is left out where the kernel cannot go on from there: before Linux 5.14, and over MPTCP.
    pub first_buffer: Option<u32>,
    /// Closing an accepted connection is a reset: see
    /// [`AsyncStream::reset_when_closed`](crate::AsyncStream::reset_when_closed). So it is no clean end,
    /// whatever becomes of it, and of this program. [`Listener::change`] leaves it as it is.
    pub reset_when_closed: bool,
}

/// Waits for connections.
#[derive(Debug)]
pub struct Listener<S: Carrier = TcpStream> {
    pub(crate) io: S::Listener,
    pub(crate) local: Address,
    /// What is accepted may be of MPTCP.
    multipath: bool,
    /// [`ListenOptions::reset_when_closed`].
    resets: bool,
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
        Self::begin(fd, address, false).map_err(failed)
    }

    /// As [`Listener::listen`], for a listener that does not wait: [`Listener::accept_now`] takes its
    /// connections.
    ///
    /// # Errors
    /// Names the option that could not be set, or why the address cannot be had.
    pub fn listen_with(address: SocketAddr, how: &ListenOptions) -> Result<Self, SocketError> {
        let failed = |cause| error(Operation::Listen, &address.into(), cause);
        let fd = how.open(address)?;
        Self::begin(fd, address, how.reset_when_closed).map_err(failed)
    }

    fn begin(fd: OwnedFd, address: SocketAddr, resets: bool) -> io::Result<Self> {
        let multipath = socket::protocol(&fd)? == socket::PROTOCOL_MPTCP;
        // Accepted connections take it over: no call for each of them. MPTCP refuses it.
        if !multipath {
            socket::set_oob_inline(&fd, true)?;
        }
        socket::bind(&fd, address)?;
        socket::listen(&fd, BACKLOG)?;
        let io = TcpListener::from(fd);
        let local = io.local_addr()?.into();
        Ok(Self { io, local, multipath, resets })
    }

    /// Takes the next connection of a listener of [`Listener::listen_with`], if there is one.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; otherwise as [`Listener::accept`].
    pub fn accept_now(&self) -> Result<Incoming, SocketError> {
        let failed = |cause| error(Operation::Accept, &self.local, cause);
        let (fd, peer) = socket::accept_now(&self.io).map_err(failed)?;
        // What was accepted at one address has that address: nobody needs to ask.
        let local = self.local.ip().filter(|local| !local.ip().is_unspecified());
        let Self { multipath, resets, .. } = *self;
        Ok(Incoming { io: fd.into(), multipath, resets, local, peer })
    }

    /// The options of what is accepted from now on: those of `how` in place of those of `before`, which
    /// are the kernel's own choice again where `how` has none.
    ///
    /// # Errors
    /// Names the option that could not be set. Those that could are set then.
    pub fn change(&self, before: &ListenOptions, how: &ListenOptions) -> Result<(), SocketError> {
        let failed = |cause| error(Operation::Listen, &self.local, cause);
        // What nobody has touched has the kernel's own choices.
        let untouched = socket::open_tcp(self.local_addr()).map_err(failed)?;
        before.tune.undo(&self.io, &untouched).map_err(failed)?;
        how.tune.apply_to(&self.io)?;
        how.begin_with_buffer(&self.io).map_err(failed)
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

impl ListenOptions {
    /// Finds out whether the options can be had for an address, without listening there.
    ///
    /// # Errors
    /// Names the option that could not be set.
    pub fn check(&self, address: SocketAddr) -> Result<(), SocketError> {
        self.open(address).map(drop)
    }

    /// Opens a socket with these options, which does not wait.
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
        self.tune.apply(&fd)?;
        self.begin_with_buffer(&fd).map_err(failed)?;
        if self.reset_when_closed {
            socket::set_linger(&fd, Some(Duration::ZERO)).map_err(failed)?;
        }
        Ok(fd)
    }

    /// Sets the first buffer, and leaves it to the kernel again: what is accepted takes over both.
    fn begin_with_buffer(&self, fd: &impl AsFd) -> io::Result<()> {
        let (Some(bytes), None) = (self.first_buffer, self.tune.receive_buffer) else {
            return Ok(());
        };
        // A buffer that stayed fixed would hold a fast path back for ever.
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

/// A connection that was accepted, and that no event loop knows of yet.
#[derive(Debug)]
pub struct Incoming {
    io: TcpStream,
    /// The listener's kind: over MPTCP each connection has one of its own.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "asked when it is watched"))]
    multipath: bool,
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "told when it is watched"))]
    resets: bool,
    local: Option<SocketAddr>,
    peer: SocketAddr,
}

impl Incoming {
    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Our address, where the listener has just one.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Has it watched by the event loop of this thread. Needs a running runtime.
    ///
    /// # Errors
    /// When the socket cannot be registered. It is closed then.
    #[cfg(feature = "tokio")]
    pub fn watch(self) -> io::Result<AsyncStream> {
        let Self { io, multipath, resets, local, peer } = self;
        let kind = if multipath { kind_of(&io)? } else { Kind::Tcp };
        let shared = Shared::new(io, kind, true, Some(peer.into()));
        let shared = Shared { local: local.map(Address::from), ..shared };
        if multipath {
            shared.keep_urgent()?;
        }
        let shared = shared.map(Registered::new)?;
        let mut stream = AsyncStream::of_sides(shared, ReadSide::default(), WriteSide::default());
        // What one of MPTCP takes over from its listener is not known.
        stream.resets = (resets && !multipath).then_some(true);
        Ok(stream)
    }

    /// Ends it by a reset at once: nothing of it stays in the kernel.
    pub fn discard(self) {
        // A socket that is gone already needs no reset.
        let _ = socket::set_linger(&self.io, Some(Duration::ZERO));
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
            Ok(io) => Ok(Self { io, local, multipath: false, resets: false }),
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

/// Takes the next connection of a listener of plain TCP or Unix: its kind and its options are known.
pub(crate) fn accept<S: Carrier>(listener: &S::Listener) -> io::Result<Stream<S>> {
    let (io, peer) = S::accept(listener)?;
    Ok(Stream::of(Shared::new(io, S::KIND, true, peer)))
}

pub(crate) fn error(operation: Operation, local: &Address, cause: io::Error) -> SocketError {
    SocketError::new(operation, Ends { local: Some(local.clone()), peer: None }, cause)
}
