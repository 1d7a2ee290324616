//! What a stream knows about itself: its ends, its bytes, its end. Shared by both faces.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use lastbyte_core::finish::Facts;
use lastbyte_core::sample::TcpInfo;
use lastbyte_core::{End, EndEvidence};
use lastbyte_sys::{socket, tcp};

use crate::error::{Operation, SocketError};

/// The book of one stream.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    plain_tcp: bool,
    /// The connection came from our own connect or accept: all reads and writes were ours.
    ours: bool,
    written: u64,
    read: u64,
    half_closed: bool,
    ended: Option<End>,
}

impl Book {
    /// Opens the book of a connected socket and makes its urgent bytes stay in place, without which
    /// a reset cannot be told from a FIN.
    pub(crate) fn open(
        fd: &impl AsFd,
        (local, peer): (Option<SocketAddr>, Option<SocketAddr>),
        ours: bool,
    ) -> Result<Self, SocketError> {
        let failed = |operation| move |cause| SocketError { operation, local, peer, cause };
        socket::set_oob_inline(fd, true).map_err(failed(Operation::Set("SO_OOBINLINE")))?;
        let protocol = socket::protocol(fd).map_err(failed(Operation::Sample))?;
        Ok(Self {
            local,
            peer,
            plain_tcp: protocol == socket::PROTOCOL_TCP,
            ours,
            written: 0,
            read: 0,
            half_closed: false,
            ended: None,
        })
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            connected: self.ours,
            half_closed: self.half_closed,
            plain_tcp: self.plain_tcp,
            written: self.written,
            read: self.ours.then_some(self.read),
            ended: self.ended,
        }
    }

    pub(crate) fn ended(&self) -> Option<End> {
        self.ended
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.written, self.read)
    }

    pub(crate) fn on_written(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        if let Ok(bytes) = result {
            self.written += bytes as u64;
        }
        result
    }

    /// Enters a read of `room` bytes, and looks behind a 0: only a FIN is an end.
    pub(crate) fn on_read(
        &mut self,
        fd: &impl AsFd,
        room: usize,
        result: io::Result<usize>,
    ) -> io::Result<usize> {
        match result {
            Ok(0) if room > 0 => {
                let end = self.classify(fd)?;
                self.ended = Some(end);
                if end == End::Reset { Err(self.cut()) } else { Ok(0) }
            }
            Ok(bytes) => {
                self.read += bytes as u64;
                Ok(bytes)
            }
            Err(error) if is_end_of_connection(&error) => {
                self.ended = Some(End::Reset);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn half_close(&mut self, fd: &impl AsFd) -> Result<(), SocketError> {
        socket::shutdown_write(fd).map_err(|cause| self.error(Operation::HalfClose, cause))?;
        // Only where the handshake was over is a FIN queued by this.
        self.half_closed = self.ours;
        Ok(())
    }

    pub(crate) fn error(&self, operation: Operation, cause: io::Error) -> SocketError {
        SocketError { operation, local: self.local, peer: self.peer, cause }
    }

    fn classify(&self, fd: &impl AsFd) -> io::Result<End> {
        let evidence = EndEvidence {
            plain_tcp: self.plain_tcp,
            read: self.ours.then_some(self.read),
            received: info(fd)?.bytes_received,
        };
        Ok(evidence.classify())
    }

    fn cut(&self) -> io::Error {
        let read = self.read;
        io::Error::new(
            io::ErrorKind::ConnectionReset,
            format!("the connection was reset after {read} bytes: this is no end of stream"),
        )
    }
}

/// `TCP_INFO` of a socket.
pub(crate) fn info(fd: &impl AsFd) -> io::Result<TcpInfo> {
    let mut room = [0; tcp::INFO_ROOM];
    let length = tcp::info(fd, &mut room)?;
    TcpInfo::parse(&room[..length])
        .ok_or_else(|| io::Error::other(format!("TCP_INFO of {length} bytes is too short")))
}

/// Errors after which this connection brings nothing more.
fn is_end_of_connection(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
