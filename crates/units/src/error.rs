use std::fmt;

/// How much of a wrong text an error repeats, in characters.
const SHOWN_CHARS: usize = 60;

/// What was being read when a text turned out wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantity {
    /// Bits per second: [`BitRate`](crate::BitRate).
    Rate,
    /// A part of a whole: [`Share`](crate::Share).
    Share,
    /// Bytes: [`ByteSize`](crate::ByteSize).
    Size,
    /// A length of time: [`Span`](crate::Span).
    Time,
}

impl Quantity {
    /// An example of the right thing, with its article.
    const fn example(self) -> &'static str {
        match self {
            Self::Rate => "a rate such as 95mbit or 1.5gbit",
            Self::Share => "a share such as 0.034%",
            Self::Size => "a size such as 128KiB, 2MB or 1500B",
            Self::Time => "a time such as 217ms or 1.5s",
        }
    }

    /// The values allowed.
    const fn range(self) -> &'static str {
        match self {
            Self::Rate => "a rate lies between 1bit and 18446744073709551615bit per second",
            Self::Share => "a share lies between 0% and 100%",
            Self::Size => "a size lies between 0B and 18446744073709551615B",
            Self::Time => "a time lies between 0s and 18446744073709551615s",
        }
    }

    /// The units that exist.
    const fn units(self) -> &'static str {
        match self {
            Self::Rate => "bit, kbit, mbit, gbit or tbit, each with or without /s",
            Self::Share => "%",
            Self::Size => "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, or K, M, G, T as KiB to TiB",
            Self::Time => "ns, us, ms, s, min or h",
        }
    }
}

/// The quantity's name with its article: `a rate`.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "a rate",
            Self::Share => "a share",
            Self::Size => "a size",
            Self::Time => "a time",
        })
    }
}

/// Why a text or a number is no value of its quantity.
///
/// Each is one sentence: what was got, what is wrong with it, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// There is nothing but white space.
    #[error("nothing was given: write {}", .quantity.example())]
    Empty {
        /// What was wanted.
        quantity: Quantity,
    },
    /// The value lies below zero.
    #[error("{} is negative: {}", quoted(.got), .quantity.range())]
    Negative {
        /// The text.
        got: String,
        /// What was wanted.
        quantity: Quantity,
    },
    /// The text does not begin with a number.
    #[error("{} does not begin with a number: write {}", quoted(.got), .quantity.example())]
    NoNumber {
        /// The text.
        got: String,
        /// What was wanted.
        quantity: Quantity,
    },
    /// The number stands alone.
    #[error("{} has no unit: write {}", quoted(.got), .quantity.example())]
    NoUnit {
        /// The text.
        got: String,
        /// What was wanted.
        quantity: Quantity,
    },
    /// The value lies above what is allowed.
    #[error("{} is too large: {}", quoted(.got), .quantity.range())]
    TooLarge {
        /// The text.
        got: String,
        /// What was wanted.
        quantity: Quantity,
    },
    /// What follows the number is no unit of this quantity.
    #[error(
        "{} ends in {}, which is no unit of {quantity}: the units are {}; write {}",
        quoted(.got), quoted(.unit), .quantity.units(), .quantity.example()
    )]
    UnknownUnit {
        /// The text.
        got: String,
        /// What follows the number.
        unit: String,
        /// What was wanted.
        quantity: Quantity,
    },
    /// A rate of zero.
    #[error("rate is 0: a link that carries nothing carries no test; write a rate such as 95mbit")]
    ZeroRate,
}

/// The text in quotation marks, control characters escaped, and cut where it is very long.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_got_is_escaped_and_cut() {
        assert_eq!(quoted("a\u{1b}[31m\n"), r#""a\u{1b}[31m\n""#);
        assert_eq!(quoted(&"é".repeat(SHOWN_CHARS)), format!("\"{}\"", "é".repeat(SHOWN_CHARS)));
        assert_eq!(
            quoted(&"é".repeat(SHOWN_CHARS + 1)),
            format!("\"{}\"...", "é".repeat(SHOWN_CHARS))
        );
    }
}
