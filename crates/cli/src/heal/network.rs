//! The sockets of all network namespaces.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use lastbyte_core::diag::Socket;
use lastbyte_sys::namespace;
use lastbyte_sys::sock_diag::{CONNECTED, Dump};

use super::proc::{Networks, networks};
use crate::ledger::change::network;

/// What the kernel lists.
#[derive(Debug)]
pub(crate) struct Listed {
    /// All but listening ones, each with its namespace.
    pub(crate) sockets: Vec<(Network, Socket)>,
    inodes: BTreeSet<u32>,
    /// Namespaces that these are all the sockets of.
    looked_into: Vec<u64>,
    /// Namespaces that there are, and that this process may not look into.
    pub(crate) closed: Vec<u64>,
    /// Whether some may be there that cannot even be seen.
    pub(crate) some_hidden: bool,
}

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// The inode number of its file in `/proc`; `None` for one that cannot be told.
    pub(crate) inode: Option<u64>,
    /// Up to how many bytes the kernel sizes a send buffer in there (`net.ipv4.tcp_wmem`).
    pub(crate) most_send: Option<u64>,
    /// The same for a receive buffer (`net.ipv4.tcp_rmem`).
    pub(crate) most_receive: Option<u64>,
}

/// Lists the sockets of all namespaces that `/proc` shows, and of this one.
pub(crate) fn list_all() -> Result<Listed> {
    let own = network()?;
    let Networks { seen, some_hidden } = networks();
    let mut listed = Listed {
        sockets: Vec::new(),
        inodes: BTreeSet::new(),
        looked_into: Vec::new(),
        closed: Vec::new(),
        some_hidden,
    };
    listed.add(own, None)?;
    for (inode, paths) in seen.iter().filter(|(inode, _)| **inode != own) {
        for path in paths {
            if listed.add(*inode, Some(path))? {
                break;
            }
        }
    }
    Ok(listed)
}

impl Listed {
    /// Whether all sockets of a namespace are here.
    pub(super) fn has(&self, network: u64) -> bool {
        self.looked_into.contains(&network)
    }

    /// Whether a socket is here that has this inode.
    pub(super) fn has_socket(&self, inode: u32) -> bool {
        self.inodes.contains(&inode)
    }

    /// Adds those of the namespace behind `path`, or of this one. Returns whether another path to it
    /// would bring no more.
    fn add(&mut self, inode: u64, path: Option<&Path>) -> Result<bool> {
        // A thread, so that this one stays where it is.
        let looked = thread::scope(|scope| scope.spawn(|| look(inode, path)).join());
        match looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))? {
            Looked::Into(network, sockets) => {
                self.looked_into.push(inode);
                self.inodes.extend(sockets.iter().map(|socket| socket.inode));
                self.sockets.extend(sockets.into_iter().map(|socket| (network, socket)));
            }
            Looked::Closed => self.closed.push(inode),
            Looked::Gone => return Ok(false),
        }
        Ok(true)
    }
}

/// What came of looking into a namespace.
enum Looked {
    Into(Network, Vec<Socket>),
    Closed,
    Gone,
}

/// Enters the namespace behind `path` with the calling thread, and lists its sockets.
fn look(inode: u64, path: Option<&Path>) -> Result<Looked> {
    if let Some(path) = path {
        match enter(inode, path) {
            Ok(true) => {}
            // The number of its thread is another's by now.
            Ok(false) => return Ok(Looked::Gone),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Looked::Closed);
            }
            // The thread that was in there has ended.
            Err(_) => return Ok(Looked::Gone),
        }
    }
    let most = |key: &str| {
        // The thread's own network is what it reads.
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).ok()?;
        text.split_whitespace().nth(2)?.parse().ok()
    };
    let network =
        Network { inode: Some(inode), most_send: most("tcp_wmem"), most_receive: most("tcp_rmem") };
    Ok(Looked::Into(network, sockets()?))
}

/// Enters the namespace behind `path`, if it is the one with this inode number.
fn enter(inode: u64, path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let is_it = file.metadata()?.ino() == inode;
    if is_it {
        namespace::enter_network(&file)?;
    }
    Ok(is_it)
}

/// All of the calling thread's network namespace, but for listening ones.
fn sockets() -> Result<Vec<Socket>> {
    let mut dump = Dump::open().context("cannot ask the kernel for its sockets")?;
    for _ in 0..TRIES {
        let mut all = Vec::new();
        match dump.tcp(CONNECTED, &mut |body| all.extend(Socket::parse(body))) {
            Ok(()) => return Ok(all),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot list the kernel's sockets"),
        }
    }
    bail!("sockets come and go too fast to be listed")
}

/// How often a list is asked for that sockets came into meanwhile.
const TRIES: u32 = 10;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        let listed = list_all().unwrap();
        let (local, peer) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let is = |a, b| move |(_, one): &&(Network, Socket)| one.local == a && one.peer == b;
        let (network, socket) = listed.sockets.iter().find(is(local, peer)).unwrap();
        assert_eq!(socket.cookie, lastbyte_sys::socket::cookie(&near).unwrap());
        assert!(network.most_send.is_some() && network.most_receive.is_some());
        assert!(listed.sockets.iter().any(|one| is(peer, local)(&one)));
    }
}
