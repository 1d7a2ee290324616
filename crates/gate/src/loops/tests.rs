use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use lastbyte_socket::{ConnectOptions, Stream};

use super::*;
use crate::config::Limits;
use crate::limits::Admission;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn listening(addresses: &[&str]) -> OwnAddresses {
    let own = |text: &&str| ListenAddress { address: at(text), only_ipv6: false };
    let listeners = OwnAddresses::default();
    listeners.set(addresses.iter().map(own).collect());
    listeners
}

/// An address of this host that is not loopback, if it has one: where it would send from.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.99:9").ok()?;
    socket.local_addr().ok().map(|local| local.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn an_address_of_its_own_is_known_however_it_is_written() {
    let one = listening(&["127.0.0.1:80", "[::1]:81", "[fe80::1%2]:82"]);
    for own in ["127.0.0.1:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::ffff:0.0.0.0]:80"] {
        assert!(one.is_own(at(own)), "{own}");
    }
    for own in ["[::1]:81", "[::]:81", "[fe80::1%2]:82", "[fe80::1]:82"] {
        assert!(one.is_own(at(own)), "{own}");
    }
    for other in ["127.0.0.1:81", "127.0.0.2:80", "[::1]:80", "192.0.2.1:80", "[fe80::1%3]:82"] {
        assert!(!one.is_own(at(other)), "{other}");
    }
    assert!(!listening(&[]).is_own(at("127.0.0.1:80")));
    one.set(Vec::new());
    assert!(!one.is_own(at("127.0.0.1:80")), "a reload has taken it away");
    let mapped = listening(&["[::ffff:127.0.0.1]:80"]);
    assert!(mapped.is_own(at("127.0.0.1:80")));
}

#[test]
fn a_listener_on_all_addresses_has_all_of_this_host() {
    let (v4, v6) = (listening(&["0.0.0.0:80"]), listening(&["[::]:80"]));
    for own in ["127.0.0.1:80", "127.9.9.9:80", "0.0.0.0:80"] {
        assert!(v4.is_own(at(own)) && v6.is_own(at(own)), "{own}");
    }
    for own in ["[::1]:80", "[::]:80"] {
        assert!(!v4.is_own(at(own)) && v6.is_own(at(own)), "{own}");
    }
    for other in ["127.0.0.1:81", "198.51.100.1:80", "[2001:db8::1]:80"] {
        assert!(!v4.is_own(at(other)) && !v6.is_own(at(other)), "{other}");
    }
    let alone = OwnAddresses::default();
    alone.set(vec![ListenAddress { address: at("[::]:80"), only_ipv6: true }]);
    assert!(alone.is_own(at("[::1]:80")) && !alone.is_own(at("127.0.0.1:80")));
    match own_address() {
        Some(ip) => assert!(v4.is_own((ip, 80).into()), "{ip}"),
        None => lastbyte_testing::not_tested!("this host has no address but loopback"),
    }
}

#[test]
fn the_kernel_says_where_a_listener_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = ListenAddress::of(&listener).unwrap();
    assert_eq!(own, ListenAddress { address: listener.local_addr().unwrap(), only_ipv6: false });
    let all = TcpListener::bind("[::]:0").unwrap();
    assert_eq!(ListenAddress::of(&all).unwrap().address, all.local_addr().unwrap());
    assert!(ListenAddress::of(&std::fs::File::open("/dev/null").unwrap()).is_err());
}

#[test]
fn hops_are_read_over_loopback_alone() {
    let ethernet = |kind: [u8; 2]| [&[0; 12][..], &kind].concat();
    let v4 = [0x45, 0, 0, 60, 0, 0, 0x40, 0, 17, 6];
    let v6 = [0x60, 0, 0, 0, 0, 40, 6, 23, 0];
    let four = [&ethernet([8, 0])[..], &v4].concat();
    let six = [&ethernet([0x86, 0xDD])[..], &v6].concat();
    assert_eq!((hops_over_loopback(&four), hops_over_loopback(&six)), (Some(17), Some(23)));
    let mut far = four.clone();
    far[3] = 1;
    let mixed = [&ethernet([8, 0])[..], &v6].concat();
    for syn in [&far[..], &mixed, &v4, &[], &four[..14], &four[..22], &six[..21], &[0; 80]] {
        assert_eq!(hops_over_loopback(syn), None, "{syn:?}");
    }
}

/// The pass of a client with so many flows, which count as long as the others are kept.
fn pass(client: IpAddr, flows: usize) -> (FlowPass, Vec<FlowPass>) {
    let admission = Admission::new(Limits::default());
    let mut passes: Vec<_> = (0..flows).map(|_| admission.admit(client, &[]).unwrap()).collect();
    (passes.pop().unwrap(), passes)
}

/// A flow that goes round: each time it is accepted, and sent on as the gate would do it.
fn rounds(listen: &str, connect: impl Fn(SocketAddr) -> SocketAddr) -> Option<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = TcpListener::bind(listen).unwrap();
    let to = connect(listener.local_addr().unwrap());
    if let Err(error) = watch(&listener) {
        lastbyte_testing::not_tested!("this kernel keeps no SYN: {error}");
        return None;
    }
    let (pass, _others) = pass(to.ip(), SUSPICIOUS + 1);
    runtime.block_on(async {
        let mut how = ConnectOptions::default();
        let mut kept = Vec::new();
        for round in 1..300 {
            let connect = Stream::connect_with(to, &how);
            let connected = tokio::time::timeout(Duration::from_secs(10), connect).await.unwrap();
            kept.push(connected.unwrap());
            let (accepted, _) = listener.accept().unwrap();
            match hop_limit_for(&pass, &accepted) {
                Ok(hops) => how.hop_limit = Some(hops.expect("it is on this host")),
                Err(how) => {
                    assert_eq!(how, How::Loop);
                    return Some(round);
                }
            }
            kept.truncate(2);
        }
        panic!("it goes round for ever");
    })
}

fn hops(file: &str) -> usize {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[test]
fn a_circle_ends_when_the_hops_do() {
    let (v4, v6) =
        (hops("/proc/sys/net/ipv4/ip_default_ttl"), hops("/proc/sys/net/ipv6/conf/lo/hop_limit"));
    let (Some(four), Some(six)) = (rounds("127.0.0.1:0", |to| to), rounds("[::1]:0", |to| to))
    else {
        return;
    };
    assert_eq!((four, six), (v4, v6));
    let mapped = rounds("[::]:0", |all| at(&format!("[::ffff:127.0.0.1]:{}", all.port())));
    assert_eq!(mapped, Some(v4));
    match own_address() {
        Some(ip) => assert_eq!(rounds("0.0.0.0:0", |all| (ip, all.port()).into()), Some(v4)),
        None => lastbyte_testing::not_tested!("this host has no address but loopback"),
    }
}

#[test]
fn clients_with_few_flows_are_not_looked_at() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, client) = listener.accept().unwrap();
    let (few, _others) = pass(client.ip(), SUSPICIOUS);
    assert_eq!(hop_limit_for(&few, &accepted), Ok(None));
    // Its SYN was not kept: nothing is known, and the flow goes on.
    let (many, _others) = pass(client.ip(), SUSPICIOUS + 1);
    assert_eq!(hop_limit_for(&many, &accepted), Ok(None));
}
