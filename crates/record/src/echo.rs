//! ICMP echo requests and replies as bytes (RFC 792, RFC 4443 section 4): no I/O.

/// The ICMP header, in bytes.
const HEADER: usize = 8;
/// Of a request's data: whose it is, and its number. Some hosts give back no more than the first 64
/// bytes.
const MARK: usize = 8 + 4;

/// How requests and replies look on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) v6: bool,
    /// Whether the socket is a raw one: then checksum and identifier of IPv4 are ours to make, and a
    /// reply comes behind its IP header.
    pub(super) raw: bool,
    /// The identifier on a raw socket.
    pub(super) id: u16,
    /// Tells replies to this recording from all others.
    pub(super) cookie: u64,
}

/// A reply to one of our requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The number of the request.
    pub(super) number: u32,
    /// Its length with the IP header.
    pub(super) ip_bytes: u32,
}

/// A request, sent again and again with another number.
#[derive(Clone, Debug)]
pub(super) struct Request {
    packet: Vec<u8>,
    /// Of its words, all but number and checksum, where the checksum is ours to make.
    sum: Option<u32>,
}

impl Request {
    /// The request with this number.
    pub(super) fn numbered(&mut self, number: u32) -> &[u8] {
        let bytes = number.to_be_bytes();
        // The sequence number is half as long as ours.
        self.packet[6..8].copy_from_slice(&bytes[2..]);
        self.packet[HEADER + 8..HEADER + MARK].copy_from_slice(&bytes);
        if let Some(others) = self.sum {
            let checksum = !folded(others + sum(&bytes[2..]) + sum(&bytes));
            self.packet[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        &self.packet
    }
}

impl Dialect {
    /// The length of the IP header without options, in bytes.
    pub(super) fn ip_header(self) -> u32 {
        if self.v6 { 40 } else { 20 }
    }

    /// The shortest IP packet that holds a request's mark, in bytes.
    pub(super) fn shortest(self) -> u32 {
        // 20: header and mark.
        self.ip_header() + 20
    }

    /// A request that makes an IP packet of a length, at least [`Dialect::shortest`]. Its data beyond
    /// the mark are noise, so that no link on the way makes it shorter.
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

    /// The reply that these bytes are; `None` for anything else, such as another program's.
    pub(super) fn parse(self, received: &[u8]) -> Option<Parsed> {
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
        // The kernel chooses a datagram socket's identifier, and looks at it.
        let ours = ours && cookie == self.cookie && (!self.raw || id == self.id);
        ours.then_some(Parsed { number, ip_bytes })
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

    const ALL: [Dialect; 4] =
        [dialect(false, false), dialect(false, true), dialect(true, false), {
            dialect(true, true)
        }];

    const fn dialect(v6: bool, raw: bool) -> Dialect {
        Dialect { v6, raw, id: 0x1234, cookie: 0x0102_0304_0506_0708 }
    }

    /// What a host makes of a request, as its peer's socket gives it.
    fn answer(dialect: Dialect, request: &[u8]) -> Vec<u8> {
        let mut reply = request.to_vec();
        reply[0] = if dialect.v6 { 129 } else { 0 };
        if dialect.raw && !dialect.v6 { [vec![0x45; 20], reply].concat() } else { reply }
    }

    #[test]
    fn a_reply_tells_the_number_and_length_of_its_request() {
        for dialect in ALL {
            for ip_bytes in [dialect.shortest(), 1500] {
                let mut request = dialect.request(ip_bytes);
                let request = request.numbered(0xABCD_1234);
                let parsed = dialect.parse(&answer(dialect, request));
                assert_eq!(parsed, Some(Parsed { number: 0xABCD_1234, ip_bytes }), "{dialect:?}");
                assert_eq!(dialect.parse(request), None, "a request is no reply");
                let other = Dialect { cookie: 9, ..dialect };
                assert_eq!(other.parse(&answer(dialect, request)), None);
                let other = Dialect { id: 9, ..dialect };
                assert_eq!(other.parse(&answer(dialect, request)).is_some(), !dialect.raw);
            }
        }
    }

    #[test]
    fn a_raw_request_sums_up() {
        let dialect = dialect(false, true);
        for length in [40, 41, 1499, 1500] {
            let mut request = dialect.request(length);
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
            for dialect in ALL {
                prop_assert_eq!(dialect.parse(&bytes), None);
            }
        }

        #[test]
        fn a_reply_cut_or_changed_anywhere_does_no_harm(
            at in 0_usize..100, byte in any::<u8>(), length in 0_usize..100,
        ) {
            for dialect in ALL {
                let mut reply = answer(dialect, dialect.request(80).numbered(1));
                if let Some(place) = reply.get_mut(at) {
                    *place = byte;
                }
                reply.truncate(length);
                let parsed = dialect.parse(&reply);
                prop_assert!(parsed.is_none_or(|reply| reply.ip_bytes <= 140));
            }
        }
    }
}
