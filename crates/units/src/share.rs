use std::fmt;
use std::str::FromStr;

use crate::decimal::Decimal;
use crate::text::serde_as_text;
use crate::{Quantity, UnitError};

/// A part of a whole, from nothing to all of it, such as the share of packets that are lost.
///
/// Text must have the percent sign, so that nobody has to guess whether `0.5` is a half or half a
/// percent. It is shown in percent with up to 12 significant digits.
///
/// ```
/// # use lastbyte_units::Share;
/// let share: Share = "0.034%".parse()?;
/// assert_eq!(share.fraction(), 0.00034);
/// assert_eq!(share.to_string(), "0.034 %");
/// # Ok::<(), lastbyte_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// Nothing of it.
    pub const NONE: Self = Self(0.0);
    /// All of it.
    pub const ALL: Self = Self(1.0);

    /// A share from a fraction of one.
    ///
    /// # Errors
    /// [`UnitError`] for what is below 0, above 1, or not a number.
    pub fn from_fraction(fraction: f64) -> Result<Self, UnitError> {
        let got = || format!("{}%", fraction * 100.0);
        match fraction {
            // The sum turns -0 into 0.
            0.0..=1.0 => Ok(Self(fraction + 0.0)),
            ..0.0 => Err(UnitError::Negative { got: got(), quantity: Quantity::Share }),
            1.0.. => Err(UnitError::TooLarge { got: got(), quantity: Quantity::Share }),
            _ => Err(UnitError::NoNumber { got: got(), quantity: Quantity::Share }),
        }
    }

    /// The share as a fraction of one, 0 to 1.
    #[must_use]
    pub const fn fraction(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let decimal = Decimal::split(text, Quantity::Share)?;
        if decimal.unit != "%" {
            return Err(decimal.wrong_unit());
        }
        if decimal.exceeds(100) {
            return Err(decimal.too_large());
        }
        // Read as hundredths, which rounds once; dividing by 100 would round a second time.
        let fraction = format!("{}e-2", decimal.number).parse();
        Self::from_fraction(fraction.map_err(|_| decimal.wrong_unit())?)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        // 12 digits hide what the multiplication adds: 0.00034 * 100 is 0.034000000000000002.
        let rounded = format!("{percent:.11e}").parse().unwrap_or(percent);
        match f.precision() {
            None => write!(f, "{rounded} %"),
            Some(digits) => {
                let text = format!("{rounded:.digits$}");
                let short = match text.contains('.') {
                    true => text.trim_end_matches('0').trim_end_matches('.'),
                    false => &text,
                };
                write!(f, "{short} %")
            }
        }
    }
}

serde_as_text!(Share, "a share in quotation marks, such as \"0.034%\"");
