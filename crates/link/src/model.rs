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
//! A path may change, at set times or on request. A packet that was sent keeps its fate; one that waits
//! for its transmission then leaves at the new rate ([`Retiming`]).
//!
//! A step that the path does not ask for is left out. Each step draws from a seeded generator of its
//! own, so that the losses of a seed stay the same when a jitter is added. Packets keep their order
//! unless a jitter may break it.

mod jitter;
mod loss;
mod outage;
mod policer;
mod queue;

use std::collections::VecDeque;

use lastbyte_units::Share;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

pub use crate::clock::nanos;
use crate::spec::{Direction, QueueLimit, Spec, Way};
use jitter::Delay;
use loss::{Bernoulli, Bursts, EveryNth};
use outage::Outages;
use policer::TokenBucket;
use queue::{Sent, Transmitter};

/// What the model needs to know of a packet.
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
    /// The policer dropped it: it exceeded the policer's rate.
    Policed,
}

/// How a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in nanoseconds on the clock of `now`.
    pub at: u64,
    /// When its transmission ends, before its delay.
    pub sent: u64,
    /// How long it waits in the queue before its transmission begins, in nanoseconds.
    pub queued: u64,
    /// Marked with CE (RFC 3168).
    pub marked: bool,
    /// Corrupted: a bit is flipped, at a place that this number chooses.
    pub corrupted: Option<u64>,
    /// A second copy arrives right behind it.
    pub duplicated: bool,
}

impl Arrival {
    /// Whether it arrives as it was sent.
    #[must_use]
    pub fn is_unharmed(&self) -> bool {
        !self.marked && self.corrupted.is_none() && !self.duplicated
    }
}

/// What happens to the first of several packets that arrive at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many arrive; if that is not all, the next one is lost.
    pub passed: u32,
    /// When they arrive, in nanoseconds on the clock of `now`.
    pub at: u64,
}

/// The new times of packets that wait for their transmission, after a change of the rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retiming {
    /// When a packet would have been sent, and when it is now; both ascend.
    sent: Vec<(u64, u64)>,
}

impl Retiming {
    /// Whether no packet is sent at another time.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// When a packet is sent that would have been sent at another time, both in nanoseconds on the
    /// clock of `now`.
    #[must_use]
    pub fn of(&self, sent: u64) -> u64 {
        let place = self.sent.partition_point(|(before, _)| *before <= sent);
        match place.checked_sub(1).map(|last| self.sent[last]) {
            Some((before, now)) if before == sent => now,
            _ => sent,
        }
    }
}

/// A direction between two changes.
#[derive(Clone, Debug, PartialEq)]
struct State {
    direction: Direction,
    limit: Option<QueueLimit>,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Model {
    seed: u64,
    state: State,
    /// What it changes to, and when, the next first.
    later: VecDeque<(u64, State)>,
    /// How often it has changed.
    changes: u64,
    outages: Option<Outages>,
    policer: Option<TokenBucket>,
    transmitter: Option<Transmitter>,
    loss: Option<Bernoulli>,
    bursts: Option<Bursts>,
    every_nth: Option<EveryNth>,
    corruption: Option<Bernoulli>,
    duplication: Option<Bernoulli>,
    delay: Delay,
}

impl Model {
    /// The model of one direction of a path, with the seed of its decisions.
    #[must_use]
    pub fn new(spec: &Spec, way: Way, seed: u64) -> Self {
        let mut later = states(spec, way);
        let (_, state) = later.pop_front().unwrap_or_else(|| (0, State::nothing()));
        let direction = &state.direction;
        Self {
            seed,
            outages: Outages::new(&direction.outages),
            policer: direction.policer.map(TokenBucket::new),
            transmitter: Transmitter::new(&state),
            loss: gaps(direction.loss, random(seed, LOSS)),
            bursts: bursts(direction, random(seed, BURSTS)),
            every_nth: direction.lose_every.map(EveryNth::new),
            corruption: gaps(direction.corrupt, random(seed, CORRUPTION)),
            duplication: gaps(direction.duplicate, random(seed, DUPLICATION)),
            delay: Delay::new(
                nanos(direction.delay),
                direction.jitter.clone(),
                random(seed, JITTER),
            ),
            state,
            later,
            changes: 0,
        }
    }

    /// The next scheduled change of the path, in nanoseconds on the clock of `now`.
    #[must_use]
    pub fn next_change(&self) -> Option<u64> {
        self.later.front().map(|(at, _)| *at)
    }

    /// Makes one change whose time has come; the caller repeats this until there is none. Steps whose
    /// parameters stay the same go on as they are. Returns the new times of packets that wait for their
    /// transmission; a packet that has been sent keeps its time of arrival.
    pub fn make_change(&mut self, now: u64) -> Option<Retiming> {
        if self.next_change().is_none_or(|at| at > now) {
            return None;
        }
        let (at, state) = self.later.pop_front()?;
        Some(self.become_state(at, state).unwrap_or_default())
    }

    /// Becomes another path, which began at time 0: as it is at `now`, and as it changes later.
    /// Otherwise as [`Model::make_change`].
    pub fn replace(&mut self, now: u64, spec: &Spec, way: Way) -> Retiming {
        self.later = states(spec, way);
        let mut current = None;
        while let Some((at, _)) = self.later.front()
            && *at <= now
        {
            current = self.later.pop_front();
        }
        let state = current.map_or_else(State::nothing, |(_, state)| state);
        self.become_state(now, state).unwrap_or_default()
    }

    /// Sets when the last packet in flight arrives, after a change of the rate: where order is kept, no
    /// later packet may arrive before that.
    pub fn set_last_arrival(&mut self, at: u64) {
        self.delay.set_last(at);
    }

    fn become_state(&mut self, now: u64, state: State) -> Option<Retiming> {
        self.changes += 1;
        // Independent of the draws so far, as with another seed.
        let seed = self.seed ^ self.changes.wrapping_mul(0xA24B_AED4_963E_E407);
        let before = std::mem::replace(&mut self.state, state);
        let (old, new) = (&before.direction, &self.state.direction);
        if old.outages != new.outages {
            self.outages = Outages::new(&new.outages);
        }
        if old.policer != new.policer {
            self.policer = new.policer.map(TokenBucket::new);
        }
        if old.loss != new.loss {
            self.loss = gaps(new.loss, random(seed, LOSS));
        }
        if old.burst_loss != new.burst_loss {
            self.bursts = bursts(new, random(seed, BURSTS));
        }
        if old.lose_every != new.lose_every {
            self.every_nth = new.lose_every.map(EveryNth::new);
        }
        if old.corrupt != new.corrupt {
            self.corruption = gaps(new.corrupt, random(seed, CORRUPTION));
        }
        if old.duplicate != new.duplicate {
            self.duplication = gaps(new.duplicate, random(seed, DUPLICATION));
        }
        self.delay.change(nanos(new.delay), new.jitter.clone());
        match (self.transmitter.take(), Transmitter::new(&self.state)) {
            (Some(mut transmitter), Some(new)) => {
                let retiming = transmitter.change(now, new);
                self.transmitter = Some(transmitter);
                retiming
            }
            (Some(transmitter), None) => Some(transmitter.empty(now)),
            (None, new) => {
                self.transmitter = new;
                None
            }
        }
    }

    /// Decides what happens to a packet that is sent at `now`, in nanoseconds. `now` never goes back.
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
            sent,
            queued,
            marked,
            corrupted: self.corruption.as_mut().and_then(Bernoulli::hit_at),
            duplicated: self.duplication.as_mut().is_some_and(Bernoulli::hits),
        })
    }

    /// Every step draws, whatever the others decide: so that none changes the sequence of another.
    fn is_lost(&mut self, sent: u64) -> bool {
        let alone = self.loss.as_mut().is_some_and(Bernoulli::hits);
        let in_burst = self.bursts.as_mut().is_some_and(Bursts::hits);
        let counted = self.every_nth.as_mut().is_some_and(EveryNth::hits);
        let cut = self.outages.as_ref().is_some_and(|outages| outages.cut(sent));
        alone || in_burst || counted || cut
    }

    /// Whether packets arrive in the order in which they were offered.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.delay.keeps_order()
    }

    /// Whether packets arrive as soon as they are sent.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.takes_batches() && self.state.direction.delay.is_zero()
    }

    /// Whether [`Model::offer_batch`] may be used: where nothing but delay and independent loss happens
    /// to packets.
    #[must_use]
    pub fn takes_batches(&self) -> bool {
        let Self { outages, policer, transmitter, bursts, every_nth, .. } = self;
        let whole =
            self.corruption.is_none() && self.duplication.is_none() && self.delay.is_fixed();
        let unshaped = outages.is_none() && policer.is_none() && transmitter.is_none();
        whole && unshaped && bursts.is_none() && every_nth.is_none()
    }

    /// Decides what happens to `packets` packets, at least 1, that are sent at once at `now`, up to the
    /// first that is lost, exactly as that many calls of [`Model::offer`] would. Only where
    /// [`Model::takes_batches`].
    pub fn offer_batch(&mut self, now: u64, packets: u32) -> Run {
        debug_assert!(self.takes_batches(), "each packet may meet another fate");
        let passed = self.loss.as_mut().map_or(packets, |loss| loss.passes(packets));
        Run { passed, at: self.delay.arrival(now) }
    }
}

/// The steps that draw. A number never changes its meaning: replays of old runs would change.
const LOSS: u64 = 0;
const BURSTS: u64 = 1;
const CORRUPTION: u64 = 2;
const DUPLICATION: u64 = 3;
const JITTER: u64 = 4;

impl State {
    /// A direction in which nothing happens.
    fn nothing() -> Self {
        Self { direction: Direction::default(), limit: None }
    }
}

/// The states of a direction, and when each begins.
fn states(spec: &Spec, way: Way) -> VecDeque<(u64, State)> {
    let state = |(at, direction, limit): (_, &Direction, _)| {
        (nanos(at), State { direction: direction.clone(), limit })
    };
    spec.states(way).map(state).collect()
}

fn gaps(share: Option<Share>, random: Pcg64Mcg) -> Option<Bernoulli> {
    Bernoulli::new(share?.fraction(), random)
}

fn bursts(direction: &Direction, random: Pcg64Mcg) -> Option<Bursts> {
    Bursts::new(direction.burst_loss?, random)
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
