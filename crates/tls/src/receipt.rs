//! What a finish over TLS can prove, and how it is put together from what the transport proved.

use std::fmt;

use lastbyte_core::finish::{Drain, Unproven};
use lastbyte_core::{Delivery, End, PeerEnd, Receipt};
use lastbyte_socket::{Endpoints, FinishError};

use crate::error::{Operation, TlsFinishError, TlsUnproven};
use crate::session::Session;

/// What a finish can prove about one TLS connection's outgoing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsReceipt {
    /// The highest level that all plaintext and our `close_notify` behind it reached; `None` where
    /// the kernel did not take all of it ([`TlsReceipt::unwritten`]).
    ///
    /// `Closed` says in addition that the peer's `close_notify` came, and its FIN after ours was
    /// acknowledged.
    pub level: Option<Delivery>,
    /// Bytes of plaintext written over the life of the stream.
    pub written: u64,
    /// Bytes of ciphertext that the kernel never took: they are lost.
    pub unwritten: u64,
    /// How the peer's TLS stream ended, where it is known: what is thrown away unread can hide its
    /// `close_notify`.
    pub peer: Option<End>,
    /// Bytes of the peer's plaintext that were looked at while finishing, and thrown away.
    pub drained: u64,
    /// What the transport says. Its bytes are those of *ciphertext*, with the handshake, the alerts
    /// and what every record has around its plaintext.
    pub transport: Receipt,
}

impl TlsReceipt {
    /// Whether the peer's kernel acknowledged all that was written: all ciphertext, our
    /// `close_notify` included. Of a part nothing is said: ciphertext does not count plaintext.
    #[must_use]
    pub fn all_acked(&self) -> bool {
        self.level >= Some(Delivery::Acked)
    }
}

impl fmt::Display for TlsReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "{level}: {} bytes of plaintext", self.written)?,
            None => {
                let (written, lost) = (self.written, self.unwritten);
                write!(
                    f,
                    "not written: of {written} bytes of plaintext {lost} of ciphertext left"
                )?;
            }
        }
        match self.peer {
            Some(End::Fin) => write!(f, ", peer ended with close_notify")?,
            Some(End::Reset) => write!(f, ", peer ended with RST")?,
            Some(_) => write!(f, ", peer ended without close_notify")?,
            None => {}
        }
        write!(f, "; transport {}", self.transport)
    }
}

/// How it was ended, to say what the transport's proof means for the plaintext.
pub(crate) struct Concluded {
    pub(crate) operation: Operation,
    pub(crate) want: Delivery,
    /// Why the kernel did not take all of our ciphertext.
    pub(crate) stuck: Option<Unproven>,
    /// What was to be done with what the peer still sent, and whether TLS looked at it.
    pub(crate) drain: Drain,
    pub(crate) looked: bool,
}

impl Concluded {
    pub(crate) fn outcome(
        &self,
        transport: Result<Receipt, FinishError>,
        session: &mut Session,
        endpoints: Endpoints,
    ) -> Result<TlsReceipt, TlsFinishError> {
        let (transport, failed, source) = match transport {
            Ok(receipt) => (receipt, None, None),
            Err(error) => (error.receipt, Some(error.why), error.source),
        };
        let peer = session.end().or_else(|| self.end_seen_below(session, &transport));
        let unwritten = session.give_up();
        let level = match transport.level {
            _ if unwritten > 0 => None,
            Delivery::Closed if peer != Some(End::Fin) => Some(Delivery::Acked),
            level => Some(level),
        };
        let (written, drained) = (session.written, session.drained);
        let receipt = TlsReceipt { level, written, unwritten, peer, drained, transport };
        // An abort says nothing to the peer, so that a failure of TLS does not matter.
        let broken = session.failure().filter(|_| self.operation == Operation::Finish);
        let why = match (self.stuck.or(failed), broken) {
            (_, Some(error)) => TlsUnproven::Tls(error.clone()),
            (Some(why), None) => TlsUnproven::Transport(why),
            (None, None) if level >= Some(self.want) => return Ok(receipt),
            (None, None) if unwritten > 0 => TlsUnproven::Transport(Unproven::Reset),
            (None, None) if peer.is_some() => TlsUnproven::Truncated,
            (None, None) => TlsUnproven::Unread,
        };
        let (receipt, endpoints) = (Box::new(receipt), Box::new(endpoints));
        Err(TlsFinishError { operation: self.operation, why, receipt, endpoints, source })
    }

    /// A FIN without `close_notify`, where it was met by reading and nothing before it was passed
    /// over. A reset may have been met before all was read.
    fn end_seen_below(&self, session: &mut Session, transport: &Receipt) -> Option<End> {
        let read_to_its_end = match self.drain {
            Drain::Discard(limit) => transport.drained < limit,
            Drain::Keep => false,
        };
        let saw_all = read_to_its_end && (self.looked || transport.drained == 0);
        let ended = saw_all && transport.peer == PeerEnd::Fin && !session.has_unread();
        ended.then_some(End::Truncated)
    }
}
