use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use crate::decimal::Decimal;
use crate::text::{serde_as_text, write_in_largest};
use crate::{Quantity, UnitError};

const NANOS_PER_S: u128 = 1_000_000_000;
const UNITS: [(u128, &str); 5] = [
    (1, "bit/s"),
    (1_000, "kbit/s"),
    (1_000_000, "Mbit/s"),
    (1_000_000_000, "Gbit/s"),
    (1_000_000_000_000, "Tbit/s"),
];

/// How many bits a link carries in a second; never zero.
///
/// Multiples are decimal, as everywhere in networking: `1kbit` is 1000 bits per second. A rate is
/// kept as a whole number of bits per second, to which its text is rounded.
///
/// It is shown with the largest unit that leaves at least one before the point, exactly, or rounded
/// to the precision the format asks for: `{:.1}`.
///
/// ```
/// # use lastbyte_units::BitRate;
/// let rate: BitRate = "95mbit".parse()?;
/// assert_eq!(rate.bits_per_s(), 95_000_000);
/// assert_eq!(rate.to_string(), "95 Mbit/s");
/// # Ok::<(), lastbyte_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(NonZeroU64);

impl BitRate {
    /// A rate from its number of bits per second.
    ///
    /// # Errors
    /// [`UnitError::ZeroRate`] for zero.
    pub fn from_bits_per_s(bits: u64) -> Result<Self, UnitError> {
        NonZeroU64::new(bits).map(Self).ok_or(UnitError::ZeroRate)
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits_per_s(self) -> u64 {
        self.0.get()
    }

    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_s(self) -> f64 {
        self.bits_per_s() as f64 / 8.0
    }

    /// The time after which the last bit of `bytes` has left, rounded up to whole nanoseconds.
    ///
    /// Exact, but for times longer than [`Duration::MAX`], which are given as that.
    #[must_use]
    pub fn time_to_send(self, bytes: u64) -> Duration {
        // Fits: 2^64 bytes of 2^3 bits times 2^30 is below 2^128.
        let nanos = (u128::from(bytes) * 8 * NANOS_PER_S).div_ceil(u128::from(self.bits_per_s()));
        crate::span::from_nanos(nanos).unwrap_or(Duration::MAX)
    }

    /// The whole bytes that leave within `time`, rounded down.
    ///
    /// Exact, but for more than [`u64::MAX`] bytes, which are given as that.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let rate = u128::from(self.bits_per_s());
        // Fits: the product of two numbers below 2^64.
        let bits = rate * u128::from(time.as_secs());
        // What does not fit here is more than 2^64 bytes by far.
        bits.checked_mul(NANOS_PER_S)
            .and_then(|product| product.checked_add(rate * u128::from(time.subsec_nanos())))
            .and_then(|product| u64::try_from(product / (8 * NANOS_PER_S)).ok())
            .unwrap_or(u64::MAX)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let decimal = Decimal::split(text, Quantity::Rate)?;
        let unit = decimal.unit.to_ascii_lowercase();
        let multiple = match unit.strip_suffix("/s").unwrap_or(&unit) {
            "bit" => 1,
            "kbit" => 1_000,
            "mbit" => 1_000_000,
            "gbit" => 1_000_000_000,
            "tbit" => 1_000_000_000_000,
            _ => return Err(decimal.wrong_unit()),
        };
        let bits = decimal.times(multiple)?;
        Self::from_bits_per_s(u64::try_from(bits).map_err(|_| decimal.too_large())?)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in_largest(f, self.bits_per_s().into(), &UNITS)
    }
}

serde_as_text!(BitRate, "a rate in quotation marks, such as \"95mbit\"");
