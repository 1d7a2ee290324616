//! Bytes that did not arrive: LB101 to LB110.
//!
//! All but two of them are about how a connection ended, so that one rule hears the evidence of an end
//! ([`Ends`]), and gives it one name.

mod end;
mod grown;
mod half_close;
mod tell;
#[cfg(test)]
mod tests;
mod unix;

use std::collections::{BTreeMap, VecDeque};

use lastbyte_core::sample::State;

use self::end::{Cause, Exit, Hints, Lost, lost};
use self::grown::Grown;
use super::Rule;
use crate::book::{Book, Known};
use crate::event::{Changed, Event, ResetSent, SocketId, Tier, What};
use crate::finding::{Code, Finding};

/// The rules of class loss.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![
        Box::<Ends>::default(),
        Box::<half_close::HalfClose>::default(),
        Box::<unix::Unread>::default(),
    ]
}

/// So long after the first sign of a bad end more evidence is waited for: the parts of one end are told
/// within microseconds, and what is read from tables ten times a second within this.
const SETTLE_NS: u64 = 200_000_000;
/// So long the other end's story is waited for, where that end is on this machine too: a round trip of
/// any path that is emulated here, and some repetitions.
const OTHER_END_NS: u64 = 2_000_000_000;
/// So many ends wait for evidence at most. A further one is judged by what is known at once.
const MOST_OPEN: usize = 20_000;
/// So many exits are followed at most, and so many names of explained ends are kept.
const MOST_FOLLOWED: usize = 50_000;

/// How connections end.
#[derive(Debug, Default)]
struct Ends {
    /// Bad ends, by socket, until they are judged.
    open: BTreeMap<SocketId, Hints>,
    /// Sockets that a process left by ending, with bytes not acked.
    exits: BTreeMap<SocketId, Exit>,
    /// Such of which it is not known how many bytes there were: the next look may show it.
    left: BTreeMap<SocketId, Exit>,
    /// What was said of an end: it is said once.
    explained: BTreeMap<SocketId, Code>,
    explained_first: VecDeque<SocketId>,
    /// Counters of namespaces that grew, for where nothing better is known.
    grown: Grown,
}

impl Rule for Ends {
    fn on(&mut self, event: &Event, book: &Book, found: &mut Vec<Finding>) {
        let at_ns = event.at_ns;
        match &event.what {
            What::Changed(changed) => self.on_change(at_ns, changed, book, found),
            What::ResetSent(reset) => self.on_reset_sent(at_ns, reset, book),
            What::ResetReceived { socket, .. } if is_connection(book, *socket) => {
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
            What::Gone { socket, .. } => self.on_gone(at_ns, *socket, book, found),
            What::Counters(counters) => self.grown.add(at_ns, counters),
            What::Tick => self.judge(book, false, found),
            _ => {}
        }
        if self.open.len() > MOST_OPEN {
            self.judge(book, true, found);
        }
    }

    fn at_end(&mut self, book: &Book, found: &mut Vec<Finding>) {
        self.judge(book, true, found);
        for (id, exit) in std::mem::take(&mut self.exits) {
            if book.wants_socket(id) {
                found.extend(tell::still_open(book, id, &exit));
            }
        }
        found.extend(self.grown.left(book));
    }
}

impl Ends {
    fn on_change(&mut self, at_ns: u64, changed: &Changed, book: &Book, found: &mut Vec<Finding>) {
        let id = changed.socket;
        let Some(known) = book.socket(id) else { return };
        match changed.to {
            State::SynSent => self.forget(id),
            State::FinWait1 | State::LastAck => {
                if let Some(exit) = Exit::of(at_ns, changed, book) {
                    self.follow(id, exit);
                }
            }
            State::FinWait2 | State::TimeWait => self.delivered(at_ns, id, book, found),
            State::Close => match self.is_bad_end(changed, known) {
                true => {
                    if let Some(hints) = self.open(at_ns, id) {
                        hints.closed = Some(changed.clone());
                        if changed.errno != 0 {
                            hints.errno = changed.errno;
                        }
                    }
                }
                false => self.delivered(at_ns, id, book, found),
            },
            _ => {}
        }
    }

    /// Whether a change to CLOSED was anything but the orderly end: both FINs sent and acked.
    fn is_bad_end(&self, changed: &Changed, known: &Known) -> bool {
        if changed.errno != 0 || self.open.contains_key(&changed.socket) {
            return is_synchronized(changed.from);
        }
        let has_left = known.last().is_some_and(|last| last.unacked() > 0);
        match changed.from {
            State::Established | State::CloseWait => true,
            State::FinWait1 => has_left || known.last().is_none(),
            State::FinWait2 | State::Closing | State::LastAck | State::TimeWait => has_left,
            _ => false,
        }
    }

    fn on_reset_sent(&mut self, at_ns: u64, reset: &ResetSent, book: &Book) {
        // What meets no connection any more may meet a socket that listens at its port.
        let listens = |id: &SocketId| book.socket(*id).is_some_and(Known::listens);
        let socket = reset.socket.filter(|id| !listens(id));
        let named = || book.socket_at(reset.local, reset.peer);
        let Some(id) = socket.or_else(named) else { return };
        let Some(known) = book.socket(id) else { return };
        let reason = reset.reason.as_deref();
        if end::answers_data(reason, reset.active, known) {
            if let Some(hints) = self.open(at_ns, id) {
                hints.answered = hints.answered.saturating_add(1);
                hints.answered_why = hints.answered_why.take().or_else(|| reset.reason.clone());
                hints.answered_itself |= socket.is_some() && reason.is_none();
            }
        } else if socket.is_some() && end::aborts(reason, reset.active) {
            if !is_connection(book, id) && !self.open.contains_key(&id) {
                return;
            }
            if let Some(hints) = self.open(at_ns, id) {
                hints.sent.get_or_insert_with(|| reset.clone());
            }
        }
    }

    fn on_gone(&mut self, at_ns: u64, id: SocketId, book: &Book, found: &mut Vec<Finding>) {
        let Some(known) = book.socket(id) else { return };
        let left = match (&known.counts, &known.sample) {
            (Some((_, counts)), _) => Some(counts.unacked()),
            // The last look at a socket that was destroyed.
            (None, Some((_, sample))) if sample.state == State::Close => Some(sample.send_queue),
            _ => None,
        };
        let is_open = self.open.contains_key(&id);
        if !is_open && left.is_some_and(|left| left <= known.fin_sent.into()) {
            self.delivered(at_ns, id, book, found);
        }
        let was_connected = known.socket.peer.port() != 0 && known.state != Some(State::SynSent);
        if book.tier() == Tier::Procfs && was_connected {
            // Tables show no change to CLOSED, only that a socket is not there any more.
            let _ = self.open(at_ns, id);
        }
    }

    /// A process left a socket by ending, with bytes not acked, as far as is known.
    fn follow(&mut self, id: SocketId, exit: Exit) {
        let exits = if exit.unacked > 0 { &mut self.exits } else { &mut self.left };
        if exits.len() < MOST_FOLLOWED {
            exits.insert(id, exit);
        }
    }

    /// The evidence of a bad end; `None` where this end was explained before.
    fn open(&mut self, at_ns: u64, id: SocketId) -> Option<&mut Hints> {
        if self.explained.contains_key(&id) {
            return None;
        }
        Some(self.open.entry(id).or_insert_with(|| Hints { since_ns: at_ns, ..Hints::default() }))
    }

    /// What a process left by ending has been acked.
    fn delivered(&mut self, at_ns: u64, id: SocketId, book: &Book, found: &mut Vec<Finding>) {
        self.left.remove(&id);
        if let Some(exit) = self.exits.remove(&id)
            && book.wants_socket(id)
        {
            found.extend(tell::delivered(book, id, &exit, at_ns));
        }
    }

    fn forget(&mut self, id: SocketId) {
        self.open.remove(&id);
        self.exits.remove(&id);
        self.left.remove(&id);
        self.explained.remove(&id);
    }

    /// Gives their names to all ends of which enough is known, the first first.
    fn judge(&mut self, book: &Book, at_once: bool, found: &mut Vec<Finding>) {
        let is_due = |(id, hints): &(&SocketId, &Hints)| at_once || hints.is_due(book, **id);
        let mut due: Vec<(u64, SocketId)> =
            self.open.iter().filter(is_due).map(|(id, hints)| (hints.since_ns, *id)).collect();
        due.sort_unstable();
        // The causes first: how one end is told depends on what the other did.
        let causes: Vec<Option<Cause>> = due.iter().map(|(_, id)| self.cause(book, *id)).collect();
        for ((_, id), cause) in due.iter().zip(&causes) {
            if let Some(cause) = cause {
                self.explain(*id, cause.code());
            }
        }
        for ((_, id), cause) in due.into_iter().zip(causes) {
            if let Some(hints) = self.open.remove(&id) {
                found.extend(self.tell(book, id, &hints, cause));
            }
        }
        self.exits.retain(|id, _| book.socket(*id).is_some());
        self.left.retain(|id, _| book.socket(*id).is_some());
    }

    fn cause(&mut self, book: &Book, id: SocketId) -> Option<Cause> {
        let hints = self.open.get(&id)?;
        let known = book.socket(id)?;
        if hints.is_attempt(known) {
            return None;
        }
        let cause = hints.cause(known).or_else(|| self.grown.cause(known, book.other_end(id)))?;
        if hints.needs_counters(book, known) {
            let is_counted = self.grown.counts_abort(book, known);
            if let Some(hints) = self.open.get_mut(&id) {
                hints.is_counted = is_counted;
            }
            if !is_counted {
                // As a reset it is counted all the same.
                self.grown.explain(book, known, Cause::PeerReset);
                return Some(cause);
            }
        }
        // What nobody is told of here must not be taken for explained.
        if book.wants_socket(id) || is_somebodys(book, id) {
            self.grown.explain(book, known, cause);
        }
        Some(cause)
    }

    /// The finding of a judged end, if it is asked for and not told with the other end's.
    fn tell(
        &mut self,
        book: &Book,
        id: SocketId,
        hints: &Hints,
        cause: Option<Cause>,
    ) -> Option<Finding> {
        let exit = self.exits.remove(&id);
        let (cause, known) = (cause?, book.socket(id)?);
        if !book.wants_socket(id) {
            return None;
        }
        let lost = lost(book, id, known);
        let other = book.other_end(id).map(|other| other.socket.id);
        let of_other = other.and_then(|other| self.explained.get(&other).copied());
        if cause == Cause::PeerReset && other.is_some_and(|other| book.wants_socket(other)) {
            // The cause is the other end's, and is told there, with our bytes or as harmless as here.
            let has_our_bytes = of_other == Some(Cause::DataAfterClose.code());
            if has_our_bytes || (of_other.is_some() && lost == Lost::Exactly(0)) {
                return None;
            }
        }
        let end = tell::End { id, known, hints, cause, lost, exit, of_other };
        if end.is_nothing(book) {
            return None;
        }
        let finding = end.finding(book);
        self.explain(id, finding.code);
        Some(finding)
    }

    fn explain(&mut self, id: SocketId, code: Code) {
        if self.explained.insert(id, code).is_none() {
            self.explained_first.push_back(id);
        }
        if self.explained_first.len() > MOST_FOLLOWED
            && let Some(first) = self.explained_first.pop_front()
        {
            self.explained.remove(&first);
        }
    }
}

/// Whether a process is known to hold or have held one end of a connection.
fn is_somebodys(book: &Book, id: SocketId) -> bool {
    let is_held = |known: &Known| !known.holders.is_empty();
    book.socket(id).is_some_and(is_held) || book.other_end(id).is_some_and(is_held)
}

/// Whether a socket is, or was when it ended, past its handshake; also where nothing is known of it.
fn is_connection(book: &Book, id: SocketId) -> bool {
    let Some(known) = book.socket(id) else { return false };
    let before = known.changed().map(|(_, changed)| changed.from);
    match known.state {
        Some(State::Close) => before.is_some_and(is_synchronized),
        state => state.is_none_or(is_synchronized),
    }
}

/// The states after the handshake, until all is over (RFC 9293 section 3.5.3).
fn is_synchronized(state: State) -> bool {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, TimeWait};
    matches!(state, Established | CloseWait | Closing | FinWait1 | FinWait2 | LastAck | TimeWait)
}
