//! Numbers for sentences, formatted the same way by every rule.

use std::collections::BTreeMap;

use crate::finding::Evidence;
use crate::text;

/// A payload rate in bits: `17.7 Mbit/s`.
pub(super) fn rate(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    match bits {
        _ if bits >= 1e9 => format!("{} Gbit/s", three_digits(bits / 1e9)),
        _ if bits >= 1e6 => format!("{} Mbit/s", three_digits(bits / 1e6)),
        _ => format!("{} kbit/s", three_digits(bits / 1e3)),
    }
}

/// A measured rate, rounded to a whole number: `51,204`.
pub(super) fn rounded(number: f64) -> String {
    text::count(format!("{number:.0}").parse().unwrap_or(u64::MAX))
}

/// A time: `50 ms`.
pub(super) fn microseconds(us: u32) -> String {
    text::time(u64::from(us) * 1_000)
}

/// A share of 0 to 1 as a percentage: `97 %`; small shares have more digits.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 9.95 => format!("{percent:.0} %"),
        percent => format!("{} %", three_digits(percent)),
    }
}

/// A count over a time as a rate per second; 0 if there was no time.
pub(super) fn per_second(count: u64, over_ns: u64) -> f64 {
    if over_ns == 0 { 0.0 } else { count as f64 * 1e9 / over_ns as f64 }
}

/// A part of a whole, 0 to 1; 0 if the whole is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// Named evidence.
pub(super) fn evidence<const N: usize>(pairs: [(&str, Evidence); N]) -> BTreeMap<String, Evidence> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Three significant digits at most: `0.34`, `17.7`, `208`, `4.1`.
fn three_digits(number: f64) -> String {
    let text = match number {
        _ if number >= 99.95 => return rounded(number),
        _ if number >= 0.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    };
    match text.strip_suffix(".0") {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(rate(2_212_500.0), "17.7 Mbit/s");
        assert_eq!(rate(26_000_000.0), "208 Mbit/s");
        assert_eq!(rate(250_000_000.0), "2 Gbit/s");
        assert_eq!(rate(0.0), "0.00 kbit/s");
        assert_eq!(microseconds(50_200), "50 ms");
        assert_eq!(rounded(51_203.7), "51,204");
        assert_eq!(percent(0.97), "97 %");
        assert_eq!(percent(0.002), "0.20 %");
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(per_second(5, 0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(share(5, 0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(share(5, 4).to_bits(), 1.0_f64.to_bits());
    }
}
