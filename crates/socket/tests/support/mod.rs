//! Pairs of connected sockets, and what the tests ask of them.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lastbyte_socket::blocking::{self, Listener, Stream};
use lastbyte_socket::{ConnectOptions, Delivery, End, FinishOptions, Socket};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn listener() -> Listener {
    blocking::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

/// Two connected streams of ours.
pub(crate) fn pair() -> (Stream, Stream) {
    let listener = listener();
    let near = Stream::connect_with(
        listener.local_addr().unwrap(),
        &ConnectOptions::default().within(SECOND),
    )
    .unwrap();
    (near, listener.accept_within(SECOND).unwrap())
}

/// Two connected sockets of the standard library.
pub(crate) fn plain_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

pub(crate) fn want(want: Delivery) -> FinishOptions {
    FinishOptions::default().want(want).within(20 * SECOND)
}

/// Reads a stream to its end; returns the bytes and how it ended.
pub(crate) fn count<S: Socket>(mut stream: Stream<S>) -> (u64, Option<End>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(1..) = stream.read(&mut buffer) {}
    (stream.bytes_read(), stream.observed_end())
}

/// Descriptors of this process that are open now.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[cfg(feature = "tokio")]
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
