//! Errors: the operation, both addresses, the cause, and the receipt of what was proven.

use std::fmt;
use std::io;

use lastbyte_core::End;
use lastbyte_core::finish::Unproven;
use lastbyte_socket::{Endpoints, SocketError};

use crate::receipt::TlsReceipt;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Ending a connection by a reset.
    Abort,
    /// The handshake as the server.
    AcceptHandshake,
    /// Making a configuration.
    Configure,
    /// The handshake as the client.
    ConnectHandshake,
    /// Ending a connection and proving how far its bytes came.
    Finish,
    /// Ending one direction.
    HalfClose,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "TLS abort",
            Self::AcceptHandshake => "TLS handshake as server",
            Self::Configure => "TLS configuration",
            Self::ConnectHandshake => "TLS handshake as client",
            Self::Finish => "TLS finish",
            Self::HalfClose => "TLS half-close",
        })
    }
}

/// An operation on a TLS stream failed. The text contains the cause, so `source()` returns nothing
/// more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{operation}{endpoints}: {cause}")]
pub struct TlsError {
    /// The operation that failed.
    pub operation: Operation,
    /// Both addresses, as far as they are known.
    pub endpoints: Box<Endpoints>,
    /// Why it failed.
    pub cause: Box<Cause>,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The peer's stream ended without `close_notify`, or violated the protocol.
    #[error("{0}")]
    Cut(Cut),
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The name of the server is neither a host name nor an address.
    #[error("`{}` is neither a host name nor an address", .0.escape_debug())]
    Name(String),
    /// rustls refused it.
    #[error("{0}")]
    Tls(rustls::Error),
    /// The transport failed.
    #[error("{0}")]
    Transport(io::Error),
}

impl Cause {
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Cut(cut) => cut.kind(),
            Self::Deadline => io::ErrorKind::TimedOut,
            Self::Name(_) => io::ErrorKind::InvalidInput,
            Self::Tls(_) => io::ErrorKind::InvalidData,
            Self::Transport(error) => error.kind(),
        }
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(error.cause.kind(), error)
    }
}

impl From<SocketError> for Cause {
    fn from(error: SocketError) -> Self {
        Self::Transport(error.cause)
    }
}

/// Why the peer's TLS stream ended without `close_notify`: bytes may be missing, even if the
/// transport ended cleanly. The [`io::Error`] of a failed read contains it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Cut {
    /// The transport was reset, or our kernel gave it up.
    #[error("the connection was reset after {read} bytes: the stream is incomplete")]
    Reset {
        /// Plaintext bytes read before that.
        read: u64,
    },
    /// A fatal alert from the peer, or bytes that violate TLS: a record modified on the path, or no
    /// TLS at all.
    #[error("TLS failed after {read} bytes: {error}")]
    Tls {
        /// The error of rustls.
        error: rustls::Error,
        /// Plaintext bytes read before.
        read: u64,
    },
    /// The transport ended with a FIN, which anyone on the path can forge.
    #[error(
        "the transport ended without close_notify after {read} bytes{}: the stream is incomplete",
        if *inside { ", in the middle of a record" } else { "" }
    )]
    Truncated {
        /// It ended in the middle of a record.
        inside: bool,
        /// Plaintext bytes read before.
        read: u64,
    },
}

impl Cut {
    /// The [`End`] that it stands for. A protocol violation counts as truncated.
    #[must_use]
    pub fn end(&self) -> End {
        match self {
            Self::Reset { .. } => End::Reset,
            Self::Tls { .. } | Self::Truncated { .. } => End::Truncated,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Reset { .. } => io::ErrorKind::ConnectionReset,
            Self::Tls { .. } => io::ErrorKind::InvalidData,
            Self::Truncated { .. } => io::ErrorKind::UnexpectedEof,
        }
    }
}

impl From<Cut> for io::Error {
    fn from(cut: Cut) -> Self {
        Self::new(cut.kind(), cut)
    }
}

/// Why a finish could not prove what was wanted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsUnproven {
    /// The peer's stream ended without `close_notify`, and
    /// [`Delivery::Closed`](lastbyte_core::Delivery) was wanted.
    #[error("the peer ended without close_notify")]
    Truncated,
    /// TLS had failed before, so no `close_notify` could be sent.
    #[error("TLS failed: {0}")]
    Tls(rustls::Error),
    /// The transport could not prove the level.
    #[error("{0}")]
    Transport(Unproven),
    /// The peer's last bytes were not read, because of the drain limit or
    /// [`Drain::Keep`](lastbyte_core::finish::Drain), so its `close_notify` may be among them.
    #[error("the peer's last bytes were not read, so its close_notify was not seen")]
    Unread,
}

/// A finish could not prove what was wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{operation}{endpoints}: {why}{}; {receipt}", Because(source))]
pub struct TlsFinishError {
    /// The operation that failed: [`Operation::Finish`] or [`Operation::Abort`].
    pub operation: Operation,
    /// Why.
    pub why: TlsUnproven,
    /// What was proven nevertheless.
    pub receipt: Box<TlsReceipt>,
    /// Both addresses, as far as they are known.
    pub endpoints: Box<Endpoints>,
    /// The kernel's error, if a system call failed unexpectedly.
    pub source: Option<io::Error>,
}

impl From<TlsFinishError> for io::Error {
    fn from(error: TlsFinishError) -> Self {
        let kind = match error.why {
            TlsUnproven::Transport(Unproven::Deadline) => io::ErrorKind::TimedOut,
            TlsUnproven::Transport(Unproven::Reset) => io::ErrorKind::ConnectionReset,
            TlsUnproven::Transport(Unproven::NotConnected) => io::ErrorKind::NotConnected,
            TlsUnproven::Truncated => io::ErrorKind::UnexpectedEof,
            TlsUnproven::Tls(_) => io::ErrorKind::InvalidData,
            TlsUnproven::Transport(_) | TlsUnproven::Unread => io::ErrorKind::Other,
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
    use super::*;

    #[test]
    fn an_error_names_operation_ends_cause_and_how_far_it_got() {
        let peer = std::net::SocketAddr::from(([192, 0, 2, 1], 443));
        let error = TlsError {
            operation: Operation::ConnectHandshake,
            endpoints: Box::new(Endpoints { local: None, peer: Some(peer.into()) }),
            cause: Box::new(Cause::Cut(Cut::Truncated { inside: true, read: 7 })),
        };
        assert_eq!(
            error.to_string(),
            "TLS handshake as client -> 192.0.2.1:443: the transport ended without close_notify \
             after 7 bytes, in the middle of a record: the stream is incomplete"
        );
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::UnexpectedEof);
        let name = Cause::Name("a\u{1b}[2Jb".to_owned());
        assert_eq!(name.to_string(), "`a\\u{1b}[2Jb` is neither a host name nor an address");
    }
}
