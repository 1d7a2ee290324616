//! Ends of connections as findings.

use std::collections::BTreeMap;

use lastbyte_core::sample::State;

use super::cause::{
    CLOSING_MESSAGE, Cause, Exit, Hints, LostBytes, Queues, is_closing_message, lost,
};
use crate::event::{Actor, Ending, Role, SocketId};
use crate::facts::{Facts, FinalCounts, KnownSocket};
use crate::finding::{About, Class, Code, Evidence, Finding};
use crate::text::{bytes, count, one_line, time, who};

/// This many resets answered data; fewer may have answered a closing message in one or two packets.
const MANY_RESETS: u64 = 3;
/// The SYN and the FIN count as bytes.
const NOTHING_ASKED: u64 = 2;

/// A judged end.
#[derive(Debug)]
pub(super) struct ConnectionEnd<'a> {
    pub(super) id: SocketId,
    pub(super) known: &'a KnownSocket,
    pub(super) hints: &'a Hints,
    pub(super) cause: Cause,
    /// The bytes that this end wrote and lost.
    pub(super) lost: LostBytes,
    /// The exit of its process, if that closed it.
    pub(super) exit: Option<Exit>,
    /// The code that the other end was reported with.
    pub(super) of_other: Option<Code>,
}

/// What both ends lost, and the class that follows from it.
struct Outcome {
    class: Class,
    harmless: bool,
    bytes: Option<u64>,
    exact: &'static str,
}

impl ConnectionEnd<'_> {
    pub(super) fn finding(&self, facts: &Facts) -> Finding {
        let by = self.exit.as_ref().map(|exit| exit.by).or_else(|| self.by());
        let holds = |by: &Actor| self.known.holders.iter().any(|(pid, _)| *pid == by.pid);
        let about = facts.about(self.id, by.filter(holds).map(|by| by.pid));
        let peer_lost = self.peer_lost(facts);
        let outcome = self.outcome(facts, peer_lost);
        let sentence = self.sentence(facts, &about, peer_lost, outcome.harmless);
        Finding {
            code: self.code(),
            class: outcome.class,
            harmless: outcome.harmless,
            bytes: outcome.bytes,
            at_ns: self.hints.since_ns,
            times: 1,
            about,
            sentence,
            fix: self.fix().to_owned(),
            heal: None,
            evidence: self.evidence(facts, peer_lost, outcome.exact),
        }
    }

    /// Its code: for a reset by the peer, that of the peer's action if known; for an end that
    /// follows an exit, that of the exit.
    fn code(&self) -> Code {
        let follows_exit = matches!(
            self.cause,
            Cause::DataAfterClose
                | Cause::PeerReset
                | Cause::NoAnswer
                | Cause::Memory
                | Cause::Unknown
        );
        if self.exit.is_some() && follows_exit && self.lost != LostBytes::Exactly(0) {
            return Code(102);
        }
        if self.cause == Cause::PeerReset && self.of_other == Some(Cause::DataAfterClose.code()) {
            return Cause::DataAfterClose.code();
        }
        self.cause.code()
    }

    /// The process that ended the connection, or closed it before.
    fn by(&self) -> Option<Actor> {
        let at_end = self.hints.closed.as_ref().filter(|_| self.cause != Cause::PeerReset);
        let sent = self.hints.sent.as_ref().and_then(|reset| reset.by);
        let before = self.known.closed().and_then(|(_, changed)| changed.by);
        sent.or_else(|| at_end.and_then(|changed| changed.by)).or(before)
    }

    /// The peer's bytes that came after our close and were discarded.
    fn peer_lost(&self, facts: &Facts) -> Option<u32> {
        let by_close = matches!(self.cause, Cause::DataAfterClose | Cause::Unread)
            && !self.known.socket.subflow;
        let ours = self.known.final_counts().filter(|_| by_close)?;
        facts.other_end(self.id)?.final_counts()?.missing_at(&ours)
    }

    /// Whether a reset after the close may only have answered the peer's FIN, as happens after the
    /// kernel has destroyed the connection: no data is known to have come or to be lost.
    pub(super) fn is_nothing(&self, facts: &Facts) -> bool {
        let why = self.hints.answered_why.as_deref();
        let is_sure = self.hints.answered_itself
            || matches!(why, Some("TCP_ABORT_ON_DATA" | "TCP_TIMEWAIT_SOCKET"));
        let few = match self.peer_lost(facts) {
            Some(lost) => lost == 0,
            None => self.hints.answered < MANY_RESETS,
        };
        let is_whole = self.lost == LostBytes::Exactly(0) || self.known.socket.subflow;
        self.cause == Cause::DataAfterClose && !is_sure && few && is_whole
    }

    /// Acked bytes that the peer's program never read.
    fn acked_unread(&self, facts: &Facts) -> Option<u32> {
        let of_peer = self.cause == Cause::PeerReset && !self.known.socket.subflow;
        let unread = facts.other_end(self.id).filter(|_| of_peer)?.final_counts()?.unread();
        Some(unread).filter(|unread| *unread > 0)
    }

    /// Whether a client stopped reading a response that it had requested, as `curl | head` does: it
    /// had connected, its own bytes arrived, and it closed with unread input. Nobody waits for the
    /// rest.
    fn is_broken_off(&self, facts: &Facts) -> bool {
        if self.cause != Cause::PeerReset || self.of_other != Some(Cause::Unread.code()) {
            return false;
        }
        let Some(client) = facts.other_end(self.id) else { return false };
        let has_asked = match (client.final_counts(), client.carried) {
            (Some(last), _) => last.counts.bytes_acked > NOTHING_ASKED,
            (None, Some((acked, _))) => u64::from(acked) > NOTHING_ASKED,
            (None, None) => false,
        };
        let by_call = client.changed().is_some_and(|(_, changed)| {
            changed.to == State::Close && changed.by.is_some_and(|by| by.ending.is_none())
        });
        client.socket.role == Role::Connected
            && has_asked
            && by_call
            && lost(facts, client.socket.id, client).most() == Some(0)
    }

    fn outcome(&self, facts: &Facts, peer_lost: Option<u32>) -> Outcome {
        let harmless = |bytes, exact| Outcome { class: Class::Note, harmless: true, bytes, exact };
        let loss = |bytes, exact| Outcome { class: Class::Loss, harmless: false, bytes, exact };
        let (most, exact) = (self.lost.most(), self.lost.word());
        if self.known.socket.subflow {
            // Another subflow may carry what this one loses, and the program's bytes have their own
            // sequence numbers.
            return Outcome { class: Class::Note, harmless: false, bytes: None, exact };
        }
        if self.is_broken_off(facts) {
            return Outcome { class: Class::Note, harmless: false, bytes: most, exact };
        }
        let is_ours =
            most.is_some_and(|most| most > 0) && !is_closing_message(self.lost, self.known);
        if self.cause == Cause::DataAfterClose {
            let all = peer_lost.map(|theirs| u64::from(theirs).saturating_add(most.unwrap_or(0)));
            return match peer_lost {
                Some(0) if !is_ours => harmless(Some(0), "yes"),
                Some(lost) if is_ours || !self.is_unwanted(lost) => loss(all, exact),
                Some(_) => harmless(all, exact),
                None if is_ours => loss(most, exact),
                None if self.hints.answered >= MANY_RESETS => loss(None, "at least"),
                None => harmless(most, "not known"),
            };
        }
        match self.lost {
            // As with ends that are counted and not seen (LB110): most resets by a peer cost
            // nothing.
            LostBytes::Unknown if self.is_abort() => loss(None, exact),
            LostBytes::Unknown => {
                Outcome { class: Class::Note, harmless: false, bytes: None, exact }
            }
            _ if is_ours => loss(most, exact),
            _ => harmless(most, exact),
        }
    }

    /// Whether this end's kernel discarded the bytes in its queues, for a call or for want of
    /// memory.
    fn is_abort(&self) -> bool {
        match self.cause {
            Cause::Unread | Cause::Memory => true,
            Cause::Abort => self.hints.is_counted,
            _ => false,
        }
    }

    /// Whether the bytes that the peer sent after our close were its closing message, or the rest
    /// of a short response that the client no longer wanted. Closing a moment later would have left
    /// them unread, which is harmless too.
    fn is_unwanted(&self, peer_lost: u32) -> bool {
        /// One or two packets on any path: an error page.
        const SHORT_ANSWER: u32 = 2 * 1_460;
        let has_asked = |last: FinalCounts| last.counts.bytes_acked > NOTHING_ASKED;
        let most = match self.known.final_counts().is_some_and(has_asked) {
            true => SHORT_ANSWER,
            false => CLOSING_MESSAGE,
        };
        peer_lost <= most && self.hints.answered < MANY_RESETS
    }

    fn sentence(
        &self,
        facts: &Facts,
        about: &About,
        peer_lost: Option<u32>,
        harmless: bool,
    ) -> String {
        let who = who(about);
        let peer = self.known.socket.peer;
        let ours = self.lost_phrase(harmless);
        let rtt = self.known.final_counts().map_or(0, |last| last.counts.rtt_us);
        let path = if rtt == 0 {
            String::new()
        } else {
            format!(" (round trip {})", time(u64::from(rtt) * 1_000))
        };
        if let (Some(exit), Code(102)) = (&self.exit, self.code()) {
            let after = time(self.hints.since_ns.saturating_sub(exit.at_ns));
            let unacked = bytes(exit.unacked.into());
            let why = self.how_it_was_lost();
            return format!(
                "{who} ended ({}) with {unacked} to {peer} not yet acked, and {after} later {why}: \
                 {ours}.",
                ending(exit.by.ending)
            );
        }
        match self.cause {
            Cause::Unread => format!(
                "{who} {} its connection to {peer} with {} unread, so that the kernel sent a \
                 reset: {ours}{}.",
                self.closed_phrase(),
                self.unread_phrase(),
                self.peers_phrase(peer_lost),
            ),
            Cause::Abort => format!(
                "{} its connection to {peer}, and a reset was sent instead of a FIN: {ours}.",
                self.aborter_phrase(facts, &who)
            ),
            Cause::DataAfterClose => format!(
                "{who} {} its connection to {peer} while the peer was still sending{path}: {}, and \
                 {ours}.",
                self.closed_phrase(),
                thrown_phrase(peer_lost, self.hints.answered)
            ),
            Cause::PeerReset => self.reset_sentence(facts, &who, &ours),
            Cause::NoAnswer => format!(
                "The connection of {who} to {peer} was given up {}: {ours}.",
                self.no_answer_phrase()
            ),
            Cause::Memory => format!(
                "The kernel reset the connection of {who} to {peer}, for want of memory or with \
                 too many orphans (tcp_mem, tcp_max_orphans): {ours}."
            ),
            Cause::Unknown => format!(
                "The connection of {who} to {peer} did not end in order, and how it ended was not \
                 seen: {ours}."
            ),
        }
    }

    fn how_it_was_lost(&self) -> &'static str {
        match self.cause {
            Cause::DataAfterClose => "data came after the close, and was answered with a reset",
            Cause::PeerReset => "the peer reset the connection",
            Cause::Memory => "the kernel gave it up for want of memory",
            Cause::Unknown => "it did not end in order",
            _ => "the kernel gave it up, as no answer came",
        }
    }

    /// What happened to our bytes.
    fn lost_phrase(&self, harmless: bool) -> String {
        match self.lost {
            LostBytes::Exactly(0) => "nothing that it had written was lost".to_owned(),
            LostBytes::Exactly(lost) if harmless => {
                format!(
                    "{} that it wrote after the peer's FIN, a closing message, did not arrive",
                    bytes(lost.into())
                )
            }
            LostBytes::Exactly(lost) => {
                format!("{} that it had written did not arrive", bytes(lost.into()))
            }
            LostBytes::Between(0, most) if harmless => {
                format!(
                    "only {}, as short as a closing message, were in flight",
                    bytes(most.into())
                )
            }
            LostBytes::Between(0, most) => {
                format!("up to {} that it had written may not have arrived", bytes(most.into()))
            }
            LostBytes::Between(least, most) => format!(
                "of what it had written {} to {} did not arrive",
                count(least.into()),
                bytes(most.into())
            ),
            LostBytes::About(0) | LostBytes::AboutMissing(0) => {
                format!("nothing that it had written was unacked {}", self.last_sample())
            }
            LostBytes::AboutMissing(most) => format!(
                "about {} that it had written had not come to the peer {}",
                bytes(most.into()),
                self.last_sample()
            ),
            LostBytes::About(most) => format!(
                "about {} that it had written were not acked {}",
                bytes(most.into()),
                self.last_sample()
            ),
            LostBytes::Unknown if self.known.socket.subflow => {
                "bytes not known: a subflow of MPTCP".to_owned()
            }
            LostBytes::Unknown => "whether bytes were lost cannot be known from here".to_owned(),
        }
    }

    /// The time of the sample that the numbers are from.
    fn last_sample(&self) -> String {
        let age_ns = Queues::of(self.known).map_or(0, |numbers| numbers.age_ns);
        match age_ns / 1_000_000 {
            0 => "at the last sample".to_owned(),
            age_ms => format!("at the last sample, {age_ms} ms before its end"),
        }
    }

    fn closed_phrase(&self) -> String {
        let of_end = self
            .by()
            .and_then(|by| by.ending)
            .or_else(|| self.exit.as_ref().and_then(|exit| exit.by.ending));
        match of_end {
            Some(how) => format!("ended ({}) and so closed", ending(Some(how))),
            None => "closed".to_owned(),
        }
    }

    fn unread_phrase(&self) -> String {
        match Queues::of(self.known).and_then(|numbers| numbers.unread) {
            None | Some(0) => "input".to_owned(),
            Some(unread) => format!("{} of input", bytes(unread.into())),
        }
    }

    /// What the peer loses when this end closes with unread input.
    fn peers_phrase(&self, peer_lost: Option<u32>) -> String {
        let unread = Queues::of(self.known).and_then(|numbers| numbers.unread);
        match (unread, peer_lost) {
            (None | Some(0), _) => String::new(),
            (Some(_), Some(lost)) if lost > 0 => format!(
                "; the peer takes what was unread for delivered, and {} more of it did not arrive",
                bytes(lost.into())
            ),
            (Some(_), _) => "; the peer takes what was unread for delivered".to_owned(),
        }
    }

    fn aborter_phrase(&self, facts: &Facts, who: &str) -> String {
        let by = self.by();
        let is_holder = |by: &Actor| self.known.holders.iter().any(|(pid, _)| *pid == by.pid);
        match by {
            Some(by) if !self.known.holders.is_empty() && !is_holder(&by) => {
                format!("{} destroyed for {who}", crate::text::who(&facts.about_process(by.pid)))
            }
            _ => format!("{who} aborted"),
        }
    }

    fn reset_sentence(&self, facts: &Facts, who: &str, ours: &str) -> String {
        let peer = self.known.socket.peer;
        let other = facts.other_end(self.id);
        let name =
            other.map(|other| one_line(&crate::text::who(&facts.about(other.socket.id, None))));
        let why = match (self.of_other, self.known.fin_received()) {
            (Some(Code(101)), _) => ", which closed with unread input".to_owned(),
            (Some(Code(103)), _) => ", which aborted it".to_owned(),
            (Some(Code(104)), _) => ", which had closed while bytes were on their way".to_owned(),
            (_, Some((at_ns, _))) => {
                let before = time(self.hints.since_ns.saturating_sub(at_ns));
                format!(", whose FIN had come {before} before")
            }
            _ => String::new(),
        };
        let peer =
            name.map_or_else(|| format!("the peer {peer}"), |name| format!("{name} at {peer}"));
        let unread = self.acked_unread(facts).map(|unread| {
            format!(", and {} that had arrived were never read", bytes(unread.into()))
        });
        let unread = unread.unwrap_or_default();
        let broken_off = match self.is_broken_off(facts) {
            true => "; it had connected and sent a request, and stopped reading the response",
            false => "",
        };
        format!("The connection of {who} was reset by {peer}{why}: {ours}{unread}{broken_off}.")
    }

    fn no_answer_phrase(&self) -> String {
        let since = self.known.final_counts().map_or(self.hints.since_ns, |last| last.at_ns);
        let open_ns = self.known.closed().map(|(at_ns, _)| since.saturating_sub(*at_ns));
        let why = match self.hints.errno {
            100 | 101 | 112 | 113 => "as no route led to the peer any more",
            _ => "as the peer did not answer",
        };
        match open_ns {
            Some(ns) if ns > 0 => format!("{} after it was closed, {why}", time(ns)),
            _ => why.to_owned(),
        }
    }

    fn fix(&self) -> &'static str {
        match (self.cause, self.code()) {
            (_, Code(102)) => {
                "Before exiting shut down writing and wait until all is acked \
                 (`lastbyte::finish_fd` does), and give a program time to end before it is killed."
            }
            (Cause::Unread, _) => {
                "Shut down writing, read to the peer's end, then close (`lastbyte::finish_fd` \
                 does); before a program that cannot be changed put `lastbyte gate`."
            }
            (Cause::Abort, _) => {
                "Do not set SO_LINGER to 0 s on a connection whose bytes matter; close it in \
                 order, and only when all is acked."
            }
            (Cause::DataAfterClose, _) | (Cause::PeerReset, Code(104)) => {
                "The receiver must read to the sender's end before it closes; the sender must shut \
                 down writing and wait for the receiver's end or answer before it counts bytes as \
                 delivered."
            }
            (Cause::PeerReset, _) => {
                "Look at the peer: it closed with unread input, aborted, or was killed; until that \
                 is fixed, count as delivered only what the peer's program has confirmed."
            }
            (Cause::NoAnswer, _) => {
                "Look at the path and the peer; a program that must know asks for a confirmation, \
                 and TCP_USER_TIMEOUT limits how long the kernel retries."
            }
            (Cause::Memory, _) => {
                "Raise net.ipv4.tcp_max_orphans or net.ipv4.tcp_mem, or have programs wait for \
                 their acks before they close."
            }
            (Cause::Unknown, _) => {
                "Run as root for the cause: with eBPF, or else the kernel's tracepoints, each \
                 close is seen with its process and its bytes."
            }
        }
    }

    fn evidence(
        &self,
        facts: &Facts,
        peer_lost: Option<u32>,
        exact: &str,
    ) -> BTreeMap<String, Evidence> {
        let mut evidence = Table::default();
        evidence.put("exact", Some(exact));
        let numbers = Queues::of(self.known);
        evidence.put("unacked_bytes", numbers.map(|numbers| numbers.unacked));
        evidence.put("unsent_bytes", numbers.and_then(|numbers| numbers.unsent));
        evidence.put("unread_bytes", numbers.and_then(|numbers| numbers.unread));
        let age_ns = numbers.map(|numbers| numbers.age_ns).filter(|age_ns| *age_ns > 1);
        evidence.put("numbers_age_ms", age_ns.map(milliseconds));
        let lost = matches!(self.lost, LostBytes::Exactly(_)).then(|| self.lost.most()).flatten();
        evidence.put("lost_bytes", lost);
        evidence.put("peer_lost_bytes", peer_lost);
        evidence.put("acked_unread_bytes", self.acked_unread(facts));
        let sent = self.hints.sent.as_ref().and_then(|reset| reset.reason.as_deref());
        let answered = self.hints.answered_why.as_deref();
        evidence.put("reset_reason", sent.or(answered));
        evidence.put("resets_sent", Some(self.hints.answered).filter(|resets| *resets > 0));
        let closed = self.known.closed().map(|(at_ns, _)| *at_ns);
        let after = closed.filter(|_| self.cause == Cause::DataAfterClose || self.exit.is_some());
        let after = after.map(|at_ns| milliseconds(self.hints.since_ns.saturating_sub(at_ns)));
        evidence.put("after_close_ms", after);
        let peers_end = self.known.fin_received().filter(|_| self.cause == Cause::PeerReset);
        let before = peers_end.map(|(at_ns, _)| self.hints.since_ns.saturating_sub(at_ns));
        evidence.put("peer_ended_before_ms", before.map(milliseconds));
        evidence.put("errno", u32::try_from(self.hints.errno).ok().filter(|errno| *errno > 0));
        evidence.put_ending(self.by().and_then(|by| by.ending));
        evidence.0
    }
}

/// What happened to bytes of the peer that came after the close.
fn thrown_phrase(peer_lost: Option<u32>, resets: u64) -> String {
    match peer_lost {
        Some(0) => "nothing from the peer was lost".to_owned(),
        Some(lost) => format!("{} from the peer were discarded", bytes(lost.into())),
        None => {
            let times =
                if resets == 1 { "once".to_owned() } else { format!("{} times", count(resets)) };
            format!("what came then was discarded and answered with a reset, {times}")
        }
    }
}

/// The bytes left at an exit were acked after all.
pub(super) fn delivered(facts: &Facts, id: SocketId, exit: &Exit, at_ns: u64) -> Option<Finding> {
    let took = at_ns.saturating_sub(exit.at_ns);
    let words = format!("all were acked {} later", time(took));
    let mut finding = of_exit(facts, id, exit, &words)?;
    finding.harmless = true;
    finding.bytes = Some(0);
    finding.evidence.insert("exact".to_owned(), "yes".into());
    finding.evidence.insert("delivered_after_ms".to_owned(), milliseconds(took).into());
    Some(finding)
}

/// The observation ended while bytes left at an exit were still unacked.
pub(super) fn still_open(facts: &Facts, id: SocketId, exit: &Exit) -> Option<Finding> {
    let known = facts.socket(id)?;
    let reported = known.counts.map(|(at_ns, counts)| (at_ns, counts.unacked()));
    let sampled = known.sample.as_ref().map(|(at_ns, sample)| (*at_ns, sample.send_queue));
    // Since the exit our FIN is queued too.
    let newest = reported.max(sampled).filter(|(at_ns, _)| *at_ns > exit.at_ns);
    let left = newest.map_or(exit.unacked, |(_, unacked)| unacked.saturating_sub(1));
    let words =
        format!("what became of them is not known yet: {} are still unacked", bytes(left.into()));
    let mut finding = of_exit(facts, id, exit, &words)?;
    finding.bytes = Some(left.into());
    finding.evidence.insert("exact".to_owned(), "at most".into());
    finding.evidence.insert("still_unacked_bytes".to_owned(), left.into());
    Some(finding)
}

fn of_exit(facts: &Facts, id: SocketId, exit: &Exit, words: &str) -> Option<Finding> {
    let known = facts.socket(id)?;
    let about = facts.about(id, Some(exit.by.pid));
    let mut evidence = Table::default();
    evidence.put("unacked_bytes", Some(exit.unacked));
    evidence.put_ending(exit.by.ending);
    Some(Finding {
        code: Code(102),
        class: Class::Note,
        harmless: false,
        bytes: None,
        at_ns: exit.at_ns,
        times: 1,
        sentence: format!(
            "{} ended ({}) with {} to {} not yet acked; {words}.",
            who(&about),
            ending(exit.by.ending),
            bytes(exit.unacked.into()),
            known.socket.peer
        ),
        about,
        fix: "Before exiting shut down writing and wait until all is acked: `lastbyte::finish_fd` \
             does."
            .to_owned(),
        heal: None,
        evidence: evidence.0,
    })
}

fn ending(ending: Option<Ending>) -> String {
    match ending {
        Some(Ending::Exit(code)) => format!("exit code {code}"),
        Some(Ending::Signal(signal)) => format!("signal {signal}"),
        Some(Ending::Unknown) | None => "how is not known".to_owned(),
    }
}

fn milliseconds(ns: u64) -> f64 {
    (ns / 1_000) as f64 / 1_000.0
}

/// Evidence, without unknown values.
#[derive(Debug, Default)]
struct Table(BTreeMap<String, Evidence>);

impl Table {
    fn put(&mut self, name: &str, value: Option<impl Into<Evidence>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    fn put_ending(&mut self, ending: Option<Ending>) {
        match ending {
            Some(Ending::Exit(code)) => self.put("exit_code", Some(f64::from(code))),
            Some(Ending::Signal(signal)) => self.put("signal", u32::try_from(signal).ok()),
            Some(Ending::Unknown) | None => {}
        }
    }
}
