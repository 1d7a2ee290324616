//! Decides which packet train to send next, without I/O and clock.

use std::time::Duration;

use lastbyte_units::ByteSize;

use super::conditions::Conditions;
use super::dispersion::{self, Dispersion, Rate, Tail};
use super::observed::Observed;
use super::statistics::median;
use super::{Load, TRAINS_WITHIN};

/// The lengths of IP packets to try, longest first: that of Ethernet; what tunnels leave of it; what
/// every IPv6 path carries (RFC 8200 section 5); what every IPv4 host accepts (RFC 791).
const LENGTHS: [u32; 4] = [1500, 1400, 1280, 576];
/// The trains that show a rate, in packets, sent as fast as possible.
const RATE_TRAINS: [u32; 9] = [16, 16, 16, 32, 32, 32, 64, 64, 64];
/// Longer ones, where the delay varies so much that those show nothing.
const LONG_RATE_TRAINS: [u32; 4] = [128, 256, 512, 1024];
/// The first train that is to fill a queue; each next one is twice as long.
const FIRST_FILLING: u32 = 32;
const LONGEST: u32 = 16_384;
/// Those are sent at this multiple of the rate, as far as this machine can: three of four packets stay
/// in the queue.
const FILLED_AT: f64 = 4.0;
/// At least this many trains of one length, and more than half of them, must lose their tails, from
/// places on that differ by no more than this factor: a burst of losses is rarely at the end twice.
const TAILS: usize = 2;
const TRIES: usize = 3;
const ALIKE: f64 = 1.25;
/// A rate less exact than this, as a share of it, is measured again with this many more trains.
const EXACT: f64 = 0.01;
const MORE_TRAINS: u32 = 8;
/// A train that is shortened to fit the rest of the budget must be longer than those before by this
/// factor.
const WORTH_IT: f64 = 1.2;
/// No train keeps the path busy for longer.
const BUSY_AT_MOST: Duration = Duration::from_secs(1);

/// The trains so far, and what to send next.
#[derive(Clone, Debug)]
pub(super) struct PacketTrains {
    pub(super) conditions: Conditions,
    budget: u64,
    stage: Stage,
    /// The trains that had a reply.
    pub(super) seen: Vec<Observed>,
    dispersions: Vec<Dispersion>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    spent: Duration,
    /// Trains that do not count, because this machine was too busy to receive all replies.
    pub(super) discarded: u64,
    /// Why no more are sent.
    pub(super) ended: StopReason,
}

/// What the next trains measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whether packets of this length are answered.
    Length(usize),
    /// The rate, by this train of [`RATE_TRAINS`].
    Rate(usize),
    /// The rate, by this train of [`LONG_RATE_TRAINS`].
    LongRate(usize),
    /// The queue, by a train of this many packets.
    Queue(u32),
    /// The rate again, by trains of the first number of packets; the second number of them is left.
    Refine(u32, u32),
    Over,
}

/// Why no more trains are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// They are still being sent.
    No,
    /// Trains can show no more.
    Complete,
    /// The allowed bytes or time are used up.
    Budget,
    /// A longer train would keep the path busy for too long.
    Busy,
    /// No full packet was answered.
    Unanswered,
}

impl PacketTrains {
    /// After the small probes.
    pub(super) fn new(budget: ByteSize, probes: &Observed) -> Self {
        Self {
            conditions: Conditions::of(probes),
            budget: budget.bytes(),
            stage: Stage::Length(0),
            seen: Vec::new(),
            dispersions: Vec::new(),
            packets: 0,
            bytes: 0,
            spent: Duration::ZERO,
            discarded: 0,
            ended: StopReason::No,
        }
    }

    /// The next train to send; `None` when it is enough.
    pub(super) fn next(&mut self) -> Option<Load> {
        let (packets, ip_bytes, is_paced) = match self.stage {
            Stage::Length(at) => (RATE_TRAINS[0], LENGTHS[at], false),
            Stage::Rate(at) => (RATE_TRAINS[at], self.ip_bytes(), false),
            Stage::LongRate(at) => (LONG_RATE_TRAINS[at], self.ip_bytes(), false),
            Stage::Queue(packets) | Stage::Refine(packets, _) => (packets, self.ip_bytes(), true),
            Stage::Over => return None,
        };
        let bytes = u64::from(packets) * u64::from(ip_bytes);
        let over = if self.bytes + bytes > self.budget || self.spent > TRAINS_WITHIN {
            Some(StopReason::Budget)
        } else if self.rate().is_some_and(|rate| time(bytes, &rate) > BUSY_AT_MOST.as_secs_f64()) {
            Some(StopReason::Busy)
        } else {
            None
        };
        if let Some(why) = over {
            // The first reason counts.
            self.ended = if self.ended == StopReason::No { why } else { self.ended };
            self.stage = Stage::Over;
            return None;
        }
        let every = self
            .rate()
            .filter(|_| is_paced)
            .map_or(0.0, |rate| time(ip_bytes.into(), &rate) / FILLED_AT);
        Some(Load::train(ip_bytes, packets, Duration::from_secs_f64(every)))
    }

    /// Adds what was observed of the train.
    pub(super) fn add(&mut self, train: Observed) {
        self.packets += train.sent.len() as u64;
        self.bytes += train.sent.len() as u64 * u64::from(train.ip_bytes);
        let last = train.replies.iter().map(|reply| reply.at).max();
        let ends = last.max(train.sent.last().copied()).zip(train.sent.first());
        self.spent += ends.map_or(Duration::ZERO, |(last, first)| last.saturating_sub(*first));
        // A reply for which this machine had no room says nothing about the path.
        self.discarded += u64::from(train.overflowed > 0);
        if !train.replies.is_empty() && train.overflowed == 0 {
            self.dispersions.extend(Dispersion::of(&train, &self.conditions));
            self.seen.push(train);
        }
        self.stage = match self.stage {
            Stage::Length(at) if self.seen.is_empty() => match at + 1 < LENGTHS.len() {
                true => Stage::Length(at + 1),
                false => self.end(StopReason::Unanswered),
            },
            Stage::Length(_) => Stage::Rate(1),
            Stage::Rate(at) if at + 1 < RATE_TRAINS.len() => Stage::Rate(at + 1),
            Stage::Rate(_) if self.rate().is_some() => Stage::Queue(FIRST_FILLING),
            // Longer trains show more only where variation hides the rate.
            Stage::Rate(_) if self.conditions.varies > 0.0 => Stage::LongRate(0),
            Stage::LongRate(_) if self.rate().is_some() => Stage::Queue(FIRST_FILLING),
            Stage::LongRate(at) if at + 1 < LONG_RATE_TRAINS.len() => Stage::LongRate(at + 1),
            Stage::Queue(packets) => self.after_filling(packets),
            Stage::Refine(packets, left) => self.refine(packets, left.saturating_sub(1)),
            _ => self.end(StopReason::Complete),
        };
    }

    fn end(&mut self, why: StopReason) -> Stage {
        self.ended = why;
        Stage::Over
    }

    /// The same train again if this one lost its tail, else a longer one.
    fn after_filling(&mut self, packets: u32) -> Stage {
        let group = self.group(packets);
        if group.are_confirmed() {
            self.ended = StopReason::Complete;
            return self.refine(packets, MORE_TRAINS);
        }
        if !group.tails.is_empty() && group.trains < TRIES {
            return Stage::Queue(packets);
        }
        let one = u64::from(self.ip_bytes());
        // Two of them, as the tail has to be lost twice.
        let affordable = self.budget.saturating_sub(self.bytes) / one / 2;
        let rate = self.rate();
        let most = BUSY_AT_MOST.as_secs_f64() / rate.map_or(f64::MAX, |rate| time(one, &rate));
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        #[expect(clippy::cast_sign_loss, reason = "not negative")]
        let bearable = if rate.is_some() { most as u64 } else { u64::MAX };
        let longer = u64::from(packets * 2).min(affordable).min(bearable).min(LONGEST.into());
        if longer as f64 >= f64::from(packets) * WORTH_IT {
            return Stage::Queue(u32::try_from(longer).unwrap_or(LONGEST));
        }
        self.ended = if bearable < affordable { StopReason::Busy } else { StopReason::Budget };
        self.refine(packets, MORE_TRAINS)
    }

    fn refine(&mut self, packets: u32, left: u32) -> Stage {
        let is_exact = self.rate().is_none_or(|rate| rate.error <= EXACT);
        if is_exact || left == 0 { Stage::Over } else { Stage::Refine(packets, left) }
    }

    /// The length of the packets that are answered.
    pub(super) fn ip_bytes(&self) -> u32 {
        self.seen.first().map_or(LENGTHS[0], |train| train.ip_bytes)
    }

    /// The rate as known so far; `None` where the path does not spread trains.
    pub(super) fn rate(&self) -> Option<Rate> {
        // A single resolved train among others that are not met other traffic.
        let unpaced = &self.dispersions[..self.dispersions.len().min(RATE_TRAINS.len())];
        let resolved = unpaced.iter().filter(|one| one.is_resolved()).count();
        let is_spread = resolved * 2 >= unpaced.len();
        // Where the delay varies, short trains are never resolved.
        let by_length =
            self.conditions.varies > 0.0 && self.dispersions.iter().any(Dispersion::is_resolved);
        if is_spread || by_length { dispersion::rate(&self.dispersions) } else { None }
    }

    /// A lower bound of the rate, where the path does not spread trains: the highest rate that one of
    /// them could have shown.
    pub(super) fn rate_above(&self) -> Option<f64> {
        let unspread = self.dispersions.iter().filter(|one| !one.is_resolved());
        unspread.map(|one| one.limit_bits_per_s).max_by(f64::total_cmp)
    }

    fn tail(&self, train: &Observed) -> Option<Tail> {
        dispersion::tail(train, &self.rate()?, &self.conditions)
    }

    fn group(&self, packets: u32) -> Group {
        let trains = self.seen.iter().filter(|train| train.sent.len() == packets as usize);
        let tails: Vec<Option<Tail>> = trains.map(|train| self.tail(train)).collect();
        Group { trains: tails.len(), tails: tails.into_iter().flatten().collect() }
    }

    /// The dropped tails of the trains of one length: the longest for which they are confirmed. Where
    /// losses are independent, so that no tail is long by chance, one of the longest trains of all is
    /// enough.
    pub(super) fn tails(&self) -> Vec<Tail> {
        let lengths = self.seen.iter().map(|train| u32::try_from(train.sent.len()).unwrap_or(0));
        let mut lengths: Vec<u32> = lengths.collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut groups = lengths.iter().rev().map(|packets| self.group(*packets));
        let confirmed = groups.clone().find(Group::are_confirmed);
        let alone = groups.next().filter(|_| self.conditions.burst <= 1.0);
        confirmed.or(alone).map_or_else(Vec::new, |group| group.tails)
    }

    /// How fast this machine sent the longest train, as a multiple of the rate.
    pub(super) fn sent_at(&self, rate: &Rate) -> f64 {
        let longest = self.seen.iter().max_by_key(|train| train.sent.len());
        let longest = longest.and_then(|train| {
            let lasting = train.sent.last()?.saturating_sub(*train.sent.first()?).as_secs_f64();
            let bytes = (train.sent.len() as u64 - 1) * u64::from(train.ip_bytes);
            (lasting > 0.0).then(|| time(bytes, rate) / lasting)
        });
        longest.unwrap_or(f64::INFINITY)
    }

    /// How long a packet waited at most in a train that came back whole at its end, in seconds.
    pub(super) fn longest_wait(&self) -> f64 {
        let whole = self.seen.iter().filter(|train| self.tail(train).is_none());
        let waits = whole.filter_map(|train| {
            let trips = train.round_trips();
            // Several of them, so that a single late one does not count.
            let last: Vec<f64> = trips.iter().rev().flatten().take(5).copied().collect();
            Some(median(last)? - self.rate()?.base)
        });
        waits.fold(0.0, f64::max)
    }

    /// Replies that arrived after one to a later request, and all replies.
    pub(super) fn overtaken(&self) -> (u64, u64) {
        let behind = self.seen.iter().map(Observed::overtaken).sum();
        (
            behind,
            self.seen
                .iter()
                .map(|train| train.first_replies().iter().flatten().count() as u64)
                .sum(),
        )
    }

    /// Whether replies are shorter than their requests.
    pub(super) fn replies_are_shorter(&self) -> bool {
        let replies = self
            .seen
            .iter()
            .flat_map(|train| train.replies.iter().map(|reply| reply.ip_bytes < train.ip_bytes));
        let (mut cut, mut all) = (0_u64, 0_u64);
        for is_cut in replies {
            (cut, all) = (cut + u64::from(is_cut), all + 1);
        }
        cut * 2 > all
    }
}

/// Trains of the same length.
#[derive(Clone, Debug)]
struct Group {
    trains: usize,
    tails: Vec<Tail>,
}

impl Group {
    /// Whether they agree on how many packets fit.
    fn are_confirmed(&self) -> bool {
        let fitted = || self.tails.iter().map(|tail| f64::from(tail.fitted.max(1)));
        let (least, most) = (fitted().fold(f64::INFINITY, f64::min), fitted().fold(0.0, f64::max));
        let enough = self.tails.len() >= TAILS && self.tails.len() * 2 > self.trains;
        enough && most <= least * ALIKE
    }
}

/// The transmission time of these bytes at the rate, in seconds.
fn time(bytes: u64, rate: &Rate) -> f64 {
    bytes as f64 * 8.0 / rate.bits_per_s
}
