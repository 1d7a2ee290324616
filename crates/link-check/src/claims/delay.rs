//! The delay of each direction, and of the round trip.
//!
//! Small packets, one at a time, over all of the path that is steady. What the same load takes over
//! loopback is the probe's own lateness, and is subtracted. `jitter` judges a delay that varies.

pub(super) mod jitter;
mod longest_packet;

use std::time::Duration;

use lastbyte_link::{Link, LinkError, Way};
use lastbyte_units::Unit;

use super::Claim;
use crate::asked::Asked;
use crate::check::{Attempt, Check, send, take_down};
use crate::finding::{Outcome, Phase, Subject};
use crate::part::{self, Part};
use crate::probe::{self, Flow, Load, Observed, SMALL_PACKET};
use crate::statistics::{at_share, median};

/// How far the median of a delay may be off, and that of the round trip: four wake-ups of the link's
/// thread on an idle machine, twice in each direction, with room.
pub(super) const DELAY_TOLERANCE: Duration = Duration::from_micros(300);
/// Packets to measure delays with, and the time between them: half a second, and a p99 that is not the
/// slowest of a few.
const DELAY_PROBES: u32 = 100;
const DELAY_EVERY: Duration = Duration::from_millis(5);
const DELAY_WITHIN: Duration = Duration::from_secs(3);
/// Packets over loopback, to know how late the probe itself is.
const OWN_PROBES: u32 = 50;
/// With fewer packets no median is judged.
pub(super) const LEAST_PROBES: usize = 20;

pub(super) const CLAIM: Claim = Claim { phase: Phase::Delay, is_made: |_| true, measure };

/// Small packets one at a time. Where the delay varies, so far from each other that none waits for
/// the one before it.
fn load(asked: &Asked, every: Duration) -> Load {
    if let Some(jitter) = &asked.jitter {
        return jitter::load(asked, jitter, every);
    }
    let every = every.max(DELAY_EVERY);
    Load {
        packets: DELAY_PROBES,
        within: DELAY_WITHIN,
        high_priority: true,
        ..Load::paced(SMALL_PACKET, every)
    }
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part::steady);
    let slowest = check.asked.iter().map(|asked| asked.time_of(SMALL_PACKET)).max();
    let every = jitter::JITTER_EVERY.max(slowest.unwrap_or_default() * 3);
    // Both directions get the same number of packets, because they are added.
    let varying = check.asked.iter().filter(|asked| asked.jitter.is_some());
    let slowest = varying.map(|asked| load(asked, every)).max_by_key(|load| load.every);
    let flows = check
        .asked
        .each_ref()
        .map(|asked| asked.flow(slowest.unwrap_or_else(|| load(asked, every)), asked.idle_wait()));
    let link = Link::up(&part.spec, check.seed)?;
    let (own, lateness) = own_lateness(&link, flows[0].load)?;
    // One direction after the other: their threads would wake at the same moments. Not so where the
    // delay varies, which takes long.
    let mut observed = send(&link, &flows, slowest.is_some())?;
    let mut flows: Vec<Flow> = flows.into();
    let longest = longest_packet::measure(&check.asked, &link, &mut flows, &mut observed)?;
    let mut attempt = Attempt::of(Some(take_down(Phase::Delay, link, &flows, &observed)?));
    let small = &observed[..Way::BOTH.len()];
    let allowed = DELAY_TOLERANCE.as_secs_f64();
    let is_late = |one: &Observed| one.lateness > allowed;
    attempt.late = lateness > allowed || small.iter().chain([&own]).any(is_late);
    judge(check, small, lateness, &part, &mut attempt);
    attempt.list.extend(longest);
    Ok(attempt)
}

/// Sends some packets of a load over loopback: what was observed, and how late the probe itself is, in
/// seconds.
pub(super) fn own_lateness(link: &Link, load: Load) -> Result<(Observed, f64), LinkError> {
    let alone = Load { packets: OWN_PROBES, every: DELAY_EVERY, ..load };
    let alone = probe::run_on_loopback(link, alone)?;
    let lateness = median(alone.delays().flatten().collect());
    Ok((alone, lateness))
}

fn judge(
    check: &Check<'_>,
    observed: &[Observed],
    lateness: f64,
    part: &Part,
    attempt: &mut Attempt,
) {
    let delays: Vec<Vec<Option<f64>>> = check
        .asked
        .iter()
        .zip(observed)
        .map(|(asked, observed)| {
            let own = asked.time_of(SMALL_PACKET).as_secs_f64() + lateness;
            observed.delays().map(|delay| delay.map(|delay| delay - own)).collect()
        })
        .collect();
    let both = delays[0].iter().zip(&delays[1]).filter_map(|(up, down)| Some((*up)? + (*down)?));
    let both: Vec<f64> = both.collect();
    let [up, down] = check.asked.each_ref().map(jitter::Distribution::of);
    let round_trip = if up.is_fixed() && down.is_fixed() {
        delay(check.spec.rtt(), both, 2.0 * lateness)
    } else {
        jitter::round_trip([&up, &down], both)
    };
    attempt.add(Subject::RoundTrip, None, round_trip);
    for (asked, delays) in check.asked.iter().zip(delays) {
        let delays: Vec<f64> = delays.into_iter().flatten().collect();
        let found = match asked.jitter {
            None => vec![(Subject::Delay, delay(asked.delay, delays, lateness))],
            Some(_) => jitter::judge(&jitter::Distribution::of(asked), delays),
        };
        for finding in found {
            attempt.add_over(part, asked.way, finding);
        }
    }
}

/// A delay from the time that each probe took, in seconds, without the probe's own lateness.
fn delay(asked: Duration, mut took: Vec<f64>, lateness: f64) -> Outcome {
    if let Some(few) = too_few(&took) {
        return few;
    }
    took.sort_by(f64::total_cmp);
    let (median, p99) = (at_share(&took, 0.5), at_share(&took, 0.99));
    let (late, many, p99) = (lateness * 1e3, took.len(), p99 * 1e3);
    let basis = format!("median of {many}, p99 {p99:.2} ms; probe's own {late:.2} ms taken off");
    Outcome::within(
        Unit::Seconds,
        asked.as_secs_f64(),
        median,
        DELAY_TOLERANCE.as_secs_f64(),
        basis,
    )
}

/// [`Outcome::NotMeasured`] where too few packets arrived.
fn too_few(took: &[f64]) -> Option<Outcome> {
    let (got, least) = (took.len(), LEAST_PROBES);
    let why = || format!("only {got} packets came, fewer than {least}");
    (got < least).then(|| Outcome::NotMeasured(why()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{is_inside, is_not_measured};
    use crate::probe::tests::MS;

    #[test]
    fn a_delay_is_its_median() {
        let took = |median: f64| [vec![median; 60], vec![0.5; 40]].concat();
        assert!(is_inside(&delay(10 * MS, took(0.010_29), 0.0)));
        assert!(!is_inside(&delay(10 * MS, took(0.010_31), 0.0)));
        assert!(!is_inside(&delay(10 * MS, took(0.009_69), 0.0)), "early is wrong too");
        assert!(is_not_measured(&delay(10 * MS, vec![0.01; 19], 0.0)));
    }
}
