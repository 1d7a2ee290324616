//! Slower than the path allows: LB201 to LB209.
//!
//! ```text
//!  Sample, Sample, ... --> Window of 3 s and more --> held: what held it back (201 to 204, 208)
//!                     |                          '--> stalls: Nagle (205)
//!                     '--> stalls: time-outs (207), restarts after a pause (209)
//!  Io ---------------> writes: Nagle (205), tiny writes (206)
//! ```
//!
//! What held a flow back between two samples, [`lastbyte_core::sample::Limits`] says. These rules ask
//! whether it lasted, whether the path would have carried more, and whose doing it is.

mod held;
mod stalls;
#[cfg(test)]
mod tests;
mod window;
mod writes;

use std::collections::BTreeMap;

use lastbyte_core::sample::State;

use super::Rule;
use crate::book::Book;
use crate::event::{Again, Event, Io, Sample, SocketId, What};
use crate::finding::{Class, Code, Evidence, Finding};
use crate::words;
use stalls::{Restarts, Timeouts};
use window::{Seen, Window};
use writes::Writes;

/// So many flows are followed at once; more are not looked at.
const MOST: usize = 50_000;
/// A flow that was not sampled for so long is taken for gone, nanoseconds.
const SILENT_NS: u64 = 60_000_000_000;

/// The rules of class slow.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![Box::new(Slow::default())]
}

/// Follows flows.
#[derive(Debug, Default)]
struct Slow {
    /// In boxes: a node of the map has room for twice as many as are in it.
    flows: BTreeMap<SocketId, Box<Flow>>,
    writes: Writes,
}

impl Rule for Slow {
    fn on(&mut self, event: &Event, book: &Book, found: &mut Vec<Finding>) {
        let mut told = Vec::new();
        let id = match &event.what {
            What::Sample(sample) => {
                self.sample(event.at_ns, sample, book, &mut told);
                sample.socket
            }
            What::Retransmitted { socket, why: Again::TimeOut, segments } => {
                if let Some(flow) = self.flows.get_mut(socket) {
                    flow.timeouts.told(*segments);
                }
                return;
            }
            What::Io(io) => {
                self.io(io, book, &mut told);
                io.socket
            }
            What::Gone { socket, .. } => {
                self.flows.remove(socket);
                self.writes.forget(*socket);
                return;
            }
            _ => return,
        };
        let wanted = !told.is_empty() && book.wants_socket(id);
        found.extend(told.into_iter().filter(|_| wanted).map(|one| one.finding(event, id, book)));
    }
}

impl Slow {
    fn io(&mut self, io: &Io, book: &Book, told: &mut Vec<Told>) {
        let known = book.socket(io.socket).filter(|_| io.held_back > 0);
        let trip_us = known.and_then(|known| known.round_trip_us);
        let mut new = self.writes.add(io, trip_us);
        let mut flow = self.flows.get_mut(&io.socket);
        for one in &mut new {
            one.by = book.process(io.pid).map(|_| io.pid);
        }
        // What was seen by looking at it needs not be said again.
        new.retain(|one| flow.as_mut().is_none_or(|flow| flow.is_new(one.code)));
        told.append(&mut new);
    }

    fn sample(&mut self, at_ns: u64, sample: &Sample, book: &Book, told: &mut Vec<Told>) {
        if !carries_data(sample.state) {
            self.flows.remove(&sample.socket);
            return;
        }
        let Some(seen) = Seen::of(at_ns, sample) else { return };
        let is_followed = self.flows.contains_key(&sample.socket);
        if seen.rests() && !seen.may_receive() && !is_followed {
            // Most sockets of a large server, most of the time.
            return;
        }
        if self.flows.len() >= MOST && !is_followed {
            self.flows.retain(|_, flow| flow.is_heard_of(at_ns));
            if self.flows.len() >= MOST {
                return;
            }
        }
        let flow = self.flows.entry(sample.socket).or_default();
        flow.add(seen, sample, book, told);
    }
}

fn carries_data(state: State) -> bool {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck};
    matches!(state, Established | CloseWait | FinWait1 | FinWait2 | Closing | LastAck)
}

/// One flow, seen from one end.
#[derive(Debug, Default)]
struct Flow {
    last: Option<Seen>,
    window: Window,
    timeouts: Timeouts,
    restarts: Restarts,
    /// What was told of it, a bit for each code.
    told: u16,
}

impl Flow {
    fn is_heard_of(&self, now_ns: u64) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|seen| seen.at_ns.saturating_add(SILENT_NS) > now_ns)
    }

    fn add(&mut self, seen: Seen, sample: &Sample, book: &Book, told: &mut Vec<Told>) {
        let Some(before) = self.last.replace(seen) else { return };
        let is_later = self.window.add(&before, &seen);
        if !is_later {
            // The clock or a counter ran backwards: this is another story.
            *self = Self { last: Some(seen), told: self.told, ..Self::default() };
            return;
        }
        let mut new = Vec::new();
        new.extend(self.timeouts.add(&before, &seen));
        new.extend(self.restarts.add(&before, &seen, sample.congestion.as_deref()));
        if self.window.is_whole(&seen) {
            let window = std::mem::take(&mut self.window);
            let case = held::Case { window: &window, now: &seen, sample, book };
            new.extend(held::judge(&case));
            new.extend(stalls::nagle(&window, &seen));
        }
        for mut one in new {
            if one.code == 209 {
                one.heal = Some(heal(sample.socket, "--congestion bbr"));
            }
            if self.is_new(one.code) {
                told.push(one);
            }
        }
    }

    /// Whether this was not told of it yet: each thing is, once.
    fn is_new(&mut self, code: u16) -> bool {
        let bit = 1 << (code % 16);
        let is_new = self.told & bit == 0;
        self.told |= bit;
        is_new
    }
}

/// What a rule says, before it is known about whom.
#[derive(Debug)]
struct Told {
    code: u16,
    sentence: String,
    fix: String,
    /// A command that mends it.
    heal: Option<String>,
    evidence: BTreeMap<String, Evidence>,
    /// Who did it, where that is one of several.
    by: Option<u32>,
}

impl Told {
    fn finding(self, event: &Event, id: SocketId, book: &Book) -> Finding {
        let about = book.about(id, self.by);
        Finding {
            code: Code(self.code),
            class: Class::Slow,
            harmless: false,
            bytes: None,
            at_ns: event.at_ns,
            times: 1,
            sentence: format!("{}: {}.", words::who(&about), self.sentence),
            about,
            fix: self.fix,
            heal: self.heal,
            evidence: self.evidence,
        }
    }
}

/// A command that mends a socket.
fn heal(id: SocketId, what: &str) -> String {
    format!("lastbyte heal --socket {} {what}", id.0)
}
