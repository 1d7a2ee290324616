//! Files: locks, files that do not make one wait, files in memory, files sent to a socket, and what
//! file system a path lies on.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{check, check_size};

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

/// Takes the exclusive advisory lock of an open file or directory, if it is free (`flock(2)`,
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

/// Makes a file without a name, in memory (`memfd_create(2)`).
///
/// # Errors
/// The kernel's: `EMFILE`, `ENOMEM`.
pub fn in_memory() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let made = check(unsafe { libc::memfd_create(c"lastbyte".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let owned = unsafe { OwnedFd::from_raw_fd(made) };
    Ok(File::from(owned))
}

/// Sends at most `most` bytes of a file to a socket, from `offset` on, which it moves
/// (`sendfile(2)`). Returns how many bytes the kernel took; 0 is the end of the file.
///
/// # Errors
/// The connection's; `EAGAIN` where a non-blocking socket has no room.
pub fn send(file: &File, socket: &impl AsFd, offset: &mut i64, most: usize) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `offset` is a number that the kernel reads and writes during the call.
    check_size(unsafe { libc::sendfile(socket, file.as_raw_fd(), offset, most) })
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
