//! Cuts: when each begins and how long it lasts, and what is lost besides.
//!
//! Small packets at a fixed pace from the beginning of the link on, over the delay and the cuts alone.

use std::time::{Duration, Instant};

use lastbyte_link::{Cut, Direction, Link, LinkError, Outages, PROMISED_LATENESS, Spec, Way};
use lastbyte_units::{Unit, grouped};

use super::delay::own_lateness;
use crate::check::{Attempt, Check, LinkRun, take_down};
use crate::finding::{Finding, Outcome, Phase, Subject};
use crate::part::Part;
use crate::probe::{self, Flow, Load, Observed, SMALL_PACKET};

/// The time from one probe to the next where the wire is cut, which is how exactly a cut is seen.
const CUT_EVERY: Duration = Duration::from_millis(10);
/// Cuts that end after this time are not measured.
const CUTS_WITHIN: Duration = Duration::from_secs(50);
/// How long probes are sent after the last cut, to see its end.
const AFTER: Duration = Duration::from_millis(500);

/// The delay, and when the wire is cut.
pub(crate) fn part(asked: &Direction) -> Direction {
    Direction { delay: asked.delay, outages: asked.outages.clone(), ..Direction::default() }
}

/// The cuts that are measured, in order; where they repeat, also the first repetition.
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

pub(super) fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let cuts = Way::BOTH.map(|way| cuts_within(&check.spec.direction(way).outages));
    if cuts.iter().all(Vec::is_empty) {
        return Ok(Attempt::default());
    }
    let path = Part::of(check.spec, part).spec;
    let probed = probe_from_start(&path, check.seed, after_cuts(check.spec, &cuts))?;
    let mut attempt = Attempt::of(Some(probed.run));
    for ((way, cuts), seen) in Way::BOTH.into_iter().zip(&cuts).zip(&probed.observed) {
        for (subject, outcome) in judge(cuts, probed.began, seen) {
            attempt.add(subject, Some(way), seen.unless_overflowed(outcome));
        }
    }
    Ok(attempt)
}

/// What was observed of probes that were sent from the beginning of a link on.
#[derive(Debug)]
pub(super) struct Probed {
    /// When the link was made.
    pub(super) began: Instant,
    /// How late the probe itself is, in seconds.
    pub(super) lateness: f64,
    /// Up, down.
    pub(super) observed: Vec<Observed>,
    pub(super) run: LinkRun,
}

/// Sends probes in both directions for this time.
pub(super) fn probe_from_start(
    path: &Spec,
    seed: u64,
    lasting: Duration,
) -> Result<Probed, LinkError> {
    let link = Link::up(path, seed)?;
    let began = Instant::now();
    let load = Load {
        packets: u32::MAX,
        within: lasting,
        high_priority: true,
        ..Load::paced(SMALL_PACKET, CUT_EVERY)
    };
    let longest = |way| path.states(way).map(|(_, direction, _)| direction.delay).max();
    let flows = Way::BOTH.map(|way| Flow {
        way,
        load,
        linger: longest(way).unwrap_or_default() + AFTER,
        copies: false,
    });
    let observed = probe::run(&link, &flows)?;
    let (_, lateness) = own_lateness(&link, load)?;
    let run = take_down(Phase::Scheduled, link, &flows, &observed)?;
    Ok(Probed { began, lateness, observed, run })
}

/// Cuts of a direction that are too far off to be measured.
pub(crate) fn not_checked(spec: &Spec, way: Way) -> Option<Finding> {
    let late = spec.direction(way).outages.cuts.iter();
    let late: Vec<_> = late.filter(|cut| cut.at + cut.lasting > CUTS_WITHIN).collect();
    let (at, within) = (late.first()?.at.as_secs_f64(), CUTS_WITHIN.as_secs());
    let many = late.len();
    let why = format!("{many}, from {at} s on, do not end within {within} s");
    let outcome = Outcome::NotChecked(why);
    Some(Finding { subject: Subject::Unchecked("cuts"), way: Some(way), outcome })
}

/// When each cut began and how long it lasted, and what was lost besides. Probes were sent at a fixed
/// pace from `began` on, when the link was made.
fn judge(asked: &[Cut], began: Instant, seen: &Observed) -> Vec<(Subject, Outcome)> {
    let times: Vec<f64> = seen.sent.iter().map(|at| since(began, *at)).collect();
    let missing = seen.missing();
    let gaps: Vec<&[u32]> = missing.chunk_by(|one, next| one + 1 == *next).collect();
    let tolerance = (CUT_EVERY + PROMISED_LATENESS).as_secs_f64();
    let mut list = Vec::new();
    let mut explained = 0;
    for (number, cut) in (1..).zip(asked) {
        let (at, lasting) = (cut.at.as_secs_f64(), cut.lasting.as_secs_f64());
        let middle = at + lasting / 2.0;
        let (begin, length) = (Subject::CutBegin(number), Subject::CutLength(number));
        let around = |gap: &&&[u32]| {
            let (first, last) = (gap[0] as usize, gap[gap.len() - 1] as usize);
            let before = first.checked_sub(1).map_or(0.0, |before| times[before]);
            before <= middle && times.get(last + 1).is_none_or(|after| middle <= *after)
        };
        let Some(gap) = gaps.iter().find(around) else {
            let why = Outcome::NotMeasured("packets came through in the midst of it".to_owned());
            list.extend([(begin, why.clone()), (length, why)]);
            continue;
        };
        explained += gap.len();
        let (first, last) = (gap[0] as usize, gap[gap.len() - 1] as usize);
        let Some(end) = times.get(last + 1) else {
            let why = Outcome::NotMeasured("no packet came after it".to_owned());
            list.extend([(begin, why.clone()), (length, why)]);
            continue;
        };
        let probes = format!(
            "{} probes missing in a row, one every {} ms",
            gap.len(),
            CUT_EVERY.as_millis()
        );
        // It began between two probes: report the middle.
        let from = match first.checked_sub(1) {
            Some(before) => f64::midpoint(times[before], times[first]),
            None => 0.0,
        };
        let to = f64::midpoint(times[last], *end);
        list.push((begin, Outcome::within(Unit::Seconds, at, from, tolerance, probes.clone())));
        list.push((length, Outcome::within(Unit::Seconds, lasting, to - from, tolerance, probes)));
    }
    let basis = format!("lost outside of the cuts, of {} probes", grouped(seen.sent.len() as u64));
    let besides = (missing.len() - explained) as f64;
    list.push((Subject::LostOutsideCuts, Outcome::within(Unit::Packets, 0.0, besides, 0.0, basis)));
    list
}

/// Seconds since the link began.
pub(super) fn since(began: Instant, at: Instant) -> f64 {
    at.saturating_duration_since(began).as_secs_f64()
}

#[cfg(test)]
pub(super) mod tests {
    use lastbyte_link::Scenario;

    use super::*;
    use crate::finding::tests::{insides, is_not_measured};
    use crate::probe::tests::{MS, arrival};

    pub(crate) fn spec(toml: &str) -> Spec {
        Scenario::parse("test", toml).unwrap().spec
    }

    /// Probes at the pace of those for cuts, with delays in milliseconds; `None` for one that is lost.
    pub(crate) fn probes(many: u32, takes: impl Fn(u32) -> Option<u32>) -> Observed {
        let start = Instant::now();
        let sent: Vec<_> = (0..many).map(|number| start + CUT_EVERY * number).collect();
        let every = u32::try_from(CUT_EVERY.as_millis()).unwrap();
        let come = |number: u32| {
            Some(arrival(number, sent[number as usize] + MS * takes(every * number)?))
        };
        Observed { arrivals: (0..many).filter_map(come).collect(), sent, ..Observed::default() }
    }

    fn cut(at: u32, lasting: u32) -> Cut {
        Cut { at: MS * at, lasting: MS * lasting }
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
    fn a_cut_has_a_beginning_and_a_length() {
        let seen = probes(300, |ms| (!(505..=695).contains(&ms)).then_some(20));
        let judged = |asked: &[Cut]| insides(&judge(asked, seen.sent[0], &seen));
        assert_eq!(judged(&[cut(505, 190)]), [true, true, true]);
        assert_eq!(judged(&[cut(515, 190)]), [true, true, true]);
        assert_eq!(judged(&[cut(520, 190)]), [false, true, true]);
        assert_eq!(judged(&[cut(505, 205)]), [true, false, true]);
        assert_eq!(judged(&[cut(1000, 100)]), [false, false, false], "there was none");
        assert_eq!(judged(&[]), [false], "there was one");
        let never_ends = probes(100, |ms| (ms < 505).then_some(20));
        let list = judge(&[cut(505, 200)], never_ends.sent[0], &never_ends);
        assert!(is_not_measured(&list[0].1));
        let leaky = probes(300, |ms| (!(505..=695).contains(&ms) || ms == 600).then_some(20));
        assert!(insides(&judge(&[cut(505, 190)], leaky.sent[0], &leaky)).contains(&false));
    }
}
