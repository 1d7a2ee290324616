//! Descriptors that tokio watches, the urgent ones among their events.

use std::fs::File;
#[cfg(feature = "tokio")]
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

#[cfg(feature = "tokio")]
use tokio::io::{Interest, unix::AsyncFd};

/// A type that owns one open descriptor, and gives the same number for as long as it lives.
pub trait OwnsDescriptor: AsRawFd + sealed::Sealed {}

mod sealed {
    #[allow(unnameable_types, reason = "that is what it is for")]
    pub trait Sealed {}
}

macro_rules! owns_descriptor {
    ($($owner:ty),*) => { $(
        impl sealed::Sealed for $owner {}
        impl OwnsDescriptor for $owner {}
    )* };
}

owns_descriptor!(File, OwnedFd, TcpListener, TcpStream, UnixListener, UnixStream);

/// Registers a descriptor with the event loop of this thread (`epoll_ctl(2)`, edge-triggered). Calls
/// on it must not wait. Needs a running runtime with I/O.
///
/// # Errors
/// `EPERM` for a file that cannot be waited for; `ENOSPC` at the user's limit
/// (`fs.epoll.max_user_watches`).
#[cfg(feature = "tokio")]
pub fn register<T: OwnsDescriptor>(io: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: `io` owns its descriptor, so that it is open and the same until the registration, which
    // owns `io`, has ended.
    unsafe { AsyncFd::register_with_interest(io, interest) }.map_err(io::Error::from)
}
