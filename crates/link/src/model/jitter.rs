//! The delay of the wire.

use std::time::Duration;

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
    /// The last arrival: no packet may arrive before it where order is kept.
    last: u64,
}

impl Delay {
    pub(super) fn new(base: u64, jitter: Option<Jitter>, random: Pcg64Mcg) -> Self {
        Self { base, jitter, random, last: 0 }
    }

    /// Whether each packet has the same delay.
    pub(super) fn is_fixed(&self) -> bool {
        self.jitter.is_none()
    }

    /// When a packet sent at `sent` arrives.
    pub(super) fn arrival(&mut self, sent: u64) -> u64 {
        let at = sent.saturating_add(self.draw());
        // Without jitter too: a change may have shortened the delay.
        self.last = self.last.max(at);
        if self.keeps_order() { self.last } else { at }
    }

    pub(super) fn keeps_order(&self) -> bool {
        self.jitter.as_ref().is_none_or(|jitter| !jitter.reorders)
    }

    /// Sets when the last packet in flight arrives.
    pub(super) fn set_last(&mut self, last: u64) {
        self.last = last;
    }

    /// Becomes another delay; packets in flight stay ahead of later ones.
    pub(super) fn change(&mut self, base: u64, jitter: Option<Jitter>) {
        (self.base, self.jitter) = (base, jitter);
    }

    fn draw(&mut self) -> u64 {
        let Some(jitter) = &self.jitter else { return self.base };
        let random = &mut self.random;
        let varied = match &jitter.shape {
            Shape::Uniform(size) => nanos(*size) as f64 * (2.0 * uniform(random) - 1.0),
            Shape::Normal(size) => nanos(*size) as f64 * normal(random),
            Shape::Table(quantiles) => quantile(quantiles, uniform(random)),
        };
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is not negative")]
        #[expect(clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let delay = (self.base as f64 + varied).max(0.0) as u64;
        delay
    }
}

/// A standard normal number (Box and Muller 1958).
fn normal(random: &mut Pcg64Mcg) -> f64 {
    let radius = (-2.0 * uniform(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}

/// The time, in nanoseconds, below which a share of a table's draws lies.
fn quantile(table: &[Duration], share: f64) -> f64 {
    let place = share * table.len().saturating_sub(1) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "an index of the table")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let below = place as usize;
    let at = |index: usize| table.get(index).map_or(0.0, |time| nanos(*time) as f64);
    let (low, high) = (at(below), at((below + 1).min(table.len().saturating_sub(1))));
    low + (high - low) * (place - below as f64)
}
