//! The state of a run, shared by the threads that serve it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a run goes on, ends or is aborted.
#[derive(Debug, Default)]
pub struct RunState(AtomicU8);

impl RunState {
    const GOES_ON: u8 = 0;
    const ENDS: u8 = 1;
    const ABORTED: u8 = 2;

    /// Ends the run: no new connection is served; connections of load are, to their end.
    pub fn end(&self) {
        let _ =
            self.0.compare_exchange(Self::GOES_ON, Self::ENDS, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Aborts the run: all connections are closed.
    pub fn abort(&self) {
        self.0.store(Self::ABORTED, Ordering::Release);
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::GOES_ON
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ABORTED
    }
}
