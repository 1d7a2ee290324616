/// What is between the least and the greatest of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many samples there are; at least 1.
    pub n: usize,
    /// The middle sample, or the mean of the two middle ones; in the unit of the samples.
    pub median: f64,
    /// The least sample, in the unit of the samples.
    pub min: f64,
    /// The greatest sample, in the unit of the samples.
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

/// Two ends between which something lies, both included; in the unit of what lies between them.
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
/// Perhaps, if `sorted` is not sorted: that is the caller's mistake.
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

    proptest! {
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
