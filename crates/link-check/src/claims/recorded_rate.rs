//! A recorded rate: packets leave at its opportunities; and the queue in front of it.
//!
//! More at once than the trace carries in the time, over the trace with room for all of it; then a burst
//! that its own queue does not take.

use std::time::{Duration, Instant};

use lastbyte_link::model::nanos;
use lastbyte_link::{Direction, LinkError, PROMISED_LATENESS, Queue, Trace};
use lastbyte_units::{BitRate, Unit, grouped};

use super::queue::{QUEUE_TOLERANCE, never_filled};
use super::rate::{LEAST_RATE_PACKETS, RATE_TOLERANCE, bytes_over_time};
use super::{Claim, queue};
use crate::asked::{Asked, QUEUE_WITHIN};
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::probe::{Flow, Load, MOST_AT_ONCE, Observed};
use crate::statistics::{at_share, median};

/// As much as a recorded rate carries in this time is sent to it; a whole round of it where that takes
/// no longer than the second time.
const TRACE_FOR: Duration = Duration::from_secs(3);
const TRACE_WITHIN: Duration = Duration::from_secs(10);
/// How well it is known when a link began.
const START_UNSURE: Duration = Duration::from_millis(20);
/// One of this many packets, at the beginning, may have left before all had been sent, and is left out.
const UNSTEADY: usize = 10;
/// Where a trace may begin, in opportunities around the likeliest, at most.
const MOST_PLACES: u64 = 2_000;

pub(super) const CLAIM: Claim =
    Claim { phase: Phase::Recorded, is_made: |asked| asked.trace.is_some(), measure };

/// The recorded rate with room for all that is sent at once.
pub(crate) fn part(asked: &Direction) -> Direction {
    let trace = asked.trace.clone();
    let queue = trace.is_some().then_some(Queue::Packets(u64::from(u32::MAX)));
    Direction { delay: asked.delay, trace, queue, ..Direction::default() }
}

/// The recorded rate with its own queue.
pub(crate) fn part_with_queue(asked: &Direction) -> Direction {
    let trace = asked.trace.clone();
    let queue = asked.queue.filter(|_| trace.is_some());
    Direction { delay: asked.delay, trace, queue, ..Direction::default() }
}

/// As much as a recorded rate carries in the time taken for it, all at once.
fn flow(asked: &Asked) -> Option<Flow> {
    let (rate, trace) = asked.mean_rate.zip(asked.trace.as_ref())?;
    // A whole round, and what is not steady yet.
    let round = trace.length() + trace.length() / 4;
    let time = if round <= TRACE_WITHIN { round.max(TRACE_FOR) } else { TRACE_FOR };
    let packets = rate.bytes_in(time) / u64::from(asked.full);
    let packets = u32::try_from(packets).unwrap_or(u32::MAX).clamp(50, 100_000);
    let load = Load {
        packets,
        within: QUEUE_WITHIN,
        at_start: packets,
        batch: MOST_AT_ONCE,
        ..Load::paced(asked.full, Duration::ZERO)
    };
    let time = rate.time_to_send(u64::from(packets) * u64::from(asked.full));
    Some(asked.flow(load, asked.idle_wait() + time * 2))
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part);
    let loaded = check.load(Phase::Recorded, &part, flow, Together::Always)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let (Some((_, seen)), Some(trace)) = (observed, &asked.trace) else { continue };
        for (subject, outcome) in judge(trace, asked.delay, loaded.began, seen) {
            let outcome = seen.unless_overflowed(outcome);
            attempt.add_over(&part, asked.way, (subject, outcome));
        }
    }
    measure_queue(check, &mut attempt)?;
    Ok(attempt)
}

fn measure_queue(check: &Check<'_>, attempt: &mut Attempt) -> Result<(), LinkError> {
    let part = check.part(part_with_queue);
    let flow = |asked: &Asked| asked.trace.as_ref().and_then(|_| queue::flow(asked));
    let loaded = check.load(Phase::Recorded, &part, flow, Together::IfSlow)?;
    attempt.runs.extend(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let (Some(rate), Some(queue), Some(_)) = (asked.mean_rate, asked.queue, &asked.trace)
        else {
            continue;
        };
        let outcome = match observed {
            None => Outcome::NotMeasured("it takes too long to run empty".to_owned()),
            Some((_, seen)) => seen.unless_overflowed(judge_queue(queue, rate, asked.delay, seen)),
        };
        attempt.add_over(&part, asked.way, (Subject::QueueBytes, outcome));
    }
    Ok(())
}

/// The rate of a trace, and how far packets left from its opportunities. All were sent at once, each as
/// long as an opportunity at most and more than half of it, so that each takes one. `began` is when
/// the link did, as far as is known.
fn judge(
    trace: &Trace,
    base: Duration,
    began: Instant,
    seen: &Observed,
) -> Vec<(Subject, Outcome)> {
    let seconds = |at: Instant| at.saturating_duration_since(began).as_secs_f64();
    let left: Vec<f64> =
        seen.arrivals.iter().map(|one| seconds(one.at) - base.as_secs_f64()).collect();
    // The sender may have been late at first.
    let left = &left[left.len() / UNSTEADY..];
    let many = left.len() as u64;
    let (Some(first), true) = (left.first(), many >= LEAST_RATE_PACKETS.into()) else {
        return vec![(Subject::Rate, Outcome::NotMeasured(format!("only {many} packets came")))];
    };
    let unsure = START_UNSURE.as_secs_f64();
    let place_at = |seconds: f64| trace.first_at(nanos(Duration::from_secs_f64(seconds.max(0.0))));
    let (from, to) = (place_at(first - 2.0 * unsure), place_at(first + unsure));
    let fits = (from..=to.min(from + MOST_PLACES)).map(|place| Fit::of(trace, place, left));
    let Some(best) = fits.filter(|fit| fit.off.abs() <= unsure).min_by(|one, two| {
        (one.farthest, one.off.abs())
            .partial_cmp(&(two.farthest, two.off.abs()))
            .unwrap_or(std::cmp::Ordering::Equal)
    }) else {
        let why = "no part of the trace begins where the packets did";
        return vec![(Subject::Opportunities, Outcome::NotMeasured(why.to_owned()))];
    };
    let basis = format!("99 % of {many} packets, each at its place in the trace");
    let limit = PROMISED_LATENESS.as_secs_f64();
    let opportunities = Outcome::at_most(Unit::Seconds, limit, best.farthest, basis);
    vec![
        (Subject::Rate, trace_rate(trace, best.place, seen)),
        (Subject::Opportunities, opportunities),
    ]
}

/// A guess which opportunity was the first.
#[derive(Clone, Copy, Debug)]
struct Fit {
    place: u64,
    /// How much later than the guess all are, in seconds.
    off: f64,
    /// How far 99 of 100 are from that at most.
    farthest: f64,
}

impl Fit {
    fn of(trace: &Trace, place: u64, left: &[f64]) -> Self {
        let time = |number| Duration::from_nanos(trace.time(number)).as_secs_f64();
        let residuals: Vec<f64> =
            (place..).zip(left).map(|(number, left)| left - time(number)).collect();
        let off = median(residuals.clone());
        let mut distances: Vec<f64> = residuals.iter().map(|one| (one - off).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Self { place, off, farthest: at_share(&distances, 0.99) }
    }
}

/// Bytes over the receiver's time, compared with what the trace carries in it: whole rounds, if any.
fn trace_rate(trace: &Trace, place: u64, seen: &Observed) -> Outcome {
    let later = &seen.arrivals[seen.arrivals.len() / UNSTEADY..];
    let whole =
        later.len().saturating_sub(1) as u64 / trace.opportunities() * trace.opportunities();
    let many = if whole > 0 { whole } else { later.len() as u64 - 1 };
    let Some((got, bytes, _)) =
        usize::try_from(many).ok().and_then(|many| bytes_over_time(&later[..=many]))
    else {
        return Outcome::NotMeasured("all came at once".to_owned());
    };
    let length = Duration::from_nanos(trace.time(place + many) - trace.time(place)).as_secs_f64();
    let asked = bytes as f64 * 8.0 / length;
    let (rounds, mean) = (whole / trace.opportunities(), trace.mean_bits_per_s() as f64 / 1e6);
    let part = match rounds {
        0 => format!("a part of the trace, whose mean is {mean:.2} Mbit/s"),
        1 => "one round of the trace".to_owned(),
        _ => format!("{rounds} rounds of the trace"),
    };
    let basis = format!("{} bytes in {length:.2} s, {part}", grouped(bytes));
    // The ends may be late by as much as a link promises.
    let ends = 2.0 * PROMISED_LATENESS.as_secs_f64() / length;
    Outcome::within(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE.max(ends), basis)
}

/// The bytes that a queue in front of a recorded rate held when it took the last packet of a burst.
fn judge_queue(asked: u64, mean: BitRate, base: Duration, seen: &Observed) -> Outcome {
    let last = seen.arrivals.iter().map(|one| one.number).max();
    let Some(last) = last.filter(|_| seen.lost() > 0) else { return never_filled(seen) };
    let sent = seen.sent[last as usize];
    let held: u64 = seen
        .arrivals
        .iter()
        .filter(|one| one.at > sent + base + PROMISED_LATENESS / 2)
        .map(|one| u64::from(one.ip_bytes))
        .sum();
    let packet = seen.arrivals.first().map_or(0, |one| one.ip_bytes);
    let late = mean.bytes_in(PROMISED_LATENESS * 2);
    // Several may leave at one opportunity's time.
    let tolerance = (asked as f64 * QUEUE_TOLERANCE).max((3 * u64::from(packet) + late) as f64);
    let basis = format!("{} packets taken, {} refused", seen.arrivals.len(), seen.lost());
    Outcome::within(Unit::Bytes, asked as f64, held as f64, tolerance, basis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{insides, is_inside, is_not_measured, is_too_busy};
    use crate::probe::tests::{MS, arrival, seen};

    /// Packets that leave at a trace's opportunities from one on, so much later than it says.
    fn replayed(trace: &Trace, from: u64, many: u32, late: impl Fn(u32) -> Duration) -> Observed {
        let began = Instant::now();
        let at = |number: u32| {
            let time = Duration::from_nanos(trace.time(from + u64::from(number)));
            began + 10 * MS + time + late(number)
        };
        let arrivals = (0..many).map(|number| arrival(number, at(number))).collect();
        Observed { sent: vec![began; many as usize], arrivals, ..Observed::default() }
    }

    #[test]
    fn a_recorded_rate_is_followed_from_packet_to_packet() {
        let trace = Trace::parse("1\n1\n4\n9\n10\n10\n10\n17\n30\n").unwrap();
        let judged = |other: &Trace, late: &dyn Fn(u32) -> Duration| {
            let seen = replayed(other, 5, 200, late);
            judge(&trace, 10 * MS, seen.sent[0], &seen)
        };
        assert_eq!(insides(&judged(&trace, &|_| Duration::ZERO)), [true, true]);
        assert_eq!(insides(&judged(&trace, &|_| 2 * MS)), [true, true], "the link began later");
        let shaken = |by: Duration| move |number: u32| by * u32::from(number.is_multiple_of(9));
        assert_eq!(insides(&judged(&trace, &shaken(MS * 9 / 10))), [true, true]);
        assert_eq!(insides(&judged(&trace, &shaken(MS * 11 / 10))), [true, false]);
        let constant = Trace::parse("3\n7\n10\n13\n17\n20\n23\n27\n30").unwrap();
        assert_eq!(insides(&judged(&constant, &|_| Duration::ZERO)), [true, false]);
        let faster = Trace::parse("1\n1\n4\n9\n10\n10\n10\n17\n29\n").unwrap();
        assert!(!insides(&judged(&faster, &|_| Duration::ZERO)).contains(&true));
        let few = replayed(&trace, 5, 20, |_| Duration::ZERO);
        assert!(is_not_measured(&judge(&trace, 10 * MS, few.sent[0], &few)[0].1));
    }

    #[test]
    fn a_queue_before_a_recorded_rate_is_what_had_not_left() {
        let mut burst = seen(Duration::ZERO, 130, MS, 10 * MS);
        burst.arrivals.truncate(100);
        let judged = |queue| judge_queue(queue, "8mbit".parse().unwrap(), 10 * MS, &burst);
        assert!(is_inside(&judged(100_000)) && is_inside(&judged(105_000)));
        assert!(!is_inside(&judged(106_000)) && !is_inside(&judged(94_000)));
        let taken = seen(Duration::ZERO, 100, MS, 10 * MS);
        let rate = "8mbit".parse().unwrap();
        assert!(is_too_busy(&judge_queue(100_000, rate, 10 * MS, &taken)));
    }
}
