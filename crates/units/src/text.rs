//! What all values have in common as text.

use std::fmt;

/// A whole number with a comma between each three digits: `1,000,000`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes `number` in the largest of `units` that leaves at least one before the point, or in the
/// first, without trailing zeros: exactly, or rounded half up to as many digits after the point as
/// the format asks for. `units` are powers of ten with their names, smallest first.
pub(crate) fn write_in_largest(
    f: &mut fmt::Formatter<'_>,
    number: u128,
    units: &[(u128, &str)],
) -> fmt::Result {
    let fits = units.iter().rev().find(|(unit, _)| *unit <= number);
    let Some((unit, name)) = fits.or_else(|| units.first()) else { return Err(fmt::Error) };
    let all_digits = unit.ilog10();
    let digits = f.precision().and_then(|p| u32::try_from(p).ok()).unwrap_or(all_digits);
    let digits = digits.min(all_digits);
    let step = 10_u128.pow(all_digits - digits);
    // Cannot overflow: numbers here are times in ns and rates in bit/s, far below 2^128.
    let steps = (number + step / 2) / step;
    let one = unit / step;
    let (whole, fraction) = (steps / one, steps % one);
    if fraction == 0 {
        return write!(f, "{whole} {name}");
    }
    let fraction = format!("{fraction:0width$}", width = digits as usize);
    write!(f, "{whole}.{} {name}", fraction.trim_end_matches('0'))
}

/// Lets a type pass through serde as its text.
macro_rules! serde_as_text {
    ($type:ty, $wanted:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($wanted)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

pub(crate) use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (999_999, "999,999"),
            (1_000_000, "1,000,000"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
