//! No count is lost and no total goes down, while threads count, readers sum, and members come and
//! go.

use std::sync::Barrier;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use lastbyte_metrics::{
    Counter, Distribution, Family, Gauge, Held, Histogram, Snapshot, Value, statistics,
};
use proptest::collection::vec;
use proptest::prelude::*;

statistics! {
    /// What a route counts.
    struct Route {
        /// Flows accepted.
        flows_accepted: Counter,
        /// Flows that are open.
        flows_open: Gauge,
        /// Time to connect.
        connect_seconds: Histogram<Duration> = &[Duration::from_millis(1), Duration::from_secs(1)],
        /// Bytes of a flow.
        flow_bytes: Histogram<u64> = &[10, 100],
    }
}

#[test]
fn all_is_declared_once() {
    let seen = Family::<Route>::new("route").snapshot();
    let declared = |at: usize| {
        let declared = seen.readings()[at].declared();
        (declared.name(), declared.description(), declared.unit().map(|unit| unit.word()))
    };
    assert_eq!(declared(0), ("flows_accepted", "Flows accepted.", None));
    assert_eq!(declared(1), ("flows_open", "Flows that are open.", None));
    assert_eq!(declared(2), ("connect_seconds", "Time to connect.", Some("seconds")));
    assert_eq!(declared(3), ("flow_bytes", "Bytes of a flow.", Some("bytes")));
    assert!(seen.find("connect").is_none());
}

#[test]
fn a_bound_belongs_to_its_bucket() {
    let family = Family::<Route>::new("route");
    let route = family.register("db");
    for bytes in [0, 10, 11, 100, 101] {
        route.flow_bytes.observe(bytes);
    }
    route.connect_seconds.observe(Duration::from_millis(1));
    route.connect_seconds.observe(Duration::from_millis(1500));
    let seen = family.snapshot();
    let of = |name| match seen.find(name).unwrap().total() {
        Value::Histogram(seen) => seen,
        other => panic!("{other:?} is no histogram"),
    };
    assert_eq!(of("flow_bytes").buckets, [(10.0, 2), (100.0, 2), (f64::INFINITY, 1)]);
    assert_eq!((of("flow_bytes").count, of("flow_bytes").sum), (5, 222.0));
    assert_eq!(of("connect_seconds").buckets, [(0.001, 1), (1.0, 0), (f64::INFINITY, 1)]);
    assert_eq!(of("connect_seconds").sum, 1.501);
    assert_eq!(of("connect_seconds").count, 2);
}

#[test]
fn what_is_read_is_a_figure_or_a_line_each() {
    let family = Family::<Route>::new("route");
    let (db, web) = (family.register("db"), family.register("a \"b\"\n"));
    db.flows_accepted.add(5);
    web.flows_accepted.add(7);
    db.flow_bytes.observe(17);
    let seen = family.snapshot();
    let accepted = seen.find("flows_accepted").unwrap();
    assert_eq!(accepted.total().to_string(), "12");
    assert_eq!(
        accepted.to_string(),
        "flows_accepted{route=\"a \\\"b\\\"\\n\"} 7\nflows_accepted{route=\"db\"} 5\n"
    );
    assert_eq!(seen.find("flow_bytes").unwrap().total().to_string(), "count 1, sum 17");
}

#[test]
#[should_panic(expected = "`flows_accepted` is declared twice")]
fn a_name_means_one_thing() {
    let family = Family::<Route>::new("route");
    let _ = family.snapshot().and(family.snapshot());
}

#[test]
fn a_route_that_is_gone_is_kept_in_the_total() {
    let family = Family::<Route>::new("route");
    let old = family.register("db");
    old.flows_accepted.add(3);
    let flow = old.flows_open.hold();
    let same = family.register("db");
    same.flows_accepted.add(4);
    drop((old, same));
    // The flow still counts for its route.
    assert_eq!(members(&family.snapshot()), [("db".to_owned(), 7)]);
    drop(flow);
    assert_eq!(members(&family.snapshot()), [(String::new(), 7)]);
    let new = family.register("db");
    new.flows_accepted.add(1);
    assert_eq!(members(&family.snapshot()), [(String::new(), 7), ("db".to_owned(), 1)]);
    let whole = family.register("");
    whole.flows_accepted.add(10);
    assert_eq!(members(&family.snapshot()), [(String::new(), 17), ("db".to_owned(), 1)]);
}

/// Those that have no cells of their own, because so many others have, share some.
#[test]
fn no_count_of_many_threads_is_lost() {
    const OTHERS: usize = 64;
    const SHARING: usize = 4;
    const COUNTS: u64 = 50_000;
    let family = Family::<Route>::new("route");
    let route = family.register("db");
    let (others_counted, all_counted) = (Barrier::new(OTHERS + 1), Barrier::new(OTHERS + 1));
    thread::scope(|scope| {
        for _ in 0..OTHERS {
            scope.spawn(|| {
                route.flows_accepted.add(1);
                others_counted.wait();
                all_counted.wait();
            });
        }
        others_counted.wait();
        let count = || (0..COUNTS).for_each(|_| route.flows_accepted.add(1));
        let sharing: Vec<_> = (0..SHARING).map(|_| scope.spawn(count)).collect();
        let ended: Vec<_> = sharing.into_iter().map(ScopedJoinHandle::join).collect();
        all_counted.wait();
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(accepted(&family.snapshot()), OTHERS as u64 + SHARING as u64 * COUNTS);
}

/// Short threads have the cells of those before them, and go on from there.
#[test]
fn no_count_of_threads_that_follow_each_other_is_lost() {
    let family = Family::<Route>::new("route");
    let route = family.register("db");
    for _ in 0..500 {
        thread::scope(|scope| {
            scope.spawn(|| route.flows_accepted.add(1));
            scope.spawn(|| route.flows_accepted.add(1));
        });
    }
    assert_eq!(accepted(&family.snapshot()), 1_000);
}

/// Flows begin on one thread and end on another, and their routes come and go under them.
#[test]
fn a_reader_sees_no_total_go_down_and_no_gauge_below_zero() {
    const FLOWS: u64 = 20_000;
    let family = Family::<Route>::new("route");
    let begin_flows = |ends: SyncSender<Held>| {
        for (name, _) in NAMES.iter().cycle().zip(0..FLOWS) {
            let route = family.register(name);
            route.flows_accepted.add(1);
            ends.send(route.flows_open.hold()).unwrap();
            route.flow_bytes.observe(1);
        }
    };
    let mut before = (0, 0);
    let mut look = || {
        let seen = family.snapshot();
        let sizes = sizes(&seen);
        let now = (accepted(&seen), sizes.count);
        assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?}, then {now:?}");
        assert!(sizes.sum <= sizes.count as f64, "{sizes:?}");
        assert!(open(&seen) >= 0, "{} are open", open(&seen));
        before = now;
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (ends, ending) = sync_channel(8);
            threads.push(scope.spawn(|| begin_flows(ends)));
            threads.push(scope.spawn(|| ending.into_iter().for_each(drop::<Held>)));
        }
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            look();
        }
    });
    look();
    assert_eq!(before, (2 * FLOWS, 2 * FLOWS));
    assert_eq!(open(&family.snapshot()), 0);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Register(usize),
    Drop(usize),
    Count(usize, u64),
    Open(usize),
    Close,
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    let member = 0..NAMES.len();
    prop_oneof![
        member.clone().prop_map(Step::Register),
        member.clone().prop_map(Step::Drop),
        (member.clone(), 0..1_000_u64).prop_map(|(member, n)| Step::Count(member, n)),
        member.prop_map(Step::Open),
        Just(Step::Close),
        Just(Step::Look),
    ]
}

const NAMES: [&str; 4] = ["", "db", "web", "\"\\\n"];

proptest! {
    /// Whatever happens in whatever order: the totals are those of plain numbers.
    #[test]
    fn totals_are_those_of_plain_numbers(steps in vec(step(), 0..60)) {
        let family = Family::<Route>::new("route");
        let mut routes: [Option<Route>; NAMES.len()] = [const { None }; NAMES.len()];
        let mut flows = Vec::new();
        let mut counted = 0;
        for step in steps {
            match step {
                Step::Register(member) => routes[member] = Some(family.register(NAMES[member])),
                Step::Drop(member) => routes[member] = None,
                Step::Count(member, n) => if let Some(route) = &routes[member] {
                    route.flows_accepted.add(n);
                    route.flow_bytes.observe(n);
                    counted += n;
                }
                Step::Open(member) => {
                    flows.extend(routes[member].as_ref().map(|route| route.flows_open.hold()));
                }
                Step::Close => drop(flows.pop()),
                Step::Look => {
                    let seen = family.snapshot();
                    prop_assert_eq!(accepted(&seen), counted);
                    prop_assert_eq!(open(&seen), flows.len() as i64);
                    prop_assert_eq!(sizes(&seen).sum, counted as f64);
                }
            }
        }
    }
}

fn accepted(seen: &Snapshot) -> u64 {
    match seen.find("flows_accepted").unwrap().total() {
        Value::Counter(count) => count,
        other => panic!("{other:?} is no counter"),
    }
}

fn open(seen: &Snapshot) -> i64 {
    match seen.find("flows_open").unwrap().total() {
        Value::Gauge(level) => level,
        other => panic!("{other:?} is no gauge"),
    }
}

fn sizes(seen: &Snapshot) -> Distribution {
    match seen.find("flow_bytes").unwrap().total() {
        Value::Histogram(sizes) => sizes,
        other => panic!("{other:?} is no histogram"),
    }
}

/// Each member with its accepted flows.
fn members(seen: &Snapshot) -> Vec<(String, u64)> {
    let reading = seen.find("flows_accepted").unwrap();
    let count = |point| match reading.value(point) {
        Value::Counter(count) => count,
        other => panic!("{other:?} is no counter"),
    };
    let members = reading.points().iter();
    members.map(|point| (point.member().to_owned(), count(point))).collect()
}
