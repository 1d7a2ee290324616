//! TCP sockets of all programs, as the kernel lists them (`sock_diag(7)`): of one network namespace, or of
//! all.
//!
//! A list has gaps if sockets came or went while the kernel made it. Then it is requested again.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use lastbyte_core::diag::Socket;
use lastbyte_sys::namespace::current_network_path;
use lastbyte_sys::sock_diag::Dump;

use crate::namespace::{self, NetworkNamespace};
use crate::process::{Proc, is_absent};

/// How often a list is requested at most, unless the caller sets another limit.
const TRIES: u32 = 10;

/// The sockets of one namespace, which can be listed again and again.
#[derive(Debug)]
pub struct SocketTable {
    dump: Dump,
}

impl SocketTable {
    /// The table of the calling thread's namespace, whichever thread lists it later.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` on a kernel without `CONFIG_INET_DIAG`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { dump: Dump::open()? })
    }

    /// Replaces what is in `all` by all sockets in one of these states: bits of
    /// [`CONNECTED`](lastbyte_sys::sock_diag::CONNECTED) and [`LISTENING`](lastbyte_sys::sock_diag::LISTENING).
    ///
    /// # Errors
    /// `Interrupted` if each of `tries` lists had gaps; the kernel's other errors.
    pub fn list(&mut self, states: u32, tries: u32, all: &mut Vec<Socket>) -> io::Result<()> {
        for _ in 0..tries {
            all.clear();
            match self.dump.tcp(states, &mut |body| all.extend(Socket::parse(body))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                listed => return listed,
            }
        }
        let why = "sockets come and go too fast to be listed";
        Err(io::Error::new(io::ErrorKind::Interrupted, why))
    }
}

/// All sockets in one of these states that are in the calling thread's namespace.
///
/// # Errors
/// As [`SocketTable::open`] and [`SocketTable::list`].
pub fn list(states: u32) -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    SocketTable::open()?.list(states, TRIES, &mut all)?;
    Ok(all)
}

/// The sockets of all namespaces that this process can see and enter.
#[derive(Debug)]
#[non_exhaustive]
pub struct AllSockets<T> {
    /// Each with what `ask` returned for its namespace.
    pub sockets: Vec<(T, Socket)>,
    /// The inode numbers of these sockets.
    pub inodes: BTreeSet<u32>,
    /// The namespaces that were listed.
    pub listed: BTreeSet<u64>,
    /// The namespaces that this user may not enter.
    pub closed: BTreeSet<u64>,
    /// Whether there may be more namespaces, which this user may not even see.
    pub some_hidden: bool,
}

/// The function for each namespace, which gets its inode number.
type Ask<'a, T> = &'a (dyn Fn(u64) -> T + Sync);

impl<T: Clone + Send> AllSockets<T> {
    /// Lists the sockets in one of these states. `ask` is called once in each namespace, with its inode number.
    ///
    /// # Errors
    /// As [`list`]; there is no `/proc`.
    pub fn list(states: u32, ask: Ask<'_, T>) -> io::Result<Self> {
        let own = namespace::current()?;
        let mut seen = namespace::seen(&Proc::default());
        seen.paths.insert(own, vec![current_network_path()]);
        let mut all = Self {
            sockets: Vec::new(),
            inodes: BTreeSet::new(),
            listed: BTreeSet::new(),
            closed: BTreeSet::new(),
            some_hidden: seen.some_hidden,
        };
        for (inode, paths) in seen.paths {
            for path in paths {
                if all.add(inode, &path, states, ask)? {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Adds the sockets of a namespace, by a path to it. Returns whether it is known now, so that
    /// no other path must be tried.
    fn add(&mut self, inode: u64, path: &Path, states: u32, ask: Ask<'_, T>) -> io::Result<bool> {
        let look = |there: NetworkNamespace| match there.inode() == inode {
            true => there.run(|| Some((ask(inode), list(states)))),
            // The TID of the thread that was in it was reused.
            false => Ok(None),
        };
        match NetworkNamespace::open(path).and_then(look) {
            Ok(None) => return Ok(false),
            Ok(Some((asked, sockets))) => {
                let sockets = sockets?;
                self.listed.insert(inode);
                self.inodes.extend(sockets.iter().map(|socket| socket.inode));
                self.sockets.extend(sockets.into_iter().map(|socket| (asked.clone(), socket)));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => drop(self.closed.insert(inode)),
                // The file is a namespace of another kind.
                io::ErrorKind::InvalidInput => return Ok(false),
                // The thread that was in it has ended.
                _ if is_absent(&error) => return Ok(false),
                _ => return Err(error),
            },
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use lastbyte_sys::sock_diag::{CONNECTED, LISTENING};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_listed_with_what_was_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        let (local, peer) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let all = AllSockets::list(CONNECTED, &|inode| inode).unwrap();
        let is = |a, b| move |(_, one): &&(u64, Socket)| one.local == a && one.peer == b;
        let (network, socket) = all.sockets.iter().find(is(local, peer)).unwrap();
        assert_eq!(socket.cookie, lastbyte_sys::socket::cookie(&near).unwrap());
        assert_eq!(*network, namespace::current().unwrap());
        assert!(all.listed.contains(network) && all.inodes.contains(&socket.inode));
        assert!(all.sockets.iter().any(|one| is(peer, local)(&one)));
    }

    #[test]
    fn what_listens_is_listed_and_nothing_else() {
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let six = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        let near = TcpStream::connect(four.local_addr().unwrap()).unwrap();
        let mut table = SocketTable::open().unwrap();
        let mut all = Vec::new();
        // Partial results of a namespace are not part of the list.
        for _ in 0..2 {
            table.list(LISTENING, TRIES, &mut all).unwrap();
            for listener in std::iter::once(&four).chain(&six) {
                let address = listener.local_addr().unwrap();
                assert_eq!(all.iter().filter(|one| one.local == address).count(), 1);
            }
        }
        assert!(all.iter().all(|one| one.local != near.local_addr().unwrap()));
        let none = table.list(LISTENING, 0, &mut all).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::Interrupted);
    }
}
