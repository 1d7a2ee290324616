//! Limits on connections of unproven peers: how many there may be, and which is closed for another.

use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lastbyte_socket::SocketOptions;
use lastbyte_socket::blocking::Stream;

/// Counts connections. If too many peers have not yet proven who they are, it closes one of them:
/// the oldest of the host that has most. So a peer that can prove itself gets in, however many
/// others send nothing.
#[derive(Debug)]
pub(crate) struct Admission {
    max_unproven: usize,
    max: usize,
    connections: Mutex<Connections>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// The oldest first.
    unproven: Vec<(u64, Option<IpAddr>, TcpStream)>,
    proven: Vec<(u64, TcpStream)>,
    /// Connections that were shut down and are not yet dropped.
    closing: usize,
}

impl Admission {
    /// Limits for the connections that have not proven themselves, and for all. Each takes two
    /// descriptors.
    pub(crate) fn new(max_unproven: usize, max: usize) -> Self {
        Self { max_unproven, max, connections: Mutex::default(), left: Condvar::new() }
    }

    /// Admits a connection; `None` at the limit. Waits for connections that were shut down.
    pub(crate) fn admit(&self, stream: &Stream) -> Option<Admitted<'_>> {
        /// A thread whose connection was shut down only has to notice it.
        const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
        let duplicate = TcpStream::from(stream.as_fd().try_clone_to_owned().ok()?);
        let is_full = |connections: &mut Connections| {
            connections.closing > 0 && connections.count() >= self.max
        };
        let waited = self.left.wait_timeout_while(self.lock(), CLOSE_TIMEOUT, is_full);
        let (mut connections, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if connections.count() >= self.max {
            return None;
        }
        if connections.unproven.len() >= self.max_unproven {
            connections.close_one();
        }
        let number = connections.next;
        connections.next += 1;
        connections.unproven.push((number, stream.peer_addr().ok().map(network), duplicate));
        Some(Admitted { admission: self, number })
    }

    /// Shuts all connections down. The kernel gives up unacked bytes at its next retransmission or
    /// window probe.
    pub(crate) fn close_all(&self) {
        let give_up = SocketOptions::default().user_timeout(Duration::from_millis(1));
        let connections = self.lock();
        let unproven = connections.unproven.iter().map(|(_, _, stream)| stream);
        for stream in unproven.chain(connections.proven.iter().map(|(_, stream)| stream)) {
            let _ = give_up.apply_to(stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Shuts down the connections that have not proven themselves.
    pub(crate) fn close_unproven(&self) {
        for (_, _, stream) in &self.lock().unproven {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether there are no connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().count() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    fn count(&self) -> usize {
        self.unproven.len() + self.proven.len() + self.closing
    }

    fn close_one(&mut self) {
        let of = |host: Option<IpAddr>| {
            self.unproven.iter().filter(|(_, other, _)| *other == host).count()
        };
        let max = self.unproven.iter().map(|(_, host, _)| of(*host)).max().unwrap_or_default();
        if let Some(index) = self.unproven.iter().position(|(_, host, _)| of(*host) == max) {
            let _ = self.unproven.remove(index).2.shutdown(Shutdown::Both);
            self.closing += 1;
        }
    }
}

/// The network that stands for one host: an address of IPv4, or the first 64 bits of one of IPv6.
fn network(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

/// An admitted connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    admission: &'a Admission,
    number: u64,
}

impl Admitted<'_> {
    /// Marks the connection as proven: it is no longer closed for others. `false` if it was closed
    /// already.
    pub(crate) fn set_proven(&self) -> bool {
        let mut connections = self.admission.lock();
        let index = connections.unproven.iter().position(|(number, _, _)| *number == self.number);
        let Some(index) = index else { return false };
        let (number, _, stream) = connections.unproven.remove(index);
        connections.proven.push((number, stream));
        true
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut connections = self.admission.lock();
        let before = connections.unproven.len() + connections.proven.len();
        connections.unproven.retain(|(number, _, _)| *number != self.number);
        connections.proven.retain(|(number, _)| *number != self.number);
        if connections.unproven.len() + connections.proven.len() == before {
            connections.closing -= 1;
        }
        self.admission.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::Ipv4Addr;

    use lastbyte_socket::ConnectOptions;
    use lastbyte_socket::blocking::TcpListener;

    use super::*;

    #[test]
    fn who_has_many_loses_one() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut clients = Vec::new();
        let mut accept = |from: u8| {
            let sources = vec![Ipv4Addr::new(127, 0, 0, from).into()];
            let how = ConnectOptions::default().sources(sources).within(Duration::from_secs(5));
            let there = (Ipv4Addr::LOCALHOST, port).into();
            let client = Stream::connect_with(there, &how).unwrap();
            clients.push(client);
            listener.accept().unwrap()
        };
        let streams = [2, 3, 3, 3].map(&mut accept);
        let admission = Admission::new(3, 9);
        let entered = streams.each_ref().map(|stream| admission.admit(stream).unwrap());
        assert_eq!(entered.map(|admitted| admitted.set_proven()), [true, false, true, true]);
    }

    #[test]
    fn who_waited_longest_goes() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let soon = Duration::from_secs(5);
        let mut clients = Vec::new();
        let mut accept = || {
            let client = Stream::connect_with(
                listener.local_addr().unwrap(),
                &ConnectOptions::default().within(soon),
            )
            .unwrap();
            client.set_read_timeout(Some(soon)).unwrap();
            clients.push(client);
            listener.accept().unwrap()
        };
        let admission = Admission::new(2, 4);
        let streams: Vec<Stream> = (0..5).map(|_| accept()).collect();
        let first = admission.admit(&streams[0]).unwrap();
        assert!(first.set_proven());
        let unproven = [1, 2, 3].map(|index| admission.admit(&streams[index]).unwrap());
        assert!(admission.admit(&streams[4]).is_none(), "one was cut, and has not gone");
        assert!(!unproven[0].set_proven(), "the first of those that wait was cut");
        assert_eq!(clients[1].read(&mut [0]).unwrap(), 0);
        assert!(unproven[1].set_proven() && unproven[2].set_proven());
        drop(unproven);
        assert!(admission.admit(&streams[4]).is_some());
        assert!(!admission.is_empty());
        admission.close_all();
        assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
        drop(first);
        assert!(admission.is_empty());
    }
}
