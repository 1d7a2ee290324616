//! LB106: a half-close that is not answered.

use std::collections::BTreeMap;

use lastbyte_core::sample::State;

use crate::event::{Event, Scope, SocketId, What};
use crate::facts::{Facts, KnownSocket};
use crate::finding::{Class, Code, Finding};
use crate::rules::Rule;
use crate::text::{time, who};

/// A half-close is reported after this time without a byte or FIN from the peer.
const UNANSWERED_NS: u64 = 10_000_000_000;
/// This time is enough when the observation of a program ends, or the program closes the socket: no
/// answer can come later.
const UNANSWERED_AT_END_NS: u64 = 5_000_000_000;
/// Limit on half-closed sockets.
const MOST: usize = 50_000;

/// LB106.
#[derive(Debug, Default)]
pub(super) struct HalfClose {
    /// Half-closed sockets without an answer.
    waiting: BTreeMap<SocketId, Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    half_closed_ns: u64,
    quiet_since_ns: u64,
    received: Option<u64>,
    /// Whether the peer's kernel has acked the FIN.
    is_acked: bool,
    /// Whether a later scan showed it still open.
    was_held: bool,
    reported: bool,
}

impl Rule for HalfClose {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        match &event.what {
            What::Changed(changed) => match changed.to {
                State::FinWait1 | State::FinWait2 => {
                    self.begin(event.at_ns, changed.socket, facts);
                    if let Some(waiting) = self.waiting.get_mut(&changed.socket) {
                        waiting.is_acked |= changed.to == State::FinWait2;
                    }
                }
                State::Close if changed.errno == 0 => self.end(changed.socket, facts, found),
                _ => drop(self.waiting.remove(&changed.socket)),
            },
            What::Sample(sample) if is_half_closed(sample.state) => {
                self.begin(event.at_ns, sample.socket, facts);
                let received = sample.info.parse().and_then(|info| info.bytes_received);
                let Some(waiting) = self.waiting.get_mut(&sample.socket) else { return };
                waiting.is_acked |= sample.state == State::FinWait2;
                waiting.was_held |= sample.held;
                if !sample.held {
                    self.end(sample.socket, facts, found);
                } else if received != waiting.received {
                    waiting.received = received;
                    waiting.quiet_since_ns = event.at_ns;
                }
            }
            What::Sample(sample) => drop(self.waiting.remove(&sample.socket)),
            What::Gone { socket, .. } => self.end(*socket, facts, found),
            What::Tick => self.look(facts, UNANSWERED_NS, found),
            _ => {}
        }
    }

    fn at_end(&mut self, facts: &Facts, found: &mut Vec<Finding>) {
        let is_program = matches!(facts.scope(), Scope::Process(_));
        self.look(facts, if is_program { UNANSWERED_AT_END_NS } else { UNANSWERED_NS }, found);
    }
}

impl HalfClose {
    fn begin(&mut self, at_ns: u64, id: SocketId, facts: &Facts) {
        if self.waiting.len() < MOST && facts.socket_in_scope(id) {
            self.waiting.entry(id).or_insert(Waiting {
                half_closed_ns: at_ns,
                quiet_since_ns: at_ns,
                received: None,
                is_acked: false,
                was_held: false,
                reported: false,
            });
        }
    }

    /// Its program has closed it without an answer.
    fn end(&mut self, id: SocketId, facts: &Facts, found: &mut Vec<Finding>) {
        let Some(waiting) = self.waiting.remove(&id).filter(|one| one.was_held && !one.reported)
        else {
            return;
        };
        let Some(known) = facts.socket(id) else { return };
        let quiet_ns = facts.now_ns().saturating_sub(waiting.quiet_since_ns);
        if matches!(facts.scope(), Scope::Process(_)) && quiet_ns >= UNANSWERED_AT_END_NS {
            found.push(finding(facts, id, known, facts.now_ns(), waiting));
        }
    }

    fn look(&mut self, facts: &Facts, least_ns: u64, found: &mut Vec<Finding>) {
        let now_ns = facts.now_ns();
        self.waiting.retain(|id, waiting| {
            let Some(known) = facts.socket(*id) else { return false };
            let quiet_ns = now_ns.saturating_sub(waiting.quiet_since_ns);
            if !waiting.reported && quiet_ns >= least_ns && is_held(facts, known, *waiting) {
                waiting.reported = true;
                found.push(finding(facts, *id, known, now_ns, *waiting));
            }
            true
        });
    }
}

fn is_half_closed(state: State) -> bool {
    matches!(state, State::FinWait1 | State::FinWait2)
}

/// Whether a program still has it open and waits for an answer. At first a close looks the same: a
/// later sample must show that it is open, or the change itself and a living holder.
fn is_held(facts: &Facts, known: &KnownSocket, waiting: Waiting) -> bool {
    if let Some((at_ns, sample)) = &known.sample
        && *at_ns > waiting.half_closed_ns
    {
        return sample.held;
    }
    let is_alive = |(pid, _): &(u32, Option<i32>)| {
        facts.process(*pid).is_some_and(|process| process.ending.is_none())
    };
    let told_held = known.changed().is_some_and(|(_, changed)| changed.held == Some(true));
    told_held && known.holders.iter().any(is_alive)
}

fn finding(
    facts: &Facts,
    id: SocketId,
    known: &KnownSocket,
    now_ns: u64,
    waiting: Waiting,
) -> Finding {
    let about = facts.about(id, None);
    let quiet_ns = now_ns.saturating_sub(waiting.quiet_since_ns);
    let sentence = format!(
        "{} shut down writing to {} and has waited for {} without a byte or a FIN from the peer, \
         {}.",
        who(&about),
        known.socket.peer,
        time(quiet_ns),
        if waiting.is_acked {
            "whose kernel has acked the FIN"
        } else {
            "which has not acked the FIN"
        }
    );
    let seconds = |ns: u64| (ns / 1_000_000) as f64 / 1_000.0;
    let state = if waiting.is_acked { "FIN-WAIT-2" } else { "FIN-WAIT-1" };
    let half_closed_ns = now_ns.saturating_sub(waiting.half_closed_ns);
    Finding {
        code: Code(106),
        class: Class::Note,
        harmless: false,
        bytes: None,
        at_ns: waiting.half_closed_ns,
        times: 1,
        about,
        sentence,
        fix:
            "The peer, or a relay between, must handle the end of input: respond, then close. The \
              program that waits needs a time-out."
                .to_owned(),
        heal: None,
        evidence: [
            ("half_closed_s".to_owned(), seconds(half_closed_ns).into()),
            ("quiet_s".to_owned(), seconds(quiet_ns).into()),
            ("state".to_owned(), state.into()),
        ]
        .into(),
    }
}
