//! How far bytes came, and how a stream ended.

use std::fmt;
use std::time::Duration;

use crate::sample::State;

/// How far the bytes of a connection are known to have come. A later level is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// The local kernel accepted the bytes: `write` returned. They may still be discarded.
    Written,
    /// The bytes left the send queue for the device at least once. They may still be lost.
    Sent,
    /// The peer's *kernel* acknowledged the bytes. Its program may not have read them.
    Acked,
    /// Acked, and the peer's FIN came after ours was acknowledged. It does not prove that the
    /// peer's program read anything: the program may have half-closed early, or be a proxy.
    Closed,
    /// The peer's *program* confirmed the bytes, by a message of its protocol. TCP itself has no
    /// such message.
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

/// How the peer's direction had ended, if it had, when our finish ended. [`End`] is what a read
/// observed.
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
    /// It did not end its direction before the deadline.
    Silent,
    /// Its stream ended, and how is not known.
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
/// `written == acked + unacked` wherever all three are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The highest level that *all* written bytes reached.
    pub level: Delivery,
    /// Bytes that the local kernel accepted over the life of the connection; `None` if others may
    /// have written some.
    pub written: Option<u64>,
    /// Of those, bytes that left the send queue at least once; `None` if the kernel does not say.
    pub sent: Option<u64>,
    /// Of those, bytes that the peer's kernel acknowledged; `None` if the kernel does not say.
    pub acked: Option<u64>,
    /// Bytes written and not acknowledged; known even if `written` is not. `None` if the kernel
    /// does not count them: Unix sockets, MPTCP.
    pub unacked: Option<u64>,
    /// Bytes from the peer that arrived while finishing and were discarded.
    pub drained: u64,
    /// How the peer ended.
    pub peer: PeerEnd,
    /// From the start of the finish to this receipt.
    pub took: Duration,
}

impl Receipt {
    /// A receipt of this level with all counts unknown, an unknown peer end, and no time taken.
    #[must_use]
    pub const fn new(level: Delivery) -> Self {
        Self {
            level,
            written: None,
            sent: None,
            acked: None,
            unacked: None,
            drained: 0,
            peer: PeerEnd::Unknown,
            took: Duration::ZERO,
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.level)?;
        match (self.written, self.acked, self.unacked) {
            (Some(written), Some(acked), _) => write!(f, "{acked} of {written} bytes acked")?,
            (Some(written), None, _) => write!(f, "{written} bytes written, acked unknown")?,
            (None, _, Some(unacked)) => write!(f, "{unacked} bytes left unacked")?,
            (None, _, None) => write!(f, "acked bytes unknown")?,
        }
        match self.peer {
            PeerEnd::Open => write!(f, ", peer still connected")?,
            PeerEnd::Silent => write!(f, ", peer silent")?,
            PeerEnd::Unknown => write!(f, ", peer's end unknown")?,
            PeerEnd::Fin | PeerEnd::Reset => {
                write!(f, ", peer ended with {}", self.peer)?;
            }
        }
        write!(f, ", {:.1} ms", self.took.as_secs_f64() * 1e3)
    }
}

/// How a stream ended, as observed by reading it to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The peer ended its direction with a FIN after the last byte we read.
    Fin,
    /// The connection was reset: bytes may be missing, even if the end looked clean.
    Reset,
    /// The transport ended with a FIN, but a layer above it did not end (TLS without
    /// `close_notify`).
    Truncated,
    /// Not known: over MPTCP, or if others may have read from the descriptor before us.
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

/// The kind of a stream socket. It decides what can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Plain TCP: everything is known.
    Tcp,
    /// Multipath TCP (RFC 8684): its counters cannot distinguish a FIN from a reset, and do not
    /// show what was acked.
    Mptcp,
    /// A Unix stream socket (`unix(7)`). Written bytes are in the peer's receive queue at once. The
    /// kernel reports when the peer's *program* has read all of them, and nothing in between.
    Unix,
    /// Any other stream socket, such as `vsock(7)`.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "TCP",
            Self::Mptcp => "MPTCP",
            Self::Unix => "Unix",
            Self::Other => "other",
        })
    }
}

/// What is known when a stream has ended: `read` returned 0, or the kernel says that nothing more
/// will arrive.
///
/// Linux reports a reset once. If a failed write or `SO_ERROR` takes that report, the reader gets
/// the remaining data and then 0, which looks like a clean end. Over TCP the kernel's count of
/// received bytes distinguishes the two: it counts a FIN as one byte, and a reset as none
/// (`tcpi_bytes_received`, RFC 4898 tcpEStatsAppHCThruOctetsReceived). A Unix socket has no such
/// count, only the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndEvidence {
    /// The kind of socket.
    pub kind: Kind,
    /// Bytes read since the connection began; `None` when others may have read before us.
    pub read: Option<u64>,
    /// Urgent bytes stay in the stream (`SO_OOBINLINE`), and did from the start. Otherwise the
    /// reader may have skipped one, which then looks like a FIN.
    pub urgent_inline: bool,
    /// Unread bytes (`SIOCINQ`): 0 after a read that returned 0.
    pub unread: u64,
    /// The kernel's count of received bytes; `None` on a kernel without it (before 4.1), or for a
    /// kind other than TCP.
    pub received: Option<u64>,
    /// The connection's state; `None` for another kind than TCP.
    pub state: Option<State>,
    /// The kernel has already reported an error: one of our writes failed with it.
    pub error_taken: bool,
}

impl EndEvidence {
    /// How the stream ended.
    #[must_use]
    pub fn classify(self) -> End {
        match self.kind {
            Kind::Tcp => self.classify_tcp(),
            Kind::Unix if self.error_taken => End::Reset,
            Kind::Unix if self.read.is_some() => End::Fin,
            Kind::Unix | Kind::Mptcp | Kind::Other => End::Unknown,
        }
    }

    fn classify_tcp(self) -> End {
        match self.state {
            // Only a FIN leads to these (RFC 9293 section 3.3.2).
            Some(State::CloseWait | State::LastAck | State::Closing) => return End::Fin,
            // The peer may still send: a program on this host shut down the reading side.
            Some(State::Established | State::FinWait1 | State::FinWait2) => return End::Unknown,
            _ => {}
        }
        let (Some(read), Some(received)) = (self.read, self.received) else {
            return End::Unknown;
        };
        match received.checked_sub(read.saturating_add(self.unread)) {
            Some(0) => End::Reset,
            Some(1) if self.urgent_inline => End::Fin,
            _ => End::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: EndEvidence = EndEvidence {
        kind: Kind::Tcp,
        read: Some(5000),
        urgent_inline: true,
        unread: 0,
        received: Some(5000),
        state: Some(State::Close),
        error_taken: false,
    };

    fn counts(read: u64, unread: u64, received: u64) -> End {
        EndEvidence { read: Some(read), unread, received: Some(received), ..CUT }.classify()
    }

    #[test]
    fn a_fin_counts_as_one_byte_and_a_reset_as_none() {
        assert_eq!(counts(5000, 0, 5001), End::Fin);
        assert_eq!(counts(5000, 0, 5000), End::Reset);
        assert_eq!(counts(0, 0, 1), End::Fin);
        assert_eq!(counts(0, 0, 0), End::Reset);
        assert_eq!(counts(1000, 4000, 5001), End::Fin, "seen before it was read");
        assert_eq!(counts(1000, 4000, 5000), End::Reset, "seen before it was read");
    }

    #[test]
    fn an_urgent_byte_that_was_passed_over_is_not_taken_for_a_fin() {
        let outside = EndEvidence { urgent_inline: false, ..CUT };
        assert_eq!(EndEvidence { received: Some(5001), ..outside }.classify(), End::Unknown);
        assert_eq!(outside.classify(), End::Reset, "nothing was passed over");
    }

    #[test]
    fn a_state_that_only_a_fin_leads_to_is_proof_of_one() {
        for state in [State::CloseWait, State::LastAck, State::Closing] {
            let known = EndEvidence { read: None, state: Some(state), ..CUT };
            assert_eq!(known.classify(), End::Fin, "{state:?}");
        }
    }

    #[test]
    fn what_cannot_be_known_is_not_guessed() {
        let unknown = |evidence: EndEvidence| assert_eq!(evidence.classify(), End::Unknown);
        unknown(EndEvidence { kind: Kind::Mptcp, received: Some(5001), ..CUT });
        unknown(EndEvidence { kind: Kind::Other, received: Some(5001), ..CUT });
        unknown(EndEvidence { read: None, received: Some(5001), ..CUT });
        unknown(EndEvidence { received: None, ..CUT });
        unknown(EndEvidence { state: Some(State::FinWait2), ..CUT });
        assert_eq!(counts(5000, 0, 5002), End::Unknown, "an unread urgent byte");
        assert_eq!(counts(5000, 0, 4999), End::Unknown, "more read than received");
    }

    #[test]
    fn a_unix_socket_has_only_the_report_of_its_reset() {
        let unix = EndEvidence { kind: Kind::Unix, received: None, state: None, ..CUT };
        assert_eq!(unix.classify(), End::Fin);
        assert_eq!(EndEvidence { error_taken: true, ..unix }.classify(), End::Reset);
        assert_eq!(EndEvidence { read: None, ..unix }.classify(), End::Unknown);
    }

    #[test]
    fn levels_are_ordered() {
        use Delivery::{Acked, Closed, Confirmed, Sent, Written};
        assert!(Written < Sent && Sent < Acked && Acked < Closed && Closed < Confirmed);
    }
}
