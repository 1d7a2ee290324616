//! The stream over tokio.

use std::io::{self, IoSlice};
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lastbyte_core::finish::{Facts, FinishOptions};
use lastbyte_core::sample::TcpInfo;
use lastbyte_core::{End, Kind, Receipt};
use lastbyte_sys::socket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::time;

use crate::address::{Address, Endpoints, Socket};
use crate::blocking;
use crate::builder::{Finish, FinishAsync};
use crate::connect::Opening;
use crate::drive::drive;
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::{Finished, Finishing, receipt_of, reset};
use crate::granted::Granted;
use crate::halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::options::{ConnectOptions, SocketOptions};
use crate::shared::{self, ReadSide, Shared, WriteSide, length_of};
use crate::watched::Registered;

/// A connected stream socket over tokio that counts its bytes and knows how the peer's stream
/// ended: TCP, or as [`UnixStream`] a Unix socket. See [`blocking::Stream`] for what it promises.
///
/// It is an [`AsyncRead`] and [`AsyncWrite`]; `shutdown` half-closes it, and proves nothing.
#[derive(Debug)]
pub struct Stream<S: Socket = net::TcpStream> {
    shared: Shared<Registered<S>>,
    reading: ReadSide,
    writing: WriteSide,
    /// Whether closing is a reset, if that was set here or on its listener.
    pub(crate) resets: Option<bool>,
}

/// A [`Stream`] over TCP.
pub type TcpStream = Stream<net::TcpStream>;

/// A [`Stream`] over a Unix socket.
pub type UnixStream = Stream<unix::net::UnixStream>;

impl TcpStream {
    /// Connects to one address, with default options. `lastbyte::connect` takes names too. If the
    /// future is dropped, no socket is left. Needs a running runtime.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn connect(peer: SocketAddr) -> Result<Self, SocketError> {
        Self::connect_with(peer, &ConnectOptions::default()).await
    }

    /// Connects to one address, with options. If the future is dropped, no socket is left. Needs a
    /// running runtime.
    ///
    /// # Errors
    /// The option that could not be set, or why there is no connection.
    pub async fn connect_with(
        peer: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Self, SocketError> {
        let Some(timeout) = options.timeout else {
            return Self::open(peer, options).await;
        };
        time::timeout(timeout, Self::open(peer, options)).await.unwrap_or_else(|_| {
            let endpoints = Endpoints { local: None, peer: Some(peer.into()) };
            Err(SocketError::new(Operation::Connect, endpoints, io::ErrorKind::TimedOut.into()))
        })
    }

    async fn open(peer: SocketAddr, how: &ConnectOptions) -> Result<Self, SocketError> {
        let mut opening = Opening::begin(peer, how)?.map(Registered::new)?;
        let ready = opening.io().ready(Interest::WRITABLE).await;
        let ready = ready.map_err(|cause| opening.failed(cause))?;
        opening.on_writable(ready.is_write_closed())?;
        while !opening.early().is_empty() {
            let ready = opening.io().ready(Interest::WRITABLE).await;
            ready.map_err(|cause| opening.failed(cause))?;
            let rest = opening.early();
            match opening.io().send(rest.len(), |fd| socket::send_now(fd, rest)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => opening.on_written(result)?,
            }
        }
        let (shared, writing) = opening.connected();
        Ok(Self::of_sides(shared, ReadSide::default(), writing))
    }

    /// Closes an unused connection by an immediate reset: nothing of it stays in the kernel.
    /// Written bytes are lost.
    pub fn discard(mut self) {
        // A closed connection needs no reset.
        let _ = self.reset_when_closed(true);
    }

    /// Our address.
    ///
    /// # Errors
    /// `NotConnected` where there is none.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        shared::internet(self.shared.local().as_ref())
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
}

impl UnixStream {
    /// Connects to a Unix socket by its path. It never waits. Needs a running runtime.
    ///
    /// # Errors
    /// The kernel's: `ENOENT`, `ECONNREFUSED`, `EAGAIN` where the listener's queue is full.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, SocketError> {
        let peer = Address::Path(path.as_ref().to_owned());
        let failed = |cause| {
            let endpoints = Endpoints { local: None, peer: Some(peer.clone()) };
            SocketError::new(Operation::Connect, endpoints, cause)
        };
        let socket = tokio::net::UnixStream::connect(path.as_ref()).await.map_err(failed)?;
        let socket = socket.into_std().map_err(failed)?;
        let registered = Registered::new(socket).map_err(failed)?;
        Ok(Self::of(Shared::new(registered, Kind::Unix, true, Some(peer))))
    }

    /// Two Unix sockets that are connected with each other (`socketpair(2)`). Needs a running runtime.
    ///
    /// # Errors
    /// The kernel's: `EMFILE`.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = blocking::UnixStream::pair()?;
        Ok((Self::from_blocking(one)?, Self::from_blocking(other)?))
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
    /// Takes a blocking stream over to tokio, with all it knows. Needs a running runtime.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking or registered.
    pub fn from_blocking(stream: blocking::Stream<S>) -> io::Result<Self> {
        let blocking::Stream { shared, reading, writing } = stream;
        let shared = shared.map(|socket| {
            socket.set_nonblocking(true)?;
            Registered::new(socket)
        })?;
        Ok(Self::of_sides(shared, reading, writing))
    }

    /// Takes the stream back from tokio, with all it knows, and makes it blocking.
    ///
    /// # Errors
    /// When the socket cannot be made blocking.
    pub fn into_blocking(self) -> io::Result<blocking::Stream<S>> {
        let Self { shared, reading, writing, .. } = self;
        let shared = shared.map(|registered| {
            let socket = registered.into_std();
            socket.set_nonblocking(false)?;
            Ok(socket)
        })?;
        Ok(blocking::Stream { shared, reading, writing })
    }

    pub(crate) fn of_sides(
        shared: Shared<Registered<S>>,
        reading: ReadSide,
        writing: WriteSide,
    ) -> Self {
        Self { shared, reading, writing, resets: None }
    }

    pub(crate) fn shared(&self) -> &Shared<Registered<S>> {
        &self.shared
    }

    /// The parts that a read needs.
    pub(crate) fn reading(&mut self) -> (&Shared<Registered<S>>, &mut ReadSide) {
        (&self.shared, &mut self.reading)
    }

    /// The parts that a write needs.
    pub(crate) fn writing(&mut self) -> (&Shared<Registered<S>>, &mut WriteSide) {
        (&self.shared, &mut self.writing)
    }

    pub(crate) fn of(shared: Shared<Registered<S>>) -> Self {
        Self::of_sides(shared, ReadSide::default(), WriteSide::default())
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

    /// Reads what has arrived; 0 only for a FIN, or if the end is [`End::Unknown`].
    ///
    /// # Errors
    /// The connection's: after a reset always an error.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }

    /// Writes all of `bytes` to the kernel.
    ///
    /// # Errors
    /// The connection's; [`Stream::written`] counts the bytes that the kernel accepted before.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
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
    /// `stream.finish().within(limit).want(Delivery::Closed).await?`. See [`Finish`] for its
    /// options, and [`blocking::Stream::finish`] for the steps.
    ///
    /// If the future is dropped, the connection is closed and nothing is proven.
    pub fn finish(self) -> Finish<Self> {
        Finish::new(self)
    }

    /// [`Stream::finish`] with prepared options. It allocates nothing.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub async fn finish_with(self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::finish(self.facts(), options);
        let outcome = drive(&mut finishing, &self.shared.io, true).await;
        finishing.with_endpoints(outcome, || self.shared.endpoints())
    }

    /// Does what [`Stream::finish`] does, except the close: see [`blocking::Stream::prove`].
    pub fn prove(&mut self) -> Finish<&mut Self> {
        Finish::new(self)
    }

    /// [`Stream::prove`] with prepared options.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub async fn prove_with(&mut self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::finish(self.facts(), options);
        let outcome = drive(&mut finishing, &self.shared.io, false).await;
        let finished = finishing.with_endpoints(outcome, || self.shared.endpoints());
        finishing.record(receipt_of(&finished), &mut self.reading, &mut self.writing);
        finished
    }

    fn facts(&self) -> Facts {
        self.shared.facts(&self.reading, &self.writing, true)
    }

    /// Splits the stream into two halves for two tasks. Each counts its own bytes, and neither
    /// waits for the other.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
        let shared = Arc::new(self.shared);
        let writing = OwnedWriteHalf { shared: Arc::clone(&shared), side: self.writing };
        (OwnedReadHalf { shared, side: self.reading }, writing)
    }

    /// Splits the stream into two borrowed halves, to read and write in one task.
    pub fn split(&mut self) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
        let Self { shared, reading, writing, .. } = self;
        (ReadHalf { shared, side: reading }, WriteHalf { shared, side: writing })
    }

    /// Ends the connection by a reset after all written bytes: see [`blocking::Stream::abort`].
    ///
    /// # Errors
    /// When not all written bytes are known to be acknowledged; the error contains the receipt.
    pub async fn abort(self, deadline: Duration) -> Result<Receipt, FinishError> {
        self.abort_with(FinishOptions::default().within(deadline)).await
    }

    /// [`Stream::abort`] with the deadline of `options` and
    /// [`patient`](field@FinishOptions::patient); it ignores the other options.
    ///
    /// # Errors
    /// When not all that was written is known to be acknowledged: the error holds the receipt.
    pub async fn abort_with(self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::abort_with(self.facts(), options);
        let outcome = drive(&mut finishing, &self.shared.io, true).await;
        reset(&self.shared.io, finishing.with_endpoints(outcome, || self.shared.endpoints()))
    }

    /// [`Stream::finish`], but passes what the peer still sends to `rest`: see
    /// [`blocking::Stream::finish_into`].
    ///
    /// # Errors
    /// As those of [`Stream::finish_with`].
    pub async fn finish_into(
        self,
        options: FinishOptions,
        rest: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<Receipt, FinishError> {
        let mut finishing = Finishing::finish(self.facts(), options).passing_to(rest);
        let outcome = drive(&mut finishing, &self.shared.io, true).await;
        finishing.with_endpoints(outcome, || self.shared.endpoints())
    }
}

impl<S: Socket> OwnedReadHalf<S> {
    /// Makes the stream whole again.
    ///
    /// # Errors
    /// Gives both back when they are halves of two streams.
    pub fn reunite(self, other: OwnedWriteHalf<S>) -> Result<Stream<S>, (Self, OwnedWriteHalf<S>)> {
        if !Arc::ptr_eq(&self.shared, &other.shared) {
            return Err((self, other));
        }
        let shared = shared::reunite(other.shared, self.shared);
        Ok(Stream::of_sides(shared, self.side, other.side))
    }
}

impl<S: Socket> FinishAsync for Stream<S> {
    type Future = Pin<Box<dyn Future<Output = Finished> + Send>>;

    fn run(self, options: FinishOptions) -> Self::Future {
        Box::pin(self.finish_with(options))
    }
}

impl<'a, S: Socket> FinishAsync for &'a mut Stream<S> {
    type Future = Pin<Box<dyn Future<Output = Finished> + Send + 'a>>;

    fn run(self, options: FinishOptions) -> Self::Future {
        Box::pin(self.prove_with(options))
    }
}

impl<S: Socket> Shared<Registered<S>> {
    pub(crate) fn endpoints(&self) -> Endpoints {
        Endpoints { local: self.local(), peer: self.peer.clone() }
    }

    fn local(&self) -> Option<Address> {
        self.local.clone().or_else(|| self.io.get().local())
    }

    pub(crate) fn error(&self, operation: Operation, cause: io::Error) -> SocketError {
        SocketError::new(operation, self.endpoints(), cause)
    }

    pub(crate) fn poll_read(
        &self,
        side: &mut ReadSide,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.io.poll_readable(cx))?;
            let unfilled = buffer.initialize_unfilled();
            let length = unfilled.len();
            match self.io.receive(unfilled) {
                Err(error) if is_passing(&error) => {}
                result => {
                    let read = self.on_read(side, length, result)?;
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    pub(crate) fn poll_write(
        &self,
        side: &mut WriteSide,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(side, cx, bytes.len(), |fd| socket::send_now(fd, bytes))
    }

    pub(crate) fn poll_write_parts(
        &self,
        side: &mut WriteSide,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = length_of(parts);
        self.poll_send(side, cx, length, |fd| socket::send_parts_now(fd, parts))
    }

    fn poll_send(
        &self,
        side: &mut WriteSide,
        cx: &mut Context<'_>,
        length: usize,
        send: impl Fn(&Registered<S>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_writable(cx))?;
            match self.write(side, length, || self.io.send(length, &send)) {
                Err(error) if is_passing(&error) => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl<S: Socket> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { shared, reading, .. } = self.get_mut();
        shared.poll_read(reading, cx, buffer)
    }
}

impl<S: Socket> AsyncWrite for Stream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { shared, writing, .. } = self.get_mut();
        shared.poll_write(writing, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { shared, writing, .. } = self.get_mut();
        shared.poll_write_parts(writing, cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: a socket has no user-space buffer to flush. It proves nothing.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Half-closes. It proves nothing.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { shared, writing, .. } = self.get_mut();
        Poll::Ready(shared.half_close(writing))
    }
}

impl<S: Socket> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.io.as_fd()
    }
}
