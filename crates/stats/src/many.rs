use crate::compare::higher;
use crate::{Comparison, Verdict, compare};

/// Two sets of samples of one thing that was measured twice, say before and after a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric<'a> {
    /// What was measured.
    pub name: &'a str,
    /// The samples of side `a`, in any order.
    pub a: &'a [f64],
    /// The samples of side `b`, in any order and in the unit of `a`.
    pub b: &'a [f64],
}

/// One comparison among several.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Corrected<'a> {
    /// What was measured.
    pub name: &'a str,
    /// The comparison. Its p-value is that of this metric alone; its verdict follows the corrected
    /// one.
    pub comparison: Comparison,
    /// The p-value, corrected for all the metrics by [`holm`]. `None` without one.
    pub p_value: Option<f64>,
}

/// Compares several metrics, in their order, so that the probability of any false claim of a
/// difference is at most `level` (for example 0.05), however many there are.
///
/// A metric without a p-value (a side without samples, or one that is not finite) stays undecided
/// and does not count. Claims are made as by [`compare_at`](crate::compare_at), but with the
/// p-value that [`holm`] corrected: with 10 metrics the first claim needs p = 0.005, which 5 and 5
/// samples (0.008 at best) never reach, 6 and 6 may. So compare few metrics, or take more samples.
#[must_use]
pub fn compare_many<'a>(metrics: &[Metric<'a>], level: f64) -> Vec<Corrected<'a>> {
    let comparisons: Vec<Comparison> = metrics.iter().map(|it| compare(it.a, it.b)).collect();
    let known: Vec<f64> = comparisons.iter().filter_map(|it| it.p_value).collect();
    let mut corrected = holm(&known).into_iter();
    let joined = metrics.iter().zip(comparisons).map(|(metric, comparison)| {
        let p_value = comparison.p_value.and_then(|_| corrected.next());
        let certain = p_value.is_some_and(|p_value| p_value <= level);
        let side = || higher(metric.a, metric.b, &comparison);
        let verdict = if certain { side() } else { Verdict::Undecided };
        Corrected { name: metric.name, comparison: Comparison { verdict, ..comparison }, p_value }
    });
    joined.collect()
}

/// Corrects the p-values of several tests, in their order, so that the probability of rejecting any
/// true hypothesis at `level` is at most `level`: Holm, "A Simple Sequentially Rejective Multiple
/// Test Procedure", Scandinavian Journal of Statistics 6 (1979), 65-70.
///
/// The smallest of `n` is multiplied by `n`, the next by `n - 1`, and so on; none is below the one
/// before it nor above 1. The tests may depend on each other. A p-value that is not a number counts
/// as 1.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let value = |place: usize| if p_values[place].is_nan() { 1.0 } else { p_values[place] };
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|x, y| value(*x).total_cmp(&value(*y)));
    let mut corrected = vec![1.0; p_values.len()];
    let mut before: f64 = 0.0;
    for (rank, place) in order.into_iter().enumerate() {
        before = before.max(value(place) * (p_values.len() - rank) as f64).min(1.0);
        corrected[place] = before;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By hand; `p.adjust(p, "holm")` in R gives the same.
    #[test]
    fn known_corrections() {
        for (given, corrected) in [
            (&[][..], &[][..]),
            (&[0.03], &[0.03]),
            (&[0.01, 0.04, 0.03], &[0.03, 0.06, 0.06]),
            (&[0.5, 0.02, 0.6], &[1.0, 0.06, 1.0]),
            (&[0.02, 0.02, 0.02], &[0.06, 0.06, 0.06]),
            (&[f64::NAN, 0.02], &[1.0, 0.04]),
        ] {
            let got = holm(given);
            assert_eq!(got.len(), corrected.len());
            let near = got.iter().zip(corrected).all(|(x, y)| (x - y).abs() < 1e-12);
            assert!(near, "{given:?}: {got:?}");
        }
    }

    #[test]
    fn many_metrics_ask_for_more() {
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0, 15.0]);
        let clear = |name| Metric { name, a: &high, b: &low };
        let equal = |name| Metric { name, a: &low, b: &low };
        let verdicts = |metrics: &[Metric<'_>]| {
            compare_many(metrics, 0.05).iter().map(|it| it.comparison.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&[clear("rate")]), [Verdict::AHigher]);
        // 2 / 252 * 6 is below 0.05, * 7 is above.
        let mut metrics = vec![clear("rate")];
        metrics.extend([equal("x"); 5]);
        assert_eq!(verdicts(&metrics)[0], Verdict::AHigher);
        metrics.push(equal("y"));
        assert_eq!(verdicts(&metrics), [Verdict::Undecided; 7]);
    }

    #[test]
    fn what_cannot_be_compared_does_not_count() {
        let (low, high) = ([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0]);
        let metrics = [
            Metric { name: "missing", a: &[], b: &high },
            Metric { name: "rate", a: &low, b: &high },
            Metric { name: "odd", a: &low, b: &[f64::NAN] },
        ];
        let compared = compare_many(&metrics, 0.05);
        let told: Vec<_> = compared.iter().map(|it| (it.name, it.p_value.is_some())).collect();
        assert_eq!(told, [("missing", false), ("rate", true), ("odd", false)]);
        assert_eq!(compared[1].comparison.verdict, Verdict::BHigher);
        assert_eq!(compared[1].p_value, compared[1].comparison.p_value);
    }

    proptest! {
        #[test]
        fn corrections_keep_the_order(p_values in prop::collection::vec(0.0..=1.0, 0..20)) {
            let corrected = holm(&p_values);
            for (x, of_x) in p_values.iter().zip(&corrected) {
                prop_assert!(x <= of_x && *of_x <= 1.0);
                for (y, of_y) in p_values.iter().zip(&corrected) {
                    prop_assert!(x > y || of_x <= of_y);
                }
            }
        }
    }
}
