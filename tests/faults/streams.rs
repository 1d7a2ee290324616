//! Streams of which each byte says where it belongs, and the ends that they come to.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::SOON;

/// Bytes to send, from the one at `offset` on. The period is no power of two: pieces that are in the
/// wrong place show.
pub(super) fn content(offset: u64, length: usize) -> Vec<u8> {
    (offset..).take(length).map(|at| u8::try_from(at % PERIOD).unwrap()).collect()
}

const PERIOD: u64 = 251;

/// What a kernel took to send, and why no more.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    /// `None` if it was all.
    pub(super) error: Option<ErrorKind>,
}

/// Sends such bytes until the connection ends, or `most` are sent.
pub(super) fn send(mut stream: &TcpStream, most: u64) -> Sent {
    let block = content(0, usize::try_from(256 * PERIOD).unwrap());
    let mut bytes = 0;
    while bytes < most {
        let left = usize::try_from(most - bytes).unwrap_or(usize::MAX);
        let from = usize::try_from(bytes % PERIOD).unwrap();
        let until = block.len().min(from.saturating_add(left));
        match stream.write(&block[from..until]) {
            Ok(written) => bytes += written as u64,
            Err(error) => return Sent { bytes, error: Some(error.kind()) },
        }
    }
    Sent { bytes, error: None }
}

/// How a stream ended for its reader, behind so many bytes.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) bytes: u64,
    /// `None` for a FIN.
    pub(super) error: Option<ErrorKind>,
}

/// Reads to the end, or until so many are there; each byte has to be in its place.
#[track_caller]
pub(super) fn receive(mut stream: &TcpStream, from: u64, most: u64) -> Received {
    let mut room = vec![0; 64 * 1024];
    let mut bytes = from;
    while bytes < most {
        let length = room.len().min(usize::try_from(most - bytes).unwrap_or(usize::MAX));
        match stream.read(&mut room[..length]) {
            Ok(0) => return Received { bytes, error: None },
            Ok(read) => {
                assert!(room[..read] == content(bytes, read), "a wrong byte behind {bytes}");
                bytes += read as u64;
            }
            Err(error) => return Received { bytes, error: Some(error.kind()) },
        }
    }
    Received { bytes, error: None }
}

/// It ended with a reset. Returns how many bytes came before it.
#[track_caller]
pub(super) fn assert_reset(received: Received) -> u64 {
    assert_eq!(received.error, Some(ErrorKind::ConnectionReset), "{received:?}");
    received.bytes
}

/// Connects, and waits no longer than a test does.
#[track_caller]
pub(super) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Somebody who sends back what it gets, to all who come.
pub(super) fn echo() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || {
                let mut room = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut room) {
                    if stream.write_all(&room[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// A flow to [`echo`] on which 64 bytes go there and back, again and again, while other things happen.
pub(super) struct PingPong {
    stream: TcpStream,
    running: JoinHandle<Vec<Duration>>,
}

impl PingPong {
    #[track_caller]
    pub(super) fn start(to: SocketAddr) -> Self {
        let stream = connect(to);
        ping(&stream);
        let mine = stream.try_clone().unwrap();
        let running = thread::spawn(move || {
            let mut times = Vec::new();
            // Until its flow is ended by `end`.
            loop {
                let began = Instant::now();
                let is_over = (&mine).write_all(&[7; 64]).is_err()
                    || (&mine).read_exact(&mut [0; 64]).is_err();
                if is_over {
                    return times;
                }
                times.push(began.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { stream, running }
    }

    /// Ends it, and says how long a round took: the middle one, one in a hundred, and the longest. At least
    /// one was made, and none took a second.
    #[track_caller]
    pub(super) fn end(self) -> String {
        ping(&connect(self.stream.peer_addr().unwrap()));
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        let mut times = self.running.join().unwrap();
        times.sort_unstable();
        let share = |of_thousand: usize| times[(times.len() - 1) * of_thousand / 1_000];
        let figures = format!(
            "{} round trips of 64 bytes, p50 {:?}, p99 {:?}, longest {:?}",
            times.len(),
            share(500),
            share(990),
            share(1_000)
        );
        assert!(share(1_000) < Duration::from_secs(1), "{figures}");
        figures
    }
}

/// One round.
#[track_caller]
pub(super) fn ping(mut stream: &TcpStream) {
    stream.write_all(&[7; 64]).unwrap();
    let mut answer = [0; 64];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [7; 64]);
}
