//! Tier 3: programs in the kernel (eBPF).
//!
//! ```text
//!  bpf/sockets.bpf.c --Record--> ring buffer --> KernelSource: names of processes, endings --> events
//!  bpf/calls.bpf.c ---counts of calls in maps---'
//! ```
//!
//! The programs decide what to report about which socket (see the heading of `bpf/sockets.bpf.c`).
//! The name of a process is looked up here when it first matters: in `/proc`, or, if the process
//! has ended, in what the kernel's programs stored at its last `exec`.

mod calls;
mod programs;
mod record;
mod symbols;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use lastbyte_bpf::{BpfError, Iterated, Kernel, Linked, Loaded, Object, Ring};
use lastbyte_core::sample::State;
use lastbyte_sys::process;

use self::calls::CallSource;
use self::programs::Programs;
use self::record::Record;
use super::tables::Tables;
use super::{Each, ObserveError, Plan, Roots, Source, Traced};
use crate::event::{
    Actor, Again, Changed, Ending, Event, Precision, ResetSent, Role, Scope, Socket, SocketId, What,
};

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// A program, its tracepoint, and what is not seen without it.
type Program = (&'static str, &'static str, &'static str);

/// Without the first, the others are of no use.
const SOCKETS: &[Program] = &[
    ("socket_state", "inet_sock_set_state", "how connections end"),
    ("reset_sent", "tcp_send_reset", "resets that are sent"),
    ("reset_received", "tcp_receive_reset", "resets that come"),
    ("socket_failed", "inet_sk_error_report", "errors of sockets"),
    ("sent_again", "tcp_retransmit_skb", "retransmissions"),
    ("answered_again", "tcp_retransmit_synack", "answers to SYNs that are sent again"),
    ("socket_gone", "tcp_destroy_sock", "the end of sockets"),
    ("written", "sock_send_length", "what programs write"),
    ("read", "sock_recv_length", "what programs read"),
    ("packet_dropped", UNIX_TRACEPOINT, "what is unread in Unix sockets"),
    ("executed", "sched_process_exec", "what processes run"),
    ("forked", "sched_process_fork", "children of processes"),
    ("exited", "sched_process_exit", "how processes end"),
];
/// Resets that answer packets for destroyed or TIME-WAIT sockets. Before Linux 6.10 the tracepoint
/// in [`SOCKETS`] does not report them; these programs attach to kernel functions.
const LATE: [Program; 2] = [
    ("late_reset_v4", "tcp_v4_send_reset", "data that come after a close, by IPv4"),
    ("late_reset_v6", "tcp_v6_send_reset", "data that come after a close, by IPv6"),
];
/// Reports the counts of sockets without events, when run.
const COUNTS: Program = (
    "tell_counts",
    "",
    "what was read and written on a connection, until it is read or written again or ends",
);
/// Does the same as [`COUNTS`] for one network namespace after the other, if the kernel refuses
/// that program.
const COUNTS_OF_NETWORK: Program = ("tell_counts_of_network", "", COUNTS.2);
/// The programs without which a loss may be missed.
const LOSSES: [&str; 7] = [
    "reset_sent",
    "late_reset_v4",
    "late_reset_v6",
    "reset_received",
    "socket_failed",
    "socket_gone",
    "packet_dropped",
];
/// The tracepoint of discarded packets.
const UNIX_TRACEPOINT: &str = "kfree_skb";
/// The end of a process is reported this much later, after the sockets that it closed, nanoseconds.
const EXIT_DELAY_NS: u64 = 20_000_000;
/// How often the counts of sockets without events are read, nanoseconds.
const COUNTS_NS: u64 = 1_000_000_000;
/// Two programs may report the same refusal within this interval, nanoseconds.
const TWICE_NS: u64 = 100_000;
/// Limit on reads of the ring buffer in one call: together its whole capacity.
const TAKES_AT_ONCE: usize = 3;

/// Observes from within the kernel. Dropping it removes everything from the kernel.
pub(super) struct KernelSource {
    sockets: Loaded,
    ring: Ring,
    counts: Option<Asked>,
    /// They keep the programs attached.
    _links: Vec<Linked>,
    translator: Translator,
    calls: Option<CallSource>,
    lacks: Vec<String>,
    sees_each_loss: bool,
    counts_ns: u64,
    dropped: u64,
    /// Counted calls that were not handed out yet.
    of_calls: Vec<Event>,
}

impl fmt::Debug for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSource").field("lacks", &self.lacks).finish_non_exhaustive()
    }
}

impl KernelSource {
    /// Loads and attaches what this kernel offers.
    ///
    /// # Errors
    /// The reason in one sentence.
    pub(super) fn start(plan: &Plan, roots: &Roots) -> Result<Self, String> {
        let objects = OBJECTS.map_err(str::to_owned)?;
        let kernel = Kernel::look().map_err(sentence)?;
        let mut lacks = Vec::new();
        let (sockets, links, counts) = load_sockets(plan, (objects, &kernel), roots, &mut lacks)?;
        let names_one =
            |line: &String| LOSSES.iter().any(|name| line.contains(&format!("(program {name}:")));
        let sees_each_loss = !lacks.iter().any(names_one);
        let ring = sockets.ring("records", record::LENGTH).map_err(sentence)?;
        let translator = Translator {
            is_port: matches!(plan.scope, Scope::Port(_)),
            reasons: reasons(&kernel),
            programs: Programs::new(roots.proc()),
            exits: VecDeque::new(),
            unread: None,
            refused: None,
        };
        let calls = load_calls(plan, (objects, &kernel), &sockets, roots, &mut lacks);
        let counts_ns = process::monotonic_ns();
        let _links = links;
        Ok(Self {
            sockets,
            ring,
            counts,
            _links,
            translator,
            calls,
            lacks,
            sees_each_loss,
            counts_ns,
            dropped: 0,
            of_calls: Vec::new(),
        })
    }

    /// Events that did not fit into the ring buffer since the last call.
    fn newly_dropped(&mut self) -> u64 {
        let first = 0_u32.to_ne_bytes();
        let counts = self.sockets.read_each("dropped", &first).unwrap_or_default();
        let all = counts.iter().map(|count| record::u64_at(count, 0)).sum::<u64>();
        all - std::mem::replace(&mut self.dropped, all)
    }
}

impl Source for KernelSource {
    fn take(&mut self, tables: &mut Tables, each: Each<'_>) -> Result<(), ObserveError> {
        let now_ns = process::monotonic_ns();
        if now_ns >= self.counts_ns + COUNTS_NS {
            self.counts_ns = now_ns;
            if let Some(Err(why)) = self.counts.as_ref().map(|counts| counts.run(tables)) {
                self.lacks.push(lack(&COUNTS, &why));
                self.counts = None;
            }
        }
        let Self { sockets, ring, translator, .. } = self;
        for _ in 0..TAKES_AT_ONCE {
            let taken = ring.take(&mut |bytes| translator.take(&Record(bytes), sockets, each));
            if taken == 0 {
                break;
            }
        }
        translator.end_unread(each);
        translator.report_exits(now_ns, sockets, each);
        if let Some(calls) = self.calls.as_mut().filter(|calls| calls.is_due(now_ns)) {
            let events = &mut self.of_calls;
            calls.fetch(now_ns, &mut |event| events.push(event));
        }
        for mut event in self.of_calls.drain(..) {
            if let What::Ready(ready) = &mut event.what {
                // For an epoll the program in the kernel does not know the descriptor.
                let behind = || tables.behind(ready.pid, ready.fd?);
                ready.socket = ready.socket.or_else(behind);
            }
            each(event);
        }
        let events = self.newly_dropped();
        if events > 0 {
            each(Event { at_ns: now_ns, what: What::Dropped { events } });
        }
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // The ring buffer holds the events between two ticks.
        None
    }

    fn watch(&mut self, pid: u32, _: &Tables) {
        let mut found = vec![pid];
        while let Some(pid) = found.pop() {
            // The map refuses only beyond 65,536 processes; further ones are not reported.
            let _ = self.sockets.write("watched", &pid.to_ne_bytes(), &[1]);
            found.extend(self.translator.programs.children(pid));
        }
    }

    fn window(&mut self, is_open: bool) {
        let Some(calls) = &mut self.calls else { return };
        let now_ns = process::monotonic_ns();
        if calls.is_on() && !is_open {
            let events = &mut self.of_calls;
            calls.fetch(now_ns, &mut |event| events.push(event));
        }
        if let Err(why) = calls.turn(is_open, now_ns) {
            self.lacks.push(why);
            self.calls = None;
        }
    }

    fn sees_each_loss(&self) -> bool {
        self.sees_each_loss
    }

    fn blind(&self) -> Vec<String> {
        self.lacks.clone()
    }
}

/// The first line of an error, without the verifier's output.
fn sentence(error: BpfError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

type Objects = &'static [(&'static str, &'static [u8])];

fn image(objects: Objects, name: &str) -> Result<&'static [u8], String> {
    let found = objects.iter().find(|(known, _)| *known == name);
    found.map(|(_, image)| *image).ok_or_else(|| format!("it was built without {name}.bpf.c"))
}

/// The program that reports counts when run.
enum Asked {
    /// For all sockets in the map.
    All(Iterated),
    /// For the sockets of the namespace in which it is run.
    OfNetwork(Iterated),
}

impl Asked {
    fn run(&self, tables: &Tables) -> Result<(), String> {
        match self {
            Self::All(all) => all.run().map_err(sentence),
            Self::OfNetwork(one) => {
                let run = || one.run().map_err(std::io::Error::other);
                tables.in_each_network(&run).map_err(|error| error.to_string())
            }
        }
    }
}

/// Loads and attaches each program that this kernel has a tracepoint for and does not refuse.
fn load_sockets(
    plan: &Plan,
    (objects, kernel): (Objects, &Kernel),
    roots: &Roots,
    lacks: &mut Vec<String>,
) -> Result<(Loaded, Vec<Linked>, Option<Asked>), String> {
    let given = Given::of(plan, kernel, roots);
    let (mut there, mut left) = known_to(kernel, &given);
    let needless: &[Program] = if given.reset_has_reason { &LATE } else { &[] };
    if needless.is_empty() {
        there.extend(LATE);
    }
    // The fallback is only tried if the first choice is refused.
    let mut counting = vec![COUNTS_OF_NETWORK, COUNTS];
    let loaded = loop {
        let asked = counting.last().copied();
        let mut object =
            Object::open("lb_sockets", image(objects, "sockets")?).map_err(sentence)?;
        object.give(".rodata.given", &given.bytes()).map_err(sentence)?;
        object.give(".rodata.numbering", &numbering(roots)).map_err(sentence)?;
        let without = left.iter().map(|(program, _)| *program).chain(needless.iter().copied());
        let unasked = [COUNTS, COUNTS_OF_NETWORK].into_iter().filter(|one| Some(*one) != asked);
        for (program, ..) in without.chain(unasked) {
            object.leave_out(program).map_err(sentence)?;
        }
        let tried: Vec<Program> = there.iter().copied().chain(asked).collect();
        let outcome = match made_up_refusal(roots, &tried) {
            Some(error) => Err(error),
            None => object.load(),
        };
        match outcome {
            Ok(loaded) => break loaded,
            // A program that this kernel refuses is left out.
            Err(error) => match tried.iter().find(|(name, ..)| is_about(&error, name)).copied() {
                Some(program) if Some(program) == asked => {
                    counting.pop();
                    if counting.is_empty() {
                        left.push((program, refusal(error)));
                    }
                }
                Some(program) if program != SOCKETS[0] => {
                    there.retain(|one| *one != program);
                    left.push((program, refusal(error)));
                }
                Some((name, ..)) => return Err(format!("program {name}: {}", refusal(error))),
                None => return Err(refusal(error)),
            },
        }
    };
    let mut links = Vec::new();
    for program in there {
        match loaded.link(program.0) {
            Ok(link) => links.push(link),
            Err(error) => left.push((program, refusal(error))),
        }
    }
    let counts = counting.last().and_then(|program| {
        let asked = if *program == COUNTS {
            loaded.iterate(program.0, "stories").map(Asked::All)
        } else {
            loaded.iterate_all(program.0).map(Asked::OfNetwork)
        };
        asked.map_err(|error| left.push((*program, refusal(error)))).ok()
    });
    for (program, why) in left {
        if program == SOCKETS[0] {
            return Err(format!("program {}: {why}", program.0));
        }
        lacks.push(lack(&program, &why));
    }
    lacks.extend(given.lack());
    Ok((loaded, links, counts))
}

/// The programs whose tracepoint this kernel has, and the others with the reason.
fn known_to(kernel: &Kernel, given: &Given) -> (Vec<Program>, Vec<(Program, String)>) {
    let mut left: Vec<(Program, String)> = Vec::new();
    let mut there = Vec::new();
    for program in SOCKETS {
        if kernel.arguments_at(program.1).is_none() {
            left.push((*program, format!("this kernel has no tracepoint {}", program.1)));
        } else if program.1 == UNIX_TRACEPOINT && !given.recognises_closes() {
            let why = "this kernel does not report which packets a close discards";
            left.push((*program, why.to_owned()));
        } else {
            there.push(*program);
        }
    }
    (there, left)
}

/// What is not seen without a program, and why not, in a sentence.
fn lack((name, _, what): &Program, why: &str) -> String {
    format!("not seen is {what} (program {name}: {why})")
}

/// Why the kernel refused a program, in one line, with the verifier's last message if there is one.
fn refusal(error: BpfError) -> String {
    let is_word = |line: &&String| !line.starts_with("libbpf:") && !line.starts_with("processed ");
    let word = match &error {
        BpfError::Refused { messages, .. } => messages.iter().rev().find(is_word).cloned(),
        _ => None,
    };
    let text = sentence(error);
    match word {
        Some(word) => format!("{text}: {}", word.trim()),
        None => text,
    }
}

/// The error for the first of these programs that counts as refused ([`Roots::refused`]).
fn made_up_refusal(roots: &Roots, tried: &[Program]) -> Option<BpfError> {
    let is_tried = |refused: &&(&str, i32)| tried.iter().any(|(name, ..)| *name == refused.0);
    let (name, errno) = roots.refused.iter().find(is_tried)?;
    let error = std::io::Error::from_raw_os_error(*errno);
    let messages = vec![format!("libbpf: prog '{name}': BPF program load failed: {error}")];
    let (operation, name) = ("load", "lb_sockets".to_owned());
    Some(if error.kind() == std::io::ErrorKind::PermissionDenied {
        BpfError::NotAllowed { operation, name, lacking: Vec::new(), messages }
    } else {
        BpfError::Refused { operation, name, error: error.to_string(), messages }
    })
}

/// Whether an error is about a program: the loader names it as `prog 'NAME'`.
fn is_about(error: &BpfError, program: &str) -> bool {
    let (BpfError::Refused { messages, .. } | BpfError::NotAllowed { messages, .. }) = error else {
        return false;
    };
    let name = format!("prog '{program}'");
    messages.iter().any(|line| line.contains(&name))
}

/// Loads the programs that count calls, and attaches them if calls are traced all the time.
fn load_calls(
    plan: &Plan,
    (objects, kernel): (Objects, &Kernel),
    sockets: &Loaded,
    roots: &Roots,
    lacks: &mut Vec<String>,
) -> Option<CallSource> {
    let all_processes = match plan.traced {
        Traced::Never => return None,
        Traced::Watched => false,
        Traced::Windows { .. } => true,
    };
    let loaded =
        CallSource::load((objects, kernel), sockets, all_processes, roots).and_then(|mut calls| {
            if !all_processes {
                calls.turn(true, process::monotonic_ns())?;
            }
            Ok(calls)
        });
    loaded.map_err(|why| lacks.push(why)).ok()
}

/// As `struct given` of `bpf/sockets.bpf.c` has it.
struct Given {
    scope: u32,
    port: u32,
    /// The number of the drop reason for packets of a closed socket.
    socket_close: Option<u32>,
    reset_has_reason: bool,
    /// The function that discards them, for a kernel without that reason.
    unix_release: Option<Range<u64>>,
}

impl Given {
    fn of(plan: &Plan, kernel: &Kernel, roots: &Roots) -> Self {
        let (scope, port) = match plan.scope {
            Scope::Machine => (0, 0),
            Scope::Process(_) => (1, 0),
            Scope::Port(port) => (2, u32::from(port)),
        };
        let drops = kernel.names_of("skb_drop_reason");
        let close = drops.iter().find(|(_, name)| name == "SKB_DROP_REASON_SOCKET_CLOSE");
        let socket_close = close.and_then(|(number, _)| u32::try_from(*number).ok());
        Self {
            scope,
            port,
            socket_close,
            reset_has_reason: kernel.arguments_at("tcp_send_reset") == Some(3),
            unix_release: match socket_close {
                Some(_) => None,
                None => symbols::function(&roots.proc, "unix_release_sock"),
            },
        }
    }

    /// Whether a packet that is discarded with its socket can be distinguished from others.
    fn recognises_closes(&self) -> bool {
        self.socket_close.is_some() || self.unix_release.is_some()
    }

    /// What this kernel does not report about resets, if anything.
    fn lack(&self) -> Option<String> {
        let why = "the kernel reports no reason for resets (Linux 6.10 does): data after a close \
                   is recognised by the closed end's counts and by how many resets answered it";
        (!self.reset_has_reason).then(|| why.to_owned())
    }

    fn bytes(&self) -> [u8; 32] {
        // Without such a reason, no drop has this number.
        let close = self.socket_close.unwrap_or(u32::MAX);
        let mut bytes = [0; 32];
        let numbers = [self.scope, self.port, close, u32::from(self.reset_has_reason)];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        let code = self.unix_release.clone().unwrap_or_default();
        let numbers = [code.start, code.end - code.start];
        for (place, number) in bytes[16..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

/// As `struct numbering` of `bpf/watch.h` has it: the PID namespace of `/proc`, so that reported
/// processes can be looked up there.
fn numbering(roots: &Roots) -> [u8; 4] {
    /// The inode number of the initial one (`include/uapi/linux/nsfs.h`, `PID_NS_INIT_INO`).
    const FIRST: u64 = 4_026_531_836;
    let namespace = roots.proc().pid_namespace().filter(|namespace| *namespace != FIRST);
    namespace.and_then(|inode| u32::try_from(inode).ok()).unwrap_or(0).to_ne_bytes()
}

/// Names of reset reasons by number, without their common prefix.
fn reasons(kernel: &Kernel) -> Vec<(i64, String)> {
    let mut reasons = kernel.names_of("sk_rst_reason");
    for (_, name) in &mut reasons {
        if let Some(short) = name.strip_prefix("SK_RST_REASON_") {
            *name = short.to_owned();
        }
    }
    reasons
}

/// Makes events of records.
struct Translator {
    /// Whether a port is in scope: then processes are found when they use a socket of that port.
    is_port: bool,
    reasons: Vec<(i64, String)>,
    programs: Programs,
    /// Ended processes that were not reported yet: when, which, how.
    exits: VecDeque<(u64, u32, Ending)>,
    /// Unread bytes of one Unix socket, which come packet by packet.
    unread: Option<(u64, UnixUnread)>,
    /// The last connect that this machine refused: when, which process, where to, why.
    refused: Option<(u64, (u32, SocketAddr, i32))>,
}

#[derive(PartialEq, Eq)]
struct UnixUnread {
    by: Actor,
    /// The cookie of the sender's end.
    from: u64,
    bytes: u64,
    precision: Precision,
    sender: Option<u32>,
    path: Option<String>,
}

impl Translator {
    fn take(&mut self, record: &Record<'_>, sockets: &Loaded, each: Each<'_>) {
        let at_ns = record.at_ns();
        if record.kind() != record::UNIX {
            self.end_unread(each);
        }
        // A process that has just ended is not looked up.
        if record.pid() != 0 && record.names_process() {
            self.programs.report(record, sockets, each);
        }
        let Some(what) = self.what(record, sockets, each) else { return };
        each(Event { at_ns, what });
    }

    fn what(&mut self, record: &Record<'_>, sockets: &Loaded, each: Each<'_>) -> Option<What> {
        let (at_ns, socket) = (record.at_ns(), SocketId(record.socket()));
        Some(match record.kind() {
            record::SOCKET => What::Socket(socket_of(record)?),
            record::HOLDS if self.is_port => {
                // A process that holds such a socket is in scope.
                let _ = sockets.write("watched", &record.pid().to_ne_bytes(), &[1]);
                What::Holds { socket, pid: record.pid(), fd: None }
            }
            record::HOLDS => What::Holds { socket, pid: record.pid(), fd: None },
            record::CHANGED => What::Changed(changed(record)),
            record::RESET_SENT => What::ResetSent(Box::new(self.reset_sent(record)?)),
            record::RESET_RECEIVED => What::ResetReceived { socket, counts: record.counts() },
            record::AGAIN => What::Retransmitted {
                socket,
                why: match record.role() {
                    0 => Again::Syn,
                    1 => Again::SynAck,
                    2 => Again::TimeOut,
                    _ => Again::Loss,
                },
                segments: u32::try_from(record.number()).unwrap_or_default(),
            },
            record::FAILED => What::Failed { socket, errno: record.number() },
            record::NOT_CONNECTED => {
                let (_, peer, _) = record.addresses()?;
                let refused = (record.pid(), peer, record.number());
                // With traced calls two programs see it: within the call, and at its return.
                let last = self.refused.replace((at_ns, refused));
                if last.is_some_and(|(at, last)| last == refused && at + TWICE_NS > at_ns) {
                    return None;
                }
                What::NotConnected { pid: record.pid(), peer, errno: record.number() }
            }
            record::GONE => What::Gone { socket, counts: record.counts() },
            record::IO => What::Io(record.io()),
            record::UNIX => {
                self.add_unread(record, each);
                return None;
            }
            record::FORK | record::EXEC => {
                self.programs.report_new(record, sockets, each);
                return None;
            }
            record::EXIT => {
                let ending = record.ending().unwrap_or(Ending::Unknown);
                self.exits.push_back((record.at_ns(), record.pid(), ending));
                return None;
            }
            _ => return None,
        })
    }

    fn reset_sent(&self, record: &Record<'_>) -> Option<ResetSent> {
        let (local, peer, _) = record.addresses()?;
        let reason = self.reasons.iter().find(|one| one.0 == i64::from(record.number()));
        Some(ResetSent {
            socket: Some(SocketId(record.socket())).filter(|socket| socket.0 != 0),
            local,
            peer,
            network: record.network(),
            reason: reason.map(|(_, name)| name.clone()),
            active: record.is_active(),
            by: record.actor(),
            counts: record.counts(),
        })
    }

    /// Sums packets of one socket that one thread discards in a row.
    fn add_unread(&mut self, record: &Record<'_>, each: Each<'_>) {
        let (bytes, sender, path) = record.unread();
        let by = record.actor().unwrap_or(Actor { pid: 0, tid: 0, ending: None });
        let precision = record.precision();
        let found = UnixUnread { by, from: record.socket(), bytes: 0, precision, sender, path };
        let is_same = self.unread.as_ref().is_some_and(|(_, one)| {
            (one.by, one.from, one.sender) == (found.by, found.from, found.sender)
        });
        if !is_same {
            self.end_unread(each);
        }
        let (_, unread) = self.unread.get_or_insert_with(|| (record.at_ns(), found));
        unread.bytes += u64::from(bytes);
    }

    fn end_unread(&mut self, each: Each<'_>) {
        let Some((at_ns, unread)) = self.unread.take() else { return };
        let UnixUnread { by, bytes, precision, sender, path, .. } = unread;
        each(Event { at_ns, what: What::UnixUnread { by, bytes, precision, sender, path } });
    }

    /// Reports ended processes that were reported before.
    fn report_exits(&mut self, now_ns: u64, sockets: &Loaded, each: Each<'_>) {
        while let Some((at_ns, pid, ending)) = self.exits.front().copied() {
            if at_ns + EXIT_DELAY_NS > now_ns {
                return;
            }
            self.exits.pop_front();
            if self.programs.forget(pid) {
                let _ = sockets.remove("watched", &pid.to_ne_bytes());
                let at_ns = at_ns + EXIT_DELAY_NS;
                each(Event { at_ns, what: What::Exited { pid, ending } });
            }
        }
    }
}

fn socket_of(record: &Record<'_>) -> Option<Socket> {
    let (local, peer, mapped) = record.addresses()?;
    Some(Socket {
        id: SocketId(record.socket()),
        local,
        peer,
        mapped,
        network: record.network(),
        role: match record.role() {
            1 => Role::Connected,
            2 => Role::Accepted,
            3 => Role::Listens,
            _ => Role::Unknown,
        },
        subflow: record.is_subflow(),
        earlier: false,
    })
}

fn changed(record: &Record<'_>) -> Changed {
    let (from, to) = record.states();
    Changed {
        socket: SocketId(record.socket()),
        from: State::from(from),
        to: State::from(to),
        by: record.actor(),
        counts: record.counts(),
        errno: record.number(),
        held: record.is_held(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_a_kernel_are_given_and_missing_ones_reported() {
        let new = Given {
            scope: 2,
            port: 443,
            socket_close: Some(7),
            reset_has_reason: true,
            unix_release: None,
        };
        assert!(new.recognises_closes() && new.lack().is_none());
        let words = |given: &Given| {
            let bytes = given.bytes();
            let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|next| bytes[at + next]));
            [0, 4, 8, 12, 16, 24].map(number)
        };
        assert_eq!(words(&new), [2, 443, 7, 1, 0, 0]);
        // As Linux 6.1.
        let code = Some(0x4000..0x4123);
        let old = Given { socket_close: None, reset_has_reason: false, unix_release: code, ..new };
        assert!(old.recognises_closes() && old.lack().unwrap().contains("Linux 6.10"));
        assert_eq!(words(&old), [2, 443, u32::MAX, 0, 0x4000, 0x123]);
        assert!(!Given { unix_release: None, ..old }.recognises_closes());
    }
}
