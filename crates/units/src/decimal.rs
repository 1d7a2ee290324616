//! Numbers with a unit behind them, exact until the unit is applied.

use crate::{Quantity, UnitError};

/// How many digits after the point count; the rest could not change any result by a whole unit.
const FRACTION_DIGITS: usize = 18;
const FRACTION_ONE: u128 = 10_u128.pow(18);

/// A text that has been split into its number and its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal<'a> {
    /// The whole text, for errors.
    text: &'a str,
    quantity: Quantity,
    /// The number as written.
    pub(crate) number: &'a str,
    /// What follows the number, without white space around it; may be empty.
    pub(crate) unit: &'a str,
    /// The part before the point; `None` if it has no place in 128 bits.
    whole: Option<u128>,
    /// The part after the point, in units of 10^-18.
    fraction: u128,
}

impl<'a> Decimal<'a> {
    /// Splits `text` into digits, perhaps with a point and more digits, and a unit.
    pub(crate) fn split(text: &'a str, quantity: Quantity) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(UnitError::Empty { quantity });
        }
        if let Some(rest) = trimmed.strip_prefix('-')
            && rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        {
            return Err(UnitError::Negative { got: text.to_owned(), quantity });
        }
        let (whole, rest) = split_digits(trimmed);
        if whole.is_empty() {
            return Err(UnitError::NoNumber { got: text.to_owned(), quantity });
        }
        let (fraction, rest) = match rest.strip_prefix('.').map(split_digits) {
            Some((digits, rest)) if !digits.is_empty() => (digits, rest),
            _ => ("", rest),
        };
        let number = &trimmed[..trimmed.len() - rest.len()];
        Ok(Self {
            text,
            quantity,
            number,
            unit: rest.trim(),
            whole: whole_number(whole),
            fraction: fraction_number(fraction),
        })
    }

    /// The number times `multiple`, rounded to the nearest whole number, half up.
    pub(crate) fn times(self, multiple: u64) -> Result<u128, UnitError> {
        let multiple = u128::from(multiple);
        // Fits: the fraction is below 10^18 and the multiple below 2^64, together below 2^124.
        let fraction = (self.fraction * multiple + FRACTION_ONE / 2) / FRACTION_ONE;
        self.whole
            .and_then(|whole| whole.checked_mul(multiple))
            .and_then(|product| product.checked_add(fraction))
            .ok_or_else(|| self.too_large())
    }

    /// Whether the number lies above `limit`.
    pub(crate) fn exceeds(self, limit: u128) -> bool {
        self.whole.is_none_or(|whole| whole > limit || (whole == limit && self.fraction > 0))
    }

    pub(crate) fn too_large(self) -> UnitError {
        UnitError::TooLarge { got: self.text.to_owned(), quantity: self.quantity }
    }

    /// What is wrong with a unit that is not known, or not there.
    pub(crate) fn wrong_unit(self) -> UnitError {
        let (got, quantity) = (self.text.to_owned(), self.quantity);
        if self.unit.is_empty() {
            UnitError::NoUnit { got, quantity }
        } else {
            UnitError::UnknownUnit { got, unit: self.unit.to_owned(), quantity }
        }
    }
}

/// Digits at the beginning, and what follows them.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn whole_number(digits: &str) -> Option<u128> {
    digits.bytes().try_fold(0_u128, |number, digit| {
        number.checked_mul(10)?.checked_add(u128::from(digit - b'0'))
    })
}

fn fraction_number(digits: &str) -> u128 {
    let digits = digits.bytes().map(|digit| u128::from(digit - b'0'));
    digits.chain(std::iter::repeat(0)).take(FRACTION_DIGITS).fold(0, |number, d| number * 10 + d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_units_are_split() {
        for (text, number, unit) in [
            ("95mbit", "95", "mbit"),
            (" 1.5 s ", "1.5", "s"),
            ("7", "7", ""),
            ("1.", "1", "."),
            ("1..5s", "1", "..5s"),
            ("1.5.2s", "1.5", ".2s"),
            ("1,5s", "1", ",5s"),
            ("1e6s", "1", "e6s"),
            ("5\u{a0}ms", "5", "ms"),
        ] {
            let decimal = Decimal::split(text, Quantity::Time).unwrap();
            assert_eq!((decimal.number, decimal.unit), (number, unit), "{text:?}");
        }
    }

    #[test]
    fn products_are_rounded_half_up_and_never_wrap() {
        let times =
            |text: &str, multiple| Decimal::split(text, Quantity::Time).unwrap().times(multiple);
        assert_eq!(times("1.5", 1000), Ok(1500));
        assert_eq!(times("0.4999", 1), Ok(0));
        assert_eq!(times("0.5", 1), Ok(1));
        assert_eq!(times("0.0015", 1000), Ok(2));
        assert_eq!(
            times("0.9999999999999999999999999999", u64::MAX),
            Ok(18_446_744_073_709_551_597)
        );
        assert_eq!(times(&u128::MAX.to_string(), 1), Ok(u128::MAX));
        assert!(times(&u128::MAX.to_string(), 2).is_err());
        assert!(times("340282366920938463463374607431768211456", 1).is_err());
        assert!(times("340282366920938463463374607431768211455.5", 1).is_err());
    }
}
