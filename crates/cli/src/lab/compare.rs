//! `lastbyte lab compare`.

use anyhow::Result;
use lastbyte_lab::compare::{Change, Changes, Measure, Significance, changes};
use lastbyte_lab::file;
use serde::Serialize;

use crate::lab::words::CompareArgs;
use crate::output::{Align, Table, mbit, percent, say_json, talk};
use crate::verdict::Verdict;

/// Says what changed. The verdict: is nothing worse than before, beyond noise?
pub(crate) fn run(args: &CompareArgs) -> Result<Verdict> {
    let (before, after) = (file::read(&args.before)?, file::read(&args.after)?);
    let changes = changes(&before, &after);
    if args.json {
        for changed in &changes.settings {
            for change in &changed.measures {
                say_json(&ChangeLine::of(&changed.setting.to_string(), change))?;
            }
        }
    } else {
        tell(&changes);
    }
    warn(&changes);
    let all = || changes.settings.iter().flat_map(|changed| &changed.measures);
    anyhow::ensure!(all().next().is_some(), "the two have no subject in common");
    Ok(Verdict::from(!all().any(is_worse)))
}

fn is_worse(change: &Change) -> bool {
    match change.verdict {
        Significance::Noise => false,
        told => (told == Significance::More) != change.measure.more_is_better(),
    }
}

fn tell(changes: &Changes) {
    let columns = [
        ("", Align::Left),
        ("", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
        ("95 % interval", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for changed in &changes.settings {
        for (place, change) in changed.measures.iter().enumerate() {
            let name = if place == 0 { changed.setting.to_string() } else { String::new() };
            let value = |value| figure(change.measure, value);
            let interval = change.interval.map(|it| format!("{} to {}", by(it.low), by(it.high)));
            table.row(vec![
                name,
                words(change.measure).to_owned(),
                value(change.before.median),
                value(change.after.median),
                change.ratio.map(by).unwrap_or_default(),
                interval.unwrap_or_default(),
                verdict(change),
            ]);
        }
    }
    table.say();
}

fn warn(changes: &Changes) {
    for differences in &changes.differences {
        talk(&format!("compare: not the same: {differences}"));
    }
    for setting in &changes.unmatched {
        talk(&format!("compare: only in one of them: {setting}"));
    }
    if let Some(rounds) = changes.rounds_needed {
        let subjects = changes.settings.len();
        talk(&format!(
            "compare: with {subjects} subjects it takes {rounds} rounds of each to tell any difference \
             from noise"
        ));
    }
}

fn words(measure: Measure) -> &'static str {
    match measure {
        Measure::Received => "Mbit/s received",
        Measure::Resent => "resent",
        Measure::LoadedRtt => "RTT p95 under load",
        _ => measure.name(),
    }
}

fn figure(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Received => mbit(value),
        Measure::Resent => percent(value),
        _ => format!("{:.1} ms", value * 1e3),
    }
}

/// A ratio as a change.
fn by(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn verdict(change: &Change) -> String {
    let p = change.p_value.map(|p| format!(" (p {p:.3})")).unwrap_or_default();
    match (change.verdict, is_worse(change)) {
        (Significance::Noise, _) => format!("no more than noise{p}"),
        (_, true) => format!("worse{p}"),
        (_, false) => format!("better{p}"),
    }
}

#[derive(Serialize)]
struct ChangeLine<'a> {
    r#type: &'static str,
    subject: &'a str,
    measure: &'static str,
    before_median: f64,
    after_median: f64,
    before_runs: usize,
    after_runs: usize,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    p_value: Option<f64>,
    verdict: &'static str,
}

impl<'a> ChangeLine<'a> {
    fn of(subject: &'a str, change: &Change) -> Self {
        Self {
            r#type: "change",
            subject,
            measure: change.measure.name(),
            before_median: change.before.median,
            after_median: change.after.median,
            before_runs: change.before.n,
            after_runs: change.after.n,
            ratio: change.ratio,
            ratio_low: change.interval.map(|it| it.low),
            ratio_high: change.interval.map(|it| it.high),
            p_value: change.p_value,
            verdict: match (change.verdict, is_worse(change)) {
                (Significance::Noise, _) => "noise",
                (_, true) => "worse",
                (_, false) => "better",
            },
        }
    }
}
