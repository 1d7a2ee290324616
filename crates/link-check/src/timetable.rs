//! What a path does at set times: cuts, and changes of its rate, its delay and its independent loss.

use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::{Change, Cut, Direction, Link, LinkError, Outages, Spec, Way};

use super::asked::Asked;
use super::course::{Attempt, certified};
use super::finding::{Finding, Outcome, Phase, Subject};
use super::judge::{self, Step};
use super::probe::{self, Lane, Load, Seen};
use super::{
    CHANGES_WITHIN, CUT_EVERY, CUTS_WITHIN, Certificate, DELAY_EVERY, OFFERED, OWN_PROBES,
    SMALL_PACKET, STEP_FOR, parts,
};

/// Sent after the last cut, to see what comes through again.
const AFTER: Duration = Duration::from_millis(500);
/// Numbered packets per second while a loss changes.
const LOSS_EVERY: Duration = Duration::from_micros(200);

/// A figure of a direction that may change, and how it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Delay,
    Rate,
    Loss,
}

impl Figure {
    /// Seconds, bit/s, or a share; `None` where there is none.
    fn of(self, direction: &Direction) -> Option<f64> {
        match self {
            Self::Delay => Some(direction.delay.as_secs_f64()),
            Self::Rate => direction.rate.map(|rate| rate.bits_per_s() as f64),
            Self::Loss => Some(direction.loss.map_or(0.0, |share| share.fraction())),
        }
    }

    /// A direction in which nothing but this figure, and the delay it needs, is asked.
    fn alone(self, direction: &Direction, first: &Direction) -> Direction {
        match self {
            Self::Delay => Direction { delay: direction.delay, ..Direction::default() },
            // The delay stays, so that arrivals tell when packets left.
            Self::Rate => Direction { delay: first.delay, ..parts::rate(direction) },
            Self::Loss => Direction { delay: first.delay, ..parts::only_loss(direction) },
        }
    }

    /// The path with nothing but this figure, as it changes.
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

    /// The changes of this figure that are waited for.
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

/// The cuts that are waited for, in order, and the first of them once more where they come again.
fn cuts_within(outages: &Outages) -> Vec<Cut> {
    let is_near = |cut: &Cut| cut.at + cut.lasting <= CUTS_WITHIN;
    let mut list: Vec<Cut> = outages.cuts.iter().copied().filter(is_near).collect();
    list.sort_by_key(|cut| cut.at);
    let again = outages.every.filter(|every| !every.is_zero()).zip(list.first().copied());
    let again = again.map(|(every, first)| Cut { at: first.at + every, ..first });
    list.extend(again.filter(is_near));
    list
}

/// A while after the last of these cuts, but before another one.
fn after_cuts(spec: &Spec, cuts: &[Vec<Cut>; 2]) -> Duration {
    let last = cuts.iter().flatten().map(|cut| cut.at + cut.lasting).max().unwrap_or_default();
    let begins = Way::BOTH.into_iter().flat_map(|way| {
        let Outages { cuts, every } = &spec.direction(way).outages;
        let rounds = [Duration::ZERO, every.unwrap_or_default(), every.unwrap_or_default() * 2];
        cuts.iter().flat_map(move |cut| rounds.map(|round| cut.at + round))
    });
    let next = begins.filter(|begin| *begin > last).min();
    next.map_or(last + AFTER, |next| (last + AFTER).min(next.saturating_sub(CUT_EVERY)))
}

/// Cuts, and changes of the delay, with probes at a fixed pace from the link's beginning on.
pub(super) fn cuts_and_delays(spec: &Spec, seed: u64) -> Result<Attempt, LinkError> {
    let mut attempt = Attempt::default();
    let cuts = Way::BOTH.map(|way| cuts_within(&spec.direction(way).outages));
    if cuts.iter().any(|cuts| !cuts.is_empty()) {
        let path = parts::path(spec, parts::cut);
        let until = after_cuts(spec, &cuts);
        let (began, _, seen, certificate) = probed(&path, seed, until)?;
        attempt.certificates.push(certificate);
        for ((way, cuts), seen) in Way::BOTH.into_iter().zip(&cuts).zip(&seen) {
            let found = judge::cuts(cuts, began, seen);
            add_all(&mut attempt, way, seen, found);
        }
    }
    let steps = Way::BOTH.map(|way| Figure::Delay.steps(spec, way));
    if let Some(last) = steps.iter().flatten().map(|step| step.at + step.after).max() {
        let path = Figure::Delay.path(spec);
        let (began, late, seen, certificate) = probed(&path, seed, last)?;
        attempt.certificates.push(certificate);
        for ((way, steps), seen) in Way::BOTH.into_iter().zip(&steps).zip(&seen) {
            for step in steps {
                let found = judge::delay_step(step, began, late, seen);
                add_all(&mut attempt, way, seen, found);
            }
        }
    }
    Ok(attempt)
}

fn add_all(attempt: &mut Attempt, way: Way, seen: &Seen, found: Vec<(Subject, Outcome)>) {
    for (subject, outcome) in found {
        let outcome = seen.spoiled().map_or(outcome, Outcome::TooBusy);
        attempt.list.push(Finding { subject, way: Some(way), outcome });
    }
}

/// Sends probes both ways for so long. When the link began, how late the probe itself is, in seconds,
/// and what was seen.
fn probed(
    path: &Spec,
    seed: u64,
    lasting: Duration,
) -> Result<(Instant, f64, Vec<Seen>, Certificate), LinkError> {
    let link = Link::up(path, seed)?;
    let began = Instant::now();
    let load = Load {
        packets: u32::MAX,
        within: lasting,
        prompt: true,
        ..Load::paced(SMALL_PACKET, CUT_EVERY)
    };
    let longest = |way| states(path, way).map(|(_, direction)| direction.delay).max();
    let lanes = Way::BOTH.map(|way| Lane {
        way,
        load,
        linger: longest(way).unwrap_or_default() + AFTER,
        copies: false,
    });
    let seen = probe::run(&link, &lanes)?;
    let alone = Load { packets: OWN_PROBES, every: DELAY_EVERY, ..load };
    let alone = probe::run_on_loopback(&link, alone)?;
    let late = judge::median(alone.delays().flatten().collect());
    let (seen, certificate) = certified(Phase::Timetable, link, &lanes, seen)?;
    Ok((began, late, seen, certificate))
}

/// Changes of rates and of losses, both at once on links of their own, because they are to be waited for.
pub(super) fn rates_and_losses(spec: &Spec, seed: u64) -> Result<Attempt, LinkError> {
    let changed = |figure| loaded_over_changes(figure, spec, seed);
    let (rates, losses) = thread::scope(|scope| {
        let losses = scope.spawn(|| changed(Figure::Loss));
        let rates = changed(Figure::Rate);
        (rates, losses.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut rates, losses) = (rates?, losses?);
    rates.list.extend(losses.list);
    rates.certificates.extend(losses.certificates);
    Ok(rates)
}

fn loaded_over_changes(figure: Figure, spec: &Spec, seed: u64) -> Result<Attempt, LinkError> {
    let mut attempt = Attempt::default();
    let steps = Way::BOTH.map(|way| figure.steps(spec, way));
    let ends = |step: &Step| (step.at - step.before, step.at + step.after);
    let first = steps.iter().flatten().map(|step| ends(step).0).min();
    let last = steps.iter().flatten().map(|step| ends(step).1).max();
    let Some((first, last)) = first.zip(last) else { return Ok(attempt) };
    let path = figure.path(spec);
    let lanes: Vec<Lane> = Way::BOTH
        .into_iter()
        .zip(&steps)
        .filter(|(_, steps)| !steps.is_empty())
        .map(|(way, _)| lane_over_changes(figure, &path, way, last - first))
        .collect();
    let link = Link::up(&path, seed)?;
    let began = Instant::now();
    thread::sleep(first);
    let seen = probe::run(&link, &lanes)?;
    let (seen, certificate) = certified(Phase::Timetable, link, &lanes, seen)?;
    attempt.certificates.push(certificate);
    for (lane, seen) in lanes.iter().zip(&seen) {
        let delay = spec.direction(lane.way).delay;
        for step in &steps[usize::from(lane.way == Way::Down)] {
            let found = match figure {
                Figure::Rate => judge::rate_step(step, began, delay, seen),
                Figure::Loss | Figure::Delay => judge::loss_step(step, began, seen),
            };
            add_all(&mut attempt, lane.way, seen, found);
        }
    }
    Ok(attempt)
}

/// Full packets at more than the highest rate, or numbered ones, for so long.
fn lane_over_changes(figure: Figure, path: &Spec, way: Way, lasting: Duration) -> Lane {
    let asked = Asked::of(path, way);
    let rates = states(path, way).filter_map(|(_, direction)| direction.rate);
    let load = match rates.max().filter(|_| figure == Figure::Rate) {
        Some(rate) => {
            let every = rate.time_to_send(asked.full.into()).div_f64(OFFERED);
            Load {
                burst: 64,
                batch: super::asked::at_once(every),
                ..Load::paced(asked.full, every)
            }
        }
        None => Load { burst: 64, ..Load::paced(SMALL_PACKET, LOSS_EVERY) },
    };
    let load = Load { packets: u32::MAX, within: lasting, ..load };
    asked.lane(load, asked.longest_wait())
}

/// What a path does at set times that was not measured, and why.
pub(super) fn not_checked(spec: &Spec) -> Attempt {
    let mut attempt = Attempt::default();
    for way in Way::BOTH {
        let mut add = |what, why| {
            attempt.list.push(Finding {
                subject: Subject::Unchecked(what),
                way: Some(way),
                outcome: Outcome::NotChecked(why),
            });
        };
        let late = spec.direction(way).outages.cuts.iter();
        let late: Vec<_> = late.filter(|cut| cut.at + cut.lasting > CUTS_WITHIN).collect();
        if let Some(cut) = late.first() {
            let (at, within) = (cut.at.as_secs_f64(), CUTS_WITHIN.as_secs());
            let many = late.len();
            add("cuts", format!("{many}, from {at} s on, do not end within {within} s"));
        }
        let states: Vec<_> = states(spec, way).collect();
        for (number, pair) in (1..).zip(states.windows(2)) {
            let [(_, before), (at, after)] = [pair[0], pair[1]];
            if before == after {
                continue;
            }
            if at > CHANGES_WITHIN {
                let within = CHANGES_WITHIN.as_secs();
                let seconds = at.as_secs_f64();
                add(
                    "a change",
                    format!("number {number}, after {seconds} s, more than {within} s"),
                );
            } else if !is_measured(before, after) {
                add("a change", format!("number {number} also changes what is not measured later"));
            }
        }
    }
    attempt
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

#[cfg(test)]
mod tests {
    use super::*;
    use lastbyte_link::Scenario;

    fn spec(toml: &str) -> Spec {
        Scenario::parse("test", toml).unwrap().spec
    }

    #[test]
    fn cuts_within_reach_are_waited_for_and_the_first_again() {
        let cuts = |toml: &str| -> Vec<u128> {
            cuts_within(&spec(toml).up.outages).iter().map(|cut| cut.at.as_millis()).collect()
        };
        let twice = "cuts = [{ at = '5s', lasting = '1s' }, { at = '12s', lasting = '10s' }]";
        assert_eq!(cuts(twice), [5_000, 12_000]);
        let again = |every: &str| cuts(&format!("{twice}\ncuts_again_every = '{every}'"));
        assert_eq!(again("25s"), [5_000, 12_000, 30_000]);
        assert_eq!(again("45s"), [5_000, 12_000], "too far off");
        let until = |toml: &str| {
            let path = spec(toml);
            after_cuts(&path, &Way::BOTH.map(|_| cuts_within(&path.up.outages))).as_millis()
        };
        assert_eq!(until(twice), 22_500);
        let near = "cuts = [{ at = '5s', lasting = '1s' }, { at = '6200ms', lasting = '100ms' }]";
        assert_eq!(until(&format!("{near}\ncuts_again_every = '10s'")), 16_190);
        assert_eq!(cuts("cuts = [{ at = '49s', lasting = '1s' }]"), [49_000]);
        assert!(cuts("cuts = [{ at = '49s', lasting = '2s' }]").is_empty());
        assert!(cuts("rtt = '1ms'").is_empty());
    }

    #[test]
    fn changes_within_reach_are_steps() {
        let path = spec(
            "rtt = '20ms'\nrate = '8mbit'\n[[changes]]\nat = '3s'\nrate = '4mbit'\nrtt = '40ms'\n\
             [[changes]]\nat = '3500ms'\nway = 'down'\nloss = '1%'\n\
             [[changes]]\nat = '21s'\nrate = '1mbit'",
        );
        let step = Figure::Rate.steps(&path, Way::Up);
        let half = Duration::from_millis(500);
        assert_eq!((step.len(), step[0].before, step[0].after), (1, STEP_FOR, half));
        assert_eq!((step[0].number, step[0].from, step[0].to), (1, 8e6, 4e6));
        assert!(Figure::Loss.steps(&path, Way::Up).is_empty());
        assert_eq!(Figure::Loss.steps(&path, Way::Down)[0].number, 2);
        assert_eq!(Figure::Delay.steps(&path, Way::Up)[0].to, 0.02);
        let left: Vec<_> = not_checked(&path).list;
        assert_eq!(left.len(), 2, "the last one, both ways: {left:?}");
        assert_eq!(Figure::Rate.path(&path).check(), Ok(()));
        assert_eq!(Figure::Rate.path(&path).changes[0].up.delay, path.up.delay);
    }

    #[test]
    fn what_else_changes_is_named() {
        let named = |change: &str| {
            let path =
                spec(&format!("rtt = '20ms'\nrate = '8mbit'\n[[changes]]\nat = '3s'\n{change}"));
            not_checked(&path).list.len()
        };
        assert_eq!(named("rate = '9mbit'\nqueue = '20kB'"), 0);
        assert_eq!(named("queue = '20kB'"), 2);
        assert_eq!(named("jitter = '1ms'"), 2);
        assert_eq!(named("without = ['rate']"), 2);
        assert_eq!(named("rate = '8mbit'"), 0, "nothing changes");
    }
}
