//! Streams and listeners as programs meet them: by the names of the standard library and of tokio.

use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread;

use lastbyte_socket::{
    Address, Delivery, Drain, End, ListenOptions, TcpListener, TcpStream, UnixListener, UnixStream,
    Unproven, blocking,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{SECOND, pair, run};

/// A place for a Unix socket that nobody else uses.
fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("lastbyte-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&place);
    place
}

#[test]
fn a_finish_says_what_is_wanted_of_it_and_then_begins() {
    let (mut near, mut far) = pair();
    near.write_all(&[7; 1000]).unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).map(|_| all.len())
    });
    let receipt = near.finish().within(20 * SECOND).want(Delivery::Closed).wait().unwrap();
    assert_eq!((receipt.level, receipt.acked), (Delivery::Closed, Some(1000)));
    assert_eq!(reader.join().unwrap().unwrap(), 1000);

    let (mut near, _far) = pair();
    near.write_all(b"x").unwrap();
    let error = near.finish().within(SECOND / 10).want(Delivery::Closed).wait().unwrap_err();
    assert_eq!(error.why, Unproven::Deadline);
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::TimedOut);
}

#[test]
fn what_is_proven_stays_open_for_the_answer() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut far = listener.accept().await.unwrap();
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
        near.write_all(b"question").await.unwrap();
        let receipt = near.prove().drain(Drain::Keep).within(20 * SECOND).await.unwrap();
        assert_eq!(receipt.acked, Some(8));
        let mut question = String::new();
        far.read_to_string(&mut question).await.unwrap();
        far.write_all(b"answer").await.unwrap();
        let finished = tokio::join!(far.finish().want(Delivery::Acked).into_future(), async {
            let mut answer = String::new();
            near.read_to_string(&mut answer).await.map(|_| (question, answer))
        });
        assert!(finished.0.is_ok());
        assert_eq!(finished.1.unwrap(), ("question".to_owned(), "answer".to_owned()));
        assert_eq!(near.observed_end(), Some(End::Fin));
    });
}

#[test]
fn halves_that_borrow_a_stream_count_for_it() {
    let (mut near, mut far) = pair();
    let echo = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        far.write_all(&all).unwrap();
    });
    let (mut reading, mut writing) = near.split();
    writing.write_all(&[7; 1000]).unwrap();
    let receipt = writing.prove().within(20 * SECOND).wait().unwrap();
    assert_eq!((receipt.acked, writing.written()), (Some(1000), 1000));
    let mut all = Vec::new();
    reading.read_to_end(&mut all).unwrap();
    assert_eq!((reading.bytes_read(), reading.observed_end()), (1000, Some(End::Fin)));
    assert_eq!((near.written(), near.bytes_read()), (1000, 1000), "the stream itself has counted");
    assert_eq!(near.observed_end(), Some(End::Fin));
    echo.join().unwrap();

    run(async {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let (mut reading, mut writing) = near.split();
        let both = async {
            writing.write_all(b"there").await.unwrap();
            writing.half_close().unwrap();
            let mut back = String::new();
            reading.read_to_string(&mut back).await.map(|_| back)
        };
        let echo = async {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            far.write_all(&all).await.unwrap();
            far.half_close().unwrap();
        };
        let (back, ()) = tokio::join!(both, echo);
        assert_eq!((back.unwrap().as_str(), near.written(), near.bytes_read()), ("there", 5, 5));
    });
}

#[test]
fn an_address_to_listen_on_is_written_as_for_std_and_tokio() {
    for listener in [
        blocking::TcpListener::bind("localhost:0"),
        blocking::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
        blocking::TcpListener::bind_with("127.0.0.1:0", &ListenOptions::default()),
    ] {
        assert_ne!(listener.unwrap().local_addr().unwrap().port(), 0);
    }
    run(async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback());
        let error = TcpListener::bind("127.0.0.1").await.unwrap_err();
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::InvalidInput);
    });
    let error = blocking::TcpListener::bind("192.0.2.1:0").unwrap_err();
    assert!(error.to_string().starts_with("listen 192.0.2.1:0: "), "{error}");
}

#[test]
fn a_listener_waits_unless_it_is_told_not_to() {
    let listener = blocking::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().cause.kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();
    let near = blocking::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(listener.accept().unwrap().peer_addr().unwrap(), near.local_addr().unwrap());
}

#[test]
fn unix_sockets_are_met_by_their_path() {
    let path = place("streams");
    run(async {
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(listener.local_addr().unwrap(), Address::Path(path.clone()));
        let mut near = UnixStream::connect(&path).await.unwrap();
        assert_eq!(near.peer_addr().unwrap(), Address::Path(path.clone()));
        let mut far = listener.accept().await.unwrap();
        near.write_all(b"hello").await.unwrap();
        let reading = async {
            let mut all = String::new();
            far.read_to_string(&mut all).await.map(|_| all)
        };
        let (receipt, all) = tokio::join!(near.finish().within(20 * SECOND).into_future(), reading);
        assert_eq!((receipt.unwrap().level, all.unwrap().as_str()), (Delivery::Acked, "hello"));
    });
    let error = run(UnixStream::connect(place("nobody"))).unwrap_err();
    assert_eq!(error.cause.kind(), ErrorKind::NotFound);
    std::fs::remove_file(&path).unwrap();
}
