//! Time since a link began, in nanoseconds: what the model and the wire count in.

use std::time::{Duration, Instant};

/// Nanoseconds since a start; 584 years fit.
pub(crate) type Nanos = u64;

/// A clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// It has run since then.
    Since(Instant),
    /// It stands still.
    #[cfg(test)]
    At(Nanos),
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self::Since(Instant::now())
    }

    pub(crate) fn now(self) -> Nanos {
        match self {
            Self::Since(start) => nanos(start.elapsed()),
            #[cfg(test)]
            Self::At(now) => now,
        }
    }
}

/// A duration in the nanoseconds that the model counts in.
#[must_use]
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
