//! What else holds packets up or drops them: recorded rates, CoDel, policers.

use std::time::{Duration, Instant};

use lastbyte_units::{BitRate, Unit, grouped};

use lastbyte_link::model::nanos;
use lastbyte_link::{Policer, Trace};

use super::super::probe::{Arrival, Seen};
use super::super::{
    CODEL_OFFERED, LEAST_RATE_PACKETS, Outcome, PROMISED_LATENESS, QUEUE_TOLERANCE, RATE_TOLERANCE,
    START_UNSURE, STRIKES_TOLERANCE, Subject,
};
use super::rate::{bytes_over_time, never_filled};
use super::{at_most, measured, median};

/// The part of the packets, at their beginning, before which all had not been sent yet: one of so many.
const UNSTEADY: usize = 10;
/// Where a trace may begin, in opportunities around the likeliest, at most.
const MOST_PLACES: u64 = 2_000;

/// The rate of a trace, and how far packets left from its opportunities. All were sent at once, each as
/// long as an opportunity at most and more than half of it, so that each takes one. `began` is when
/// the link did, as far as is known.
pub(in super::super) fn recorded(
    trace: &Trace,
    base: Duration,
    began: Instant,
    seen: &Seen,
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
    let opportunities = at_most(Unit::Seconds, limit, best.farthest, basis);
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
        Self { place, off, farthest: super::statistics::at_share(&distances, 0.99) }
    }
}

/// Bytes over the receiver's time, against what the trace carries in it: whole rounds where so many came.
fn trace_rate(trace: &Trace, place: u64, seen: &Seen) -> Outcome {
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
    measured(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE.max(ends), basis)
}

/// The bytes that a queue in front of a recorded rate held when it took the last packet of a burst.
pub(in super::super) fn recorded_queue(
    asked: u64,
    mean: BitRate,
    base: Duration,
    seen: &Seen,
) -> Outcome {
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
    measured(Unit::Bytes, asked as f64, held as f64, tolerance, basis)
}

/// Packets that CoDel dropped or marked, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Struck(pub(in super::super) Vec<u32>);

impl Struck {
    /// Those that never came, and those that came with a mark.
    pub(in super::super) fn of(seen: &Seen) -> Self {
        let marked = seen.arrivals.iter().filter(|one| one.marked).map(|one| one.number);
        let mut numbers: Vec<u32> = seen.missing().into_iter().chain(marked).collect();
        numbers.sort_unstable();
        Self(numbers)
    }

    /// When the first one was sent, in seconds after the first packet of all.
    fn first(&self, seen: &Seen) -> Option<f64> {
        let (first, sent) = (seen.sent.first()?, seen.sent.get(*self.0.first()? as usize)?);
        Some((*sent - *first).as_secs_f64())
    }
}

/// When the first packet was struck, and how many were, against what the law says for packets that come
/// when these were sent. With `ecn` all were to be marked and none to be dropped.
pub(in super::super) fn struck(
    subjects: [Subject; 2],
    expected: &Struck,
    rate: BitRate,
    ecn: bool,
    seen: &Seen,
) -> Vec<(Subject, Outcome)> {
    let got = Struck::of(seen);
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
            measured(Unit::Seconds, asked, first, tolerance, basis)
        }
    };
    let (asked, many) = (expected.0.len() as f64, got.0.len() as f64);
    let basis = format!("{word} of {} packets, as the law has it", grouped(seen.sent.len() as u64));
    let count = measured(Unit::Packets, asked, many, (asked * STRIKES_TOLERANCE).max(2.0), basis);
    let mut list = vec![(subjects[0], first), (subjects[1], count)];
    if ecn {
        let basis = "where packets may be marked".to_owned();
        let dropped = measured(Unit::Packets, 0.0, seen.lost() as f64, 0.0, basis);
        list.push((Subject::DroppedUnmarked, dropped));
    }
    list
}

/// How much a policer lets pass at once, and in the long run, from a burst of `at_once` packets and a
/// load behind it.
pub(in super::super) fn policer(
    asked: Policer,
    at_once: u32,
    seen: &Seen,
) -> [(Subject, Outcome); 2] {
    let (burst, rate) = (Subject::PolicerBurst, Subject::PolicerRate);
    let (in_burst, later): (Vec<Arrival>, Vec<Arrival>) =
        seen.arrivals.iter().copied().partition(|one| one.number < at_once);
    let last = in_burst.iter().map(|one| one.number).max();
    let Some(last) = last.filter(|_| in_burst.len() < at_once as usize) else {
        let why = Outcome::TooBusy("the policer let all of a burst pass".to_owned());
        return [(burst, why.clone()), (rate, why)];
    };
    let per_s = asked.rate.bytes_per_s();
    let took = (seen.sent[last as usize] - seen.sent[0]).as_secs_f64();
    let passed: u64 = in_burst.iter().map(|one| u64::from(one.ip_bytes)).sum();
    let packet = in_burst.first().map_or(0, |one| one.ip_bytes);
    // What was filled up meanwhile is not the burst's.
    let held = passed as f64 - took * per_s;
    let tolerance = f64::from(packet) + per_s * PROMISED_LATENESS.as_secs_f64();
    let (many, ms) = (in_burst.len(), took * 1e3);
    let basis = format!("{many} of {at_once} packets passed in {ms:.2} ms, less the refill");
    let held = measured(Unit::Bytes, asked.burst.bytes() as f64, held, tolerance, basis);
    let long_run = match bytes_over_time(&later) {
        Some((got, bytes, time)) if later.len() >= LEAST_RATE_PACKETS as usize => {
            let basis = format!("{} bytes in {time:.2} s, after the burst", grouped(bytes));
            let asked = asked.rate.bits_per_s() as f64;
            measured(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE, basis)
        }
        _ => Outcome::NotMeasured(format!("only {} packets came after the burst", later.len())),
    };
    [(burst, held), (rate, long_run)]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, arrival, is_inside, is_not_measured, is_too_busy, seen};
    use super::*;

    const SUBJECTS: [Subject; 2] = [Subject::FirstStrike, Subject::Strikes];

    fn insides(list: &[(Subject, Outcome)]) -> Vec<bool> {
        list.iter().map(|(_, outcome)| is_inside(outcome)).collect()
    }

    /// Packets that leave at a trace's opportunities from one on, so much later than it says.
    fn replayed(trace: &Trace, from: u64, many: u32, late: impl Fn(u32) -> Duration) -> Seen {
        let began = Instant::now();
        let at = |number: u32| {
            let time = Duration::from_nanos(trace.time(from + u64::from(number)));
            began + 10 * MS + time + late(number)
        };
        let arrivals = (0..many).map(|number| arrival(number, at(number))).collect();
        Seen { sent: vec![began; many as usize], arrivals, ..Seen::default() }
    }

    #[test]
    fn a_recorded_rate_is_followed_from_packet_to_packet() {
        let trace = Trace::parse("1\n1\n4\n9\n10\n10\n10\n17\n30\n").unwrap();
        let judged = |other: &Trace, late: &dyn Fn(u32) -> Duration| {
            let seen = replayed(other, 5, 200, late);
            recorded(&trace, 10 * MS, seen.sent[0], &seen)
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
        assert!(is_not_measured(&recorded(&trace, 10 * MS, few.sent[0], &few)[0].1));
    }

    #[test]
    fn a_queue_before_a_recorded_rate_is_what_had_not_left() {
        let mut burst = seen(Duration::ZERO, 130, MS, 10 * MS);
        burst.arrivals.truncate(100);
        let judged = |queue| recorded_queue(queue, "8mbit".parse().unwrap(), 10 * MS, &burst);
        assert!(is_inside(&judged(100_000)) && is_inside(&judged(105_000)));
        assert!(!is_inside(&judged(106_000)) && !is_inside(&judged(94_000)));
        let taken = seen(Duration::ZERO, 100, MS, 10 * MS);
        let rate = "8mbit".parse().unwrap();
        assert!(is_too_busy(&recorded_queue(100_000, rate, 10 * MS, &taken)));
    }

    #[test]
    fn codel_strikes_when_its_law_says_and_as_often() {
        let mut sent = seen(MS, 1000, MS, 10 * MS);
        let lost = |first: u32, many: u32| -> Vec<u32> { (first..first + many).collect() };
        let judged = |seen: &Seen, expected: &[u32]| {
            let expected = Struck(expected.to_vec());
            struck(SUBJECTS, &expected, "8mbit".parse().unwrap(), false, seen)
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
        let expected = Struck((300..320).collect());
        for number in 300..320 {
            marked.arrivals[number].marked = true;
        }
        let rate = "8mbit".parse().unwrap();
        let judged = |seen: &Seen| insides(&struck(SUBJECTS, &expected, rate, true, seen));
        assert_eq!(judged(&marked), [true, true, true]);
        marked.arrivals.remove(310);
        assert_eq!(judged(&marked), [true, true, false]);
    }

    #[test]
    fn a_policer_has_a_burst_and_a_rate() {
        let policer_of = |rate: &str, burst: &str| Policer {
            rate: rate.parse().unwrap(),
            burst: burst.parse().unwrap(),
        };
        // Sent 60 at once in 6 ms, 26 of which pass: 20 kB, and 6 ms of 8 Mbit/s. Then one of two.
        let start = Instant::now();
        let at = |number: u32| match number {
            0..60 => start + MS * number / 10,
            _ => start + MS * 6 + MS / 2 * (number - 60),
        };
        let passes = |number: &u32| {
            *number < 20
                || (*number < 60 && number % 6 == 5)
                || *number > 59 && number.is_multiple_of(2)
        };
        let arrivals: Vec<_> =
            (0..1000).filter(passes).map(|n| arrival(n, at(n) + MS * 10)).collect();
        let policed = Seen { sent: (0..1000).map(at).collect(), arrivals, ..Seen::default() };
        let judged =
            |rate: &str, burst: &str| insides(&policer(policer_of(rate, burst), 60, &policed));
        assert_eq!(judged("8mbit", "20kB"), [true, true]);
        assert_eq!(judged("8mbit", "22kB"), [true, true]);
        assert_eq!(judged("8mbit", "24kB"), [false, true]);
        assert_eq!(judged("8.2mbit", "20kB"), [true, false]);
        let none = policer(policer_of("8mbit", "20kB"), 60, &seen(MS, 1000, MS, MS));
        assert!(is_too_busy(&none[0].1));
    }
}
