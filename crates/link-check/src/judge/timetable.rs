//! What a path does at set times.

use std::time::{Duration, Instant};

use lastbyte_units::{Unit, grouped};

use lastbyte_link::Cut;

use super::super::probe::{Arrival, Seen};
use super::super::{
    CUT_EVERY, DELAY_TOLERANCE, LEAST_PROBES, Moment, Outcome, PROMISED_LATENESS, RATE_TOLERANCE,
    STEP_TOLERANCE, Subject,
};
use super::rate::bytes_over_time;
use super::{at_share_of, measured, median};

/// When each cut began and how long it lasted, and what was lost besides. Probes were sent at a fixed
/// pace from the link's beginning on, which `began` tells.
pub(in super::super) fn cuts(
    asked: &[Cut],
    began: Instant,
    seen: &Seen,
) -> Vec<(Subject, Outcome)> {
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
        // It began between two probes: tell the middle.
        let from = match first.checked_sub(1) {
            Some(before) => f64::midpoint(times[before], times[first]),
            None => 0.0,
        };
        let to = f64::midpoint(times[last], *end);
        list.push((begin, measured(Unit::Seconds, at, from, tolerance, probes.clone())));
        list.push((length, measured(Unit::Seconds, lasting, to - from, tolerance, probes)));
    }
    let basis = format!("lost outside of the cuts, of {} probes", grouped(seen.sent.len() as u64));
    let besides = (missing.len() - explained) as f64;
    list.push((Subject::CutBesides, measured(Unit::Packets, 0.0, besides, 0.0, basis)));
    list
}

fn since(began: Instant, at: Instant) -> f64 {
    at.saturating_duration_since(began).as_secs_f64()
}

/// A change of one figure at a set time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Step {
    /// Its number among the path's changes, from 1.
    pub(in super::super) number: u32,
    /// When, since the link began; and for how long nothing else changes before and after it.
    pub(in super::super) at: Duration,
    pub(in super::super) before: Duration,
    pub(in super::super) after: Duration,
    /// The figure before and after: seconds, a share, or bit/s.
    pub(in super::super) from: f64,
    pub(in super::super) to: f64,
}

impl Step {
    fn subject(&self, of: &'static str, moment: Moment) -> Subject {
        Subject::Change { number: self.number, of, moment }
    }

    /// Where in time the state before lies, and the one after, leaving some out at the change.
    fn windows(&self, margin: f64) -> [(f64, f64); 2] {
        let at = self.at.as_secs_f64();
        let (before, after) = (self.before.as_secs_f64(), self.after.as_secs_f64());
        [(at - before + margin, at - margin), (at + margin, at + after - margin)]
    }
}

/// A delay before and after it changed, and when. `late` is the probe's own.
pub(in super::super) fn delay_step(
    step: &Step,
    began: Instant,
    late: f64,
    seen: &Seen,
) -> Vec<(Subject, Outcome)> {
    let probes: Vec<(f64, f64)> = seen
        .sent
        .iter()
        .zip(seen.delays())
        .filter_map(|(sent, delay)| Some((since(began, *sent), delay? - late)))
        .collect();
    // Where the delay becomes shorter, order is kept: for so long later packets wait for earlier ones.
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
            measured(Unit::Seconds, asked, median(delays), tolerance, basis)
        };
        list.push((step.subject("delay", moment), outcome));
    }
    // The first with another delay. Longer ones come at once; shorter ones bit by bit, because order is
    // kept.
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
            measured(Unit::Seconds, step.at.as_secs_f64(), got, tolerance, basis)
        }
    };
    list.push((step.subject("delay", Moment::Itself), outcome));
    list
}

/// A rate before and after it changed, and when. `base` is the delay.
pub(in super::super) fn rate_step(
    step: &Step,
    began: Instant,
    base: Duration,
    seen: &Seen,
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
                    measured(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE, basis)
                }
                _ => Outcome::NotMeasured(format!("only {} packets came", arrivals.len())),
            };
            (step.subject("rate", moment), outcome)
        })
        .collect();
    // From the middle of both, that a change which came at another time is seen too.
    let outcome = match (before.get(before.len() / 2), after.get(after.len() / 2)) {
        (Some(one), Some(two)) => {
            // Bytes that came between both, at the first rate until the change and at the second after.
            let between =
                seen.arrivals.iter().filter(|arrival| arrival.at > one.at && arrival.at <= two.at);
            let bits = between.map(|arrival| f64::from(arrival.ip_bytes) * 8.0).sum::<f64>();
            let (start, end) = (left(one), left(two));
            let got = (bits + step.from * start - step.to * end) / (step.from - step.to);
            // A packet more or less moves the crossing.
            let packet = f64::from(one.ip_bytes) * 8.0 / (step.from - step.to).abs();
            let tolerance = STEP_TOLERANCE.as_secs_f64() + packet;
            let basis = "where the lines of both rates cross".to_owned();
            measured(Unit::Seconds, step.at.as_secs_f64(), got, tolerance, basis)
        }
        _ => Outcome::NotMeasured("no packets came around it".to_owned()),
    };
    list.push((step.subject("rate", Moment::Itself), outcome));
    list
}

/// An independent loss before and after it changed.
pub(in super::super) fn loss_step(
    step: &Step,
    began: Instant,
    seen: &Seen,
) -> Vec<(Subject, Outcome)> {
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
            let outcome = at_share_of(asked, lost.count(), last.saturating_sub(first));
            (step.subject("loss", moment), outcome)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, arrival, is_inside, is_not_measured};
    use super::*;

    fn insides(list: &[(Subject, Outcome)]) -> Vec<bool> {
        list.iter().map(|(_, outcome)| is_inside(outcome)).collect()
    }

    /// Probes at the pace of those for cuts, that take as many milliseconds as is said; `None` is lost.
    fn probes(many: u32, takes: impl Fn(u32) -> Option<u32>) -> Seen {
        let start = Instant::now();
        let sent: Vec<_> = (0..many).map(|number| start + CUT_EVERY * number).collect();
        let every = u32::try_from(CUT_EVERY.as_millis()).unwrap();
        let come = |number: u32| {
            Some(arrival(number, sent[number as usize] + MS * takes(every * number)?))
        };
        Seen { arrivals: (0..many).filter_map(come).collect(), sent, ..Seen::default() }
    }

    fn cut(at: u32, lasting: u32) -> Cut {
        Cut { at: MS * at, lasting: MS * lasting }
    }

    #[test]
    fn a_cut_has_a_beginning_and_a_length() {
        let seen = probes(300, |ms| (!(505..=695).contains(&ms)).then_some(20));
        let judged = |asked: &[Cut]| insides(&cuts(asked, seen.sent[0], &seen));
        assert_eq!(judged(&[cut(505, 190)]), [true, true, true]);
        assert_eq!(judged(&[cut(515, 190)]), [true, true, true]);
        assert_eq!(judged(&[cut(520, 190)]), [false, true, true]);
        assert_eq!(judged(&[cut(505, 205)]), [true, false, true]);
        assert_eq!(judged(&[cut(1000, 100)]), [false, false, false], "there was none");
        assert_eq!(judged(&[]), [false], "there was one");
        let never_ends = probes(100, |ms| (ms < 505).then_some(20));
        let list = cuts(&[cut(505, 200)], never_ends.sent[0], &never_ends);
        assert!(is_not_measured(&list[0].1));
        let leaky = probes(300, |ms| (!(505..=695).contains(&ms) || ms == 600).then_some(20));
        assert!(insides(&cuts(&[cut(505, 190)], leaky.sent[0], &leaky)).contains(&false));
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
        let seen = Seen { sent: vec![start; arrivals.len()], arrivals, ..Seen::default() };
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
