//! The kernel reports a reset once. Over a Unix socket nothing else shows it, so a reader has to
//! learn whether the kernel reported it to a writer.

use std::io;

#[cfg(lastbyte_loom)]
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
#[cfg(not(lastbyte_loom))]
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// What the writing half of a stream leaves for the reading half, and for a finish.
///
/// A writer sets `writing` before its call, then records a reported reset, then clears `writing`.
/// So a reader that reached the end of the stream and then sees no write in progress also sees what
/// the kernel reported to an earlier write.
#[derive(Debug, Default)]
pub struct Report {
    writing: AtomicBool,
    reported: AtomicBool,
    maybe_lost: AtomicBool,
}

impl Report {
    /// Makes a write, or another call to which the kernel may report a reset, and records that
    /// error.
    ///
    /// # Errors
    /// The error of the call.
    pub fn during<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.writing.store(true, SeqCst);
        let result = write();
        // EPIPE is no report: the kernel returns it for every write.
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::ConnectionReset
        {
            self.reported.store(true, SeqCst);
        }
        self.writing.store(false, SeqCst);
        result
    }

    /// Records, during a write, that the write was short: the kernel may have dropped the report. A
    /// write that fails after accepting some bytes returns their number, not the error.
    pub fn on_short_write(&self) {
        self.maybe_lost.store(true, SeqCst);
    }

    /// Whether the kernel reported a reset to a writer; `None` while a write is in progress, or
    /// after a short write that may have dropped the report.
    #[must_use]
    pub fn reset_was_reported(&self) -> Option<bool> {
        if self.writing.load(SeqCst) {
            return None;
        }
        let reported = self.reported.load(SeqCst);
        (reported || !self.maybe_lost.load(SeqCst)).then_some(reported)
    }
}

#[cfg(all(test, not(lastbyte_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reset_reported_to_a_write_is_recorded_and_a_broken_pipe_is_not() {
        let report = Report::default();
        let fails = |kind: io::ErrorKind| report.during(|| Err::<(), _>(kind.into())).is_err();
        assert!(fails(io::ErrorKind::BrokenPipe));
        assert_eq!(report.reset_was_reported(), Some(false));
        report.on_short_write();
        assert_eq!(report.reset_was_reported(), None, "it may have been dropped");
        assert!(report.during(|| Ok(report.reset_was_reported())).unwrap().is_none(), "under way");
        assert!(fails(io::ErrorKind::ConnectionReset));
        assert_eq!(report.reset_was_reported(), Some(true));
    }
}

/// Every interleaving of a reader and a writer: `make test-loom`.
#[cfg(all(test, lastbyte_loom))]
mod every_order {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn a_reader_never_takes_a_reset_for_an_end() {
        loom::model(|| {
            let report = Arc::new(Report::default());
            // The kernel's one report: the first call takes it.
            let pending = Arc::new(AtomicBool::new(true));
            let (written, reported) = (Arc::clone(&report), Arc::clone(&pending));
            let writer = thread::spawn(move || {
                let _ = written.during(|| {
                    let reported = reported.swap(false, SeqCst);
                    let kind = if reported {
                        io::ErrorKind::ConnectionReset
                    } else {
                        io::ErrorKind::BrokenPipe
                    };
                    Err::<(), _>(kind.into())
                });
            });
            let reported = pending.swap(false, SeqCst);
            let clean = !reported && report.reset_was_reported() == Some(false);
            assert!(!clean, "a reset was taken for an end");
            writer.join().unwrap();
        });
    }
}
