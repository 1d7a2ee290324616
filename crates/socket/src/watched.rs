//! Sockets registered with tokio.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use lastbyte_sys::{socket, watch};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use crate::address::Socket;

/// A non-blocking socket registered with tokio for reading, writing and urgent bytes.
#[derive(Debug)]
pub(crate) struct Registered<S: Socket>(AsyncFd<S>);

impl<S: Socket> Registered<S> {
    /// Registers a non-blocking socket.
    pub(crate) fn new(socket: S) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        watch::register(socket, interest).map(Self)
    }

    pub(crate) fn into_std(self) -> S {
        self.0.into_inner()
    }

    pub(crate) fn get(&self) -> &S {
        self.0.get_ref()
    }

    /// Waits until one of the directions is ready or closed.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let mut guard = self.0.ready(interest).await?;
        guard.retain_ready();
        Ok(guard.ready())
    }

    /// Waits until there may be something to read.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        let mut guard = ready!(self.0.poll_read_ready(cx))?;
        guard.retain_ready();
        Poll::Ready(Ok(guard.ready()))
    }

    /// Waits until the send buffer may have space.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        let mut guard = ready!(self.0.poll_write_ready(cx))?;
        guard.retain_ready();
        Poll::Ready(Ok(guard.ready()))
    }

    /// Reads what has arrived. A short read does not mean an empty queue: the kernel stops at an
    /// urgent byte.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |io| socket::receive_now(io, buffer))
    }

    /// Makes a call that reads, if there may be something to read.
    pub(crate) fn try_read<R>(&self, read: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        self.0.try_io(Interest::READABLE, read)
    }

    /// Writes up to `most` bytes with `send`. After a short write the queue is full: this clears
    /// the readiness, which saves the next write a failing call.
    pub(crate) fn send(
        &self,
        most: usize,
        send: impl FnOnce(&Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut taken = None;
        let result = self.0.try_io(Interest::WRITABLE, |_| {
            let bytes = send(self)?;
            taken = Some(bytes);
            // tokio clears the readiness unless an event came meanwhile.
            if 0 < bytes && bytes < most {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(bytes)
            }
        });
        taken.map_or(result, Ok)
    }

    /// Whether an event announced an urgent byte (`EPOLLPRI`) since the readiness was last cleared.
    pub(crate) fn is_urgent(&self) -> bool {
        self.known(Interest::PRIORITY).is_priority()
    }

    /// Whether an event reported that the peer ended its direction, and none that ours is closed or
    /// the connection failed (`EPOLLRDHUP` without `EPOLLHUP` and `EPOLLERR`). A reset closes both
    /// directions.
    pub(crate) fn has_fin(&self) -> bool {
        self.known(Interest::READABLE).is_read_closed()
            && !self.known(Interest::WRITABLE).is_write_closed()
    }

    /// The readiness that tokio stores for these events, and for the end of that direction.
    fn known(&self, interest: Interest) -> Ready {
        // Nearly always there is none, and this call is enough.
        if self.0.try_io(interest, |_| Ok(())).is_err() {
            return Ready::EMPTY;
        }
        // There is readiness, so this future is ready.
        let event = pin!(self.0.ready(interest));
        let Poll::Ready(Ok(mut guard)) = event.poll(&mut Context::from_waker(Waker::noop())) else {
            return Ready::EMPTY;
        };
        guard.retain_ready();
        guard.ready()
    }

    /// Clears a readiness, so that the next event wakes.
    pub(crate) fn clear(&self, interest: Interest) {
        let _ = self.0.try_io(interest, |_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

impl<S: Socket> AsFd for Registered<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
