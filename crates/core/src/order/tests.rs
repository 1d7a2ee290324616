//! The rules: by the RFC's examples, by their own words, and by the laws of an order.

use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;

/// A destination, and the source that the kernel would choose.
fn from(address: &str, source: &str) -> Destination {
    let source = Some(Source::new(source.parse().unwrap()));
    Destination { address: address.parse().unwrap(), source }
}

/// The same, with something to be said of its source.
fn with(destination: Destination, change: fn(&mut Source)) -> Destination {
    let mut source = destination.source.unwrap();
    change(&mut source);
    Destination { source: Some(source), ..destination }
}

#[track_caller]
fn assert_order(policy: &PolicyTable, first: Destination, second: Destination, order: Ordering) {
    assert_eq!(compare(policy, &first, &second), order, "{first:?} and {second:?}");
    assert_eq!(compare(policy, &second, &first), order.reverse(), "{second:?} and {first:?}");
}

/// RFC 6724, section 10.2, with the sources that it names: what it puts first, and what second.
#[test]
fn the_examples_of_section_10_2() {
    let care_of = |source: &mut Source| source.care_of = true;
    let deprecated = |source: &mut Source| source.deprecated = true;
    let global = from("2001:db8:1::1", "2001:db8:1::2");
    let link_local = from("fe80::1", "fe80::2");
    let six_to_four = from("2002:c633:6401::1", "2002:c633:6401::2");
    let policy = PolicyTable::default();
    for (first, second) in [
        // Prefer matching scope.
        (global, from("198.51.100.121", "169.254.13.78")),
        (from("198.51.100.121", "198.51.100.117"), from("2001:db8:1::1", "fe80::1")),
        // Prefer higher precedence.
        (global, from("10.1.2.3", "10.1.2.4")),
        // Prefer smaller scope.
        (link_local, global),
        // Prefer home address.
        (from("2001:db8:1::1", "2001:db8:3::1"), with(link_local, care_of)),
        // Avoid deprecated addresses.
        (global, with(link_local, deprecated)),
        // Prefer matching label.
        (six_to_four, from("2001:db8:1::1", "2002:c633:6401::2")),
        // Prefer higher precedence.
        (global, six_to_four),
    ] {
        assert_order(&policy, first, second, Ordering::Less);
    }
    // The longest matching prefix would decide: rule 9.
    let other = from("2001:db8:3ffe::1", "2001:db8:3f44::2");
    assert_order(&policy, global, other, Ordering::Equal);
}

/// RFC 6724, section 10.3: how a site prefers IPv4, and what it does not change.
#[test]
fn a_site_may_prefer_ipv4() {
    let (policy, bad) = PolicyTable::parse_gai_conf(
        "precedence ::1/128 50\nprecedence ::/0 40\nprecedence ::ffff:0:0/96 100\n\
         precedence 2002::/16 30\nprecedence 2001::/32 5\nprecedence fc00::/7 3\n\
         precedence ::/96 1\nprecedence fec0::/10 1\nprecedence 3ffe::/16 1\n",
    );
    assert_eq!(bad, []);
    let (ipv6, ipv4) =
        (from("2001:db8::1", "2001:db8::2"), from("198.51.100.121", "198.51.100.117"));
    assert_order(&PolicyTable::default(), ipv6, ipv4, Ordering::Less);
    assert_order(&policy, ipv4, ipv6, Ordering::Less);
    let unmatched = from("198.51.100.121", "169.254.13.78");
    assert_order(&policy, ipv6, unmatched, Ordering::Less);
}

#[test]
fn each_rule_decides_where_those_before_tie() {
    let policy = PolicyTable::default();
    let global = from("2001:db8:1::1", "2001:db8:1::2");
    let same = from("2001:db8:2::1", "2001:db8:1::2");
    assert_order(&policy, global, same, Ordering::Equal);
    let unusable = Destination { source: None, ..global };
    for (rule, first, second) in [
        (1, from("fec0::1", "fe80::1"), unusable),
        (2, with(global, |source| source.deprecated = true), from("fec0::1", "2001:db8:1::2")),
        (3, with(global, |source| source.care_of = true), with(same, |s| s.deprecated = true)),
        (4, from("2001:db8::1", "2002::1"), with(global, |source| source.care_of = true)),
        (5, from("fd00::1", "fd00::2"), from("2001:db8::1", "2002::1")),
        (6, with(global, |source| source.tunnel = true), from("fd00::1", "fd00::2")),
        (7, global, with(same, |source| source.tunnel = true)),
        (8, from("fe80::1", "fe80::2"), global),
    ] {
        assert_eq!(compare(&policy, &first, &second), Ordering::Less, "rule {rule}");
        assert_eq!(compare(&policy, &second, &first), Ordering::Greater, "rule {rule}");
    }
    // Without sources the precedence of the destinations still counts, and their scope.
    let no_source = |address: &str| Destination { address: address.parse().unwrap(), source: None };
    assert_order(&policy, no_source("2001:db8::1"), no_source("192.0.2.1"), Ordering::Less);
    assert_order(&policy, no_source("fe80::1"), no_source("2001:db8::1"), Ordering::Less);
    assert_order(&policy, no_source("192.0.2.1"), no_source("10.0.0.1"), Ordering::Equal);
}

/// Equal addresses behind one another's source stay equal: what chance then shares.
#[test]
fn many_addresses_of_a_service_are_equal() {
    let policy = PolicyTable::default();
    let near = from("198.51.100.1", "198.51.100.117");
    for address in ["198.51.100.2", "198.51.100.118", "203.0.113.9", "10.0.0.1", "8.8.8.8"] {
        assert_order(&policy, near, from(address, "198.51.100.117"), Ordering::Equal);
    }
}

/// The rules 1 to 8 as the RFC words them, one after the other.
fn by_the_letter(policy: &PolicyTable, a: &Destination, b: &Destination) -> Ordering {
    let prefer = |a: bool, b: bool| b.cmp(&a);
    let (Some(source_a), Some(source_b)) = (a.source, b.source) else {
        return prefer(a.source.is_some(), b.source.is_some())
            .then(policy.precedence(b.address).cmp(&policy.precedence(a.address)))
            .then(policy.scope(a.address).cmp(&policy.scope(b.address)));
    };
    let scopes = |of: IpAddr, source: Source| policy.scope(of) == policy.scope(source.address);
    let labels = |of: IpAddr, source: Source| policy.label(of) == policy.label(source.address);
    let rules = [
        prefer(scopes(a.address, source_a), scopes(b.address, source_b)),
        prefer(!source_a.deprecated, !source_b.deprecated),
        prefer(!source_a.care_of, !source_b.care_of),
        prefer(labels(a.address, source_a), labels(b.address, source_b)),
        policy.precedence(b.address).cmp(&policy.precedence(a.address)),
        prefer(!source_a.tunnel, !source_b.tunnel),
        policy.scope(a.address).cmp(&policy.scope(b.address)),
    ];
    rules.into_iter().find(|rule| rule.is_ne()).unwrap_or(Ordering::Equal)
}

/// Addresses of every kind that the rules know, and others.
fn address() -> impl Strategy<Value = IpAddr> {
    const KINDS: [&str; 18] = [
        "::1",
        "::",
        "::2",
        "fe80::1",
        "fec0::1",
        "fd00::1",
        "fc00::2",
        "2001:db8::1",
        "2001::1",
        "2002:c000:201::1",
        "3ffe::1",
        "ff02::1",
        "ff0e::1",
        "::ffff:192.0.2.1",
        "192.0.2.1",
        "10.0.0.1",
        "169.254.0.1",
        "127.0.0.1",
    ];
    prop_oneof![
        4 => prop::sample::select(&KINDS[..]).prop_map(|text| text.parse().unwrap()),
        1 => any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
        1 => any::<[u8; 4]>().prop_map(IpAddr::from),
    ]
}

fn destination() -> impl Strategy<Value = Destination> {
    let source = (address(), any::<[bool; 3]>()).prop_map(|(address, is)| {
        let [deprecated, care_of, tunnel] = is;
        Source { address, deprecated, care_of, tunnel }
    });
    (address(), prop::option::weighted(0.9, source))
        .prop_map(|(address, source)| Destination { address, source })
}

/// The default table, and others, so that lists of them meet every rule.
fn policy() -> impl Strategy<Value = PolicyTable> {
    let line = (
        prop::sample::select(&["label", "precedence"][..]),
        address().prop_filter("IPv6 alone", IpAddr::is_ipv6),
        0..=128_u8,
        0..4_u8,
    )
        .prop_map(|(keyword, address, bits, value)| {
            format!("{keyword} {address}/{bits} {value}\n")
        });
    let changed = prop::collection::vec(line, 0..12).prop_map(|lines| {
        let (policy, bad) = PolicyTable::parse_gai_conf(&lines.concat());
        assert_eq!(bad, []);
        policy
    });
    prop_oneof![Just(PolicyTable::default()), changed]
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Miri takes its time, and lets nobody look for a file.
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_does_what_the_rules_say(policy in policy(), a in destination(), b in destination()) {
        prop_assert_eq!(compare(&policy, &a, &b), by_the_letter(&policy, &a, &b));
    }

    #[test]
    fn it_is_a_total_preorder(
        policy in policy(),
        (a, b, c) in (destination(), destination(), destination()),
    ) {
        let order = |a, b| compare(&policy, a, b);
        prop_assert_eq!(order(&a, &a), Ordering::Equal);
        prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
        if order(&a, &b).is_le() && order(&b, &c).is_le() {
            prop_assert!(order(&a, &c).is_le());
        }
        // Equals stand alike to all others.
        if order(&a, &b).is_eq() {
            prop_assert_eq!(order(&a, &c), order(&b, &c));
        }
    }
}
