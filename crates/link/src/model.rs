//! What happens to a packet on its way: pure, seeded, without clock or device.
//!
//! A packet that arrives at a direction first takes its place in the queue, or is dropped when that
//! is full; it is transmitted at the link's rate, one packet after the other; on the wire it may be
//! lost; otherwise it arrives after the delay. Order is kept.
//!
//! ```text
//!  offer --> [ queue | transmitter: rate ] --> loss --> delay --> deliver
//!               `-> dropped, full                `-> lost
//! ```

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::clock::nanos;
use crate::spec::{Direction, Spec};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at this time, in nanoseconds on the clock of `now`.
    Deliver {
        /// When.
        at: u64,
    },
    /// It was lost on the wire.
    Lost,
    /// There was no room in the queue.
    Dropped,
}

/// What happens to the first of several packets that come as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// So many arrive; if that is not all, the next one is lost.
    pub passed: u32,
    /// When they arrive, in nanoseconds on the clock of `now`.
    pub at: u64,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Model {
    delay: u64,
    transmitter: Option<Transmitter>,
    loss: Option<Loss>,
}

impl Model {
    /// The model of one direction of a path, with the seed of its decisions.
    #[must_use]
    pub fn new(spec: &Spec, direction: &Direction, seed: u64) -> Self {
        let transmitter = direction.rate.zip(spec.queue_bytes(direction));
        Self {
            delay: nanos(direction.delay),
            transmitter: transmitter
                .map(|(rate, queue)| Transmitter::new(rate.bits_per_s(), queue)),
            loss: direction.loss.and_then(|share| Loss::new(share.fraction(), seed)),
        }
    }

    /// Decides about a packet of `bytes` IP bytes that arrives at `now`, in nanoseconds. `now`
    /// never goes back.
    pub fn offer(&mut self, now: u64, bytes: u32) -> Fate {
        let sent = match &mut self.transmitter {
            None => now,
            Some(transmitter) => match transmitter.send(now, bytes) {
                Some(sent) => sent,
                None => return Fate::Dropped,
            },
        };
        if self.loss.as_mut().is_some_and(Loss::strikes) {
            return Fate::Lost;
        }
        Fate::Deliver { at: sent.saturating_add(self.delay) }
    }

    /// Whether packets that come as one may be decided about by [`Model::offer_train`]: where
    /// nothing spaces them out.
    #[must_use]
    pub fn takes_trains(&self) -> bool {
        self.transmitter.is_none()
    }

    /// Decides about `packets` packets, at least 1, that arrive as one at `now`, up to the first
    /// that is lost: the same decisions as of as many calls of [`Model::offer`]. Only where
    /// [`Model::takes_trains`].
    pub fn offer_train(&mut self, now: u64, packets: u32) -> Run {
        debug_assert!(self.takes_trains(), "a rate spaces packets out");
        let passed = self.loss.as_mut().map_or(packets, |loss| loss.passes(packets));
        Run { passed, at: now.saturating_add(self.delay) }
    }
}

/// A drop-tail queue in front of a constant rate.
#[derive(Clone, Debug)]
struct Transmitter {
    bits_per_s: u128,
    queue_bytes: u128,
    /// When the last accepted packet will have been sent, in nanoseconds.
    free_at: u64,
    /// What rounding to nanoseconds has left over, in units of 1/rate nanoseconds: without it a
    /// rate that does not divide a second would be off by up to a nanosecond per packet.
    carry: u128,
}

impl Transmitter {
    fn new(bits_per_s: u64, queue_bytes: u64) -> Self {
        Self {
            bits_per_s: bits_per_s.into(),
            queue_bytes: queue_bytes.into(),
            free_at: 0,
            carry: 0,
        }
    }

    /// When the packet will have been sent; `None` when the queue has no room for it.
    fn send(&mut self, now: u64, bytes: u32) -> Option<u64> {
        if self.free_at <= now {
            (self.free_at, self.carry) = (now, 0);
        }
        let waiting_ns = u128::from(self.free_at - now);
        let waiting_bytes = waiting_ns * self.bits_per_s / (8 * NANOS_PER_SECOND);
        if waiting_bytes + u128::from(bytes) > self.queue_bytes {
            return None;
        }
        let work = u128::from(bytes) * 8 * NANOS_PER_SECOND + self.carry;
        let time = u64::try_from(work / self.bits_per_s).unwrap_or(u64::MAX);
        self.carry = work % self.bits_per_s;
        self.free_at = self.free_at.saturating_add(time);
        Some(self.free_at)
    }
}

/// Independent loss: the number of packets until the next loss is drawn, not each packet's fate, so
/// that a run of packets can pass without a decision.
#[derive(Clone, Debug)]
struct Loss {
    random: Pcg64Mcg,
    /// `ln(1 - p)`: 0 for a share too small to tell from none, minus infinity for all.
    ln_pass: f64,
    until_next: u64,
}

impl Loss {
    fn new(share: f64, seed: u64) -> Option<Self> {
        if share <= 0.0 {
            return None;
        }
        let mut loss = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            ln_pass: (-share).ln_1p(),
            until_next: 0,
        };
        loss.until_next = loss.draw();
        Some(loss)
    }

    fn strikes(&mut self) -> bool {
        if self.until_next > 0 {
            self.until_next -= 1;
            return false;
        }
        self.until_next = self.draw();
        true
    }

    /// How many of `packets` pass before a loss; consumes these, and the lost one if there is one.
    fn passes(&mut self, packets: u32) -> u32 {
        match u32::try_from(self.until_next) {
            Ok(passed) if passed < packets => {
                self.until_next = self.draw();
                passed
            }
            _ => {
                self.until_next -= u64::from(packets);
                packets
            }
        }
    }

    /// A geometric number by inversion (Devroye 1986, chapter X.2): packets that pass before a
    /// loss.
    fn draw(&mut self) -> u64 {
        // 53 random bits, in (0, 1].
        let uniform = ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        let gap = uniform.ln() / self.ln_pass;
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is not negative")]
        #[expect(clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let gap = gap.floor() as u64;
        gap
    }
}

#[cfg(test)]
mod tests;
