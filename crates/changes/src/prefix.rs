//! Who a route leads to: one host, or all whose addresses begin with the same bits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address and how many of its bits count: `203.0.113.7`, `203.0.113.0/24`, `2001:db8::/32`. The
/// bits that do not count are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The first address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits of the address count.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }
}

/// Why a text is no [`Prefix`], in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPrefix(String);

/// One host.
impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self { address, bits: whole(address) }
    }
}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let is_none = || {
            InvalidPrefix(format!(
                "`{text}` is not an address or a prefix such as 203.0.113.7, 203.0.113.0/24 or \
                 2001:db8::/32"
            ))
        };
        let address: IpAddr = address.parse().map_err(|_| is_none())?;
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return Err(InvalidPrefix(format!("`{text}` is IPv4 written as IPv6: write {v4}")));
        }
        let most = whole(address);
        let bits = match bits {
            None => most,
            // No sign, no space: as `ip(8)` has it.
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| {
                    InvalidPrefix(format!(
                        "`{text}`: /{bits} is not from /0 to /{most}, the bits of an address"
                    ))
                })?
            }
            Some(_) => return Err(is_none()),
        };
        let right = Self { address: first_of(address, bits), bits };
        if right.address != address {
            return Err(InvalidPrefix(format!(
                "`{text}` has bits set after the first {bits}: the prefix is {right}"
            )));
        }
        Ok(right)
    }
}

/// As `ip(8)` takes it; one host is shown with its bits too.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl TryFrom<String> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(text: String) -> Result<Self, InvalidPrefix> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

/// The bits of an address of this family.
fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all but its first `bits` bits zero.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    let shift = u32::from(whole(address).saturating_sub(bits));
    match address {
        // A shift by all bits is none to the language.
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read() {
        for (text, shown) in [
            ("203.0.113.7", "203.0.113.7/32"),
            ("203.0.113.7/32", "203.0.113.7/32"),
            ("203.0.113.0/24", "203.0.113.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:DB8::7", "2001:db8::7/128"),
            ("::/0", "::/0"),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(prefix.to_string(), shown);
            assert_eq!(prefix.to_string().parse::<Prefix>().unwrap(), prefix);
            let json = serde_json::to_string(&prefix).unwrap();
            assert_eq!(json, format!("\"{shown}\""));
            assert_eq!(serde_json::from_str::<Prefix>(&json).unwrap(), prefix);
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_the_right_one() {
        for (text, told) in [
            ("203.0.113.7/24", "the prefix is 203.0.113.0/24"),
            ("2001:db8::1/32", "the prefix is 2001:db8::/32"),
            ("203.0.113.0/33", "/33 is not from /0 to /32"),
            ("2001:db8::/129", "/129 is not from /0 to /128"),
            ("203.0.113.0/256", "/256 is not from /0 to /32"),
            ("203.0.113.0/", "/ is not from /0 to /32"),
            ("203.0.113.0/+8", "is not an address or a prefix"),
            ("203.0.113/24", "is not an address or a prefix"),
            ("example.org", "is not an address or a prefix"),
            ("", "is not an address or a prefix"),
            ("::ffff:203.0.113.7", "write 203.0.113.7"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Prefix>("\"203.0.113.7/24\"").is_err());
    }
}
