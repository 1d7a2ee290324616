//! Delays, how they vary, and the order in which packets come.

use std::time::Duration;

use lastbyte_link::{Jitter, Shape};
use lastbyte_units::Unit;

use super::super::probe::Seen;
use super::super::{DELAY_TOLERANCE, LEAST_PROBES, Measured, Outcome, Subject};
use super::statistics::{at_share, farthest_99, normal_below, quantile_99};
use super::{at_least, at_most, measured};

/// Points of a distribution from which the one of a sum is computed.
const POINTS: u32 = 200;

/// A delay from the time that each probe took, in seconds, without the probe's own lateness.
pub(in super::super) fn delay(asked: Duration, mut took: Vec<f64>, late: f64) -> Outcome {
    if let Some(few) = too_few(&took) {
        return few;
    }
    took.sort_by(f64::total_cmp);
    let (median, p99) = (at_share(&took, 0.5), at_share(&took, 0.99));
    let (late, many, p99) = (late * 1e3, took.len(), p99 * 1e3);
    let basis = format!("median of {many}, p99 {p99:.2} ms; probe's own {late:.2} ms taken off");
    measured(Unit::Seconds, asked.as_secs_f64(), median, DELAY_TOLERANCE.as_secs_f64(), basis)
}

fn too_few(took: &[f64]) -> Option<Outcome> {
    let (got, least) = (took.len(), LEAST_PROBES);
    let why = || format!("only {got} packets came, fewer than {least}");
    (got < least).then(|| Outcome::NotMeasured(why()))
}

/// A delay that varies, as asked: a distribution, cut off at 0.
#[derive(Clone, Debug)]
pub(in super::super) struct Varying<'a> {
    pub(in super::super) delay: Duration,
    pub(in super::super) jitter: Option<&'a Jitter>,
}

impl Varying<'_> {
    /// The share of packets that take at most so many seconds.
    fn below(&self, seconds: f64) -> f64 {
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

    /// The time in seconds within which a share of the packets comes: by halving, because there is no
    /// formula for a normal one.
    fn quantile(&self, share: f64) -> f64 {
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

/// The share below `at` of what is spread evenly from `low` to `high`.
fn linear(low: f64, high: f64, at: f64) -> f64 {
    if high > low { ((at - low) / (high - low)).clamp(0.0, 1.0) } else { f64::from(at >= low) }
}

/// The delays of packets that do not wait for each other: quantiles, and the greatest distance from the
/// distribution asked. In seconds, without the probe's own lateness.
pub(in super::super) fn varying(
    asked: &Varying<'_>,
    mut took: Vec<f64>,
) -> Vec<(Subject, Outcome)> {
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
pub(in super::super) fn varying_sum(both: [&Varying<'_>; 2], mut took: Vec<f64>) -> Outcome {
    if let Some(few) = too_few(&took) {
        return few;
    }
    took.sort_by(f64::total_cmp);
    let points = both.map(|one| {
        let share = |point| (f64::from(point) + 0.5) / f64::from(POINTS);
        (0..POINTS).map(|point| one.quantile(share(point))).collect::<Vec<_>>()
    });
    let sums = points[0].iter().flat_map(|up| points[1].iter().map(move |down| up + down));
    quantile_of(super::statistics::median(sums.collect()), &took, 0.5)
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
fn distance(asked: &Varying<'_>, sorted: &[f64]) -> Outcome {
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
    at_most(Unit::Share, farthest_99(sorted.len()), got, basis)
}

/// Packets that came after one that was sent after them (RFC 4737 section 3.3: reordered), of which
/// there must be none, or at least one.
pub(in super::super) fn overtaken(asked: Option<&Varying<'_>>, seen: &Seen) -> Outcome {
    let mut next = 0;
    let mut got = 0;
    let mut came = vec![false; seen.sent.len()];
    for arrival in &seen.arrivals {
        // A second copy is none that was overtaken.
        match came.get_mut(arrival.number as usize) {
            Some(came) if !*came => *came = true,
            _ => continue,
        }
        got += u32::from(arrival.number < next);
        next = next.max(arrival.number + 1);
    }
    let first = seen.sent.first().zip(seen.sent.last());
    let every = first.map_or(Duration::ZERO, |(first, last)| *last - *first)
        / u32::try_from(seen.sent.len()).unwrap_or(u32::MAX).max(1);
    let basis =
        format!("of {} packets, {:.3} ms apart", seen.arrivals.len(), every.as_secs_f64() * 1e3);
    let Some(asked) = asked else {
        return measured(Unit::Packets, 0.0, got.into(), 0.0, basis);
    };
    let chance = chance_to_overtake(asked, every.as_secs_f64());
    // Of neighbours, each packet counted once; 1 of 100 such runs would show none.
    let pairs = seen.arrivals.len() as f64 / 2.0;
    if chance * pairs < 0.01_f64.recip().ln() {
        return Outcome::NotMeasured(format!("too rare to be seen among these {pairs:.0} pairs"));
    }
    at_least(Unit::Packets, 1.0, got.into(), basis)
}

/// The chance that a packet takes so much longer than the next one.
fn chance_to_overtake(asked: &Varying<'_>, seconds: f64) -> f64 {
    let share = |point| (f64::from(point) + 0.5) / f64::from(POINTS);
    let chance = |point| asked.below(asked.quantile(share(point)) - seconds);
    (0..POINTS).map(chance).sum::<f64>() / f64::from(POINTS)
}

/// The longest packet: one of the length asked that `arrived`, while one a byte longer was `refused`.
pub(in super::super) fn longest_packet(asked: u32, refused: bool, arrived: Option<u32>) -> Outcome {
    let (got, basis) = match arrived {
        None => return Outcome::NotMeasured("no packet of that length arrived".to_owned()),
        Some(_) if !refused => (asked + 1, "was not refused"),
        Some(got) => (got, "arrived whole, and a byte more was refused (EMSGSIZE)"),
    };
    measured(Unit::Bytes, asked.into(), got.into(), 0.0, basis.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, is_inside, is_not_measured, seen};
    use super::*;

    fn jitter(shape: Shape) -> Jitter {
        Jitter { shape, reorders: false }
    }

    /// As many delays as asked for, at equal steps of the distribution, then changed.
    fn drawn(asked: &Varying<'_>, many: u32, change: impl Fn(f64) -> f64) -> Vec<f64> {
        let share = |number| (f64::from(number) + 0.5) / f64::from(many);
        (0..many).map(|number| change(asked.quantile(share(number)))).collect()
    }

    #[test]
    fn a_delay_is_its_median() {
        let took = |median: f64| [vec![median; 60], vec![0.5; 40]].concat();
        assert!(is_inside(&delay(10 * MS, took(0.010_29), 0.0)));
        assert!(!is_inside(&delay(10 * MS, took(0.010_31), 0.0)));
        assert!(!is_inside(&delay(10 * MS, took(0.009_69), 0.0)), "early is wrong too");
        assert!(is_not_measured(&delay(10 * MS, vec![0.01; 19], 0.0)));
    }

    #[test]
    fn distributions_have_their_quantiles() {
        let at = |shape: Shape, delay, share| {
            Varying { delay, jitter: Some(&jitter(shape)) }.quantile(share)
        };
        assert!((at(Shape::Uniform(4 * MS), 10 * MS, 0.25) - 0.008).abs() < 1e-9);
        assert!((at(Shape::Normal(8 * MS), 25 * MS, 0.95) - 0.038_159).abs() < 1e-5);
        let table = Shape::Table([MS, 3 * MS, 11 * MS].into());
        assert!((at(table.clone(), 10 * MS, 0.25) - 0.012).abs() < 1e-9);
        assert!((at(table, 10 * MS, 0.75) - 0.017).abs() < 1e-9);
        assert!(at(Shape::Normal(8 * MS), MS, 0.05) < 1e-9, "cut off at 0");
        let fixed = Varying { delay: 10 * MS, jitter: None };
        assert!((fixed.quantile(0.5) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn what_varies_as_asked_is_inside_and_more_or_less_is_not() {
        let normal = jitter(Shape::Normal(8 * MS));
        let asked = Varying { delay: 25 * MS, jitter: Some(&normal) };
        let judged = |change: &dyn Fn(f64) -> f64| varying(&asked, drawn(&asked, 400, change));
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
        assert!(varying(&asked, vec![0.025; 19]).iter().all(|(_, one)| is_not_measured(one)));
    }

    #[test]
    fn the_distance_allowed_is_that_of_chance_and_of_the_timer() {
        let uniform = jitter(Shape::Uniform(10 * MS));
        let asked = Varying { delay: 50 * MS, jitter: Some(&uniform) };
        // Of 1000 the bound is 5.1 %, which is 1.03 ms of 20 ms; 0.3 ms more are the timer's.
        let judged = |off| distance(&asked, &drawn(&asked, 1000, |took| took + off));
        assert!(is_inside(&judged(0.001_3)) && is_inside(&judged(-0.001_3)));
        assert!(!is_inside(&judged(0.001_4)) && !is_inside(&judged(-0.001_4)));
    }

    #[test]
    fn a_sum_has_its_own_median() {
        let (wide, none) = (jitter(Shape::Normal(20 * MS)), None);
        let cut = Varying { delay: Duration::ZERO, jitter: Some(&wide) };
        let fixed = Varying { delay: 10 * MS, jitter: none };
        // Half of a normal one is cut off: its median is 0.
        let took = drawn(&cut, 400, |took| took + 0.01);
        let Outcome::Measured(sum) = varying_sum([&cut, &fixed], took) else { panic!("measured") };
        assert!((sum.asked - 0.01).abs() < 0.000_3 && sum.is_inside(), "{sum:?}");
    }

    #[test]
    fn overtaking_is_none_or_some() {
        let uniform = jitter(Shape::Uniform(5 * MS));
        let asked = Varying { delay: 10 * MS, jitter: Some(&uniform) };
        let mut ordered = seen(MS, 400, MS, 10 * MS);
        assert!(is_inside(&overtaken(None, &ordered)));
        assert!(!is_inside(&overtaken(Some(&asked), &ordered)));
        ordered.arrivals.swap(7, 8);
        assert!(
            !is_inside(&overtaken(None, &ordered)) && is_inside(&overtaken(Some(&asked), &ordered))
        );
        let rare = seen(11 * MS, 400, MS, 10 * MS);
        assert!(is_not_measured(&overtaken(Some(&asked), &rare)));
    }

    #[test]
    fn a_packet_may_be_just_so_long() {
        assert!(is_inside(&longest_packet(1400, true, Some(1400))));
        assert!(!is_inside(&longest_packet(1400, false, Some(1400))));
        assert!(!is_inside(&longest_packet(1400, true, Some(1399))));
        assert!(is_not_measured(&longest_packet(1400, true, None)));
    }
}
