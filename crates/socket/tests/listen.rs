//! How a listener passes its options on, and what room a connection begins with.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::Kind;
use lastbyte_link::{Host, Link, LinkError, Scenario};
use lastbyte_socket::blocking::Listener;
use lastbyte_socket::{End, Granted, Incoming, ListenOptions, SocketOptions, Stream};
use lastbyte_sys::{poll, socket};

use crate::support::{SECOND, run};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const MIB: u32 = 1 << 20;

fn listen(how: &ListenOptions) -> Listener {
    let listener = Listener::bind_with(ANY, how).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

fn next(listener: &Listener) -> Incoming {
    assert!(poll::wait_for(listener, poll::READABLE, 20 * SECOND).unwrap().readable);
    listener.accept_now().unwrap()
}

#[test]
fn what_is_accepted_without_waiting_knows_how_it_ends() {
    let listener = listen(&ListenOptions::default());
    assert_eq!(listener.accept_now().unwrap_err().cause.kind(), ErrorKind::WouldBlock);
    for (linger, end) in [(None, End::Fin), (Some(Duration::ZERO), End::Reset)] {
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let incoming = next(&listener);
        assert_eq!(incoming.peer_addr(), near.local_addr().unwrap());
        assert_eq!(incoming.local_addr(), Some(listener.local_addr().unwrap()));
        near.write_all(b"seven b").unwrap();
        socket::set_linger(&near, linger).unwrap();
        run(async {
            let mut far = incoming.watch().unwrap();
            assert_eq!(far.kind(), Kind::Tcp);
            assert_eq!(far.read(&mut [0; 16]).await.unwrap(), 7);
            drop(near);
            let rest = far.read(&mut [0; 16]).await;
            assert_eq!(far.observed_end(), Some(end), "{rest:?}");
        });
    }
}

#[test]
fn what_is_discarded_is_reset() {
    let listener = listen(&ListenOptions::default());
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    next(&listener).discard();
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn urgent_bytes_stay_in_place_without_a_call() {
    let listener = listen(&ListenOptions::default());
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    run(async {
        let mut far = next(&listener).watch().unwrap();
        assert!(socket::oob_inline(&far).unwrap());
        assert_eq!(socket2::SockRef::from(&near).send_out_of_band(b"!").unwrap(), 1);
        assert_eq!(far.read(&mut [0; 16]).await.unwrap(), 1);
    });
}

#[test]
fn options_change_for_what_is_accepted_from_then_on() {
    let kernels = ListenOptions::default().first_buffer(MIB);
    let listener = listen(&kernels);
    let plain = granted(&listener);
    let asked = kernels.clone().socket(
        SocketOptions::default()
            .congestion("reno")
            .send_buffer(65_536)
            .receive_buffer(65_536)
            .notsent_lowat(16_384)
            .user_timeout(SECOND)
            .max_pacing_rate(1_000_000)
            .nodelay(true),
    );
    asked.check(ANY).unwrap();
    listener.change(&kernels, &asked).unwrap();
    let tuned = granted(&listener);
    assert_eq!(tuned.congestion, "reno");
    assert_eq!((tuned.send_buffer, tuned.receive_buffer), (131_072, 131_072));
    assert_eq!(tuned.receive_buffer_fixed, Some(true), "what a user asks for stays as it is");
    assert_eq!((tuned.nodelay, tuned.user_timeout), (true, Some(SECOND)));
    listener.change(&asked, &kernels).unwrap();
    let local = granted(&listener);
    // The kernel sizes the buffer of each connection by its route and its handshake.
    let size = |mut granted: Granted| {
        granted.local = None;
        granted.send_buffer = 0;
        granted
    };
    assert_eq!(size(local), size(plain));
}

/// What a connection has that is accepted now.
fn granted(listener: &Listener) -> Granted {
    let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    run(async { next(listener).watch().unwrap().granted().unwrap() })
}

#[test]
fn what_cannot_be_had_is_named_before() {
    let tune = SocketOptions::default().congestion("no-such-thing");
    let how = ListenOptions::default().socket(tune);
    let error = how.check(ANY).unwrap_err();
    assert!(error.to_string().starts_with("set TCP_CONGESTION"), "{error}");
}

#[test]
fn each_connection_of_a_multipath_listener_has_a_kind_of_its_own() {
    let how = ListenOptions::default().mptcp(true).first_buffer(MIB);
    let listener = listen(&how);
    if socket::protocol(&listener).unwrap() != socket::PROTOCOL_MPTCP {
        lastbyte_testing::not_tested!("this kernel has no MPTCP");
        return;
    }
    let _plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    run(async {
        let stream = next(&listener).watch().unwrap();
        assert_eq!(stream.kind(), Kind::Tcp);
        assert!(socket::oob_inline(&stream).unwrap());
    });
    let both = socket::open_mptcp_nonblocking(ANY).unwrap().unwrap();
    socket::begin_connect(&both, listener.local_addr().unwrap()).unwrap();
    run(async { assert_eq!(next(&listener).watch().unwrap().kind(), Kind::Mptcp) });
}

/// A client that writes a million bytes and closes, with a greeting that it never reads: its kernel
/// throws away what it has not yet sent. Where there is room for all at once, nothing is left to throw away.
#[test]
fn a_million_bytes_fit_before_the_greeting_turns_the_close_into_a_reset() {
    const BYTES: usize = 1_000_000;
    let how = ListenOptions::default().first_buffer(MIB);
    let listener = listen(&how);
    if socket::receive_buffer(&listener).unwrap().unsigned_abs() < 2 * MIB {
        lastbyte_testing::not_tested!(
            "the kernel gives no buffer of 1 MiB, or cannot hand it back"
        );
        return;
    }
    for _ in 0..20 {
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        run(async {
            let mut far = next(&listener).watch().unwrap();
            assert_eq!(far.granted().unwrap().receive_buffer_fixed, Some(false));
            far.write_all(b"220 ready\r\n").await.unwrap();
            let writer = thread::spawn(move || {
                assert!(poll::wait_for(&near, poll::READABLE, 20 * SECOND).unwrap().readable);
                near.write_all(&vec![7; BYTES]).unwrap();
            });
            assert_eq!(count(&mut far).await, BYTES as u64);
            writer.join().unwrap();
        });
    }
}

async fn count(stream: &mut Stream) -> u64 {
    let mut buffer = vec![0; 65_536];
    while let Ok(1..) = stream.read(&mut buffer).await {}
    stream.bytes_read()
}

/// A first buffer is no last one: a fast and long path gets what it needs.
#[test]
#[ignore = "ten seconds, in namespaces"]
fn a_first_buffer_grows_over_a_long_path() {
    let scenario = Scenario::parse("long", "rtt = '100ms'\nrate = '400mbit'").unwrap();
    let first = ListenOptions::default().first_buffer(MIB);
    let tune = SocketOptions::default().receive_buffer(MIB);
    let fixed = first.clone().socket(tune);
    let came = [ListenOptions::default(), first, fixed].map(|how| {
        let link = match Link::up(&scenario.spec, 7) {
            Ok(link) => link,
            Err(error @ LinkError::Rights { .. }) => {
                lastbyte_testing::not_tested!("{error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let address = SocketAddr::new(Host::Far.address().into(), 0);
        let listener = link.far().run(|| Listener::bind_with(address, &how)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = link.near().run(|| TcpStream::connect(address)).unwrap().unwrap();
        let writer = thread::spawn(move || {
            let began = Instant::now();
            while began.elapsed() < 3 * SECOND && near.write_all(&[7; 65_536]).is_ok() {}
        });
        let seen = run(async {
            let mut far = next(&listener).watch().unwrap();
            let bytes = count(&mut far).await;
            (bytes, far.granted().unwrap().receive_buffer)
        });
        writer.join().unwrap();
        link.down().unwrap();
        Some(seen)
    });
    eprintln!("bytes and buffer: the kernel's own, first, fixed: {came:?}");
    let [_, Some((_, first)), Some((_, fixed))] = came else { return };
    assert_eq!(fixed, 2 * MIB);
    assert!(first > 2 * MIB, "{first}");
}
