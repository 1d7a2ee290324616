//! The boundary between C and Rust: panics, descriptors, errno.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lastbyte::SocketError;

/// An error number of the kernel's, such as `EBADF`.
pub(crate) type Errno = c_int;

/// The errno for a panic, which is a bug of this library.
pub(crate) const PANICKED: Errno = libc::ENOTRECOVERABLE;

/// Runs `work` and returns its result as C does: the number, or -1 with errno.
pub(crate) fn answer(work: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    match caught(work).unwrap_or(Err(PANICKED)) {
        Ok(number) => number,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// The result of `work`; `None` if it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    // No state outlives a call, so a panic leaves nothing inconsistent.
    catch_unwind(AssertUnwindSafe(work)).ok()
}

pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: the C library returns the address of this thread's errno, always valid.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: `place` is this thread's own int.
    unsafe { *place = errno };
}

/// Lends C's descriptor to `work`; `EBADF` for a negative number.
pub(crate) fn lent<T>(
    fd: c_int,
    work: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if fd < 0 {
        return Err(libc::EBADF);
    }
    // SAFETY: it is not -1. Whether it is open the kernel looks at each system call, and nothing
    // else is done with it; that it stays the same one is in C's hands, as with any such call.
    work(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The kernel's number for what went wrong; `EIO` for an answer that could not be read.
pub(crate) fn errno_of(error: &SocketError) -> Errno {
    error.cause.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_minus_one_and_errno() {
        assert_eq!(answer(|| Ok(7)), 7);
        assert_eq!(answer(|| Err(libc::EBADF)), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_panic_stays_here() {
        assert_eq!(answer(|| panic!("on purpose")), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(PANICKED));
    }

    #[test]
    fn a_negative_number_is_no_descriptor() {
        assert_eq!(lent(-1, |_| Ok(())), Err(libc::EBADF));
        assert_eq!(lent(c_int::MIN, |_| Ok(())), Err(libc::EBADF));
        assert_eq!(lent(0, |_| Ok(())), Ok(()));
    }
}
