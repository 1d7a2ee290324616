//! The blocking stream.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lastbyte_core::finish::{Drain, FinishOptions, Unproven};
use lastbyte_core::{Delivery, End};
use lastbyte_socket::blocking::Stream;
use lastbyte_socket::{Endpoints, Finish, FinishBlocking, Socket};
use rustls::{ClientConfig, Connection, ServerConfig};

use crate::conclusion::Conclusion;
use crate::error::{Cause, Operation, TlsError, TlsFinishError};
use crate::receipt::TlsReceipt;
use crate::session::{Session, Step};

/// How long a failed handshake may take to deliver our alert to the peer.
pub(crate) const ALERT_TIMEOUT: Duration = Duration::from_secs(1);

/// A TLS stream that counts its plaintext and knows how the peer's stream ended.
///
/// As [`Read`] it returns `Ok(0)` only for the peer's `close_notify`. If the transport ends without
/// it, by a FIN, a reset or anything else, each read returns an error; see
/// [`TlsStream::observed_end`].
///
/// As [`Write`] it encrypts bytes and writes the ciphertext to the kernel. If the kernel does not
/// accept it (the transport's write time-out passed, or an error came), up to about 64 KiB of
/// ciphertext stay buffered, although `write` counted their plaintext. The next `write` accepts
/// nothing before they are written, [`flush`](Write::flush) waits for them, a `read` tries once,
/// and a [finish](TlsStream::finish) includes them. After a `flush` nothing is buffered.
///
/// Dropping it is a plain `close` without `close_notify`: the peer sees a truncated stream.
#[derive(Debug)]
pub struct TlsStream<S = TcpStream> {
    transport: Stream<S>,
    session: Session,
}

impl<S: Socket> TlsStream<S> {
    /// Makes the handshake as the client, within `timeout`. `server` is the host name, or the
    /// address as text, that its certificate must be for.
    ///
    /// # Errors
    /// Why the handshake failed; the transport is then closed, after an alert to the peer.
    pub fn connect(
        transport: Stream<S>,
        config: Arc<ClientConfig>,
        server: &str,
        timeout: Duration,
    ) -> Result<Self, TlsError> {
        let session = Session::client(config, server);
        Self::begin(transport, session, Operation::ConnectHandshake, timeout)
    }

    /// Makes the handshake as the server, within `timeout`.
    ///
    /// # Errors
    /// Why the handshake failed; the transport is then closed, after an alert to the peer.
    pub fn accept(
        transport: Stream<S>,
        config: Arc<ServerConfig>,
        timeout: Duration,
    ) -> Result<Self, TlsError> {
        let session = Session::server(config);
        Self::begin(transport, session, Operation::AcceptHandshake, timeout)
    }

    fn begin(
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
        let mut stream = Self { transport, session };
        let deadline = Deadline::after(timeout);
        match stream.handshake(deadline) {
            Ok(()) => Ok(stream),
            Err(cause) => {
                stream.send_alert(deadline);
                Err(failed(cause))
            }
        }
    }

    fn handshake(&mut self, deadline: Deadline) -> Result<(), Cause> {
        loop {
            match self.session.handshake().map_err(Cause::Cut)? {
                Step::Push => match self.push_now() {
                    Err(error) if is_passing(&error) => self.wait(false, true, deadline)?,
                    Err(error) => return Err(self.explain(error)),
                    Ok(()) => {}
                },
                Step::Fill => match self.fill_now() {
                    Err(error) if is_passing(&error) => self.wait(true, false, deadline)?,
                    filled => filled.map_err(Cause::Transport)?,
                },
                Step::Done => return Ok(()),
            }
        }
    }

    /// After a failed write, an alert received before may say why.
    fn explain(&mut self, error: io::Error) -> Cause {
        loop {
            match self.session.handshake() {
                Err(cut) => return Cause::Cut(cut),
                Ok(Step::Push) => {
                    self.session.give_up();
                }
                Ok(Step::Fill) if self.fill_now().is_ok() => {}
                Ok(Step::Fill | Step::Done) => return Cause::Transport(error),
            }
        }
    }

    /// Sends the pending alert. A plain close would often lose it, because of unread bytes from the
    /// peer.
    fn send_alert(mut self, deadline: Deadline) {
        if self.push_now().is_ok() {
            let left = deadline.left().min(ALERT_TIMEOUT);
            let _ = self.transport.finish_with(FinishOptions::default().within(left));
        }
    }

    /// The transport: its time-outs, its counts of *ciphertext*, and what the kernel knows.
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

    /// How the peer's stream ended, once a read has met its end: [`End::Fin`] for its
    /// `close_notify`, whatever the transport did after that; [`End::Reset`] for a reset before it;
    /// [`End::Truncated`] for every other end, a fatal alert among them.
    #[must_use]
    pub fn observed_end(&self) -> Option<End> {
        self.session.observed_end()
    }

    /// Sends `close_notify` and ends our direction of the transport with a FIN after it. In TLS 1.3
    /// the other direction stays open; in TLS 1.2 most peers end it too (RFC 5246 section 7.2.1).
    ///
    /// # Errors
    /// When the connection is gone, or the kernel does not accept the rest within the transport's
    /// write time-out: then call it again.
    pub fn half_close(&mut self) -> Result<(), TlsError> {
        self.session.close();
        let flushed = self.session.push(&mut self.transport).map_err(Cause::Transport);
        let ended = flushed.and_then(|()| self.transport.half_close().map_err(Cause::from));
        ended.map_err(|cause| TlsError {
            operation: Operation::HalfClose,
            endpoints: Box::new(self.transport.endpoints()),
            cause: Box::new(cause),
        })
    }

    /// Ends the connection without losing bytes, and returns the proof: it flushes, sends
    /// `close_notify`, and finishes the transport (see [`Stream::finish`]), all within the
    /// deadline.
    ///
    /// It discards what the peer still sends, up to the drain limit in bytes of ciphertext. If
    /// [`Delivery::Closed`] is wanted, it decrypts those bytes to find the peer's `close_notify`.
    /// So with [`Drain::Keep`] it proves `Closed` only if a read reached the `close_notify` before.
    ///
    /// If the kernel does not accept everything before the deadline, the connection is reset (over
    /// TCP), so that the peer does not take the stream for complete.
    ///
    /// `stream.finish().within(limit).wait()?`; see [`Finish`] for its options.
    pub fn finish(self) -> Finish<Self> {
        Finish::new(self)
    }

    /// [`TlsStream::finish`] with prepared options.
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub fn finish_with(mut self, options: FinishOptions) -> Result<TlsReceipt, TlsFinishError> {
        let deadline = Deadline::after(options.deadline);
        let endpoints = self.transport.endpoints();
        self.session.close();
        let flushed = self.flush_by(deadline, options.drain);
        let Self { transport, mut session } = self;
        let left = left_of(options, deadline, &session);
        let decrypted = decrypts_the_rest(options);
        let (stuck, transport) = match flushed {
            Err(Stuck::Deadline) => (Some(Unproven::Deadline), transport.abort(Duration::ZERO)),
            Err(Stuck::Broken) => (None, transport.finish_with(left)),
            Ok(()) if decrypted => {
                (None, transport.finish_into(left, &mut |rest| session.discard_ciphertext(rest)))
            }
            Ok(()) => (None, transport.finish_with(left)),
        };
        let (operation, want, drain) = (Operation::Finish, options.want, left.drain);
        let conclusion = Conclusion { operation, want, stuck, drain, decrypted };
        conclusion.outcome(transport, &mut session, endpoints)
    }

    /// Ends the connection by a reset without `close_notify`, so that the peer does not take the
    /// stream for complete. The reset follows once the peer's kernel has acknowledged all written
    /// bytes. See [`Stream::abort`].
    ///
    /// # Errors
    /// When not all written bytes are known to be acknowledged; the error contains the receipt.
    pub fn abort(mut self, deadline: Duration) -> Result<TlsReceipt, TlsFinishError> {
        let (deadline, endpoints) = (Deadline::after(deadline), self.transport.endpoints());
        let stuck = match self.flush_by(deadline, Drain::Keep) {
            Err(Stuck::Deadline) => Some(Unproven::Deadline),
            Err(Stuck::Broken) | Ok(()) => None,
        };
        let transport = self.transport.abort(deadline.left());
        let (operation, want) = (Operation::Abort, Delivery::Acked);
        let conclusion =
            Conclusion { operation, want, stuck, drain: Drain::Keep, decrypted: false };
        conclusion.outcome(transport, &mut self.session, endpoints)
    }

    /// Gives the transport back, with nothing closed, where TLS is over on it: both sides said
    /// `close_notify`, a read met the peer's, ours is in the kernel, and no byte behind the peer's
    /// was taken.
    ///
    /// # Errors
    /// Gives the stream back where that is not so.
    pub fn into_inner(self) -> Result<Stream<S>, Box<Self>> {
        if self.session.is_over() { Ok(self.transport) } else { Err(Box::new(self)) }
    }

    /// Says `close_notify` and leaves the transport open: what is written to it later is not TLS.
    ///
    /// # Errors
    /// The transport's: what is left can be flushed later.
    pub fn close_tls(&mut self) -> io::Result<()> {
        self.session.close();
        self.flush()
    }

    /// Pushes everything to the kernel, and reads meanwhile: a peer that waits for us to read would
    /// never read what we write.
    fn flush_by(&mut self, deadline: Deadline, drain: Drain) -> Result<(), Stuck> {
        loop {
            match self.push_now() {
                Ok(()) => return Ok(()),
                Err(error) if is_passing(&error) => {}
                Err(_) => return Err(Stuck::Broken),
            }
            let reads = self.session.may_drain(drain);
            if reads {
                self.session.discard();
                // Its errors are for the finish to find out about.
                while self.session.may_drain(drain) && self.fill_now().is_ok() {
                    self.session.discard();
                }
            }
            match self.wait(self.session.may_drain(drain), true, deadline) {
                Ok(()) => {}
                Err(Cause::Deadline) => return Err(Stuck::Deadline),
                Err(_) => return Err(Stuck::Broken),
            }
        }
    }

    fn push_now(&mut self) -> io::Result<()> {
        self.session.push(&mut Now(&mut self.transport))
    }

    fn fill_now(&mut self) -> io::Result<()> {
        let result = self.transport.read_now(self.session.buffer());
        self.session.on_fill(result, self.transport.observed_end())
    }

    fn wait(&self, read: bool, write: bool, deadline: Deadline) -> Result<(), Cause> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(Cause::Deadline);
        }
        self.transport.wait(read, write, left).map_err(Cause::Transport)
    }
}

/// What is left of the options after the flush.
pub(crate) fn left_of(
    options: FinishOptions,
    deadline: Deadline,
    session: &Session,
) -> FinishOptions {
    let drain = match options.drain {
        Drain::Discard(limit) => Drain::Discard(limit.saturating_sub(session.drained)),
        Drain::Keep => Drain::Keep,
    };
    options.within(deadline.left()).drain(drain)
}

/// Whether a finish has to look for the peer's `close_notify`.
pub(crate) fn decrypts_the_rest(options: FinishOptions) -> bool {
    options.want >= Delivery::Closed && options.drain != Drain::Keep
}

/// Why a flush did not come to its end.
pub(crate) enum Stuck {
    Deadline,
    /// The transport failed. It knows best how.
    Broken,
}

/// A deadline that may be beyond the clock's range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    began: Instant,
    after: Duration,
}

impl Deadline {
    pub(crate) fn after(after: Duration) -> Self {
        Self { began: Instant::now(), after }
    }

    pub(crate) fn left(self) -> Duration {
        self.after.saturating_sub(self.began.elapsed())
    }
}

pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Writes what the kernel takes without waiting.
struct Now<'a, S>(&'a mut Stream<S>);

impl<S: Socket> Write for Now<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_now(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Socket> FinishBlocking for TlsStream<S> {
    type Receipt = TlsReceipt;
    type Error = TlsFinishError;

    fn run(self, options: FinishOptions) -> Result<TlsReceipt, TlsFinishError> {
        self.finish_with(options)
    }
}

impl<S: Socket> Read for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let taken = self.session.take(buffer);
            if !matches!(taken, Some(Ok(_))) {
                // What a write left here, or the alert that says why this is the end. Whether it
                // goes is for a write or a flush to say.
                let _ = self.push_now();
            }
            if let Some(taken) = taken {
                return taken;
            }
            let result = self.transport.read(self.session.buffer());
            self.session.on_fill(result, self.transport.observed_end())?;
        }
    }
}

impl<S: Socket> TlsStream<S> {
    fn write_by(
        &mut self,
        give: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.session.push(&mut self.transport)?;
        let taken = self.session.accept(give)?;
        // These bytes are taken, whatever happens now: the next call will say.
        let _ = self.session.push(&mut self.transport);
        Ok(taken)
    }
}

impl<S: Socket> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(|tls| tls.write(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_by(|tls| tls.write_vectored(parts))
    }

    /// Pushes all that was written to the kernel. It is no proof of anything.
    fn flush(&mut self) -> io::Result<()> {
        self.session.push(&mut self.transport)
    }
}
