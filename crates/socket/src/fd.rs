//! For descriptors of others: what can be done and known without their history.

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

/// Ends the connection behind any connected stream socket so that nothing is lost, and returns what
/// could be proven. The descriptor stays open, half-closed: close it next.
///
/// It blocks, also where the descriptor is non-blocking. Nothing is known of what was written
/// before, so [`Receipt::written`] is `None`; [`Receipt::unacked`] tells what is left over. How the
/// peer ended is [`PeerEnd::Unknown`](crate::PeerEnd::Unknown) where somebody else may have read,
/// unless the connection's state tells it: so [`Delivery::Closed`] is seldom proven here.
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
/// When less than the wanted level could be proven, or the descriptor is no connected stream
/// socket: [`FinishError::why`] says which, and the receipt what was proven.
pub fn finish_fd(fd: impl AsFd, options: FinishOptions) -> Result<Receipt, FinishError> {
    finish_fd_counted(fd, Counted::default(), options)
}

/// What the program that used a descriptor counted itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Bytes written over the life of the connection: [`Receipt::acked`] is said of these.
    pub written: Option<u64>,
    /// Bytes read over the life of the connection. It counts if the descriptor was
    /// [prepared](prepare) before the first: then the peer's FIN can be told from a reset.
    pub read: Option<u64>,
}

impl Counted {
    /// So many bytes were [written](field@Self::written).
    #[must_use]
    pub fn written(self, bytes: u64) -> Self {
        Self { written: Some(bytes), ..self }
    }

    /// So many bytes were [read](field@Self::read).
    #[must_use]
    pub fn read(self, bytes: u64) -> Self {
        Self { read: Some(bytes), ..self }
    }
}

/// As [`finish_fd`], for a program that counted: it believes the numbers, and can say more.
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

/// As [`finish_fd_counted`], for whoever has other duties: asks whether to go on each time that
/// `slice` has passed while it waits. A finish that waits for less than that asks nothing.
///
/// # Errors
/// Those of [`finish_fd`], and [`Unproven::Stopped`] after a no. Our end is queued by then: a later
/// finish of the same descriptor goes on from there, and claims [`Delivery::Acked`] once our end is
/// acknowledged too.
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

/// The kind of a connected stream socket, or why it is none.
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
    // TCP tells its state itself, and that it is still connecting.
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

/// A descriptor of our own for what is open by this number, for callers of other languages. It means
/// the same connection also when the number is closed meanwhile and given to another.
///
/// # Errors
/// When nothing is open by that number, or no more descriptors may be opened.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    socket::duplicate(number)
}

/// What the kernel knows of a TCP connection now (`TCP_INFO`).
///
/// # Errors
/// When the kernel does not answer for this descriptor: it is no TCP socket.
pub fn info(fd: impl AsFd) -> Result<TcpInfo, SocketError> {
    shared::info(&fd).map_err(|cause| SocketError::new(Operation::Sample, endpoints_of(&fd), cause))
}

/// Lets [`observed_end`] tell a FIN from a reset: to be called before the first read (`SO_OOBINLINE`).
///
/// An urgent byte that is read apart from the stream, or passed over, is counted like a FIN.
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
/// When the descriptor is no TCP socket.
pub fn congestion(fd: impl AsFd) -> Result<String, SocketError> {
    tcp::congestion(&fd)
        .map_err(|cause| SocketError::new(Operation::Sample, endpoints_of(&fd), cause))
}

/// Selects a congestion control by its name, at any time (`TCP_CONGESTION`). Only the sender's
/// counts.
///
/// # Errors
/// When the descriptor is no TCP socket, this kernel does not have the name (`ENOENT`), or only
/// `CAP_NET_ADMIN` may use it (`EPERM`).
pub fn set_congestion(fd: impl AsFd, name: &str) -> Result<(), SocketError> {
    tcp::set_congestion(&fd, name).map_err(|cause| {
        SocketError::new(Operation::Set("TCP_CONGESTION"), endpoints_of(&fd), cause)
    })
}

/// How the stream ended whose reader got 0 from its last `read`, having read `bytes_read` bytes over
/// the life of the connection, as it says.
///
/// Over TCP a connection whose own side is still open tells by its state; otherwise the number
/// tells, if the descriptor was [prepared](prepare). Where neither does, and for every other kind,
/// it is [`End::Unknown`].
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
