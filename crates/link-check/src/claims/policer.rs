//! A policer: how much it lets pass at once, and in the long run.
//!
//! A burst that does not pass whole and a load behind it, over the policer alone.

use lastbyte_link::{Direction, LinkError, PROMISED_LATENESS, Policer};
use lastbyte_units::{Unit, grouped};

use super::Claim;
use super::codel::CODEL_OFFERED;
use super::rate::{LEAST_RATE_PACKETS, RATE_TOLERANCE, RATE_WITHIN, bytes_over_time, sized};
use crate::asked::Asked;
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::probe::{Arrival, Flow, Load, Observed, batch_for};

/// What is sent to a policer at once, as a multiple of its burst.
const POLICER_BURST: u64 = 2;

pub(super) const CLAIM: Claim =
    Claim { phase: Phase::Policer, is_made: |asked| asked.policer.is_some(), measure };

/// The policer alone.
pub(crate) fn part(asked: &Direction) -> Direction {
    Direction { delay: asked.delay, policer: asked.policer, ..Direction::default() }
}

/// A burst that a policer does not let pass whole, then more than its rate. `None` without one, or
/// with a rate that lets too few pass.
fn flow(asked: &Asked) -> Option<Flow> {
    let Policer { rate, burst } = asked.policer?;
    let (ip_bytes, packets) = sized(asked, rate)?;
    let at_start = burst.bytes().div_ceil(ip_bytes.into()).saturating_mul(POLICER_BURST);
    let every = rate.time_to_send(ip_bytes.into()).div_f64(CODEL_OFFERED);
    let load = Load {
        packets: u32::try_from(at_start).ok()?.saturating_add(packets + packets / 4),
        within: RATE_WITHIN * 2,
        at_start: u32::try_from(at_start).ok()?,
        burst: 8,
        batch: batch_for(every),
        ..Load::paced(ip_bytes, every)
    };
    Some(asked.flow(load, asked.idle_wait()))
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part);
    let loaded = check.load(Phase::Policer, &part, flow, Together::IfSlow)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let Some(policer) = asked.policer else { continue };
        let Some((flow, seen)) = observed else {
            let why = format!("{} lets too few packets pass", policer.rate);
            attempt.add(Subject::PolicerRate, Some(asked.way), Outcome::NotMeasured(why));
            continue;
        };
        for (subject, outcome) in judge(policer, flow.load.at_start, seen) {
            let outcome = seen.unless_overflowed(outcome);
            attempt.add_over(&part, asked.way, (subject, outcome));
        }
    }
    Ok(attempt)
}

/// How much a policer lets pass at once, and in the long run, from a burst of `at_once` packets and a
/// load behind it.
fn judge(asked: Policer, at_once: u32, seen: &Observed) -> [(Subject, Outcome); 2] {
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
    let held = Outcome::within(Unit::Bytes, asked.burst.bytes() as f64, held, tolerance, basis);
    let long_run = match bytes_over_time(&later) {
        Some((got, bytes, time)) if later.len() >= LEAST_RATE_PACKETS as usize => {
            let basis = format!("{} bytes in {time:.2} s, after the burst", grouped(bytes));
            let asked = asked.rate.bits_per_s() as f64;
            Outcome::within(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE, basis)
        }
        _ => Outcome::NotMeasured(format!("only {} packets came after the burst", later.len())),
    };
    [(burst, held), (rate, long_run)]
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::finding::tests::{insides, is_too_busy};
    use crate::probe::tests::{MS, arrival, seen};

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
        let policed =
            Observed { sent: (0..1000).map(at).collect(), arrivals, ..Observed::default() };
        let judged =
            |rate: &str, burst: &str| insides(&judge(policer_of(rate, burst), 60, &policed));
        assert_eq!(judged("8mbit", "20kB"), [true, true]);
        assert_eq!(judged("8mbit", "22kB"), [true, true]);
        assert_eq!(judged("8mbit", "24kB"), [false, true]);
        assert_eq!(judged("8.2mbit", "20kB"), [true, false]);
        let none = judge(policer_of("8mbit", "20kB"), 60, &seen(MS, 1000, MS, MS));
        assert!(is_too_busy(&none[0].1));
    }
}
