//! What servers used: processor time and system calls, for each accepted connection and each
//! exchange.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Calls, Precision, Used};
use crate::text::{count, few_digits};

/// Limit on processes; beyond it, new ones are not counted.
const MAX_PROCESSES: usize = 4_096;
/// Limit on kinds of system calls for each process.
const MAX_CALLS: usize = 64;
/// Limit on reported servers; those that used the most processor time come first.
const MAX_SERVERS: usize = 32;
/// Number of its most frequent calls that are reported.
const TOP: usize = 3;
/// The clock of `/proc` has a resolution of 10 ms: below ten ticks, a tenth may be wrong.
const SURE_NS: u64 = 100_000_000;
/// Calls traced for less than this are no sample of the rest.
const LONG_ENOUGH_NS: u64 = 900_000_000;

/// What a server used for each connection that it accepted while it was observed. Unknown values
/// are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Its process, without its children.
    pub pid: u32,
    /// The name of the process.
    pub name: String,
    /// Connections that it accepted; those accepted earlier are not counted.
    pub connections: u64,
    /// The precision of that number.
    pub connections_precision: Precision,
    /// Total processor time in user mode, milliseconds; the resolution is 10 ms.
    pub user_ms: Option<f64>,
    /// Total processor time in the kernel, milliseconds.
    pub system_ms: Option<f64>,
    /// Both together for each connection, milliseconds.
    pub cpu_ms_per_connection: Option<f64>,
    /// The precision of that number.
    pub cpu_precision: Precision,
    /// How often it wrote after a read on connections that it accepted: a request and a response.
    pub exchanges: Option<u64>,
    /// Processor time for each exchange, milliseconds.
    pub cpu_ms_per_exchange: Option<f64>,
    /// System calls on descriptors for each connection, if they are traced.
    pub calls_per_connection: Option<f64>,
    /// Its three most frequent calls.
    pub top_calls: Option<Vec<TopCall>>,
}

impl Served {
    /// What the server used, to print after its name: `accepted 4 connections; processor time for
    /// each 0.2 ms`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let number = count(self.connections);
        let many = if self.connections == 1 { "connection" } else { "connections" };
        let mut sentence =
            format!("accepted {}{number} {many}", self.connections_precision.prefix());
        if let Some(ms) = self.cpu_ms_per_connection {
            sentence += &format!(
                "; processor time for each {}{} ms",
                self.cpu_precision.prefix(),
                few_digits(ms)
            );
        }
        if let (Some(exchanges), Some(ms)) = (self.exchanges, self.cpu_ms_per_exchange) {
            let many = if exchanges == 1 { "exchange" } else { "exchanges" };
            sentence += &format!(", for each of {} {many} {} ms", count(exchanges), few_digits(ms));
        }
        if let (Some(calls), Some(top)) = (self.calls_per_connection, &self.top_calls) {
            let top: Vec<String> = top
                .iter()
                .map(|top| format!("{} {}", top.call, few_digits(top.per_connection)))
                .collect();
            sentence += &format!("; calls for each {}: {}", few_digits(calls), top.join(", "));
        }
        sentence
    }
}

/// A frequent system call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopCall {
    /// Its name.
    pub call: String,
    /// How many for each connection.
    pub per_connection: f64,
}

/// Accepted connections and used resources of each process.
#[derive(Debug, Default)]
pub(super) struct Servers {
    usages: BTreeMap<u32, Usage>,
    /// Processes whose PID was reused.
    former: Vec<(u32, Usage)>,
    /// How long calls were traced, and up to which time that is counted.
    traced_ns: u64,
    traced_to_ns: u64,
}

#[derive(Debug, Default)]
struct Usage {
    name: String,
    /// Accepted sockets that were observed.
    sockets: u64,
    /// Successful calls of `accept`, if calls were traced.
    accepts: u64,
    used: Option<(u64, u64)>,
    calls: BTreeMap<String, u64>,
    turns: u64,
}

/// What was observed, which decides the precision of the numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coverage {
    /// Whether calls are traced all the time (`Some(true)`), never (`Some(false)`), or in windows
    /// (`None`).
    pub(super) calls: Option<bool>,
    /// Every socket of the processes in scope is reported.
    pub(super) reports_each_socket: bool,
    /// What is read and written on each socket is reported.
    pub(super) reports_io: bool,
    pub(super) has_dropped: bool,
    pub(super) watched_ns: u64,
}

impl Servers {
    /// A process in scope accepted a connection.
    pub(super) fn accepted(&mut self, pid: u32, name: &str) {
        let Some(usage) = self.usage(pid) else { return };
        usage.sockets = usage.sockets.saturating_add(1);
        usage.rename(name);
    }

    pub(super) fn used(&mut self, used: &Used, name: &str) {
        let Some(usage) = self.usage(used.pid) else { return };
        let (user, system) = usage.used.unwrap_or_default();
        usage.used =
            Some((user.saturating_add(used.user_ns), system.saturating_add(used.system_ns)));
        usage.rename(name);
    }

    /// Calls of a process in scope.
    pub(super) fn called(&mut self, calls: &Calls) {
        let Some(usage) = self.usage(calls.pid) else { return };
        if matches!(calls.call.as_str(), "accept" | "accept4") {
            let failed = calls.errors.iter().fold(0_u64, |sum, one| sum.saturating_add(one.1));
            usage.accepts = usage.accepts.saturating_add(calls.count.saturating_sub(failed));
        }
        if usage.calls.len() < MAX_CALLS || usage.calls.contains_key(&calls.call) {
            let count = usage.calls.entry(calls.call.clone()).or_default();
            *count = count.saturating_add(calls.count);
        }
    }

    /// How long calls were traced. Counts reported at one time cover the same interval, whichever
    /// process made the calls.
    pub(super) fn traced(&mut self, at_ns: u64, over_ns: u64) {
        if at_ns > self.traced_to_ns {
            self.traced_to_ns = at_ns;
            self.traced_ns = self.traced_ns.saturating_add(over_ns);
        }
    }

    /// Exchanges on a connection that was accepted.
    pub(super) fn exchanged(&mut self, pid: u32, turns: u64) {
        let Some(usage) = self.usage(pid).filter(|_| turns > 0) else { return };
        usage.turns = usage.turns.saturating_add(turns);
    }

    /// A process has ended, or its PID was reused. One that accepted nothing is forgotten.
    pub(super) fn close(&mut self, pid: u32) {
        let Some(usage) = self.usages.remove(&pid) else { return };
        if usage.has_served() && self.former.len() < MAX_PROCESSES {
            self.former.push((pid, usage));
        }
    }

    /// The processes that accepted connections.
    pub(super) fn served(&self, coverage: Coverage) -> Vec<Served> {
        let former = self.former.iter().map(|(pid, usage)| (pid, usage));
        let all = self.usages.iter().chain(former).filter(|(_, usage)| usage.has_served());
        let mut served: Vec<Served> =
            all.map(|(pid, usage)| usage.served(*pid, coverage, self.traced_ns)).collect();
        let cpu = |one: &Served| one.user_ms.unwrap_or(0.0) + one.system_ms.unwrap_or(0.0);
        served.sort_by(|one, other| {
            let by_cpu = cpu(other).total_cmp(&cpu(one));
            by_cpu.then(other.connections.cmp(&one.connections)).then(one.pid.cmp(&other.pid))
        });
        served.truncate(MAX_SERVERS);
        served
    }

    fn usage(&mut self, pid: u32) -> Option<&mut Usage> {
        if self.usages.len() >= MAX_PROCESSES && !self.usages.contains_key(&pid) {
            return None;
        }
        Some(self.usages.entry(pid).or_default())
    }
}

impl Usage {
    fn rename(&mut self, name: &str) {
        if !name.is_empty() && self.name != name {
            name.clone_into(&mut self.name);
        }
    }

    fn has_served(&self) -> bool {
        self.sockets.max(self.accepts).max(self.turns) > 0
    }

    fn served(&self, pid: u32, coverage: Coverage, traced_ns: u64) -> Served {
        let (connections, connections_precision) = self.connections(coverage, traced_ns);
        let per = Some(connections as f64).filter(|per| *per > 0.0);
        // If calls are traced in windows, only connections accepted in a window count.
        let each = if coverage.calls == Some(true) { per } else { Some(self.accepts as f64) };
        let each = each.filter(|each| *each > 0.0 && !self.calls.is_empty());
        let used_ns = self.used.map(|(user, system)| user.saturating_add(system));
        let ms = |ns: u64| ns as f64 / 1e6;
        let exchanges =
            (coverage.reports_io && !coverage.has_dropped && self.turns > 0).then_some(self.turns);
        Served {
            pid,
            name: self.name.clone(),
            connections,
            connections_precision,
            user_ms: self.used.map(|used| ms(used.0)),
            system_ms: self.used.map(|used| ms(used.1)),
            cpu_ms_per_connection: used_ns.zip(per).map(|(ns, per)| ms(ns) / per),
            cpu_precision: match connections_precision {
                Precision::Exact if used_ns.is_some_and(|ns| ns >= SURE_NS) => Precision::Exact,
                // With more connections, each took less.
                Precision::AtLeast => Precision::AtMost,
                _ => Precision::About,
            },
            exchanges,
            cpu_ms_per_exchange: used_ns.zip(exchanges).map(|(ns, turns)| ms(ns) / turns as f64),
            calls_per_connection: each
                .map(|each| self.calls.values().map(|count| *count as f64).sum::<f64>() / each),
            top_calls: each.map(|each| self.top_calls(each)),
        }
    }

    /// The number of connections, and its precision.
    fn connections(&self, coverage: Coverage, traced_ns: u64) -> (u64, Precision) {
        let most = self.sockets.max(self.accepts);
        let is_counted = coverage.calls == Some(true) && self.accepts > 0;
        if (is_counted || coverage.reports_each_socket) && !coverage.has_dropped {
            // A call that was waiting when tracing began is not counted.
            return (most, Precision::Exact);
        }
        let is_sample = coverage.calls.is_none() && self.accepts > 0 && traced_ns >= LONG_ENOUGH_NS;
        if is_sample {
            let of_all = u128::from(self.accepts) * u128::from(coverage.watched_ns.max(traced_ns));
            let about = u64::try_from(of_all / u128::from(traced_ns)).unwrap_or(u64::MAX);
            return (about.max(most), Precision::About);
        }
        (most, Precision::AtLeast)
    }

    fn top_calls(&self, each: f64) -> Vec<TopCall> {
        let mut calls: Vec<(&String, u64)> =
            self.calls.iter().map(|(call, count)| (call, *count)).collect();
        calls.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        let top = calls.into_iter().take(TOP);
        top.map(|(call, count)| TopCall { call: call.clone(), per_connection: count as f64 / each })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Io, Scope, SocketId, Tier, What};
    use crate::facts::Facts;
    use crate::story::Story;

    const HERE: &str = "192.0.2.1:80";

    /// A server with this many connections that used this much processor time, milliseconds.
    fn story(tier: Tier, scope: Scope, connections: u64, used_ms: (u64, u64)) -> Story {
        let mut story = Story::of_tier(tier, scope).process(7, "server").process(8, "client");
        for id in 1..=connections {
            let client = format!("198.51.100.7:{}", 40_000 + id);
            story = story.socket(id, (HERE, &client), 7).accepted(id);
        }
        let used =
            Used { pid: 7, user_ns: used_ms.0 * 1_000_000, system_ns: used_ms.1 * 1_000_000 };
        story.with(What::Used(used)).with(What::Used(Used { pid: 8, ..used }))
    }

    fn served(story: &Story) -> Vec<Served> {
        let mut facts = Facts::new();
        story.events.iter().for_each(|event| facts.note(event));
        facts.served()
    }

    fn calls(call: &str, count: u64, errors: u64) -> What {
        let errors = if errors > 0 { vec![(11, errors)] } else { Vec::new() };
        let over_ns = 500_000_000;
        What::Calls(Calls {
            pid: 7,
            tid: 7,
            call: call.to_owned(),
            count,
            over_ns,
            errors,
            ..Calls::default()
        })
    }

    #[test]
    fn what_a_connection_took_counts_for_the_process_that_accepted_it() {
        let story = story(Tier::Bpf, Scope::Process(7), 4, (600, 200));
        let io = Io { socket: SocketId(2), pid: 7, reads: 9, writes: 9, turns: 8, ..Io::default() };
        let served = served(&story.with(What::Io(io)));
        assert_eq!(served.len(), 1, "{served:?}");
        let one = &served[0];
        assert_eq!((one.pid, one.name.as_str(), one.connections), (7, "server", 4));
        assert_eq!((one.user_ms, one.system_ms), (Some(600.0), Some(200.0)));
        assert_eq!(one.cpu_ms_per_connection, Some(200.0));
        assert_eq!(
            (one.connections_precision, one.cpu_precision),
            (Precision::Exact, Precision::Exact)
        );
        assert_eq!((one.exchanges, one.cpu_ms_per_exchange), (Some(8), Some(100.0)));
        assert_eq!((one.calls_per_connection, one.top_calls.as_deref()), (None, None));
    }

    #[test]
    fn a_connection_of_before_is_not_counted_and_its_exchanges_are() {
        let mut story = story(Tier::Bpf, Scope::Process(7), 2, (600, 200));
        for event in &mut story.events {
            if let What::Socket(socket) = &mut event.what {
                socket.earlier = true;
            }
        }
        // The second report does not know that the connection is older.
        let client = "198.51.100.7:40001";
        let story = story.socket(1, (HERE, client), 7);
        let io = Io { socket: SocketId(1), pid: 7, turns: 8, ..Io::default() };
        let one = served(&story.with(What::Io(io))).remove(0);
        assert_eq!((one.connections, one.cpu_ms_per_connection), (0, None));
        assert_eq!(one.cpu_ms_per_exchange, Some(100.0));
    }

    #[test]
    fn what_is_not_known_is_none_and_never_zero() {
        let mut without = story(Tier::Bpf, Scope::Process(7), 2, (600, 200));
        let is_used = |event: &Event| matches!(event.what, What::Used(_));
        without.events.retain(|event| !is_used(event));
        let one = served(&without).remove(0);
        assert_eq!((one.user_ms, one.cpu_ms_per_connection, one.exchanges), (None, None, None));
        let json = serde_json::to_value(&one).unwrap();
        assert!(
            json["calls_per_connection"].is_null() && json.get("top_calls").is_some(),
            "{json}"
        );
        // 10 ms is the resolution of the measurement.
        let one = served(&story(Tier::Bpf, Scope::Process(7), 2, (10, 20))).remove(0);
        assert_eq!((one.cpu_ms_per_connection, one.cpu_precision), (Some(15.0), Precision::About));
        // With the whole machine in scope, clean ends and some reads and writes are not reported.
        let one = served(&story(Tier::Bpf, Scope::Machine, 2, (600, 200))).remove(0);
        assert_eq!(one.connections_precision, Precision::AtLeast);
        assert_eq!((one.cpu_precision, one.exchanges), (Precision::AtMost, None));
        let dropped = story(Tier::Bpf, Scope::Process(7), 2, (600, 200));
        let one = served(&dropped.with(What::Dropped { events: 1 })).remove(0);
        assert_eq!(one.connections_precision, Precision::AtLeast);
    }

    #[test]
    fn calls_are_reported_for_each_connection_most_frequent_first() {
        let mut story = story(Tier::Tracefs, Scope::Process(7), 1, (600, 200)).traced(Some(true));
        for (call, count, errors) in [
            ("accept4", 12, 2),
            ("read", 20, 0),
            ("write", 10, 0),
            ("close", 10, 0),
            ("epoll_wait", 98, 0),
        ] {
            story = story.with(calls(call, count, errors));
        }
        let one = served(&story).remove(0);
        assert_eq!((one.connections, one.connections_precision), (10, Precision::Exact));
        assert_eq!(one.calls_per_connection, Some(15.0));
        let top: Vec<(String, f64)> =
            one.top_calls.unwrap().into_iter().map(|top| (top.call, top.per_connection)).collect();
        assert_eq!(
            top,
            [("epoll_wait".into(), 9.8), ("read".into(), 2.0), ("accept4".into(), 1.2)]
        );
    }

    #[test]
    fn windows_of_calls_say_about_how_many_connections_there_were() {
        let story = story(Tier::Bpf, Scope::Machine, 1, (600, 200)).traced(None);
        let story = story.with(calls("accept4", 10, 0)).with(calls("read", 20, 0)).after(500);
        // Both windows are half a second; the watch is ten.
        let story = story.with(calls("accept4", 10, 0)).after(9_500).with(What::Tick);
        let one = served(&story).remove(0);
        assert_eq!((one.connections, one.connections_precision), (200, Precision::About));
        assert_eq!((one.cpu_ms_per_connection, one.cpu_precision), (Some(4.0), Precision::About));
        assert_eq!(one.calls_per_connection, Some(2.0));
    }

    #[test]
    fn an_ended_server_is_reported_and_a_reused_pid_is_another_server() {
        use crate::event::Ending;
        let story = story(Tier::Bpf, Scope::Port(80), 3, (600, 300));
        let story = story.exited(7, Ending::Exit(0)).process(7, "other");
        let story = story.with(What::Used(Used { pid: 7, user_ns: 1_000_000_000, system_ns: 0 }));
        let told = served(&story.after(30_000));
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].name.as_str(), told[0].cpu_ms_per_connection), ("server", Some(300.0)));
    }

    #[test]
    fn numbers_of_a_hostile_recording_do_not_overflow() {
        let mut story = story(Tier::Bpf, Scope::Process(7), 1, (1, 1)).traced(Some(true));
        for _ in 0..3 {
            let most = u64::MAX;
            story = story.with(What::Used(Used { pid: 7, user_ns: most, system_ns: most }));
            story = story.with(calls("accept", most, most)).with(calls("read", most, 0));
            story = story.with(What::Io(Io {
                socket: SocketId(1),
                pid: 7,
                turns: most,
                ..Io::default()
            }));
        }
        assert_eq!(served(&story)[0].exchanges, Some(u64::MAX));
    }

    #[test]
    fn what_a_server_took_is_one_line() {
        let top = |call: &str, per_connection| TopCall { call: call.to_owned(), per_connection };
        let whole = Served {
            pid: 7,
            name: "server".to_owned(),
            connections: 1_234,
            connections_precision: Precision::AtLeast,
            user_ms: Some(100.0),
            system_ms: Some(48.0),
            cpu_ms_per_connection: Some(0.12),
            cpu_precision: Precision::AtMost,
            exchanges: Some(2_468),
            cpu_ms_per_exchange: Some(0.06),
            calls_per_connection: Some(12.34),
            top_calls: Some(vec![top("epoll_wait", 9.8), top("read", 2.0)]),
        };
        assert_eq!(
            whole.sentence(),
            "accepted at least 1,234 connections; processor time for each at most 0.1 ms, for each \
             of 2,468 exchanges 0.060 ms; calls for each 12: epoll_wait 9.8, read 2.0"
        );
        let bare = Served {
            connections: 1,
            connections_precision: Precision::Exact,
            cpu_ms_per_connection: None,
            exchanges: None,
            calls_per_connection: None,
            ..whole
        };
        assert_eq!(bare.sentence(), "accepted 1 connection");
    }
}
