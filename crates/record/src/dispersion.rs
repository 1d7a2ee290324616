//! The spacing of the replies to a packet train, and where its tail was dropped: pure arithmetic.

use super::conditions::Conditions;
use super::observed::{Observed, Reply};
use super::statistics::{at_least, median};

/// The part of a train at its beginning that is left out: where jitter keeps the order, the first
/// packets are less late than the others.
const UNSTEADY: f64 = 0.25;
/// With fewer replies a train has no usable slope.
const LEAST_REPLIES: usize = 6;
/// A train that comes back at more than this part of the rate at which it was sent was not spread by
/// the path.
const SPREAD: f64 = 0.8;
/// A line through ranks has to fit better by this factor than one through numbers.
const CLEARLY: f64 = 0.5;
/// A train has to last this many standard deviations of the round trip: else its spacing shows the
/// variation.
const LONGER_THAN_JITTER: f64 = 6.0;
/// The least error of a slope, as a share of it: of clocks and threads.
const LEAST_ERROR: f64 = 0.002;
/// A train whose rate is this many times its error away from the median met other traffic.
const FAR_OFF: f64 = 3.0;
/// The fewest packets of a tail.
const LEAST_TAIL: usize = 6;
/// And at least this share of it is lost: trains are sent at a multiple of the rate, so that most
/// packets are dropped once the queue is full.
const TAIL_LOSS: f64 = 0.5;
/// The probabilities below which a tail is not lost by chance, and a burst of losses is not as long.
const TAIL_CHANCE: f64 = 0.001;
const BURST_CHANCE: f64 = 0.01;
/// A full queue takes as many packets as leave it; where less than this part of them arrived, something
/// else dropped the tail. With fewer expected packets than this it cannot be decided.
const TAKEN: f64 = 0.5;
const LEAST_TAKEN: f64 = 3.0;
/// The least wait in a queue, as a part of the transmission time of the packets before it.
const WAITED: f64 = 0.5;

/// The dispersion of a train: the spacing of its replies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dispersion {
    pub(super) bits_per_s: f64,
    /// How far off it may be, as a share of it.
    pub(super) error: f64,
    /// The round trip of its first packet, which found the queue empty, in seconds: extrapolated from
    /// the others, so that where jitter keeps the order it is as late as they are.
    pub(super) base: f64,
    /// The rate that the train was sent at.
    pub(super) sent_bits_per_s: f64,
    /// The highest rate that this train could have shown.
    pub(super) limit_bits_per_s: f64,
}

impl Dispersion {
    /// Of a train; `None` with too few replies, or where it took no time.
    pub(super) fn of(train: &Observed, conditions: &Conditions) -> Option<Self> {
        let sent = train.sent.iter().enumerate();
        let sent: Vec<(f64, f64)> =
            sent.map(|(at, sent)| (at as f64, sent.as_secs_f64())).collect();
        let (line, packets) = departures(train, conditions)?;
        let bits = f64::from(train.ip_bytes) * 8.0;
        let sent_bits_per_s = Line::through(&sent).map_or(f64::INFINITY, |line| bits / line.slope);
        let hidden = LONGER_THAN_JITTER * conditions.varies / sent.len() as f64;
        let hidden_above = if hidden > 0.0 { bits / hidden } else { f64::INFINITY };
        // The standard error of a slope of evenly spaced points, twelve being one over the variance of
        // a uniform number.
        let off = line.residual.max(conditions.varies) * (12.0 / packets).sqrt();
        Some(Self {
            bits_per_s: bits / line.slope,
            error: (off / (line.slope * packets)).hypot(LEAST_ERROR),
            base: line.start - sent.first()?.1,
            sent_bits_per_s,
            limit_bits_per_s: (sent_bits_per_s * SPREAD).min(hidden_above),
        })
    }

    /// Whether the path, and nothing else, spread the packets.
    pub(super) fn is_resolved(&self) -> bool {
        self.bits_per_s < self.limit_bits_per_s
    }
}

/// The line through the times at which packets of a train left the slowest link, by number, and how many
/// packets it rests on.
///
/// Losses after that link leave gaps; losses before it leave none, and then a line through ranks
/// instead of numbers fits clearly better. Dropped tails are left out, as long as enough packets
/// remain.
fn departures(train: &Observed, conditions: &Conditions) -> Option<(Line, f64)> {
    let replies = train.first_replies();
    let points = |replies: &[Option<Reply>]| -> Vec<(f64, f64)> {
        let came = replies.iter().flatten();
        came.map(|reply| (f64::from(reply.number), reply.at.as_secs_f64())).collect()
    };
    let whole = tail_start(&train.lost(), conditions).unwrap_or(replies.len());
    let before = points(&replies[..whole]);
    let all = points(&replies);
    let is_enough = before.len() * 2 >= all.len();
    let came = if is_enough { before } else { all };
    if came.len() < LEAST_REPLIES {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let steady_from = (came.len() as f64 * UNSTEADY) as usize;
    let by_number = Line::through(&came[steady_from..])?;
    let ranked = came.iter().enumerate().map(|(at, (_, time))| (at as f64, *time));
    let by_rank = Line::through(&ranked.collect::<Vec<_>>()[steady_from..])?;
    let is_better = by_rank.residual < by_number.residual * CLEARLY;
    let best = if !is_enough || is_better { by_rank } else { by_number };
    (best.slope > 0.0).then_some((best, (came.len() - steady_from) as f64))
}

/// A line by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    /// Its value at 0.
    start: f64,
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
        let start = y - slope * x;
        (xx > 0.0 && slope.is_finite()).then_some(Self { start, slope, residual })
    }
}

/// A rate from several trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) bits_per_s: f64,
    /// The least and the greatest rate among the most exact trains.
    pub(super) low: f64,
    pub(super) high: f64,
    /// How many trains those are.
    pub(super) trains: usize,
    /// The round trip of a packet that finds the queue empty, in seconds.
    pub(super) base: f64,
    /// How far off it may be, as a share of it.
    pub(super) error: f64,
}

/// The weighted mean of the resolved trains near the median, by their exactness: a long train counts
/// more where the delay varies, and one that met other traffic does not count.
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
    let weights: f64 = resolved.iter().map(weight).sum();
    let mean = |of: fn(&Dispersion) -> f64| {
        resolved.iter().map(|one| of(one) * weight(one)).sum::<f64>() / weights
    };
    let (bits_per_s, base) = (mean(|one| one.bits_per_s), mean(|one| one.base));
    let best = resolved.iter().map(weight).fold(0.0, f64::max);
    resolved.retain(|one| weight(one) >= best / 4.0);
    let (low, high) = (resolved.first()?.bits_per_s, resolved.last()?.bits_per_s);
    let (low, high) = (low.min(bits_per_s), high.max(bits_per_s));
    let error = 1.0 / weights.sqrt();
    Some(Rate { bits_per_s, low, high, trains: resolved.len(), base, error })
}

/// The end of a train that was dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tail {
    /// How long the packets that just fitted waited in the queue, in seconds.
    pub(super) waited: f64,
    /// Whether they waited as in a queue; otherwise something else dropped the tail, such as a policer
    /// or a host's limit on echo requests.
    pub(super) is_queue: bool,
    /// Packets of the train before the first that was dropped.
    pub(super) fitted: u32,
}

/// The tail of a train that was dropped, if one was.
pub(super) fn tail(train: &Observed, rate: &Rate, conditions: &Conditions) -> Option<Tail> {
    let start = tail_start(&train.lost(), conditions)?;
    let trips = train.round_trips();
    // From the last packet before the first drop on, all that arrived found the queue full.
    let from = trips[..start].iter().rposition(Option::is_some).unwrap_or(start);
    let waits: Vec<f64> = trips[from..].iter().flatten().map(|trip| trip - rate.base).collect();
    let waited = median(waits)?;
    let seconds = |from: usize, to: usize| {
        let both = train.sent.get(to).zip(train.sent.get(from));
        both.map_or(0.0, |(to, from)| to.saturating_sub(*from).as_secs_f64())
    };
    let one = f64::from(train.ip_bytes) * 8.0 / rate.bits_per_s;
    let wait = start as f64 * one - seconds(0, start);
    let leaves = seconds(start, train.sent.len() - 1) / one;
    let taken = trips[start..].iter().flatten().count() as f64;
    let is_taken = leaves < LEAST_TAKEN || taken >= leaves * TAKEN;
    let is_queue = waited > 0.0 && waited >= wait * WAITED && is_taken;
    Some(Tail { waited, is_queue, fitted: u32::try_from(start).unwrap_or(u32::MAX) })
}

/// Where the dropped tail begins: the place that best divides the train into few and many losses.
fn tail_start(lost: &[bool], conditions: &Conditions) -> Option<usize> {
    let least = if conditions.burst > 1.0 {
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        #[expect(clippy::cast_sign_loss, reason = "saturates")]
        let burst = (BURST_CHANCE.ln() / (1.0 - 1.0 / conditions.burst).ln()).ceil() as usize + 1;
        burst.max(LEAST_TAIL)
    } else {
        LEAST_TAIL
    };
    let usual = conditions.loss.clamp(0.005, 0.5);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const US: Duration = Duration::from_micros(1);
    const QUIET: Conditions = Conditions { varies: 0.0, loss: 0.005, burst: 1.0 };

    /// A train of 1000-byte packets sent every so often, whose replies come 8 ms after the first was
    /// sent and then every so often; those for which `lost` says so never do.
    fn train(packets: u32, [sent, came]: [u32; 2], lost: impl Fn(u32) -> bool) -> Observed {
        let replies = (0..packets).filter(|number| !lost(*number)).map(|number| Reply {
            number,
            at: US * (8000 + number * came),
            ip_bytes: 1000,
        });
        Observed {
            ip_bytes: 1000,
            sent: (0..packets).map(|number| US * (number * sent)).collect(),
            replies: replies.collect(),
            ..Observed::default()
        }
    }

    fn of(train: &Observed) -> Option<Dispersion> {
        Dispersion::of(train, &QUIET)
    }

    #[test]
    fn the_time_between_replies_is_the_rate() {
        // 8000 bit in 1 ms.
        let found = of(&train(16, [10, 1000], |_| false)).unwrap();
        assert!((found.bits_per_s - 8e6).abs() < 1.0 && found.is_resolved(), "{found:?}");
        assert!((found.base - 8e-3).abs() < 1e-9 && found.error < 0.003, "{found:?}");
        // Lost after the slowest link they leave gaps; lost before, none.
        let found = of(&train(32, [10, 1000], |number| number % 7 == 3)).unwrap();
        assert!((found.bits_per_s - 8e6).abs() < 1e4, "{found:?}");
        let mut without_gaps = train(32, [10, 1000], |number| number % 7 == 3);
        for (place, reply) in without_gaps.replies.iter_mut().enumerate() {
            reply.at = US * 1000 * (8 + u32::try_from(place).unwrap());
        }
        let found = of(&without_gaps).unwrap();
        assert!((found.bits_per_s - 8e6).abs() < 1e4, "{found:?}");
    }

    #[test]
    fn what_the_path_did_not_spread_is_no_rate() {
        let is_resolved = |sent| of(&train(16, [sent, 100], |_| false)).unwrap().is_resolved();
        assert!(is_resolved(79) && !is_resolved(81));
        // 16 packets take 1.6 ms: six times the variation, or less.
        let resolved = |varies| {
            let conditions = Conditions { varies, ..QUIET };
            Dispersion::of(&train(16, [10, 100], |_| false), &conditions).unwrap().is_resolved()
        };
        assert!(resolved(0.000_26) && !resolved(0.000_27));
    }

    #[test]
    fn too_few_replies_or_all_at_once_are_nothing() {
        assert!(of(&train(16, [10, 1000], |number| number >= 6)).is_some());
        assert_eq!(of(&train(16, [10, 1000], |number| number >= 5)), None);
        assert_eq!(of(&train(16, [10, 0], |_| false)), None, "no time passed");
        assert_eq!(of(&Observed::default()), None);
        assert_eq!(rate(&[]), None);
    }

    #[test]
    fn a_train_that_met_other_traffic_does_not_count() {
        let mut trains = vec![of(&train(16, [10, 1000], |_| false)).unwrap(); 5];
        trains.push(of(&train(16, [10, 1300], |_| false)).unwrap());
        trains.push(of(&train(16, [10, 10], |_| false)).unwrap());
        let rate = rate(&trains).unwrap();
        assert!((rate.bits_per_s - 8e6).abs() < 1.0 && rate.trains == 5, "{rate:?}");
    }

    fn start_of(lost: &str, conditions: Conditions) -> Option<usize> {
        let lost: Vec<bool> = lost.chars().map(|c| c == 'x').collect();
        tail_start(&lost, &conditions)
    }

    #[test]
    fn a_tail_is_told_from_losses_here_and_there() {
        let start = |lost| start_of(lost, QUIET);
        assert_eq!(start("................xxxxxxxx"), Some(16));
        assert_eq!(start("................xxx.xxxx"), Some(16), "some find room");
        assert_eq!(start(".x......x.......xxx.xxxx"), Some(16));
        assert_eq!(start("..x.......x......x......"), None);
        assert_eq!(start("..................xxxxxx"), Some(18));
        assert_eq!(start("...................xxxxx"), None, "too short to be told");
        assert_eq!(start("xxxxxxxxxxxxxxxxxxxxxxxx"), Some(0));
        assert_eq!((start(""), start("........")), (None, None));
    }

    #[test]
    fn a_tail_no_longer_than_bursts_are_is_none() {
        let bursts = Conditions { varies: 0.0, loss: 0.05, burst: 5.0 };
        let lost = |packets: usize| [".".repeat(40), "x".repeat(packets)].concat();
        // ln 0.01 / ln 0.8 = 20.6.
        assert_eq!(start_of(&lost(22), bursts), Some(40));
        assert_eq!(start_of(&lost(21), bursts), None);
        let lossy = Conditions { varies: 0.0, loss: 0.45, burst: 1.0 };
        assert_eq!(start_of(&lost(8), lossy), None, "by chance in 0.2 % of cases");
        assert_eq!(start_of(&lost(9), lossy), Some(40));
    }

    #[test]
    fn a_full_queue_is_what_those_waited_for_that_just_fitted() {
        let eight =
            Rate { bits_per_s: 8e6, low: 8e6, high: 8e6, trains: 1, base: 8e-3, error: 0.01 };
        // At four times the rate: twenty fit, then one of four finds room as one leaves.
        let mut full = train(40, [250, 1000], |number| number >= 20 && number % 4 != 0);
        for reply in &mut full.replies {
            let sent = full.sent[reply.number as usize];
            let waited = US * 750 * reply.number.min(19);
            reply.at = sent + US * 8000 + waited;
        }
        let found = tail(&full, &eight, &QUIET).unwrap();
        assert!(found.is_queue && found.fitted == 21, "{found:?}");
        assert!((found.waited - 14.25e-3).abs() < 1e-6, "{found:?}");
        // Nobody came after the twentieth: something else dropped them.
        full.replies.retain(|reply| reply.number < 20);
        let found = tail(&full, &eight, &QUIET).unwrap();
        assert!(!found.is_queue && found.fitted == 20, "{found:?}");
    }
}
