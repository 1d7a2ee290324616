//! The two directions of a stream over tokio, for two tasks.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lastbyte_core::finish::{Facts, FinishOptions};
use lastbyte_core::{End, Receipt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::async_stream::{AsyncStream, drive};
use crate::book::{self, ReadSide, Shared, WriteSide};
use crate::carrier::Carrier;
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::Course;
use crate::halves::of_one_direction;
use crate::stream::receipt_of;
use crate::watched::Registered;

/// The reading half of an [`AsyncStream`]: see [`AsyncStream::into_split`].
#[derive(Debug)]
pub struct AsyncReadHalf<S: Carrier = TcpStream> {
    pub(crate) shared: Arc<Shared<Registered<S>>>,
    pub(crate) side: ReadSide,
}

/// The writing half of an [`AsyncStream`]: see [`AsyncStream::into_split`].
///
/// Dropping it ends nothing: a FIN would say that all was sent. Say so by
/// [`AsyncWriteHalf::half_close`] or [`AsyncWriteHalf::prove`].
#[derive(Debug)]
pub struct AsyncWriteHalf<S: Carrier = TcpStream> {
    pub(crate) shared: Arc<Shared<Registered<S>>>,
    pub(crate) side: WriteSide,
}

impl<S: Carrier> AsyncReadHalf<S> {
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

    /// Makes the stream whole again.
    ///
    /// # Errors
    /// Gives both back when they are halves of two streams.
    pub fn reunite(
        self,
        other: AsyncWriteHalf<S>,
    ) -> Result<AsyncStream<S>, (Self, AsyncWriteHalf<S>)> {
        if !Arc::ptr_eq(&self.shared, &other.shared) {
            return Err((self, other));
        }
        let shared = book::reunite(other.shared, self.shared);
        Ok(AsyncStream::of_sides(shared, self.side, other.side))
    }
}

impl<S: Carrier> AsyncWriteHalf<S> {
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

    /// Ends our direction and waits until all of it is acknowledged, while the other half reads:
    /// see [`WriteHalf::prove`](crate::WriteHalf::prove).
    ///
    /// # Errors
    /// When less could be proven; the error holds the receipt of what was.
    pub async fn prove(&mut self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let facts = self.shared.facts(&ReadSide::default(), &self.side, true);
        let facts = Facts { read: None, alone: false, ..facts };
        let mut course =
            Course::finish(facts, of_one_direction(options)).telling(&self.shared.report);
        let outcome = drive(&mut course, &self.shared.io, false).await;
        let finished = course.said(outcome, || self.shared.ends());
        course.enter(receipt_of(&finished), &mut ReadSide::default(), &mut self.side);
        finished
    }
}

impl<S: Carrier> AsyncRead for AsyncReadHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { shared, side } = self.get_mut();
        shared.poll_read(side, cx, buffer)
    }
}

impl<S: Carrier> AsyncWrite for AsyncWriteHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { shared, side } = self.get_mut();
        shared.poll_write(side, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { shared, side } = self.get_mut();
        shared.poll_write_parts(side, cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: a socket has no buffer of its own to flush. It is no proof of anything.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Half-closes: no proof of anything either.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { shared, side } = self.get_mut();
        Poll::Ready(shared.half_close(side))
    }
}
