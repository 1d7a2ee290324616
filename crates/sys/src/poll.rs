//! Waiting for descriptors: `ppoll(2)` and `epoll(7)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::check;

/// Something to read, or an end of stream.
pub const READABLE: i16 = libc::POLLIN;
/// Room to write.
pub const WRITABLE: i16 = libc::POLLOUT;

/// Waits until a descriptor is ready or `timeout` has passed, to the nanosecond (`ppoll(2)`).
///
/// `wanted` is a mask of [`READABLE`] and [`WRITABLE`] for each descriptor. Returns a bit per
/// descriptor, in order, that is set when it is ready, in error or hung up. `None` waits for ever.
/// A signal ends the wait with no bit set.
///
/// # Errors
/// The kernel's: `ENOMEM`.
pub fn wait<const N: usize>(
    wanted: [(&dyn AsFdDyn, i16); N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut fds = wanted.map(|(fd, events)| libc::pollfd { fd: fd.raw(), events, revents: 0 });
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` holds N entries, lives through the call and is ours alone; `timeout` is null or
    // points to a timespec that outlives the call; a null mask leaves the signals as they are.
    let ready =
        unsafe { libc::ppoll(fds.as_mut_ptr(), N as libc::nfds_t, timeout, std::ptr::null()) };
    match check(ready) {
        Ok(_) => Ok(fds.map(|fd| fd.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}

/// The peer ended its direction (`POLLRDHUP`, Linux 2.6.17).
pub const PEER_END: i16 = libc::POLLRDHUP;

/// Waits until one descriptor is ready for what is `wanted`, in error or hung up, or `timeout` has
/// passed (`ppoll(2)`). A signal ends the wait with nothing ready.
///
/// # Errors
/// The kernel's: `ENOMEM`.
pub fn wait_for(fd: &impl AsFd, wanted: i16, timeout: Duration) -> io::Result<Ready> {
    let mut fd = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: wanted, revents: 0 };
    let timeout = timespec(timeout);
    // SAFETY: one entry, which lives through the call and is ours alone; `timeout` outlives the
    // call; a null mask leaves the signals as they are.
    let ready = unsafe { libc::ppoll(&raw mut fd, 1, &raw const timeout, std::ptr::null()) };
    match check(ready) {
        Ok(_) => Ok(Ready::from_mask(i32::from(fd.revents))),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Ready::default()),
        Err(error) => Err(error),
    }
}

/// Whether an error of a socket is pending (`ppoll(2)`, `POLLERR`). This call does not take the
/// error.
///
/// # Errors
/// The kernel's: `ENOMEM`.
pub fn has_error(fd: &impl AsFd) -> io::Result<bool> {
    let mut fd = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: 0, revents: 0 };
    let timeout = timespec(Duration::ZERO);
    // SAFETY: one entry, which lives through the call and is ours alone; `timeout` outlives the
    // call; a null mask leaves the signals as they are.
    let ready = unsafe { libc::ppoll(&raw mut fd, 1, &raw const timeout, std::ptr::null()) };
    check(ready).map(|_| fd.revents & libc::POLLERR != 0)
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// There is something to read, an end of stream or an error among it.
    pub readable: bool,
    /// There is room to write, or the connection failed.
    pub writable: bool,
    /// The peer ended its direction, or the connection failed.
    pub ended: bool,
}

impl Ready {
    /// For a mask of `poll` or epoll: the bits are the same.
    fn from_mask(mask: i32) -> Self {
        let ended = i32::from(libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR);
        let readable = i32::from(libc::POLLIN) | ended;
        let writable = i32::from(libc::POLLOUT | libc::POLLHUP | libc::POLLERR);
        Self {
            readable: mask & readable != 0,
            writable: mask & writable != 0,
            ended: mask & ended != 0,
        }
    }
}

/// [`AsFd`] that can stand in an array of different types.
pub trait AsFdDyn {
    /// The number of the open descriptor.
    fn raw(&self) -> i32;
}

impl<T: AsFd> AsFdDyn for T {
    fn raw(&self) -> i32 {
        self.as_fd().as_raw_fd()
    }
}

/// Edge-triggered readiness of one descriptor (`epoll(7)`, `EPOLLET`).
///
/// Unlike [`wait`] it does not return at once for a socket that simply has room to write: it wakes
/// for each new event, among them the acknowledgement of a FIN (`FIN_WAIT1` to `FIN_WAIT2`).
#[derive(Debug)]
pub struct Edges {
    epoll: OwnedFd,
}

impl Edges {
    /// Watches `fd` for reading, writing, the peer's FIN and errors (`epoll_create1(2)`,
    /// `epoll_ctl(2)`). The first [`Edges::wait`] reports what is ready already.
    ///
    /// # Errors
    /// The kernel's: `EMFILE`, `EPERM` for a descriptor that cannot be watched (a file).
    pub fn of(fd: &impl AsFd) -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointer.
        let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: 0 };
        let (epoll_fd, fd) = (epoll.as_raw_fd(), fd.as_fd().as_raw_fd());
        // SAFETY: `event` outlives the call, which copies it; both descriptors are open.
        check(unsafe { libc::epoll_ctl(epoll_fd, libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(Self { epoll })
    }

    /// Waits for the next edge, at most `timeout` rounded up to a millisecond (`epoll_wait(2)`).
    /// `None` without one, also when a signal came first.
    ///
    /// # Errors
    /// None that a caller can cause; the kernel's are passed on.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<Ready>> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: room for one event, which is ours and outlives the call.
        let woken = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, ms) };
        match check(woken) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(Ready::from_mask(event.events.cast_signed()))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos()),
    }
}
