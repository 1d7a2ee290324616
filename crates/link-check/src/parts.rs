//! Which parts of a path a link keeps, so that one thing can be measured without another in its way.

use std::time::Duration;

use lastbyte_link::{Direction, Management, Marks, Queue, Spec};

/// How long the queue is where it must not be the limit.
pub(super) const LONG_QUEUE: Duration = Duration::from_secs(2);

/// The path with what is kept of each direction, as it is at the beginning.
pub(super) fn path(spec: &Spec, keep: fn(&Direction) -> Direction) -> Spec {
    Spec { up: keep(&spec.up), down: keep(&spec.down), mtu: spec.mtu, changes: Vec::new() }
}

/// All but what happens at set times, and a recorded rate, whose opportunities are such times.
pub(super) fn steady(asked: &Direction) -> Direction {
    let mut kept = Direction { outages: Default::default(), ..asked.clone() };
    if asked.trace.is_some() {
        (kept.trace, kept.queue) = (None, None);
        (kept.management, kept.marks) = (Management::DropTail, Marks::None);
    }
    kept
}

/// Of what takes packets away, doubles or damages them, the independent loss alone.
pub(super) fn loss(asked: &Direction) -> Direction {
    Direction { loss: asked.loss, ..whole(asked) }
}

/// As [`loss`], with the losses in bursts alone.
pub(super) fn bursts(asked: &Direction) -> Direction {
    Direction { burst_loss: asked.burst_loss, ..whole(asked) }
}

/// As [`loss`], with the losses by counting alone.
pub(super) fn every_nth(asked: &Direction) -> Direction {
    Direction { lose_every: asked.lose_every, ..whole(asked) }
}

/// As [`loss`], with damage and second copies alone.
pub(super) fn damage(asked: &Direction) -> Direction {
    Direction { corrupt: asked.corrupt, duplicate: asked.duplicate, ..whole(asked) }
}

/// Nothing takes packets away but a full queue.
fn whole(asked: &Direction) -> Direction {
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

/// The rate and its queue, which drops at its tail.
pub(super) fn rate(asked: &Direction) -> Direction {
    let queue = asked.queue.filter(|_| asked.rate.is_some());
    Direction { delay: asked.delay, rate: asked.rate, queue, ..Direction::default() }
}

/// The recorded rate with its own queue.
pub(super) fn recorded_queue(asked: &Direction) -> Direction {
    let trace = asked.trace.clone();
    let queue = asked.queue.filter(|_| trace.is_some());
    Direction { delay: asked.delay, trace, queue, ..Direction::default() }
}

/// The recorded rate with room for all that is sent at once.
pub(super) fn recorded(asked: &Direction) -> Direction {
    let trace = asked.trace.clone();
    let queue = trace.is_some().then_some(Queue::Packets(u64::from(u32::MAX)));
    Direction { delay: asked.delay, trace, queue, ..Direction::default() }
}

/// The queue's management, or its marks, with a queue that is never full; a recorded rate is its mean.
pub(super) fn managed(asked: &Direction) -> Direction {
    if asked.management == Management::DropTail && asked.marks == Marks::None {
        return Direction { delay: asked.delay, ..Direction::default() };
    }
    Direction {
        delay: asked.delay,
        rate: asked.mean_rate(),
        queue: Some(Queue::Time(LONG_QUEUE)),
        management: asked.management,
        marks: asked.marks,
        ..Direction::default()
    }
}

/// The policer alone.
pub(super) fn policed(asked: &Direction) -> Direction {
    Direction { delay: asked.delay, policer: asked.policer, ..Direction::default() }
}

/// The delay, and when the wire is cut.
pub(super) fn cut(asked: &Direction) -> Direction {
    Direction { delay: asked.delay, outages: asked.outages.clone(), ..Direction::default() }
}

/// The delay and the independent loss.
pub(super) fn only_loss(asked: &Direction) -> Direction {
    Direction { delay: asked.delay, loss: asked.loss, ..Direction::default() }
}

/// What was asked and is not kept, for a reader; empty if nothing.
pub(super) fn left_out(asked: &Direction, kept: &Direction) -> String {
    // All fields by name: a new one has to be told here too.
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

#[cfg(test)]
mod tests {
    use super::*;
    use lastbyte_link::Scenario;

    fn direction(toml: &str) -> Direction {
        Scenario::parse("test", toml).unwrap().spec.up
    }

    #[test]
    fn what_is_left_out_is_named() {
        let all = direction(
            "rtt = '2ms'\njitter = '1ms'\nloss = '1%'\nlose_every = 7\ncorrupt = '1%'\n\
             rate = '9mbit'\nmanagement = 'codel'\npolicer = { rate = '1mbit', burst = '9kB' }\n\
             cuts = [{ at = '1s', lasting = '1s' }]",
        );
        assert_eq!(left_out(&all, &all), "");
        assert_eq!(left_out(&all, &steady(&all)), "cuts");
        assert_eq!(left_out(&all, &loss(&all)), "its losses, damage, cuts");
        let left = "jitter, its losses, damage, CoDel, the policer, cuts";
        assert_eq!(left_out(&all, &rate(&all)), left);
        let left = "jitter, its losses, damage, its rate, CoDel, cuts";
        assert_eq!(left_out(&all, &policed(&all)), left);
    }

    #[test]
    fn every_part_is_a_path() {
        let managed_rate = "rate = '9mbit'\nqueue = '50packets'\nmanagement = 'codel'\necn = true";
        let text =
            format!("rtt = '2ms'\nmtu = 1400\njitter = '1ms'\nduplicate = '1%'\n{managed_rate}");
        let spec = Scenario::parse("test", &text).unwrap().spec;
        let plain = Scenario::parse("test", "rtt = '2ms'").unwrap().spec;
        let parts =
            [steady, loss, bursts, every_nth, damage, rate, recorded, managed, policed, cut];
        for keep in parts.into_iter().chain([recorded_queue, only_loss]) {
            assert_eq!(path(&spec, keep).check(), Ok(()));
            assert_eq!(path(&plain, keep), plain);
        }
    }
}
