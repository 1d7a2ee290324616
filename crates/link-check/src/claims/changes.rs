//! Changes at set times: of a delay, a rate and an independent loss, before and after, and when.
//!
//! Delays have the load of `cuts`; rates and losses are loaded over the time of their changes. Each has
//! a path with nothing but what changes, and the delay it needs.

use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::{Change, Direction, Link, LinkError, Spec, Way};
use lastbyte_units::{Unit, grouped};

use super::cuts::{probe_from_start, since};
use super::delay::{DELAY_TOLERANCE, LEAST_PROBES};
use super::loss::share;
use super::rate;
use super::rate::{OFFERED, RATE_TOLERANCE, bytes_over_time};
use crate::asked::Asked;
use crate::check::{Attempt, Check, take_down};
use crate::finding::{Finding, Moment, Outcome, Phase, Subject};
use crate::probe::{self, Arrival, Flow, Load, Observed, SMALL_PACKET, batch_for};
use crate::statistics::median;

/// How exactly the time of a change is seen: a probe's distance, and as much for the link's beginning.
const STEP_TOLERANCE: Duration = Duration::from_millis(20);
/// Changes after this time are not measured.
const CHANGES_WITHIN: Duration = Duration::from_secs(20);
/// How long a state before and after a change is measured.
const STEP_FOR: Duration = Duration::from_secs(1);
/// The time from one numbered packet to the next while a loss changes.
const LOSS_EVERY: Duration = Duration::from_micros(200);

/// The delay and the independent loss.
pub(crate) fn only_loss(asked: &Direction) -> Direction {
    Direction { delay: asked.delay, loss: asked.loss, ..Direction::default() }
}

/// A property of a direction whose changes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Delay,
    Rate,
    Loss,
}

impl Quantity {
    /// Seconds, bit/s, or a share; `None` where there is none.
    fn of(self, direction: &Direction) -> Option<f64> {
        match self {
            Self::Delay => Some(direction.delay.as_secs_f64()),
            Self::Rate => direction.rate.map(|rate| rate.bits_per_s() as f64),
            Self::Loss => Some(direction.loss.map_or(0.0, |share| share.fraction())),
        }
    }

    /// The direction with this property alone, and the delay it needs.
    fn alone(self, direction: &Direction, first: &Direction) -> Direction {
        match self {
            Self::Delay => Direction { delay: direction.delay, ..Direction::default() },
            // The delay stays, so that a packet's arrival shows when it was sent.
            Self::Rate => Direction { delay: first.delay, ..rate::part(direction) },
            Self::Loss => Direction { delay: first.delay, ..only_loss(direction) },
        }
    }

    /// The path with this property alone, as it changes.
    fn path(self, spec: &Spec) -> Spec {
        let change = |change: &Change| Change {
            at: change.at,
            up: self.alone(&change.up, &spec.up),
            down: self.alone(&change.down, &spec.down),
        };
        Spec {
            up: self.alone(&spec.up, &spec.up),
            down: self.alone(&spec.down, &spec.down),
            mtu: spec.mtu,
            changes: spec.changes.iter().map(change).collect(),
        }
    }

    /// The changes of this property that are measured.
    fn steps(self, spec: &Spec, way: Way) -> Vec<Step> {
        let states: Vec<_> = states(spec, way).collect();
        let mut list = Vec::new();
        for (number, pair) in (1..).zip(states.windows(2)) {
            let [(before_at, before), (at, after)] = [pair[0], pair[1]];
            let next = states.get(number as usize + 1).map_or(Duration::MAX, |(next, _)| *next);
            let (Some(from), Some(to)) = (self.of(before), self.of(after)) else { continue };
            if at <= CHANGES_WITHIN && is_another(from, to) {
                let before = (at - before_at).min(STEP_FOR);
                let after = (next - at).min(STEP_FOR);
                list.push(Step { number, at, before, after, from, to });
            }
        }
        list
    }
}

fn is_another(from: f64, to: f64) -> bool {
    from.total_cmp(&to).is_ne()
}

fn states(spec: &Spec, way: Way) -> impl Iterator<Item = (Duration, &Direction)> {
    spec.states(way).map(|(at, direction, _)| (at, direction))
}

/// Changes of the delay, with probes at a fixed pace from the link's beginning on.
pub(super) fn delays(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let steps = Way::BOTH.map(|way| Quantity::Delay.steps(check.spec, way));
    let last = steps.iter().flatten().map(|step| step.at + step.after).max();
    let Some(last) = last else { return Ok(Attempt::default()) };
    let path = Quantity::Delay.path(check.spec);
    let probed = probe_from_start(&path, check.seed, last)?;
    let mut attempt = Attempt::of(Some(probed.run));
    for ((way, steps), seen) in Way::BOTH.into_iter().zip(&steps).zip(&probed.observed) {
        for step in steps {
            let found = delay_step(step, probed.began, probed.lateness, seen);
            add_all(&mut attempt, way, seen, found);
        }
    }
    Ok(attempt)
}

fn add_all(attempt: &mut Attempt, way: Way, seen: &Observed, found: Vec<(Subject, Outcome)>) {
    for (subject, outcome) in found {
        attempt.add(subject, Some(way), seen.unless_overflowed(outcome));
    }
}

/// Changes of rates and of losses, both at the same time on links of their own, because both take long.
pub(crate) fn rates_and_losses(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let changed = |quantity| loaded_over_changes(quantity, check);
    let (rates, losses) = thread::scope(|scope| {
        let losses = scope.spawn(|| changed(Quantity::Loss));
        let rates = changed(Quantity::Rate);
        (rates, losses.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut rates, losses) = (rates?, losses?);
    rates.list.extend(losses.list);
    rates.runs.extend(losses.runs);
    Ok(rates)
}

fn loaded_over_changes(quantity: Quantity, check: &Check<'_>) -> Result<Attempt, LinkError> {
    let steps = Way::BOTH.map(|way| quantity.steps(check.spec, way));
    let ends = |step: &Step| (step.at - step.before, step.at + step.after);
    let first = steps.iter().flatten().map(|step| ends(step).0).min();
    let last = steps.iter().flatten().map(|step| ends(step).1).max();
    let Some((first, last)) = first.zip(last) else { return Ok(Attempt::default()) };
    let path = quantity.path(check.spec);
    let flows: Vec<Flow> = Way::BOTH
        .into_iter()
        .zip(&steps)
        .filter(|(_, steps)| !steps.is_empty())
        .map(|(way, _)| flow_over_changes(quantity, &path, way, last - first))
        .collect();
    let link = Link::up(&path, check.seed)?;
    let began = Instant::now();
    thread::sleep(first);
    let observed = probe::run(&link, &flows)?;
    let run = take_down(Phase::Scheduled, link, &flows, &observed)?;
    let mut attempt = Attempt::of(Some(run));
    for (flow, seen) in flows.iter().zip(&observed) {
        let delay = check.spec.direction(flow.way).delay;
        for step in &steps[flow.way.index()] {
            let found = match quantity {
                Quantity::Rate => rate_step(step, began, delay, seen),
                Quantity::Loss | Quantity::Delay => loss_step(step, began, seen),
            };
            add_all(&mut attempt, flow.way, seen, found);
        }
    }
    Ok(attempt)
}

/// Full packets at more than the highest rate, or numbered ones, for this time.
fn flow_over_changes(quantity: Quantity, path: &Spec, way: Way, lasting: Duration) -> Flow {
    let asked = Asked::of(path, way);
    let rates = states(path, way).filter_map(|(_, direction)| direction.rate);
    let load = match rates.max().filter(|_| quantity == Quantity::Rate) {
        Some(rate) => {
            let every = rate.time_to_send(asked.full.into()).div_f64(OFFERED);
            Load { burst: 64, batch: batch_for(every), ..Load::paced(asked.full, every) }
        }
        None => Load { burst: 64, ..Load::paced(SMALL_PACKET, LOSS_EVERY) },
    };
    let load = Load { packets: u32::MAX, within: lasting, ..load };
    asked.flow(load, asked.longest_wait())
}

/// Changes of a direction that are not measured, and why.
pub(crate) fn not_checked(spec: &Spec, way: Way) -> Vec<Finding> {
    let states: Vec<_> = states(spec, way).collect();
    let why_not = |number: usize, before: &Direction, at: Duration, after: &Direction| {
        if before == after {
            None
        } else if at > CHANGES_WITHIN {
            let (seconds, within) = (at.as_secs_f64(), CHANGES_WITHIN.as_secs());
            Some(format!("number {number}, after {seconds} s, more than {within} s"))
        } else if !is_measured(before, after) {
            Some(format!("number {number} also changes what is not measured later"))
        } else {
            None
        }
    };
    let pairs = (1..).zip(states.windows(2));
    let reasons = pairs.filter_map(|(number, pair)| {
        let [(_, before), (at, after)] = [pair[0], pair[1]];
        why_not(number, before, at, after)
    });
    let subject = Subject::Unchecked("a change");
    reasons
        .map(|why| Finding { subject, way: Some(way), outcome: Outcome::NotChecked(why) })
        .collect()
}

/// Whether two states differ in no more than a delay, an independent loss, and a rate with its queue.
fn is_measured(before: &Direction, after: &Direction) -> bool {
    let same = Direction {
        delay: before.delay,
        loss: before.loss,
        rate: before.rate,
        queue: before.queue,
        ..after.clone()
    };
    same == *before
        && before.rate.is_some() == after.rate.is_some()
        && (before.rate != after.rate || before.queue == after.queue)
}

/// A change of one property at a set time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    /// Its number among the path's changes, from 1.
    number: u32,
    /// When, since the link began; and for how long nothing else changes before and after it.
    at: Duration,
    before: Duration,
    after: Duration,
    /// The value before and after: seconds, a share, or bit/s.
    from: f64,
    to: f64,
}

impl Step {
    fn subject(&self, of: &'static str, moment: Moment) -> Subject {
        Subject::Change { number: self.number, of, moment }
    }

    /// The times of the state before and of the state after, without a margin around the change.
    fn windows(&self, margin: f64) -> [(f64, f64); 2] {
        let at = self.at.as_secs_f64();
        let (before, after) = (self.before.as_secs_f64(), self.after.as_secs_f64());
        [(at - before + margin, at - margin), (at + margin, at + after - margin)]
    }
}

/// A delay before and after it changed, and when. `lateness` is the probe's own, in seconds.
fn delay_step(
    step: &Step,
    began: Instant,
    lateness: f64,
    seen: &Observed,
) -> Vec<(Subject, Outcome)> {
    let probes: Vec<(f64, f64)> = seen
        .sent
        .iter()
        .zip(seen.delays())
        .filter_map(|(sent, delay)| Some((since(began, *sent), delay? - lateness)))
        .collect();
    // Where the delay becomes shorter, order is kept: for that time later packets wait for earlier ones.
    let margin = STEP_TOLERANCE.as_secs_f64() + (step.from - step.to).max(0.0);
    let mut list = Vec::new();
    let moments = [(Moment::Before, step.from), (Moment::After, step.to)];
    for ((moment, asked), (low, high)) in moments.into_iter().zip(step.windows(margin)) {
        let in_window = probes.iter().filter(|(at, _)| (low..high).contains(at));
        let delays: Vec<f64> = in_window.map(|(_, delay)| *delay).collect();
        let many = delays.len();
        let outcome = if many < LEAST_PROBES {
            Outcome::NotMeasured(format!("only {many} packets came in that time"))
        } else {
            let basis = format!("median of {many}");
            let tolerance = DELAY_TOLERANCE.as_secs_f64();
            Outcome::within(Unit::Seconds, asked, median(delays), tolerance, basis)
        };
        list.push((step.subject("delay", moment), outcome));
    }
    // The first packet with another delay. A longer delay shows at once; a shorter one gradually,
    // because order is kept.
    let enough = DELAY_TOLERANCE.as_secs_f64();
    let enough = if step.to > step.from { enough.max((step.to - step.from) / 2.0) } else { enough };
    let changed = |delay: f64| (delay - step.from) * (step.to - step.from).signum() > enough;
    let [(low, _), (_, high)] = step.windows(0.0);
    let near = probes.iter().filter(|(at, _)| (low..high).contains(at));
    let times = near.clone().zip(near.skip(1)).find(|(_, (_, delay))| changed(*delay));
    let outcome = match times {
        None => Outcome::NotMeasured("no packet took another time".to_owned()),
        Some(((before, _), (after, _))) => {
            let got = f64::midpoint(*before, *after);
            let basis = format!("between two packets {:.2} ms apart", (after - before) * 1e3);
            let tolerance = STEP_TOLERANCE.as_secs_f64();
            Outcome::within(Unit::Seconds, step.at.as_secs_f64(), got, tolerance, basis)
        }
    };
    list.push((step.subject("delay", Moment::Itself), outcome));
    list
}

/// A rate before and after it changed, and when. `base` is the delay.
fn rate_step(
    step: &Step,
    began: Instant,
    base: Duration,
    seen: &Observed,
) -> Vec<(Subject, Outcome)> {
    let left = |one: &Arrival| since(began, one.at) - base.as_secs_f64();
    let windows = step.windows(STEP_TOLERANCE.as_secs_f64());
    let [before, after] = windows.map(|(low, high)| -> Vec<Arrival> {
        let inside = |one: &&Arrival| (low..high).contains(&left(one));
        seen.arrivals.iter().filter(inside).copied().collect()
    });
    let rates = [(Moment::Before, step.from, &before), (Moment::After, step.to, &after)];
    let mut list: Vec<_> = rates
        .into_iter()
        .map(|(moment, asked, arrivals)| {
            let outcome = match bytes_over_time(arrivals) {
                Some((got, bytes, time)) if arrivals.len() >= LEAST_PROBES => {
                    let basis = format!("{} bytes in {time:.2} s", grouped(bytes));
                    Outcome::within(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE, basis)
                }
                _ => Outcome::NotMeasured(format!("only {} packets came", arrivals.len())),
            };
            (step.subject("rate", moment), outcome)
        })
        .collect();
    // From the middle of one state to that of the other, so that a change at another time shows too.
    let outcome = match (before.get(before.len() / 2), after.get(after.len() / 2)) {
        (Some(one), Some(two)) => {
            // Bytes that arrived between both: at the first rate until the change, at the second after
            // it.
            let between =
                seen.arrivals.iter().filter(|arrival| arrival.at > one.at && arrival.at <= two.at);
            let bits = between.map(|arrival| f64::from(arrival.ip_bytes) * 8.0).sum::<f64>();
            let (start, end) = (left(one), left(two));
            let got = (bits + step.from * start - step.to * end) / (step.from - step.to);
            // A packet more or less moves the crossing.
            let packet = f64::from(one.ip_bytes) * 8.0 / (step.from - step.to).abs();
            let tolerance = STEP_TOLERANCE.as_secs_f64() + packet;
            let basis = "where the lines of both rates cross".to_owned();
            Outcome::within(Unit::Seconds, step.at.as_secs_f64(), got, tolerance, basis)
        }
        _ => Outcome::NotMeasured("no packets came around it".to_owned()),
    };
    list.push((step.subject("rate", Moment::Itself), outcome));
    list
}

/// An independent loss before and after it changed.
fn loss_step(step: &Step, began: Instant, seen: &Observed) -> Vec<(Subject, Outcome)> {
    let missing = seen.missing();
    let windows = step.windows(STEP_TOLERANCE.as_secs_f64());
    let moments = [(Moment::Before, step.from), (Moment::After, step.to)];
    moments
        .into_iter()
        .zip(windows)
        .map(|((moment, asked), (low, high))| {
            let at = |time: f64| seen.sent.partition_point(|sent| since(began, *sent) < time);
            let (first, last) = (at(low), at(high));
            let lost = missing.iter().filter(|number| (first..last).contains(&(**number as usize)));
            let outcome = share(asked, lost.count() as u64, last.saturating_sub(first) as u64);
            (step.subject("loss", moment), outcome)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::cuts::tests::{probes, spec};
    use super::*;
    use crate::finding::tests::{insides, is_inside, is_not_measured};
    use crate::probe::tests::{MS, arrival};

    fn unchecked(path: &Spec) -> usize {
        Way::BOTH.map(|way| not_checked(path, way).len()).iter().sum()
    }

    #[test]
    fn changes_within_reach_are_steps() {
        let path = spec(
            "rtt = '20ms'\nrate = '8mbit'\n[[changes]]\nat = '3s'\nrate = '4mbit'\nrtt = '40ms'\n\
             [[changes]]\nat = '3500ms'\nway = 'down'\nloss = '1%'\n\
             [[changes]]\nat = '21s'\nrate = '1mbit'",
        );
        let step = Quantity::Rate.steps(&path, Way::Up);
        let half = Duration::from_millis(500);
        assert_eq!((step.len(), step[0].before, step[0].after), (1, STEP_FOR, half));
        assert_eq!((step[0].number, step[0].from, step[0].to), (1, 8e6, 4e6));
        assert!(Quantity::Loss.steps(&path, Way::Up).is_empty());
        assert_eq!(Quantity::Loss.steps(&path, Way::Down)[0].number, 2);
        assert_eq!(Quantity::Delay.steps(&path, Way::Up)[0].to, 0.02);
        assert_eq!(unchecked(&path), 2, "the last one, both ways");
        assert_eq!(Quantity::Rate.path(&path).check(), Ok(()));
        assert_eq!(Quantity::Rate.path(&path).changes[0].up.delay, path.up.delay);
    }

    #[test]
    fn what_else_changes_is_named() {
        let named = |change: &str| {
            let path =
                spec(&format!("rtt = '20ms'\nrate = '8mbit'\n[[changes]]\nat = '3s'\n{change}"));
            unchecked(&path)
        };
        assert_eq!(named("rate = '9mbit'\nqueue = '20kB'"), 0);
        assert_eq!(named("queue = '20kB'"), 2);
        assert_eq!(named("jitter = '1ms'"), 2);
        assert_eq!(named("without = ['rate']"), 2);
        assert_eq!(named("rate = '8mbit'"), 0, "nothing changes");
    }

    fn step(at: u32, from: f64, to: f64) -> Step {
        let around = MS * 500;
        Step { number: 1, at: MS * at, before: around, after: around, from, to }
    }

    #[test]
    fn a_delay_changes_when_and_as_asked() {
        let seen = probes(200, |ms| Some(if ms < 1000 { 20 } else { 50 }));
        let judged = |step: Step| insides(&delay_step(&step, seen.sent[0], 0.0, &seen));
        assert_eq!(judged(step(1000, 0.02, 0.05)), [true, true, true]);
        assert_eq!(judged(step(1000, 0.0204, 0.0496)), [false, false, true]);
        assert_eq!(judged(step(1030, 0.02, 0.05)), [true, true, false]);
        // Shorter: packets that would overtake wait.
        let shorter = probes(200, |ms| {
            Some(if ms < 1000 { 50 } else { 20.max(1050_u32.saturating_sub(ms)) })
        });
        assert_eq!(
            insides(&delay_step(&step(1000, 0.05, 0.02), shorter.sent[0], 0.0, &shorter)),
            [true; 3]
        );
        let same = probes(200, |_| Some(20));
        let list = delay_step(&step(1000, 0.02, 0.05), same.sent[0], 0.0, &same);
        assert!(!is_inside(&list[1].1) && is_not_measured(&list[2].1));
    }

    #[test]
    fn a_rate_changes_when_and_as_asked() {
        // 1000 bytes each: 1 ms until 1000 ms, then 2 ms.
        let start = Instant::now();
        let times = (0..1000).chain((1000..2000).step_by(2));
        let arrivals: Vec<_> =
            (0..).zip(times).map(|(n, ms)| arrival(n, start + MS * (ms + 20))).collect();
        let seen = Observed { sent: vec![start; arrivals.len()], arrivals, ..Observed::default() };
        let judged = |step: Step| insides(&rate_step(&step, start, MS * 20, &seen));
        assert_eq!(judged(step(1000, 8e6, 4e6)), [true, true, true]);
        assert_eq!(judged(step(1000, 8.1e6, 4.1e6))[..2], [false, false]);
        assert_eq!(judged(step(1030, 8e6, 4e6))[2..], [false]);
    }

    #[test]
    fn a_loss_changes_as_asked() {
        let seen = probes(200, |ms| (ms < 1000 || ms % 20 == 0).then_some(20));
        let judged = |step: Step| insides(&loss_step(&step, seen.sent[0], &seen));
        assert_eq!(judged(step(1000, 0.0, 0.5)), [true, true]);
        assert_eq!(judged(step(1000, 0.2, 0.2)), [false, false]);
    }
}
