//! `lastbyte lab`.

pub(crate) mod host;
mod json;
pub(crate) mod serve;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lastbyte_lab::{
    Buffers, Direction, Event, Experiment, Fairness, Findings, Load, Path, Plan, Recommendation,
    Rounds, Row, Settings, Subject,
};
use lastbyte_units::grouped;

use crate::apply;
use crate::args::{LabArgs, LabCommand, PathArgs};
use crate::output::{Align, Progress, Table, mbit, percent, say, talk};
use crate::verdict::Verdict;
use host::Far;

/// A run of fewer round trips is mostly slow start.
const SHORT: u32 = 10;

/// What the figures of a table are.
pub(crate) const COUNTED: &str =
    "Mbit/s, the receiver's bytes over the receiver's time; claimed is what write() took:";

/// Runs an experiment and prints what it found. The verdict: did every byte of every run arrive?
pub(crate) fn run(args: &LabArgs) -> Result<Verdict> {
    if let Some(LabCommand::Serve(args)) = &args.command {
        return serve::run(args);
    }
    if !args.is_remote() {
        return run_plan(args, &plan(args, None)?);
    }
    let far = Far::open(&args.host, args.path.scenario.as_deref())?;
    let mut plan = plan(args, Some(&far))?;
    far.agree(&args.host, &mut plan)?;
    let verdict = run_plan(args, &plan);
    far.close();
    verdict
}

fn run_plan(args: &LabArgs, plan: &Plan) -> Result<Verdict> {
    let experiment = if args.json {
        let experiment = json::run(plan)?;
        tell_void(&experiment);
        experiment
    } else {
        let heading = heading(plan);
        let experiment = make(plan, &mut || {
            say(&heading);
            say("");
        })?;
        print(&experiment, &Findings::of(&experiment));
        experiment
    };
    if let Some(cut) = &experiment.ended.cut {
        talk(&format!("lab: ended early: {cut}"));
    }
    let complete = experiment.ended.cut.is_none()
        && experiment.runs.iter().all(lastbyte_lab::Run::is_complete);
    Ok(Verdict::from(complete && experiment.void.is_empty()))
}

/// Words to plan: all that can be wrong is found here.
fn plan(args: &LabArgs, far: Option<&Far>) -> Result<Plan> {
    let path = match far {
        Some(far) => real_path(args, far)?,
        None => path_of_this_machine(args)?,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = match args.parallel {
        Some(parallel) => parallel as usize,
        None => Plan::parallel_for(&path, Direction::Up, cores),
    };
    ensure!(
        args.port == 0 || parallel == 1 || path != Path::Loopback,
        "one port serves one run at a time over loopback: leave --parallel or --port out"
    );
    let congestion = congestion(&args.congestion, &path)?;
    let with_buffers = |name: &String| {
        let subject = |buffers| Arc::new(Settings::new(name, buffers)) as Arc<dyn Subject>;
        args.buffer.iter().copied().map(subject).collect::<Vec<_>>()
    };
    let load = match args.bytes {
        Some(bytes) => Load::bytes(bytes.bytes()),
        None => Load::time(Duration::from_secs(args.seconds)),
    };
    Ok(Plan {
        subjects: congestion.iter().flat_map(with_buffers).collect(),
        path,
        load,
        rounds: Rounds::exactly(args.rounds),
        latency: true,
        fairness: Fairness::Never,
        seed: args.path.seed,
        port: args.port,
        parallel,
    })
}

fn path_of_this_machine(args: &LabArgs) -> Result<Path> {
    Ok(match (args.loopback, args.path.scenario()?) {
        (true, None) => Path::Loopback,
        (true, Some(_)) => bail!("--loopback has no delay, loss or rate: leave the path out"),
        (false, Some(scenario)) => Path::Link(Box::new(scenario)),
        (false, None) => Path::Link(Box::new(args.path.must_have_scenario()?)),
    })
}

fn real_path(args: &LabArgs, far: &Far) -> Result<Path> {
    let alone = PathArgs { scenario: None, ..args.path.clone() };
    ensure!(
        alone.is_empty() && !args.loopback && args.port == 0,
        "a real path is as it is: leave --rtt, --loss, --rate, --queue, --set, --loopback and --port out"
    );
    ensure!(args.parallel.unwrap_or(1) == 1, "runs over a real path go one after the other");
    Ok(Path::Remote(Arc::clone(&far.remote)))
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
    if root || path.scenario().is_some() {
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
pub(crate) fn make(plan: &Plan, begun: &mut dyn FnMut()) -> Result<Experiment> {
    let subjects: Vec<_> = plan.settings().collect();
    let progress = Progress::new();
    let mut watch = |event: Event<'_>| match event {
        Event::Begun(_) => begun(),
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
        None if plan.path == Path::Loopback => "loopback".to_owned(),
        _ => {
            let words = plan.path.words();
            format!("{}: {}", words.name, words.words)
        }
    };
    let time = plan.load.time.map(|time| format!("{} s", time.as_secs()));
    let bytes = plan.load.bytes.map(|bytes| format!("{} bytes", grouped(bytes)));
    let load = [time, bytes].into_iter().flatten().collect::<Vec<_>>().join(" or ");
    let rounds = match (plan.rounds.least_rounds, plan.rounds.most_rounds) {
        (1, 1) => "1 round".to_owned(),
        (least, most) if least == most => format!("{most} rounds"),
        (least, most) => format!("{least} to {most} rounds"),
    };
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
    if let Some(rtt) = experiment.about.path.rtt
        && experiment.runs.iter().any(|run| run.time() < rtt * SHORT)
    {
        talk(&format!("lab: runs of under {SHORT} round trips tell of the start, not the path"));
    }
    for row in &findings.rows {
        if row.complete < row.samples.len() {
            let cut = row.samples.len() - row.complete;
            talk(&format!("lab: {cut} runs of {} did not arrive whole", row.setting));
        }
    }
    if let Some(advice) = &findings.recommendation {
        say("");
        recommend(findings, advice);
    }
}

/// Why runs are missing, which neither a table nor JSON Lines can show.
fn tell_void(experiment: &Experiment) {
    for void in &experiment.void {
        let (subject, why) = (&experiment.about.subjects[void.subject], &void.why);
        let hint = if experiment.about.parallel > 1 { "; try --parallel 1" } else { "" };
        talk(&format!("lab: a run of {subject} does not count: {why}{hint}"));
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

/// What to do, in plain words and exact lines.
pub(crate) fn recommend(findings: &Findings, advice: &Recommendation) {
    let best = &findings.rows[advice.best];
    let name = best.congestion().unwrap_or_default();
    let default = apply::default_congestion();
    match advice.next.map(|next| &findings.rows[next]) {
        None => {}
        Some(next) if !advice.certain => say(&format!(
            "{name} and {} are too close to tell apart, or too few rounds: change nothing yet.",
            next.setting
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
    let name = best.congestion().unwrap_or_default();
    let gain = best.received.median / next.received.median;
    say(&format!(
        "Use {name} at the sender: {} Mbit/s, {gain:.1} times {} ({}).",
        mbit(best.received.median),
        next.congestion().unwrap_or_default(),
        mbit(next.received.median)
    ));
    if name.starts_with("bbr") {
        let resent = |row: &Row| row.resent.map_or_else(|| "?".to_owned(), percent);
        say(&format!(
            "It resends {} of its bytes ({} {}), and on a shared path",
            resent(best),
            next.congestion().unwrap_or_default(),
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
        rows.iter()
            .filter_map(|row| row.buffers())
            .map(|buffers| buffers.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    if best.buffers() == Some(Buffers::Auto) && !advice.buffers_alike.is_empty() {
        let alike = names(rows(&advice.buffers_alike));
        say(&format!("Leave the buffers to the kernel: {alike} made less than 10 % difference."));
    }
    let (fixed, too_low): (Vec<&Row>, Vec<&Row>) = rows(&advice.buffers_costly)
        .into_iter()
        .partition(|row| matches!(row.buffers(), Some(Buffers::Fixed(_))));
    for row in fixed {
        let cap = row.cap.map_or_else(String::new, |cap| {
            format!(" (one buffer per round trip is {})", mbit(cap))
        });
        let Some(buffers) = row.buffers() else { continue };
        let median = mbit(row.received.median);
        say(&format!("Do not set {buffers} buffers: {median} Mbit/s{cap}."));
    }
    if too_low.is_empty() {
        return;
    }
    let (found, held) = (mbit(best.received.median), names(too_low));
    match best.buffers() {
        Some(Buffers::AutoUpTo(limit)) => {
            say(&format!(
                "Let the kernel size the buffers up to {limit}: {found} Mbit/s; less with {held}."
            ));
            say_ways(apply::buffer_ways(limit));
        }
        Some(buffers) => say(&format!(
            "With {buffers} buffers {found} Mbit/s, less with {held}: see whether a higher limit for \
             the kernel's own sizing does the same, such as --buffer auto:8MiB."
        )),
        None => {}
    }
}
