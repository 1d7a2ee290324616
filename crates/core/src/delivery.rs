//! The words for how far bytes came, and for how a stream ended.

use std::fmt;
use std::time::Duration;

/// How far the bytes of a connection are known to have come. Later is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// The local kernel accepted the bytes: `write` returned. They may still be thrown away.
    Written,
    /// The bytes left the send queue for the device at least once. They may still be lost.
    Sent,
    /// The peer's *kernel* acknowledged the bytes. Its program may not have read them.
    Acked,
    /// Acked, and the peer's FIN came after ours was acknowledged. It does not say that its program
    /// read anything: it may have half-closed early, or be a proxy.
    Closed,
    /// The peer's *program* said so, in a protocol that has such an answer. TCP alone has none.
    Confirmed,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Written => "written",
            Self::Sent => "sent",
            Self::Acked => "acked",
            Self::Closed => "closed",
            Self::Confirmed => "confirmed",
        })
    }
}

/// How the other side stood when we finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerEnd {
    /// It was still connected and had not ended its direction.
    #[default]
    Open,
    /// It ended its direction with a FIN.
    Fin,
    /// It reset the connection, or our kernel gave it up with an error.
    Reset,
    /// It did not answer until the deadline.
    Silent,
    /// Its stream ended, and nothing can be said about how.
    Unknown,
}

impl fmt::Display for PeerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::Fin => "FIN",
            Self::Reset => "RST",
            Self::Silent => "silence",
            Self::Unknown => "unknown",
        })
    }
}

/// What a finish can prove about one connection's outgoing bytes.
///
/// `written == acked + unacked()` wherever `acked` is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The highest level that *all* written bytes reached.
    pub level: Delivery,
    /// Bytes that the local kernel accepted over the life of the connection.
    pub written: u64,
    /// Of those, bytes that left the send queue at least once; `None` where it cannot be known.
    pub sent: Option<u64>,
    /// Of those, bytes that the peer's kernel acknowledged; `None` where it cannot be known.
    pub acked: Option<u64>,
    /// Bytes of the peer that arrived while finishing and were thrown away.
    pub drained: u64,
    /// How the peer ended.
    pub peer: PeerEnd,
    /// From the start of the finish to this receipt.
    pub took: Duration,
}

impl Receipt {
    /// Bytes written that the peer's kernel is not known to have; `None` where that is unknown.
    #[must_use]
    pub fn unacked(&self) -> Option<u64> {
        self.acked.map(|acked| self.written.saturating_sub(acked))
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.level)?;
        match self.acked {
            Some(acked) => write!(f, "{acked} of {} bytes acked", self.written)?,
            None => write!(f, "{} bytes written, acked unknown", self.written)?,
        }
        match self.peer {
            PeerEnd::Open => write!(f, ", peer still connected")?,
            PeerEnd::Silent => write!(f, ", peer silent")?,
            PeerEnd::Fin | PeerEnd::Reset | PeerEnd::Unknown => {
                write!(f, ", peer ended with {}", self.peer)?;
            }
        }
        write!(f, ", {:.1} ms", self.took.as_secs_f64() * 1e3)
    }
}

/// How a stream that was read to its end really ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The peer ended its direction with a FIN after the last byte we read.
    Fin,
    /// The connection was reset: bytes may be missing, however clean the end looked.
    Reset,
    /// The transport ended well, a layer above it did not (TLS without `close_notify`).
    Truncated,
    /// Nothing can be said: MPTCP, or a descriptor whose earlier reads we did not see.
    Unknown,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fin => "FIN",
            Self::Reset => "RST",
            Self::Truncated => "truncated",
            Self::Unknown => "unknown",
        })
    }
}

/// What is known when `read` returned 0.
///
/// On Linux a reset is reported once. Whoever takes it, a failed write or `SO_ERROR`, leaves the
/// reader with data and then a clean-looking 0. The kernel's count of received bytes tells the two
/// apart: it counts a FIN as one byte, and a reset as none (`tcpi_bytes_received`, RFC 4898
/// tcpEStatsAppHCThruOctetsReceived).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndEvidence {
    /// The socket speaks plain TCP, not MPTCP (which does not count its FIN).
    pub plain_tcp: bool,
    /// Bytes read since the connection began, urgent ones in their place (`SO_OOBINLINE`); `None`
    /// when others may have read before us.
    pub read: Option<u64>,
    /// The kernel's count; `None` on a kernel without the field (before 4.1).
    pub received: Option<u64>,
}

impl EndEvidence {
    /// How the stream ended.
    #[must_use]
    pub fn classify(self) -> End {
        let (true, Some(read), Some(received)) = (self.plain_tcp, self.read, self.received) else {
            return End::Unknown;
        };
        match received.checked_sub(read) {
            Some(0) => End::Reset,
            Some(1) => End::Fin,
            _ => End::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(plain_tcp: bool, read: Option<u64>, received: Option<u64>) -> End {
        EndEvidence { plain_tcp, read, received }.classify()
    }

    #[test]
    fn a_fin_counts_as_one_byte_and_a_reset_as_none() {
        assert_eq!(ended(true, Some(5000), Some(5001)), End::Fin);
        assert_eq!(ended(true, Some(5000), Some(5000)), End::Reset);
        assert_eq!(ended(true, Some(0), Some(1)), End::Fin);
        assert_eq!(ended(true, Some(0), Some(0)), End::Reset);
    }

    #[test]
    fn what_cannot_be_known_is_not_guessed() {
        assert_eq!(ended(false, Some(5000), Some(5001)), End::Unknown, "MPTCP");
        assert_eq!(ended(true, None, Some(5001)), End::Unknown, "others have read");
        assert_eq!(ended(true, Some(5000), None), End::Unknown, "an old kernel");
        assert_eq!(ended(true, Some(5000), Some(5002)), End::Unknown, "an unread urgent byte");
        assert_eq!(ended(true, Some(5000), Some(4999)), End::Unknown, "more read than received");
    }

    #[test]
    fn levels_are_ordered() {
        use Delivery::{Acked, Closed, Confirmed, Sent, Written};
        assert!(Written < Sent && Sent < Acked && Acked < Closed && Closed < Confirmed);
    }
}
