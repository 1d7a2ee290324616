//! A statistic that is read has the value of its functions, as long as there are some.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread;

use lastbyte_metrics::{
    Counter, Family, Origin, ReadCounter, ReadGauge, Snapshot, Source, Value, statistics,
};

statistics! {
    /// What is known of a queue.
    struct Queue {
        /// Orders accepted.
        accepted: Counter,
        /// Orders that wait.
        waiting: ReadGauge,
        /// Bytes that the orders hold.
        held_bytes: ReadGauge,
        /// Orders lost.
        lost: ReadCounter,
    }
}

/// A number somewhere else, and functions that read it.
#[derive(Debug, Clone, Default)]
struct Elsewhere(Arc<AtomicU64>);

impl Elsewhere {
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }

    fn reader(&self) -> impl FnMut() -> u64 + Send + use<> {
        let number = Arc::clone(&self.0);
        move || number.load(Ordering::SeqCst)
    }
}

fn lines(seen: &Snapshot, name: &str) -> String {
    seen.find(name).unwrap().to_string()
}

fn total(seen: &Snapshot, name: &str) -> Value {
    seen.find(name).unwrap().total()
}

#[test]
fn a_function_is_asked_by_each_snapshot_and_by_nothing_else() {
    let family = Family::<Queue>::new("queue");
    let queue = family.register("db");
    let calls = Elsewhere::default();
    let counted = Arc::clone(&calls.0);
    let _source = queue.waiting.read_with(move || counted.fetch_add(1, Ordering::SeqCst) + 1);
    queue.accepted.add(1);
    family.register("web").accepted.add(1);
    assert_eq!(calls.0.load(Ordering::SeqCst), 0);
    assert_eq!(lines(&family.snapshot(), "waiting"), "waiting{queue=\"db\"} 1\n");
    assert_eq!(lines(&family.snapshot(), "waiting"), "waiting{queue=\"db\"} 2\n");
}

#[test]
fn it_is_declared_as_what_it_shows() {
    let seen = Family::<Queue>::new("queue").snapshot();
    let origins: Vec<_> = seen.readings().iter().map(|one| one.declared().origin()).collect();
    assert_eq!(origins, [Origin::Counted, Origin::Read, Origin::Read, Origin::Read]);
    let unit = seen.find("held_bytes").unwrap().declared().unit().unwrap();
    assert_eq!(unit.word(), "bytes");
    assert_eq!(total(&seen, "waiting"), Value::Gauge(0));
}

#[test]
fn a_gauge_goes_with_its_source() {
    let family = Family::<Queue>::new("queue");
    let queue = family.register("db");
    assert_eq!(lines(&family.snapshot(), "waiting"), "");
    let length = Elsewhere::default();
    let source = queue.waiting.read_with(length.reader());
    assert_eq!(lines(&family.snapshot(), "waiting"), "waiting{queue=\"db\"} 0\n");
    length.set(7);
    drop(queue);
    // The source alone keeps its member.
    assert_eq!(lines(&family.snapshot(), "waiting"), "waiting{queue=\"db\"} 7\n");
    drop(source);
    let seen = family.snapshot();
    assert_eq!(lines(&seen, "waiting"), "");
    assert_eq!(lines(&seen, "accepted"), "accepted 0\n");
    assert_eq!(Arc::strong_count(&length.0), 1);
}

#[test]
fn several_sources_add_up() {
    let family = Family::<Queue>::new("queue");
    let (old, new) = (Elsewhere::default(), Elsewhere::default());
    let sources = [
        family.register("db").waiting.read_with(old.reader()),
        family.register("db").waiting.read_with(new.reader()),
    ];
    let _web = family.register("web").waiting.read_with(|| 100);
    old.set(2);
    new.set(3);
    let seen = family.snapshot();
    assert_eq!(lines(&seen, "waiting"), "waiting{queue=\"db\"} 5\nwaiting{queue=\"web\"} 100\n");
    assert_eq!(total(&seen, "waiting"), Value::Gauge(105));
    let [first, _second] = sources;
    drop(first);
    assert_eq!(total(&family.snapshot(), "waiting"), Value::Gauge(103));
}

#[test]
fn a_counter_that_is_read_never_goes_down() {
    let family = Family::<Queue>::new("queue");
    let lost = Elsewhere::default();
    let source = family.register("db").lost.read_with(lost.reader());
    for (set, seen) in [(5, 5), (3, 5), (9, 9)] {
        lost.set(set);
        assert_eq!(total(&family.snapshot(), "lost"), Value::Counter(seen));
    }
    // What came after the last snapshot is not lost either.
    lost.set(11);
    drop(source);
    assert_eq!(lines(&family.snapshot(), "lost"), "lost 11\n");
    let _another = family.register("db").lost.read_with(|| 4);
    let seen = family.snapshot();
    assert_eq!(lines(&seen, "lost"), "lost 11\nlost{queue=\"db\"} 4\n");
    assert_eq!(total(&seen, "lost"), Value::Counter(15));
}

#[test]
fn a_source_that_is_gone_leaves_its_count_to_the_next() {
    let family = Family::<Queue>::new("queue");
    let queue = family.register("db");
    drop(queue.lost.read_with(|| 4));
    assert_eq!(lines(&family.snapshot(), "lost"), "lost{queue=\"db\"} 4\n");
    let _next = queue.lost.read_with(|| 1);
    assert_eq!(lines(&family.snapshot(), "lost"), "lost{queue=\"db\"} 5\n");
}

#[test]
fn what_is_not_known_is_a_gap_in_its_own_series_alone() {
    let family = Family::<Queue>::new("queue");
    let (db, web) = (family.register("db"), family.register("web"));
    let is_known = Elsewhere::default();
    let mut read = is_known.reader();
    let _known_at_times = db.waiting.read_with(move || (read() == 1).then_some(3));
    let _known = web.waiting.read_with(|| 4);
    db.accepted.add(1);
    let seen = family.snapshot();
    assert_eq!(
        lines(&seen, "waiting"),
        "waiting{queue=\"db\"} unknown\nwaiting{queue=\"web\"} 4\n"
    );
    assert_eq!(total(&seen, "waiting"), Value::Unknown);
    assert_eq!(total(&seen, "accepted"), Value::Counter(1));
    is_known.set(1);
    assert_eq!(total(&family.snapshot(), "waiting"), Value::Gauge(7));
}

#[test]
fn a_function_that_panics_harms_nothing_else() {
    let family = Family::<Queue>::new("queue");
    let queue = family.register("db");
    let panics = Elsewhere::default();
    panics.set(1);
    let mut read = panics.reader();
    let _waiting = queue.waiting.read_with(move || {
        assert_eq!(read(), 0, "this panic is part of a test");
        3
    });
    let mut read = panics.reader();
    let lost = queue.lost.read_with(move || {
        assert_eq!(read(), 0, "this panic is part of a test");
        5
    });
    queue.accepted.add(1);
    let seen = family.snapshot();
    assert_eq!(lines(&seen, "accepted"), "accepted{queue=\"db\"} 1\n");
    assert_eq!([total(&seen, "waiting"), total(&seen, "lost")], [Value::Unknown, Value::Unknown]);
    panics.set(0);
    let seen = family.snapshot();
    assert_eq!(
        [total(&seen, "waiting"), total(&seen, "lost")],
        [Value::Gauge(3), Value::Counter(5)]
    );
    panics.set(1);
    assert_eq!(total(&family.snapshot(), "lost"), Value::Counter(5));
    drop(lost);
    assert_eq!(total(&family.snapshot(), "lost"), Value::Counter(5));
}

#[test]
fn a_function_may_count_and_register() {
    let family = Arc::new(Family::<Queue>::new("queue"));
    let weak: Weak<_> = Arc::downgrade(&family);
    let _source = family.register("db").waiting.read_with(move || {
        let family = weak.upgrade()?;
        let other = family.register("web");
        other.accepted.add(1);
        drop(other.waiting.read_with(|| 2));
        Some(1)
    });
    assert_eq!(total(&family.snapshot(), "waiting"), Value::Gauge(1));
    assert_eq!(total(&family.snapshot(), "accepted"), Value::Counter(2));
}

/// Counting and registering go on while a function takes its time.
#[test]
fn a_slow_function_holds_up_nobody_who_counts() {
    let family = Family::<Queue>::new("queue");
    let queue = family.register("db");
    let (say_begun, begun) = sync_channel(0);
    let (go_on, may_go_on) = sync_channel(0);
    let _slow = queue.waiting.read_with(move || {
        say_begun.send(()).unwrap();
        may_go_on.recv().unwrap();
        1
    });
    thread::scope(|scope| {
        let reader = scope.spawn(|| family.snapshot());
        begun.recv().unwrap();
        queue.accepted.add(1);
        let _other: Source = family.register("web").waiting.read_with(|| 2);
        go_on.send(()).unwrap();
        let seen = reader.join().unwrap();
        assert_eq!(total(&seen, "accepted"), Value::Counter(1));
        // It came too late to be asked.
        assert_eq!(lines(&seen, "waiting"), "waiting{queue=\"db\"} 1\n");
    });
}

/// Sources come and go under a reader: what they had counted is seen once, wherever it is.
#[test]
fn no_count_is_lost_or_doubled_while_sources_go() {
    const SOURCES: u64 = 2_000;
    let family = Family::<Queue>::new("queue");
    let keep = family.register("db");
    let count = |seen: &Snapshot| match total(seen, "lost") {
        Value::Counter(count) => count,
        other => panic!("{other:?} is no counter"),
    };
    thread::scope(|scope| {
        let coming = scope.spawn(|| {
            for _ in 0..SOURCES {
                drop(keep.lost.read_with(|| 1));
            }
        });
        let mut before = 0;
        while !coming.is_finished() {
            let now = count(&family.snapshot());
            assert!((before..=SOURCES).contains(&now), "{before}, then {now}");
            before = now;
        }
    });
    assert_eq!(count(&family.snapshot()), SOURCES);
}
