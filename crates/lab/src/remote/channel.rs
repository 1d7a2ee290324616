//! The control connection: the protocol over a socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lastbyte_socket::blocking::Stream;
use lastbyte_socket::{Keepalive, SocketOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{Handshake, Hello, Key, PROOF, ProtocolError, Role, Session};
use crate::far::read_within;
use crate::task::Token;

/// The control connection broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The other side did not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The other side closed the connection.
    #[error("the control connection was closed")]
    Closed,
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The kernel's error.
    #[error("the control connection: {0}")]
    Io(io::Error),
}

/// Between two looks whether it is still worth to wait.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// A message that does not get on its way for so long ends the session.
const WRITE_WITHIN: Duration = Duration::from_secs(20);
/// Read at once.
const READ_SIZE: usize = 64 << 10;

/// The options of a control connection. A host that vanished is given up within about 20 s, by the
/// kernel: silence is normal while a run is on.
pub(crate) fn socket_options() -> SocketOptions {
    SocketOptions::default().nodelay(true).user_timeout(WRITE_WITHIN).keepalive(Keepalive {
        idle: Duration::from_secs(5),
        interval: Duration::from_secs(5),
        probes: 3,
    })
}

/// A control connection whose sides have proven to each other that they have the key.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: Stream,
    session: Session,
    buffer: Vec<u8>,
}

impl Channel {
    /// Greets over a new connection.
    ///
    /// # Errors
    /// Where the other side is none, has another key, or speaks another version of the protocol.
    pub(crate) fn handshake(
        mut stream: Stream,
        key: &Key,
        role: Role,
        within: Duration,
    ) -> Result<Self, ChannelError> {
        let until = Instant::now() + within;
        let left = || until.saturating_duration_since(Instant::now());
        socket_options().apply_to(&stream).map_err(|error| ChannelError::Io(error.cause))?;
        let own = Hello::new().map_err(ChannelError::Io)?;
        let mut hello = [0; Hello::LENGTH];
        let mut proof = [0; PROOF];
        let failed = |error| ChannelError::of(error, within);
        stream.set_write_timeout(Some(WRITE_WITHIN)).map_err(ChannelError::Io)?;
        if role == Role::Near {
            stream.write_all(&own.to_bytes()).map_err(failed)?;
        }
        read_within(&mut stream, &mut hello, left()).map_err(failed)?;
        let handshake = Handshake::new(key, role, own, Hello::from_bytes(&hello)?);
        match role {
            Role::Near => {
                stream.write_all(&handshake.proof()).map_err(failed)?;
                read_within(&mut stream, &mut proof, left()).map_err(|error| {
                    match failed(error) {
                        // So it says that our proof was wrong.
                        ChannelError::Closed => ProtocolError::WrongKey.into(),
                        error => error,
                    }
                })?;
                handshake.check(&proof)?;
            }
            Role::Far => {
                stream.write_all(&own.to_bytes()).map_err(failed)?;
                read_within(&mut stream, &mut proof, left()).map_err(failed)?;
                handshake.check(&proof)?;
                stream.write_all(&handshake.proof()).map_err(failed)?;
            }
        }
        let session = handshake.session()?;
        stream.set_read_timeout(Some(POLL_EVERY)).map_err(ChannelError::Io)?;
        Ok(Self { stream, session, buffer: vec![0; READ_SIZE] })
    }

    /// Says something.
    ///
    /// # Errors
    /// Where it does not get on its way.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), ChannelError> {
        let bytes = self.session.outbox.seal(message)?;
        self.stream.write_all(&bytes).map_err(|error| ChannelError::of(error, WRITE_WITHIN))
    }

    /// The next message; `None` when `goes_on` says that nobody waits for it any more.
    ///
    /// # Errors
    /// Where the connection ended, or the message is none.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Option<T>, ChannelError> {
        loop {
            if let Some(message) = self.session.inbox.take()? {
                return Ok(Some(message));
            }
            if !goes_on() {
                return Ok(None);
            }
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(length) => self.session.inbox.put(&self.buffer[..length]),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(ChannelError::of(error, WRITE_WITHIN)),
            }
        }
    }

    /// The next message, within a time.
    ///
    /// # Errors
    /// As [`Channel::receive`], and where none came.
    pub(crate) fn receive_within<T: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> Result<T, ChannelError> {
        let began = Instant::now();
        let message = self.receive(|| began.elapsed() < within)?;
        message.ok_or(ChannelError::Late(within))
    }

    /// What a connection of a run must show.
    pub(crate) fn token(&self, run: u64) -> Token {
        self.session.token(run)
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// This host's address, as the other side knows it.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }
}

impl ChannelError {
    fn of(error: io::Error, within: Duration) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ if is_timeout(&error) => Self::Late(within),
            _ => Self::Io(error),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
