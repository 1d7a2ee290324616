//! Time since a link began, in nanoseconds: what the model and the wire count in.

use std::time::{Duration, Instant};

/// Nanoseconds since a start; 584 years fit.
pub(crate) type Nanos = u64;

/// A running clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Nanos {
        nanos(self.start.elapsed())
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
