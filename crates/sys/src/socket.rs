//! Socket options of `SOL_SOCKET` and calls that any stream socket knows: `socket(7)`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

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

/// Takes the pending error of a socket (`SO_ERROR`, `socket(7)`): it is told once, here or by the
/// next call that fails.
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

/// Where an internet socket is bound, and its peer (`getsockname(2)`, `getpeername(2)`); `None` for
/// what it does not have, or no longer.
pub fn addresses(fd: &impl AsFd) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let socket = SockRef::from(fd);
    let ip = |address: io::Result<socket2::SockAddr>| address.ok().and_then(|it| it.as_socket());
    (ip(socket.local_addr()), ip(socket.peer_addr()))
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

/// Whether urgent bytes stay in the stream (`SO_OOBINLINE`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn oob_inline(fd: &impl AsFd) -> io::Result<bool> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE).map(|on| on != 0)
}

/// The protocol of a socket (`SO_PROTOCOL`): [`PROTOCOL_TCP`], or 262 for MPTCP.
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn protocol(fd: &impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)
}

/// Who is at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process that connected, or that listened.
    pub pid: i32,
    /// Its user when it did.
    pub user: u32,
}

/// Who is at the other end of a connected Unix socket (`SO_PEERCRED`, `unix(7)`). The kernel vouches
/// for it.
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

/// Fixes the send buffer (`SO_SNDBUF`), and switches its autotuning off. The kernel doubles the
/// number and caps it at `net.core.wmem_max` without a word: read [`send_buffer`] back.
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

/// What `close` does with unsent data (`SO_LINGER`): `None` returns at once and goes on in the
/// background, zero aborts with a reset, more waits that long (whole seconds, rounded up).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn set_linger(fd: &impl AsFd, linger: Option<Duration>) -> io::Result<()> {
    let seconds = linger.map_or(0, |time| time.as_nanos().div_ceil(1_000_000_000));
    let linger = libc::linger {
        l_onoff: i32::from(linger.is_some()),
        l_linger: i32::try_from(seconds).unwrap_or(i32::MAX),
    };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
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

/// Lets the kernel cut what is written to a UDP socket into datagrams with so many bytes of data
/// (`udp(7)`, `UDP_SEGMENT`, Linux 4.18); 64 of them at most, and 64 KiB.
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

/// Lets [`receive_with_type_of_service`] tell that byte (`ip(7)`, `IP_RECVTOS`).
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

/// Reads an integer option (`getsockopt(2)`).
fn get_int(fd: &impl AsFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_value::<libc::c_int>();
    let fd = fd.as_fd().as_raw_fd();
    let pointer = (&raw mut value).cast();
    // SAFETY: `value` has the length announced, and both outlive the call.
    check(unsafe { libc::getsockopt(fd, level, option, pointer, &raw mut length) })?;
    Ok(value)
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
    use std::net::UdpSocket;

    use super::*;

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
}
