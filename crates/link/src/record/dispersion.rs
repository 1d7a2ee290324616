//! How far apart the replies to a train come, and where its tail was dropped: arithmetic alone.

use super::seen::Seen;

/// The part of a train at its beginning that is left out: where jitter keeps the order, the first
/// packets are less late than the others.
const UNSTEADY: f64 = 0.25;
/// With fewer replies a train has no slope worth the name.
const LEAST_REPLIES: usize = 6;
/// A train that comes back at more than this part of the rate at which it was sent was not spread by
/// the path.
const SPREAD: f64 = 0.8;
/// A train has to take this many times as long as the round trip varies (standard deviation): else
/// what is seen is the variation.
const LONGER_THAN_JITTER: f64 = 6.0;
/// No slope is trusted further than this: a clock, a thread.
const LEAST_ERROR: f64 = 0.002;
/// A train whose rate is this many times its error away from the median met something else.
const FAR_OFF: f64 = 3.0;
/// A tail has at least so many packets.
const LEAST_TAIL: usize = 6;
/// And loses at least this share: trains are sent at a multiple of the rate, so that most of what
/// comes after the queue is full is dropped.
const TAIL_LOSS: f64 = 0.5;
/// A tail as lossy as this by chance, or a burst of losses as long, is this rare.
const TAIL_CHANCE: f64 = 0.001;
const BURST_CHANCE: f64 = 0.01;
/// A full queue takes as many packets as leave it; where less than this part of them came, something
/// else dropped the tail. With fewer than so many to be expected that cannot be told.
const TAKEN: f64 = 0.5;
const LEAST_TAKEN: f64 = 3.0;
/// The part of the wait behind the packets before it that a queue has to have made.
const WAITED: f64 = 0.5;

/// What is known of the path besides trains.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Surroundings {
    /// How much the round trip varies: its standard deviation in seconds; 0 for not at all.
    pub(super) varies: f64,
    /// The middle of the round trips of small probes, in seconds.
    pub(super) centre: f64,
    /// The most that the share of lost round trips may be.
    pub(super) loss: f64,
    /// The mean length of a burst of losses; 1 where they are independent.
    pub(super) burst: f64,
}

/// How a train came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dispersion {
    pub(super) bits_per_s: f64,
    /// How far off it may be, as a share of it.
    pub(super) error: f64,
    /// The rate that the train was sent at.
    pub(super) sent_bits_per_s: f64,
    /// The highest rate that could have been seen with this train.
    pub(super) limit_bits_per_s: f64,
}

impl Dispersion {
    /// Of a train; `None` with too few replies, or where it took no time.
    pub(super) fn of(train: &Seen, around: &Surroundings) -> Option<Self> {
        let first = train.first_replies();
        let came = first.iter().flatten();
        let came: Vec<(f64, f64)> =
            came.map(|reply| (f64::from(reply.number), reply.at.as_secs_f64())).collect();
        let sent = train.sent.iter().enumerate();
        let sent: Vec<(f64, f64)> =
            sent.map(|(at, sent)| (at as f64, sent.as_secs_f64())).collect();
        let line = best_line(&came)?;
        let bits = f64::from(train.ip_bytes) * 8.0;
        let sent_bits_per_s = Line::through(&sent).map_or(f64::INFINITY, |line| bits / line.slope);
        let packets = train.sent.len() as f64;
        let lasts = line.slope * packets;
        let hidden = LONGER_THAN_JITTER * around.varies;
        let hidden_above = if hidden > 0.0 { bits * packets / hidden } else { f64::INFINITY };
        // The standard error of a slope of evenly spaced points, twelve being one over the variance of
        // a uniform number.
        let off = line.residual.max(around.varies) * (12.0 / came.len() as f64).sqrt();
        Some(Self {
            bits_per_s: bits / line.slope,
            error: (off / (lasts * (1.0 - UNSTEADY))).hypot(LEAST_ERROR),
            sent_bits_per_s,
            limit_bits_per_s: (sent_bits_per_s * SPREAD).min(hidden_above),
        })
    }

    /// Whether the path, and nothing else, set the packets apart.
    pub(super) fn is_resolved(&self) -> bool {
        self.bits_per_s < self.limit_bits_per_s
    }
}

/// Whether losses leave a gap depends on where they happened: before the rate they leave none, after
/// it they do. The line that fits better tells.
fn best_line(came: &[(f64, f64)]) -> Option<Line> {
    if came.len() < LEAST_REPLIES {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let steady = &came[(came.len() as f64 * UNSTEADY) as usize..];
    let by_number = Line::through(steady)?;
    let ranked: Vec<_> =
        steady.iter().enumerate().map(|(at, (_, time))| (at as f64, *time)).collect();
    let by_rank = Line::through(&ranked)?;
    let best = if by_rank.residual < by_number.residual { by_rank } else { by_number };
    (best.slope > 0.0).then_some(best)
}

/// A line by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    slope: f64,
    /// The standard deviation around it.
    residual: f64,
}

impl Line {
    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>()
        };
        let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
        let slope = xy / xx;
        let residual = (sum(&|x, y| (y - slope * x).powi(2)) / n).sqrt();
        (xx > 0.0 && slope.is_finite()).then_some(Self { slope, residual })
    }
}

/// A rate from several trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) bits_per_s: f64,
    /// The least and the most among the trains that count most.
    pub(super) low: f64,
    pub(super) high: f64,
    /// How many trains those are.
    pub(super) trains: usize,
    /// How far off it may be, as a share of it.
    pub(super) error: f64,
}

/// From those that are resolved: the mean of those near the median, each counted by how exactly it is
/// known, so that a long train counts more where the delay varies, and one that met other traffic not
/// at all.
pub(super) fn rate(trains: &[Dispersion]) -> Option<Rate> {
    let mut resolved: Vec<Dispersion> =
        trains.iter().copied().filter(Dispersion::is_resolved).collect();
    resolved.sort_by(|a, b| a.bits_per_s.total_cmp(&b.bits_per_s));
    let weight = |one: &Dispersion| 1.0 / (one.error * one.error);
    let all: f64 = resolved.iter().map(weight).sum();
    let mut passed = 0.0;
    let median = resolved.iter().find(|one| {
        passed += weight(one);
        passed >= all / 2.0
    })?;
    let median = median.bits_per_s;
    resolved.retain(|one| (one.bits_per_s / median - 1.0).abs() <= FAR_OFF * one.error);
    let (mut sum, mut weights) = (0.0, 0.0);
    for one in &resolved {
        (sum, weights) = (sum + one.bits_per_s * weight(one), weights + weight(one));
    }
    let best = resolved.iter().map(weight).fold(0.0, f64::max);
    resolved.retain(|one| weight(one) >= best / 4.0);
    let (low, high) = (resolved.first()?.bits_per_s, resolved.last()?.bits_per_s);
    let (bits_per_s, error) = (sum / weights, 1.0 / weights.sqrt());
    Some(Rate { bits_per_s, low, high, trains: resolved.len(), error })
}

/// The end of a train that was dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tail {
    /// How long those that just fitted waited in the queue, in seconds.
    pub(super) waited: f64,
    /// Whether they waited as behind a queue; otherwise something else dropped the tail, such as a
    /// policer or a host's limit on echo requests.
    pub(super) is_queue: bool,
    /// Packets of the train before the first that was dropped.
    pub(super) fitted: u32,
}

/// The tail of a train that was dropped, if one was. `base` is the round trip of a full packet that
/// finds the queue empty.
pub(super) fn tail(train: &Seen, rate: f64, base: f64, around: &Surroundings) -> Option<Tail> {
    let start = tail_start(&train.lost(), around)?;
    let trips = train.round_trips();
    // From the last that fitted before the first drop on, all that came found the queue full.
    let from = trips[..start].iter().rposition(Option::is_some).unwrap_or(start);
    let waits: Vec<f64> = trips[from..].iter().flatten().map(|trip| trip - base).collect();
    let waited = median(waits)?;
    let seconds = |from: usize, to: usize| {
        let both = train.sent.get(to).zip(train.sent.get(from));
        both.map_or(0.0, |(to, from)| to.saturating_sub(*from).as_secs_f64())
    };
    let one = f64::from(train.ip_bytes) * 8.0 / rate;
    let wait = start as f64 * one - seconds(0, start);
    let leaves = seconds(start, train.sent.len() - 1) / one;
    let taken = trips[start..].iter().flatten().count() as f64;
    let is_taken = leaves < LEAST_TAKEN || taken >= leaves * TAKEN;
    let is_queue = waited > 0.0 && waited >= wait * WAITED && is_taken;
    Some(Tail { waited, is_queue, fitted: u32::try_from(start).unwrap_or(u32::MAX) })
}

/// Where the tail begins that was dropped: the place that divides losses best into few and many.
fn tail_start(lost: &[bool], around: &Surroundings) -> Option<usize> {
    let least = if around.burst > 1.0 {
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        #[expect(clippy::cast_sign_loss, reason = "saturates")]
        let burst = (BURST_CHANCE.ln() / (1.0 - 1.0 / around.burst).ln()).ceil() as usize + 1;
        burst.max(LEAST_TAIL)
    } else {
        LEAST_TAIL
    };
    let usual = around.loss.clamp(0.005, 0.5);
    let mut drops = 0_u64;
    let mut best: Option<(f64, usize, u64)> = None;
    for (start, lost_here) in lost.iter().enumerate().rev() {
        drops += u64::from(*lost_here);
        let packets = lost.len() - start;
        let share = drops as f64 / packets as f64;
        if !lost_here || packets < least || share < TAIL_LOSS {
            continue;
        }
        let kept = (packets as u64 - drops) as f64;
        let likely = drops as f64 * (share / usual).ln()
            + if kept > 0.0 { kept * ((1.0 - share) / (1.0 - usual)).ln() } else { 0.0 };
        if best.is_none_or(|(most, ..)| likely > most) {
            best = Some((likely, start, drops));
        }
    }
    let (_, start, drops) = best?;
    let packets = (lost.len() - start) as u64;
    (at_least(drops, packets, usual) < TAIL_CHANCE).then_some(start)
}

/// The chance of at least `hits` of `trials` that each hit with `chance`: the tail of the binomial
/// distribution.
pub(super) fn at_least(hits: u64, trials: u64, chance: f64) -> f64 {
    if hits == 0 || chance >= 1.0 {
        return 1.0;
    }
    if hits > trials || chance <= 0.0 {
        return 0.0;
    }
    let ways = |of: u64| -> f64 {
        (1..=of).map(|i| ((trials - of + i) as f64).ln() - (i as f64).ln()).sum()
    };
    let mut term =
        (ways(hits) + hits as f64 * chance.ln() + (trials - hits) as f64 * (-chance).ln_1p()).exp();
    let mut sum = term;
    for hit in hits..trials {
        term *= (trials - hit) as f64 / (hit + 1) as f64 * chance / (1.0 - chance);
        sum += term;
    }
    sum.min(1.0)
}

/// The middle of a list; `None` of an empty one.
pub(super) fn median(mut list: Vec<f64>) -> Option<f64> {
    list.sort_by(f64::total_cmp);
    let (low, high) = (list.get(list.len().checked_sub(1)? / 2)?, list.get(list.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}
