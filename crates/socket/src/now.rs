//! Single calls on a stream over tokio, without waiting: what a relay uses.
//!
//! Each call counts bytes and reports an end like a read or a write of the stream. It clears
//! tokio's readiness as soon as a result of the kernel shows that nothing more can be read or
//! written now, so that few later calls fail.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lastbyte_core::sample::Moment;
use lastbyte_core::{End, Kind};
use lastbyte_sys::{pipe, poll, socket, tcp};
use std::os::fd::AsFd;
use tokio::io::Interest;

use crate::address::Socket;
use crate::shared;
use crate::stream::Stream;

/// The result of [`Stream::read_now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The number of bytes; 0 is the end of the stream: see [`Stream::observed_end`].
    pub bytes: usize,
    /// Whether it is one urgent byte.
    pub urgent: bool,
}

impl<S: Socket> Stream<S> {
    /// Waits until there may be something to read, or an end.
    ///
    /// # Errors
    /// When the event loop is gone.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared().io.poll_readable(cx).map_ok(drop)
    }

    /// Waits for an event that may mean space to write. Returns whether the connection can no longer be
    /// written to: it failed, or both directions have ended.
    ///
    /// # Errors
    /// When the event loop is gone.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let ready = ready!(self.shared().io.poll_writable(cx))?;
        Poll::Ready(Ok(ready.is_write_closed()))
    }

    /// Waits for the connection to fail, on events for writing. The end of both directions looks
    /// the same. Make the next write without waiting for readiness, as [`Stream::write_now`] does.
    ///
    /// # Errors
    /// When the event loop is gone.
    pub fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.shared().io.clear(Interest::WRITABLE);
            if ready!(self.poll_writable(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Whether the connection has an error that the kernel has not reported to any call yet. This
    /// does not take the error.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn has_failed(&self) -> io::Result<bool> {
        poll::has_error(self)
    }

    /// Waits until the connection fails, whatever else happens on it.
    ///
    /// # Errors
    /// When the event loop is gone.
    pub async fn failed(&self) -> io::Result<()> {
        self.shared().io.ready(Interest::ERROR).await.map(drop)
    }

    /// Unacked bytes (`SIOCOUTQ`); our FIN counts as one.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn unacked(&self) -> io::Result<u32> {
        tcp::unacked(self)
    }

    /// Whether an urgent byte has been announced and not yet read. [`Stream::read_now`] stops
    /// before it, and then returns it alone. Do not splice across it.
    #[must_use]
    pub fn has_urgent(&self) -> bool {
        self.kind() == Kind::Tcp && self.shared().io.is_urgent()
    }

    /// Reads what has arrived. Set `in_a_row` if the last call filled its buffer and no event came
    /// since: an urgent byte may have arrived that was not announced yet.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; `ConnectionReset` after a reset; the kernel's.
    pub fn read_now(&mut self, buffer: &mut [u8], in_a_row: bool) -> io::Result<Read> {
        let may_mark = self.kind() == Kind::Tcp;
        let announced = may_mark && self.shared().io.is_urgent();
        let urgent = (announced || in_a_row && may_mark) && socket::at_mark(self)?;
        let buffer = if urgent { &mut buffer[..1] } else { buffer };
        let length = buffer.len();
        let (shared, side) = self.reading();
        let result = shared.io.receive(buffer);
        if announced || urgent {
            let passed = urgent && result.is_ok();
            // Nothing is left to read, so there is no mark.
            let none = !urgent && result.as_ref().is_err_and(is_would_block);
            if passed || none {
                shared.io.clear(Interest::PRIORITY);
            }
        } else if result.as_ref().is_ok_and(|bytes| 0 < *bytes && *bytes < length) {
            // The queue is empty. A FIN or an urgent byte that came meanwhile is a new event.
            shared.io.clear(Interest::READABLE);
        }
        let bytes = match result {
            // The event reported it, so no system call is needed.
            Ok(0) if shared.kind == Kind::Tcp && shared.ours && shared.io.has_fin() => {
                side.observed_end = Some(End::Fin);
                0
            }
            result => shared.on_read(side, length, result)?,
        };
        Ok(Read { bytes, urgent })
    }

    /// Writes what fits into the send buffer, at once, whether or not tokio knows of any.
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full; the connection's.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(bytes.len(), |fd| socket::send_now(fd, bytes))
    }

    /// Writes one or more bytes, the last of them urgent (`MSG_OOB`).
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full; the connection's.
    pub fn write_urgent_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(bytes.len(), |fd| socket::send_urgent(fd, bytes))
    }

    /// Moves at most `most` bytes from the stream into an empty pipe. Returns 0 if the stream may
    /// have ended or is at an urgent mark: [`Stream::read_now`] shows which.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; `InvalidInput` if the socket cannot be spliced, and
    /// then nothing was moved; `ConnectionReset` after a reset.
    pub fn splice_out(&mut self, pipe: &impl AsFd, most: usize) -> io::Result<usize> {
        let (shared, side) = self.reading();
        let result = shared.io.try_read(|socket| pipe::splice(socket, pipe, most));
        match result {
            Ok(0) => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
            result => shared.on_read(side, most, result),
        }
    }

    /// Moves at most `most` bytes from a pipe into the stream.
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full; the connection's.
    pub fn splice_in(&mut self, pipe: &impl AsFd, most: usize) -> io::Result<usize> {
        self.write_by(most, |fd| pipe::splice(pipe, fd, most))
    }

    fn write_by(
        &mut self,
        most: usize,
        write: impl FnOnce(&crate::watched::Registered<S>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let (shared, side) = self.writing();
        let result = shared.write(side, most, || write(&shared.io));
        let full = match &result {
            Ok(bytes) => *bytes < most,
            Err(error) => is_would_block(error),
        };
        if full {
            shared.io.clear(Interest::WRITABLE);
        }
        result
    }

    /// Sets whether closing the socket resets the connection, also if the program is killed. The
    /// reset discards unacked bytes. Without it the kernel sends a FIN, and a truncated stream
    /// looks complete. A call that changes nothing makes no system call.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn reset_when_closed(&mut self, on: bool) -> io::Result<()> {
        if self.resets != Some(on) {
            socket::set_linger(self, on.then_some(Duration::ZERO))?;
            self.resets = Some(on);
        }
        Ok(())
    }

    /// `TCP_INFO` with the size and fill of the send buffer: a sample for
    /// [`Limits`](lastbyte_core::sample::Limits).
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn moment(&self) -> io::Result<Moment> {
        shared::moment(self)
    }
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
