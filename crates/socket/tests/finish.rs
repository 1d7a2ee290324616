//! Finishes and ends over real loopback connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use lastbyte_socket::{
    ConnectOptions, Counted, Delivery, End, FinishOptions, PeerEnd, State, Unproven, blocking,
    finish_fd, finish_fd_counted, finish_fd_while, prepare,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLION: usize = 1_000_000;

fn listener() -> blocking::Listener {
    blocking::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

fn pair() -> (blocking::Stream, blocking::Stream) {
    let listener = listener();
    let near = blocking::Stream::connect_with(
        listener.local_addr().unwrap(),
        &ConnectOptions::default().within(SECOND),
    )
    .unwrap();
    (near, listener.accept_within(SECOND).unwrap())
}

fn want(want: Delivery) -> FinishOptions {
    FinishOptions::default().want(want).within(20 * SECOND)
}

/// Reads a stream to its end; returns the bytes and how it ended.
fn count(mut stream: blocking::Stream) -> (u64, Option<End>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(1..) = stream.read(&mut buffer) {}
    (stream.bytes_read(), stream.observed_end())
}

#[test]
fn a_finished_stream_is_complete_with_a_greeting_unread() {
    let (mut near, mut far) = pair();
    far.write_all(b"220 hello\r\n").unwrap();
    let reader = thread::spawn(move || count(far));
    near.write_all(&vec![7; MILLION]).unwrap();
    let receipt = near.finish_with(want(Delivery::Acked)).unwrap();
    assert_eq!(receipt.acked, Some(MILLION as u64));
    assert_eq!((receipt.unacked, receipt.drained), (Some(0), 11));
    assert_eq!(reader.join().unwrap(), (MILLION as u64, Some(End::Fin)));
}

#[test]
fn closed_says_that_the_peers_fin_came() {
    let (mut near, far) = pair();
    let reader = thread::spawn(move || count(far));
    near.write_all(b"all").unwrap();
    let receipt = near.finish_with(want(Delivery::Closed)).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
    assert_eq!(reader.join().unwrap(), (3, Some(End::Fin)));
}

#[test]
fn a_peer_that_ended_first_cannot_make_it_closed() {
    let (mut near, mut far) = pair();
    far.half_close().unwrap();
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(near.observed_end(), Some(End::Fin));
    near.write_all(b"late").unwrap();
    let error = near.finish_with(want(Delivery::Closed)).unwrap_err();
    assert_eq!((error.why, error.receipt.level), (Unproven::EarlyFin, Delivery::Acked));
    assert_eq!(count(far), (4, Some(End::Fin)));
}

#[test]
fn an_early_fin_that_was_never_read_is_seen_too() {
    let (mut near, mut far) = pair();
    far.half_close().unwrap();
    // On loopback the FIN is there when the call returns.
    near.write_all(b"late").unwrap();
    let error = near.finish_with(want(Delivery::Closed)).unwrap_err();
    assert_eq!(error.why, Unproven::EarlyFin);
}

#[test]
fn a_peer_that_does_not_read_is_acked_no_further_than_its_window() {
    let (mut near, far) = pair();
    near.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    while near.write(&[1; 65_536]).is_ok() {}
    let options = FinishOptions::default().within(SECOND / 4);
    let error = near.finish_with(options).unwrap_err();
    let receipt = error.receipt;
    assert_eq!((error.why, receipt.peer), (Unproven::Deadline, PeerEnd::Silent));
    assert!(receipt.unacked.unwrap() > 0, "{receipt:?}");
    assert!(receipt.acked.unwrap() <= far.info().unwrap().bytes_received.unwrap());
    assert!(error.to_string().contains("the deadline passed"), "{error}");
}

#[test]
fn acked_is_not_read_and_the_receipt_says_how_the_peer_ended() {
    let (mut near, far) = pair();
    near.write_all(b"lost").unwrap();
    // Closing with these four bytes unread resets the connection: acked, and never read.
    drop(far);
    let receipt = near.finish_with(want(Delivery::Acked)).unwrap();
    assert_eq!((receipt.acked, receipt.peer), (Some(4), PeerEnd::Reset));
    assert!(receipt.level < Delivery::Closed);
}

#[test]
fn closed_is_refused_where_the_peer_reset() {
    let (mut near, far) = pair();
    near.write_all(b"lost").unwrap();
    drop(far);
    let error = near.finish_with(want(Delivery::Closed)).unwrap_err();
    assert_eq!((error.why, error.receipt.peer), (Unproven::Reset, PeerEnd::Reset));
}

#[test]
fn an_abort_is_a_reset_at_the_peer() {
    let (mut near, far) = pair();
    near.write_all(b"cut").unwrap();
    near.abort(SECOND).unwrap();
    assert_eq!(count(far).1, Some(End::Reset));
}

/// A peer that sends 50,000 bytes and resets, while a failed write of ours takes the report.
fn cut_behind_a_write(near: &mut impl Write, far: blocking::Stream) {
    let mut far = far;
    far.write_all(&[9; 50_000]).unwrap();
    far.abort(SECOND).unwrap();
    while near.write(&[0; 100]).is_ok() {}
}

#[test]
fn a_cut_stream_is_no_end_also_when_a_write_took_the_error() {
    let (mut near, far) = pair();
    cut_behind_a_write(&mut near, far);
    let error = near.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!((near.observed_end(), near.bytes_read()), (Some(End::Reset), 50_000));
}

/// Why [`blocking::Stream`] exists: the standard library's reader calls the same cut a clean end.
#[test]
fn std_calls_the_same_cut_a_clean_end() {
    let listener = listener();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    cut_behind_a_write(&mut near, listener.accept().unwrap());
    assert_eq!(near.read_to_end(&mut Vec::new()).unwrap(), 50_000);
}

#[test]
fn a_descriptor_can_be_finished_as_well_as_a_stream_by_who_counted() {
    let finish = |prepared: bool, counted: Counted| {
        let listener = listener();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        if prepared {
            prepare(&near).unwrap();
        }
        let far = listener.accept_within(SECOND).unwrap();
        let reader = thread::spawn(move || count(far));
        near.write_all(b"all").unwrap();
        let finished = finish_fd_counted(&near, counted, want(Delivery::Closed));
        assert_eq!(reader.join().unwrap(), (3, Some(End::Fin)));
        finished
    };
    let counted = Counted::default().written(3).read(0);
    let receipt = finish(true, counted).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
    assert_eq!((receipt.written, receipt.sent, receipt.acked), (Some(3), Some(3), Some(3)));

    for (prepared, counted) in [(false, counted), (true, Counted::default())] {
        let error = finish(prepared, counted).unwrap_err();
        assert_eq!((error.why, error.receipt.level), (Unproven::Unknowable, Delivery::Acked));
        assert_eq!(error.receipt.peer, PeerEnd::Unknown);
    }
}

#[test]
fn an_adopted_socket_claims_only_what_it_saw() {
    let listener = listener();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap();
    let mut near = blocking::Stream::adopt(near).unwrap();
    near.write_all(b"seen").unwrap();
    far.finish_with(want(Delivery::Written)).unwrap();
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(near.observed_end(), Some(End::Unknown));
}

#[test]
fn an_urgent_byte_does_not_make_a_reset_look_like_a_fin() {
    let (near, far) = pair();
    let urgent = far.into_inner();
    socket2::SockRef::from(&urgent).send_out_of_band(b"!").unwrap();
    socket2::SockRef::from(&urgent).set_linger(Some(Duration::ZERO)).unwrap();
    drop(urgent);
    assert_eq!(count(near), (1, Some(End::Reset)));
}

#[test]
fn a_finish_that_is_asked_can_be_stopped_and_taken_up_again() {
    let (mut near, far) = pair();
    near.set_write_timeout(Some(SECOND / 10)).unwrap();
    while near.write(&[7; 65_536]).is_ok() {}
    let (slice, mut asked) = (SECOND / 50, 0);
    let mut twice = || {
        asked += 1;
        asked < 2
    };
    let stopped =
        finish_fd_while(&near, Counted::default(), want(Delivery::Acked), slice, &mut twice)
            .unwrap_err();
    assert_eq!((stopped.why, stopped.receipt.peer), (Unproven::Stopped, PeerEnd::Open));
    assert!(stopped.receipt.took >= 2 * slice && stopped.receipt.took < 5 * SECOND);
    assert_eq!(asked, 2);

    let reader = thread::spawn(move || count(far));
    let receipt = finish_fd(&near, want(Delivery::Acked)).unwrap();
    assert_eq!(receipt.unacked, Some(0));
    drop(near);
    assert_eq!(reader.join().unwrap().1, Some(End::Fin));
}

#[test]
fn slices_do_not_move_the_deadline() {
    let (mut near, _far) = pair();
    near.set_write_timeout(Some(SECOND / 10)).unwrap();
    while near.write(&[7; 65_536]).is_ok() {}
    let options = FinishOptions::default().within(SECOND / 4);
    let error =
        finish_fd_while(&near, Counted::default(), options, SECOND / 50, || true).unwrap_err();
    assert_eq!((error.why, error.receipt.peer), (Unproven::Deadline, PeerEnd::Silent));
    assert!(error.receipt.took >= SECOND / 4 && error.receipt.took < 5 * SECOND);
}

#[test]
fn descriptors_are_given_back() {
    let open = || std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
    // Other tests of this process open descriptors too: a leak here would be 200 of them.
    let before = open();
    for _ in 0..200 {
        let (near, far) = pair();
        drop(far);
        let _ = near.finish_with(want(Delivery::Acked));
    }
    assert!(open() < before + 100, "{before} descriptors before, {} after", open());
}

#[cfg(feature = "tokio")]
mod over_tokio {
    use super::*;
    use lastbyte_socket::Stream;

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn finishes_with_a_greeting_unread() {
        let (near, mut far) = pair();
        far.write_all(b"220 hello\r\n").unwrap();
        let reader = thread::spawn(move || count(far));
        let receipt = run(async {
            let mut near = Stream::from_blocking(near).unwrap();
            near.write_all(&vec![7; MILLION]).await.unwrap();
            near.finish_with(want(Delivery::Acked)).await.unwrap()
        });
        assert_eq!((receipt.acked, receipt.drained), (Some(MILLION as u64), 11));
        assert_eq!(reader.join().unwrap(), (MILLION as u64, Some(End::Fin)));
    }

    /// The greeting was there, and the stream had been told, before the finish began.
    #[test]
    fn throws_away_what_came_before_and_was_not_read() {
        let (near, mut far) = pair();
        far.write_all(b"220 hello\r\n").unwrap();
        let receipt = run(async {
            let mut near = Stream::from_blocking(near).unwrap();
            assert_eq!(near.read(&mut [0; 4]).await.unwrap(), 4);
            near.write_all(b"all").await.unwrap();
            near.finish_with(want(Delivery::Acked)).await.unwrap()
        });
        assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Open));
        assert_eq!((receipt.acked, receipt.drained), (Some(3), 7));
        let mut all = String::new();
        far.read_to_string(&mut all).unwrap();
        assert_eq!((all.as_str(), far.observed_end()), ("all", Some(End::Fin)));
    }

    #[test]
    fn a_peer_that_resets_after_everything_was_acked_is_no_fin() {
        let (near, far) = pair();
        let resets = |far: blocking::Stream| {
            // Our three bytes and our FIN are acknowledged, and these bytes unread: a reset.
            while far.info().unwrap().state != State::CloseWait {
                thread::yield_now();
            }
            thread::sleep(DELAYED_ACK);
            drop(far);
        };
        let peer = thread::spawn(move || resets(far));
        let receipt = run(async {
            let mut near = Stream::from_blocking(near).unwrap();
            near.write_all(b"all").await.unwrap();
            near.finish_with(want(Delivery::Closed)).await.unwrap_err().receipt
        });
        assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Reset));
        peer.join().unwrap();
    }

    /// Nothing but the timer would tell of an edge that was lost, and a peer that ends at once is
    /// waited for by edges alone.
    #[test]
    fn no_edge_is_lost_among_many_threads() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(4).enable_all().build().unwrap();
        let late: usize = runtime.block_on(async {
            let mut late = 0;
            for _ in 0..25 {
                let finishes: Vec<_> = (0..8).map(|_| tokio::spawn(finish_once())).collect();
                for finish in finishes {
                    late += usize::from(finish.await.unwrap() > TIMER);
                }
            }
            late
        });
        assert!(late < 50, "{late} of 200 were told by the timer");
    }

    async fn finish_once() -> Duration {
        let (near, far) = pair();
        let reader = tokio::task::spawn_blocking(move || count(far));
        let mut near = Stream::from_blocking(near).unwrap();
        near.write_all(&[7; 5000]).await.unwrap();
        let receipt = near.finish_with(want(Delivery::Acked)).await.unwrap();
        assert_eq!(reader.await.unwrap(), (5000, Some(End::Fin)));
        receipt.took
    }

    /// The acknowledgement of a lone FIN is held back for 40 ms or so.
    const DELAYED_ACK: Duration = Duration::from_millis(100);
    /// The first timer of a finish.
    const TIMER: Duration = Duration::from_millis(55);

    #[test]
    fn waits_without_spinning_for_a_peer_that_ended_first_and_does_not_read() {
        let (near, mut far) = pair();
        far.half_close().unwrap();
        let cpu = run(async {
            let mut near = Stream::from_blocking(near).unwrap();
            let full = tokio::time::timeout(SECOND / 4, near.write_all(&vec![1; 64 << 20])).await;
            assert!(full.is_err(), "64 MiB fit the buffers");
            let before = lastbyte_sys::process::thread_cpu_time().unwrap();
            let options = FinishOptions::default().within(SECOND);
            let error = near.finish_with(options).await.unwrap_err();
            assert_eq!(error.why, Unproven::Deadline);
            lastbyte_sys::process::thread_cpu_time().unwrap() - before
        });
        assert!(cpu < SECOND / 20, "{cpu:?} of processor time in a second of waiting");
    }

    /// tokio tells no more of a socket once both directions look closed to it.
    #[test]
    fn a_peer_that_ended_first_is_not_waited_for_longer_than_it_takes() {
        let took = (0..5).map(|_| {
            let (near, mut far) = pair();
            far.half_close().unwrap();
            let reader = thread::spawn(move || count(far));
            let receipt = run(async {
                let mut near = Stream::from_blocking(near).unwrap();
                assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);
                near.write_all(&vec![7; MILLION]).await.unwrap();
                near.finish_with(want(Delivery::Acked)).await.unwrap()
            });
            assert_eq!(reader.join().unwrap(), (MILLION as u64, Some(End::Fin)));
            receipt.took
        });
        let took: Vec<_> = took.collect();
        assert!(took.iter().any(|took| *took < SECOND / 20), "{took:?}");
    }

    #[test]
    fn a_cut_is_no_end() {
        let (near, mut far) = pair();
        far.write_all(b"half").unwrap();
        far.abort(SECOND).unwrap();
        run(async {
            let mut near = Stream::from_blocking(near).unwrap();
            let mut buffer = [0; 16];
            let cut = loop {
                match near.read(&mut buffer).await {
                    Ok(0) => panic!("a cut stream ended cleanly"),
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset);
            assert_eq!(near.observed_end(), Some(End::Reset));
        });
    }
}
