//! Bytes that leave with the first packet, before there is a connection (RFC 7413).

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;

use lastbyte_link::{LinkError, Namespace};
use lastbyte_socket::blocking::TcpListener;
use lastbyte_socket::{Delivery, End, FinishOptions, State, Unproven, finish_fd, info};
use lastbyte_sys::tcp;
use socket2::{Domain, Socket, Type};

use crate::support::{MS, SECOND, count};

/// A socket that connects with its first write, to a server whose cookie is known or not.
fn connecting(to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    tcp::set_fast_open_connect(&socket, true).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = socket.connect(&to.into());
    socket
}

/// A host of its own, where fast open is allowed to both sides.
fn host() -> Option<Namespace> {
    let made = Namespace::create().and_then(|host| {
        host.set_sysctl("ipv4/tcp_fastopen", "3")?;
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

fn serve() -> TcpListener {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    tcp::set_fast_open_queue(&listener, 16).unwrap();
    listener
}

/// The first connection brings the cookie for those that follow.
fn fetch_cookie(listener: &TcpListener) {
    let first = connecting(listener.local_addr().unwrap());
    let _ = first.send(b"first");
    let accepted = listener.accept_within(SECOND).unwrap();
    let reader = thread::spawn(move || count(accepted));
    let receipt = finish_fd(&first, FinishOptions::default().within(10 * SECOND)).unwrap();
    assert_eq!(receipt.unacked, Some(0));
    drop(first);
    reader.join().unwrap();
}

#[test]
fn bytes_in_the_first_packet_are_counted_like_others() {
    let Some(host) = host() else { return };
    host.run(|| {
        let listener = serve();
        fetch_cookie(&listener);
        let near = connecting(listener.local_addr().unwrap());
        // Nothing has left: the write does it, with the bytes in the SYN.
        assert_eq!(info(&near).unwrap().state, State::SynSent);
        assert_eq!(near.send(&[7; 100]).unwrap(), 100);
        let far = listener.accept_within(SECOND).unwrap();
        let reader = thread::spawn(move || count(far));
        let receipt = finish_fd(&near, FinishOptions::default().within(10 * SECOND)).unwrap();
        assert_eq!((receipt.level, receipt.unacked), (Delivery::Acked, Some(0)));
        drop(near);
        assert_eq!(reader.join().unwrap(), (100, Some(End::Fin)));
    })
    .unwrap();
}

/// A half-close before the handshake would return 0 and throw the bytes away.
#[test]
fn bytes_that_wait_for_a_handshake_are_neither_claimed_nor_thrown_away() {
    let Some(host) = host() else { return };
    host.run(|| {
        let listener = serve();
        fetch_cookie(&listener);
        let address = listener.local_addr().unwrap();
        drop(listener);
        // The same address and a queue that is full: the first packet finds no room.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.set_reuse_address(true).unwrap();
        full.bind(&address.into()).unwrap();
        full.listen(0).unwrap();
        let _waiting = TcpStream::connect(address).unwrap();
        let near = connecting(address);
        assert_eq!(near.send(&[7; 100]).unwrap(), 100);
        let error = finish_fd(&near, FinishOptions::default().within(150 * MS)).unwrap_err();
        assert_eq!(error.why, Unproven::Deadline);
        assert_eq!((error.receipt.level, error.receipt.unacked), (Delivery::Written, None));
        assert_eq!(info(&near).unwrap().state, State::SynSent, "it still connects");
        let acceptor = thread::spawn(move || {
            let (_first, _) = full.accept().unwrap();
            // The next attempt finds room: after a second or so.
            let (second, _) = full.accept().unwrap();
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut TcpStream::from(second), &mut all).unwrap();
            all.len()
        });
        let receipt = finish_fd(&near, FinishOptions::default().within(20 * SECOND)).unwrap();
        assert_eq!((receipt.level, receipt.unacked), (Delivery::Acked, Some(0)));
        drop(near);
        assert_eq!(acceptor.join().unwrap(), 100);
    })
    .unwrap();
}
