//! The seven steps of a flow, as a subscriber of `tracing` sees them.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{address, ask, config, connect, echo, route, start};

/// The name of the route whose flow is looked at: flows of other tests may be seen too.
const ROUTE: &str = "seven-steps";

#[test]
fn a_flow_takes_the_seven_steps_that_the_architecture_draws() {
    let collector = Arc::new(Collector::default());
    tracing::subscriber::set_global_default(Arc::clone(&collector)).unwrap();
    let (gate, said) = start(config([route(ROUTE, echo(1))], 1));
    let mut client = connect(address(&gate));
    assert_eq!(ask(&mut client, 1), 2);
    drop(client);
    assert_eq!(said.accounts(1)[0].route.as_ref(), ROUTE);

    let seen = collector.0.lock().unwrap();
    let is_flow = |span: &Seen| (span.name, span.route.as_deref()) == ("flow", Some(ROUTE));
    let flow = seen.spans.iter().position(is_flow).expect("a span of the flow");
    let of_flow = |span: &usize| seen.spans[*span].parent == Some(flow);
    let steps: Vec<usize> = (0..seen.spans.len()).filter(of_flow).collect();
    let names: Vec<&str> = steps.iter().map(|step| seen.spans[*step].name).collect();
    assert_eq!(names, drawn()[0]);

    // One after the other, within the flow.
    let mut changes = vec![Change::Opened(flow)];
    changes.extend(steps.iter().flat_map(|step| [Change::Opened(*step), Change::Closed(*step)]));
    changes.push(Change::Closed(flow));
    let ours = |change: &&Change| {
        let (Change::Opened(span) | Change::Closed(span)) = change;
        *span == flow || of_flow(span)
    };
    assert_eq!(seen.changes.iter().filter(ours).copied().collect::<Vec<_>>(), changes);
    assert_eq!(seen.entered, 0, "a subscriber would be called with every event of a connection");
}

#[test]
fn the_flow_is_drawn_alike_where_it_is_written() {
    let source = include_str!("../src/flow.rs");
    for line in drawing() {
        assert!(source.contains(&format!("//! {}\n", line.trim())), "flow.rs has no {line:?}");
    }
    // The types that steps return are those of the code, or of the crates below.
    let types = [
        "struct Accepted",
        "struct Asked",
        "struct Connected",
        "struct Tuned",
        "struct Joined",
        "-> Relayed",
        "-> Account",
    ];
    assert_eq!(drawn()[1].len(), types.len());
    for (name, code) in drawn()[1].iter().zip(types) {
        assert!(code.ends_with(name) && source.contains(code), "{name}: {code}");
    }
}

/// The two lines of the drawing: the steps, and what each returns.
fn drawing() -> [&'static str; 2] {
    let text = include_str!("../../../ARCHITECTURE.md");
    let (_, section) = text.split_once("\n## The flow\n").unwrap();
    let (_, drawing) = section.split_once("```\n").unwrap();
    let mut lines = drawing.lines();
    [lines.next().unwrap(), lines.next().unwrap()]
}

/// The words of these lines.
fn drawn() -> [Vec<&'static str>; 2] {
    let is_word = |word: &&str| !word.starts_with('-');
    drawing().map(|line| line.split_whitespace().filter(is_word).collect())
}

/// Keeps all spans of the gate.
#[derive(Default)]
struct Collector(Mutex<Everything>);

#[derive(Default)]
struct Everything {
    spans: Vec<Seen>,
    changes: Vec<Change>,
    entered: usize,
}

struct Seen {
    name: &'static str,
    parent: Option<usize>,
    route: Option<String>,
}

/// What happened to a span of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Opened(usize),
    Closed(usize),
}

impl Collector {
    fn number(id: &Id) -> usize {
        usize::try_from(id.into_u64()).unwrap() - 1
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lastbyte_gate")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut route = Route::default();
        span.record(&mut route);
        let (name, parent) = (span.metadata().name(), span.parent().map(Self::number));
        let mut everything = self.0.lock().unwrap();
        let number = everything.spans.len();
        everything.spans.push(Seen { name, parent, route: route.0 });
        everything.changes.push(Change::Opened(number));
        Id::from_u64(number as u64 + 1)
    }

    fn try_close(&self, id: Id) -> bool {
        self.0.lock().unwrap().changes.push(Change::Closed(Self::number(&id)));
        true
    }

    fn enter(&self, _: &Id) {
        self.0.lock().unwrap().entered += 1;
    }

    fn exit(&self, _: &Id) {}
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}

/// The value of a span's field `route`.
#[derive(Default)]
struct Route(Option<String>);

impl Visit for Route {
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "route" {
            self.0 = Some(value.to_owned());
        }
    }
}
