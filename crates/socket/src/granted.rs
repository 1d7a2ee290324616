//! What the kernel granted of the options of a socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use lastbyte_core::sample::FastOpen;
use lastbyte_sys::{socket, tcp};

use crate::options::Keepalive;
use crate::shared;

/// The options of a socket, as the kernel granted them.
///
/// `None` means that the kernel does not report the option for this socket. An option that is not
/// set has the value that its field names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// The congestion control in use.
    pub congestion: String,
    /// The send buffer in bytes, the kernel's own overhead included.
    pub send_buffer: u32,
    /// The receive buffer in bytes, the kernel's own overhead included.
    pub receive_buffer: u32,
    /// Whether the send buffer is fixed, so that the kernel does not autotune it. `None` on a
    /// kernel that does not report it (before 5.14).
    pub send_buffer_fixed: Option<bool>,
    /// Whether the receive buffer is fixed.
    pub receive_buffer_fixed: Option<bool>,
    /// How many bytes may be written and not yet sent; 0 for the system's
    /// `net.ipv4.tcp_notsent_lowat`. `None` where MPTCP cannot say.
    pub notsent_lowat: Option<u32>,
    /// How long bytes may stay unacknowledged; zero for `net.ipv4.tcp_retries2`. `None` for MPTCP.
    pub user_timeout: Option<Duration>,
    /// The highest rate to send at, in bytes per second; [`u64::MAX`] for none.
    pub max_pacing_rate: u64,
    /// Whether the kernel probes the connection when it is idle.
    pub keepalive: bool,
    /// The times of these probes, also if they are off. `None` for MPTCP.
    pub keepalive_times: Option<Keepalive>,
    /// The mark of its packets; 0 for none.
    pub mark: u32,
    /// Whether a segment that is not full is sent at once.
    pub nodelay: bool,
    /// The only interface that its packets may use, by its current name; empty for any. `None` if
    /// that interface is gone.
    pub interface: Option<String>,
    /// Our address. Before the socket is bound it is unspecified, with port 0.
    pub local: Option<SocketAddr>,
    /// Whether it is Multipath TCP. `None` if MPTCP does not report it (before Linux 5.16).
    pub multipath: Option<Multipath>,
    /// What became of data in the SYN. `None` if the kernel does not report it.
    pub fast_open: Option<FastOpen>,
}

/// Whether a connection uses Multipath TCP (RFC 8684).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Multipath {
    /// A plain TCP socket: MPTCP was not requested, this kernel does not have it, or it is off
    /// (`net.mptcp.enabled`).
    Absent,
    /// Requested, and not decided: there is no connection yet.
    Asked,
    /// The peer, or something on the path, does not support it: the connection is plain TCP.
    FellBack,
    /// Both sides use it.
    InUse,
}

impl Multipath {
    fn read(fd: &impl AsFd) -> Option<Self> {
        if socket::protocol(fd).ok()? != socket::PROTOCOL_MPTCP {
            return Some(Self::Absent);
        }
        match tcp::mptcp_flags(fd) {
            Ok(flags) if flags & tcp::MPTCP_FELL_BACK != 0 => Some(Self::FellBack),
            Ok(flags) if flags & tcp::MPTCP_KEY_RECEIVED != 0 => Some(Self::InUse),
            Ok(_) => Some(Self::Asked),
            // The kernel answers neither after a fall-back nor before 5.16. After a fall-back it
            // supports TCP's own options again, which MPTCP does not.
            Err(_) => tcp::user_timeout(fd).ok().map(|_| Self::FellBack),
        }
    }
}

impl fmt::Display for Multipath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Absent => "absent",
            Self::Asked => "asked",
            Self::FellBack => "fell back",
            Self::InUse => "in use",
        })
    }
}

impl Granted {
    /// Reads the options of a TCP socket, connected or not.
    ///
    /// # Errors
    /// `ENOTSOCK` for a descriptor that is no socket, `EOPNOTSUPP` for one that is not TCP.
    pub fn read(fd: &impl AsFd) -> io::Result<Self> {
        let lock = socket::buffer_lock(fd).ok();
        let fixed = |bit: i32| lock.map(|lock| lock & bit != 0);
        Ok(Self {
            congestion: tcp::congestion(fd)?,
            send_buffer: socket::send_buffer(fd)?.unsigned_abs(),
            receive_buffer: socket::receive_buffer(fd)?.unsigned_abs(),
            send_buffer_fixed: fixed(socket::SEND_BUFFER_LOCKED),
            receive_buffer_fixed: fixed(socket::RECEIVE_BUFFER_LOCKED),
            notsent_lowat: tcp::notsent_lowat(fd).ok(),
            user_timeout: tcp::user_timeout(fd).ok(),
            max_pacing_rate: socket::max_pacing_rate(fd)?,
            keepalive: socket::keepalive(fd)?,
            keepalive_times: Keepalive::read(fd).ok(),
            mark: socket::mark(fd)?,
            nodelay: tcp::nodelay(fd)?,
            interface: socket::interface(fd).ok(),
            local: socket::local_address(fd)?,
            multipath: Multipath::read(fd),
            fast_open: shared::info(fd).ok().map(|info| info.fast_open),
        })
    }
}
