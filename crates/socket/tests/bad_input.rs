//! What cannot be finished, and peers that make it hard: each has its named error or receipt, none
//! hangs, none keeps a descriptor.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::{
    Delivery, Drain, FinishError, FinishOptions, Kind, Operation, PeerEnd, Receipt, Sampler, State,
    Stream, Unproven, blocking, finish_fd,
};
use socket2::{Domain, SockRef, Socket, Type};

use crate::support::{self, MS, SECOND, count, open_descriptors, pair, plain_pair, run, want};

fn within(deadline: Duration) -> FinishOptions {
    FinishOptions::default().within(deadline)
}

/// Finishes over both faces, each on a connection of its own.
fn both_faces<S: lastbyte_socket::Socket>(
    connected: impl Fn() -> (blocking::Stream<S>, blocking::Stream<S>),
    prepare: impl Fn(&mut blocking::Stream<S>, &mut blocking::Stream<S>),
    options: FinishOptions,
    check: impl Fn(Result<Receipt, FinishError>, Duration),
) {
    let (mut near, mut far) = connected();
    prepare(&mut near, &mut far);
    let started = Instant::now();
    let finished = near.finish_with(options);
    check(finished, started.elapsed());

    let (mut near, mut far) = connected();
    prepare(&mut near, &mut far);
    run(async {
        let near = Stream::from_blocking(near).unwrap();
        let started = Instant::now();
        let finished = near.finish_with(options).await;
        check(finished, started.elapsed());
    });
}

fn refused(finished: Result<Receipt, FinishError>) -> Unproven {
    let error = finished.unwrap_err();
    assert_eq!((error.receipt.written, error.receipt.unacked), (None, None), "{error}");
    error.why
}

#[test]
fn what_is_no_connected_stream_is_refused_by_name() {
    let deadline = within(SECOND);
    let file = std::fs::File::open("/proc/self/status").unwrap();
    assert_eq!(refused(finish_fd(&file, deadline)), Unproven::NoSocket);
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert_eq!(refused(finish_fd(&pipe, deadline)), Unproven::NoSocket);
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(refused(finish_fd(&udp, deadline)), Unproven::NoStream);
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    assert_eq!(refused(finish_fd(&datagrams, deadline)), Unproven::NoStream);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(refused(finish_fd(&listener, deadline)), Unproven::Listening);
    let name = std::env::temp_dir().join(format!("lastbyte-listening-{}", std::process::id()));
    let unix = UnixListener::bind(&name).unwrap();
    std::fs::remove_file(&name).unwrap();
    assert_eq!(refused(finish_fd(&unix, deadline)), Unproven::Listening);
    for domain in [Domain::IPV4, Domain::IPV6, Domain::UNIX] {
        let unconnected = Socket::new(domain, Type::STREAM, None).unwrap();
        assert_eq!(refused(finish_fd(&unconnected, deadline)), Unproven::NotConnected);
    }
    let error = finish_fd(&file, deadline).unwrap_err();
    assert!(error.to_string().starts_with("finish: the descriptor is not a socket"), "{error}");
}

/// A connection that does not come about: the listener's queue is full.
fn connecting() -> (Socket, TcpListener, Vec<TcpStream>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let waiting = vec![TcpStream::connect(address).unwrap()];
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = socket.connect(&address.into());
    let state = lastbyte_socket::info(&socket).unwrap().state;
    assert_eq!(state, State::SynSent);
    (socket, listener, waiting)
}

#[test]
fn a_handshake_that_does_not_end_is_waited_for_until_the_deadline() {
    let (socket, _listener, _waiting) = connecting();
    for deadline in [Duration::ZERO, 150 * MS] {
        let started = Instant::now();
        let error = finish_fd(&socket, within(deadline)).unwrap_err();
        assert_eq!(error.why, Unproven::Deadline);
        assert_eq!((error.receipt.level, error.receipt.unacked), (Delivery::Written, None));
        assert!(started.elapsed() >= deadline);
        assert!(SockRef::from(&socket).take_error().unwrap().is_none(), "it still connects");
    }
    let error = blocking::Stream::adopt_new(TcpStream::from(socket)).unwrap_err();
    assert_eq!(error.operation, Operation::Adopt);
}

#[test]
fn a_handshake_that_ends_is_followed_by_the_rest() {
    let (socket, listener, _waiting) = connecting();
    let acceptor = thread::spawn(move || {
        let first = listener.accept().unwrap();
        // The next attempt of the other one finds room: after a second at the latest.
        let (mut second, _) = listener.accept().unwrap();
        let read = second.read_to_end(&mut Vec::new()).unwrap();
        drop(first);
        read
    });
    let receipt = finish_fd(&socket, within(10 * SECOND)).unwrap();
    assert_eq!((receipt.level, receipt.unacked), (Delivery::Acked, Some(0)));
    assert_eq!(acceptor.join().unwrap(), 0);
}

fn fill<S: lastbyte_socket::Socket>(near: &mut blocking::Stream<S>) {
    near.set_write_timeout(Some(50 * MS)).unwrap();
    while near.write(&[1; 65_536]).is_ok() {}
}

/// Not before the deadline, each time; how soon after it is the machine's matter, but not whether.
fn in_time(deadline: Duration, tries: impl Fn() -> Duration) {
    let took: Vec<_> = (0..3).map(|_| tries()).collect();
    assert!(took.iter().all(|took| *took >= deadline), "{took:?}");
    assert!(took.iter().all(|took| *took < deadline + 5 * SECOND), "{took:?} for {deadline:?}");
}

#[test]
fn a_peer_that_never_closes_or_reads_is_left_at_the_deadline() {
    let deadline = 300 * MS;
    let never_closes = || {
        let (mut near, _far) = pair();
        near.write_all(b"all").unwrap();
        let started = Instant::now();
        let options = FinishOptions::default().want(Delivery::Closed).within(deadline);
        let error = near.finish_with(options).unwrap_err();
        assert_eq!((error.why, error.receipt.acked), (Unproven::Deadline, Some(3)));
        assert_eq!((error.receipt.level, error.receipt.peer), (Delivery::Acked, PeerEnd::Silent));
        started.elapsed()
    };
    in_time(deadline, never_closes);
    let never_reads = || {
        let (mut near, _far) = pair();
        fill(&mut near);
        let started = Instant::now();
        let error = near.finish_with(within(deadline)).unwrap_err();
        assert_eq!((error.why, error.receipt.peer), (Unproven::Deadline, PeerEnd::Silent));
        assert!(error.receipt.unacked > Some(0));
        started.elapsed()
    };
    in_time(deadline, never_reads);
    let over_tokio = || {
        let (mut near, _far) = pair();
        fill(&mut near);
        run(async {
            let near = Stream::from_blocking(near).unwrap();
            let started = Instant::now();
            let error = near.finish_with(within(deadline)).await.unwrap_err();
            assert_eq!(error.why, Unproven::Deadline);
            started.elapsed()
        })
    };
    in_time(deadline, over_tokio);
    let unix = || {
        let (mut near, _far) = blocking::UnixStream::pair().unwrap();
        near.write_all(b"never read").unwrap();
        let started = Instant::now();
        let error = near.finish_with(within(deadline)).unwrap_err();
        assert_eq!((error.why, error.receipt.level), (Unproven::Deadline, Delivery::Sent));
        assert_eq!((error.receipt.acked, error.receipt.unacked), (None, None));
        started.elapsed()
    };
    in_time(deadline, unix);
    let abort = || {
        let (mut near, _far) = pair();
        fill(&mut near);
        let started = Instant::now();
        let error = near.abort(deadline).unwrap_err();
        assert_eq!((error.operation, error.why), (Operation::Abort, Unproven::Deadline));
        started.elapsed()
    };
    in_time(deadline, abort);
}

#[test]
fn a_deadline_of_zero_tells_what_is_known_at_once() {
    both_faces(
        pair,
        |near, _| fill(near),
        within(Duration::ZERO),
        |finished, took| {
            let error = finished.unwrap_err();
            assert_eq!(error.why, Unproven::Deadline);
            assert!(error.receipt.unacked > Some(0) && took < SECOND, "{error} {took:?}");
        },
    );
    both_faces(
        blocking::UnixStream::pair_unwrap,
        |near, _| fill(near),
        within(Duration::ZERO),
        |finished, _| {
            assert_eq!(finished.unwrap_err().why, Unproven::Deadline);
        },
    );
}

trait PairUnwrap: Sized {
    fn pair_unwrap() -> (Self, Self);
}

impl PairUnwrap for blocking::UnixStream {
    fn pair_unwrap() -> (Self, Self) {
        Self::pair().unwrap()
    }
}

/// Sends as fast as it can until the connection ends.
fn flood<S: lastbyte_socket::Socket>(mut far: blocking::Stream<S>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        while far.write(&[3; 65_536]).is_ok() {}
        far.written()
    })
}

#[test]
fn a_flood_is_drained_up_to_the_limit_and_no_further() {
    let limit = 300_000;
    let options = want(Delivery::Acked).drain(Drain::Discard(limit));
    for over_tokio in [false, true] {
        let (mut near, far) = pair();
        near.write_all(b"all of it").unwrap();
        let flood = flood(far);
        let receipt = if over_tokio {
            run(async { Stream::from_blocking(near).unwrap().finish_with(options).await })
        } else {
            near.finish_with(options)
        };
        let receipt = receipt.unwrap();
        assert_eq!(receipt.acked, Some(9));
        assert!(receipt.drained <= limit, "{receipt:?}");
        assert!(flood.join().unwrap() > 0);
    }
    let (mut near, far) = blocking::UnixStream::pair().unwrap();
    near.write_all(b"unread").unwrap();
    let flood = flood(far);
    let options = options.within(SECOND);
    let error = near.finish_with(options).unwrap_err();
    assert_eq!(error.receipt.drained, limit, "{error}");
    flood.join().unwrap();
}

#[test]
fn a_flood_does_not_keep_the_deadline_away() {
    let options = FinishOptions::default()
        .within(200 * MS)
        .want(Delivery::Closed)
        .drain(Drain::Discard(u64::MAX));
    for over_tokio in [false, true] {
        let (near, far) = pair();
        let flood = flood(far);
        let started = Instant::now();
        let finished = if over_tokio {
            run(async { Stream::from_blocking(near).unwrap().finish_with(options).await })
        } else {
            near.finish_with(options)
        };
        assert_eq!(finished.unwrap_err().why, Unproven::Deadline);
        assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
        flood.join().unwrap();
    }
}

/// Waits until the kernel says so; a bug shows as a panic and not as a test that hangs.
fn await_state(near: &Sampler, states: &[State]) {
    let started = Instant::now();
    while !states.contains(&near.info().unwrap().state) {
        assert!(started.elapsed() < 10 * SECOND, "never in {states:?}");
        thread::yield_now();
    }
}

/// A connection whose peer resets it when ours has come to a state.
fn reset_in(state: State, wanted: Delivery) -> FinishError {
    let (mut near, mut far) = pair();
    let sampler = near.sampler().unwrap();
    match state {
        State::FinWait2 => near.write_all(b"all").unwrap(),
        _ => fill(&mut near),
    }
    if matches!(state, State::CloseWait | State::LastAck) {
        far.half_close().unwrap();
        await_state(&sampler, &[State::CloseWait]);
    }
    if matches!(state, State::Established | State::CloseWait) {
        let _ = far.abort(Duration::ZERO);
        await_state(&sampler, &[State::Close]);
        return near.finish_with(want(wanted)).unwrap_err();
    }
    let finishing = thread::spawn(move || near.finish_with(want(wanted)).unwrap_err());
    if state == State::Closing {
        await_state(&sampler, &[State::FinWait1]);
        far.half_close().unwrap();
    }
    await_state(&sampler, &[state]);
    let _ = far.abort(Duration::ZERO);
    finishing.join().unwrap()
}

#[test]
fn a_reset_in_each_state_is_told_and_proves_nothing_more() {
    use State::{CloseWait, Closing, Established, FinWait1, LastAck};
    for state in [Established, CloseWait, FinWait1, Closing, LastAck] {
        for wanted in [Delivery::Acked, Delivery::Closed] {
            let error = reset_in(state, wanted);
            let receipt = error.receipt;
            assert_eq!(error.why, Unproven::Reset, "{state:?}: {error}");
            assert!(receipt.unacked > Some(0), "{state:?}: {receipt:?}");
            assert!(receipt.level < Delivery::Acked, "{state:?}: {receipt:?}");
        }
    }
    let error = reset_in(State::FinWait2, Delivery::Closed);
    assert_eq!((error.why, error.receipt.level), (Unproven::Reset, Delivery::Acked), "{error}");
    assert_eq!((error.receipt.acked, error.receipt.peer), (Some(3), PeerEnd::Reset));
}

#[test]
fn a_foreign_socket_in_any_state_claims_no_more() {
    // Half-closed by its owner, with bytes left over: the FIN is not our record, so 1 counts as one.
    let (mut near, _far) = plain_pair();
    near.set_write_timeout(Some(50 * MS)).unwrap();
    while near.write(&[1; 65_536]).is_ok() {}
    near.shutdown(std::net::Shutdown::Write).unwrap();
    let error = finish_fd(&near, within(100 * MS)).unwrap_err();
    assert_eq!((error.why, error.receipt.written), (Unproven::Deadline, None));
    assert!(error.receipt.unacked > Some(1));
    // Gone before we came: an empty queue proves nothing.
    let (near, far) = plain_pair();
    SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    assert_eq!(refused(finish_fd(&near, within(SECOND))), Unproven::NotConnected);
    // Of a reset on the way, no more than was acknowledged before.
    let (near, far) = plain_pair();
    let receipt = finish_fd(&near, within(SECOND)).unwrap();
    assert_eq!((receipt.level, receipt.unacked), (Delivery::Acked, Some(0)));
    assert_eq!(receipt.peer, PeerEnd::Open);
    drop(far);
}

#[test]
fn a_foreign_unix_socket_is_finished_as_one_of_ours() {
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.write_all(&[1; 100_000]).unwrap();
    let reader = thread::spawn(move || {
        let mut far = blocking::Stream::adopt_new(far).unwrap();
        far.write_all(b"220 hello").unwrap();
        count(far)
    });
    let receipt = finish_fd(&near, within(10 * SECOND)).unwrap();
    assert_eq!((receipt.level, receipt.written), (Delivery::Acked, None));
    assert_eq!((receipt.unacked, receipt.drained), (Some(0), 9));
    drop(near);
    assert_eq!(reader.join().unwrap().0, 100_000);
    // Closed without having been read: the queue is empty too.
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.write_all(b"never read").unwrap();
    drop(far);
    let error = finish_fd(&near, within(SECOND)).unwrap_err();
    assert!(error.receipt.level < Delivery::Acked, "{error}");
}

/// A write that waits for room is told of the reset, and then the queue is empty and no error left.
#[test]
fn a_unix_reset_that_a_write_was_told_of_is_not_acked() {
    for over_tokio in [false, true] {
        let (mut near, far) = blocking::UnixStream::pair().unwrap();
        let closer = thread::spawn(move || {
            // The writer waits for room once nothing more comes in.
            let mut before = 0;
            loop {
                let waiting = lastbyte_sys::tcp::unread(&far).unwrap();
                if waiting > 0 && waiting == before {
                    return drop(far);
                }
                before = waiting;
                thread::sleep(20 * MS);
            }
        });
        let error = near.write_all(&vec![1; 4 << 20]).unwrap_err();
        closer.join().unwrap();
        let finished = if over_tokio {
            run(async { Stream::from_blocking(near).unwrap().finish_with(within(SECOND)).await })
        } else {
            near.finish_with(within(SECOND))
        };
        let failed = finished.unwrap_err();
        assert!(matches!(failed.why, Unproven::Reset | Unproven::Unknowable), "{error}, {failed}");
        assert!(failed.receipt.level < Delivery::Acked && failed.receipt.acked.is_none());
        assert_ne!(failed.receipt.peer, PeerEnd::Fin, "{failed}");
    }
}

#[test]
fn a_stopped_process_is_acked_as_far_as_its_kernel_took_it() {
    let listener = support::listener();
    let port = listener.local_addr().unwrap().port().to_string();
    let script = "import socket,sys,time; s=socket.create_connection(('127.0.0.1',int(sys.argv[1]))); \
                  s.recv(1); time.sleep(60)";
    let python = Command::new("python3").args(["-c", script, &port]).stdout(Stdio::null()).spawn();
    let Ok(mut child) = python else { return lastbyte_testing::not_tested!("no python3 here") };
    let mut near = listener.accept_within(10 * SECOND).unwrap();
    let signal = |name: &str, id: u32| {
        Command::new("kill").args([name, &id.to_string()]).status().unwrap();
    };
    signal("-STOP", child.id());
    near.write_all(&[5; 1000]).unwrap();
    let error = near.finish_with(want(Delivery::Closed).within(300 * MS));
    let error = error.unwrap_err();
    let (why, acked) = (error.why, error.receipt.acked);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((why, acked), (Unproven::Deadline, Some(1000)), "its kernel answers for it");
}

#[test]
fn what_fails_gives_its_descriptors_back() {
    let before = open_descriptors();
    for turn in 0..300 {
        let (mut near, far) = pair();
        near.write_all(b"some").unwrap();
        let options = within(Duration::ZERO);
        match turn % 3 {
            0 => drop(near.finish_with(options)),
            1 => {
                drop(run(async {
                    Stream::from_blocking(near).unwrap().finish_with(options).await
                }));
            }
            _ => drop(near.abort(Duration::ZERO)),
        }
        drop(far);
    }
    // Other tests of this process open some too: a leak would be three hundred.
    let after = open_descriptors();
    assert!(after < before + 150, "{before} descriptors before, {after} after");
    assert_eq!(pair().0.kind(), Kind::Tcp);
}
