//! ICMP echo sockets of both families: `icmp(7)`, `raw(7)`, `ipv6(7)`.
//!
//! A datagram socket takes an echo request without its checksum and identifier, which the kernel
//! fills in, and gives the replies to those requests alone. A raw one takes what it is given (for
//! IPv6 the kernel makes the checksum) and gives every ICMP packet of its peer, behind an IP header
//! where the family is IPv4.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::check_size;
use crate::socket::set_int;

/// Room for the control messages asked for here, and as much again.
const CONTROL_ROOM: usize = 128;

/// How echo requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SOCK_DGRAM`: needs the process's group in `net.ipv4.ping_group_range`, for both families.
    Datagram,
    /// `SOCK_RAW`: needs `CAP_NET_RAW`.
    Raw,
}

/// What was received with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The packet's bytes in the buffer.
    pub bytes: usize,
    /// When the kernel took it from the device, since 1970 by the system's clock
    /// ([`stamp_arrivals`]).
    pub stamp: Option<Duration>,
    /// Packets that found no room in the socket since it was opened ([`count_overflows`]); told only
    /// with the packet that follows them.
    pub overflowed: Option<u32>,
}

/// Opens an ICMP socket of the family of `address` (`socket(2)`, `icmp(7)`, `raw(7)`).
///
/// # Errors
/// `EACCES` for a datagram socket whose group is not in the range; `EPERM` for a raw one without
/// `CAP_NET_RAW`; `EPROTONOSUPPORT` from a kernel without datagram ICMP sockets.
pub fn open(address: SocketAddr, kind: Kind) -> io::Result<OwnedFd> {
    let kind = match kind {
        Kind::Datagram => Type::DGRAM,
        Kind::Raw => Type::from(libc::SOCK_RAW),
    };
    let protocol = if address.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    Ok(Socket::new(Domain::for_address(address), kind, Some(protocol))?.into())
}

/// Names the one host that is sent to and received from (`connect(2)`); its port means nothing.
///
/// # Errors
/// `ENETUNREACH` without a route, `EACCES` for a broadcast address.
pub fn connect(fd: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    SockRef::from(fd).connect(&address.into())
}

/// Lets the kernel stamp packets as they arrive (`socket(7)`, `SO_TIMESTAMPNS`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn stamp_arrivals(fd: &impl AsFd) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Lets the kernel tell how many packets found no room in the socket (`socket(7)`, `SO_RXQ_OVFL`).
///
/// # Errors
/// `ENOTSOCK` for a descriptor that is no socket.
pub fn count_overflows(fd: &impl AsFd) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Sends one ICMP packet to the connected host (`send(2)`).
///
/// # Errors
/// `EMSGSIZE` for one that is known not to fit the path, `ENOBUFS` where the device had no room,
/// `EINVAL` from a datagram socket for anything but an echo request; and what an earlier packet met,
/// such as `EHOSTUNREACH`.
pub fn send(fd: &impl AsFd, packet: &[u8]) -> io::Result<()> {
    SockRef::from(fd).send(packet).map(drop)
}

/// Control messages, aligned as the kernel lays them.
#[repr(align(8))]
struct Control([u8; CONTROL_ROOM]);

/// Takes one packet that has arrived, without waiting (`recvmsg(2)`, `MSG_DONTWAIT`). What does not
/// fit `packet` is cut off.
///
/// # Errors
/// `EAGAIN` when none is there; what an earlier packet of ours met, such as `ECONNREFUSED`.
pub fn receive(fd: &impl AsFd, packet: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; CONTROL_ROOM]);
    let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
    // SAFETY: all zeros is a msghdr: null pointers of length 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // The field's type differs between C libraries.
    message.msg_controllen = CONTROL_ROOM as _;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: packet, control and the message that names them are ours alone and outlive the call;
    // their lengths are those announced.
    let bytes = check_size(unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) })?;
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between C libraries")]
    let length = (message.msg_controllen as usize).min(CONTROL_ROOM);
    Ok(Received { bytes, ..told_with(&control.0[..length]) })
}

/// What control messages tell: each is its length, level and kind, then its value, and begins at a
/// multiple of the machine's word (`cmsg(3)`).
fn told_with(mut control: &[u8]) -> Received {
    const WORD: usize = size_of::<usize>();
    const HEADER: usize = WORD + 8;
    let mut told = Received::default();
    while let Some(length) = word_at(control, 0) {
        let Some(value) = control.get(HEADER..length.min(control.len())) else { break };
        let kind = (int_at(control, WORD), int_at(control, WORD + 4));
        if kind == (Some(libc::SOL_SOCKET), Some(libc::SO_TIMESTAMPNS)) {
            let time = word_at(value, 0).zip(word_at(value, WORD));
            told.stamp = time.and_then(|(seconds, nanos)| {
                let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
                Some(Duration::new(u64::try_from(seconds).ok()?, nanos))
            });
        } else if kind == (Some(libc::SOL_SOCKET), Some(libc::SO_RXQ_OVFL)) {
            told.overflowed = int_at(value, 0).map(i32::cast_unsigned);
        }
        let next = length.max(HEADER).checked_next_multiple_of(WORD);
        control = next.and_then(|next| control.get(next..)).unwrap_or_default();
    }
    told
}

fn word_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk::<{ size_of::<usize>() }>()?;
    Some(usize::from_ne_bytes(*word))
}

fn int_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A control message as the kernel lays it.
    fn message(kind: i32, value: &[u8]) -> Vec<u8> {
        let length = size_of::<usize>() + 8 + value.len();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(length.next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    #[test]
    fn stamps_and_counts_are_found_among_other_messages() {
        let time = [1_700_000_000_usize.to_ne_bytes(), 123_456_789_usize.to_ne_bytes()].concat();
        let all = [
            message(99, &[1, 2, 3]),
            message(libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes()),
            message(libc::SO_TIMESTAMPNS, &time),
        ]
        .concat();
        let told = told_with(&all);
        assert_eq!(told.stamp, Some(Duration::new(1_700_000_000, 123_456_789)));
        assert_eq!(told.overflowed, Some(7));
        // Cut off anywhere, and with lengths that lie, it ends and says less.
        for length in 0..all.len() {
            told_with(&all[..length]);
        }
        for lie in [0, 1, 15, 17, usize::MAX - 1, usize::MAX / 2] {
            let mut bad = all.clone();
            bad[..size_of::<usize>()].copy_from_slice(&lie.to_ne_bytes());
            told_with(&bad);
        }
        assert_eq!(told_with(&[]), Received::default());
    }
}
