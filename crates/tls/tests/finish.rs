//! What a finish over TLS proves, blocking.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::finish::Unproven;
use lastbyte_socket::blocking::UnixStream;
use lastbyte_socket::{Delivery, Drain, End, FinishOptions, PeerEnd};
use lastbyte_tls::TlsUnproven;
use lastbyte_tls::blocking::TlsStream;

use crate::support::{
    LONG, NAME, SECOND, VERSIONS, client, client_of, pair, pair_of, read_all, server,
};

const MILLION: usize = 1_000_000;

fn want(want: Delivery) -> FinishOptions {
    FinishOptions::default().want(want).within(LONG)
}

/// Until the server's session tickets have come, which a client that only writes never reads.
fn wait_for_tickets(near: &TlsStream) {
    near.transport().wait(true, false, LONG).unwrap();
}

/// Why there is a finish: the classic loss.
#[test]
fn tickets_that_a_client_never_read_make_its_plain_close_lose_bytes() {
    let (mut near, mut far) = pair();
    wait_for_tickets(&near);
    near.transport().set_write_timeout(Some(SECOND / 10)).unwrap();
    while near.flush().is_ok() {
        let _ = near.write(&[7; 65_536]);
    }
    let written = near.written();
    drop(near);
    let (bytes, result) = read_all(&mut far);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(bytes < written, "{bytes} of {written}");
}

#[test]
fn tickets_that_a_client_never_read_cost_a_finished_stream_nothing() {
    for version in VERSIONS {
        for round in 0..20 {
            let (mut near, mut far) = pair_of(client_of(version));
            if version == VERSIONS[1] {
                wait_for_tickets(&near);
            }
            let reader = thread::spawn(move || (read_all(&mut far), far.observed_end()));
            near.write_all(&vec![7; MILLION]).unwrap();
            let receipt = near.finish_with(want(Delivery::Acked)).unwrap();
            assert!(receipt.all_acked(), "{receipt}");
            assert_eq!((receipt.written, receipt.unwritten), (MILLION as u64, 0));
            let ciphertext = receipt.transport.acked.unwrap();
            assert!(
                ciphertext > MILLION as u64 && receipt.transport.unacked == Some(0),
                "{receipt}"
            );
            let ((bytes, result), ended) = reader.join().unwrap();
            assert!(result.is_ok(), "round {round}: {result:?}");
            assert_eq!((bytes, ended), (MILLION as u64, Some(End::Fin)), "round {round}");
        }
    }
}

#[test]
fn closed_says_that_the_peers_close_notify_and_fin_came() {
    let (mut near, mut far) = pair();
    let peer = thread::spawn(move || {
        assert_eq!(read_all(&mut far).0, 3);
        far.write_all(&[9; 300_000]).unwrap();
        far.finish_with(want(Delivery::Acked)).unwrap()
    });
    near.write_all(b"all").unwrap();
    let receipt = near.finish_with(want(Delivery::Closed)).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Some(Delivery::Closed), Some(End::Fin)));
    assert_eq!((receipt.drained, receipt.transport.peer), (300_000, PeerEnd::Fin));
    assert!(receipt.to_string().contains("peer ended with close_notify"), "{receipt}");
    assert!(peer.join().unwrap().all_acked());
}

#[test]
fn a_fin_without_close_notify_is_not_closed() {
    let (mut near, mut far) = pair();
    let peer = thread::spawn(move || {
        assert_eq!(read_all(&mut far).0, 3);
        drop(far); // a FIN and no more
    });
    near.write_all(b"all").unwrap();
    let error = near.finish_with(want(Delivery::Closed)).unwrap_err();
    assert_eq!(error.why, TlsUnproven::Truncated, "{error}");
    let receipt = error.receipt;
    assert_eq!((receipt.level, receipt.peer), (Some(Delivery::Acked), Some(End::Truncated)));
    assert_eq!(receipt.transport.level, Delivery::Closed);
    peer.join().unwrap();
}

#[test]
fn acked_looks_at_nothing_and_says_so() {
    let (mut near, mut far) = pair();
    far.write_all(b"unread").unwrap();
    far.half_close().unwrap();
    near.transport().wait(true, false, LONG).unwrap();
    near.write_all(b"all").unwrap();
    let receipt = near.finish_with(want(Delivery::Acked)).unwrap();
    assert_eq!((receipt.peer, receipt.drained), (None, 0));
    assert!(receipt.transport.drained > 0);
    assert_eq!(read_all(&mut far).0, 3);
}

#[test]
fn an_end_that_was_read_before_is_in_the_receipt_and_too_early_for_closed() {
    let (mut near, mut far) = pair();
    far.half_close().unwrap();
    assert_eq!(read_all(&mut near).0, 0);
    near.write_all(b"late").unwrap();
    let error = near.finish_with(want(Delivery::Closed)).unwrap_err();
    assert_eq!(error.why, TlsUnproven::Transport(Unproven::EarlyFin), "{error}");
    assert_eq!(error.receipt.peer, Some(End::Fin));
    assert!(error.receipt.all_acked());
    assert_eq!(read_all(&mut far).0, 4);
}

#[test]
fn past_the_limit_a_close_notify_was_not_seen() {
    let drains = [Drain::Discard(1000), Drain::Keep];
    for drain in drains {
        let (mut near, mut far) = pair();
        let peer = thread::spawn(move || {
            assert_eq!(read_all(&mut far).0, 3);
            far.write_all(&[9; 30_000]).unwrap();
            let _ = far.finish_with(want(Delivery::Acked));
        });
        near.write_all(b"all").unwrap();
        let error = near.finish_with(want(Delivery::Closed).drain(drain)).unwrap_err();
        assert_eq!(error.why, TlsUnproven::Unread, "{drain:?}: {error}");
        assert_eq!((error.receipt.level, error.receipt.peer), (Some(Delivery::Acked), None));
        peer.join().unwrap();
    }
}

#[test]
fn the_deadline_holds_with_a_peer_that_does_not_read() {
    let (mut near, mut far) = pair();
    near.transport().set_write_timeout(Some(SECOND / 10)).unwrap();
    while near.flush().is_ok() {
        let _ = near.write(&[1; 65_536]);
    }
    let written = near.written();
    let began = Instant::now();
    let options = FinishOptions::default().within(SECOND / 2);
    let error = near.finish_with(options).unwrap_err();
    assert!(began.elapsed() < 10 * SECOND, "{:?}", began.elapsed());
    assert_eq!(error.why, TlsUnproven::Transport(Unproven::Deadline), "{error}");
    let receipt = error.receipt;
    assert_eq!((receipt.level, receipt.written), (None, written));
    assert!(receipt.unwritten > 0 && !receipt.all_acked(), "{receipt}");
    assert!(receipt.to_string().contains("not written"), "{receipt}");
    let (bytes, result) = read_all(&mut far);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(bytes < written, "{bytes} of {written}");
}

#[test]
fn a_peer_that_waits_for_us_to_read_gets_the_rest_all_the_same() {
    let (mut near, mut far) = pair();
    near.transport().set_write_timeout(Some(SECOND / 10)).unwrap();
    let peer = thread::spawn(move || {
        // Far more than fits into the sockets between us; only then does it read.
        far.write_all(&vec![9; 16 * MILLION]).unwrap();
        let met = read_all(&mut far);
        (met.0, met.1.is_ok(), far.observed_end())
    });
    while near.flush().is_ok() {
        let _ = near.write(&[1; 65_536]);
    }
    let written = near.written();
    let drain = Drain::Discard(20 * MILLION as u64);
    let receipt = near.finish_with(want(Delivery::Acked).drain(drain)).unwrap();
    assert_eq!(receipt.written, written);
    assert_eq!(peer.join().unwrap(), (written, true, Some(End::Fin)));
}

#[test]
fn a_flush_leaves_nothing_behind_and_a_write_takes_a_bounded_part() {
    let (mut near, mut far) = pair();
    near.transport().set_write_timeout(Some(SECOND / 10)).unwrap();
    near.write_all(b"first").unwrap();
    near.flush().unwrap();
    far.read_exact(&mut [0; 5]).unwrap();
    let mut refused = 0;
    while refused < 3 {
        match near.write(&vec![1; 4 * MILLION]) {
            Ok(bytes) => assert!(bytes <= 64 << 10, "{bytes} at once"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused += 1;
            }
        }
    }
    let written = near.written();
    // All that the kernel has not: at most the buffer, and the plaintext of the last write.
    let reader = thread::spawn(move || {
        let mut room = vec![0; usize::try_from(written - 5).unwrap()];
        far.read_exact(&mut room).unwrap();
        far
    });
    near.transport().set_write_timeout(None).unwrap();
    near.flush().unwrap();
    let far = reader.join().unwrap();
    assert_eq!(far.bytes_read(), written);
}

#[test]
fn an_abort_is_a_cut_after_all_that_was_written() {
    let (mut near, mut far) = pair();
    near.write_all(&[7; 100_000]).unwrap();
    let reader = thread::spawn(move || {
        let (bytes, result) = read_all(&mut far);
        (bytes, result.unwrap_err().kind(), far.observed_end())
    });
    let receipt = near.abort(LONG).unwrap();
    assert_eq!((receipt.level, receipt.unwritten), (Some(Delivery::Acked), 0));
    let cut = (100_000, ErrorKind::ConnectionReset, Some(End::Reset));
    assert_eq!(reader.join().unwrap(), cut);
}

#[test]
fn a_reset_in_the_middle_is_told_by_the_finish() {
    let (mut near, far) = pair();
    near.write_all(&[7; 1000]).unwrap();
    far.abort(LONG).unwrap();
    let error = near.finish_with(want(Delivery::Closed)).unwrap_err();
    assert_eq!(error.why, TlsUnproven::Transport(Unproven::Reset), "{error}");
    assert!(error.receipt.level < Some(Delivery::Closed));
}

#[test]
fn over_a_unix_socket_it_is_the_same() {
    let (near, far) = UnixStream::pair().unwrap();
    let accepting = thread::spawn(move || TlsStream::accept(far, server(), LONG).unwrap());
    let mut near = TlsStream::connect(near, client(), NAME, LONG).unwrap();
    let mut far = accepting.join().unwrap();
    near.write_all(&[7; 1000]).unwrap();
    let reader = thread::spawn(move || (read_all(&mut far).0, far.observed_end()));
    let receipt = near.finish_with(want(Delivery::Acked)).unwrap();
    assert!(receipt.all_acked(), "{receipt}");
    assert_eq!(reader.join().unwrap(), (1000, Some(End::Fin)));
}

#[test]
fn a_finish_that_may_take_no_time_takes_none() {
    let (mut near, mut far) = pair();
    near.write_all(b"x").unwrap();
    let options = want(Delivery::Acked).within(Duration::ZERO);
    let began = Instant::now();
    // Proven or not, it says which, and the peer has its close_notify.
    let receipt = near.finish_with(options).unwrap_or_else(|error| *error.receipt);
    assert!(began.elapsed() < LONG, "{receipt}");
    assert_eq!((read_all(&mut far).0, far.observed_end()), (1, Some(End::Fin)));
}
