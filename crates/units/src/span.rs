use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::decimal::Decimal;
use crate::text::{serde_as_text, write_in_largest};
use crate::{Quantity, UnitError};

const NANOS_PER_S: u128 = 1_000_000_000;
const UNITS: [(u128, &str); 4] = [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (NANOS_PER_S, "s")];

/// A length of time, to the nanosecond.
///
/// The units are `ns`, `us` (or `µs`), `ms`, `s`, `min` and `h`; a `0` needs none.
///
/// It is shown in the largest of ns, us, ms, s that leaves at least one before the point, exactly,
/// or rounded to the precision the format asks for: `{:.1}`.
///
/// ```
/// # use lastbyte_units::Span;
/// let span: Span = "108.5ms".parse()?;
/// assert_eq!(span.as_duration().as_micros(), 108_500);
/// assert_eq!(span.to_string(), "108.5 ms");
/// # Ok::<(), lastbyte_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The same as the standard library's type.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let decimal = Decimal::split(text, Quantity::Time)?;
        let nanos_per_unit = match decimal.unit.to_lowercase().as_str() {
            "" if decimal.number == "0" => 1,
            "ns" => 1,
            // The micro sign, whose lower case is itself, and the Greek letter.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(decimal.wrong_unit()),
        };
        from_nanos(decimal.times(nanos_per_unit)?).map(Self).ok_or_else(|| decimal.too_large())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_nanos() {
            0 => f.write_str("0 ms"),
            nanos => write_in_largest(f, nanos, &UNITS),
        }
    }
}

/// The duration of so many nanoseconds, if there is one.
pub(crate) fn from_nanos(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / NANOS_PER_S).ok()?;
    let subsecond = u32::try_from(nanos % NANOS_PER_S).ok()?;
    Some(Duration::new(seconds, subsecond))
}

serde_as_text!(Span, "a time in quotation marks, such as \"217ms\"");
