//! `lastbyte quiz`.

use anyhow::Result;
use lastbyte_core::End;
use lastbyte_lab::Path;
use lastbyte_lab::quiz::{self, Method, Outcome};
use lastbyte_units::grouped;
use serde::Serialize;

use crate::args::{MethodWord, QuizArgs};
use crate::output::{Align, Progress, Table, say, say_json};
use crate::verdict::Verdict;

/// Plays the quiz and prints what became of the bytes. The verdict is about `finish`: did all of
/// its runs deliver everything?
pub(crate) fn run(args: &QuizArgs) -> Result<Verdict> {
    let scenario = args.path.scenario()?;
    let place = match &scenario {
        None => "loopback".to_owned(),
        Some(scenario) => format!("{} ({})", scenario.name, scenario.spec),
    };
    let usual = if scenario.is_some() { 10 } else { 1 };
    let at_once = args.at_once.unwrap_or(usual) as usize;
    let path = scenario.map_or(Path::Loopback, |scenario| Path::Link(Box::new(scenario)));
    let bytes = usize::try_from(args.bytes.bytes())?;
    let runs = args.runs as usize;

    let progress = Progress::new();
    let mut results = Vec::new();
    for method in methods(&args.method) {
        progress.show(&format!("{method}: {runs} runs"));
        let path = path.up(args.path.seed)?;
        results.push((method, quiz::play(&path, method, bytes, (runs, at_once))?));
    }
    progress.wipe();

    if args.json {
        for (method, outcomes) in &results {
            print_json(*method, outcomes)?;
        }
    } else {
        say(&format!("{} bytes written, a greeting unread, over {place}", args.bytes.grouped()));
        say("");
        table(&results).say();
    }
    let proven = |(method, outcomes): &(Method, Vec<Outcome>)| {
        *method != Method::Finish || outcomes.iter().all(is_proven)
    };
    Ok(Verdict::from(results.iter().all(proven)))
}

fn methods(words: &[MethodWord]) -> Vec<Method> {
    if words.is_empty() {
        return Method::ALL.to_vec();
    }
    let method = |word: &MethodWord| match word {
        MethodWord::Close => Method::Close,
        MethodWord::Linger => Method::Linger,
        MethodWord::Sendfile => Method::SendFile,
        MethodWord::Shutdown => Method::ShutdownRead,
        MethodWord::Finish => Method::Finish,
    };
    words.iter().map(method).collect()
}

/// Every byte arrived, and the receipt says so.
fn is_proven(outcome: &Outcome) -> bool {
    let receipt = outcome.receipt.is_some_and(|receipt| receipt.acked == Some(outcome.written));
    outcome.is_complete() && receipt
}

/// What became of the runs of each way.
pub(crate) fn table(results: &[(Method, Vec<Outcome>)]) -> Table {
    let mut table = Table::new(&[
        ("ended by", Align::Left),
        ("whole", Align::Right),
        ("bytes lost", Align::Right),
        ("median got", Align::Right),
        ("least got", Align::Right),
        ("reader saw", Align::Left),
        ("writer was told", Align::Left),
    ]);
    for (method, outcomes) in results {
        let mut arrived: Vec<u64> = outcomes.iter().map(|outcome| outcome.arrived).collect();
        arrived.sort_unstable();
        let figure = |place: usize| arrived.get(place).map_or_else(String::new, |n| grouped(*n));
        let of = |count: usize| format!("{count} of {}", outcomes.len());
        table.row(vec![
            method.to_string(),
            of(outcomes.iter().filter(|run| run.is_complete()).count()),
            of(outcomes.iter().filter(|run| run.arrived < run.written).count()),
            figure(arrived.len() / 2),
            figure(0),
            what_readers_saw(outcomes),
            what_writers_were_told(outcomes),
        ]);
    }
    table
}

fn what_readers_saw(outcomes: &[Outcome]) -> String {
    let ends = [("FIN", Some(End::Fin)), ("RST", Some(End::Reset)), ("no end", None)];
    let seen = ends.map(|(name, end)| (name, outcomes.iter().filter(|run| run.end == end).count()));
    let seen = seen.iter().filter(|(_, count)| *count > 0);
    seen.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn what_writers_were_told(outcomes: &[Outcome]) -> String {
    let proven = outcomes.iter().filter(|run| is_proven(run)).count();
    match (proven, outcomes.iter().filter(|run| run.sender_saw_error).count()) {
        (0, 0) => "nothing".to_owned(),
        (0, failed) => format!("failed {failed}"),
        (proven, 0) => format!("acked {proven}"),
        (proven, failed) => format!("acked {proven}, failed {failed}"),
    }
}

/// A run of the quiz in JSON.
#[derive(Serialize)]
struct JsonRun {
    r#type: &'static str,
    schema: u32,
    ended_by: String,
    written_bytes: u64,
    arrived_bytes: u64,
    reader_saw: Option<String>,
    acked_bytes: Option<u64>,
    level: Option<String>,
    writer_was_told_of_failure: bool,
    took_s: f64,
}

fn print_json(method: Method, outcomes: &[Outcome]) -> Result<()> {
    for outcome in outcomes {
        say_json(&JsonRun {
            r#type: "quiz_run",
            schema: 1,
            ended_by: method.to_string(),
            written_bytes: outcome.written,
            arrived_bytes: outcome.arrived,
            reader_saw: outcome.end.map(|end| end.to_string()),
            acked_bytes: outcome.receipt.and_then(|receipt| receipt.acked),
            level: outcome.receipt.map(|receipt| receipt.level.to_string()),
            writer_was_told_of_failure: outcome.sender_saw_error,
            took_s: outcome.took.as_secs_f64(),
        })?;
    }
    Ok(())
}
