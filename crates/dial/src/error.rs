//! Why there is no connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lastbyte_socket::SocketError;

use crate::host::BadHost;
use crate::resolve::Answer;
use crate::timeline::Timeline;

/// A dial failed. The text begins with the first attempt's error, and has all others.
#[derive(Debug)]
#[non_exhaustive]
pub struct DialError {
    /// The host, as it was given.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Why.
    pub why: Undialed,
    /// How each attempt failed, in the order in which they began.
    pub attempts: Vec<FailedAttempt>,
    /// The questions that were answered without an address.
    pub unanswered: Vec<Answer>,
    /// What happened, and when.
    pub timeline: Timeline,
}

/// Why a dial failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undialed {
    /// The host is none.
    #[error("{0}")]
    BadHost(#[from] BadHost),
    /// Port 0 is nobody's.
    #[error("port 0 cannot be connected to: give one from 1 to 65535")]
    BadPort,
    /// There is no runtime.
    #[error("no event loop: {0}")]
    Runtime(String),
    /// No address was found.
    #[error("no address found")]
    NoAddress,
    /// All attempts failed.
    #[error("every attempt failed")]
    AllFailed,
    /// Time was over.
    #[error("timed out")]
    TimedOut,
}

/// An attempt that did not lead to a connection.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// Where to.
    pub address: SocketAddr,
    /// When it began, since the dial did.
    pub started: Duration,
    /// Why it failed; `None` if it was still going on when the dial ended.
    pub error: Option<SocketError>,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dial {} port {}: {}", self.host.escape_debug(), self.port, self.why)
    }
}

impl std::error::Error for DialError {}

impl From<DialError> for io::Error {
    fn from(error: DialError) -> Self {
        let first = error.attempts.iter().find_map(|attempt| attempt.error.as_ref());
        let kind = match (&error.why, first) {
            (Undialed::TimedOut, _) => io::ErrorKind::TimedOut,
            (Undialed::BadHost(_) | Undialed::BadPort, _) => io::ErrorKind::InvalidInput,
            (Undialed::NoAddress, _) => io::ErrorKind::NotFound,
            (_, Some(first)) => first.cause.kind(),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
