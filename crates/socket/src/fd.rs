//! Functions on plain descriptors, whose history is not known.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

use lastbyte_core::finish::{Facts, FinishOptions, Unproven};
use lastbyte_core::sample::TcpInfo;
use lastbyte_core::{Delivery, End, EndEvidence, Kind, Receipt};
use lastbyte_sys::{socket, tcp};

use crate::address::{self, Address, Endpoints};
use crate::error::{FinishError, Operation, SocketError};
use crate::finish::Finishing;
use crate::shared;

/// Ends the connection of any connected stream socket without losing bytes, and returns what was
/// proven. The descriptor stays open, half-closed: close it next.
///
/// It blocks even if the descriptor is non-blocking. How much was written before is not known, so
/// [`Receipt::written`] is `None`; [`Receipt::unacked`] counts what is left. Other code may have
/// read, so the peer's end is [`PeerEnd::Unknown`](crate::PeerEnd::Unknown) unless the connection's
/// state shows it. So this seldom proves [`Delivery::Closed`].
///
/// ```
/// use std::io::Write;
/// use std::time::Duration;
/// use lastbyte_socket::{FinishOptions, finish_fd};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # let reader = std::thread::spawn(move || {
/// #     std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap()
/// # });
/// let mut socket = std::net::TcpStream::connect(address)?;
/// socket.write_all(&[0; 100_000])?;
/// let receipt = finish_fd(&socket, FinishOptions::default().within(Duration::from_secs(10)))?;
/// assert_eq!(receipt.unacked, Some(0));
/// # assert_eq!(reader.join().unwrap(), 100_000);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When less than the wanted level could be proven, or the descriptor is not a connected stream
/// socket: [`FinishError::why`] says which, and the receipt what was proven.
pub fn finish_fd(fd: impl AsFd, options: FinishOptions) -> Result<Receipt, FinishError> {
    finish_fd_counted(fd, Counted::default(), options)
}

/// The counts of the program that used a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Bytes written over the life of the connection. With it the receipt has [`Receipt::acked`].
    pub written: Option<u64>,
    /// Bytes read over the life of the connection. If the descriptor was [prepared](prepare) before
    /// the first read, this distinguishes the peer's FIN from a reset; otherwise it is ignored.
    pub read: Option<u64>,
}

impl Counted {
    /// Sets how many bytes were [written](field@Self::written).
    #[must_use]
    pub fn written(self, bytes: u64) -> Self {
        Self { written: Some(bytes), ..self }
    }

    /// Sets how many bytes were [read](field@Self::read).
    #[must_use]
    pub fn read(self, bytes: u64) -> Self {
        Self { read: Some(bytes), ..self }
    }
}

/// [`finish_fd`] with the program's own counts, which it trusts and so can prove more.
///
/// # Errors
/// As [`finish_fd`].
pub fn finish_fd_counted(
    fd: impl AsFd,
    counted: Counted,
    options: FinishOptions,
) -> Result<Receipt, FinishError> {
    finish_fd_while(fd, counted, options, Duration::MAX, || true)
}

/// [`finish_fd_counted`] that can be stopped: it calls `keep_going` each time that `slice` has
/// passed while it waits.
///
/// # Errors
/// Those of [`finish_fd`], and [`Unproven::Stopped`] once `keep_going` returned false. Our FIN is
/// queued by then: a later finish of the same descriptor continues from there, and proves
/// [`Delivery::Acked`] once our FIN is acknowledged too.
pub fn finish_fd_while(
    fd: impl AsFd,
    counted: Counted,
    options: FinishOptions,
    slice: Duration,
    keep_going: impl FnMut() -> bool,
) -> Result<Receipt, FinishError> {
    let kind = match fitting_kind(&fd) {
        Ok(kind) => kind,
        Err((why, source)) => {
            let endpoints = Box::new(Endpoints::default());
            let operation = Operation::Finish;
            return Err(FinishError { operation, why, receipt: NOTHING, endpoints, source });
        }
    };
    let facts = Facts {
        kind,
        connected: false,
        half_closed: false,
        written: counted.written,
        read: counted.read.filter(|_| socket::oob_inline(&fd).unwrap_or(false)),
        ended: None,
        registered: false,
        alone: false,
    };
    let mut finishing = Finishing::finish(facts, options);
    let outcome = finishing.drive_while(&fd, slice, keep_going);
    finishing.with_endpoints(outcome, || endpoints_of(&fd))
}

const NOTHING: Receipt = Receipt::new(Delivery::Written);

/// The kind of a connected stream socket, or why the descriptor is not one.
fn fitting_kind(fd: &impl AsFd) -> Result<Kind, (Unproven, Option<io::Error>)> {
    let refused = |error: io::Error| (Unproven::Refused, Some(error));
    match socket::kind(fd) {
        Ok(socket::TYPE_STREAM) => {}
        Ok(_) => return Err((Unproven::NoStream, None)),
        Err(error) => {
            let why = match error.raw_os_error() {
                Some(EBADF) => Unproven::NotOpen,
                Some(ENOTSOCK) => Unproven::NoSocket,
                _ => Unproven::Refused,
            };
            return Err((why, Some(error)));
        }
    }
    if socket::is_listening(fd).map_err(refused)? {
        return Err((Unproven::Listening, None));
    }
    let kind = address::kind_of(fd).map_err(refused)?;
    // The state of TCP shows it, also while connecting.
    if kind != Kind::Tcp && !socket::has_peer(fd).map_err(refused)? {
        return Err((Unproven::NotConnected, None));
    }
    Ok(kind)
}

const EBADF: i32 = 9;
const ENOTSOCK: i32 = 88;

pub(crate) fn endpoints_of(fd: &impl AsFd) -> Endpoints {
    let ip = |address: io::Result<Option<_>>| address.ok().flatten().map(Address::Ip);
    Endpoints { local: ip(socket::local_address(fd)), peer: ip(socket::peer_address(fd)) }
}

/// Duplicates a descriptor, for callers from other languages. The copy keeps its connection even if
/// the caller closes the number and the kernel reuses it.
///
/// # Errors
/// When no such descriptor is open, or no more descriptors may be opened.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    socket::duplicate(number)
}

/// What the kernel knows of a TCP connection now (`TCP_INFO`).
///
/// # Errors
/// When the descriptor is not a TCP socket.
pub fn info(fd: impl AsFd) -> Result<TcpInfo, SocketError> {
    shared::info(&fd).map_err(|cause| SocketError::new(Operation::Sample, endpoints_of(&fd), cause))
}

/// Lets [`observed_end`] distinguish a FIN from a reset. Call it before the first read
/// (`SO_OOBINLINE`).
///
/// Without it, an urgent byte that is read separately or skipped counts like a FIN.
///
/// # Errors
/// When the descriptor is no socket.
pub fn prepare(fd: impl AsFd) -> Result<(), SocketError> {
    socket::set_oob_inline(&fd, true)
        .map_err(|cause| SocketError::new(Operation::Set("SO_OOBINLINE"), endpoints_of(&fd), cause))
}

/// The name of the congestion control that a TCP socket uses (`TCP_CONGESTION`).
///
/// # Errors
/// When the descriptor is not a TCP socket.
pub fn congestion(fd: impl AsFd) -> Result<String, SocketError> {
    tcp::congestion(&fd)
        .map_err(|cause| SocketError::new(Operation::Sample, endpoints_of(&fd), cause))
}

/// Selects a congestion control by its name, at any time (`TCP_CONGESTION`). It governs what this
/// side sends.
///
/// # Errors
/// When the descriptor is no TCP socket, this kernel does not have the name (`ENOENT`), or only
/// `CAP_NET_ADMIN` may use it (`EPERM`).
pub fn set_congestion(fd: impl AsFd, name: &str) -> Result<(), SocketError> {
    tcp::set_congestion(&fd, name).map_err(|cause| {
        SocketError::new(Operation::Set("TCP_CONGESTION"), endpoints_of(&fd), cause)
    })
}

/// How the peer's stream ended, after a `read` returned 0. `bytes_read` is how many bytes the
/// program read over the life of the connection.
///
/// If our own direction of a TCP connection is still open, the connection's state shows it.
/// Otherwise the count shows it, if the descriptor was [prepared](prepare). In all other cases, and
/// for every other kind, it is [`End::Unknown`].
///
/// # Errors
/// When the descriptor is no socket.
pub fn observed_end(fd: impl AsFd, bytes_read: u64) -> Result<End, SocketError> {
    let failed = |cause| SocketError::new(Operation::Sample, endpoints_of(&fd), cause);
    let kind = address::kind_of(&fd).map_err(failed)?;
    if kind != Kind::Tcp {
        return Ok(End::Unknown);
    }
    let unread = tcp::unread(&fd).map_err(failed)?;
    let info = shared::info(&fd).map_err(failed)?;
    let evidence = EndEvidence {
        kind,
        read: Some(bytes_read),
        urgent_inline: socket::oob_inline(&fd).map_err(failed)?,
        unread: u64::from(unread),
        received: info.bytes_received,
        state: Some(info.state),
        error_taken: false,
    };
    Ok(evidence.classify())
}
