//! The signals that end a command which would go on for ever.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lastbyte_sys::{poll, process, signal};

/// The signals that end what would go on for ever. They are read, so that it ends in order.
#[derive(Debug)]
pub(crate) struct Ends(OwnedFd);

impl Ends {
    /// From now on they wait; to be called before there is a second thread.
    pub(crate) fn new() -> Result<Self> {
        const ALL: [i32; 3] = [signal::SIGHUP, process::SIGINT, process::SIGTERM];
        signal::block(&ALL).context("block signals")?;
        Ok(Self(signal::signalfd(&ALL).context("wait for signals")?))
    }

    /// Waits for one; `None` when the time is over.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<Option<i32>> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let [ready] = poll::wait([(&self.0, poll::READABLE)], left.map(|it| it.min(AT_ONCE)))
                .context("wait for signals")?;
            if ready {
                return Ok(Some(signal::take(&self.0).context("take a signal")?));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }
}

/// `poll(2)` takes no more than 24 days.
const AT_ONCE: Duration = Duration::from_secs(24 * 3600);
