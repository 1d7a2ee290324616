//! `lastbyte demo`: one story in six acts.

mod doctor;
mod gate;

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lastbyte_congestion::{available, default_algorithm};
use lastbyte_dial::blocking::Dialer;
use lastbyte_dial::{DialError, DialOptions, Dialed, Resolver};
use lastbyte_host::Proc;
use lastbyte_lab::quiz::{self, Method};
use lastbyte_lab::{
    Buffers, Direction, Experiment, Fairness, Findings, Load, Path, Plan, Rounds, Settings, Subject,
};
use lastbyte_link::{Host, LinkError, Scenario};
use lastbyte_socket::blocking::TcpListener;
use lastbyte_units::grouped;

use crate::args::DemoArgs;
use crate::lab;
use crate::output::{Progress, mbit, percent, say};
use crate::verdict::Verdict;

/// Runs of each way in act 1.
const QUIZ_RUNS: usize = 100;
/// As in the article.
const QUIZ_BYTES: usize = 1_000_000;
/// The path of acts 2 to 6.
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
            say(&format!("Acts 2 to 6 are left out: {error}."));
            return Ok(Verdict::from(complete));
        }
        Err(error) => return Err(error.into()),
    };
    let seconds = Duration::from_secs(args.seconds);
    an_unchanged_sender(&path, seconds)?;
    say("");
    let proven = the_path_filled(&path, seconds)?;
    say("");
    let connected = a_dead_first_address(&path)?;
    say("");
    let passed_on = gate::an_unchanged_program(&path, seconds)?;
    say("");
    let is_seen = doctor::what_no_call_says(&path)?;
    Ok(Verdict::from(complete && proven && connected && passed_on && is_seen))
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
    let auto = |name: &String| Arc::new(Settings::new(name, Buffers::Auto)) as Arc<dyn Subject>;
    Plan {
        path: path.clone(),
        subjects: names.iter().map(auto).collect(),
        load: Load::time(seconds),
        rounds: Rounds::exactly(rounds),
        latency: false,
        fairness: Fairness::WhereAdvised,
        seed: 1,
        port: 0,
        parallel: Plan::parallel_for(path, Direction::Up, cores),
        command: Vec::new(),
    }
}

fn an_unchanged_sender(path: &Path, seconds: Duration) -> Result<()> {
    let usual = available().unwrap_or_default().into_iter().find(|name| name == USUAL);
    let default = default_algorithm().unwrap_or_default();
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
    let experiment = lab::make(&plan, &mut |_| ControlFlow::Continue(()))?;
    let findings = Findings::of(&experiment);
    let Some(row) = findings.rows.first() else {
        let why: Vec<&str> = experiment.void.iter().map(|void| void.why.as_str()).collect();
        anyhow::bail!("no run over {SCENARIO} counts: {}", why.join("; "));
    };
    let limit = row.limit_bits_per_s.unwrap_or(f64::INFINITY);
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
    let plan = plan(path, &available().unwrap_or_default(), seconds, ROUNDS);
    say(&format!(
        "Act 3. The same path with each congestion control of this kernel, {ROUNDS} rounds."
    ));
    say(lab::COUNTED);
    say("");
    let experiment = lab::make(&plan, &mut |_| ControlFlow::Continue(()))?;
    let findings = Findings::of(&experiment);
    lab::table(&findings).say();
    say("");
    if let Some(advice) = lab::advice(&findings, lab::Scope::default()) {
        advice.say();
    }
    let proven = is_proven(&experiment);
    if !proven {
        lab::warn(&experiment, &findings);
    }
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

/// Where the server of act 4 listens.
const PORT: u16 = 7;
/// A name of nobody (RFC 2606).
const NAME: &str = "dead-first.example";

fn a_dead_first_address(path: &Path) -> Result<bool> {
    // In the far network, so that a way leads there.
    let dead = Ipv6Addr::from(u128::from(Host::Far.address_v6()) & !0xffff | 0xdead);
    let alive = Host::Far.address();
    say("Act 4. A name with two addresses, over the same path. Nobody has the one to try");
    say(&format!("first, {dead}; the other one is {alive}. How long until one connects?"));
    say("");
    let hosts = format!("{dead} {NAME}\n{alive} {NAME}\n");
    let path = path.up(1)?;
    let address = SocketAddr::new(alive.into(), PORT);
    // Its backlog is all that is needed of a server.
    let listener = path.run(Host::Far, || TcpListener::bind(address))??;
    let (retries, dials) = path.run(Host::Near, || {
        let retries = Proc::default().sysctl("net.ipv4.tcp_syn_retries");
        (retries.unwrap_or_default(), dial_twice(&hosts))
    })?;
    drop(listener);
    path.down()?;
    say(&format!("in turn        {}", patience_of_connect(&retries)));
    for (dial, taken) in ["lastbyte dial", "the next one"].iter().zip(dials?) {
        match taken {
            Ok((took, from)) => {
                say(&format!(
                    "{dial:<14} connected to {from} in {:.0} ms",
                    took.as_secs_f64() * 1e3
                ));
            }
            Err(error) => {
                say(&format!("{dial:<14} {error}"));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// What a program does that tries addresses one after the other (`tcp(7)`, tcp_syn_retries).
fn patience_of_connect(retries: &str) -> String {
    let time = if retries == "6" { "about 2 minutes" } else { "as long as the kernel does" };
    format!("the first one alone for {time} (tcp_syn_retries = {retries}): not tried here")
}

type Taken = std::result::Result<(Duration, SocketAddr), DialError>;

/// Dials with an empty memory, and with what that has told.
fn dial_twice(hosts: &str) -> Result<[Taken; 2]> {
    let dialer = Dialer::new(Resolver::dns_from("", hosts)?).context("starting to dial")?;
    let dial = || {
        let Dialed { stream, timeline, .. } = dialer.dial((NAME, PORT), &DialOptions::default())?;
        let to = stream.peer_addr().unwrap_or_else(|_| SocketAddr::from(([0; 4], PORT)));
        // Nothing was sent: there is nothing to prove.
        let _ = stream.finish().within(Duration::from_secs(2)).wait();
        Ok((timeline.took, to))
    };
    Ok([dial(), dial()])
}
