//! How round trips vary: pure arithmetic.

use std::time::Duration;

use lastbyte_link::Shape;
use lastbyte_stats::Z_99;

use super::observed::Observed;

/// The quantile that is taken for the round trip of a path without jitter: not the minimum, which may
/// be an error of the clock, but that of an idle path.
pub(super) const FLOOR: f64 = 0.05;
/// A jitter smaller than this in one direction cannot be distinguished from late wake-ups of the host
/// and this machine.
pub(super) const LEAST_JITTER: Duration = Duration::from_micros(100);
/// With fewer round trips their variation is unknown.
pub(super) const LEAST_ROUND_TRIPS: usize = 20;
/// A distribution whose tail above the median is this many times as long as the tail below, measured at
/// 5 and 95 %, is neither uniform nor normal; and the number of round trips needed to say so.
const SKEWED: f64 = 2.0;
const LEAST_FOR_A_TABLE: usize = 100;
/// Steps of the quantiles that describe such a distribution.
const STEPS: u32 = 20;
/// Probes are this many standard deviations of the round trip apart: then one of 400 is delayed by the
/// one before it, where the delay is normal. A longer time would leave too few probes.
const APART: f64 = 4.0;
const APART_AT_MOST: Duration = Duration::from_millis(200);

/// How far apart small probes have to be so that none delays the next: where order is kept, a late
/// packet delays those behind it. At least `usual`.
pub(super) fn spacing(first: &Observed, usual: Duration) -> Duration {
    let far = APART * RoundTrips::of(first).map_or(0.0, |varied| varied.deviation());
    Duration::from_secs_f64(far.min(APART_AT_MOST.as_secs_f64())).max(usual)
}

/// The shape of a symmetric distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JitterShape {
    Uniform,
    Normal,
}

impl JitterShape {
    /// The distribution of this size, in seconds.
    pub(super) fn sized(self, size: f64) -> Shape {
        let size = Duration::from_secs_f64(size);
        match self {
            Self::Uniform => Shape::Uniform(size),
            Self::Normal => Shape::Normal(size),
        }
    }
}

/// How round trips vary; times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RoundTrips {
    pub(super) trips: usize,
    pub(super) least: f64,
    pub(super) floor: f64,
    pub(super) middle: f64,
    pub(super) p99: f64,
    /// The round trip without its variation.
    pub(super) centre: f64,
    /// How far off the centre may be.
    pub(super) doubt: f64,
    /// The size in one direction, and its shape.
    pub(super) jitter: Option<(f64, JitterShape)>,
    /// The distances of the quantiles from those of a uniform and of a normal jitter.
    pub(super) distances: [f64; 2],
    /// Quantiles, in equal steps, of what round trips take beyond the minimum, where their tail above is
    /// longer than that below.
    pub(super) skewed: Option<Vec<f64>>,
    /// The time between two probes: the median.
    pub(super) every: f64,
    /// How late this machine woke up to send at most in 19 of 20 cases.
    pub(super) own_lateness: f64,
}

impl RoundTrips {
    /// Of small probes; `None` without any round trip.
    pub(super) fn of(probes: &Observed) -> Option<Self> {
        let trips = probes.round_trips().into_iter().skip(probes.apart_from);
        let mut trips: Vec<f64> = trips.flatten().collect();
        trips.sort_by(f64::total_cmp);
        let at = |share| quantile(&trips, share);
        let gaps = probes.gaps();
        let every = quantile(&gaps, 0.5);
        let [uniform, normal] =
            [JitterShape::Uniform, JitterShape::Normal].map(|form| FittedShape::of(&trips, form));
        let (best, form) = if uniform.distance < normal.distance {
            (uniform, JitterShape::Uniform)
        } else {
            (normal, JitterShape::Normal)
        };
        let (low, middle, high) = (at(FLOOR), at(0.5), at(1.0 - FLOOR));
        let varies = trips.len() >= LEAST_ROUND_TRIPS && best.size >= LEAST_JITTER.as_secs_f64();
        let is_skewed = high - middle > SKEWED * (middle - low) && trips.len() >= LEAST_FOR_A_TABLE;
        let skewed = (varies && is_skewed).then(|| {
            let added = |step| at(f64::from(step) / f64::from(STEPS)) - at(0.0);
            (0..=STEPS).map(added).collect()
        });
        Some(Self {
            least: *trips.first()?,
            trips: trips.len(),
            floor: low,
            middle,
            p99: at(0.99),
            centre: match (&skewed, varies) {
                (Some(_), _) => at(0.0),
                (None, true) => best.centre,
                (None, false) => low,
            },
            doubt: Z_99 * best.size * 2.0_f64.sqrt() / (trips.len() as f64).sqrt(),
            jitter: varies.then_some((best.size, form)),
            distances: [uniform.distance, normal.distance],
            skewed,
            every,
            own_lateness: quantile(&gaps, 0.95) - every,
        })
    }

    /// The standard deviation of round trips, in seconds: of the sum of both directions; 0 without
    /// jitter.
    pub(super) fn deviation(&self) -> f64 {
        match self.jitter {
            Some((size, JitterShape::Uniform)) => size * (2.0_f64 / 3.0).sqrt(),
            Some((size, JitterShape::Normal)) => size * 2.0_f64.sqrt(),
            None => 0.0,
        }
    }
}

/// A shape fitted to round trips.
#[derive(Clone, Copy, Debug)]
struct FittedShape {
    centre: f64,
    /// In one direction.
    size: f64,
    /// The root mean square distance of the observed quantiles from those of the shape.
    distance: f64,
}

/// Shares of the upper half with their normal quantiles. Only the first nine are fitted, so that a few
/// slow packets do not matter; the others also distinguish the shapes.
const QUANTILES: [(f64, f64); 12] = [
    (0.55, 0.125_661),
    (0.60, 0.253_347),
    (0.65, 0.385_320),
    (0.70, 0.524_401),
    (0.75, 0.674_490),
    (0.80, 0.841_621),
    (0.85, 1.036_433),
    (0.90, 1.281_552),
    (0.95, 1.644_854),
    (0.975, 1.959_964),
    (0.99, 2.326_348),
    (0.995, 2.575_829),
];
const FITTED: usize = 9;
/// A quantile with fewer samples beyond it is not used.
const LEAST_BEYOND: f64 = 2.5;

impl FittedShape {
    fn of(trips: &[f64], form: JitterShape) -> Self {
        // Each quantile with that of the sum of two directions of size 1; the lower half mirrors the
        // upper one.
        let enough = |(share, _): &&(f64, f64)| (1.0 - share) * trips.len() as f64 >= LEAST_BEYOND;
        let pairs: Vec<[(f64, f64); 2]> = QUANTILES
            .iter()
            .enumerate()
            .filter(|(place, pair)| *place < FITTED || enough(pair))
            .map(|(_, (share, z))| {
                let unit = match form {
                    JitterShape::Normal => 2.0_f64.sqrt() * z,
                    // Two uniform ones make a triangle.
                    JitterShape::Uniform => 2.0 * (1.0 - (2.0 * (1.0 - share)).sqrt()),
                };
                [(unit, quantile(trips, *share)), (-unit, quantile(trips, 1.0 - share))]
            })
            .collect();
        let fitted = pairs.iter().take(FITTED).flatten();
        let (mut squares, mut products, mut sum) = (0.0, 0.0, 0.0);
        for (unit, seen) in fitted {
            (squares, products, sum) = (squares + unit * unit, products + unit * seen, sum + seen);
        }
        let (centre, size) = (sum / (2 * FITTED) as f64, products / squares);
        let errors =
            pairs.iter().flatten().map(|(unit, seen)| (seen - centre - size * unit).powi(2));
        let distance = (errors.sum::<f64>() / (2 * pairs.len()) as f64).sqrt();
        Self { centre, size, distance }
    }
}

/// The quantile of a sorted list, between two of its values where it lies between them; 0 of an empty
/// one.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len() as f64 - 0.5).clamp(0.0, sorted.len().max(1) as f64 - 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let index = place as usize;
    let Some(below) = sorted.get(index) else { return 0.0 };
    let above = sorted.get(index + 1).unwrap_or(below);
    below + (above - below) * (place - place.floor())
}

#[cfg(test)]
mod tests {
    use super::super::estimate::tests::probes;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slow_one_now_and_then_is_no_jitter() {
        let slow =
            |at: usize| if at.is_multiple_of(40) { 0.05 } else { 0.02 + 1e-6 * (at % 30) as f64 };
        let varied = RoundTrips::of(&probes((0..1000).map(|at| Some(slow(at))))).unwrap();
        assert_eq!(varied.jitter, None);
        assert!((varied.centre - 0.02).abs() < 1e-5, "{varied:?}");
    }

    #[test]
    fn a_long_tail_becomes_a_table() {
        // A quarter of them is late, by up to 25 ms.
        let took =
            |at: usize| 0.02 + if at.is_multiple_of(4) { 1e-4 * (at % 250) as f64 } else { 0.0 };
        let varied = RoundTrips::of(&probes((0..1000).map(|at| Some(took(at))))).unwrap();
        let table = varied.skewed.unwrap();
        assert_eq!((table.len(), varied.centre), (21, 0.02));
        assert!(table[14] < 1e-9 && table[16] > 1e-3 && table[20] > 24e-3, "{table:?}");
        let few = RoundTrips::of(&probes((0..99).map(|at| Some(took(at))))).unwrap();
        assert_eq!(few.skewed, None);
    }

    #[test]
    fn probes_are_apart_by_what_their_delay_varies() {
        let usual = MS * 10;
        let of = |half: f64| {
            let took = (0..200).map(|at| Some(2.0 + half * ((at * 77 % 200) as f64 / 100.0 - 1.0)));
            spacing(&probes(took), usual)
        };
        assert_eq!((of(0.0), of(0.003)), (usual, usual));
        let far = of(0.01);
        assert!(far > MS * 20 && far < MS * 30, "{far:?}");
        assert_eq!(of(1.0), APART_AT_MOST);
        assert_eq!(spacing(&Observed::default(), usual), usual);
    }
}
