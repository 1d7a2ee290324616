//! The fields of an IP packet, behind its vnet header, that the wire reads and changes.

use lastbyte_sys::tun::VNET_HEADER;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is not finished yet.
const NEEDS_CHECKSUM: u8 = 1;
/// The two bits of ECN, and congestion experienced (RFC 3168 section 5).
const ECN: u8 = 0b11;
const NOT_CAPABLE: u8 = 0b00;
const IPV6_HEADER: usize = 40;

/// Whether the packet may be marked instead of dropped.
pub(crate) fn is_ecn_capable(packet: &[u8]) -> bool {
    ecn(packet).is_some_and(|ecn| ecn != NOT_CAPABLE)
}

/// The packet's ECN bits; `None` if it is not an IP packet.
pub(crate) fn ecn(packet: &[u8]) -> Option<u8> {
    let ip = packet.get(VNET_HEADER..)?;
    match ip.first()? >> 4 {
        4 => Some(ip.get(1)? & ECN),
        6 => Some((ip.get(1)? >> 4) & ECN),
        _ => None,
    }
}

/// Marks the packet: congestion experienced.
pub(crate) fn mark(packet: &mut [u8]) {
    let ip = &mut packet[VNET_HEADER..];
    if ip[0] >> 4 == 6 {
        ip[1] |= ECN << 4;
        return;
    }
    ip[1] |= ECN;
    let header = usize::from(ip[0] & 0x0F) * 4;
    ip[10..12].fill(0);
    let sum = !fold(sum(&ip[..header]));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Flips one bit of the payload, chosen by `place`. The checksum is finished first, so that the receiver
/// can detect it.
pub(crate) fn corrupt(packet: &mut [u8], place: u64) {
    finish_checksum(packet);
    let ip = packet.get(VNET_HEADER).copied().unwrap_or_default();
    let header = if ip >> 4 == 6 { IPV6_HEADER } else { usize::from(ip & 0x0F) * 4 };
    let start = VNET_HEADER + header;
    let Some(bytes) = packet.len().checked_sub(start).filter(|bytes| *bytes > 0) else { return };
    let bit = place % (bytes as u64 * 8);
    let byte = usize::try_from(bit / 8).unwrap_or_default();
    packet[start + byte] ^= 1 << (bit % 8);
}

/// Finishes the checksum that the sending kernel left to the device: sums the bytes from `csum_start`
/// on, which hold the sum of the pseudo header already, and writes the result at `csum_offset`.
fn finish_checksum(packet: &mut [u8]) {
    if packet.first().is_none_or(|flags| flags & NEEDS_CHECKSUM == 0) {
        return;
    }
    let field = |at: usize| usize::from(u16::from_ne_bytes([packet[at], packet[at + 1]]));
    let (start, offset) = (VNET_HEADER + field(6), field(8));
    if start + offset + 2 > packet.len() {
        return;
    }
    let result = !fold(sum(&packet[start..]));
    // A UDP sum of 0 would mean none (RFC 768).
    let result = if result == 0 { 0xFFFF } else { result };
    packet[start + offset..start + offset + 2].copy_from_slice(&result.to_be_bytes());
    packet[0] &= !NEEDS_CHECKSUM;
}

/// The sum of 16-bit words of RFC 1071, not yet folded; an odd byte counts as the high one. 64 KiB
/// at most: no overflow.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words.map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low))).sum()
}

pub(crate) fn fold(sum: u32) -> u16 {
    let once = (sum & 0xFFFF) + (sum >> 16);
    let twice = (once & 0xFFFF) + (once >> 16);
    u16::try_from(twice).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet that may be marked, its checksum left to the device.
    fn udp(v6: bool, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; VNET_HEADER];
        let length = u16::try_from(8 + data.len()).unwrap();
        let header: u16 = if v6 { 40 } else { 20 };
        packet[0] = NEEDS_CHECKSUM;
        packet[6..8].copy_from_slice(&header.to_ne_bytes());
        packet[8..10].copy_from_slice(&6_u16.to_ne_bytes());
        let addresses = if v6 {
            packet.extend([0x60, 0x20, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([17, 64]);
            packet.extend([0x20; 32]);
            &[0x20_u8; 32][..]
        } else {
            packet.extend([0x45, 0x02]);
            packet.extend((20 + length).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
            &[198, 18, 0, 1, 198, 18, 0, 2][..]
        };
        let pseudo = fold(sum(addresses) + 17 + u32::from(length));
        packet.extend([0x30, 0x39, 0x30, 0x3A]);
        packet.extend(length.to_be_bytes());
        packet.extend(pseudo.to_be_bytes());
        packet.extend(data);
        packet
    }

    /// What the receiver would sum up: all ones if the packet is whole.
    fn receivers_sum(packet: &[u8], v6: bool) -> u16 {
        let (ip, header) = (&packet[VNET_HEADER..], if v6 { 40 } else { 20 });
        let addresses = if v6 { &ip[8..40] } else { &ip[12..20] };
        let length = u32::try_from(ip.len() - header).unwrap();
        fold(sum(addresses) + 17 + length + sum(&ip[header..]))
    }

    #[test]
    fn a_mark_changes_ecn_and_keeps_the_header_right() {
        for v6 in [false, true] {
            let mut packet = udp(v6, b"data");
            assert!(is_ecn_capable(&packet));
            mark(&mut packet);
            assert_eq!(ecn(&packet), Some(ECN));
            let ip = &packet[VNET_HEADER..];
            assert!(v6 || fold(sum(&ip[..20])) == 0xFFFF, "the header's own sum");
        }
        assert_eq!((ecn(&[]), ecn(&[0; 60])), (None, None));
    }

    #[test]
    fn the_receiver_can_find_the_damage() {
        for v6 in [false, true] {
            for (place, data) in [(0, &b"even"[..]), (77, b"odd"), (u64::MAX, b"")] {
                let mut whole = udp(v6, data);
                finish_checksum(&mut whole);
                assert_eq!(receivers_sum(&whole, v6), 0xFFFF);
                let mut damaged = udp(v6, data);
                corrupt(&mut damaged, place);
                assert_ne!(receivers_sum(&damaged, v6), 0xFFFF, "place {place}");
                let wrong = damaged.iter().zip(&whole).filter(|(a, b)| a != b).count();
                assert_eq!(wrong, 1, "one bit of one byte");
            }
        }
        corrupt(&mut [], 7);
        corrupt(&mut [0; VNET_HEADER], 7);
    }
}
