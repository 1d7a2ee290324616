//! The kernel tells of a reset once. Over a Unix socket there is no second way to know of it, so a
//! reader has to learn whether a writer was reported.

use std::io;

#[cfg(lastbyte_loom)]
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
#[cfg(not(lastbyte_loom))]
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// What the writing half of a stream leaves for the reading one, and for the end of both.
///
/// The writer says that it writes, before the kernel can tell it anything, and that it was reported,
/// before it says that it no longer writes. So a reader that met the end of the stream and then
/// sees no write under way sees also what an earlier one was reported.
#[derive(Debug, Default)]
pub struct Report {
    writing: AtomicBool,
    reported: AtomicBool,
    maybe_lost: AtomicBool,
}

impl Report {
    /// Does a write, or another call that may be reported of a reset, and keeps its error.
    ///
    /// # Errors
    /// Those of the call.
    pub fn during<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.writing.store(true, SeqCst);
        let result = write();
        // EPIPE is no report: it is reported as often as one writes.
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::ConnectionReset
        {
            self.reported.store(true, SeqCst);
        }
        self.writing.store(false, SeqCst);
        result
    }

    /// Says, from within a write, that it may have swallowed the report: one that took some bytes
    /// before it was reported returns their number.
    pub fn on_short_write(&self) {
        self.maybe_lost.store(true, SeqCst);
    }

    /// Whether a writer was reported of a reset before; `None` while a write is under way, or where one
    /// may have swallowed what it was reported.
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
    fn a_reset_that_a_write_was_told_of_is_kept_and_a_broken_pipe_is_none() {
        let report = Report::default();
        let fails = |kind: io::ErrorKind| report.during(|| Err::<(), _>(kind.into())).is_err();
        assert!(fails(io::ErrorKind::BrokenPipe));
        assert_eq!(report.reset_was_reported(), Some(false));
        report.on_short_write();
        assert_eq!(report.reset_was_reported(), None, "swallowed, perhaps");
        assert!(report.during(|| Ok(report.reset_was_reported())).unwrap().is_none(), "under way");
        assert!(fails(io::ErrorKind::ConnectionReset));
        assert_eq!(report.reset_was_reported(), Some(true));
    }
}

/// Every order in which a reader and a writer can meet: `make test-loom`.
#[cfg(all(test, lastbyte_loom))]
mod every_order {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn a_reader_never_takes_a_reset_for_an_end() {
        loom::model(|| {
            let report = Arc::new(Report::default());
            // The kernel's one report, for whoever comes first.
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
