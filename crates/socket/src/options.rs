//! Options of a socket, and of a connection that is to be opened.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use lastbyte_sys::{socket, tcp};

use crate::address::Endpoints;
use crate::error::{Operation, SocketError};

/// Options to set before `connect` or `listen`, or on a running connection
/// ([`SocketOptions::apply_to`]). `None` leaves an option to the kernel, which is right for nearly
/// all programs: the kernel never autotunes a buffer again that a program has set.
///
/// ```
/// use lastbyte_socket::SocketOptions;
///
/// let options = SocketOptions::default().nodelay(true).congestion("bbr");
/// assert_eq!(options.nodelay, Some(true));
/// ```
///
/// Connections inherit all of them from their listener: as they are when the handshake ends, not
/// when the program accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// The name of the congestion control (`TCP_CONGESTION`). It governs what this side sends.
    pub congestion: Option<String>,
    /// The send buffer in bytes (`SO_SNDBUF`). The kernel doubles it and caps it at
    /// `net.core.wmem_max`: see [`Granted`](crate::Granted).
    pub send_buffer: Option<u32>,
    /// The receive buffer in bytes (`SO_RCVBUF`), capped at `net.core.rmem_max`. The handshake
    /// limits how large the window can become: a larger buffer has its full effect only if set
    /// before.
    pub receive_buffer: Option<u32>,
    /// How many bytes may be written and not yet sent (`TCP_NOTSENT_LOWAT`); 0 is the system's
    /// `net.ipv4.tcp_notsent_lowat`. At the limit a write waits. So written bytes are sent soon,
    /// while bytes in flight are not limited and the kernel goes on autotuning the send buffer.
    ///
    /// The limit is not exact: a write may exceed it by a segment of up to 64 KiB, and `poll`
    /// reports the socket as writable only below half of it. It can be set at any time.
    pub notsent_lowat: Option<u32>,
    /// How long written bytes may stay unacknowledged before the kernel closes the connection with
    /// `ETIMEDOUT` (`TCP_USER_TIMEOUT`, in milliseconds, rounded up, 24 days at most); zero leaves
    /// that to `net.ipv4.tcp_retries2`, about 15 minutes.
    ///
    /// It does not distinguish a dead path from a peer that does not read: bytes that wait for its
    /// window count too, and are lost. It also limits a `connect`, although `tcp(7)` denies that,
    /// stays in force after `close`, and replaces [`Keepalive::probes`]. It can be set at any time.
    pub user_timeout: Option<Duration>,
    /// The highest rate to send at, in bytes per second (`SO_MAX_PACING_RATE`); [`u64::MAX`] is
    /// none. TCP enforces it with any congestion control; if the interface has the queueing
    /// discipline `fq`, that does.
    ///
    /// Only payload counts, and the first ten segments are sent at once. 0 is refused: the kernel
    /// would take it as no limit. It can be set at any time.
    pub max_pacing_rate: Option<u64>,
    /// Probes an idle connection (`SO_KEEPALIVE`). It can be set at any time.
    pub keepalive: Option<Keepalive>,
    /// The mark of its packets, for routes and filters (`SO_MARK`); 0 is none. Needs
    /// `CAP_NET_ADMIN` or, since Linux 5.17, `CAP_NET_RAW`, also for 0.
    ///
    /// On an open connection it applies from the next packet on, which may then take another route;
    /// the connection keeps its address.
    pub mark: Option<u32>,
    /// Whether a segment that is not full is sent at once (`TCP_NODELAY`). Without it, Nagle's
    /// algorithm delays such a segment while another one is unacknowledged, and the peer may delay
    /// that acknowledgement by 40 ms. With it, each small write becomes a packet. It can be set at
    /// any time.
    pub nodelay: Option<bool>,
    /// The only interface that its packets may use (`SO_BINDTODEVICE`); an empty name allows any.
    /// Needs `CAP_NET_RAW` if one is set already.
    ///
    /// For sockets that are not yet connected: an open connection ignores packets from other
    /// interfaces, and stalls if its peer is reached through another one.
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

    /// Sets the options on an open connection, or on a listener for the connections it accepts from
    /// now on.
    ///
    /// Set [`SocketOptions::receive_buffer`] and [`SocketOptions::interface`] before `connect`:
    /// their effect on an open connection is limited, as described there.
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

    /// Resets the options set here to the kernel's defaults, as `untouched` has them.
    pub(crate) fn undo(&self, fd: &impl AsFd, untouched: &impl AsFd) -> io::Result<()> {
        if self.congestion.is_some() {
            tcp::set_congestion(fd, &tcp::congestion(untouched)?)?;
        }
        // The kernel reports twice the size that was set. A kernel without `SO_BUF_LOCK` leaves
        // them fixed.
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

/// When the kernel probes an idle connection, and when it gives up (`SO_KEEPALIVE`). Times are in
/// whole seconds, rounded up, from 1 to 32,767.
///
/// The kernel probes only if nothing is unacknowledged or waits to be sent. With bytes in flight,
/// [`SocketOptions::user_timeout`] or `net.ipv4.tcp_retries2` detects a dead path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe (`TCP_KEEPIDLE`; the kernel's default is two hours).
    pub idle: Duration,
    /// Time between unanswered probes (`TCP_KEEPINTVL`; 75 s).
    pub interval: Duration,
    /// Unanswered probes after which the kernel gives up the connection (`TCP_KEEPCNT`, 1 to 127;
    /// 9). With [`SocketOptions::user_timeout`], that time decides instead.
    pub probes: u32,
}

impl Keepalive {
    /// Sets the times first, so that no probe follows the kernel's default times.
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

/// How to open a connection: everything to set before `connect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Options of the socket.
    pub socket: SocketOptions,
    /// How long to wait for the connection; `None`, the default, waits as long as the kernel tries
    /// (`net.ipv4.tcp_syn_retries`: about two minutes).
    pub timeout: Option<Duration>,
    /// The source addresses, at most one of each family; empty for the kernel's choice. If none is
    /// of the destination's family, the connect fails.
    ///
    /// The kernel chooses the port, which connections to other destinations may share
    /// (`IP_BIND_ADDRESS_NO_PORT`). A link-local IPv6 address is used on the interface of the
    /// destination's scope, or else on [`SocketOptions::interface`].
    pub sources: Vec<IpAddr>,
    /// Whether to request Multipath TCP (RFC 8684). If this kernel or the peer does not support it,
    /// the connection is plain TCP: see [`Granted::multipath`](crate::Granted::multipath).
    ///
    /// MPTCP supports fewer socket options, and less is known about its bytes and its end: see
    /// [`Kind::Mptcp`](crate::Kind::Mptcp). An option of `socket` that it refuses is an error.
    pub mptcp: bool,
    /// The hop limit of its packets (`IP_TTL`, `IPV6_UNICAST_HOPS`), at least 1; `None` for the
    /// kernel's choice (`net.ipv4.ip_default_ttl`, 64).
    pub hop_limit: Option<u8>,
    /// Whether the kernel may choose any local port of its range (`IP_LOCAL_PORT_RANGE`, Linux
    /// 6.8), instead of preferring those of one parity. This helps a program that opens thousands
    /// of connections to one destination: with 15,000 in TIME-WAIT it saves a gate a sixth of the
    /// processor time per connection. Older kernels ignore it.
    pub any_port: bool,
    /// The first bytes to send: with the SYN if the peer has allowed that before (TCP Fast Open,
    /// RFC 7413), otherwise right after the handshake. They may arrive twice, and a dial with
    /// several attempts may send them to several servers, so use this only for idempotent requests.
    ///
    /// The connection is open once the handshake is done and the kernel has accepted all of them;
    /// they count as written. [`Granted::fast_open`](crate::Granted::fast_open) shows what became
    /// of them.
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

    /// Sets whether to request [Multipath TCP](field@Self::mptcp).
    #[must_use]
    pub fn mptcp(self, mptcp: bool) -> Self {
        Self { mptcp, ..self }
    }

    /// Limits how many [hops](field@Self::hop_limit) its packets may take.
    #[must_use]
    pub fn hop_limit(self, hops: u8) -> Self {
        Self { hop_limit: Some(hops), ..self }
    }

    /// Sets whether to use [any local port](field@Self::any_port).
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
