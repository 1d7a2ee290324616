//! Tier 2: the kernel's tracepoints as text, in a tracefs instance of our own, joined with the
//! tables.
//!
//! ```text
//!  trace_pipe --> Line --> TraceRecord, waits for the next look at the tables --> events
//!                          (they know the cookie of these addresses, and who is asked about)
//! ```
//!
//! The lines do not show the queues of a socket: the samples before and after do.

mod calls;
mod directory;
mod family;
mod instance;
mod line;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use lastbyte_core::sample::State;
use lastbyte_sys::process;

use super::tables::Tables;
use super::{Each, ObserveError, Plan, Roots, Source, Traced};
use crate::event::{
    Actor, Again, Changed, Event, Precision, Process, ResetSent, Role, Scope, SocketId, What,
};
use calls::Calls;
use directory::TracingDirectory;
use family::{Family, Living};
use instance::Instance;
use line::Line;

/// Limit on lines read at a time. With more, the buffer may overflow, which is reported.
const LINES: usize = 30_000;
/// Limit on lines that wait for the tables, and for how long.
const MAX_WAITING: usize = 100_000;
const WAIT_NS: u64 = 1_000_000_000;
/// A received reset ends the socket within this time.
const RESET_NS: u64 = 1_000_000;
/// Limit on remembered calls of `connect`.
const MAX_CONNECTING: usize = 10_000;

/// The tracepoints, and whether the tier needs each.
const EVENTS: [(&str, bool); 8] = [
    ("sock/inet_sock_set_state", true),
    ("tcp/tcp_receive_reset", true),
    ("tcp/tcp_retransmit_skb", true),
    ("tcp/tcp_send_reset", true),
    // Linux 5.9.
    ("tcp/tcp_retransmit_synack", false),
    // Linux 5.13.
    ("sock/inet_sk_error_report", false),
    // Unlike sched_process_fork, it shows whether it is a thread.
    ("task/task_newtask", true),
    ("sched/sched_process_exit", true),
];

type Addresses = (SocketAddr, SocketAddr);

#[derive(Debug)]
pub(super) struct Trace {
    main: Instance,
    calls: Option<Calls>,
    waiting: VecDeque<TraceRecord>,
    /// All lines up to this time were reported.
    complete_ns: u64,
    /// Processes that called `connect`, by local and peer address; the local port is not chosen
    /// yet.
    connecting: HashMap<(IpAddr, SocketAddr), Vec<u32>>,
    /// Connections that have just received a reset.
    reset: HashMap<Addresses, u64>,
    /// Threads that are ending.
    exiting: HashSet<u32>,
    /// Processes started by those in scope.
    family: Family,
    living: Living,
    /// Retransmissions since the last report, and when the first was.
    again: HashMap<(SocketId, Again), (u64, u32)>,
    /// Buffers that threads discarded with a Unix socket.
    unread: BTreeMap<u32, (u64, Actor, u64)>,
}

/// A parsed line.
#[derive(Clone, Debug)]
struct TraceRecord {
    at_ns: u64,
    tid: u32,
    pid: Option<u32>,
    in_call: bool,
    what: TraceEvent,
}

#[derive(Clone, Debug)]
enum TraceEvent {
    State { addresses: Addresses, mapped: bool, from: State, to: State },
    Sent { addresses: Addresses, is_active: bool, is_of_socket: bool, reason: Option<String> },
    Received { addresses: Addresses },
    Again { addresses: Addresses, state: State },
    Failed { addresses: Addresses, errno: i32 },
    Unread,
    Fork { child: u32, name: String, is_thread: bool },
    Exit { name: String, is_whole: bool },
}

/// Removes instances of observers that were killed.
pub(super) fn sweep(roots: &Roots) {
    if let Ok(tracing) = TracingDirectory::find(roots) {
        instance::sweep(&tracing.path, &roots.proc());
    }
}

impl Trace {
    /// Begins to trace. The error is a sentence.
    pub(super) fn start(plan: &Plan, roots: &Roots) -> Result<Self, String> {
        let proc = roots.proc();
        let tracing = TracingDirectory::find(roots)?;
        let refused = |error: std::io::Error| {
            format!(
                "making a tracefs instance needs root, or write permission for that directory: \
                     {error}"
            )
        };
        let main = Instance::make(&tracing, &proc, "").map_err(refused)?;
        for (event, is_needed) in EVENTS {
            if let Err(error) = main.turn(event, true)
                && is_needed
            {
                return Err(format!("this kernel's tracepoint {event} cannot be used: {error}"));
            }
        }
        // Since Linux 6.14 the close of a socket is a drop reason of its own.
        if let Some(reason) = main.number_of("skb/kfree_skb", "SOCKET_CLOSE") {
            let filter = format!("reason == {reason} && protocol == 0");
            let filtered = main.set("events/skb/kfree_skb/filter", &filter);
            let _ = filtered.and_then(|()| main.turn("skb/kfree_skb", true));
        }
        let traces_calls =
            plan.traced == Traced::Watched && matches!(plan.scope, Scope::Process(_));
        let calls = traces_calls.then(|| Calls::start(&tracing, &proc)).transpose();
        Ok(Self {
            main,
            calls: calls.map_err(refused)?,
            waiting: VecDeque::new(),
            complete_ns: 0,
            connecting: HashMap::new(),
            reset: HashMap::new(),
            exiting: HashSet::new(),
            family: Family::default(),
            living: Living::default(),
            again: HashMap::new(),
            unread: BTreeMap::new(),
        })
    }

    fn report(&mut self, record: &TraceRecord, tables: &mut Tables, each: Each<'_>) {
        let at_ns = record.at_ns;
        match &record.what {
            TraceEvent::State { .. } => self.report_state(record, tables, each),
            TraceEvent::Sent { .. } => self.report_sent(record, tables, each),
            TraceEvent::Received { addresses } => {
                self.reset.insert(*addresses, at_ns);
                if let Some(socket) = self.known(*addresses, (None, at_ns), tables, each) {
                    each(Event { at_ns, what: What::ResetReceived { socket, counts: None } });
                }
            }
            TraceEvent::Again { addresses, state } => {
                if let Some(socket) = self.known(*addresses, (None, at_ns), tables, each) {
                    let timed_out =
                        tables.at(addresses.0, addresses.1).is_some_and(|row| row.timed_out);
                    let why = why(*state, timed_out);
                    self.again.entry((socket, why)).or_insert((at_ns, 0)).1 += 1;
                }
            }
            TraceEvent::Failed { addresses, errno } => {
                if let Some(socket) = self.known(*addresses, (None, at_ns), tables, each) {
                    each(Event { at_ns, what: What::Failed { socket, errno: *errno } });
                }
            }
            TraceEvent::Unread => self.note_unread(record, tables),
            TraceEvent::Fork { .. } => self.fork(record, tables, each),
            TraceEvent::Exit { name, is_whole } => {
                self.exit(record, (name, *is_whole), tables, each);
            }
        }
    }

    /// The socket with these addresses, if it is reported.
    fn known(
        &self,
        addresses: Addresses,
        (pid, at_ns): (Option<u32>, u64),
        tables: &mut Tables,
        each: Each<'_>,
    ) -> Option<SocketId> {
        match tables.at(addresses.0, addresses.1).map(|row| row.socket.id) {
            Some(id) => tables.claim((id, addresses), pid, at_ns, each).then_some(id),
            None => tables.claim_made_up(addresses, pid, at_ns, each),
        }
    }

    fn report_state(&mut self, record: &TraceRecord, tables: &mut Tables, each: Each<'_>) {
        let TraceEvent::State { addresses, mapped, from, to } = record.what else { return };
        let at_ns = record.at_ns;
        let actor = self.actor(record, tables);
        if from == State::Listen || to == State::Listen {
            note_listening((addresses.0, to), (actor, at_ns), tables);
            return;
        }
        if addresses.0.port() == 0 {
            // Before it is connected it has no addresses to identify it.
            if let (State::SynSent, Some(by)) = (to, actor) {
                self.note_connect(addresses, by.pid);
            }
            return;
        }
        let was_reset = self.reset.get(&addresses).is_some_and(|reset| at_ns < reset + RESET_NS);
        let by = actor.filter(|_| is_by_call(from, to, was_reset));
        let caller = if from == State::SynSent { self.caller(addresses) } else { None };
        // Work done in a process in scope, outside interrupts, is its own.
        let own = actor.filter(|actor| tables.processes().was_watched(actor.pid, at_ns));
        let pid = by.or(own).map(|by| by.pid).or(caller);
        if tables.at(addresses.0, addresses.1).is_none() && !tables.is_made_up(addresses) {
            let role = match from {
                State::SynSent => Role::Connected,
                State::SynRecv => Role::Accepted,
                _ => Role::Unknown,
            };
            tables.make_up(addresses, (mapped, role), (pid, at_ns), each);
        }
        let Some(socket) = self.known(addresses, (pid, at_ns), tables, each) else { return };
        let errno = 0;
        let changed = Changed { socket, from, to, by, counts: None, errno, held: None };
        each(Event { at_ns, what: What::Changed(changed) });
        if to == State::Close {
            tables.close_made_up(addresses, at_ns);
        }
    }

    fn note_connect(&mut self, (local, peer): Addresses, pid: u32) {
        if self.connecting.len() >= MAX_CONNECTING {
            self.connecting.clear();
        }
        self.connecting.entry((local.ip(), peer)).or_default().push(pid);
    }

    /// The process that called `connect` for this socket, if only one is possible.
    fn caller(&mut self, (local, peer): Addresses) -> Option<u32> {
        let key = (local.ip(), peer);
        let callers = self.connecting.get_mut(&key)?;
        let caller = callers.pop()?;
        let is_sure = callers.iter().all(|other| *other == caller);
        if callers.is_empty() {
            self.connecting.remove(&key);
        }
        is_sure.then_some(caller)
    }

    fn report_sent(&mut self, record: &TraceRecord, tables: &mut Tables, each: Each<'_>) {
        let TraceEvent::Sent { addresses, is_active, is_of_socket, reason } = &record.what else {
            return;
        };
        let (at_ns, (local, peer), active) = (record.at_ns, *addresses, *is_active);
        let by = self.actor(record, tables).filter(|_| active);
        let pid = by.map(|by| by.pid);
        let known = self.known(*addresses, (pid, at_ns), tables, each);
        let socket = known.filter(|_| *is_of_socket);
        let is_in_scope = match tables.scope() {
            Scope::Machine => true,
            Scope::Process(_) => known.is_some(),
            Scope::Port(port) => local.port() == port || peer.port() == port,
        };
        if is_in_scope {
            let network = tables.at(local, peer).and_then(|row| row.socket.network);
            let reason = reason.clone();
            let reset =
                ResetSent { socket, local, peer, network, reason, active, by, counts: None };
            each(Event { at_ns, what: What::ResetSent(Box::new(reset)) });
        }
    }

    fn note_unread(&mut self, record: &TraceRecord, tables: &mut Tables) {
        let Some(actor) = self.actor(record, tables) else { return };
        let is_in_scope = match tables.scope() {
            Scope::Machine => true,
            Scope::Process(_) => tables.processes().was_watched(actor.pid, record.at_ns),
            Scope::Port(_) => false,
        };
        if is_in_scope {
            self.unread.entry(actor.tid).or_insert((record.at_ns, actor, 0)).2 += 1;
        }
    }

    /// A process in scope has started another, or a thread.
    fn fork(&mut self, record: &TraceRecord, tables: &mut Tables, each: Each<'_>) {
        let TraceEvent::Fork { child, name, is_thread } = &record.what else { return };
        let parent = record.pid.unwrap_or(record.tid);
        if !tables.processes().was_watched(parent, record.at_ns) {
            return;
        }
        self.family.add(*child, if *is_thread { parent } else { *child });
        if !is_thread {
            let (pid, name) = (*child, name.clone());
            let process = Process { pid, parent, name, ..Process::default() };
            tables.processes().adopt(process, record.at_ns, each);
        }
    }

    /// A thread ends, and its process with the last thread. Its sockets are closed after that.
    fn exit(
        &mut self,
        record: &TraceRecord,
        (name, is_whole): (&str, bool),
        tables: &mut Tables,
        each: Each<'_>,
    ) {
        self.exiting.insert(record.tid);
        self.family.end(record.tid, record.at_ns);
        if is_whole && record.pid.unwrap_or(record.tid) == record.tid {
            tables.processes().name_at_end(record.tid, name, record.at_ns, each);
        }
    }

    /// The process and thread, if a call did it.
    fn actor(&self, record: &TraceRecord, tables: &mut Tables) -> Option<Actor> {
        let pid = record.pid.unwrap_or(record.tid);
        let is_ending = self.exiting.contains(&record.tid);
        let ending = is_ending.then(|| tables.processes().ending(pid));
        (record.in_call && record.tid != 0).then_some(Actor { pid, tid: record.tid, ending })
    }

    /// Reports what was counted, with the time of the first.
    fn flush(&mut self, each: Each<'_>) {
        for ((socket, why), (at_ns, segments)) in std::mem::take(&mut self.again) {
            each(Event { at_ns, what: What::Retransmitted { socket, why, segments } });
        }
        for (_, (at_ns, by, buffers)) in std::mem::take(&mut self.unread) {
            // Each buffer has at least one byte; the tracepoint does not show more.
            let (bytes, precision) = (buffers, Precision::AtLeast);
            let what = What::UnixUnread { by, bytes, precision, sender: None, path: None };
            each(Event { at_ns, what });
        }
    }
}

impl Source for Trace {
    fn take(&mut self, tables: &mut Tables, each: Each<'_>) -> Result<(), ObserveError> {
        let now_ns = process::monotonic_ns();
        let (waiting, living) = (&mut self.waiting, &mut self.living);
        let (proc, mut dropped) = (tables.proc(), 0);
        let mut on = |text: &str| {
            let Some(mut record) = Line::parse(text).and_then(|line| TraceRecord::of(&line)) else {
                return;
            };
            record.pid = living.group(record.tid, record.pid, |tid| proc.group(tid));
            match record.what {
                TraceEvent::Fork { child, .. } => living.forget(child),
                TraceEvent::Exit { .. } => living.forget(record.tid),
                _ => {}
            }
            if waiting.len() < MAX_WAITING {
                waiting.push_back(record);
            } else {
                dropped += 1;
            }
        };
        let failed = |error| ObserveError::Io { what: "reading trace_pipe".to_owned(), error };
        let has_more = self.main.read(LINES, now_ns, &mut on, each).map_err(failed)?;
        if dropped > 0 {
            each(Event { at_ns: now_ns, what: What::Dropped { events: dropped } });
        }
        // Lines after the last scan may be about sockets that only the next scan finds.
        let known_ns = tables.looked_ns().max(now_ns.saturating_sub(WAIT_NS));
        let read_ns =
            self.waiting.back().filter(|_| has_more).map_or(u64::MAX, |record| record.at_ns);
        self.complete_ns = known_ns.min(read_ns).max(self.complete_ns);
        while self.waiting.front().is_some_and(|record| record.at_ns <= known_ns) {
            let Some(mut record) = self.waiting.pop_front() else { break };
            record.pid = self.family.group(record.tid).or(record.pid);
            self.report(&record, tables, each);
        }
        self.flush(each);
        tables.end_claimed(each);
        self.reset.retain(|_, at_ns| *at_ns + RESET_NS >= known_ns);
        if self.waiting.is_empty() {
            self.exiting.clear();
            self.family.forget(known_ns);
        }
        match &mut self.calls {
            Some(calls) => calls.take(now_ns, tables, each).map_err(failed),
            None => Ok(()),
        }
    }

    fn complete_ns(&self) -> u64 {
        self.complete_ns
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.main.pipe().map(AsFd::as_fd)
    }

    fn watch(&mut self, pid: u32, tables: &Tables) {
        if let Some(calls) = &mut self.calls {
            calls.watch(pid, tables.proc());
        }
    }

    fn window(&mut self, _: bool) {
        // Text lines for all calls of all processes would cost too much.
    }
}

impl TraceRecord {
    fn of(line: &Line<'_>) -> Option<Self> {
        let fields = line.fields;
        let what = match line.event {
            "inet_sock_set_state" if fields.get("protocol") == Some("IPPROTO_TCP") => {
                let (local, peer, mapped) = fields.addresses()?;
                let (from, to) = (state(fields.get("oldstate")?)?, state(fields.get("newstate")?)?);
                TraceEvent::State { addresses: (local, peer), mapped, from, to }
            }
            "tcp_send_reset" => sent(line)?,
            "tcp_receive_reset" => TraceEvent::Received { addresses: addresses(line)? },
            "tcp_retransmit_skb" => {
                let state = fields.get("state").and_then(state).unwrap_or(State::Established);
                TraceEvent::Again { addresses: addresses(line)?, state }
            }
            "tcp_retransmit_synack" => {
                TraceEvent::Again { addresses: addresses(line)?, state: State::SynRecv }
            }
            "inet_sk_error_report" if fields.get("protocol") == Some("IPPROTO_TCP") => {
                TraceEvent::Failed { addresses: addresses(line)?, errno: fields.number("error")? }
            }
            "kfree_skb" if fields.get("location")?.starts_with("unix_release_sock") => {
                TraceEvent::Unread
            }
            "task_newtask" => started(line)?,
            "sched_process_exit" => TraceEvent::Exit {
                name: fields.between("comm=", " pid=")?.to_owned(),
                // Before Linux 6.16 the field is missing.
                is_whole: fields.get("group_dead") != Some("false"),
            },
            _ => return None,
        };
        Some(Self { at_ns: line.at_ns, tid: line.tid, pid: line.pid, in_call: line.in_call, what })
    }
}

/// A socket begins or stops listening.
fn note_listening(
    (local, to): (SocketAddr, State),
    (actor, at_ns): (Option<Actor>, u64),
    tables: &mut Tables,
) {
    match to {
        State::Listen => {
            let is_own = |by: &Actor| tables.processes().was_watched(by.pid, at_ns);
            if let Some(by) = actor.filter(is_own) {
                tables.note_listening(local, Some(by.pid));
            }
        }
        State::Close => tables.note_listening(local, None),
        // A connection that came to it.
        _ => {}
    }
}

/// A reset that is sent.
fn sent(line: &Line<'_>) -> Option<TraceEvent> {
    let fields = line.fields;
    let (Some(local), Some(peer)) = (fields.address("src"), fields.address("dest")) else {
        // Before Linux 6.10: only for sockets, without the answered packet and without a reason.
        let (state, addresses) = (state(fields.get("state")?)?, addresses(line)?);
        let is_active = match state {
            State::Listen | State::SynSent | State::SynRecv | State::Other(_) => false,
            // A call that aborts, or a packet for a closed socket.
            State::Close => line.in_call,
            // A timer gives up.
            _ => true,
        };
        return Some(TraceEvent::Sent { addresses, is_active, is_of_socket: true, reason: None });
    };
    Some(TraceEvent::Sent {
        addresses: (local, peer),
        is_active: is_null(fields.get("skbaddr")?),
        is_of_socket: !is_null(fields.get("skaddr")?),
        reason: fields.get("reason").map(str::to_owned),
    })
}

/// A process or a thread that is started.
fn started(line: &Line<'_>) -> Option<TraceEvent> {
    /// `CLONE_THREAD` (`clone(2)`).
    const THREAD: u64 = 0x1_0000;
    let (fields, flags) = (line.fields, line.fields.get("clone_flags")?);
    Some(TraceEvent::Fork {
        // The name after it may contain anything.
        child: fields.0.strip_prefix("pid=")?.split(' ').next()?.parse().ok()?,
        name: fields.between("comm=", " clone_flags=")?.to_owned(),
        is_thread: u64::from_str_radix(flags, 16).ok()? & THREAD != 0,
    })
}

fn addresses(line: &Line<'_>) -> Option<Addresses> {
    line.fields.addresses().map(|(local, peer, _)| (local, peer))
}

/// Whether the call that is running caused this change. The kernel processes packets that arrived
/// meanwhile at the end of a call, in the context of its process.
fn is_by_call(from: State, to: State, was_reset: bool) -> bool {
    match (from, to) {
        (State::Close, State::SynSent)
        | (State::Established | State::SynRecv, State::FinWait1)
        | (State::CloseWait, State::LastAck) => true,
        (State::SynSent | State::SynRecv | State::Established | State::CloseWait, State::Close) => {
            !was_reset
        }
        _ => false,
    }
}

fn why(state: State, timed_out: bool) -> Again {
    match state {
        State::SynSent => Again::Syn,
        State::SynRecv => Again::SynAck,
        _ if timed_out => Again::TimeOut,
        _ => Again::Loss,
    }
}

/// A state by the kernel's name (`include/net/tcp_states.h`).
fn state(name: &str) -> Option<State> {
    const NAMES: [&str; 12] = [
        "TCP_ESTABLISHED",
        "TCP_SYN_SENT",
        "TCP_SYN_RECV",
        "TCP_FIN_WAIT1",
        "TCP_FIN_WAIT2",
        "TCP_TIME_WAIT",
        "TCP_CLOSE",
        "TCP_CLOSE_WAIT",
        "TCP_LAST_ACK",
        "TCP_LISTEN",
        "TCP_CLOSING",
        "TCP_NEW_SYN_RECV",
    ];
    let at = NAMES.iter().position(|known| *known == name)?;
    Some(State::from(u8::try_from(at + 1).ok()?))
}

/// Whether a kernel address is null.
fn is_null(address: &str) -> bool {
    address == "(null)" || address.bytes().all(|byte| byte == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_that_older_kernels_tell_of() {
        const ADDRESSES: &str = "sport=37015 dport=51054 saddr=127.0.0.1 daddr=127.0.0.1 \
             saddrv6=::ffff:127.0.0.1 daddrv6=::ffff:127.0.0.1";
        let cases = [
            // 5.10, closed with unread input; 6.1, data after a close; a timer; a stray packet.
            ("....    10.293332: tcp_send_reset: ", "TCP_CLOSE", true),
            ("..s2.     7.310641: tcp_send_reset: family=AF_INET ", "TCP_CLOSE", false),
            ("..s2.     7.310641: tcp_send_reset: family=AF_INET ", "TCP_FIN_WAIT1", true),
            ("..s2.     7.310641: tcp_send_reset: family=AF_INET ", "TCP_LISTEN", false),
        ];
        for (head, state, expected) in cases {
            let text =
                format!("         python3-120     (    120) [000] {head}{ADDRESSES} state={state}");
            let record = TraceRecord::of(&Line::parse(&text).unwrap()).unwrap();
            let TraceEvent::Sent { addresses, is_active, is_of_socket, reason } = record.what
            else {
                panic!("{text}");
            };
            assert_eq!(addresses.0.to_string(), "127.0.0.1:37015");
            assert_eq!((is_active, is_of_socket, reason), (expected, true, None), "{text}");
        }
    }
}
