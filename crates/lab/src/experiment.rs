//! The runs of a plan, interleaved and believed only if their link was true.

use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lastbyte_link::Report;

use crate::error::LabError;
use crate::plan::Plan;
use crate::record::{About, Ended, Experiment, LinkWords, Run, SCHEMA, Void};
use crate::subject::Orders;

/// How often a run whose link missed its promise is repeated alone before it is given up.
const REPEATS: u32 = 2;

/// What happens while an experiment runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The path can be made and the receiver can listen: there will be an answer.
    Begun(&'a About),
    /// So many runs of all are done, and these subjects are running now.
    Running {
        /// Runs done.
        done: usize,
        /// Runs planned at most.
        of: usize,
        /// The places of the running subjects in the plan.
        subjects: &'a [usize],
    },
    /// A run counts.
    Counted(&'a Run),
    /// A run does not count.
    Void(&'a Void),
    /// A run's link missed its promise: it is repeated alone.
    Repeating {
        /// Its subject.
        subject: usize,
        /// What the link did.
        why: &'a str,
    },
}

/// Makes all runs of a plan.
///
/// In each round every subject runs once; the order turns from round to round, so that no subject
/// always has the quiet machine. As many as [`Plan::parallel`] run at once, each on its own link.
///
/// # Errors
/// The first run that could not be made. What concerns one subject alone leaves that subject out,
/// and is an error only where no run was made at all.
pub fn experiment(plan: &Plan, watch: &mut dyn FnMut(Event<'_>)) -> Result<Experiment, LabError> {
    if plan.subjects.is_empty() {
        return Err(LabError::NoSubjects);
    }
    rehearse(plan)?;
    let about = about(plan);
    watch(Event::Begun(&about));
    let mut course =
        Course { plan, watch, runs: Vec::new(), void: Vec::new(), refused: Vec::new(), cut: None };
    let mut rounds = 0;
    let mut subjects: Vec<usize> = (0..plan.subjects.len()).collect();
    while rounds < plan.rounds.most_rounds && !subjects.is_empty() && course.cut.is_none() {
        course.round(rounds, &subjects)?;
        rounds += 1;
        subjects.retain(|subject| !course.is_refused(*subject));
    }
    let Course { runs, void, mut refused, cut, .. } = course;
    match (refused.pop(), cut) {
        (_, Some(cut)) if runs.is_empty() => Err(cut),
        (Some((_, error)), None) if runs.is_empty() => Err(error),
        (_, cut) => Ok(Experiment {
            about,
            runs,
            void,
            beside: Vec::new(),
            ended: Ended { rounds, settled: None, cut: cut.map(|cut| cut.to_string()) },
        }),
    }
}

/// Makes the path and a receiver once, and takes them down: what would make the first run fail is
/// found before anything else.
fn rehearse(plan: &Plan) -> Result<(), LabError> {
    let path = plan.path.up(plan.seed)?;
    path.rehearse(plan.port)?;
    path.down()?;
    Ok(())
}

fn about(plan: &Plan) -> About {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    About {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: release.trim().to_owned(),
        began_unix_s: now.as_secs(),
        command: Vec::new(),
        path: plan.path.words(),
        subjects: plan.settings().collect(),
        load: plan.load,
        rounds: plan.rounds,
        seed: plan.seed,
        parallel: plan.parallel,
    }
}

/// The runs so far.
struct Course<'a> {
    plan: &'a Plan,
    watch: &'a mut dyn FnMut(Event<'_>),
    runs: Vec<Run>,
    void: Vec<Void>,
    /// Subjects that cannot be run, and why.
    refused: Vec<(usize, LabError)>,
    /// What ended it before its time.
    cut: Option<LabError>,
}

impl Course<'_> {
    /// Runs each of some subjects once.
    fn round(&mut self, round: u32, subjects: &[usize]) -> Result<(), LabError> {
        let of = self.plan.subjects.len() * self.plan.rounds.most_rounds as usize;
        let mut order = subjects.to_vec();
        order.rotate_left(round as usize % subjects.len());
        for batch in order.chunks(self.plan.parallel.max(1)) {
            let done = self.runs.len() + self.void.len();
            (self.watch)(Event::Running { done, of, subjects: batch });
            for (subject, made) in batch.iter().zip(at_once(self.plan, batch, round)) {
                match made {
                    Ok(made) => self.believe(made)?,
                    Err(error) if error.is_of_subject() => {
                        self.leave_out(*subject, round, error.to_string());
                        self.refused.push((*subject, error));
                    }
                    // That which fails from the beginning is not tried again and again.
                    Err(error @ LabError::Lost(_)) if self.runs.is_empty() => {
                        self.cut = Some(error);
                        return Ok(());
                    }
                    // The next run looks for the far host again.
                    Err(error @ LabError::Lost(_)) => {
                        self.leave_out(*subject, round, error.to_string());
                    }
                    Err(error @ LabError::Gone(_)) => {
                        self.cut = Some(error);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Counts the run if its link kept its promise, else a repetition of it, alone.
    fn believe(&mut self, made: (Run, Option<Report>)) -> Result<(), LabError> {
        let (mut run, mut report) = made;
        let mut repeats = 0;
        while let Some(why) = report.as_ref().and_then(Report::broken_promise) {
            if repeats == REPEATS {
                self.leave_out(run.subject, run.round, why);
                return Ok(());
            }
            repeats += 1;
            (self.watch)(Event::Repeating { subject: run.subject, why: &why });
            (run, report) = make(self.plan, run.subject, run.round)?;
        }
        (self.watch)(Event::Counted(&run));
        self.runs.push(run);
        Ok(())
    }

    fn leave_out(&mut self, subject: usize, round: u32, why: String) {
        let void = Void { subject, round, why };
        (self.watch)(Event::Void(&void));
        self.void.push(void);
    }

    /// Whether a subject has been left out for good: it never ran.
    fn is_refused(&self, subject: usize) -> bool {
        self.refused.iter().any(|(refused, _)| *refused == subject)
            && !self.runs.iter().any(|run| run.subject == subject)
    }
}

/// A run, and what its link said of itself.
type Made = Result<(Run, Option<Report>), LabError>;

/// Runs of one batch, side by side.
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
    let orders = Orders { load: plan.load, latency: plan.latency, port: plan.port };
    let outcome = plan.subjects[subject].run(&path, &orders).map_err(|error| path.judged(error))?;
    let report = path.down()?;
    let link = report.as_ref().map(LinkWords::of);
    let run = Run { subject, round, flows: outcome.flows, latency: outcome.latency, link };
    Ok((run, report))
}
