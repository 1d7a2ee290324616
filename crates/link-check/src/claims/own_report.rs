//! What the links report of themselves: lateness, packets that devices dropped, and whether the counts
//! of the link and of its hosts agree.

use std::time::Duration;

use lastbyte_link::{PROMISED_LATENESS, Way};
use lastbyte_units::{Unit, grouped};

use crate::check::{Counts, LinkRun};
use crate::finding::{Finding, Outcome, Subject};

/// What the links report of themselves, the worst of them. `repeated` links are not counted: the machine
/// was too busy for them.
pub(crate) fn findings(runs: &[LinkRun], repeated: usize) -> Vec<Finding> {
    let mut list = Vec::new();
    if let Some(worst) = runs.iter().max_by_key(|one| one.report.lateness.p99) {
        let late = worst.report.lateness;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (got, asked) = (late.p99.as_secs_f64(), PROMISED_LATENESS.as_secs_f64());
        let (p50, max, phase) = (ms(late.p50), ms(late.max), worst.phase);
        let basis = format!("p99; median {p50:.2} ms, max {max:.2} ms, measuring {phase}");
        let outcome = Outcome::at_most(Unit::Seconds, asked, got, basis);
        list.push(Finding { subject: Subject::Lateness, way: None, outcome });
    }
    let mut links = format!("{} links", runs.len());
    if repeated > 0 {
        links += &format!(", and {repeated} more that were repeated, the machine being busy");
    }
    let drops = runs.iter().map(|one| one.report.device_drops).sum::<u64>() as f64;
    let outcome = Outcome::within(Unit::Packets, 0.0, drops, 0.0, links);
    list.push(Finding { subject: Subject::DeviceDrops, way: None, outcome });
    for way in Way::BOTH {
        let mut total = 0;
        let missing = runs.iter().map(|one| {
            total += one.report.direction(way).packets;
            unaccounted(one, way)
        });
        let missing = missing.sum::<u64>() as f64;
        let basis = format!("of {} packets", grouped(total));
        let outcome = Outcome::within(Unit::Packets, 0.0, missing, 0.0, basis);
        list.push(Finding { subject: Subject::Unaccounted, way: Some(way), outcome });
    }
    list
}

/// Packets that the counts of the hosts and the link do not account for.
fn unaccounted(run: &LinkRun, way: Way) -> u64 {
    let report = run.report.direction(way);
    let dropped = report.lost + report.dropped + report.policed;
    let fates = report.delivered + dropped + report.in_flight;
    let arrived = report.delivered + report.duplicated;
    let link = Counts { sent: report.packets, arrived };
    let outside = run.counts[way.index()];
    report.packets.abs_diff(fates)
        + link.sent.abs_diff(outside.sent)
        + link.arrived.abs_diff(outside.arrived)
}

#[cfg(test)]
mod tests {
    use lastbyte_link::Report;

    use super::*;
    use crate::finding::Phase;
    use crate::finding::tests::is_inside;

    #[test]
    fn every_packet_has_to_be_accounted_for() {
        let mut report = Report::default();
        report.up.packets = 100;
        (report.up.delivered, report.up.lost, report.up.dropped) = (80, 10, 4);
        (report.up.policed, report.up.in_flight, report.up.duplicated) = (5, 1, 3);
        let counts = [Counts { sent: 100, arrived: 83 }, Counts::default()];
        let run = LinkRun { phase: Phase::Loss, report, counts };
        let judged = |run: LinkRun| findings(&[run], 0);
        assert!(judged(run.clone()).iter().all(|one| is_inside(&one.outcome)));
        for (sent, arrived) in [(99, 83), (100, 82), (100, 84)] {
            let counts = [Counts { sent, arrived }, Counts::default()];
            let list = judged(LinkRun { counts, ..run.clone() });
            let outside = list.iter().filter(|one| !is_inside(&one.outcome)).count();
            assert_eq!(outside, 1, "{sent} {arrived}");
        }
    }
}
