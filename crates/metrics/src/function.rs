//! The functions that a snapshot calls, and their last answers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::declare::Kind;

/// The functions of one member.
pub(crate) type Functions = Mutex<Vec<Arc<Function>>>;

pub(crate) type Call = Box<dyn FnMut() -> Option<u64> + Send>;

pub(crate) struct Function {
    /// The first cell of its statistic.
    pub(crate) at: usize,
    kind: Kind,
    /// Locked during a call, so that an answer never overwrites that of a later call.
    call: Mutex<Call>,
    answer: Mutex<Answer>,
}

/// What a function returned last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    NotAsked,
    Unknown,
    Known(u64),
}

impl Function {
    /// A function for the statistic whose first cell is `at`, not called yet.
    pub(crate) fn new(at: usize, kind: Kind, call: Call) -> Self {
        Self { at, kind, call: Mutex::new(call), answer: Mutex::new(Answer::NotAsked) }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Calls the function, and keeps its answer.
    pub(crate) fn ask(&self) {
        let mut call = lock(&self.call);
        // The panic hook has reported it. One broken statistic must not hide the others.
        let returned = catch_unwind(AssertUnwindSafe(&mut *call)).unwrap_or(None);
        let mut answer = lock(&self.answer);
        *answer = match (self.kind, *answer, returned) {
            (Kind::Counter, Answer::Known(before), now) => {
                Answer::Known(before.max(now.unwrap_or_default()))
            }
            (_, _, Some(now)) => Answer::Known(now),
            (_, _, None) => Answer::Unknown,
        };
    }

    pub(crate) fn answer(&self) -> Answer {
        *lock(&self.answer)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("answer", &self.answer()).finish_non_exhaustive()
    }
}

/// Locks, also after a panic: no panic leaves what these locks guard half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
