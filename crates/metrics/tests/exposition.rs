//! What is written is OpenMetrics 1.0, whatever a route is called: read back by a reader that knows
//! the part of the standard that is used here, and refuses all else.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::{Chars, Lines};
use std::time::Duration;

use lastbyte_metrics::{
    CONTENT_TYPE, Counter, Family, Gauge, Histogram, ReadCounter, ReadGauge, Snapshot, statistics,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

statistics! {
    /// What a route counts.
    struct Route {
        /// Flows accepted.
        flows_accepted: Counter,
        /// Flows that are open:
        /// a "gauge", with a \ in its description.
        flows_open: Gauge,
        /// Bytes sent.
        sent_bytes: Counter,
        /// Time to connect.
        connect_seconds: Histogram<Duration> = &[
            Duration::from_micros(10),
            Duration::from_millis(1500),
        ],
    }
}

statistics! {
    /// What a gate counts.
    struct Gate {
        /// Reloads of the configuration.
        reloads: Counter,
    }
}

#[test]
fn the_text_is_this() {
    let routes = Family::<Route>::new("route");
    let gate = Family::<Gate>::new("route");
    let db = routes.register("db");
    gate.register("").reloads.add(1);
    db.flows_accepted.add(3);
    db.flows_open.add(2);
    db.sent_bytes.add(u64::MAX);
    db.connect_seconds.observe(Duration::from_millis(250));
    let seen = gate.snapshot().and(routes.snapshot());
    assert_eq!(seen.open_metrics("lastbyte_gate"), TEXT);
    assert_eq!(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

const TEXT: &str = r#"# HELP lastbyte_gate_reloads Reloads of the configuration.
# TYPE lastbyte_gate_reloads counter
lastbyte_gate_reloads_total 1
# HELP lastbyte_gate_flows_accepted Flows accepted.
# TYPE lastbyte_gate_flows_accepted counter
lastbyte_gate_flows_accepted_total{route="db"} 3
# HELP lastbyte_gate_flows_open Flows that are open: a \"gauge\", with a \\ in its description.
# TYPE lastbyte_gate_flows_open gauge
lastbyte_gate_flows_open{route="db"} 2
# HELP lastbyte_gate_sent_bytes Bytes sent.
# TYPE lastbyte_gate_sent_bytes counter
# UNIT lastbyte_gate_sent_bytes bytes
lastbyte_gate_sent_bytes_total{route="db"} 18446744073709551615
# HELP lastbyte_gate_connect_seconds Time to connect.
# TYPE lastbyte_gate_connect_seconds histogram
# UNIT lastbyte_gate_connect_seconds seconds
lastbyte_gate_connect_seconds_sum{route="db"} 0.25
lastbyte_gate_connect_seconds_count{route="db"} 1
lastbyte_gate_connect_seconds_bucket{le="0.00001",route="db"} 0
lastbyte_gate_connect_seconds_bucket{le="1.5",route="db"} 1
lastbyte_gate_connect_seconds_bucket{le="+Inf",route="db"} 1
# EOF
"#;

statistics! {
    /// What is read of a gate.
    struct Machine {
        /// Descriptors that are open.
        descriptors: ReadGauge,
        /// Bytes that the log takes.
        log_bytes: ReadGauge,
        /// Bytes that a card received.
        card_received_bytes: ReadCounter,
    }
}

/// As what is counted; what is not known has a description and no sample.
#[test]
fn the_text_of_what_is_read_is_this() {
    let family = Family::<Machine>::new("card");
    let (whole, card) = (family.register(""), family.register("e\"0"));
    let _sources = [
        whole.descriptors.read_with(|| 17),
        whole.log_bytes.read_with(|| None),
        card.card_received_bytes.read_with(|| u64::MAX),
    ];
    let text = family.snapshot().open_metrics("gate");
    assert_eq!(
        text,
        r#"# HELP gate_descriptors Descriptors that are open.
# TYPE gate_descriptors gauge
gate_descriptors 17
# HELP gate_log_bytes Bytes that the log takes.
# TYPE gate_log_bytes gauge
# UNIT gate_log_bytes bytes
# HELP gate_card_received_bytes Bytes that a card received.
# TYPE gate_card_received_bytes counter
# UNIT gate_card_received_bytes bytes
gate_card_received_bytes_total{card="e\"0"} 18446744073709551615
# EOF
"#
    );
    assert_eq!(read(&family.snapshot()).len(), 3);
}

#[test]
fn without_members_there_are_descriptions_alone() {
    let families = read(&Family::<Route>::new("route").snapshot());
    assert_eq!(families.len(), 4);
    assert!(families.values().all(|family| family.samples.is_empty()));
}

#[test]
#[should_panic(expected = "histograms have the label `le`")]
fn a_label_of_the_standard_is_refused() {
    let _ = Family::<Route>::new("le");
}

/// Of any characters, those that mean something in the text among them.
fn name() -> impl Strategy<Value = String> {
    let meaning =
        proptest::sample::select(&['"', '\\', '\n', '\r', '{', '}', ',', '=', '#', ' ', 'n'][..]);
    vec(prop_oneof![any::<char>(), meaning], 0..8).prop_map(String::from_iter)
}

proptest! {
    /// Names come back as they were given, each with its own figures.
    #[test]
    fn names_of_any_characters_come_back(
        routes in btree_map(name(), (any::<u64>(), 0..1_000_u64, 0..3_000_u64), 0..6)
    ) {
        let family = Family::<Route>::new("route");
        let mut living = Vec::new();
        for (name, (sent, open, milliseconds)) in &routes {
            let route = family.register(name);
            route.sent_bytes.add(*sent);
            route.flows_open.add(*open);
            route.connect_seconds.observe(Duration::from_millis(*milliseconds));
            living.push(route);
        }
        let families = read(&family.snapshot());
        for (name, (sent, open, milliseconds)) in &routes {
            let sample = |family: &str, suffix: &str, le: Option<&str>| {
                let of_route = (!name.is_empty()).then(|| ("route".to_owned(), name.clone()));
                let of_bucket = le.map(|le| ("le".to_owned(), le.to_owned()));
                let labels = of_route.into_iter().chain(of_bucket).collect();
                families[family].samples[&(suffix.to_owned(), labels)].as_str()
            };
            prop_assert_eq!(sample("gate_sent_bytes", "_total", None), sent.to_string());
            prop_assert_eq!(sample("gate_flows_open", "", None), open.to_string());
            prop_assert_eq!(sample("gate_connect_seconds", "_count", None), "1");
            let sum: f64 = sample("gate_connect_seconds", "_sum", None).parse().unwrap();
            prop_assert_eq!(sum, *milliseconds as f64 / 1e3);
            let bucket = |le| sample("gate_connect_seconds", "_bucket", Some(le));
            prop_assert_eq!(bucket("+Inf"), "1");
            prop_assert_eq!(bucket("1.5"), if *milliseconds <= 1_500 { "1" } else { "0" });
        }
        let samples = |family: &str| families[family].samples.len();
        prop_assert_eq!(samples("gate_sent_bytes"), routes.len());
        prop_assert_eq!(samples("gate_connect_seconds"), 5 * routes.len());
    }
}

type Labels = BTreeSet<(String, String)>;

struct MetricFamily {
    kind: String,
    unit: Option<String>,
    /// Suffix and labels, and the value as it was written.
    samples: BTreeMap<(String, Labels), String>,
}

/// Reads the text, line by line; panics at what the standard has otherwise.
fn read(seen: &Snapshot) -> BTreeMap<String, MetricFamily> {
    let text = seen.open_metrics("gate");
    let body = text.strip_suffix("# EOF\n").expect("the end mark is last");
    let mut families = BTreeMap::new();
    let mut lines = body.lines().peekable();
    while lines.peek().is_some() {
        let (name, family) = read_family(&mut lines);
        assert!(families.insert(name, family).is_none(), "a family is in one piece");
    }
    families
}

fn read_family(lines: &mut Peekable<Lines<'_>>) -> (String, MetricFamily) {
    let help = lines.next().and_then(|line| line.strip_prefix("# HELP ")).expect("HELP");
    let (name, description) = help.split_once(' ').unwrap();
    assert!(!description.is_empty());
    let about = |line: &str, what: &str| {
        let rest = line.strip_prefix(&format!("# {what} {name} "));
        rest.map(str::to_owned)
    };
    let kind = about(lines.next().unwrap(), "TYPE").expect("TYPE");
    let unit = lines.peek().and_then(|line| about(line, "UNIT"));
    if let Some(unit) = &unit {
        assert!(name.ends_with(&format!("_{unit}")), "{name} ends in {unit}");
        lines.next();
    }
    let mut family = MetricFamily { kind, unit, samples: BTreeMap::new() };
    while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
        let (suffix, labels, value) = read_sample(line.strip_prefix(name).expect("its family"));
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_sum", "_count", "_bucket"],
            other => panic!("{other} is no type of ours"),
        };
        assert!(allowed.contains(&suffix.as_str()), "`{suffix}` of a {}", family.kind);
        let has_bound = labels.iter().any(|(key, _)| key == "le");
        assert_eq!(has_bound, suffix == "_bucket");
        let again = family.samples.insert((suffix, labels), value);
        assert!(again.is_none(), "each sample is there once: {line}");
    }
    assert_eq!(family.kind == "histogram", family.unit.as_deref() == Some("seconds"));
    (name.to_owned(), family)
}

/// `_total{route="db"} 7`, what follows the name of the family.
fn read_sample(text: &str) -> (String, Labels, String) {
    let mut rest = text.chars().peekable();
    let mut suffix = String::new();
    while let Some(c) = rest.next_if(|c| *c == '_' || c.is_ascii_lowercase()) {
        suffix.push(c);
    }
    let mut labels = Labels::new();
    if rest.next_if_eq(&'{').is_some() {
        loop {
            let (key, value) = read_label(&mut rest);
            assert!(labels.insert((key, value)), "each label is there once: {text}");
            match rest.next() {
                Some(',') => {}
                Some('}') => break,
                other => panic!("{other:?} after a label: {text}"),
            }
        }
    }
    assert_eq!(rest.next(), Some(' '), "{text}");
    let value: String = rest.collect();
    value.parse::<f64>().unwrap();
    (suffix, labels, value)
}

fn read_label(rest: &mut Peekable<Chars<'_>>) -> (String, String) {
    let mut key = String::new();
    while let Some(c) = rest.next_if(char::is_ascii_lowercase) {
        key.push(c);
    }
    assert_eq!((rest.next(), rest.next()), (Some('='), Some('"')));
    let mut value = String::new();
    loop {
        match rest.next().expect("a quote ends the value") {
            '"' => return (key, value),
            '\\' => value.push(match rest.next() {
                Some('n') => '\n',
                Some(c @ ('"' | '\\')) => c,
                other => panic!("`\\` and {other:?}"),
            }),
            c => value.push(c),
        }
    }
}
