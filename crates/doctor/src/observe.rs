//! Watching: from the highest tier that the rights and the kernel allow, down to tables of sockets.

use std::time::Duration;

use crate::event::{Event, Scope, Tier};

/// What is to be watched, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is asked about.
    pub scope: Scope,
    /// This tier and no other; `None`: the best that works.
    pub tier: Option<Tier>,
    /// When system calls are traced.
    pub traced: Traced,
    /// Tables of sockets are looked at so often at most; seldom where that would cost more than
    /// a hundredth of a processor.
    pub every: Duration,
}

/// When system calls are traced (tiers [`Tier::Tracefs`] and [`Tier::Bpf`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// All the time, of the processes of the scope alone.
    Watched,
    /// Of all processes, in windows of this length, one in each such time.
    Windows {
        /// How long one is.
        length: Duration,
        /// From the beginning of one to that of the next.
        every: Duration,
    },
    /// Never.
    Never,
}

/// A tier that could not be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Which.
    pub tier: Tier,
    /// Why not; one sentence.
    pub why: String,
    /// What it would add; one sentence.
    pub adds: &'static str,
}

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// Not even tables of sockets can be read, or the tier that was asked for cannot be had.
    #[error("{0}")]
    Unavailable(String),
    /// A source that worked before has failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's word.
        #[source]
        error: std::io::Error,
    },
}

/// Watches.
#[derive(Debug)]
pub struct Observer {}

impl Observer {
    /// Begins to watch. What could not be had is told with it, the highest first.
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`].
    pub fn start(plan: &Plan) -> Result<(Self, Vec<Shortfall>), ObserveError> {
        let _ = plan;
        Err(ObserveError::Unavailable("not there yet".to_owned()))
    }

    /// From where is watched.
    #[must_use]
    pub fn tier(&self) -> Tier {
        Tier::Procfs
    }

    /// Waits for events for at most so long, and hands out what has come, in the order of time; the
    /// first of all is [`crate::What::Began`].
    ///
    /// # Errors
    /// [`ObserveError::Io`]: a source has failed for good.
    pub fn take(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(Event),
    ) -> Result<(), ObserveError> {
        let _ = (wait, each);
        Ok(())
    }
}
