//! What went wrong: the operation, both ends, the cause, and how far we got.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use lastbyte_core::Receipt;
use lastbyte_core::finish::Unproven;

/// What was being done when an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Taking the next connection of a listener.
    Accept,
    /// Opening a connection.
    Connect,
    /// Ending a connection with proof.
    Finish,
    /// Ending one direction.
    HalfClose,
    /// Waiting for connections.
    Listen,
    /// Asking the kernel about a connection.
    Sample,
    /// Setting an option, by its name in the manual.
    Set(&'static str),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Connect => "connect",
            Self::Finish => "finish",
            Self::HalfClose => "half-close",
            Self::Listen => "listen",
            Self::Sample => "sample",
            Self::Set(option) => return write!(f, "set {option}"),
        })
    }
}

/// An operation on a socket failed. The text names the cause: there is no further `source()`.
#[derive(Debug, thiserror::Error)]
#[error("{operation}{}: {cause}", Ends(*local, *peer))]
pub struct SocketError {
    /// What was being done.
    pub operation: Operation,
    /// Our address, where there was one.
    pub local: Option<SocketAddr>,
    /// The peer's address, where there was one.
    pub peer: Option<SocketAddr>,
    /// The kernel's reason.
    pub cause: io::Error,
}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> Self {
        Self::new(error.cause.kind(), error)
    }
}

/// A finish could not prove what was wanted.
#[derive(Debug, thiserror::Error)]
#[error("finish{}: {why}; {receipt}", Ends(*local, *peer))]
pub struct FinishError {
    /// Why.
    pub why: Unproven,
    /// What was proven all the same.
    pub receipt: Receipt,
    /// Our address, where there was one.
    pub local: Option<SocketAddr>,
    /// The peer's address, where there was one.
    pub peer: Option<SocketAddr>,
    /// The kernel's own error, where a call failed in an unexpected way.
    pub source: Option<io::Error>,
}

/// Both ends, as far as they are known.
struct Ends(Option<SocketAddr>, Option<SocketAddr>);

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(local), Some(peer)) => write!(f, " {local} -> {peer}"),
            (None, Some(peer)) => write!(f, " -> {peer}"),
            (Some(local), None) => write!(f, " {local}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_operation_ends_and_cause() {
        let error = SocketError {
            operation: Operation::Connect,
            local: None,
            peer: Some(([192, 0, 2, 1], 80).into()),
            cause: io::ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(error.to_string(), "connect -> 192.0.2.1:80: connection refused");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
    }
}
