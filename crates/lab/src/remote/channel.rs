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

/// The control connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The peer violated the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The peer closed the connection.
    #[error("the control connection was closed")]
    Closed,
    /// No response in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The kernel's error.
    #[error("the control connection: {0}")]
    Io(io::Error),
}

/// The time between two checks whether to go on waiting.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// A message that cannot be written for this long ends the session.
const WRITE_WITHIN: Duration = Duration::from_secs(20);
/// The size of a read, in bytes.
const READ_SIZE: usize = 64 << 10;

/// The options of a control connection. The kernel gives up a host that vanished within about 20 s:
/// a time-out of our own would not do, because silence is normal during a run.
pub(crate) fn socket_options() -> SocketOptions {
    SocketOptions::default().nodelay(true).user_timeout(WRITE_WITHIN).keepalive(Keepalive {
        idle: Duration::from_secs(5),
        interval: Duration::from_secs(5),
        probes: 3,
    })
}

/// A control connection after its handshake: both hosts have proven that they have the key.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: Stream,
    session: Session,
    buffer: Vec<u8>,
}

impl Channel {
    /// Does the handshake over a new connection.
    ///
    /// # Errors
    /// If the peer is no lastbyte lab, has another key, or speaks another version of the protocol.
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
                        // The far host closes after a wrong proof.
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

    /// Sends a message.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), ChannelError> {
        let bytes = self.session.outbox.seal(message)?;
        self.stream.write_all(&bytes).map_err(|error| ChannelError::of(error, WRITE_WITHIN))
    }

    /// Receives the next message; `None` once `goes_on` returns false.
    ///
    /// # Errors
    /// If the connection ended, or the message is invalid.
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

    /// Receives the next message within a time.
    ///
    /// # Errors
    /// As [`Channel::receive`], and if none arrives in time.
    pub(crate) fn receive_within<T: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> Result<T, ChannelError> {
        let began = Instant::now();
        let message = self.receive(|| began.elapsed() < within)?;
        message.ok_or(ChannelError::Late(within))
    }

    /// The token that a connection of a run must send.
    pub(crate) fn token(&self, run: u64) -> Token {
        self.session.token(run)
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// This host's address on the control connection.
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
