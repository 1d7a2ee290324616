//! Files: locks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::check;

/// Waits for the exclusive advisory lock of an open file (`flock(2)`, `LOCK_EX`).
///
/// The kernel drops the lock when the last descriptor of this open file is closed, also by a kill:
/// no stale lock is left behind.
///
/// # Errors
/// The kernel's: `EINTR` when a signal came first, `ENOLCK` without memory.
pub fn lock_exclusive(file: &File) -> io::Result<()> {
    // SAFETY: flock takes no pointer; the descriptor is open as long as `file` is borrowed.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }).map(drop)
}

/// Opens a file without a name in `directory`: it is gone with its last user, also by a kill
/// (`open(2)`, `O_TMPFILE`).
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` where the file system has no such files.
pub fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o644);
    options.custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).open(directory)
}
