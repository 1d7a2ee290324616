//! What a stream knows about itself: its bytes and its end. Blocking and tokio streams share it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_core::finish::Facts;
use lastbyte_core::sample::{Moment, TcpInfo};
use lastbyte_core::{End, EndEvidence, Kind, Report};
use lastbyte_sys::{poll, socket, tcp};

use crate::address::{Address, Endpoints, Socket};
use crate::error::{Operation, SocketError};

/// What both directions of a stream share: the socket, and what is known about it.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) io: S,
    pub(crate) kind: Kind,
    /// The connection came from our own connect or accept: all reads and writes are ours.
    pub(crate) ours: bool,
    /// Our address, if it was read already: it does not change.
    pub(crate) local: Option<Address>,
    pub(crate) peer: Option<Address>,
    pub(crate) report: Report,
}

/// The state of the reading side.
#[derive(Debug, Default)]
pub(crate) struct ReadSide {
    pub(crate) read: u64,
    pub(crate) observed_end: Option<End>,
}

/// The state of the writing side.
#[derive(Debug, Default)]
pub(crate) struct WriteSide {
    pub(crate) written: u64,
    pub(crate) half_closed: bool,
}

impl<S> Shared<S> {
    pub(crate) fn new(io: S, kind: Kind, ours: bool, peer: Option<Address>) -> Self {
        Self { io, kind, ours, local: None, peer, report: Report::default() }
    }

    /// Replaces the socket by what `make` returns for it.
    #[cfg(feature = "tokio")]
    pub(crate) fn map<T>(self, make: impl FnOnce(S) -> io::Result<T>) -> io::Result<Shared<T>> {
        let Self { io, kind, ours, local, peer, report } = self;
        Ok(Shared { io: make(io)?, kind, ours, local, peer, report })
    }

    pub(crate) fn facts(&self, reading: &ReadSide, writing: &WriteSide, registered: bool) -> Facts {
        // Once the kernel has reported the error to a write, an empty queue proves nothing.
        let taken = self.report.reset_was_reported();
        let told = taken == Some(true);
        let known = self.ours && taken.is_some();
        Facts {
            kind: self.kind,
            // If the report may have been dropped, treat the connection as one with an unknown
            // history.
            connected: known,
            half_closed: writing.half_closed,
            written: Some(writing.written),
            read: known.then_some(reading.read),
            ended: reading.observed_end.or_else(|| told.then_some(End::Reset)),
            registered,
            alone: self.ours,
        }
    }
}

impl<S: AsFd> Shared<S> {
    /// Makes one write of `most` bytes, and counts those that the kernel accepted.
    pub(crate) fn write(
        &self,
        side: &mut WriteSide,
        most: usize,
        write: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Over TCP the count of received bytes shows what this report would.
        let result = if self.kind == Kind::Unix {
            self.report.during(|| {
                let bytes = write()?;
                // A short write can hide the report, but only once the peer has ended.
                let ended = || poll::wait_for(&self.io, poll::PEER_END, Duration::ZERO);
                if bytes < most && ended().is_ok_and(|ready| ready.ended) {
                    self.report.on_short_write();
                }
                Ok(bytes)
            })
        } else {
            write()
        };
        if let Ok(bytes) = result {
            side.written += bytes as u64;
        }
        result
    }

    /// Records a read into `length` bytes, and classifies a result of 0: only a FIN is an end.
    pub(crate) fn on_read(
        &self,
        side: &mut ReadSide,
        length: usize,
        result: io::Result<usize>,
    ) -> io::Result<usize> {
        match result {
            Ok(0) if length > 0 => {
                let end = self.classify(side)?;
                side.observed_end = Some(end);
                if end == End::Reset { Err(reset_after(side.read)) } else { Ok(0) }
            }
            Ok(bytes) => {
                side.read += bytes as u64;
                Ok(bytes)
            }
            Err(error) if is_end_of_connection(&error) => {
                side.observed_end = Some(End::Reset);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn classify(&self, side: &ReadSide) -> io::Result<End> {
        if let Some(end @ (End::Reset | End::Fin)) = side.observed_end {
            return Ok(end);
        }
        let info = if self.kind == Kind::Tcp { Some(info(&self.io)?) } else { None };
        let reported =
            if self.kind == Kind::Unix { self.report.reset_was_reported() } else { Some(false) };
        let Some(error_taken) = reported else { return Ok(End::Unknown) };
        let evidence = EndEvidence {
            kind: self.kind,
            read: self.ours.then_some(side.read),
            urgent_inline: true,
            unread: 0,
            received: info.and_then(|info| info.bytes_received),
            state: info.map(|info| info.state),
            error_taken,
        };
        Ok(evidence.classify())
    }

    pub(crate) fn half_close(&self, side: &mut WriteSide) -> io::Result<()> {
        socket::shutdown_write(&self.io)?;
        // This queues a FIN only if the handshake was complete.
        side.half_closed = self.ours;
        Ok(())
    }
}

impl<S: Socket> Shared<S> {
    /// Takes over a connected socket, and keeps urgent bytes inline from now on: otherwise a reset
    /// looks like a FIN.
    pub(crate) fn adopt(io: S, ours: bool) -> Result<Self, SocketError> {
        let peer = io.peer();
        let kind = crate::address::kind_of(&io);
        let shared = Self::new(io, Kind::Other, ours, peer);
        let kind = kind.map_err(|cause| shared.error(Operation::Sample, cause))?;
        let shared = Self { kind, ..shared };
        shared.keep_urgent()?;
        Ok(shared)
    }

    pub(crate) fn keep_urgent(&self) -> Result<(), SocketError> {
        // MPTCP refuses it, and its byte count does not show a FIN anyway.
        if self.kind != Kind::Tcp {
            return Ok(());
        }
        socket::set_oob_inline(&self.io, true)
            .map_err(|cause| self.error(Operation::Set("SO_OOBINLINE"), cause))
    }

    pub(crate) fn endpoints(&self) -> Endpoints {
        Endpoints { local: self.local(), peer: self.peer.clone() }
    }

    pub(crate) fn local(&self) -> Option<Address> {
        self.local.clone().or_else(|| self.io.local())
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(self.local().as_ref())
    }

    pub(crate) fn error(&self, operation: Operation, cause: io::Error) -> SocketError {
        SocketError::new(operation, self.endpoints(), cause)
    }
}

impl<S> Shared<S> {
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(self.peer.as_ref())
    }
}

/// The internet address of a socket, if it has one.
pub(crate) fn internet(address: Option<&Address>) -> io::Result<SocketAddr> {
    known(address.and_then(Address::ip))
}

/// An address that a connected socket has.
pub(crate) fn known<T>(address: Option<T>) -> io::Result<T> {
    address.ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// The total length of all parts.
pub(crate) fn length_of(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Joins the two halves of one stream.
///
/// # Panics
/// When a third reference to the stream exists, which no method gives out.
pub(crate) fn reunite<S>(one: Arc<Shared<S>>, two: Arc<Shared<S>>) -> Shared<S> {
    drop(one);
    Arc::into_inner(two).expect("a stream has two halves")
}

/// `TCP_INFO` of a socket.
pub(crate) fn info(fd: &impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0; tcp::INFO_ROOM];
    let length = tcp::info(fd, &mut bytes)?;
    TcpInfo::parse(&bytes[..length])
        .ok_or_else(|| io::Error::other(format!("TCP_INFO of {length} bytes is too short")))
}

/// `TCP_INFO` of a socket, and the fill of its send buffer if the kernel reports it.
pub(crate) fn moment(fd: &impl AsFd) -> io::Result<Moment> {
    Ok(Moment {
        info: info(fd)?,
        send_buffer: socket::send_buffer(fd).ok().map(i32::unsigned_abs),
        queued: socket::send_queue(fd).ok(),
    })
}

fn reset_after(read: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        format!("the connection was reset after {read} bytes: the stream is incomplete"),
    )
}

/// Whether an error ends the connection.
fn is_end_of_connection(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
