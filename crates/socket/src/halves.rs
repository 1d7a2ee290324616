//! The two directions of a blocking stream, for two threads.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lastbyte_core::finish::{Drain, FinishOptions};
use lastbyte_core::{Delivery, End, Receipt};

use crate::book::{self, ReadSide, Shared, WriteSide, length_of};
use crate::carrier::Carrier;
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::Course;
use crate::stream::{Stream, receipt_of};

/// The reading half of a [`Stream`]: see [`Stream::into_split`].
#[derive(Debug)]
pub struct ReadHalf<S = std::net::TcpStream> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) side: ReadSide,
}

/// The writing half of a [`Stream`]: see [`Stream::into_split`].
///
/// Dropping it ends nothing: a FIN would say that all was sent. Say so by
/// [`WriteHalf::half_close`] or [`WriteHalf::prove`].
#[derive(Debug)]
pub struct WriteHalf<S = std::net::TcpStream> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) side: WriteSide,
}

impl<S: Carrier> ReadHalf<S> {
    /// Bytes read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.side.read
    }

    /// How the peer's stream ended, once a read has met its end.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.side.ended
    }

    /// Makes the stream whole again; `Err` gives both back where they are of two streams.
    ///
    /// # Errors
    /// When the halves are of two streams.
    pub fn reunite(self, other: WriteHalf<S>) -> Result<Stream<S>, (Self, WriteHalf<S>)> {
        if !Arc::ptr_eq(&self.shared, &other.shared) {
            return Err((self, other));
        }
        let shared = book::reunite(other.shared, self.shared);
        Ok(Stream { shared, reading: self.side, writing: other.side })
    }
}

impl<S: Carrier> WriteHalf<S> {
    /// Bytes that the kernel accepted from us so far. It says nothing about their arrival.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.side.written
    }

    /// Ends our direction with a FIN after what is queued; the other one stays open.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn half_close(&mut self) -> Result<(), SocketError> {
        let done = self.shared.half_close(&mut self.side);
        done.map_err(|cause| self.shared.error(Operation::HalfClose, cause))
    }

    /// Ends our direction and waits until all of it is acknowledged, while the other half reads.
    ///
    /// How the peer ends is the reading half's to know: what is wanted here is at most
    /// [`Delivery::Acked`], and nothing is read. For more, [`ReadHalf::reunite`] the two.
    ///
    /// # Errors
    /// When less could be proven; the error holds the receipt of what was.
    pub fn prove(&mut self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let facts = self.shared.facts(&ReadSide::default(), &self.side, false);
        let facts = lastbyte_core::finish::Facts { read: None, alone: false, ..facts };
        let mut course =
            Course::finish(facts, of_one_direction(options)).telling(&self.shared.report);
        let outcome = course.drive(&self.shared.io);
        let finished = course.said(outcome, || self.shared.ends());
        course.enter(receipt_of(&finished), &mut ReadSide::default(), &mut self.side);
        finished
    }
}

/// What can be asked of the writing half alone.
pub(crate) fn of_one_direction(options: FinishOptions) -> FinishOptions {
    let want = options.want.min(Delivery::Acked);
    FinishOptions { want, drain: Drain::Keep, ..options }
}

impl<S: Carrier> Read for ReadHalf<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.shared.io.receive(buffer);
        self.shared.on_read(&mut self.side, buffer.len(), result)
    }
}

impl<S: Carrier> Write for WriteHalf<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.write(&mut self.side, bytes.len(), || self.shared.io.send(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = length_of(parts);
        self.shared.write(&mut self.side, most, || self.shared.io.send_parts(parts))
    }

    /// Does nothing: a socket has no buffer of its own to flush. It is no proof of anything.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Carrier> AsFd for ReadHalf<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.io.as_fd()
    }
}

impl<S: Carrier> AsFd for WriteHalf<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.io.as_fd()
    }
}
