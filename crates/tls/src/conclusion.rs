//! What the transport's proof means for the plaintext.

use lastbyte_core::finish::{Drain, Unproven};
use lastbyte_core::{Delivery, End, PeerEnd, Receipt};
use lastbyte_socket::{Endpoints, FinishError};

use crate::error::{Operation, TlsFinishError, TlsUnproven};
use crate::receipt::TlsReceipt;
use crate::session::Session;

/// How we ended a TLS connection; with the transport's receipt it gives the [`TlsReceipt`].
pub(crate) struct Conclusion {
    pub(crate) operation: Operation,
    pub(crate) want: Delivery,
    /// Why the kernel did not accept all of our ciphertext.
    pub(crate) stuck: Option<Unproven>,
    /// What to do with the peer's remaining bytes, and whether TLS decrypted them.
    pub(crate) drain: Drain,
    pub(crate) decrypted: bool,
}

impl Conclusion {
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
        // An abort sends the peer nothing, so a failure of TLS does not matter.
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

    /// A FIN without `close_notify`, if we read everything up to it. With a reset, not everything
    /// may have been read.
    fn end_seen_below(&self, session: &mut Session, transport: &Receipt) -> Option<End> {
        let read_to_its_end = match self.drain {
            Drain::Discard(limit) => transport.drained < limit,
            Drain::Keep => false,
        };
        let saw_all = read_to_its_end && (self.decrypted || transport.drained == 0);
        let ended = saw_all && transport.peer == PeerEnd::Fin && !session.has_unread();
        ended.then_some(End::Truncated)
    }
}
