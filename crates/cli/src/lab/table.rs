//! The table of an experiment, and what explains it.

use lastbyte_lab::{Experiment, Findings, Row};
use lastbyte_units::grouped;

use crate::output::{Align, Table, mbit, percent};

/// What the figures of a table are.
pub(crate) const COUNTED: &str =
    "Mbit/s, the receiver's bytes over the receiver's time; claimed is what write() took:";

/// One line for each subject.
pub(crate) fn table(findings: &Findings) -> Table {
    let mut columns = vec![
        ("", Align::Left),
        ("buffers", Align::Left),
        ("median", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
    ];
    let has_limit = findings.rows.iter().any(|row| row.limit_bits_per_s.is_some());
    if has_limit {
        columns.push(("of limit", Align::Right));
    }
    columns.extend([
        ("claimed", Align::Right),
        ("resent", Align::Right),
        ("held back by", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    for row in &findings.rows {
        let mut cells = vec![
            row.congestion().map_or_else(|| row.setting.to_string(), str::to_owned),
            row.buffers().map_or_else(String::new, |buffers| buffers.to_string()),
            mbit(row.received.median),
            mbit(row.received.min),
            mbit(row.received.max),
        ];
        if has_limit {
            let fill = row.limit_bits_per_s.map(|limit| percent(row.received.median / limit));
            cells.push(fill.unwrap_or_default());
        }
        cells.push(mbit(row.claimed));
        cells.push(row.resent.map_or_else(|| "?".to_owned(), percent));
        cells.push(held_back_by(row));
        table.row(cells);
    }
    table
}

fn held_back_by(row: &Row) -> String {
    let Some((limit, share)) = row.limited.first() else { return String::new() };
    format!("{} {}", limit.short(), percent(share))
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
    if let Some(limit) = findings.rows.iter().find_map(|row| row.limit_bits_per_s) {
        text += &format!("\nThe limit is {} Mbit/s: 1448 of every 1500 bytes.", mbit(limit));
    }
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
