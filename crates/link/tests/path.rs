//! Real kernel TCP and UDP over real links. Without the rights these tests say so and pass.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lastbyte_link::{FAR, FAR_V6, Host, Link, LinkError, NEAR, NEAR_V6, Scenario, Spec};

const MS: Duration = Duration::from_millis(1);

fn spec(toml: &str) -> Spec {
    Scenario::parse("test", toml).unwrap().spec
}

/// A link, or the reason aloud why this machine cannot make one.
fn link(spec: &Spec) -> Option<Link> {
    match Link::up(spec, 1) {
        Ok(link) => Some(link),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A UDP socket on each host, the near one connected to the far one.
fn sockets(link: &Link) -> (UdpSocket, UdpSocket) {
    let far = link.far().run(|| UdpSocket::bind((FAR, 0)).unwrap()).unwrap();
    let near = link.near().run(|| UdpSocket::bind((NEAR, 0)).unwrap()).unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(2000 * MS)).unwrap();
    }
    (near, far)
}

#[test]
fn the_round_trip_is_as_asked() {
    let Some(link) = link(&spec("rtt = '40ms'")) else { return };
    let (near, far) = sockets(&link);
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        near.send(b"ping").unwrap();
        far.recv(&mut [0; 8]).unwrap();
        far.send(b"pong").unwrap();
        near.recv(&mut [0; 8]).unwrap();
        best = best.min(start.elapsed());
    }
    assert!(best >= 40 * MS && best < 42 * MS, "{best:?}");
    let report = link.down().unwrap();
    assert_eq!((report.up.packets, report.up.delivered), (10, 10), "and nothing unasked");
    assert_eq!((report.down.packets, report.down.delivered), (10, 10));
}

/// Sends so many bytes to an address of the far host by TCP, each of which tells its place, and compares.
fn carry(link: &Link, far: SocketAddr, bytes: usize) {
    let listener = link.far().run(|| TcpListener::bind(far).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut near = link.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let place = |at: usize| at.to_le_bytes()[0] ^ at.to_le_bytes()[1] ^ at.to_le_bytes()[2];
    let all: Vec<u8> = (0..bytes).map(place).collect();
    let expected = all.clone();
    let writer = std::thread::spawn(move || near.write_all(&all).unwrap());
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == expected, "{} bytes, or not the same", got.len());
}

/// How long a packet takes to the far host.
fn one_way((near, far): &(UdpSocket, UdpSocket)) -> Duration {
    let start = Instant::now();
    near.send(b"ping").unwrap();
    far.recv(&mut [0; 8]).unwrap();
    start.elapsed()
}

#[test]
fn a_path_becomes_another_when_it_is_told_to() {
    let Some(link) = link(&spec("rtt = '4ms'")) else { return };
    let sockets = sockets(&link);
    let best = || (0..5).map(|_| one_way(&sockets)).min().unwrap();
    let before = best();
    assert!(before >= 2 * MS && before < 4 * MS, "{before:?}");
    link.become_path(&spec("rtt = '40ms'\nrate = '80mbit'")).unwrap();
    let after = best();
    assert!(after >= 20 * MS && after < 22 * MS, "{after:?}");
    let report = link.report().unwrap();
    assert_eq!((report.up.packets, report.up.delivered, report.down.packets), (10, 10, 0));
    // Of a path that makes no sense nothing comes.
    let error = link.become_path(&spec("mtu = 1400")).unwrap_err().to_string();
    assert!(error.contains("MTU of 1500"), "{error}");
    link.become_path(&spec("loss = '100%'")).unwrap();
    sockets.0.send(b"ping").unwrap();
    sockets.1.set_read_timeout(Some(50 * MS)).unwrap();
    assert!(sockets.1.recv(&mut [0; 8]).is_err());
    assert_eq!(link.down().unwrap().up.lost, 1);
}

#[test]
fn what_waits_goes_at_the_new_rate() {
    // 400 packets of 1000 bytes: 32 s at first.
    let Some(link) = link(&spec("rate = '100kbit'\nqueue = '1MB'")) else { return };
    let (near, far) = sockets(&link);
    for number in 0..400_u32 {
        near.send(&[&number.to_ne_bytes()[..], &[0; 968]].concat()).unwrap();
    }
    let start = Instant::now();
    link.become_path(&spec("rate = '8mbit'\nqueue = '1MB'")).unwrap();
    for number in 0..400_u32 {
        let mut packet = [0; 2048];
        far.recv(&mut packet).unwrap();
        assert_eq!(packet[..4], number.to_ne_bytes(), "in order");
    }
    let took = start.elapsed();
    assert!(took >= 350 * MS && took < 450 * MS, "400 ms at 8 Mbit/s, not {took:?}");
    let report = link.down().unwrap();
    assert!(report.lateness.p99 < 20 * MS, "{report:?}");
}

#[test]
fn a_path_changes_by_itself_at_its_time() {
    let changes = "rtt = '2ms'\n[[changes]]\nat = '300ms'\nrtt = '60ms'\n\
                   [[changes]]\nat = '600ms'\nrtt = '2ms'";
    let Some(link) = link(&spec(changes)) else { return };
    let (start, sockets) = (Instant::now(), sockets(&link));
    let mut slow = Vec::new();
    while start.elapsed() < 800 * MS {
        let now = start.elapsed();
        if one_way(&sockets) >= 20 * MS {
            slow.push(now);
        }
    }
    let (first, last) = (slow[0], slow[slow.len() - 1]);
    assert!(first.abs_diff(300 * MS) < 40 * MS && last.abs_diff(600 * MS) < 60 * MS, "{slow:?}");
}

#[test]
fn no_packet_is_longer_than_the_mtu() {
    let Some(link) = link(&spec("rtt = '2ms'\nmtu = 1300\nrate = '100mbit'")) else { return };
    let (near, far) = sockets(&link);
    near.send(&[0; 1272]).unwrap();
    assert_eq!(far.recv(&mut [0; 2048]).unwrap(), 1272);
    // In two fragments.
    near.send(&[0; 1273]).unwrap();
    assert_eq!(far.recv(&mut [0; 2048]).unwrap(), 1273);
    let report = link.down().unwrap();
    assert_eq!((report.up.packets, report.up.delivered), (3, 3));
}

#[test]
fn segments_stay_in_order_and_whole_whatever_happens_between_them() {
    let harm = "rtt = '4ms'\nloss = '1%'\ncorrupt = '1%'\nduplicate = '1%'\nmtu = 4000";
    for toml in [format!("{harm}\nrate = '200mbit'\nqueue = '100packets'"), harm.to_owned()] {
        let Some(link) = link(&spec(&toml)) else { return };
        carry(&link, SocketAddr::from((FAR, 0)), 3_000_000);
        let up = link.down().unwrap().up;
        assert_eq!(up.packets, up.delivered + up.lost + up.dropped + up.in_flight, "{up:?}");
        assert!(up.lost > 0 && up.corrupted > 0 && up.duplicated > 0, "{up:?}");
        assert!(up.bytes / up.packets > 3000, "full packets of 4000 bytes: {up:?}");
    }
}

#[test]
fn each_family_reaches_the_other_host() {
    let Some(link) = link(&spec("rtt = '2ms'")) else { return };
    for far in [SocketAddr::from((FAR, 0)), SocketAddr::from((FAR_V6, 0))] {
        let listener = link.far().run(|| TcpListener::bind(far).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = link.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
        let (mut far, peer) = listener.accept().unwrap();
        assert!(peer.ip() == NEAR || peer.ip() == NEAR_V6);
        near.write_all(b"hello").unwrap();
        drop(near);
        let mut got = String::new();
        far.read_to_string(&mut got).unwrap();
        assert_eq!(got, "hello");
    }
}

#[test]
fn every_packet_is_accounted_for() {
    let toml = "rtt = '4ms'\nrate = '8mbit'\nqueue = '30000B'\nloss = '5%'";
    let Some(link) = link(&spec(toml)) else { return };
    let (near, far) = sockets(&link);
    for _ in 0..1000 {
        near.send(&[0; 972]).unwrap();
    }
    far.set_read_timeout(Some(200 * MS)).unwrap();
    let mut arrived = 0;
    while far.recv(&mut [0; 2048]).is_ok() {
        arrived += 1;
    }
    let report = link.down().unwrap();
    let up = report.up;
    assert_eq!(up.packets, 1000);
    assert_eq!(up.bytes, 1_000_000, "972 bytes and 28 of headers each");
    assert_eq!(up.packets, up.delivered + up.lost + up.dropped + up.in_flight, "{up:?}");
    assert_eq!(up.delivered, arrived);
    assert_eq!(report.device_drops, 0);
    assert!(up.dropped > 0, "1 MB does not fit a queue of 30 kB: {up:?}");
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let run = || {
        let link = link(&spec("rtt = '2ms'\nloss = '10%'"))?;
        let (near, far) = sockets(&link);
        // As many as the receiving socket holds: what it drops is not the link's doing.
        for number in 0..200_u32 {
            near.send(&number.to_ne_bytes()).unwrap();
        }
        far.set_read_timeout(Some(200 * MS)).unwrap();
        let mut arrived = Vec::new();
        let mut packet = [0; 4];
        while far.recv(&mut packet).is_ok() {
            arrived.push(u32::from_ne_bytes(packet));
        }
        Some(arrived)
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first.is_none_or(|arrived| arrived.len() > 150 && arrived.len() < 195));
}

#[test]
fn a_kept_namespace_outlives_its_link_and_can_be_opened() {
    let Some(link) = link(&spec("rtt = '2ms'")) else { return };
    let path = std::env::temp_dir().join(format!("lastbyte-test-{}", std::process::id()));
    std::fs::write(&path, "").unwrap();
    link.near().keep_at(&path).unwrap();
    drop(link);
    let kept = lastbyte_link::Namespace::open(&path).unwrap();
    assert!(!kept.sysctl("ipv4/tcp_congestion_control").unwrap().is_empty());
    drop(kept);
    lastbyte_sys::mount::unmount_detach(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Host::Near.address(), NEAR);
}

#[test]
fn what_is_no_namespace_is_refused() {
    let error = lastbyte_link::Namespace::open(std::path::Path::new("/etc/hostname")).unwrap_err();
    assert!(error.to_string().contains("namespace"), "{error}");
}

/// A path without a rate carries uncut packets; a loss inside one must cost one segment and no byte.
#[test]
fn bytes_arrive_whole_and_in_order_through_losses_inside_uncut_packets() {
    let toml = "rtt = '2ms'\nloss = '0.5%'";
    let Some(link) = link(&spec(toml)) else { return };
    for far in [SocketAddr::from((FAR, 0)), SocketAddr::from((FAR_V6, 0))] {
        carry(&link, far, 8_000_000);
    }
    let report = link.down().unwrap();
    let up = report.up;
    assert_eq!(up.packets, up.delivered + up.lost + up.dropped + up.in_flight, "{up:?}");
    let share = up.lost as f64 / up.packets as f64;
    assert!(share > 0.003 && share < 0.007, "{up:?}");
}

#[test]
fn copies_and_damage_reach_the_other_host() {
    let Some(link) = link(&spec("rtt = '2ms'\n[up]\nduplicate = '100%'")) else { return };
    let (near, far) = sockets(&link);
    near.send(b"twice").unwrap();
    for _ in 0..2 {
        assert_eq!(far.recv(&mut [0; 8]).unwrap(), 5);
    }
    let report = link.down().unwrap();
    assert_eq!((report.up.packets, report.up.delivered, report.up.duplicated), (1, 1, 1));

    let Some(link) = self::link(&spec("rtt = '2ms'\n[up]\ncorrupt = '100%'")) else { return };
    let (near, far) = sockets(&link);
    near.send(b"damaged").unwrap();
    far.set_read_timeout(Some(100 * MS)).unwrap();
    far.recv(&mut [0; 8]).expect_err("the receiving kernel's checksum lets no damage through");
    let report = link.down().unwrap();
    assert_eq!((report.up.delivered, report.up.corrupted), (1, 1));
}

#[test]
fn tcp_gets_every_byte_through_all_of_it_at_once() {
    let toml = "rtt = '4ms'\njitter = '1ms'\nreorder = true\nloss = '0.5%'\nlose_every = 301\n\
                burst_loss = { share = '0.5%', packets = 3.0 }\ncorrupt = '0.5%'\n\
                duplicate = '1%'\nrate = '100mbit'\nqueue = '50packets'\nmanagement = 'codel'\n\
                ecn = true\npolicer = { rate = '80mbit', burst = '64KiB' }\n\
                cuts = [{ at = '100ms', lasting = '50ms' }]";
    let Some(link) = link(&spec(toml)) else { return };
    for host in [Host::Near, Host::Far] {
        link.host(host).set_sysctl("ipv4/tcp_ecn", "1").unwrap();
    }
    carry(&link, SocketAddr::from((FAR, 0)), 1_500_000);
    let up = link.down().unwrap().up;
    let fates = up.delivered + up.lost + up.dropped + up.policed + up.in_flight;
    assert_eq!(up.packets, fates, "{up:?}");
    assert!(up.lost > 0 && up.corrupted > 0 && up.duplicated > 0, "{up:?}");
}
