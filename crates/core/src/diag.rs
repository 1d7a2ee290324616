//! What the kernel reports about another program's TCP socket: `struct inet_diag_msg` and its
//! attributes (`sock_diag(7)`, `include/uapi/linux/inet_diag.h`).
//!
//! As in [`crate::sample`], what this kernel did not send is `None`, never 0.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::sample::{State, TcpInfo};

/// A TCP socket, as a dump or a message about its destruction shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Socket {
    /// `idiag_state`. For a destroyed socket always [`State::Close`].
    pub state: State,
    /// Its local address. An IPv4-mapped address (`::ffff:192.0.2.1`) is shown as IPv4. An aborted
    /// and destroyed socket (`SO_LINGER` of 0, or a failed `connect`) keeps only the port, and its
    /// counters are 0.
    pub local: SocketAddr,
    /// The peer's address; unspecified, with port 0, without a peer. An aborted socket keeps only
    /// the IP address.
    pub peer: SocketAddr,
    /// Whether it is an IPv6 socket that uses IPv4 addresses.
    pub mapped: bool,
    /// `idiag_cookie`: no other socket of this kernel has it, except the small one that replaces
    /// this socket in [`State::TimeWait`].
    pub cookie: u64,
    /// `idiag_inode`: 0 when no program has it open.
    pub inode: u32,
    /// `idiag_rqueue`: bytes received that the program has not read, with the peer's FIN as one;
    /// for a listening socket, the length of its accept queue.
    pub receive_queue: u32,
    /// `idiag_wqueue`: bytes not yet acked, with our FIN as one; for a listening socket, the limit
    /// of its accept queue.
    pub send_queue: u32,
    /// `INET_DIAG_SKMEMINFO`.
    pub memory: Option<Memory>,
    /// `INET_DIAG_CONG`: the congestion control's name.
    pub congestion: Option<String>,
    /// `INET_DIAG_INFO`: `struct tcp_info`.
    pub info: Option<TcpInfo>,
    /// Its `tcpi_last_data_recv`: how long ago payload was last received, to a tick of the kernel's
    /// clock (1 to 10 ms). If none was ever received, the time since the connection was made, or
    /// since boot.
    pub since_data_received: Option<Duration>,
}

/// A socket's buffer limits and memory in use, in bytes (`enum` of `SK_MEMINFO_*`,
/// `include/uapi/linux/sock_diag.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// `SK_MEMINFO_RCVBUF`: the receive buffer.
    pub receive_buffer: u32,
    /// `SK_MEMINFO_SNDBUF`: the send buffer.
    pub send_buffer: u32,
    /// `SK_MEMINFO_WMEM_QUEUED`: what of it is in use.
    pub queued: u32,
    /// `SK_MEMINFO_DROPS`: segments dropped because the receive buffer was full.
    pub drops: u32,
}

impl Socket {
    /// Reads the body of a message; `None` when it is no whole `struct inet_diag_msg` of IPv4 or
    /// IPv6. Truncated and unknown attributes are left out.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (message, attributes) = body.split_at_checked(MESSAGE)?;
        let family = message[0];
        let mut socket = Self {
            state: State::from(message[1]),
            local: address(family, u16_be(message, 4), &message[8..24])?,
            peer: address(family, u16_be(message, 6), &message[24..40])?,
            mapped: false,
            cookie: cookie(message),
            inode: u32_at(message, 68),
            receive_queue: u32_at(message, 56),
            send_queue: u32_at(message, 60),
            memory: None,
            congestion: None,
            info: None,
            since_data_received: None,
        };
        socket.mapped = family == IPV6 && socket.local.is_ipv4();
        for (kind, value) in Attributes(attributes) {
            match kind {
                INFO => {
                    socket.info = TcpInfo::parse(value);
                    let ms = value.get(LAST_DATA_RECEIVED..LAST_DATA_RECEIVED + 4);
                    socket.since_data_received =
                        ms.map(|ms| Duration::from_millis(u32_at(ms, 0).into()));
                }
                CONGESTION => socket.congestion = name(value),
                MEMORY if value.len() >= MEMORY_LENGTH => {
                    socket.memory = Some(Memory {
                        receive_buffer: u32_at(value, 4),
                        send_buffer: u32_at(value, 12),
                        queued: u32_at(value, 20),
                        drops: u32_at(value, 32),
                    });
                }
                _ => {}
            }
        }
        Some(socket)
    }
}

/// The part of a [`Socket`] that shows whether anything happened, parsed without an allocation.
/// `Self::info` has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outline<'a> {
    /// As [`Socket::state`].
    pub state: State,
    /// As [`Socket::cookie`].
    pub cookie: u64,
    /// As [`Socket::inode`].
    pub inode: u32,
    /// As [`Socket::receive_queue`].
    pub receive_queue: u32,
    /// As [`Socket::send_queue`].
    pub send_queue: u32,
    /// `INET_DIAG_INFO`, as the kernel sent it.
    pub info: Option<&'a [u8]>,
}

impl<'a> Outline<'a> {
    /// Parses the body of a message; `None` where [`Socket::parse`] returns `None`.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (message, attributes) = body.split_at_checked(MESSAGE)?;
        matches!(message[0], IPV4 | IPV6).then(|| Self {
            state: State::from(message[1]),
            cookie: cookie(message),
            inode: u32_at(message, 68),
            receive_queue: u32_at(message, 56),
            send_queue: u32_at(message, 60),
            info: Attributes(attributes).find(|(kind, _)| *kind == INFO).map(|(_, value)| value),
        })
    }
}

/// `INET_DIAG_INFO` in the body of a message, as the kernel sent it; `None` without one.
#[must_use]
pub fn info_bytes(body: &[u8]) -> Option<&[u8]> {
    Attributes(body.get(MESSAGE..)?).find(|(kind, _)| *kind == INFO).map(|(_, value)| value)
}

/// The length of `struct inet_diag_msg`.
const MESSAGE: usize = 72;
/// `INET_DIAG_INFO`, `INET_DIAG_CONG`, `INET_DIAG_SKMEMINFO`.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;
/// Nine numbers, since Linux 4.6.
const MEMORY_LENGTH: usize = 36;
/// The offset of `tcpi_last_data_recv` in `struct tcp_info`.
const LAST_DATA_RECEIVED: usize = 52;

/// `AF_INET` and `AF_INET6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// Two 32-bit numbers, the lower one first.
fn cookie(message: &[u8]) -> u64 {
    u64::from(u32_at(message, 44)) | u64::from(u32_at(message, 48)) << 32
}

fn address(family: u8, port: u16, bytes: &[u8]) -> Option<SocketAddr> {
    let ip = match family {
        IPV4 => IpAddr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?)),
        IPV6 => IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// A name of at most 15 bytes (`TCP_CA_NAME_MAX`), ended by a NUL.
fn name(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let name = std::str::from_utf8(&value[..end]).ok()?;
    (1..16).contains(&name.len()).then(|| name.to_owned())
}

/// Netlink attributes (`struct nlattr`): kind and value. A truncated attribute ends the iteration.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const HEADER: usize = 4;
        /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` are not part of the kind.
        const KIND: u16 = 0x3FFF;
        let header: &[u8; HEADER] = self.0.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & KIND;
        let value = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(HEADER)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn u16_be(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(family: u8) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &[family, 1]);
        put(4, &[0xC0, 0x01, 0x14, 0x51]);
        put(8, &[198, 18, 0, 1]);
        put(24, &[198, 18, 0, 2]);
        put(44, &7_u32.to_ne_bytes());
        put(48, &1_u32.to_ne_bytes());
        put(56, &11_u32.to_ne_bytes());
        put(60, &12_u32.to_ne_bytes());
        put(68, &4711_u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_socket_is_read_with_its_attributes() {
        let mut info = vec![0; 280];
        info[0] = 1;
        info[52..56].copy_from_slice(&40_u32.to_ne_bytes());
        info[128..136].copy_from_slice(&5001_u64.to_ne_bytes());
        let memory: Vec<u8> = (1..=9_u32).flat_map(u32::to_ne_bytes).collect();
        let mut bytes = message(2);
        // The first kind does not exist.
        for (kind, value) in [(999, &b"abc"[..]), (2, &info), (4, b"cubic\0"), (7, &memory)] {
            bytes.extend(attribute(kind, value));
        }
        let socket = Socket::parse(&bytes).unwrap();
        assert_eq!(socket.local, "198.18.0.1:49153".parse().unwrap());
        assert_eq!(socket.peer, "198.18.0.2:5201".parse().unwrap());
        assert_eq!((socket.state, socket.cookie), (State::Established, 1 << 32 | 7));
        assert_eq!((socket.inode, socket.receive_queue, socket.send_queue), (4711, 11, 12));
        assert_eq!(socket.congestion.as_deref(), Some("cubic"));
        assert_eq!(socket.info.unwrap().bytes_received, Some(5001));
        assert_eq!(socket.since_data_received, Some(Duration::from_millis(40)));
        let memory = Memory { receive_buffer: 2, send_buffer: 4, queued: 6, drops: 9 };
        assert_eq!(socket.memory, Some(memory));
    }

    #[test]
    fn ipv4_under_ipv6_is_ipv4() {
        let mut bytes = message(10);
        bytes[8..24].copy_from_slice(&"::ffff:198.18.0.1".parse::<Ipv6Addr>().unwrap().octets());
        bytes[24..40].copy_from_slice(&"2001:2::2".parse::<Ipv6Addr>().unwrap().octets());
        let socket = Socket::parse(&bytes).unwrap();
        assert_eq!(socket.local, "198.18.0.1:49153".parse().unwrap());
        assert_eq!(socket.peer, "[2001:2::2]:5201".parse().unwrap());
        assert_eq!((socket.info, socket.congestion, socket.memory), (None, None, None));
    }

    #[test]
    fn truncated_attributes_are_left_out() {
        let mut bytes = message(2);
        bytes.extend(attribute(2, &[1; 104]));
        bytes.extend(attribute(4, b"reno\0"));
        for end in 0..bytes.len() {
            let socket = Socket::parse(&bytes[..end]);
            assert_eq!(socket.is_some(), end >= MESSAGE, "{end}");
            let known = socket.is_some_and(|socket| socket.info.is_some());
            assert_eq!(known, end >= MESSAGE + 108, "{end}");
        }
        assert_eq!(Socket::parse(&message(1)), None, "a family that has no ports");
        for (value, read) in [(&b"\0"[..], None), (b"sixteen-letters-", None), (b"\xFF", None)] {
            assert_eq!(name(value), read);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 2048 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_bytes_make_it_panic(
            family in prop_oneof![Just(2_u8), Just(10), any::<u8>()],
            mut head in prop::collection::vec(any::<u8>(), 0..=MESSAGE),
            attributes in prop::collection::vec(
                (0..10_u16, prop::collection::vec(any::<u8>(), 0..300)), 0..6),
            tail in prop::collection::vec(any::<u8>(), 0..40),
            cut in 0..2000_usize,
        ) {
            if let Some(first) = head.first_mut() {
                *first = family;
            }
            let parts = attributes.iter().flat_map(|(kind, value)| attribute(*kind, value));
            let mut bytes: Vec<u8> = head.into_iter().chain(parts).chain(tail).collect();
            bytes.truncate(cut);
            let outline = Outline::parse(&bytes);
            prop_assert_eq!(outline.is_some(), Socket::parse(&bytes).is_some());
            if let (Some(socket), Some(outline)) = (Socket::parse(&bytes), outline) {
                let of_socket = (socket.state, socket.cookie, socket.inode);
                prop_assert_eq!((outline.state, outline.cookie, outline.inode), of_socket);
                let queues = (socket.receive_queue, socket.send_queue);
                prop_assert_eq!((outline.receive_queue, outline.send_queue), queues);
                prop_assert_eq!(outline.info, info_bytes(&bytes));
                prop_assert!(socket.congestion.is_none_or(|name| name.len() < 16));
            }
        }
    }
}
