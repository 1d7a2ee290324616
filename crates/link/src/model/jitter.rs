//! How long the wire takes.

use rand_pcg::Pcg64Mcg;

use super::uniform;
use crate::clock::nanos;
use crate::spec::{Jitter, Shape};

/// A delay that may vary.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    base: u64,
    jitter: Option<Jitter>,
    random: Pcg64Mcg,
    /// The last arrival, before which none may come where order is kept.
    last: u64,
}

impl Delay {
    pub(super) fn new(base: u64, jitter: Option<Jitter>, random: Pcg64Mcg) -> Self {
        Self { base, jitter, random, last: 0 }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.jitter.is_none()
    }

    /// When a packet sent at `sent` arrives.
    pub(super) fn arrival(&mut self, sent: u64) -> u64 {
        let Some(jitter) = self.jitter else { return sent.saturating_add(self.base) };
        let size = nanos(jitter.size) as f64;
        let varied = match jitter.shape {
            Shape::Uniform => size * (2.0 * uniform(&mut self.random) - 1.0),
            Shape::Normal => size * self.normal(),
        };
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is not negative")]
        #[expect(clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let delay = (self.base as f64 + varied).max(0.0) as u64;
        let at = sent.saturating_add(delay);
        if jitter.reorders {
            return at;
        }
        self.last = self.last.max(at);
        self.last
    }

    /// A standard normal number (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * uniform(&mut self.random).ln()).sqrt();
        radius * (std::f64::consts::TAU * uniform(&mut self.random)).cos()
    }
}
