//! A host to dial: an address, or a name to resolve.
//!
//! | Text | Meaning |
//! |---|---|
//! | `192.0.2.1` | that address |
//! | `2001:db8::1`, `[2001:db8::1]` | that address |
//! | `fe80::1%eth0`, `fe80::1%2` | that address, on that interface (RFC 4007 section 11) |
//! | `www.example.com`, `www` | a name, resolved with the search list |
//! | `www.example.com.` | this exact name |
//! | `bücher.example` | the name `xn--bcher-kva.example` (IDNA, by UTS 46 as in hickory) |
//! | `127.1`, `0x7f.1`, `1234` | invalid: see [`BadHost::NumericEnd`] |

use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use hickory_proto::rr::Name;

/// The longest name in bytes, without a final dot (RFC 1035 section 2.3.4: 255 on the wire).
const LONGEST_NAME: usize = 253;
/// The longest part of a name between two dots in bytes (RFC 1035 section 2.3.4).
const LONGEST_LABEL: usize = 63;

/// A host as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address; the port is the one to dial. IPv6 with its scope, where one was given.
    Literal(SocketAddr),
    /// A name to resolve: in ASCII, in the case given, with its final dot if it has one.
    Name(String),
}

impl Host {
    /// Parses a host: `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]`, `fe80::1%eth0`, or a name.
    ///
    /// # Errors
    /// Why the text is not a valid host.
    pub fn parse(text: &str, port: u16) -> Result<Self, BadHost> {
        if text.is_empty() {
            return Err(BadHost::Empty);
        }
        if let Some(address) = literal(text)? {
            return Ok(Self::Literal(with_port(address, port)));
        }
        name(text).map(Self::Name)
    }
}

/// Parses an address, with its scope if it has one; its port is 0.
///
/// # Errors
/// When the text is almost an address: brackets or scope are wrong.
pub(crate) fn literal(text: &str) -> Result<Option<SocketAddr>, BadHost> {
    let (text, bracketed) = match text.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(inner) => (inner, true),
            None => return Err(BadHost::Brackets),
        },
        None => (text, false),
    };
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    match (address.parse::<IpAddr>(), zone) {
        (Ok(IpAddr::V4(_)), None) if bracketed => Err(BadHost::Brackets),
        (Ok(IpAddr::V4(_)), Some(_)) => Err(BadHost::ScopeOfIpv4),
        (Ok(address), None) => Ok(Some(SocketAddr::new(address, 0))),
        (Ok(IpAddr::V6(address)), Some(zone)) => {
            Ok(Some(SocketAddrV6::new(address, 0, 0, scope(address, zone)?).into()))
        }
        (Err(_), _) if bracketed => Err(BadHost::Brackets),
        (Err(_), _) => Ok(None),
    }
}

/// The number of a scope, which is given as a number or as an interface name.
fn scope(address: Ipv6Addr, zone: &str) -> Result<u32, BadHost> {
    // For other addresses the kernel ignores a scope.
    if !address.is_unicast_link_local() && !address.is_multicast() {
        return Err(BadHost::Unscoped(address));
    }
    let unknown = || BadHost::UnknownDevice(zone.to_owned());
    if let Ok(number) = zone.parse() {
        return if number == 0 { Err(unknown()) } else { Ok(number) };
    }
    let device = CString::new(zone).map_err(|_| unknown())?;
    lastbyte_sys::name::device_index(&device).map_err(|_| unknown())
}

/// Checks a name, and converts it to ASCII.
fn name(text: &str) -> Result<String, BadHost> {
    if let Some(bad) = text.chars().find(|char| char.is_control() || char.is_whitespace()) {
        return Err(BadHost::Character(bad));
    }
    let ascii = if text.is_ascii() { text.to_owned() } else { to_ascii(text)? };
    let bare = ascii.strip_suffix('.').unwrap_or(&ascii);
    if bare.len() > LONGEST_NAME {
        return Err(BadHost::TooLong(bare.len()));
    }
    for label in bare.split('.') {
        match label.len() {
            0 => return Err(BadHost::EmptyLabel),
            1..=LONGEST_LABEL => {}
            _ => return Err(BadHost::LabelTooLong(label.to_owned())),
        }
    }
    let is_of_a_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    if let Some(bad) = bare.chars().find(|char| !is_of_a_name(*char)) {
        return Err(BadHost::Character(bad));
    }
    if ends_in_number(bare) { Err(BadHost::NumericEnd) } else { Ok(ascii) }
}

/// IDNA as hickory does it, which also maps capitals and wide dots.
fn to_ascii(text: &str) -> Result<String, BadHost> {
    // Mapping a very long name takes long, and 253 bytes of ASCII never come from more than this.
    if text.len() > 4 * LONGEST_NAME {
        return Err(BadHost::TooLong(text.len()));
    }
    // The dots that IDNA knows beside the plain one (RFC 3490 section 3.1): hickory splits at that.
    let text = text.replace(['\u{3002}', '\u{ff0e}', '\u{ff61}'], ".");
    if let Some(long) = text.split('.').find(|label| label.chars().count() > LONGEST_LABEL) {
        return Err(BadHost::LabelTooLong(long.to_owned()));
    }
    let mut labels = Vec::new();
    for label in text.split('.') {
        if label.is_empty() || label.is_ascii() {
            labels.push(label.to_owned());
            continue;
        }
        let name = Name::from_utf8(label).map_err(|_| BadHost::NotIdna(label.to_owned()))?;
        labels.push(name.to_ascii());
    }
    Ok(labels.join("."))
}

/// Whether the last part is a number, as the URL standard has it ("ends in a number").
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// An address with the port to dial; its scope is kept.
pub(crate) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Why a text is not a valid host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHost {
    /// The text is empty.
    #[error("the host is empty: give a name or an address")]
    Empty,
    /// It is longer than a name can be, in bytes.
    #[error("a name has at most {LONGEST_NAME} bytes, and this has {0}")]
    TooLong(usize),
    /// A part between two dots is longer than it can be.
    #[error("a part of a name has at most {LONGEST_LABEL} bytes: `{}` has more", short(.0))]
    LabelTooLong(String),
    /// A label is empty.
    #[error("a part of the name is empty: it begins with a dot, or has two in a row")]
    EmptyLabel,
    /// A character that no host's name has: a space, NUL, a slash, a colon and so on.
    #[error("{} cannot be in a host's name", described(*.0))]
    Character(char),
    /// A part that is no international name (IDNA).
    #[error("`{}` cannot be part of a name: it has letters that IDNA does not allow", short(.0))]
    NotIdna(String),
    /// The last part is a number, and the whole no IPv4 address. `127.1` and `0x7f.1` once were some
    /// (`inet_aton(3)`), `010.0.0.1` was another one than it seems; no name ends like that, so that
    /// nobody is asked about it.
    #[error(
        "what ends in a number is an IPv4 address of four decimal parts, without leading zeros"
    )]
    NumericEnd,
    /// Brackets with something else than an IPv6 address between them.
    #[error("brackets stand around an IPv6 address, and around nothing else")]
    Brackets,
    /// An IPv4 address has no scope.
    #[error("an IPv4 address has no scope: leave out the % and what follows")]
    ScopeOfIpv4,
    /// An address that is the same over every device has no scope.
    #[error("{0} has no scope, because it is not a link-local address")]
    Unscoped(Ipv6Addr),
    /// The scope names no device of this host.
    #[error("there is no network device `{}` here", short(.0))]
    UnknownDevice(String),
}

/// As much of a text as belongs in a sentence, in one line.
fn short(text: &str) -> String {
    const MOST: usize = 70;
    let escaped = text.escape_debug();
    if escaped.clone().count() <= MOST {
        escaped.collect()
    } else {
        escaped.take(MOST).chain("...".chars()).collect()
    }
}

fn described(char: char) -> String {
    match char {
        '\0' => "NUL".to_owned(),
        ' ' => "a space".to_owned(),
        ':' => "a colon (the port is given apart)".to_owned(),
        char if char.is_control() || char.is_whitespace() => format!("U+{:04X}", u32::from(char)),
        char => format!("`{}`", char.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Host, BadHost> {
        Host::parse(text, 80)
    }

    fn sentence(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn literals_are_addresses() {
        let literal = |text: &str| Host::Literal(text.parse().unwrap());
        assert_eq!(parse("192.0.2.1"), Ok(literal("192.0.2.1:80")));
        assert_eq!(parse("2001:db8::1"), Ok(literal("[2001:db8::1]:80")));
        assert_eq!(parse("[2001:db8::1]"), Ok(literal("[2001:db8::1]:80")));
        assert_eq!(parse("fe80::1%2"), Ok(literal("[fe80::1%2]:80")));
        assert_eq!(parse("[fe80::1%2]"), Ok(literal("[fe80::1%2]:80")));
        let loopback = lastbyte_sys::name::device_index(c"lo").unwrap();
        assert_eq!(parse("fe80::1%lo"), Ok(literal(&format!("[fe80::1%{loopback}]:80"))));
    }

    #[test]
    fn wrong_literals_say_what_is_wrong() {
        assert_eq!(sentence("fe80::1%nothing0"), "there is no network device `nothing0` here");
        assert_eq!(sentence("fe80::1%0"), "there is no network device `0` here");
        assert_eq!(sentence("fe80::1%"), "there is no network device `` here");
        assert_eq!(parse("fe80::1%l\0"), Err(BadHost::UnknownDevice("l\0".to_owned())));
        assert!(matches!(parse("2001:db8::1%lo"), Err(BadHost::Unscoped(_))));
        assert_eq!(parse("192.0.2.1%lo"), Err(BadHost::ScopeOfIpv4));
        for text in ["[", "[]", "[192.0.2.1]", "[::1", "[a.test]", "[::1]:80"] {
            assert_eq!(parse(text), Err(BadHost::Brackets), "{text}");
        }
        for text in ["127.1", "0x7f.1", "0x7f000001", "1234", "1.2.3.4.5", "010.0.0.1", "a.1", "1."]
        {
            assert_eq!(parse(text), Err(BadHost::NumericEnd), "{text}");
        }
    }

    #[test]
    fn names_are_names() {
        for text in ["a", "www.example.com", "www.example.com.", "_srv.a_b.test", "3com.test", "a-"]
        {
            assert_eq!(parse(text), Ok(Host::Name(text.to_owned())));
        }
        let long = format!("{}.{}", vec!["a".repeat(63); 3].join("."), "b".repeat(61));
        assert_eq!(long.len(), 253);
        assert_eq!(parse(&long), Ok(Host::Name(long.clone())));
        assert!(parse(&format!("{long}.")).is_ok());
        assert_eq!(parse(&format!("{long}b")), Err(BadHost::TooLong(254)));
        assert_eq!(parse(&"a".repeat(300)), Err(BadHost::TooLong(300)));
    }

    #[test]
    fn international_names_are_written_in_ascii() {
        let ascii = |text: &str| match parse(text) {
            Ok(Host::Name(name)) => name,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(ascii("bücher.example"), "xn--bcher-kva.example");
        assert_eq!(ascii("BÜCHER.Example."), "xn--bcher-kva.Example.");
        assert_eq!(ascii("例え。テスト"), "xn--r8jz45g.xn--zckzah");
        assert!(matches!(parse("a\u{200d}b\u{fffd}.test"), Err(BadHost::NotIdna(_))));
        assert_eq!(parse("ü..test"), Err(BadHost::EmptyLabel));
        assert!(matches!(parse(&"ü".repeat(64)), Err(BadHost::LabelTooLong(_))));
        assert!(matches!(parse(&"ü.".repeat(500)), Err(BadHost::TooLong(_))));
    }

    #[test]
    fn what_is_no_name_is_told_in_a_sentence() {
        assert_eq!(sentence(""), "the host is empty: give a name or an address");
        assert_eq!(sentence("a\0b"), "NUL cannot be in a host's name");
        assert_eq!(sentence("a b"), "a space cannot be in a host's name");
        assert_eq!(sentence("a\n"), "U+000A cannot be in a host's name");
        assert_eq!(sentence("a/b"), "`/` cannot be in a host's name");
        assert_eq!(
            sentence("a:80"),
            "a colon (the port is given apart) cannot be in a host's name"
        );
        for text in [".", ".a", "a..b", "a.."] {
            assert_eq!(parse(text), Err(BadHost::EmptyLabel), "{text}");
        }
        let long = "a".repeat(64);
        assert_eq!(
            sentence(&long),
            format!("a part of a name has at most 63 bytes: `{long}` has more")
        );
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in any::<String>(), port in any::<u16>()) {
            match Host::parse(&text, port) {
                Ok(Host::Literal(address)) => prop_assert_eq!(address.port(), port),
                Ok(Host::Name(name)) => prop_assert!(name.is_ascii() && name.len() <= 254),
                Err(bad) => prop_assert!(!bad.to_string().contains(char::is_control)),
            }
        }

        #[test]
        fn no_near_miss_is_too_strange(text in "[a-z0-9.:%\\[\\]üß。_-]{0,80}") {
            if let Ok(Host::Name(name)) = Host::parse(&text, 1) {
                prop_assert_eq!(Host::parse(&name, 1), Ok(Host::Name(name)));
            }
        }
    }
}
