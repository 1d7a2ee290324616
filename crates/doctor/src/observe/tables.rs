//! Tier 1: socket tables and `/proc`, scanned repeatedly. Each difference from the last scan is an
//! event.
//!
//! ```text
//!  Processes: who is asked about   --.
//!  Networks: a door into each       --+--> Rows: sockets as last seen --> events
//!  /proc/PID/fd: who holds which   --'
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lastbyte_core::diag::{self, Outline};
use lastbyte_core::sample::{Progress, State};
use lastbyte_host::process::take_descriptor;
use lastbyte_host::{Proc, namespace};
use lastbyte_sys::sock_diag::{CONNECTED, LISTENING};
use lastbyte_sys::{process, socket};

use super::idle::TableCounts;
use super::networks::{Network, Networks};
use super::processes::Processes;
use super::rows::{Moved, RemovedRow, Row, Rows, role, sample};
use super::throttle::Throttle;
use super::{Each, ObserveError, Plan};
use crate::event::{Changed, Event, Role, Sample, Scope, Socket, SocketId, What};

/// Connections in TIME-WAIT show nothing, and there may be very many.
const STATES: u32 = (LISTENING | CONNECTED) & !(1 << 6);
/// Shares of processor time, one part in this many: for scans of the tables; for scans of
/// descriptors if a new socket has no known holder; and if none is new.
const TABLES_SHARE: u64 = 66;
const HOLDERS_SHARE: u64 = 100;
const HOLDERS_SHARE_BACKGROUND: u64 = 500;
/// How often descriptors are scanned for sockets that were passed on; earlier for new sockets.
const HOLDERS_EVERY: Duration = Duration::from_secs(3);
/// The first assigned number, and the limit on such sockets.
const MADE_UP: u64 = 1 << 63;
const MAX_MADE_UP: usize = 10_000;
/// Events of a closed socket come within this time.
const LATE_NS: u64 = 300_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// How often an idle socket is reported.
const QUIET_NS: u64 = SECOND_NS;
/// How often SO_BUF_LOCK is read again.
const LOCKS_NS: u64 = SECOND_NS;
/// Limit on sockets for that at one scan.
const LOCKS_AT_ONCE: usize = 50;
/// If more sockets than this end between two scans, receiving each end costs too much.
const MAX_ENDS: usize = 400;
const ENDS_AGAIN_NS: u64 = 10 * SECOND_NS;

/// What this tier reports; a higher tier reports the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    /// Changes of state.
    pub(super) changes: bool,
    /// The end of sockets and processes.
    pub(super) ends: bool,
}

#[derive(Debug)]
pub(super) struct Tables {
    scope: Scope,
    reports: Reports,
    proc: Proc,
    networks: Networks,
    processes: Processes,
    rows: Rows,
    round: u32,
    second_ns: u64,
    /// When ends may be received again after there were too many.
    ends_again_ns: u64,
    /// How often the tables and descriptors are scanned.
    pub(super) throttle: Throttle,
    pub(super) holders: Throttle,
    /// Processes whose descriptors this user may not see.
    hidden: BTreeSet<u32>,
    wants_locks: Vec<SocketId>,
    has_new_listener: bool,
    /// Sockets that came into scope after they had disappeared.
    claimed: Vec<(SocketId, Option<Sample>)>,
    /// Sockets that the tables never showed.
    made_up: HashMap<Addresses, MadeUp>,
    next_made_up: u64,
    /// Listening addresses and processes in scope, as reported: the tables may never show these
    /// sockets.
    listening: HashMap<SocketAddr, u32>,
    looked_ns: u64,
}

type Addresses = (SocketAddr, SocketAddr);

/// A socket that the tables never showed, and the processes that used it.
#[derive(Debug)]
struct MadeUp {
    id: SocketId,
    pids: Vec<u32>,
    /// When it was closed.
    closed_ns: Option<u64>,
}

impl Tables {
    pub(super) fn start(plan: &Plan, proc: Proc, reports: Reports) -> Result<Self, ObserveError> {
        // Includes those of threads, which may differ from their process's: their earlier counts do
        // not belong to this observation.
        let before = namespace::seen(&proc).paths.into_keys().collect();
        let mut networks = Networks::new(proc.root(), before);
        let unavailable = |error| {
            ObserveError::Unavailable(format!("the kernel lists no sockets (sock_diag): {error}"))
        };
        networks.open_own(reports.ends).map_err(unavailable)?;
        Ok(Self {
            scope: plan.scope,
            reports,
            processes: Processes::new(proc.clone(), reports.ends),
            proc,
            networks,
            rows: Rows::default(),
            round: 0,
            second_ns: 0,
            ends_again_ns: 0,
            throttle: Throttle::new(plan.every, TABLES_SHARE),
            holders: Throttle::new(HOLDERS_EVERY, HOLDERS_SHARE)
                .background_share(HOLDERS_SHARE_BACKGROUND),
            hidden: BTreeSet::new(),
            wants_locks: Vec::new(),
            has_new_listener: false,
            claimed: Vec::new(),
            made_up: HashMap::new(),
            next_made_up: MADE_UP,
            listening: HashMap::new(),
            looked_ns: 0,
        })
    }

    pub(super) fn watch(&mut self, pid: u32, now_ns: u64, each: Each<'_>) {
        self.processes.watch(pid, now_ns, each);
    }

    /// The number of scans of the tables.
    pub(super) fn looks(&self) -> u64 {
        self.round.into()
    }

    /// The time of the last scan.
    pub(super) fn looked_ns(&self) -> u64 {
        self.looked_ns
    }

    /// The socket with these addresses as of the last scan, or before it disappeared.
    pub(super) fn at(&self, local: SocketAddr, peer: SocketAddr) -> Option<&Row> {
        let row = self.rows.at(local, peer).and_then(|id| self.rows.all.get(&id));
        let removed = || self.rows.removed.get(&(local, peer)).map(|removed| &removed.row);
        row.or_else(removed).map(|row| &**row)
    }

    /// The current socket of a descriptor, if a table has shown it.
    #[cfg(feature = "bpf")]
    pub(super) fn behind(&mut self, pid: u32, fd: i32) -> Option<SocketId> {
        let inode = self.proc.socket(pid, fd)?;
        self.rows.of_inode(inode).map(|row| row.socket.id)
    }

    /// The socket that a process holds with this descriptor, if known.
    pub(super) fn held_by(&self, pid: u32, fd: i32) -> Option<SocketId> {
        let held = |row: &&Row| row.holders.contains(&(pid, Some(fd)));
        self.rows.all.values().map(|row| &**row).find(held).map(|row| row.socket.id)
    }

    /// A process used a socket: reports the socket if that process puts it in scope. Returns
    /// whether it is reported at all.
    pub(super) fn claim(
        &mut self,
        (id, names): (SocketId, Addresses),
        pid: Option<u32>,
        at_ns: u64,
        each: Each<'_>,
    ) -> bool {
        let Some(row) = self.rows.all.get_mut(&id) else {
            return self.claim_removed(names, pid, at_ns, each);
        };
        let is_new = pid.filter(|pid| row.holders.iter().all(|holder| holder.0 != *pid));
        if let Some(pid) = is_new {
            row.add_holder(pid, None);
            if row.is_reported {
                self.hold((id, pid, None), at_ns, each);
            }
        }
        self.decide(id, at_ns, each);
        self.rows.all.get(&id).is_some_and(|row| row.is_reported)
    }

    /// As [`Self::claim`], for a socket that had disappeared by the last scan.
    fn claim_removed(
        &mut self,
        names: Addresses,
        pid: Option<u32>,
        at_ns: u64,
        each: Each<'_>,
    ) -> bool {
        let Some(RemovedRow { row, .. }) = self.rows.removed.get_mut(&names) else { return false };
        let is_new = pid.filter(|pid| row.holders.iter().all(|holder| holder.0 != *pid));
        row.holders.extend(is_new.map(|pid| (pid, None)));
        let (id, is_reported, socket) = (row.socket.id, row.is_reported, row.socket.clone());
        if is_reported {
            if let Some(pid) = is_new {
                self.hold((id, pid, None), at_ns, each);
            }
            return true;
        }
        if !self.would_be_in_scope(&socket, pid.map(|pid| (pid, at_ns))) {
            return false;
        }
        if let Some(RemovedRow { row, last, .. }) = self.rows.removed.get_mut(&names) {
            row.is_reported = true;
            self.claimed.push((id, last.take()));
        }
        self.introduce(&socket, pid, at_ns, each);
        true
    }

    /// Whether a number was assigned to a socket with these addresses.
    pub(super) fn is_made_up(&self, names: Addresses) -> bool {
        self.made_up.contains_key(&names)
    }

    /// The number assigned to a socket with these addresses, which a process used.
    pub(super) fn claim_made_up(
        &mut self,
        names: Addresses,
        pid: Option<u32>,
        at_ns: u64,
        each: Each<'_>,
    ) -> Option<SocketId> {
        let made_up = self.made_up.get_mut(&names)?;
        let (id, is_new) = (made_up.id, pid.filter(|pid| !made_up.pids.contains(pid)));
        made_up.pids.extend(is_new);
        if let Some(pid) = is_new {
            self.hold((id, pid, None), at_ns, each);
        }
        Some(id)
    }

    /// A process in scope listens at an address, or stopped.
    pub(super) fn note_listening(&mut self, at: SocketAddr, pid: Option<u32>) {
        if let Some(pid) = pid.filter(|_| self.listening.len() < MAX_MADE_UP) {
            self.listening.insert(at, pid);
        } else {
            self.listening.remove(&at);
        }
    }

    /// The process that was reported to listen where a connection came in.
    fn reported_listener(&self, local: SocketAddr, network: Option<u64>) -> Option<u32> {
        if self.listening.is_empty() {
            return None;
        }
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut addresses = [local.ip()].into_iter().chain(any);
        let at = |ip| self.listening.get(&SocketAddr::new(ip, local.port())).copied();
        let pid = addresses.find_map(at)?;
        let is_elsewhere = network.is_some_and(|network| {
            self.processes.network(pid).is_some_and(|listens| listens != network)
        });
        (!is_elsewhere).then_some(pid)
    }

    /// Assigns a number to a socket that the tables never showed, and reports it, if it is in
    /// scope.
    pub(super) fn make_up(
        &mut self,
        (local, peer): Addresses,
        (mapped, role): (bool, Role),
        (pid, at_ns): (Option<u32>, u64),
        each: Each<'_>,
    ) {
        let id = SocketId(self.next_made_up);
        let pid = pid.or_else(|| self.reported_listener(local, None));
        let network = pid.and_then(|pid| self.processes.network(pid));
        let (subflow, earlier) = (false, false);
        let socket = Socket { id, local, peer, mapped, network, role, subflow, earlier };
        if !self.would_be_in_scope(&socket, pid.map(|pid| (pid, at_ns))) {
            return;
        }
        if self.made_up.len() >= MAX_MADE_UP {
            each(Event { at_ns, what: What::Dropped { events: 1 } });
            return;
        }
        self.next_made_up += 1;
        let pids = pid.into_iter().collect();
        self.made_up.insert((local, peer), MadeUp { id, pids, closed_ns: None });
        self.introduce(&socket, pid, at_ns, each);
    }

    /// The socket was closed; more events of it may still come.
    pub(super) fn close_made_up(&mut self, names: Addresses, at_ns: u64) {
        if let Some(made_up) = self.made_up.get_mut(&names) {
            made_up.closed_ns = Some(at_ns);
        }
    }

    /// Reports the end of those that were closed a while ago.
    fn end_made_up(&mut self, now_ns: u64, each: Each<'_>) {
        let is_over = |closed: Option<u64>| closed.is_some_and(|at_ns| now_ns > at_ns + LATE_NS);
        self.made_up.retain(|_, made_up| {
            let is_over = is_over(made_up.closed_ns);
            if is_over {
                end_of(made_up.id, None, each);
            }
            !is_over
        });
    }

    /// Reports a socket that the tables never showed.
    fn introduce(&mut self, socket: &Socket, pid: Option<u32>, at_ns: u64, each: Each<'_>) {
        each(Event { at_ns, what: What::Socket(socket.clone()) });
        let listener = self.rows.listener(socket).map(|row| row.holders.clone());
        let pids = pid.into_iter().chain(listener.into_iter().flatten().map(|holder| holder.0));
        for pid in pids.collect::<BTreeSet<u32>>() {
            self.hold((socket.id, pid, None), at_ns, each);
        }
    }

    /// Whether a socket that the tables never showed is in scope, by the process and time of a
    /// call.
    fn would_be_in_scope(&self, socket: &Socket, by: Option<(u32, u64)>) -> bool {
        let is_held = |row: &Row| self.is_held(row);
        match self.scope {
            Scope::Machine => true,
            Scope::Port(port) => socket.local.port() == port || socket.peer.port() == port,
            Scope::Process(_) => {
                by.is_some_and(|(pid, at_ns)| self.processes.was_watched(pid, at_ns))
                    || self.rows.listener(socket).is_some_and(is_held)
                    || self.is_other_end_reported(socket)
                    || self.reported_listener(socket.local, socket.network).is_some()
            }
        }
    }

    fn is_held(&self, row: &Row) -> bool {
        row.holders.iter().any(|one| self.processes.is_remembered(one.0))
    }

    /// Whether the other end, if on this machine, is or was reported.
    fn is_other_end_reported(&self, socket: &Socket) -> bool {
        let names = (socket.peer, socket.local);
        self.rows.other_end(socket).is_some_and(|other| other.is_reported)
            || self.rows.removed.get(&names).is_some_and(|other| other.row.is_reported)
            || self.made_up.contains_key(&names)
    }

    /// Reports the end of sockets that came into scope after they had disappeared.
    pub(super) fn end_claimed(&mut self, each: Each<'_>) {
        for (id, last) in std::mem::take(&mut self.claimed) {
            end_of(id, last, each);
        }
    }

    /// What cannot be seen, in sentences.
    pub(super) fn blind(&self) -> Vec<String> {
        let mut blind: Vec<String> = self.networks.refused.values().cloned().collect();
        if self.reports.ends && self.networks.miss_ends() {
            blind.push(
                "connections that live for less than a tenth of a second are not seen: reports of \
                 ended sockets need CAP_NET_ADMIN"
                    .to_owned(),
            );
        }
        if !self.hidden.is_empty() {
            blind.push(
                "the sockets of other users' processes are not known: CAP_SYS_PTRACE is missing"
                    .to_owned(),
            );
        }
        blind
    }

    /// Runs a function in each observed network namespace.
    ///
    /// # Errors
    /// The first error it returned; the remaining namespaces are skipped.
    #[cfg(feature = "bpf")]
    pub(super) fn in_each_network(
        &self,
        act: &(dyn Fn() -> std::io::Result<()> + Sync),
    ) -> std::io::Result<()> {
        self.networks.open.values().try_for_each(|network| network.within(act))
    }

    pub(super) fn proc(&self) -> &Proc {
        &self.proc
    }

    pub(super) fn processes(&mut self) -> &mut Processes {
        &mut self.processes
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Scans everything that is due.
    pub(super) fn scan(&mut self, now_ns: u64, each: Each<'_>) {
        self.processes.scan(now_ns, each);
        if self.throttle.is_due(now_ns) {
            self.scan_all(now_ns, each);
        }
    }

    /// Scans everything once more, due or not, with the counters.
    pub(super) fn scan_last(&mut self, now_ns: u64, each: Each<'_>) {
        self.processes.scan(now_ns, each);
        self.second_ns = 0;
        self.scan_all(now_ns, each);
    }

    fn scan_all(&mut self, now_ns: u64, each: Each<'_>) {
        let cost = Throttle::begin();
        let is_first = self.round == 0;
        self.round = self.round.wrapping_add(1);
        self.looked_ns = now_ns;
        // Events reported during a scan are read after the next one.
        let round = self.round;
        self.rows.removed.retain(|_, removed| removed.round.wrapping_add(1) == round);
        let is_second = now_ns >= self.second_ns + SECOND_NS;
        self.open_networks(is_second, now_ns);
        for counters in self.networks.take_departed() {
            each(Event { at_ns: now_ns, what: What::Counters(counters) });
        }
        for network in self.networks.take_opened() {
            each(Event { at_ns: now_ns, what: What::Network(network) });
        }
        let mut seen = Seen { fresh: Vec::new(), gone: Vec::new(), is_first };
        let inodes: Vec<u64> = self.networks.open.keys().copied().collect();
        let mut whole = Vec::new();
        for inode in inodes {
            whole.extend(self.dump(inode, now_ns, &mut seen, each).then_some(inode));
            self.receive_ends(inode, now_ns, &mut seen, each);
        }
        self.find_missing(&whole, &mut seen);
        let spent_ns = self.find_holders(now_ns, each);
        for (id, sample) in seen.fresh {
            self.decide(id, now_ns, each);
            self.report_sample(id, sample, each);
        }
        self.decide_later(now_ns, each);
        self.end(seen.gone, each);
        self.end_made_up(now_ns, each);
        self.read_locks(now_ns);
        if is_second {
            self.second_ns = now_ns;
            self.count(now_ns, each);
        }
        self.throttle.end(&cost, spent_ns, now_ns);
    }

    /// Opens the namespaces in scope, and closes the others.
    fn open_networks(&mut self, is_second: bool, now_ns: u64) {
        let mut wanted: BTreeMap<u64, PathBuf> = BTreeMap::new();
        match self.scope {
            Scope::Process(_) => {
                let networks = self.processes.networks();
                wanted.extend(
                    networks.map(|(inode, (pid, tid))| (inode, self.proc.network_path(pid, tid))),
                );
            }
            // This reads all processes.
            _ if !is_second => return,
            Scope::Machine | Scope::Port(_) => {
                wanted.extend(namespace::named(self.proc.root()));
                for pid in self.proc.pids().unwrap_or_default() {
                    if let Ok(inode) = self.proc.network(pid, pid) {
                        wanted.entry(inode).or_insert_with(|| self.proc.network_path(pid, pid));
                    }
                }
            }
        }
        self.stay_with_sockets(&mut wanted);
        let receives_ends = self.reports.ends && now_ns >= self.ends_again_ns;
        self.networks.open_wanted(&wanted, receives_ends);
        if receives_ends {
            self.networks.open.values_mut().for_each(Network::receive_ends);
        }
    }

    /// A namespace without processes is observed until its sockets have ended: another process may
    /// hold them by now, or they may be orphans with bytes to deliver.
    fn stay_with_sockets(&self, wanted: &mut BTreeMap<u64, PathBuf>) {
        let is_left = |inode: &&u64| !wanted.contains_key(inode);
        let left: BTreeSet<u64> = self.networks.open.keys().filter(is_left).copied().collect();
        if left.is_empty() {
            return;
        }
        let of_rows = self.rows.all.values().filter_map(|row| row.socket.network);
        // It has no path, and needs none: it is open.
        wanted.extend(
            of_rows.filter(|inode| left.contains(inode)).map(|inode| (inode, PathBuf::new())),
        );
    }

    /// Reads the table of one namespace, unless it is unchanged. Returns whether the whole table
    /// was read.
    fn dump(&mut self, inode: u64, now_ns: u64, seen: &mut Seen, each: Each<'_>) -> bool {
        let Some(network) = self.networks.open.get_mut(&inode) else { return false };
        if network.idle_check.lasts(now_ns) {
            return false;
        }
        let before = network.idle_check.before();
        let mut table = Table {
            rows: &mut self.rows,
            seen,
            wants_locks: &mut self.wants_locks,
            network: inode,
            round: self.round,
            reports_changes: self.reports.changes,
            shown: TableCounts::default(),
        };
        let whole = network.dump.tcp(STATES, &mut |body| table.take(body, each));
        network.idle_check.after(before, whole.is_ok().then_some(table.shown), now_ns);
        let is_broken = |error: &std::io::Error| error.kind() != std::io::ErrorKind::Interrupted;
        if let Some(error) = whole.as_ref().err().filter(|error| is_broken(error)) {
            let why = format!("the sockets of network namespace {inode} are not listed: {error}");
            self.networks.refused.insert(inode, why);
        }
        whole.is_ok()
    }

    /// Finds sockets that are missing from the `whole` table of their namespace. An interrupted
    /// table may lack some.
    fn find_missing(&self, whole: &[u64], seen: &mut Seen) {
        // If trace lines report changes, one more scan passes: the kernel removes a socket from its
        // table before it reports its end with the final values.
        let grace = u32::from(self.reports.ends && !self.reports.changes);
        let is_missing = |row: &&Row| {
            self.round.wrapping_sub(row.round) > grace
                && row.socket.network.is_some_and(|network| whole.contains(&network))
        };
        let missing = self.rows.all.values().map(|row| &**row).filter(is_missing);
        seen.gone.extend(missing.map(|row| (row.socket.id, None)));
    }

    /// Receives the sockets that ended since the last scan, with their final values.
    fn receive_ends(&mut self, inode: u64, now_ns: u64, seen: &mut Seen, each: Each<'_>) {
        let Some(network) = self.networks.open.get_mut(&inode) else { return };
        let Some(destroyed) = network.destroyed.as_mut() else {
            return;
        };
        let (mut ended, mut unread) = (Vec::new(), 0);
        let result = destroyed.receive(&mut |body| {
            if ended.len() >= MAX_ENDS {
                unread += 1;
            } else if let Some(socket) = diag::Socket::parse(body) {
                let info = diag::info_bytes(body).map(Box::<[u8]>::from);
                ended.push((socket, info));
            }
        });
        // The kernel does not report how many did not fit into the buffer.
        let events = unread + u64::from(result.is_err());
        if events > 0 {
            each(Event { at_ns: now_ns, what: What::Dropped { events } });
        }
        if ended.len() >= MAX_ENDS {
            network.destroyed = None;
            self.ends_again_ns = now_ns + ENDS_AGAIN_NS;
        }
        for (socket, info) in ended {
            let id = SocketId(socket.cookie);
            if let Some(MadeUp { id, .. }) = self.made_up.remove(&(socket.local, socket.peer)) {
                end_of(id, Some(sample(id, socket, info.as_deref())), each);
                continue;
            }
            // A socket that was disconnected by its program has no addresses left.
            let is_whole = socket.peer.port() != 0 && !socket.peer.ip().is_unspecified();
            if is_whole && !self.rows.all.contains_key(&id) && !self.rows.is_full() {
                let of = (&socket, info.as_deref());
                let row = new_row(&self.rows, (inode, self.round), of, false);
                let holders = self.rows.listener(&row.socket).map(|row| row.holders.clone());
                // The listener's holders accepted it, as far as can be known afterwards.
                let pids = holders.into_iter().flatten().map(|(pid, _)| (pid, None)).collect();
                self.rows.add(Row { holders: pids, ..row });
                self.decide(id, now_ns, each);
            }
            let last = is_whole.then(|| sample(id, socket, info.as_deref()));
            seen.gone.retain(|gone| gone.0 != id);
            seen.gone.push((id, last));
        }
    }

    /// Finds the holders of sockets when that is due, and earlier if a socket has no known holder.
    fn find_holders(&mut self, now_ns: u64, each: Each<'_>) -> u64 {
        let is_urgent = self.rows.has_unsearched && self.holders.is_allowed(now_ns);
        if !is_urgent && !self.holders.is_due(now_ns) {
            return 0;
        }
        let cost = Throttle::begin();
        let pids: Vec<u32> = match self.scope {
            Scope::Process(_) => self.processes.watched().collect(),
            Scope::Machine | Scope::Port(_) => self.proc.pids().unwrap_or_default(),
        };
        self.hidden.clear();
        let mut found = Vec::new();
        for pid in pids {
            let rows = &mut self.rows;
            let seen = self.proc.sockets(pid, &mut |inode, fd| {
                let Some(row) = rows.of_inode(inode) else { return };
                // A holder that is known by a call has no known descriptor.
                match row.holders.iter_mut().find(|holder| holder.0 == pid) {
                    Some((_, Some(_))) => return,
                    Some((_, unknown)) => *unknown = Some(fd),
                    None => row.add_holder(pid, Some(fd)),
                }
                found.push((row.socket.id, pid, fd));
            });
            if seen.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
                self.hidden.insert(pid);
            }
        }
        self.rows.has_unsearched = false;
        for (id, pid, fd) in found {
            let was_reported = self.rows.all.get(&id).is_some_and(|row| row.is_reported);
            if was_reported {
                self.hold((id, pid, Some(fd)), now_ns, each);
            } else {
                self.decide(id, now_ns, each);
            }
        }
        self.holders.end(&cost, 0, now_ns)
    }

    /// Reports a socket if it is in scope and was not reported yet.
    fn decide(&mut self, id: SocketId, now_ns: u64, each: Each<'_>) {
        let Some(row) = self.rows.all.get(&id) else { return };
        if row.is_reported || !self.is_in_scope(row) {
            return;
        }
        let other = self.rows.other_end(&row.socket).map(|row| row.socket.id);
        let Some(row) = self.rows.all.get_mut(&id) else { return };
        row.is_reported = true;
        self.has_new_listener |= row.state == State::Listen;
        each(Event { at_ns: now_ns, what: What::Socket(row.socket.clone()) });
        for (pid, fd) in row.holders.clone() {
            self.hold((id, pid, fd), now_ns, each);
        }
        if let Some(other) = other {
            self.decide(other, now_ns, each);
        }
    }

    /// Decides again about connections of a listening socket that came into scope after them.
    fn decide_later(&mut self, now_ns: u64, each: Each<'_>) {
        if !std::mem::take(&mut self.has_new_listener) {
            return;
        }
        let unreported = self.rows.all.values().filter(|row| !row.is_reported);
        let ids: Vec<SocketId> = unreported.map(|row| row.socket.id).collect();
        for id in ids {
            self.decide(id, now_ns, each);
        }
    }

    fn is_in_scope(&self, row: &Row) -> bool {
        let is_held = self.is_held(row);
        match (self.scope, row.state) {
            (Scope::Process(_), State::Listen) => is_held,
            (Scope::Process(_), _) if is_held => true,
            _ => self.would_be_in_scope(&row.socket, None),
        }
    }

    fn hold(
        &mut self,
        (socket, pid, fd): (SocketId, u32, Option<i32>),
        now_ns: u64,
        each: Each<'_>,
    ) {
        if self.processes.report(pid, now_ns, each) {
            each(Event { at_ns: now_ns, what: What::Holds { socket, pid, fd } });
        }
    }

    fn report_sample(&self, id: SocketId, (at_ns, sample): (u64, Sample), each: Each<'_>) {
        if self.rows.all.get(&id).is_some_and(|row| row.is_reported) {
            each(Event { at_ns, what: What::Sample(Box::new(sample)) });
        }
    }

    /// Reports the end of sockets, with their final values if received.
    fn end(&mut self, gone: Vec<(SocketId, Option<Sample>)>, each: Each<'_>) {
        for (id, last) in gone {
            let Some(row) = self.rows.remove(id) else { continue };
            if !self.reports.ends {
                continue;
            }
            let later = if row.is_reported {
                end_of(id, last, each);
                None
            } else {
                last
            };
            if !self.reports.changes {
                let names = (row.socket.local, row.socket.peer);
                let removed = RemovedRow { row, last: later, round: self.round };
                self.rows.removed.insert(names, removed);
            }
        }
    }

    /// Reads which buffers a program has fixed, through a duplicated descriptor.
    fn read_locks(&mut self, now_ns: u64) {
        for id in std::mem::take(&mut self.wants_locks) {
            let Some(row) = self.rows.all.get_mut(&id) else { continue };
            let holder = row.holders.iter().find_map(|(pid, fd)| Some((*pid, (*fd)?)));
            let Some((pid, fd)) = holder else { continue };
            row.locks_ns = now_ns;
            row.locks = locks(id, pid, fd).or(row.locks);
        }
    }

    fn count(&mut self, now_ns: u64, each: Each<'_>) {
        for counters in self.networks.counters() {
            each(Event { at_ns: now_ns, what: What::Counters(counters) });
        }
    }
}

/// What one scan has found.
struct Seen {
    fresh: Vec<(SocketId, (u64, Sample))>,
    gone: Vec<(SocketId, Option<Sample>)>,
    is_first: bool,
}

/// The table of one namespace, while it is read.
struct Table<'a> {
    rows: &'a mut Rows,
    seen: &'a mut Seen,
    wants_locks: &'a mut Vec<SocketId>,
    network: u64,
    round: u32,
    reports_changes: bool,
    shown: TableCounts,
}

impl Table<'_> {
    fn take(&mut self, body: &[u8], each: Each<'_>) {
        let Some(outline) = Outline::parse(body) else { return };
        match outline.state {
            State::Listen => self.shown.listening += 1,
            _ => self.shown.connected += 1,
        }
        // The remainder of a connection in TIME-WAIT may show another state, and has no `tcp_info`.
        if outline.info.is_none() && !matches!(outline.state, State::Listen | State::SynRecv) {
            return;
        }
        let (at_ns, id) = (process::monotonic_ns(), SocketId(outline.cookie));
        let Some(row) = self.rows.known(id, outline.inode) else {
            self.take_new(at_ns, body, outline.info);
            return;
        };
        row.round = self.round;
        if self.reports_changes && row.is_reported && row.state != outline.state {
            let changed = change(id, row.state, &outline);
            each(Event { at_ns, what: What::Changed(changed) });
        }
        row.state = outline.state;
        let progress = outline.info.map(Progress::parse).unwrap_or_default();
        let time_outs = progress.total_rto.unwrap_or(row.time_outs);
        row.timed_out = time_outs > row.time_outs;
        row.time_outs = time_outs;
        let queues = (outline.receive_queue, outline.send_queue);
        if row.is_to_be_reported(at_ns, Moved::of(queues, &progress), self.wants_locks)
            && let Some(socket) = diag::Socket::parse(body)
        {
            let sample = Sample { locks: row.locks, ..sample(id, socket, outline.info) };
            each(Event { at_ns, what: What::Sample(Box::new(sample)) });
        }
    }

    fn take_new(&mut self, at_ns: u64, body: &[u8], info: Option<&[u8]>) {
        let Some(socket) = diag::Socket::parse(body).filter(|_| !self.rows.is_full()) else {
            return;
        };
        let was_there = self.seen.is_first;
        let row = new_row(self.rows, (self.network, self.round), (&socket, info), was_there);
        let id = row.socket.id;
        self.rows.add(row);
        self.seen.fresh.push((id, (at_ns, sample(id, socket, info))));
    }
}

impl Row {
    /// Whether a socket that was reported before is due again; marks it as reported.
    fn is_to_be_reported(
        &mut self,
        at_ns: u64,
        moved: Moved,
        wants_locks: &mut Vec<SocketId>,
    ) -> bool {
        if !self.is_reported {
            return false;
        }
        let is_quiet = moved == self.moved && moved.is_idle(self.state);
        if is_quiet && at_ns < self.sampled_ns + QUIET_NS {
            return false;
        }
        let is_due = self.locks_ns == 0 || (!is_quiet && at_ns >= self.locks_ns + LOCKS_NS);
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        if is_due && is_open && !self.holders.is_empty() && wants_locks.len() < LOCKS_AT_ONCE {
            wants_locks.push(self.socket.id);
        }
        (self.moved, self.sampled_ns) = (moved, at_ns);
        true
    }
}

fn end_of(id: SocketId, last: Option<Sample>, each: Each<'_>) {
    let at_ns = process::monotonic_ns();
    if let Some(last) = last {
        each(Event { at_ns, what: What::Sample(Box::new(last)) });
    }
    each(Event { at_ns, what: What::Gone { socket: id, counts: None } });
}

fn new_row(
    rows: &Rows,
    (network, round): (u64, u32),
    (socket, info): (&diag::Socket, Option<&[u8]>),
    was_there: bool,
) -> Row {
    let mut known = Socket {
        id: SocketId(socket.cookie),
        local: socket.local,
        peer: socket.peer,
        mapped: socket.mapped,
        network: Some(network),
        role: Role::Unknown,
        subflow: false,
        earlier: was_there,
    };
    known.role = role(rows, &known, socket.state, was_there);
    let progress = info.map(Progress::parse).unwrap_or_default();
    // So that idle sockets are not all reported, and in memory, at the same scan.
    let earlier_ns = QUIET_NS / 16 * (socket.cookie % 16);
    Row {
        socket: known,
        inode: socket.inode,
        state: socket.state,
        round,
        is_reported: false,
        holders: Vec::new(),
        moved: Moved::of((socket.receive_queue, socket.send_queue), &progress),
        sampled_ns: process::monotonic_ns().saturating_sub(earlier_ns),
        locks: None,
        locks_ns: 0,
        time_outs: progress.total_rto.unwrap_or_default(),
        timed_out: false,
    }
}

fn change(socket: SocketId, from: State, now: &Outline<'_>) -> Changed {
    let held = Some(now.inode != 0);
    Changed { socket, from, to: now.state, by: None, counts: None, errno: 0, held }
}

/// `SO_BUF_LOCK` of another process's socket, if the descriptor is still of that socket.
fn locks(id: SocketId, pid: u32, fd: i32) -> Option<u8> {
    let fd = take_descriptor(pid, fd).ok()?;
    let is_same = socket::cookie(&fd).is_ok_and(|cookie| cookie == id.0);
    let locked = is_same.then(|| socket::buffer_lock(&fd).ok()).flatten()?;
    u8::try_from(locked).ok()
}
