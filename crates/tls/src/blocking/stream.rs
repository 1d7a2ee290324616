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

/// How long a failed handshake may take to bring our alert to the peer.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// A TLS stream that counts its plaintext and tells the truth about its end.
///
/// As [`Read`] it returns `Ok(0)` only for the peer's `close_notify`. A transport that ends without
/// it, by a FIN, a reset or anything else, is an error, again and again; see [`TlsStream::observed_end`].
///
/// As [`Write`] it encrypts what it is given and pushes it to the kernel. Where the kernel has no
/// room (a write time-out of the transport passed, or an error came) up to about 64 KiB of
/// ciphertext stay here although `write` counted their plaintext. A `write` takes nothing before
/// they are gone, [`flush`](Write::flush) waits until they are, a `read` tries once, and a
/// [finish](TlsStream::finish) includes them. Nothing stays here after a `flush`.
///
/// Dropping it is a plain `close` without `close_notify`: the peer sees a cut.
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
    /// Says why there is no TLS; the transport is closed then, after the peer was told.
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
    /// Says why there is no TLS; the transport is closed then, after the peer was told.
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
                stream.say_last_words(deadline);
                Err(failed(cause))
            }
        }
    }

    fn handshake(&mut self, deadline: Deadline) -> Result<(), Cause> {
        loop {
            match self.session.handshake().map_err(Cause::Cut)? {
                Step::Push => match self.push_now() {
                    Err(error) if is_passing(&error) => self.wait(false, true, deadline)?,
                    Err(error) => return Err(self.last_heard(error)),
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

    /// Where nothing can be written any more, what came before may say why: an alert.
    fn last_heard(&mut self, error: io::Error) -> Cause {
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

    /// An alert says why. A plain close would often take it along, over what the peer sent meanwhile.
    fn say_last_words(mut self, deadline: Deadline) {
        if self.push_now().is_ok() {
            let left = deadline.left().min(LAST_WORDS);
            let _ = self.transport.finish_with(FinishOptions::default().within(left));
        }
    }

    /// The transport: its time-outs, its counts of *ciphertext*, what the kernel knows of it.
    #[must_use]
    pub fn transport(&self) -> &Stream<S> {
        &self.transport
    }

    /// What rustls knows: the version, the protocol agreed on (ALPN), the peer's certificates.
    #[must_use]
    pub fn tls(&self) -> &Connection {
        self.session.tls()
    }

    /// Both addresses, to be shown to a person.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        self.transport.endpoints()
    }

    /// Bytes of plaintext written so far. They are encrypted, and all but the last of them in the
    /// kernel: see [`TlsStream`].
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

    /// Says `close_notify` and ends our direction of the transport with a FIN behind it. In TLS 1.3
    /// the other direction stays open; in TLS 1.2 most peers end it too (RFC 5246 section 7.2.1).
    ///
    /// # Errors
    /// When the connection is gone, or the kernel does not take what is left in the transport's
    /// write time-out: then it can be tried again.
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

    /// Ends the connection so that nothing is lost, and returns the proof: flushes what is left, says
    /// `close_notify`, and finishes the transport (see [`Stream::finish`]), all of it within the
    /// deadline.
    ///
    /// What the peer still sends is thrown away, up to the limit of the options, which is in bytes of
    /// ciphertext. Where [`Delivery::Closed`] is wanted it is decrypted and looked at for the peer's
    /// `close_notify`; so [`Drain::Keep`] proves that only where a read had met it before.
    ///
    /// Where the kernel does not take all of it before the deadline, the connection is reset (over
    /// TCP), so that the peer cannot mistake what it got for all.
    ///
    /// `stream.finish().within(limit).wait()?`; see [`Finish`] for what can be asked for.
    pub fn finish(self) -> Finish<Self> {
        Finish::new(self)
    }

    /// [`TlsStream::finish`] with options that are at hand.
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
        let looked = looks_at_the_rest(options);
        let (stuck, transport) = match flushed {
            Err(Stuck::Deadline) => (Some(Unproven::Deadline), transport.abort(Duration::ZERO)),
            Err(Stuck::Broken) => (None, transport.finish_with(left)),
            Ok(()) if looked => {
                (None, transport.finish_into(left, &mut |rest| session.swallow(rest)))
            }
            Ok(()) => (None, transport.finish_with(left)),
        };
        let (operation, want, drain) = (Operation::Finish, options.want, left.drain);
        let conclusion = Conclusion { operation, want, stuck, drain, looked };
        conclusion.outcome(transport, &mut session, endpoints)
    }

    /// Ends the connection by a reset without `close_notify`, on purpose, so that the peer cannot
    /// mistake it for a clean end; in order, after everything that was written is acknowledged by the
    /// peer's kernel. See [`Stream::abort`].
    ///
    /// # Errors
    /// When not all that was written is known to be acknowledged: the error holds the receipt.
    pub fn abort(mut self, deadline: Duration) -> Result<TlsReceipt, TlsFinishError> {
        let (deadline, endpoints) = (Deadline::after(deadline), self.transport.endpoints());
        let stuck = match self.flush_by(deadline, Drain::Keep) {
            Err(Stuck::Deadline) => Some(Unproven::Deadline),
            Err(Stuck::Broken) | Ok(()) => None,
        };
        let transport = self.transport.abort(deadline.left());
        let (operation, want) = (Operation::Abort, Delivery::Acked);
        let conclusion = Conclusion { operation, want, stuck, drain: Drain::Keep, looked: false };
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
        let result = self.transport.read_now(self.session.room());
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
pub(crate) fn looks_at_the_rest(options: FinishOptions) -> bool {
    options.want >= Delivery::Closed && options.drain != Drain::Keep
}

/// Why a flush did not come to its end.
pub(crate) enum Stuck {
    Deadline,
    /// The transport failed. It knows best how.
    Broken,
}

/// A time that may be too far away to be told.
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
            let result = self.transport.read(self.session.room());
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
