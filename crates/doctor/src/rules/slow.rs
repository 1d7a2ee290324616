//! Transfers slower than the path allows: LB201 to LB209.
//!
//! ```text
//!  Sample, Sample, ... --> Window of 3 s and more --> held: what held it back (201 to 204, 208)
//!                     |                          '--> stalls: Nagle (205)
//!                     '--> stalls: time-outs (207), restarts after a pause (209)
//!  Io ---------------> writes: Nagle (205), tiny writes (206)
//! ```
//!
//! [`lastbyte_core::sample::Limits`] shows what limited a flow between two samples. These rules
//! decide whether that lasted, whether the path would have carried more, and what the cause is.

mod limits;
mod stalls;
#[cfg(test)]
mod tests;
mod window;
mod writes;

use std::collections::BTreeMap;

use lastbyte_core::sample::State;

use super::Rule;
use crate::event::{Again, Event, Io, Sample, SocketId, What};
use crate::facts::Facts;
use crate::finding::{Class, Code, Evidence, Finding};
use crate::text;
use stalls::{Restarts, Timeouts};
use window::{Seen, Window};
use writes::Writes;

/// Limit on flows that are followed; more are ignored.
const MAX_FLOWS: usize = 50_000;
/// A flow without a sample for this long is taken for ended, nanoseconds.
const SILENT_NS: u64 = 60_000_000_000;

/// The rules of class slow.
pub(super) fn rules() -> Vec<Box<dyn Rule>> {
    vec![Box::new(Slow::default())]
}

/// Follows flows.
#[derive(Debug, Default)]
struct Slow {
    /// Boxed, since a map node has capacity for up to twice its entries.
    flows: BTreeMap<SocketId, Box<Flow>>,
    writes: Writes,
}

impl Rule for Slow {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        let mut drafts = Vec::new();
        let id = match &event.what {
            What::Sample(sample) => {
                self.sample(event.at_ns, sample, facts, &mut drafts);
                sample.socket
            }
            What::Retransmitted { socket, why: Again::TimeOut, segments } => {
                if let Some(flow) = self.flows.get_mut(socket) {
                    flow.timeouts.add_reported(*segments);
                }
                return;
            }
            What::Io(io) => {
                self.io(io, facts, &mut drafts);
                io.socket
            }
            What::Gone { socket, .. } => {
                self.flows.remove(socket);
                self.writes.forget(*socket);
                return;
            }
            _ => return,
        };
        let wanted = !drafts.is_empty() && facts.socket_in_scope(id);
        found
            .extend(drafts.into_iter().filter(|_| wanted).map(|one| one.finding(event, id, facts)));
    }
}

impl Slow {
    fn io(&mut self, io: &Io, facts: &Facts, drafts: &mut Vec<Draft>) {
        let known = facts.socket(io.socket).filter(|_| io.held_back > 0);
        let trip_us = known.and_then(|known| known.round_trip_us);
        let mut new = self.writes.add(io, trip_us);
        let mut flow = self.flows.get_mut(&io.socket);
        for one in &mut new {
            one.by = facts.process(io.pid).map(|_| io.pid);
        }
        // A finding from samples is not repeated.
        new.retain(|one| flow.as_mut().is_none_or(|flow| flow.is_new(one.code)));
        drafts.append(&mut new);
    }

    fn sample(&mut self, at_ns: u64, sample: &Sample, facts: &Facts, drafts: &mut Vec<Draft>) {
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
        if self.flows.len() >= MAX_FLOWS && !is_followed {
            self.flows.retain(|_, flow| flow.is_heard_of(at_ns));
            if self.flows.len() >= MAX_FLOWS {
                return;
            }
        }
        let flow = self.flows.entry(sample.socket).or_default();
        flow.add(seen, sample, facts, drafts);
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
    /// The codes reported for it, one bit each.
    reported: u16,
}

impl Flow {
    fn is_heard_of(&self, now_ns: u64) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|seen| seen.at_ns.saturating_add(SILENT_NS) > now_ns)
    }

    fn add(&mut self, seen: Seen, sample: &Sample, facts: &Facts, drafts: &mut Vec<Draft>) {
        let Some(before) = self.last.replace(seen) else { return };
        let is_later = self.window.add(&before, &seen);
        if !is_later {
            // The clock or a counter ran backwards: start again.
            *self = Self { last: Some(seen), reported: self.reported, ..Self::default() };
            return;
        }
        let mut new = Vec::new();
        new.extend(self.timeouts.add(&before, &seen));
        new.extend(self.restarts.add(&before, &seen, sample.congestion.as_deref()));
        if self.window.is_whole(&seen) {
            let window = std::mem::take(&mut self.window);
            let case = limits::Case { window: &window, now: &seen, sample, facts };
            new.extend(limits::judge(&case));
            new.extend(stalls::nagle(&window, &seen));
        }
        for mut one in new {
            if one.code == 209 {
                one.heal = Some(heal(sample.socket, "--congestion bbr"));
            }
            if self.is_new(one.code) {
                drafts.push(one);
            }
        }
    }

    /// Whether this code was not reported for it yet: each is reported once.
    fn is_new(&mut self, code: u16) -> bool {
        let bit = 1 << (code % 16);
        let is_new = self.reported & bit == 0;
        self.reported |= bit;
        is_new
    }
}

/// A finding before its subject is known.
#[derive(Debug)]
struct Draft {
    code: u16,
    sentence: String,
    fix: String,
    /// A command that fixes it.
    heal: Option<String>,
    evidence: BTreeMap<String, Evidence>,
    /// The process that did it, if several hold the socket.
    by: Option<u32>,
}

impl Draft {
    fn finding(self, event: &Event, id: SocketId, facts: &Facts) -> Finding {
        let about = facts.about(id, self.by);
        Finding {
            code: Code(self.code),
            class: Class::Slow,
            harmless: false,
            bytes: None,
            at_ns: event.at_ns,
            times: 1,
            sentence: format!("{}: {}.", text::who(&about), self.sentence),
            about,
            fix: self.fix,
            heal: self.heal,
            evidence: self.evidence,
        }
    }
}

/// A command that fixes a socket.
fn heal(id: SocketId, what: &str) -> String {
    format!("lastbyte heal --socket {} {what}", id.0)
}
