//! What happens to a packet on its way: pure, seeded, without clock or device.
//!
//! ```text
//!  offer --> cut? --> policer --> [ queue | transmitter: rate ] --> loss --> corruption,
//!             |          |           |  drop-tail, CoDel             |       duplication
//!            lost     policed     dropped, or marked with CE        lost         |
//!                                                          delay, jitter <-------'
//!                                                                |
//!                                                             deliver
//! ```
//!
//! Every step is left out where the path does not ask for it. All chance comes from one seeded
//! generator per step, so that the losses of a seed stay the same when a jitter is added. Order is
//! kept unless a jitter is asked to break it.

mod jitter;
mod loss;
mod outage;
mod policer;
mod queue;

use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::clock::nanos;
use crate::spec::{Direction, Spec};
use jitter::Delay;
use loss::{Bursts, EveryNth, Gaps};
use outage::Outages;
use policer::TokenBucket;
use queue::{Sent, Transmitter};

/// What the model must know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its IP bytes.
    pub bytes: u32,
    /// Whether it may be marked instead of dropped (RFC 3168: ECT(0) or ECT(1)).
    pub ecn_capable: bool,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Deliver(Arrival),
    /// It was lost on the wire, or the wire was cut.
    Lost,
    /// There was no room in the queue, or the queue's management dropped it.
    Dropped,
    /// The policer dropped it: it came faster than agreed.
    Policed,
}

/// How a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in nanoseconds on the clock of `now`.
    pub at: u64,
    /// How long it waits in the queue before its transmission begins, in nanoseconds.
    pub queued: u64,
    /// Marked with CE (RFC 3168).
    pub marked: bool,
    /// Damaged: a bit is wrong, at a place that this number chooses.
    pub corrupted: Option<u64>,
    /// A second copy arrives right behind it.
    pub duplicated: bool,
}

impl Arrival {
    /// A packet that arrives as it was sent.
    #[must_use]
    pub fn unharmed(at: u64) -> Self {
        Self { at, queued: 0, marked: false, corrupted: None, duplicated: false }
    }
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
    outages: Option<Outages>,
    policer: Option<TokenBucket>,
    transmitter: Option<Transmitter>,
    loss: Option<Gaps>,
    bursts: Option<Bursts>,
    every_nth: Option<EveryNth>,
    corruption: Option<Gaps>,
    duplication: Option<Gaps>,
    delay: Delay,
}

impl Model {
    /// The model of one direction of a path, with the seed of its decisions.
    #[must_use]
    pub fn new(spec: &Spec, direction: &Direction, seed: u64) -> Self {
        let gaps = |share: Option<lastbyte_units::Share>, step| {
            share.and_then(|share| Gaps::new(share.fraction(), random(seed, step)))
        };
        Self {
            outages: Outages::new(&direction.outages),
            policer: direction.policer.map(TokenBucket::new),
            transmitter: Transmitter::new(spec, direction),
            loss: gaps(direction.loss, 0),
            bursts: direction.burst_loss.and_then(|bursts| Bursts::new(bursts, random(seed, 1))),
            every_nth: direction.lose_every.map(EveryNth::new),
            corruption: gaps(direction.corrupt, 2),
            duplication: gaps(direction.duplicate, 3),
            delay: Delay::new(nanos(direction.delay), direction.jitter, random(seed, 4)),
        }
    }

    /// Decides about a packet that arrives at `now`, in nanoseconds. `now` never goes back.
    pub fn offer(&mut self, now: u64, packet: Packet) -> Fate {
        if self.outages.as_ref().is_some_and(|outages| outages.cut(now)) {
            return Fate::Lost;
        }
        if self.policer.as_mut().is_some_and(|policer| !policer.admits(now, packet.bytes)) {
            return Fate::Policed;
        }
        let Sent { at: sent, queued, marked } = match &mut self.transmitter {
            None => Sent { at: now, queued: 0, marked: false },
            Some(transmitter) => match transmitter.send(now, packet) {
                Some(sent) => sent,
                None => return Fate::Dropped,
            },
        };
        if self.is_lost(sent) {
            return Fate::Lost;
        }
        Fate::Deliver(Arrival {
            at: self.delay.arrival(sent),
            queued,
            marked,
            corrupted: self.corruption.as_mut().and_then(Gaps::strikes_where),
            duplicated: self.duplication.as_mut().is_some_and(Gaps::strikes),
        })
    }

    /// Every step draws, whatever the others say: one does not change the other's sequence.
    fn is_lost(&mut self, sent: u64) -> bool {
        let alone = self.loss.as_mut().is_some_and(Gaps::strikes);
        let in_burst = self.bursts.as_mut().is_some_and(Bursts::strikes);
        let counted = self.every_nth.as_mut().is_some_and(EveryNth::strikes);
        let cut = self.outages.as_ref().is_some_and(|outages| outages.cut(sent));
        alone || in_burst || counted || cut
    }

    /// Whether packets that come as one may be decided about by [`Model::offer_train`]: where
    /// nothing but delay and independent loss happens to them.
    #[must_use]
    pub fn takes_trains(&self) -> bool {
        let Self { outages, policer, transmitter, loss: _, bursts, every_nth, .. } = self;
        let whole =
            self.corruption.is_none() && self.duplication.is_none() && self.delay.is_fixed();
        let unshaped = outages.is_none() && policer.is_none() && transmitter.is_none();
        whole && unshaped && bursts.is_none() && every_nth.is_none()
    }

    /// Decides about `packets` packets, at least 1, that arrive as one at `now`, up to the first
    /// that is lost: the same decisions as of as many calls of [`Model::offer`]. Only where
    /// [`Model::takes_trains`].
    pub fn offer_train(&mut self, now: u64, packets: u32) -> Run {
        debug_assert!(self.takes_trains(), "something may happen to each of them");
        let passed = self.loss.as_mut().map_or(packets, |loss| loss.passes(packets));
        Run { passed, at: self.delay.arrival(now) }
    }
}

/// A generator of its own for each step.
fn random(seed: u64, step: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed.wrapping_add(step.wrapping_mul(0xD1B5_4A32_D192_ED03)))
}

/// A number in (0, 1], from 53 random bits.
fn uniform(random: &mut Pcg64Mcg) -> f64 {
    use rand_core::Rng;
    ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
