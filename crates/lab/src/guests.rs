//! Connections of strangers: how many there may be, and who has to go.

use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lastbyte_socket::SocketOptions;
use lastbyte_socket::blocking::Stream;

/// Keeps count of connections, and cuts one when one too many waits to show what it is: of the host
/// that has most of those that wait, the one that has waited longest. So whoever has something to show
/// finds room, however many say nothing.
#[derive(Debug)]
pub(crate) struct Guests {
    most_waiting: usize,
    most: usize,
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// The longest first.
    waiting: Vec<(u64, Option<IpAddr>, TcpStream)>,
    known: Vec<(u64, TcpStream)>,
    /// Those that were cut, and have not yet gone.
    cut: usize,
}

impl Guests {
    /// Room for so many that wait, and for so many in all. Each takes two descriptors.
    pub(crate) fn new(most_waiting: usize, most: usize) -> Self {
        Self { most_waiting, most, inside: Mutex::default(), left: Condvar::new() }
    }

    /// Lets a connection in; `None` where there is no room for it. Those that were cut are waited for.
    pub(crate) fn enter(&self, stream: &Stream) -> Option<Guest<'_>> {
        /// What was cut has nothing more to do than to notice it.
        const LEAVE_WITHIN: Duration = Duration::from_secs(1);
        let second = TcpStream::from(stream.as_fd().try_clone_to_owned().ok()?);
        let is_full = |inside: &mut Inside| inside.cut > 0 && inside.count() >= self.most;
        let waited = self.left.wait_timeout_while(self.lock(), LEAVE_WITHIN, is_full);
        let (mut inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if inside.count() >= self.most {
            return None;
        }
        if inside.waiting.len() >= self.most_waiting {
            inside.cut_one();
        }
        let number = inside.next;
        inside.next += 1;
        inside.waiting.push((number, stream.peer_addr().ok().map(network), second));
        Some(Guest { guests: self, number })
    }

    /// Cuts all of them. Bytes on the way to one that does not take them are given up as soon as the
    /// kernel looks at them again: while the other side's window is closed that is with the next probe.
    pub(crate) fn cut_all(&self) {
        let give_up = SocketOptions::default().user_timeout(Duration::from_millis(1));
        let inside = self.lock();
        let waiting = inside.waiting.iter().map(|(_, _, stream)| stream);
        for stream in waiting.chain(inside.known.iter().map(|(_, stream)| stream)) {
            let _ = give_up.apply_to(stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts those that have not shown what they are.
    pub(crate) fn cut_waiting(&self) {
        for (_, _, stream) in &self.lock().waiting {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether nobody is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().count() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn count(&self) -> usize {
        self.waiting.len() + self.known.len() + self.cut
    }

    fn cut_one(&mut self) {
        let of = |host: Option<IpAddr>| {
            self.waiting.iter().filter(|(_, other, _)| *other == host).count()
        };
        let most = self.waiting.iter().map(|(_, host, _)| of(*host)).max().unwrap_or_default();
        if let Some(place) = self.waiting.iter().position(|(_, host, _)| of(*host) == most) {
            let _ = self.waiting.remove(place).2.shutdown(Shutdown::Both);
            self.cut += 1;
        }
    }
}

/// What one host has for itself: an address of IPv4, or the first half of one of IPv6.
fn network(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    guests: &'a Guests,
    number: u64,
}

impl Guest<'_> {
    /// It has shown what it is, and is no longer cut for others; `false` where it was already.
    pub(crate) fn is_known(&self) -> bool {
        let mut inside = self.guests.lock();
        let place = inside.waiting.iter().position(|(number, _, _)| *number == self.number);
        let Some(place) = place else { return false };
        let (number, _, stream) = inside.waiting.remove(place);
        inside.known.push((number, stream));
        true
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut inside = self.guests.lock();
        let before = inside.waiting.len() + inside.known.len();
        inside.waiting.retain(|(number, _, _)| *number != self.number);
        inside.known.retain(|(number, _)| *number != self.number);
        if inside.waiting.len() + inside.known.len() == before {
            inside.cut -= 1;
        }
        self.guests.left.notify_all();
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
        let guests = Guests::new(3, 9);
        let entered = streams.each_ref().map(|stream| guests.enter(stream).unwrap());
        assert_eq!(entered.map(|guest| guest.is_known()), [true, false, true, true]);
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
        let guests = Guests::new(2, 4);
        let streams: Vec<Stream> = (0..5).map(|_| accept()).collect();
        let first = guests.enter(&streams[0]).unwrap();
        assert!(first.is_known());
        let waiting = [1, 2, 3].map(|place| guests.enter(&streams[place]).unwrap());
        assert!(guests.enter(&streams[4]).is_none(), "one was cut, and has not gone");
        assert!(!waiting[0].is_known(), "the first of those that wait was cut");
        assert_eq!(clients[1].read(&mut [0]).unwrap(), 0);
        assert!(waiting[1].is_known() && waiting[2].is_known());
        drop(waiting);
        assert!(guests.enter(&streams[4]).is_some());
        assert!(!guests.is_empty());
        guests.cut_all();
        assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
        drop(first);
        assert!(guests.is_empty());
    }
}
