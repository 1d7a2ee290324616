//! The sockets of all network namespaces.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lastbyte_core::diag::Socket;
use lastbyte_host::Proc;
use lastbyte_host::namespace::{self, NetworkNamespace};
use lastbyte_sys::sock_diag::{CONNECTED, Dump};

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
    let own = NetworkNamespace::current().context("cannot tell which network namespace this is")?;
    let seen = namespace::seen(&Proc::default());
    let mut listed = Listed {
        sockets: Vec::new(),
        inodes: BTreeSet::new(),
        looked_into: Vec::new(),
        closed: Vec::new(),
        some_hidden: seen.some_hidden,
    };
    listed.add(&own)?;
    for (inode, paths) in seen.paths.iter().filter(|(inode, _)| **inode != own.inode()) {
        for path in paths {
            if listed.add_by(*inode, path)? {
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

    /// Adds those of the namespace that a path leads to. Returns whether another path to it would bring no
    /// more.
    fn add_by(&mut self, inode: u64, path: &Path) -> Result<bool> {
        match NetworkNamespace::open(path) {
            Ok(namespace) if namespace.inode() == inode => self.add(&namespace),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.closed.push(inode);
                Ok(true)
            }
            // The thread that was in there has ended, or its number is another's by now.
            _ => Ok(false),
        }
    }

    /// Adds those of a namespace; returns as [`Listed::add_by`] does.
    fn add(&mut self, namespace: &NetworkNamespace) -> Result<bool> {
        let inode = namespace.inode();
        let (network, sockets) = match namespace.run(|| (Network::here(inode), sockets())) {
            Ok(looked) => looked,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.closed.push(inode);
                return Ok(true);
            }
            // A namespace of another kind has a name there.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
            Err(error) => return Err(error).context("cannot look into a network namespace"),
        };
        let sockets = sockets?;
        self.looked_into.push(inode);
        self.inodes.extend(sockets.iter().map(|socket| socket.inode));
        self.sockets.extend(sockets.into_iter().map(|socket| (network, socket)));
        Ok(true)
    }
}

impl Network {
    /// The one that the calling thread is in.
    fn here(inode: u64) -> Self {
        let most = |key: &str| {
            // The thread's own network is what it reads.
            let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).ok()?;
            text.split_whitespace().nth(2)?.parse().ok()
        };
        let (most_send, most_receive) = (most("tcp_wmem"), most("tcp_rmem"));
        Self { inode: Some(inode), most_send, most_receive }
    }
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
