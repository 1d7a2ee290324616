//! Senders whose peer goes away: what they report is never more than the peer's kernel had.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_lab::Load;
use lastbyte_lab::flow::{self, ReceiveOptions};
use lastbyte_lab::record::Ending;
use lastbyte_link::{FAR, Link, LinkError, Scenario};
use lastbyte_socket::ConnectOptions;
use lastbyte_socket::blocking::{Stream, TcpListener};

fn loopback() -> TcpListener {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

fn connect(address: SocketAddr) -> Stream {
    Stream::connect_with(address, &ConnectOptions::default().within(Duration::from_secs(5)))
        .unwrap()
}

#[test]
fn a_peer_that_resets_in_the_middle_ends_the_run_with_the_truth() {
    let listener = loopback();
    let address = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().unwrap();
        stream.read_exact(&mut vec![0; 1_000_000]).unwrap();
        let had = stream.info().unwrap().bytes_received.unwrap();
        stream.abort(Duration::ZERO).unwrap();
        had
    });
    let load = Load::time(Duration::from_secs(60));
    let sent = flow::send(connect(address), load, None).unwrap();
    let had = peer.join().unwrap();
    assert!(sent.writing < Duration::from_secs(60), "60 s were not waited for");
    let failure = sent.failure.unwrap();
    assert!(failure.contains("RST") || failure.contains("reset"), "{failure}");
    // Data may still have come in between the count and the reset; all of it, where the writer had
    // to wait for a processor.
    let acked = sent.acked_bytes.unwrap();
    assert!(acked >= 1_000_000 && had >= 1_000_000 && acked <= sent.written);
    let level = if acked < sent.written { ["written", "sent"] } else { ["sent", "acked"] };
    assert!(level.contains(&sent.level.as_str()), "{}", sent.level);
}

#[test]
fn a_receiver_whose_sender_resets_says_so() {
    let listener = loopback();
    let address = listener.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let reading = ReceiveOptions {
            run_began: Instant::now(),
            rate: None,
            requests: None,
            most_bytes: None,
            until: None,
            run: None,
        };
        flow::receive(listener.accept().unwrap(), &reading).unwrap()
    });
    let mut stream = connect(address);
    std::io::Write::write_all(&mut stream, b"half").unwrap();
    stream.abort(Duration::from_secs(5)).unwrap();
    let received = receiver.join().unwrap();
    assert_eq!((received.bytes, received.end), (4, Some(Ending::Reset)));
}

#[test]
fn a_path_that_vanishes_leaves_the_sender_with_less_than_it_wrote() {
    let scenario = Scenario::parse("test", "rtt = '20ms'\nrate = '8mbit'").unwrap();
    let link = match Link::up(&scenario.spec, 1) {
        Ok(link) => link,
        Err(error @ LinkError::Rights { .. }) => return lastbyte_testing::not_tested!("{error}"),
        Err(error) => panic!("{error}"),
    };
    // A minute of silence is the kernel's to wait; this test has its own limit.
    link.near().set_sysctl("ipv4/tcp_retries2", "3").unwrap();
    let address = SocketAddr::from((FAR, 0));
    let listener = link.far().run(|| TcpListener::bind(address)).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let (half, reached) = std::sync::mpsc::channel();
    let receiver = thread::spawn(move || {
        let mut stream = listener.accept().unwrap();
        stream.read_exact(&mut vec![0; 200_000]).unwrap();
        half.send(()).unwrap();
        // Stays connected, and hears nothing more.
        stream
    });
    let load = Load::bytes(4 << 20);
    let sender =
        link.near().spawn("sender", move || flow::send(connect(address), load, None)).unwrap();
    reached.recv().unwrap();
    link.down().unwrap();
    let sent = sender.join().unwrap().unwrap().unwrap();
    let stream = receiver.join().unwrap();
    let acked = sent.acked_bytes.unwrap();
    assert!(acked <= stream.info().unwrap().bytes_received.unwrap());
    assert!(acked >= 150_000 && acked < sent.written, "{:?}", sent.failure);
}
