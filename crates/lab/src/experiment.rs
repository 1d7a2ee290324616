//! The runs of a plan, interleaved. A run counts only if its link kept its promise.

use std::ops::ControlFlow;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lastbyte_host::Proc;
use lastbyte_link::Report;

use crate::error::LabError;
use crate::event::{Event, Watch};
use crate::fairness::fairness;
use crate::findings::{Findings, Order, Recommendation, Row};
use crate::plan::{Fairness, Plan};
use crate::record::{About, Ended, Experiment, LinkFigures, Run, SCHEMA, Void};
use crate::subject::RunOptions;

/// How often a run whose link broke its promise is repeated alone, before it becomes void.
const MAX_REPEATS: u32 = 2;

/// Makes all runs of a plan.
///
/// In each round every subject runs once; the order rotates, so that no subject always runs at the
/// same moment of a round. As many as [`Plan::parallel`] run at once, each on its own link.
///
/// `watch` may end it early with a reason: the runs made until then are returned.
///
/// # Errors
/// The first run that failed. An error that concerns one subject leaves that subject out, and is
/// returned only if there was no other run.
pub fn experiment<'a>(plan: &'a Plan, watch: &'a mut Watch<'a>) -> Result<Experiment, LabError> {
    if plan.subjects.is_empty() {
        return Err(LabError::NoSubjects);
    }
    rehearse(plan)?;
    let about = about(plan);
    let so_far = Experiment {
        about: about.clone(),
        runs: Vec::new(),
        void: Vec::new(),
        beside: Vec::new(),
        ended: Ended::default(),
    };
    let mut progress = Progress { plan, watch, so_far, refused: Vec::new(), far_host_gone: None };
    progress.report(Event::Begun(&about));
    let mut subjects: Vec<usize> = (0..plan.subjects.len()).collect();
    while progress.so_far.ended.rounds < plan.rounds.most_rounds && !subjects.is_empty() {
        progress.round(&subjects)?;
        if progress.so_far.ended.interrupted.is_some() {
            break;
        }
        if progress.so_far.ended.rounds >= plan.rounds.least_rounds
            && let Some(order) = Order::of(&progress.so_far)
        {
            subjects = order.next();
            // Subjects without a run that counts have to run.
            let unmeasured = (0..plan.subjects.len()).filter(|subject| {
                order.standing(*subject).is_none() && !progress.is_refused(*subject)
            });
            let unmeasured: Vec<usize> = unmeasured.collect();
            progress.so_far.ended.settled = Some(order.is_settled() && unmeasured.is_empty());
            subjects.extend(unmeasured);
        }
        subjects.retain(|subject| !progress.is_refused(*subject));
    }
    if let Err(error) = progress.fairness() {
        progress.so_far.ended.interrupted.get_or_insert_with(|| error.to_string());
    }
    let failed = progress.far_host_gone.or_else(|| progress.refused.pop().map(|(_, error)| error));
    match failed {
        Some(error) if progress.so_far.runs.is_empty() => Err(error),
        _ => Ok(progress.so_far),
    }
}

/// Makes the path and a receiver once, and takes them down, to find first what would make every run
/// fail.
fn rehearse(plan: &Plan) -> Result<(), LabError> {
    let path = plan.path.up(plan.seed)?;
    path.rehearse(plan.port)?;
    path.down()?;
    Ok(())
}

fn about(plan: &Plan) -> About {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    About {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: Proc::default().kernel_release(),
        began_unix_s: now.as_secs(),
        command: plan.command.clone(),
        path: plan.path.description(),
        subjects: plan.settings().collect(),
        load: plan.load,
        rounds: plan.rounds,
        seed: plan.seed,
        parallel: plan.parallel,
    }
}

/// The runs so far.
struct Progress<'a> {
    plan: &'a Plan,
    watch: &'a mut Watch<'a>,
    so_far: Experiment,
    /// Subjects that cannot run, and why.
    refused: Vec<(usize, LabError)>,
    /// Why the far host is gone for good.
    far_host_gone: Option<LabError>,
}

impl Progress<'_> {
    fn report(&mut self, event: Event<'_>) {
        if let ControlFlow::Break(why) = (self.watch)(event) {
            self.so_far.ended.interrupted.get_or_insert(why);
        }
    }

    /// Runs each of some subjects once.
    fn round(&mut self, subjects: &[usize]) -> Result<(), LabError> {
        let round = self.so_far.ended.rounds;
        let of = self.plan.subjects.len() * self.plan.rounds.most_rounds as usize;
        let mut order = subjects.to_vec();
        order.rotate_left(round as usize % subjects.len());
        for batch in order.chunks(self.plan.parallel.max(1)) {
            if self.so_far.ended.interrupted.is_some() {
                return Ok(());
            }
            let done = self.so_far.runs.len() + self.so_far.void.len();
            self.report(Event::Running { done, of, subjects: batch });
            for (subject, made) in batch.iter().zip(at_once(self.plan, batch, round)) {
                match made.and_then(|made| self.accept_or_repeat(made)) {
                    Ok(()) => {}
                    Err(error) if error.is_of_subject() => {
                        self.add_void(*subject, round, error.to_string());
                        self.refused.push((*subject, error));
                    }
                    // The next run reconnects to the far host; a failure of the first run ends the
                    // experiment.
                    Err(error @ LabError::Lost(_)) if !self.so_far.runs.is_empty() => {
                        self.add_void(*subject, round, error.to_string());
                    }
                    Err(error @ (LabError::Lost(_) | LabError::Gone(_))) => {
                        self.so_far.ended.interrupted.get_or_insert_with(|| error.to_string());
                        self.far_host_gone = Some(error);
                        return Ok(());
                    }
                    // Earlier runs survive a later failure.
                    Err(error) if !self.so_far.runs.is_empty() => {
                        self.so_far.ended.interrupted.get_or_insert_with(|| error.to_string());
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.so_far.ended.rounds += 1;
        Ok(())
    }

    /// Counts the run if its link kept its promise; else repeats it, alone.
    fn accept_or_repeat(&mut self, made: (Run, Option<Report>)) -> Result<(), LabError> {
        let (mut run, mut report) = made;
        let mut repeats = 0;
        while let Some(why) = report.as_ref().and_then(Report::broken_promise) {
            if repeats == MAX_REPEATS {
                self.add_void(run.subject, run.round, why);
                return Ok(());
            }
            repeats += 1;
            self.report(Event::Repeating { subject: run.subject, why: &why });
            (run, report) = make(self.plan, run.subject, run.round)?;
        }
        run.repeated = repeats;
        self.report(Event::Counted(&run));
        self.so_far.runs.push(run);
        Ok(())
    }

    /// Measures some subjects beside a flow of cubic, as the plan says.
    fn fairness(&mut self) -> Result<(), LabError> {
        let which = match self.plan.fairness {
            _ if self.so_far.ended.interrupted.is_some() => Vec::new(),
            Fairness::Never => Vec::new(),
            Fairness::Always => {
                let findings = Findings::of(&self.so_far);
                let mut which = best_of_each(&findings);
                let best =
                    findings.recommendation.as_ref().map(|flow| findings.rows[flow.best].subject);
                which.extend(best.filter(|best| !which.contains(best)));
                which
            }
            Fairness::WhereAdvised => {
                let findings = Findings::of(&self.so_far);
                let owes = findings.recommendation.as_ref().and_then(Recommendation::needs_shares);
                owes.map(|row| findings.rows[row].subject).into_iter().collect()
            }
        };
        let (mut void, mut cut) = (Vec::new(), None);
        let watch = &mut *self.watch;
        let beside = fairness(self.plan, &which, &mut |event| {
            if let Event::Void(one) = &event {
                void.push((*one).clone());
            }
            let flow = watch(event);
            if let ControlFlow::Break(why) = &flow {
                cut.get_or_insert_with(|| why.clone());
            }
            flow
        })?;
        self.so_far.beside.extend(beside);
        self.so_far.void.extend(void);
        self.so_far.ended.interrupted = self.so_far.ended.interrupted.take().or(cut);
        Ok(())
    }

    fn add_void(&mut self, subject: usize, round: u32, why: String) {
        let void = Void { subject, round, why, beside: false };
        self.report(Event::Void(&void));
        self.so_far.void.push(void);
    }

    /// Whether a subject was left out and never ran.
    fn is_refused(&self, subject: usize) -> bool {
        self.refused.iter().any(|(refused, _)| *refused == subject)
            && !self.so_far.runs.iter().any(|run| run.subject == subject)
    }
}

/// The best subject of each congestion control.
fn best_of_each(findings: &Findings) -> Vec<usize> {
    let mut best: Vec<&Row> = Vec::new();
    for row in findings.rows.iter().filter(|row| row.congestion().is_some()) {
        match best.iter_mut().find(|one| one.congestion() == row.congestion()) {
            Some(one) if row.received.median > one.received.median => *one = row,
            Some(_) => {}
            None => best.push(row),
        }
    }
    best.iter().map(|row| row.subject).collect()
}

/// A run and its link's report.
type Made = Result<(Run, Option<Report>), LabError>;

/// Makes the runs of one batch at the same time.
fn at_once(plan: &Plan, batch: &[usize], round: u32) -> Vec<Made> {
    thread::scope(|scope| {
        let start = |subject: &usize| {
            let subject = *subject;
            scope.spawn(move || make(plan, subject, round))
        };
        let threads: Vec<_> = batch.iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Makes the path, lets the subject use it, and takes it down.
fn make(plan: &Plan, subject: usize, round: u32) -> Made {
    let path = plan.path.up(plan.seed.wrapping_add(round.into()))?;
    let options = RunOptions { load: plan.load, latency: plan.latency, port: plan.port };
    let outcome =
        plan.subjects[subject].run(&path, &options).map_err(|error| path.judged(error))?;
    let report = path.down()?;
    let link = report.as_ref().map(LinkFigures::of);
    let run =
        Run { subject, round, flows: outcome.flows, latency: outcome.latency, link, repeated: 0 };
    Ok((run, report))
}
