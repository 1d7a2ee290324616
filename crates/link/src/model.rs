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
//! A path may change, at set times or when it is told to. What was sent stays as it was decided; what
//! waits for its transmission then leaves at the new rate ([`Retiming`]).
//!
//! Every step is left out where the path does not ask for it. All chance comes from one seeded
//! generator per step, so that the losses of a seed stay the same when a jitter is added. Order is
//! kept unless a jitter is asked to break it.

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
    /// When its transmission ends, before its delay.
    pub sent: u64,
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
    /// Whether it arrives as it was sent.
    #[must_use]
    pub fn is_unharmed(&self) -> bool {
        !self.marked && self.corrupted.is_none() && !self.duplicated
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

/// What a change of the rate means for packets that wait for their transmission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retiming {
    /// When a packet would have been sent, and when it is now; both ascend.
    sent: Vec<(u64, u64)>,
}

impl Retiming {
    /// Whether nothing is sent at another time.
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
    /// What it becomes, and when, the next first.
    later: VecDeque<(u64, State)>,
    /// How often it has become something else.
    changes: u64,
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

    /// When the path changes next by itself, in nanoseconds on the clock of `now`.
    #[must_use]
    pub fn next_change(&self) -> Option<u64> {
        self.later.front().map(|(at, _)| *at)
    }

    /// Makes one change whose time has come; the caller asks again until there is none. Steps that ask
    /// for the same as before go on as they are. Where packets that wait are sent at other times now, it
    /// says when; what has been sent keeps its time of arrival.
    pub fn make_change(&mut self, now: u64) -> Option<Retiming> {
        if self.next_change().is_none_or(|at| at > now) {
            return None;
        }
        let (at, state) = self.later.pop_front()?;
        Some(self.become_state(at, state).unwrap_or_default())
    }

    /// Becomes another path, which has been there since time 0: as it is at `now`, and as it changes
    /// later. Otherwise as [`Model::make_change`].
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

    /// Packets that were sent before a change of the rate arrive at other times now: the last of them
    /// at `at`, before which none that comes may arrive where order is kept.
    pub fn set_last_arrival(&mut self, at: u64) {
        self.delay.set_last(at);
    }

    fn become_state(&mut self, now: u64, state: State) -> Option<Retiming> {
        self.changes += 1;
        // As independent as another seed's.
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
            sent,
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

    /// Whether packets arrive in the order in which they were offered.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.delay.keeps_order()
    }

    /// Whether packets arrive as soon as they are offered.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.takes_trains() && self.state.direction.delay.is_zero()
    }

    /// Whether packets that come as one may be decided about by [`Model::offer_train`]: where
    /// nothing but delay and independent loss happens to them.
    #[must_use]
    pub fn takes_trains(&self) -> bool {
        let Self { outages, policer, transmitter, bursts, every_nth, .. } = self;
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

/// What a direction is and becomes, and when.
fn states(spec: &Spec, way: Way) -> VecDeque<(u64, State)> {
    let state = |(at, direction, limit): (_, &Direction, _)| {
        (nanos(at), State { direction: direction.clone(), limit })
    };
    spec.states(way).map(state).collect()
}

fn gaps(share: Option<Share>, random: Pcg64Mcg) -> Option<Gaps> {
    Gaps::new(share?.fraction(), random)
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
