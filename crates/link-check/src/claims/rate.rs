//! A constant rate: the bytes that arrive over the receiver's time.
//!
//! Full packets at more than the rate, over the rate and its queue alone.

use std::time::{Duration, Instant};

use lastbyte_link::{Direction, LinkError};
use lastbyte_units::{BitRate, Unit, grouped};

use super::Claim;
use crate::asked::Asked;
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::probe::{Arrival, Flow, Load, Observed, SMALL_PACKET, batch_for};

/// How far a rate may be off, as a share of it: more would be seen in the lab's results, which
/// differ by a few percent between runs.
pub(super) const RATE_TOLERANCE: f64 = 0.01;
/// What is offered to measure a rate, as a multiple of it: enough that a sender that is late now and
/// then leaves the link no gap.
pub(super) const OFFERED: f64 = 1.1;
/// How long full packets are sent to measure a rate; a low one takes longer, for enough packets.
const RATE_FOR: Duration = Duration::from_secs(2);
pub(super) const RATE_WITHIN: Duration = Duration::from_secs(5);
const RATE_PACKETS: u64 = 200;
/// With fewer a rate is not measured.
pub(super) const LEAST_RATE_PACKETS: u32 = 20;
/// The part of a rate's packets, at their beginning, that is not steady yet.
const UNSTEADY: f64 = 0.2;
/// The share of the time in which a sender may leave the link without work: a fifth of the rate's
/// tolerance.
const IDLE: f64 = 0.002;

pub(super) const CLAIM: Claim = Claim { phase: Phase::Rate, is_made: |_| true, measure };

/// The rate and its queue, which drops at its tail.
pub(crate) fn part(asked: &Direction) -> Direction {
    let queue = asked.queue.filter(|_| asked.rate.is_some());
    Direction { delay: asked.delay, rate: asked.rate, queue, ..Direction::default() }
}

/// Full packets at more than the rate; smaller ones where it is low, for enough of them. `None`
/// without a rate, or with one that carries too few.
fn flow(asked: &Asked) -> Option<Flow> {
    let rate = asked.rate?;
    let (ip_bytes, packets) = sized(asked, rate)?;
    let fits = asked.queue_packets(ip_bytes);
    let every = rate.time_to_send(ip_bytes.into()).div_f64(OFFERED);
    let load = Load {
        packets: packets.saturating_add(packets / 10),
        within: RATE_WITHIN,
        at_start: fits.div_ceil(2).min(packets / 4),
        burst: fits.div_ceil(4),
        batch: batch_for(every).min(fits.div_ceil(8)),
        ..Load::paced(ip_bytes, every)
    };
    Some(asked.flow(load, asked.longest_wait()))
}

/// The length of packets, and how many of them a rate carries in the time that is taken for it;
/// `None` if they are too few.
pub(super) fn sized(asked: &Asked, rate: BitRate) -> Option<(u32, u32)> {
    let in_time = rate.bytes_in(RATE_WITHIN) / RATE_PACKETS;
    let ip_bytes = u32::try_from(in_time).unwrap_or(u32::MAX).clamp(SMALL_PACKET, asked.full);
    let in_time = |time| rate.bytes_in(time) / u64::from(ip_bytes);
    let packets = in_time(RATE_FOR).max(RATE_PACKETS).min(in_time(RATE_WITHIN));
    let packets = u32::try_from(packets).ok().filter(|many| *many >= LEAST_RATE_PACKETS)?;
    Some((ip_bytes, packets))
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part);
    let loaded = check.load(Phase::Rate, &part, flow, Together::IfSlow)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let outcome = match (asked.rate, observed) {
            (None, _) if asked.trace.is_some() => continue,
            (None, _) => Outcome::NotChecked("no rate asked".to_owned()),
            (Some(rate), None) => Outcome::NotMeasured(format!(
                "{rate} carries fewer than {LEAST_RATE_PACKETS} packets in {} s",
                RATE_WITHIN.as_secs()
            )),
            (Some(rate), Some((flow, seen))) => {
                seen.unless_overflowed(judge(rate, asked.queue, flow.load.ip_bytes, seen))
            }
        };
        attempt.add_over(&part, asked.way, (Subject::Rate, outcome));
    }
    Ok(attempt)
}

/// A rate from the bytes that arrived, over the receiver's time.
fn judge(asked: BitRate, queue: Option<u64>, ip_bytes: u32, seen: &Observed) -> Outcome {
    let Some((got, bytes, time)) = steady_rate(&seen.arrivals) else {
        let arrived = seen.arrivals.len();
        return Outcome::NotMeasured(format!("only {arrived} packets came"));
    };
    let idle = idle_share(asked, queue.unwrap_or(u64::MAX), ip_bytes, &seen.sent);
    let paused = paused(asked, queue, seen, time);
    if let Some(busy) = too_idle(idle).or(paused) {
        return busy;
    }
    let basis = format!(
        "{} bytes in {time:.2} s, offered {OFFERED} times as many; allowed {} %",
        grouped(bytes),
        RATE_TOLERANCE * 100.0
    );
    let asked = asked.bits_per_s() as f64;
    Outcome::within(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE, basis)
}

/// Bit/s, bytes and seconds of the steady part: of all packets after its first one, until the last.
fn steady_rate(arrivals: &[Arrival]) -> Option<(f64, u64, f64)> {
    if arrivals.len() < LEAST_RATE_PACKETS as usize / 2 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let skipped = (arrivals.len() as f64 * UNSTEADY) as usize;
    bytes_over_time(&arrivals[skipped..])
}

/// Bit/s, bytes and seconds of all packets after the first one, until the last.
pub(super) fn bytes_over_time(arrivals: &[Arrival]) -> Option<(f64, u64, f64)> {
    let (first, rest) = arrivals.split_first()?;
    let time = rest.last()?.at.saturating_duration_since(first.at).as_secs_f64();
    let bytes: u64 = rest.iter().map(|arrival| u64::from(arrival.ip_bytes)).sum();
    (time > 0.0).then(|| (bytes as f64 * 8.0 / time, bytes, time))
}

/// [`Outcome::TooBusy`] where nothing arrived for longer than the queue lasts: the link did not run,
/// and what it would have sent is gone. Half of the tolerance is let pass.
fn paused(rate: BitRate, queue: Option<u64>, seen: &Observed, time: f64) -> Option<Outcome> {
    let gaps = seen.arrivals.windows(2).map(|two| {
        let gap = two[1].at.saturating_duration_since(two[0].at);
        gap.saturating_sub(rate.time_to_send(two[1].ip_bytes.into()))
    });
    let pause = gaps.max()?;
    let lost =
        pause > rate.time_to_send(queue?) && pause.as_secs_f64() > time * RATE_TOLERANCE / 2.0;
    let ms = pause.as_secs_f64() * 1e3;
    lost.then(|| {
        Outcome::TooBusy(format!("nothing came for {ms:.1} ms, longer than the queue lasts"))
    })
}

/// [`Outcome::TooBusy`] where the sender left the link idle for too long a share of the time.
pub(super) fn too_idle(share: f64) -> Option<Outcome> {
    let percent = share * 100.0;
    let why = || format!("the sender left the link without work for {percent:.1} % of the time");
    (share > IDLE).then(|| Outcome::TooBusy(why()))
}

/// The share of the steady part of the time of sending in which a link as asked, to the letter, has
/// nothing to transmit.
pub(super) fn idle_share(rate: BitRate, queue: u64, ip_bytes: u32, sent: &[Instant]) -> f64 {
    let (Some(first), Some(last)) = (sent.first(), sent.last()) else { return 1.0 };
    let seconds = |at: &Instant| at.saturating_duration_since(*first).as_secs_f64();
    let steady_from = seconds(last) * UNSTEADY;
    let (bytes, queue) = (f64::from(ip_bytes), queue as f64);
    let (mut free, mut idle) = (0.0_f64, 0.0);
    for now in sent.iter().map(seconds) {
        if now > free {
            idle += (now - free.max(steady_from)).max(0.0);
            free = now;
        }
        if (free - now) * rate.bytes_per_s() + bytes <= queue {
            free += bytes / rate.bytes_per_s();
        }
    }
    let time = seconds(last) - steady_from;
    if time > 0.0 { idle / time } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::tests::asked;
    use crate::finding::tests::{is_inside, is_not_measured, is_too_busy};
    use crate::probe::tests::{MS, seen};

    fn rate_of(text: &str) -> BitRate {
        text.parse().unwrap()
    }

    #[test]
    fn slow_links_are_measured_with_small_packets_or_not_at_all() {
        let flow = |rate: &str| flow(&asked(&format!("rate = '{rate}'")));
        let load = flow("95mbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (1500, 15_833 + 1_583));
        let load = flow("1mbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets, load.batch), (1500, 220, 1));
        let load = flow("64kbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (200, 220));
        assert!(flow("1kbit").is_none());
    }

    #[test]
    fn fast_senders_write_many_packets_at_once() {
        let load = flow(&asked("rtt = '80ms'\nrate = '1gbit'")).unwrap().load;
        assert_eq!(load.batch, 18);
        let short = flow(&asked("rate = '1gbit'\nqueue = '30kB'")).unwrap().load;
        assert_eq!(short.batch, 3, "no more than a short queue takes");
    }

    #[test]
    fn a_rate_is_the_receivers_and_needs_a_sender_that_is_ahead() {
        // 8 Mbit/s: 1000 bytes in a millisecond.
        let full = seen(MS * 9 / 10, 500, MS, 10 * MS);
        let judged = |rate: &str, seen: &Observed| judge(rate_of(rate), None, 1000, seen);
        assert!(is_inside(&judged("8mbit", &full)));
        assert!(is_inside(&judged("8.07mbit", &full)) && is_inside(&judged("7.93mbit", &full)));
        assert!(!is_inside(&judged("8.1mbit", &full)) && !is_inside(&judged("7.9mbit", &full)));
        let starved = seen(MS * 2, 500, MS * 2, 10 * MS);
        assert!(is_too_busy(&judged("8mbit", &starved)));
        assert!(is_not_measured(&judged("8mbit", &Observed::default())));
    }

    #[test]
    fn a_link_that_stood_still_is_not_judged_by_its_rate() {
        let paused = |ms: u32| {
            let mut seen = seen(MS * 9 / 10, 1000, MS, 10 * MS);
            seen.arrivals.iter_mut().skip(500).for_each(|one| one.at += MS * ms);
            judge(rate_of("8mbit"), Some(3000), 1000, &seen)
        };
        assert!(is_inside(&paused(3)), "as long as the queue lasts");
        assert!(is_inside(&paused(4)), "half of the tolerance");
        assert!(is_too_busy(&paused(5)));
    }

    #[test]
    fn idle_time_is_what_a_true_link_has() {
        let start = Instant::now();
        let idle = |sent: &[u32], queue| {
            let sent: Vec<_> = sent.iter().map(|ms| start + MS * *ms).collect();
            idle_share(rate_of("8mbit"), queue, 1000, &sent)
        };
        assert_eq!(idle(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], u64::MAX), 0.0);
        // At 10 ms: 2 of work until 2, idle from 2 to 10, which is all of the steady part.
        assert!((idle(&[0, 0, 10], u64::MAX) - 1.0).abs() < 1e-9);
        // Of ten at once a short queue takes two: the others are no work.
        assert!(idle(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10], 2000) > 0.99);
        assert_eq!(idle(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10], u64::MAX), 0.0);
    }
}
