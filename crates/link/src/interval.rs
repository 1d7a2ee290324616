//! The interval of a share that was counted.

/// The normal quantile of a two-sided interval of 99 %.
pub(crate) const Z_99: f64 = 2.575_829_303_548_901;

/// The interval for a share from `hits` of `trials`, at least 1, at a normal quantile (Wilson 1927).
pub(crate) fn wilson(hits: u64, trials: u64, z: f64) -> (f64, f64) {
    let n = trials as f64;
    wilson_share(hits as f64 / n, n, z)
}

/// As [`wilson`], for a share of so many trials as `n` stands for, above 0.
pub(crate) fn wilson_share(share: f64, n: f64, z: f64) -> (f64, f64) {
    let z2 = z * z;
    let centre = share + z2 / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    // At the ends rounding must not exclude what is certain to be possible.
    let low = if share <= 0.0 { 0.0 } else { (centre - half) / scale };
    let high = if share >= 1.0 { 1.0 } else { (centre + half) / scale };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_as_in_the_literature() {
        // Newcombe 1998, table I, at 95 %.
        let (low, high) = wilson(81, 263, 1.959_964);
        assert!((low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5, "{low} {high}");
        let none = wilson(0, 100, Z_99);
        assert!(none.0 == 0.0 && (none.1 - 0.0622).abs() < 5e-5, "{none:?}");
        assert_eq!(wilson(100, 100, Z_99).1, 1.0);
    }
}
