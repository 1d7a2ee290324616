//! What the tests play against.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lastbyte_torture::Setup;

/// An address that nobody has: a host of its own on the loopback network. The kernel is not asked for a
/// port: a listener that has just been closed may live on for a moment, in a program that another test
/// is starting.
pub(crate) fn free_address() -> SocketAddr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id().to_be_bytes();
    let host = [127, 64 | process[2] & 63, process[3], u8::try_from(number % 250 + 1).unwrap()];
    (Ipv4Addr::from(host), 20_000 + number).into()
}

pub(crate) fn setup(proxy: SocketAddr, upstream: SocketAddr) -> Setup {
    Setup {
        proxy,
        upstream,
        proxy_namespace: None,
        upstream_namespace: None,
        refused: None,
        unreachable: None,
        timed_out: None,
        deadline: Duration::from_secs(3),
        settle: Duration::ZERO,
        seed: 1,
        stop: None,
        kill: None,
    }
}

/// A proxy that copies what comes, and at the first end of either direction, of whichever kind, ends
/// both with a FIN.
pub(crate) struct WrongProxy {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl WrongProxy {
    pub(crate) fn start(listen: SocketAddr, upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(listen).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let accepting = thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let client = client.unwrap();
                thread::spawn(move || relay(&client, upstream));
            }
        });
        Self { address: listen, is_over, accepting: Some(accepting) }
    }
}

impl Drop for WrongProxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes it up.
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// Its connection to a lost upstream fails without a word: the client sees an empty answer.
fn relay(client: &TcpStream, upstream: SocketAddr) {
    let Ok(server) = TcpStream::connect(upstream) else { return };
    thread::scope(|scope| {
        scope.spawn(|| copy(client, &server));
        copy(&server, client);
    });
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut room = [0; 16_384];
    let mut once = || -> io::Result<bool> {
        let count = from.read(&mut room)?;
        to.write_all(&room[..count])?;
        Ok(count > 0)
    };
    while once().is_ok_and(|moved| moved) {}
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
