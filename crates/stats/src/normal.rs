//! The normal distribution, which the standard library lacks.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Where the power series is replaced by the continued fraction: both are exact to about 11 digits
/// there.
const SERIES_LIMIT: f64 = 3.0;
const SERIES_TERMS: u32 = 80;
const FRACTION_TERMS: u32 = 80;

/// The probability that a standard normal value is at least `z` (not negative) from zero, on either
/// side.
pub(crate) fn both_tails(z: f64) -> f64 {
    erfc(z * FRAC_1_SQRT_2).clamp(0.0, 1.0)
}

/// The complementary error function for `x >= 0`: Abramowitz and Stegun, "Handbook of Mathematical
/// Functions" (1964), 7.1.6 below [`SERIES_LIMIT`] and 7.1.14 above.
fn erfc(x: f64) -> f64 {
    let bell = (-x * x).exp() / PI.sqrt();
    if x < SERIES_LIMIT {
        // erf x = 2 bell (x + 2 x^3 / 3 + 4 x^5 / 15 + ...)
        let mut term = x;
        let mut sum = x;
        for n in 1..SERIES_TERMS {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        1.0 - 2.0 * bell * sum
    } else {
        // erfc x = bell / (x + (1/2) / (x + 1 / (x + (3/2) / (x + 2 / (x + ...)))))
        let denominator =
            (1..=FRACTION_TERMS).rev().fold(x, |tail, n| x + f64::from(n) / 2.0 / tail);
        bell / denominator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Python's `math.erfc`.
    #[test]
    fn known_values() {
        for (x, value) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (2.999_999_999, 2.209_049_713_783_85e-5),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_035e-12),
            (10.0, 2.088_487_583_762_545e-45),
        ] {
            let got = erfc(x);
            assert!((got - value).abs() <= value * 1e-9, "erfc({x}) = {got:e}");
        }
        assert!((both_tails(1.959_963_984_540_054) - 0.05).abs() < 1e-12);
        assert_eq!(both_tails(f64::INFINITY), 0.0);
    }
}
