//! One call from a host to a connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use lastbyte_dial::{DialOptions, Undialed, Veto, blocking, connect, connect_with};

use crate::support::ports::run;

/// Reads from one connection to its end.
fn reader() -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let reads = thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all
    });
    (address, reads)
}

#[test]
fn one_call_connects_and_another_one_proves() {
    let (address, reads) = reader();
    run(async {
        let mut stream = connect(address).await.unwrap();
        stream.write_all(b"over tokio").await.unwrap();
        assert_eq!(stream.finish().await.unwrap().acked, Some(10));
    });
    assert_eq!(reads.join().unwrap(), b"over tokio");
    for to in ["", "localhost"] {
        let (address, reads) = reader();
        let to =
            if to.is_empty() { address.to_string() } else { format!("{to}:{}", address.port()) };
        let mut stream = blocking::connect(&to).unwrap();
        stream.write_all(b"without it").unwrap();
        assert_eq!(stream.finish().wait().unwrap().acked, Some(10), "{to}");
        assert_eq!(reads.join().unwrap(), b"without it");
    }
}

#[test]
fn options_are_those_of_a_dial() {
    let (address, reads) = reader();
    let forbidding = DialOptions::default().veto(Veto::new(|_| true));
    let error = run(connect_with(address, &forbidding)).unwrap_err();
    assert_eq!(error.why, Undialed::Vetoed(vec![address]));
    let patient = DialOptions::default().within(Duration::from_secs(20));
    drop(blocking::connect_with(("127.0.0.1", address.port()), &patient).unwrap());
    assert_eq!(reads.join().unwrap(), b"");
}

#[test]
fn what_is_no_destination_is_said_so() {
    let refused = |to: &str| run(connect(to)).map(drop).unwrap_err();
    assert_eq!(refused("example.org").why, Undialed::NoPort);
    assert_eq!(refused("127.0.0.1:0").why, Undialed::BadPort);
    assert!(matches!(refused("::1:443").why, Undialed::BadHost(_)));
    let error = refused("a host");
    assert_eq!(
        error.to_string(),
        "dial a host port 0: the port is missing: give one as in `example.org:443`"
    );
    assert_eq!(io::Error::from(error).kind(), ErrorKind::InvalidInput);
}

#[test]
fn in_a_task_the_blocking_one_refuses() {
    let error = run(async { blocking::connect("127.0.0.1:9").map(drop).unwrap_err() });
    assert!(matches!(error.why, Undialed::Runtime(_)), "{error}");
}
