//! `CoDel`: which packets a managed queue drops or marks, against what the model does with packets that
//! arrive at the same times.
//!
//! Full packets at more than the rate, over the rate and the queue's management alone, with a queue that
//! is never full. The model's own tests check it against RFC 8289; this finds a wire that differs from
//! the model.

use std::time::{Duration, Instant};

use lastbyte_link::model::{Fate, Model, Packet, nanos};
use lastbyte_link::{Direction, LinkError, Management, Marks, PROMISED_LATENESS, Queue, Spec};
use lastbyte_units::{BitRate, Unit, grouped};

use super::Claim;
use crate::asked::Asked;
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::part::LONG_QUEUE;
use crate::probe::{Flow, Load, Observed, batch_for};

/// What is offered to a managed queue and to a policer, as a multiple of the rate: a queue that grows
/// by a quarter of the time is above 5 ms after 20 ms, and 1 ms of lateness moves that by 4 ms.
pub(super) const CODEL_OFFERED: f64 = 1.25;
/// How long a managed queue is loaded: its law drops about 80 packets in that time.
pub(super) const CODEL_FOR: Duration = Duration::from_secs(2);
/// How far the number of packets that are dropped or marked may be off, as a share of it; 2 always.
const SIGNALS_TOLERANCE: f64 = 0.05;

pub(super) const CLAIM: Claim =
    Claim { phase: Phase::Codel, is_made: |asked| asked.codel, measure };

/// The queue's management, or its marks, with a queue that is never full; a recorded rate is its mean.
pub(crate) fn part(asked: &Direction) -> Direction {
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

/// Full packets at more than the rate.
pub(super) fn flow(asked: &Asked, rate: BitRate) -> Flow {
    let every = rate.time_to_send(asked.full.into()).div_f64(CODEL_OFFERED);
    let load = Load {
        packets: u32::MAX,
        within: CODEL_FOR,
        burst: 8,
        batch: batch_for(every),
        ecn: asked.marks != Marks::None,
        ..Load::paced(asked.full, every)
    };
    // What waits at the end, twice that.
    asked.flow(load, asked.idle_wait() + CODEL_FOR.mul_f64(CODEL_OFFERED - 1.0) * 2)
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part);
    let flow = |asked: &Asked| Some(flow(asked, asked.mean_rate.filter(|_| asked.codel)?));
    let loaded = check.load(Phase::Codel, &part, flow, Together::IfSlow)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let (Some((flow, seen)), Some(rate)) = (observed, asked.mean_rate) else { continue };
        let expected = Signals::expected(&part.spec, flow, seen);
        let subjects = [Subject::FirstSignal, Subject::Signals];
        for (subject, outcome) in judge(subjects, &expected, rate, flow.load.ecn, seen) {
            let outcome = seen.unless_overflowed(outcome);
            attempt.add_over(&part, asked.way, (subject, outcome));
        }
    }
    Ok(attempt)
}

/// The packets by which a queue signals congestion, by number: those that it dropped or marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signals(Vec<u32>);

impl Signals {
    /// What the queue does with packets that arrive when these were sent.
    pub(super) fn expected(spec: &Spec, flow: &Flow, seen: &Observed) -> Self {
        let mut model = Model::new(spec, flow.way, 0);
        let packet = Packet { bytes: flow.load.ip_bytes, ecn_capable: flow.load.ecn };
        let first = seen.sent.first().copied();
        let mut is_signal = |at: &Instant| {
            let now = first.map_or(0, |first| nanos(*at - first));
            match model.offer(now, packet) {
                Fate::Deliver(arrival) => arrival.marked,
                _ => true,
            }
        };
        let numbers = (0..).zip(&seen.sent).filter(|(_, at)| is_signal(at));
        Self(numbers.map(|(number, _)| number).collect())
    }

    /// Those that never arrived, and those that arrived with a mark.
    fn of(seen: &Observed) -> Self {
        let marked = seen.arrivals.iter().filter(|one| one.marked).map(|one| one.number);
        let mut numbers: Vec<u32> = seen.missing().into_iter().chain(marked).collect();
        numbers.sort_unstable();
        Self(numbers)
    }

    /// When the first one was sent, in seconds after the first packet of all.
    fn first(&self, seen: &Observed) -> Option<f64> {
        let (first, sent) = (seen.sent.first()?, seen.sent.get(*self.0.first()? as usize)?);
        Some((*sent - *first).as_secs_f64())
    }
}

/// When the first packet was dropped or marked, and how many were, against what is expected for packets
/// that were sent at these times. With `ecn` all were to be marked and none to be dropped.
pub(super) fn judge(
    subjects: [Subject; 2],
    expected: &Signals,
    rate: BitRate,
    ecn: bool,
    seen: &Observed,
) -> Vec<(Subject, Outcome)> {
    let got = Signals::of(seen);
    let Some(asked) = expected.first(seen) else {
        let why = "the sender never was ahead for long enough".to_owned();
        return vec![(subjects[0], Outcome::TooBusy(why))];
    };
    let word = if ecn { "marked" } else { "dropped" };
    // A packet that is late makes a queue seem shorter, which grows by this share of the time.
    let packet = seen.arrivals.first().map_or(0, |one| one.ip_bytes);
    let unsure = PROMISED_LATENESS.as_secs_f64() / (CODEL_OFFERED - 1.0);
    let tolerance = unsure + rate.time_to_send(packet.into()).as_secs_f64() * 2.0;
    let first = match got.first(seen) {
        None => Outcome::NotMeasured(format!("none of {} packets was {word}", seen.sent.len())),
        Some(first) => {
            let basis = format!(
                "when the first packet that was {word} was sent; offered {CODEL_OFFERED} times the rate"
            );
            Outcome::within(Unit::Seconds, asked, first, tolerance, basis)
        }
    };
    let (asked, many) = (expected.0.len() as f64, got.0.len() as f64);
    let basis = format!("{word} of {} packets, as the law has it", grouped(seen.sent.len() as u64));
    let count =
        Outcome::within(Unit::Packets, asked, many, (asked * SIGNALS_TOLERANCE).max(2.0), basis);
    let mut list = vec![(subjects[0], first), (subjects[1], count)];
    if ecn {
        let basis = "where packets may be marked".to_owned();
        let dropped = Outcome::within(Unit::Packets, 0.0, seen.lost() as f64, 0.0, basis);
        list.push((Subject::DroppedUnmarked, dropped));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{insides, is_not_measured, is_too_busy};
    use crate::probe::tests::{MS, seen};

    const SUBJECTS: [Subject; 2] = [Subject::FirstSignal, Subject::Signals];

    #[test]
    fn codel_strikes_when_its_law_says_and_as_often() {
        let mut sent = seen(MS, 1000, MS, 10 * MS);
        let lost = |first: u32, many: u32| -> Vec<u32> { (first..first + many).collect() };
        let judged = |seen: &Observed, expected: &[u32]| {
            let expected = Signals(expected.to_vec());
            judge(SUBJECTS, &expected, "8mbit".parse().unwrap(), false, seen)
        };
        sent.arrivals.retain(|one| !lost(300, 20).contains(&one.number));
        assert_eq!(insides(&judged(&sent, &lost(300, 20))), [true, true]);
        // 1 ms of lateness at 1.25 times the rate, and two packets.
        assert_eq!(insides(&judged(&sent, &lost(306, 22))), [true, true]);
        assert_eq!(insides(&judged(&sent, &lost(307, 23))), [false, false]);
        assert_eq!(insides(&judged(&sent, &lost(293, 18))), [false, true]);
        assert!(is_too_busy(&judged(&sent, &[])[0].1), "no law, no answer");
        let whole = seen(MS, 1000, MS, 10 * MS);
        assert!(is_not_measured(&judged(&whole, &lost(300, 20))[0].1), "it drops nothing");
    }

    #[test]
    fn marks_are_strikes_and_drops_beside_them_are_wrong() {
        let mut marked = seen(MS, 1000, MS, 10 * MS);
        let expected = Signals((300..320).collect());
        for number in 300..320 {
            marked.arrivals[number].marked = true;
        }
        let rate = "8mbit".parse().unwrap();
        let judged = |seen: &Observed| insides(&judge(SUBJECTS, &expected, rate, true, seen));
        assert_eq!(judged(&marked), [true, true, true]);
        marked.arrivals.remove(310);
        assert_eq!(judged(&marked), [true, true, false]);
    }
}
