//! The blocking stream.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_core::finish::FinishOptions;
use lastbyte_core::sample::{Moment, State, TcpInfo};
use lastbyte_core::{End, Kind, Receipt};
use lastbyte_sys::{poll, socket};

use crate::address::{Address, Endpoints, Socket};
use crate::blocking::halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::builder::{Finish, FinishBlocking};
use crate::connect::Opening;
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::{Finished, Finishing, receipt_of};
use crate::granted::Granted;
use crate::options::{ConnectOptions, SocketOptions};
use crate::shared::{self, ReadSide, Shared, WriteSide, length_of};

/// A connected stream socket that counts its bytes and knows how the peer's stream ended: TCP, or
/// as [`UnixStream`] a Unix socket.
///
/// As [`Read`] it returns `Ok(0)` only for a FIN, or if the end is not known ([`End::Unknown`], see
/// [`Stream::observed_end`]). After a reset it returns an error, even if the kernel reported the
/// reset to an earlier write.
///
/// Dropping it is a plain `close`: with unread input that discards queued bytes. To know that the
/// bytes arrived, [`Stream::finish`] it.
#[derive(Debug)]
pub struct Stream<S = std::net::TcpStream> {
    pub(crate) shared: Shared<S>,
    pub(crate) reading: ReadSide,
    pub(crate) writing: WriteSide,
}

/// A [`Stream`] over TCP.
pub type TcpStream = Stream<std::net::TcpStream>;

/// A [`Stream`] over a Unix socket.
///
/// Written bytes are in the peer's receive queue at once, and the kernel shows when the peer's
/// *program* has read all of them. Only then is [`Delivery::Acked`](crate::Delivery::Acked) proven;
/// nothing is known about a part.
pub type UnixStream = Stream<net::UnixStream>;

impl TcpStream {
    /// Connects to one address, with default options. `lastbyte::blocking::connect` takes names too.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(peer: SocketAddr) -> Result<Self, SocketError> {
        Self::connect_with(peer, &ConnectOptions::default())
    }

    /// Connects to one address, with options. It returns once the kernel has accepted all of
    /// [`ConnectOptions::early`](field@ConnectOptions::early).
    ///
    /// # Errors
    /// The option that could not be set, or why there is no connection.
    pub fn connect_with(peer: SocketAddr, options: &ConnectOptions) -> Result<Self, SocketError> {
        let mut opening = Opening::begin(peer, options)?;
        opening.wait(options.timeout)?;
        let (shared, writing) = opening.connected();
        Ok(Self { shared, reading: ReadSide::default(), writing })
    }

    /// Our address.
    ///
    /// # Errors
    /// `NotConnected` where there is none.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected` where there is none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.shared.peer_addr()
    }

    /// Sets `TCP_NODELAY`: see [`SocketOptions::nodelay`](field@SocketOptions::nodelay).
    ///
    /// # Errors
    /// When the kernel refuses the option for this socket.
    pub fn set_nodelay(&self, on: bool) -> Result<(), SocketError> {
        SocketOptions::default().nodelay(on).apply_to(self)
    }

    /// What the kernel knows of this connection now.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn info(&self) -> Result<TcpInfo, SocketError> {
        shared::info(&self.shared.io).map_err(|cause| self.shared.error(Operation::Sample, cause))
    }

    /// The options as the kernel granted them.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn granted(&self) -> Result<Granted, SocketError> {
        Granted::read(&self.shared.io).map_err(|cause| self.shared.error(Operation::Sample, cause))
    }

    /// A second descriptor of this connection, for another thread that watches it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn sampler(&self) -> Result<Sampler, SocketError> {
        let fd = self.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|cause| self.shared.error(Operation::Sample, cause))?;
        Ok(Sampler { fd })
    }
}

impl UnixStream {
    /// Connects to a Unix socket by its path.
    ///
    /// # Errors
    /// The kernel's: `ENOENT`, `ECONNREFUSED` and so on.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, SocketError> {
        let path = path.as_ref();
        let peer = Address::Path(path.to_owned());
        let connected = net::UnixStream::connect(path).map_err(|cause| {
            let endpoints = Endpoints { local: None, peer: Some(peer.clone()) };
            SocketError::new(Operation::Connect, endpoints, cause)
        })?;
        Ok(Self::of(Shared::new(connected, Kind::Unix, true, Some(peer))))
    }

    /// Two Unix sockets that are connected with each other (`socketpair(2)`).
    ///
    /// # Errors
    /// The kernel's: `EMFILE`.
    pub fn pair() -> Result<(Self, Self), SocketError> {
        let pair = net::UnixStream::pair()
            .map_err(|cause| SocketError::new(Operation::Connect, Endpoints::default(), cause))?;
        let of = |end| Self::of(Shared::new(end, Kind::Unix, true, Some(Address::Unnamed)));
        Ok((of(pair.0), of(pair.1)))
    }

    /// Our address.
    ///
    /// # Errors
    /// `NotConnected` where there is none.
    pub fn local_addr(&self) -> io::Result<Address> {
        shared::known(self.shared.local())
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected` where there is none.
    pub fn peer_addr(&self) -> io::Result<Address> {
        shared::known(self.shared.peer.clone())
    }
}

impl<S: Socket> Stream<S> {
    /// Takes over a connected socket whose history is not known. Its end of stream is
    /// [`End::Unknown`] if only the count of all bytes read could show it, and its [`Receipt`]
    /// counts only bytes written from now on.
    ///
    /// # Errors
    /// When the descriptor is no socket.
    pub fn adopt(socket: S) -> Result<Self, SocketError> {
        Shared::adopt(socket, false).map(Self::of)
    }

    /// Takes over a connected socket that no code has read, written or half-closed, such as one
    /// just accepted or connected. Otherwise the counts of its bytes and its end are wrong.
    ///
    /// # Errors
    /// When the descriptor is no socket, or still connecting.
    pub fn adopt_new(socket: S) -> Result<Self, SocketError> {
        let shared = Shared::adopt(socket, true)?;
        // A connection that was reset meanwhile is closed, but it was established.
        if shared.kind == Kind::Tcp {
            let state = shared::info(&shared.io).map(|info| info.state);
            match state.map_err(|cause| shared.error(Operation::Sample, cause))? {
                State::SynSent | State::SynRecv | State::Listen => {
                    return Err(shared.error(Operation::Adopt, io::ErrorKind::NotConnected.into()));
                }
                _ => {}
            }
        }
        Ok(Self::of(shared))
    }

    /// A connection that has not been read or written yet.
    pub(crate) fn of(shared: Shared<S>) -> Self {
        Self { shared, reading: ReadSide::default(), writing: WriteSide::default() }
    }

    /// Both addresses, to be shown to a person.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        self.shared.endpoints()
    }

    /// Which kind of socket it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.shared.kind
    }

    /// Bytes that the kernel accepted from us so far. It says nothing about their arrival.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.writing.written
    }

    /// Bytes read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.reading.read
    }

    /// How the peer's stream ended, once a read has met its end.
    #[must_use]
    pub fn observed_end(&self) -> Option<End> {
        self.reading.observed_end
    }

    /// How long a read may wait; `None` for ever.
    ///
    /// # Errors
    /// When the duration is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.io.set_timeouts(true, timeout)
    }

    /// How long a write may wait; `None` for ever.
    ///
    /// # Errors
    /// When the duration is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.io.set_timeouts(false, timeout)
    }

    /// Ends our direction with a FIN after all written bytes; the other direction stays open.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn half_close(&mut self) -> Result<(), SocketError> {
        self.shared
            .half_close(&mut self.writing)
            .map_err(|cause| self.shared.error(Operation::HalfClose, cause))
    }

    /// Ends the connection without losing bytes, and returns the proof:
    /// `stream.finish().within(limit).wait()?`. See [`Finish`] for its options.
    ///
    /// It half-closes, waits for the wanted level, reads and discards what the peer still sends,
    /// and only then closes. See [`lastbyte_core::finish`]. To read what the peer still sends, use
    /// [`Stream::prove`].
    pub fn finish(self) -> Finish<Self> {
        Finish::new(self)
    }

    /// [`Stream::finish`] with prepared options.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub fn finish_with(mut self, options: FinishOptions) -> Result<Receipt, FinishError> {
        self.prove_with(options)
    }

    /// All that [`Stream::finish`] does, but for the close: our direction is ended, and with
    /// [`Drain::Keep`](crate::Drain::Keep) what the peer sends is still to be read.
    pub fn prove(&mut self) -> Finish<&mut Self> {
        Finish::new(self)
    }

    /// [`Stream::prove`] with prepared options.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub fn prove_with(&mut self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::finish(self.facts(), options);
        let outcome = finishing.drive(&self.shared.io);
        let finished = finishing.with_endpoints(outcome, || self.shared.endpoints());
        finishing.record(receipt_of(&finished), &mut self.reading, &mut self.writing);
        finished
    }

    fn facts(&self) -> lastbyte_core::finish::Facts {
        self.shared.facts(&self.reading, &self.writing, false)
    }

    /// Two halves that borrow the stream, to read and write in one thread, or in scoped ones.
    pub fn split(&mut self) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
        let Self { shared, reading, writing } = self;
        (ReadHalf { shared, side: reading }, WriteHalf { shared, side: writing })
    }

    /// Two halves, for two threads. Each counts its own bytes, and neither waits for the other.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
        let shared = Arc::new(self.shared);
        let writing = OwnedWriteHalf { shared: Arc::clone(&shared), side: self.writing };
        (OwnedReadHalf { shared, side: self.reading }, writing)
    }

    /// Gives the plain socket back, with nothing closed.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.shared.io
    }

    /// Ends the connection by a reset, so that the peer does not take the stream for complete. The
    /// reset follows once the peer's kernel has acknowledged all written bytes.
    ///
    /// At the `deadline` the reset is sent anyway and discards the rest; with a deadline of zero,
    /// at once. The connection is closed in every case. A Unix socket has no reset: its peer sees
    /// one only if we left its bytes unread, and otherwise an end.
    ///
    /// # Errors
    /// When not all written bytes are known to be acknowledged; the error contains the receipt.
    pub fn abort(self, deadline: Duration) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::abort(self.facts(), deadline);
        let outcome = finishing.drive(&self.shared.io);
        let aborted = finishing.with_endpoints(outcome, || self.shared.endpoints());
        crate::finish::reset(&self.shared.io, aborted)
    }

    /// [`Stream::finish`], but passes what the peer still sends to `rest`, up to the limit of
    /// [`Drain::Discard`](crate::Drain::Discard), instead of discarding it.
    ///
    /// # Errors
    /// As those of [`Stream::finish`].
    pub fn finish_into(
        self,
        options: FinishOptions,
        rest: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::finish(self.facts(), options).passing_to(rest);
        let outcome = finishing.drive(&self.shared.io);
        finishing.with_endpoints(outcome, || self.shared.endpoints())
    }

    /// Waits at most `timeout` until there is something to `read`, space to `write`, or an end. It
    /// may return before that: the next call that does not wait will tell.
    ///
    /// # Errors
    /// The kernel's: `ENOMEM`.
    pub fn wait(&self, read: bool, write: bool, timeout: Duration) -> io::Result<()> {
        let wanted = if read { poll::READABLE } else { 0 } | if write { poll::WRITABLE } else { 0 };
        poll::wait_for(&self.shared.io, wanted, timeout).map(|_| ())
    }

    /// As [`Read::read`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; after a reset always an error.
    pub fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = socket::receive_now(&self.shared.io, buffer);
        self.shared.on_read(&mut self.reading, buffer.len(), result)
    }

    /// As [`Write::write`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let io = &self.shared.io;
        self.shared.write(&mut self.writing, bytes.len(), || socket::send_now(io, bytes))
    }
}

impl<S: Socket> FinishBlocking for Stream<S> {
    type Receipt = Receipt;
    type Error = FinishError;

    fn run(self, options: FinishOptions) -> Finished {
        self.finish_with(options)
    }
}

impl<S: Socket> FinishBlocking for &mut Stream<S> {
    type Receipt = Receipt;
    type Error = FinishError;

    fn run(self, options: FinishOptions) -> Finished {
        self.prove_with(options)
    }
}

impl<S: Socket> Read for Stream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.shared.io.receive(buffer);
        self.shared.on_read(&mut self.reading, buffer.len(), result)
    }
}

impl<S: Socket> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let io = &self.shared.io;
        self.shared.write(&mut self.writing, bytes.len(), || io.send(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let io = &self.shared.io;
        self.shared.write(&mut self.writing, length_of(parts), || io.send_parts(parts))
    }

    /// Does nothing: a socket has no user-space buffer to flush. It proves nothing.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Socket> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.io.as_fd()
    }
}

/// Samples a connection from another thread. It has a descriptor of its own: until it is dropped,
/// dropping the [`Stream`] does not close the connection.
#[derive(Debug)]
pub struct Sampler {
    fd: OwnedFd,
}

impl Sampler {
    /// What the kernel knows of the connection now.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn info(&self) -> io::Result<TcpInfo> {
        shared::info(&self.fd)
    }

    /// [`Sampler::info`] with the size and fill of the send buffer, if the kernel reports them: a
    /// sample for [`lastbyte_core::sample::Limits`].
    ///
    /// # Errors
    /// As [`Sampler::info`].
    pub fn moment(&self) -> io::Result<Moment> {
        shared::moment(&self.fd)
    }
}
