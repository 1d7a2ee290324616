//! The same stream over tokio.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use lastbyte_core::finish::{Action, Finish, FinishOptions, Unproven};
use lastbyte_core::{End, Receipt};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time;

use crate::book::Book;
use crate::error::{FinishError, SocketError};
use crate::finish::{failure, step};
use crate::stream::Stream;

/// A connected TCP socket over tokio: see [`Stream`] for what it promises.
#[derive(Debug)]
pub struct AsyncStream {
    tcp: TcpStream,
    book: Book,
}

impl AsyncStream {
    /// Takes a blocking stream over to tokio, with all it knows. Needs a running runtime.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking or registered.
    pub fn from_blocking(stream: Stream) -> io::Result<Self> {
        let (tcp, book) = stream.into_parts();
        tcp.set_nonblocking(true)?;
        Ok(Self { tcp: TcpStream::from_std(tcp)?, book })
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.book.peer
    }

    /// Bytes that the kernel accepted from us so far. It says nothing about their arrival.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.book.counts().0
    }

    /// How the peer's stream ended, once a read has met its end.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.book.ended()
    }

    /// Reads what has arrived; 0 only for a FIN, or where nothing can be known.
    ///
    /// # Errors
    /// The connection's; a cut connection always.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = loop {
            self.tcp.readable().await?;
            match self.tcp.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => break result,
            }
        };
        self.book.on_read(&self.tcp, buffer.len(), result)
    }

    /// Writes all of `bytes` to the kernel.
    ///
    /// # Errors
    /// The connection's; [`AsyncStream::written`] tells how many bytes the kernel took before.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.tcp.writable().await?;
            let result = self.tcp.try_write(bytes);
            match self.book.on_written(result) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends our direction with a FIN after what is queued; the other one stays open.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn half_close(&mut self) -> Result<(), SocketError> {
        self.book.half_close(&self.tcp)
    }

    /// Ends the connection so that nothing is lost: see [`Stream::finish`].
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub async fn finish(self, options: FinishOptions) -> Result<Receipt, FinishError> {
        let started = Instant::now();
        let mut machine = Finish::new(self.book.facts(), options, started.elapsed());
        let mut open = Some(Interest::READABLE | Interest::WRITABLE);
        loop {
            let done = match machine.next() {
                Action::Done => break,
                Action::Wait { until } => {
                    let woken =
                        time::timeout_at((started + until).into(), self.edge(&mut open)).await;
                    let readable = woken.unwrap_or(Ok(false));
                    readable.map(|readable| machine.on_wake(started.elapsed(), readable))
                }
                action => step(&mut machine, action, &self.tcp),
            };
            if let Err(error) = done {
                let receipt = machine.receipt(started.elapsed());
                return Err(failure(&self.book, (Unproven::Unknowable, receipt), Some(error)));
            }
        }
        let outcome = machine.outcome(started.elapsed());
        outcome.map_err(|outcome| failure(&self.book, outcome, None))
    }

    /// Waits for the next edge and returns whether there may be something to read.
    ///
    /// tokio keeps a readiness until an operation meets `WouldBlock`: it is cleared here by one that
    /// always does, so that the acknowledgement of our FIN, a new edge, wakes the next wait. A closed
    /// direction it never clears, and waiting for it would spin: it is told once, then left out.
    /// With both closed there is nothing to wait for but the caller's timer.
    async fn edge(&self, open: &mut Option<Interest>) -> io::Result<bool> {
        let Some(interest) = *open else {
            return std::future::pending().await;
        };
        let ready = self.tcp.ready(interest).await?;
        let clear = |interest| {
            let blocked = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.tcp.try_io(interest, blocked);
        };
        if ready.is_writable() {
            clear(Interest::WRITABLE);
        }
        if ready.is_readable() {
            clear(Interest::READABLE);
        }
        if ready.is_read_closed() {
            *open = open.and_then(|interest| interest.remove(Interest::READABLE));
        }
        if ready.is_write_closed() {
            *open = open.and_then(|interest| interest.remove(Interest::WRITABLE));
        }
        Ok(ready.is_readable() || ready.is_read_closed())
    }
}

impl AsFd for AsyncStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
