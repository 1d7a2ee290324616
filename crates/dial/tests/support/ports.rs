//! Ports on several addresses of this host: some accept, some say nothing.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lastbyte_sys::socket;

const MS: Duration = Duration::from_millis(1);

/// What stands at an address.
enum Place {
    Accepts(TcpListener),
    /// Its queue is full, so that the kernel drops each SYN. It is held open alone.
    #[allow(dead_code, reason = "nobody looks at it")]
    Silent(TcpListener, Vec<TcpStream>),
}

/// The same port on several addresses of this host.
pub(crate) struct Port {
    pub(crate) number: u16,
    places: Vec<Place>,
}

impl Port {
    /// Accepts at these addresses, and says nothing at those; at others it refuses.
    pub(crate) fn new(accepts: &[IpAddr], silent: &[IpAddr]) -> Self {
        (0..100).find_map(|_| Self::attempt(accepts, silent).ok()).expect("a port that is free")
    }

    fn attempt(accepts: &[IpAddr], silent: &[IpAddr]) -> io::Result<Self> {
        // Held at an address that nobody dials, the number is ours at the others too.
        let anchor = TcpListener::bind((Ipv4Addr::new(127, 99, 99, 99), 0))?;
        let number = anchor.local_addr()?.port();
        let mut places = vec![Place::Accepts(anchor)];
        for address in accepts {
            places.push(Place::Accepts(TcpListener::bind((*address, number))?));
        }
        for address in silent {
            places.push(silent_at(SocketAddr::new(*address, number))?);
        }
        Ok(Self { number, places })
    }

    /// Takes what waits to be accepted, so that no queue is full.
    pub(crate) fn forget_waiting(&self) {
        for place in &self.places {
            if let Place::Accepts(listener) = place {
                listener.set_nonblocking(true).unwrap();
                while listener.accept().is_ok() {}
            }
        }
    }
}

/// A listener whose queue is filled: what comes then is not answered.
fn silent_at(address: SocketAddr) -> io::Result<Place> {
    let fd = socket::open_tcp(address)?;
    socket::bind(&fd, address)?;
    socket::listen(&fd, 0)?;
    let listener = TcpListener::from(fd);
    let mut filling = Vec::new();
    for _ in 0..16 {
        match TcpStream::connect_timeout(&address, 100 * MS) {
            Ok(stream) => filling.push(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Ok(Place::Silent(listener, filling));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the queue of a listener that accepts nothing is endless"))
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Sockets of this network namespace to a port that wait for an answer to their SYN.
pub(crate) fn dialing(port: u16) -> usize {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let rows = tables.iter().map(|table| {
        let text = fs::read_to_string(table).unwrap();
        let suffix = format!(":{port:04X}");
        text.lines()
            .filter(|row| {
                let fields: Vec<&str> = row.split_whitespace().collect();
                fields[3] == "02" && fields[2].ends_with(&suffix)
            })
            .count()
    });
    rows.sum()
}
