//! Options of a socket, and of a connection that is to be opened.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use lastbyte_sys::{socket, tcp};

use crate::address::Endpoints;
use crate::error::{Operation, SocketError};

/// Options to set before `connect` or `listen`, or on a running connection ([`SocketOptions::apply_to`]).
/// What is `None` stays as it is, the kernel's own choice, and that is right for nearly all
/// programs: a buffer set by hand is never sized by the kernel again.
///
/// ```
/// use lastbyte_socket::SocketOptions;
///
/// let options = SocketOptions::default().nodelay(true).congestion("bbr");
/// assert_eq!(options.nodelay, Some(true));
/// ```
///
/// A listener passes all of them on to what it accepts: as they are when the handshake ends, not
/// when the connection is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// The congestion control's name (`TCP_CONGESTION`). Only the sender's counts.
    pub congestion: Option<String>,
    /// The send buffer in bytes (`SO_SNDBUF`). The kernel doubles it and caps it at
    /// `net.core.wmem_max`: see [`Granted`].
    pub send_buffer: Option<u32>,
    /// The receive buffer in bytes (`SO_RCVBUF`), capped at `net.core.rmem_max`. How large the
    /// window can ever become is settled by the handshake: a larger buffer counts in full only when
    /// set before.
    pub receive_buffer: Option<u32>,
    /// How many bytes may be written and not yet sent (`TCP_NOTSENT_LOWAT`); 0 is the system's
    /// `net.ipv4.tcp_notsent_lowat`. At the limit a write waits: what is written leaves soon, and
    /// what is in flight is not limited, so that the kernel goes on sizing the send buffer.
    ///
    /// It is no exact bound: a write may go past it by a segment, which the kernel makes up to
    /// 64 KiB long, and `poll` calls the socket writable only below half of it. Counts at any time.
    pub notsent_lowat: Option<u32>,
    /// How long written bytes may stay unacknowledged before the kernel gives the connection up with
    /// `ETIMEDOUT` (`TCP_USER_TIMEOUT`, in milliseconds, rounded up, 24 days at most); zero leaves
    /// that to `net.ipv4.tcp_retries2`, about 15 minutes.
    ///
    /// It cannot tell a dead path from a peer that is alive and does not read: bytes that wait for
    /// its window count too, and are lost. It bounds a `connect` as well, though `tcp(7)` denies it,
    /// goes on after `close`, and takes the place of [`Keepalive::probes`]. Counts at any time.
    pub user_timeout: Option<Duration>,
    /// The highest rate to send at, in bytes per second (`SO_MAX_PACING_RATE`); [`u64::MAX`] is none.
    /// TCP keeps to it by itself, with any congestion control; where the interface has the queueing
    /// discipline `fq`, that does.
    ///
    /// Payload alone is counted, and the first ten segments go out at once. 0 is refused: to the
    /// kernel it is no limit. Counts at any time.
    pub max_pacing_rate: Option<u64>,
    /// Probes a connection on which nothing moves (`SO_KEEPALIVE`). Counts at any time.
    pub keepalive: Option<Keepalive>,
    /// The mark of its packets, for routes and filters (`SO_MARK`); 0 is none. Needs
    /// `CAP_NET_ADMIN` or, since Linux 5.17, `CAP_NET_RAW`, also for 0.
    ///
    /// On a running connection it counts from the next packet on, which may take another route then;
    /// the connection keeps its address.
    pub mark: Option<u32>,
    /// Whether a segment that is not full is sent at once (`TCP_NODELAY`). Without it the kernel
    /// keeps one while another such is unacknowledged, and a peer may delay that by 40 ms. With it
    /// each small write is a packet of its own. Counts at any time.
    pub nodelay: Option<bool>,
    /// The one interface that its packets may come and go by (`SO_BINDTODEVICE`); an empty name
    /// lets them use any. Needs `CAP_NET_RAW` where one is set already.
    ///
    /// For sockets that are not yet connected: on a running connection, packets that come by another
    /// interface are no longer its own, and it stands still until they do.
    pub interface: Option<String>,
}

impl SocketOptions {
    /// Asks for a [congestion control](field@Self::congestion), by its name.
    #[must_use]
    pub fn congestion(self, name: impl Into<String>) -> Self {
        Self { congestion: Some(name.into()), ..self }
    }

    /// Fixes the [send buffer](field@Self::send_buffer), in bytes.
    #[must_use]
    pub fn send_buffer(self, bytes: u32) -> Self {
        Self { send_buffer: Some(bytes), ..self }
    }

    /// Fixes the [receive buffer](field@Self::receive_buffer), in bytes.
    #[must_use]
    pub fn receive_buffer(self, bytes: u32) -> Self {
        Self { receive_buffer: Some(bytes), ..self }
    }

    /// Limits the bytes written and [not yet sent](field@Self::notsent_lowat).
    #[must_use]
    pub fn notsent_lowat(self, bytes: u32) -> Self {
        Self { notsent_lowat: Some(bytes), ..self }
    }

    /// Limits how long bytes may stay [unacknowledged](field@Self::user_timeout).
    #[must_use]
    pub fn user_timeout(self, timeout: Duration) -> Self {
        Self { user_timeout: Some(timeout), ..self }
    }

    /// Limits the [rate](field@Self::max_pacing_rate) to send at, in bytes per second.
    #[must_use]
    pub fn max_pacing_rate(self, bytes_per_s: u64) -> Self {
        Self { max_pacing_rate: Some(bytes_per_s), ..self }
    }

    /// Probes an [idle connection](field@Self::keepalive).
    #[must_use]
    pub fn keepalive(self, keepalive: Keepalive) -> Self {
        Self { keepalive: Some(keepalive), ..self }
    }

    /// [Marks](field@Self::mark) its packets.
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Whether a segment that is not full is [sent at once](field@Self::nodelay).
    #[must_use]
    pub fn nodelay(self, on: bool) -> Self {
        Self { nodelay: Some(on), ..self }
    }

    /// Confines its packets to one [interface](field@Self::interface), by its name.
    #[must_use]
    pub fn interface(self, name: impl Into<String>) -> Self {
        Self { interface: Some(name.into()), ..self }
    }

    /// Sets the options on a running connection, or on a listener for what it accepts from now on.
    ///
    /// [`SocketOptions::receive_buffer`] and [`SocketOptions::interface`] are meant for the time before
    /// `connect`:
    /// each says what is left of it afterwards.
    ///
    /// # Errors
    /// Names the option that could not be set; those before it, in the order of the fields, are set.
    pub fn apply_to(&self, fd: &impl AsFd) -> Result<(), SocketError> {
        self.apply(fd).map_err(|error| SocketError {
            endpoints: Box::new(crate::fd::endpoints_of(fd)),
            ..error
        })
    }

    /// Sets the options on a socket that is not yet connected.
    pub(crate) fn apply(&self, fd: &impl AsFd) -> Result<(), SocketError> {
        let size = |bytes: u32| i32::try_from(bytes).unwrap_or(i32::MAX);
        if let Some(name) = &self.congestion {
            set("TCP_CONGESTION", tcp::set_congestion(fd, name))?;
        }
        if let Some(bytes) = self.send_buffer {
            set("SO_SNDBUF", socket::set_send_buffer(fd, size(bytes)))?;
        }
        if let Some(bytes) = self.receive_buffer {
            set("SO_RCVBUF", socket::set_receive_buffer(fd, size(bytes)))?;
        }
        if let Some(bytes) = self.notsent_lowat {
            set("TCP_NOTSENT_LOWAT", tcp::set_notsent_lowat(fd, bytes))?;
        }
        if let Some(timeout) = self.user_timeout {
            set("TCP_USER_TIMEOUT", tcp::set_user_timeout(fd, timeout))?;
        }
        if let Some(rate) = self.max_pacing_rate {
            set("SO_MAX_PACING_RATE", set_max_pacing_rate(fd, rate))?;
        }
        if let Some(keepalive) = self.keepalive {
            keepalive.apply(fd)?;
        }
        if let Some(mark) = self.mark {
            set("SO_MARK", socket::set_mark(fd, mark))?;
        }
        if let Some(on) = self.nodelay {
            set("TCP_NODELAY", tcp::set_nodelay(fd, on))?;
        }
        if let Some(name) = &self.interface {
            set("SO_BINDTODEVICE", socket::set_interface(fd, name))?;
        }
        Ok(())
    }

    /// Gives the options that this sets back to the kernel: those of a socket that nobody has touched.
    pub(crate) fn undo(&self, fd: &impl AsFd, untouched: &impl AsFd) -> io::Result<()> {
        if self.congestion.is_some() {
            tcp::set_congestion(fd, &tcp::congestion(untouched)?)?;
        }
        // What is read is twice what is set. A kernel that cannot hand them back leaves them fixed.
        if self.send_buffer.is_some() {
            socket::set_send_buffer(fd, socket::send_buffer(untouched)? / 2)?;
        }
        if self.receive_buffer.is_some() {
            socket::set_receive_buffer(fd, socket::receive_buffer(untouched)? / 2)?;
        }
        if self.send_buffer.is_some() || self.receive_buffer.is_some() {
            let _ = socket::set_buffer_lock(fd, 0);
        }
        if self.notsent_lowat.is_some() {
            tcp::set_notsent_lowat(fd, 0)?;
        }
        if self.user_timeout.is_some() {
            tcp::set_user_timeout(fd, Duration::ZERO)?;
        }
        if self.max_pacing_rate.is_some() {
            socket::set_max_pacing_rate(fd, u64::MAX)?;
        }
        if self.keepalive.is_some() {
            socket::set_keepalive(fd, false)?;
        }
        if self.mark.is_some() {
            socket::set_mark(fd, 0)?;
        }
        if self.nodelay.is_some() {
            tcp::set_nodelay(fd, false)?;
        }
        if self.interface.is_some() {
            socket::set_interface(fd, "")?;
        }
        Ok(())
    }
}

/// When an idle connection is probed, and given up (`SO_KEEPALIVE`). Times are in whole seconds,
/// rounded up, from 1 to 32,767.
///
/// The kernel probes only where nothing is unacknowledged or waits to be sent: a dead path with
/// bytes on it is found by [`SocketOptions::user_timeout`], or by `net.ipv4.tcp_retries2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe (`TCP_KEEPIDLE`; the kernel's own choice is two hours).
    pub idle: Duration,
    /// Time between two probes that nobody answers (`TCP_KEEPINTVL`; 75 s).
    pub interval: Duration,
    /// Probes without an answer after which the connection is given up (`TCP_KEEPCNT`, 1 to 127;
    /// 9). With a [`SocketOptions::user_timeout`] that time decides, and this number does not.
    pub probes: u32,
}

impl Keepalive {
    /// Sets the times first: none is probed at the kernel's own.
    fn apply(self, fd: &impl AsFd) -> Result<(), SocketError> {
        set("TCP_KEEPIDLE", tcp::set_keepalive_idle(fd, self.idle))?;
        set("TCP_KEEPINTVL", tcp::set_keepalive_interval(fd, self.interval))?;
        set("TCP_KEEPCNT", tcp::set_keepalive_probes(fd, self.probes))?;
        set("SO_KEEPALIVE", socket::set_keepalive(fd, true))
    }

    pub(crate) fn read(fd: &impl AsFd) -> io::Result<Self> {
        Ok(Self {
            idle: tcp::keepalive_idle(fd)?,
            interval: tcp::keepalive_interval(fd)?,
            probes: tcp::keepalive_probes(fd)?,
        })
    }
}

/// How a connection is opened: all that must be settled before `connect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Options of the socket.
    pub socket: SocketOptions,
    /// How long to wait for the connection; `None`, the default, for as long as the kernel tries
    /// (`net.ipv4.tcp_syn_retries`: about two minutes).
    pub timeout: Option<Duration>,
    /// The addresses to connect from, at most one of each family; empty for the kernel's choice. If
    /// there are some, and none of the destination's family, it is not connected to.
    ///
    /// The port is left to the kernel, and need not be free of connections to other destinations
    /// (`IP_BIND_ADDRESS_NO_PORT`). A link-local address of IPv6 is used on the interface of the
    /// destination's scope or else on [`SocketOptions::interface`].
    pub sources: Vec<IpAddr>,
    /// Ask for multipath TCP (RFC 8684). Where this kernel or the peer has none, the connection is
    /// plain TCP: [`Granted::multipath`](crate::Granted::multipath) tells.
    ///
    /// The kernel sets fewer options of it, and less can be said of its bytes and its end: see
    /// [`Kind::Mptcp`]. An option of `socket` that it refuses is an error.
    pub mptcp: bool,
    /// How many hops its packets may take (`IP_TTL`, `IPV6_UNICAST_HOPS`), at least 1; `None` for the
    /// kernel's choice (`net.ipv4.ip_default_ttl`, 64).
    pub hop_limit: Option<u8>,
    /// Take any local port of the kernel's range (`IP_LOCAL_PORT_RANGE`, Linux 6.8), not the even ones
    /// as long as there are some: for those who open thousands of connections to one destination. With
    /// 15,000 just ended it saves a gate a sixth of the processor time of a connection. It is left out
    /// where the kernel has no such thing.
    pub any_port: bool,
    /// The first bytes to send, already with the SYN where the peer has allowed that before (TCP fast
    /// open, RFC 7413); otherwise as soon as the handshake is done. They may arrive twice, and in a
    /// dial with several attempts at several servers: only for what may be done twice.
    ///
    /// The connection is there when the handshake is done and the kernel has taken all of them; they
    /// count as written. [`Granted::fast_open`](crate::Granted::fast_open) tells how they went.
    pub early: Vec<u8>,
}

impl ConnectOptions {
    /// Sets the options of the [socket](field@Self::socket).
    #[must_use]
    pub fn socket(self, socket: SocketOptions) -> Self {
        Self { socket, ..self }
    }

    /// Limits how long to [wait](field@Self::timeout) for the connection.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the addresses to connect [from](field@Self::sources).
    #[must_use]
    pub fn sources(self, sources: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { sources: sources.into_iter().collect(), ..self }
    }

    /// Whether to ask for [multipath TCP](field@Self::mptcp).
    #[must_use]
    pub fn mptcp(self, mptcp: bool) -> Self {
        Self { mptcp, ..self }
    }

    /// Limits how many [hops](field@Self::hop_limit) its packets may take.
    #[must_use]
    pub fn hop_limit(self, hops: u8) -> Self {
        Self { hop_limit: Some(hops), ..self }
    }

    /// Whether to take [any local port](field@Self::any_port).
    #[must_use]
    pub fn any_port(self, any_port: bool) -> Self {
        Self { any_port, ..self }
    }

    /// Sets the [first bytes](field@Self::early) to send.
    #[must_use]
    pub fn early(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { early: bytes.into(), ..self }
    }
}

fn set_max_pacing_rate(fd: &impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    if bytes_per_s == 0 {
        let text = "0 bytes/s would be no limit: ask for 1 or more, or for u64::MAX to have none";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    socket::set_max_pacing_rate(fd, bytes_per_s)
}

fn set(option: &'static str, result: io::Result<()>) -> Result<(), SocketError> {
    result.map_err(|cause| SocketError::new(Operation::Set(option), Endpoints::default(), cause))
}
