//! The live view: what was found so far, drawn anew each second, on a terminal alone.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use lastbyte_core::text::plain;
use lastbyte_doctor::{Doctor, Summary};
use terminal_size::{Height, Width, terminal_size_of};

use super::answer::{heading, summary_words};
use super::words::DoctorArgs;

const EVERY: Duration = Duration::from_secs(1);
/// A screen of its own, which leaves what was on the terminal as it was (`console_codes(4)`).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Draws, or does nothing where nobody looks.
pub(super) struct View {
    on: bool,
    drawn: Option<Instant>,
}

impl View {
    pub(super) fn new(args: &DoctorArgs) -> Self {
        let on = !args.json && io::stdout().is_terminal();
        if on {
            write(ENTER);
        }
        Self { on, drawn: None }
    }

    pub(super) fn show(&mut self, doctor: &Doctor, watched: Duration) {
        if !self.on || self.drawn.is_some_and(|drawn| drawn.elapsed() < EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let size = terminal_size_of(io::stdout());
        let (columns, rows) =
            size.map_or((80, 24), |(Width(columns), Height(rows))| (columns.into(), rows.into()));
        let mut screen = String::from("\x1b[H");
        for line in lines(doctor, watched, rows) {
            let line: String =
                plain(&line.replace(['\n', '\t'], " ")).chars().take(columns).collect();
            screen += &line;
            screen += "\x1b[K\r\n";
        }
        screen += "\x1b[J";
        write(&screen);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.on {
            write(LEAVE);
        }
    }
}

/// A terminal that is gone is no failure.
fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// At most one line fewer than the screen has: the last one would scroll.
fn lines(doctor: &Doctor, watched: Duration, rows: usize) -> Vec<String> {
    let summary = Summary::of(doctor, watched);
    let mut lines = vec![
        format!("lastbyte doctor: {} sockets; Ctrl-C ends", summary.sockets),
        summary_words(&summary),
        String::new(),
    ];
    let room = rows.saturating_sub(lines.len() + 1);
    let findings: Vec<_> =
        doctor.findings().into_iter().filter(|finding| !finding.harmless).collect();
    // Two lines each.
    let shown = findings.len().min(room / 2);
    for finding in &findings[..shown] {
        lines.push(format!("{:<6} {}", finding.code, heading(finding)));
        lines.push(format!("       {}", finding.sentence));
    }
    if shown < findings.len() {
        lines.push(format!("       and {} more", findings.len() - shown));
    }
    lines.truncate(rows.saturating_sub(1));
    lines
}
