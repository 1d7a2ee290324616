//! What happens while an experiment runs, for those who watch it.

use std::ops::ControlFlow;

use crate::record::{About, Beside, Run, Void};

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
    /// The same, beside a flow of cubic.
    RunningBeside {
        /// Runs done.
        done: usize,
        /// Runs planned.
        of: usize,
        /// The places of the running subjects in the plan.
        subjects: &'a [usize],
    },
    /// A run counts.
    Counted(&'a Run),
    /// A run does not count.
    Void(&'a Void),
    /// A run beside a flow of cubic counts.
    Beside(&'a Beside),
    /// A run's link missed its promise: it is repeated alone.
    Repeating {
        /// Its subject.
        subject: usize,
        /// What the link did.
        why: &'a str,
    },
}

/// Is told what happens; says why the experiment should end before its time.
pub type Watch<'a> = dyn FnMut(Event<'_>) -> ControlFlow<String> + 'a;
