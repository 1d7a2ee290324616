//! What samples show of the distribution that they were drawn from.

use lastbyte_stats::Z_99;

/// The share of links that do what was asked of which a figure that rests on chance is nevertheless
/// outside, each figure by itself: intervals are those of 99 %. With the same seed and path the answer
/// is always the same.
pub(crate) const DOUBT: f64 = 0.01;

/// The middle of a list; 0 of an empty one.
pub(crate) fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    if list.is_empty() { 0.0 } else { at_share(&list, 0.5) }
}

/// The value below which a share of a sorted, non-empty list lies.
pub(crate) fn at_share(sorted: &[f64], share: f64) -> f64 {
    sorted[whole(sorted.len() as f64 * share).min(sorted.len() - 1)]
}

/// How far the distribution of independent samples may be from the one that they were drawn from, at
/// the farthest and in 99 of 100 cases, as a share (Dvoretzky, Kiefer and Wolfowitz 1956, with the
/// constant of Massart 1990).
pub(crate) fn farthest_99(samples: usize) -> f64 {
    ((2.0 / DOUBT).ln() / (2.0 * samples as f64)).sqrt()
}

/// The samples of a sorted, non-empty list between which a quantile lies in 99 of 100 cases, whatever
/// the distribution (David and Nagaraja, Order Statistics, section 7.1), by the normal approximation
/// of the binomial; without a bound where there are too few.
pub(crate) fn quantile_99(sorted: &[f64], share: f64) -> (f64, f64) {
    let (low, high) = ranks_99(sorted.len(), share);
    let at = |rank: Option<usize>| rank.and_then(|rank| sorted.get(rank)).copied();
    (at(low).unwrap_or(f64::NEG_INFINITY), at(high).unwrap_or(f64::INFINITY))
}

fn ranks_99(samples: usize, share: f64) -> (Option<usize>, Option<usize>) {
    let mean = samples as f64 * share;
    let half = Z_99 * (mean * (1.0 - share)).sqrt();
    let low = (mean - half).floor() - 1.0;
    let high = (mean + half).ceil();
    ((low >= 0.0).then(|| whole(low)), (high < samples as f64).then(|| whole(high)))
}

/// The share of a normal distribution below this many standard deviations (Abramowitz and Stegun 1964,
/// formula 7.1.26, to 1.5e-7).
pub(crate) fn normal_below(deviations: f64) -> f64 {
    let x = deviations.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let poly = terms.iter().fold(0.0, |sum, term| (sum + term) * t);
    let erf = 1.0 - poly * (-x * x).exp();
    (1.0 + erf.copysign(deviations)) / 2.0
}

fn whole(value: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "an index of a list, or saturates")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let whole = value as usize;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_as_in_its_tables() {
        for (deviations, share) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998), (6.0, 1.0)] {
            assert!((normal_below(deviations) - share).abs() < 1e-6, "{deviations}");
        }
    }

    #[test]
    fn quantiles_lie_between_samples() {
        // Of 100 the exact binomial interval of the median at 99 % is that of samples 37 and 64
        // (Conover 1999, table A3 gives 50 -+ 13): ours may be one wider.
        assert_eq!(ranks_99(100, 0.5), (Some(36), Some(63)));
        assert_eq!(ranks_99(100, 0.05), (None, Some(11)));
        assert_eq!(ranks_99(20, 0.95), (Some(15), None));
        assert_eq!(quantile_99(&[1.0, 2.0], 0.5), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn farther_than_that_is_rare() {
        // Massart's bound at 1 %: 1.6276 / sqrt(n), which is also Kolmogorov's limit.
        assert!((farthest_99(100) - 0.162_76).abs() < 1e-4);
        assert!((farthest_99(1000) - 0.051_47).abs() < 1e-4);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!((median(vec![]), median(vec![3.0, 1.0, 2.0])), (0.0, 2.0));
    }
}
