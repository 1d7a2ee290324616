//! How a gate stops, and how its flows learn of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The phase of a gate. It changes to a later one, never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It accepts connections.
    Running,
    /// It accepts no more, and lets flows end by themselves.
    Draining,
    /// Flows are reset, and leave their accounts.
    Stopping,
}

/// The phase of a gate, for all its threads.
///
/// A flow reads it whenever it is polled: one load. Its task is woken when the phase becomes
/// [`Phase::Stopping`], so that a flow needs no waiter of its own.
#[derive(Debug)]
pub(crate) struct Stop {
    phase: AtomicU8,
    /// When draining is over.
    limit: Mutex<Option<Instant>>,
}

impl Stop {
    pub(crate) fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Running as u8), limit: Mutex::default() }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Stopping,
        }
    }

    /// Whether a flow has to end now.
    pub(crate) fn is_stopping(&self) -> bool {
        self.phase() == Phase::Stopping
    }

    /// Lets flows continue for `limit`. Of several calls the earliest end counts.
    pub(crate) fn drain(&self, limit: Duration) {
        let until = Instant::now().checked_add(limit);
        let mut known = lock(&self.limit);
        *known = [*known, until].into_iter().flatten().min();
        drop(known);
        self.phase.fetch_max(Phase::Draining as u8, Ordering::AcqRel);
    }

    /// Ends all flows.
    pub(crate) fn stop(&self) {
        self.phase.fetch_max(Phase::Stopping as u8, Ordering::AcqRel);
    }

    /// When draining is over; `None` if it has no limit, or has not flow.
    pub(crate) fn limit(&self) -> Option<Instant> {
        *lock(&self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_never_goes_back_and_the_earlier_limit_counts() {
        let stop = Stop::new();
        assert_eq!((stop.phase(), stop.limit()), (Phase::Running, None));
        stop.drain(Duration::MAX);
        assert_eq!((stop.phase(), stop.limit()), (Phase::Draining, None), "no limit");
        stop.drain(Duration::from_secs(60));
        let limit = stop.limit();
        assert!(limit.is_some());
        stop.drain(Duration::from_secs(600));
        assert_eq!(stop.limit(), limit);
        stop.stop();
        stop.drain(Duration::ZERO);
        assert_eq!(stop.phase(), Phase::Stopping);
        assert!(stop.is_stopping());
    }
}
