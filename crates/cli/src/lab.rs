//! `lastbyte lab`.

mod json;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lastbyte_core::sample::LimitedBy;
use lastbyte_lab::{
    Buffers, Event, Experiment, Findings, Load, Path, Plan, Recommendation, Row, Subject,
};
use lastbyte_units::grouped;

use crate::apply;
use crate::args::LabArgs;
use crate::output::{Align, Progress, Table, mbit, percent, say, talk};
use crate::verdict::Verdict;

/// A run of fewer round trips is mostly slow start.
const SHORT: u32 = 10;

/// What the figures of a table are.
pub(crate) const COUNTED: &str =
    "Mbit/s, the receiver's bytes over the receiver's time; claimed is what write() took:";

/// Runs an experiment and prints what it found. The verdict: did every byte of every run arrive?
pub(crate) fn run(args: &LabArgs) -> Result<Verdict> {
    let plan = plan(args)?;
    let experiment = if args.json {
        let experiment = json::run(plan)?;
        tell_void(&experiment);
        experiment
    } else {
        let heading = heading(&plan);
        let experiment = make(plan, &mut || {
            say(&heading);
            say("");
        })?;
        print(&experiment, &Findings::of(&experiment));
        experiment
    };
    let complete = experiment.runs.iter().all(lastbyte_lab::Run::is_complete);
    Ok(Verdict::from(complete && experiment.void.is_empty()))
}

/// Words to plan: all that can be wrong is found here.
fn plan(args: &LabArgs) -> Result<Plan> {
    let path = match (args.loopback, args.path.scenario()?) {
        (true, None) => Path::Loopback,
        (true, Some(_)) => bail!("--loopback has no delay, loss or rate: leave the path out"),
        (false, Some(scenario)) => Path::Link(Box::new(scenario)),
        (false, None) => Path::Link(Box::new(args.path.must_have_scenario()?)),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = match args.parallel {
        Some(parallel) => parallel as usize,
        None => Plan::parallel_for(&path, cores),
    };
    ensure!(
        args.port == 0 || parallel == 1 || path != Path::Loopback,
        "one port serves one run at a time over loopback: leave --parallel or --port out"
    );
    let congestion = congestion(&args.congestion, &path)?;
    let with_buffers = |name: &String| {
        let subject = |buffers| Subject { congestion: name.clone(), buffers };
        args.buffer.iter().copied().map(subject).collect::<Vec<_>>()
    };
    let load = match args.bytes {
        Some(bytes) => Load::Bytes(bytes.bytes()),
        None => Load::Time(Duration::from_secs(args.seconds)),
    };
    Ok(Plan {
        subjects: congestion.iter().flat_map(with_buffers).collect(),
        path,
        load,
        rounds: args.rounds,
        seed: args.path.seed,
        port: args.port,
        parallel,
    })
}

/// The congestion controls asked for, or all that may be used.
fn congestion(asked: &[String], path: &Path) -> Result<Vec<String>> {
    let available = apply::available_congestion();
    for name in asked {
        ensure!(
            available.contains(name),
            "congestion control `{name}` is not known: this kernel offers {}",
            available.join(", ")
        );
    }
    if !asked.is_empty() {
        let mut once: Vec<String> = Vec::new();
        for name in asked {
            if !once.contains(name) {
                once.push(name.clone());
            }
        }
        return Ok(once);
    }
    let root = lastbyte_sys::process::effective_user() == 0;
    if root || *path != Path::Loopback {
        return Ok(available);
    }
    let allowed = apply::allowed_congestion();
    let left_out: Vec<_> = available.iter().filter(|name| !allowed.contains(name)).collect();
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|name| name.as_str()).collect();
        talk(&format!("lab: left out, because only root may use it here: {}", names.join(", ")));
    }
    Ok(allowed)
}

/// Makes the runs, with a word on the terminal about how far they are. `begun` is called once it is
/// known that there will be an answer.
pub(crate) fn make(plan: Plan, begun: &mut dyn FnMut()) -> Result<Experiment> {
    let subjects = plan.subjects.clone();
    let progress = Progress::new();
    let mut watch = |event: Event<'_>| match event {
        Event::Begun => begun(),
        Event::Running { done, of, subjects: running } => {
            let running: Vec<String> =
                running.iter().map(|subject| subjects[*subject].to_string()).collect();
            progress.show(&format!("{done} of {of} runs done; now {}", running.join(", ")));
        }
        Event::Repeating { subject, why } => {
            progress.wipe();
            talk(&format!("lab: {} is run again, alone: {why}", subjects[subject]));
        }
        _ => {}
    };
    Ok(lastbyte_lab::experiment(plan, &mut watch)?)
}

/// What is going to be measured.
pub(crate) fn heading(plan: &Plan) -> String {
    let place = match plan.path.scenario() {
        None => "loopback".to_owned(),
        Some(scenario) => format!("{}: {}", scenario.name, scenario.spec),
    };
    let load = match plan.load {
        Load::Time(time) => format!("{} s", time.as_secs()),
        Load::Bytes(bytes) => format!("{} bytes", grouped(bytes)),
    };
    let rounds =
        if plan.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", plan.rounds) };
    format!("{place}\n{rounds} of {load}, seed {}, Linux {}", plan.seed, kernel())
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.split(['-', '\n']).next().unwrap_or_default().to_owned()
}

/// The table, its warnings, and the recommendation.
fn print(experiment: &Experiment, findings: &Findings) {
    say(COUNTED);
    table(findings).say();
    say("");
    say(&legend(experiment, findings));
    tell_void(experiment);
    if let Some(rtt) = experiment.plan.path.scenario().map(|scenario| scenario.spec.rtt())
        && experiment.runs.iter().any(|run| run.received.time < rtt * SHORT)
    {
        talk(&format!("lab: runs of under {SHORT} round trips tell of the start, not the path"));
    }
    for row in &findings.rows {
        if row.complete < row.samples.len() {
            let cut = row.samples.len() - row.complete;
            talk(&format!("lab: {cut} runs of {} did not arrive whole", row.subject));
        }
    }
    if let Some(advice) = &findings.recommendation {
        say("");
        recommend(findings, advice);
    }
}

/// Why runs are missing, which neither a table nor JSON Lines can show.
fn tell_void(experiment: &Experiment) {
    for (subject, why) in &experiment.void {
        let subject = &experiment.plan.subjects[*subject];
        talk(&format!("lab: a run of {subject} does not count: {why}; try --parallel 1"));
    }
}

/// One line for each subject.
pub(crate) fn table(findings: &Findings) -> Table {
    let mut columns = vec![
        ("", Align::Left),
        ("buffers", Align::Left),
        ("median", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
    ];
    if findings.limit_bits_per_s.is_some() {
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
            row.subject.congestion.clone(),
            row.subject.buffers.to_string(),
            mbit(row.received.median),
            mbit(row.received.min),
            mbit(row.received.max),
        ];
        cells.extend(findings.limit_bits_per_s.map(|limit| percent(row.received.median / limit)));
        cells.push(mbit(row.claimed));
        cells.push(row.resent.map_or_else(|| "?".to_owned(), percent));
        cells.push(held_back_by(row));
        table.row(cells);
    }
    table
}

/// In the words of `ss -i`, which are short.
fn held_back_by(row: &Row) -> String {
    let Some((limit, share)) = row.limited_by else { return String::new() };
    let limit = match limit {
        LimitedBy::Application => "app",
        LimitedBy::SendBuffer => "sndbuf",
        LimitedBy::ReceiveWindow => "rwnd",
        LimitedBy::CongestionWindow => "cwnd",
        LimitedBy::Pacing => "pacing",
        LimitedBy::Unknown => "unknown",
        _ => "?",
    };
    format!("{limit} {}", percent(share))
}

fn legend(experiment: &Experiment, findings: &Findings) -> String {
    let sum = |bytes: fn(&Row) -> u64| findings.rows.iter().map(bytes).sum::<u64>();
    let (written, received) = (sum(|row| row.written), sum(|row| row.received_bytes));
    let complete: usize = findings.rows.iter().map(|row| row.complete).sum();
    let mut text = format!(
        "{} bytes written, {} received; {complete} of {} runs complete and proven.",
        grouped(written),
        grouped(received),
        experiment.runs.len()
    );
    if let Some(limit) = findings.limit_bits_per_s {
        text += &format!("\nThe limit is {} Mbit/s: 1448 of every 1500 bytes.", mbit(limit));
    }
    for row in &findings.rows {
        // Only where the flow comes near it.
        let near = |cap: &f64| row.received.median > cap * 0.75;
        if let Some(cap) = row.cap.filter(near) {
            let Subject { congestion, buffers } = &row.subject;
            let cap = mbit(cap);
            text +=
                &format!("\n{congestion}, {buffers}: capped at {cap}, one buffer per round trip.");
        }
    }
    let lateness = experiment.runs.iter().filter_map(|run| run.link.as_ref());
    if let Some(worst) = lateness.map(|link| link.lateness.p99).max() {
        let ms = worst.as_secs_f64() * 1e3;
        text +=
            &format!("\nThe links kept their promise: 99 % of packets at most {ms:.2} ms late.");
    }
    text
}

/// What to do, in plain words and exact lines.
pub(crate) fn recommend(findings: &Findings, advice: &Recommendation) {
    let best = &findings.rows[advice.best];
    let name = best.subject.congestion.as_str();
    let default = apply::default_congestion();
    match advice.next.map(|next| &findings.rows[next]) {
        None => {}
        Some(next) if !advice.certain => say(&format!(
            "{name} and {} are too close to tell apart, or too few rounds: change nothing yet.",
            next.subject.congestion
        )),
        Some(next) => {
            say_the_gain(best, next);
            say_ways(apply::congestion_ways(name));
            if default.as_deref() == Some(name) {
                say(&format!("  ({name} is this machine's default already.)"));
            }
        }
    }
    if findings.rows.iter().all(|row| row.samples.len() >= lastbyte_stats::MIN_SAMPLES) {
        say_buffers(findings, advice);
    }
}

fn say_ways(ways: Vec<apply::Way>) {
    for way in ways {
        let mut scope = format!("{}:", way.scope);
        for line in way.lines {
            say(&format!("  {scope:<15}{line}"));
            scope.clear();
        }
    }
}

fn say_the_gain(best: &Row, next: &Row) {
    let name = best.subject.congestion.as_str();
    let gain = best.received.median / next.received.median;
    say(&format!(
        "Use {name} at the sender: {} Mbit/s, {gain:.1} times {} ({}).",
        mbit(best.received.median),
        next.subject.congestion,
        mbit(next.received.median)
    ));
    if name.starts_with("bbr") {
        let resent = |row: &Row| row.resent.map_or_else(|| "?".to_owned(), percent);
        say(&format!(
            "It resends {} of its bytes ({} {}), and on a shared path",
            resent(best),
            next.subject.congestion,
            resent(next)
        ));
        say("it takes from flows that back off at a loss.");
    }
}

fn say_buffers(findings: &Findings, advice: &Recommendation) {
    let best = &findings.rows[advice.best];
    let rows =
        |places: &[usize]| places.iter().map(|place| &findings.rows[*place]).collect::<Vec<_>>();
    let names = |rows: Vec<&Row>| {
        rows.iter().map(|row| row.subject.buffers.to_string()).collect::<Vec<_>>().join(", ")
    };
    if best.subject.buffers == Buffers::Auto && !advice.buffers_alike.is_empty() {
        let alike = names(rows(&advice.buffers_alike));
        say(&format!("Leave the buffers to the kernel: {alike} made less than 10 % difference."));
    }
    let (fixed, too_low): (Vec<&Row>, Vec<&Row>) = rows(&advice.buffers_costly)
        .into_iter()
        .partition(|row| matches!(row.subject.buffers, Buffers::Fixed(_)));
    for row in fixed {
        let cap = row.cap.map_or_else(String::new, |cap| {
            format!(" (one buffer per round trip is {})", mbit(cap))
        });
        let (buffers, median) = (row.subject.buffers, mbit(row.received.median));
        say(&format!("Do not set {buffers} buffers: {median} Mbit/s{cap}."));
    }
    if too_low.is_empty() {
        return;
    }
    let (found, held) = (mbit(best.received.median), names(too_low));
    match best.subject.buffers {
        Buffers::AutoUpTo(limit) => {
            say(&format!(
                "Let the kernel size the buffers up to {limit}: {found} Mbit/s; less with {held}."
            ));
            say_ways(apply::buffer_ways(limit));
        }
        buffers => say(&format!(
            "With {buffers} buffers {found} Mbit/s, less with {held}: see whether a higher limit for \
             the kernel's own sizing does the same, such as --buffer auto:8MiB."
        )),
    }
}
