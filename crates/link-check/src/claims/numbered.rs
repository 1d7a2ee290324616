//! Numbered small packets, sent slowly enough for the queue and the policer: the load of all losses.

use std::time::Duration;

use lastbyte_link::{Direction, LinkError};
use lastbyte_units::{BitRate, grouped};

use crate::asked::Asked;
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::probe::{Flow, Load, Observed, SMALL_PACKET};

/// How many packets a loss is judged with.
pub(super) const LEAST_LOSS_PACKETS: f64 = 5_000.0;
const MOST_LOSS_PACKETS: f64 = 100_000.0;
/// Numbered packets per second in each direction: well below what one core carries.
const LOSS_PACKETS_PER_S: f64 = 20_000.0;
/// The share of a rate that numbered packets may take: the queue stays all but empty.
const LOSS_SHARE_OF_RATE: f64 = 0.5;
/// How late a link may be to read while the queue still takes the numbered packets that pile up.
pub(super) const LOSS_LATE: Duration = Duration::from_millis(50);
/// How long numbered packets are sent at most.
const LOSS_WITHIN: Duration = Duration::from_secs(8);

/// About `wanted` packets, within the limits.
pub(super) fn load(asked: &Asked, wanted: f64) -> Load {
    let packets = wanted.clamp(LEAST_LOSS_PACKETS, MOST_LOSS_PACKETS).ceil();
    let bytes = f64::from(SMALL_PACKET);
    let share = |rate: BitRate| rate.bytes_per_s() * LOSS_SHARE_OF_RATE / bytes;
    let fits = asked.rate.map_or(f64::INFINITY, |rate| {
        let queued = f64::from(asked.queue_packets(SMALL_PACKET)) / LOSS_LATE.as_secs_f64();
        share(rate).min(queued)
    });
    let policed = asked.policer.map_or(f64::INFINITY, |policer| share(policer.rate));
    let per_s = LOSS_PACKETS_PER_S.min(fits).min(policed);
    Load {
        #[expect(clippy::cast_possible_truncation, reason = "clamped")]
        #[expect(clippy::cast_sign_loss, reason = "clamped")]
        packets: packets as u32,
        within: LOSS_WITHIN,
        burst: (asked.queue_packets(SMALL_PACKET) / 4).clamp(1, burst_room(asked)),
        ..Load::paced(SMALL_PACKET, Duration::from_secs_f64(1.0 / per_s))
    }
}

/// How many small packets the policer lets pass at once.
fn burst_room(asked: &Asked) -> u32 {
    let policed = asked.policer.map_or(u64::MAX, |policer| policer.burst.bytes());
    u32::try_from(policed / 4 / u64::from(SMALL_PACKET)).unwrap_or(u32::MAX).clamp(1, 200)
}

/// Sends numbered packets over a part of the path in the directions for which `load` gives a load, both
/// at once, and judges them.
pub(super) fn measure(
    check: &Check<'_>,
    phase: Phase,
    keep: fn(&Direction) -> Direction,
    load: impl Fn(&Asked) -> Option<Load>,
    judge: impl Fn(&Asked, &Observed) -> Vec<(Subject, Outcome)>,
) -> Result<Attempt, LinkError> {
    let part = check.part(keep);
    let flow =
        |asked: &Asked| -> Option<Flow> { Some(asked.flow(load(asked)?, asked.idle_wait())) };
    let loaded = check.load(phase, &part, flow, Together::Always)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let Some((_, seen)) = observed else { continue };
        let reports = attempt.runs.iter().map(|run| run.report.direction(asked.way));
        let dropped: u64 = reports.map(|report| report.dropped).sum();
        for (subject, outcome) in judge(asked, seen) {
            let outcome = seen.unless_overflowed(unless_dropped(dropped, outcome));
            attempt.add_over(&part, asked.way, (subject, outcome));
        }
    }
    Ok(attempt)
}

/// The outcome; [`Outcome::TooBusy`] where the queue dropped packets, as a loss then cannot be known.
fn unless_dropped(packets: u64, outcome: Outcome) -> Outcome {
    match packets {
        0 => outcome,
        _ => Outcome::TooBusy(format!("{} packets were dropped at the queue", grouped(packets))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::loss;
    use super::*;
    use crate::asked::tests::asked;
    use crate::probe::tests::{MS, seen};

    /// Packets, of which those that `lost` selects never arrive.
    pub(crate) fn lossy(lost: impl Fn(u32) -> bool, many: u32) -> Observed {
        let mut seen = seen(MS, many, MS, MS);
        seen.arrivals.retain(|arrival| !lost(arrival.number));
        seen
    }

    #[test]
    fn numbered_packets_leave_half_of_a_rate_and_of_a_policer() {
        let speed = |toml: &str| {
            let load = loss::load(&asked(toml), 0.01);
            f64::from(load.ip_bytes) * 8.0 / load.every.as_secs_f64()
        };
        let rate = speed("rate = '1mbit'\nqueue = '1MB'");
        assert!((rate - 500_000.0).abs() < 10.0, "{rate}");
        let policed = speed("policer = { rate = '2mbit', burst = '9kB' }");
        assert!((policed - 1_000_000.0).abs() < 20.0, "{policed}");
        let short = loss::load(&asked("rate = '1gbit'\nqueue = '4packets'"), 0.01);
        assert_eq!((short.every, short.burst), (LOSS_LATE / 4, 1));
        let short = loss::load(&asked("rate = '1gbit'\nqueue = '3200B'"), 0.01);
        assert_eq!((short.every, short.burst), (LOSS_LATE / 100, 25));
    }
}
