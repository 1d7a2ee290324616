//! A rate, and the queue in front of it.
//!
//! In a first-in, first-out queue in front of a known rate, the time at which a packet leaves is known
//! when it arrives: when all before it have been sent. So is its fate under CoDel, whose control law
//! looks at the waiting times of packets in the order in which they leave.

use std::collections::VecDeque;

use super::Packet;
use super::{Retiming, State};
use crate::spec::{Management, Marks, QueueLimit};
use crate::trace::{OPPORTUNITY_BYTES, Trace};

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// RFC 8289 section 4.4: TARGET and INTERVAL.
const CODEL_TARGET: u64 = 5_000_000;
const CODEL_INTERVAL: u64 = 100_000_000;
/// RFC 8289 section 5.5: no drop while less than this waits.
const CODEL_LEAST_BYTES: u128 = 1514;

/// A packet that leaves the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// When its transmission ends.
    pub(super) at: u64,
    /// How long it waits before its transmission begins.
    pub(super) queued: u64,
    /// Marked with CE.
    pub(super) marked: bool,
}

/// A queue in front of a rate.
#[derive(Clone, Debug)]
pub(super) struct Transmitter {
    pace: Pace,
    limit: QueueLimit,
    codel: Option<Codel>,
    marks: Marks,
    /// When the transmission of the last accepted packet ends, in nanoseconds.
    free_at: u64,
    /// For each waiting packet, when its transmission ends, and its bytes.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
}

/// How fast packets leave.
#[derive(Clone, Debug)]
enum Pace {
    Constant {
        bits_per_s: u128,
        /// The remainder of rounding to nanoseconds, in units of 1/rate nanoseconds: without it a rate
        /// that does not divide a second would be off by up to a nanosecond per packet.
        carry: u128,
    },
    Recorded {
        trace: Trace,
        /// The opportunity in use, and what is left of it in bytes.
        opportunity: u64,
        left: u64,
    },
}

impl Transmitter {
    /// `None` without a rate.
    pub(super) fn new(state: &State) -> Option<Self> {
        let State { direction, limit } = state;
        Some(Self {
            pace: Pace::of(state)?,
            limit: (*limit)?,
            codel: (direction.management == Management::Codel).then(Codel::default),
            marks: direction.marks,
            free_at: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        })
    }

    /// Becomes another transmitter: packets that wait then leave at its pace.
    pub(super) fn change(&mut self, now: u64, new: Self) -> Option<Retiming> {
        (self.limit, self.marks) = (new.limit, new.marks);
        if self.codel.is_some() != new.codel.is_some() {
            self.codel = new.codel;
        }
        if self.pace.is_same(&new.pace) { None } else { Some(self.retime(now, new.pace)) }
    }

    /// Lets all waiting packets leave at once.
    pub(super) fn empty(mut self, now: u64) -> Retiming {
        self.forget_sent(now);
        Retiming { sent: self.waiting.iter().map(|(at, _)| (*at, now)).collect() }
    }

    fn retime(&mut self, now: u64, mut pace: Pace) -> Retiming {
        self.forget_sent(now);
        if let Some((at, bytes)) = self.waiting.front_mut()
            && let Pace::Constant { bits_per_s, .. } = self.pace
        {
            // A part of the first packet has been sent.
            let left = (u128::from(*at - now) * bits_per_s).div_ceil(8 * NANOS_PER_SECOND);
            let left = u32::try_from(left).map_or(*bytes, |left| left.min(*bytes));
            self.waiting_bytes -= u64::from(*bytes - left);
            *bytes = left;
        }
        self.free_at = now;
        let mut sent = Vec::with_capacity(self.waiting.len());
        for (at, bytes) in &mut self.waiting {
            self.free_at = pace.sent_at(now, self.free_at, *bytes);
            sent.push((*at, self.free_at));
            *at = self.free_at;
        }
        self.pace = pace;
        Retiming { sent }
    }

    /// Takes a packet that arrives at `now`; `None` if it never leaves the queue.
    pub(super) fn send(&mut self, now: u64, packet: Packet) -> Option<Sent> {
        self.forget_sent(now);
        let waiting_bytes = self.waiting_bytes(now);
        if !self.has_room(waiting_bytes + u128::from(packet.bytes)) {
            return None;
        }
        let turn = self.free_at.max(now);
        let long = waiting_bytes >= CODEL_LEAST_BYTES;
        let wait = turn - now;
        let signals = self.codel.as_mut().is_some_and(|codel| codel.signals(turn, wait, long));
        let marked = packet.ecn_capable && self.marks(signals, waiting_bytes);
        if signals && !marked {
            return None;
        }
        self.free_at = self.pace.sent_at(now, self.free_at, packet.bytes);
        self.waiting.push_back((self.free_at, packet.bytes));
        self.waiting_bytes += u64::from(packet.bytes);
        Some(Sent { at: self.free_at, queued: wait, marked })
    }

    /// Whether an ECN-capable packet is marked.
    fn marks(&self, signals: bool, waiting_bytes: u128) -> bool {
        match self.marks {
            Marks::None => false,
            Marks::InsteadOfDrops => signals,
            Marks::Above(size) => waiting_bytes > size.bytes().into(),
        }
    }

    fn forget_sent(&mut self, now: u64) {
        while let Some((sent, bytes)) = self.waiting.front() {
            if *sent > now {
                return;
            }
            self.waiting_bytes -= u64::from(*bytes);
            self.waiting.pop_front();
        }
    }

    /// The bytes that wait; at a constant rate without the part of the first packet that has been sent.
    fn waiting_bytes(&self, now: u64) -> u128 {
        match self.pace {
            Pace::Constant { bits_per_s, .. } => {
                let wait = self.free_at.saturating_sub(now);
                u128::from(wait) * bits_per_s / (8 * NANOS_PER_SECOND)
            }
            Pace::Recorded { .. } => self.waiting_bytes.into(),
        }
    }

    fn has_room(&self, bytes: u128) -> bool {
        match self.limit {
            QueueLimit::Bytes(limit) => bytes <= u128::from(limit),
            QueueLimit::Packets(limit) => (self.waiting.len() as u64) < limit,
        }
    }
}

impl Pace {
    /// `None` without a rate.
    fn of(state: &State) -> Option<Self> {
        let State { direction, .. } = state;
        Some(match (&direction.trace, direction.rate) {
            (Some(trace), _) => {
                Self::Recorded { trace: trace.clone(), opportunity: 0, left: OPPORTUNITY_BYTES }
            }
            (None, rate) => Self::Constant { bits_per_s: rate?.bits_per_s().into(), carry: 0 },
        })
    }

    /// Whether both are as fast at any time.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Constant { bits_per_s: one, .. }, Self::Constant { bits_per_s: two, .. }) => {
                one == two
            }
            (Self::Recorded { trace: one, .. }, Self::Recorded { trace: two, .. }) => one == two,
            _ => false,
        }
    }

    /// When the transmission of a packet that arrives at `now` ends, if that of the one before it ends
    /// at `free_at`.
    fn sent_at(&mut self, now: u64, free_at: u64, bytes: u32) -> u64 {
        match self {
            Self::Constant { bits_per_s, carry } => {
                if free_at <= now {
                    *carry = 0;
                }
                let work = u128::from(bytes) * 8 * NANOS_PER_SECOND + *carry;
                *carry = work % *bits_per_s;
                let time = u64::try_from(work / *bits_per_s).unwrap_or(u64::MAX);
                free_at.max(now).saturating_add(time)
            }
            Self::Recorded { trace, opportunity, left } => {
                // Opportunities that passed unused are lost.
                if trace.time(*opportunity) < now {
                    (*opportunity, *left) = (trace.first_at(now), OPPORTUNITY_BYTES);
                }
                let mut bytes = u64::from(bytes);
                while bytes > *left {
                    bytes -= *left;
                    (*opportunity, *left) = (*opportunity + 1, OPPORTUNITY_BYTES);
                }
                *left -= bytes;
                trace.time(*opportunity)
            }
        }
    }
}

/// The control law of CoDel (RFC 8289 section 5), asked for each packet when it leaves the queue.
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
    /// Whether the packet that leaves at `now`, after `wait`, is to be dropped or marked.
    fn signals(&mut self, now: u64, wait: u64, long: bool) -> bool {
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
