//! Files: locks, files that do not make one wait, and what file system a path lies on.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
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

/// Opens a file for reading that answers `EAGAIN` while there is nothing to read (`open(2)`,
/// `O_NONBLOCK`), as some of the kernel's do.
///
/// # Errors
/// The kernel's: `ENOENT`, `EACCES`.
pub fn open_nonblocking(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Whether a path lies on a file system for BPF objects (`statfs(2)`, `BPF_FS_MAGIC`).
///
/// # Errors
/// The kernel's: `ENOENT` where there is no such path.
pub fn is_bpffs(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` is a C string and `about` has room for what the kernel writes.
    check(unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) })?;
    // SAFETY: the kernel has filled it, as the call succeeded.
    let about = unsafe { about.assume_init() };
    Ok(about.f_type == libc::BPF_FS_MAGIC)
}
