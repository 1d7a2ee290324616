//! Where text goes: answers to stdout, talk to stderr, both only here.

use std::io::{self, IsTerminal, Write};

use lastbyte_core::text::plain;
use serde::Serialize;

/// Prints a line of the answer. When nobody reads it any more (`| head`), the program ends quietly.
pub(crate) fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let printed = writeln!(stdout, "{}", plain(line.trim_end())).and_then(|()| stdout.flush());
    match printed {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            talk(&format!("lastbyte: cannot write the answer: {error}"));
            std::process::exit(2);
        }
    }
}

/// Prints a value as a line of JSON.
pub(crate) fn say_json(value: &impl Serialize) -> anyhow::Result<()> {
    say(&serde_json::to_string(value)?);
    Ok(())
}

/// Prints a line of talk. That nobody may hear it is no failure.
pub(crate) fn talk(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(line));
}

/// Says what a way back left alone, as somebody has changed it since, or could not take back.
pub(crate) fn left_alone(what: &str) {
    talk(&format!("lastbyte: {what}"));
}

/// A line on the terminal that says what is going on, and is wiped by the next. Nothing where
/// stderr is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    pub(crate) fn show(&self, line: &str) {
        if self.shown {
            // Longer than a line could not be wiped.
            let line: String = plain(line).chars().filter(|one| *one != '\n').take(78).collect();
            let _ = write!(io::stderr().lock(), "\r\x1b[K{line}");
        }
    }

    pub(crate) fn wipe(&self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Where the width is not known.
const USUAL_WIDTH: usize = 80;
/// The least and the most that is drawn for.
const WIDTHS: std::ops::RangeInclusive<usize> = 20..=160;

/// How wide a line may be: `COLUMNS`, or the terminal's width.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || {
        let size = terminal_size::terminal_size_of(io::stdout());
        size.map(|(terminal_size::Width(width), _)| usize::from(width))
    };
    let width = columns.or_else(terminal).unwrap_or(USUAL_WIDTH);
    width.clamp(*WIDTHS.start(), *WIDTHS.end())
}

/// With less room beside the margin, there is none.
const LEAST_ROOM: usize = 20;

/// Breaks a line at its spaces, and sets what follows in by so much. A word stays whole, so that an
/// address can be copied.
pub(crate) fn wrap(text: &str, margin: usize, width: usize) -> Vec<String> {
    let (head, rest) = text.split_at_checked(margin).unwrap_or((text, ""));
    let margin = if width < margin + LEAST_ROOM { 2 } else { margin };
    let mut lines = vec![head.to_owned()];
    let mut begun = false;
    for word in rest.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        if begun && !fits {
            lines.push(format!("{:margin$}{word}", ""));
        } else {
            if begun {
                line.push(' ');
            }
            line.push_str(word);
        }
        begun = true;
    }
    lines
}

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table of aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(Align, usize)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading line.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let mut table = Self {
            columns: columns.iter().map(|(_, align)| (*align, 0)).collect(),
            rows: Vec::new(),
        };
        table.row(columns.iter().map(|(heading, _)| (*heading).to_owned()).collect());
        table
    }

    /// Adds a row; cells beyond the columns are dropped.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        for ((_, width), cell) in self.columns.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Prints it as an answer.
    pub(crate) fn say(&self) {
        for line in self.lines() {
            say(&line);
        }
    }

    /// How wide it is, in characters.
    pub(crate) fn width(&self) -> usize {
        self.lines().map(|line| line.chars().count()).max().unwrap_or_default()
    }

    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.rows.iter().map(|row| {
            let cells = row.iter().zip(&self.columns).map(|(cell, (align, width))| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
    }
}

/// A rate in Mbit/s with as many digits as it deserves.
pub(crate) fn mbit(bits_per_s: f64) -> String {
    let mbit = bits_per_s / 1e6;
    match mbit {
        ..10.0 => format!("{mbit:.2}"),
        10.0..1000.0 => format!("{mbit:.1}"),
        _ => format!("{mbit:.0}"),
    }
}

/// A share in percent, with as many digits as it deserves.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 {
        format!("{percent:.0} %")
    } else if percent >= 0.095 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.2} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a longer name".to_owned(), "7".to_owned()]);
        table.row(vec!["x".to_owned(), "1,000".to_owned()]);
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(lines, ["name               n", "a longer name      7", "x              1,000"]);
    }

    #[test]
    fn figures_have_three_digits_or_so() {
        assert_eq!([mbit(2.36e6), mbit(56.7e6), mbit(1.5e9)], ["2.36", "56.7", "1500"]);
        assert_eq!(
            [percent(0.0), percent(0.000_34), percent(0.0123), percent(0.62)],
            ["0 %", "0.03 %", "1.2 %", "62 %"]
        );
    }

    #[test]
    fn lines_are_broken_at_spaces_alone() {
        let text = "     0.1 ms  AAAA: 2001:db8::1, 2001:db8:1234:5678:9abc:def0:1234:5678, ::1";
        assert_eq!(
            wrap(text, 13, 40),
            [
                "     0.1 ms  AAAA: 2001:db8::1,",
                "             2001:db8:1234:5678:9abc:def0:1234:5678,",
                "             ::1",
            ]
        );
        assert_eq!(wrap("one two three", 0, 20), ["one two three"]);
        assert_eq!(wrap("one two three four five", 0, 20), ["one two three four", "five"]);
        assert_eq!(wrap("", 0, 20), [""]);
    }
}
