//! What both faces need to know of a TLS connection, without a call to the kernel: what goes in,
//! what comes out, and how it ended.

use std::io::{self, Read, Write};
use std::sync::Arc;

use lastbyte_core::End;
use lastbyte_core::finish::Drain;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::error::{Cause, Cut};
use crate::incoming::Incoming;

/// Ciphertext that may wait for the kernel, about: `write` takes no more before it went out.
const BUFFER_BYTES: usize = 64 << 10;

/// A TLS connection and its books.
#[derive(Debug)]
pub(crate) struct Session {
    tls: Connection,
    incoming: Incoming,
    /// Plaintext that rustls took.
    pub(crate) written: u64,
    /// Plaintext that the caller read.
    pub(crate) read: u64,
    /// Plaintext that a finish threw away.
    pub(crate) drained: u64,
    /// How the peer's stream ends: known before all of it is read.
    end: Option<Ending>,
    /// A read has met the end.
    met: bool,
    /// Our `close_notify` was given to rustls.
    closed: bool,
}

#[derive(Clone, Debug)]
enum Ending {
    CloseNotify,
    Cut(Cut),
}

/// What is to be done next in a handshake.
pub(crate) enum Step {
    /// Push what waits, then ask again.
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
                // rustls believes no `close_notify` before the handshake is over.
                _ if self.tls.wants_write() => return Ok(Step::Push),
                _ if !self.tls.is_handshaking() => return Ok(Step::Done),
                _ if self.incoming.is_empty() => return Ok(Step::Fill),
                _ => self.digest(),
            }
        }
    }

    /// Plaintext that has arrived, the end of the stream or what cut it; `None` until more
    /// ciphertext comes.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> Option<io::Result<usize>> {
        if room.is_empty() {
            return Some(Ok(0));
        }
        loop {
            match self.tls.reader().read(room) {
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

    /// Where ciphertext is read to, after [`Session::take`] said `None`; then
    /// [`Session::on_fill`].
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.incoming.room()
    }

    /// What a read of the transport brought. Errors that pass are the caller's to see.
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

    /// Looks into what the peer still sends, and throws its plaintext away.
    pub(crate) fn swallow(&mut self, ciphertext: &[u8]) {
        self.discard();
        let mut ciphertext = ciphertext;
        while self.end.is_none() && !ciphertext.is_empty() {
            let room = self.incoming.room();
            let length = room.len().min(ciphertext.len());
            let (now, later) = ciphertext.split_at(length);
            room[..length].copy_from_slice(now);
            self.incoming.received(length);
            ciphertext = later;
            self.discard();
        }
    }

    /// Throws away the plaintext of all ciphertext that is here.
    pub(crate) fn discard(&mut self) {
        let (read, met) = (self.read, self.met);
        let mut scratch = [0; 4096];
        while let Some(Ok(1..)) = self.take(&mut scratch) {}
        self.drained += self.read - read;
        (self.read, self.met) = (read, met);
    }

    /// Whether a finish that has yet to flush may read on, to throw it away.
    pub(crate) fn may_drain(&self, drain: Drain) -> bool {
        let room = match drain {
            Drain::Discard(limit) => limit > self.drained,
            Drain::Keep => false,
        };
        room && self.end.is_none()
    }

    /// Gives plaintext to rustls, which encrypts it at once.
    pub(crate) fn accept(
        &mut self,
        give: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.closed {
            let text = "close_notify was sent: nothing can be written behind it";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        // After a failure of TLS it returns that.
        let bytes = give(&mut self.tls.writer())?;
        self.written += bytes as u64;
        Ok(bytes)
    }

    /// Queues `close_notify` behind all that was written; it can be asked for again.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.tls.send_close_notify();
    }

    /// Something waits for the kernel.
    pub(crate) fn pending(&self) -> bool {
        self.tls.wants_write()
    }

    /// Writes to the kernel what waits, all of it or up to an error.
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

    /// How many bytes of ciphertext the kernel never took. They are given up by this.
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

    /// The failure of TLS itself, after which nothing can be said to the peer.
    pub(crate) fn failure(&self) -> Option<&rustls::Error> {
        match &self.end {
            Some(Ending::Cut(Cut::Tls { error, .. })) => Some(error),
            _ => None,
        }
    }

    /// Ciphertext or plaintext is here that nobody looked at.
    pub(crate) fn has_unread(&mut self) -> bool {
        !self.incoming.is_empty() || !self.tls.wants_read() && !self.peer_closed()
    }

    /// Both directions ended by `close_notify`, ours is in the kernel, and nothing was read behind
    /// the peer's.
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

    /// Lets rustls look at what waits, until it has plaintext, an end, or nothing more.
    fn digest(&mut self) {
        while self.end.is_none() && !self.incoming.is_empty() && self.tls.wants_read() {
            let mut piece = self.incoming.piece();
            match self.tls.read_tls(&mut piece) {
                Ok(bytes) => self.incoming.given(bytes),
                // Its own buffer is bounded: a handshake message that does not fit is refused.
                Err(error) => return self.cut_by_tls(rustls::Error::General(error.to_string())),
            }
            match self.tls.process_new_packets() {
                Ok(state) if state.peer_has_closed() => self.end = Some(Ending::CloseNotify),
                Ok(_) => {}
                Err(error) => self.cut_by_tls(error),
            }
        }
    }

    fn cut_by_tls(&mut self, error: rustls::Error) {
        self.cut(Cut::Tls { error, read: self.read });
    }

    /// The first end stands: what comes behind `close_notify` takes nothing from it.
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
