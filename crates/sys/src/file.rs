//! Files: locks.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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
