//! What was asked against what was seen: arithmetic alone.

mod delay;
mod loss;
mod rate;
mod shaping;
mod statistics;
mod timetable;

use std::time::Duration;

use lastbyte_units::{Unit, grouped};

use super::{Certificate, Ends, Finding, Measured, Outcome, PROMISED_LATENESS, Subject, Way};

pub(super) use delay::{Varying, delay, longest_packet, overtaken, varying, varying_sum};
pub(super) use loss::{bursts, damaged, doubled, dropped, every_nth, share};
pub(super) use rate::{queue, rate};
pub(super) use shaping::{Struck, policer, recorded, recorded_queue, struck};
pub(super) use statistics::median;
pub(super) use timetable::{Step, cuts, delay_step, loss_step, rate_step};

/// A figure that may be off by a tolerance.
fn measured(unit: Unit, asked: f64, got: f64, tolerance: f64, basis: String) -> Outcome {
    let (low, high) = (got - tolerance, got + tolerance);
    Outcome::Measured(Measured { unit, asked, got, low, high, basis })
}

/// A figure that may be as much as asked, or less.
fn at_most(unit: Unit, asked: f64, got: f64, basis: String) -> Outcome {
    Outcome::Measured(Measured { unit, asked, got, low: got, high: f64::INFINITY, basis })
}

/// A figure that may be as much as asked, or more.
fn at_least(unit: Unit, asked: f64, got: f64, basis: String) -> Outcome {
    Outcome::Measured(Measured { unit, asked, got, low: f64::NEG_INFINITY, high: got, basis })
}

/// A share of packets that were hit.
fn at_share_of(asked: f64, hits: usize, trials: usize) -> Outcome {
    share(asked, hits as u64, trials as u64)
}

/// What the links said of themselves, the worst of them. `repeated` links are not counted: the machine
/// was too busy for them.
pub(super) fn certificates(certificates: &[Certificate], repeated: usize) -> Vec<Finding> {
    let mut list = Vec::new();
    if let Some(worst) = certificates.iter().max_by_key(|one| one.report.lateness.p99) {
        let late = worst.report.lateness;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (got, asked) = (late.p99.as_secs_f64(), PROMISED_LATENESS.as_secs_f64());
        let (p50, max, phase) = (ms(late.p50), ms(late.max), worst.phase);
        let basis = format!("p99; median {p50:.2} ms, max {max:.2} ms, measuring {phase}");
        let outcome = at_most(Unit::Seconds, asked, got, basis);
        list.push(Finding { subject: Subject::Lateness, way: None, outcome });
    }
    let mut links = format!("{} links", certificates.len());
    if repeated > 0 {
        links += &format!(", and {repeated} more that were repeated, the machine being busy");
    }
    let drops = certificates.iter().map(|one| one.report.device_drops).sum::<u64>() as f64;
    let outcome = measured(Unit::Packets, 0.0, drops, 0.0, links);
    list.push(Finding { subject: Subject::UnaskedDrops, way: None, outcome });
    for (place, way) in Way::BOTH.into_iter().enumerate() {
        let mut total = 0;
        let missing = certificates.iter().map(|one| {
            total += one.report.direction(way).packets;
            unaccounted(one, place, way)
        });
        let missing = missing.sum::<u64>() as f64;
        let basis = format!("of {} packets", grouped(total));
        let outcome = measured(Unit::Packets, 0.0, missing, 0.0, basis);
        list.push(Finding { subject: Subject::Unaccounted, way: Some(way), outcome });
    }
    list
}

/// Packets of which the counts at both ends and the link's own do not tell what became.
fn unaccounted(certificate: &Certificate, place: usize, way: Way) -> u64 {
    let report = certificate.report.direction(way);
    let dropped = report.lost + report.dropped + report.policed;
    let fates = report.delivered + dropped + report.in_flight;
    let arrived = report.delivered + report.duplicated;
    let link = Ends { sent: report.packets, arrived };
    let ends = certificate.ends[place];
    report.packets.abs_diff(fates)
        + link.sent.abs_diff(ends.sent)
        + link.arrived.abs_diff(ends.arrived)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::Phase;
    use super::super::probe::{Arrival, Seen};
    use super::*;
    use lastbyte_link::Report;

    pub(super) const MS: Duration = Duration::from_millis(1);

    pub(super) fn is_inside(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Measured(measured) if measured.is_inside())
    }

    pub(super) fn is_not_measured(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::NotMeasured(_))
    }

    pub(super) fn is_too_busy(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::TooBusy(_))
    }

    /// A sender that offers packets of 1000 bytes in the first of these times, and a link with this
    /// rate that delivers them.
    pub(super) fn seen(every: Duration, many: u32, tx: Duration, base: Duration) -> Seen {
        let start = Instant::now();
        let sent: Vec<_> = (0..many).map(|number| start + every * number).collect();
        let arrival = |number| arrival(number, start + base + tx * (number + 1));
        Seen { sent, arrivals: (0..many).map(arrival).collect(), ..Seen::default() }
    }

    pub(super) fn arrival(number: u32, at: Instant) -> Arrival {
        Arrival { number, at, ip_bytes: 1000, marked: false }
    }

    #[test]
    fn limits_have_one_side() {
        let (most, least) = (
            |got| at_most(Unit::Share, 1.0, got, String::new()),
            |got| at_least(Unit::Packets, 1.0, got, String::new()),
        );
        assert!(is_inside(&most(0.0)) && is_inside(&most(1.0)) && !is_inside(&most(1.1)));
        assert!(is_inside(&least(9.0)) && is_inside(&least(1.0)) && !is_inside(&least(0.0)));
    }

    #[test]
    fn every_packet_has_to_be_accounted_for() {
        let mut report = Report::default();
        report.up.packets = 100;
        (report.up.delivered, report.up.lost, report.up.dropped) = (80, 10, 4);
        (report.up.policed, report.up.in_flight, report.up.duplicated) = (5, 1, 3);
        let ends = [Ends { sent: 100, arrived: 83 }, Ends::default()];
        let certificate = Certificate { phase: Phase::Loss, report, ends };
        let judged = |certificate: Certificate| certificates(&[certificate], 0);
        assert!(judged(certificate.clone()).iter().all(|one| is_inside(&one.outcome)));
        for (sent, arrived) in [(99, 83), (100, 82), (100, 84)] {
            let ends = [Ends { sent, arrived }, Ends::default()];
            let list = judged(Certificate { ends, ..certificate.clone() });
            let outside = list.iter().filter(|one| !is_inside(&one.outcome)).count();
            assert_eq!(outside, 1, "{sent} {arrived}");
        }
    }
}
