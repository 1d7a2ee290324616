//! GSO packets: TCP segments that the kernel hands over as one packet (generic segmentation offload),
//! and how they are split.
//!
//! A GSO packet is an IP packet of up to 64 KiB behind a vnet header that gives the length of its
//! segments (`include/uapi/linux/virtio_net.h`). Each part of it is again a GSO packet, or a plain
//! packet. Checksums stay unfinished, as they came: they hold the sum of the pseudo header alone (RFC
//! 9293 section 3.1), and the receiving kernel does not check them.

use std::ops::Range;

use lastbyte_sys::tun::VNET_HEADER;

use crate::packet::{fold, sum};

/// `VIRTIO_NET_HDR_GSO_TCPV4` and `TCPV6`, beside the bit for ECN.
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_ECN: u8 = 0x80;
/// The shortest headers, in bytes.
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
/// Where a vnet header has `hdr_len`.
const HEADERS_LENGTH: Range<usize> = 2..4;
const IPV6_HEADER: usize = 40;
/// TCP flags that belong to the last segment alone: FIN and PSH.
const LAST_FLAGS: u8 = 0x01 | 0x08;
/// The TCP flag that belongs to the first segment alone: CWR (RFC 3168 section 6.1.2).
const FIRST_FLAGS: u8 = 0x80;
/// Offsets in a TCP header.
const TCP_SEQ: usize = 4;
const TCP_DATA_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;

/// The layout of a GSO packet. Offsets count from the vnet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GsoPacket {
    v6: bool,
    /// Where the TCP header begins.
    tcp: usize,
    /// Where the data begins.
    data: usize,
    end: usize,
    segment: usize,
}

impl GsoPacket {
    /// Reads a packet with its vnet header; `None` for one that is not to be segmented.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let kind = packet.get(1)? & !GSO_ECN;
        let segment = usize::from(u16::from_ne_bytes([*packet.get(4)?, *packet.get(5)?]));
        let ip = packet.get(VNET_HEADER..)?;
        let tcp = match kind {
            GSO_TCP_V4 => VNET_HEADER + usize::from(*ip.first()? & 0x0F) * 4,
            GSO_TCP_V6 => VNET_HEADER + IPV6_HEADER,
            _ => return None,
        };
        let data = tcp + usize::from(*packet.get(tcp + TCP_DATA_OFFSET)? >> 4) * 4;
        let gso = Self { v6: kind == GSO_TCP_V6, tcp, data, end: packet.len(), segment };
        // Headers shorter than the shortest are not TCP.
        let has_headers = tcp >= VNET_HEADER + IPV4_HEADER && data >= tcp + TCP_HEADER;
        (has_headers && segment > 0 && data + segment < packet.len()).then_some(gso)
    }

    /// How many segments it has, at least 2.
    pub(crate) fn segments(self) -> usize {
        (self.end - self.data).div_ceil(self.segment)
    }

    /// The most bytes of one segment as a packet of its own, with the vnet header.
    pub(crate) fn longest_segment(self) -> usize {
        self.data + self.segment
    }

    /// The IP bytes of some of its segments, headers of each included.
    pub(crate) fn ip_bytes(self, segments: Range<usize>) -> u64 {
        let headers = (self.data - VNET_HEADER) * segments.len();
        let start = self.data + segments.start * self.segment;
        let end = (self.data + segments.end * self.segment).min(self.end);
        (headers + end.saturating_sub(start)) as u64
    }

    /// Writes some of the segments of `whole` as a packet of their own and returns its length. `part`
    /// must have room for the headers and these segments.
    pub(crate) fn split(self, whole: &[u8], segments: Range<usize>, part: &mut [u8]) -> usize {
        let start = self.data + segments.start * self.segment;
        let end = (self.data + segments.end * self.segment).min(self.end);
        let length = self.data + (end - start);
        part[..self.data].copy_from_slice(&whole[..self.data]);
        part[self.data..length].copy_from_slice(&whole[start..end]);
        // The length of the headers as the kernel had them may be more than this part has.
        let headers = u16::try_from(self.data - VNET_HEADER).unwrap_or_default();
        part[HEADERS_LENGTH].copy_from_slice(&headers.to_ne_bytes());
        if end - start <= self.segment {
            // A single segment is a plain packet: no GSO type, no segment size.
            part[1] = 0;
            part[4..6].fill(0);
        }
        self.renumber(part, segments.start, start, end);
        self.relength(&mut part[..length]);
        length
    }

    /// Sets the sequence number and identification of the part, and clears flags that belong to others.
    fn renumber(self, part: &mut [u8], first: usize, start: usize, end: usize) {
        let skipped = u32::try_from(start - self.data).unwrap_or_default();
        let tcp = &mut part[self.tcp..];
        let sequence = u32_at(tcp, TCP_SEQ).wrapping_add(skipped);
        tcp[TCP_SEQ..TCP_SEQ + 4].copy_from_slice(&sequence.to_be_bytes());
        if start > self.data {
            tcp[TCP_FLAGS] &= !FIRST_FLAGS;
        }
        if end < self.end {
            tcp[TCP_FLAGS] &= !LAST_FLAGS;
        }
        if !self.v6 {
            let ip = &mut part[VNET_HEADER..];
            // At most 64 Ki segments of at least a byte.
            let id = u16_at(ip, 4).wrapping_add(u16::try_from(first).unwrap_or_default());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
        }
    }

    /// Sets the lengths, and the checksums that depend on them.
    fn relength(self, part: &mut [u8]) {
        let tcp_length = u16::try_from(part.len() - self.tcp).unwrap_or(u16::MAX);
        let ip = &mut part[VNET_HEADER..];
        let tcp = self.tcp - VNET_HEADER;
        let addresses = if self.v6 {
            ip[4..6].copy_from_slice(&tcp_length.to_be_bytes());
            8..40
        } else {
            let length = u16::try_from(ip.len()).unwrap_or(u16::MAX);
            ip[2..4].copy_from_slice(&length.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !fold(sum(&ip[..tcp]));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            12..20
        };
        let protocol_tcp = 6;
        let pseudo = fold(sum(&ip[addresses]) + u32::from(tcp_length) + protocol_tcp);
        ip[tcp + TCP_CHECKSUM..tcp + TCP_CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SEGMENT: usize = 1448;

    /// A GSO packet of `data` bytes with FIN, PSH, CWR and ACK set, each byte telling its place.
    pub(crate) fn gso_packet(v6: bool, data: usize) -> Vec<u8> {
        let mut packet = vec![0; VNET_HEADER];
        packet[0] = 1;
        packet[1] = if v6 { GSO_TCP_V6 } else { GSO_TCP_V4 };
        packet[4..6].copy_from_slice(&1448_u16.to_ne_bytes());
        if v6 {
            packet.extend([0x60, 0, 0, 0, 0, 0, 6, 64]);
            packet.extend([0x20; 32]);
        } else {
            packet.extend([0x45, 0, 0, 0, 0xFF, 0xFE, 0x40, 0, 64, 6, 0, 0]);
            packet.extend([198, 18, 0, 1, 198, 18, 0, 2]);
        }
        packet.extend([0x13, 0x88, 0x13, 0x89, 0xFF, 0xFF, 0xF0, 0, 0, 0, 0, 1]);
        packet.extend([0x80, 0x99, 1, 0, 0, 0, 0, 0]);
        packet.extend([1; 12]);
        packet.extend((0..data).map(|place| place.to_le_bytes()[0] ^ place.to_le_bytes()[1]));
        packet
    }

    fn split(v6: bool, data: usize, segments: Range<usize>) -> Vec<u8> {
        let whole = gso_packet(v6, data);
        let gso = GsoPacket::of(&whole).unwrap();
        let mut part = vec![0xEE; whole.len()];
        let length = gso.split(&whole, segments, &mut part);
        part.truncate(length);
        part
    }

    #[test]
    fn plain_packets_are_no_trains() {
        assert_eq!(GsoPacket::of(&[]), None);
        assert_eq!(GsoPacket::of(&[0; 60]), None);
        assert_eq!(GsoPacket::of(&gso_packet(false, SEGMENT)), None, "one segment");
        for cut in 0..gso_packet(false, SEGMENT).len() {
            assert_eq!(
                GsoPacket::of(&gso_packet(false, 3000)[..cut]),
                None,
                "{cut} bytes of a GSO packet"
            );
        }
    }

    proptest::proptest! {
        /// A program may send what it likes.
        #[test]
        fn no_packet_is_too_strange(
            mut packet in proptest::collection::vec(0_u8.., 0..300),
            kind in 0_u8..6,
            segment in 0_u8..100,
            version in 0_u8..,
        ) {
            let headers = [(1, kind), (4, segment), (5, 0), (VNET_HEADER, version)];
            for (at, value) in headers {
                packet.get_mut(at).into_iter().for_each(|byte| *byte = value);
            }
            if let Some(gso) = GsoPacket::of(&packet) {
                let mut part = vec![0; packet.len()];
                for segment in 0..gso.segments() {
                    let length = gso.split(&packet, segment..segment + 1, &mut part);
                    assert!(length <= gso.longest_segment() && length <= packet.len());
                }
            }
        }
    }

    #[test]
    fn segments_and_bytes_are_counted() {
        for (data, segments) in [(1449, 2), (2896, 2), (2897, 3), (64_000, 45)] {
            let whole = gso_packet(true, data);
            let gso = GsoPacket::of(&whole).unwrap();
            assert_eq!(gso.segments(), segments);
            assert_eq!(gso.ip_bytes(0..segments), data as u64 + 72 * segments as u64);
            let each = (0..segments).map(|segment| gso.ip_bytes(segment..segment + 1));
            assert_eq!(each.sum::<u64>(), gso.ip_bytes(0..segments));
        }
    }

    #[test]
    fn parts_carry_their_own_bytes_and_numbers() {
        for v6 in [false, true] {
            let headers = VNET_HEADER + if v6 { 72 } else { 52 };
            let whole = gso_packet(v6, 10_000);
            let middle = split(v6, 10_000, 2..5);
            assert_eq!(middle[headers..], whole[headers + 2 * SEGMENT..headers + 5 * SEGMENT]);
            let tcp = headers - 32;
            assert_eq!(u32_at(&middle, tcp + TCP_SEQ), 0xFFFF_F000_u32.wrapping_add(2896));
            assert_eq!(middle[tcp + TCP_FLAGS], 0x10, "neither first nor last");
            assert_eq!(split(v6, 10_000, 0..2)[tcp + TCP_FLAGS], 0x90, "the first keeps CWR");
            let last = split(v6, 10_000, 6..7);
            assert_eq!(last[tcp + TCP_FLAGS], 0x19, "the last keeps FIN and PSH");
            assert_eq!(last.len() - headers, 10_000 - 6 * SEGMENT);
            assert_eq!((last[1], &last[4..6]), (0, &[0, 0][..]), "one segment is a plain packet");
            assert_eq!(GsoPacket::of(&middle).unwrap().segments(), 3);
        }
    }

    /// A router's kernel has some of the data in the part of its buffer that the header tells of; the
    /// kernel that a part is written to refuses one that is shorter.
    #[test]
    fn a_part_is_no_shorter_than_its_vnet_header_says() {
        let mut whole = gso_packet(false, 10_000);
        whole[2..4].copy_from_slice(&9_000_u16.to_ne_bytes());
        let gso = GsoPacket::of(&whole).unwrap();
        for segments in [0..1, 2..5, 6..7] {
            let mut part = vec![0; whole.len()];
            gso.split(&whole, segments, &mut part);
            assert_eq!(part[2..4], 52_u16.to_ne_bytes(), "the headers of IP and TCP");
        }
    }

    #[test]
    fn lengths_and_sums_are_right() {
        let part = split(false, 10_000, 2..5);
        let ip = &part[VNET_HEADER..];
        assert_eq!(usize::from(u16_at(ip, 2)), ip.len());
        assert_eq!(u16_at(ip, 4), 0, "identification 0xFFFE and 2 more");
        assert_eq!(fold(sum(&ip[..20])), 0xFFFF, "RFC 1071: a right header sums to ones");
        let tcp_length = u32::try_from(ip.len() - 20).unwrap();
        assert_eq!(u16_at(ip, 20 + TCP_CHECKSUM), fold(sum(&ip[12..20]) + tcp_length + 6));
        let part = split(true, 10_000, 2..5);
        let ip = &part[VNET_HEADER..];
        assert_eq!(usize::from(u16_at(ip, 4)), ip.len() - 40);
    }
}
