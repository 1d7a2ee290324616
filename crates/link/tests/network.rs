//! Real kernel TCP and UDP through networks of several hosts. Without the rights these tests say so and
//! pass.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lastbyte_link::topology::{MOST_HOSTS, MOST_LINKS};
use lastbyte_link::{
    Device, Host, Link, LinkError, Namespace, Network, Report, Scenario, Topology,
};

const MS: Duration = Duration::from_millis(1);
/// A way over two links whose round trips add up to 30 ms.
const LINE: &str = "[[links]]\nbetween = ['client', 'router']\nrtt = '10ms'\n\
                    [[links]]\nbetween = ['router', 'server']\nrtt = '20ms'\n";

fn topology(toml: &str) -> Topology {
    Topology::parse("test", toml).unwrap()
}

/// A network, or the reason aloud why this machine cannot make one.
fn network(toml: &str) -> Option<Network> {
    let network = Network::up(&topology(toml), 1);
    or_say_why(network)
}

fn or_say_why<T>(made: Result<T, LinkError>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The addresses that a host's name stands for, of each family that there is.
fn addresses(network: &Network, host: &str) -> Vec<IpAddr> {
    let plan = network.topology().host(host).unwrap();
    let v6 = plan.address_v6().filter(|_| network.has_ipv6()).map(IpAddr::V6);
    [Some(IpAddr::V4(plan.address())), v6].into_iter().flatten().collect()
}

/// Any address of the same family.
fn any(of: IpAddr) -> SocketAddr {
    if of.is_ipv4() { SocketAddr::from(([0; 4], 0)) } else { SocketAddr::from(([0; 16], 0)) }
}

/// A UDP socket on each of two hosts, connected, each with the address that the kernel chose.
fn sockets(
    network: &Network,
    near: &str,
    (far, address): (&str, IpAddr),
) -> (UdpSocket, UdpSocket) {
    let host = |name| network.host(name).unwrap();
    let far = host(far).run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
    let near = host(near).run(|| {
        let near = UdpSocket::bind(any(address)).unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        near
    });
    let near = near.unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(2000 * MS)).unwrap();
    }
    (near, far)
}

/// Makes round trips until one is as short as it has to be, but for what a busy machine adds to each
/// link. Returns how many.
fn round_trips((near, far): &(UdpSocket, UdpSocket), asked: Duration) -> u64 {
    let mut best = Duration::MAX;
    for trips in 1..=30 {
        let start = Instant::now();
        near.send(b"ping").unwrap();
        far.recv(&mut [0; 8]).unwrap();
        far.send(b"pong").unwrap();
        near.recv(&mut [0; 8]).unwrap();
        best = best.min(start.elapsed());
        assert!(best >= asked, "{best:?} instead of {asked:?}");
        if best < asked + 2 * MS {
            return trips;
        }
    }
    panic!("{best:?} instead of {asked:?}");
}

/// Sends bytes over TCP and gives back who the receiver saw.
fn carry(network: &Network, near: &str, (far, address): (&str, IpAddr), bytes: usize) -> IpAddr {
    let host = |name| network.host(name).unwrap();
    let listener = host(far).run(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut near = host(near).run(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut far, peer) = listener.accept().unwrap();
    let place = |at: usize| at.to_le_bytes()[0] ^ at.to_le_bytes()[1] ^ at.to_le_bytes()[2];
    let all: Vec<u8> = (0..bytes).map(place).collect();
    let expected = all.clone();
    let writer = std::thread::spawn(move || near.write_all(&all).unwrap());
    let mut got = Vec::new();
    far.set_read_timeout(Some(10_000 * MS)).unwrap();
    let read = far.read_to_end(&mut got);
    assert!(read.is_ok(), "{read:?} after {} bytes: {:?}", got.len(), network.report());
    writer.join().unwrap();
    assert!(got == expected, "{} bytes, or not the same", got.len());
    peer.ip()
}

/// How many packets went up and down each link.
fn packets(reports: &[(String, Report)]) -> Vec<(&str, u64, u64)> {
    let drops = |(_, report): &(String, Report)| report.device_drops;
    assert_eq!(reports.iter().map(drops).sum::<u64>(), 0, "{reports:?}");
    reports.iter().map(|(name, it)| (name.as_str(), it.up.packets, it.down.packets)).collect()
}

#[test]
fn the_round_trip_of_a_line_is_the_sum_of_its_links() {
    let Some(network) = network(LINE) else { return };
    let trips = |address| round_trips(&sockets(&network, "client", ("server", address)), 30 * MS);
    let trips = addresses(&network, "server").into_iter().map(trips).sum();
    let reports = network.down().unwrap();
    let all = [("client-router", trips, trips), ("router-server", trips, trips)];
    assert_eq!(packets(&reports), all, "and nothing unasked");
}

#[test]
fn tcp_gets_through_routers_with_the_addresses_that_names_stand_for() {
    let line = "[[links]]\nbetween = ['a', 'b']\nrtt = '2ms'\n\
                [[links]]\nbetween = ['b', 'c']\nrtt = '2ms'\nrate = '200mbit'\nqueue = '4MB'\n\
                [[links]]\nbetween = ['c', 'd']\nrtt = '2ms'\nloss = '0.1%'\n";
    let Some(network) = network(line) else { return };
    // A router, too, speaks from the address that it is known by.
    for (near, far) in [("a", "d"), ("b", "d"), ("d", "b")] {
        let seen = addresses(&network, far);
        let seen: Vec<IpAddr> = seen
            .into_iter()
            .map(|address| carry(&network, near, (far, address), 1_000_000))
            .collect();
        assert_eq!(seen, addresses(&network, near), "{near} to {far}");
    }
    for (name, report) in network.down().unwrap() {
        assert!(report.up.packets > 500 && report.device_drops == 0, "{name}: {report:?}");
    }
}

#[test]
fn every_address_of_every_host_is_reached_from_every_host() {
    let toml = "[[links]]\nbetween = ['a', 'b']\n[[links]]\nbetween = ['a', 'b']\n\
                [[links]]\nbetween = ['b', 'c']\n[[links]]\nbetween = ['c', 'd']\n\
                [[links]]\nbetween = ['d', 'a']\n[[links]]\nbetween = ['d', 'leaf']\n\
                [[routes]]\nhost = 'a'\nto = 'b'\nvia = 'a-b-2'\n\
                [[routes]]\nhost = 'd'\nto = 'b'\nvia = 'c'\n";
    let Some(network) = network(toml) else { return };
    for (from, _) in network.hosts() {
        for (to, _) in network.hosts().filter(|(to, _)| to.name() != from.name()) {
            for address in to.addresses() {
                if address.is_ipv4() || network.has_ipv6() {
                    let sockets = sockets(&network, from.name(), (to.name(), address));
                    sockets.0.send(b"ping").unwrap();
                    let got = sockets.1.recv(&mut [0; 8]);
                    assert!(got.is_ok(), "{} to {address} of {}", from.name(), to.name());
                }
            }
        }
    }
}

#[test]
fn a_route_takes_the_other_side_of_a_diamond() {
    let sides = "[[links]]\nbetween = ['a', 'short']\nrtt = '2ms'\n\
                 [[links]]\nbetween = ['short', 'd']\nrtt = '2ms'\n\
                 [[links]]\nbetween = ['a', 'long']\nrtt = '10ms'\n\
                 [[links]]\nbetween = ['long', 'd']\nrtt = '10ms'\n";
    let route = "[[routes]]\nhost = 'a'\nto = 'd'\nvia = 'long'\n";
    for (routes, asked, is_long) in [("", 4 * MS, 0), (route, 12 * MS, 1)] {
        let Some(network) = network(&format!("{sides}{routes}")) else { return };
        let trips = |address| round_trips(&sockets(&network, "a", ("d", address)), asked);
        let back = addresses(&network, "d").into_iter().map(trips).sum();
        let reports = network.down().unwrap();
        let long = is_long * back;
        let short = back - long;
        let sides = [("a-short", short, back), ("short-d", short, back)];
        assert_eq!(packets(&reports)[..2], sides);
        assert_eq!(packets(&reports)[2..], [("a-long", long, 0), ("long-d", long, 0)]);
    }
}

#[test]
fn of_parallel_links_the_address_chooses() {
    let toml = "[[links]]\nname = 'slow'\nbetween = ['a', 'b']\nrtt = '20ms'\n\
                [[links]]\nname = 'fast'\nbetween = ['a', 'b']\nrtt = '4ms'\n";
    let Some(network) = network(toml) else { return };
    let b = network.topology().host("b").unwrap().addresses();
    for address in b.into_iter().filter(|address| address.is_ipv4() || network.has_ipv6()) {
        let is_fast = ["198.18.1.2", "2001:2:0:1::2"].contains(&address.to_string().as_str());
        let asked = if is_fast { 4 * MS } else { 20 * MS };
        round_trips(&sockets(&network, "a", ("b", address)), asked);
    }
}

#[test]
fn a_link_that_loses_all_stands_in_the_way_of_its_own_packets_alone() {
    let lossy = LINE.replace("rtt = '20ms'", "rtt = '20ms'\nloss = '100%'");
    let Some(network) = network(&lossy) else { return };
    let (client, server) = (addresses(&network, "client")[0], addresses(&network, "server")[0]);
    let (near, far) = sockets(&network, "client", ("server", server));
    far.set_read_timeout(Some(100 * MS)).unwrap();
    near.send(b"lost").unwrap();
    far.recv(&mut [0; 8]).expect_err("all is lost");
    let short = round_trips(&sockets(&network, "router", ("client", client)), 10 * MS);

    let whole = Scenario::parse("whole", "rtt = '20ms'").unwrap().spec;
    network.link("router-server").unwrap().become_path(&whole).unwrap();
    far.set_read_timeout(Some(2000 * MS)).unwrap();
    let long = round_trips(&(near, far), 30 * MS);
    let reports = network.report().unwrap();
    let all = short + long;
    let counted = [("client-router", all + 1, all), ("router-server", long + 1, long)];
    assert_eq!(packets(&reports), counted);
    assert_eq!(reports[1].1.up.lost, 1);
}

/// The narrow link is in the middle: neither end knows of it from its own device.
#[test]
fn a_router_tells_that_the_next_link_is_too_small() {
    let narrow = "[[links]]\nbetween = ['client', 'left']\nrtt = '4ms'\n\
                  [[links]]\nbetween = ['left', 'right']\nrtt = '4ms'\nmtu = 1300\n\
                  [[links]]\nbetween = ['right', 'server']\nrtt = '4ms'\n";
    let Some(network) = network(narrow) else { return };
    for address in addresses(&network, "client") {
        carry(&network, "server", ("client", address), 500_000);
    }
    let reports = network.report().unwrap();
    let down = |link: usize| reports[link].1.down;
    assert!(down(2).packets > down(1).packets, "some were refused: {reports:?}");
    assert!(down(1).bytes / down(1).packets <= 1300, "{reports:?}");
    // In the other direction nobody has been told yet.
    for address in addresses(&network, "server") {
        let (near, far) = sockets(&network, "client", ("server", address));
        near.send(&[7; 1400]).unwrap();
        let told = near.recv(&mut [0; 8]).unwrap_err();
        // EMSGSIZE.
        assert_eq!(told.raw_os_error(), Some(90), "{address}: {told}");
        near.send(&[7; 1400]).unwrap();
        assert_eq!(far.recv(&mut [0; 2000]).unwrap(), 1400, "in two pieces");
    }
}

#[test]
fn routers_join_no_groups_and_only_routers_forward() {
    let Some(network) = network(LINE) else { return };
    for (plan, host) in network.hosts() {
        let forwards = if plan.name() == "router" { "1" } else { "0" };
        assert_eq!(host.sysctl("ipv4/ip_forward").unwrap(), forwards);
        if !network.has_ipv6() {
            continue;
        }
        assert_eq!(host.sysctl("ipv6/conf/all/forwarding").unwrap(), forwards);
        assert_eq!(told_groups(host), [""; 0], "{}", plan.name());
    }
}

/// The groups that a host is in and tells others of (RFC 3810), as the kernel lists them.
fn told_groups(host: &Namespace) -> Vec<String> {
    let groups = host.run(|| fs::read_to_string("/proc/thread-self/net/igmp6").unwrap_or_default());
    // Nobody is told of all nodes on the link (section 6), nor of those on the interface.
    let untold = [" ff020000000000000000000000000001 ", " ff01"];
    let is_told = |line: &&str| !untold.iter().any(|group| line.contains(group));
    let groups = groups.unwrap();
    let on_links = groups.lines().filter(|line| line.contains(" path"));
    on_links.filter(is_told).map(str::to_owned).collect()
}

#[test]
fn two_hosts_as_a_topology_lose_what_a_link_loses() {
    let spec = Scenario::parse("test", "rtt = '2ms'\nloss = '10%'").unwrap().spec;
    let arrived = |near: UdpSocket, far: UdpSocket| {
        for number in 0..200_u8 {
            near.send(&[number]).unwrap();
        }
        far.set_read_timeout(Some(100 * MS)).unwrap();
        let mut packet = [0];
        std::iter::from_fn(|| far.recv(&mut packet).ok().map(|_| packet[0])).collect::<Vec<u8>>()
    };
    let Some(network) = or_say_why(Network::up(&Topology::of_two(&spec), 5)) else { return };
    let (near, far) = sockets(&network, "near", ("far", Host::Far.address().into()));
    let in_network = arrived(near, far);
    drop(network);
    let link = Link::up(&spec, 5).unwrap();
    let far = link.far().run(|| UdpSocket::bind((Host::Far.address(), 0)).unwrap()).unwrap();
    let near = link.near().run(|| UdpSocket::bind((Host::Near.address(), 0)).unwrap()).unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    assert_eq!(arrived(near, far), in_network);
    assert!(in_network.len() > 150 && in_network.len() < 195, "{}", in_network.len());
}

#[test]
fn a_network_that_cannot_be_made_leaves_nothing_at_its_hosts() {
    let line = topology(LINE);
    let Some(hosts) =
        or_say_why((0..3).map(|_| Namespace::create()).collect::<Result<Vec<_>, _>>())
    else {
        return;
    };
    let held: Vec<Namespace> = hosts.iter().map(|host| host.try_clone().unwrap()).collect();
    let again = || held.iter().map(|host| host.try_clone().unwrap()).collect::<Vec<_>>();
    let error = Network::between(&line, again().split_off(1), 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "the network has 3 hosts, but 2 namespaces were given: give one for each host"
    );

    // The server has a device of that name already.
    let other = Namespace::create().unwrap();
    let end = |host: &Namespace, name: &str| {
        let device = Device { name: name.to_owned(), addresses: Vec::new() };
        lastbyte_link::End { host: host.try_clone().unwrap(), device }
    };
    let spec = Scenario::parse("test", "rtt = '2ms'").unwrap().spec;
    let taken = Link::between(end(&held[2], "path0"), end(&other, "path9"), &spec, 1).unwrap();
    let error = Network::between(&line, hosts, 1).unwrap_err().to_string();
    assert!(error.starts_with("link router-server: making a device: "), "{error}");
    wait_for_devices(&held, &[0, 0, 1]);

    // Hosts that exist make a network once that is out of the way.
    drop(taken);
    wait_for_devices(&held, &[0, 0, 0]);
    let network = Network::between(&line, again(), 1).unwrap();
    assert_eq!(packets(&network.down().unwrap()).len(), 2);
    wait_for_devices(&held, &[0, 0, 0]);
    // And once more: the router was one already.
    let network = Network::between(&line, again(), 1).unwrap();
    for (plan, host) in network.hosts() {
        assert_eq!(told_groups(host), [""; 0], "{}", plan.name());
    }
}

/// Waits until the hosts have so many devices of links. The kernel takes a pair of Ethernet devices away
/// a moment after the namespace of one of them went.
fn wait_for_devices(hosts: &[Namespace], wanted: &[usize]) {
    let devices = |host: &Namespace| {
        let devices = host.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        devices.unwrap().matches(" path").count()
    };
    let mut there = Vec::new();
    for _ in 0..500 {
        there = hosts.iter().map(devices).collect();
        if there == wanted {
            return;
        }
        std::thread::sleep(10 * MS);
    }
    panic!("{there:?} devices instead of {wanted:?}");
}

#[test]
#[ignore = "slow: makes 200 devices"]
fn the_largest_network_fits_a_process() {
    let line: String = (1..MOST_HOSTS)
        .map(|host| format!("[[links]]\nbetween = ['h{}', 'h{host}']\nrtt = '1ms'\n", host - 1))
        .collect();
    let parallel = "[[links]]\nbetween = ['h0', 'h1']\n".repeat(MOST_LINKS + 1 - MOST_HOSTS);
    let Some(network) = network(&(line + &parallel)) else { return };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 1024, "{descriptors}");
    let last = format!("h{}", MOST_HOSTS - 1);
    for address in addresses(&network, &last) {
        let (near, far) = sockets(&network, "h0", (&last, address));
        near.send(b"far away").unwrap();
        assert_eq!(far.recv(&mut [0; 10]).unwrap(), 8, "{address}");
    }
    eprintln!("descriptors: {descriptors}");
}
