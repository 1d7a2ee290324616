//! What was asked against what was seen: arithmetic alone.

use std::time::{Duration, Instant};

use lastbyte_units::{BitRate, grouped};

use crate::interval::{Z_99, wilson};

use super::probe::{Arrival, Seen};
use super::{
    Certificate, DELAY_TOLERANCE, Ends, Finding, LEAST_PROBES, LEAST_RATE_PACKETS, Measured,
    OFFERED, Outcome, PROMISED_LATENESS, QUEUE_TOLERANCE, RATE_TOLERANCE, Subject, Unit, Way,
};

/// The part of a rate's packets, at their beginning, that is not steady yet.
const UNSTEADY: f64 = 0.2;
/// The share of the time in which a sender may leave the link without work: a fifth of the rate's
/// tolerance.
const IDLE: f64 = 0.002;

/// A delay from the time that each probe took, in seconds, without the probe's own lateness.
pub(super) fn delay(asked: Duration, mut took: Vec<f64>, late: f64) -> Outcome {
    if took.len() < LEAST_PROBES {
        let (got, least) = (took.len(), LEAST_PROBES);
        return Outcome::NotMeasured(format!("only {got} packets came, fewer than {least}"));
    }
    took.sort_by(f64::total_cmp);
    let (median, p99) = (at_share(&took, 0.5), at_share(&took, 0.99));
    let (late, many, p99) = (late * 1e3, took.len(), p99 * 1e3);
    let basis = format!("median of {many}, p99 {p99:.2} ms; probe's own {late:.2} ms taken off");
    measured(Unit::Seconds, asked.as_secs_f64(), median, DELAY_TOLERANCE.as_secs_f64(), basis)
}

/// The middle of a list; 0 of an empty one.
pub(super) fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    if list.is_empty() { 0.0 } else { at_share(&list, 0.5) }
}

/// The value below which a share of a sorted, non-empty list lies.
fn at_share(sorted: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list, or 1 more")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let index = (sorted.len() as f64 * share) as usize;
    sorted[index.min(sorted.len() - 1)]
}

/// A figure that may be off by a tolerance.
fn measured(unit: Unit, asked: f64, got: f64, tolerance: f64, basis: String) -> Outcome {
    let (low, high) = (got - tolerance, got + tolerance);
    Outcome::Measured(Measured { unit, asked, got, low, high, basis })
}

/// Why a loss cannot be told where the queue dropped packets.
pub(super) fn dropped(packets: u64) -> Option<String> {
    (packets > 0).then(|| format!("{} packets were dropped at the queue", grouped(packets)))
}

/// A share from packets lost of those sent.
pub(super) fn loss(asked: f64, lost: u64, sent: u64) -> Outcome {
    if sent == 0 {
        return Outcome::NotMeasured("no packet was sent".to_owned());
    }
    let got = lost as f64 / sent as f64;
    let basis = format!("{} of {} packets", grouped(lost), grouped(sent));
    let (low, high) = if asked > 0.0 { wilson(lost, sent, Z_99) } else { (got, got) };
    Outcome::Measured(Measured { unit: Unit::Share, asked, got, low, high, basis })
}

/// A rate from the bytes that arrived, over the receiver's time.
pub(super) fn rate(asked: BitRate, queue: Option<u64>, ip_bytes: u32, seen: &Seen) -> Outcome {
    let Some((got, bytes, time)) = steady_rate(&seen.arrivals) else {
        let arrived = seen.arrivals.len();
        return Outcome::NotMeasured(format!("only {arrived} packets came"));
    };
    let idle = idle_share(asked, queue.unwrap_or(u64::MAX), ip_bytes, &seen.sent);
    if let Some(why) = too_idle(idle) {
        return Outcome::NotMeasured(why);
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
    let (first, rest) = arrivals[skipped..].split_first()?;
    let time = rest.last()?.at.saturating_duration_since(first.at).as_secs_f64();
    let bytes: u64 = rest.iter().map(|arrival| u64::from(arrival.ip_bytes)).sum();
    (time > 0.0).then(|| (bytes as f64 * 8.0 / time, bytes, time))
}

fn too_idle(share: f64) -> Option<String> {
    let percent = share * 100.0;
    (share > IDLE)
        .then(|| format!("the sender left the link without work for {percent:.1} % of the time"))
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

/// How long a full queue is, in time and in bytes, from a burst that it did not take whole.
pub(super) fn queue(rate: BitRate, queue: u64, base: Duration, seen: &Seen) -> [Outcome; 2] {
    let refused = seen.lost();
    let last = seen.arrivals.iter().max_by_key(|arrival| arrival.number);
    let ends = last.and_then(|last| Some((seen.delay(last)?, last, seen.sent.first()?)));
    let Some((delay, last, first)) = ends.filter(|_| refused > 0) else {
        let time = seen.sent.first().zip(seen.sent.last()).map(|(first, last)| *last - *first);
        let why = format!(
            "the queue never filled: {} packets in {:.2} s were all taken",
            grouped(seen.sent.len() as u64),
            time.unwrap_or_default().as_secs_f64()
        );
        return [(); 2].map(|()| Outcome::NotMeasured(why.clone()));
    };
    let asked = queue as f64 / rate.bytes_per_s();
    let packet = f64::from(last.ip_bytes) / rate.bytes_per_s();
    let tolerance = (asked * QUEUE_TOLERANCE).max(packet + DELAY_TOLERANCE.as_secs_f64());
    let taken: u64 = seen.arrivals.iter().map(|arrival| u64::from(arrival.ip_bytes)).sum();
    let sending = (seen.sent[last.number as usize] - *first).as_secs_f64();
    let allowed = format!("allowed {:.2} ms", tolerance * 1e3);
    let basis = format!("{} packets taken, {} refused; {allowed}", seen.arrivals.len(), refused);
    let time = measured(Unit::Seconds, asked, delay - base.as_secs_f64(), tolerance, basis);
    let idle = idle_share(rate, queue, last.ip_bytes, &seen.sent);
    if let Some(why) = too_idle(idle) {
        return [time, Outcome::NotMeasured(why)];
    }
    // What was transmitted meanwhile is in the queue no more.
    let held = taken as f64 - sending * rate.bytes_per_s();
    let basis = format!("{} bytes taken in {:.2} ms", grouped(taken), sending * 1e3);
    let tolerance = tolerance * rate.bytes_per_s();
    [time, measured(Unit::Bytes, queue as f64, held, tolerance, basis)]
}

/// What the links said of themselves, the worst of them.
pub(super) fn certificates(certificates: &[Certificate]) -> Vec<Finding> {
    let mut list = Vec::new();
    if let Some(worst) = certificates.iter().max_by_key(|one| one.report.lateness.p99) {
        let late = worst.report.lateness;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (got, asked) = (late.p99.as_secs_f64(), PROMISED_LATENESS.as_secs_f64());
        let (p50, max, phase) = (ms(late.p50), ms(late.max), worst.phase);
        let basis = format!("p99; median {p50:.2} ms, max {max:.2} ms, measuring {phase}");
        let (unit, low, high) = (Unit::Seconds, got, f64::INFINITY);
        let outcome = Outcome::Measured(Measured { unit, asked, got, low, high, basis });
        list.push(Finding { subject: Subject::Lateness, way: None, outcome });
    }
    let links = format!("{} links", certificates.len());
    let drops = certificates.iter().map(|one| one.report.device_drops).sum::<u64>() as f64;
    let outcome = measured(Unit::Packets, 0.0, drops, 0.0, links);
    list.push(Finding { subject: Subject::UnaskedDrops, way: None, outcome });
    for (place, way) in Way::BOTH.into_iter().enumerate() {
        let mut total = 0;
        let missing = certificates.iter().map(|one| {
            let report = way.of(&one.report);
            total += report.packets;
            let fates = report.delivered + report.lost + report.dropped + report.in_flight;
            let ends = Ends { sent: report.packets, arrived: report.delivered };
            report.packets.abs_diff(fates)
                + ends.sent.abs_diff(one.ends[place].sent)
                + ends.arrived.abs_diff(one.ends[place].arrived)
        });
        let missing = missing.sum::<u64>() as f64;
        let basis = format!("of {} packets", grouped(total));
        let outcome = measured(Unit::Packets, 0.0, missing, 0.0, basis);
        list.push(Finding { subject: Subject::Unaccounted, way: Some(way), outcome });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rate_of(text: &str) -> BitRate {
        text.parse().unwrap()
    }

    fn is_inside(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Measured(measured) if measured.is_inside())
    }

    fn is_not_measured(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::NotMeasured(_))
    }

    #[test]
    fn a_loss_is_judged_by_its_interval_and_none_to_the_packet() {
        assert!(is_inside(&loss(0.01, 50, 5000)));
        assert!(is_inside(&loss(0.01, 32, 5000)) && !is_inside(&loss(0.01, 31, 5000)));
        assert!(is_inside(&loss(0.01, 68, 5000)) && !is_inside(&loss(0.01, 69, 5000)));
        assert!(is_inside(&loss(0.0, 0, 5000)) && !is_inside(&loss(0.0, 1, 5000)));
        assert!(is_inside(&loss(1.0, 5000, 5000)) && !is_inside(&loss(1.0, 4990, 5000)));
        assert!(is_not_measured(&loss(0.5, 0, 0)));
    }

    #[test]
    fn a_delay_is_its_median() {
        let took = |median: f64| [vec![median; 60], vec![0.5; 40]].concat();
        assert!(is_inside(&delay(10 * MS, took(0.010_29), 0.0)));
        assert!(!is_inside(&delay(10 * MS, took(0.010_31), 0.0)));
        assert!(!is_inside(&delay(10 * MS, took(0.009_69), 0.0)), "early is wrong too");
        assert!(is_not_measured(&delay(10 * MS, vec![0.01; 19], 0.0)));
        assert_eq!((median(vec![]), median(vec![3.0, 1.0, 2.0])), (0.0, 2.0));
    }

    /// A sender that offers packets of 1000 bytes in the first of these times, and a link with this
    /// rate that delivers them.
    fn seen(every: Duration, many: u32, tx: Duration, base: Duration) -> Seen {
        let start = Instant::now();
        let sent: Vec<_> = (0..many).map(|number| start + every * number).collect();
        let arrival =
            |number| Arrival { number, at: start + base + tx * (number + 1), ip_bytes: 1000 };
        Seen { sent, arrivals: (0..many).map(arrival).collect(), overflowed: 0 }
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
        assert!(is_not_measured(&judged("8mbit", &starved)));
        assert!(is_not_measured(&judged("8mbit", &Seen::default())));
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
        assert!(unfilled.iter().all(is_not_measured));
    }
}
