//! A rate, and the queue in front of it.
//!
//! In a first-in, first-out queue in front of a constant rate, a packet's turn is known when it
//! arrives: when all before it have been sent. So is its fate under CoDel, whose law looks at the
//! waiting times of packets in the order in which they leave.

use std::collections::VecDeque;

use super::Packet;
use crate::spec::{Direction, Management, QueueLimit, Spec};

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// RFC 8289 section 4.4: TARGET and INTERVAL.
const CODEL_TARGET: u64 = 5_000_000;
const CODEL_INTERVAL: u64 = 100_000_000;
/// RFC 8289 section 5.5: no drop while less than this waits.
const CODEL_LEAST_BYTES: u128 = 1514;

/// What the queue made of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It will have been sent by this time.
    At(u64),
    /// As [`Sent::At`], and it is marked with CE.
    Marked(u64),
    /// It never leaves the queue.
    Dropped,
}

/// A queue in front of a constant rate.
#[derive(Clone, Debug)]
pub(super) struct Transmitter {
    bits_per_s: u128,
    limit: QueueLimit,
    codel: Option<Codel>,
    marks: bool,
    /// When the last accepted packet will have been sent, in nanoseconds.
    free_at: u64,
    /// What rounding to nanoseconds has left over, in units of 1/rate nanoseconds: without it a
    /// rate that does not divide a second would be off by up to a nanosecond per packet.
    carry: u128,
    /// When each waiting packet will have been sent: for limits in packets alone.
    waiting: VecDeque<u64>,
}

impl Transmitter {
    /// `None` without a rate.
    pub(super) fn new(spec: &Spec, direction: &Direction) -> Option<Self> {
        let rate = direction.rate?;
        let limit = spec.queue_limit(direction)?;
        Some(Self {
            bits_per_s: rate.bits_per_s().into(),
            limit,
            codel: (direction.management == Management::Codel).then(Codel::default),
            marks: direction.marks_ecn,
            free_at: 0,
            carry: 0,
            waiting: VecDeque::new(),
        })
    }

    /// Takes a packet that arrives at `now`.
    pub(super) fn send(&mut self, now: u64, packet: Packet) -> Sent {
        if self.free_at <= now {
            (self.free_at, self.carry) = (now, 0);
        }
        let wait = self.free_at - now;
        let waiting_bytes = u128::from(wait) * self.bits_per_s / (8 * NANOS_PER_SECOND);
        if !self.has_room(now, waiting_bytes + u128::from(packet.bytes)) {
            return Sent::Dropped;
        }
        let turn = self.free_at;
        let long = waiting_bytes >= CODEL_LEAST_BYTES;
        let strikes = self.codel.as_mut().is_some_and(|codel| codel.strikes(turn, wait, long));
        let marked = strikes && self.marks && packet.ecn_capable;
        if strikes && !marked {
            return Sent::Dropped;
        }
        let work = u128::from(packet.bytes) * 8 * NANOS_PER_SECOND + self.carry;
        let time = u64::try_from(work / self.bits_per_s).unwrap_or(u64::MAX);
        self.carry = work % self.bits_per_s;
        self.free_at = self.free_at.saturating_add(time);
        if matches!(self.limit, QueueLimit::Packets(_)) {
            self.waiting.push_back(self.free_at);
        }
        if marked { Sent::Marked(self.free_at) } else { Sent::At(self.free_at) }
    }

    fn has_room(&mut self, now: u64, bytes: u128) -> bool {
        match self.limit {
            QueueLimit::Bytes(limit) => bytes <= u128::from(limit),
            QueueLimit::Packets(limit) => {
                while self.waiting.front().is_some_and(|sent| *sent <= now) {
                    self.waiting.pop_front();
                }
                (self.waiting.len() as u64) < limit
            }
        }
    }
}

/// The control law of CoDel (RFC 8289 section 5), asked for each packet at its turn.
#[derive(Clone, Debug, Default)]
struct Codel {
    /// When the waiting time will have been above the target for an interval.
    first_above: Option<u64>,
    dropping: bool,
    drop_next: u64,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the packet whose turn comes at `now`, after `wait`, is to be dropped or marked.
    fn strikes(&mut self, now: u64, wait: u64, long: bool) -> bool {
        let above = self.above_for_an_interval(now, wait, long);
        if self.dropping {
            if !above {
                self.dropping = false;
                return false;
            }
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next = self.control(self.drop_next);
            return true;
        }
        if !above {
            return false;
        }
        self.dropping = true;
        // Section 5.5: a drop state that was left only lately is entered again where it was left.
        let lately = now.saturating_sub(self.drop_next) < 16 * CODEL_INTERVAL;
        let delta = self.count - self.last_count;
        self.count = if delta > 1 && lately { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control(now);
        true
    }

    fn above_for_an_interval(&mut self, now: u64, wait: u64, long: bool) -> bool {
        if wait < CODEL_TARGET || !long {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now.saturating_add(CODEL_INTERVAL));
                false
            }
            Some(time) => now >= time,
        }
    }

    /// Section 5.3: the next drop comes an interval over the root of the count later.
    fn control(&self, from: u64) -> u64 {
        let step = CODEL_INTERVAL as f64 / f64::from(self.count).sqrt();
        #[expect(clippy::cast_possible_truncation, reason = "at most an interval")]
        #[expect(clippy::cast_sign_loss, reason = "not negative")]
        let step = step as u64;
        from.saturating_add(step)
    }
}
