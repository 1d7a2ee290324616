//! Numbers and names, formatted for sentences.

use lastbyte_core::text::plain;
/// A number in groups of three digits: `1,618,864`.
pub(crate) use lastbyte_units::grouped as count;

use crate::finding::About;

/// `1 byte`, `4,096 bytes`.
pub(crate) fn bytes(number: u64) -> String {
    match number {
        1 => "1 byte".to_owned(),
        _ => format!("{} bytes", count(number)),
    }
}

/// A time as people write it: `0.3 ms`, `43 ms`, `1.2 s`, `108 s`.
pub(crate) fn time(ns: u64) -> String {
    /// From here on, tenths are noise.
    const WHOLE: u64 = 10;
    let milliseconds = ns / 1_000_000;
    match milliseconds {
        0..WHOLE => format!("{}.{} ms", milliseconds, ns / 100_000 % 10),
        WHOLE..1_000 => format!("{milliseconds} ms"),
        1_000..10_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds / 100 % 10),
        _ => format!("{} s", milliseconds / 1_000),
    }
}

/// A process: `iperf3 (4711)`. Its name may contain any characters; the result is one line.
pub(crate) fn who(about: &About) -> String {
    match (&about.name, about.pid) {
        (Some(name), Some(pid)) if !name.is_empty() => format!("{} ({pid})", one_line(name)),
        (_, Some(pid)) => format!("process {pid}"),
        _ => "a program".to_owned(),
    }
}

/// A measured number, rounded to a whole one.
fn count_of(number: f64) -> String {
    let text = format!("{number:.0}");
    text.parse().map_or(text, count)
}

/// Two or three significant digits: `0.012`, `1.2`, `123`.
pub(crate) fn few_digits(number: f64) -> String {
    match number {
        10.0.. => count_of(number),
        0.1.. => format!("{number:.1}"),
        0.0 => "0".to_owned(),
        _ => format!("{number:.3}"),
    }
}

/// Foreign text as part of a sentence: one line, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t', '\u{2028}', '\u{2029}'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_as_persons_write_them() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_618_864), "1,618,864");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(time(300_000), "0.3 ms");
        assert_eq!(time(43_900_000), "43 ms");
        assert_eq!(time(1_250_000_000), "1.2 s");
        assert_eq!(time(108_000_000_000), "108 s");
        assert_eq!(time(u64::MAX), "18446744073 s");
    }

    #[test]
    fn measured_numbers_have_the_digits_that_matter() {
        assert_eq!([0.0, 1_234.6].map(few_digits), ["0", "1,235"]);
    }

    #[test]
    fn a_hostile_name_cannot_leave_its_sentence() {
        let hostile = About {
            pid: Some(7),
            name: Some("a\n\u{1b}[2J\u{202e}b".to_owned()),
            ..About::default()
        };
        assert_eq!(who(&hostile), "a \u{FFFD}[2J\u{FFFD}b (7)");
        assert_eq!(who(&About { pid: Some(7), ..About::default() }), "process 7");
        assert_eq!(who(&About::default()), "a program");
    }
}
