//! What a finish over TLS can prove.

use std::fmt;

use lastbyte_core::{Delivery, End, Receipt};

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
