//! Relays between real sockets: what one side does, the other side sees.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests say what failed by panicking")]

use std::io::{Read, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lastbyte_core::End;
use lastbyte_core::sample::LimitedBy;
use lastbyte_relay::{Pool, Relay, RelayEnd, RelayTimes, Relayed, Side};
use lastbyte_socket::{
    ConnectOptions, Delivery, FinishOptions, ListenOptions, SocketOptions, Stream, blocking,
};
use lastbyte_sys::socket;

const SECOND: Duration = Duration::from_secs(1);

/// A client and a server, and a relay between them in a thread of its own.
struct Bed {
    client: blocking::Stream,
    server: blocking::Stream,
    relay: JoinHandle<Relayed>,
    stop: tokio::sync::oneshot::Sender<()>,
}

/// Both ends of a connection: of the side that connected, and of the one that accepted.
fn pair() -> (blocking::Stream, blocking::Stream) {
    pair_with(&SocketOptions::default())
}

/// The same, by a listener with these options.
fn pair_with(tune: &SocketOptions) -> (blocking::Stream, blocking::Stream) {
    let listener = blocking::Listener::bind_with(
        "127.0.0.1:0",
        &ListenOptions::default().socket(tune.clone()),
    )
    .unwrap();
    let one = blocking::Stream::connect_with(
        listener.local_addr().unwrap(),
        &ConnectOptions::default().within(5 * SECOND),
    )
    .unwrap();
    (one, listener.accept().unwrap())
}

fn bed_with(times: RelayTimes, early: &[u8]) -> Bed {
    bed_of(pair(), pair(), times, early)
}

fn bed_of(
    (client, of_client): (blocking::Stream, blocking::Stream),
    (of_server, server): (blocking::Stream, blocking::Stream),
    times: RelayTimes,
    early: &[u8],
) -> Bed {
    let (early, pool) = (early.to_vec(), Pool::default());
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let relay = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let began = Instant::now();
            let of_client = Stream::from_blocking(of_client).unwrap();
            let of_server = Stream::from_blocking(of_server).unwrap();
            let mut relay = Relay::new(of_client, of_server, early, times, &pool);
            tokio::select! {
                _ = &mut relay => {}
                Ok(()) = stopped => relay.stop(),
            }
            relay.finish(began.elapsed()).await
        })
    });
    for side in [&client, &server] {
        side.set_read_timeout(Some(20 * SECOND)).unwrap();
        side.set_write_timeout(Some(20 * SECOND)).unwrap();
    }
    Bed { client, server, relay, stop }
}

fn bed() -> Bed {
    bed_with(RelayTimes::default(), b"")
}

/// Bytes that differ from each other, and from those of another seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state >> 56).unwrap()
    };
    (0..length).map(|_| next()).collect()
}

/// Reads to the end, however it ends.
fn read_all(stream: &mut blocking::Stream) -> (Vec<u8>, Option<End>) {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    (all, stream.observed_end())
}

fn reset(stream: &blocking::Stream) {
    socket::set_linger(stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn both_ways_are_carried_and_ended_by_themselves() {
    let Bed { mut client, mut server, relay, .. } = bed();
    let names = [&client, &server].map(|side| (side.peer_addr().ok(), side.local_addr().ok()));
    let (up, down) = (bytes(1, 5 << 20), bytes(2, 7 << 20));
    let (want_up, want_down) = (up.clone(), down.clone());
    let serving = thread::spawn(move || {
        let (got, end) = read_all(&mut server);
        assert!(got == want_up && end == Some(End::Fin));
        server.write_all(&down).unwrap();
        server.finish_with(FinishOptions::default().want(Delivery::Acked)).unwrap();
    });
    client.write_all(&up).unwrap();
    client.half_close().unwrap();
    let (got, end) = read_all(&mut client);
    assert!(got == want_down && end == Some(End::Fin));
    drop(client);
    serving.join().unwrap();
    let relayed = relay.join().unwrap();
    assert_eq!((relayed.end, relayed.unacked), (RelayEnd::Fin(Side::Client), None));
    assert!(relayed.up.is_complete() && relayed.down.is_complete(), "{relayed:?}");
    assert_eq!((relayed.up.received, relayed.down.received), (5 << 20, 7 << 20));
    // Of each leg, its own end and the other one's.
    assert_eq!([relayed.client.local, relayed.upstream.local], names.map(|(local, _)| local));
    assert_eq!([relayed.client.peer, relayed.upstream.peer], names.map(|(_, peer)| peer));
    assert!(relayed.client.rtt.is_some() && relayed.upstream.rtt.is_some(), "{relayed:?}");
}

#[test]
fn a_message_goes_there_and_back() {
    let Bed { mut client, mut server, relay, .. } = bed_with(RelayTimes::default(), b"early ");
    let mut buffer = [0; 64];
    for round in 0..100_u8 {
        client.write_all(&[round; 7]).unwrap();
        let length = if round == 0 { 13 } else { 7 };
        server.read_exact(&mut buffer[..length]).unwrap();
        if round == 0 {
            assert_eq!(&buffer[..6], b"early ");
        }
        server.write_all(&[round; 9]).unwrap();
        client.read_exact(&mut buffer[..9]).unwrap();
        assert_eq!(buffer[..9], [round; 9]);
    }
    drop((client, server));
    let relayed = relay.join().unwrap();
    assert_eq!((relayed.up.received, relayed.down.received), (706, 900));
    assert!(relayed.up.is_complete() && relayed.down.is_complete(), "{relayed:?}");
}

#[test]
fn a_reset_comes_after_everything_that_came_before_it() {
    for from in Side::BOTH {
        let Bed { client, server, relay, .. } = bed();
        let (mut cutter, mut reader) =
            if from == Side::Client { (client, server) } else { (server, client) };
        let sent = bytes(3, 3 << 20);
        let want = sent.clone();
        // It is all in the relay's kernel, and the reader has read nothing, when the reset comes.
        let cutting = thread::spawn(move || {
            cutter.write_all(&sent).unwrap();
            cutter.abort(20 * SECOND).unwrap();
        });
        thread::sleep(SECOND / 10);
        let (got, end) = read_all(&mut reader);
        assert_eq!((got.len(), end), (want.len(), Some(End::Reset)));
        assert!(got == want);
        cutting.join().unwrap();
        let relayed = relay.join().unwrap();
        assert_eq!(relayed.end, RelayEnd::Reset(from));
        let way = if from == Side::Client { &relayed.up } else { &relayed.down };
        assert_eq!((way.received, way.acked), (want.len() as u64, Some(want.len() as u64)));
        assert_eq!(way.end, Some(End::Reset));
    }
}

#[test]
fn what_a_side_had_acked_before_its_reset_is_known() {
    for side in Side::BOTH {
        let Bed { client, server, relay, .. } = bed();
        let (mut from, mut to) =
            if side == Side::Client { (server, client) } else { (client, server) };
        from.write_all(&[7; 1000]).unwrap();
        to.read_exact(&mut [0; 1000]).unwrap();
        // With it goes the acknowledgement.
        to.write_all(b"!").unwrap();
        from.read_exact(&mut [0]).unwrap();
        reset(&to);
        drop(to);
        let relayed = relay.join().unwrap();
        let traffic = if side == Side::Client { &relayed.down } else { &relayed.up };
        assert_eq!((traffic.written, traffic.acked), (1000, Some(1000)), "{relayed:?}");
    }
}

#[test]
fn an_early_answer_arrives_whole_and_then_the_reset() {
    for round in 0..30 {
        let Bed { mut client, mut server, relay, .. } = bed();
        let answer = bytes(4, 16 << 10);
        let want = answer.clone();
        let serving = thread::spawn(move || {
            server.read_exact(&mut vec![0; 64 << 10]).unwrap();
            server.write_all(&answer).unwrap();
            // Unread input turns this close into a reset.
        });
        let writing = {
            let fd = socket::duplicate(std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(
                &client,
            )));
            let fd = fd.unwrap();
            thread::spawn(move || {
                let mut socket = std::net::TcpStream::from(fd);
                let _ = socket.write_all(&vec![0; 8 << 20]);
            })
        };
        let (got, end) = read_all(&mut client);
        assert!(got == want, "round {round}: {} bytes, {end:?}", got.len());
        assert_ne!(end, Some(End::Fin), "round {round}");
        serving.join().unwrap();
        writing.join().unwrap();
        assert_eq!(relay.join().unwrap().end, RelayEnd::Reset(Side::Upstream));
    }
}

#[test]
fn a_reset_behind_a_fin_leaves_the_reader_its_end() {
    let Bed { mut client, mut server, relay, .. } = bed();
    server.write_all(b"all of it").unwrap();
    server.half_close().unwrap();
    let (got, end) = read_all(&mut client);
    assert_eq!((&got[..], end), (&b"all of it"[..], Some(End::Fin)));
    reset(&server);
    drop(server);
    // The writer learns that its bytes go nowhere.
    let began = Instant::now();
    let error = loop {
        match client.write(b"more") {
            Ok(_) => thread::sleep(SECOND / 1000),
            Err(error) => break error,
        }
        assert!(began.elapsed() < 10 * SECOND);
    };
    eprintln!("{error}");
    let relayed = relay.join().unwrap();
    assert_eq!(relayed.end, RelayEnd::Reset(Side::Upstream));
    assert_eq!(relayed.down.end, Some(End::Fin));
}

#[test]
fn a_reset_is_seen_at_once_also_where_nothing_is_read_or_written() {
    let Bed { mut client, mut server, relay, .. } = bed();
    client.half_close().unwrap();
    assert_eq!(read_all(&mut server).1, Some(End::Fin));
    reset(&client);
    drop(client);
    let began = Instant::now();
    // The server waits for nothing but its own time.
    let relayed = relay.join().unwrap();
    assert!(began.elapsed() < 5 * SECOND);
    assert_eq!(relayed.end, RelayEnd::Reset(Side::Client));
    while server.write(b"x").is_ok() {
        assert!(began.elapsed() < 10 * SECOND);
    }
}

#[test]
fn an_urgent_byte_stays_in_its_place_and_its_mark_goes_on() {
    for bulk in [0, 300_000] {
        let Bed { mut client, mut server, relay, .. } = bed();
        let before = bytes(6, bulk);
        client.write_all(&before).unwrap();
        assert_eq!(socket::send_urgent(&client, b"!").unwrap(), 1);
        client.write_all(b"after").unwrap();
        client.half_close().unwrap();
        let mut got = vec![0; bulk];
        server.read_exact(&mut got).unwrap();
        assert!(got == before);
        // What follows may be on its way still.
        let began = Instant::now();
        while !socket::at_mark(&server).unwrap() {
            assert!(began.elapsed() < 5 * SECOND, "no mark, {bulk}");
            thread::sleep(SECOND / 1000);
        }
        let (rest, end) = read_all(&mut server);
        assert_eq!((&rest[..], end), (&b"!after"[..], Some(End::Fin)), "{bulk}");
        drop((client, server));
        assert_eq!(relay.join().unwrap().end, RelayEnd::Fin(Side::Client));
    }
}

#[test]
fn a_slow_reader_holds_the_writer_back() {
    let Bed { mut client, server, relay, stop } = bed();
    client.set_write_timeout(Some(SECOND / 2)).unwrap();
    let mut taken = 0;
    let bytes = vec![0; 1 << 20];
    while let Ok(more) = client.write(&bytes) {
        taken += more;
        assert!(taken < 200 << 20, "unbounded");
    }
    stop.send(()).unwrap();
    let relayed = relay.join().unwrap();
    assert_eq!(relayed.end, RelayEnd::Stopped);
    assert!(relayed.up.received - relayed.up.written <= 1 << 20, "{relayed:?}");
    let (why, so_long) = relayed.up.limited_by.unwrap();
    assert_eq!(why, LimitedBy::ReceiveWindow, "{relayed:?}");
    assert!(so_long >= SECOND / 4, "{relayed:?}");
    drop((client, server));
}

#[test]
fn limits_end_what_does_not_move_and_nothing_else() {
    let ms = Duration::from_millis(1);
    let times = RelayTimes { idle: Some(300 * ms), stall: Some(400 * ms), ..Default::default() };
    let Bed { mut client, mut server, relay, .. } = bed_with(times, b"");
    for _ in 0..10 {
        client.write_all(b"alive").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        thread::sleep(100 * ms);
    }
    assert_eq!(relay.join().unwrap().end, RelayEnd::Idle);
    assert_eq!(read_all(&mut client).1, Some(End::Reset));

    let Bed { mut client, server, relay, .. } = bed_with(times, b"");
    let writing = thread::spawn(move || while client.write(&[0; 65536]).is_ok() {});
    let stalled = RelayEnd::Stalled { side: Side::Upstream, reset_by: None };
    assert_eq!(relay.join().unwrap().end, stalled);
    writing.join().unwrap();
    drop(server);
}

#[test]
fn what_is_dropped_half_way_looks_cut_to_both_sides() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut client, of_client) = pair();
    let (of_server, mut server) = pair();
    client.write_all(b"some of it").unwrap();
    runtime.block_on(async {
        let of_client = Stream::from_blocking(of_client).unwrap();
        let of_server = Stream::from_blocking(of_server).unwrap();
        let times = RelayTimes::default();
        let mut relay = Relay::new(of_client, of_server, Vec::new(), times, &Pool::default());
        let moved = async {
            while relay.traffic(Side::Client).written < 10 {
                let wait = tokio::time::sleep(SECOND / 1000);
                tokio::select! { _ = &mut relay => {} () = wait => {} }
            }
        };
        moved.await;
        drop(relay);
    });
    assert_eq!(read_all(&mut client).1, Some(End::Reset));
    assert_eq!(read_all(&mut server).1, Some(End::Reset));
}

#[test]
fn a_reset_is_seen_also_from_a_side_that_got_the_others_fin() {
    let times = RelayTimes { settle: SECOND, ..RelayTimes::default() };
    for from in Side::BOTH {
        let Bed { client, server, relay, .. } = bed_with(times, b"");
        let (mut cutter, mut waits) =
            if from == Side::Client { (client, server) } else { (server, client) };
        // The one side has ended, and reads nothing; the other writes all it can, and resets.
        waits.half_close().unwrap();
        assert_eq!(read_all(&mut cutter).1, Some(End::Fin));
        cutter.set_write_timeout(Some(SECOND / 2)).unwrap();
        while cutter.write(&[0; 65536]).is_ok() {}
        reset(&cutter);
        drop(cutter);
        let relayed = relay.join().unwrap();
        assert_eq!(relayed.end, RelayEnd::Stalled { side: from.other(), reset_by: Some(from) });
        assert_ne!(read_all(&mut waits).1, Some(End::Fin));
    }
}

#[test]
fn no_limit_ends_a_flow_of_which_the_last_bytes_are_taken_slowly() {
    let ms = Duration::from_millis(1);
    let limit = Some(400 * ms);
    let times = RelayTimes { idle: limit, stall: limit, settle: 400 * ms };
    let small = SocketOptions::default().receive_buffer(4096);
    let (of_server, server) = pair_with(&small);
    let Bed { mut client, mut server, relay, .. } = bed_of(pair(), (of_server, server), times, b"");
    let sent = bytes(7, 400_000);
    let want = sent.clone();
    let reading = thread::spawn(move || {
        let (mut got, mut room) = (Vec::new(), [0; 8192]);
        while got.len() < want.len() {
            let read = server.read(&mut room).unwrap();
            assert!(read > 0, "cut after {}", got.len());
            got.extend_from_slice(&room[..read]);
            thread::sleep(20 * ms);
        }
        assert!(got == want);
        server
    });
    client.write_all(&sent).unwrap();
    let mut server = reading.join().unwrap();
    // Now nothing moves, and it is idle.
    assert_eq!(relay.join().unwrap().end, RelayEnd::Idle);
    assert_eq!(read_all(&mut server).1, Some(End::Reset));
    drop(client);
}
