//! Ends a connection without losing bytes.

use std::ffi::c_int;
use std::time::Duration;

use lastbyte::{Counted, Drain, FinishError, FinishOptions, finish_fd_counted};

use crate::boundary::{Errno, PANICKED, caught, lent, set_errno};
use crate::receipt::Receipt;
use crate::types::{Level, Why};

/// The options of a finish. Begin with the defaults, and change what you need:
///
///     struct lb_options options = LB_OPTIONS_INIT;
///     options.want = LB_LEVEL_CLOSED;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The level to wait for: an `enum lb_level`, default `LB_LEVEL_ACKED`.
    pub want: i32,
    /// How long to wait for proof, in milliseconds. Negative, the default: 30,000. 0: check without
    /// waiting.
    pub timeout_ms: i32,
    /// How many bytes from the peer to read and discard at most; further bytes stay unread.
    /// Negative, the default: 1,048,576. 0: read nothing, and leave the bytes for a later read.
    pub drain_limit: i64,
    /// How many bytes you wrote over the life of the connection; negative, the default: not known.
    /// With it the receipt has all counts.
    pub written: i64,
    /// How many bytes you read over the life of the connection; negative, the default: not known.
    /// It is used only if you called `lb_prepare` before the first read. Without it
    /// `LB_LEVEL_CLOSED` can seldom be proven, because a FIN looks like a reset.
    pub bytes_read: i64,
    /// For future options: 0 each.
    pub reserved: [i64; 4],
}

/// Ends the connection of a stream socket without losing bytes: ends the sending direction (as
/// `shutdown` with `SHUT_WR`), waits until the peer's kernel has acknowledged all written bytes,
/// and reads and discards what the peer still sends, at most 1 MiB, so that closing does not become
/// a reset. The descriptor stays open: `close` it next.
///
/// It blocks for at most `timeout_ms` milliseconds, even if the descriptor is non-blocking. A
/// negative `timeout_ms` means 30,000; 0 means to check without waiting.
///
/// `receipt` may be NULL; otherwise all of it is filled, whatever is returned.
///
/// Returns 0 if everything is proven to be acknowledged. Otherwise -1, and `errno` is
///
/// - ETIMEDOUT: the time passed first; also for a connection that is not established yet.
/// - ECONNRESET: the peer reset the connection, or the kernel gave it up.
/// - ENOTCONN: it is not connected, or no longer connected.
/// - EBADF, ENOTSOCK: it is not open, or not a socket.
/// - EPROTOTYPE: it is not a stream socket (UDP).
/// - EINVAL: it is listening.
/// - EOPNOTSUPP: the kernel cannot prove it for this kind of socket (MPTCP, vsock). All steps were
///   taken that prevent a loss.
/// - ENOTRECOVERABLE: a bug in this library; nothing is known.
/// - another: the kernel's, if it refused a system call that should succeed on every connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_finish(fd: c_int, timeout_ms: c_int, receipt: *mut Receipt) -> c_int {
    let options = FinishOptions::default().within(deadline(timeout_ms));
    // SAFETY: the promise is the same as ours.
    unsafe { finish(fd, Some((options, Counted::default())), receipt) }
}

/// As `lb_finish`, with options; `options` may be NULL.
///
/// Returns 0 if the wanted level is proven. Otherwise -1, and `errno` is one of those of
/// `lb_finish`, or
///
/// - EPROTO: `LB_LEVEL_CLOSED` was wanted, and the peer ended its direction before it acknowledged
///   our FIN.
/// - EOPNOTSUPP: also if `LB_LEVEL_CONFIRMED` was wanted, or `LB_LEVEL_CLOSED` without
///   `bytes_read`: the receipt says what is proven.
/// - EINVAL: the options are invalid, and nothing was done: `want` is not a level, or a reserved
///   field is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_finish_options(
    fd: c_int,
    options: *const Options,
    receipt: *mut Receipt,
) -> c_int {
    let options = if options.is_null() {
        Some((FinishOptions::default(), Counted::default()))
    } else {
        // SAFETY: it is not NULL, so C promises options; any numbers in it are valid.
        unsafe { options.read() }.checked()
    };
    // SAFETY: the promise is the same as ours.
    unsafe { finish(fd, options, receipt) }
}

type Wanted = (FinishOptions, Counted);

/// Finishes, and fills the receipt. Without options nothing is done.
///
/// # Safety
/// `receipt` is NULL, or there is room for a receipt.
unsafe fn finish(fd: c_int, wanted: Option<Wanted>, receipt: *mut Receipt) -> c_int {
    let told = match wanted {
        Some(wanted) => caught(|| finished(fd, wanted))
            .unwrap_or_else(|| Receipt::nothing(Why::Refused, PANICKED)),
        None => Receipt::nothing(Why::BadOptions, libc::EINVAL),
    };
    if !receipt.is_null() {
        // SAFETY: it is not NULL, so the caller promises the room. What was there is not read.
        unsafe { receipt.write(told) };
    }
    if told.error == 0 {
        return 0;
    }
    set_errno(told.error);
    -1
}

fn finished(fd: c_int, (options, counted): Wanted) -> Receipt {
    let outcome = lent(fd, |fd| Ok(finish_fd_counted(fd, counted, options)));
    match outcome {
        Ok(Ok(receipt)) => Receipt::of(&receipt, Why::Proven, 0),
        Ok(Err(error)) => {
            let (why, errno) = (Why::from(error.why), errno_of(&error));
            if why.refused_the_descriptor() {
                Receipt::nothing(why, errno)
            } else {
                Receipt::of(&error.receipt, why, errno)
            }
        }
        Err(errno) => Receipt::nothing(Why::NotOpen, errno),
    }
}

fn errno_of(error: &FinishError) -> Errno {
    match Why::from(error.why) {
        Why::Deadline => libc::ETIMEDOUT,
        Why::Reset => libc::ECONNRESET,
        Why::NotConnected => libc::ENOTCONN,
        Why::EarlyFin => libc::EPROTO,
        Why::Unknowable => libc::EOPNOTSUPP,
        Why::NotOpen => libc::EBADF,
        Why::NoSocket => libc::ENOTSOCK,
        Why::NoStream => libc::EPROTOTYPE,
        Why::Listening | Why::BadOptions => libc::EINVAL,
        Why::Refused | Why::Proven => {
            let source = error.source.as_ref();
            source.and_then(std::io::Error::raw_os_error).unwrap_or(libc::EIO)
        }
    }
}

impl Options {
    /// The same in Rust; `None` if they are invalid.
    fn checked(self) -> Option<Wanted> {
        if self.reserved != [0; 4] {
            return None;
        }
        let default = FinishOptions::default();
        let drain = match u64::try_from(self.drain_limit) {
            Ok(0) => Drain::Keep,
            Ok(limit) => Drain::Discard(limit),
            Err(_) => default.drain,
        };
        let want = Level::numbered(self.want)?.delivery()?;
        let options =
            FinishOptions::default().within(deadline(self.timeout_ms)).want(want).drain(drain);
        let told = |count: i64| u64::try_from(count).ok();
        let mut counted = Counted::default();
        counted.written = told(self.written);
        counted.read = told(self.bytes_read);
        Some((options, counted))
    }
}

/// Negative: the default.
fn deadline(timeout_ms: i32) -> Duration {
    match u64::try_from(timeout_ms) {
        Ok(milliseconds) => Duration::from_millis(milliseconds),
        Err(_) => FinishOptions::default().deadline,
    }
}

#[cfg(test)]
mod tests {
    use lastbyte::Delivery;

    use super::*;

    /// `LB_OPTIONS_INIT`.
    const DEFAULT: Options = Options {
        want: 3,
        timeout_ms: -1,
        drain_limit: -1,
        written: -1,
        bytes_read: -1,
        reserved: [0; 4],
    };

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(DEFAULT.checked(), Some((FinishOptions::default(), Counted::default())));
        let text = FinishOptions::default();
        assert_eq!(text.deadline, Duration::from_millis(30_000), "the header says so");
        assert_eq!(text.drain, Drain::Discard(1_048_576), "the header says so");
    }

    #[test]
    fn options_are_looked_at() {
        let wanting = |want| Options { want, ..DEFAULT }.checked().map(|(options, _)| options.want);
        assert_eq!(wanting(1), Some(Delivery::Written));
        assert_eq!(wanting(5), Some(Delivery::Confirmed));
        for nonsense in [0, 6, -1, i32::MAX] {
            assert_eq!(wanting(nonsense), None, "{nonsense}");
        }
        assert_eq!(Options { reserved: [0, 0, 0, 1], ..DEFAULT }.checked(), None);
        let draining = |drain_limit| {
            Options { drain_limit, ..DEFAULT }.checked().map(|(options, _)| options.drain)
        };
        assert_eq!(draining(0), Some(Drain::Keep));
        assert_eq!(draining(1), Some(Drain::Discard(1)));
        let counted = Options { written: 0, bytes_read: 7, ..DEFAULT }.checked().unwrap().1;
        assert_eq!(counted, Counted::default().written(0).read(7));
        assert_eq!(deadline(0), Duration::ZERO);
        assert_eq!(deadline(200), Duration::from_millis(200));
    }
}
