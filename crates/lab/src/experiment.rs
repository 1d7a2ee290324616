//! The runs of a plan, interleaved and believed only if their link was true.

use std::thread;

use crate::error::LabError;
use crate::plan::Plan;
use crate::run::{self, Run};

/// How often a run whose link missed its promise is repeated alone before it is given up.
const REPEATS: u32 = 2;

/// What happens while an experiment runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The path can be made and the receiver can listen: there will be an answer.
    Begun,
    /// So many runs of all are done, and these subjects are running now.
    Running {
        /// Runs done.
        done: usize,
        /// Runs planned.
        of: usize,
        /// The places of the running subjects in the plan.
        subjects: &'a [usize],
    },
    /// A run counts.
    Counted(&'a Run),
    /// A run's link missed its promise: it is repeated alone.
    Repeating {
        /// Its subject.
        subject: usize,
        /// What the link did.
        why: &'a str,
    },
}

/// All runs of a plan that count.
#[derive(Debug)]
#[non_exhaustive]
pub struct Experiment {
    /// The plan.
    pub plan: Plan,
    /// The runs, in the order in which they ended.
    pub runs: Vec<Run>,
    /// Runs that do not count, because their link never kept its promise: subject and reason.
    pub void: Vec<(usize, String)>,
}

/// Makes all runs of a plan.
///
/// In each round every subject runs once; the order turns from round to round, so that no subject
/// always has the quiet machine. As many as [`Plan::parallel`] run at once, each on its own link.
///
/// # Errors
/// The first run that could not be made.
pub fn experiment(plan: Plan, watch: &mut dyn FnMut(Event<'_>)) -> Result<Experiment, LabError> {
    if plan.subjects.is_empty() {
        return Err(LabError::NoSubjects);
    }
    run::rehearse(&plan)?;
    watch(Event::Begun);
    let of = plan.subjects.len() * plan.rounds as usize;
    let (mut runs, mut void) = (Vec::with_capacity(of), Vec::new());
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..plan.subjects.len()).collect();
        order.rotate_left(round as usize % plan.subjects.len());
        for batch in order.chunks(plan.parallel.max(1)) {
            watch(Event::Running { done: runs.len() + void.len(), of, subjects: batch });
            for run in at_once(&plan, batch, round) {
                match believed(&plan, run?, watch)? {
                    Ok(run) => {
                        watch(Event::Counted(&run));
                        runs.push(run);
                    }
                    Err(why) => void.push(why),
                }
            }
        }
    }
    Ok(Experiment { plan, runs, void })
}

/// Runs of one batch, side by side.
fn at_once(plan: &Plan, batch: &[usize], round: u32) -> Vec<Result<Run, LabError>> {
    thread::scope(|scope| {
        let start = |subject: &usize| {
            let subject = *subject;
            scope.spawn(move || run::run(plan, subject, round))
        };
        let threads: Vec<_> = batch.iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// The run if its link kept its promise, else a repetition of it, alone; or why there is none.
fn believed(
    plan: &Plan,
    run: Run,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Result<Run, (usize, String)>, LabError> {
    let (subject, round) = (run.subject, run.round);
    let mut run = run;
    let mut repeats = 0;
    loop {
        let broken = run.link.as_ref().and_then(lastbyte_link::Report::broken_promise);
        let Some(why) = broken else { return Ok(Ok(run)) };
        if repeats == REPEATS {
            return Ok(Err((subject, why)));
        }
        repeats += 1;
        watch(Event::Repeating { subject, why: &why });
        run = run::run(plan, subject, round)?;
    }
}
