//! Connections of strangers: how many there may be, and who has to go.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lastbyte_socket::{Stream, Tune};

/// Keeps count of connections, and cuts the one that has waited longest when one too many waits to
/// show what it is. So whoever has something to show finds room, however many say nothing.
#[derive(Debug)]
pub(crate) struct Guests {
    most_waiting: usize,
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    waiting: VecDeque<(u64, TcpStream)>,
    known: Vec<(u64, TcpStream)>,
    /// Those that were cut, and have not yet gone.
    cut: usize,
}

impl Guests {
    /// Room for so many that wait, and for so many in all. Each takes two descriptors.
    pub(crate) fn new(most_waiting: usize, most: usize) -> Self {
        Self { most_waiting, most, inside: Mutex::default() }
    }

    /// Lets a connection in; `None` where there is no room at all.
    pub(crate) fn enter(&self, stream: &Stream) -> Option<Guest<'_>> {
        let second = TcpStream::from(stream.as_fd().try_clone_to_owned().ok()?);
        let mut inside = self.lock();
        if inside.waiting.len() + inside.known.len() + inside.cut >= self.most {
            return None;
        }
        if inside.waiting.len() >= self.most_waiting
            && let Some((_, longest)) = inside.waiting.pop_front()
        {
            let _ = longest.shutdown(Shutdown::Both);
            inside.cut += 1;
        }
        let number = inside.next;
        inside.next += 1;
        inside.waiting.push_back((number, second));
        Some(Guest { guests: self, number })
    }

    /// Cuts all of them. Bytes on the way to one that does not take them are given up as soon as the
    /// kernel looks at them again: while the other side's window is closed that is with the next probe.
    pub(crate) fn cut_all(&self) {
        let give_up = Tune { user_timeout: Some(Duration::from_millis(1)), ..Tune::default() };
        let inside = self.lock();
        for (_, stream) in inside.waiting.iter().chain(&inside.known) {
            let _ = give_up.apply_to(stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts those that have not shown what they are.
    pub(crate) fn cut_waiting(&self) {
        for (_, stream) in &self.lock().waiting {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether nobody is there.
    pub(crate) fn is_empty(&self) -> bool {
        let inside = self.lock();
        inside.waiting.is_empty() && inside.known.is_empty() && inside.cut == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
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
        let place = inside.waiting.iter().position(|(number, _)| *number == self.number);
        let Some(known) = place.and_then(|place| inside.waiting.remove(place)) else {
            return false;
        };
        inside.known.push(known);
        true
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut inside = self.guests.lock();
        let before = inside.waiting.len() + inside.known.len();
        inside.waiting.retain(|(number, _)| *number != self.number);
        inside.known.retain(|(number, _)| *number != self.number);
        if inside.waiting.len() + inside.known.len() == before {
            inside.cut -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::Ipv4Addr;

    use lastbyte_socket::Listener;

    use super::*;

    #[test]
    fn who_waited_longest_goes() {
        let here = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::listen(here, &Tune::default()).unwrap();
        let soon = Duration::from_secs(5);
        let mut clients = Vec::new();
        let mut accept = || {
            let client = Stream::connect(listener.local_addr(), &Tune::default(), soon).unwrap();
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
