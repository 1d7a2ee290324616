//! `lastbyte changes` and `lastbyte undo`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use lastbyte_changes::{Entry, Ledger, State};

use crate::args::{ChangesArgs, UndoArgs};
use crate::output::{Align, Table, left_alone, say, say_json, talk};
use crate::verdict::Verdict;

/// Prints the ledger.
pub(crate) fn list(args: &ChangesArgs) -> Result<Verdict> {
    let ledger = Ledger::of_this_user()?;
    let entries = if args.all { ledger.changes()? } else { ledger.open_changes()? };
    if args.json {
        for entry in &entries {
            say_json(entry)?;
        }
        return Ok(Verdict::Done);
    }
    if entries.is_empty() {
        say("lastbyte has left no change on this machine");
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("state", Align::Left),
        ("age", Align::Right),
        ("change", Align::Left),
    ]);
    for entry in &entries {
        table.row(vec![entry.id.to_string(), state(entry), age(entry), entry.change.to_string()]);
    }
    table.say();
    talk(&format!("kept in {}", ledger.path().display()));
    Ok(Verdict::Done)
}

/// Takes changes back.
pub(crate) fn undo(args: &UndoArgs) -> Result<Verdict> {
    let ledger = Ledger::of_this_user()?;
    if !args.all {
        for id in &args.id {
            let entry = ledger.undo(*id, &mut left_alone)?;
            say(&format!("{}: {}", state(&entry), entry.change));
        }
        return Ok(Verdict::Done);
    }
    let report = ledger.undo_all(&mut left_alone)?;
    for entry in &report.undone {
        say(&format!("undone: {}", entry.change));
    }
    if report.undone.is_empty() && report.failed.is_empty() {
        say("lastbyte has left no change on this machine");
    }
    for (_, error) in &report.failed {
        talk(&format!("lastbyte: {error}"));
    }
    Ok(if report.failed.is_empty() { Verdict::Done } else { Verdict::Failed })
}

fn state(entry: &Entry) -> String {
    match entry.state {
        State::Planned => "planned",
        State::Made => "made",
        State::Undone => "undone",
        State::Gone => "gone",
    }
    .to_owned()
}

fn age(entry: &Entry) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    match now.saturating_sub(entry.planned_at_unix_s) {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
