//! What is known at a moment: processes, sockets, and which process holds which socket. Every event
//! is added here before the rules see it. Memory is bounded: what ended long ago is forgotten.

mod served;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use lastbyte_core::sample::{State, TcpInfo};

use self::served::{Coverage, Servers};
pub use self::served::{Served, TopCall};
use crate::address_pair::AddressPair;
use crate::event::{
    Changed, Counters, Counts, Ending, Event, Info, Network, Process, Role, Sample, Scope, Socket,
    SocketId, Tier, What, distance,
};
use crate::finding::About;

/// How long a socket or process is remembered after its end, nanoseconds. An answer to its last
/// packet, and the events of the other end, may come later.
const KEEP_NS: u64 = 10_000_000_000;
/// Limit on ended processes and sockets; those that ended first are forgotten first.
const MAX_ENDED: usize = 20_000;
/// Limit on sockets, about half a kilobyte each. Beyond it, those without an event for the longest
/// time are forgotten: if events are dropped, the ends of sockets are among them, and an open
/// socket is sampled once a second.
const MAX_SOCKETS: usize = 40_000;
/// Limit on names of network namespaces.
const MAX_NETWORKS: usize = 1_024;
/// Limit on holders of one socket. A listening socket may have a worker for each processor, and
/// processes may pass a descriptor on without end.
const MAX_HOLDERS: usize = 64;

/// What is known.
#[derive(Debug)]
pub struct Facts {
    began: Option<crate::event::Began>,
    now_ns: u64,
    processes: BTreeMap<u32, KnownProcess>,
    /// Boxed, since a map node has capacity for up to twice its entries.
    sockets: BTreeMap<SocketId, Box<KnownSocket>>,
    /// The newest socket for each pair of addresses, its own first.
    by_addresses: BTreeMap<AddressPair, SocketId>,
    /// The sockets that each process holds.
    sockets_of: BTreeMap<u32, BTreeSet<SocketId>>,
    /// Processes that hold or held a socket of the port in scope.
    of_port: BTreeSet<u32>,
    ended: VecDeque<(u64, Ended)>,
    dropped: u64,
    /// The observer's own network namespace.
    own_network: Option<u64>,
    /// Names of the other network namespaces.
    network_names: BTreeMap<u64, String>,
    /// Network namespaces that threads of a process in scope are or were in.
    networks_of_threads: BTreeSet<u64>,
    /// For each namespace, connection ends opened while it was observed, by its counters.
    opened: BTreeMap<u64, u64>,
    /// Connection ends that were reported.
    seen: u64,
    servers: Servers,
    began_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Socket(SocketId),
    Process(u32),
}

/// A process, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct KnownProcess {
    /// As last reported.
    pub process: Process,
    /// How it ended, if it has.
    pub ending: Option<Ending>,
    /// Whether it is in scope: the process that was asked for, or a descendant.
    pub is_watched: bool,
    /// Whether it is remembered only as the last holder of sockets that are not over.
    is_retained: bool,
}

/// A socket and what became of it. There may be very many: what few of them have lies in boxes.
#[derive(Clone, Debug)]
pub struct KnownSocket {
    /// As last reported.
    pub socket: Socket,
    /// Known holders, oldest first, with their descriptor if known.
    pub holders: Vec<(u32, Option<i32>)>,
    /// Its last state.
    pub state: Option<State>,
    /// When it was first reported, nanoseconds.
    pub since_ns: u64,
    /// Whether our FIN is queued, as far as the states show.
    pub fin_sent: bool,
    /// The last counts, from any event.
    pub counts: Option<(u64, Counts)>,
    /// The last sample, without its `tcp_info` and the name of the congestion control.
    pub sample: Option<(u64, Box<Sample>)>,
    /// The round trip without queueing, from the last sample's `tcp_info`, microseconds; `None` if
    /// it had none.
    pub round_trip_us: Option<u32>,
    /// `tcpi_bytes_acked` and `tcpi_bytes_received` of the last sample that had them, modulo 2^32
    /// like sequence numbers.
    pub carried: Option<(u32, u32)>,
    /// When the kernel destroyed it; `None` before.
    pub gone_ns: Option<u64>,
    // See the methods of the same names.
    changed: Option<Box<(u64, Changed)>>,
    closed: Option<Box<(u64, Changed)>>,
    fin_received: Option<Box<(u64, Option<Counts>)>>,
    final_counts: Option<Box<FinalCounts>>,
    /// Whether it is counted as accepted by its first holder.
    is_counted: bool,
    /// Whether a process in scope has held it. This outlives the process, whose bytes the kernel
    /// may send, and lose, for minutes.
    is_in_scope: bool,
}

/// The counts of a connection when it ended. Its methods count data only, without SYN and FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalCounts {
    /// When.
    pub at_ns: u64,
    /// TCP's own counts.
    pub counts: Counts,
    /// Whether they count our FIN.
    pub fin_sent: bool,
    /// Whether they count the peer's FIN.
    pub fin_received: bool,
}

impl FinalCounts {
    /// Bytes written and not acked.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        self.counts.unacked().saturating_sub(self.fin_sent.into())
    }

    /// Bytes written that were never sent.
    #[must_use]
    pub fn unsent(&self) -> u32 {
        // The FIN is sent last.
        self.counts.unsent().saturating_sub(self.fin_sent.into())
    }

    /// Bytes received that the program has not read.
    #[must_use]
    pub fn unread(&self) -> u32 {
        // The FIN is read last.
        self.counts.unread().saturating_sub(self.fin_received.into())
    }

    /// The sequence number after the last byte that the program wrote.
    #[must_use]
    pub fn written_to(&self) -> u32 {
        self.counts.write_seq.wrapping_sub(self.fin_sent.into())
    }

    /// The sequence number after the last byte received.
    #[must_use]
    pub fn received_to(&self) -> u32 {
        self.counts.rcv_nxt.wrapping_sub(self.fin_received.into())
    }

    /// Bytes that this end wrote and the other end never received; `None` if the counts do not
    /// match, as with ends of different connections.
    #[must_use]
    pub fn missing_at(&self, other: &Self) -> Option<u32> {
        let missing = distance(other.received_to(), self.written_to());
        let is_one_connection = missing <= self.unacked()
            && distance(self.counts.snd_una, other.counts.rcv_nxt) <= self.counts.unacked()
            && distance(other.counts.rcv_nxt, self.counts.snd_una) == 0;
        is_one_connection.then_some(missing)
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self::new()
    }
}

impl Facts {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began: None,
            now_ns: 0,
            processes: BTreeMap::new(),
            sockets: BTreeMap::new(),
            by_addresses: BTreeMap::new(),
            sockets_of: BTreeMap::new(),
            of_port: BTreeSet::new(),
            ended: VecDeque::new(),
            dropped: 0,
            own_network: None,
            network_names: BTreeMap::new(),
            networks_of_threads: BTreeSet::new(),
            opened: BTreeMap::new(),
            seen: 0,
            servers: Servers::default(),
            began_ns: 0,
        }
    }

    /// Adds an event.
    pub fn note(&mut self, event: &Event) {
        self.now_ns = self.now_ns.max(event.at_ns);
        match &event.what {
            What::Began(began) => (self.began_ns, self.began) = (event.at_ns, Some(began.clone())),
            What::Process(process) => self.note_process(process),
            What::Exited { pid, ending } => {
                if let Some(known) = self.processes.get_mut(pid) {
                    known.ending = Some(*ending);
                    self.ended.push_back((event.at_ns, Ended::Process(*pid)));
                }
            }
            What::Counters(counters) => self.note_counters(counters),
            What::Socket(socket) => {
                self.note_socket(event.at_ns, socket);
                self.count_accepted(socket.id);
            }
            What::Holds { socket, pid, fd } => {
                self.note_holder(*socket, *pid, *fd);
                self.count_accepted(*socket);
            }
            What::Changed(changed) => self.note_change(event.at_ns, changed),
            What::ResetSent(reset) => {
                if let Some(id) = reset.socket {
                    self.note_counts(event.at_ns, id, reset.counts);
                    self.note_final_counts(event.at_ns, id, reset.counts);
                }
            }
            What::ResetReceived { socket, counts } => {
                self.note_counts(event.at_ns, *socket, *counts);
                self.note_final_counts(event.at_ns, *socket, *counts);
            }
            What::Sample(sample) => {
                if let Some(known) = self.sockets.get_mut(&sample.socket) {
                    known.note_sample(event.at_ns, sample);
                }
            }
            What::Gone { socket, counts } => {
                self.note_counts(event.at_ns, *socket, *counts);
                if let Some(known) = self.sockets.get_mut(socket) {
                    known.gone_ns = Some(event.at_ns);
                    self.ended.push_back((event.at_ns, Ended::Socket(*socket)));
                }
            }
            What::Io(io) => {
                self.note_holder(io.socket, io.pid, None);
                self.count_accepted(io.socket);
                let role = self.sockets.get(&io.socket).map(|known| known.socket.role);
                if role == Some(Role::Accepted) && self.process_in_scope(io.pid) {
                    self.servers.exchanged(io.pid, io.turns);
                }
            }
            What::Calls(calls) => {
                self.servers.traced(event.at_ns, calls.over_ns);
                if self.process_in_scope(calls.pid) {
                    self.servers.called(calls);
                }
            }
            What::Used(used) if self.process_in_scope(used.pid) => {
                self.servers.used(used, name_of(&self.processes, used.pid));
            }
            What::Network(network) => self.note_network(network),
            What::Dropped { events } => self.dropped = self.dropped.saturating_add(*events),
            _ => {}
        }
        self.forget();
    }

    /// The time of the last event, nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The tier of the observer; the lowest until it is reported.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.began.as_ref().map_or(Tier::Procfs, |began| began.tier)
    }

    /// What is in scope.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.began.as_ref().map_or(Scope::Machine, |began| began.scope)
    }

    /// `uname -r` of the observed machine; empty until it is reported.
    #[must_use]
    pub fn kernel(&self) -> &str {
        self.began.as_ref().map_or("", |began| &began.kernel)
    }

    /// Whether no loss can have been missed: all programs that report losses work, and no event was
    /// dropped.
    #[must_use]
    pub fn sees_each_loss(&self) -> bool {
        let began = self.began.as_ref().and_then(|began| began.sees_each_loss);
        began.unwrap_or_else(|| self.tier().sees_short()) && self.dropped == 0
    }

    /// The observer's own network namespace, an inode number; `None` until it is reported.
    #[must_use]
    pub fn own_network(&self) -> Option<u64> {
        self.own_network
    }

    /// The network namespaces of the processes in scope and of their threads, inode numbers. For a
    /// process whose namespace is unknown, the observer's own.
    #[must_use]
    pub fn networks_watched(&self) -> BTreeSet<u64> {
        let watched = self.processes.values().filter(|known| known.is_watched);
        let of_processes = watched.filter_map(|known| known.process.network.or(self.own_network));
        of_processes.chain(self.networks_of_threads.iter().copied()).collect()
    }

    /// Whether a socket in scope has unacked bytes and no living holder.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        let is_orphan = |known: &KnownSocket| {
            let counts = known.counts.map(|(at_ns, counts)| (at_ns, counts.unacked()));
            let sample = known.sample.as_ref().map(|(at_ns, sample)| (*at_ns, sample.send_queue));
            let unacked = counts.max(sample).map_or(0, |(_, unacked)| unacked);
            let is_open = known.gone_ns.is_none()
                && !matches!(known.state, Some(State::Close | State::TimeWait | State::Listen));
            is_open
                && unacked > 0
                && !known.holders.iter().any(|(pid, _)| is_alive(&self.processes, *pid))
        };
        self.sockets.iter().any(|(id, known)| is_orphan(known) && self.socket_in_scope(*id))
    }

    /// A process, for as long as it is remembered.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&KnownProcess> {
        self.processes.get(&pid)
    }

    /// A socket, for as long as it is remembered.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> Option<&KnownSocket> {
        self.sockets.get(&id).map(|known| &**known)
    }

    /// All sockets that are remembered.
    pub fn sockets(&self) -> impl Iterator<Item = (&SocketId, &KnownSocket)> {
        self.sockets.iter().map(|(id, known)| (id, &**known))
    }

    /// The newest socket with these addresses, its own first.
    #[must_use]
    pub fn socket_at(&self, local: SocketAddr, peer: SocketAddr) -> Option<SocketId> {
        self.by_addresses.get(&AddressPair::of(local, peer)).copied()
    }

    /// The other end of a connection, if it is also on this machine, in any namespace.
    #[must_use]
    pub fn other_end(&self, id: SocketId) -> Option<&KnownSocket> {
        let socket = &self.sockets.get(&id)?.socket;
        let other = self.socket_at(socket.peer, socket.local)?;
        // A socket can be connected to itself.
        self.socket(other).filter(|_| other != id)
    }

    /// Whether a process is in scope.
    #[must_use]
    pub fn process_in_scope(&self, pid: u32) -> bool {
        match self.scope() {
            Scope::Process(_) => self.processes.get(&pid).is_some_and(|one| one.is_watched),
            Scope::Machine => true,
            Scope::Port(_) => self.of_port.contains(&pid),
        }
    }

    /// Whether a socket is in scope.
    #[must_use]
    pub fn socket_in_scope(&self, id: SocketId) -> bool {
        let Some(known) = self.sockets.get(&id) else { return false };
        match self.scope() {
            Scope::Machine => true,
            Scope::Port(port) => has_port(&known.socket, port),
            // Its process may have ended before the observer saw which sockets it held; the holder
            // of the other end is known.
            Scope::Process(_) if known.holders.is_empty() && !known.is_in_scope => {
                self.other_end(id).is_some_and(|other| other.is_in_scope)
            }
            Scope::Process(_) => known.is_in_scope,
        }
    }

    /// The subject of a finding about a socket: the holder that acted, or else the first holder in
    /// scope.
    #[must_use]
    pub fn about(&self, id: SocketId, by: Option<u32>) -> About {
        let Some(known) = self.sockets.get(&id) else { return About::default() };
        let watched = known.holders.iter().map(|one| one.0).find(|pid| self.process_in_scope(*pid));
        let pid = by.or(watched).or_else(|| known.holders.first().map(|one| one.0));
        let about = pid.map(|pid| self.about_process(pid)).unwrap_or_default();
        let about = match known.socket.network {
            Some(network) => self.about_network(about, Some(network)),
            None => about,
        };
        About {
            socket: Some(id),
            local: Some(known.socket.local),
            peer: Some(known.socket.peer),
            ..about
        }
    }

    /// The subject of a finding about a process.
    #[must_use]
    pub fn about_process(&self, pid: u32) -> About {
        let process = self.processes.get(&pid).map(|known| &known.process);
        let about = About {
            pid: Some(pid),
            name: process.map(|process| process.name.clone()),
            container: process.and_then(|process| process.container.clone()),
            container_name: process.and_then(|process| process.container_name.clone()),
            ..About::default()
        };
        self.about_network(about, process.and_then(|process| process.network))
    }

    /// The subject of a finding about a network namespace.
    #[must_use]
    pub fn about_only_network(&self, network: u64) -> About {
        self.about_network(About::default(), Some(network))
    }

    fn about_network(&self, about: About, network: Option<u64>) -> About {
        let network = network.filter(|network| Some(*network) != self.own_network);
        let name = network.and_then(|network| self.network_names.get(&network));
        About { network, network_name: name.cloned(), ..about }
    }

    /// Events dropped so far because they were not read in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn note_network(&mut self, network: &Network) {
        if network.is_own {
            self.own_network = Some(network.inode);
        } else if matches!(self.scope(), Scope::Process(_))
            && self.networks_of_threads.len() < MAX_NETWORKS
        {
            // With a process in scope, only the namespaces of its threads are observed.
            self.networks_of_threads.insert(network.inode);
        }
        // An inode number may be reused by a namespace without a name.
        self.network_names.remove(&network.inode);
        if let Some(name) = &network.name {
            if self.network_names.len() >= MAX_NETWORKS {
                self.network_names.clear();
            }
            self.network_names.insert(network.inode, name.clone());
        }
    }

    fn note_counters(&mut self, counters: &Counters) {
        let network = counters.network;
        if self.opened.len() < MAX_NETWORKS || self.opened.contains_key(&network) {
            let opened = self.opened.entry(network).or_default();
            let more = counters.active_opens.saturating_add(counters.passive_opens);
            *opened = opened.saturating_add(more);
        }
    }

    /// At most this many connection ends were opened and missed by every scan of the socket tables.
    /// `None` if the tier does not depend on scans, and for a port, which has no counter.
    #[must_use]
    pub fn unseen_connections(&self) -> Option<u64> {
        let asked: Option<BTreeSet<u64>> = match self.scope() {
            Scope::Machine => None,
            Scope::Process(_) => Some(self.networks_watched()),
            Scope::Port(_) => return None,
        };
        if self.tier() != Tier::Procfs || asked.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let is_asked = |network: &u64| asked.as_ref().is_none_or(|asked| asked.contains(network));
        let opened = self.opened.iter().filter(|(network, _)| is_asked(network));
        let opened = opened.map(|(_, opened)| *opened).fold(0, u64::saturating_add);
        Some(opened.saturating_sub(self.seen))
    }

    /// What each server used, most processor time first.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        let is_whole = self.tier() == Tier::Bpf && self.scope() != Scope::Machine;
        let is_by_tables = self.tier() == Tier::Procfs && self.unseen_connections() == Some(0);
        self.servers.served(Coverage {
            calls: self.began.as_ref().map_or(Some(false), |began| began.calls),
            reports_each_socket: is_whole || is_by_tables,
            reports_io: is_whole,
            has_dropped: self.dropped > 0,
            watched_ns: self.now_ns.saturating_sub(self.began_ns),
        })
    }

    /// Counts a socket as accepted by its first holder, once both are known.
    fn count_accepted(&mut self, id: SocketId) {
        let Some(known) = self.sockets.get(&id) else { return };
        let socket = &known.socket;
        let is_new = socket.role == Role::Accepted && !socket.earlier && !known.is_counted;
        let Some(pid) = known.holders.first().map(|one| one.0).filter(|_| is_new) else { return };
        if let Some(known) = self.sockets.get_mut(&id) {
            known.is_counted = true;
        }
        if self.process_in_scope(pid) {
            self.servers.accepted(pid, name_of(&self.processes, pid));
        }
    }

    fn note_process(&mut self, process: &Process) {
        let pid = process.pid;
        let former = self.processes.get(&pid);
        if process.name.is_empty() && former.is_some_and(|one| !one.process.name.is_empty()) {
            // The process has ended, and `/proc` showed nothing of it.
            return;
        }
        if former.is_some_and(|one| one.ending.is_some()) {
            // The PID was reused: the sockets of the former process are not this one's.
            self.servers.close(pid);
            self.drop_holder(pid);
        }
        let is_root = self.scope() == Scope::Process(pid);
        let of_parent = self.processes.get(&process.parent).is_some_and(|one| one.is_watched);
        let known = self.processes.entry(pid).or_default();
        known.process = process.clone();
        if (is_root || of_parent) && !known.is_watched {
            known.is_watched = true;
            for id in self.sockets_of.get(&pid).into_iter().flatten() {
                if let Some(known) = self.sockets.get_mut(id) {
                    known.is_in_scope = true;
                }
            }
        }
    }

    fn note_socket(&mut self, at_ns: u64, socket: &Socket) {
        if let Some(known) = self.sockets.get_mut(&socket.id) {
            let former = std::mem::replace(&mut known.socket, socket.clone());
            // The second report may come from a source that started later and knows less.
            known.socket.earlier |= former.earlier;
            if socket.role == Role::Unknown {
                known.socket.role = former.role;
            }
            if matches!(self.scope(), Scope::Port(port) if has_port(socket, port)) {
                let holders = self.sockets.get(&socket.id).into_iter().flat_map(|one| &one.holders);
                self.of_port.extend(holders.map(|(pid, _)| *pid));
            }
            self.forget_name(&former);
        } else {
            self.sockets.insert(socket.id, Box::new(KnownSocket::new(at_ns, socket)));
            self.seen += u64::from(matches!(socket.role, Role::Connected | Role::Accepted));
        }
        self.by_addresses.insert(AddressPair::of(socket.local, socket.peer), socket.id);
        if self.sockets.len() > MAX_SOCKETS {
            self.forget_quietest();
        }
    }

    /// Forgets a quarter of all sockets.
    fn forget_quietest(&mut self) {
        const QUARTER: usize = MAX_SOCKETS / 4;
        let mut heard: Vec<u64> =
            self.sockets.values().map(|known| known.last_event_ns()).collect();
        let (_, &mut latest, _) = heard.select_nth_unstable(QUARTER);
        let is_silent = |(_, known): &(&SocketId, &KnownSocket)| known.last_event_ns() <= latest;
        let silent = self.sockets().filter(is_silent).map(|(id, _)| *id);
        let silent: Vec<SocketId> = silent.take(QUARTER).collect();
        silent.into_iter().for_each(|id| self.forget_socket(id));
    }

    fn note_holder(&mut self, id: SocketId, pid: u32, fd: Option<i32>) {
        let scope = self.scope();
        let Some(known) = self.sockets.get_mut(&id) else { return };
        let processes = &self.processes;
        known.is_in_scope |= processes.get(&pid).is_some_and(|one| one.is_watched);
        if matches!(scope, Scope::Port(port) if has_port(&known.socket, port)) {
            self.of_port.insert(pid);
        }
        if let Some(holder) = known.holders.iter_mut().find(|one| one.0 == pid) {
            holder.1 = fd.or(holder.1);
            return;
        }
        if known.holders.len() >= MAX_HOLDERS {
            let Some(at) = known.holders.iter().position(|one| !is_alive(processes, one.0)) else {
                return;
            };
            let (former, _) = known.holders.remove(at);
            self.forget_holding(former, id);
        }
        if let Some(known) = self.sockets.get_mut(&id) {
            // Most sockets only ever have one holder.
            known.holders.reserve_exact(1);
            known.holders.push((pid, fd));
            self.sockets_of.entry(pid).or_default().insert(id);
        }
    }

    fn note_change(&mut self, at_ns: u64, changed: &Changed) {
        self.note_counts(at_ns, changed.socket, changed.counts);
        let Some(known) = self.sockets.get_mut(&changed.socket) else { return };
        if changed.to == State::SynSent {
            // The socket is connected again.
            (known.fin_sent, known.fin_received, known.closed, known.final_counts) =
                (false, None, None, None);
        }
        known.state = Some(changed.to);
        let was_open = matches!(changed.from, State::Established | State::CloseWait);
        // Only a call leads to the states after our FIN.
        let by_call = changed.by.is_some() || has_sent_fin(changed.to);
        if was_open && by_call && known.closed.is_none() {
            known.closed = Some(Box::new((at_ns, changed.clone())));
        }
        known.changed = Some(Box::new((at_ns, changed.clone())));
        // The counts of a change include the peer's FIN if that caused the change, and do not yet
        // include ours.
        if known.fin_received.is_none() && (got_fin(changed.to) || got_fin(changed.from)) {
            known.fin_received = Some(Box::new((at_ns, changed.counts)));
        }
        known.fin_sent |= has_sent_fin(changed.from);
        if changed.to == State::Close {
            self.note_final_counts(at_ns, changed.socket, changed.counts);
        } else {
            known.fin_sent |= has_sent_fin(changed.to);
        }
    }

    fn note_final_counts(&mut self, at_ns: u64, id: SocketId, counts: Option<Counts>) {
        if let (Some(known), Some(counts)) = (self.sockets.get_mut(&id), counts) {
            let (fin_sent, fin_received) = (known.fin_sent, known.fin_received.is_some());
            let counts = || Box::new(FinalCounts { at_ns, counts, fin_sent, fin_received });
            known.final_counts.get_or_insert_with(counts);
        }
    }

    fn note_counts(&mut self, at_ns: u64, id: SocketId, counts: Option<Counts>) {
        if let (Some(known), Some(counts)) = (self.sockets.get_mut(&id), counts) {
            known.counts = Some((at_ns, counts));
        }
    }

    fn forget(&mut self) {
        while let Some((at_ns, ended)) = self.ended.front().copied() {
            if at_ns.saturating_add(KEEP_NS) > self.now_ns && self.ended.len() <= MAX_ENDED {
                return;
            }
            self.ended.pop_front();
            match ended {
                Ended::Socket(id) => self.forget_socket(id),
                Ended::Process(pid) => self.forget_process(pid),
            }
        }
    }

    /// Forgets an ended process, unless it is the last holder of a known socket: a finding about
    /// the bytes in that socket names the process.
    fn forget_process(&mut self, pid: u32) {
        // The PID may have been reused.
        if self.processes.get(&pid).is_none_or(|one| one.ending.is_none()) {
            return;
        }
        self.servers.close(pid);
        let held = self.sockets_of.get(&pid).cloned().unwrap_or_default();
        for id in &held {
            let Some(known) = self.sockets.get_mut(id) else { continue };
            if known.holders.iter().any(|one| is_alive(&self.processes, one.0)) {
                known.holders.retain(|one| one.0 != pid);
                self.forget_holding(pid, *id);
            }
        }
        match self.processes.get_mut(&pid) {
            Some(known) if self.sockets_of.contains_key(&pid) => known.is_retained = true,
            _ => self.drop_holder(pid),
        }
    }

    /// Forgets a process and the sockets it held.
    fn drop_holder(&mut self, pid: u32) {
        for id in self.sockets_of.remove(&pid).unwrap_or_default() {
            if let Some(known) = self.sockets.get_mut(&id) {
                known.holders.retain(|one| one.0 != pid);
            }
        }
        self.processes.remove(&pid);
        self.of_port.remove(&pid);
    }

    /// A process no longer holds a socket.
    fn forget_holding(&mut self, pid: u32, id: SocketId) {
        let Some(held) = self.sockets_of.get_mut(&pid) else { return };
        held.remove(&id);
        if held.is_empty() {
            self.sockets_of.remove(&pid);
            if self.processes.get(&pid).is_none_or(|one| one.is_retained) {
                self.drop_holder(pid);
            }
        }
    }

    fn forget_socket(&mut self, id: SocketId) {
        let Some(known) = self.sockets.remove(&id) else { return };
        for (pid, _) in &known.holders {
            self.forget_holding(*pid, id);
        }
        self.forget_name(&known.socket);
    }

    fn forget_name(&mut self, socket: &Socket) {
        let names = AddressPair::of(socket.local, socket.peer);
        if self.by_addresses.get(&names) == Some(&socket.id) {
            self.by_addresses.remove(&names);
        }
    }
}

impl KnownSocket {
    /// The last change, and when.
    #[must_use]
    pub fn changed(&self) -> Option<&(u64, Changed)> {
        self.changed.as_deref()
    }

    /// The change by which a program closed it or shut down writing, and when: the first change
    /// that left ESTABLISHED or CLOSE-WAIT.
    #[must_use]
    pub fn closed(&self) -> Option<&(u64, Changed)> {
        self.closed.as_deref()
    }

    /// When the peer's FIN was received, and the counts at that moment; `None` before.
    #[must_use]
    pub fn fin_received(&self) -> Option<(u64, Option<Counts>)> {
        self.fin_received.as_deref().copied()
    }

    /// The counts when the connection ended: at a reset or at CLOSED, whichever came first.
    #[must_use]
    pub fn final_counts(&self) -> Option<FinalCounts> {
        self.final_counts.as_deref().copied()
    }

    /// When it was last reported, nanoseconds.
    fn last_event_ns(&self) -> u64 {
        let changed = self.changed.as_deref().map(|(at_ns, _)| *at_ns);
        let counts = self.counts.map(|(at_ns, _)| at_ns);
        let sample = self.sample.as_ref().map(|(at_ns, _)| *at_ns);
        changed.max(counts).max(sample).max(self.gone_ns).unwrap_or_default().max(self.since_ns)
    }

    fn note_sample(&mut self, at_ns: u64, sample: &Sample) {
        self.state = Some(sample.state);
        let info = sample.info.parse();
        self.round_trip_us = info.as_ref().map(round_trip_us);
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
        let carried =
            info.and_then(|info| Some((info.bytes_acked? as u32, info.bytes_received? as u32)));
        self.carried = carried.or(self.carried);
        let bare = Sample { congestion: None, info: Info::default(), ..*sample };
        match &mut self.sample {
            Some((last_ns, last)) => (*last_ns, **last) = (at_ns, bare),
            None => self.sample = Some((at_ns, Box::new(bare))),
        }
    }

    /// Whether it is a listening socket.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.socket.role == Role::Listens || self.state == Some(State::Listen)
    }

    fn new(at_ns: u64, socket: &Socket) -> Self {
        Self {
            socket: socket.clone(),
            holders: Vec::new(),
            state: None,
            since_ns: at_ns,
            changed: None,
            closed: None,
            fin_sent: false,
            fin_received: None,
            final_counts: None,
            counts: None,
            sample: None,
            round_trip_us: None,
            carried: None,
            gone_ns: None,
            is_counted: false,
            is_in_scope: false,
        }
    }
}

/// The round trip without queueing and without delayed acknowledgements if that is known,
/// microseconds.
pub(crate) fn round_trip_us(info: &TcpInfo) -> u32 {
    info.min_rtt_us.filter(|least| (1..info.rtt_us).contains(least)).unwrap_or(info.rtt_us)
}

/// States in which our FIN is queued.
fn has_sent_fin(state: State) -> bool {
    use State::{Closing, FinWait1, FinWait2, LastAck, TimeWait};
    matches!(state, FinWait1 | FinWait2 | Closing | LastAck | TimeWait)
}

/// States in which the peer's FIN was received.
pub(crate) fn got_fin(state: State) -> bool {
    matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait)
}

fn is_alive(processes: &BTreeMap<u32, KnownProcess>, pid: u32) -> bool {
    processes.get(&pid).is_some_and(|one| one.ending.is_none())
}

fn name_of(processes: &BTreeMap<u32, KnownProcess>, pid: u32) -> &str {
    processes.get(&pid).map_or("", |known| &known.process.name)
}

fn has_port(socket: &Socket, port: u16) -> bool {
    socket.local.port() == port || socket.peer.port() == port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{Story, counts};

    const HERE: &str = "192.0.2.1:40000";
    const THERE: &str = "198.51.100.7:80";

    fn facts(story: &Story) -> Facts {
        let mut facts = Facts::new();
        story.events.iter().for_each(|event| facts.note(event));
        facts
    }

    #[test]
    fn what_the_kernel_still_sends_is_remembered_with_its_last_holder() {
        let left = counts(0, [9_001, 9_000, 5_000, 50, 50]);
        let story = Story::new(Scope::Process(7))
            .process(7, "sender")
            .socket(1, (HERE, THERE), 7)
            .change(1, (State::Established, State::FinWait1), Some(left))
            .exited(7, Ending::Exit(0))
            .after(100_000);
        let kept = facts(&story);
        assert!(
            kept.has_orphans() && kept.socket_in_scope(SocketId(1)) && kept.process_in_scope(7)
        );
        assert_eq!(kept.about(SocketId(1), None).name.as_deref(), Some("sender"));
        // The PID now belongs to another process.
        let again = facts(&story.clone().process(7, "other").after(100));
        assert!(again.has_orphans() && again.socket_in_scope(SocketId(1)));
        assert_eq!(again.about(SocketId(1), None).pid, None);
        let gone = facts(&story.gone(1).after(20_000));
        assert!(gone.process(7).is_none() && gone.sockets_of.is_empty() && gone.sockets.is_empty());
    }

    #[test]
    fn holders_that_have_ended_are_forgotten_while_another_lives() {
        let mut story =
            Story::new(Scope::Port(80)).process(7, "server").socket(1, (THERE, HERE), 7);
        for pid in 100..300 {
            story = story.process(pid, "child").holds(1, pid);
            assert!(facts(&story).sockets[&SocketId(1)].holders.len() <= MAX_HOLDERS);
        }
        for pid in 100..300 {
            story = story.exited(pid, Ending::Exit(0));
        }
        let facts = facts(&story.after(20_000));
        assert_eq!(facts.sockets[&SocketId(1)].holders, [(7, Some(3))]);
        assert!(facts.process_in_scope(7) && !facts.process_in_scope(100));
        assert_eq!((facts.processes.len(), facts.sockets_of.len(), facts.of_port.len()), (1, 1, 1));
    }

    #[test]
    fn a_process_of_the_port_is_known_by_later_addresses_too() {
        let story = Story::new(Scope::Port(80)).process(7, "client").socket(
            1,
            ("0.0.0.0:0", "0.0.0.0:0"),
            7,
        );
        assert!(!facts(&story).process_in_scope(7));
        let known = facts(&story.socket(1, (HERE, THERE), 7));
        assert!(known.process_in_scope(7));
        assert_eq!(known.by_addresses.len(), 1);
    }

    #[test]
    fn connections_between_two_scans_are_those_counted_and_not_seen() {
        let opened = |network| {
            let (active_opens, passive_opens) = (3, 2);
            What::Counters(Counters { network, active_opens, passive_opens, ..Counters::default() })
        };
        let story = |tier, scope| {
            let story = Story::of_tier(tier, scope).process(7, "a");
            let story = story.socket(1, ("192.0.2.1:40000", "192.0.2.2:80"), 7);
            let mut story = story.with(opened(crate::story::NETWORK)).with(opened(1));
            for event in &mut story.events {
                if let What::Socket(socket) = &mut event.what {
                    socket.role = Role::Connected;
                }
            }
            facts(&story).unseen_connections()
        };
        assert_eq!(story(Tier::Procfs, Scope::Process(7)), Some(4));
        assert_eq!(story(Tier::Procfs, Scope::Machine), Some(9));
        assert_eq!(story(Tier::Procfs, Scope::Port(80)), None);
        assert_eq!(story(Tier::Bpf, Scope::Process(7)), None);
    }

    #[test]
    fn a_namespace_is_named_unless_it_is_the_observers() {
        let network = |inode, name: Option<&str>, is_own| {
            What::Network(Network { inode, name: name.map(str::to_owned), is_own })
        };
        let boxed = Process {
            pid: 8,
            container: Some("0123456789ab".to_owned()),
            container_name: Some("web".to_owned()),
            network: Some(2),
            ..Process::default()
        };
        let story = Story::new(Scope::Machine).process(7, "sender").socket(1, (HERE, THERE), 7);
        let own = facts(&story).about(SocketId(1), None).network.unwrap();
        let story = story.with(network(own, Some("mine"), true)).with(What::Process(boxed));
        let known = facts(&story);
        let here = known.about(SocketId(1), None);
        assert_eq!((here.pid, here.network, here.place()), (Some(7), None, None));
        let place = |facts: &Facts| facts.about_process(8).place().unwrap();
        assert_eq!(place(&known), "in web (0123456789ab), netns 2");
        let story = story.with(network(2, Some("lab"), false));
        assert_eq!(place(&facts(&story)), "in web (0123456789ab), netns lab");
        // The inode number was reused.
        let story = story.with(network(2, None, false));
        assert_eq!(place(&facts(&story)), "in web (0123456789ab), netns 2");
    }

    #[test]
    fn a_connection_on_which_nothing_ended_takes_less_than_half_a_kilobyte() {
        let story = Story::new(Scope::Machine)
            .process(7, "server")
            .socket(1, (HERE, THERE), 7)
            .change(1, (State::SynSent, State::Established), Some(counts(0, [1, 1, 1, 1, 1])))
            .sample(1, State::Established, (0, 0), true);
        let facts = facts(&story);
        let known = &facts.sockets[&SocketId(1)];
        assert!(
            known.closed.is_none() && known.fin_received.is_none() && known.final_counts.is_none()
        );
        let sample = &known.sample.as_ref().unwrap().1;
        // No heap memory besides its box.
        assert!(sample.congestion.is_none() && sample.info == Info::default());
        let boxes = [
            size_of::<KnownSocket>(),
            size_of_val(&**known.changed.as_ref().unwrap()),
            size_of_val(&**sample),
            known.holders.capacity() * size_of_val(&known.holders[0]),
        ];
        assert!(boxes.iter().sum::<usize>() < 512, "{boxes:?}");
        assert_eq!(known.holders.capacity(), 1);
    }

    #[test]
    fn sockets_whose_end_was_never_reported_are_bounded() {
        let mut facts = Facts::new();
        let at = |id: u64| SocketAddr::from(([127, 0, 0, 1], u16::try_from(id % 60_000).unwrap()));
        let socket = |id: u64| Socket {
            id: SocketId(id),
            local: at(id),
            peer: at(id / 60_000),
            mapped: false,
            network: None,
            role: Role::Connected,
            subflow: false,
            earlier: false,
        };
        let first = SocketId(0);
        for id in 0..200_000 {
            facts.note(&Event { at_ns: id, what: What::Socket(socket(id)) });
            if id % 1000 == 0 {
                let opened = What::Changed(Changed {
                    socket: first,
                    from: State::SynSent,
                    to: State::Established,
                    by: None,
                    counts: None,
                    errno: 0,
                    held: None,
                });
                facts.note(&Event { at_ns: id, what: opened });
            }
            assert!(facts.sockets.len() <= MAX_SOCKETS);
        }
        assert!(facts.by_addresses.len() <= MAX_SOCKETS);
        // This socket had events all the time.
        assert!(facts.socket(first).is_some() && facts.socket(SocketId(199_999)).is_some());
    }
}
