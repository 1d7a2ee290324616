//! Routes, as `ip(8)` and connections see them.

use std::net::{SocketAddr, TcpListener, TcpStream};

use lastbyte_congestion::available;
use lastbyte_host::NetworkNamespace;
use lastbyte_sys::netlink::Interface;
use lastbyte_sys::tcp;

use super::*;

/// Where to, the words of `ip(8)` that show the route, and what they show.
const LIKE_BEFORE: [(&str, &str, &str); 10] = [
    (
        "203.0.113.7",
        "route show 203.0.113.7",
        "203.0.113.7 via 192.0.2.2 dev one proto 108 src 192.0.2.1 mtu lock 1400 initcwnd 20 \
             rto_min lock 50ms congctl reno",
    ),
    (
        "203.0.112.0/24",
        "route show 203.0.112.0/24",
        "203.0.112.0/24 via 192.0.2.2 dev one proto 108 src 192.0.2.1 mtu lock 1400 initcwnd 20 \
             rto_min lock 50ms congctl reno",
    ),
    // A neighbour.
    (
        "192.0.2.77",
        "route show 192.0.2.77",
        "192.0.2.77 dev one proto 108 scope link src 192.0.2.1 congctl reno",
    ),
    // Several ways, a gateway of the other family, a gateway that no address speaks for.
    (
        "203.0.113.129",
        "route show 203.0.113.129",
        "203.0.113.129 proto 108 congctl reno nexthop via 192.0.2.2 dev one weight 2 nexthop via \
             198.51.100.2 dev two weight 1",
    ),
    (
        "203.0.113.65",
        "route show 203.0.113.65",
        "203.0.113.65 via inet6 2001:db8:1::2 dev one proto 108 congctl reno",
    ),
    (
        "203.0.113.33",
        "route show 203.0.113.33",
        "203.0.113.33 via 10.9.9.9 dev one proto 108 onlink congctl reno",
    ),
    (
        "2001:db8:9::7",
        "-6 route show 2001:db8:9::7",
        "2001:db8:9::7 via 2001:db8:1::2 dev one proto 108 metric 1024 mtu 1400 hoplimit 60 \
             congctl reno pref medium",
    ),
    (
        "2001:db8:9::/48",
        "-6 route show 2001:db8:9::/48",
        "2001:db8:9::/48 via 2001:db8:1::2 dev one proto 108 metric 1024 mtu 1400 hoplimit 60 \
             congctl reno pref medium",
    ),
    (
        "2001:db8:1::77",
        "-6 route show 2001:db8:1::77",
        "2001:db8:1::77 dev one proto 108 metric 1024 congctl reno pref medium",
    ),
    (
        "2001:db8:7::7",
        "-6 route show 2001:db8:7::7",
        "2001:db8:7::7 proto 108 metric 1024 congctl reno pref medium nexthop via 2001:db8:1::2 \
             dev one weight 2 nexthop via 2001:db8:2::2 dev two weight 1",
    ),
];

#[test]
fn a_route_is_added_like_the_one_taken_before_and_taken_back() {
    let Some(host) = Host::new(HOST) else { return };
    let before = host.routes();
    for (to, show, shown) in LIKE_BEFORE {
        let applied = host.apply(&route_to(to, OTHER)).unwrap();
        assert_eq!(in_order(&host.ip(show)), in_order(shown));
        let told = applied.to_string();
        assert!(told.contains("until the next boot"), "{told}");
        assert!(told.ends_with(&format!("`lastbyte undo {}` takes it back", applied.id)), "{told}");
        let kept = serde_json::to_string(&applied.change).unwrap();
        assert_eq!(serde_json::from_str::<Change>(&kept).unwrap(), applied.change, "{kept}");
        // Twice: what is gone is done.
        assert_eq!(host.undo(applied.id).unwrap().state, State::Undone);
        assert_eq!(host.told_at_take_back(&applied.change), Vec::<String>::new());
        assert_eq!(host.routes(), before, "{to}");
    }
    assert_eq!(host.ledger.open_changes().unwrap(), []);
}

/// A route as `ip` shows it, its next hops sorted: in which order IPv6 lists them differs between kernels.
fn in_order(shown: &str) -> Vec<String> {
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts: Vec<String> = words.split(" nexthop ").map(str::to_owned).collect();
    parts[1..].sort();
    parts
}

#[test]
fn what_has_a_route_or_is_no_other_host_is_refused_in_one_sentence() {
    let Some(host) = Host::new(HOST) else { return };
    host.ip("route add 203.0.113.7 via 198.51.100.2 dev two proto static metric 7 mtu 1300");
    host.ip("route add 203.0.113.8 via 192.0.2.2 congctl reno");
    host.ip("route add unreachable 203.0.113.9");
    host.ip("nexthop add id 5 via 192.0.2.2 dev one");
    host.ip("route add 198.18.4.0/24 nhid 5");
    host.ip("route add 198.18.0.0/24 via 198.51.100.2");
    host.ip("rule add to 203.0.112.0/24 lookup 77");
    host.ip("route add default via 198.51.100.2 dev two table 77");
    host.ip("-6 route add 2001:db8:8::/48 via 2001:db8:1::2");
    for (to, told) in [
        (
            "203.0.113.7",
            "; by hand: ip route change 203.0.113.7/32 via 198.51.100.2 dev two proto static metric 7 \
             mtu 1300 congctl reno",
        ),
        ("203.0.113.8", "there is a route to 203.0.113.8/32 already, and its congctl is reno"),
        ("203.0.113.9", "there is a route to 203.0.113.9/32 already"),
        (
            "0.0.0.0/0",
            "by hand: ip route change default via 192.0.2.2 dev one proto dhcp metric 100 src \
             192.0.2.1 mtu lock 1400 initcwnd 20 rto_min 50ms congctl reno",
        ),
        (
            "203.0.113.128/25",
            "by hand: ip route change 203.0.113.128/25 congctl reno nexthop via 192.0.2.2 dev one \
             weight 2 nexthop via 198.51.100.2 dev two weight 1",
        ),
        (
            "2001:db8:8::/48",
            "by hand: ip -6 route change 2001:db8:8::/48 via 2001:db8:1::2 dev one metric 1024 congctl \
             reno",
        ),
        (
            "192.0.2.0/24",
            "by hand: ip route change 192.0.2.0/24 dev one proto kernel src 192.0.2.1",
        ),
        ("198.18.4.1", "is one that lastbyte cannot make another like (a next-hop object"),
        ("198.18.4.0/24", "which lastbyte does not change; see `ip route show 198.18.4.0/24`"),
        ("192.0.2.1", "192.0.2.1 is this machine's own address"),
        ("2001:db8:1::1", "2001:db8:1::1 is this machine's own address"),
        ("192.0.2.255", "192.0.2.255 is not the address of a host"),
        ("127.0.0.1", "127.0.0.1/32 is this machine itself"),
        ("::1", "::1/128 is this machine itself"),
        ("224.0.0.1", "is a group"),
        ("ff02::1", "is a group"),
        ("255.255.255.255", "is not the address of a host"),
        ("0.0.0.0", "is the address of nobody"),
        ("fe80::1", "is of one link"),
        ("203.0.112.7", "is in table 77"),
        ("198.18.0.0/15", "198.18.0.0/24, which is part of 198.18.0.0/15, has a route of its own"),
    ] {
        let error = host.refused(&route_to(to, OTHER));
        assert!(error.contains(told), "{to}: {error}");
    }
    // Each line does what it says.
    for line in [
        "route change 203.0.113.7/32 via 198.51.100.2 dev two proto static metric 7 mtu 1300 congctl \
         cubic",
        "route change default via 192.0.2.2 dev one proto dhcp metric 100 src 192.0.2.1 mtu lock 1400 \
         initcwnd 20 rto_min 50ms congctl cubic",
        "-6 route change 2001:db8:8::/48 via 2001:db8:1::2 dev one metric 1024 congctl cubic",
    ] {
        host.ip(line);
    }
    let error = host.refused(&route_to("203.0.113.77", "no-such-thing"));
    assert!(error.contains("`no-such-thing` is not known: this kernel offers"), "{error}");
}

#[test]
fn a_connection_over_the_route_uses_it_and_others_do_not() {
    let Some(host) = Host::new("") else { return };
    let far = Namespace::create().unwrap();
    // Another than the default, whatever that is.
    let names = host.run(available).unwrap();
    let default = host.congestion_now();
    let Some(other) = names.iter().find(|name| **name != default) else {
        lastbyte_testing::not_tested!("this kernel has {default} alone");
        return;
    };
    let theirs = far.run(NetworkNamespace::current).unwrap().unwrap();
    let macs = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let pair = || lastbyte_sys::netlink::create_pair(("near", macs.0), ("far", macs.1), &theirs);
    host.run(pair).unwrap();
    let up = |name: &str, addresses: &[&str]| {
        let interface = Interface::named(name).unwrap();
        interface.set_up().unwrap();
        for address in addresses {
            let (address, bits) = address.split_once('/').unwrap();
            interface.add_address(address.parse().unwrap(), bits.parse().unwrap()).unwrap();
        }
    };
    host.run(|| up("near", &["192.0.2.1/24", "2001:db8:1::1/64"]));
    far.run(|| {
        up("far", &["192.0.2.2/24", "2001:db8:1::2/64", "203.0.113.7/32", "2001:db8:9::7/128"]);
    })
    .unwrap();
    host.ip("route add default via 192.0.2.2");
    host.ip("-6 route add default via 2001:db8:1::2");
    let used = |to: &str| {
        let to = SocketAddr::new(to.parse().unwrap(), 0);
        let listener = far.run(|| TcpListener::bind(to)).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        host.run(|| tcp::congestion(&TcpStream::connect(to).unwrap()).unwrap())
    };
    for (to, beside) in [("203.0.113.7", "192.0.2.2"), ("2001:db8:9::7", "2001:db8:1::2")] {
        assert_eq!(used(to), default);
        let applied = host.apply(&route_to(to, other)).unwrap();
        assert_eq!(used(to), *other);
        assert_eq!(used(beside), default);
        host.undo(applied.id).unwrap();
        assert_eq!(used(to), default);
    }
}

#[test]
fn a_kill_before_or_after_the_route_leaves_what_undo_takes_back() {
    let Some(host) = Host::new(HOST) else { return };
    let before = host.routes();
    let what = route_to("203.0.113.7", OTHER);
    for made in [false, true] {
        let change = host.run(|| plan(&host.places(), &host.ledger, &what)).unwrap();
        let id = host.ledger.plan(&change).unwrap();
        if made {
            assert!(host.run(|| make(&change)).is_ok());
            assert_ne!(host.routes(), before);
        }
        // Before it is taken back nobody else may have the same; after a boot it is gone.
        let error = host.apply(&what).unwrap_err().to_string();
        assert!(error.contains(&format!("`lastbyte undo {id}`")), "{error}");
        let rebooted = Ledger::at(host.ledger.path().to_owned(), "boot-2".to_owned());
        assert_eq!(rebooted.open_changes().unwrap(), []);
        let report = host.run(|| host.ledger.undo_all(&mut |_| {})).unwrap();
        assert_eq!((report.undone.len(), report.failed.len()), (1, 0));
        assert_eq!(host.routes(), before);
    }
}

#[test]
fn a_route_that_somebody_changed_or_made_since_is_left_alone() {
    let Some(host) = Host::new(HOST) else { return };
    for (to, ip, changed) in [
        ("203.0.113.7", "", "route change 203.0.113.7 via 192.0.2.2 dev one congctl reno"),
        (
            "203.0.113.7",
            "",
            "route change 203.0.113.7 via 192.0.2.9 dev one proto 108 congctl reno",
        ),
        (
            "203.0.113.7",
            "",
            "route change 203.0.113.7 via 192.0.2.2 dev one proto 108 congctl cubic",
        ),
        ("2001:db8:9::7", "-6 ", "route change 2001:db8:9::7 via 2001:db8:1::2 dev one proto 108"),
    ] {
        let applied = host.apply(&route_to(to, OTHER)).unwrap();
        host.ip(&format!("{ip}{changed}"));
        let theirs = host.routes();
        let told = host.told_at_take_back(&applied.change);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("is not the one that lastbyte made: it is left alone"),
            "{told:?}"
        );
        assert_eq!(host.undo(applied.id).unwrap().state, State::Undone);
        assert_eq!(host.routes(), theirs);
        host.ip(&format!("{ip}route del {to}"));
    }
}

#[test]
fn a_route_is_taken_back_in_its_own_network_under_another_name_and_without_its_device() {
    let Some(host) = Host::new(HOST) else { return };
    let applied = host.apply(&route_to("203.0.113.7", OTHER)).unwrap();
    let elsewhere = Namespace::create().unwrap();
    let error = elsewhere.run(|| host.ledger.undo(applied.id, &mut |_| {})).unwrap().unwrap_err();
    let error = error.to_string();
    assert!(error.contains("it is in the network namespace net:["), "{error}");
    assert_eq!(host.ledger.open_changes().unwrap().len(), 1);

    host.ip("link set one down");
    host.ip("link set one name renamed");
    host.ip("link set renamed up");
    host.undo(applied.id).unwrap();
    assert!(!host.routes().contains("proto 108"));

    host.ip("route add default via 198.51.100.2 dev two");
    let applied = host.apply(&route_to("203.0.113.7", OTHER)).unwrap();
    assert!(host.routes().contains("proto 108"));
    host.ip("link del two");
    assert_eq!(host.undo(applied.id).unwrap().state, State::Undone);
}

/// Rules send the lookup elsewhere once the route is there.
#[test]
fn a_route_that_the_kernel_does_not_take_goes_again() {
    let Some(host) = Host::new(HOST) else { return };
    // Of the table of the main routes only those to all: what wg-quick does the other way round.
    let change =
        host.run(|| plan(&host.places(), &host.ledger, &route_to("203.0.113.7", OTHER))).unwrap();
    host.ip("route add 203.0.113.0/24 via 198.51.100.2 table 77");
    host.ip("rule add to 203.0.113.0/24 lookup 77");
    let before = host.routes();
    let not_made = host.run(|| make(&change)).unwrap_err();
    assert!(not_made.left.is_none(), "{not_made:?}");
    let error = not_made.error.to_string();
    assert!(error.contains("does not take a new route to 203.0.113.7/32"), "{error}");
    assert_eq!(host.routes(), before);
}

#[test]
fn a_route_that_was_faster_stays_and_the_ledger_says_that_nothing_was_made() {
    let Some(host) = Host::new(HOST) else { return };
    let change =
        host.run(|| plan(&host.places(), &host.ledger, &route_to("203.0.113.7", OTHER))).unwrap();
    host.ip("route add 203.0.113.7 via 198.51.100.2 dev two");
    let before = host.routes();
    let not_made = host.run(|| make(&change)).unwrap_err();
    assert!(not_made.error.to_string().contains("has appeared meanwhile"), "{not_made:?}");
    assert!(not_made.left.is_none());
    assert_eq!(host.routes(), before);
}

#[test]
fn the_lines_do_what_they_say() {
    let Some(host) = Host::new(HOST) else { return };
    let lines = |to: Option<&str>| {
        let to = to.map(|to| to.parse().unwrap());
        host.run(|| ways::route_ways(to, OTHER))
            .into_iter()
            .flat_map(|way| way.lines)
            .collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for (to, expected) in [
        (
            Some("203.0.113.7"),
            &[
                "ip route add 203.0.113.7/32 via 192.0.2.2 dev one src 192.0.2.1 mtu lock 1400 initcwnd 20 \
               rto_min 50ms congctl reno",
            ][..],
        ),
        (Some("192.0.2.77"), &["ip route add 192.0.2.77/32 dev one src 192.0.2.1 congctl reno"]),
        (
            Some("203.0.113.129"),
            &[
                "ip route add 203.0.113.129/32 congctl reno nexthop via 192.0.2.2 dev one weight 2 nexthop \
               via 198.51.100.2 dev two weight 1",
            ],
        ),
        (
            Some("203.0.113.65"),
            &["ip route add 203.0.113.65/32 via inet6 2001:db8:1::2 dev one congctl reno"],
        ),
        (
            Some("2001:db8:9::7"),
            &[
                "ip -6 route add 2001:db8:9::7/128 via 2001:db8:1::2 dev one mtu 1400 hoplimit 60 congctl \
               reno",
            ],
        ),
        (
            None,
            &[
                "ip route change default via 192.0.2.2 dev one proto dhcp metric 100 src 192.0.2.1 mtu \
                 lock 1400 initcwnd 20 rto_min 50ms congctl reno",
                "ip -6 route change default via 2001:db8:1::2 dev one metric 1024 mtu 1400 hoplimit 60 \
                 congctl reno",
            ],
        ),
        (Some("127.0.0.1"), &[]),
        (Some("192.0.2.1"), &[]),
    ] {
        assert_eq!(lines(to), expected, "{to:?}");
        all.extend(lines(to));
    }
    for line in all {
        host.ip(line.strip_prefix("ip ").unwrap());
    }
    // What is there is changed.
    assert_eq!(
        lines(Some("192.0.2.77")),
        ["ip route change 192.0.2.77/32 dev one src 192.0.2.1 congctl reno"]
    );
}
