//! Prefixes of addresses: as text, and which addresses they contain.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::Prefix;
use super::parse::ParseError;

impl Prefix {
    /// Whether the prefix contains an address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`, RFC 4291
    /// section 2.5.5.2), as a listener for both families reports it, counts as IPv4; `::/0` contains none of
    /// IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        /// The bits in front of the address in an IPv4-mapped one.
        const MAPPED: u32 = 96;
        let bits = u32::from(self.bits);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(address)) => {
                begins_alike(own.to_bits().into(), address.to_bits().into(), 32, bits)
            }
            (IpAddr::V6(own), IpAddr::V6(address)) => {
                begins_alike(own.to_bits(), address.to_bits(), 128, bits)
            }
            (IpAddr::V6(own), IpAddr::V4(address)) => own.to_ipv4_mapped().is_some_and(|own| {
                let bits = bits.saturating_sub(MAPPED);
                begins_alike(own.to_bits().into(), address.to_bits().into(), 32, bits)
            }),
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        }
    }
}

/// Whether the first `bits` of two numbers of `width` bits are the same.
fn begins_alike(one: u128, two: u128, width: u32, bits: u32) -> bool {
    (one ^ two).checked_shr(width.saturating_sub(bits)).is_none_or(|differ| differ == 0)
}

/// Whether these together have every address of `whole`.
pub(super) fn cover(prefixes: &[Prefix], whole: Prefix) -> bool {
    if prefixes.iter().any(|one| one.bits <= whole.bits && one.contains(whole.address)) {
        return true;
    }
    // Both halves can be covered only if a prefix lies inside: the recursion goes no deeper than they do.
    let inside = |one: &&Prefix| one.bits > whole.bits && whole.contains(one.address);
    let inside: Vec<Prefix> = prefixes.iter().filter(inside).copied().collect();
    !inside.is_empty() && halves(whole).iter().all(|half| cover(&inside, *half))
}

fn halves(whole: Prefix) -> [Prefix; 2] {
    let bits = whole.bits + 1;
    let upper = match whole.address {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4) | 1 << (32 - bits)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) | 1 << (128 - bits)).into(),
    };
    [Prefix { bits, ..whole }, Prefix { address: upper, bits }]
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// An address, which is a prefix of all its bits, or a prefix: `192.0.2.0/24`, `2001:db8::/32`.
impl FromStr for Prefix {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let wanted = "an address or a prefix such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32";
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(ParseError::new(format!("{text:?} is not {wanted}")));
        };
        if address.to_canonical() != address {
            let v4 = address.to_canonical();
            return Err(ParseError::new(format!("{text:?} is IPv4 written as IPv6: write {v4}")));
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            // No sign, no space: as `ip(8)` has it.
            Some(bits) if !bits.is_empty() && bits.bytes().all(|one| one.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| {
                    let range = format!("from /0 to /{most}, the bits of an address");
                    ParseError::new(format!("{text:?}: /{bits} is not {range}"))
                })?
            }
            Some(_) => return Err(ParseError::new(format!("{text:?} is not {wanted}"))),
        };
        let right = Self { address: first_of(address, bits), bits };
        if right.address == address {
            return Ok(right);
        }
        let sentence = format!("{text:?} has bits set after the first {bits}: write {right}");
        Err(ParseError::new(sentence))
    }
}

/// The address with all but its first `bits` bits zero.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        // A shift by all bits is none to the language.
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_are_read_and_shown() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(prefix(text).to_string(), shown);
        }
    }

    #[test]
    fn an_error_says_what_a_prefix_would_be() {
        for (text, expected) in [
            ("192.0.2.7/24", "write 192.0.2.0/24"),
            ("192.0.2.0/33", "/33 is not from /0 to /32"),
            ("192.0.2.0/", "is not an address"),
            ("192.0.2.0/+8", "is not an address"),
            ("db.example", "is not an address"),
            ("::ffff:192.0.2.7", "write 192.0.2.7"),
            ("", "is not an address"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_prefix_contains_addresses_that_share_its_bits() {
        let is_in = |text: &str, address: &str| prefix(text).contains(address.parse().unwrap());
        assert!(is_in("192.0.2.0/24", "192.0.2.255") && !is_in("192.0.2.0/24", "192.0.3.0"));
        assert!(is_in("192.0.2.0/24", "::ffff:192.0.2.1"), "a listener on :: says it so");
        assert!(is_in("0.0.0.0/0", "192.0.2.1") && !is_in("0.0.0.0/0", "::1"));
        assert!(is_in("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!is_in("2001:db8::/33", "2001:db8:8000::1"));
    }

    #[test]
    fn a_whole_may_be_covered_in_parts() {
        let covers = |parts: &[&str], whole: &str| {
            let parts: Vec<Prefix> = parts.iter().map(|part| prefix(part)).collect();
            cover(&parts, prefix(whole))
        };
        assert!(covers(&["0.0.0.0/0"], "0.0.0.0/0"));
        assert!(covers(&["128.0.0.0/1", "0.0.0.0/1"], "0.0.0.0/0"));
        assert!(covers(&["0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/1"], "0.0.0.0/0"));
        assert!(!covers(&["0.0.0.0/2", "128.0.0.0/1"], "0.0.0.0/0"));
        assert!(covers(&["::/0"], "2000::/3") && covers(&["2000::/3"], "2000::/3"));
        assert!(!covers(&["2001:db8::/32", "::/8"], "2000::/3"));
        assert!(!covers(&[], "0.0.0.0/0") && !covers(&["::/0"], "0.0.0.0/0"));
    }
}
