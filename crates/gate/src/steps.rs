//! The steps of a flow as spans of `tracing`, for a program that installs a subscriber.
//!
//! A span is open as long as its step, and is never entered: a subscriber is called for each step, not
//! for each event of a connection. Without a subscriber a flow pays for one comparison when it begins,
//! and for one at each step.

use tracing::{Level, Span, span};

/// The level of all these spans.
const LEVEL: Level = Level::DEBUG;

/// What happens to a flow, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Listen,
    Resolve,
    Dial,
    Tune,
    Relay,
    Finish,
    Account,
}

/// Where a flow is; `None` where nothing records it.
#[derive(Debug)]
pub(crate) struct Steps(Option<Box<Spans>>);

#[derive(Debug)]
struct Spans {
    /// The span of the step: it ends before that of the flow.
    step: Span,
    flow: Span,
}

impl Steps {
    /// The steps of a flow that begins: the span `flow` has its number and its route.
    pub(crate) fn of(flow: u64, route: &str) -> Self {
        let flow = span!(LEVEL, "flow", flow, route);
        let recorded = !flow.is_disabled();
        Self(recorded.then(|| Box::new(Spans { step: Span::none(), flow })))
    }

    /// Ends the step before, and begins this one.
    pub(crate) fn enter(&mut self, step: Step) {
        let Some(spans) = &mut self.0 else { return };
        spans.step = Span::none();
        let flow = &spans.flow;
        spans.step = match step {
            Step::Listen => span!(parent: flow, LEVEL, "listen"),
            Step::Resolve => span!(parent: flow, LEVEL, "resolve"),
            Step::Dial => span!(parent: flow, LEVEL, "dial"),
            Step::Tune => span!(parent: flow, LEVEL, "tune"),
            Step::Relay => span!(parent: flow, LEVEL, "relay"),
            Step::Finish => span!(parent: flow, LEVEL, "finish"),
            Step::Account => span!(parent: flow, LEVEL, "account"),
        };
    }

    /// Ends the last step, and the flow.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}
