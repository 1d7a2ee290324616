//! Signals that wait to be read instead of interrupting a thread.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::{check, check_size};

/// The signal of a closed terminal; a daemon reads its configuration again.
pub const SIGHUP: i32 = libc::SIGHUP;

/// Blocks these signals in the calling thread, and in those that it starts from then on
/// (`pthread_sigmask(3)`): they wait, for [`signalfd`].
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub fn block(signals: &[i32]) -> io::Result<()> {
    let set = set_of(signals)?;
    // SAFETY: the set outlives the call; a null old set asks for nothing.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// A descriptor that is readable when one of these signals waits (`signalfd(2)`). They have to be
/// blocked in every thread.
///
/// # Errors
/// `EINVAL` for a number that is no signal; `EMFILE`, `ENFILE`.
pub fn signalfd(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals)?;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set outlives the call.
    let raw = check(unsafe { libc::signalfd(-1, &raw const set, flags) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Takes the next signal that waits at a descriptor of [`signalfd`].
///
/// # Errors
/// `WouldBlock` when none waits.
pub fn take(signals: &impl AsFd) -> io::Result<i32> {
    const LENGTH: usize = size_of::<libc::signalfd_siginfo>();
    let mut bytes = [0_u8; LENGTH];
    let fd = signals.as_fd().as_raw_fd();
    // SAFETY: the buffer has as many bytes as are asked for, and outlives the call.
    check_size(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), LENGTH) })?;
    // `ssi_signo` comes first.
    let [a, b, c, d, ..] = bytes;
    i32::try_from(u32::from_ne_bytes([a, b, c, d])).map_err(io::Error::other)
}

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: a set is an array of integers, for which zeros are a value.
    let mut set = unsafe { mem::zeroed::<libc::sigset_t>() };
    // SAFETY: the set is ours.
    check(unsafe { libc::sigemptyset(&raw mut set) })?;
    for signal in signals {
        // SAFETY: the set is ours.
        check(unsafe { libc::sigaddset(&raw mut set, *signal) })?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_signal_is_refused() {
        assert_eq!(block(&[9999]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(signalfd(&[0]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_signal_waits_to_be_taken() {
        // In a thread of its own, to which it is sent alone: others of this process take none.
        let waited = std::thread::spawn(|| {
            block(&[SIGHUP]).unwrap();
            let signals = signalfd(&[SIGHUP]).unwrap();
            assert_eq!(take(&signals).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            // SAFETY: the thread is the calling one.
            let own = unsafe { libc::pthread_self() };
            // SAFETY: the thread is running, and has the signal blocked.
            assert_eq!(unsafe { libc::pthread_kill(own, SIGHUP) }, 0);
            take(&signals).unwrap()
        });
        assert_eq!(waited.join().unwrap(), SIGHUP);
    }
}
