//! The table of an experiment, and what explains it.

use lastbyte_lab::{Experiment, Findings, Row};
use lastbyte_stats::Position;
use lastbyte_units::grouped;

use crate::output::{Align, Table, mbit, percent};

/// What the figures of a table are.
pub(crate) const COUNTED: &str =
    "Mbit/s, the receiver's bytes over the receiver's time; claimed is what write() took:";

/// One line for each subject. Where the terminal is narrow, what matters least is left out.
pub(crate) fn table(findings: &Findings) -> Table {
    let mut columns = columns(findings);
    let mut table = drawn(findings, &columns);
    let room = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    while let Some(room) = room
        && table.width() > room
        && let Some(least) = columns.iter().map(|it| it.weight).min().filter(|it| *it < KEPT)
    {
        columns.retain(|column| column.weight > least);
        table = drawn(findings, &columns);
    }
    table
}

/// What a column shows, and how much it matters.
struct Column {
    heading: &'static str,
    align: Align,
    weight: u8,
    cell: fn(&Row) -> String,
}

/// Columns of this weight are never left out.
const KEPT: u8 = 9;

fn columns(findings: &Findings) -> Vec<Column> {
    let column = |heading, align, weight, cell| Column { heading, align, weight, cell };
    let any = |has: fn(&Row) -> bool| findings.rows.iter().any(has);
    let mut columns = vec![
        column("", Align::Left, KEPT, name),
        column("buffers", Align::Left, KEPT, |row| {
            row.buffers().map_or_else(String::new, |buffers| buffers.to_string())
        }),
        column("median", Align::Right, KEPT, |row| mbit(row.received.median)),
        column("min", Align::Right, 6, |row| mbit(row.received.min)),
        column("max", Align::Right, 6, |row| mbit(row.received.max)),
    ];
    if any(|row| row.limit_bits_per_s.is_some()) {
        columns.push(column("of limit", Align::Right, 7, |row| {
            let fill = row.limit_bits_per_s.map(|limit| percent(row.received.median / limit));
            fill.unwrap_or_default()
        }));
    }
    if any(|row| row.next.is_some()) {
        columns.push(column("against best", Align::Left, 5, against_best));
    }
    columns.push(column("claimed", Align::Right, 2, |row| mbit(row.claimed)));
    columns.push(column("resent", Align::Right, 8, |row| {
        row.resent.map_or_else(|| "?".to_owned(), percent)
    }));
    if any(|row| row.resent_needlessly.is_some_and(|share| share >= 0.001)) {
        columns.push(column("needlessly", Align::Right, 1, |row| {
            row.resent_needlessly.map_or_else(String::new, percent)
        }));
    }
    if any(|row| row.latency.is_some()) {
        columns.push(column("RTT p50/p95 ms", Align::Right, 4, |row| {
            let ms = |seconds: f64| format!("{:.0}", seconds * 1e3);
            let told = row.latency.as_ref();
            let words = told.map(|it| format!("{}/{}", ms(it.loaded_p50), ms(it.loaded_p95)));
            words.unwrap_or_default()
        }));
        columns.push(column("RPM", Align::Right, 3, |row| {
            let rpm = row.latency.as_ref().map(|it| format!("{:.0}", it.rpm.median));
            rpm.unwrap_or_default()
        }));
    }
    columns.push(column("held back by", Align::Left, 8, held_back_by));
    columns
}

fn drawn(findings: &Findings, columns: &[Column]) -> Table {
    let headings: Vec<(&str, Align)> =
        columns.iter().map(|column| (column.heading, column.align)).collect();
    let mut table = Table::new(&headings);
    for row in &findings.rows {
        table.row(columns.iter().map(|column| (column.cell)(row)).collect());
    }
    table
}

/// What is not said by the column of buffers.
fn name(row: &Row) -> String {
    match (row.congestion(), row.buffers()) {
        (Some(congestion), Some(buffers)) => {
            let whole = row.setting.to_string();
            let rest = whole.strip_prefix(&format!("{congestion} {buffers}")).unwrap_or_default();
            format!("{congestion}{rest}")
        }
        _ => row.setting.to_string(),
    }
}

/// By how much it is behind the best, or the best ahead of the next, with the interval of that.
fn against_best(row: &Row) -> String {
    let by = |ratio: f64| format!("{:+.0}", (ratio - 1.0) * 100.0).replace("-0", "+0");
    let spread = |low: f64, high: f64| match (by(low), by(high)) {
        (low, high) if low == high => format!("{low} %"),
        (low, high) => format!("{low} to {high} %"),
    };
    match (row.next, row.standing) {
        (Some(next), _) => match (next.position, next.interval) {
            (Position::Alike, _) => "best, with others".to_owned(),
            (_, Some(interval)) if interval.low > 0.0 => {
                let ahead = spread(1.0 / interval.high, 1.0 / interval.low);
                let open = if next.position == Position::Open { ", open" } else { "" };
                format!("ahead by {ahead}{open}")
            }
            _ => String::new(),
        },
        (None, Some(standing)) => {
            let interval = standing.interval.map(|it| spread(it.low, it.high));
            let word = match standing.position {
                Position::Alike => ", alike",
                Position::Open => ", open",
                _ => "",
            };
            interval.map(|interval| format!("{interval}{word}")).unwrap_or_default()
        }
        (None, None) => String::new(),
    }
}

/// The limit with the largest share of time, and the next where it matters too.
fn held_back_by(row: &Row) -> String {
    let mut shares = row.limited.shares();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told = shares
        .iter()
        .enumerate()
        .filter(|(place, (_, share))| *share >= if *place == 0 { f64::MIN_POSITIVE } else { 0.15 });
    let told =
        told.take(2).map(|(_, (limit, share))| format!("{} {}", limit.short(), percent(*share)));
    told.collect::<Vec<_>>().join(", ")
}

pub(crate) fn legend(experiment: &Experiment, findings: &Findings) -> String {
    let sum = |bytes: fn(&Row) -> u64| findings.rows.iter().map(bytes).sum::<u64>();
    let (written, received) = (sum(|row| row.written), sum(|row| row.received_bytes));
    let complete: usize = findings.rows.iter().map(|row| row.complete).sum();
    let mut text = format!(
        "{} bytes written, {} received; {complete} of {} runs complete and proven.",
        grouped(written),
        grouped(received),
        experiment.runs.len()
    );
    let limits: Vec<f64> = findings.rows.iter().filter_map(|row| row.limit_bits_per_s).collect();
    if let Some(limit) = limits.first().filter(|first| limits.iter().all(|limit| limit == *first)) {
        text += &format!("\nThe limit is {} Mbit/s: the payload of full packets.", mbit(*limit));
    }
    text += &how_it_ended(experiment, findings);
    for row in &findings.rows {
        // Only where the flow comes near it.
        let near = |cap: &f64| row.received.median > cap * 0.75;
        if let Some(cap) = row.cap.filter(near) {
            let (setting, cap) = (&row.setting, mbit(cap));
            text += &format!("\n{setting}: capped at {cap}, one buffer per round trip.");
        }
    }
    let lateness = experiment.runs.iter().filter_map(|run| run.link.as_ref());
    if let Some(ms) = lateness.map(|link| link.late_p99_ms).max_by(f64::total_cmp) {
        text +=
            &format!("\nThe links kept their promise: 99 % of packets at most {ms:.2} ms late.");
    }
    text
}

/// Whether the order is settled, and what that took.
fn how_it_ended(experiment: &Experiment, findings: &Findings) -> String {
    let rounds = experiment.ended.rounds;
    let most = experiment.about.rounds.most_rounds;
    match (experiment.ended.settled, findings.rows.len()) {
        (_, ..2) | (None, _) => String::new(),
        (Some(true), _) if rounds < most => {
            format!("\nThe order was settled after {rounds} of at most {most} rounds.")
        }
        (Some(true), _) => format!("\nThe order is settled, after {rounds} rounds."),
        (Some(false), _) => {
            format!("\nThe order is not settled after {rounds} rounds: see what is open.")
        }
    }
}
