//! Errors: the operation, both addresses, the cause, and the receipt of what was proven.

use std::fmt;
use std::io;

use lastbyte_core::Receipt;
use lastbyte_core::finish::Unproven;

use crate::address::Endpoints;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Ending a connection by a reset.
    Abort,
    /// Taking the next connection of a listener.
    Accept,
    /// Taking over a connection that other code made.
    Adopt,
    /// Binding the local address.
    Bind,
    /// Opening a connection.
    Connect,
    /// Ending a connection and proving how far its bytes came.
    Finish,
    /// Ending one direction.
    HalfClose,
    /// Waiting for connections.
    Listen,
    /// Reading what the kernel knows about a connection.
    Sample,
    /// Setting an option, by its name in the manual.
    Set(&'static str),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "abort",
            Self::Accept => "accept",
            Self::Adopt => "adopt",
            Self::Bind => "bind",
            Self::Connect => "connect",
            Self::Finish => "finish",
            Self::HalfClose => "half-close",
            Self::Listen => "listen",
            Self::Sample => "sample",
            Self::Set(option) => return write!(f, "set {option}"),
        })
    }
}

/// An operation on a socket failed. The text contains the cause, so `source()` returns nothing
/// more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{operation}{endpoints}: {cause}")]
pub struct SocketError {
    /// The operation that failed.
    pub operation: Operation,
    /// Both addresses, as far as they are known.
    pub endpoints: Box<Endpoints>,
    /// The kernel's reason.
    pub cause: io::Error,
}

impl SocketError {
    /// An error of this operation.
    #[must_use]
    pub fn new(operation: Operation, endpoints: Endpoints, cause: io::Error) -> Self {
        Self { operation, endpoints: Box::new(endpoints), cause }
    }
}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> Self {
        Self::new(error.cause.kind(), error)
    }
}

/// A finish could not prove what was wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{operation}{endpoints}: {why}{}; {receipt}", Because(source))]
pub struct FinishError {
    /// The operation that failed: [`Operation::Finish`] or [`Operation::Abort`].
    pub operation: Operation,
    /// Why.
    pub why: Unproven,
    /// What was proven nevertheless.
    pub receipt: Receipt,
    /// Both addresses, as far as they are known.
    pub endpoints: Box<Endpoints>,
    /// The kernel's error, if a system call failed unexpectedly.
    pub source: Option<io::Error>,
}

impl From<FinishError> for io::Error {
    fn from(error: FinishError) -> Self {
        let kind = match error.why {
            Unproven::Deadline => io::ErrorKind::TimedOut,
            Unproven::Reset => io::ErrorKind::ConnectionReset,
            Unproven::NotConnected | Unproven::Listening => io::ErrorKind::NotConnected,
            Unproven::NotOpen | Unproven::NoSocket | Unproven::NoStream => {
                io::ErrorKind::InvalidInput
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// The kernel's error in brackets, if there is one.
struct Because<'a>(&'a Option<io::Error>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |error| write!(f, " ({error})"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_error_names_operation_endpoints_and_cause() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 80));
        let error = SocketError {
            operation: Operation::Connect,
            endpoints: Box::new(Endpoints { local: None, peer: Some(peer.into()) }),
            cause: io::ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(error.to_string(), "connect -> 192.0.2.1:80: connection refused");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
    }
}
