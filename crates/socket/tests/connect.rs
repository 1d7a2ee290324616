//! Opening connections by both faces: where from, with what, and what is left of those that came to
//! nothing.

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use lastbyte_link::{LinkError, Namespace};
use lastbyte_socket::{
    ConnectOptions, End, FastOpen, FinishOptions, Kind, Multipath, Operation, SocketError,
    SocketOptions, Stream, blocking,
};
use lastbyte_sys::netlink::Interface;
use lastbyte_sys::tcp;
use socket2::{Domain, Protocol, Socket, Type};

use crate::support::{MS, SECOND, count, listener, run};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

// --- sources -------------------------------------------------------------------------------------

#[test]
fn a_connection_comes_from_the_source_of_its_family() {
    let Some(host) = host(&[]) else { return };
    host.run(|| {
        let source = Ipv4Addr::new(127, 0, 0, 9);
        let how = ConnectOptions::default().sources(vec![V6, source.into()]);
        let (four, six) = (listen(V4), listen(V6));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        for (listener, to, from) in [
            (&four, V4, IpAddr::from(source)),
            (&six, V6, V6),
            (&four, mapped.into(), source.to_ipv6_mapped().into()),
        ] {
            let to = SocketAddr::from((to, listener.local_addr().unwrap().port()));
            for near in by_both(to, &how) {
                let near = near.unwrap();
                let far = listener.accept_within(SECOND).unwrap();
                let local = near.local_addr().unwrap();
                assert_eq!(local.ip(), from);
                assert_eq!(far.peer_addr().unwrap().ip(), from.to_canonical());
                assert_eq!(near.granted().unwrap().local, Some(local));
                assert_eq!(near.endpoints().local, Some(local.into()));
            }
        }
    })
    .unwrap();
}

#[test]
fn without_a_source_of_its_family_nothing_is_opened() {
    let Some(host) = host(&[]) else { return };
    host.run(|| {
        wait_for_sockets(0);
        for (to, source, family) in [(V4, V6, "IPv4"), (V6, V4, "IPv6")] {
            let how = ConnectOptions::default().sources(vec![source]);
            for result in by_both((to, 1).into(), &how) {
                let error = result.unwrap_err();
                assert_eq!(error.operation, Operation::Connect);
                assert_eq!(error.cause.kind(), ErrorKind::AddrNotAvailable);
                let text = format!(": none of the source addresses is of {family}");
                assert!(error.to_string().ends_with(&text), "{error}");
            }
        }
        assert_eq!(sockets(), 0);
    })
    .unwrap();
}

#[test]
fn a_source_that_this_host_does_not_have_is_named() {
    let source = Ipv4Addr::new(192, 0, 2, 77);
    let how = ConnectOptions::default().sources(vec![source.into()]);
    let to = listener().local_addr().unwrap();
    for result in by_both(to, &how) {
        let error = result.unwrap_err();
        assert_eq!(error.operation, Operation::Bind);
        assert_eq!(error.cause.kind(), ErrorKind::AddrNotAvailable);
        let said = format!("bind 192.0.2.77:0 -> {to}: ");
        assert!(error.to_string().starts_with(&said), "{error}");
    }
}

/// Two ports for two destinations make four connections: a `bind` that takes a port makes two.
#[test]
fn a_source_takes_no_port_from_other_destinations() {
    let Some(host) = host(&[("ipv4/ip_local_port_range", "40000 40001")]) else { return };
    host.run(|| {
        let how = ConnectOptions::default().sources(vec![V4, V6]);
        for family in [V4, V6] {
            let listeners = [listen_at(family, 50_000), listen_at(family, 50_001)];
            let connections: Vec<blocking::Stream> = listeners
                .iter()
                .flat_map(|listener| by_both(listener.local_addr().unwrap(), &how))
                .map(Result::unwrap)
                .collect();
            assert_eq!(connections.len(), 4);
        }
    })
    .unwrap();
}

#[test]
fn a_link_local_peer_without_its_interface_is_told_in_words() {
    let peer = "[fe80::1]:80".parse().unwrap();
    let error = blocking::Stream::connect_with(peer, &ConnectOptions::default().within(SECOND))
        .unwrap_err();
    let text = "fe80::1 is link-local: name its interface, as fe80::1%eth0";
    assert!(error.to_string().contains(text), "{error}");
    assert_eq!(error.cause.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_link_local_source_is_used_on_the_interface_of_the_peer_or_of_the_options() {
    let Some(host) = host(&[]) else { return };
    let ip = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    host.run(|| {
        let loopback = Interface::named("lo").unwrap();
        for last in [1, 2] {
            loopback.add_address(ip(last).into(), 64).unwrap();
        }
        let to = |port, scope| SocketAddr::from(SocketAddrV6::new(ip(1), port, 0, scope));
        let listener = blocking::TcpListener::bind(to(0, loopback.index())).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut how = ConnectOptions::default().sources(vec![ip(2).into()]);
        for result in by_both(to(port, 0), &how) {
            let error = result.unwrap_err();
            assert_eq!(error.cause.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("fe80::2 is link-local: name its"), "{error}");
        }
        // The kernel finds the way to an address a little after it was given that.
        wait_for("way between the addresses", || {
            over_std(to(port, loopback.index()), &how).is_ok()
        });
        drop(listener.accept_within(SECOND).unwrap());
        for (scope, interface) in [(loopback.index(), None), (0, Some("lo".to_owned()))] {
            how.socket.interface = interface;
            for near in by_both(to(port, scope), &how) {
                assert_eq!(near.unwrap().local_addr().unwrap().ip(), ip(2));
                let far = listener.accept_within(SECOND).unwrap();
                assert_eq!(far.peer_addr().unwrap().ip(), ip(2));
            }
        }
    })
    .unwrap();
}

// --- multipath TCP -------------------------------------------------------------------------------

#[test]
fn multipath_is_used_where_the_peer_has_it() {
    let Some(host) = multipath_host() else { return };
    host.run(|| {
        let how = ConnectOptions::default().mptcp(true);
        let plain = listener();
        for near in by_both(plain.local_addr().unwrap(), &how) {
            let near = near.unwrap();
            assert_eq!(near.kind(), Kind::Mptcp);
            assert_eq!(near.granted().unwrap().multipath, Some(Multipath::FellBack));
            assert_carries(near, plain.accept().unwrap().into_inner());
        }
        let listener = listen_multipath();
        for near in by_both(listener.local_addr().unwrap(), &how) {
            let near = near.unwrap();
            assert_eq!(near.kind(), Kind::Mptcp);
            assert_eq!(near.granted().unwrap().multipath, Some(Multipath::InUse));
            assert_carries(near, listener.accept().unwrap().0);
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        let granted = lastbyte_socket::Granted::read(&socket).unwrap();
        assert_eq!(granted.multipath, Some(Multipath::Asked));
    })
    .unwrap();
}

#[test]
fn where_multipath_is_off_the_connection_is_plain_tcp() {
    let Some(host) = multipath_host() else { return };
    host.set_sysctl("mptcp/enabled", "0").unwrap();
    host.run(|| {
        let how = ConnectOptions::default().mptcp(true);
        let listener = listener();
        for near in by_both(listener.local_addr().unwrap(), &how) {
            let near = near.unwrap();
            assert_eq!(near.kind(), Kind::Tcp);
            assert_eq!(near.granted().unwrap().multipath, Some(Multipath::Absent));
            assert_carries(near, listener.accept().unwrap().into_inner());
        }
    })
    .unwrap();
}

#[test]
fn what_multipath_cannot_do_is_an_error_where_it_was_asked_for() {
    let Some(host) = multipath_host() else { return };
    host.run(|| {
        let listener = listen_multipath();
        let user_timeout = SocketOptions::default().user_timeout(SECOND);
        let pacing = SocketOptions::default().max_pacing_rate(1_000_000);
        for (tune, option) in [(user_timeout, "TCP_USER_TIMEOUT"), (pacing, "SO_MAX_PACING_RATE")] {
            let how = ConnectOptions::default().mptcp(true).socket(tune);
            for result in by_both(listener.local_addr().unwrap(), &how) {
                let error = result.unwrap_err();
                assert_eq!(error.operation, Operation::Set(option), "{error}");
            }
        }
    })
    .unwrap();
}

/// What is written arrives. Of multipath TCP no finish can prove it.
fn assert_carries(mut near: blocking::Stream, far: TcpStream) {
    near.write_all(&[7; 100_000]).unwrap();
    let reader = thread::spawn(move || read_all(far));
    drop(near);
    assert_eq!(reader.join().unwrap(), [7; 100_000]);
}

// --- first bytes ---------------------------------------------------------------------------------

#[test]
fn first_bytes_arrive_once_with_and_without_a_cookie() {
    for length in [1, 1_000, 60_000, 5_000_000] {
        for face in [over_std, over_tokio] {
            let Some(host) = host(&[("ipv4/tcp_fastopen", "3")]) else { return };
            host.run(|| {
                let server = serve_early();
                for expected in [FastOpen::NoCookie, FastOpen::Acked, FastOpen::Acked] {
                    assert_eq!(dial_early(&server, length, face), expected, "{length} B");
                }
            })
            .unwrap();
        }
    }
}

#[test]
fn first_bytes_that_the_syn_could_not_bring_arrive_after_it() {
    let Some(host) = host(&[("ipv4/tcp_fastopen", "3")]) else { return };
    host.run(|| {
        let (server, other) = (serve_early(), listener());
        assert_eq!(dial_early(&server, 100, over_std), FastOpen::NoCookie);
        // The cookie is one of the host; this listener takes none.
        for face in [over_std, over_tokio] {
            assert_eq!(dial_early(&other, 100_000, face), FastOpen::NotAcked);
        }
    })
    .unwrap();
    host.set_sysctl("ipv4/tcp_fastopen", "2").unwrap();
    host.run(|| {
        let server = serve_early();
        for face in [over_std, over_tokio] {
            assert_eq!(dial_early(&server, 100_000, face), FastOpen::Unused);
        }
    })
    .unwrap();
}

#[test]
fn first_bytes_go_with_a_source_and_multipath_too() {
    let Some(host) = multipath_host() else { return };
    host.set_sysctl("ipv4/tcp_fastopen", "3").unwrap();
    host.run(|| {
        let server = serve_early();
        for (mptcp, expected) in [(false, FastOpen::NoCookie), (true, FastOpen::Acked)] {
            let early = vec![7; 100];
            let how = ConnectOptions::default().sources(vec![V4]).mptcp(mptcp).early(early);
            let near = over_std(server.local_addr().unwrap(), &how).unwrap();
            let far = server.accept().unwrap();
            assert_eq!(near.written(), 100);
            let told = near.granted().unwrap().fast_open;
            // Before Linux 6.2 multipath TCP has no fast open.
            assert!(told == Some(expected) || mptcp, "{told:?}");
            drop(near);
            assert_eq!(read_all(far.into_inner()), [7; 100]);
        }
    })
    .unwrap();
}

/// The kernel has taken the bytes, and there is no connection all the same.
#[test]
fn bytes_in_a_syn_that_nobody_answers_are_no_connection() {
    let Some(host) = host(&[("ipv4/tcp_fastopen", "3")]) else { return };
    host.run(|| {
        let server = serve_early();
        assert_eq!(dial_early(&server, 1, over_std), FastOpen::NoCookie);
        let silent = Silent::new();
        wait_for_sockets(1 + Silent::SOCKETS);
        let before = connections();
        let how = ConnectOptions::default().early(vec![7; 100]);
        let error = blocking::Stream::connect_with(silent.address, &how.clone().within(50 * MS))
            .unwrap_err();
        assert_eq!(error.cause.kind(), ErrorKind::TimedOut);
        assert_eq!(connections(), before);
        wait_for_sockets(1 + Silent::SOCKETS);
        let acceptor = thread::spawn(move || {
            // The second SYN finds room, after a second or so.
            let waiting = silent.full.accept().unwrap().0;
            let far = TcpStream::from(silent.full.accept().unwrap().0);
            drop(waiting);
            read_all(far)
        });
        let near = blocking::Stream::connect_with(silent.address, &how.clone().within(20 * SECOND))
            .unwrap();
        assert_eq!(near.written(), 100);
        eprintln!("fast open: {:?}", near.granted().unwrap().fast_open);
        near.finish_with(FinishOptions::default().within(10 * SECOND)).unwrap();
        assert_eq!(acceptor.join().unwrap(), [7; 100]);
    })
    .unwrap();
}

/// Connects with so many first bytes to a server that reads them; tells what became of the SYN's.
fn dial_early(server: &blocking::Listener, length: usize, face: Face) -> FastOpen {
    let early: Vec<u8> = (0..length).map(|place| u8::try_from(place % 251).unwrap()).collect();
    let how = ConnectOptions::default().early(early);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let far = server.accept_within(10 * SECOND).unwrap();
            read_all(far.into_inner())
        });
        let mut near = face(server.local_addr().unwrap(), &how).unwrap();
        assert_eq!(near.written(), length as u64);
        let told = near.granted().unwrap().fast_open.unwrap();
        near.write_all(b"more").unwrap();
        assert_eq!(near.written(), length as u64 + 4);
        let receipt = near.finish_with(FinishOptions::default().within(10 * SECOND)).unwrap();
        assert_eq!(receipt.acked, Some(length as u64 + 4));
        let read = reader.join().unwrap();
        assert!(read == [&how.early[..], b"more"].concat(), "{} B of {length} B", read.len());
        told
    })
}

fn serve_early() -> blocking::Listener {
    let listener = listener();
    tcp::set_fast_open_queue(&listener, 16).unwrap();
    listener
}

// --- connections with oneself, and ports ---------------------------------------------------------

#[test]
fn a_connection_that_meets_itself_is_refused() {
    let Some(host) = host(&[("ipv4/ip_local_port_range", "40000 40000")]) else { return };
    host.run(|| {
        let early = ConnectOptions::default().early(vec![7; 100]);
        let multipath = ConnectOptions::default().mptcp(true);
        for how in [ConnectOptions::default(), early, multipath] {
            for to in [V4, V6, Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()] {
                for result in by_both((to, 40_000).into(), &how) {
                    let error = result.unwrap_err();
                    assert_eq!(error.cause.kind(), ErrorKind::ConnectionRefused, "{error}");
                    assert!(
                        error.to_string().contains("the socket connected to itself"),
                        "{error}"
                    );
                    assert_eq!(connections(), [""; 0]);
                    wait_for_sockets(0);
                }
            }
        }
    })
    .unwrap();
}

#[test]
fn where_all_ports_are_in_use_the_error_says_so() {
    let Some(host) = host(&[("ipv4/ip_local_port_range", "40000 40001")]) else { return };
    host.run(|| {
        for (to, how) in [
            (V4, ConnectOptions::default()),
            (V6, ConnectOptions::default()),
            (V4, ConnectOptions::default().sources(vec![V4])),
            (V4, ConnectOptions::default().early(vec![7; 10])),
        ] {
            let listener = listen_at(to, 50_000);
            let to = listener.local_addr().unwrap();
            let both = by_both(to, &how).map(Result::unwrap);
            for result in by_both(to, &how) {
                let error = result.unwrap_err();
                assert_eq!(error.cause.kind(), ErrorKind::AddrNotAvailable);
                let text = "all local ports to this destination are in use \
                            (net.ipv4.ip_local_port_range)";
                assert!(error.to_string().ends_with(text), "{error}");
            }
            let [one, _two] = both;
            drop(one.abort(Duration::ZERO));
            over_std(to, &how).unwrap();
        }
    })
    .unwrap();
}

#[test]
fn without_an_address_of_the_family_ports_are_not_blamed() {
    let Some(host) = host(&[("ipv6/conf/all/disable_ipv6", "1")]) else { return };
    host.run(|| {
        for result in by_both((V6, 1).into(), &ConnectOptions::default()) {
            let error = result.unwrap_err();
            assert_eq!(error.cause.kind(), ErrorKind::AddrNotAvailable);
            assert!(error.cause.raw_os_error().is_some(), "{error}");
        }
    })
    .unwrap();
}

// --- cancelling ----------------------------------------------------------------------------------

#[test]
fn a_dropped_connect_leaves_nothing_and_is_no_clean_end_to_the_peer() {
    let Some(host) = host(&[("ipv4/tcp_fastopen", "3")]) else { return };
    let mut accepted = 0;
    host.run(|| {
        let server = serve_early();
        let silent = Silent::new();
        let refusing = listener().local_addr().unwrap();
        let early = ConnectOptions::default().early(vec![7; 5_000_000]);
        let sources = ConnectOptions::default().sources(vec![V4]);
        let multipath = ConnectOptions::default().mptcp(true);
        wait_for_sockets(1 + Silent::SOCKETS);
        let before = connections();
        for how in [ConnectOptions::default(), early, sources, multipath] {
            for to in [server.local_addr().unwrap(), silent.address, refusing] {
                for polls in 0..5 {
                    run(drop_after(polls, to, &how));
                    accepted += accept_resets(&server);
                    wait_for("end of all connections", || connections() == before);
                    wait_for_sockets(1 + Silent::SOCKETS);
                }
            }
        }
    })
    .unwrap();
    assert!(accepted > 0, "no connection was cancelled after it was there");
}

#[test]
fn a_blocking_connect_that_takes_too_long_leaves_nothing() {
    let Some(host) = host(&[]) else { return };
    host.run(|| {
        let silent = Silent::new();
        wait_for_sockets(Silent::SOCKETS);
        let before = connections();
        for timeout in [Duration::ZERO, 20 * MS] {
            let result = blocking::Stream::connect_with(
                silent.address,
                &ConnectOptions::default().within(timeout),
            );
            assert_eq!(result.unwrap_err().cause.kind(), ErrorKind::TimedOut);
            assert_eq!(connections(), before);
            wait_for_sockets(Silent::SOCKETS);
        }
        let result =
            run(Stream::connect_with(silent.address, &ConnectOptions::default().within(20 * MS)));
        assert_eq!(result.unwrap_err().cause.kind(), ErrorKind::TimedOut);
        assert_eq!(connections(), before);
        wait_for_sockets(Silent::SOCKETS);
    })
    .unwrap();
}

/// Polls a connect so many times, with a look at the network between, and drops it.
async fn drop_after(polls: usize, to: SocketAddr, how: &ConnectOptions) {
    let mut connect = pin!(Stream::connect_with(to, how));
    for _ in 0..polls {
        match poll_fn(|cx| Poll::Ready(connect.as_mut().poll(cx))).await {
            Poll::Ready(Ok(stream)) => return stream.discard(),
            Poll::Ready(Err(_)) => return,
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
}

/// Accepts what has come, and checks that each was reset.
fn accept_resets(server: &blocking::Listener) -> usize {
    let mut accepted = 0;
    while let Ok(far) = server.accept_within(Duration::ZERO) {
        let (_, end) = count(far);
        assert_eq!(end, Some(End::Reset));
        accepted += 1;
    }
    accepted
}

// --- what they share -----------------------------------------------------------------------------

type Face = fn(SocketAddr, &ConnectOptions) -> Result<blocking::Stream, SocketError>;

fn by_both(to: SocketAddr, how: &ConnectOptions) -> [Result<blocking::Stream, SocketError>; 2] {
    [over_std(to, how), over_tokio(to, how)]
}

fn over_std(to: SocketAddr, how: &ConnectOptions) -> Result<blocking::Stream, SocketError> {
    blocking::Stream::connect_with(to, &how.clone().within(10 * SECOND))
}

fn over_tokio(to: SocketAddr, how: &ConnectOptions) -> Result<blocking::Stream, SocketError> {
    run(async { Stream::connect_with(to, how).await.map(|s| s.into_blocking().unwrap()) })
}

/// A host of its own, so that nobody else opens sockets there.
fn host(sysctls: &[(&str, &str)]) -> Option<Namespace> {
    // The first event loop of a process opens a pair of sockets for good, for signals: not in there.
    run(async {});
    let made = Namespace::create().and_then(|host| {
        for (name, value) in sysctls {
            host.set_sysctl(name, value)?;
        }
        Ok(host)
    });
    match made {
        Ok(host) => Some(host),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn multipath_host() -> Option<Namespace> {
    let host = host(&[])?;
    if host.sysctl("mptcp/enabled").is_ok_and(|enabled| enabled == "1") {
        return Some(host);
    }
    lastbyte_testing::not_tested!("this kernel has no multipath TCP");
    None
}

fn listen(on: IpAddr) -> blocking::Listener {
    listen_at(on, 0)
}

fn listen_at(on: IpAddr, port: u16) -> blocking::Listener {
    blocking::TcpListener::bind((on, port)).unwrap()
}

fn listen_multipath() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    socket.bind(&SocketAddr::from((V4, 0)).into()).unwrap();
    socket.listen(16).unwrap();
    socket.into()
}

/// An address that answers no SYN: a listener whose queue is full.
struct Silent {
    full: Socket,
    address: SocketAddr,
    _waiting: TcpStream,
}

impl Silent {
    /// The listener, and both ends of the connection that fills its queue.
    const SOCKETS: usize = 3;

    fn new() -> Self {
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from((V4, 0)).into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        Self { full, address, _waiting: TcpStream::connect(address).unwrap() }
    }
}

fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Sockets that this thread's network namespace has, open or on their way out.
fn sockets() -> usize {
    let told = std::fs::read_to_string("/proc/thread-self/net/sockstat").unwrap();
    told.lines().next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// TCP connections of this thread's network namespace, in whatever state.
fn connections() -> Vec<String> {
    const LISTEN: &str = "0A";
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let path = format!("/proc/thread-self/net/{table}");
        let rows = std::fs::read_to_string(path).unwrap_or_default();
        for row in rows.lines().skip(1) {
            let words: Vec<&str> = row.split_whitespace().collect();
            if words[3] != LISTEN {
                found.push(words[1..4].join(" "));
            }
        }
    }
    found.sort();
    found
}

/// Waits until the network namespace has just so many sockets: the kernel takes some away a little
/// after they were closed.
#[track_caller]
fn wait_for_sockets(expected: usize) {
    wait_for("as many sockets as there should be", || sockets() == expected);
}

/// Waits until what the kernel does by itself is done.
#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if done() {
            return;
        }
        thread::sleep(MS);
    }
    panic!("no {what} within a second: {} sockets, {:?}", sockets(), connections());
}
