//! Many runs of a case: a row of the table.

use std::collections::BTreeMap;
use std::time::Duration;

use lastbyte_units::grouped;
use serde::Serialize;

use crate::case::{Bytes, Case, Expected, Group, Outcome, Pair};
use crate::end::Observed;
use crate::testbed::Testbed;

/// The results of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub case: String,
    /// What is done.
    pub does: &'static str,
    /// What is expected.
    pub expected: String,
    /// Why plain TCP does so.
    pub because: &'static str,
    /// What was observed, each kind once, with its count if there are several.
    pub seen: String,
    /// Runs that were as expected.
    pub good: u32,
    /// Runs that were played.
    pub of: u32,
    /// Of those, runs in which both ends received all required bytes, and no others.
    pub whole: u32,
    /// The first fault, and figures.
    pub note: String,
    /// Why it was not played, if it was not.
    pub not_asked: Option<&'static str>,
    /// Each run.
    pub runs: Vec<Run>,
}

impl Row {
    /// Whether all runs that were played were as expected.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.good == self.of
    }
}

/// The record of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// What was wrong; empty for a good run.
    pub faults: Vec<String>,
    /// A short description of what was observed.
    pub seen: String,
    /// Bytes that the client's kernel accepted.
    pub client_wrote: u64,
    /// Bytes that the client read.
    pub client_got: u64,
    /// Bytes that the server's kernel accepted.
    pub server_wrote: u64,
    /// Bytes that the server read.
    pub server_got: u64,
    /// From the first connect to the last end.
    pub took_ms: f64,
}

/// Plays a case several times and sums it up. After some runs that waited until their deadline the
/// others are skipped, since they would too.
///
/// Without `runs`, the case's own number applies; a case that stops the proxy is played once.
pub fn row(testbed: &Testbed, case: &Case, runs: Option<u32>) -> Row {
    let runs = match case.group {
        Group::Stop => 1,
        _ => runs.unwrap_or(case.runs),
    };
    let mut row = Row {
        case: case.name.clone(),
        does: case.does,
        expected: case.expected(),
        because: case.because,
        seen: String::new(),
        good: 0,
        of: 0,
        whole: 0,
        note: String::new(),
        not_asked: None,
        runs: Vec::new(),
    };
    let mut outcomes = Vec::new();
    let mut hung = 0;
    while row.of < runs && hung < HUNG {
        let outcome = case.play_once(testbed, row.of.into());
        if let Outcome::NotPlayed(why) = outcome {
            row.not_asked = Some(why);
            break;
        }
        let faults = case.faults(&outcome);
        row.of += 1;
        row.good += u32::from(faults.is_empty());
        row.whole += u32::from(case.is_whole(&outcome));
        hung += u32::from(!faults.is_empty() && is_stuck(&outcome));
        row.runs.push(run(case, &outcome, faults));
        outcomes.push(outcome);
    }
    if row.of == 0 {
        return row;
    }
    row.seen = kinds(&row.runs);
    row.note = note(case, &row, &outcomes);
    row
}

/// How many runs may wait until their deadline.
const HUNG: u32 = 3;

fn is_stuck(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Pair(pair) => pair.client.stuck.is_some() || pair.server.stuck.is_some(),
        Outcome::Many { .. } | Outcome::NotPlayed(_) => false,
    }
}

fn run(case: &Case, outcome: &Outcome, faults: Vec<String>) -> Run {
    match outcome {
        Outcome::Pair(pair) => {
            let Pair { client, server, took } = &**pair;
            Run {
                faults,
                seen: seen(case, client, server),
                client_wrote: client.wrote,
                client_got: client.got,
                server_wrote: server.wrote,
                server_got: server.got,
                took_ms: took.as_secs_f64() * 1e3,
            }
        }
        Outcome::Many { good, of, .. } => {
            let seen = format!("{} of {}", grouped(*good), grouped(*of));
            Run { faults, seen, ..Run::default() }
        }
        Outcome::NotPlayed(_) => Run::default(),
    }
}

/// What an end saw that something was expected of.
fn seen(case: &Case, client: &Observed, server: &Observed) -> String {
    let client_saw = format!("client {}", client.kind(server));
    let server_saw = format!("server {}", server.kind(client));
    match (case.client == Expected::NOTHING, case.server == Expected::NOTHING) {
        (false, true) => client_saw,
        (true, false) => server_saw,
        _ => format!("{client_saw}; {server_saw}"),
    }
}

/// Each kind of outcome once, the most frequent first.
fn kinds(runs: &[Run]) -> String {
    let mut counts = BTreeMap::<&str, u32>::new();
    for run in runs {
        *counts.entry(&run.seen).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match counts.as_slice() {
        [(only, _)] => (*only).to_owned(),
        several => {
            let several = several.iter().map(|(kind, count)| format!("{count}x {kind}"));
            several.collect::<Vec<_>>().join(" | ")
        }
    }
}

fn note(case: &Case, row: &Row, outcomes: &[Outcome]) -> String {
    let fault = row.runs.iter().flat_map(|run| &run.faults).next().cloned();
    let expected_bytes = [case.client.bytes, case.server.bytes].contains(&Bytes::All);
    let whole = (expected_bytes && !row.is_good())
        .then(|| format!("all bytes in {} of {}", row.whole, row.of));
    fault.into_iter().chain(whole).chain(figures(case, outcomes)).collect::<Vec<_>>().join("; ")
}

fn figures(case: &Case, outcomes: &[Outcome]) -> Vec<String> {
    let pairs: Vec<&Pair> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Pair(pair) => Some(&**pair),
            _ => None,
        })
        .collect();
    let mut figures = Vec::new();
    let mut figure = |what: &str, of: &dyn Fn(&Pair) -> Option<u64>| {
        let mut values: Vec<u64> = pairs.iter().filter_map(|pair| of(pair)).collect();
        values.sort_unstable();
        if let (Some(least), Some(most)) = (values.first(), values.last()) {
            let median = values[values.len() / 2];
            let range = if least == most {
                grouped(*least)
            } else {
                format!("{} ({} to {})", grouped(median), grouped(*least), grouped(*most))
            };
            figures.push(format!("{what} {range}"));
        }
    };
    let part = |seen: &Observed, other: &Observed| {
        (seen.got > 0 && seen.got < other.wrote).then_some(seen.got)
    };
    figure("client pushed", &|pair| pair.client.pushed);
    figure("server pushed", &|pair| pair.server.pushed);
    if matches!(case.group, Group::Early | Group::Reset | Group::Stop) {
        figure("client got", &|pair| part(&pair.client, &pair.server));
        figure("server got", &|pair| part(&pair.server, &pair.client));
    }
    if case.group == Group::Upstream {
        figure("ms", &|pair| Some(milliseconds(pair.took)));
    }
    figures
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
