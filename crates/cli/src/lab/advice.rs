//! The recommendation in plain words and exact lines.

use std::net::IpAddr;

use lastbyte_changes::{Way, congestion_ways, machine_wide_ways};
use lastbyte_congestion::default_algorithm;
use lastbyte_lab::Share;
use lastbyte_lab::{Buffers, Confidence, Direction, Findings, Recommendation, Row};
use lastbyte_stats::Position;
use lastbyte_units::ByteSize;

use crate::output::{mbit, percent, say};

/// For whom advice is given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scope {
    /// The other host, where it is a real one.
    pub(crate) to: Option<IpAddr>,
    /// Whether lines for the whole machine are wanted.
    pub(crate) machine_wide: bool,
}

/// What to do: sentences, then lines to type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advice {
    pub(crate) sentences: Vec<String>,
    /// What to know before it is done.
    pub(crate) warnings: Vec<String>,
    pub(crate) ways: Vec<Way>,
    /// The congestion control to use, where one is advised.
    pub(crate) congestion: Option<String>,
    /// The limit to raise for the kernel's own sizing, where that is advised.
    pub(crate) buffers: Option<ByteSize>,
}

impl Advice {
    /// Prints it.
    pub(crate) fn say(&self) {
        for sentence in self.sentences.iter().chain(&self.warnings) {
            wrapped(sentence).iter().for_each(|line| say(line));
        }
        for way in &self.ways {
            let mut scope = format!("{}:", way.scope);
            for line in &way.lines {
                say(&format!("  {scope:<15}{line}"));
                scope.clear();
            }
        }
    }
}

/// A sentence in lines that fit on most terminals.
fn wrapped(sentence: &str) -> Vec<String> {
    const WIDTH: usize = 90;
    let mut lines = vec![String::new()];
    for word in sentence.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > WIDTH {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// What follows from the findings; `None` where there is nothing to choose between.
pub(crate) fn advice(findings: &Findings, scope: Scope) -> Option<Advice> {
    let told = findings.recommendation.as_ref()?;
    let mut advice = Advice::default();
    advise_congestion(&mut advice, findings, told, scope);
    if findings.rows.iter().all(|row| row.samples.len() >= lastbyte_stats::MIN_SAMPLES) {
        advise_buffers(&mut advice, findings, told, scope);
    }
    Some(advice)
}

/// A gain of less is not worth what any change costs.
const WORTH_A_CHANGE: f64 = 1.10;

fn advise_congestion(
    advice: &mut Advice,
    findings: &Findings,
    told: &Recommendation,
    scope: Scope,
) {
    let best = &findings.rows[told.best];
    let Some(next) = told.next.map(|next| &findings.rows[next]) else { return };
    let (Some(name), Some(other)) = (best.congestion(), next.congestion()) else {
        let (best, next) = (&best.setting, &next.setting);
        advice.sentences.push(match told.confidence {
            Confidence::Certain | Confidence::Likely => format!("{best} is ahead of {next}."),
            _ => format!("{best} and {next} cannot be told apart."),
        });
        return;
    };
    match told.confidence {
        Confidence::Alike => {
            advice.sentences.push(format!(
                "{name} and {other} are alike here, within 5 %: change nothing for the rate's sake."
            ));
            advice.sentences.extend(round_trips(findings, best));
        }
        Confidence::Open | Confidence::Alone => advice.sentences.push(format!(
            "{name} and {other} are too close to tell apart, or too few rounds: change nothing yet."
        )),
        Confidence::Certain | Confidence::Likely => {
            let gain = best.received.median / next.received.median;
            let little = gain < WORTH_A_CHANGE;
            let figures = format!(
                "{} Mbit/s, {} {other} ({})",
                mbit(best.received.median),
                if gain < 1.95 {
                    format!("{:.0} % more than", (gain - 1.0) * 100.0)
                } else {
                    format!("{gain:.1} times")
                },
                mbit(next.received.median)
            );
            advice.sentences.push(match (told.is_withheld(), little) {
                (true, _) => format!(
                    "{name} is faster here: {figures}. It is not advised, as nobody has measured \
                     what it does to others on the path: see --fairness."
                ),
                (false, true) => format!(
                    "{name} is ahead here, and by little: {figures}. That is hardly worth a change."
                ),
                (false, false) => format!("Use {name} at the sender: {figures}."),
            });
            if told.confidence == Confidence::Likely {
                advice.sentences.push(
                    "Each of its runs was ahead of each of the other's; too few rounds to rule out \
                     chance."
                        .to_owned(),
                );
            }
            if told.may_be_unfair {
                advice.warnings.extend(what_it_takes(best, next, &told.shares));
            }
            if !told.is_withheld() && !little {
                advise_ways(
                    advice,
                    name,
                    best.own().map(|it| it.direction).unwrap_or_default(),
                    scope,
                );
            }
        }
    }
}

/// Where subjects that carry alike are told apart by what waits behind them.
fn round_trips(findings: &Findings, best: &Row) -> Option<String> {
    /// A round trip that is so many times the other is worth a word.
    const WORTH: f64 = 1.5;
    let p95 = |row: &Row| row.latency.as_ref().map(|latency| latency.loaded_p95);
    let alike = |row: &&Row| {
        row.standing.is_some_and(|it| matches!(it.position, Position::Alike | Position::Best))
    };
    let rows = findings.rows.iter().filter(alike).filter_map(|row| Some((row, p95(row)?)));
    let (short, least) = rows.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (long, idle) = (p95(best)?, short.latency.as_ref()?.idle_p50);
    let ms = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    (long > least * WORTH).then(|| {
        format!(
            "But with {} 95 of 100 round trips beside it take at most {}, with {} {} (idle {}).",
            short.setting,
            ms(least),
            best.setting,
            ms(long),
            ms(idle)
        )
    })
}

fn advise_ways(advice: &mut Advice, name: &str, direction: Direction, scope: Scope) {
    if direction == Direction::Down {
        let how = "The sender is the far host: the change is to be made there.";
        advice.sentences.push(how.to_owned());
        return;
    }
    if default_algorithm().is_ok_and(|default| default == name) {
        advice.sentences.push(format!("({name} is this machine's default already.)"));
    }
    advice.congestion = Some(name.to_owned());
    advice.ways.extend(congestion_ways(scope.to, name));
    if scope.machine_wide {
        advice.ways.extend(machine_wide_ways(Some(name), None));
    }
}

/// What a congestion control that does not back off as cubic costs others and the path.
fn what_it_takes(best: &Row, next: &Row, shares: &[Share]) -> Vec<String> {
    let resent = |row: &Row| row.resent.map_or_else(|| "?".to_owned(), percent);
    let (name, other) = (best.congestion().unwrap_or_default(), next.congestion().unwrap_or("?"));
    let streams = best.own().map_or(1, |settings| settings.streams);
    let fair = match streams {
        1 => "half".to_owned(),
        streams => format!("{streams} of {}", streams + 1),
    };
    let mut sentences =
        vec![format!("It resends {} of its bytes ({other} {}).", resent(best), resent(next))];
    for share in shares {
        let queue = match share.queue_bdp {
            Some(bdp) => format!("with a queue of {bdp} BDP"),
            None => "over this path".to_owned(),
        };
        let (took, left) = (percent(share.share.median), percent(1.0 - share.share.median));
        sentences.push(format!(
            "Beside a flow of cubic, {queue}, {name} takes {took} and leaves it {left} ({fair} is fair; {} \
             to {} in {} rounds).",
            percent(share.share.min),
            percent(share.share.max),
            share.share.n
        ));
    }
    sentences
}

fn advise_buffers(advice: &mut Advice, findings: &Findings, told: &Recommendation, scope: Scope) {
    let best = &findings.rows[told.best];
    let rows =
        |places: &[usize]| places.iter().map(|place| &findings.rows[*place]).collect::<Vec<_>>();
    let names = |rows: &[&Row]| {
        let buffers = rows.iter().filter_map(|row| row.buffers());
        buffers.map(|buffers| buffers.to_string()).collect::<Vec<_>>().join(", ")
    };
    let say = &mut advice.sentences;
    if best.buffers() == Some(Buffers::Auto) && !told.buffers_alike.is_empty() {
        let alike = names(&rows(&told.buffers_alike));
        say.push(format!(
            "Leave the buffers to the kernel: {alike} made less than 10 % difference."
        ));
    }
    let (fixed, too_low): (Vec<&Row>, Vec<&Row>) = rows(&told.buffers_costly)
        .into_iter()
        .partition(|row| matches!(row.buffers(), Some(Buffers::Fixed(_))));
    for row in fixed {
        let Some(buffers) = row.buffers() else { continue };
        let cap = row.cap.map_or_else(String::new, |cap| {
            format!(" (one buffer per round trip is {})", mbit(cap))
        });
        let median = mbit(row.received.median);
        say.push(format!("Do not set {buffers} buffers: {median} Mbit/s{cap}."));
    }
    if too_low.is_empty() {
        return;
    }
    let (found, held) = (mbit(best.received.median), names(&too_low));
    match best.buffers() {
        Some(Buffers::AutoUpTo(limit)) => {
            say.push(format!(
                "Let the kernel size the buffers up to {limit}: {found} Mbit/s; less with {held}."
            ));
            advice.buffers = Some(limit);
            if scope.machine_wide {
                advice.ways.extend(machine_wide_ways(None, Some(limit)));
            } else {
                say.push("That is a setting of the whole machine: --machine-wide says it.".to_owned());
            }
        }
        Some(buffers) => say.push(format!(
            "With {buffers} buffers {found} Mbit/s, less with {held}: see whether a higher limit for \
             the kernel's own sizing does the same, such as --buffer auto:8MiB."
        )),
        None => {}
    }
}
