//! The stream over tokio.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use lastbyte_core::finish::{Drain, FinishOptions, Unproven};
use lastbyte_core::{Delivery, End};
use lastbyte_socket::{Endpoints, Finish, FinishAsync, Socket, Stream};
use rustls::{ClientConfig, Connection, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time;

use crate::blocking::stream::{
    ALERT_TIMEOUT, Deadline, Stuck, decrypts_the_rest, is_passing, left_of,
};
use crate::conclusion::Conclusion;
use crate::error::{Cause, Operation, TlsError, TlsFinishError};
use crate::receipt::TlsReceipt;
use crate::session::{Session, Step};

/// A TLS stream over tokio: see [`TlsStream`](crate::blocking::TlsStream) for what it promises.
///
/// It is an [`AsyncRead`] and [`AsyncWrite`]; `shutdown` half-closes it, and proves nothing. While
/// ciphertext is buffered, a write waits before it accepts anything, so at most about 64 KiB are
/// buffered; a waiting read writes them too. After a `flush` nothing is buffered.
#[derive(Debug)]
pub struct TlsStream<S: Socket = TcpStream> {
    transport: Stream<S>,
    session: Session,
    waiting: Arc<Waiting>,
}

impl<S: Socket> TlsStream<S> {
    /// Makes the handshake as the client, within `timeout`: see
    /// [`TlsStream::connect`](crate::blocking::TlsStream::connect).
    ///
    /// # Errors
    /// Why the handshake failed; the transport is then closed, after an alert to the peer.
    pub async fn connect(
        transport: Stream<S>,
        config: Arc<ClientConfig>,
        server: &str,
        timeout: Duration,
    ) -> Result<Self, TlsError> {
        let session = Session::client(config, server);
        Self::begin(transport, session, Operation::ConnectHandshake, timeout).await
    }

    /// Makes the handshake as the server, within `timeout`.
    ///
    /// # Errors
    /// Why the handshake failed; the transport is then closed, after an alert to the peer.
    pub async fn accept(
        transport: Stream<S>,
        config: Arc<ServerConfig>,
        timeout: Duration,
    ) -> Result<Self, TlsError> {
        let session = Session::server(config);
        Self::begin(transport, session, Operation::AcceptHandshake, timeout).await
    }

    async fn begin(
        transport: Stream<S>,
        session: Result<Session, Cause>,
        operation: Operation,
        timeout: Duration,
    ) -> Result<Self, TlsError> {
        let endpoints = Box::new(transport.endpoints());
        let failed = |cause| TlsError { operation, endpoints, cause: Box::new(cause) };
        let session = match session {
            Ok(session) => session,
            Err(cause) => return Err(failed(cause)),
        };
        let mut stream = Self { transport, session, waiting: Arc::default() };
        let deadline = Deadline::after(timeout);
        let made = time::timeout(timeout, poll_fn(|cx| stream.poll_handshake(cx))).await;
        match made.unwrap_or(Err(Cause::Deadline)) {
            Ok(()) => Ok(stream),
            Err(cause) => {
                stream.send_alert(deadline.left().min(ALERT_TIMEOUT)).await;
                Err(failed(cause))
            }
        }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        loop {
            match self.session.handshake().map_err(Cause::Cut)? {
                Step::Push => {
                    if let Err(error) = ready!(self.poll_push(cx)) {
                        return Poll::Ready(Err(self.explain(error, cx)));
                    }
                }
                Step::Fill => ready!(self.poll_fill(cx)).map_err(Cause::Transport)?,
                Step::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    /// After a failed write, an alert received before may say why.
    fn explain(&mut self, error: io::Error, cx: &mut Context<'_>) -> Cause {
        loop {
            match self.session.handshake() {
                Err(cut) => return Cause::Cut(cut),
                Ok(Step::Push) => {
                    self.session.give_up();
                }
                Ok(Step::Fill) if matches!(self.poll_fill(cx), Poll::Ready(Ok(()))) => {}
                Ok(Step::Fill | Step::Done) => return Cause::Transport(error),
            }
        }
    }

    /// Sends the pending alert. A plain close would often lose it, because of unread bytes from the
    /// peer.
    async fn send_alert(mut self, left: Duration) {
        let pushed = poll_fn(|cx| Poll::Ready(self.poll_push(cx))).await;
        if matches!(pushed, Poll::Ready(Ok(()))) {
            let _ = self.transport.finish_with(FinishOptions::default().within(left)).await;
        }
    }

    /// The transport: its counts of *ciphertext*, and what the kernel knows.
    #[must_use]
    pub fn transport(&self) -> &Stream<S> {
        &self.transport
    }

    /// The connection of rustls: the version, the negotiated protocol (ALPN), the peer's
    /// certificates.
    #[must_use]
    pub fn tls(&self) -> &Connection {
        self.session.tls()
    }

    /// Both addresses, to be shown to a person.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        self.transport.endpoints()
    }

    /// Bytes of plaintext written so far. The ciphertext of the last ones may still be buffered:
    /// see [`TlsStream`].
    #[must_use]
    pub fn written(&self) -> u64 {
        self.session.written
    }

    /// Bytes of plaintext read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.session.read
    }

    /// How the peer's stream ended, once a read has met its end: see
    /// [`TlsStream::observed_end`](crate::blocking::TlsStream::observed_end).
    #[must_use]
    pub fn observed_end(&self) -> Option<End> {
        self.session.observed_end()
    }

    /// Sends `close_notify` and ends our direction of the transport with a FIN after it: see
    /// [`TlsStream::half_close`](crate::blocking::TlsStream::half_close).
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn half_close(&mut self) -> Result<(), TlsError> {
        let flushed = self.close_tls().await.map_err(Cause::Transport);
        let ended = flushed.and_then(|()| self.transport.half_close().map_err(Cause::from));
        ended.map_err(|cause| TlsError {
            operation: Operation::HalfClose,
            endpoints: Box::new(self.transport.endpoints()),
            cause: Box::new(cause),
        })
    }

    /// Sends `close_notify` and leaves the transport open: bytes written to it later are not TLS.
    ///
    /// # Errors
    /// The transport's.
    pub async fn close_tls(&mut self) -> io::Result<()> {
        self.session.close();
        AsyncWriteExt::flush(self).await
    }

    /// Ends the connection without losing bytes, and returns the proof:
    /// `stream.finish().within(limit).await?`. See [`Finish`] for its options, and
    /// [`blocking::TlsStream::finish`](crate::blocking::TlsStream::finish) for the steps.
    ///
    /// If the future is dropped, the connection is closed and nothing is proven.
    pub fn finish(self) -> Finish<Self> {
        Finish::new(self)
    }

    /// [`TlsStream::finish`] with prepared options.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub async fn finish_with(
        mut self,
        options: FinishOptions,
    ) -> Result<TlsReceipt, TlsFinishError> {
        let deadline = Deadline::after(options.deadline);
        let endpoints = self.transport.endpoints();
        self.session.close();
        let flushed = self.flush_by(deadline, options.drain).await;
        let Self { transport, mut session, .. } = self;
        let left = left_of(options, deadline, &session);
        let decrypted = decrypts_the_rest(options);
        let (stuck, transport) = match flushed {
            Err(Stuck::Deadline) => {
                (Some(Unproven::Deadline), transport.abort(Duration::ZERO).await)
            }
            Err(Stuck::Broken) => (None, transport.finish_with(left).await),
            Ok(()) if decrypted => (
                None,
                transport.finish_into(left, &mut |rest| session.discard_ciphertext(rest)).await,
            ),
            Ok(()) => (None, transport.finish_with(left).await),
        };
        let (operation, want, drain) = (Operation::Finish, options.want, left.drain);
        let conclusion = Conclusion { operation, want, stuck, drain, decrypted };
        conclusion.outcome(transport, &mut session, endpoints)
    }

    /// Ends the connection by a reset without `close_notify`, after all written bytes: see
    /// [`TlsStream::abort`](crate::blocking::TlsStream::abort).
    ///
    /// # Errors
    /// When not all written bytes are known to be acknowledged; the error contains the receipt.
    pub async fn abort(mut self, deadline: Duration) -> Result<TlsReceipt, TlsFinishError> {
        let (deadline, endpoints) = (Deadline::after(deadline), self.transport.endpoints());
        let stuck = match self.flush_by(deadline, Drain::Keep).await {
            Err(Stuck::Deadline) => Some(Unproven::Deadline),
            Err(Stuck::Broken) | Ok(()) => None,
        };
        let transport = self.transport.abort(deadline.left()).await;
        let (operation, want) = (Operation::Abort, Delivery::Acked);
        let conclusion =
            Conclusion { operation, want, stuck, drain: Drain::Keep, decrypted: false };
        conclusion.outcome(transport, &mut self.session, endpoints)
    }

    /// Returns the open transport, once TLS has ended on it: see
    /// [`TlsStream::into_inner`](crate::blocking::TlsStream::into_inner).
    ///
    /// # Errors
    /// Returns the stream if TLS has not ended.
    pub fn into_inner(self) -> Result<Stream<S>, Box<Self>> {
        if self.session.is_over() { Ok(self.transport) } else { Err(Box::new(self)) }
    }

    /// Writes everything to the kernel, and reads meanwhile: a peer that waits for us to read would
    /// never read what we write.
    async fn flush_by(&mut self, deadline: Deadline, drain: Drain) -> Result<(), Stuck> {
        let flushed = poll_fn(|cx| {
            if let Poll::Ready(pushed) = self.poll_push(cx) {
                return Poll::Ready(pushed.map_err(|_| Stuck::Broken));
            }
            if self.session.may_drain(drain) {
                self.session.discard();
            }
            // The finish will find its errors.
            while self.session.may_drain(drain) && matches!(self.poll_fill(cx), Poll::Ready(Ok(())))
            {
                self.session.discard();
            }
            Poll::Pending
        });
        time::timeout(deadline.left(), flushed).await.unwrap_or(Err(Stuck::Deadline))
    }

    fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut kernel = Polled { transport: &mut self.transport, cx };
        match self.session.push(&mut kernel) {
            Err(error) if is_passing(&error) => Poll::Pending,
            pushed => Poll::Ready(pushed),
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = ReadBuf::new(self.session.buffer());
        let result = ready!(Pin::new(&mut self.transport).poll_read(cx, &mut buffer));
        let bytes = buffer.filled().len();
        Poll::Ready(self.session.on_fill(result.map(|()| bytes), self.transport.observed_end()))
    }

    /// Writes ciphertext for a task that waits to read or to write. The transport knows only the
    /// last waiter, so this wakes both.
    fn poll_push_for(&mut self, direction: Direction, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if !self.session.pending() {
            return Poll::Ready(Ok(()));
        }
        self.waiting.set(direction, cx.waker());
        let both = Waker::from(Arc::clone(&self.waiting));
        self.poll_push(&mut Context::from_waker(&both))
    }

    fn poll_write_by(
        &mut self,
        cx: &Context<'_>,
        give: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_push_for(Direction::Write, cx))?;
        let taken = self.session.accept(give)?;
        // These bytes are accepted, even if this fails: the next call reports it.
        let _ = self.poll_push_for(Direction::Write, cx);
        Poll::Ready(Ok(taken))
    }
}

impl<S: Socket> FinishAsync for TlsStream<S> {
    type Future = Pin<Box<dyn Future<Output = Result<TlsReceipt, TlsFinishError>> + Send>>;

    fn run(self, options: FinishOptions) -> Self::Future {
        Box::pin(self.finish_with(options))
    }
}

impl<S: Socket> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        loop {
            let taken = stream.session.take(buffer.initialize_unfilled());
            if !matches!(taken, Some(Ok(_))) {
                // What a write left here, or the alert that says why this is the end. Whether it
                // goes is for a write or a flush to say.
                let _ = stream.poll_push_for(Direction::Read, cx);
            }
            if let Some(taken) = taken {
                buffer.advance(taken?);
                return Poll::Ready(Ok(()));
            }
            ready!(stream.poll_fill(cx))?;
        }
    }
}

impl<S: Socket> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_by(cx, |tls| tls.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_by(cx, |tls| tls.write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Pushes all that was written to the kernel. It is no proof of anything.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_push_for(Direction::Write, cx)
    }

    /// Half-closes: no proof of anything either.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        stream.session.close();
        ready!(stream.poll_push_for(Direction::Write, cx))?;
        Pin::new(&mut stream.transport).poll_shutdown(cx)
    }
}

/// The transport as rustls writes to it.
struct Polled<'a, 'b, S: Socket> {
    transport: &'a mut Stream<S>,
    cx: &'a mut Context<'b>,
}

impl<S: Socket> Polled<'_, '_, S> {
    fn now(polled: Poll<io::Result<usize>>) -> io::Result<usize> {
        match polled {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<S: Socket> Write for Polled<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::now(Pin::new(&mut *self.transport).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::now(Pin::new(&mut *self.transport).poll_write_vectored(self.cx, parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// The tasks that wait until the kernel has buffer. The transport remembers one, the last that asked:
/// where one task reads and another writes, it would forget the writer.
#[derive(Debug, Default)]
struct Waiting {
    reader: Mutex<Option<Waker>>,
    writer: Mutex<Option<Waker>>,
}

impl Waiting {
    fn set(&self, direction: Direction, waker: &Waker) {
        let place = match direction {
            Direction::Read => &self.reader,
            Direction::Write => &self.writer,
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *place {
            Some(known) => known.clone_from(waker),
            None => *place = Some(waker.clone()),
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        for place in [&self.reader, &self.writer] {
            let waker = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
