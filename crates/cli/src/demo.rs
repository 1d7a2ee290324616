//! `lastbyte demo`: one story in three acts.

use std::time::Duration;

use anyhow::Result;
use lastbyte_lab::quiz::{self, Method};
use lastbyte_lab::{Buffers, Experiment, Findings, Load, Path, Plan, Subject};
use lastbyte_link::{LinkError, Scenario};
use lastbyte_units::grouped;

use crate::args::DemoArgs;
use crate::output::{Progress, mbit, percent, say};
use crate::verdict::Verdict;
use crate::{apply, lab};

/// Runs of each way in act 1.
const QUIZ_RUNS: usize = 100;
/// As in the article.
const QUIZ_BYTES: usize = 1_000_000;
/// The path of acts 2 and 3.
const SCENARIO: &str = "usa-malaysia";
/// Rounds of act 3.
const ROUNDS: u32 = 3;
/// What most machines run.
const USUAL: &str = "cubic";

/// Plays the acts for which there are the rights, and says which it left out.
pub(crate) fn run(args: &DemoArgs) -> Result<Verdict> {
    let complete = bytes_lost_and_saved()?;
    let path = Path::Link(Box::new(Scenario::find(SCENARIO)?));
    say("");
    match path.up(1) {
        Ok(path) => path.down()?,
        Err(error @ LinkError::Rights { .. }) => {
            say(&format!("Acts 2 and 3 are left out: {error}."));
            return Ok(Verdict::from(complete));
        }
        Err(error) => return Err(error.into()),
    };
    let seconds = Duration::from_secs(args.seconds);
    an_unchanged_sender(&path, seconds)?;
    say("");
    let proven = the_path_filled(&path, seconds)?;
    Ok(Verdict::from(complete && proven))
}

fn bytes_lost_and_saved() -> Result<bool> {
    say("Act 1. A program writes 1,000,000 bytes to a peer whose greeting it never reads,");
    say("and closes. How many arrive? Over loopback, 100 times each way.");
    say("");
    let progress = Progress::new();
    let mut results = Vec::new();
    for method in [Method::Close, Method::Finish] {
        progress.show(&format!("{method}: {QUIZ_RUNS} runs"));
        let path = Path::Loopback.up(1)?;
        results.push((method, quiz::play(&path, method, QUIZ_BYTES, (QUIZ_RUNS, 1))?));
    }
    progress.wipe();
    crate::quiz::table(&results).say();
    say("");
    let finished = &results[1].1;
    if let Some(receipt) = finished.last().and_then(|outcome| outcome.receipt) {
        say("The last receipt of finish:");
        say(&format!("  {receipt}"));
    }
    Ok(finished.iter().all(quiz::Outcome::is_complete))
}

fn plan(path: &Path, names: &[String], seconds: Duration, rounds: u32) -> Plan {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let auto = |name: &String| Subject { congestion: name.clone(), buffers: Buffers::Auto };
    Plan {
        path: path.clone(),
        subjects: names.iter().map(auto).collect(),
        load: Load::Time(seconds),
        rounds,
        seed: 1,
        port: 0,
        parallel: Plan::parallel_for(path, cores),
    }
}

fn an_unchanged_sender(path: &Path, seconds: Duration) -> Result<()> {
    let usual = apply::available_congestion().into_iter().find(|name| name == USUAL);
    let default = apply::default_congestion().unwrap_or_default();
    let name = usual.unwrap_or_else(|| default.clone());
    if name == default {
        say(&format!("Act 2. An unchanged sender with {name}, this machine's default, over"));
    } else {
        say(&format!(
            "Act 2. An unchanged sender with {name}, the default of most machines (of this"
        ));
        say(&format!("one it is {default}), over"));
    }
    let plan = plan(path, std::slice::from_ref(&name), seconds, 1);
    say(&lab::heading(&plan));
    say("");
    let findings = Findings::of(&lab::make(plan, &mut || {})?);
    let Some(row) = findings.rows.first() else {
        anyhow::bail!("no run over {SCENARIO} kept its promise: this machine is too busy");
    };
    let limit = findings.limit_bits_per_s.unwrap_or(f64::INFINITY);
    let received = row.received.median;
    say(&format!("sender claims  {:>5} Mbit/s  (what write() accepted)", mbit(row.claimed)));
    say(&format!(
        "receiver got   {:>5} Mbit/s  ({} of the {} that fit)",
        mbit(received),
        percent(received / limit),
        mbit(limit)
    ));
    Ok(())
}

fn the_path_filled(path: &Path, seconds: Duration) -> Result<bool> {
    let plan = plan(path, &apply::available_congestion(), seconds, ROUNDS);
    say(&format!(
        "Act 3. The same path with each congestion control of this kernel, {ROUNDS} rounds."
    ));
    say(lab::COUNTED);
    say("");
    let experiment = lab::make(plan, &mut || {})?;
    let findings = Findings::of(&experiment);
    lab::table(&findings).say();
    say("");
    if let Some(advice) = &findings.recommendation {
        lab::recommend(&findings, advice);
    }
    let proven = is_proven(&experiment);
    if proven {
        let bytes: u64 = findings.rows.iter().map(|row| row.received_bytes).sum();
        say("");
        say(&format!("All {} bytes written were received, and proven.", grouped(bytes)));
    }
    Ok(proven)
}

fn is_proven(experiment: &Experiment) -> bool {
    experiment.void.is_empty() && experiment.runs.iter().all(lastbyte_lab::Run::is_complete)
}
