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

/// What the kernel granted, read back from a socket.
///
/// `None` stands for what the kernel cannot say of this socket; what is not set has the kernel's own
/// value for that, which each field names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// The congestion control in use.
    pub congestion: String,
    /// The send buffer in bytes, the kernel's own overhead included.
    pub send_buffer: u32,
    /// The receive buffer in bytes, the kernel's own overhead included.
    pub receive_buffer: u32,
    /// Whether the send buffer is fixed, so that the kernel will not size it. `None` where the
    /// kernel cannot say (before 5.14).
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
    /// Whether an idle connection is probed.
    pub keepalive: bool,
    /// When it is probed, or would be. `None` where MPTCP cannot say.
    pub keepalive_times: Option<Keepalive>,
    /// The mark of its packets; 0 for none.
    pub mark: u32,
    /// Whether a segment that is not full is sent at once.
    pub nodelay: bool,
    /// The one interface that its packets may use, by its name of today; empty for any. `None` when
    /// that interface is gone.
    pub interface: Option<String>,
    /// Our address, chosen by us or by the kernel. Before there is one it is unspecified, and its
    /// port is 0.
    pub local: Option<SocketAddr>,
    /// Whether it is multipath TCP. `None` where MPTCP cannot say (before Linux 5.16).
    pub multipath: Option<Multipath>,
    /// What became of data in the SYN. `None` where the kernel cannot say.
    pub fast_open: Option<FastOpen>,
}

/// What became of multipath TCP (RFC 8684).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Multipath {
    /// The socket is one of plain TCP: it was not asked for, or this kernel has none, or it is off
    /// (`net.mptcp.enabled`).
    Absent,
    /// Asked for, and not settled: there is no connection yet.
    Asked,
    /// The peer, or something on the way, has none: the connection is plain TCP.
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
            // Both after a fall-back and before 5.16 there is no answer. After a fall-back the options
            // of TCP are there again, which MPTCP itself does not have.
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
    /// Asks the kernel about a TCP socket, connected or not.
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
