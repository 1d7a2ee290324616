//! How long a full queue is, in time and in bytes.
//!
//! A burst that does not fit, over the rate and its queue alone, one direction after the other.

use std::time::Duration;

use lastbyte_link::LinkError;
use lastbyte_units::{BitRate, Unit, grouped};

use super::Claim;
use super::codel::CODEL_OFFERED;
use super::delay::DELAY_TOLERANCE;
use super::rate::{idle_share, part, too_idle};
use crate::asked::{Asked, QUEUE_WITHIN};
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::probe::{AT_START_EVERY, Arrival, Flow, Load, Observed, batch_for};
use crate::statistics::median;

/// How far a full queue may be off, as a share of it; but one packet, which may just not have fitted,
/// and the tolerance of a delay at the link's rate are always allowed.
pub(super) const QUEUE_TOLERANCE: f64 = 0.02;
/// What is offered to fill a queue, as a multiple of the rate, as far as the sender gets: as a burst
/// arrives from a faster line. Packets sent faster than the link's thread can read would wait before it.
const QUEUE_OFFERED: f64 = 8.0;
/// How many packets a late sender may send at once.
const QUEUE_BURST: u32 = 64;
/// Sent beyond what the queue takes, in packets, and what leaves it while the link is late to read.
const QUEUE_EXCESS: u64 = 20;
const QUEUE_LATE: Duration = Duration::from_millis(50);

pub(super) const CLAIM: Claim = Claim { phase: Phase::Queue, is_made: |_| true, measure };

/// A burst that the queue does not take. `None` without one, or with one that is too long to wait for.
pub(super) fn flow(asked: &Asked) -> Option<Flow> {
    let (rate, queue) = asked.mean_rate.zip(asked.queue)?;
    if asked.queue_time() > QUEUE_WITHIN {
        return None;
    }
    let excess = QUEUE_EXCESS * u64::from(asked.full) + rate.bytes_in(QUEUE_LATE);
    let time = rate.time_to_send(asked.full.into());
    // Not so fast that the link cannot read it, but faster than the rate.
    let every = time.div_f64(QUEUE_OFFERED).max(AT_START_EVERY.min(time.div_f64(CODEL_OFFERED)));
    let load = Load {
        packets: u32::MAX,
        within: QUEUE_WITHIN / 2,
        burst: QUEUE_BURST,
        batch: batch_for(every).min(asked.queue_packets(asked.full).div_ceil(16)),
        overfill: Some((rate, queue.saturating_add(excess))),
        ..Load::paced(asked.full, every)
    };
    Some(asked.flow(load, asked.longest_wait()))
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part);
    let flow = |asked: &Asked| asked.rate.and_then(|_| flow(asked));
    let loaded = check.load(Phase::Queue, &part, flow, Together::Never)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let outcomes = match (asked.rate.zip(asked.queue), observed) {
            (None, _) if asked.trace.is_some() => continue,
            (None, _) => [(); 2].map(|()| Outcome::NotChecked("no queue asked".to_owned())),
            (Some((rate, queue)), None) => {
                let time = rate.time_to_send(queue).as_secs_f64();
                let limit = QUEUE_WITHIN.as_secs();
                let why = format!("it takes {time:.0} s to run empty, more than {limit} s");
                [(); 2].map(|()| Outcome::NotMeasured(why.clone()))
            }
            (Some((rate, queue)), Some((_, seen))) => {
                judge(rate, queue, asked.delay, seen).map(|outcome| seen.unless_overflowed(outcome))
            }
        };
        let subjects = [Subject::QueueTime, Subject::QueueBytes];
        for finding in subjects.into_iter().zip(outcomes) {
            attempt.add_over(&part, asked.way, finding);
        }
    }
    Ok(attempt)
}

/// How long a full queue is, in time and in bytes, from a burst that it did not take whole.
fn judge(rate: BitRate, queue: u64, base: Duration, seen: &Observed) -> [Outcome; 2] {
    let missing = seen.missing();
    let last = seen.arrivals.iter().max_by_key(|arrival| arrival.number);
    let ends = last.zip(seen.sent.first()).zip(missing.first());
    let Some(((last, first), full_at)) = ends else {
        return [(); 2].map(|()| never_filled(seen));
    };
    let asked = queue as f64 / rate.bytes_per_s();
    let packet = f64::from(last.ip_bytes) / rate.bytes_per_s();
    let tolerance = (asked * QUEUE_TOLERANCE).max(packet + DELAY_TOLERANCE.as_secs_f64());
    let taken: u64 = seen.arrivals.iter().map(|arrival| u64::from(arrival.ip_bytes)).sum();
    let sending = (seen.sent[last.number as usize] - *first).as_secs_f64();
    // While it is full, one packet is taken when one has left: each of these waited as long. Where
    // there is none, the last one that was taken.
    let while_full =
        |arrival: &&Arrival| arrival.number > *full_at || arrival.number == last.number;
    let waits: Vec<f64> =
        seen.arrivals.iter().filter(while_full).filter_map(|one| seen.delay(one)).collect();
    let refused = missing.len();
    let basis = format!(
        "median of {} of {} packets taken, {refused} refused; allowed {:.2} ms",
        waits.len(),
        seen.arrivals.len(),
        tolerance * 1e3
    );
    let wait = median(waits) - base.as_secs_f64();
    let time = Outcome::within(Unit::Seconds, asked, wait, tolerance, basis);
    let idle = idle_share(rate, queue, last.ip_bytes, &seen.sent);
    if let Some(busy) = too_idle(idle) {
        return [time, busy];
    }
    // What was transmitted meanwhile is in the queue no more.
    let held = taken as f64 - sending * rate.bytes_per_s();
    let basis = format!("{} bytes taken in {:.2} ms", grouped(taken), sending * 1e3);
    let tolerance = tolerance * rate.bytes_per_s();
    [time, Outcome::within(Unit::Bytes, queue as f64, held, tolerance, basis)]
}

/// Why a queue that took all was not measured.
pub(super) fn never_filled(seen: &Observed) -> Outcome {
    let time = seen.sent.first().zip(seen.sent.last()).map(|(first, last)| *last - *first);
    Outcome::TooBusy(format!(
        "the queue never filled: {} packets in {:.2} s were all taken",
        grouped(seen.sent.len() as u64),
        time.unwrap_or_default().as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::tests::asked;
    use crate::finding::tests::{is_inside, is_too_busy};
    use crate::probe::tests::{MS, seen};

    #[test]
    fn a_queue_too_long_to_wait_for_gets_no_burst() {
        assert!(flow(&asked("rate = '1mbit'\nqueue = '600kB'")).is_some());
        assert!(flow(&asked("rate = '1mbit'\nqueue = '650kB'")).is_none());
        assert!(flow(&asked("rtt = '1ms'")).is_none());
    }

    #[test]
    fn a_full_queue_is_what_its_last_packet_waited() {
        // Thirty at once into a queue of twenty.
        let mut burst = seen(Duration::ZERO, 30, MS, 10 * MS);
        burst.arrivals.truncate(20);
        let judged = |queue| judge("8mbit".parse().unwrap(), queue, 10 * MS, &burst);
        assert!(judged(20_000).iter().all(is_inside));
        assert!(judged(21_000).iter().all(is_inside), "a packet may just not have fitted");
        assert!(judged(22_000).iter().all(|outcome| !is_inside(outcome)));
        assert!(judged(18_000).iter().all(|outcome| !is_inside(outcome)));
        let all_taken = seen(Duration::ZERO, 20, MS, 10 * MS);
        let unfilled = judge("8mbit".parse().unwrap(), 20_000, 10 * MS, &all_taken);
        assert!(unfilled.iter().all(is_too_busy));
    }
}
