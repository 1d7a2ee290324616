//! A constant rate, and the queue in front of it.

use std::time::{Duration, Instant};

use lastbyte_units::{BitRate, Unit, grouped};

use super::super::probe::{Arrival, Seen};
use super::super::{
    DELAY_TOLERANCE, LEAST_RATE_PACKETS, OFFERED, Outcome, QUEUE_TOLERANCE, RATE_TOLERANCE,
};
use super::measured;

/// The part of a rate's packets, at their beginning, that is not steady yet.
const UNSTEADY: f64 = 0.2;
/// The share of the time in which a sender may leave the link without work: a fifth of the rate's
/// tolerance.
const IDLE: f64 = 0.002;

/// A rate from the bytes that arrived, over the receiver's time.
pub(in super::super) fn rate(
    asked: BitRate,
    queue: Option<u64>,
    ip_bytes: u32,
    seen: &Seen,
) -> Outcome {
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
    measured(Unit::BitsPerS, asked, got, asked * RATE_TOLERANCE, basis)
}

/// Bit/s, bytes and seconds of the steady part: all that came after its first packet, until the last.
fn steady_rate(arrivals: &[Arrival]) -> Option<(f64, u64, f64)> {
    if arrivals.len() < LEAST_RATE_PACKETS as usize / 2 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let skipped = (arrivals.len() as f64 * UNSTEADY) as usize;
    bytes_over_time(&arrivals[skipped..])
}

/// Bit/s, bytes and seconds of all that came after the first packet, until the last.
pub(super) fn bytes_over_time(arrivals: &[Arrival]) -> Option<(f64, u64, f64)> {
    let (first, rest) = arrivals.split_first()?;
    let time = rest.last()?.at.saturating_duration_since(first.at).as_secs_f64();
    let bytes: u64 = rest.iter().map(|arrival| u64::from(arrival.ip_bytes)).sum();
    (time > 0.0).then(|| (bytes as f64 * 8.0 / time, bytes, time))
}

/// Why a rate cannot be told where nothing came for longer than the queue lasts: the link did not run,
/// and what it would have sent is gone. Half of the tolerance is let pass.
fn paused(rate: BitRate, queue: Option<u64>, seen: &Seen, time: f64) -> Option<Outcome> {
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

fn too_idle(share: f64) -> Option<Outcome> {
    let percent = share * 100.0;
    let why = || format!("the sender left the link without work for {percent:.1} % of the time");
    (share > IDLE).then(|| Outcome::TooBusy(why()))
}

/// The share of the steady part of the time of sending in which a link as asked, to the letter, has
/// nothing to transmit.
fn idle_share(rate: BitRate, queue: u64, ip_bytes: u32, sent: &[Instant]) -> f64 {
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

/// Why a queue that took all was not measured.
pub(super) fn never_filled(seen: &Seen) -> Outcome {
    let time = seen.sent.first().zip(seen.sent.last()).map(|(first, last)| *last - *first);
    Outcome::TooBusy(format!(
        "the queue never filled: {} packets in {:.2} s were all taken",
        grouped(seen.sent.len() as u64),
        time.unwrap_or_default().as_secs_f64()
    ))
}

/// How long a full queue is, in time and in bytes, from a burst that it did not take whole.
pub(in super::super) fn queue(
    rate: BitRate,
    queue: u64,
    base: Duration,
    seen: &Seen,
) -> [Outcome; 2] {
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
    let wait = super::median(waits) - base.as_secs_f64();
    let time = measured(Unit::Seconds, asked, wait, tolerance, basis);
    let idle = idle_share(rate, queue, last.ip_bytes, &seen.sent);
    if let Some(busy) = too_idle(idle) {
        return [time, busy];
    }
    // What was transmitted meanwhile is in the queue no more.
    let held = taken as f64 - sending * rate.bytes_per_s();
    let basis = format!("{} bytes taken in {:.2} ms", grouped(taken), sending * 1e3);
    let tolerance = tolerance * rate.bytes_per_s();
    [time, measured(Unit::Bytes, queue as f64, held, tolerance, basis)]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, is_inside, is_not_measured, is_too_busy, seen};
    use super::*;

    fn rate_of(text: &str) -> BitRate {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_is_the_receivers_and_needs_a_sender_that_is_ahead() {
        // 8 Mbit/s: 1000 bytes in a millisecond.
        let full = seen(MS * 9 / 10, 500, MS, 10 * MS);
        let judged = |rate: &str, seen: &Seen| super::rate(rate_of(rate), None, 1000, seen);
        assert!(is_inside(&judged("8mbit", &full)));
        assert!(is_inside(&judged("8.07mbit", &full)) && is_inside(&judged("7.93mbit", &full)));
        assert!(!is_inside(&judged("8.1mbit", &full)) && !is_inside(&judged("7.9mbit", &full)));
        let starved = seen(MS * 2, 500, MS * 2, 10 * MS);
        assert!(is_too_busy(&judged("8mbit", &starved)));
        assert!(is_not_measured(&judged("8mbit", &Seen::default())));
    }

    #[test]
    fn a_link_that_stood_still_is_not_judged_by_its_rate() {
        let paused = |ms: u32| {
            let mut seen = seen(MS * 9 / 10, 1000, MS, 10 * MS);
            seen.arrivals.iter_mut().skip(500).for_each(|one| one.at += MS * ms);
            rate(rate_of("8mbit"), Some(3000), 1000, &seen)
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

    #[test]
    fn a_full_queue_is_what_its_last_packet_waited() {
        // Thirty at once into a queue of twenty.
        let mut burst = seen(Duration::ZERO, 30, MS, 10 * MS);
        burst.arrivals.truncate(20);
        let judged = |queue| super::queue(rate_of("8mbit"), queue, 10 * MS, &burst);
        assert!(judged(20_000).iter().all(is_inside));
        assert!(judged(21_000).iter().all(is_inside), "a packet may just not have fitted");
        assert!(judged(22_000).iter().all(|outcome| !is_inside(outcome)));
        assert!(judged(18_000).iter().all(|outcome| !is_inside(outcome)));
        let all_taken = seen(Duration::ZERO, 20, MS, 10 * MS);
        let unfilled = queue(rate_of("8mbit"), 20_000, 10 * MS, &all_taken);
        assert!(unfilled.iter().all(is_too_busy));
    }
}
