//! Student's distribution, of the mean of a few samples.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The smallest share of both tails for which a bound is searched.
const LEAST_TAILS: f64 = 1e-14;
/// How often the search for a bound halves its range: enough for every bit.
const HALVINGS: u32 = 200;

/// The probability that a value of Student's distribution with `freedom` (at least 1) degrees of
/// freedom is at least `t` (not negative) from zero, on either side.
///
/// The finite sums of Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.3
/// and 26.7.4. They are near 1 for thin tails: the absolute error is about 1e-15, the relative one
/// may be larger.
pub(crate) fn both_tails(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan().min(FRAC_PI_2);
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    // The factors from one term to the next: 2/3, 4/5, ... or 1/2, 3/4, ..., each with cos^2.
    let first = if odd { 2 } else { 1 };
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    for above in (first..freedom.saturating_sub(2)).step_by(2) {
        term *= cos * cos * above as f64 / (above + 1) as f64;
        sum += term;
    }
    let within = if odd { FRAC_2_PI * (angle + sin * sum) } else { sin * sum };
    (1.0 - within).clamp(0.0, 1.0)
}

/// The distance from zero beyond which, on both sides together, the share `tails` of Student's
/// distribution lies.
///
/// `None` unless `tails` is below 1 and large enough to be computed, and `freedom` is above 0.
pub(crate) fn bound(tails: f64, freedom: usize) -> Option<f64> {
    if freedom == 0 || !(LEAST_TAILS..1.0).contains(&tails) {
        return None;
    }
    let mut high = 1.0;
    while both_tails(high, freedom) > tails {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if both_tails(middle, freedom) > tails {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `2 * scipy.stats.t.sf(t, freedom)`.
    #[test]
    fn known_tails() {
        for (freedom, t, tails) in [
            (1, 1.0, 0.5),
            (2, 2.5, 0.129_611_720_221_510_8),
            (3, 3.0, 0.057_668_885_622_437_3),
            (4, 12.0, 0.000_276_428_548_502_973),
            (9, 3.25, 0.009_997_369_084_021_572),
            (10, 0.5, 0.627_893_605_742_973),
            (29, 2.0, 0.054_943_634_682_967_17),
            (30, 5.0, 2.329_668_546_700_78e-5),
        ] {
            let got = both_tails(t, freedom);
            assert!((got - tails).abs() < 1e-8, "{freedom} {t}: {got}");
        }
        assert_eq!((both_tails(0.0, 4), both_tails(f64::INFINITY, 4)), (1.0, 0.0));
    }

    /// `scipy.stats.t.isf(tails / 2, freedom)`.
    #[test]
    fn known_bounds() {
        for (freedom, tails, bound_expected) in [
            (1, 0.05, 12.706_204_736_174_705),
            (4, 0.05, 2.776_445_105_197_794_3),
            (4, 2e-4, 13.033_671_720_896_455),
            (9, 0.01, 3.249_835_541_592_126_3),
            (30, 1e-6, 6.119_075_620_384_216),
        ] {
            let got = bound(tails, freedom).unwrap();
            assert!((got - bound_expected).abs() < 1e-6, "{freedom} {tails}: {got}");
        }
        for (tails, freedom) in [(0.0, 4), (1.0, 4), (f64::NAN, 4), (1e-20, 4), (0.05, 0)] {
            assert_eq!(bound(tails, freedom), None, "{tails} {freedom}");
        }
    }
}
