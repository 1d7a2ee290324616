//! `lastbyte link check`: what was asked of a link, and what its probes got.

use anyhow::{Result, bail};
use lastbyte_link::Scenario;
use lastbyte_link_check::{Finding, Findings, Measured, Outcome};
use lastbyte_units::{Unit, grouped};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::LinkCheckArgs;
use crate::output::{Align, Progress, Table, mbit, say, say_json, talk};
use crate::verdict::Verdict;

const SCHEMA: u32 = 1;

/// Checks the paths asked for, one after the other.
pub(super) fn run(args: &LinkCheckArgs) -> Result<Verdict> {
    let scenarios = match (args.all, args.path.scenario()?) {
        (false, _) => vec![args.path.must_have_scenario()?],
        (true, None) => Scenario::all()?,
        (true, Some(_)) => {
            bail!("--all checks the scenarios that come with lastbyte: name no path")
        }
    };
    let mut as_asked = true;
    for (number, scenario) in scenarios.iter().enumerate() {
        let findings = measure(scenario, args.path.seed)?;
        as_asked &= findings.is_as_asked();
        if args.json {
            for finding in &findings.list {
                say_json(&line(&scenario.name, finding))?;
            }
            say_json(&Summary::of(scenario, args.path.seed, &findings))?;
        } else {
            if number > 0 {
                say("");
            }
            show(scenario, args.path.seed, &findings);
        }
    }
    Ok(as_asked.into())
}

fn measure(scenario: &Scenario, seed: u64) -> Result<Findings> {
    let progress = Progress::new();
    let mut watch = |phase| progress.show(&format!("{}: measuring {phase}", scenario.name));
    Ok(lastbyte_link_check::measure(&scenario.spec, seed, &mut watch)?)
}

// --- text ---------------------------------------------------------------------------------------

fn show(scenario: &Scenario, seed: u64, findings: &Findings) {
    say(&format!("{}: {}", scenario.name, scenario.spec));
    say(&format!("probes of our own, stamped at both ends with one clock, seed {seed}"));
    say("");
    let right = Align::Right;
    let mut table = Table::new(&[
        ("what", Align::Left),
        ("way", Align::Left),
        ("asked", right),
        ("got", right),
        ("error", right),
        ("verdict", Align::Left),
        ("from", Align::Left),
    ]);
    for finding in &findings.list {
        let [asked, got, error, verdict, from] = match &finding.outcome {
            Outcome::Measured(measured) => cells(measured),
            Outcome::NotChecked(why) => ["-", "-", "-", "not checked", why].map(str::to_owned),
            Outcome::NotMeasured(why) | Outcome::TooBusy(why) => {
                ["-", "-", "-", "NOT MEASURED", why].map(str::to_owned)
            }
        };
        let way = finding.way.map_or_else(|| "both".to_owned(), |way| way.to_string());
        table.row(vec![finding.subject.to_string(), way, asked, got, error, verdict, from]);
    }
    table.say();
    say("");
    let Counts { inside, outside, not_measured, .. } = Counts::of(findings);
    match (outside, not_measured) {
        (0, 0) => say(&format!("All {inside} figures are inside their tolerances.")),
        (0, _) => say(&format!("Not proven: {not_measured} not measured, {inside} inside.")),
        _ => say(&format!("Not as asked: {outside} outside of their tolerances, {inside} inside.")),
    }
    if outside > 0 && not_measured == 0 {
        talk(
            "link: figures with an interval are outside for 1 of 100 seeds, and on a busy machine \
             probes are late: check once more, alone and with another --seed",
        );
    }
}

fn cells(measured: &Measured) -> [String; 5] {
    let Measured { unit, asked, got, low, high, basis } = measured;
    let limit = match (low.is_infinite(), high.is_infinite()) {
        (false, true) => "at most ",
        (true, false) => "at least ",
        _ => "",
    };
    let error = if limit.is_empty() { error(measured) } else { "-".to_owned() };
    let verdict = if measured.is_inside() { "inside" } else { "OUTSIDE" };
    let basis = match unit {
        Unit::Share if *asked > 0.0 && limit.is_empty() => {
            format!("{basis}; 99 % interval {} to {}", share(*low), share(*high))
        }
        _ => basis.clone(),
    };
    [format!("{limit}{}", figure(*unit, *asked)), figure(*unit, *got), error, verdict.into(), basis]
}

fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => format!("{:.2} ms", value * 1e3),
        Unit::Share => share(value),
        Unit::BitsPerS if value < 1e6 => format!("{:.3} kbit/s", value / 1e3),
        Unit::BitsPerS => format!("{} Mbit/s", mbit(value)),
        Unit::Bytes => format!("{} B", grouped(whole(value))),
        Unit::Packets if (value - value.round()).abs() > 1e-6 => format!("{value:.2}"),
        Unit::Packets => grouped(whole(value)),
    }
}

/// A share with three digits of its own, however small.
fn share(value: f64) -> String {
    let percent = value * 100.0;
    match percent {
        ..=0.0 => "0 %".to_owned(),
        ..0.01 => format!("{percent:.5} %"),
        ..1.0 => format!("{percent:.4} %"),
        _ => format!("{percent:.2} %"),
    }
}

/// In time where it is one, otherwise in percent of what was asked.
fn error(measured: &Measured) -> String {
    match measured.unit {
        Unit::Seconds => format!("{:+.2} ms", measured.error() * 1e3),
        _ if measured.asked > 0.0 => format!("{:+.2} %", measured.error() / measured.asked * 100.0),
        unit => figure(unit, measured.error()),
    }
}

fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    #[expect(clippy::cast_sign_loss, reason = "saturates")]
    let whole = value.round() as u64;
    whole
}

// --- JSON ---------------------------------------------------------------------------------------

/// A finding; the keys of its figures carry the unit.
fn line(path: &str, finding: &Finding) -> Value {
    let mut line = Map::new();
    line.insert("type".to_owned(), json!("finding"));
    line.insert("schema".to_owned(), json!(SCHEMA));
    line.insert("path".to_owned(), json!(path));
    line.insert("what".to_owned(), json!(finding.subject.to_string()));
    line.insert("way".to_owned(), json!(finding.way.map(|way| way.to_string())));
    let (verdict, why) = match &finding.outcome {
        Outcome::NotChecked(why) => ("not checked", why),
        Outcome::NotMeasured(why) | Outcome::TooBusy(why) => ("not measured", why),
        Outcome::Measured(measured) => {
            let (unit, scale) = match measured.unit {
                Unit::Seconds => ("ms", 1e3),
                Unit::Share => ("share", 1.0),
                Unit::BitsPerS => ("bits_per_s", 1.0),
                Unit::Bytes => ("bytes", 1.0),
                Unit::Packets => ("packets", 1.0),
            };
            let figures = [
                ("asked", measured.asked),
                ("got", measured.got),
                ("error", measured.error()),
                ("low", measured.low),
                ("high", measured.high),
            ];
            for (name, value) in figures {
                // Without a bound on one side it is null.
                line.insert(format!("{name}_{unit}"), json!(value * scale));
            }
            (if measured.is_inside() { "inside" } else { "outside" }, &measured.basis)
        }
    };
    line.insert("verdict".to_owned(), json!(verdict));
    line.insert("from".to_owned(), json!(why));
    Value::Object(line)
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    schema: u32,
    path: String,
    spec: String,
    seed: u64,
    #[serde(flatten)]
    counts: Counts,
    as_asked: bool,
}

impl Summary {
    fn of(scenario: &Scenario, seed: u64, findings: &Findings) -> Self {
        Self {
            r#type: "summary",
            schema: SCHEMA,
            path: scenario.name.clone(),
            spec: scenario.spec.to_string(),
            seed,
            counts: Counts::of(findings),
            as_asked: findings.is_as_asked(),
        }
    }
}

/// How many findings came out how.
#[derive(Debug, Default, Serialize)]
struct Counts {
    inside: u32,
    outside: u32,
    not_checked: u32,
    not_measured: u32,
}

impl Counts {
    fn of(findings: &Findings) -> Self {
        let mut counts = Self::default();
        for finding in &findings.list {
            *match &finding.outcome {
                Outcome::Measured(measured) if measured.is_inside() => &mut counts.inside,
                Outcome::Measured(_) => &mut counts.outside,
                Outcome::NotChecked(_) => &mut counts.not_checked,
                Outcome::NotMeasured(_) | Outcome::TooBusy(_) => &mut counts.not_measured,
            } += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastbyte_link::Way;
    use lastbyte_link_check::Subject;

    fn measured(unit: Unit, asked: f64, got: f64, high: f64) -> Measured {
        Measured { unit, asked, got, low: got, high, basis: "10 packets".to_owned() }
    }

    #[test]
    fn figures_have_their_units() {
        let delay = cells(&measured(Unit::Seconds, 0.217, 0.2171, 0.3));
        assert_eq!(delay[..4], ["217.00 ms", "217.10 ms", "+0.10 ms", "OUTSIDE"]);
        let limit = cells(&measured(Unit::Seconds, 0.001, 0.0001, f64::INFINITY));
        assert_eq!(limit[..4], ["at most 1.00 ms", "0.10 ms", "-", "inside"]);
        let overtaken =
            Measured { low: f64::NEG_INFINITY, ..measured(Unit::Packets, 1.0, 7.0, 7.0) };
        assert_eq!(cells(&overtaken)[..4], ["at least 1", "7", "-", "inside"]);
        let row = cells(&measured(Unit::Packets, 5.0, 5.031, 6.0));
        assert_eq!(row[..3], ["5", "5.03", "+0.62 %"]);
        let loss = cells(&measured(Unit::Share, 0.000_34, 0.000_3, 0.000_6));
        let interval = "10 packets; 99 % interval 0.0300 % to 0.0600 %";
        assert_eq!(loss, ["0.0340 %", "0.0300 %", "-11.76 %", "inside", interval]);
        let bytes = cells(&measured(Unit::Bytes, 15_000.0, 15_000.0, 15_000.0));
        assert_eq!(bytes[..4], ["15,000 B", "15,000 B", "+0.00 %", "inside"]);
        assert_eq!(figure(Unit::BitsPerS, 64_000.0), "64.000 kbit/s");
    }

    #[test]
    fn keys_carry_their_units() {
        let outcome = Outcome::Measured(measured(Unit::Seconds, 0.001, 0.0001, f64::INFINITY));
        let finding = Finding { subject: Subject::Delay, way: Some(Way::Up), outcome };
        let line = line("test", &finding);
        assert_eq!((&line["asked_ms"], &line["high_ms"]), (&json!(1.0), &Value::Null));
        assert_eq!((&line["what"], &line["way"]), (&json!("delay"), &json!("up")));
    }
}
