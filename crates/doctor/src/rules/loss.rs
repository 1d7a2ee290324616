//! Bytes that did not arrive: LB101 to LB110.
//!
//! All but two are about how a connection ended: one rule, [`ConnectionEnds`], collects the
//! evidence of an end and gives it one code.

mod cause;
mod counters;
mod half_close;
mod report;
#[cfg(test)]
mod tests;
mod unix;

use std::collections::{BTreeMap, VecDeque};

use lastbyte_core::sample::State;

use self::cause::{Cause, Exit, Hints, LostBytes, lost};
use self::counters::CounterGrowth;
use super::Rule;
use crate::event::{Changed, Event, ResetSent, SocketId, Tier, What};
use crate::facts::{Facts, KnownSocket};
use crate::finding::{Code, Finding};

/// The rules of class loss.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![
        Box::<ConnectionEnds>::default(),
        Box::<half_close::HalfClose>::default(),
        Box::<unix::Unread>::default(),
    ]
}

/// How long the rule waits for more evidence after the first sign of a bad end. The events of one
/// end come within microseconds; values from tables, scanned ten times a second, come within this
/// time.
const SETTLE_NS: u64 = 200_000_000;
/// How long the rule waits for the other end's events, if that end is also on this machine: a round
/// trip of any emulated path, and some retransmissions.
const OTHER_END_NS: u64 = 2_000_000_000;
/// Limit on ends that wait for evidence. Beyond it, all are judged at once by what is known.
const MAX_OPEN: usize = 20_000;
/// Limit on exits that are followed, and on explained ends that are remembered.
const MAX_FOLLOWED: usize = 50_000;

/// The rule about how connections end.
#[derive(Debug, Default)]
struct ConnectionEnds {
    /// Bad ends, by socket, until they are judged.
    open: BTreeMap<SocketId, Hints>,
    /// Sockets whose process exited with unacked bytes in them.
    exits: BTreeMap<SocketId, Exit>,
    /// Exits with an unknown number of unacked bytes: the next scan may show it.
    left: BTreeMap<SocketId, Exit>,
    /// The code that each end was reported with: it is reported once.
    explained: BTreeMap<SocketId, Code>,
    explained_first: VecDeque<SocketId>,
    /// Counters of namespaces that grew, used if nothing better is known.
    grown: CounterGrowth,
}

impl Rule for ConnectionEnds {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        let at_ns = event.at_ns;
        match &event.what {
            What::Changed(changed) => self.on_change(at_ns, changed, facts, found),
            What::ResetSent(reset) => self.on_reset_sent(at_ns, reset, facts),
            What::ResetReceived { socket, .. } if is_connection(facts, *socket) => {
                if let Some(hints) = self.open(at_ns, *socket) {
                    hints.received = true;
                }
            }
            What::Failed { socket, errno } => {
                if let Some(hints) = self.open.get_mut(socket) {
                    hints.errno = *errno;
                }
            }
            What::Sample(sample) => {
                let shown =
                    self.left.get(&sample.socket).and_then(|exit| exit.clone().shown(sample));
                if let Some(exit) = shown {
                    self.left.remove(&sample.socket);
                    self.follow(sample.socket, exit);
                }
            }
            What::Gone { socket, .. } => self.on_gone(at_ns, *socket, facts, found),
            What::Counters(counters) => self.grown.add(at_ns, counters),
            What::Tick => self.judge(facts, false, found),
            _ => {}
        }
        if self.open.len() > MAX_OPEN {
            self.judge(facts, true, found);
        }
    }

    fn at_end(&mut self, facts: &Facts, found: &mut Vec<Finding>) {
        self.judge(facts, true, found);
        for (id, exit) in std::mem::take(&mut self.exits) {
            if facts.socket_in_scope(id) {
                found.extend(report::still_open(facts, id, &exit));
            }
        }
        found.extend(self.grown.left(facts));
    }
}

impl ConnectionEnds {
    fn on_change(
        &mut self,
        at_ns: u64,
        changed: &Changed,
        facts: &Facts,
        found: &mut Vec<Finding>,
    ) {
        let id = changed.socket;
        let Some(known) = facts.socket(id) else { return };
        match changed.to {
            State::SynSent => self.forget(id),
            State::FinWait1 | State::LastAck => {
                if let Some(exit) = Exit::of(at_ns, changed, facts) {
                    self.follow(id, exit);
                }
            }
            State::FinWait2 | State::TimeWait => self.delivered(at_ns, id, facts, found),
            State::Close => match self.is_bad_end(changed, known) {
                true => {
                    if let Some(hints) = self.open(at_ns, id) {
                        hints.closed = Some(changed.clone());
                        if changed.errno != 0 {
                            hints.errno = changed.errno;
                        }
                    }
                }
                false => self.delivered(at_ns, id, facts, found),
            },
            _ => {}
        }
    }

    /// Whether a change to CLOSED was not an orderly end, with both FINs sent and acked.
    fn is_bad_end(&self, changed: &Changed, known: &KnownSocket) -> bool {
        if changed.errno != 0 || self.open.contains_key(&changed.socket) {
            return is_synchronized(changed.from);
        }
        let has_left = known.final_counts().is_some_and(|last| last.unacked() > 0);
        match changed.from {
            State::Established | State::CloseWait => true,
            State::FinWait1 => has_left || known.final_counts().is_none(),
            State::FinWait2 | State::Closing | State::LastAck | State::TimeWait => has_left,
            _ => false,
        }
    }

    fn on_reset_sent(&mut self, at_ns: u64, reset: &ResetSent, facts: &Facts) {
        // A packet for a destroyed connection may reach a socket that listens on its port.
        let listens = |id: &SocketId| facts.socket(*id).is_some_and(KnownSocket::listens);
        let socket = reset.socket.filter(|id| !listens(id));
        let named = || facts.socket_at(reset.local, reset.peer);
        let Some(id) = socket.or_else(named) else { return };
        let Some(known) = facts.socket(id) else { return };
        let reason = reset.reason.as_deref();
        if cause::answers_data(reason, reset.active, known) {
            if let Some(hints) = self.open(at_ns, id) {
                hints.answered = hints.answered.saturating_add(1);
                hints.answered_why = hints.answered_why.take().or_else(|| reset.reason.clone());
                hints.answered_itself |= socket.is_some() && reason.is_none();
            }
        } else if socket.is_some() && cause::aborts(reason, reset.active) {
            if !is_connection(facts, id) && !self.open.contains_key(&id) {
                return;
            }
            if let Some(hints) = self.open(at_ns, id) {
                hints.sent.get_or_insert_with(|| reset.clone());
            }
        }
    }

    fn on_gone(&mut self, at_ns: u64, id: SocketId, facts: &Facts, found: &mut Vec<Finding>) {
        let Some(known) = facts.socket(id) else { return };
        let left = match (&known.counts, &known.sample) {
            (Some((_, counts)), _) => Some(counts.unacked()),
            // The last sample of a destroyed socket.
            (None, Some((_, sample))) if sample.state == State::Close => Some(sample.send_queue),
            _ => None,
        };
        let is_open = self.open.contains_key(&id);
        if !is_open && left.is_some_and(|left| left <= known.fin_sent.into()) {
            self.delivered(at_ns, id, facts, found);
        }
        let was_connected = known.socket.peer.port() != 0 && known.state != Some(State::SynSent);
        if facts.tier() == Tier::Procfs && was_connected {
            // Tables show no change to CLOSED, only that a socket has disappeared.
            let _ = self.open(at_ns, id);
        }
    }

    /// A process exited with unacked bytes in a socket, as far as known.
    fn follow(&mut self, id: SocketId, exit: Exit) {
        let exits = if exit.unacked > 0 { &mut self.exits } else { &mut self.left };
        if exits.len() < MAX_FOLLOWED {
            exits.insert(id, exit);
        }
    }

    /// The evidence of a bad end; `None` if this end was already explained.
    fn open(&mut self, at_ns: u64, id: SocketId) -> Option<&mut Hints> {
        if self.explained.contains_key(&id) {
            return None;
        }
        Some(self.open.entry(id).or_insert_with(|| Hints { since_ns: at_ns, ..Hints::default() }))
    }

    /// The bytes that a process left at its exit were acked.
    fn delivered(&mut self, at_ns: u64, id: SocketId, facts: &Facts, found: &mut Vec<Finding>) {
        self.left.remove(&id);
        if let Some(exit) = self.exits.remove(&id)
            && facts.socket_in_scope(id)
        {
            found.extend(report::delivered(facts, id, &exit, at_ns));
        }
    }

    fn forget(&mut self, id: SocketId) {
        self.open.remove(&id);
        self.exits.remove(&id);
        self.left.remove(&id);
        self.explained.remove(&id);
    }

    /// Gives a code to all ends about which enough is known, oldest first.
    fn judge(&mut self, facts: &Facts, at_once: bool, found: &mut Vec<Finding>) {
        let is_due = |(id, hints): &(&SocketId, &Hints)| at_once || hints.is_due(facts, **id);
        let mut due: Vec<(u64, SocketId)> =
            self.open.iter().filter(is_due).map(|(id, hints)| (hints.since_ns, *id)).collect();
        due.sort_unstable();
        // Causes first: the report of one end depends on what the other end did.
        let causes: Vec<Option<Cause>> = due.iter().map(|(_, id)| self.cause(facts, *id)).collect();
        for ((_, id), cause) in due.iter().zip(&causes) {
            if let Some(cause) = cause {
                self.explain(*id, cause.code());
            }
        }
        for ((_, id), cause) in due.into_iter().zip(causes) {
            if let Some(hints) = self.open.remove(&id) {
                found.extend(self.report(facts, id, &hints, cause));
            }
        }
        self.exits.retain(|id, _| facts.socket(*id).is_some());
        self.left.retain(|id, _| facts.socket(*id).is_some());
    }

    fn cause(&mut self, facts: &Facts, id: SocketId) -> Option<Cause> {
        let hints = self.open.get(&id)?;
        let known = facts.socket(id)?;
        if hints.is_attempt(known) {
            return None;
        }
        let cause = hints.cause(known).or_else(|| self.grown.cause(known, facts.other_end(id)))?;
        if hints.needs_counters(facts, known) {
            let is_counted = self.grown.counts_abort(facts, known);
            if let Some(hints) = self.open.get_mut(&id) {
                hints.is_counted = is_counted;
            }
            if !is_counted {
                // The counter of resets still includes it.
                self.grown.explain(facts, known, Cause::PeerReset);
                return Some(cause);
            }
        }
        // An end that is not reported here must not count as explained.
        if facts.socket_in_scope(id) || is_somebodys(facts, id) {
            self.grown.explain(facts, known, cause);
        }
        Some(cause)
    }

    /// The finding for a judged end, if it is in scope and not part of the other end's finding.
    fn report(
        &mut self,
        facts: &Facts,
        id: SocketId,
        hints: &Hints,
        cause: Option<Cause>,
    ) -> Option<Finding> {
        let exit = self.exits.remove(&id);
        let (cause, known) = (cause?, facts.socket(id)?);
        if !facts.socket_in_scope(id) {
            return None;
        }
        let lost = lost(facts, id, known);
        let other = facts.other_end(id).map(|other| other.socket.id);
        let of_other = other.and_then(|other| self.explained.get(&other).copied());
        if cause == Cause::PeerReset && other.is_some_and(|other| facts.socket_in_scope(other)) {
            // The other end is the cause. Its finding includes our bytes, or is as harmless as this
            // one.
            let has_our_bytes = of_other == Some(Cause::DataAfterClose.code());
            if has_our_bytes || (of_other.is_some() && lost == LostBytes::Exactly(0)) {
                return None;
            }
        }
        let end = report::ConnectionEnd { id, known, hints, cause, lost, exit, of_other };
        if end.is_nothing(facts) {
            return None;
        }
        let finding = end.finding(facts);
        self.explain(id, finding.code);
        Some(finding)
    }

    fn explain(&mut self, id: SocketId, code: Code) {
        if self.explained.insert(id, code).is_none() {
            self.explained_first.push_back(id);
        }
        if self.explained_first.len() > MAX_FOLLOWED
            && let Some(first) = self.explained_first.pop_front()
        {
            self.explained.remove(&first);
        }
    }
}

/// Whether a process is known to hold or have held one end of a connection.
fn is_somebodys(facts: &Facts, id: SocketId) -> bool {
    let is_held = |known: &KnownSocket| !known.holders.is_empty();
    facts.socket(id).is_some_and(is_held) || facts.other_end(id).is_some_and(is_held)
}

/// Whether a socket is past its handshake, or was when it ended; also if its state is unknown.
fn is_connection(facts: &Facts, id: SocketId) -> bool {
    let Some(known) = facts.socket(id) else { return false };
    let before = known.changed().map(|(_, changed)| changed.from);
    match known.state {
        Some(State::Close) => before.is_some_and(is_synchronized),
        state => state.is_none_or(is_synchronized),
    }
}

/// The states after the handshake (RFC 9293 section 3.5.3, "synchronized").
fn is_synchronized(state: State) -> bool {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, TimeWait};
    matches!(state, Established | CloseWait | Closing | FinWait1 | FinWait2 | LastAck | TimeWait)
}
