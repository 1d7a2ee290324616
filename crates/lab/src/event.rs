//! Events of a running experiment.

use std::ops::ControlFlow;

use crate::record::{About, Beside, Run, Void};

/// An event of a running experiment.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The rehearsal succeeded: the path can be made and the receiver can listen.
    Begun(&'a About),
    /// Runs begin; how many are done.
    Running {
        /// Runs completed.
        done: usize,
        /// The most runs planned.
        of: usize,
        /// The indices of the running subjects in the plan.
        subjects: &'a [usize],
    },
    /// Runs beside a flow of cubic begin.
    RunningBeside {
        /// Runs completed.
        done: usize,
        /// Runs planned.
        of: usize,
        /// The indices of the running subjects in the plan.
        subjects: &'a [usize],
    },
    /// A run counts.
    Counted(&'a Run),
    /// A run does not count.
    Void(&'a Void),
    /// A run beside a flow of cubic counts.
    Beside(&'a Beside),
    /// A run's link broke its promise: the run is repeated alone.
    Repeating {
        /// Its subject.
        subject: usize,
        /// How the link broke its promise.
        why: &'a str,
    },
}

/// Receives the events; returns a reason to end the experiment early.
pub type Watch<'a> = dyn FnMut(Event<'_>) -> ControlFlow<String> + 'a;
