//! A TLS connection without I/O, for blocking and tokio streams alike: bytes in, bytes out, and how
//! it ended.

use std::io::{self, Read, Write};
use std::sync::Arc;

use lastbyte_core::End;
use lastbyte_core::finish::Drain;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::error::{Cause, Cut};
use crate::incoming::Incoming;

/// About how much ciphertext may wait for the kernel: beyond that, `write` accepts nothing.
const BUFFER_BYTES: usize = 64 << 10;

/// A TLS connection and its counts.
#[derive(Debug)]
pub(crate) struct Session {
    tls: Connection,
    incoming: Incoming,
    /// Plaintext bytes that rustls accepted.
    pub(crate) written: u64,
    /// Plaintext bytes that the caller read.
    pub(crate) read: u64,
    /// Plaintext bytes that a finish discarded.
    pub(crate) drained: u64,
    /// How the peer's stream ends; known before the caller has read all of it.
    end: Option<Ending>,
    /// A read has reached the end.
    met: bool,
    /// rustls has queued our `close_notify`.
    closed: bool,
}

#[derive(Clone, Debug)]
enum Ending {
    CloseNotify,
    Cut(Cut),
}

/// What to do next in a handshake.
pub(crate) enum Step {
    /// Write the pending ciphertext, then ask again.
    Push,
    /// Read from the transport, then ask again.
    Fill,
    Done,
}

impl Session {
    pub(crate) fn client(config: Arc<ClientConfig>, name: &str) -> Result<Self, Cause> {
        let server = ServerName::try_from(name).map_err(|_| Cause::Name(name.to_owned()))?;
        let tls = ClientConnection::new(config, server.to_owned()).map_err(Cause::Tls)?;
        Ok(Self::of(tls.into()))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, Cause> {
        Ok(Self::of(ServerConnection::new(config).map_err(Cause::Tls)?.into()))
    }

    fn of(mut tls: Connection) -> Self {
        tls.set_buffer_limit(Some(BUFFER_BYTES));
        let incoming = Incoming::default();
        Self {
            tls,
            incoming,
            written: 0,
            read: 0,
            drained: 0,
            end: None,
            met: false,
            closed: false,
        }
    }

    /// The next step of the handshake.
    pub(crate) fn handshake(&mut self) -> Result<Step, Cut> {
        loop {
            match &self.end {
                Some(Ending::Cut(cut)) => return Err(cut.clone()),
                // rustls rejects a `close_notify` during the handshake.
                _ if self.tls.wants_write() => return Ok(Step::Push),
                _ if !self.tls.is_handshaking() => return Ok(Step::Done),
                _ if self.incoming.is_empty() => return Ok(Step::Fill),
                _ => self.digest(),
            }
        }
    }

    /// Reads plaintext, the end of the stream, or the error that ended it; `None` until more
    /// ciphertext comes.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        if buffer.is_empty() {
            return Some(Ok(0));
        }
        loop {
            match self.tls.reader().read(buffer) {
                Ok(bytes @ 1..) => {
                    self.read += bytes as u64;
                    return Some(Ok(bytes));
                }
                // "Any data received after a closure alert has been received MUST be ignored."
                // (RFC 8446 section 6.1)
                Ok(0) if self.peer_closed() => {
                    self.met = true;
                    return Some(Ok(0));
                }
                // Nothing is there yet.
                _ => {}
            }
            if let Some(Ending::Cut(cut)) = &self.end {
                self.met = true;
                return Some(Err(cut.clone().into()));
            }
            if self.incoming.is_empty() {
                return None;
            }
            self.digest();
        }
    }

    /// The buffer for the next ciphertext, after [`Session::take`] returned `None`; then call
    /// [`Session::on_fill`].
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        self.incoming.buffer()
    }

    /// Takes the result of a read from the transport. Transient errors are returned to the caller.
    ///
    /// `ended` is how the transport ended, if it did.
    pub(crate) fn on_fill(
        &mut self,
        result: io::Result<usize>,
        ended: Option<End>,
    ) -> io::Result<()> {
        match (result, ended) {
            (Ok(bytes @ 1..), _) => self.incoming.received(bytes),
            (_, Some(End::Reset)) => self.cut(Cut::Reset { read: self.read }),
            (Ok(_), _) => {
                let inside = self.incoming.is_inside();
                self.cut(Cut::Truncated { inside, read: self.read });
            }
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    /// Decrypts what the peer still sends, and discards the plaintext.
    pub(crate) fn discard_ciphertext(&mut self, ciphertext: &[u8]) {
        self.discard();
        let mut ciphertext = ciphertext;
        while self.end.is_none() && !ciphertext.is_empty() {
            let buffer = self.incoming.buffer();
            let length = buffer.len().min(ciphertext.len());
            let (now, later) = ciphertext.split_at(length);
            buffer[..length].copy_from_slice(now);
            self.incoming.received(length);
            ciphertext = later;
            self.discard();
        }
    }

    /// Discards the plaintext of all buffered ciphertext.
    pub(crate) fn discard(&mut self) {
        let (read, met) = (self.read, self.met);
        let mut scratch = [0; 4096];
        while let Some(Ok(1..)) = self.take(&mut scratch) {}
        self.drained += self.read - read;
        (self.read, self.met) = (read, met);
    }

    /// Whether a finish that is still flushing may read and discard more.
    pub(crate) fn may_drain(&self, drain: Drain) -> bool {
        let buffer = match drain {
            Drain::Discard(limit) => limit > self.drained,
            Drain::Keep => false,
        };
        buffer && self.end.is_none()
    }

    /// Passes plaintext to rustls, which encrypts it at once.
    pub(crate) fn accept(
        &mut self,
        give: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.closed {
            let text = "close_notify was sent: nothing can be written after it";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        // After a failure of TLS this returns that error.
        let bytes = give(&mut self.tls.writer())?;
        self.written += bytes as u64;
        Ok(bytes)
    }

    /// Queues `close_notify` after all written plaintext. Further calls have no effect.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.tls.send_close_notify();
    }

    /// Whether ciphertext waits to be written.
    pub(crate) fn pending(&self) -> bool {
        self.tls.wants_write()
    }

    /// Writes the pending ciphertext, all of it or up to an error.
    pub(crate) fn push(&mut self, kernel: &mut dyn Write) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(kernel) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Drops the ciphertext that the kernel did not accept, and returns how many bytes it was.
    pub(crate) fn give_up(&mut self) -> u64 {
        let mut left = Left(0);
        let _ = self.push(&mut left);
        left.0
    }

    /// How the peer's stream ended, once a read has met its end.
    pub(crate) fn observed_end(&self) -> Option<End> {
        if self.met { self.end() } else { None }
    }

    /// How the peer's stream ends, read to its end or not.
    pub(crate) fn end(&self) -> Option<End> {
        self.end.as_ref().map(|end| match end {
            Ending::CloseNotify => End::Fin,
            Ending::Cut(cut) => cut.end(),
        })
    }

    /// The failure of TLS itself, after which nothing more can be sent to the peer.
    pub(crate) fn failure(&self) -> Option<&rustls::Error> {
        match &self.end {
            Some(Ending::Cut(Cut::Tls { error, .. })) => Some(error),
            _ => None,
        }
    }

    /// Whether ciphertext or plaintext is buffered that was not read.
    pub(crate) fn has_unread(&mut self) -> bool {
        !self.incoming.is_empty() || !self.tls.wants_read() && !self.peer_closed()
    }

    /// Whether both directions ended with `close_notify`, the kernel has ours, and nothing was read
    /// after the peer's.
    pub(crate) fn is_over(&self) -> bool {
        let ended = self.closed && self.met && self.peer_closed();
        ended && !self.pending() && self.incoming.is_empty()
    }

    pub(crate) fn tls(&self) -> &Connection {
        &self.tls
    }

    fn peer_closed(&self) -> bool {
        matches!(self.end, Some(Ending::CloseNotify))
    }

    /// Passes buffered ciphertext to rustls, until it has plaintext, an end, or needs more.
    fn digest(&mut self) {
        while self.end.is_none() && !self.incoming.is_empty() && self.tls.wants_read() {
            let mut piece = self.incoming.piece();
            match self.tls.read_tls(&mut piece) {
                Ok(bytes) => self.incoming.given(bytes),
                // rustls's buffer is bounded: it refuses a handshake message that does not fit.
                Err(error) => return self.fail(rustls::Error::General(error.to_string())),
            }
            match self.tls.process_new_packets() {
                Ok(state) if state.peer_has_closed() => self.end = Some(Ending::CloseNotify),
                Ok(_) => {}
                Err(error) => self.fail(error),
            }
        }
    }

    fn fail(&mut self, error: rustls::Error) {
        self.cut(Cut::Tls { error, read: self.read });
    }

    /// The first end counts: nothing after `close_notify` changes it.
    fn cut(&mut self, cut: Cut) {
        self.end.get_or_insert(Ending::Cut(cut));
    }
}

/// Counts what is written to it.
struct Left(u64);

impl Write for Left {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
