//! What is known at a moment: processes, sockets, who holds what. It is told every event before the
//! rules are, and is bounded: what ended long ago is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use lastbyte_core::sample::State;

use crate::event::{
    Changed, Counts, Ending, Event, Process, Role, Sample, Scope, Socket, SocketId, Tier, What,
    distance,
};
use crate::finding::About;

/// How long a socket or process is remembered after its end, nanoseconds: an answer to its last packet
/// may come later, and so may its peer's side of the story.
const KEEP_NS: u64 = 10_000_000_000;
/// So many ended ones at most, the longest ended go first.
const MOST_ENDED: usize = 20_000;
/// So many sockets at most, about a kilobyte each. Beyond that those go of which nothing was heard for the
/// longest: where events are dropped ends are among them, and what is open is sampled once a second.
const MOST_SOCKETS: usize = 40_000;

/// What is known.
#[derive(Debug)]
pub struct Book {
    began: Option<crate::event::Began>,
    now_ns: u64,
    processes: BTreeMap<u32, Patient>,
    sockets: BTreeMap<SocketId, Known>,
    /// By both addresses, as seen from the socket: the newest of that name.
    by_addresses: BTreeMap<(SocketAddr, SocketAddr), SocketId>,
    ended: VecDeque<(u64, Ended)>,
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Socket(SocketId),
    Process(u32),
}

/// A process and what became of it.
#[derive(Clone, Debug, Default)]
pub struct Patient {
    /// As last told.
    pub process: Process,
    /// How it ended, if it has.
    pub ending: Option<Ending>,
    /// Whether it is asked about: it is, or descends from, the process of the scope.
    pub is_watched: bool,
}

/// A socket and what became of it.
#[derive(Clone, Debug)]
pub struct Known {
    /// As last told.
    pub socket: Socket,
    /// Who holds or has held it, the first first, with the descriptor where known.
    pub holders: Vec<(u32, Option<i32>)>,
    /// Its last state.
    pub state: Option<State>,
    /// When it was first told of, nanoseconds.
    pub since_ns: u64,
    /// The last change.
    pub changed: Option<(u64, Changed)>,
    /// The change by which a program closed it, or shut down its writing: the first that left
    /// ESTABLISHED or CLOSE-WAIT by a call.
    pub closed: Option<(u64, Changed)>,
    /// Whether our FIN is queued, as far as states tell.
    pub fin_sent: bool,
    /// Set once the peer's FIN has come: when, and the numbers just then.
    pub fin_received: Option<(u64, Option<Counts>)>,
    /// The numbers when the connection ended: at a reset, or at CLOSED, whichever was first.
    pub last: Option<Last>,
    /// The last numbers, of whatever event.
    pub counts: Option<(u64, Counts)>,
    /// The last sample.
    pub sample: Option<(u64, Box<Sample>)>,
    /// Set once the kernel has forgotten it.
    pub gone_ns: Option<u64>,
}

/// The numbers of a connection when it ended. What it says counts data alone, without SYN and FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// When.
    pub at_ns: u64,
    /// As TCP has them.
    pub counts: Counts,
    /// Whether they count our FIN.
    pub fin_sent: bool,
    /// Whether they count the peer's FIN.
    pub fin_received: bool,
}

impl Last {
    /// Bytes written and not acked.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        self.counts.unacked().saturating_sub(self.fin_sent.into())
    }

    /// Bytes written that were never sent.
    #[must_use]
    pub fn unsent(&self) -> u32 {
        // A FIN is the last to be sent.
        self.counts.unsent().saturating_sub(self.fin_sent.into())
    }

    /// Bytes received that the program has not read.
    #[must_use]
    pub fn unread(&self) -> u32 {
        // A FIN is the last to be read.
        self.counts.unread().saturating_sub(self.fin_received.into())
    }

    /// The sequence number after the last byte that the program wrote.
    #[must_use]
    pub fn written_to(&self) -> u32 {
        self.counts.write_seq.wrapping_sub(self.fin_sent.into())
    }

    /// The sequence number after the last byte that came.
    #[must_use]
    pub fn received_to(&self) -> u32 {
        self.counts.rcv_nxt.wrapping_sub(self.fin_received.into())
    }

    /// Of the bytes that this end wrote, those that never came to the other; `None` where the two do not
    /// fit together, as ends of different connections.
    #[must_use]
    pub fn missing_at(&self, other: &Self) -> Option<u32> {
        let missing = distance(other.received_to(), self.written_to());
        let is_one_connection = missing <= self.unacked()
            && distance(self.counts.snd_una, other.counts.rcv_nxt) <= self.counts.unacked()
            && distance(other.counts.rcv_nxt, self.counts.snd_una) == 0;
        is_one_connection.then_some(missing)
    }
}

impl Default for Book {
    fn default() -> Self {
        Self::new()
    }
}

impl Book {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began: None,
            now_ns: 0,
            processes: BTreeMap::new(),
            sockets: BTreeMap::new(),
            by_addresses: BTreeMap::new(),
            ended: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Writes down an event.
    pub fn note(&mut self, event: &Event) {
        self.now_ns = self.now_ns.max(event.at_ns);
        match &event.what {
            What::Began(began) => self.began = Some(began.clone()),
            What::Process(process) => self.note_process(process),
            What::Exited { pid, ending } => {
                if let Some(patient) = self.processes.get_mut(pid) {
                    patient.ending = Some(*ending);
                    self.ended.push_back((event.at_ns, Ended::Process(*pid)));
                }
            }
            What::Socket(socket) => self.note_socket(event.at_ns, socket),
            What::Holds { socket, pid, fd } => self.note_holder(*socket, *pid, *fd),
            What::Changed(changed) => self.note_change(event.at_ns, changed),
            What::ResetSent(reset) => {
                if let Some(id) = reset.socket {
                    self.note_counts(event.at_ns, id, reset.counts);
                    self.note_last(event.at_ns, id, reset.counts);
                }
            }
            What::ResetReceived { socket, counts } => {
                self.note_counts(event.at_ns, *socket, *counts);
                self.note_last(event.at_ns, *socket, *counts);
            }
            What::Sample(sample) => {
                if let Some(known) = self.sockets.get_mut(&sample.socket) {
                    known.state = Some(sample.state);
                    known.sample = Some((event.at_ns, sample.clone()));
                }
            }
            What::Gone { socket, counts } => {
                self.note_counts(event.at_ns, *socket, *counts);
                if let Some(known) = self.sockets.get_mut(socket) {
                    known.gone_ns = Some(event.at_ns);
                    self.ended.push_back((event.at_ns, Ended::Socket(*socket)));
                }
            }
            What::Io(io) => self.note_holder(io.socket, io.pid, None),
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

    /// From where is watched; the lowest tier until told.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.began.as_ref().map_or(Tier::Procfs, |began| began.tier)
    }

    /// What is asked about.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.began.as_ref().map_or(Scope::Machine, |began| began.scope)
    }

    /// `uname -r` of the machine that is watched; empty until told.
    #[must_use]
    pub fn kernel(&self) -> &str {
        self.began.as_ref().map_or("", |began| &began.kernel)
    }

    /// Whether a socket that is asked about has bytes in it that are not acked, and nobody that holds it.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        let is_alive = |pid: &u32| self.processes.get(pid).is_some_and(|one| one.ending.is_none());
        let is_orphan = |known: &Known| {
            let counts = known.counts.map(|(at_ns, counts)| (at_ns, counts.unacked()));
            let sample = known.sample.as_ref().map(|(at_ns, sample)| (*at_ns, sample.send_queue));
            let unacked = counts.max(sample).map_or(0, |(_, unacked)| unacked);
            let is_open = known.gone_ns.is_none()
                && !matches!(known.state, Some(State::Close | State::TimeWait | State::Listen));
            is_open && unacked > 0 && !known.holders.iter().any(|(pid, _)| is_alive(pid))
        };
        self.sockets.iter().any(|(id, known)| is_orphan(known) && self.wants_socket(*id))
    }

    /// A process, for as long as it is remembered.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&Patient> {
        self.processes.get(&pid)
    }

    /// A socket, for as long as it is remembered.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> Option<&Known> {
        self.sockets.get(&id)
    }

    /// All sockets that are remembered.
    pub fn sockets(&self) -> impl Iterator<Item = (&SocketId, &Known)> {
        self.sockets.iter()
    }

    /// The newest socket of these addresses, its own first.
    #[must_use]
    pub fn socket_at(&self, local: SocketAddr, peer: SocketAddr) -> Option<SocketId> {
        self.by_addresses.get(&(local, peer)).copied()
    }

    /// The other end of a connection, if it is on this machine too, in whatever namespace.
    #[must_use]
    pub fn other_end(&self, id: SocketId) -> Option<&Known> {
        let socket = &self.sockets.get(&id)?.socket;
        let other = self.socket_at(socket.peer, socket.local)?;
        // A socket can be connected to itself.
        self.sockets.get(&other).filter(|_| other != id)
    }

    /// Whether findings about a process are asked for.
    #[must_use]
    pub fn wants_process(&self, pid: u32) -> bool {
        match self.scope() {
            Scope::Process(_) => self.processes.get(&pid).is_some_and(|one| one.is_watched),
            Scope::Machine => true,
            Scope::Port(port) => self.sockets.values().any(|known| {
                has_port(&known.socket, port) && known.holders.iter().any(|one| one.0 == pid)
            }),
        }
    }

    /// Whether findings about a socket are asked for.
    #[must_use]
    pub fn wants_socket(&self, id: SocketId) -> bool {
        let Some(known) = self.sockets.get(&id) else { return false };
        match self.scope() {
            Scope::Machine => true,
            Scope::Port(port) => has_port(&known.socket, port),
            Scope::Process(_) => known.holders.iter().any(|(pid, _)| self.wants_process(*pid)),
        }
    }

    /// Whom a finding about a socket is about: of its holders the one that did it, or the first that is
    /// asked about.
    #[must_use]
    pub fn about(&self, id: SocketId, by: Option<u32>) -> About {
        let Some(known) = self.sockets.get(&id) else { return About::default() };
        let watched = known.holders.iter().map(|one| one.0).find(|pid| self.wants_process(*pid));
        let pid = by.or(watched).or_else(|| known.holders.first().map(|one| one.0));
        let about = pid.map(|pid| self.about_process(pid)).unwrap_or_default();
        About {
            socket: Some(id),
            local: Some(known.socket.local),
            peer: Some(known.socket.peer),
            network: known.socket.network,
            ..about
        }
    }

    /// Whom a finding about a process is about.
    #[must_use]
    pub fn about_process(&self, pid: u32) -> About {
        let process = self.processes.get(&pid).map(|patient| &patient.process);
        About {
            pid: Some(pid),
            name: process.map(|process| process.name.clone()),
            container: process.and_then(|process| process.container.clone()),
            network: process.and_then(|process| process.network),
            ..About::default()
        }
    }

    /// Events that nobody took in time, so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn note_process(&mut self, process: &Process) {
        let is_root = self.scope() == Scope::Process(process.pid);
        let of_parent = self.processes.get(&process.parent).is_some_and(|one| one.is_watched);
        let patient = self.processes.entry(process.pid).or_default();
        if process.name.is_empty() && !patient.process.name.is_empty() {
            // One that has ended, and of which nothing could be read any more.
            return;
        }
        if patient.ending.take().is_some() {
            // The number was given again.
            patient.is_watched = false;
        }
        patient.is_watched |= is_root || of_parent;
        patient.process = process.clone();
    }

    fn note_socket(&mut self, at_ns: u64, socket: &Socket) {
        self.by_addresses.insert((socket.local, socket.peer), socket.id);
        match self.sockets.get_mut(&socket.id) {
            Some(known) => known.socket = socket.clone(),
            None => drop(self.sockets.insert(socket.id, Known::new(at_ns, socket))),
        }
        if self.sockets.len() > MOST_SOCKETS {
            self.forget_silent();
        }
    }

    /// Forgets a quarter of all sockets.
    fn forget_silent(&mut self) {
        const QUARTER: usize = MOST_SOCKETS / 4;
        let mut heard: Vec<u64> = self.sockets.values().map(Known::heard_ns).collect();
        let (_, &mut latest, _) = heard.select_nth_unstable(QUARTER);
        let is_silent = |(_, known): &(&SocketId, &Known)| known.heard_ns() <= latest;
        let silent = self.sockets.iter().filter(is_silent).map(|(id, _)| *id);
        let silent: Vec<SocketId> = silent.take(QUARTER).collect();
        silent.into_iter().for_each(|id| self.forget_socket(id));
    }

    fn note_holder(&mut self, id: SocketId, pid: u32, fd: Option<i32>) {
        let Some(known) = self.sockets.get_mut(&id) else { return };
        match known.holders.iter_mut().find(|one| one.0 == pid) {
            Some(holder) => holder.1 = fd.or(holder.1),
            None => known.holders.push((pid, fd)),
        }
    }

    fn note_change(&mut self, at_ns: u64, changed: &Changed) {
        self.note_counts(at_ns, changed.socket, changed.counts);
        let Some(known) = self.sockets.get_mut(&changed.socket) else { return };
        if changed.to == State::SynSent {
            // A socket that is connected again.
            (known.fin_sent, known.fin_received, known.closed, known.last) =
                (false, None, None, None);
        }
        known.state = Some(changed.to);
        let was_open = matches!(changed.from, State::Established | State::CloseWait);
        // Only a call leads to the states after our FIN.
        let by_call = changed.by.is_some() || has_sent_fin(changed.to);
        if was_open && by_call && known.closed.is_none() {
            known.closed = Some((at_ns, changed.clone()));
        }
        known.changed = Some((at_ns, changed.clone()));
        // The numbers of a change have the peer's FIN if it caused the change, and ours not yet.
        if known.fin_received.is_none() && (got_fin(changed.to) || got_fin(changed.from)) {
            known.fin_received = Some((at_ns, changed.counts));
        }
        known.fin_sent |= has_sent_fin(changed.from);
        if changed.to == State::Close {
            self.note_last(at_ns, changed.socket, changed.counts);
        } else {
            known.fin_sent |= has_sent_fin(changed.to);
        }
    }

    fn note_last(&mut self, at_ns: u64, id: SocketId, counts: Option<Counts>) {
        if let (Some(known), Some(counts)) = (self.sockets.get_mut(&id), counts) {
            known.last.get_or_insert_with(|| Last {
                at_ns,
                counts,
                fin_sent: known.fin_sent,
                fin_received: known.fin_received.is_some(),
            });
        }
    }

    fn note_counts(&mut self, at_ns: u64, id: SocketId, counts: Option<Counts>) {
        if let (Some(known), Some(counts)) = (self.sockets.get_mut(&id), counts) {
            known.counts = Some((at_ns, counts));
        }
    }

    fn forget(&mut self) {
        while let Some((at_ns, ended)) = self.ended.front().copied() {
            if at_ns.saturating_add(KEEP_NS) > self.now_ns && self.ended.len() <= MOST_ENDED {
                return;
            }
            self.ended.pop_front();
            match ended {
                Ended::Socket(id) => self.forget_socket(id),
                Ended::Process(pid) => {
                    // Unless the number was given again.
                    if self.processes.get(&pid).is_some_and(|one| one.ending.is_some()) {
                        self.processes.remove(&pid);
                    }
                }
            }
        }
    }

    fn forget_socket(&mut self, id: SocketId) {
        let Some(known) = self.sockets.remove(&id) else { return };
        let names = (known.socket.local, known.socket.peer);
        if self.by_addresses.get(&names) == Some(&id) {
            self.by_addresses.remove(&names);
        }
    }
}

impl Known {
    /// When it was last told of, nanoseconds.
    fn heard_ns(&self) -> u64 {
        let changed = self.changed.as_ref().map(|(at_ns, _)| *at_ns);
        let counts = self.counts.map(|(at_ns, _)| at_ns);
        let sample = self.sample.as_ref().map(|(at_ns, _)| *at_ns);
        changed.max(counts).max(sample).max(self.gone_ns).unwrap_or_default().max(self.since_ns)
    }

    /// Whether it waits for connections.
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
            last: None,
            counts: None,
            sample: None,
            gone_ns: None,
        }
    }
}

/// States in which our FIN is queued.
fn has_sent_fin(state: State) -> bool {
    use State::{Closing, FinWait1, FinWait2, LastAck, TimeWait};
    matches!(state, FinWait1 | FinWait2 | Closing | LastAck | TimeWait)
}

/// States in which the peer's FIN has come.
fn got_fin(state: State) -> bool {
    matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait)
}

fn has_port(socket: &Socket, port: u16) -> bool {
    socket.local.port() == port || socket.peer.port() == port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_whose_end_was_never_told_are_bounded() {
        let mut book = Book::new();
        let at = |id: u64| SocketAddr::from(([127, 0, 0, 1], u16::try_from(id % 60_000).unwrap()));
        let socket = |id: u64| Socket {
            id: SocketId(id),
            local: at(id),
            peer: at(id / 60_000),
            mapped: false,
            network: None,
            role: Role::Connected,
            subflow: false,
        };
        let first = SocketId(0);
        for id in 0..200_000 {
            book.note(&Event { at_ns: id, what: What::Socket(socket(id)) });
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
                book.note(&Event { at_ns: id, what: opened });
            }
            assert!(book.sockets.len() <= MOST_SOCKETS);
        }
        assert!(book.by_addresses.len() <= MOST_SOCKETS);
        // Of this one something was heard all the time.
        assert!(book.socket(first).is_some() && book.socket(SocketId(199_999)).is_some());
    }
}
