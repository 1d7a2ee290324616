//! Drops packets that exceed a rate, without a queue (RFC 2697 with one colour).

use crate::spec::Policer;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A bucket of tokens, in bit-nanoseconds per second: exact for any rate.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    bits_per_s: u128,
    full: u128,
    tokens: u128,
    filled_at: u64,
}

impl TokenBucket {
    pub(super) fn new(policer: Policer) -> Self {
        let full = u128::from(policer.burst.bytes()) * 8 * NANOS_PER_SECOND;
        let bits_per_s = policer.rate.bits_per_s().into();
        Self { bits_per_s, full, tokens: full, filled_at: 0 }
    }

    /// Whether a packet conforms to the rate and the burst.
    pub(super) fn admits(&mut self, now: u64, bytes: u32) -> bool {
        let grown = u128::from(now.saturating_sub(self.filled_at)) * self.bits_per_s;
        self.filled_at = now;
        self.tokens = (self.tokens + grown).min(self.full);
        let cost = u128::from(bytes) * 8 * NANOS_PER_SECOND;
        match self.tokens.checked_sub(cost) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}
