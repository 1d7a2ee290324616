//! The part of a path that one measurement keeps, so that nothing else is in its way.

use std::time::Duration;

use lastbyte_link::{Direction, Management, Marks, Spec, Way};

/// How long the queue is where it must not be the limit.
pub(crate) const LONG_QUEUE: Duration = Duration::from_secs(2);

/// A part of a path, as it is at the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) spec: Spec,
    /// What is left out of each direction, up and down, as a list for the user.
    left_out: [String; 2],
}

impl Part {
    /// The path with what `keep` keeps of each direction.
    pub(crate) fn of(spec: &Spec, keep: fn(&Direction) -> Direction) -> Self {
        let part = path(spec, keep);
        let left_out = Way::BOTH.map(|way| left_out(spec.direction(way), part.direction(way)));
        Self { spec: part, left_out }
    }

    /// What is left out of a direction, as a list for the user; empty if nothing.
    pub(crate) fn left_out(&self, way: Way) -> &str {
        &self.left_out[way.index()]
    }
}

fn path(spec: &Spec, keep: fn(&Direction) -> Direction) -> Spec {
    Spec { up: keep(&spec.up), down: keep(&spec.down), mtu: spec.mtu, changes: Vec::new() }
}

/// Everything except what happens at set times: cuts, and a recorded rate with its queue.
pub(crate) fn steady(asked: &Direction) -> Direction {
    let mut kept = Direction { outages: Default::default(), ..asked.clone() };
    if asked.trace.is_some() {
        (kept.trace, kept.queue) = (None, None);
        (kept.management, kept.marks) = (Management::DropTail, Marks::None);
    }
    kept
}

/// As [`steady`], but that nothing takes packets away, duplicates or corrupts them, except a full queue.
pub(crate) fn without_losses(asked: &Direction) -> Direction {
    let none = Direction::default();
    Direction {
        loss: none.loss,
        burst_loss: none.burst_loss,
        lose_every: none.lose_every,
        corrupt: none.corrupt,
        duplicate: none.duplicate,
        ..steady(asked)
    }
}

/// What was asked and is not kept, as a list for the user; empty if nothing.
fn left_out(asked: &Direction, kept: &Direction) -> String {
    // All fields by name: a new one does not compile until it is listed here too.
    let Direction {
        delay: _,
        jitter,
        loss,
        burst_loss,
        lose_every,
        corrupt,
        duplicate,
        rate,
        trace,
        queue,
        management,
        marks,
        policer,
        outages,
    } = asked;
    let losses = (*loss, *burst_loss, *lose_every);
    let differs = [
        ("jitter", *jitter != kept.jitter),
        ("its losses", losses != (kept.loss, kept.burst_loss, kept.lose_every)),
        ("damage", *corrupt != kept.corrupt),
        ("copies", *duplicate != kept.duplicate),
        ("its rate", *rate != kept.rate && kept.rate.is_none()),
        ("the recorded rate", *trace != kept.trace),
        ("its own queue's length", *queue != kept.queue && kept.queue.is_some()),
        ("CoDel", *management != kept.management),
        ("marks", *marks != kept.marks && matches!(marks, Marks::Above(_))),
        ("the policer", *policer != kept.policer),
        ("cuts", *outages != kept.outages),
    ];
    let names: Vec<_> = differs.iter().filter(|(_, left)| *left).map(|(name, _)| *name).collect();
    names.join(", ")
}
