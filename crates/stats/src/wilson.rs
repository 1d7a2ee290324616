//! Wilson's interval of a share.

use crate::summary::Interval;

/// The normal quantile of a two-sided interval of 99 %, in standard deviations.
pub const Z_99: f64 = 2.575_829_303_548_901;

/// The interval of a share, from `hits` among `trials` (at least 1), at the normal quantile `z`.
///
/// Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of the
/// American Statistical Association 22 (1927), 209-212.
#[must_use]
pub fn wilson(hits: u64, trials: u64, z: f64) -> Interval {
    let n = trials as f64;
    wilson_of_share(hits as f64 / n, n, z)
}

/// As [`wilson`], for a share that is as certain as `n` independent trials (above 0) would make it.
#[must_use]
pub fn wilson_of_share(share: f64, n: f64, z: f64) -> Interval {
    let z2 = z * z;
    let centre = share + z2 / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    // Rounding must not exclude 0 or 1 if the share is 0 or 1.
    let low = if share <= 0.0 { 0.0 } else { (centre - half) / scale };
    let high = if share >= 1.0 { 1.0 } else { (centre + half) / scale };
    Interval { low, high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_as_in_the_literature() {
        // Newcombe 1998, table I, at 95 %.
        let Interval { low, high } = wilson(81, 263, 1.959_964);
        assert!((low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5, "{low} {high}");
        let none = wilson(0, 100, Z_99);
        assert!(none.low == 0.0 && (none.high - 0.0622).abs() < 5e-5, "{none:?}");
        assert_eq!(wilson(100, 100, Z_99).high, 1.0);
    }
}
