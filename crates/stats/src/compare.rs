use crate::{Interval, Summary, p_value};

/// How many samples each side must have before a difference is claimed.
pub const MIN_SAMPLES: usize = 3;

/// The comparison of two sets of samples of the same thing.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The summary of side `a`; `None` if it has no samples, or one that is not finite.
    pub a: Option<Summary>,
    /// The summary of side `b`; `None` if it has no samples, or one that is not finite.
    pub b: Option<Summary>,
    /// The median of `a` divided by that of `b`, a pure number. `None` if a side is missing or the
    /// median of `b` is zero.
    pub ratio: Option<f64>,
    /// The spread of [`ratio`](Self::ratio): the smallest and the largest ratio of a sample of `a`
    /// to one of `b`. `None` unless all samples of `a` are at least zero and all of `b` above it.
    pub ratio_range: Option<Interval>,
    /// The probability of such a difference by chance: see [`p_value`].
    pub p_value: Option<f64>,
    /// Which side is higher, if the difference is significant.
    pub verdict: Verdict,
}

/// Which of two sides is higher, if the difference is significant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Every sample of `a` is higher than every sample of `b`.
    AHigher,
    /// Every sample of `b` is higher than every sample of `a`.
    BHigher,
    /// The samples do not decide, which does not prove that the sides are equal.
    Undecided,
}

/// Compares two sets of samples of the same thing in the same unit, given in any order.
///
/// A difference is claimed only if the ranges of the samples do not overlap (a shared end is an
/// overlap) and each side has at least [`MIN_SAMPLES`]. Readers can check that by eye, and it
/// assumes nothing about the distribution of the samples.
///
/// The strength of such a claim depends on the number of samples. If both sides were the same, 3
/// and 3 samples would still be apart in 2 of 20 orders: the exact two-sided rank test gives p =
/// 0.1 at best. With 4 and 4 it is 2 of 70, p = 0.029; with 5 and 5, 2 of 252, p = 0.008. So report
/// [`Comparison::p_value`] with the verdict; and expect claims by chance when comparing many pairs.
///
/// In the other direction the rule is strict: with many samples, one outlier makes the ranges
/// overlap although the p-value is tiny. Then the verdict is [`Verdict::Undecided`]; use the
/// p-value and the intervals.
///
/// So this rule is for a first look at few runs. For a claim that others rely on use
/// [`compare_at`]; for several metrics together, [`compare_many`](crate::compare_many).
#[must_use]
pub fn compare(a: &[f64], b: &[f64]) -> Comparison {
    let both = Summary::of(a).zip(Summary::of(b));
    Comparison {
        a: Summary::of(a),
        b: Summary::of(b),
        ratio: both.and_then(|(a, b)| ratio(a.median, b.median)),
        ratio_range: both.and_then(|(a, b)| ratio_range(a, b)),
        p_value: p_value(a, b),
        verdict: both.map_or(Verdict::Undecided, |(a, b)| verdict(a, b)),
    }
}

/// Compares two sets of samples as [`compare`] does, but claims a difference if it is significant
/// at `level` by the exact rank test ([`p_value`]), and the higher ranks and the higher median are
/// on the same side.
///
/// With a level of 0.05, of 20 comparisons of equal sides one claims a difference; it needs at
/// least 4 and 4 samples, as 3 and 3 have p = 0.1 at best. One outlier does not prevent a claim if
/// there are enough others. A level that is not a number or not above 0 claims nothing.
#[must_use]
pub fn compare_at(a: &[f64], b: &[f64], level: f64) -> Comparison {
    let comparison = compare(a, b);
    let certain = comparison.p_value.is_some_and(|p_value| p_value <= level);
    let verdict = if certain { higher(a, b, &comparison) } else { Verdict::Undecided };
    Comparison { verdict, ..comparison }
}

/// The side on which both the ranks and the median are higher.
pub(crate) fn higher(a: &[f64], b: &[f64], comparison: &Comparison) -> Verdict {
    let Some((of_a, of_b)) = comparison.a.zip(comparison.b) else { return Verdict::Undecided };
    let all = || a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let (won, lost) = (all().filter(|(x, y)| x > y).count(), all().filter(|(x, y)| x < y).count());
    if won > lost && of_a.median > of_b.median {
        Verdict::AHigher
    } else if won < lost && of_a.median < of_b.median {
        Verdict::BHigher
    } else {
        Verdict::Undecided
    }
}

fn verdict(a: Summary, b: Summary) -> Verdict {
    if a.n < MIN_SAMPLES || b.n < MIN_SAMPLES {
        Verdict::Undecided
    } else if a.min > b.max {
        Verdict::AHigher
    } else if b.min > a.max {
        Verdict::BHigher
    } else {
        Verdict::Undecided
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
        assert_eq!(compare(&low, &[3.0, 4.0, 5.0]).verdict, Verdict::Undecided);
        assert_eq!(compare(&low, &[3.1, 4.0, 5.0]).verdict, Verdict::BHigher);
    }

    #[test]
    fn two_samples_tell_nothing() {
        let (low, high) = ([1.0, 2.0, 3.0], [101.0, 102.0, 103.0]);
        assert_eq!(compare(&low, &high).verdict, Verdict::BHigher);
        assert_eq!(compare(&low[..2], &high).verdict, Verdict::Undecided);
        assert_eq!(compare(&low, &high[..2]).verdict, Verdict::Undecided);
    }

    #[test]
    fn missing_sides_tell_nothing() {
        let good = [1.0, 2.0, 3.0];
        for odd in [&[][..], &[f64::NAN, 5.0, 6.0], &[f64::INFINITY; 3]] {
            let comparison = compare(&good, odd);
            assert_eq!(comparison.verdict, Verdict::Undecided);
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
        assert_eq!(compare_at(&low[..3], &high[..3], 0.05).verdict, Verdict::Undecided);
        assert_eq!(compare_at(&low[..3], &high[..3], 0.1).verdict, Verdict::BHigher);
        assert_eq!(compare_at(&low, &high, 0.05).verdict, Verdict::BHigher);
        assert_eq!(compare_at(&high, &low, 0.05).verdict, Verdict::AHigher);
        for level in [0.0, -1.0, f64::NAN] {
            assert_eq!(compare_at(&high, &low, level).verdict, Verdict::Undecided);
        }
    }

    #[test]
    fn a_stray_sample_does_not_stop_a_certain_claim() {
        let slow: Vec<f64> = (1..=8).map(f64::from).collect();
        let mut fast: Vec<f64> = (11..=18).map(f64::from).collect();
        fast[3] = 4.5;
        assert_eq!(compare(&fast, &slow).verdict, Verdict::Undecided);
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
            prop_assert_eq!(compare(&with_shared(&a), &with_shared(&b)).verdict, Verdict::Undecided);
            prop_assert_eq!(compare(&a, &a).verdict, Verdict::Undecided);
        }

        #[test]
        fn a_claim_needs_samples_that_lie_apart(a in samples(), b in samples()) {
            let overlap = a.iter().any(|x| b.iter().any(|y| x <= y))
                && b.iter().any(|x| a.iter().any(|y| x <= y));
            let few = a.len() < 3 || b.len() < 3;
            prop_assert_eq!(compare(&a, &b).verdict == Verdict::Undecided, overlap || few);
        }

        #[test]
        fn a_certain_claim_has_a_small_p_value(a in samples(), b in samples(), level in 0.0..0.2) {
            let comparison = compare_at(&a, &b, level);
            if comparison.verdict != Verdict::Undecided {
                prop_assert!(comparison.p_value.unwrap() <= level);
            }
            let ranges = compare(&a, &b);
            // Ranges that lie apart never speak for the other side.
            prop_assert!(
                comparison.verdict == ranges.verdict
                    || comparison.verdict == Verdict::Undecided
                    || ranges.verdict == Verdict::Undecided
            );
        }

        #[test]
        fn exchanging_the_sides_turns_the_answer_round(a in samples(), b in samples()) {
            let (there, back) = (compare(&a, &b), compare(&b, &a));
            let turned = match there.verdict {
                Verdict::AHigher => Verdict::BHigher,
                Verdict::BHigher => Verdict::AHigher,
                Verdict::Undecided => Verdict::Undecided,
            };
            prop_assert_eq!(back.verdict, turned);
            prop_assert!((there.ratio.unwrap() * back.ratio.unwrap() - 1.0).abs() < 1e-9);
            let range = there.ratio_range.unwrap();
            prop_assert!(range.low <= there.ratio.unwrap() && there.ratio.unwrap() <= range.high);
            prop_assert!((there.p_value.unwrap() - back.p_value.unwrap()).abs() < 1e-12);
        }
    }
}
