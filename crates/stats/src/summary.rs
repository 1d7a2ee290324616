/// The median and the range of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many samples there are; at least 1.
    pub n: usize,
    /// The middle sample, or the mean of the two middle ones; in the unit of the samples.
    pub median: f64,
    /// The smallest sample, in the unit of the samples.
    pub min: f64,
    /// The largest sample, in the unit of the samples.
    pub max: f64,
}

impl Summary {
    /// Sums up `samples`, given in any order.
    ///
    /// `None` if there are none, or if one of them is infinite or not a number.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples)?;
        Some(Self {
            n: sorted.len(),
            median: quantile(&sorted, 0.5)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// An interval that includes both its ends, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end; never below the lower one.
    pub high: f64,
}

/// The value below which the share `q` (0 to 1) of `sorted` lies, in the unit of the samples.
///
/// Definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American
/// Statistician 50 (1996), 361-365: linear between the samples at either side of position
/// `(n - 1) q`, counted from 0. It is the default of R and of NumPy.
///
/// `sorted` must be sorted, least first. `None` if it is empty or `q` is not a share.
///
/// # Panics
/// In debug builds, if `sorted` is not sorted.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    debug_assert!(sorted.is_sorted(), "quantile of samples that are not sorted");
    let last = sorted.len().checked_sub(1)?;
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let position = last as f64 * q;
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and `last`, whole")]
    let below = (position.floor() as usize).min(last);
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let part = position - below as f64;
    // Weighted, not `low + part * (high - low)`, whose difference may overflow; the clamp takes
    // back what rounding may add.
    Some((low * (1.0 - part) + high * part).clamp(low, high))
}

/// The mean of the least samples, up to the share `upper_quantile` (above 0, up to 1) of them, in the
/// unit of the samples: 0.95 leaves out the greatest twentieth.
///
/// The single-sided trimmed mean by which draft-ietf-ippm-responsiveness-08 ("Responsiveness under
/// Working Conditions", 20 October 2025), section 5.3.1, sums up the times of its probes, with
/// `TMP`, the Trimmed Mean Percentage, of 95 %. The draft does not define how to count a part of a
/// sample; here only whole samples are left out, so that all of fewer than 20 count with 95 %.
///
/// `None` if there are no samples, one is not finite, the share is out of its bounds, or the sum is
/// too large for a number.
#[must_use]
pub fn trimmed_mean(samples: &[f64], upper_quantile: f64) -> Option<f64> {
    // 0.95 has no exact binary form: a number that is whole except for rounding counts as whole.
    const ROUNDING: f64 = 1e-9;
    if !(upper_quantile > 0.0 && upper_quantile <= 1.0) {
        return None;
    }
    let sorted = sorted(samples)?;
    let left_out = (1.0 - upper_quantile) * sorted.len() as f64 + ROUNDING;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the length")]
    let kept = sorted.len().saturating_sub(left_out.floor() as usize).max(1);
    let mean = sorted.iter().take(kept).sum::<f64>() / kept as f64;
    Some(mean).filter(|mean| mean.is_finite())
}

/// Jain's fairness index, a pure number: 1 if all shares are equal, `k / n` if `k` of `n` have
/// equal shares and the rest none.
///
/// The fairness index `(sum x)^2 / (n sum x^2)` of Jain, Chiu and Hawe, "A Quantitative Measure of
/// Fairness and Discrimination for Resource Allocation in Shared Computer Systems", DEC Research
/// Report TR-301 (1984).
///
/// `None` if there are no shares, one is negative or not finite, or all are zero.
#[must_use]
pub fn jain(shares: &[f64]) -> Option<f64> {
    let allowed = |share: &f64| share.is_finite() && *share >= 0.0;
    let greatest = shares.iter().copied().reduce(f64::max).filter(|greatest| *greatest > 0.0)?;
    if !shares.iter().all(allowed) {
        return None;
    }
    // In parts of the greatest one, whose square is always a number.
    let parts = || shares.iter().map(|share| share / greatest);
    let sum: f64 = parts().sum();
    let squares: f64 = parts().map(|part| part * part).sum();
    Some((sum * sum / (shares.len() as f64 * squares)).min(1.0))
}

/// The samples with the least first; `None` if there are none or one is not finite.
pub(crate) fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || !samples.iter().all(|sample| sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_summaries() {
        for (samples, n, median, min, max) in [
            (&[5.0][..], 1, 5.0, 5.0, 5.0),
            (&[3.0, 1.0], 2, 2.0, 1.0, 3.0),
            (&[9.0, 1.0, 4.0], 3, 4.0, 1.0, 9.0),
            (&[-1.0, 0.0, -0.0, 8.0], 4, 0.0, -1.0, 8.0),
            (&[f64::MAX, -f64::MAX], 2, 0.0, -f64::MAX, f64::MAX),
            (&[f64::MAX, f64::MAX], 2, f64::MAX, f64::MAX, f64::MAX),
        ] {
            assert_eq!(Summary::of(samples), Some(Summary { n, median, min, max }));
        }
    }

    #[test]
    fn no_summary_of_what_cannot_be_summed_up() {
        assert_eq!(Summary::of(&[]), None);
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Summary::of(&[1.0, odd]), None);
        }
    }

    /// By hand: position 3q, counted from 0.
    #[test]
    fn known_quantiles() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        for (q, value) in
            [(0.0, 1.0), (0.25, 1.75), (0.5, 3.0), (0.75, 5.0), (0.9, 6.8), (1.0, 8.0)]
        {
            let got = quantile(&sorted, q).unwrap();
            assert!((got - value).abs() < 1e-12, "{q}: {got}");
        }
        assert_eq!(quantile(&[7.0], 0.3), Some(7.0));
        for q in [-0.001, 1.001, f64::NAN] {
            assert_eq!(quantile(&sorted, q), None, "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn known_trimmed_means() {
        let range = |to: i32| (1..=to).rev().map(f64::from).collect::<Vec<f64>>();
        for (to, share, mean) in [
            (20, 0.95, 10.0),
            (19, 0.95, 10.0),
            (40, 0.95, 19.5),
            (100, 0.95, 48.0),
            (1000, 0.95, 475.5),
            (10, 0.9, 5.0),
            (10, 1.0, 5.5),
            (10, 0.5, 3.0),
            (10, 0.01, 1.0),
            (1, 0.95, 1.0),
        ] {
            assert_eq!(trimmed_mean(&range(to), share), Some(mean), "{to} {share}");
        }
        for share in [0.0, -0.1, 1.1, f64::NAN] {
            assert_eq!(trimmed_mean(&range(5), share), None, "{share}");
        }
        assert_eq!(trimmed_mean(&[], 0.95), None);
        assert_eq!(trimmed_mean(&[1.0, f64::INFINITY], 0.95), None);
    }

    /// By hand: (1 + 2 + 3)^2 / (3 * 14) and the like.
    #[test]
    fn known_fairness() {
        for (shares, fairness) in [
            (&[7.0][..], 1.0),
            (&[3.0, 3.0, 3.0], 1.0),
            (&[1.0, 0.0], 0.5),
            (&[5.0, 5.0, 0.0, 0.0, 0.0], 0.4),
            (&[1.0, 2.0, 3.0], 36.0 / 42.0),
            (&[1.0, 4.0], 25.0 / 34.0),
            (&[f64::MAX, 0.0], 0.5),
            (&[1e-300, 1e-300], 1.0),
        ] {
            assert!((jain(shares).unwrap() - fairness).abs() < 1e-12, "{shares:?}");
        }
        for odd in [&[][..], &[0.0, 0.0], &[1.0, -1.0], &[1.0, f64::NAN], &[f64::INFINITY, 1.0]] {
            assert_eq!(jain(odd), None, "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn fairness_knows_no_unit(
            shares in prop::collection::vec(0.001..1e6, 1..20),
            unit in 1e-9..1e9,
        ) {
            let fairness = jain(&shares).unwrap();
            prop_assert!(1.0 / shares.len() as f64 - 1e-12 <= fairness && fairness <= 1.0);
            let others: Vec<f64> = shares.iter().map(|share| share * unit).collect();
            prop_assert!((jain(&others).unwrap() - fairness).abs() < 1e-9);
        }

        #[test]
        fn trimming_never_raises_the_mean(
            samples in prop::collection::vec(-1e6..1e6, 1..60),
            p in 0.01..=1.0,
            q in 0.01..=1.0,
        ) {
            let (p, q) = if p < q { (p, q) } else { (q, p) };
            let (less, more) = (trimmed_mean(&samples, p).unwrap(), trimmed_mean(&samples, q).unwrap());
            prop_assert!(less <= more + 1e-6);
        }

        #[test]
        fn the_order_of_samples_does_not_matter(
            mut samples in prop::collection::vec(-1e300..1e300, 1..40),
        ) {
            let summary = Summary::of(&samples).unwrap();
            samples.reverse();
            prop_assert_eq!(Summary::of(&samples), Some(summary));
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
        }

        #[test]
        fn quantiles_rise(
            samples in prop::collection::vec(-1e3..1e3, 1..20),
            p in 0.0..=1.0,
            q in 0.0..=1.0,
        ) {
            let sorted = sorted(&samples).unwrap();
            let (p, q) = if p < q { (p, q) } else { (q, p) };
            // Equal but for the rounding of one product.
            prop_assert!(quantile(&sorted, p).unwrap() <= quantile(&sorted, q).unwrap() + 1e-9);
        }
    }
}
