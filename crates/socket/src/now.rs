//! A stream over tokio, one call at a time and without waiting: what a relay is made of.
//!
//! Each call is counted as a read or a write of the stream is, and an end is told as there. What
//! tokio remembers of readiness is kept true, so that a call in vain is seldom made: it is cleared
//! where the kernel has said, in whatever way, that there is nothing more for now.

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

/// What [`Stream::read_now`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// So many bytes; 0 is the end of the stream: see [`Stream::observed_end`].
    pub bytes: usize,
    /// It is one byte, and urgent.
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

    /// Waits for an event that may mean room to write. Returns whether the connection can no longer be
    /// written to: it failed, or both directions have ended.
    ///
    /// # Errors
    /// When the event loop is gone.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let ready = ready!(self.shared().io.poll_writable(cx))?;
        Poll::Ready(Ok(ready.is_write_closed()))
    }

    /// Waits for the connection to fail, by what is not awaited otherwise: an event for writing. Both
    /// directions ended looks the same. The next write is to be made without waiting for readiness,
    /// as [`Stream::write_now`] does.
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

    /// Whether the connection has failed, and nobody was told of it yet. It stays so.
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

    /// Bytes that were written and that the peer's kernel is not known to have (`SIOCOUTQ`); our FIN
    /// counts as one.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn unacked(&self) -> io::Result<u32> {
        tcp::unacked(self)
    }

    /// Whether an urgent byte has been announced and not yet been read. What is read by
    /// [`Stream::read_now`] stops before it, and then is it alone; splicing must not meet it.
    #[must_use]
    pub fn has_urgent(&self) -> bool {
        self.kind() == Kind::Tcp && self.shared().io.is_urgent()
    }

    /// Reads what is there. `in_a_row` says that there was more than the last call could take, and no
    /// event since: an urgent byte may have come that was not announced yet.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is; a cut connection's error; the kernel's.
    pub fn read_now(&mut self, room: &mut [u8], in_a_row: bool) -> io::Result<Read> {
        let may_mark = self.kind() == Kind::Tcp;
        let announced = may_mark && self.shared().io.is_urgent();
        let urgent = (announced || in_a_row && may_mark) && socket::at_mark(self)?;
        let room = if urgent { &mut room[..1] } else { room };
        let length = room.len();
        let (shared, side) = self.reading();
        let result = shared.io.receive(room);
        if announced || urgent {
            let passed = urgent && result.is_ok();
            // Nothing is left in front of a mark: there is none.
            let none = !urgent && result.as_ref().is_err_and(is_would_block);
            if passed || none {
                shared.io.clear(Interest::PRIORITY);
            }
        } else if result.as_ref().is_ok_and(|bytes| 0 < *bytes && *bytes < length) {
            // The queue is empty. A FIN or an urgent byte that came meanwhile is a new event.
            shared.io.clear(Interest::READABLE);
        }
        let bytes = match result {
            // The event has said it, and the kernel need not be asked.
            Ok(0) if shared.kind == Kind::Tcp && shared.ours && shared.io.has_fin() => {
                side.observed_end = Some(End::Fin);
                0
            }
            result => shared.on_read(side, length, result)?,
        };
        Ok(Read { bytes, urgent })
    }

    /// Writes what there is room for, at once: also where tokio does not know of any.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room; the connection's.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(bytes.len(), |fd| socket::send_now(fd, bytes))
    }

    /// Writes one or more bytes, the last of them urgent (`MSG_OOB`).
    ///
    /// # Errors
    /// `WouldBlock` where there is no room; the connection's.
    pub fn write_urgent_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(bytes.len(), |fd| socket::send_urgent(fd, bytes))
    }

    /// Moves at most `most` bytes from the stream into an empty pipe. Returns 0 where the stream may
    /// have ended, or stands at an urgent mark: [`Stream::read_now`] tells.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there, the pipe being empty; `InvalidInput` where it cannot be
    /// spliced, and then nothing was moved; a cut connection's error.
    pub fn splice_out(&mut self, pipe: &impl AsFd, most: usize) -> io::Result<usize> {
        let (shared, side) = self.reading();
        let result = shared.io.try_read(|socket| pipe::splice(socket, pipe, most));
        match result {
            Ok(0) => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
            result => shared.on_read(side, most, result),
        }
    }

    /// Moves at most `most` bytes from a pipe that holds them into the stream.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room; the connection's.
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

    /// Whether closing the socket resets the connection, however it comes to that: also when the program
    /// is killed. It throws away what is not yet acknowledged. Without it the kernel ends with a FIN, and
    /// what was cut looks complete. Said again, it is not set again.
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

    /// What the kernel knows of the connection, with the send buffer: what
    /// [`Limits`](lastbyte_core::sample::Limits) judges by.
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
