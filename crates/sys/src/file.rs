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

/// Takes the exclusive advisory lock of an open file or folder, if nobody has it (`flock(2)`,
/// `LOCK_EX` with `LOCK_NB`). Returns whether it did. See [`lock_exclusive`].
///
/// # Errors
/// The kernel's: `ENOLCK` without memory.
pub fn try_lock_exclusive(file: &File) -> io::Result<bool> {
    // SAFETY: flock takes no pointer; the descriptor is open as long as `file` is borrowed.
    match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
