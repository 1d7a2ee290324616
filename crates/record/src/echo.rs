//! ICMP echo requests and replies as bytes (RFC 792, RFC 4443 section 4): no I/O.

/// The ICMP header, in bytes.
const HEADER: usize = 8;
/// The cookie and the number at the beginning of a request's data, in bytes. Some hosts return no more
/// than the first 64 bytes.
const MARK: usize = 8 + 4;

/// The format of requests and replies on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EchoFormat {
    pub(super) v6: bool,
    /// Whether it is a raw socket: then we set the checksum and identifier of IPv4, and a reply is
    /// preceded by its IP header.
    pub(super) raw: bool,
    /// The identifier on a raw socket.
    pub(super) id: u16,
    /// Distinguishes replies to this recording from all others.
    pub(super) cookie: u64,
}

/// A reply to one of our requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EchoReply {
    /// The number of the request.
    pub(super) number: u32,
    /// Its length with the IP header.
    pub(super) ip_bytes: u32,
}

/// A request that is sent repeatedly, each time with another number.
#[derive(Clone, Debug)]
pub(super) struct Request {
    packet: Vec<u8>,
    /// The sum of its words without number and checksum, where we set the checksum.
    sum: Option<u32>,
}

impl Request {
    /// The request with this number.
    pub(super) fn numbered(&mut self, number: u32) -> &[u8] {
        let bytes = number.to_be_bytes();
        // The ICMP sequence number is half as long as ours.
        self.packet[6..8].copy_from_slice(&bytes[2..]);
        self.packet[HEADER + 8..HEADER + MARK].copy_from_slice(&bytes);
        if let Some(others) = self.sum {
            let checksum = !folded(others + sum(&bytes[2..]) + sum(&bytes));
            self.packet[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        &self.packet
    }
}

impl EchoFormat {
    /// The length of the IP header without options, in bytes.
    pub(super) fn ip_header(self) -> u32 {
        if self.v6 { 40 } else { 20 }
    }

    /// The shortest IP packet that holds a request's mark, in bytes.
    pub(super) fn shortest(self) -> u32 {
        // 20: header and mark.
        self.ip_header() + 20
    }

    /// A request whose IP packet has this length, at least [`EchoFormat::shortest`]. Its data beyond
    /// the mark are noise, so that no link compresses it.
    pub(super) fn request(self, ip_bytes: u32) -> Request {
        let length = ip_bytes.saturating_sub(self.ip_header()) as usize;
        let mut packet = vec![0; length.max(HEADER + MARK)];
        // RFC 792: type 8; RFC 4443 section 4.1: type 128.
        packet[0] = if self.v6 { 128 } else { 8 };
        packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        packet[HEADER..HEADER + 8].copy_from_slice(&self.cookie.to_be_bytes());
        let mut noise = self.cookie | 1;
        for byte in &mut packet[HEADER + MARK..] {
            // Marsaglia 2003: xorshift64.
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            *byte = noise.to_be_bytes()[0];
        }
        let sum = (self.raw && !self.v6).then(|| sum(&packet));
        Request { packet, sum }
    }

    /// Parses a reply to one of our requests; `None` for anything else, such as another program's.
    pub(super) fn parse(self, received: &[u8]) -> Option<EchoReply> {
        let whole = u32::try_from(received.len()).ok()?;
        let (icmp, ip_bytes) = if self.raw && !self.v6 {
            // RFC 791: the header's length in words of 32 bits.
            let header = usize::from(received.first()? & 0x0F) * 4;
            (received.get(header.max(20)..)?, whole)
        } else {
            (received, whole.checked_add(self.ip_header())?)
        };
        // RFC 792: type 0, code 0; RFC 4443 section 4.2: type 129, code 0.
        let kind = if self.v6 { 129 } else { 0 };
        let ours = *icmp.first()? == kind && *icmp.get(1)? == 0;
        let id = u16::from_be_bytes([*icmp.get(4)?, *icmp.get(5)?]);
        let cookie = u64::from_be_bytes(*icmp.get(HEADER..)?.first_chunk()?);
        let number = u32::from_be_bytes(*icmp.get(HEADER + 8..)?.first_chunk()?);
        // The kernel sets and checks the identifier of a datagram socket.
        let ours = ours && cookie == self.cookie && (!self.raw || id == self.id);
        ours.then_some(EchoReply { number, ip_bytes })
    }
}

/// The sum of words of 16 bits (RFC 1071), not yet folded.
fn sum(packet: &[u8]) -> u32 {
    // Fits: fewer than 2^16 words of 16 bits.
    let words = packet.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    words.sum()
}

/// RFC 1071: a sum in ones' complement.
fn folded(mut sum: u32) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits above")]
    let sum = sum as u16;
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [EchoFormat; 4] =
        [format(false, false), format(false, true), format(true, false), { format(true, true) }];

    const fn format(v6: bool, raw: bool) -> EchoFormat {
        EchoFormat { v6, raw, id: 0x1234, cookie: 0x0102_0304_0506_0708 }
    }

    /// What a host makes of a request, as its peer's socket gives it.
    fn answer(format: EchoFormat, request: &[u8]) -> Vec<u8> {
        let mut reply = request.to_vec();
        reply[0] = if format.v6 { 129 } else { 0 };
        if format.raw && !format.v6 { [vec![0x45; 20], reply].concat() } else { reply }
    }

    #[test]
    fn a_reply_tells_the_number_and_length_of_its_request() {
        for format in ALL {
            for ip_bytes in [format.shortest(), 1500] {
                let mut request = format.request(ip_bytes);
                let request = request.numbered(0xABCD_1234);
                let parsed = format.parse(&answer(format, request));
                assert_eq!(parsed, Some(EchoReply { number: 0xABCD_1234, ip_bytes }), "{format:?}");
                assert_eq!(format.parse(request), None, "a request is no reply");
                let other = EchoFormat { cookie: 9, ..format };
                assert_eq!(other.parse(&answer(format, request)), None);
                let other = EchoFormat { id: 9, ..format };
                assert_eq!(other.parse(&answer(format, request)).is_some(), !format.raw);
            }
        }
    }

    #[test]
    fn a_raw_request_sums_up() {
        let format = format(false, true);
        for length in [40, 41, 1499, 1500] {
            let mut request = format.request(length);
            for number in [0, 77, u32::MAX] {
                assert_eq!(folded(sum(request.numbered(number))), 0xFFFF);
            }
        }
        // The example of RFC 1071, section 3.
        assert_eq!(folded(sum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7])), 0xDDF2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_reply_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            for format in ALL {
                prop_assert_eq!(format.parse(&bytes), None);
            }
        }

        #[test]
        fn a_reply_cut_or_changed_anywhere_does_no_harm(
            at in 0_usize..100, byte in any::<u8>(), length in 0_usize..100,
        ) {
            for format in ALL {
                let mut reply = answer(format, format.request(80).numbered(1));
                if let Some(place) = reply.get_mut(at) {
                    *place = byte;
                }
                reply.truncate(length);
                let parsed = format.parse(&reply);
                prop_assert!(parsed.is_none_or(|reply| reply.ip_bytes <= 140));
            }
        }
    }
}
