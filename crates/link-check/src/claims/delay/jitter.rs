//! A delay that varies: its quantiles, and its distance from the distribution asked.
//!
//! The load is that of `delay`, but so far apart that no packet waits for the one before it, and longer.

use std::time::Duration;

use lastbyte_link::{Jitter, Shape};
use lastbyte_units::Unit;

use super::{DELAY_PROBES, DELAY_TOLERANCE, too_few};
use crate::asked::Asked;
use crate::finding::{Measured, Outcome, Subject};
use crate::probe::{Load, SMALL_PACKET};
use crate::statistics::{at_share, farthest_99, median, normal_below, quantile_99};

/// How many packets at most, how far apart at least, and about how long: each has to arrive before the
/// next.
const JITTER_PROBES: u32 = 1000;
pub(super) const JITTER_EVERY: Duration = Duration::from_millis(2);
const JITTER_FOR: Duration = Duration::from_secs(8);
/// Points of a distribution from which the one of a sum is computed.
const POINTS: u32 = 200;

/// Small packets that do not wait for each other.
pub(super) fn load(asked: &Asked, jitter: &Jitter, every: Duration) -> Load {
    let apart = if jitter.reorders { Duration::ZERO } else { asked.spread() };
    let every = every.max(apart);
    let fit = JITTER_FOR.div_duration_f64(every);
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    #[expect(clippy::cast_sign_loss, reason = "clamped")]
    let packets = fit.clamp(DELAY_PROBES.into(), JITTER_PROBES.into()) as u32;
    let within = JITTER_FOR * 2;
    Load { packets, within, high_priority: true, ..Load::paced(SMALL_PACKET, every) }
}

/// The distribution of a delay, as asked: cut off at 0.
#[derive(Clone, Debug)]
pub(crate) struct Distribution<'a> {
    delay: Duration,
    jitter: Option<&'a Jitter>,
}

impl<'a> Distribution<'a> {
    /// That of a direction.
    pub(crate) fn of(asked: &'a Asked) -> Self {
        Self { delay: asked.delay, jitter: asked.jitter.as_ref() }
    }

    /// Whether each packet takes as long as any other.
    pub(crate) fn is_fixed(&self) -> bool {
        self.jitter.is_none()
    }

    /// The share of packets that take at most this many seconds.
    pub(crate) fn below(&self, seconds: f64) -> f64 {
        if seconds < 0.0 {
            return 0.0;
        }
        let more = seconds - self.delay.as_secs_f64();
        match self.jitter.map(|jitter| &jitter.shape) {
            None => f64::from(more >= 0.0),
            Some(Shape::Uniform(half)) => linear(-half.as_secs_f64(), half.as_secs_f64(), more),
            Some(Shape::Normal(deviation)) if deviation.is_zero() => f64::from(more >= 0.0),
            Some(Shape::Normal(deviation)) => normal_below(more / deviation.as_secs_f64()),
            Some(Shape::Table(table)) => {
                let parts = table.len().saturating_sub(1).max(1) as f64;
                let ends =
                    table.windows(2).map(|ends| [ends[0].as_secs_f64(), ends[1].as_secs_f64()]);
                ends.map(|[low, high]| linear(low, high, more)).sum::<f64>() / parts
            }
        }
    }

    /// The time in seconds within which a share of the packets arrives: by bisection, because there is
    /// no closed formula for a normal distribution.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        while self.below(high) < share && high < 1e6 {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.below(middle) < share { low = middle } else { high = middle }
        }
        high
    }
}

/// The share below `at` of a uniform distribution from `low` to `high`.
fn linear(low: f64, high: f64, at: f64) -> f64 {
    if high > low { ((at - low) / (high - low)).clamp(0.0, 1.0) } else { f64::from(at >= low) }
}

/// The delays of packets that do not wait for each other: quantiles, and the greatest distance from the
/// distribution asked. In seconds, without the probe's own lateness.
pub(super) fn judge(asked: &Distribution<'_>, mut took: Vec<f64>) -> Vec<(Subject, Outcome)> {
    let subjects = [(Subject::DelayLow, 0.05), (Subject::Delay, 0.5), (Subject::DelayHigh, 0.95)];
    if let Some(few) = too_few(&took) {
        return subjects.map(|(subject, _)| (subject, few.clone())).into();
    }
    took.sort_by(f64::total_cmp);
    let quantile = |(subject, share)| (subject, quantile_of(asked.quantile(share), &took, share));
    let mut list: Vec<_> = subjects.map(quantile).into();
    list.push((Subject::Jitter, distance(asked, &took)));
    list
}

/// The median of the sum of two delays, at least one of which varies.
pub(super) fn round_trip(both: [&Distribution<'_>; 2], mut took: Vec<f64>) -> Outcome {
    if let Some(few) = too_few(&took) {
        return few;
    }
    took.sort_by(f64::total_cmp);
    let points = both.map(|one| {
        let share = |point| (f64::from(point) + 0.5) / f64::from(POINTS);
        (0..POINTS).map(|point| one.quantile(share(point))).collect::<Vec<_>>()
    });
    let sums = points[0].iter().flat_map(|up| points[1].iter().map(move |down| up + down));
    quantile_of(median(sums.collect()), &took, 0.5)
}

fn quantile_of(asked: f64, sorted: &[f64], share: f64) -> Outcome {
    let got = at_share(sorted, share);
    let (low, high) = quantile_99(sorted, share);
    let timer = DELAY_TOLERANCE.as_secs_f64();
    let (many, percent) = (sorted.len(), share * 100.0);
    let basis = format!(
        "the {percent:.0} % quantile of {many}; 99 % interval {:.2} to {:.2} ms",
        low.max(0.0) * 1e3,
        high * 1e3
    );
    let (low, high) = (low - timer, high + timer);
    Outcome::Measured(Measured { unit: Unit::Seconds, asked, got, low, high, basis })
}

/// The greatest distance of a sorted, non-empty list from a distribution (Kolmogorov 1933), each sample
/// being allowed to be off by the tolerance of a delay.
fn distance(asked: &Distribution<'_>, sorted: &[f64]) -> Outcome {
    let (many, timer) = (sorted.len() as f64, DELAY_TOLERANCE.as_secs_f64());
    let distances = sorted.iter().enumerate().map(|(place, took)| {
        let place = place as f64;
        let more = (place + 1.0) / many - asked.below(took + timer);
        let less = asked.below(took - timer) - place / many;
        more.max(less)
    });
    let got = distances.fold(0.0, f64::max);
    let basis =
        format!("the greatest distance of {} delays from the distribution asked", sorted.len());
    Outcome::at_most(Unit::Share, farthest_99(sorted.len()), got, basis)
}

/// The probability that a packet takes longer than the next one by more than this many seconds.
pub(crate) fn chance_to_overtake(asked: &Distribution<'_>, seconds: f64) -> f64 {
    let share = |point| (f64::from(point) + 0.5) / f64::from(POINTS);
    let chance = |point| asked.below(asked.quantile(share(point)) - seconds);
    (0..POINTS).map(chance).sum::<f64>() / f64::from(POINTS)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super as delay;
    use super::*;
    use crate::asked::tests::asked;
    use crate::finding::tests::{is_inside, is_not_measured};
    use crate::probe::tests::MS;

    pub(crate) fn jitter(shape: Shape) -> Jitter {
        Jitter { shape, reorders: false }
    }

    pub(crate) fn distribution(delay: Duration, jitter: &Jitter) -> Distribution<'_> {
        Distribution { delay, jitter: Some(jitter) }
    }

    /// Delays at equal steps of the distribution, each changed.
    fn drawn(asked: &Distribution<'_>, many: u32, change: impl Fn(f64) -> f64) -> Vec<f64> {
        let share = |number| (f64::from(number) + 0.5) / f64::from(many);
        (0..many).map(|number| change(asked.quantile(share(number)))).collect()
    }

    #[test]
    fn probes_of_a_varying_delay_do_not_wait_for_each_other() {
        let load = |toml: &str| delay::load(&asked(toml), MS * 2);
        assert_eq!(load("rtt = '50ms'\njitter = '2ms'").every, Duration::from_millis(4));
        let normal = load("rtt = '50ms'\njitter = '8ms'\njitter_shape = 'normal'");
        assert_eq!((normal.every, normal.packets), (Duration::from_millis(40), 200));
        let reordered = load("rtt = '50ms'\njitter = '20ms'\nreorder = true");
        assert_eq!((reordered.every, reordered.packets), (Duration::from_millis(2), 1000));
        assert_eq!(load("rtt = '50ms'").every, delay::DELAY_EVERY);
    }

    #[test]
    fn distributions_have_their_quantiles() {
        let at = |shape: Shape, delay, share| {
            Distribution { delay, jitter: Some(&jitter(shape)) }.quantile(share)
        };
        assert!((at(Shape::Uniform(4 * MS), 10 * MS, 0.25) - 0.008).abs() < 1e-9);
        assert!((at(Shape::Normal(8 * MS), 25 * MS, 0.95) - 0.038_159).abs() < 1e-5);
        let table = Shape::Table([MS, 3 * MS, 11 * MS].into());
        assert!((at(table.clone(), 10 * MS, 0.25) - 0.012).abs() < 1e-9);
        assert!((at(table, 10 * MS, 0.75) - 0.017).abs() < 1e-9);
        assert!(at(Shape::Normal(8 * MS), MS, 0.05) < 1e-9, "cut off at 0");
        let fixed = Distribution { delay: 10 * MS, jitter: None };
        assert!((fixed.quantile(0.5) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn what_varies_as_asked_is_inside_and_more_or_less_is_not() {
        let normal = jitter(Shape::Normal(8 * MS));
        let asked = Distribution { delay: 25 * MS, jitter: Some(&normal) };
        let judged = |change: &dyn Fn(f64) -> f64| judge(&asked, drawn(&asked, 400, change));
        assert!(judged(&|took| took).iter().all(|(_, outcome)| is_inside(outcome)));
        let verdicts = |list: Vec<(Subject, Outcome)>| -> Vec<bool> {
            list.iter().map(|(_, outcome)| is_inside(outcome)).collect()
        };
        let wider = verdicts(judged(&|took| 0.025 + (took - 0.025) * 1.6));
        assert_eq!(wider, [false, true, false, false]);
        let later = verdicts(judged(&|took| took + 0.004));
        assert_eq!(later, [false, false, false, false]);
        let all_alike = verdicts(judged(&|_| 0.025));
        assert_eq!(all_alike, [false, true, false, false]);
        assert!(judge(&asked, vec![0.025; 19]).iter().all(|(_, one)| is_not_measured(one)));
    }

    #[test]
    fn the_distance_allowed_is_that_of_chance_and_of_the_timer() {
        let uniform = jitter(Shape::Uniform(10 * MS));
        let asked = Distribution { delay: 50 * MS, jitter: Some(&uniform) };
        // Of 1000 the bound is 5.1 %, which is 1.03 ms of 20 ms; 0.3 ms more are the timer's.
        let judged = |off| distance(&asked, &drawn(&asked, 1000, |took| took + off));
        assert!(is_inside(&judged(0.001_3)) && is_inside(&judged(-0.001_3)));
        assert!(!is_inside(&judged(0.001_4)) && !is_inside(&judged(-0.001_4)));
    }

    #[test]
    fn a_sum_has_its_own_median() {
        let (wide, none) = (jitter(Shape::Normal(20 * MS)), None);
        let cut = Distribution { delay: Duration::ZERO, jitter: Some(&wide) };
        let fixed = Distribution { delay: 10 * MS, jitter: none };
        // Half of a normal one is cut off: its median is 0.
        let took = drawn(&cut, 400, |took| took + 0.01);
        let Outcome::Measured(sum) = round_trip([&cut, &fixed], took) else { panic!("measured") };
        assert!((sum.asked - 0.01).abs() < 0.000_3 && sum.is_inside(), "{sum:?}");
    }
}
