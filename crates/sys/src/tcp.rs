//! What the kernel knows of one TCP connection: `tcp(7)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::check;

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
    let mut name = [0_u8; 16];
    let mut length = 16;
    let fd = fd.as_fd().as_raw_fd();
    let pointer = name.as_mut_ptr().cast();
    // SAFETY: `name` has the 16 bytes announced (TCP_CA_NAME_MAX) and outlives the call.
    check(unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, pointer, &raw mut length)
    })?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
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
