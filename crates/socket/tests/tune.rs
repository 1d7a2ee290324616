//! Options over real loopback connections: what is granted, what a listener passes on, and what
//! comes of it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::{
    ConnectOptions, Granted, Keepalive, ListenOptions, SocketError, SocketOptions, blocking,
};
use lastbyte_sys::{poll, tcp};
use lastbyte_testing::{Run, mostly};

const SECOND: Duration = Duration::from_secs(1);
/// The most that the kernel hands on as one segment (`GSO_LEGACY_MAX_SIZE` of
/// `include/linux/netdevice.h`).
const SEGMENT: u32 = 65_536;
/// In bytes per second.
const RATE: u64 = 10_000_000;

#[test]
fn both_sides_are_granted_what_was_asked() {
    let (tune, untouched) = (everything(), nothing());
    let (near, far) = pair(&tune, &SocketOptions::default());
    assert_granted(&near, &tune);
    assert_granted(&far, &untouched);
    assert!(!far.granted().unwrap().keepalive);

    let (near, far) = pair(&SocketOptions::default(), &tune);
    assert_granted(&near, &untouched);
    assert_granted(&far, &tune);
}

#[test]
fn a_listener_passes_on_what_it_had_when_the_handshake_ended() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let early = TcpStream::connect(address).unwrap();
    let queued = poll::wait([(&listener, poll::READABLE)], Some(5 * SECOND)).unwrap();
    assert!(queued[0], "the handshake is over");

    let tune = SocketOptions::default().nodelay(true).user_timeout(7 * SECOND);
    tune.apply_to(&listener).unwrap();
    let late = TcpStream::connect(address).unwrap();
    let accepted = [(); 2].map(|()| Granted::read(&listener.accept().unwrap().0).unwrap());
    let told = accepted.map(|granted| (granted.nodelay, granted.user_timeout));
    assert_eq!(told, [(false, Some(Duration::ZERO)), (true, Some(7 * SECOND))]);
    drop((early, late));
}

#[test]
fn a_running_connection_is_granted_what_was_asked_and_gives_it_back() {
    let (tune, back) = (everything(), nothing());
    let (near, _far) = pair(&SocketOptions::default(), &SocketOptions::default());
    tune.apply_to(&near).unwrap();
    assert_granted(&near, &tune);
    match back.apply_to(&near) {
        Err(error) if lacks_rights(&error) => lastbyte_testing::not_tested!("{error}"),
        result => {
            result.unwrap();
            assert_granted(&near, &back);
        }
    }
}

#[test]
fn what_is_refused_is_named_with_both_ends() {
    let (near, _far) = pair(&SocketOptions::default(), &SocketOptions::default());
    let unknown = SocketOptions::default().congestion("no-such-thing");
    let error = unknown.apply_to(&near).unwrap_err();
    assert!(error.endpoints.local.is_some() && error.endpoints.peer.is_some());
    assert_eq!(*error.endpoints, near.endpoints());
    assert!(error.to_string().starts_with("set TCP_CONGESTION 127.0.0.1:"), "{error}");

    let endless = Keepalive { idle: Duration::MAX, interval: SECOND, probes: 3 };
    let silent = Keepalive { idle: SECOND, interval: SECOND, probes: 0 };
    for (wrong, option) in [
        (SocketOptions::default().max_pacing_rate(0), "SO_MAX_PACING_RATE"),
        (SocketOptions::default().user_timeout(Duration::MAX), "TCP_USER_TIMEOUT"),
        (SocketOptions::default().keepalive(endless), "TCP_KEEPIDLE"),
        (SocketOptions::default().keepalive(silent), "TCP_KEEPCNT"),
        (SocketOptions::default().interface("no-such-thing"), "SO_BINDTODEVICE"),
    ] {
        let error = blocking::Stream::connect_with(
            near.peer_addr().unwrap(),
            &ConnectOptions::default().socket(wrong.clone()).within(SECOND),
        )
        .unwrap_err();
        assert!(error.to_string().starts_with(&format!("set {option}: ")), "{error}");
    }
}

/// Without a limit loopback is far above three times this; how near a flow comes to its limit is the machine's
/// matter too.
#[test]
fn a_pacing_rate_holds_a_cubic_flow() {
    let free = SocketOptions::default().congestion("cubic");
    let paced = free.clone().max_pacing_rate(RATE);
    if let Err(error) = free.apply_to(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()) {
        lastbyte_testing::not_tested!("{error}");
        return;
    }
    for (what, rate) in paced_rates(&free, &paced) {
        assert!((1..3 * RATE).contains(&rate), "{what}: {rate} B/s received");
    }
}

#[test]
#[ignore = "measures rates, some seconds"]
fn a_paced_flow_is_as_fast_as_its_limit() {
    let free = SocketOptions::default().congestion("cubic");
    let paced = free.clone().max_pacing_rate(RATE);
    mostly("rates of flows", |_| {
        if let Err(error) = free.apply_to(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()) {
            return Run::NotHere(error.to_string());
        }
        let (near, far) = pair(&free, &free);
        let unlimited = received_per_second(near, far);
        let rates = paced_rates(&free, &paced);
        let held = RATE * 9 / 10..RATE * 11 / 10;
        let is_right = unlimited > 3 * RATE && rates.iter().all(|(_, rate)| held.contains(rate));
        Run::right_if(is_right, || format!("{unlimited} B/s with no limit, then {rates:?}"))
    });
}

/// What is received of flows that are limited in each way, in bytes per second.
fn paced_rates(free: &SocketOptions, paced: &SocketOptions) -> [(&'static str, u64); 3] {
    let connected = {
        let (near, far) = pair(paced, free);
        received_per_second(near, far)
    };
    let accepted = {
        let (near, far) = pair(free, paced);
        received_per_second(far, near)
    };
    let running = {
        let (mut near, far) = pair(free, free);
        near.write_all(&[1; 50_000]).unwrap();
        paced.apply_to(&near).unwrap();
        received_per_second(near, far)
    };
    [
        ("limited where it connected", connected),
        ("limited where it was accepted", accepted),
        ("limited while it runs", running),
    ]
}

#[test]
fn the_limit_of_unsent_bytes_holds_on_both_sides() {
    const LIMIT: u32 = 16_384;
    let (free, limited) = (SocketOptions::default(), SocketOptions::default().notsent_lowat(LIMIT));
    let (near, far) = pair(&free, &free);
    let unlimited = unsent_when_full(near, far);
    let (near, far) = pair(&limited, &free);
    let connected = unsent_when_full(near, far);
    let (near, far) = pair(&free, &limited);
    let accepted = unsent_when_full(far, near);
    eprintln!("unsent: {connected} and {accepted} B limited to {LIMIT} B; {unlimited} B without");
    for unsent in [connected, accepted] {
        assert!((1..LIMIT + SEGMENT).contains(&unsent), "{unsent} B unsent");
    }
    assert!(unlimited > 2 * (LIMIT + SEGMENT), "{unlimited} B unsent without a limit");
}

#[test]
fn poll_says_writable_below_half_of_the_limit() {
    let (mut near, _far) = pair(&SocketOptions::default(), &SocketOptions::default());
    // So small that the buffer is far from full: nothing but the limit can be in the way.
    while tcp::unsent(&near).unwrap() < 50_000 {
        near.write_all(&[1; 1_000]).unwrap();
    }
    let unsent = tcp::unsent(&near).unwrap();
    for (limit, writable) in [(2 * unsent, false), (2 * unsent + 1, true)] {
        SocketOptions::default().notsent_lowat(limit).apply_to(&near).unwrap();
        let ready = poll::wait([(&near, poll::WRITABLE)], Some(Duration::ZERO)).unwrap();
        assert_eq!(ready, [writable], "{unsent} B unsent, a limit of {limit} B");
    }
    assert_eq!(tcp::unsent(&near).unwrap(), unsent, "nothing was read meanwhile");
}

#[cfg(feature = "tokio")]
#[test]
fn an_async_stream_is_tuned_while_it_runs() {
    let (near, _far) = pair(&SocketOptions::default(), &SocketOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let near = lastbyte_socket::Stream::from_blocking(near).unwrap();
        SocketOptions::default().nodelay(true).apply_to(&near).unwrap();
        assert!(Granted::read(&near).unwrap().nodelay);
    });
}

/// A connection, and what its listener accepted.
fn pair(
    connecting: &SocketOptions,
    listening: &SocketOptions,
) -> (blocking::Stream, blocking::Stream) {
    let listener = blocking::Listener::bind_with(
        any_port(),
        &ListenOptions::default().socket(listening.clone()),
    )
    .unwrap();
    let near = blocking::Stream::connect_with(
        listener.local_addr().unwrap(),
        &ConnectOptions::default().socket(connecting.clone()).within(SECOND),
    )
    .unwrap();
    (near, listener.accept_within(SECOND).unwrap())
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Every option with a value that is not the kernel's own.
fn everything() -> SocketOptions {
    let mark = SocketOptions::default().mark(7);
    let mark = match mark.apply_to(&TcpListener::bind(any_port()).unwrap()) {
        Err(error) if lacks_rights(&error) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        result => result.map(|()| mark.mark).unwrap(),
    };
    let mut all = SocketOptions::default()
        .congestion("reno")
        .send_buffer(65_536)
        .receive_buffer(65_536)
        .notsent_lowat(16_384)
        .user_timeout(7 * SECOND)
        .max_pacing_rate(RATE)
        .keepalive(Keepalive { idle: 77 * SECOND, interval: 13 * SECOND, probes: 4 })
        .nodelay(true)
        .interface("lo");
    all.mark = mark;
    all
}

/// Every option that has a value for the kernel's own choice, with that.
fn nothing() -> SocketOptions {
    SocketOptions::default()
        .notsent_lowat(0)
        .user_timeout(Duration::ZERO)
        .max_pacing_rate(u64::MAX)
        .nodelay(false)
        .interface("")
}

fn lacks_rights(error: &SocketError) -> bool {
    error.cause.kind() == io::ErrorKind::PermissionDenied
}

#[track_caller]
fn assert_granted(stream: &blocking::Stream, tune: &SocketOptions) {
    let granted = stream.granted().unwrap();
    let mut asked = granted.clone();
    if let Some(name) = &tune.congestion {
        asked.congestion.clone_from(name);
    }
    if let Some(bytes) = tune.send_buffer {
        asked.send_buffer = 2 * bytes;
        asked.send_buffer_fixed = granted.send_buffer_fixed.map(|_| true);
    }
    if let Some(bytes) = tune.receive_buffer {
        asked.receive_buffer = 2 * bytes;
        asked.receive_buffer_fixed = granted.receive_buffer_fixed.map(|_| true);
    }
    asked.notsent_lowat = tune.notsent_lowat.or(asked.notsent_lowat);
    asked.user_timeout = tune.user_timeout.or(asked.user_timeout);
    asked.max_pacing_rate = tune.max_pacing_rate.unwrap_or(asked.max_pacing_rate);
    asked.keepalive |= tune.keepalive.is_some();
    asked.keepalive_times = tune.keepalive.or(asked.keepalive_times);
    asked.mark = tune.mark.unwrap_or(asked.mark);
    asked.nodelay = tune.nodelay.unwrap_or(asked.nodelay);
    asked.interface = tune.interface.clone().or(asked.interface);
    assert_eq!(granted, asked);
}

/// What the receiver counts in half a second, in bytes per second.
fn received_per_second(mut sender: blocking::Stream, mut receiver: blocking::Stream) -> u64 {
    sender.set_write_timeout(Some(10 * SECOND)).unwrap();
    receiver.set_read_timeout(Some(10 * SECOND)).unwrap();
    let writer = thread::spawn(move || while sender.write_all(&[1; 65_536]).is_ok() {});
    let mut buffer = vec![0; 1 << 20];
    // The first segments are not paced: with them read, the clock starts at one that is.
    while receiver.bytes_read() < 20 * u64::from(SEGMENT) {
        assert!(receiver.read(&mut buffer).unwrap() > 0);
    }
    let (started, before) = (Instant::now(), receiver.bytes_read());
    while started.elapsed() < SECOND / 2 {
        assert!(receiver.read(&mut buffer).unwrap() > 0);
    }
    let (bytes, time) = (receiver.bytes_read() - before, started.elapsed());
    // A reset, which ends the writer.
    drop(receiver);
    writer.join().unwrap();
    u64::try_from(u128::from(bytes) * SECOND.as_nanos() / time.as_nanos()).unwrap()
}

/// Writes until there is no more room, to a peer that does not read, and returns the bytes not yet
/// sent.
fn unsent_when_full(mut writer: blocking::Stream, silent: blocking::Stream) -> u32 {
    writer.set_write_timeout(Some(SECOND / 10)).unwrap();
    while writer.write(&[1; 65_536]).is_ok() {}
    let unsent = tcp::unsent(&writer).unwrap();
    drop(silent);
    unsent
}
