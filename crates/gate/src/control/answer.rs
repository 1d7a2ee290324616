//! Answers, as JSON.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use lastbyte_metrics::{Declared, Kind, Reading, Snapshot, Statistics as _, Unit, Value};
use serde::{Deserialize, Serialize};

use crate::LiveFlow;
use crate::config::keys;
use crate::gate::View;
use crate::statistics::{self, GateStatistics};

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Statistics that were asked for.
    Statistics(Vec<Statistic>),
    /// A description of each statistic.
    List(Vec<Description>),
    /// The flows that are open, in the order of their numbers.
    Flows(Vec<Flow>),
    /// All statistics, as OpenMetrics text.
    Openmetrics(String),
    /// The process that answers.
    Version(Identity),
    /// The command was done: a sentence.
    Done(String),
    /// It was not: a sentence.
    Error(String),
}

/// The description of a statistic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// `bytes` or `seconds`; `None` for a number of things.
    pub unit: Option<String>,
    /// Whether it is counted for each route.
    pub by_route: bool,
    /// What it counts.
    pub description: String,
}

/// A statistic with its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistic {
    /// Its description.
    #[serde(flatten)]
    pub description: Description,
    /// The value of all routes together, with removed ones.
    pub total: Figure,
    /// The value of each route; empty for a statistic of the whole gate. Removed routes are together in
    /// the one without a name.
    pub routes: Vec<OfRoute>,
}

/// The value of one route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfRoute {
    /// Its name; empty for removed ones.
    pub route: String,
    /// The value.
    pub value: Figure,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// Of a counter, or of a gauge, none of which can be negative here.
    Count(u64),
    /// Of a histogram.
    Distribution(Distribution),
    /// The value could not be read; `null` in JSON.
    Unknown,
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Distribution(seen) => write!(f, "count {}, sum {}", seen.count, seen.sum),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The value of a histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    /// Their sum, in the statistic's unit.
    pub sum: f64,
    /// How the values are distributed.
    pub buckets: Vec<Bucket>,
}

/// One bucket of a histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The largest value in it, in the statistic's unit; `None` for no bound.
    pub up_to: Option<f64>,
    /// How many values are in this bucket alone.
    pub count: u64,
}

/// A flow that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its number, as in its account.
    pub flow: u64,
    /// The route that it took.
    pub route: String,
    /// The client's address.
    pub client: SocketAddr,
    /// The host and port that it is to reach, once that is known.
    pub wanted: Option<String>,
    /// The upstream's address, once it is connected.
    pub upstream: Option<SocketAddr>,
    /// For how long it has been open, in milliseconds.
    pub age_ms: u64,
    /// Bytes read from the client so far.
    pub up_received_bytes: u64,
    /// Of those, bytes that the gate's kernel took for the upstream.
    pub up_written_bytes: u64,
    /// Bytes read from the upstream so far.
    pub down_received_bytes: u64,
    /// Of those, bytes that the gate's kernel took for the client.
    pub down_written_bytes: u64,
}

/// The process that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its routes, and where they listen.
    pub routes: Vec<(String, SocketAddr)>,
}

impl Answer {
    pub(super) fn statistics(seen: &Snapshot) -> Self {
        Self::Statistics(seen.readings().iter().map(Statistic::of).collect())
    }

    /// The statistic of this name, or a sentence that suggests similar names.
    pub(super) fn statistic(seen: &Snapshot, name: &str) -> Self {
        match seen.find(name) {
            Some(reading) => Self::Statistics(vec![Statistic::of(reading)]),
            None => Self::Error(format!("there is no statistic {name:?}: {}", suggestion(name))),
        }
    }

    pub(super) fn list() -> Self {
        Self::List(statistics::declared().map(Description::of).collect())
    }

    pub(super) fn flows(mut flows: Vec<LiveFlow>) -> Self {
        flows.sort_unstable_by_key(|flow| flow.flow);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shown = |flow: LiveFlow| Flow {
            flow: flow.flow,
            route: flow.route.to_string(),
            client: flow.client,
            wanted: flow.wanted,
            upstream: flow.upstream,
            age_ms: u64::try_from(now.saturating_sub(flow.began).as_millis()).unwrap_or(u64::MAX),
            up_received_bytes: flow.moved.up.received,
            up_written_bytes: flow.moved.up.written,
            down_received_bytes: flow.moved.down.received,
            down_written_bytes: flow.moved.down.written,
        };
        Self::Flows(flows.into_iter().map(shown).collect())
    }

    pub(super) fn version(view: &View) -> Self {
        let routes = view.listening().into_iter();
        Self::Version(Identity {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            routes: routes.map(|place| (place.route.to_string(), place.address)).collect(),
        })
    }
}

/// A suggestion for an unknown name: the second half of a sentence.
fn suggestion(name: &str) -> String {
    let names = statistics::declared().map(Declared::name);
    let mut near: Vec<_> = names
        .map(|known| (keys::distance(name, known), known))
        .filter(|(off, known)| *off <= 1 + known.len() / 4 || is_part(name, known))
        .collect();
    near.sort_unstable();
    let near: Vec<_> = near.iter().take(MOST_NEAR).map(|(_, known)| format!("`{known}`")).collect();
    match near.as_slice() {
        [] => "`lastbyte gate stat --list` lists all".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    }
}

/// How many names are suggested at most.
const MOST_NEAR: usize = 5;

/// Whether a word is part of a name.
fn is_part(word: &str, name: &str) -> bool {
    word.len() >= 3 && name.contains(word)
}

impl Description {
    fn of(declared: &Declared) -> Self {
        let kind = match declared.kind() {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            _ => "histogram",
        };
        let of_gate = GateStatistics::declared().iter().any(|own| own.name() == declared.name());
        Self {
            name: declared.name().to_owned(),
            kind: kind.to_owned(),
            unit: declared.unit().map(|unit: Unit| unit.word().to_owned()),
            by_route: !of_gate,
            description: declared.description().to_owned(),
        }
    }
}

impl Statistic {
    fn of(reading: &Reading) -> Self {
        let description = Description::of(reading.declared());
        let routes = reading.points().iter().filter(|_| description.by_route).map(|point| {
            let value = Figure::from(reading.value(point));
            OfRoute { route: point.member().to_owned(), value }
        });
        let routes = routes.collect();
        Self { description, total: reading.total().into(), routes }
    }
}

impl From<Value> for Figure {
    fn from(value: Value) -> Self {
        match value {
            Value::Counter(count) => Self::Count(count),
            Value::Gauge(level) => Self::Count(u64::try_from(level).unwrap_or_default()),
            Value::Histogram(seen) => {
                let buckets = seen.buckets.into_iter();
                let buckets = buckets.map(|(up_to, count)| Bucket {
                    up_to: up_to.is_finite().then_some(up_to),
                    count,
                });
                let (count, sum, buckets) = (seen.count, seen.sum, buckets.collect());
                Self::Distribution(Distribution { count, sum, buckets })
            }
            Value::Unknown => Self::Unknown,
            other => unreachable!("{other:?} is not declared here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        assert_eq!(suggestion("flows_opn"), "did you mean `flows_open`?");
        assert!(suggestion("retransmitted").contains("`client_retransmitted_segments`"));
        assert!(suggestion("xyzzy").contains("--list"));
    }

    #[test]
    fn what_is_not_known_is_null() {
        let figure = Figure::from(Value::Unknown);
        let text = serde_json::to_string(&figure).unwrap();
        assert_eq!((text.as_str(), figure.to_string()), ("null", "unknown".to_owned()));
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), figure);
    }

    #[test]
    fn answers_survive_json() {
        let all = statistics::AllStatistics::new();
        let db = all.of_route("d\"b");
        db.flows_accepted.add(u64::MAX);
        db.connect_seconds.observe(std::time::Duration::from_millis(3));
        let flow = LiveFlow {
            flow: 1,
            route: "db".into(),
            client: ([127, 0, 0, 1], 1).into(),
            began: std::time::Duration::ZERO,
            worker: 0,
            wanted: Some("db:1".to_owned()),
            upstream: None,
            moved: crate::Moved::default(),
        };
        for answer in [
            Answer::statistics(&all.snapshot()),
            Answer::statistic(&all.snapshot(), "nosuch"),
            Answer::list(),
            Answer::flows(vec![flow]),
            Answer::Openmetrics(all.snapshot().open_metrics("lastbyte_gate")),
        ] {
            let line = serde_json::to_string(&answer).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }
}
