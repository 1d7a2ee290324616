//! From what is wanted to connections, and to those who have them open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lastbyte_core::diag::Socket;
use lastbyte_core::sample::State;
use lastbyte_core::text::in_one_line;
use lastbyte_host::{Holder, Proc};
use lastbyte_sys::process::effective_user;
use lastbyte_sys::socket;

use crate::door::{in_words, not_ours, take_any};
use crate::error::{HealError, system};
use crate::network::{Listed, Network, list_all};
use crate::settings::state;

/// Which connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those of a process, or what it has open by one number.
    Process {
        /// The process, as `/proc` counts; a thread stands for its process.
        pid: u32,
        /// The number of a descriptor.
        fd: Option<i32>,
    },
    /// Those with this port at either end.
    Port(u16),
    /// The one with this cookie.
    Cookie(u64),
    /// The one between its own address and the peer's.
    Between(SocketAddr, SocketAddr),
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The number that the kernel knows it by until the next boot.
    pub cookie: u64,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The network namespace that it is in.
    pub network: Network,
    /// Who has it open, of those that can be seen: at least one.
    pub holders: Vec<Holder>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// These can be changed.
    pub targets: Vec<Target>,
    /// Of those meant, these have no holder that can be seen: cookies.
    pub out_of_sight: Vec<u64>,
    /// Of those meant, these no program has open any more: cookies.
    pub orphans: Vec<u64>,
    /// Of those meant, these are paths of a connection of Multipath TCP: cookies.
    pub multipath: Vec<u64>,
    /// Namespaces that this process may not look into were left out.
    pub some_left_out: bool,
}

/// Finds the connections that are meant, in all network namespaces.
///
/// # Errors
/// The process, or what it has open by the number, is not there, is no connection, or is not for us.
pub fn find(wanted: Wanted) -> Result<Found, HealError> {
    let wanted = match wanted {
        Wanted::Process { pid, fd } => {
            let process = Proc::default().group(pid);
            let pid = process.ok_or(HealError::NoProcess(pid))?;
            Wanted::Process { pid, fd }
        }
        other => other,
    };
    let own = match wanted {
        Wanted::Process { pid, fd } => own_sockets(pid, fd)?,
        _ => BTreeMap::new(),
    };
    let listed = list_all()?;
    let mut found = among(&listed, |socket| match wanted {
        Wanted::Process { .. } => own.contains_key(&socket.inode),
        Wanted::Port(port) => socket.local.port() == port || socket.peer.port() == port,
        Wanted::Cookie(cookie) => socket.cookie == cookie,
        Wanted::Between(local, peer) => (socket.local, socket.peer) == (local, peer),
    });
    found.set_multipath_aside();
    if let Wanted::Process { pid, fd } = wanted {
        found.add_by_hand(&own, &listed);
        if let Some(fd) = fd.filter(|_| found.targets.is_empty()) {
            return Err(no_connection(pid, fd));
        }
        for target in &mut found.targets {
            target.holders.sort_by_key(|one| (one.pid != pid, fd.is_some_and(|fd| one.fd != fd)));
        }
    }
    found.targets.sort_by_key(|target| target.cookie);
    Ok(found)
}

/// The sockets that a process has open, or the one by that number, by their inodes.
fn own_sockets(pid: u32, fd: Option<i32>) -> Result<BTreeMap<u32, Holder>, HealError> {
    let proc = Proc::default();
    let holder = |fd| Holder { pid, fd, program: proc.name(pid) };
    let mut sockets = Vec::new();
    match proc.sockets(pid, &mut |inode, number| sockets.push((number, inode))) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HealError::NoProcess(pid));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(not_ours(&holder(0)));
        }
        Err(error) => {
            return Err(system(format!("cannot see what process {pid} has open"))(error));
        }
    }
    if let Some(fd) = fd
        && !sockets.iter().any(|(number, _)| *number == fd)
    {
        let who = in_words(&holder(fd));
        let Ok(what) = proc.descriptor(pid, fd) else {
            return Err(HealError::NothingOpen { who, fd });
        };
        let what = in_one_line(&what.to_string_lossy());
        return Err(HealError::NoSocket { who, fd, what });
    }
    let wanted = sockets.into_iter().filter(|(number, _)| fd.is_none_or(|fd| *number == fd));
    Ok(wanted.map(|(number, inode)| (inode, holder(number))).collect())
}

/// Those of a list that are meant and connected, with their holders.
fn among(listed: &Listed, is_meant: impl Fn(&Socket) -> bool) -> Found {
    let meant = listed.sockets.iter();
    let meant: Vec<_> =
        meant.filter(|(_, socket)| is_connected(socket.state) && is_meant(socket)).collect();
    let inodes: BTreeSet<u32> = meant.iter().map(|(_, socket)| socket.inode).collect();
    let mut holders = Proc::default().holders(&inodes);
    let some_left_out = !listed.closed.is_empty() || listed.some_hidden;
    let mut found = Found { some_left_out, ..Found::default() };
    for (network, socket) in meant {
        let (cookie, local, peer) = (socket.cookie, socket.local, socket.peer);
        match holders.remove(&socket.inode) {
            Some(holders) => {
                found.targets.push(Target { cookie, local, peer, network: *network, holders });
            }
            None if socket.inode == 0 => found.orphans.push(cookie),
            None => found.out_of_sight.push(cookie),
        }
    }
    found
}

/// Whether bytes can still move, either way.
fn is_connected(state: State) -> bool {
    !matches!(
        state,
        State::SynSent | State::SynRecv | State::TimeWait | State::Close | State::Listen
    )
}

impl Found {
    /// Sets those aside whose descriptor is one of Multipath TCP. The kernel lists the paths of such a
    /// connection, and none of them has a descriptor.
    fn set_multipath_aside(&mut self) {
        let is_multipath = |target: &Target| {
            let holder = target.holders.first();
            let taken = holder.and_then(|holder| take_any(holder).ok().flatten());
            taken.is_some_and(|fd| socket::protocol(&fd).ok() == Some(socket::PROTOCOL_MPTCP))
        };
        let paths = self.targets.extract_if(.., |target| is_multipath(target));
        self.multipath.extend(paths.map(|target| target.cookie));
    }

    /// Adds connections that are in no list, as their namespace is closed to us, or nobody is in it:
    /// each socket of the process that is not listed is asked itself.
    fn add_by_hand(&mut self, own: &BTreeMap<u32, Holder>, listed: &Listed) {
        for (_, holder) in own.iter().filter(|(inode, _)| !listed.inodes.contains(*inode)) {
            let Ok(Some(fd)) = take_any(holder) else { continue };
            let Some((cookie, local, peer)) = connection(&fd) else { continue };
            if self.targets.iter().any(|target| target.cookie == cookie) {
                continue;
            }
            let network = Network { inode: None, most_send: None, most_receive: None };
            let holders = vec![holder.clone()];
            self.targets.push(Target { cookie, local, peer, network, holders });
        }
    }
}

/// What a descriptor stands for, if that is a TCP connection.
fn connection(fd: &OwnedFd) -> Option<(u64, SocketAddr, SocketAddr)> {
    let is_tcp = socket::protocol(fd).ok()? == socket::PROTOCOL_TCP;
    if !is_tcp || !is_connected(state(fd).ok()?) {
        return None;
    }
    let (local, peer) = (socket::local_address(fd).ok()??, socket::peer_address(fd).ok()??);
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Some((socket::cookie(fd).ok()?, plain(local), plain(peer)))
}

/// Why a socket that a process has open is not one that can be healed.
fn no_connection(pid: u32, fd: i32) -> HealError {
    let holder = Holder { pid, fd, program: Proc::default().name(pid) };
    let who = in_words(&holder);
    let taken = match take_any(&holder) {
        Ok(Some(taken)) => taken,
        Ok(None) => return HealError::ClosedMeanwhile { who, fd },
        Err(error) => return error,
    };
    let family = socket::family(&taken).unwrap_or_default();
    let is_stream = socket::kind(&taken).is_ok_and(|kind| kind == socket::TYPE_STREAM);
    let is_internet = [socket::FAMILY_IPV4, socket::FAMILY_IPV6].contains(&family);
    let protocol = socket::protocol(&taken).unwrap_or_default();
    let what = match protocol {
        _ if family == socket::FAMILY_UNIX => "a Unix socket, and not TCP",
        socket::PROTOCOL_MPTCP => "a socket of Multipath TCP, whose options cannot be changed so",
        _ if !is_internet || !is_stream || protocol != socket::PROTOCOL_TCP => "not a TCP socket",
        _ if socket::is_listening(&taken).unwrap_or(false) => {
            "a listening socket: what is set there is for connections to come, and heal changes \
             those that are"
        }
        _ => "not connected",
    };
    HealError::NotConnection { who, fd, what }
}

// --- again -----------------------------------------------------------------------------------------

/// Where a connection that was known once is now.
#[derive(Debug)]
pub enum Whereabouts {
    /// These have it open.
    Held(Vec<Holder>),
    /// No program has it open any more; the kernel may still send what is left.
    Orphaned,
    /// It is over.
    Over,
    /// Its namespace, or its holder, may be there, and cannot be seen with this user's rights.
    OutOfSight,
}

/// Looks for the connection of this cookie, which was in `network`, wherever it may be now.
///
/// # Errors
/// The kernel does not list its sockets.
pub fn whereabouts(cookie: u64, network: Option<u64>) -> Result<Whereabouts, HealError> {
    let listed = list_all()?;
    let mut found = among(&listed, |socket| socket.cookie == cookie);
    if let Some(target) = found.targets.pop() {
        return Ok(Whereabouts::Held(target.holders));
    }
    if !found.orphans.is_empty() {
        return Ok(Whereabouts::Orphaned);
    }
    if !found.out_of_sight.is_empty() {
        return Ok(Whereabouts::OutOfSight);
    }
    if network.is_some_and(|network| listed.listed.contains(&network)) {
        return Ok(Whereabouts::Over);
    }
    Ok(match by_hand(cookie, &listed) {
        Some(holder) => Whereabouts::Held(vec![holder]),
        // What even root may not look into is nothing that could have been changed.
        None if found.some_left_out && effective_user() != 0 => Whereabouts::OutOfSight,
        None => Whereabouts::Over,
    })
}

/// Asks all sockets that are in no list, of all processes that let us.
fn by_hand(cookie: u64, listed: &Listed) -> Option<Holder> {
    let is_it = |holder: &Holder| {
        let taken = take_any(holder).ok().flatten();
        taken.and_then(|fd| socket::cookie(&fd).ok()) == Some(cookie)
    };
    let proc = Proc::default();
    proc.others().into_iter().find_map(|pid| {
        let mut holders = Vec::new();
        // What cannot be seen cannot be taken either.
        let _ = proc.sockets(pid, &mut |inode, fd| {
            if !listed.inodes.contains(&inode) {
                holders.push(Holder { pid, fd, program: proc.name(pid) });
            }
        });
        holders.into_iter().find(is_it)
    })
}
