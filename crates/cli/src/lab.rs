//! `lastbyte lab`.

mod advice;
mod compare;
mod congestion;
mod host;
mod keep;
mod launch;
mod report;
mod serve;
mod table;
mod words;

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lastbyte_changes::{Application, Ledger, apply};
use lastbyte_congestion::borrow::Borrowed;
use lastbyte_congestion::default_algorithm;
use lastbyte_host::Proc;
use lastbyte_lab::{
    Command, Event, Experiment, Fairness, Findings, Load, Path, Plan, Program, Run, Settings,
    Subject, file,
};
use lastbyte_link::Way;
use lastbyte_units::{ByteSize, grouped};

use crate::output::{Progress, left_alone, say, talk};
use crate::path::PathArgs;
use crate::verdict::Verdict;
use host::Far;

pub(crate) use advice::{Advice, Scope, advice};
use keep::Keeper;
pub(crate) use table::{COUNTED, table};
pub(crate) use words::LabArgs;
use words::{ApplyWord, FairnessWord, LabCommand, MatrixArgs, OutputArgs, ShowArgs};

/// A run of fewer round trips is mostly slow start.
const SHORT: u32 = 10;
/// More combinations than anybody waits for.
const MOST_SUBJECTS: usize = 256;
/// As many as `--parallel` allows.
const MOST_PARALLEL: usize = 64;
/// The load of a run where nothing is said.
const USUAL_SECONDS: u64 = 20;

/// Runs an experiment and prints what it found. The verdict: did every byte of every run arrive?
pub(crate) fn run(args: &LabArgs) -> Result<Verdict> {
    match &args.command {
        None => measure(args),
        Some(LabCommand::Serve(args)) => serve::run(args),
        Some(LabCommand::Show(args)) => show(args),
        Some(LabCommand::Compare(args)) => compare::run(args),
    }
}

fn measure(args: &LabArgs) -> Result<Verdict> {
    if let Some(place) = args.output.apply {
        // Nobody should learn it after a long experiment.
        ensure!(
            args.matrix.direction.iter().any(|direction| direction.ways().contains(&Way::Up)),
            "--apply changes this machine, and the sender is the far host"
        );
        let name = default_algorithm().ok().context("this machine has no TCP")?;
        lastbyte_changes::check(&Ledger::of_this_user()?, &application(place, Some(name), None))?;
    }
    if let Some(path) = &args.output.report {
        report::check(path)?;
    }
    if !args.is_remote() {
        let (plan, _brought) = plan(args, None)?;
        return make_and_tell(args, &plan, None);
    }
    let far = Far::open(&args.host, args.path.scenario.as_deref())?;
    let (mut plan, _brought) = plan(args, Some(&far))?;
    far.agree(&args.host, &mut plan)?;
    let verdict = make_and_tell(args, &plan, Some(far.address()));
    far.close();
    verdict
}

fn make_and_tell(args: &LabArgs, plan: &Plan, to: Option<IpAddr>) -> Result<Verdict> {
    let output = &args.output;
    let mut keeper = Keeper::new(output.json, output.save.as_deref())?;
    let heading = heading(plan);
    let experiment = make(plan, &mut |event| {
        if let (Event::Begun(_), false) = (event, output.json) {
            say(&heading);
            say("");
        }
        keeper.on(event)
    })?;
    let kept = keeper.end(&experiment);
    let (complete, advice) = tell(&experiment, output, to)?;
    if let Some(place) = output.apply {
        apply_advice(place, &advice.unwrap_or_default())?;
    }
    kept?;
    Ok(complete)
}

/// Does what is advised, through the ledger.
fn apply_advice(place: ApplyWord, advice: &Advice) -> Result<()> {
    let route = matches!(place, ApplyWord::Route(_));
    if advice.congestion.is_none() && (route || advice.buffers.is_none()) {
        talk("lab: nothing is advised, so nothing was applied");
        return Ok(());
    }
    let what = application(place, advice.congestion.clone(), advice.buffers);
    let applied = apply(&Ledger::of_this_user()?, &what, &mut left_alone)?;
    talk(&format!("lab: {applied}"));
    Ok(())
}

fn application(
    place: ApplyWord,
    congestion: Option<String>,
    buffers: Option<ByteSize>,
) -> Application {
    match place {
        ApplyWord::Route(to) => {
            Application::Route { to, congestion: congestion.unwrap_or_default() }
        }
        ApplyWord::Machine => Application::MachineWide { congestion, buffers },
    }
}

/// Shows what was saved.
fn show(args: &ShowArgs) -> Result<Verdict> {
    let experiment = file::read(&args.file)?;
    let output = OutputArgs {
        json: false,
        save: None,
        report: args.report.clone(),
        machine_wide: args.machine_wide,
        apply: None,
    };
    let about = &experiment.about;
    say(&format!("{}: {}", about.path.name, about.path.description));
    say(&format!("{}, seed {}, Linux {}", about.rounds, about.seed, short(&about.kernel)));
    say("");
    Ok(tell(&experiment, &output, None)?.0)
}

/// Says what was found, whether every byte arrived, and what to do.
fn tell(
    experiment: &Experiment,
    output: &OutputArgs,
    to: Option<IpAddr>,
) -> Result<(Verdict, Option<Advice>)> {
    let findings = Findings::of(experiment);
    if !output.json {
        say(COUNTED);
        table(&findings).say();
        say("");
        say(&table::legend(experiment, &findings));
    }
    warn(experiment, &findings);
    let advice = advice(&findings, Scope { to, machine_wide: output.machine_wide });
    if let (Some(advice), false) = (&advice, output.json) {
        say("");
        advice.say();
    }
    if let Some(path) = &output.report {
        report::write(path, experiment, &findings, advice.as_ref())?;
    }
    let complete = !experiment.runs.is_empty()
        && experiment.runs.iter().all(Run::is_complete)
        && experiment.void.iter().all(|void| void.beside)
        && experiment.ended.interrupted.is_none();
    Ok((Verdict::from(complete), advice))
}

/// Words to plan: all that can be wrong is found here. What was brought into the kernel for it goes when
/// that value does.
fn plan(args: &LabArgs, far: Option<&Far>) -> Result<(Plan, Borrowed)> {
    let path = match far {
        Some(far) => real_path(args, far)?,
        None => path_of_this_machine(args)?,
    };
    let runs = &args.runs;
    ensure!(
        far.is_none() || runs.fairness != FairnessWord::Always,
        "fairness takes two flows over one bottleneck that is known: emulate the path"
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = match runs.parallel {
        Some(parallel) => parallel as usize,
        None => {
            let directions = args.matrix.direction.iter();
            let each = directions.map(|direction| Plan::parallel_for(&path, *direction, cores));
            each.min().unwrap_or(1).min(MOST_PARALLEL)
        }
    };
    ensure!(
        runs.port == 0 || parallel == 1 || !matches!(path, Path::Loopback),
        "one port serves one run at a time over loopback: leave --parallel or --port out"
    );
    let seconds = match (runs.seconds, runs.bytes) {
        (None, None) => Some(USUAL_SECONDS),
        (seconds, _) => seconds,
    };
    let load =
        Load { time: seconds.map(Duration::from_secs), bytes: runs.bytes.map(ByteSize::bytes) };
    let brought = congestion::bring(&args.matrix, far)?;
    ensure!(
        brought.is_empty() || args.output.apply.is_none(),
        "--apply would name what ends with this experiment: first `lastbyte cc load {} --keep`",
        brought.names().join(" ")
    );
    let plan = Plan {
        subjects: subjects(&args.matrix, &path, far)?,
        path,
        load,
        rounds: runs.rounds,
        latency: !runs.no_latency,
        fairness: if far.is_some() { Fairness::Never } else { runs.fairness.into() },
        seed: args.path.seed,
        port: runs.port,
        parallel,
        command: command(),
    };
    Ok((plan, brought))
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
        alone.is_empty() && !args.loopback && args.runs.port == 0,
        "a real path is as it is: leave --rtt, --loss, --rate, --queue, --set, --loopback and --port out"
    );
    ensure!(args.runs.parallel.unwrap_or(1) == 1, "runs over a real path go one after the other");
    Ok(Path::Remote(Arc::clone(&far.remote)))
}

/// Every combination of the settings asked for.
fn subjects(matrix: &MatrixArgs, path: &Path, far: Option<&Far>) -> Result<Vec<Arc<dyn Subject>>> {
    let mut all: Vec<Settings> = Vec::new();
    for name in congestion::chosen(matrix, path, far)? {
        all.extend(matrix.buffer.iter().map(|buffers| Settings::new(&name, *buffers)));
    }
    all = each(all, &matrix.direction, |one, direction| one.direction = direction)?;
    all = each(all, &matrix.streams, |one, streams| one.streams = streams)?;
    all = each(all, &matrix.pacing, |one, rate| one.pacing = rate.0)?;
    all = each(all, &matrix.notsent_lowat, |one, size| one.notsent_lowat = size.0)?;
    all = each(all, &matrix.write_rate, |one, rate| one.write_rate = rate.0)?;
    all = each(all, &matrix.read_rate, |one, rate| one.read_rate = rate.0)?;
    let mut subjects: Vec<Arc<dyn Subject>> = Vec::new();
    // Who asks for programs alone means these alone.
    if matrix.subject.is_empty() || !matrix.congestion.is_empty() {
        subjects.extend(all.into_iter().map(|one| Arc::new(one) as Arc<dyn Subject>));
    }
    subjects.extend(programs(matrix, path)?);
    Ok(subjects)
}

/// The programs of others asked for.
fn programs(matrix: &MatrixArgs, path: &Path) -> Result<Vec<Arc<dyn Subject>>> {
    let (near, far) = (&matrix.subject, &matrix.far);
    ensure!(
        near.is_empty() || path.scenario().is_some(),
        "--subject runs a program between two hosts of an emulated path: name a path"
    );
    ensure!(
        far.len() <= 1 || far.len() == near.len(),
        "--far is given {} times and --subject {}: give it once, or once for each",
        far.len(),
        near.len()
    );
    let program = |(place, near): (usize, &String)| {
        let far = far.get(place).or_else(|| far.first()).cloned();
        let words = Command { near: near.clone(), far };
        Ok(Arc::new(Program::new(words, Arc::new(launch::Guests))?) as Arc<dyn Subject>)
    };
    near.iter().enumerate().map(program).collect()
}

/// All settings with each of some values.
fn each<T: Copy>(
    all: Vec<Settings>,
    values: &[T],
    set: impl Fn(&mut Settings, T),
) -> Result<Vec<Settings>> {
    let product = all.len().saturating_mul(values.len());
    ensure!(product <= MOST_SUBJECTS, "more than {MOST_SUBJECTS} combinations: ask for fewer");
    let mut with = Vec::with_capacity(product);
    for one in &all {
        for value in values {
            let mut one = one.clone();
            set(&mut one, *value);
            with.push(one);
        }
    }
    Ok(with)
}

/// Makes the runs, with a word on the terminal about how far they are.
pub(crate) fn make(
    plan: &Plan,
    tell: &mut dyn FnMut(&Event<'_>) -> ControlFlow<String>,
) -> Result<Experiment> {
    let subjects: Vec<_> = plan.settings().collect();
    let progress = Progress::new();
    let mut watch = |event: Event<'_>| {
        match &event {
            Event::Running { done, of, subjects: running } => {
                let running: Vec<String> =
                    running.iter().map(|subject| subjects[*subject].to_string()).collect();
                let running = running.join(", ");
                progress.show(&format!("{done} of at most {of} runs done; now {running}"));
            }
            Event::RunningBeside { done, of, subjects: running } => {
                let running: Vec<String> =
                    running.iter().map(|subject| subjects[*subject].to_string()).collect();
                let running = running.join(", ");
                progress.show(&format!("beside cubic, {done} of {of} runs done; now {running}"));
            }
            Event::Repeating { subject, why } => {
                progress.wipe();
                talk(&format!("lab: {} is run again, alone: {why}", subjects[*subject]));
            }
            _ => progress.wipe(),
        }
        tell(&event)
    };
    Ok(lastbyte_lab::experiment(plan, &mut watch)?)
}

/// What is going to be measured.
pub(crate) fn heading(plan: &Plan) -> String {
    let path = plan.path.description();
    let time = plan.load.time.map(|time| format!("{} s", time.as_secs()));
    let bytes = plan.load.bytes.map(|bytes| format!("{} bytes", grouped(bytes)));
    let load = [time, bytes].into_iter().flatten().collect::<Vec<_>>().join(" or ");
    let kernel = Proc::default().kernel_release();
    let (rounds, seed, kernel) = (plan.rounds, plan.seed, short(&kernel));
    let place = match plan.path {
        Path::Loopback => path.name,
        _ => format!("{}: {}", path.name, path.description),
    };
    format!("{place}\n{rounds} of {load}, seed {seed}, Linux {kernel}")
}

/// The words of the command line, without what nobody else should know.
fn command() -> Vec<String> {
    let mut secret = false;
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        let hidden = std::mem::replace(&mut secret, word == "--key");
        match (hidden, word.split_once('=')) {
            (true, _) => "...".to_owned(),
            (false, Some(("--key", _))) => "--key=...".to_owned(),
            (false, _) => word,
        }
    });
    std::iter::once("lastbyte".to_owned()).chain(words).collect()
}

/// A kernel's version without what its builder added.
fn short(release: &str) -> &str {
    release.split(['-', '\n']).next().unwrap_or_default()
}

/// What should be known before the figures are believed.
pub(crate) fn warn(experiment: &Experiment, findings: &Findings) {
    for void in &experiment.void {
        let (subject, why) = (&experiment.about.subjects[void.subject], &void.why);
        let beside = if void.beside { " beside a flow of cubic" } else { "" };
        talk(&format!("lab: a run of {subject}{beside} does not count: {why}"));
    }
    if let Some(why) = &experiment.ended.interrupted {
        talk(&format!("lab: ended before its time: {why}"));
    }
    if let Some(rtt) = experiment.about.path.rtt
        && experiment.runs.iter().any(|run| run.time() < rtt.saturating_mul(SHORT))
    {
        talk(&format!("lab: runs of under {SHORT} round trips tell of the start, not the path"));
    }
    for row in &findings.rows {
        if row.complete < row.samples.len() {
            let cut = row.samples.len() - row.complete;
            talk(&format!("lab: {cut} runs of {} did not arrive whole", row.setting));
        }
    }
}
