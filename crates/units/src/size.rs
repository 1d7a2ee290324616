use std::fmt;
use std::str::FromStr;

use crate::decimal::Decimal;
use crate::text::{grouped, serde_as_text};
use crate::{Quantity, UnitError};

const BINARY: [(u64, &str); 4] =
    [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
const DECIMAL: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];

/// A number of bytes.
///
/// `KiB`, `MiB`, `GiB`, `TiB` are multiples of 1024, `kB`, `MB`, `GB`, `TB` of 1000. A letter alone,
/// `K`, `M`, `G`, `T`, is a multiple of 1024, as in iperf3. A number alone is bytes. Parts of a byte
/// are rounded to the nearest.
///
/// It is shown in the largest binary unit that divides it, `4 MiB`, or else with one digit in a
/// decimal one, `2.6 MB`; [`grouped`](Self::grouped) is always exact.
///
/// ```
/// # use lastbyte_units::ByteSize;
/// let size: ByteSize = "4M".parse()?;
/// assert_eq!(size.bytes(), 4 * 1024 * 1024);
/// assert_eq!(size.to_string(), "4 MiB");
/// assert_eq!(size.grouped(), "4,194,304");
/// # Ok::<(), lastbyte_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A size from its number of bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes with a comma between each three digits: `1,000,000`.
    #[must_use]
    pub fn grouped(self) -> String {
        grouped(self.0)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let decimal = Decimal::split(text, Quantity::Size)?;
        let multiple = match decimal.unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "pb" => 1_000_000_000_000_000,
            "eb" => 1_000_000_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(decimal.wrong_unit()),
        };
        let bytes = decimal.times(multiple)?;
        u64::try_from(bytes).map(Self).map_err(|_| decimal.too_large())
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        if bytes < 1000 {
            return write!(f, "{bytes} B");
        }
        if let Some((unit, name)) = BINARY.iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
            return write!(f, "{} {name}", bytes / unit);
        }
        let bytes = u128::from(bytes);
        let mut unit = 1_000_u128;
        let mut names = DECIMAL.iter();
        let mut name = names.next().unwrap_or(&"kB");
        // Compared as it will be rounded, so that 999,999 is shown as 1 MB and not as 1000 kB.
        while tenths(bytes, unit) >= 10_000 {
            let Some(next) = names.next() else { break };
            (unit, name) = (unit * 1000, next);
        }
        match (tenths(bytes, unit) / 10, tenths(bytes, unit) % 10) {
            (whole, 0) => write!(f, "{whole} {name}"),
            (whole, tenth) => write!(f, "{whole}.{tenth} {name}"),
        }
    }
}

fn tenths(bytes: u128, unit: u128) -> u128 {
    (bytes * 10 + unit / 2) / unit
}

serde_as_text!(ByteSize, "a size in quotation marks, such as \"128KiB\"");
