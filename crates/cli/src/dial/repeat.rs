//! Several dials, one after the other, and what they come to.

use std::net::SocketAddr;

use anyhow::Result;
use lastbyte_core::text::in_one_line;
use lastbyte_dial::blocking::Dialer;
use lastbyte_dial::{Dialed, Timeline};
use lastbyte_stats::Summary;

use super::granted::Options;
use super::plan::{Plan, Voice};
use super::words::{Tally, ms};
use super::{end, json, undialed, warn};
use crate::output::{Align, Table, say};
use crate::verdict::Verdict;

/// Dials so often with one dialer, which so learns; each connection is ended before the next begins.
/// The verdict is that of the worst dial; after one that nothing could be tried for there is none.
pub(super) fn run(plan: &Plan, dialer: &Dialer, times: u32) -> Result<Verdict> {
    let mut rows = Vec::new();
    let mut verdict = Verdict::Done;
    let mut dials = 0;
    while dials < times && verdict != Verdict::Failed {
        dials += 1;
        let this = once(plan, dialer, dials, &mut rows)?;
        if this != Verdict::Done {
            verdict = this;
        }
    }
    match plan.voice {
        Voice::Json => rows.iter().try_for_each(|row| json::summary(row, dials))?,
        Voice::Text if !rows.is_empty() => {
            say("");
            table(&rows, dials).say();
        }
        _ => {}
    }
    Ok(verdict)
}

fn once(plan: &Plan, dialer: &Dialer, dial: u32, rows: &mut Vec<Row>) -> Result<Verdict> {
    let Dialed { stream, timeline, .. } = match plan.dial(dialer) {
        Ok(dialed) => dialed,
        Err(error) => {
            enter(rows, &error.timeline);
            match plan.voice {
                Voice::Json => json::events(&plan.host, &error.timeline, dial)?,
                Voice::Text if !error.attempts.is_empty() => {
                    say(&format!("{dial:>5}  {}", in_one_line(&error.why.to_string())));
                }
                _ => {}
            }
            return undialed(plan, &error, dial);
        }
    };
    enter(rows, &timeline);
    let options = Options::read(&stream, &plan.options.connect)?;
    match plan.voice {
        Voice::Json => {
            json::events(&plan.host, &timeline, dial)?;
            json::dialed(plan, &stream, (&timeline, dial), &options)?;
        }
        Voice::Text => say(&line(dial, &timeline)),
        Voice::Quiet => {}
    }
    if dial == 1 {
        warn(&options);
    }
    Ok(Verdict::from(end(plan, stream)))
}

/// A dial that connected, in a line.
fn line(dial: u32, timeline: &Timeline) -> String {
    let tally = Tally::of(timeline);
    let address = tally.address().map_or_else(String::new, |address| address.to_string());
    format!("{dial:>5}  {:>8.1} ms  {address}{}", ms(timeline.took), tally.how())
}

/// An address of the host.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) address: SocketAddr,
    /// In so many dials.
    pub(super) tried: u32,
    /// How long the dials took that it won, in ms.
    took_ms: Vec<f64>,
}

impl Row {
    /// So many dials.
    pub(super) fn won(&self) -> u32 {
        u32::try_from(self.took_ms.len()).unwrap_or(u32::MAX)
    }

    /// Of the times to connected in ms; `None` where it never won.
    pub(super) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.took_ms)
    }
}

fn enter(rows: &mut Vec<Row>, timeline: &Timeline) {
    let tally = Tally::of(timeline);
    let winner = tally.address();
    for address in tally.attempts {
        let row = match rows.iter().position(|row| row.address == address) {
            Some(row) => &mut rows[row],
            None => {
                rows.push(Row { address, tried: 0, took_ms: Vec::new() });
                let last = rows.len() - 1;
                &mut rows[last]
            }
        };
        row.tried += 1;
        if winner == Some(address) {
            row.took_ms.push(ms(timeline.took));
        }
    }
}

fn table(rows: &[Row], dials: u32) -> Table {
    let mut table = Table::new(&[
        ("address", Align::Left),
        ("tried", Align::Right),
        ("won", Align::Right),
        ("median ms", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
    ]);
    for row in rows {
        let summary = row.summary();
        let figure = |of: fn(&Summary) -> f64| {
            summary.as_ref().map_or_else(|| "-".to_owned(), |summary| format!("{:.1}", of(summary)))
        };
        table.row(vec![
            row.address.to_string(),
            row.tried.to_string(),
            format!("{} of {dials}", row.won()),
            figure(|summary| summary.median),
            figure(|summary| summary.min),
            figure(|summary| summary.max),
        ]);
    }
    table
}
