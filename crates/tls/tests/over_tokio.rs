//! The same over tokio: ends, finishes, back-pressure, and what a dropped future leaves.

use std::future::Future;
use std::io::{ErrorKind, Write};
use std::thread;

use lastbyte_core::finish::Unproven;
use lastbyte_socket::{
    ConnectOptions, Delivery, Drain, End, FinishOptions, Listener, Stream, UnixListener, UnixStream,
};
use lastbyte_tls::{Cause, Cut, TlsStream, TlsUnproven, blocking};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::{Instant, timeout};

use crate::support::{
    self, CutAt, LONG, NAME, SECOND, client, cutter, listener, record_of, server,
};

const MILLION: usize = 1_000_000;

/// Runs it, and calls it a failure if it hangs.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, test).await.expect("it hangs") })
}

async fn pair() -> (TlsStream, TlsStream) {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let listener = Listener::from_blocking(listener).unwrap();
    let near =
        Stream::connect_with(address, &ConnectOptions::default().within(SECOND)).await.unwrap();
    let far = listener.accept().await.unwrap();
    let (near, far) = tokio::join!(
        TlsStream::connect(near, client(), NAME, LONG),
        TlsStream::accept(far, server(), LONG)
    );
    (near.unwrap(), far.unwrap())
}

async fn read_all(stream: &mut TlsStream) -> (u64, std::io::Result<()>) {
    let (mut total, mut room) = (0, vec![0; 65_536]);
    loop {
        match stream.read(&mut room).await {
            Ok(0) => return (total, Ok(())),
            Ok(bytes) => total += bytes as u64,
            Err(error) => return (total, Err(error)),
        }
    }
}

fn want(want: Delivery) -> FinishOptions {
    FinishOptions::default().want(want).within(LONG)
}

#[test]
fn a_finished_stream_is_complete_with_tickets_unread() {
    run(async {
        for round in 0..20 {
            let (mut near, mut far) = pair().await;
            let reader =
                tokio::spawn(async move { (read_all(&mut far).await.0, far.observed_end()) });
            near.write_all(&vec![7; MILLION]).await.unwrap();
            let receipt = near.finish_with(want(Delivery::Acked)).await.unwrap();
            assert!(receipt.all_acked(), "{receipt}");
            assert_eq!((receipt.written, receipt.unwritten), (MILLION as u64, 0));
            let read = reader.await.unwrap();
            assert_eq!(read, (MILLION as u64, Some(End::Fin)), "round {round}");
        }
    });
}

#[test]
fn closed_says_that_the_peers_close_notify_and_fin_came() {
    run(async {
        let (mut near, mut far) = pair().await;
        let peer = tokio::spawn(async move {
            assert_eq!(read_all(&mut far).await.0, 3);
            far.write_all(&[9; 300_000]).await.unwrap();
            far.finish_with(want(Delivery::Acked)).await.unwrap()
        });
        near.write_all(b"all").await.unwrap();
        let receipt = near.finish_with(want(Delivery::Closed)).await.unwrap();
        assert_eq!((receipt.level, receipt.peer), (Some(Delivery::Closed), Some(End::Fin)));
        assert_eq!(receipt.drained, 300_000);
        assert!(peer.await.unwrap().all_acked());
    });
}

#[test]
fn a_fin_without_close_notify_is_not_closed() {
    run(async {
        let (mut near, mut far) = pair().await;
        let peer = tokio::spawn(async move {
            assert_eq!(read_all(&mut far).await.0, 3);
        });
        near.write_all(b"all").await.unwrap();
        let error = near.finish_with(want(Delivery::Closed)).await.unwrap_err();
        assert_eq!(error.why, TlsUnproven::Truncated, "{error}");
        assert_eq!(error.receipt.level, Some(Delivery::Acked));
        peer.await.unwrap();
    });
}

#[test]
fn a_cut_is_an_error_after_all_that_came_before_it() {
    for (resets, kind, end) in [
        (false, ErrorKind::UnexpectedEof, End::Truncated),
        (true, ErrorKind::ConnectionReset, End::Reset),
    ] {
        // The server's hello, ChangeCipherSpec, four parts of its handshake, two tickets; it varies
        // with rustls, so that the first cut behind the handshake is looked for.
        let met = (1..40).find_map(|records| {
            let listener = listener();
            let there = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let far = listener.accept_within(LONG).unwrap();
                let Ok(mut far) = blocking::TlsStream::accept(far, server(), LONG) else { return };
                let _ = far.write_all(&[7; 1000]).and_then(|()| far.write_all(&[7; 1000]));
                let _ = far.finish_with(FinishOptions::default().within(LONG));
            });
            let (address, relay) = cutter(there, CutAt { records, bytes: 20, resets });
            let met = run(async {
                let near = Stream::connect_with(address, &ConnectOptions::default().within(LONG))
                    .await
                    .unwrap();
                let near = TlsStream::connect(near, client(), NAME, LONG).await;
                let mut near = near.ok()?;
                let (bytes, result) = read_all(&mut near).await;
                (bytes == 1000).then(|| (result.unwrap_err().kind(), near.observed_end()))
            });
            relay.join().unwrap();
            server.join().unwrap();
            met
        });
        assert_eq!(met, Some((kind, Some(end))), "resets: {resets}");
    }
}

#[test]
fn the_deadline_holds_with_a_peer_that_does_not_read() {
    run(async {
        let (mut near, mut far) = pair().await;
        // Until the kernel and the buffer are full.
        while timeout(SECOND / 10, near.write(&[1; 65_536])).await.is_ok() {}
        let written = near.written();
        let began = Instant::now();
        let error =
            near.finish_with(FinishOptions::default().within(SECOND / 2)).await.unwrap_err();
        assert!(began.elapsed() < 10 * SECOND, "{:?}", began.elapsed());
        assert_eq!(error.why, TlsUnproven::Transport(Unproven::Deadline), "{error}");
        assert!(error.receipt.unwritten > 0 && error.receipt.level.is_none(), "{error}");
        let (bytes, result) = read_all(&mut far).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(bytes < written);
    });
}

#[test]
fn a_peer_that_waits_for_us_to_read_gets_the_rest_all_the_same() {
    run(async {
        let (mut near, mut far) = pair().await;
        let peer = tokio::spawn(async move {
            far.write_all(&vec![9; 16 * MILLION]).await.unwrap();
            let (bytes, result) = read_all(&mut far).await;
            (bytes, result.is_ok(), far.observed_end())
        });
        while timeout(SECOND / 10, near.write(&[1; 65_536])).await.is_ok() {}
        let written = near.written();
        let drain = Drain::Discard(20 * MILLION as u64);
        near.finish_with(want(Delivery::Acked).drain(drain)).await.unwrap();
        assert_eq!(peer.await.unwrap(), (written, true, Some(End::Fin)));
    });
}

/// A request whose end found the kernel full is sent while its answer is waited for, also without a
/// flush.
#[test]
fn a_read_pushes_what_a_write_left_behind() {
    run(async {
        let (mut near, mut far) = pair().await;
        let mut written = 0;
        // The last of these is taken, and does not go: the peer does not read yet.
        while let Ok(bytes) = timeout(SECOND / 10, near.write(&[1; 65_536])).await {
            written += bytes.unwrap();
        }
        let peer = tokio::spawn(async move {
            far.read_exact(&mut vec![0; written]).await.unwrap();
            far.write_all(b"answer").await.unwrap();
            far.finish_with(want(Delivery::Acked)).await.unwrap()
        });
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        peer.await.unwrap();
    });
}

/// One task reads and another writes, on both sides, with the kernel full most of the time: neither
/// takes the other's place in the queue of those to be woken.
#[test]
fn two_tasks_share_a_stream_and_none_is_forgotten() {
    const BYTES: usize = 8 * MILLION;
    run(async {
        let (near, far) = pair().await;
        let mut tasks = Vec::new();
        for stream in [near, far] {
            let (mut reader, mut writer) = split(stream);
            tasks.push(tokio::spawn(async move {
                writer.write_all(&vec![5; BYTES]).await.unwrap();
                writer.shutdown().await.unwrap();
                BYTES as u64
            }));
            tasks.push(tokio::spawn(async move {
                tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.unwrap()
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), BYTES as u64);
        }
    });
}

#[test]
fn a_half_closed_side_goes_on_reading() {
    run(async {
        let (mut near, mut far) = pair().await;
        near.write_all(b"that is all").await.unwrap();
        near.half_close().await.unwrap();
        assert_eq!(near.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(read_all(&mut far).await.0, 11);
        assert_eq!(far.observed_end(), Some(End::Fin));
        let answering = tokio::spawn(async move {
            far.write_all(&[7; 300_000]).await.unwrap();
            far.finish_with(want(Delivery::Acked)).await.unwrap()
        });
        assert_eq!(read_all(&mut near).await.0, 300_000);
        assert!(answering.await.unwrap().all_acked());
    });
}

#[test]
fn an_abort_is_a_cut_after_all_that_was_written() {
    run(async {
        let (mut near, mut far) = pair().await;
        near.write_all(&[7; 100_000]).await.unwrap();
        let reader = tokio::spawn(async move {
            let (bytes, result) = read_all(&mut far).await;
            (bytes, result.unwrap_err().kind(), far.observed_end())
        });
        assert!(near.abort(LONG).await.unwrap().all_acked());
        let cut = (100_000, ErrorKind::ConnectionReset, Some(End::Reset));
        assert_eq!(reader.await.unwrap(), cut);
    });
}

#[test]
fn a_failed_handshake_says_why_and_its_alert_arrives() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let plain = thread::spawn(move || {
        let mut plain = support::connected(address);
        plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        plain.write_all(&[b'x'; 50_000]).unwrap();
        let alert = record_of(&mut plain).expect("the alert arrives");
        (alert[0], support::read_all(&mut plain).0, plain.observed_end())
    });
    let error = run(async {
        let listener = Listener::from_blocking(listener).unwrap();
        let far = listener.accept().await.unwrap();
        TlsStream::accept(far, server(), LONG).await.unwrap_err()
    });
    assert!(matches!(*error.cause, Cause::Cut(Cut::Tls { .. })), "{error}");
    assert!(error.to_string().starts_with("TLS handshake as server 127.0.0.1:"), "{error}");
    assert_eq!(plain.join().unwrap(), (21, 0, Some(End::Fin)));
}

#[test]
fn a_silent_peer_ends_the_handshake_at_its_deadline() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    run(async {
        let near =
            Stream::connect_with(address, &ConnectOptions::default().within(SECOND)).await.unwrap();
        let error = TlsStream::connect(near, client(), NAME, SECOND / 10).await.unwrap_err();
        assert!(matches!(*error.cause, Cause::Deadline), "{error}");
    });
}

#[test]
fn the_transport_comes_back_when_tls_is_over_on_both_sides() {
    run(async {
        let (mut near, mut far) = pair().await;
        near.close_tls().await.unwrap();
        assert_eq!(read_all(&mut far).await.0, 0);
        far.close_tls().await.unwrap();
        let mut near = *near.into_inner().expect_err("no read has met the peer's close_notify");
        assert_eq!(read_all(&mut near).await.0, 0);
        let (mut near, mut far) = (near.into_inner().unwrap(), far.into_inner().unwrap());
        near.write_all(b"plain").await.unwrap();
        near.finish_with(want(Delivery::Acked)).await.unwrap();
        let mut plain = String::new();
        far.read_to_string(&mut plain).await.unwrap();
        assert_eq!(plain, "plain");
    });
}

#[test]
fn over_a_unix_socket_it_is_the_same() {
    let path = std::env::temp_dir().join(format!("lastbyte-tls-{}", std::process::id()));
    run(async {
        let listener = UnixListener::bind(&path).unwrap();
        let near = UnixStream::connect(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let far = listener.accept().await.unwrap();
        let (near, far) = tokio::join!(
            TlsStream::connect(near, client(), NAME, LONG),
            TlsStream::accept(far, server(), LONG)
        );
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        near.write_all(&[7; 1000]).await.unwrap();
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            (all.len(), far.observed_end())
        });
        assert!(near.finish_with(want(Delivery::Acked)).await.unwrap().all_acked());
        assert_eq!(reader.await.unwrap(), (1000, Some(End::Fin)));
    });
}
