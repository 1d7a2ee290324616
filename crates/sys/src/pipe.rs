//! Pipes, and moving bytes through them without copying: `pipe(7)`, `splice(2)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::{check, check_size};

/// Opens a pipe on which no call waits (`pipe2(2)`, `O_NONBLOCK`): its reading and its writing end.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers to `ends`, which has room for them.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let reading = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let writing = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((reading, writing))
}

/// Sets how many bytes a pipe holds (`fcntl(2)`, `F_SETPIPE_SZ`), rounded up to a power of two of
/// pages. Returns what it became.
///
/// # Errors
/// `EPERM` above `fs.pipe-max-size`, or past the user's share (`fs.pipe-user-pages-soft`).
pub fn set_size(pipe: &impl AsFd, bytes: i32) -> io::Result<usize> {
    let pipe = pipe.as_fd().as_raw_fd();
    // SAFETY: no pointer is passed.
    let size = check(unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, bytes) })?;
    Ok(usize::try_from(size).unwrap_or_default())
}

/// How many bytes a pipe holds (`fcntl(2)`, `F_GETPIPE_SZ`).
///
/// # Errors
/// `EBADF` for what is no pipe.
pub fn size(pipe: &impl AsFd) -> io::Result<usize> {
    let pipe = pipe.as_fd().as_raw_fd();
    // SAFETY: no pointer is passed.
    let size = check(unsafe { libc::fcntl(pipe, libc::F_GETPIPE_SZ) })?;
    Ok(usize::try_from(size).unwrap_or_default())
}

/// Moves at most `most` bytes from one descriptor to another, of which one is a pipe, without
/// waiting (`splice(2)`, `SPLICE_F_NONBLOCK`, `SPLICE_F_MOVE`). Returns how many; 0 is an end of
/// stream, or an urgent mark with a FIN behind it.
///
/// A socket must be non-blocking itself: the flag counts for the pipe alone.
///
/// # Errors
/// `EAGAIN` where nothing is there, the pipe has no slot left, or the socket no room; `EINVAL` for a
/// descriptor that cannot be spliced; the connection's own error otherwise.
pub fn splice(from: &impl AsFd, to: &impl AsFd, most: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    // SAFETY: null offsets are what pipes and sockets want; no other pointer is passed.
    check_size(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), most, flags) })
}
