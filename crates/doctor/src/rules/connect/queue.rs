//! LB404: the accept queue of a listening socket overflows.

use std::collections::BTreeMap;

use lastbyte_core::sample::State;

use crate::event::{Counters, Event, Sample, SocketId, What};
use crate::facts::Facts;
use crate::finding::{About, Class, Code, Finding};
use crate::rules::Rule;
use crate::rules::figures::evidence;
use crate::text::{count, who};

/// A full queue is reported again after this time.
const AGAIN_NS: u64 = 10_000_000_000;
/// A sample of a queue that is no older explains a counter that grew: counters are read once a
/// second.
const FRESH_NS: u64 = 1_500_000_000;
/// Limit on listening sockets.
const MOST: usize = 10_000;

/// LB404.
#[derive(Debug, Default)]
pub(super) struct ListenQueue {
    /// Queues that were full: when last, and when that was reported.
    full: BTreeMap<SocketId, Full>,
}

#[derive(Clone, Copy, Debug)]
struct Full {
    seen_ns: u64,
    reported_ns: Option<u64>,
    queue: u32,
    limit: u32,
}

impl Rule for ListenQueue {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        match &event.what {
            What::Sample(sample) if sample.state == State::Listen => {
                self.on_sample(event.at_ns, sample, facts, found);
            }
            What::Counters(counters) if counters.listen_overflows > 0 => {
                self.on_counters(event.at_ns, counters, facts, found);
            }
            What::Gone { socket, .. } => drop(self.full.remove(socket)),
            _ => {}
        }
    }
}

impl ListenQueue {
    fn on_sample(&mut self, at_ns: u64, sample: &Sample, facts: &Facts, found: &mut Vec<Finding>) {
        let (queue, limit) = (sample.receive_queue, sample.send_queue);
        // The kernel accepts one more than the limit.
        if queue <= limit || !facts.socket_in_scope(sample.socket) || self.full.len() >= MOST {
            return;
        }
        let fresh = Full { seen_ns: at_ns, reported_ns: None, queue, limit };
        let full = self.full.entry(sample.socket).or_insert(fresh);
        (full.seen_ns, full.queue, full.limit) = (at_ns, queue, limit);
        if full.reported_ns.is_none_or(|reported_ns| at_ns.saturating_sub(reported_ns) >= AGAIN_NS)
        {
            full.reported_ns = Some(at_ns);
            found.push(finding(facts, at_ns, sample.socket, *full, 0));
        }
    }

    /// Reports the number of overflows for the queue that was full, or for the only queue.
    fn on_counters(
        &mut self,
        at_ns: u64,
        counters: &Counters,
        facts: &Facts,
        found: &mut Vec<Finding>,
    ) {
        let is_here = |id: &SocketId| {
            facts.socket(*id).is_some_and(|known| {
                known.socket.network.is_none_or(|network| network == counters.network)
            })
        };
        let is_fresh = |full: &Full| at_ns.saturating_sub(full.seen_ns) <= FRESH_NS;
        let seen = self.full.iter_mut().filter(|(id, full)| is_here(id) && is_fresh(full));
        if let Some((id, full)) = seen.max_by_key(|(_, full)| full.queue) {
            full.reported_ns = Some(at_ns);
            found.push(finding(facts, at_ns, *id, *full, counters.listen_overflows));
            return;
        }
        let mut all = facts.sockets().filter(|(id, known)| {
            known.listens() && known.gone_ns.is_none() && is_here(id) && facts.socket_in_scope(**id)
        });
        if let (Some((id, known)), None) = (all.next(), all.next()) {
            let sample = known.sample.as_ref().map(|(_, sample)| sample);
            let (queue, limit) =
                sample.map_or((0, 0), |sample| (sample.receive_queue, sample.send_queue));
            let full = Full { seen_ns: at_ns, reported_ns: None, queue, limit };
            found.push(finding(facts, at_ns, *id, full, counters.listen_overflows));
        }
    }
}

fn finding(facts: &Facts, at_ns: u64, id: SocketId, full: Full, overflows: u64) -> Finding {
    let about: About = facts.about(id, None);
    let local = about.local.map_or_else(|| "?".to_owned(), |local| local.to_string());
    let met = match overflows {
        0 => "new ones do not fit and must retry after 1 s or more".to_owned(),
        1 => "1 did not fit and must retry after 1 s or more".to_owned(),
        many => format!("{} did not fit and must retry after 1 s or more", count(many)),
    };
    let sentence = format!(
        "{} does not accept fast enough at {local}: {} connections wait in an accept queue for {}, \
         and {met}.",
        who(&about),
        count(full.queue.into()),
        count(full.limit.into()),
    );
    Finding {
        code: Code(404),
        class: Class::Connect,
        harmless: false,
        bytes: None,
        at_ns,
        times: 1,
        about,
        sentence,
        fix: "Accept faster (in a loop until EAGAIN, from more threads), and give `listen` a \
              longer queue, with net.core.somaxconn at least as long."
            .to_owned(),
        heal: None,
        evidence: evidence([
            ("queue_connections", full.queue.into()),
            ("limit_connections", full.limit.into()),
            ("overflows", overflows.into()),
        ]),
    }
}
