//! The kernel tells of a reset once. Over a Unix socket there is no second way to know of it, so a
//! reader has to learn whether a writer was told.

use std::io;

#[cfg(lastbyte_loom)]
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
#[cfg(not(lastbyte_loom))]
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// What the writing half of a stream leaves for the reading one, and for the end of both.
///
/// The writer says that it writes, before the kernel can tell it anything, and that it was told,
/// before it says that it no longer writes. So a reader that met the end of the stream and then
/// sees no write under way sees also what an earlier one was told.
#[derive(Debug, Default)]
pub struct Report {
    writing: AtomicBool,
    told: AtomicBool,
    lost: AtomicBool,
}

impl Report {
    /// Does a write, or another call that may be told of a reset, and keeps its error.
    ///
    /// # Errors
    /// Those of the call.
    pub fn during<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.writing.store(true, SeqCst);
        let result = write();
        // EPIPE is no report: it is told as often as one writes.
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::ConnectionReset
        {
            self.told.store(true, SeqCst);
        }
        self.writing.store(false, SeqCst);
        result
    }

    /// Says, from within a write, that it may have swallowed the report: one that took some bytes
    /// before it was told returns their number.
    pub fn lose(&self) {
        self.lost.store(true, SeqCst);
    }

    /// Whether a writer was told of a reset before; `None` while a write is under way, or where one
    /// may have swallowed what it was told.
    #[must_use]
    pub fn was_taken(&self) -> Option<bool> {
        if self.writing.load(SeqCst) {
            return None;
        }
        let told = self.told.load(SeqCst);
        (told || !self.lost.load(SeqCst)).then_some(told)
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
        assert_eq!(report.was_taken(), Some(false));
        report.lose();
        assert_eq!(report.was_taken(), None, "swallowed, perhaps");
        assert!(report.during(|| Ok(report.was_taken())).unwrap().is_none(), "under way");
        assert!(fails(io::ErrorKind::ConnectionReset));
        assert_eq!(report.was_taken(), Some(true));
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
            let (written, told) = (Arc::clone(&report), Arc::clone(&pending));
            let writer = thread::spawn(move || {
                let _ = written.during(|| {
                    let told = told.swap(false, SeqCst);
                    let kind = if told {
                        io::ErrorKind::ConnectionReset
                    } else {
                        io::ErrorKind::BrokenPipe
                    };
                    Err::<(), _>(kind.into())
                });
            });
            let told = pending.swap(false, SeqCst);
            let clean = !told && report.was_taken() == Some(false);
            assert!(!clean, "a reset was taken for an end");
            writer.join().unwrap();
        });
    }
}
