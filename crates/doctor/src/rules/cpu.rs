//! Wasted processor time: LB301 to LB306.
//!
//! Each rule finds calls that a program repeats and that move no bytes. A busy program makes as
//! many calls in a second: so each rule requires calls without effect, and more of these than of
//! others.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{Rule, figures};
use crate::event::{Calls, Event, Io, Ready, SocketId, What};
use crate::facts::Facts;
use crate::finding::{Class, Code, Evidence, Finding};
use crate::text;

/// Calls without effect per second. A busy loop makes 100,000 and more; a program that is woken too
/// early for each packet makes some hundreds.
const OFTEN: f64 = 1_000.0;
/// Failed calls of `accept` per second: a program that waits a little after each stays below this.
const OFTEN_REFUSED: f64 = 100.0;
/// Reads and writes that failed with EAGAIN per second: a program that is woken for each packet of
/// 1.4 kB and reads once too often makes as many at 110 Mbit/s.
const OFTEN_RETRIED: f64 = 10_000.0;
/// A loop is reported after this much traced time, nanoseconds. A shorter one costs less than its
/// investigation.
const LONG_NS: u64 = 1_000_000_000;
/// The shortest interval that counts, nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;
/// Limit on loops that are followed.
const MOST: usize = 4_096;

const POLLIN: u32 = 0x1;
const POLLOUT: u32 = 0x4;
const POLLERR: u32 = 0x8;
const POLLHUP: u32 = 0x10;
const POLLRDHUP: u32 = 0x2000;

const EAGAIN: i32 = 11;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// The rules of class cpu.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![Box::new(Cpu::default())]
}

/// Follows loops.
#[derive(Debug, Default)]
struct Cpu {
    spells: BTreeMap<Loop, Spell>,
    /// Bytes that each process has moved through its sockets so far.
    moved: BTreeMap<u32, u64>,
    /// Processes reported for a descriptor too high for `select`.
    too_high: BTreeSet<u32>,
}

impl Rule for Cpu {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        let now = Now { at_ns: event.at_ns, facts };
        match &event.what {
            What::Ready(ready) => found.extend(self.ready(&now, ready)),
            What::Calls(calls) => found.extend(self.calls(&now, calls)),
            What::Io(io) => found.extend(self.io(&now, io)),
            What::Exited { pid, .. } => self.forget(*pid),
            _ => {}
        }
    }
}

impl Cpu {
    /// LB301 and LB303: a wait that returns at once, again and again.
    fn ready(&mut self, now: &Now<'_>, ready: &Ready) -> Option<Finding> {
        let hung_up = ready.ready & (POLLHUP | POLLRDHUP | POLLERR) != 0;
        let writable = ready.ready & POLLOUT != 0 && ready.ready & POLLIN == 0;
        let is_spin = ready.idle >= ready.count.saturating_sub(ready.idle);
        let code = if hung_up { 303 } else { 301 };
        let count = if is_spin && (hung_up || writable) { ready.idle } else { 0 };
        let what = Loop { pid: ready.pid, of: Of::Thread(ready.tid), code };
        // A descriptor that was writable before and is hung up now is in one loop only.
        let other = Loop { code: 604 - code, ..what };
        self.spells.remove(&other);
        let spell =
            self.follow(now, what, Round { count, over_ns: ready.over_ns, least: OFTEN })?;
        let (call, rate) = (&ready.call, figures::rounded(spell.rate()));
        let (long, on) = (text::time(spell.over_ns), descriptor(ready.fd));
        let moved = text::count(spell.moved);
        let (sentence, fix) = if hung_up {
            let how = hang_up(ready.ready);
            (
                format!(
                    "{call} returned at once {rate} times a second for {long} because {on} {how}, \
                     and the program did nothing about it"
                ),
                "Close the descriptor, or remove it from the set that is waited for, once it is \
                 hung up or at its end."
                    .to_owned(),
            )
        } else {
            (
                format!(
                    "{call} returned at once {rate} times a second for {long} because {on} can be \
                     written to, and the program wrote nothing after it: all of its sockets moved \
                     {moved} bytes in that time"
                ),
                "Wait for writability (EPOLLOUT, POLLOUT) only while there is something to write."
                    .to_owned(),
            )
        };
        let mut evidence = spell.evidence("idle_returns");
        evidence.insert("call".to_owned(), call.as_str().into());
        evidence.insert("ready_poll_bits".to_owned(), ready.ready.into());
        if let Some(fd) = ready.fd.and_then(|fd| u64::try_from(fd).ok()) {
            evidence.insert("descriptor".to_owned(), fd.into());
        }
        let subject = Subject { pid: ready.pid, socket: ready.socket };
        Some(now.finding(code, subject, (sentence, fix), evidence))
    }

    fn calls(&mut self, now: &Now<'_>, calls: &Calls) -> Option<Finding> {
        match calls.call.as_str() {
            "ioctl:SIOCOUTQ" => self.asks_the_queue(now, calls),
            "select" | "pselect6" | "_newselect" => self.selects(now, calls),
            "accept" | "accept4" => self.accepts(now, calls),
            "read" | "readv" | "recvfrom" | "recvmsg" | "recvmmsg" => self.reads(now, calls),
            _ => None,
        }
    }

    /// LB302: asking again and again whether all is acked.
    fn asks_the_queue(&mut self, now: &Now<'_>, calls: &Calls) -> Option<Finding> {
        let what = Loop { pid: calls.pid, of: Of::Thread(calls.tid), code: 302 };
        let round = Round { count: calls.count, over_ns: calls.over_ns, least: OFTEN };
        let spell = self.follow(now, what, round)?;
        let sentence = format!(
            "the program asked {} times a second for {} how much of {} is unacked (ioctl SIOCOUTQ)",
            figures::rounded(spell.rate()),
            text::time(spell.over_ns),
            descriptor(calls.fd),
        );
        let fix = "Ask once a round trip, or shut down writing and wait for the end of the peer: \
                   its answer wakes the program.";
        let subject = Subject { pid: calls.pid, socket: calls.socket };
        let evidence = spell.evidence("calls");
        Some(now.finding(302, subject, (sentence, fix.to_owned()), evidence))
    }

    /// LB304: an fd_set for `select` holds descriptors below 1024.
    fn selects(&mut self, now: &Now<'_>, calls: &Calls) -> Option<Finding> {
        /// `FD_SETSIZE`.
        const ROOM: u64 = 1_024;
        let wanted = now.facts.process_in_scope(calls.pid);
        if calls.highest <= ROOM || !wanted || self.too_high.len() >= MOST {
            return None;
        }
        if !self.too_high.insert(calls.pid) {
            return None;
        }
        let sentence = format!(
            "{} was given descriptors up to {}, and an fd_set of the C library holds those below \
             1024: FD_SET with a higher one writes outside it",
            calls.call,
            text::count(calls.highest - 1),
        );
        let fix = "Use poll or epoll, which have no such limit; it is harmless only if the program \
                   allocates larger sets itself.";
        let evidence = figures::evidence([
            ("highest_descriptor", (calls.highest - 1).into()),
            ("room_descriptors", ROOM.into()),
            ("call", calls.call.as_str().into()),
        ]);
        let subject = Subject { pid: calls.pid, socket: None };
        Some(now.finding(304, subject, (sentence, fix.to_owned()), evidence))
    }

    /// LB305: a connection waits to be accepted, and there is no descriptor for it.
    fn accepts(&mut self, now: &Now<'_>, calls: &Calls) -> Option<Finding> {
        let of = |errno: i32| {
            let those = calls.errors.iter().filter(|(one, _)| *one == errno);
            those.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count))
        };
        let (by_process, by_machine) = (of(EMFILE), of(ENFILE));
        let count = by_process.saturating_add(by_machine);
        let what = Loop { pid: calls.pid, of: Of::Thread(calls.tid), code: 305 };
        let round = Round { count, over_ns: calls.over_ns, least: OFTEN_REFUSED };
        let spell = self.follow(now, what, round)?;
        let (errno, limit) = if by_process >= by_machine {
            ("EMFILE", "its limit of open descriptors")
        } else {
            ("ENFILE", "the machine's limit of open files")
        };
        let sentence = format!(
            "{} failed with {errno} {} times a second for {}: the program has reached {limit}, and \
             the waiting connection makes the listening socket ready again at once",
            calls.call,
            figures::rounded(spell.rate()),
            text::time(spell.over_ns),
        );
        let fix = "Raise the limit (LimitNOFILE=, ulimit -n), close what is done with, and stop \
                   accepting for a while after this error.";
        let mut evidence = spell.evidence("failed_calls");
        evidence.insert("error".to_owned(), errno.into());
        let subject = Subject { pid: calls.pid, socket: calls.socket };
        Some(now.finding(305, subject, (sentence, fix.to_owned()), evidence))
    }

    /// LB303 in another form: reading on after the end.
    fn reads(&mut self, now: &Now<'_>, calls: &Calls) -> Option<Finding> {
        // A read at the end of a file also returns 0.
        let is_socket = calls.socket.is_some() || calls.call.starts_with("recv");
        let mostly = calls.zero >= calls.count / 2;
        let count = if is_socket && mostly { calls.zero } else { 0 };
        let what = Loop { pid: calls.pid, of: Of::Reader(calls.tid, calls.fd), code: 303 };
        let spell =
            self.follow(now, what, Round { count, over_ns: calls.over_ns, least: OFTEN })?;
        let sentence = format!(
            "{} of {} returned 0, which means the end of the peer's stream, {} times a second for \
             {}, and the program read on",
            calls.call,
            descriptor(calls.fd),
            figures::rounded(spell.rate()),
            text::time(spell.over_ns),
        );
        let fix = "Take a read of 0 bytes for the end: close the descriptor, or remove it from the \
                   set that is waited for.";
        let mut evidence = spell.evidence("calls");
        evidence.insert("call".to_owned(), calls.call.as_str().into());
        let subject = Subject { pid: calls.pid, socket: calls.socket };
        Some(now.finding(303, subject, (sentence, fix.to_owned()), evidence))
    }

    /// LB306: retrying without waiting.
    fn io(&mut self, now: &Now<'_>, io: &Io) -> Option<Finding> {
        /// With edge-triggered readiness a program reads until EAGAIN: one failed call for each
        /// successful one.
        const FOR_EACH: u64 = 10;
        let bytes = io.written_bytes.saturating_add(io.read_bytes);
        if self.moved.len() < MOST || self.moved.contains_key(&io.pid) {
            let moved = self.moved.entry(io.pid).or_default();
            *moved = moved.saturating_add(bytes);
        }
        let done = io.reads.saturating_add(io.writes);
        let count = if io.not_now >= done.saturating_mul(FOR_EACH) { io.not_now } else { 0 };
        let what = Loop { pid: io.pid, of: Of::Socket(io.socket), code: 306 };
        let round = Round { count, over_ns: io.over_ns, least: OFTEN_RETRIED };
        let spell = self.follow(now, what, round)?;
        let sentence = format!(
            "the program tried {} times a second for {} to read or write where there was nothing \
             to read or no free buffer (errno {EAGAIN}, EAGAIN), and all of its sockets moved {} \
             bytes in that time",
            figures::rounded(spell.rate()),
            text::time(spell.over_ns),
            text::count(spell.moved),
        );
        let fix = "After EAGAIN wait in poll or epoll until the kernel reports readiness.";
        let subject = Subject { pid: io.pid, socket: Some(io.socket) };
        let evidence = spell.evidence("failed_calls");
        Some(now.finding(306, subject, (sentence, fix.to_owned()), evidence))
    }

    /// Adds a round to a loop; returns the loop when it has just become long enough to be reported.
    fn follow(&mut self, now: &Now<'_>, what: Loop, round: Round) -> Option<Spell> {
        if round.over_ns < SHORTEST_NS {
            return None;
        }
        if figures::per_second(round.count, round.over_ns) < round.least {
            self.spells.remove(&what);
            return None;
        }
        if !now.facts.process_in_scope(what.pid) {
            return None;
        }
        let moved = self.moved.get(&what.pid).copied().unwrap_or_default();
        if self.spells.len() >= MOST && !self.spells.contains_key(&what) {
            return None;
        }
        let spell = self.spells.entry(what).or_insert_with(|| Spell::after(moved));
        spell.count = spell.count.saturating_add(round.count);
        spell.over_ns = spell.over_ns.saturating_add(round.over_ns);
        spell.moved = moved.saturating_sub(spell.before);
        if spell.reported || spell.over_ns < LONG_NS {
            return None;
        }
        spell.reported = true;
        Some(*spell)
    }

    fn forget(&mut self, pid: u32) {
        self.spells.retain(|what, _| what.pid != pid);
        self.moved.remove(&pid);
        self.too_high.remove(&pid);
    }
}

/// A loop that may have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Loop {
    pid: u32,
    of: Of,
    code: u16,
}

/// What the loop belongs to within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Thread(u32),
    Reader(u32, Option<i32>),
    Socket(SocketId),
}

/// Calls without effect in an interval.
#[derive(Clone, Copy, Debug)]
struct Round {
    count: u64,
    over_ns: u64,
    /// The rate per second from which on it is a loop.
    least: f64,
}

/// Consecutive rounds at a sufficient rate.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    count: u64,
    over_ns: u64,
    /// Bytes that the process had moved before it began, and since then.
    before: u64,
    moved: u64,
    reported: bool,
}

impl Spell {
    /// No rounds yet, of a process that has moved this many bytes.
    fn after(before: u64) -> Self {
        Self { before, ..Self::default() }
    }

    fn rate(&self) -> f64 {
        figures::per_second(self.count, self.over_ns)
    }

    fn evidence(&self, what: &str) -> BTreeMap<String, Evidence> {
        let mut evidence = figures::evidence([
            ("over_seconds", (self.over_ns as f64 / 1e9).into()),
            ("moved_bytes", self.moved.into()),
        ]);
        evidence.insert(what.to_owned(), self.count.into());
        evidence.insert(format!("{what}_per_second"), self.rate().into());
        evidence
    }
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug)]
struct Subject {
    pid: u32,
    socket: Option<SocketId>,
}

/// The time of a finding, and what is known then.
struct Now<'a> {
    at_ns: u64,
    facts: &'a Facts,
}

impl Now<'_> {
    fn finding(
        &self,
        code: u16,
        subject: Subject,
        (sentence, fix): (String, String),
        evidence: BTreeMap<String, Evidence>,
    ) -> Finding {
        let socket = subject.socket.filter(|id| self.facts.socket(*id).is_some());
        let about = match socket {
            Some(id) => self.facts.about(id, Some(subject.pid)),
            None => self.facts.about_process(subject.pid),
        };
        Finding {
            code: Code(code),
            class: Class::Cpu,
            harmless: false,
            bytes: None,
            at_ns: self.at_ns,
            times: 1,
            sentence: format!("{}: {sentence}.", text::who(&about)),
            about,
            fix,
            heal: None,
            evidence,
        }
    }
}

fn descriptor(fd: Option<i32>) -> String {
    fd.map_or_else(|| "a descriptor".to_owned(), |fd| format!("descriptor {fd}"))
}

/// What `poll(2)` reports for a descriptor that is of no more use.
fn hang_up(ready: u32) -> &'static str {
    if ready & POLLHUP != 0 {
        "is hung up (EPOLLHUP)"
    } else if ready & POLLERR != 0 {
        "has an error (EPOLLERR)"
    } else {
        "has received the peer's FIN (EPOLLRDHUP)"
    }
}
