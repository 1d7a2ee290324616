//! Socket options of `SOL_SOCKET` and calls that any stream socket knows: `socket(7)`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Socket, Type};

use crate::tun::interface_name;
use crate::{check, check_size};

/// The protocol number of plain TCP.
pub const PROTOCOL_TCP: i32 = libc::IPPROTO_TCP;
/// The protocol number of Multipath TCP (RFC 8684).
pub const PROTOCOL_MPTCP: i32 = libc::IPPROTO_MPTCP;
/// [`family`]: a Unix socket.
pub const FAMILY_UNIX: i32 = libc::AF_UNIX;
/// [`family`]: an internet socket of version 4.
pub const FAMILY_IPV4: i32 = libc::AF_INET;
/// [`family`]: an internet socket of version 6.
pub const FAMILY_IPV6: i32 = libc::AF_INET6;
/// [`kind`]: a stream of bytes.
pub const TYPE_STREAM: i32 = libc::SOCK_STREAM;

/// `SO_BUF_LOCK`: the send buffer was set by hand, the kernel does not size it.
pub const SEND_BUFFER_LOCKED: i32 = 1;
/// `SO_BUF_LOCK`: the receive buffer was set by hand, the kernel does not size it.
pub const RECEIVE_BUFFER_LOCKED: i32 = 2;

/// Not in the `libc` crate for every target: `include/uapi/asm-generic/socket.h`, Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;

/// Not in the `libc` crate for every target: `include/uapi/asm-generic/socket.h`, Linux 4.12.
const SO_MEMINFO: libc::c_int = 55;

/// Not in the `libc` crate for every target: `include/uapi/asm-generic/socket.h`.
const SO_COOKIE: libc::c_int = 57;

/// Not in the `libc` crate for every target: `include/uapi/asm-generic/socket.h`.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// A descriptor of our own for what is open by this number (`fcntl(2)`, `F_DUPFD_CLOEXEC`): it stays
/// what it is when the number is closed and given to something else.
///
/// # Errors
/// `EBADF` when nothing is open by that number; `EMFILE`.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed; a number that stands for nothing is an error.
    let raw = check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Opens a TCP socket of the family of `address`, not yet bound (`socket(2)`).
///
/// # Errors
/// The kernel's: `EMFILE`, `EAFNOSUPPORT`.
pub fn open_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    Ok(socket.into())
}

/// Opens a UDP socket of the family of `address`, not yet bound (`socket(2)`).
///
/// # Errors
/// The kernel's: `EMFILE`, `EAFNOSUPPORT`.
pub fn open_udp(address: SocketAddr) -> io::Result<OwnedFd> {
    Ok(Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?.into())
}

/// As [`open_tcp`], for a socket on which no call waits (`socket(2)`, `SOCK_NONBLOCK`).
///
/// # Errors
/// The kernel's: `EMFILE`, `EAFNOSUPPORT`.
pub fn open_tcp_nonblocking(address: SocketAddr) -> io::Result<OwnedFd> {
    open_nonblocking(address, PROTOCOL_TCP)
}

/// As [`open_tcp_nonblocking`], for Multipath TCP (RFC 8684); `None` where this kernel has none
/// (`EPROTONOSUPPORT`, before 5.6 `EINVAL`), or `net.mptcp.enabled` is 0 (`ENOPROTOOPT`).
///
/// # Errors
/// The kernel's: `EMFILE`, `EAFNOSUPPORT`.
pub fn open_mptcp_nonblocking(address: SocketAddr) -> io::Result<Option<OwnedFd>> {
    match open_nonblocking(address, PROTOCOL_MPTCP) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

fn open_nonblocking(address: SocketAddr, protocol: i32) -> io::Result<OwnedFd> {
    let kind = Type::from(libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
    Ok(Socket::new(Domain::for_address(address), kind, Some(protocol.into()))?.into())
}

/// Binds a socket that will connect to the address it connects from (`bind(2)`). With a port of 0
/// the kernel chooses one when it connects.
///
/// # Errors
/// The kernel's: `EADDRNOTAVAIL` for an address that this host does not have, `EADDRINUSE`; `EINVAL`
/// for a link-local one without a scope, where the socket has no interface.
pub fn bind_source(fd: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    SockRef::from(fd).bind(&address.into())
}

/// Leaves the choice of a port to `connect`, where [`bind_source`] asks for none (`ip(7)`,
/// `IP_BIND_ADDRESS_NO_PORT`, Linux 4.2; also for sockets of IPv6). It need not be free of
/// connections to other destinations then.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel; `EOPNOTSUPP` for MPTCP before 6.8.
pub fn leave_port_to_connect(fd: &impl AsFd) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Has `connect` look for a local port among all of the kernel's range (`IP_LOCAL_PORT_RANGE`,
/// Linux 6.3; in this way since 6.8; also for sockets of IPv6). By itself it looks at all even ports
/// first, and leaves the odd ones to `bind`: once those are used up, by connections or by what
/// lingers of them (TIME-WAIT), each connect to the same destination looks at all of them in vain.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel; `EOPNOTSUPP` for MPTCP.
pub fn take_any_port(fd: &impl AsFd) -> io::Result<()> {
    // From port 1 on, to no end: outside the kernel's own range neither bound counts.
    set_int(fd, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, 1)
}

/// `linux/in.h`.
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// How many hops the packets of a socket may take: the time to live (`ip(7)`, `IP_TTL`), or the hop
/// limit (`ipv6(7)`, `IPV6_UNICAST_HOPS`) where `ipv6`. A socket of IPv6 has both: for packets of IPv4
/// it is the former.
///
/// # Errors
/// `EINVAL` for 0 over IPv4; `ENOPROTOOPT` for `ipv6` on a socket of IPv4.
pub fn set_hop_limit(fd: &impl AsFd, ipv6: bool, hops: u8) -> io::Result<()> {
    let (level, option) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)
    } else {
        (libc::IPPROTO_IP, libc::IP_TTL)
    };
    set_int(fd, level, option, hops.into())
}

/// Whether a socket of IPv6 is for that alone, or for IPv4 too (`ipv6(7)`, `IPV6_V6ONLY`; unless set,
/// as `net.ipv6.bindv6only` says).
///
/// # Errors
/// `EOPNOTSUPP` or `ENOPROTOOPT` for a socket of IPv4.
pub fn is_only_ipv6(fd: &impl AsFd) -> io::Result<bool> {
    SockRef::from(fd).only_v6()
}

/// Binds a socket to a local address (`bind(2)`), which may have been in use a moment ago
/// (`SO_REUSEADDR`).
///
/// # Errors
/// The kernel's: `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` for a port below 1024.
pub fn bind(fd: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    let socket = SockRef::from(fd);
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Lets a bound socket accept connections, `backlog` of them waiting (`listen(2)`).
///
/// # Errors
/// The kernel's: `EADDRINUSE`.
pub fn listen(fd: &impl AsFd, backlog: i32) -> io::Result<()> {
    SockRef::from(fd).listen(backlog)
}

/// Takes the next connection of a listener that does not wait, as a socket that does not wait either,
/// and its peer's address (`accept4(2)`, `SOCK_NONBLOCK`).
///
/// # Errors
/// `EAGAIN` when none is there; `EMFILE`, `ENFILE`, `ENOBUFS` and `ENOMEM` when there is nothing to
/// hold it with; those of [`is_of_one_connection`].
pub fn accept_now(fd: &impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut storage = SockAddrStorage::zeroed();
    let mut length = storage.size_of();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (fd, pointer) = (fd.as_fd().as_raw_fd(), (&raw mut storage).cast());
    // SAFETY: `storage` has the length announced, and both outlive the call.
    let raw = check(unsafe { libc::accept4(fd, pointer, &raw mut length, flags) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let accepted = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: the kernel wrote an address to `storage`, and `length` is that address's.
    let peer = unsafe { SockAddr::new(storage, length) }.as_socket();
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "a peer of an unknown family");
    Ok((accepted, peer.ok_or_else(unknown)?))
}

/// Whether an error of [`accept_now`] is about one connection that is gone, not about the listener:
/// Linux passes network errors on (`accept(2)`, "Error handling").
#[must_use]
pub fn is_of_one_connection(error: &io::Error) -> bool {
    let Some(number) = error.raw_os_error() else { return false };
    [
        libc::ECONNABORTED,
        libc::ECONNRESET,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::EINTR,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::ENONET,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EPERM,
        libc::EPROTO,
        libc::ETIMEDOUT,
    ]
    .contains(&number)
}

/// Connects a socket, waiting at most `timeout` (`connect(2)`, `poll(2)`).
///
/// # Errors
/// The kernel's: `ECONNREFUSED`, `ENETUNREACH` and so on, or `TimedOut`.
pub fn connect(fd: &impl AsFd, address: SocketAddr, timeout: Duration) -> io::Result<()> {
    SockRef::from(fd).connect_timeout(&address.into(), timeout)
}

/// The address family of a socket (`SO_DOMAIN`, `socket(7)`): [`FAMILY_UNIX`] and so on.
///
/// # Errors
/// `EBADF` for a number that stands for no descriptor, `ENOTSOCK` for one that is no socket.
pub fn family(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)
}

/// What a socket carries (`SO_TYPE`, `socket(7)`): [`TYPE_STREAM`] and so on.
///
/// # Errors
/// `EBADF` for a number that stands for no descriptor, `ENOTSOCK` for one that is no socket.
pub fn kind(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE)
}

/// Whether a socket waits for connections (`SO_ACCEPTCONN`, `socket(7)`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn is_listening(fd: &impl AsFd) -> io::Result<bool> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN).map(|on| on != 0)
}

/// The kernel's number of a socket (`SO_COOKIE`, Linux 4.12), as in `sock_diag(7)`: unique until
/// the next boot.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket, `ENOPROTOOPT` on an older kernel.
pub fn cookie(fd: &impl AsFd) -> io::Result<u64> {
    get_bytes(fd, libc::SOL_SOCKET, SO_COOKIE).map(u64::from_ne_bytes)
}

/// Takes the pending error of a socket (`SO_ERROR`, `socket(7)`): it is reported once, here or by
/// the next call that fails.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn take_error(fd: &impl AsFd) -> io::Result<Option<io::Error>> {
    let number = get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((number != 0).then(|| io::Error::from_raw_os_error(number)))
}

/// Whether a socket has a peer (`getpeername(2)`).
///
/// # Errors
/// Other than `ENOTCONN`: `ENOTSOCK` for a descriptor that is no socket.
pub fn has_peer(fd: &impl AsFd) -> io::Result<bool> {
    match SockRef::from(fd).peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Begins to connect a non-blocking socket (`connect(2)`): it is writable once that has succeeded
/// or failed, and [`take_error`] says which.
///
/// # Errors
/// What is known at once: `ENETUNREACH`, `EADDRNOTAVAIL` and so on.
pub fn begin_connect(fd: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    match SockRef::from(fd).connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// The protocol of a socket (`SO_PROTOCOL`): [`PROTOCOL_TCP`], or 262 for MPTCP.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn protocol(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)
}

/// The process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process that connected, or that listened.
    pub pid: i32,
    /// Its user when it did.
    pub user: u32,
}

/// The process at the other end of a connected Unix socket (`SO_PEERCRED`, `unix(7)`), as verified
/// by the kernel.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket, `ENODATA` for one that is not connected.
pub fn peer_credentials(fd: &impl AsFd) -> io::Result<Credentials> {
    let mut ucred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_value::<libc::ucred>();
    let (fd, option) = (fd.as_fd().as_raw_fd(), libc::SO_PEERCRED);
    let pointer = (&raw mut ucred).cast();
    // SAFETY: `ucred` has the length announced, and both outlive the call.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, pointer, &raw mut length) })?;
    Ok(Credentials { pid: ucred.pid, user: ucred.uid })
}

/// Keeps urgent bytes in the stream, in their place (`SO_OOBINLINE`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_oob_inline(fd: &impl AsFd, on: bool) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, i32::from(on))
}

/// The send buffer's size in bytes, overhead included (`SO_SNDBUF`): twice what was set.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn send_buffer(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)
}

/// Fixes the send buffer (`SO_SNDBUF`), and disables its autotuning. The kernel doubles the number
/// and silently caps it at `net.core.wmem_max`: read [`send_buffer`] back.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_send_buffer(fd: &impl AsFd, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
}

/// The receive buffer's size in bytes, overhead included (`SO_RCVBUF`): twice what was set.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn receive_buffer(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)
}

/// Fixes the receive buffer (`SO_RCVBUF`), and switches its autotuning off. To count for the window
/// scale it must be set before `listen` or `connect` (`tcp(7)`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_receive_buffer(fd: &impl AsFd, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// As [`set_receive_buffer`], past `net.core.rmem_max` (`SO_RCVBUFFORCE`).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the socket's network namespace.
pub fn force_receive_buffer(fd: &impl AsFd, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

/// Which buffers were set by hand (`SO_BUF_LOCK`, Linux 5.14): a mask of [`SEND_BUFFER_LOCKED`] and
/// [`RECEIVE_BUFFER_LOCKED`].
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel.
pub fn buffer_lock(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, SO_BUF_LOCK)
}

/// What lies in the send buffer, in the bytes that the kernel counts against its size
/// ([`send_buffer`]): overhead included (`SO_MEMINFO`, `SK_MEMINFO_WMEM_QUEUED`, Linux 4.12).
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel.
pub fn send_queue(fd: &impl AsFd) -> io::Result<u32> {
    /// `SK_MEMINFO_WMEM_QUEUED` (`include/uapi/linux/sock_diag.h`), in words of 4 bytes.
    const QUEUED: usize = 5;
    let words: [u8; 36] = get_bytes(fd, libc::SOL_SOCKET, SO_MEMINFO)?;
    let word = words.as_chunks::<4>().0.get(QUEUED).copied();
    Ok(u32::from_ne_bytes(word.unwrap_or_default()))
}

/// What `close` does with unsent data (`SO_LINGER`): `None` returns at once and goes on in the
/// background, zero aborts with a reset, more waits that long (whole seconds, rounded up).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_linger(fd: &impl AsFd, linger: Option<Duration>) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: i32::from(linger.is_some()),
        l_linger: linger.map_or(0, whole_seconds),
    };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// What [`set_linger`] set: `None` where `close` returns at once (`SO_LINGER`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn linger(fd: &impl AsFd) -> io::Result<Option<Duration>> {
    // struct linger: two ints, whether and how long.
    let [on, seconds] = int_pair(get_bytes(fd, libc::SOL_SOCKET, libc::SO_LINGER)?);
    Ok((on != 0).then(|| Duration::from_secs(seconds.unsigned_abs().into())))
}

/// Whether urgent bytes stay in the stream (`SO_OOBINLINE`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn oob_inline(fd: &impl AsFd) -> io::Result<bool> {
    Ok(get_int(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE)? != 0)
}

/// As [`set_send_buffer`], past `net.core.wmem_max` (`SO_SNDBUFFORCE`).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the socket's network namespace.
pub fn force_send_buffer(fd: &impl AsFd, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
}

/// Sets which buffers count as set by hand (`SO_BUF_LOCK`, Linux 5.14): a mask of
/// [`SEND_BUFFER_LOCKED`] and [`RECEIVE_BUFFER_LOCKED`]. 0 returns both to autotuning; they keep
/// their size until it grows them.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel, `EINVAL` for other bits, `EOPNOTSUPP` for MPTCP.
pub fn set_buffer_lock(fd: &impl AsFd, mask: i32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, SO_BUF_LOCK, mask)
}

/// Whether an idle connection is probed (`SO_KEEPALIVE`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn keepalive(fd: &impl AsFd) -> io::Result<bool> {
    Ok(get_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE)? != 0)
}

/// Has an idle connection probed, or not (`SO_KEEPALIVE`). When and how often is in
/// [`set_keepalive_idle`](crate::tcp::set_keepalive_idle) and what follows it.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_keepalive(fd: &impl AsFd, on: bool) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, i32::from(on))
}

/// The highest rate that this socket sends at, in bytes per second (`SO_MAX_PACING_RATE`,
/// `tc-fq(8)`); `u64::MAX` is none.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn max_pacing_rate(fd: &impl AsFd) -> io::Result<u64> {
    let rate = get_bytes(fd, libc::SOL_SOCKET, SO_MAX_PACING_RATE)?;
    let rate = libc::c_ulong::from_ne_bytes(rate);
    #[allow(clippy::unnecessary_cast, reason = "not a u64 everywhere")]
    Ok(if rate == libc::c_ulong::MAX { u64::MAX } else { rate as u64 })
}

/// Limits the rate that this socket sends at, in bytes per second (`SO_MAX_PACING_RATE`,
/// `tc-fq(8)`); `u64::MAX` is none. The kernel's `long` is what counts: where it has 32 bits, what
/// does not fit is none. 0 is taken, and limits nothing where TCP paces by itself: it is no rate.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket, `EOPNOTSUPP` for MPTCP.
pub fn set_max_pacing_rate(fd: &impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    #[allow(clippy::useless_conversion, reason = "not a u64 everywhere")]
    let rate = libc::c_ulong::try_from(bytes_per_s).unwrap_or(libc::c_ulong::MAX);
    set_option(fd, libc::SOL_SOCKET, SO_MAX_PACING_RATE, &rate)
}

/// The mark that packets of this socket carry for routes and filters (`SO_MARK`); 0 is none.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn mark(fd: &impl AsFd) -> io::Result<u32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_MARK).map(i32::cast_unsigned)
}

/// Marks the packets of this socket for routes and filters (`SO_MARK`); 0 is none.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` or (Linux 5.17) `CAP_NET_RAW` over the socket's network
/// namespace, also for 0.
pub fn set_mark(fd: &impl AsFd, mark: u32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// The only interface that this socket's packets use (`SO_BINDTODEVICE`); empty if it may be any.
///
/// # Errors
/// `ENODEV` when that interface is gone.
pub fn interface(fd: &impl AsFd) -> io::Result<String> {
    let name: [u8; libc::IFNAMSIZ] = get_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE)?;
    Ok(text_of(&name))
}

/// Lets this socket's packets come and go by one interface alone (`SO_BINDTODEVICE`); an empty name
/// lets them use any.
///
/// # Errors
/// `ENODEV` for a name that no interface has; the kernel would cut one that is too long, and bind to
/// another interface, so that it does not get it. `EPERM` without `CAP_NET_RAW` over the socket's
/// network namespace where one is set already.
pub fn set_interface(fd: &impl AsFd, name: &str) -> io::Result<()> {
    // With its final 0 it is IFNAMSIZ bytes long at most (netdevice(7)).
    let mut padded = [0_u8; libc::IFNAMSIZ];
    if name.len() >= padded.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    padded[..name.len()].copy_from_slice(name.as_bytes());
    set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &padded)
}

/// The hardware type of an interface in the network namespace of this socket (`netdevice(7)`,
/// `SIOCGIFHWADDR`): an `ARPHRD_*` of `include/uapi/linux/if_arp.h`.
///
/// # Errors
/// `ENODEV` for a name that no interface has, `ENAMETOOLONG` for one that none can have.
pub fn hardware_type(fd: &impl AsFd, interface: &str) -> io::Result<u16> {
    let none = libc::sockaddr { sa_family: 0, sa_data: [0; 14] };
    let mut request = libc::ifreq {
        ifr_name: interface_name(interface)?,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_hwaddr: none },
    };
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `request` is the structure that this request is defined for, and outlives the call.
    check(unsafe { libc::ioctl(fd, libc::SIOCGIFHWADDR, &raw mut request) })?;
    // SAFETY: the hardware address was set above, and the kernel has written another; any bytes are one.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// The address that this socket is bound to (`getsockname(2)`); `None` for a family without ports.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn local_address(fd: &impl AsFd) -> io::Result<Option<SocketAddr>> {
    Ok(SockRef::from(fd).local_addr()?.as_socket())
}

/// The address that this socket is connected to (`getpeername(2)`); `None` for a family without
/// ports.
///
/// # Errors
/// `ENOTCONN` where it is not connected.
pub fn peer_address(fd: &impl AsFd) -> io::Result<Option<SocketAddr>> {
    Ok(SockRef::from(fd).peer_addr()?.as_socket())
}

/// Half-closes a socket: no more is written, a FIN follows what is queued (`shutdown(2)`,
/// `SHUT_WR`).
///
/// # Errors
/// `ENOTCONN` when the connection is gone: then no FIN is queued.
pub fn shutdown_write(fd: &impl AsFd) -> io::Result<()> {
    // SAFETY: shutdown takes no pointer.
    check(unsafe { libc::shutdown(fd.as_fd().as_raw_fd(), libc::SHUT_WR) }).map(drop)
}

/// Reads what has arrived, without waiting (`recv(2)`, `MSG_DONTWAIT`). Returns how many bytes; 0 is
/// the end of the stream.
///
/// # Errors
/// `EAGAIN` when nothing is there; the connection's own error otherwise.
pub fn receive_now(fd: &impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    let (fd, length) = (fd.as_fd().as_raw_fd(), room.len());
    let pointer = room.as_mut_ptr().cast();
    // SAFETY: pointer and length are those of `room`, which is ours alone and outlives the call.
    check_size(unsafe { libc::recv(fd, pointer, length, libc::MSG_DONTWAIT) })
}

/// Writes what there is room for, without waiting and without a signal (`send(2)`, `MSG_DONTWAIT`,
/// `MSG_NOSIGNAL`). Returns how many bytes the kernel took.
///
/// # Errors
/// `EAGAIN` when there is no room; the connection's own error otherwise.
pub fn send_now(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(fd).send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Writes one or more bytes, the last of them urgent, without waiting and without a signal (`send(2)`,
/// `MSG_OOB`). Returns how many bytes the kernel took.
///
/// # Errors
/// `EAGAIN` when there is no room; the connection's own error otherwise.
pub fn send_urgent(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_OOB | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    SockRef::from(fd).send_with_flags(bytes, flags)
}

/// Whether the next byte to be read is the urgent one (`sockatmark(3)`, `SIOCATMARK`).
///
/// # Errors
/// `ENOTTY` for another kind of socket.
pub fn at_mark(fd: &impl AsFd) -> io::Result<bool> {
    let mut answer: libc::c_int = 0;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one int to `answer`, which outlives the call.
    check(unsafe { libc::ioctl(fd, SIOCATMARK, &raw mut answer) })?;
    Ok(answer != 0)
}

/// Not in the `libc` crate for every target: `include/uapi/asm-generic/sockios.h`.
const SIOCATMARK: libc::Ioctl = 0x8905;

/// As [`send_now`], from several places (`sendmsg(2)`).
///
/// # Errors
/// `EAGAIN` when there is no room; the connection's own error otherwise.
pub fn send_parts_now(fd: &impl AsFd, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // More than the kernel takes at once would be an error (`UIO_MAXIOV`).
    SockRef::from(fd).send_vectored_with_flags(&parts[..parts.len().min(1024)], flags)
}

/// Reads and throws away up to `limit` bytes that have arrived, without copying them (`tcp(7)`,
/// `MSG_TRUNC`). TCP alone: elsewhere the flag means something else. Returns how many; 0 is the end
/// of the stream.
///
/// # Errors
/// `EAGAIN` when nothing is there; the connection's own error otherwise.
pub fn discard(fd: &impl AsFd, limit: usize) -> io::Result<usize> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer, so null is allowed.
    check_size(unsafe { libc::recv(fd, std::ptr::null_mut(), limit, flags) })
}

/// Never cuts what is sent, here or on the way (`ip(7)`, `IP_MTU_DISCOVER`): a packet that is longer
/// than the path takes is refused with `EMSGSIZE`.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn forbid_fragments(fd: &impl AsFd) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
}

/// Lets the kernel split what is written to a UDP socket into datagrams with this many bytes of
/// data (`udp(7)`, `UDP_SEGMENT`, Linux 4.18); 64 of them at most, and 64 KiB.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel.
pub fn set_segment_bytes(fd: &impl AsFd, bytes: u16) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Sets the byte of IPv4 whose lowest two bits are those of ECN (`ip(7)`, `IP_TOS`; RFC 3168).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_type_of_service(fd: &impl AsFd, byte: u8) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_IP, libc::IP_TOS, byte.into())
}

/// Lets [`receive_with_type_of_service`] return that byte (`ip(7)`, `IP_RECVTOS`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn tell_type_of_service(fd: &impl AsFd) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
}

/// Receives one datagram (`recvmsg(2)`). Returns its length in bytes, at most `room`, and the byte
/// that [`set_type_of_service`] sets, where the kernel tells it.
///
/// # Errors
/// `EAGAIN` when nothing came in time; the socket's own error otherwise.
pub fn receive_with_type_of_service(
    fd: &impl AsFd,
    room: &mut [u8],
) -> io::Result<(usize, Option<u8>)> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // Words, so that it is aligned as a cmsghdr has to be.
    let mut control = [0_usize; 8];
    // SAFETY: all zeroes are a msghdr: null pointers, no lengths, no flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the message points to `room` and `control` with their lengths; both outlive the call.
    let length = check_size(unsafe { libc::recvmsg(fd, &raw mut message, 0) })?;
    #[allow(clippy::unnecessary_cast, reason = "not a usize everywhere")]
    let told = message.msg_controllen as usize;
    Ok((length, type_of_service(&control, told)))
}

/// The byte in the first message of control data, if it is one of `IP_TOS`: a length, a level and a
/// kind (`cmsg(3)`), then the byte.
fn type_of_service(control: &[usize], told: usize) -> Option<u8> {
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let bytes = bytes.get(..told)?;
    let header = size_of::<libc::cmsghdr>();
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(i32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
    };
    let is_it = number(header - 8)? == libc::IPPROTO_IP && number(header - 4)? == libc::IP_TOS;
    bytes.get(header).copied().filter(|_| is_it)
}

/// A time as the kernel takes it: in whole seconds, rounded up.
pub(crate) fn whole_seconds(time: Duration) -> i32 {
    i32::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i32::MAX)
}

/// The text in front of the first 0.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn int_pair(bytes: [u8; 8]) -> [i32; 2] {
    let [a, b, c, d, e, f, g, h] = bytes;
    [i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h])]
}

/// Reads an integer option (`getsockopt(2)`).
pub(crate) fn get_int(fd: &impl AsFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_value::<libc::c_int>();
    let fd = fd.as_fd().as_raw_fd();
    let pointer = (&raw mut value).cast();
    // SAFETY: `value` has the length announced, and both outlive the call.
    check(unsafe { libc::getsockopt(fd, level, option, pointer, &raw mut length) })?;
    Ok(value)
}

/// Reads an option of up to `N` bytes (`getsockopt(2)`); what the kernel does not fill stays 0.
pub(crate) fn get_bytes<const N: usize>(
    fd: &impl AsFd,
    level: i32,
    option: i32,
) -> io::Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    let mut length = size_of_value::<[u8; N]>();
    let fd = fd.as_fd().as_raw_fd();
    let pointer = bytes.as_mut_ptr().cast();
    // SAFETY: `bytes` has the length announced, and both outlive the call.
    check(unsafe { libc::getsockopt(fd, level, option, pointer, &raw mut length) })?;
    Ok(bytes)
}

/// Sets an integer option (`setsockopt(2)`).
pub(crate) fn set_int(fd: &impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_option(fd, level, option, &value)
}

pub(crate) fn set_option<T: Copy>(
    fd: &impl AsFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let pointer = std::ptr::from_ref(value).cast();
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `value` is a plain C value of the length announced and outlives the call.
    check(unsafe { libc::setsockopt(fd, level, option, pointer, size_of_value::<T>()) }).map(drop)
}

pub(crate) fn size_of_value<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tcp() -> OwnedFd {
        open_tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    fn refused<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    /// Whether a call that needs a capability may be made here; says so if not.
    fn may(call: &str, result: io::Result<()>) -> bool {
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                lastbyte_testing::not_tested!("{call} needs a capability: {error}");
                false
            }
            result => result.map(|()| true).unwrap(),
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let (one, two) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(two.local_addr().unwrap()).unwrap();
        (one, two)
    }

    #[test]
    fn a_duplicate_outlives_the_number_that_it_was_made_by() {
        let (one, two) = pair();
        let same = duplicate(one.as_raw_fd()).unwrap();
        drop(one);
        send_now(&same, b"data").unwrap();
        assert_eq!(two.recv(&mut [0; 16]).unwrap(), 4);
        assert_eq!(duplicate(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn an_urgent_byte_stays_in_its_place_and_is_marked() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        set_oob_inline(&reader, true).unwrap();
        assert_eq!(send_now(&sender, b"be").unwrap(), 2);
        assert_eq!(send_urgent(&sender, b"!").unwrap(), 1);
        assert_eq!(send_now(&sender, b"after").unwrap(), 5);
        assert!(!at_mark(&reader).unwrap());
        // A read stops before it, however much room there is.
        let mut room = [0; 16];
        assert_eq!(Read::read(&mut reader, &mut room).unwrap(), 2);
        assert!(at_mark(&reader).unwrap());
        Read::read_exact(&mut reader, &mut room[..6]).unwrap();
        assert_eq!(&room[..6], b"!after");
        assert!(!at_mark(&reader).unwrap());
    }

    #[test]
    fn odd_ports_are_taken_as_well_as_even_ones() {
        let to = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = to.local_addr().unwrap();
        let tcp = open_tcp_nonblocking(to).unwrap();
        match take_any_port(&tcp) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                lastbyte_testing::not_tested!("this kernel is older than Linux 6.3");
                return;
            }
            taken => taken.unwrap(),
        }
        let is_odd = || {
            let tcp = open_tcp_nonblocking(to).unwrap();
            take_any_port(&tcp).unwrap();
            begin_connect(&tcp, to).unwrap();
            let odd = local_address(&tcp).unwrap().unwrap().port() % 2 == 1;
            (tcp, odd)
        };
        // All of one kind by chance: less than once in 2^60.
        let taken: Vec<_> = (0..64).map(|_| is_odd()).collect();
        let odd = taken.iter().filter(|(_, odd)| *odd).count();
        assert!((1..64).contains(&odd), "{odd} of 64 are odd");
    }

    #[test]
    fn a_source_takes_its_port_when_it_connects() {
        let to = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = to.local_addr().unwrap();
        let tcp = open_tcp_nonblocking(to).unwrap();
        leave_port_to_connect(&tcp).unwrap();
        bind_source(&tcp, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let unset = (Ipv4Addr::LOCALHOST, 0).into();
        assert_eq!(local_address(&tcp).unwrap(), Some(unset));
        begin_connect(&tcp, to).unwrap();
        assert_ne!(local_address(&tcp).unwrap(), Some(unset));
        let elsewhere =
            bind_source(&open_tcp(to).unwrap(), (Ipv4Addr::new(192, 0, 2, 77), 0).into());
        assert_eq!(refused(elsewhere), Some(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn sockets_of_both_protocols_do_not_wait() {
        let to = (Ipv4Addr::LOCALHOST, 0).into();
        let tcp = open_tcp_nonblocking(to).unwrap();
        assert_eq!(protocol(&tcp).unwrap(), PROTOCOL_TCP);
        let mptcp = open_mptcp_nonblocking(to).unwrap();
        match &mptcp {
            Some(fd) => assert_eq!(protocol(fd).unwrap(), PROTOCOL_MPTCP),
            None => lastbyte_testing::not_tested!("this kernel has no MPTCP, or it is off"),
        }
        for fd in [Some(tcp), mptcp].into_iter().flatten() {
            listen(&fd, 1).unwrap();
            let accepted = TcpListener::from(fd).accept();
            assert_eq!(accepted.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn the_type_of_service_comes_with_the_datagram() {
        let (one, two) = pair();
        tell_type_of_service(&two).unwrap();
        for byte in [0, 1, 2] {
            set_type_of_service(&one, byte).unwrap();
            one.send(b"data").unwrap();
            let received = receive_with_type_of_service(&two, &mut [0; 16]).unwrap();
            assert_eq!(received, (4, Some(byte)));
        }
        let (one, untold) = pair();
        one.send(b"data").unwrap();
        assert_eq!(receive_with_type_of_service(&untold, &mut [0; 2]).unwrap(), (2, None));
    }

    #[test]
    fn what_is_written_is_cut() {
        let (one, two) = pair();
        set_segment_bytes(&one, 3).unwrap();
        one.send(b"abcdefgh").unwrap();
        let lengths = [(); 3].map(|()| two.recv(&mut [0; 16]).unwrap());
        assert_eq!(lengths, [3, 3, 2]);
    }

    #[test]
    fn what_is_too_long_is_refused_where_it_may_not_be_cut() {
        let (one, _two) = pair();
        forbid_fragments(&one).unwrap();
        let refused = one.send(&[0; 65_507 + 1]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn switches_read_back_as_set() {
        let tcp = tcp();
        for on in [true, false] {
            set_keepalive(&tcp, on).unwrap();
            set_oob_inline(&tcp, on).unwrap();
            assert_eq!((keepalive(&tcp).unwrap(), oob_inline(&tcp).unwrap()), (on, on));
        }
    }

    #[test]
    fn linger_is_in_whole_seconds_rounded_up() {
        let tcp = tcp();
        assert_eq!(linger(&tcp).unwrap(), None);
        for (set, granted) in [
            (Some(Duration::ZERO), Some(Duration::ZERO)),
            (Some(Duration::from_nanos(1)), Some(SECOND)),
            (Some(SECOND), Some(SECOND)),
            (Some(SECOND + Duration::from_nanos(1)), Some(2 * SECOND)),
            (None, None),
        ] {
            set_linger(&tcp, set).unwrap();
            assert_eq!(linger(&tcp).unwrap(), granted);
        }
    }

    #[test]
    fn a_pacing_rate_has_more_than_32_bits() {
        let tcp = tcp();
        assert_eq!(max_pacing_rate(&tcp).unwrap(), u64::MAX);
        let beyond = if cfg!(target_pointer_width = "64") { 5_000_000_000 } else { u64::MAX };
        for (set, granted) in
            [(2_500_000, 2_500_000), (5_000_000_000, beyond), (u64::MAX, u64::MAX)]
        {
            set_max_pacing_rate(&tcp, set).unwrap();
            assert_eq!(max_pacing_rate(&tcp).unwrap(), granted);
        }
    }

    #[test]
    fn a_mark_has_32_bits() {
        let tcp = tcp();
        assert_eq!(mark(&tcp).unwrap(), 0);
        for set in [1, u32::MAX, 0] {
            if !may("SO_MARK", set_mark(&tcp, set)) {
                return;
            }
            assert_eq!(mark(&tcp).unwrap(), set);
        }
    }

    #[test]
    fn an_interface_is_bound_by_its_whole_name() {
        let tcp = tcp();
        assert_eq!(interface(&tcp).unwrap(), "");
        for wrong in ["no-such-thing", "lo\0", "lo\0else", "a-name-longer-than-any"] {
            assert_eq!(refused(set_interface(&tcp, wrong)), Some(libc::ENODEV), "{wrong:?}");
        }
        if may("SO_BINDTODEVICE", set_interface(&tcp, "lo")) {
            assert_eq!(interface(&tcp).unwrap(), "lo");
            if may("SO_BINDTODEVICE, a second time,", set_interface(&tcp, "")) {
                assert_eq!(interface(&tcp).unwrap(), "");
            }
        }
    }

    #[test]
    fn an_interface_has_a_hardware_type() {
        const ARPHRD_LOOPBACK: u16 = 772;
        let udp = open_udp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        assert_eq!(hardware_type(&udp, "lo").unwrap(), ARPHRD_LOOPBACK);
        assert_eq!(refused(hardware_type(&udp, "no-such-thing")), Some(libc::ENODEV));
        let long = refused(hardware_type(&udp, "a-name-longer-than-any"));
        assert_eq!(long, Some(libc::ENAMETOOLONG));
    }

    #[test]
    fn buffers_set_by_hand_are_handed_back() {
        let tcp = tcp();
        set_send_buffer(&tcp, 65_536).unwrap();
        set_receive_buffer(&tcp, 65_536).unwrap();
        if refused(buffer_lock(&tcp)) == Some(libc::ENOPROTOOPT) {
            lastbyte_testing::not_tested!("SO_BUF_LOCK needs Linux 5.14");
            return;
        }
        assert_eq!(buffer_lock(&tcp).unwrap(), SEND_BUFFER_LOCKED | RECEIVE_BUFFER_LOCKED);
        set_buffer_lock(&tcp, RECEIVE_BUFFER_LOCKED).unwrap();
        assert_eq!(buffer_lock(&tcp).unwrap(), RECEIVE_BUFFER_LOCKED);
        set_buffer_lock(&tcp, 0).unwrap();
        assert_eq!(buffer_lock(&tcp).unwrap(), 0);
        assert_eq!(send_buffer(&tcp).unwrap(), 2 * 65_536, "the size stays");
        assert_eq!(refused(set_buffer_lock(&tcp, 4)), Some(libc::EINVAL));
    }

    #[test]
    fn a_forced_send_buffer_passes_the_limit() {
        let tcp = tcp();
        let beyond = 1 << 29;
        set_send_buffer(&tcp, beyond).unwrap();
        assert!(send_buffer(&tcp).unwrap() < 2 * beyond, "net.core.wmem_max is nowhere so large");
        if may("SO_SNDBUFFORCE", force_send_buffer(&tcp, beyond)) {
            assert_eq!(send_buffer(&tcp).unwrap(), 2 * beyond);
        }
    }

    #[test]
    fn what_is_accepted_does_not_wait() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else {
                lastbyte_testing::not_tested!("there is no {ip}");
                continue;
            };
            listener.set_nonblocking(true).unwrap();
            assert_eq!(accept_now(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, peer) = accept_now(&listener).unwrap();
            assert_eq!(peer, near.local_addr().unwrap());
            assert_eq!(refused(receive_now(&accepted, &mut [0])), Some(libc::EAGAIN));
            let mut plain = TcpStream::from(accepted);
            assert_eq!(plain.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn an_error_of_one_connection_is_none_of_the_listener() {
        let of_one = |number| is_of_one_connection(&io::Error::from_raw_os_error(number));
        for number in [libc::ECONNABORTED, libc::EPROTO, libc::EINTR, libc::ENETDOWN] {
            assert!(of_one(number), "{number}");
        }
        for number in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EINVAL] {
            assert!(!of_one(number), "{number}");
        }
    }

    #[test]
    fn both_addresses_are_told() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        assert_eq!(local_address(&near).unwrap(), Some(near.local_addr().unwrap()));
        assert_eq!(peer_address(&near).unwrap(), Some(address));
        assert_eq!(refused(peer_address(&listener)), Some(libc::ENOTCONN));
        let unix = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert_eq!(local_address(&unix).unwrap(), None);
    }

    #[test]
    fn a_file_is_no_socket() {
        let file = File::open("/dev/null").unwrap();
        let refusals = [
            refused(keepalive(&file)),
            refused(set_keepalive(&file, true)),
            refused(linger(&file)),
            refused(oob_inline(&file)),
            refused(max_pacing_rate(&file)),
            refused(set_max_pacing_rate(&file, 1)),
            refused(mark(&file)),
            refused(set_mark(&file, 1)),
            refused(interface(&file)),
            refused(set_interface(&file, "lo")),
            refused(set_buffer_lock(&file, 0)),
            refused(force_send_buffer(&file, 1)),
            refused(local_address(&file)),
            refused(peer_address(&file)),
            refused(leave_port_to_connect(&file)),
            refused(take_any_port(&file)),
            refused(bind_source(&file, (Ipv4Addr::LOCALHOST, 0).into())),
        ];
        assert_eq!(refusals, [Some(libc::ENOTSOCK); 17]);
    }
}
