//! Where a connection would come from, as the real kernel says it, and as it then does.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::process::Command;

use lastbyte_link::{LinkError, Namespace};
use lastbyte_socket::{ConnectOptions, SocketOptions, source_of};
use lastbyte_sys::netlink::Interface;
use lastbyte_sys::socket;

use crate::support::open_descriptors;

/// A host with two links, each with addresses of its own. All goes by the first; what is marked with 7
/// by the second.
const TWO_LINKS: &str = "
    link set lo up
    link add one type veth peer name far-one
    link add two type veth peer name far-two
    link set far-one addrgenmode none
    link set far-two addrgenmode none
    link set one addrgenmode none
    link set two addrgenmode none
    link set far-one up
    link set far-two up
    link set one up
    link set two up
    address add 192.0.2.1/24 dev one
    address add 198.51.100.1/24 dev two
    -6 address add 2001:db8:1::1/64 dev one nodad
    -6 address add 2001:db8:2::1/64 dev two nodad
    -6 address add fe80::1/64 dev one nodad
    -6 address add fe80::2/64 dev two nodad
    route add default via 192.0.2.2
    -6 route add default via 2001:db8:1::2
    route add default via 198.51.100.2 table 77
    -6 route add default via 2001:db8:2::2 table 77
    rule add fwmark 7 lookup 77
    -6 rule add fwmark 7 lookup 77
    route add unreachable 203.0.113.128/25";

/// A host of its own, set up; says so where that is not possible.
fn host(setup: &str) -> Option<Namespace> {
    match Namespace::create() {
        Ok(host) => is_set_up(&host, setup).then_some(host),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Gives a host devices, addresses and routes, each by a command of `ip(8)`.
fn is_set_up(host: &Namespace, setup: &str) -> bool {
    let refused = || {
        let mut commands = setup.lines().map(str::trim).filter(|command| !command.is_empty());
        commands.find_map(|command| match Command::new("ip").args(command.split(' ')).output() {
            Ok(said) if said.status.success() => None,
            said => Some(format!("ip {command}: {said:?}")),
        })
    };
    let refused = host.run(refused).unwrap();
    if let Some(refused) = &refused {
        lastbyte_testing::not_tested!("{refused}");
    }
    refused.is_none()
}

fn ip(text: &str) -> Option<IpAddr> {
    (!text.is_empty()).then(|| text.parse().unwrap())
}

fn by(change: fn(&mut ConnectOptions)) -> ConnectOptions {
    let mut how = ConnectOptions::default();
    change(&mut how);
    how
}

#[test]
fn mark_interface_and_sources_decide_as_they_do_for_a_connection() {
    let Some(host) = host(TWO_LINKS) else { return };
    let plain = by(|_| {});
    let marked = by(|how| how.socket.mark = Some(7));
    let second = by(|how| how.socket.interface = Some("two".into()));
    let gone = by(|how| how.socket.interface = Some("three".into()));
    let from_two = by(|how| how.sources = vec!["198.51.100.1".parse().unwrap()]);
    let from_both = by(|how| {
        how.sources = vec!["2001:db8:2::1".parse().unwrap(), "198.51.100.1".parse().unwrap()];
    });
    let of_another = by(|how| how.sources = vec!["192.0.2.77".parse().unwrap()]);
    let on_link = by(|how| how.sources = vec!["fe80::2".parse().unwrap()]);
    host.run(|| {
        let index = Interface::named("two").unwrap().index().to_string();
        for (what, how, peer, source) in [
            ("by the default route", &plain, "203.0.113.1:80", "192.0.2.1"),
            ("by the default route", &plain, "[2001:db8:3::1]:80", "2001:db8:1::1"),
            ("a neighbour", &plain, "198.51.100.9:80", "198.51.100.1"),
            ("a neighbour", &plain, "[2001:db8:2::9]:80", "2001:db8:2::1"),
            ("this host", &plain, "127.0.0.1:80", "127.0.0.1"),
            ("this host", &plain, "[::1]:80", "::1"),
            ("this host", &plain, "198.51.100.1:80", "198.51.100.1"),
            ("by a mapped address", &plain, "[::ffff:203.0.113.1]:80", "::ffff:192.0.2.1"),
            ("marked", &marked, "203.0.113.1:80", "198.51.100.1"),
            ("marked", &marked, "[2001:db8:3::1]:80", "2001:db8:2::1"),
            ("by an interface", &second, "203.0.113.1:80", "198.51.100.1"),
            ("by an interface", &second, "[2001:db8:2::9]:80", "2001:db8:2::1"),
            ("by an interface that is not there", &gone, "203.0.113.1:80", ""),
            ("from a source", &from_two, "203.0.113.1:80", "198.51.100.1"),
            ("from a source of another family", &from_two, "[2001:db8:3::1]:80", ""),
            ("from a source of each", &from_both, "[2001:db8:3::1]:80", "2001:db8:2::1"),
            ("from a source of each", &from_both, "203.0.113.1:80", "198.51.100.1"),
            ("from a source that is not ours", &of_another, "203.0.113.1:80", ""),
            ("on a link", &plain, "[fe80::9%INDEX]:80", "fe80::2"),
            ("on a link, from a source", &on_link, "[fe80::9%INDEX]:80", "fe80::2"),
            ("on no link", &plain, "[fe80::9]:80", ""),
            ("where no way leads", &plain, "203.0.113.129:80", ""),
            ("a group", &plain, "224.0.0.1:80", ""),
            ("a group", &plain, "[ff0e::1]:80", ""),
            ("all of a network", &plain, "192.0.2.255:80", ""),
        ] {
            let address: SocketAddr = peer.replace("INDEX", &index).parse().unwrap();
            assert_eq!(source_of(address, how), ip(source), "{peer} {what}");
            assert_eq!(source_of_connection(address, how), ip(source), "{peer} {what}, over TCP");
        }
    })
    .unwrap();
}

/// The address that a TCP connection has once its SYN is sent.
fn source_of_connection(peer: SocketAddr, how: &ConnectOptions) -> Option<IpAddr> {
    let tcp = TcpStream::from(socket::open_tcp(peer).unwrap());
    tcp.set_nonblocking(true).unwrap();
    how.socket.apply_to(&tcp).ok()?;
    match how.sources.iter().find(|source| source.is_ipv6() == peer.is_ipv6()) {
        Some(IpAddr::V6(source)) => {
            let scope = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
            socket::bind(&tcp, SocketAddrV6::new(*source, 0, 0, scope).into()).ok()?;
        }
        Some(source) => socket::bind(&tcp, (*source, 0).into()).ok()?,
        None if how.sources.is_empty() => {}
        None => return None,
    }
    socket::begin_connect(&tcp, peer).ok()?;
    Some(tcp.local_addr().unwrap().ip())
}

#[test]
fn without_a_route_there_is_no_source() {
    let Some(host) = host("link set lo up") else { return };
    host.run(|| {
        let source = |peer: &str| source_of(peer.parse().unwrap(), &ConnectOptions::default());
        assert_eq!(source("203.0.113.1:80"), None);
        assert_eq!(source("[2001:db8::1]:80"), None);
        assert_eq!(source("127.0.0.1:80"), ip("127.0.0.1"));
    })
    .unwrap();
}

/// Of IPv4 alone, so that the kernel itself sends nothing.
const A_QUIET_LINK: &str = "
    link add two type veth peer name far-two
    link set far-two up
    link set two up
    address add 198.51.100.1/24 dev two";

#[test]
fn no_packet_is_sent_and_no_descriptor_is_left() {
    let Some(host) = host("") else { return };
    // A kernel without IPv6 has no such setting.
    let _ = host.set_sysctl("ipv6/conf/default/disable_ipv6", "1");
    if !is_set_up(&host, A_QUIET_LINK) {
        return;
    }
    host.run(|| {
        let how = ConnectOptions::default()
            .socket(SocketOptions::default().mark(7).interface("two"))
            .sources(vec!["198.51.100.1".parse().unwrap()]);
        let peer = |last| SocketAddr::from(([198, 51, 100, last], 80));
        let sent = || Interface::named("two").unwrap().counters().unwrap().tx_packets;
        let (packets, descriptors) = (sent(), open_descriptors());
        for last in 2..202 {
            assert!(source_of(peer(last), &how).is_some());
        }
        assert_eq!(sent(), packets);
        // Other tests of this file run beside this one.
        assert!(open_descriptors() < descriptors + 100);
    })
    .unwrap();
}
