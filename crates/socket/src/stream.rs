//! The blocking stream.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use lastbyte_core::finish::FinishOptions;
use lastbyte_core::sample::TcpInfo;
use lastbyte_core::{End, Receipt};
use lastbyte_sys::socket;

use crate::book::{self, Book};
use crate::error::{FinishError, Operation, SocketError};
use crate::finish;
use crate::tune::{Granted, Tune};

/// A connected TCP socket that counts its bytes and tells the truth about its end.
///
/// As [`Read`] it returns `Ok(0)` only for a FIN, or where nothing can be known ([`End::Unknown`],
/// see [`Stream::ended`]). A cut connection is an error, also when a failed write took the
/// kernel's one report of it.
///
/// Dropping it is a plain `close`: with unread input that throws away what is queued. To know that
/// the bytes arrived, [`Stream::finish`] it.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    book: Book,
}

impl Stream {
    /// Connects to one address, with options set before.
    ///
    /// # Errors
    /// Names the option that could not be set, or why there is no connection.
    pub fn connect(peer: SocketAddr, tune: &Tune, timeout: Duration) -> Result<Self, SocketError> {
        let failed = |cause| SocketError {
            operation: Operation::Connect,
            local: None,
            peer: Some(peer),
            cause,
        };
        let fd = socket::open_tcp(peer).map_err(failed)?;
        tune.apply(&fd)?;
        socket::connect(&fd, peer, timeout).map_err(failed)?;
        Self::ours(TcpStream::from(fd))
    }

    /// Takes over a connected socket whose history is not known: its end of stream will be
    /// [`End::Unknown`], and its [`Receipt`] counts only what is written from here on.
    ///
    /// # Errors
    /// When the descriptor is no socket.
    pub fn adopt(tcp: TcpStream) -> Result<Self, SocketError> {
        Self::with_history(tcp, false)
    }

    /// A connection that nobody has read or written yet.
    pub(crate) fn ours(tcp: TcpStream) -> Result<Self, SocketError> {
        Self::with_history(tcp, true)
    }

    fn with_history(tcp: TcpStream, ours: bool) -> Result<Self, SocketError> {
        let ends = (tcp.local_addr().ok(), tcp.peer_addr().ok());
        let book = Book::open(&tcp, ends, ours)?;
        Ok(Self { tcp, book })
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.book.local
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

    /// Bytes read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.book.counts().1
    }

    /// How the peer's stream ended, once a read has met its end.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.book.ended()
    }

    /// What the kernel knows of this connection now.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn info(&self) -> Result<TcpInfo, SocketError> {
        book::info(&self.tcp).map_err(|cause| self.book.error(Operation::Sample, cause))
    }

    /// The options as the kernel granted them.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn granted(&self) -> Result<Granted, SocketError> {
        Granted::read(&self.tcp).map_err(|cause| self.book.error(Operation::Sample, cause))
    }

    /// A second descriptor of this connection, by which another thread can watch it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn sampler(&self) -> Result<Sampler, SocketError> {
        let fd = self.tcp.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|cause| self.book.error(Operation::Sample, cause))?;
        Ok(Sampler { fd })
    }

    /// How long a read may wait; `None` for ever.
    ///
    /// # Errors
    /// When the duration is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(timeout)
    }

    /// How long a write may wait; `None` for ever.
    ///
    /// # Errors
    /// When the duration is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp.set_write_timeout(timeout)
    }

    /// Ends our direction with a FIN after what is queued; the other one stays open.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn half_close(&mut self) -> Result<(), SocketError> {
        self.book.half_close(&self.tcp)
    }

    /// Ends the connection so that nothing is lost, and returns the proof.
    ///
    /// Half-closes, waits for the wanted level, reads and throws away what the peer still sends, and
    /// only then closes. See [`lastbyte_core::finish`].
    ///
    /// # Errors
    /// When less than the wanted level could be proven; the error holds the receipt of what was.
    pub fn finish(self, options: FinishOptions) -> Result<Receipt, FinishError> {
        finish::drive(&self.tcp, &self.book, options)
    }

    /// Ends the connection by a reset, on purpose, so that the peer cannot mistake it for a clean
    /// end. What is queued and not yet acknowledged is thrown away.
    ///
    /// # Errors
    /// When the kernel refuses the option; the connection is closed all the same.
    pub fn abort(self) -> Result<(), SocketError> {
        socket::set_linger(&self.tcp, Some(Duration::ZERO))
            .map_err(|cause| self.book.error(Operation::Set("SO_LINGER"), cause))
    }

    /// Gives the plain socket back, with nothing closed.
    #[must_use]
    pub fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn into_parts(self) -> (TcpStream, Book) {
        (self.tcp, self.book)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.tcp.read(buffer);
        self.book.on_read(&self.tcp, buffer.len(), result)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.tcp.write(bytes);
        self.book.on_written(result)
    }

    /// Does nothing: a TCP socket has no buffer of its own to flush. It is no proof of anything.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

/// Watches a connection from beside. It holds a descriptor: while it lives, dropping the [`Stream`]
/// does not close the connection.
#[derive(Debug)]
pub struct Sampler {
    fd: OwnedFd,
}

impl Sampler {
    /// What the kernel knows of the connection now.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn info(&self) -> io::Result<TcpInfo> {
        book::info(&self.fd)
    }
}
