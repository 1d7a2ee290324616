//! Counters of network namespaces that grew. They show how connections ended that are known only
//! from their last sample (LB101 to LB109), and that others ended unseen (LB110).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lastbyte_core::sample::State;

use super::cause::{COUNTED_NS, Cause, Queues};
use crate::event::{Counters, Scope, Tier};
use crate::facts::{Facts, KnownSocket};
use crate::finding::{Class, Code, Evidence, Finding};
use crate::text::count;

/// Limit on namespaces.
const MAX_NETWORKS: usize = 4_096;

/// Counters that grew. Each count explains one end.
#[derive(Debug, Default)]
pub(super) struct CounterGrowth {
    /// Recent growth for each namespace, oldest first, less what has explained an end.
    recent: BTreeMap<u64, VecDeque<(u64, Counters)>>,
    /// Total growth for each namespace.
    all: BTreeMap<u64, Tally>,
    /// Ends that were seen, for each namespace.
    explained: BTreeMap<u64, Tally>,
}

/// Ends of connections, by the counters that count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    on_close: u64,
    on_data: u64,
    on_linger: u64,
    on_memory: u64,
    /// `EstabResets`: resets at either end, sent or received.
    resets: u64,
    /// Those resets that came from the peer.
    received: u64,
}

impl Tally {
    fn add(&mut self, counters: &Counters) {
        for (sum, grown) in [
            (&mut self.on_close, counters.aborts_on_close),
            (&mut self.on_data, counters.aborts_on_data),
            (&mut self.on_linger, counters.aborts_on_linger),
            (&mut self.on_memory, counters.aborts_on_memory),
            (&mut self.resets, counters.established_resets),
        ] {
            *sum = sum.saturating_add(grown);
        }
    }

    /// The connections that the kernel aborted itself.
    fn aborted(&self) -> u64 {
        let parts = [self.on_close, self.on_data, self.on_linger, self.on_memory];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// What remains without those that have been explained.
    fn without(&self, explained: &Self) -> Self {
        // A connection that is aborted with both ends on this machine is counted at both.
        let both = self.aborted().saturating_mul(2);
        let resets = self.resets.saturating_sub(both).saturating_sub(explained.received);
        Self {
            on_close: self.on_close.saturating_sub(explained.on_close),
            on_data: self.on_data.saturating_sub(explained.on_data),
            on_linger: self.on_linger.saturating_sub(explained.on_linger),
            on_memory: self.on_memory.saturating_sub(explained.on_memory),
            resets,
            received: resets,
        }
    }
}

impl CounterGrowth {
    pub(super) fn add(&mut self, at_ns: u64, counters: &Counters) {
        /// Growth older than this belongs to no end that is still to be judged.
        const RECENT_NS: u64 = 3 * COUNTED_NS;
        let network = counters.network;
        if self.all.len() >= MAX_NETWORKS && !self.all.contains_key(&network) {
            return;
        }
        self.all.entry(network).or_default().add(counters);
        let recent = self.recent.entry(network).or_default();
        recent.retain(|(then_ns, _)| then_ns.saturating_add(RECENT_NS) >= at_ns);
        recent.push_back((at_ns, *counters));
    }

    /// The cause of a socket's end by the counters of its namespace, if they grew at about that
    /// time. If both ends are on this machine and both have unread input, the one with unacked
    /// bytes is taken for the closer: after a reset, the other program still reads what it
    /// received.
    ///
    /// An end with input and nothing unacked is not taken for the closer if the other end, on the same
    /// machine, may have closed with bytes unacked: that loss would be counted as explained, and reported
    /// as harmless.
    pub(super) fn cause(
        &mut self,
        known: &KnownSocket,
        other: Option<&KnownSocket>,
    ) -> Option<Cause> {
        /// The end of a socket may be seen this much later than it was counted.
        const BEFORE_NS: u64 = 300_000_000;
        let ended_ns = known.gone_ns.or_else(|| known.changed().map(|(at_ns, _)| *at_ns))?;
        let numbers = Queues::of(known)?;
        let recent = known.socket.network.and_then(|network| self.recent.get_mut(&network));
        let mut about_then: Vec<&mut Counters> = recent
            .into_iter()
            .flatten()
            .filter(|(at_ns, _)| {
                at_ns.saturating_add(BEFORE_NS) >= ended_ns
                    && *at_ns <= ended_ns.saturating_add(COUNTED_NS)
            })
            .map(|(_, counters)| counters)
            .collect();
        let mut take = |of: fn(&mut Counters) -> &mut u64| {
            let left = about_then.iter_mut().map(|counters| of(counters)).find(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        };
        let has_left = numbers.unacked > 0;
        let has_input = |numbers: &Queues| numbers.unread.is_some_and(|unread| unread > 0);
        let has_closed_with_loss = |other: &KnownSocket| {
            let other = Queues::of(other);
            other.is_some_and(|other| has_input(&other) && other.unacked > 0)
        };
        let may_be_others = !has_left
            && match other {
                // If our queues are final and its are not, its loss may not be visible.
                Some(other) if has_last_numbers(known) && !has_last_numbers(other) => true,
                Some(other) => has_closed_with_loss(other),
                None => is_on_one_host(known),
            };
        if has_input(&numbers) && !may_be_others && take(|grown| &mut grown.aborts_on_close) {
            return Some(Cause::Unread);
        }
        if has_left && take(|grown| &mut grown.aborts_on_timeout) {
            return Some(Cause::NoAnswer);
        }
        let has_closed = known.closed().is_some() || known.fin_sent;
        if has_closed && take(|grown| &mut grown.aborts_on_data) {
            return Some(Cause::DataAfterClose);
        }
        // SO_LINGER of 0 s is counted there too.
        if has_left && take(|grown| &mut grown.aborts_on_data) {
            return Some(Cause::Abort);
        }
        // Only a bad end leaves unacked bytes in a destroyed socket.
        let is_last_look =
            known.sample.as_ref().is_some_and(|(_, sample)| sample.state == State::Close);
        if !has_left || !is_last_look {
            return None;
        }
        // Our own abort is also counted as a reset.
        let is_ours = about_then.iter().any(|grown| {
            grown.aborts_on_close > 0 || grown.aborts_on_data > 0 || grown.aborts_on_memory > 0
        });
        let mut take_reset = || {
            let mut left = about_then.iter_mut().map(|grown| &mut grown.established_resets);
            left.find(|left| **left > 0).map(|left| *left -= 1).is_some()
        };
        Some(if !is_ours && take_reset() { Cause::PeerReset } else { Cause::Unknown })
    }

    /// Whether a socket's namespace counted more aborts by programs than were seen.
    pub(super) fn counts_abort(&self, facts: &Facts, known: &KnownSocket) -> bool {
        let Some(network) = known.socket.network.or_else(|| facts.own_network()) else {
            return false;
        };
        let on_data =
            |tallies: &BTreeMap<u64, Tally>| tallies.get(&network).map_or(0, |tally| tally.on_data);
        on_data(&self.all) > on_data(&self.explained)
    }

    /// An end was seen, and this was its cause.
    pub(super) fn explain(&mut self, facts: &Facts, known: &KnownSocket, cause: Cause) {
        let Some(network) = known.socket.network.or_else(|| facts.own_network()) else { return };
        if self.explained.len() >= MAX_NETWORKS && !self.explained.contains_key(&network) {
            return;
        }
        let tally = self.explained.entry(network).or_default();
        match cause {
            Cause::Unread => tally.on_close += 1,
            Cause::Abort | Cause::DataAfterClose => tally.on_data += 1,
            Cause::Memory => tally.on_memory += 1,
            Cause::PeerReset => tally.received += 1,
            Cause::NoAnswer | Cause::Unknown => {}
        }
    }

    /// Counted ends that were not seen: LB110, one for each namespace.
    pub(super) fn left(&self, facts: &Facts) -> Vec<Finding> {
        if facts.sees_each_loss() {
            return Vec::new();
        }
        let asked = networks_in_scope(facts);
        let is_asked = |network: &u64| asked.as_ref().is_none_or(|asked| asked.contains(network));
        let nothing = Tally::default();
        let of = |(network, all): (&u64, &Tally)| {
            let left = all.without(self.explained.get(network).unwrap_or(&nothing));
            (left != nothing).then(|| finding(facts, *network, &left))
        };
        self.all.iter().filter(|(network, _)| is_asked(network)).filter_map(of).collect()
    }
}

/// Whether the queues of a socket are those at its end, not those of an earlier sample.
fn has_last_numbers(known: &KnownSocket) -> bool {
    let of_end = || known.sample.as_ref().is_some_and(|(_, sample)| sample.state == State::Close);
    known.final_counts().is_some() || of_end()
}

/// Whether both addresses of a connection belong to this machine, as far as the addresses show it.
fn is_on_one_host(known: &KnownSocket) -> bool {
    let (local, peer) = (known.socket.local.ip(), known.socket.peer.ip());
    local == peer || peer.is_loopback()
}

/// The namespaces of the processes in scope; `None`: all.
fn networks_in_scope(facts: &Facts) -> Option<BTreeSet<u64>> {
    match facts.scope() {
        Scope::Machine => None,
        Scope::Process(_) => Some(facts.networks_watched()),
        Scope::Port(port) => {
            let of_port = |known: &KnownSocket| {
                known.socket.local.port() == port || known.socket.peer.port() == port
            };
            let sockets = facts.sockets().filter(|(_, known)| of_port(known));
            Some(sockets.filter_map(|(_, known)| known.socket.network).collect())
        }
    }
}

fn finding(facts: &Facts, network: u64, left: &Tally) -> Finding {
    let parts = parts(left);
    let times = left.aborted().saturating_add(left.resets);
    let (connections, were) =
        if times == 1 { ("connection", "was") } else { ("connections", "were") };
    let what = match &parts[..] {
        [(_, one)] => one.clone(),
        several => {
            let all: Vec<String> =
                several.iter().map(|(number, what)| format!("{} {what}", count(*number))).collect();
            format!("reset, {}", all.join(", "))
        }
    };
    let (unseen, fix) = match facts.tier() {
        Tier::Procfs => (
            "the tables, which are only sampled, do not show which, or whether bytes were lost",
            "Run as root for names: with eBPF, or else the kernel's tracepoints, each close is \
             seen with its process and its bytes.",
        ),
        Tier::Tracefs => (
            "the tracepoints did not show which, or whether bytes were lost",
            "Run where eBPF works for names (--tier bpf says why it does not): each close is seen \
             there with its process and its bytes.",
        ),
        Tier::Bpf => (
            "events that were dropped, or programs that the kernel refused, would have shown \
             which, and whether bytes were lost",
            "Watch less at once for names (--pid, --port, --calls never), or see at the beginning \
             which programs the kernel refused, and why.",
        ),
    };
    let mut evidence: BTreeMap<String, Evidence> = [
        ("tcp_abort_on_close", left.on_close),
        ("tcp_abort_on_data", left.on_data),
        ("tcp_abort_on_linger", left.on_linger),
        ("tcp_abort_on_memory", left.on_memory),
        ("estab_resets", left.resets),
    ]
    .into_iter()
    .filter(|(_, grown)| *grown > 0)
    .map(|(name, grown)| (name.to_owned(), grown.into()))
    .collect();
    evidence.insert("exact".to_owned(), "not known".into());
    Finding {
        code: Code(110),
        // Most bytes of connections that a peer resets have arrived, and counters cannot tell.
        class: if left.aborted() > 0 { Class::Loss } else { Class::Note },
        harmless: false,
        bytes: None,
        at_ns: facts.now_ns(),
        times,
        about: facts.about_only_network(network),
        sentence: format!(
            "{} {connections} in this network namespace {were} {what} while this ran; {unseen}.",
            count(times)
        ),
        fix: fix.to_owned(),
        heal: None,
        evidence,
    }
}

/// The number of connections for each counter, with what happened to them.
fn parts(left: &Tally) -> Vec<(u64, String)> {
    let all = [
        (left.on_close, "reset locally with unread input", "TCPAbortOnClose"),
        (
            left.on_data,
            "reset locally by SO_LINGER of 0 s, or as data came after the close",
            "TCPAbortOnData",
        ),
        (left.on_linger, "given up locally after the close (TCP_LINGER2)", "TCPAbortOnLinger"),
        (left.on_memory, "reset locally for want of memory", "TCPAbortOnMemory"),
        (left.resets, "reset by the peer", "EstabResets"),
    ];
    let grew = all.into_iter().filter(|(number, ..)| *number > 0);
    grew.map(|(number, what, name)| (number, format!("{what} ({name} +{})", count(number))))
        .collect()
}
