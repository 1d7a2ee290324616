//! What the kernel knows of one TCP connection: `tcp(7)`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::SockRef;

use crate::check;
use crate::socket::{get_bytes, get_int, set_int, text_of, whole_seconds};

/// `SIOCOUTQNSD` of `include/uapi/linux/sockios.h`.
const SIOCOUTQNSD: libc::c_ulong = 0x894B;

/// Room for `struct tcp_info`: 280 bytes on Linux 6.18, and it grows.
pub const INFO_ROOM: usize = 512;

/// The bytes of `struct tcp_info` (`TCP_INFO`), as many as this kernel has. Fields beyond the
/// returned length are unknown, not zero.
///
/// # Errors
/// `ENOPROTOOPT` or `EOPNOTSUPP` for a socket that is not TCP.
pub fn info(fd: &impl AsFd, room: &mut [u8; INFO_ROOM]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(room.len()).unwrap_or(libc::socklen_t::MAX);
    let fd = fd.as_fd().as_raw_fd();
    let pointer = room.as_mut_ptr().cast();
    // SAFETY: `room` has the length announced, is ours alone, and outlives the call.
    check(unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, pointer, &raw mut length)
    })?;
    Ok((length as usize).min(room.len()))
}

/// Bytes written and not yet acknowledged by the peer's kernel, a queued FIN counting one
/// (`SIOCOUTQ`, in the kernel `write_seq - snd_una`). 0 in `SYN_SENT` and `SYN_RECV`, whatever is
/// pending.
///
/// # Errors
/// `EINVAL` on a listening socket.
pub fn unacked(fd: &impl AsFd) -> io::Result<u32> {
    queue(fd, libc::TIOCOUTQ)
}

/// Bytes written and not yet sent for the first time, a queued FIN counting one (`SIOCOUTQNSD`).
///
/// # Errors
/// `EINVAL` on a listening socket.
pub fn unsent(fd: &impl AsFd) -> io::Result<u32> {
    queue(fd, SIOCOUTQNSD)
}

/// Bytes received and not yet read (`SIOCINQ`); a FIN does not count.
///
/// # Errors
/// `EINVAL` on a listening socket.
pub fn unread(fd: &impl AsFd) -> io::Result<u32> {
    queue(fd, libc::FIONREAD)
}

fn queue(fd: &impl AsFd, request: libc::c_ulong) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests store one int, and `bytes` outlives the call.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut bytes) })?;
    Ok(bytes.cast_unsigned())
}

/// The name of the congestion control in use (`TCP_CONGESTION`).
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP.
pub fn congestion(fd: &impl AsFd) -> io::Result<String> {
    // TCP_CA_NAME_MAX of include/net/tcp.h.
    let name: [u8; 16] = get_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION)?;
    Ok(text_of(&name))
}

/// Selects a congestion control by name (`TCP_CONGESTION`), at any time.
///
/// # Errors
/// `ENOENT` for a name this kernel does not have; `EPERM` for one that only `CAP_NET_ADMIN` may
/// use (those not in `net.ipv4.tcp_allowed_congestion_control`).
pub fn set_congestion(fd: &impl AsFd, name: &str) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    let length = libc::socklen_t::try_from(name.len()).map_err(io::Error::other)?;
    let pointer = name.as_ptr().cast();
    // SAFETY: pointer and length are those of `name`, which outlives the call.
    check(unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, pointer, length) })
        .map(drop)
}

/// How many bytes may be written and not yet sent before the socket has no more room
/// (`TCP_NOTSENT_LOWAT`); 0 stands for the system's `net.ipv4.tcp_notsent_lowat`.
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP.
pub fn notsent_lowat(fd: &impl AsFd) -> io::Result<u32> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT).map(i32::cast_unsigned)
}

/// Limits the bytes that are written and not yet sent (`TCP_NOTSENT_LOWAT`). At the limit a write
/// waits; it may go past it by one segment. `poll` calls the socket writable below half of it. 0 is
/// the system's `net.ipv4.tcp_notsent_lowat` again.
///
/// # Errors
/// `ENOPROTOOPT` or `EOPNOTSUPP` for a socket that is not TCP.
pub fn set_notsent_lowat(fd: &impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.cast_signed())
}

/// How long written bytes may stay unacknowledged before the connection is given up
/// (`TCP_USER_TIMEOUT`); zero leaves that to `net.ipv4.tcp_retries2`.
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP, MPTCP included.
pub fn user_timeout(fd: &impl AsFd) -> io::Result<Duration> {
    let ms = get_int(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT)?;
    Ok(Duration::from_millis(ms.unsigned_abs().into()))
}

/// Gives a connection up when bytes stay unacknowledged for this long (`TCP_USER_TIMEOUT`,
/// milliseconds, rounded up); zero leaves that to `net.ipv4.tcp_retries2`. Bytes that wait for a
/// peer with a closed window count too, and so does the SYN.
///
/// # Errors
/// `EINVAL` for more than `i32::MAX` milliseconds; `ENOPROTOOPT` or `EOPNOTSUPP` for a socket that is
/// not TCP, MPTCP included.
pub fn set_user_timeout(fd: &impl AsFd, timeout: Duration) -> io::Result<()> {
    // What does not fit is negative to the kernel, which refuses it.
    let ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(-1);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)
}

/// After how much silence the first probe is sent, with keep-alive on (`TCP_KEEPIDLE`).
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP.
pub fn keepalive_idle(fd: &impl AsFd) -> io::Result<Duration> {
    seconds(fd, libc::TCP_KEEPIDLE)
}

/// Sets after how much silence the first probe is sent, with keep-alive on (`TCP_KEEPIDLE`, whole
/// seconds, rounded up): [`socket::set_keepalive`](crate::socket::set_keepalive).
///
/// # Errors
/// `EINVAL` for none or more than 32,767 s; `ENOPROTOOPT` or `EOPNOTSUPP` for a socket that is not
/// TCP.
pub fn set_keepalive_idle(fd: &impl AsFd, idle: Duration) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, whole_seconds(idle))
}

/// The time between two unanswered probes (`TCP_KEEPINTVL`).
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP.
pub fn keepalive_interval(fd: &impl AsFd) -> io::Result<Duration> {
    seconds(fd, libc::TCP_KEEPINTVL)
}

/// Sets the time between two unanswered probes (`TCP_KEEPINTVL`, whole seconds, rounded up).
///
/// # Errors
/// As [`set_keepalive_idle`].
pub fn set_keepalive_interval(fd: &impl AsFd, interval: Duration) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, whole_seconds(interval))
}

/// After how many probes without an answer the connection is given up (`TCP_KEEPCNT`).
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP.
pub fn keepalive_probes(fd: &impl AsFd) -> io::Result<u32> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT).map(i32::unsigned_abs)
}

/// Sets after how many probes without an answer the connection is given up (`TCP_KEEPCNT`). Where
/// there is a [`user_timeout`], that decides instead (`tcp(7)`).
///
/// # Errors
/// `EINVAL` for none or more than 127; otherwise as [`set_keepalive_idle`].
pub fn set_keepalive_probes(fd: &impl AsFd, probes: u32) -> io::Result<()> {
    let probes = i32::try_from(probes).unwrap_or(i32::MAX);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, probes)
}

/// Whether a segment that is not full is sent at once (`TCP_NODELAY`).
///
/// # Errors
/// `EOPNOTSUPP` for a socket that is not TCP.
pub fn nodelay(fd: &impl AsFd) -> io::Result<bool> {
    Ok(get_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)? != 0)
}

/// Sends a segment that is not full at once, or keeps it while another such is unacknowledged
/// (`TCP_NODELAY`).
///
/// # Errors
/// `ENOPROTOOPT` or `EOPNOTSUPP` for a socket that is not TCP.
pub fn set_nodelay(fd: &impl AsFd, on: bool) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on))
}

/// Lets `connect` return at once and the first write go out with the SYN, where a cookie of the peer
/// is known (`TCP_FASTOPEN_CONNECT`, `include/uapi/linux/tcp.h`, Linux 4.11; RFC 7413). A
/// `shutdown` before the handshake is over throws those bytes away and returns 0.
///
/// # Errors
/// `EINVAL` once it is connecting, `EOPNOTSUPP` where `net.ipv4.tcp_fastopen` does not have its bit
/// of value 1.
pub fn set_fast_open_connect(fd: &impl AsFd, on: bool) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, i32::from(on))
}

/// Lets a listener accept data with the SYN from this many connections at a time whose handshake is
/// not over (`TCP_FASTOPEN`, RFC 7413); 0 accepts none. The kernel silently caps the number at
/// `net.core.somaxconn`, and accepts none if `net.ipv4.tcp_fastopen` does not have its bit of value
/// 2.
///
/// # Errors
/// `EINVAL` for a connected socket.
pub fn set_fast_open_queue(fd: &impl AsFd, connections: u32) -> io::Result<()> {
    let connections = i32::try_from(connections).unwrap_or(i32::MAX);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, connections)
}

/// Begins to connect a non-blocking socket and has the first of `bytes` go with the SYN, where a
/// cookie of the peer is known (`sendto(2)`, `MSG_FASTOPEN`, RFC 7413). It is writable once that has
/// succeeded or failed. Returns how many bytes the kernel took: as many as a segment has room for,
/// or none without a cookie, when it asks for one instead. What it took it sends again by itself
/// where the peer did not take it from the SYN.
///
/// `None`, with nothing begun, where `net.ipv4.tcp_fastopen` does not have its bit of value 1, or
/// MPTCP has no such thing (before Linux 6.2) (`EOPNOTSUPP`).
///
/// # Errors
/// What is known at once: `ENETUNREACH`, `EADDRNOTAVAIL` and so on.
pub fn begin_connect_with(
    fd: &impl AsFd,
    address: SocketAddr,
    bytes: &[u8],
) -> io::Result<Option<usize>> {
    let flags = libc::MSG_FASTOPEN | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    match SockRef::from(fd).send_to_with_flags(bytes, &address.into(), flags) {
        Ok(taken) => Ok(Some(taken)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS) => Ok(Some(0)),
            Some(libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Keeps the headers of the SYN that each connection began with, from now on (`TCP_SAVE_SYN` on a
/// listener), its link's header too (value 2, Linux 5.10): about 100 bytes of the kernel's memory for
/// each connection, until it is closed or [`saved_syn`] has read them.
///
/// # Errors
/// `EINVAL` before Linux 5.10, `EOPNOTSUPP` or `ENOPROTOOPT` for a socket that is not TCP.
pub fn save_syn(fd: &impl AsFd) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 2)
}

/// Room for what [`saved_syn`] reads: a link's header, one of IPv6 with extensions, one of TCP.
pub const SYN_ROOM: usize = 256;

/// The headers of the SYN that an accepted connection began with, the link's first (`TCP_SAVED_SYN`),
/// once: the kernel forgets them then. Returns how many bytes; 0 where none were kept.
///
/// # Errors
/// `EINVAL` where `room` is too small: the headers are still there then. `EOPNOTSUPP` or
/// `ENOPROTOOPT` for a socket that is not TCP.
pub fn saved_syn(fd: &impl AsFd, room: &mut [u8; SYN_ROOM]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(room.len()).unwrap_or(libc::socklen_t::MAX);
    let fd = fd.as_fd().as_raw_fd();
    let pointer = room.as_mut_ptr().cast();
    // SAFETY: `room` has the length announced, is ours alone, and outlives the call.
    check(unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, pointer, &raw mut length)
    })?;
    Ok((length as usize).min(room.len()))
}

/// [`mptcp_flags`]: the peer, or something on the way, had no MPTCP.
pub const MPTCP_FELL_BACK: u32 = 1;
/// [`mptcp_flags`]: the peer has sent its key, and so has MPTCP.
pub const MPTCP_KEY_RECEIVED: u32 = 2;

/// `mptcpi_flags` of `struct mptcp_info` (`MPTCP_INFO`, `include/uapi/linux/mptcp.h`, Linux 5.16): a
/// mask of [`MPTCP_FELL_BACK`], [`MPTCP_KEY_RECEIVED`] and others.
///
/// # Errors
/// `EOPNOTSUPP` for an MPTCP socket that fell back to TCP, for one of TCP, and on an older kernel.
pub fn mptcp_flags(fd: &impl AsFd) -> io::Result<u32> {
    // Six bytes of counters, two of padding, then the flags.
    let info: [u8; 12] = get_bytes(fd, SOL_MPTCP, MPTCP_INFO)?;
    let [.., a, b, c, d] = info;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// Not in the `libc` crate: `include/linux/socket.h`.
const SOL_MPTCP: libc::c_int = 284;
/// Not in the `libc` crate: `include/uapi/linux/mptcp.h`.
const MPTCP_INFO: libc::c_int = 1;

fn seconds(fd: &impl AsFd, option: i32) -> io::Result<Duration> {
    let seconds = get_int(fd, libc::IPPROTO_TCP, option)?;
    Ok(Duration::from_secs(seconds.unsigned_abs().into()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::socket::open_tcp;

    #[test]
    fn a_syn_is_kept_until_it_is_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = listener.local_addr().unwrap();
        let mut room = [0; SYN_ROOM];
        let _early = TcpStream::connect(peer).unwrap();
        save_syn(&listener).unwrap();
        let late = open_tcp(peer).unwrap();
        crate::socket::set_hop_limit(&late, false, 7).unwrap();
        crate::socket::connect(&late, peer, SECOND).unwrap();
        let (early, _) = listener.accept().unwrap();
        assert_eq!(saved_syn(&early, &mut room).unwrap(), 0, "none was kept");
        let (late, _) = listener.accept().unwrap();
        let length = saved_syn(&late, &mut room).unwrap();
        // A link's header of 14 bytes, then IPv4 with the time to live in its ninth byte.
        assert_eq!((length, room[14], room[14 + 8]), (74, 0x45, 7), "{room:?}");
        assert_eq!(saved_syn(&late, &mut room).unwrap(), 0, "it is told once");
        assert!(refused(save_syn(&UdpSocket::bind("127.0.0.1:0").unwrap())).is_some());
    }

    const SECOND: Duration = Duration::from_secs(1);
    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn tcp() -> OwnedFd {
        open_tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    fn refused<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn the_limit_of_unsent_bytes_reads_back() {
        let tcp = tcp();
        assert_eq!(notsent_lowat(&tcp).unwrap(), 0, "the system's");
        for set in [1, 16_384, u32::MAX, 0] {
            set_notsent_lowat(&tcp, set).unwrap();
            assert_eq!(notsent_lowat(&tcp).unwrap(), set);
        }
    }

    #[test]
    fn a_user_timeout_is_in_milliseconds_rounded_up() {
        let tcp = tcp();
        let ms = Duration::from_millis;
        let longest = ms(i32::MAX.unsigned_abs().into());
        for (set, granted) in [
            (ms(7_000), ms(7_000)),
            (NANOSECOND, ms(1)),
            (ms(1) + NANOSECOND, ms(2)),
            (longest, longest),
            (Duration::ZERO, Duration::ZERO),
        ] {
            set_user_timeout(&tcp, set).unwrap();
            assert_eq!(user_timeout(&tcp).unwrap(), granted);
        }
        assert_eq!(refused(set_user_timeout(&tcp, longest + NANOSECOND)), Some(libc::EINVAL));
        assert_eq!(refused(set_user_timeout(&tcp, Duration::MAX)), Some(libc::EINVAL));
    }

    #[test]
    fn keep_alive_is_in_whole_seconds_rounded_up() {
        let tcp = tcp();
        let longest = 32_767 * SECOND;
        for (set, granted) in [(77 * SECOND, 77 * SECOND), (NANOSECOND, SECOND), (longest, longest)]
        {
            set_keepalive_idle(&tcp, set).unwrap();
            set_keepalive_interval(&tcp, set).unwrap();
            assert_eq!(keepalive_idle(&tcp).unwrap(), granted);
            assert_eq!(keepalive_interval(&tcp).unwrap(), granted);
        }
        for wrong in [Duration::ZERO, longest + NANOSECOND, Duration::MAX] {
            assert_eq!(refused(set_keepalive_idle(&tcp, wrong)), Some(libc::EINVAL));
            assert_eq!(refused(set_keepalive_interval(&tcp, wrong)), Some(libc::EINVAL));
        }
        for set in [1, 127] {
            set_keepalive_probes(&tcp, set).unwrap();
            assert_eq!(keepalive_probes(&tcp).unwrap(), set);
        }
        for wrong in [0, 128, u32::MAX] {
            assert_eq!(refused(set_keepalive_probes(&tcp, wrong)), Some(libc::EINVAL));
        }
    }

    #[test]
    fn no_delay_reads_back() {
        let tcp = tcp();
        for on in [true, false] {
            set_nodelay(&tcp, on).unwrap();
            assert_eq!(nodelay(&tcp).unwrap(), on);
        }
    }

    #[test]
    fn fast_open_is_for_sockets_that_wait_for_their_connection() {
        let sysctl = |name: &str| -> u32 {
            let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap();
            text.trim().parse().unwrap()
        };
        let (closed, longest) = (tcp(), sysctl("core/somaxconn"));
        for (set, granted) in [(5, 5), (longest + 1, longest), (0, 0)] {
            set_fast_open_queue(&closed, set).unwrap();
            let queue = get_int(&closed, libc::IPPROTO_TCP, libc::TCP_FASTOPEN).unwrap();
            assert_eq!(queue.unsigned_abs(), granted);
        }
        if sysctl("ipv4/tcp_fastopen") & 1 == 0 {
            lastbyte_testing::not_tested!(
                "net.ipv4.tcp_fastopen forbids fast open to those who connect"
            );
            return;
        }
        set_fast_open_connect(&closed, true).unwrap();
        let on = get_int(&closed, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT).unwrap();
        assert_eq!(on, 1);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(refused(set_fast_open_connect(&near, true)), Some(libc::EINVAL));
        assert_eq!(refused(set_fast_open_queue(&near, 1)), Some(libc::EINVAL));
    }

    #[test]
    fn plain_tcp_has_no_flags_of_mptcp() {
        assert_eq!(refused(mptcp_flags(&tcp())), Some(libc::EOPNOTSUPP));
        let to = (Ipv4Addr::LOCALHOST, 0).into();
        let Some(mptcp) = crate::socket::open_mptcp_nonblocking(to).unwrap() else {
            lastbyte_testing::not_tested!("this kernel has no MPTCP, or it is off");
            return;
        };
        match mptcp_flags(&mptcp) {
            Ok(flags) => assert_eq!(flags & (MPTCP_FELL_BACK | MPTCP_KEY_RECEIVED), 0),
            Err(error) => lastbyte_testing::not_tested!("MPTCP_INFO needs Linux 5.16: {error}"),
        }
    }

    #[test]
    fn the_congestion_control_reads_back() {
        let tcp = tcp();
        set_congestion(&tcp, "reno").unwrap();
        assert_eq!(congestion(&tcp).unwrap(), "reno");
        assert_eq!(refused(set_congestion(&tcp, "no-such-thing")), Some(libc::ENOENT));
    }

    #[test]
    fn a_file_is_no_socket() {
        let file = File::open("/dev/null").unwrap();
        let refusals = [
            refused(congestion(&file)),
            refused(notsent_lowat(&file)),
            refused(set_notsent_lowat(&file, 1)),
            refused(user_timeout(&file)),
            refused(set_user_timeout(&file, SECOND)),
            refused(keepalive_idle(&file)),
            refused(set_keepalive_idle(&file, SECOND)),
            refused(keepalive_interval(&file)),
            refused(set_keepalive_interval(&file, SECOND)),
            refused(keepalive_probes(&file)),
            refused(set_keepalive_probes(&file, 1)),
            refused(nodelay(&file)),
            refused(set_nodelay(&file, true)),
            refused(set_fast_open_connect(&file, true)),
            refused(set_fast_open_queue(&file, 1)),
            refused(begin_connect_with(&file, (Ipv4Addr::LOCALHOST, 1).into(), b"data")),
            refused(mptcp_flags(&file)),
        ];
        assert_eq!(refusals, [Some(libc::ENOTSOCK); 17]);
    }

    #[test]
    fn a_datagram_socket_is_not_tcp() {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(refused(nodelay(&udp)), Some(libc::EOPNOTSUPP));
        assert_eq!(refused(set_nodelay(&udp, true)), Some(libc::ENOPROTOOPT));
    }
}
