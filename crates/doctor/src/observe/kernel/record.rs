//! What a program in the kernel writes: `struct record` of `bpf/sockets.bpf.c`, field by field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::event::{Actor, Counts, Ending, Io, Precision, SocketId};

/// The length of a record, bytes.
pub(super) const LENGTH: usize = 192;

// As `enum kind` has it.
pub(super) const SOCKET: u32 = 1;
pub(super) const HOLDS: u32 = 2;
pub(super) const CHANGED: u32 = 3;
pub(super) const RESET_SENT: u32 = 4;
pub(super) const RESET_RECEIVED: u32 = 5;
pub(super) const AGAIN: u32 = 6;
pub(super) const FAILED: u32 = 7;
pub(super) const NOT_CONNECTED: u32 = 8;
pub(super) const GONE: u32 = 9;
pub(super) const IO: u32 = 10;
pub(super) const UNIX: u32 = 11;
pub(super) const FORK: u32 = 12;
pub(super) const EXEC: u32 = 13;
pub(super) const EXIT: u32 = 14;

const HAS_COUNTS: u8 = 1;
const IS_HELD: u8 = 2;
const IS_ACTIVE: u8 = 4;
const HAS_HELD: u8 = 8;
const IS_SUBFLOW: u8 = 16;
const AT_MOST: u8 = 32;
/// Marks an ending of an actor; the other bits are a status of wait(2).
const BY_ENDING: u32 = 1 << 31;
/// The offset of the part that differs between kinds.
const REST: usize = 72;
const AF_INET6: u8 = 10;

/// One record.
pub(super) struct Record<'a>(pub(super) &'a [u8]);

impl Record<'_> {
    pub(super) fn at_ns(&self) -> u64 {
        u64_at(self.0, 0)
    }

    pub(super) fn socket(&self) -> u64 {
        u64_at(self.0, 8)
    }

    pub(super) fn kind(&self) -> u32 {
        u32_at(self.0, 16)
    }

    pub(super) fn network(&self) -> Option<u64> {
        Some(u64::from(u32_at(self.0, 20))).filter(|network| *network != 0)
    }

    pub(super) fn pid(&self) -> u32 {
        u32_at(self.0, 24)
    }

    /// Whether it is about a process that matters from now on.
    pub(super) fn names_process(&self) -> bool {
        !matches!(self.kind(), FORK | EXEC | EXIT)
    }

    pub(super) fn actor(&self) -> Option<Actor> {
        let (pid, tid) = (self.pid(), u32_at(self.0, 28));
        (pid != 0).then(|| Actor { pid, tid, ending: self.ending() })
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        let ending = u32_at(self.0, 32);
        let status = i32::try_from(ending & !BY_ENDING).unwrap_or_default();
        (ending & BY_ENDING != 0).then_some(match (status & 0x7F, status >> 8 & 0xFF) {
            (0, code) => Ending::Exit(code),
            (signal, _) => Ending::Signal(signal),
        })
    }

    /// `errno`, a reason, segments, or the parent's number.
    pub(super) fn number(&self) -> i32 {
        i32::from_ne_bytes(bytes_at(self.0, 36))
    }

    pub(super) fn states(&self) -> (u8, u8) {
        (self.0[40], self.0[41])
    }

    /// The socket's role, or why a segment was retransmitted.
    pub(super) fn role(&self) -> u8 {
        self.0[42]
    }

    pub(super) fn is_active(&self) -> bool {
        self.0[44] & IS_ACTIVE != 0
    }

    pub(super) fn is_subflow(&self) -> bool {
        self.0[44] & IS_SUBFLOW != 0
    }

    /// The precision of the bytes of [`Record::unread`].
    pub(super) fn precision(&self) -> Precision {
        if self.0[44] & AT_MOST == 0 { Precision::Exact } else { Precision::AtMost }
    }

    pub(super) fn is_held(&self) -> Option<bool> {
        (self.0[44] & HAS_HELD != 0).then_some(self.0[44] & IS_HELD != 0)
    }

    /// The process's name, up to 15 bytes.
    pub(super) fn comm(&self) -> [u8; 16] {
        bytes_at(self.0, 52)
    }

    /// Its own address, the peer's, and whether it is an IPv6 socket of an IPv4 connection.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr, bool)> {
        let is_v6 = self.0[43] == AF_INET6;
        let local = address(bytes_at(self.0, REST), is_v6);
        let peer = address(bytes_at(self.0, REST + 16), is_v6);
        let is_mapped = |address: IpAddr| match address {
            IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
            IpAddr::V4(_) => false,
        };
        let mapped = is_mapped(local) || is_mapped(peer);
        let with_port = |address: IpAddr, place| {
            SocketAddr::new(address.to_canonical(), u16::from_ne_bytes(bytes_at(self.0, place)))
        };
        (self.0[43] != 0).then(|| (with_port(local, 46), with_port(peer, 48), mapped))
    }

    pub(super) fn counts(&self) -> Option<Counts> {
        const COUNTS: usize = REST + 32;
        let word = |index: usize| u32_at(self.0, COUNTS + 4 * index);
        (self.0[44] & HAS_COUNTS != 0).then(|| Counts {
            write_seq: word(0),
            snd_nxt: word(1),
            snd_una: word(2),
            rcv_nxt: word(3),
            copied_seq: word(4),
            bytes_acked: u64_at(self.0, COUNTS + 32),
            bytes_received: u64_at(self.0, COUNTS + 40),
            rtt_us: word(5),
            locks: self.0[45],
            send_buffer: word(6),
            receive_buffer: word(7),
        })
    }

    pub(super) fn io(&self) -> Io {
        let word = |index: usize| u64_at(self.0, REST + 8 * index);
        Io {
            socket: SocketId(self.socket()),
            pid: self.pid(),
            over_ns: word(0),
            writes: word(1),
            written_bytes: word(2),
            tiny_writes: word(3),
            reads: word(4),
            read_bytes: word(5),
            not_now: word(6),
            held_back: word(7),
            held_back_ns: word(8),
            turns: word(9),
        }
    }

    /// For a Unix socket: bytes, the process that sent them, and the path.
    pub(super) fn unread(&self) -> (u32, Option<u32>, Option<String>) {
        let sender = Some(u32_at(self.0, REST + 4)).filter(|pid| *pid != 0);
        let length = usize::try_from(u32_at(self.0, REST + 8)).unwrap_or_default();
        let path = self.0.get(REST + 12..REST + 12 + length).unwrap_or_default();
        (u32_at(self.0, REST), sender, unix_path(path))
    }
}

/// A path as in `unix(7)`: one that begins with 0 is an abstract name, shown with `@`.
fn unix_path(path: &[u8]) -> Option<String> {
    match path {
        [] => None,
        [0, name @ ..] => Some(format!("@{}", String::from_utf8_lossy(name))),
        path => {
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            Some(String::from_utf8_lossy(&path[..end]).into_owned())
        }
    }
}

fn address(bytes: [u8; 16], is_v6: bool) -> IpAddr {
    if is_v6 {
        return Ipv6Addr::from(bytes).into();
    }
    let [a, b, c, d, ..] = bytes;
    Ipv4Addr::new(a, b, c, d).into()
}

/// The bytes at an offset; zeros beyond the end.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    let found = bytes.get(place..place + N).and_then(|found| found.try_into().ok());
    found.unwrap_or([0; N])
}

pub(super) fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(bytes, place))
}

pub(super) fn u64_at(bytes: &[u8], place: usize) -> u64 {
    u64::from_ne_bytes(bytes_at(bytes, place))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endings_addresses_and_paths() {
        let mut bytes = [0; LENGTH];
        assert_eq!(Record(&bytes).addresses(), None);
        assert_eq!((Record(&bytes).actor(), Record(&bytes).ending()), (None, None));
        bytes[24] = 7;
        bytes[32..36].copy_from_slice(&(BY_ENDING | 3 << 8).to_ne_bytes());
        assert_eq!(Record(&bytes).ending(), Some(Ending::Exit(3)));
        bytes[32..36].copy_from_slice(&(BY_ENDING | 9).to_ne_bytes());
        let actor = Actor { pid: 7, tid: 0, ending: Some(Ending::Signal(9)) };
        assert_eq!(Record(&bytes).actor(), Some(actor));

        bytes[43] = AF_INET6;
        bytes[46..48].copy_from_slice(&80_u16.to_ne_bytes());
        let mapped = Ipv4Addr::new(127, 0, 0, 1).to_ipv6_mapped().octets();
        bytes[REST..REST + 16].copy_from_slice(&mapped);
        bytes[REST + 16..REST + 32].copy_from_slice(&mapped);
        let expected = ("127.0.0.1:80".parse().unwrap(), "127.0.0.1:0".parse().unwrap(), true);
        assert_eq!(Record(&bytes).addresses(), Some(expected));

        assert_eq!(unix_path(b"/run/x\0rest").as_deref(), Some("/run/x"));
        assert_eq!(unix_path(b"\0name").as_deref(), Some("@name"));
        assert_eq!(unix_path(b""), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_record_is_too_strange(bytes in prop::collection::vec(any::<u8>(), LENGTH)) {
            let record = Record(&bytes);
            let _ = (record.addresses(), record.counts(), record.io(), record.unread());
            let _ = (record.actor(), record.states(), record.is_held(), record.comm());
        }
    }
}
