//! The two directions of a blocking stream, for two threads.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lastbyte_core::finish::{Facts, FinishOptions};
use lastbyte_core::{End, Receipt};

use crate::address::Socket;
use crate::blocking::Stream;
use crate::builder::{Finish, FinishBlocking};
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::{Finished, Finishing, of_one_direction, receipt_of};
use crate::shared::{self, ReadSide, Shared, WriteSide, length_of};

/// The reading half that borrows a [`Stream`]: see [`Stream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a, S = TcpStream> {
    pub(crate) shared: &'a Shared<S>,
    pub(crate) side: &'a mut ReadSide,
}

/// The writing half that borrows a [`Stream`]: see [`Stream::split`].
///
/// Dropping it sends no FIN, which would mark the stream as complete. Call
/// [`WriteHalf::half_close`] or [`WriteHalf::prove`] for that.
#[derive(Debug)]
pub struct WriteHalf<'a, S = TcpStream> {
    pub(crate) shared: &'a Shared<S>,
    pub(crate) side: &'a mut WriteSide,
}

/// The reading half of a [`Stream`]: see [`Stream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf<S = TcpStream> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) side: ReadSide,
}

/// The writing half of a [`Stream`]: see [`Stream::into_split`].
///
/// Dropping it sends no FIN, which would mark the stream as complete. Call
/// [`OwnedWriteHalf::half_close`] or [`OwnedWriteHalf::prove`] for that.
#[derive(Debug)]
pub struct OwnedWriteHalf<S = TcpStream> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) side: WriteSide,
}

impl<S: Socket> OwnedReadHalf<S> {
    /// Joins both halves to the stream again.
    ///
    /// # Errors
    /// Returns both halves if they belong to two streams.
    pub fn reunite(self, other: OwnedWriteHalf<S>) -> Result<Stream<S>, (Self, OwnedWriteHalf<S>)> {
        if !Arc::ptr_eq(&self.shared, &other.shared) {
            return Err((self, other));
        }
        let shared = shared::reunite(other.shared, self.shared);
        Ok(Stream { shared, reading: self.side, writing: other.side })
    }
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

        impl<$($life,)? S: Socket> Read for $half {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let result = self.shared.io.receive(buffer);
                self.shared.on_read(&mut self.side, buffer.len(), result)
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
            pub fn prove_with(&mut self, options: FinishOptions) -> Result<Receipt, FinishError> {
                prove(&self.shared, &mut self.side, options)
            }
        }

        impl<$($life,)? S: Socket> FinishBlocking for &mut $half {
            type Receipt = Receipt;
            type Error = FinishError;

            fn run(self, options: FinishOptions) -> Finished {
                self.prove_with(options)
            }
        }

        impl<$($life,)? S: Socket> Write for $half {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let shared = &*self.shared;
                shared.write(&mut self.side, bytes.len(), || shared.io.send(bytes))
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                let (shared, most) = (&*self.shared, length_of(parts));
                shared.write(&mut self.side, most, || shared.io.send_parts(parts))
            }

            /// Does nothing: a socket has no user-space buffer to flush. It proves nothing.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
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

fn prove<S: Socket>(
    shared: &Shared<S>,
    side: &mut WriteSide,
    options: FinishOptions,
) -> Result<Receipt, FinishError> {
    let facts = shared.facts(&ReadSide::default(), side, false);
    let facts = Facts { read: None, alone: false, ..facts };
    let mut finishing =
        Finishing::finish(facts, of_one_direction(options)).reporting_to(&shared.report);
    let outcome = finishing.drive(&shared.io);
    let finished = finishing.with_endpoints(outcome, || shared.endpoints());
    finishing.record(receipt_of(&finished), &mut ReadSide::default(), side);
    finished
}
