//! The statistics of a gate, each with its name and description.
//!
//! A flow is counted when it is accepted, and when it leaves its account. Bytes are also counted as they
//! move, so that a flow of days is visible; the rest is added with the account. In total the sums equal
//! those of all accounts.

use std::time::{Duration, SystemTime};

use lastbyte_core::account::{Account, How, Party, Traffic};
use lastbyte_metrics::{
    Counter, Declared, Family, Gauge, Histogram, ReadCounter, ReadGauge, Snapshot, Statistics,
    statistics,
};

use crate::progress::Moved;

statistics! {
    /// The statistics of a route.
    pub struct RouteStatistics {
        /// Connections accepted.
        pub flows_accepted: Counter,
        /// Flows that are open now.
        pub flows_open: Gauge,
        /// Flows whose sides both ended with a FIN and acknowledged every byte.
        pub flows_complete: Counter,
        /// Flows that ended with a FIN from both sides, each passed on.
        pub flows_ended_fin: Counter,
        /// Flows that ended with a reset by one side, passed on to the other.
        pub flows_ended_reset: Counter,
        /// Flows whose upstream refused the connection.
        pub flows_ended_refused: Counter,
        /// Flows whose upstream was unreachable.
        pub flows_ended_unreachable: Counter,
        /// Flows whose upstream did not answer the connect in time.
        pub flows_ended_connect_timeout: Counter,
        /// Flows to a name that has no address.
        pub flows_ended_unresolved: Counter,
        /// Flows whose client or destination the route does not allow.
        pub flows_ended_not_allowed: Counter,
        /// Flows beyond the limit of all flows.
        pub flows_ended_too_many_flows: Counter,
        /// Flows beyond the limit of one client's flows.
        pub flows_ended_too_many_of_client: Counter,
        /// Flows beyond the limit of connects in progress.
        pub flows_ended_too_many_dials: Counter,
        /// Flows to the gate itself, or to a target that leads back to it.
        pub flows_ended_loop: Counter,
        /// Flows whose client sent a malformed request.
        pub flows_ended_bad_request: Counter,
        /// Flows whose client sent no credentials, or wrong ones.
        pub flows_ended_unauthenticated: Counter,
        /// Flows whose client did not send its request in time.
        pub flows_ended_request_timeout: Counter,
        /// Flows on which nothing moved for as long as the route allows.
        pub flows_ended_idle: Counter,
        /// Flows of which a side accepted nothing for as long as the route allows.
        pub flows_ended_stalled: Counter,
        /// Flows of which a side did not acknowledge the last bytes in time.
        pub flows_ended_unacked: Counter,
        /// Flows that were reset because the gate was told to stop.
        pub flows_ended_stopped: Counter,
        /// Flows for which there was no descriptor left.
        pub flows_ended_no_descriptors: Counter,
        /// Flows that failed for another reason: the log has it.
        pub flows_ended_failed: Counter,
        /// Of the flows that ended with a reset, those that the client's side reset.
        pub resets_by_client: Counter,
        /// Of the flows that ended with a reset, those that the upstream's side reset.
        pub resets_by_upstream: Counter,
        /// Bytes read from clients.
        pub up_received_bytes: Counter,
        /// Of those, bytes that this kernel accepted for upstreams.
        pub up_written_bytes: Counter,
        /// Of those, bytes that the upstreams' kernels acknowledged, where it is known. It is known
        /// at the end of a flow.
        pub up_acked_bytes: Counter,
        /// Bytes read from upstreams.
        pub down_received_bytes: Counter,
        /// Of those, bytes that this kernel accepted for clients.
        pub down_written_bytes: Counter,
        /// Of those, bytes that the clients' kernels acknowledged, where it is known. It is known at
        /// the end of a flow.
        pub down_acked_bytes: Counter,
        /// Segments retransmitted to clients, of flows that have ended.
        pub client_retransmitted_segments: Counter,
        /// Segments retransmitted to upstreams, of flows that have ended.
        pub upstream_retransmitted_segments: Counter,
        /// Time until an upstream was connected, names included.
        pub connect_seconds: Histogram<Duration> = &[
            Duration::from_micros(500),
            Duration::from_millis(1),
            Duration::from_millis(5),
            Duration::from_millis(20),
            Duration::from_millis(50),
            Duration::from_millis(100),
            Duration::from_millis(250),
            Duration::from_millis(500),
            Duration::from_secs(1),
            Duration::from_secs(3),
            Duration::from_secs(10),
        ],
        /// Time from a flow's accept to its end.
        pub flow_seconds: Histogram<Duration> = &[
            Duration::from_millis(10),
            Duration::from_millis(100),
            Duration::from_secs(1),
            Duration::from_secs(10),
            Duration::from_secs(60),
            Duration::from_secs(600),
            Duration::from_secs(3_600),
            Duration::from_secs(86_400),
        ],
    }
}

statistics! {
    /// The statistics of the whole gate.
    pub struct GateStatistics {
        /// When the gate was started: whole seconds since 1970 (UTC).
        pub started_at: Gauge,
        /// Threads that relay flows.
        pub workers: ReadGauge,
        /// Times that the gate paused accepting, for lack of descriptors or memory.
        pub accept_pauses: Counter,
        /// Reloads that succeeded.
        pub reloads: Counter,
        /// Reloads that failed: nothing changed.
        pub reloads_failed: Counter,
        /// Accounts that never became a line of the log, because it could not keep up.
        pub log_lines_lost: ReadCounter,
    }
}

/// All statistics of a gate, in the order in which they are shown.
pub fn declared() -> impl Iterator<Item = &'static Declared> {
    GateStatistics::declared().iter().chain(RouteStatistics::declared())
}

/// The statistics of one gate.
#[derive(Debug)]
pub(crate) struct AllStatistics {
    pub(crate) gate: GateStatistics,
    whole: Family<GateStatistics>,
    routes: Family<RouteStatistics>,
}

impl AllStatistics {
    /// Nothing has happened yet, and the gate starts now.
    pub(crate) fn new() -> Self {
        let whole = Family::new("route");
        let gate: GateStatistics = whole.register("");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        gate.started_at.add(now.as_secs());
        Self { gate, whole, routes: Family::new("route") }
    }

    /// What a route of this name counts with.
    pub(crate) fn of_route(&self, name: &str) -> RouteStatistics {
        self.routes.register(name)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.whole.snapshot().and(self.routes.snapshot())
    }
}

impl RouteStatistics {
    /// Counts bytes that have moved.
    pub(crate) fn moved(&self, Moved { up, down }: Moved) {
        for (counter, bytes) in [
            (&self.up_received_bytes, up.received),
            (&self.up_written_bytes, up.written),
            (&self.down_received_bytes, down.received),
            (&self.down_written_bytes, down.written),
        ] {
            if bytes > 0 {
                counter.add(bytes);
            }
        }
    }

    /// Counts a flow that has ended. `counted` is what was counted of its bytes before.
    pub(crate) fn ended(&self, account: &Account, counted: Moved) {
        self.moved(Moved::of(&account.up, &account.down).since(counted));
        let acked = |traffic: &Traffic| traffic.acked.unwrap_or_default();
        self.up_acked_bytes.add(acked(&account.up));
        self.down_acked_bytes.add(acked(&account.down));
        let again = account.client.retransmitted_segments.unwrap_or_default();
        self.client_retransmitted_segments.add(again.into());
        if let Some(upstream) = &account.upstream {
            let again = upstream.retransmitted_segments.unwrap_or_default();
            self.upstream_retransmitted_segments.add(again.into());
            if let Some(time) = account.connect {
                self.connect_seconds.observe(time);
            }
        }
        self.flow_seconds.observe(account.took);
        if account.is_complete() {
            self.flows_complete.add(1);
        }
        match (account.ended.how, account.ended.by) {
            (How::Reset, Party::Client) => self.resets_by_client.add(1),
            (How::Reset, Party::Upstream) => self.resets_by_upstream.add(1),
            _ => {}
        }
        self.flows_ended(account.ended.how).add(1);
    }

    /// Counts the flows that ended so: its name is `flows_ended_` and [`How::word`].
    fn flows_ended(&self, how: How) -> &Counter {
        match how {
            How::Fin => &self.flows_ended_fin,
            How::Reset => &self.flows_ended_reset,
            How::Refused => &self.flows_ended_refused,
            How::Unreachable => &self.flows_ended_unreachable,
            How::ConnectTimeout => &self.flows_ended_connect_timeout,
            How::Unresolved => &self.flows_ended_unresolved,
            How::NotAllowed => &self.flows_ended_not_allowed,
            How::TooManyFlows => &self.flows_ended_too_many_flows,
            How::TooManyOfClient => &self.flows_ended_too_many_of_client,
            How::TooManyDials => &self.flows_ended_too_many_dials,
            How::Loop => &self.flows_ended_loop,
            How::BadRequest => &self.flows_ended_bad_request,
            How::Unauthenticated => &self.flows_ended_unauthenticated,
            How::RequestTimeout => &self.flows_ended_request_timeout,
            How::Idle => &self.flows_ended_idle,
            How::Stalled => &self.flows_ended_stalled,
            How::Unacked => &self.flows_ended_unacked,
            How::Stopped => &self.flows_ended_stopped,
            How::NoDescriptors => &self.flows_ended_no_descriptors,
            _ => &self.flows_ended_failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use lastbyte_core::account::{Ended, Leg};
    use lastbyte_metrics::Kind;

    use super::*;

    fn account(how: How) -> Account {
        let mut account = Account::begin(1, "db".into(), Duration::ZERO, Leg::default());
        account.ended = Ended::new(Party::Client, how);
        account
    }

    fn total(all: &AllStatistics, name: &str) -> String {
        all.snapshot().find(name).unwrap_or_else(|| panic!("no {name}")).total().to_string()
    }

    #[test]
    fn every_way_to_end_has_a_statistic_of_its_name() {
        let all = AllStatistics::new();
        let db = all.of_route("db");
        for how in How::ALL {
            let name = format!("flows_ended_{}", how.word());
            db.ended(&account(how), Moved::default());
            assert_eq!(total(&all, &name), "1", "{name}");
        }
        assert_eq!(
            (total(&all, "resets_by_client"), total(&all, "flow_seconds")),
            ("1".to_owned(), format!("count {}, sum 0", How::ALL.len()))
        );
        let named = declared().filter(|one| one.name().starts_with("flows_ended_")).count();
        assert_eq!(named, How::ALL.len());
    }

    #[test]
    fn what_was_counted_as_it_moved_is_not_counted_again() {
        let all = AllStatistics::new();
        let db = all.of_route("db");
        let mut account = account(How::Fin);
        (account.up.received, account.up.written, account.up.acked) = (10, 9, Some(8));
        (account.down.received, account.down.written) = (3, 3);
        let mut counted = Moved::default();
        (counted.up.received, counted.up.written, counted.down.received) = (7, 9, 1);
        db.moved(counted);
        db.ended(&account, counted);
        for (name, bytes) in [
            ("up_received_bytes", "10"),
            ("up_written_bytes", "9"),
            ("up_acked_bytes", "8"),
            ("down_received_bytes", "3"),
            ("down_written_bytes", "3"),
            ("down_acked_bytes", "0"),
        ] {
            assert_eq!(total(&all, name), bytes, "{name}");
        }
    }

    #[test]
    fn the_manual_has_every_statistic() {
        let file = include_str!("../../../docs/manual/gate.md");
        let (_, rest) = file.split_once("<!-- statistics -->\n").unwrap();
        let (table, _) = rest.split_once("<!-- /statistics -->").unwrap();
        let mut right = "| Name | Kind | Of | Meaning |\n| --- | --- | --- | --- |\n".to_owned();
        for one in declared() {
            let kind = match one.kind() {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                _ => "histogram",
            };
            let whole = GateStatistics::declared().contains(one);
            let of = if whole { "the gate" } else { "each route" };
            let (name, says) = (one.name(), one.description());
            right += &format!("| `{name}` | {kind} | {of} | {says} |\n");
        }
        assert!(table == right, "docs/manual/gate.md should have, between its marks:\n{right}");
    }

    #[test]
    fn each_statistic_is_declared_once() {
        let mut names: Vec<_> = declared().map(Declared::name).collect();
        assert_eq!(AllStatistics::new().snapshot().readings().len(), names.len());
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
