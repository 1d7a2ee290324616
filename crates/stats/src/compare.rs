use crate::{Interval, Summary, p_value};

/// How many samples each side must have before a difference is claimed.
pub const MIN_SAMPLES: usize = 3;

/// What can be said about two sets of samples of the same thing.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// Side `a` in itself; `None` if it has no samples, or one that is not finite.
    pub a: Option<Summary>,
    /// Side `b` in itself; `None` if it has no samples, or one that is not finite.
    pub b: Option<Summary>,
    /// The median of `a` divided by that of `b`, a pure number. `None` if a side is missing or the
    /// median of `b` is zero.
    pub ratio: Option<f64>,
    /// The spread of [`ratio`](Self::ratio): between which ratios every sample of `a` stands to
    /// every sample of `b`. `None` unless all samples of `a` are at least zero and all of `b` above
    /// it.
    pub ratio_range: Option<Interval>,
    /// How often chance alone would do as much: see [`p_value`].
    pub p_value: Option<f64>,
    /// Which side is higher, if that can be told.
    pub verdict: Verdict,
}

/// Which of two sides is higher, said only where it is beyond the usual doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Every sample of `a` is higher than every sample of `b`.
    AHigher,
    /// Every sample of `b` is higher than every sample of `a`.
    BHigher,
    /// These samples cannot tell: that is no proof that the sides are equal.
    NotTold,
}

/// Compares two sets of samples of the same thing in the same unit, given in any order.
///
/// A difference is claimed only where the ranges of the samples do not overlap (a shared end is an
/// overlap) and each side has at least [`MIN_SAMPLES`]. Anybody can check that with the naked eye,
/// and no assumption about how the samples are spread goes into it.
///
/// How much such a claim is worth depends on how many samples there are. If both sides were the
/// same, 3 and 3 samples would still lie apart in 2 of 20 orders: the exact two-sided rank test
/// gives p = 0.1 at best. With 4 and 4 it is 2 of 70, p = 0.029; with 5 and 5, 2 of 252,
/// p = 0.008. So [`Comparison::p_value`] belongs beside the verdict; and whoever compares many
/// pairs must expect claims by chance.
///
/// The other way round the rule is strict: with many samples, one stray sample keeps the ranges
/// overlapping while the p-value is tiny. Then the verdict stays [`Verdict::NotTold`], and the
/// p-value and the intervals say what there is to say.
///
/// So this is the rule for a first look with few runs. A claim that others shall rely on is
/// [`compare_at`]'s; for several things at once, [`compare_many`](crate::compare_many)'s.
#[must_use]
pub fn compare(a: &[f64], b: &[f64]) -> Comparison {
    let both = Summary::of(a).zip(Summary::of(b));
    Comparison {
        a: Summary::of(a),
        b: Summary::of(b),
        ratio: both.and_then(|(a, b)| ratio(a.median, b.median)),
        ratio_range: both.and_then(|(a, b)| ratio_range(a, b)),
        p_value: p_value(a, b),
        verdict: both.map_or(Verdict::NotTold, |(a, b)| verdict(a, b)),
    }
}

/// Compares two sets of samples as [`compare`] does, but claims a difference where chance alone would
/// do as much in at most the share `level` of cases: where the exact rank test ([`p_value`]) says so,
/// and the higher ranks and the higher median are on the same side.
///
/// With a level of 0.05, of 20 comparisons of equal sides one claims a difference; it takes at least
/// 4 and 4 samples, as 3 and 3 have p = 0.1 at best. One stray sample does not stop a claim where
/// there are enough others. A level that is not a number or not above 0 claims nothing.
#[must_use]
pub fn compare_at(a: &[f64], b: &[f64], level: f64) -> Comparison {
    let comparison = compare(a, b);
    let certain = comparison.p_value.is_some_and(|p_value| p_value <= level);
    let verdict = if certain { higher(a, b, &comparison) } else { Verdict::NotTold };
    Comparison { verdict, ..comparison }
}

/// The side on which both the ranks and the median are higher.
pub(crate) fn higher(a: &[f64], b: &[f64], comparison: &Comparison) -> Verdict {
    let Some((of_a, of_b)) = comparison.a.zip(comparison.b) else { return Verdict::NotTold };
    let all = || a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let (won, lost) = (all().filter(|(x, y)| x > y).count(), all().filter(|(x, y)| x < y).count());
    if won > lost && of_a.median > of_b.median {
        Verdict::AHigher
    } else if won < lost && of_a.median < of_b.median {
        Verdict::BHigher
    } else {
        Verdict::NotTold
    }
}

fn verdict(a: Summary, b: Summary) -> Verdict {
    if a.n < MIN_SAMPLES || b.n < MIN_SAMPLES {
        Verdict::NotTold
    } else if a.min > b.max {
        Verdict::AHigher
    } else if b.min > a.max {
        Verdict::BHigher
    } else {
        Verdict::NotTold
    }
}

fn ratio_range(a: Summary, b: Summary) -> Option<Interval> {
    if a.min < 0.0 || b.min <= 0.0 {
        return None;
    }
    Some(Interval { low: ratio(a.min, b.max)?, high: ratio(a.max, b.min)? })
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    Some(a / b).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_difference_is_claimed_where_ranges_lie_apart() {
        let fast = [90.0, 91.0, 95.0];
        let slow = [10.0, 8.0, 89.9];
        let comparison = compare(&fast, &slow);
        assert_eq!(comparison.verdict, Verdict::AHigher);
        assert_eq!(comparison.ratio, Some(9.1));
        assert_eq!(comparison.ratio_range, Some(Interval { low: 90.0 / 89.9, high: 95.0 / 8.0 }));
        assert!((comparison.p_value.unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(comparison.a, Summary::of(&fast));
        assert_eq!(compare(&slow, &fast).verdict, Verdict::BHigher);
    }

    #[test]
    fn a_shared_end_is_an_overlap() {
        let low = [1.0, 2.0, 3.0];
        assert_eq!(compare(&low, &[3.0, 4.0, 5.0]).verdict, Verdict::NotTold);
        assert_eq!(compare(&low, &[3.1, 4.0, 5.0]).verdict, Verdict::BHigher);
    }

    #[test]
    fn two_samples_tell_nothing() {
        let (low, high) = ([1.0, 2.0, 3.0], [101.0, 102.0, 103.0]);
        assert_eq!(compare(&low, &high).verdict, Verdict::BHigher);
        assert_eq!(compare(&low[..2], &high).verdict, Verdict::NotTold);
        assert_eq!(compare(&low, &high[..2]).verdict, Verdict::NotTold);
    }

    #[test]
    fn missing_sides_tell_nothing() {
        let good = [1.0, 2.0, 3.0];
        for odd in [&[][..], &[f64::NAN, 5.0, 6.0], &[f64::INFINITY; 3]] {
            let comparison = compare(&good, odd);
            assert_eq!(comparison.verdict, Verdict::NotTold);
            assert_eq!((comparison.ratio, comparison.p_value), (None, None));
            assert_eq!((comparison.a, comparison.b), (Summary::of(&good), None));
        }
    }

    #[test]
    fn no_ratio_to_zero() {
        let comparison = compare(&[1.0, 2.0, 3.0], &[0.0, 0.0, 0.0]);
        assert_eq!((comparison.ratio, comparison.ratio_range), (None, None));
        assert_eq!(comparison.verdict, Verdict::AHigher);
        let comparison = compare(&[0.0, 2.0, 3.0], &[1.0, 1.0, 1.0]);
        assert_eq!(comparison.ratio_range, Some(Interval { low: 0.0, high: 3.0 }));
        assert_eq!(compare(&[-1.0, 2.0, 3.0], &[1.0, 1.0, 1.0]).ratio_range, None);
    }

    #[test]
    fn three_and_three_are_not_certain() {
        let (low, high) = ([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0]);
        assert_eq!(compare_at(&low[..3], &high[..3], 0.05).verdict, Verdict::NotTold);
        assert_eq!(compare_at(&low[..3], &high[..3], 0.1).verdict, Verdict::BHigher);
        assert_eq!(compare_at(&low, &high, 0.05).verdict, Verdict::BHigher);
        assert_eq!(compare_at(&high, &low, 0.05).verdict, Verdict::AHigher);
        for level in [0.0, -1.0, f64::NAN] {
            assert_eq!(compare_at(&high, &low, level).verdict, Verdict::NotTold);
        }
    }

    #[test]
    fn a_stray_sample_does_not_stop_a_certain_claim() {
        let slow: Vec<f64> = (1..=8).map(f64::from).collect();
        let mut fast: Vec<f64> = (11..=18).map(f64::from).collect();
        fast[3] = 4.5;
        assert_eq!(compare(&fast, &slow).verdict, Verdict::NotTold);
        assert_eq!(compare_at(&fast, &slow, 0.05).verdict, Verdict::AHigher);
    }

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(1.0..1e6, 1..12)
    }

    proptest! {
        /// A/A: the same samples, dealt out so that both sides have the least and the greatest
        /// of them within reach of the other, never count as different.
        #[test]
        fn nothing_is_claimed_where_samples_overlap(a in samples(), b in samples(), shared in 1.0..1e6) {
            let with_shared = |samples: &[f64]| [samples, &[shared]].concat();
            prop_assert_eq!(compare(&with_shared(&a), &with_shared(&b)).verdict, Verdict::NotTold);
            prop_assert_eq!(compare(&a, &a).verdict, Verdict::NotTold);
        }

        #[test]
        fn a_claim_needs_samples_that_lie_apart(a in samples(), b in samples()) {
            let overlap = a.iter().any(|x| b.iter().any(|y| x <= y))
                && b.iter().any(|x| a.iter().any(|y| x <= y));
            let few = a.len() < 3 || b.len() < 3;
            prop_assert_eq!(compare(&a, &b).verdict == Verdict::NotTold, overlap || few);
        }

        #[test]
        fn a_certain_claim_has_a_small_p_value(a in samples(), b in samples(), level in 0.0..0.2) {
            let comparison = compare_at(&a, &b, level);
            if comparison.verdict != Verdict::NotTold {
                prop_assert!(comparison.p_value.unwrap() <= level);
            }
            let ranges = compare(&a, &b);
            // Ranges that lie apart never speak for the other side.
            prop_assert!(
                comparison.verdict == ranges.verdict
                    || comparison.verdict == Verdict::NotTold
                    || ranges.verdict == Verdict::NotTold
            );
        }

        #[test]
        fn exchanging_the_sides_turns_the_answer_round(a in samples(), b in samples()) {
            let (there, back) = (compare(&a, &b), compare(&b, &a));
            let turned = match there.verdict {
                Verdict::AHigher => Verdict::BHigher,
                Verdict::BHigher => Verdict::AHigher,
                Verdict::NotTold => Verdict::NotTold,
            };
            prop_assert_eq!(back.verdict, turned);
            prop_assert!((there.ratio.unwrap() * back.ratio.unwrap() - 1.0).abs() < 1e-9);
            let range = there.ratio_range.unwrap();
            prop_assert!(range.low <= there.ratio.unwrap() && there.ratio.unwrap() <= range.high);
            prop_assert!((there.p_value.unwrap() - back.p_value.unwrap()).abs() < 1e-12);
        }
    }
}
