//! Sockets that tokio watches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use lastbyte_sys::{socket, watch};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use crate::address::Socket;

/// A socket that tokio watches, non-blocking: to read, to write, and for urgent bytes.
#[derive(Debug)]
pub(crate) struct Registered<S: Socket>(AsyncFd<S>);

impl<S: Socket> Registered<S> {
    /// Has a non-blocking socket watched.
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

    /// Waits until there may be room to write.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        let mut guard = ready!(self.0.poll_write_ready(cx))?;
        guard.retain_ready();
        Poll::Ready(Ok(guard.ready()))
    }

    /// Reads what is there. A short read is no empty queue: the kernel stops at an urgent byte.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |io| socket::receive_now(io, room))
    }

    /// Does a call that reads, if there may be something to read.
    pub(crate) fn try_read<R>(&self, read: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        self.0.try_io(Interest::READABLE, read)
    }

    /// Writes by `send` some of `most` bytes. Where it took fewer the queue is full: the readiness
    /// is cleared, and the next write need not ask in vain.
    pub(crate) fn send(
        &self,
        most: usize,
        send: impl FnOnce(&Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut taken = None;
        let result = self.0.try_io(Interest::WRITABLE, |_| {
            let bytes = send(self)?;
            taken = Some(bytes);
            // As tokio clears a readiness: not if an event came meanwhile.
            if 0 < bytes && bytes < most {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(bytes)
            }
        });
        taken.map_or(result, Ok)
    }

    /// Whether an urgent byte was announced (`EPOLLPRI`), and the readiness not cleared since.
    pub(crate) fn is_urgent(&self) -> bool {
        self.known(Interest::PRIORITY).is_priority()
    }

    /// Whether an event told that the peer has ended its direction, and none that ours is closed or the
    /// connection failed (`EPOLLRDHUP` without `EPOLLHUP` and `EPOLLERR`). A reset closes both.
    pub(crate) fn has_fin(&self) -> bool {
        self.known(Interest::READABLE).is_read_closed()
            && !self.known(Interest::WRITABLE).is_write_closed()
    }

    /// What tokio remembers of events, of these and of the direction's end.
    fn known(&self, interest: Interest) -> Ready {
        // Nearly always there is none, and then this is all.
        if self.0.try_io(interest, |_| Ok(())).is_err() {
            return Ready::EMPTY;
        }
        // There is readiness, and so the answer is here.
        let event = pin!(self.0.ready(interest));
        let Poll::Ready(Ok(mut guard)) = event.poll(&mut Context::from_waker(Waker::noop())) else {
            return Ready::EMPTY;
        };
        guard.retain_ready();
        guard.ready()
    }

    /// Forgets a readiness, so that the next event wakes.
    pub(crate) fn clear(&self, interest: Interest) {
        let _ = self.0.try_io(interest, |_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

impl<S: Socket> AsFd for Registered<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
