//! What a finish over TLS can prove.

use std::fmt;

use lastbyte_core::{Delivery, End, Receipt};

/// What a finish can prove about one TLS connection's outgoing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsReceipt {
    /// The highest level that all plaintext and the `close_notify` after it reached; `None` if the
    /// kernel did not accept all of it ([`TlsReceipt::unwritten`]).
    ///
    /// `Closed` also means that the peer's `close_notify` came, and its FIN after ours was
    /// acknowledged.
    pub level: Option<Delivery>,
    /// Bytes of plaintext written over the life of the stream.
    pub written: u64,
    /// Bytes of ciphertext that the kernel did not accept: they are lost.
    pub unwritten: u64,
    /// How the peer's TLS stream ended, if known: discarded bytes may contain its `close_notify`.
    pub peer: Option<End>,
    /// Bytes of the peer's plaintext that the finish decrypted and discarded.
    pub drained: u64,
    /// The receipt of the transport. It counts *ciphertext*: the handshake, the alerts, and the
    /// overhead of each record too.
    pub transport: Receipt,
}

impl TlsReceipt {
    /// Whether the peer's kernel acknowledged everything written: all ciphertext, our
    /// `close_notify` included. Nothing is known about a part, since counts of ciphertext do not
    /// show how much plaintext arrived.
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
                write!(f, "not written: {written} bytes of plaintext, {lost} of ciphertext lost")?;
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
