//! Precedences, labels and scopes of prefixes, and how an administrator changes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The most lines of each kind in `gai.conf`; further ones are ignored.
pub const MOST_RULES: usize = 256;

/// Precedences and labels of prefixes: RFC 6724 section 2.1. Cheap to clone: clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTable(Arc<Rules>);

/// The longest prefix first; of equal ones the first that was given.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    precedences: Vec<Rule>,
    labels: Vec<Rule>,
    /// Of IPv4 alone. Those of IPv6 are in the address.
    scopes: Vec<Rule>,
}

/// The value of the addresses that begin with the first so many bits of `prefix`. IPv4 addresses are
/// looked up as IPv4-mapped ones (section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    prefix: Ipv6Addr,
    bits: u8,
    value: u32,
}

impl Default for PolicyTable {
    /// The table of RFC 6724, section 2.1, and the scopes of IPv4 in section 3.2.
    fn default() -> Self {
        Self::of(Vec::new(), Vec::new(), Vec::new())
    }
}

impl PolicyTable {
    /// Reads `gai.conf(5)`: lines `label PREFIX VALUE`, `precedence PREFIX VALUE` and
    /// `scopev4 PREFIX VALUE`; what follows a `#` is a comment, and so are further words.
    ///
    /// It does as glibc does. A single line of a kind replaces all defaults of this kind, but for one of
    /// the prefix `::/0`: unless there is one, that has label 1, precedence 40 and, for IPv4, scope 14.
    /// Lines that make no sense are passed over. Unlike glibc, it says which these are; it wants a value
    /// where glibc takes none for 0; and what is not given is from RFC 6724, not from RFC 3484.
    /// `reload` changes nothing: whoever wants the file read again reads it again.
    #[must_use]
    pub fn parse_gai_conf(text: &str) -> (Self, Vec<BadLine>) {
        let (mut precedences, mut labels, mut scopes) = (Vec::new(), Vec::new(), Vec::new());
        let mut bad = Vec::new();
        for (number, line) in text.split('\n').enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split(is_space).filter(|word| !word.is_empty());
            let Some(keyword) = words.next() else { continue };
            let (prefix, value) = (words.next(), words.next());
            let entered = match keyword {
                "label" => enter(&mut labels, prefix_of, prefix, value),
                "precedence" => enter(&mut precedences, prefix_of, prefix, value),
                "scopev4" => enter(&mut scopes, mapped_prefix_of, prefix, value),
                "reload" => Ok(()),
                _ => Err(Problem::Keyword(keyword.to_owned())),
            };
            bad.extend(entered.err().map(|problem| BadLine { line: number + 1, problem }));
        }
        (Self::of(precedences, labels, scopes), bad)
    }

    /// A table of rules in the order in which they were given; defaults stand for those of a kind that
    /// has none.
    fn of(precedences: Vec<Rule>, labels: Vec<Rule>, scopes: Vec<Rule>) -> Self {
        let default = |value: fn(&Row) -> u32| {
            let rule = |row: &Row| Rule { prefix: row.0, bits: row.1, value: value(row) };
            DEFAULT_POLICY.iter().map(rule).collect()
        };
        let scope = |&(prefix, bits, value): &(Ipv4Addr, u8, u32)| {
            let prefix = prefix.to_ipv6_mapped();
            Rule { prefix, bits: MAPPED_BITS + bits, value }
        };
        Self(Arc::new(Rules {
            precedences: sorted(precedences, || default(|row| row.2)),
            labels: sorted(labels, || default(|row| row.3)),
            scopes: sorted(scopes, || DEFAULT_SCOPES.iter().map(scope).collect()),
        }))
    }

    /// The precedence of an address: the higher one is preferred.
    #[must_use]
    pub fn precedence(&self, address: IpAddr) -> u32 {
        lookup(&self.0.precedences, mapped(address)).unwrap_or(OTHER_PRECEDENCE)
    }

    /// The label of an address: a source of the destination's is preferred.
    #[must_use]
    pub fn label(&self, address: IpAddr) -> u32 {
        lookup(&self.0.labels, mapped(address)).unwrap_or(OTHER_LABEL)
    }

    /// The scope of an address (RFC 6724, sections 3.1 and 3.2): 2 link-local, 5 site-local, 14 global.
    #[must_use]
    pub fn scope(&self, address: IpAddr) -> u32 {
        let address = mapped(address);
        if address.to_ipv4_mapped().is_some() {
            return lookup(&self.0.scopes, address).unwrap_or(GLOBAL);
        }
        match address.segments()[0] {
            // Multicast: RFC 4291, section 2.7.
            first @ 0xFF00..=0xFFFF => u32::from(first & 0xF),
            0xFE80..=0xFEBF => LINK_LOCAL,
            0xFEC0..=0xFEFF => SITE_LOCAL,
            // "The loopback address is treated as having link-local scope" (section 3.1; RFC 4291,
            // section 2.5.3).
            _ if address.is_loopback() => LINK_LOCAL,
            // Unique local addresses are global ones (section 3.1).
            _ => GLOBAL,
        }
    }
}

/// Prefix, precedence, label.
type Row = (Ipv6Addr, u8, u32, u32);

/// RFC 6724, section 2.1.
#[rustfmt::skip]
const DEFAULT_POLICY: [Row; 9] = [
    (Ipv6Addr::LOCALHOST,                            128, 50, 0),
    (Ipv6Addr::UNSPECIFIED,                          0,   40, 1),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xFFFF, 0, 0),     96,  35, 4),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0),     16,  30, 2),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),     32,  5,  5),
    (Ipv6Addr::new(0xFC00, 0, 0, 0, 0, 0, 0, 0),     7,   3,  13),
    (Ipv6Addr::UNSPECIFIED,                          96,  1,  3),
    (Ipv6Addr::new(0xFEC0, 0, 0, 0, 0, 0, 0, 0),     10,  1,  11),
    (Ipv6Addr::new(0x3FFE, 0, 0, 0, 0, 0, 0, 0),     16,  1,  12),
];

/// RFC 6724, section 3.2: all other IPv4 addresses are global, the private ones too.
const DEFAULT_SCOPES: [(Ipv4Addr, u8, u32); 2] =
    [(Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL), (Ipv4Addr::new(127, 0, 0, 0), 8, LINK_LOCAL)];

const LINK_LOCAL: u32 = 2;
const SITE_LOCAL: u32 = 5;
const GLOBAL: u32 = 14;

/// glibc's values for what no line of `gai.conf` is about.
const OTHER_PRECEDENCE: u32 = 40;
const OTHER_LABEL: u32 = 1;

/// The bits before an IPv4 address in an IPv4-mapped one.
const MAPPED_BITS: u8 = 96;

fn sorted(given: Vec<Rule>, default: impl FnOnce() -> Vec<Rule>) -> Vec<Rule> {
    let mut rules = if given.is_empty() { default() } else { given };
    rules.sort_by_key(|rule| u8::MAX - rule.bits);
    rules
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn lookup(rules: &[Rule], address: Ipv6Addr) -> Option<u32> {
    rules.iter().find(|rule| rule.covers(address)).map(|rule| rule.value)
}

impl Rule {
    fn covers(&self, address: Ipv6Addr) -> bool {
        let differ = self.prefix.to_bits() ^ address.to_bits();
        differ.leading_zeros() >= u32::from(self.bits)
    }
}

/// As `isspace(3)` has it.
fn is_space(letter: char) -> bool {
    letter.is_ascii_whitespace() || letter == '\x0B'
}

fn enter(
    rules: &mut Vec<Rule>,
    read: fn(&str) -> Option<(Ipv6Addr, u8)>,
    prefix: Option<&str>,
    value: Option<&str>,
) -> Result<(), Problem> {
    let (Some(prefix), Some(value)) = (prefix, value) else { return Err(Problem::Short) };
    let (prefix, bits) = read(prefix).ok_or_else(|| Problem::Prefix(prefix.to_owned()))?;
    let number = number_of(value).filter(|number| i32::try_from(*number).is_ok());
    let value = number.ok_or_else(|| Problem::Value(value.to_owned()))?;
    if rules.len() == MOST_RULES {
        return Err(Problem::TooMany);
    }
    rules.push(Rule { prefix, bits, value });
    Ok(())
}

/// `2001:db8::/32`; an address alone stands for itself.
fn prefix_of(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (address, bits) = split_bits(text)?;
    Some((address.parse().ok()?, within(bits, 128)?))
}

/// `192.0.2.0/24`, or `::ffff:192.0.2.0/120`, which is the same.
fn mapped_prefix_of(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (address, bits) = split_bits(text)?;
    if let Ok(address) = address.parse::<Ipv4Addr>() {
        return Some((address.to_ipv6_mapped(), MAPPED_BITS + within(bits, 32)?));
    }
    let (address, bits) = (address.parse::<Ipv6Addr>().ok()?, within(bits, 128)?);
    address.to_ipv4_mapped().filter(|_| bits >= MAPPED_BITS).map(|_| (address, bits))
}

/// An address, and the number behind its slash where there is one.
fn split_bits(text: &str) -> Option<(&str, Option<u32>)> {
    match text.split_once('/') {
        Some((address, bits)) => Some((address, Some(number_of(bits)?))),
        None => Some((text, None)),
    }
}

fn within(bits: Option<u32>, most: u8) -> Option<u8> {
    u8::try_from(bits.unwrap_or_else(|| u32::from(most))).ok().filter(|bits| *bits <= most)
}

/// Digits alone: `parse` would take a sign too.
fn number_of(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A line of `gai.conf` that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadLine {
    /// Its number, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a line of `gai.conf`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It begins with a word that is none of the keywords.
    #[error("{0:?} is none of label, precedence, scopev4 and reload")]
    Keyword(String),
    /// Prefix or value is missing.
    #[error("a prefix and a value must follow the keyword")]
    Short,
    /// No prefix, or none of this kind: `scopev4` wants one of IPv4, or of IPv4-mapped addresses.
    #[error("{0:?} is no prefix that fits the keyword")]
    Prefix(String),
    /// No number from 0 to 2147483647.
    #[error("{0:?} is no number from 0 to 2147483647")]
    Value(String),
    /// There are [`MOST_RULES`] of its kind before it.
    #[error("there are {MOST_RULES} lines of this kind before it, and no more are read")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_prefix_of_the_default_table_wins() {
        let policy = PolicyTable::default();
        for (address, precedence, label) in [
            ("::1", 50, 0),
            ("2001:db8::1", 40, 1),
            ("192.0.2.1", 35, 4),
            ("::ffff:192.0.2.1", 35, 4),
            ("2002:c000:201::1", 30, 2),
            ("2001::1", 5, 5),
            ("2001:1::1", 40, 1),
            ("fc00::1", 3, 13),
            ("fdff::1", 3, 13),
            ("fe00::1", 40, 1),
            ("::2", 1, 3),
            ("::192.0.2.1", 1, 3),
            ("fec0::1", 1, 11),
            ("feff::1", 1, 11),
            ("3ffe::1", 1, 12),
            ("fe80::1", 40, 1),
        ] {
            let parsed = address.parse().unwrap();
            let found = (policy.precedence(parsed), policy.label(parsed));
            assert_eq!(found, (precedence, label), "{address}");
        }
    }

    #[test]
    fn scopes_are_those_of_section_3() {
        let policy = PolicyTable::default();
        for (address, scope) in [
            ("fe80::1", 2),
            ("febf::1", 2),
            ("::1", 2),
            ("::2", 14),
            ("::", 14),
            ("fec0::1", 5),
            ("fd00::1", 14),
            ("2001:db8::1", 14),
            ("ff01::1", 1),
            ("ff02::1", 2),
            ("ff15::1", 5),
            ("ff0e::1", 14),
            ("ff0f::1", 15),
            ("169.254.0.1", 2),
            ("169.255.0.1", 14),
            ("127.0.0.1", 2),
            ("127.255.255.255", 2),
            ("::ffff:127.0.0.1", 2),
            ("10.0.0.1", 14),
            ("172.16.0.1", 14),
            ("192.168.0.1", 14),
            ("100.64.0.1", 14),
            ("192.0.2.1", 14),
            ("224.0.0.1", 14),
        ] {
            assert_eq!(policy.scope(address.parse().unwrap()), scope, "{address}");
        }
    }

    #[test]
    fn a_line_replaces_all_of_its_kind_and_no_other() {
        let default = PolicyTable::default();
        let (policy, bad) = PolicyTable::parse_gai_conf(
            "# IPv4 first\n\tprecedence  ::ffff:0:0/96 100 # more\nreload yes\r\n\nlabel 2001:db8::/32 9",
        );
        assert_eq!(bad, []);
        for (address, precedence, label, scope) in [
            ("192.0.2.1", 100, 1, 14),
            ("::1", 40, 1, 2),
            ("2002::1", 40, 1, 14),
            ("2001:db8:ffff::1", 40, 9, 14),
            ("2001:db9::1", 40, 1, 14),
            ("127.0.0.1", 100, 1, 2),
        ] {
            let address = address.parse().unwrap();
            let found = (policy.precedence(address), policy.label(address), policy.scope(address));
            assert_eq!(found, (precedence, label, scope), "{address}");
        }
        assert_eq!(PolicyTable::parse_gai_conf(""), (default.clone(), vec![]));
        assert_eq!(PolicyTable::parse_gai_conf("# nothing\n \t\n"), (default, vec![]));
    }

    #[test]
    fn scopes_of_ipv4_come_in_either_form() {
        let text = "scopev4 ::ffff:10.0.0.0/104 5\nscopev4 192.168.0.0/16 5\nscopev4 192.0.2.1 3";
        let (policy, bad) = PolicyTable::parse_gai_conf(text);
        assert_eq!(bad, []);
        for (address, scope) in [
            ("10.255.0.1", 5),
            ("11.0.0.1", 14),
            ("192.168.255.1", 5),
            ("192.0.2.1", 3),
            ("192.0.2.2", 14),
            ("127.0.0.1", 14),
            ("fe80::1", 2),
        ] {
            assert_eq!(policy.scope(address.parse().unwrap()), scope, "{address}");
        }
    }

    #[test]
    fn bits_behind_the_prefix_do_not_count_and_the_first_of_two_equals_does() {
        let (policy, bad) = PolicyTable::parse_gai_conf(
            "label ::/0 6\nlabel 2001:db8::1/32 7\nlabel 2001:db8::/32 8",
        );
        assert_eq!(bad, []);
        assert_eq!(policy.label("2001:db8::2".parse().unwrap()), 7);
        assert_eq!(policy.label("::2".parse().unwrap()), 6);
    }

    #[test]
    fn a_bad_line_is_named_and_the_others_count() {
        let long = format!("label ::/0 {}", "9".repeat(50));
        for (line, said) in [
            ("labels ::1/128 0", r#""labels" is none of label, precedence, scopev4 and reload"#),
            ("Label ::1/128 0", r#""Label" is none of label, precedence, scopev4 and reload"#),
            ("label", "a prefix and a value must follow the keyword"),
            ("precedence ::1/128", "a prefix and a value must follow the keyword"),
            ("label ::1/129 0", r#""::1/129" is no prefix that fits the keyword"#),
            ("label ::1/ 0", r#""::1/" is no prefix that fits the keyword"#),
            ("label ::1/+8 0", r#""::1/+8" is no prefix that fits the keyword"#),
            ("label 192.0.2.0/24 0", r#""192.0.2.0/24" is no prefix that fits the keyword"#),
            ("label fe80::%eth0/64 0", r#""fe80::%eth0/64" is no prefix that fits the keyword"#),
            ("scopev4 10.0.0.0/33 5", r#""10.0.0.0/33" is no prefix that fits the keyword"#),
            ("scopev4 ::ffff:0:0/95 5", r#""::ffff:0:0/95" is no prefix that fits the keyword"#),
            ("scopev4 fe80::/100 5", r#""fe80::/100" is no prefix that fits the keyword"#),
            ("label ::1/128 -1", r#""-1" is no number from 0 to 2147483647"#),
            ("label ::1/128 2147483648", r#""2147483648" is no number from 0 to 2147483647"#),
            ("label ::1/128 high", r#""high" is no number from 0 to 2147483647"#),
            (
                &long,
                r#""99999999999999999999999999999999999999999999999999" is no number from 0 to 2147483647"#,
            ),
        ] {
            let text = format!("precedence ::/0 1\n{line}\nprecedence ::1/128 2147483647\n");
            let (policy, bad) = PolicyTable::parse_gai_conf(&text);
            assert_eq!(bad.len(), 1, "{line}");
            assert_eq!(bad[0].to_string(), format!("line 2: {said}"));
            let precedence = |address: &str| policy.precedence(address.parse().unwrap());
            assert_eq!((precedence("::1"), precedence("::2")), (2_147_483_647, 1), "{line}");
            assert_eq!(policy.label("::1".parse().unwrap()), 0, "{line}");
        }
    }

    #[test]
    fn rules_are_bounded() {
        let text = "label ::/0 1\n".repeat(MOST_RULES) + "precedence ::/0 1\nlabel ::1/128 7\n";
        let (policy, bad) = PolicyTable::parse_gai_conf(&text);
        assert_eq!(bad, [BadLine { line: MOST_RULES + 2, problem: Problem::TooMany }]);
        assert_eq!(policy.label("::1".parse().unwrap()), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            // Miri takes its time, and lets nobody look for a file.
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), address in any::<u128>()) {
            let (policy, _) = PolicyTable::parse_gai_conf(&text);
            let address = IpAddr::from(Ipv6Addr::from_bits(address));
            let _ = (policy.precedence(address), policy.label(address), policy.scope(address));
        }

        #[test]
        fn no_line_makes_it_panic(
            lines in prop::collection::vec(
                "(label|precedence|scopev4|reload)[ \t][0-9a-f:./%+-]{0,20}[ #][0-9-]{0,12}", 0..20,
            ),
        ) {
            let (_, bad) = PolicyTable::parse_gai_conf(&lines.join("\n"));
            prop_assert!(bad.iter().all(|bad| (1..=lines.len()).contains(&bad.line)));
        }

        /// What was written is looked up by the longest of all prefixes that fit.
        #[test]
        fn the_longest_prefix_wins(
            rules in prop::collection::vec((any::<u128>(), 0..=128_u8, 0..=2_147_483_647_u32), 1..20),
            address in any::<u128>(),
            of in any::<prop::sample::Index>(),
            keep in 0..=128_u32,
        ) {
            // An address that shares bits with one of the prefixes.
            let near = rules[of.index(rules.len())].0;
            let mask = u128::MAX.checked_shl(128 - keep).unwrap_or(0);
            let address = Ipv6Addr::from_bits((near & mask) | (address & !mask));
            let text: String = rules
                .iter()
                .map(|(prefix, bits, value)| {
                    format!("label {}/{bits} {value}\n", Ipv6Addr::from_bits(*prefix))
                })
                .collect();
            let (policy, bad) = PolicyTable::parse_gai_conf(&text);
            prop_assert_eq!(bad, []);
            let fits = |(prefix, bits, _): &&(u128, u8, u32)| {
                (0..u32::from(*bits)).all(|bit| {
                    let bit = 1_u128 << (127 - bit);
                    prefix & bit == address.to_bits() & bit
                })
            };
            // Of several the first: `max_by_key` would take the last.
            let longest = rules.iter().rev().filter(fits).max_by_key(|(_, bits, _)| *bits);
            let label = longest.map_or(1, |(_, _, value)| *value);
            prop_assert_eq!(policy.label(address.into()), label);
        }
    }
}
