//! Figures, times, commands and text from outside, as the page prints them.

use std::fmt::Write as _;
use std::time::Duration;

/// Stands in place of a missing figure.
pub(super) const NONE: &str = "–";

/// A unit that all figures of one kind share, so that they compare easily.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    per: f64,
    name: &'static str,
    decimals: usize,
}

impl Unit {
    /// The unit in which rates up to this one, in bit/s, are short.
    pub(super) fn of_rates(greatest: f64) -> Self {
        let units = [
            (1e10, 1e9, "Gbit/s"),
            (1e5, 1e6, "Mbit/s"),
            (1e2, 1e3, "kbit/s"),
            (0.0, 1.0, "bit/s"),
        ];
        Self::first(&units, greatest)
    }

    /// The unit in which sizes up to this one, in bytes, are short.
    pub(super) fn of_sizes(greatest: f64) -> Self {
        let units = [(1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB"), (0.0, 1.0, "bytes")];
        Self::first(&units, greatest)
    }

    /// The unit in which times up to this one, in seconds, are short.
    pub(super) fn of_times(greatest: f64) -> Self {
        Self::first(&[(1.5, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs")], greatest)
    }

    fn first(units: &[(f64, f64, &'static str)], greatest: f64) -> Self {
        let fits = units.iter().find(|(from, ..)| greatest >= *from);
        let (_, per, name) = *fits.unwrap_or(&units[units.len() - 1]);
        let decimals = match greatest / per {
            large if large >= 1000.0 => 0,
            middle if middle >= 20.0 => 1,
            _ => 2,
        };
        Self { per, name, decimals }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The figure without its unit.
    pub(super) fn figure(&self, value: f64) -> String {
        let value = value / self.per;
        match value.abs() {
            _ if !value.is_finite() => NONE.to_owned(),
            huge if huge >= 1e9 => format!("{value:.2e}"),
            // Otherwise a small value among large ones would print as zero.
            small if small > 0.0 && small < 0.5 * 0.1_f64.powi(self.places()) => {
                format!("{value:.1e}")
            }
            _ => format!("{value:.*}", self.decimals),
        }
    }

    /// The figure with its unit.
    pub(super) fn with_name(&self, value: f64) -> String {
        format!("{}\u{a0}{}", self.figure(value), self.name)
    }

    /// A figure with a unit chosen for it, to three significant digits.
    fn alone(&self, value: f64) -> String {
        let figure = number(value / self.per);
        let figure = match figure.contains('.') && !figure.contains('e') {
            true => figure.trim_end_matches('0').trim_end_matches('.'),
            false => &figure,
        };
        format!("{figure}\u{a0}{}", self.name)
    }

    /// A figure on an axis, with as many digits as it needs.
    pub(super) fn tick(&self, value: f64) -> String {
        let value = value / self.per;
        match value.abs() {
            _ if !value.is_finite() => NONE.to_owned(),
            size if size >= 1e7 || (size > 0.0 && size < 1e-4) => format!("{value:e}"),
            // Printed with six decimals, to drop the rounding error of multiples of a tenth.
            _ => format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        }
    }

    fn places(&self) -> i32 {
        i32::try_from(self.decimals).unwrap_or(0)
    }
}

/// A rate, given in bit/s, with its unit.
pub(super) fn rate(bits_per_s: f64) -> String {
    Unit::of_rates(bits_per_s).alone(bits_per_s)
}

/// A size, given in bytes, with its unit.
pub(super) fn size(bytes: f64) -> String {
    Unit::of_sizes(bytes).alone(bytes)
}

/// A time, given in seconds, with its unit.
pub(super) fn time(seconds: f64) -> String {
    Unit::of_times(seconds).alone(seconds)
}

/// A duration with its unit.
pub(super) fn duration(time: Duration) -> String {
    self::time(time.as_secs_f64())
}

/// A share, 0 to 1, in percent, to two significant digits.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let figure = match percent.abs() {
        _ if !percent.is_finite() => return NONE.to_owned(),
        0.0 => "0".to_owned(),
        huge if huge >= 1e6 => format!("{percent:.1e}"),
        large if large >= 9.95 => format!("{percent:.0}"),
        middle if middle >= 0.995 => format!("{percent:.1}"),
        small if small >= 0.0995 => format!("{percent:.2}"),
        tiny if tiny >= 0.0005 => format!("{percent:.3}"),
        _ => "< 0.001".to_owned(),
    };
    format!("{figure}\u{a0}%")
}

/// A number without unit, to three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => NONE.to_owned(),
        0.0 => "0".to_owned(),
        huge if huge >= 1e6 => format!("{value:.1e}"),
        large if large >= 99.5 => format!("{value:.0}"),
        middle if middle >= 9.95 => format!("{value:.1}"),
        small if small >= 0.005 => format!("{value:.2}"),
        _ => "< 0.01".to_owned(),
    }
}

/// A count with its noun: `1 run`, `3 runs`.
pub(super) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// The arguments of a command, quoted for bash. Invisible characters are escaped by number, so that
/// the line does what it shows.
pub(super) fn command_line(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_@%+=:,./-".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if !word.chars().any(|char| char == '\n' || is_hidden(char)) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = "$'".to_owned();
    for char in word.chars() {
        match char {
            '\'' | '\\' => quoted.extend(['\\', char]),
            _ if char == '\n' || is_hidden(char) => {
                // A string takes any text.
                let _ = write!(quoted, "\\U{:08x}", u32::from(char));
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('\'');
    quoted
}

/// The text as one line: newlines are shown by number.
pub(super) fn one_line(text: &str) -> String {
    text.replace('\n', &name_of('\n'))
}

/// Shows each invisible character, and each that changes the direction of text, by number, so that
/// text from outside cannot disguise itself.
pub(super) fn made_visible(page: &str) -> String {
    let mut visible = String::with_capacity(page.len());
    for char in page.chars() {
        if is_hidden(char) {
            visible += &name_of(char);
        } else {
            visible.push(char);
        }
    }
    visible
}

fn name_of(char: char) -> String {
    format!("⟨U+{:04X}⟩", u32::from(char))
}

/// Control characters except the newline; directional formatting characters (Unicode Standard Annex
/// 9, section 2); characters without width; tags; noncharacters.
fn is_hidden(char: char) -> bool {
    let number = u32::from(char);
    (char.is_control() && char != '\n')
        || matches!(number,
            0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f
            | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfdd0..=0xfdef
            | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff9..=0xfffb | 0xe0000..=0xe0fff)
        || number & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_kind_share_their_unit() {
        let unit = Unit::of_rates(91.7e6);
        assert_eq!(unit.with_name(57_012_118.0), "57.0\u{a0}Mbit/s");
        assert_eq!(unit.figure(5_473_176.0), "5.5");
        assert_eq!(unit.figure(0.0), "0.0");
        assert_eq!(unit.figure(7.0), "7.0e-6");
        assert_eq!(rate(912.0), "0.91\u{a0}kbit/s");
        assert_eq!(rate(12.0), "12\u{a0}bit/s");
        assert_eq!(rate(1e30), "1.0e21\u{a0}Gbit/s");
        assert_eq!(size(2_576_875.0), "2.58\u{a0}MB");
        assert_eq!(time(0.217), "217\u{a0}ms");
        assert_eq!(time(0.000_007_3), "7.3\u{a0}µs");
        assert_eq!(time(8.0), "8\u{a0}s");
    }

    #[test]
    fn what_is_no_number_is_not_printed() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(percent(odd), NONE);
            assert_eq!(number(odd), NONE);
            assert!(rate(odd).starts_with(NONE) && size(odd).starts_with(NONE));
            assert_eq!(Unit::of_times(odd).tick(odd), NONE);
        }
    }

    #[test]
    fn shares_keep_two_digits() {
        for (share, words) in [
            (0.0, "0"),
            (0.623, "62"),
            (1.0, "100"),
            (0.012_95, "1.3"),
            (0.003_5, "0.35"),
            (0.000_263, "0.026"),
            (1e-9, "< 0.001"),
        ] {
            assert_eq!(percent(share), format!("{words}\u{a0}%"));
        }
    }

    #[test]
    fn ticks_have_the_digits_that_they_need() {
        let unit = Unit::of_rates(91.7e6);
        assert_eq!(unit.tick(20e6), "20");
        assert_eq!(unit.tick(0.1e6 * 3.0), "0.3");
        assert_eq!(unit.tick(0.0), "0");
    }

    #[test]
    fn a_command_can_be_pasted() {
        let words = ["lastbyte", "lab", "a b", "it's", "", "$(rm)", "x\n\u{202e}y\\'"];
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(
            command_line(&words),
            r"lastbyte lab 'a b' 'it'\''s' '' '$(rm)' $'x\U0000000a\U0000202ey\\\''"
        );
    }

    #[test]
    fn what_hides_is_shown() {
        assert_eq!(made_visible("a\u{202e}b\u{0}c\nd"), "a⟨U+202E⟩b⟨U+0000⟩c\nd");
        assert_eq!(made_visible("\u{feff}\u{2066}\u{1b}\u{e0041}\u{ffff}").matches('⟨').count(), 5);
        assert_eq!(made_visible("שלום é 中 –\u{a0}%"), "שלום é 中 –\u{a0}%");
        assert_eq!(one_line("a\nb"), "a⟨U+000A⟩b");
    }
}
