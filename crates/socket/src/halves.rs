//! The two directions of a stream over tokio, for two tasks.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lastbyte_core::finish::{Facts, FinishOptions};
use lastbyte_core::{End, Receipt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::Socket;
use crate::builder::{Finish, FinishAsync};
use crate::drive::drive;
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::{Finished, Finishing, of_one_direction, receipt_of};
use crate::shared::{ReadSide, Shared, WriteSide};
use crate::watched::Registered;

/// The reading half that borrows a [`Stream`](crate::Stream): see [`Stream::split`](crate::Stream::split).
#[derive(Debug)]
pub struct ReadHalf<'a, S: Socket = TcpStream> {
    pub(crate) shared: &'a Shared<Registered<S>>,
    pub(crate) side: &'a mut ReadSide,
}

/// The writing half that borrows a [`Stream`](crate::Stream): see [`Stream::split`](crate::Stream::split).
///
/// Dropping it sends no FIN, which would mark the stream as complete. Call
/// [`WriteHalf::half_close`] or [`WriteHalf::prove`] for that.
#[derive(Debug)]
pub struct WriteHalf<'a, S: Socket = TcpStream> {
    pub(crate) shared: &'a Shared<Registered<S>>,
    pub(crate) side: &'a mut WriteSide,
}

/// The reading half of a [`Stream`](crate::Stream): see [`Stream::into_split`](crate::Stream::into_split).
#[derive(Debug)]
pub struct OwnedReadHalf<S: Socket = TcpStream> {
    pub(crate) shared: Arc<Shared<Registered<S>>>,
    pub(crate) side: ReadSide,
}

/// The writing half of a [`Stream`](crate::Stream): see [`Stream::into_split`](crate::Stream::into_split).
///
/// Dropping it sends no FIN, which would mark the stream as complete. Call
/// [`OwnedWriteHalf::half_close`] or [`OwnedWriteHalf::prove`] for that.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Socket = TcpStream> {
    pub(crate) shared: Arc<Shared<Registered<S>>>,
    pub(crate) side: WriteSide,
}

/// What the borrowed and the owned reading half have in common.
macro_rules! read_half {
    ($half:ty $(, $life:lifetime)?) => {
        impl<$($life,)? S: Socket> $half {
            /// Bytes read so far.
            #[must_use]
            pub fn bytes_read(&self) -> u64 {
                self.side.read
            }

            /// How the peer's stream ended, once a read has met its end.
            #[must_use]
            pub fn observed_end(&self) -> Option<End> {
                self.side.observed_end
            }
        }

        impl<$($life,)? S: Socket> AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let Self { shared, side } = self.get_mut();
                shared.poll_read(side, cx, buffer)
            }
        }

        impl<$($life,)? S: Socket> AsFd for $half {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.shared.io.as_fd()
            }
        }
    };
}

/// What the borrowed and the owned writing half have in common.
macro_rules! write_half {
    ($half:ty $(, $life:lifetime)?) => {
        impl<$($life,)? S: Socket> $half {
            /// Bytes that the kernel accepted from us so far. It says nothing about their arrival.
            #[must_use]
            pub fn written(&self) -> u64 {
                self.side.written
            }

            /// Ends our direction with a FIN after all written bytes; the other direction stays
            /// open.
            ///
            /// # Errors
            /// When the connection is gone already.
            pub fn half_close(&mut self) -> Result<(), SocketError> {
                let done = self.shared.half_close(&mut self.side);
                done.map_err(|cause| self.shared.error(Operation::HalfClose, cause))
            }

            /// Ends our direction and waits until all of it is acknowledged, while the other half
            /// reads.
            ///
            /// Only the reading half learns how the peer ends, so this proves at most
            /// [`Delivery::Acked`](crate::Delivery::Acked) and reads nothing. For more,
            /// [`OwnedReadHalf::reunite`] the two.
            pub fn prove(&mut self) -> Finish<&mut Self> {
                Finish::new(self)
            }

            /// [`Self::prove`] with prepared options.
            ///
            /// # Errors
            /// When less could be proven; the error holds the receipt of what was.
            pub async fn prove_with(
                &mut self,
                options: FinishOptions,
            ) -> Result<Receipt, FinishError> {
                prove(&self.shared, &mut self.side, options).await
            }
        }

        impl<'run, $($life: 'run,)? S: Socket> FinishAsync for &'run mut $half {
            type Future = Pin<Box<dyn Future<Output = Finished> + Send + 'run>>;

            fn run(self, options: FinishOptions) -> Self::Future {
                Box::pin(self.prove_with(options))
            }
        }

        impl<$($life,)? S: Socket> AsyncWrite for $half {
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

            /// Does nothing: a socket has no user-space buffer to flush. It proves nothing.
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Half-closes. It proves nothing.
            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                let Self { shared, side } = self.get_mut();
                Poll::Ready(shared.half_close(side))
            }
        }

        impl<$($life,)? S: Socket> AsFd for $half {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.shared.io.as_fd()
            }
        }
    };
}

read_half!(ReadHalf<'a, S>, 'a);
read_half!(OwnedReadHalf<S>);
write_half!(WriteHalf<'a, S>, 'a);
write_half!(OwnedWriteHalf<S>);

async fn prove<S: Socket>(
    shared: &Shared<Registered<S>>,
    side: &mut WriteSide,
    options: FinishOptions,
) -> Result<Receipt, FinishError> {
    let facts = shared.facts(&ReadSide::default(), side, true);
    let facts = Facts { read: None, alone: false, ..facts };
    let mut finishing =
        Finishing::finish(facts, of_one_direction(options)).reporting_to(&shared.report);
    let outcome = drive(&mut finishing, &shared.io, false).await;
    let finished = finishing.with_endpoints(outcome, || shared.endpoints());
    finishing.record(receipt_of(&finished), &mut ReadSide::default(), side);
    finished
}
