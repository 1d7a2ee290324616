//! What became of packets that were to be lost, damaged or doubled.

use lastbyte_stats::{Interval, Z_99, wilson, wilson_of_share};
use lastbyte_units::{Unit, grouped};

use lastbyte_link::BurstLoss;

use super::super::probe::Seen;
use super::super::{Measured, Outcome, Subject};
use super::measured;

/// With fewer bursts their length is not judged.
const LEAST_BURSTS: usize = 20;

/// Why a loss cannot be told where the queue dropped packets.
pub(in super::super) fn dropped(packets: u64) -> Option<Outcome> {
    (packets > 0).then(|| {
        Outcome::TooBusy(format!("{} packets were dropped at the queue", grouped(packets)))
    })
}

/// A share of packets that were hit, each by itself.
pub(in super::super) fn share(asked: f64, hits: u64, trials: u64) -> Outcome {
    if trials == 0 {
        return Outcome::NotMeasured("no packet was sent".to_owned());
    }
    let got = hits as f64 / trials as f64;
    let basis = format!("{} of {} packets", grouped(hits), grouped(trials));
    let certain = Interval { low: got, high: got };
    let Interval { low, high } = if asked > 0.0 { wilson(hits, trials, Z_99) } else { certain };
    Outcome::Measured(Measured { unit: Unit::Share, asked, got, low, high, basis })
}

/// The chances of Gilbert's model.
#[derive(Clone, Copy, Debug)]
struct Chances {
    /// Of a packet to begin a burst, and to end one.
    enter: f64,
    leave: f64,
    /// Of the packets in a burst to be lost.
    hit: f64,
}

impl Chances {
    /// `None` for a burst without end.
    fn of(bursts: BurstLoss) -> Option<Self> {
        let (hit, leave) = (bursts.in_burst.fraction(), 1.0 / bursts.packets);
        let in_bursts = bursts.share.fraction() / hit;
        let enter = leave * in_bursts / (1.0 - in_bursts);
        (in_bursts < 1.0).then_some(Self { enter, leave, hit })
    }

    /// How much more the number of losses varies than if each packet were lost by itself. The states
    /// are a chain of two, so that packets `k` apart are both in a burst with a covariance that is
    /// `b (1 - b) (1 - enter - leave)^k`, `b` being the share of packets in bursts; of a long series
    /// the variance of the mean is the sum of all these (Box and Jenkins 1976, section 2.1).
    fn inflation(&self) -> f64 {
        let Self { enter, leave, hit } = *self;
        let (b, stays) = (enter / (enter + leave), 1.0 - enter - leave);
        let alone = b * hit * (1.0 - b * hit);
        (1.0 + 2.0 * hit * hit * b * (1.0 - b) * stays / (1.0 - stays) / alone).max(1.0)
    }
}

/// The share lost in bursts, how many are lost in a row, and the share lost within a burst.
pub(in super::super) fn bursts(asked: BurstLoss, seen: &Seen) -> Vec<(Subject, Outcome)> {
    let (missing, sent) = (seen.missing(), seen.sent.len());
    let Some(chances) = Chances::of(asked) else {
        let outcome = share(asked.share.fraction(), missing.len() as u64, sent as u64);
        return vec![(Subject::BurstLoss, outcome)];
    };
    let lost = {
        let mut lost = vec![false; sent];
        missing.iter().for_each(|number| lost[*number as usize] = true);
        lost
    };
    let mut list = vec![
        (Subject::BurstLoss, burst_share(asked.share.fraction(), chances, missing.len(), sent)),
        (Subject::BurstLength, in_a_row(chances, &lost)),
    ];
    if asked.in_burst.fraction() < 1.0 {
        list.push((Subject::InBurst, in_burst(chances, &lost)));
    }
    list
}

fn burst_share(asked: f64, chances: Chances, lost: usize, sent: usize) -> Outcome {
    if sent == 0 {
        return Outcome::NotMeasured("no packet was sent".to_owned());
    }
    let inflation = chances.inflation();
    let (hits, trials) = (lost as f64, sent as f64);
    let Interval { low, high } = wilson_of_share(hits / trials, trials / inflation, Z_99);
    let (lost, sent) = (grouped(lost as u64), grouped(sent as u64));
    let basis = format!("{lost} of {sent} packets, which vary {inflation:.1} times as much");
    Outcome::Measured(Measured { unit: Unit::Share, asked, got: hits / trials, low, high, basis })
}

/// The mean number of packets lost in a row. In a burst the next packet is lost too if the burst goes
/// on and takes it, so that the number is a geometric one.
fn in_a_row(chances: Chances, lost: &[bool]) -> Outcome {
    let rows: Vec<_> = lost.chunk_by(|one, next| one == next).filter(|row| row[0]).collect();
    if rows.len() < LEAST_BURSTS {
        return Outcome::NotMeasured(format!("only {} bursts came", rows.len()));
    }
    let goes_on = (1.0 - chances.leave) * chances.hit;
    let asked = 1.0 / (1.0 - goes_on);
    let got = rows.iter().map(|row| row.len() as f64).sum::<f64>() / rows.len() as f64;
    let tolerance = Z_99 * goes_on.sqrt() / (1.0 - goes_on) / (rows.len() as f64).sqrt();
    let basis = format!("{} rows; 99 % are within {tolerance:.2}", rows.len());
    measured(Unit::Packets, asked, got, tolerance.max(1e-9), basis)
}

/// The share of packets lost between two that were lost (Gilbert 1960, his third measured figure),
/// corrected for the bursts that ended and began again between them.
fn in_burst(chances: Chances, lost: &[bool]) -> Outcome {
    let between: Vec<bool> =
        lost.windows(3).filter(|three| three[0] && three[2]).map(|three| three[1]).collect();
    if between.len() < LEAST_BURSTS {
        return Outcome::NotMeasured(format!("only {} packets were in bursts", between.len()));
    }
    let stays = (1.0 - chances.leave).powi(2);
    if stays <= 0.0 {
        return Outcome::NotMeasured("a burst of one packet has nothing between".to_owned());
    }
    let correction = (stays + chances.leave * chances.enter) / stays;
    let hits = between.iter().filter(|lost| **lost).count() as f64;
    let trials = between.len() as f64;
    let [low, got, high] = {
        let Interval { low, high } = wilson_of_share(hits / trials, trials, Z_99);
        [low, hits / trials, high].map(|share| (share * correction).min(1.0))
    };
    let basis = format!("{hits} of {trials} packets between two that were lost");
    Outcome::Measured(Measured { unit: Unit::Share, asked: chances.hit, got, low, high, basis })
}

/// Losses by counting: exactly every so manieth, from the first packet of the link on.
pub(in super::super) fn every_nth(asked: u64, seen: &Seen) -> Outcome {
    let sent = seen.sent.len() as u64;
    let missing: Vec<u64> = seen.missing().into_iter().map(u64::from).collect();
    if sent < asked {
        return Outcome::NotMeasured(format!("only {} packets were sent", grouped(sent)));
    }
    let due = (1..=sent / asked).map(|loss| loss * asked - 1);
    let exact = due.clone().eq(missing.iter().copied());
    let mut last = -1.0;
    let mut gaps = missing.iter().map(|number| {
        let gap = *number as f64 - last;
        last = *number as f64;
        gap
    });
    let wrong = gaps.find(|gap| (gap - asked as f64).abs() > 0.5);
    let got = if exact { asked as f64 } else { wrong.unwrap_or(sent as f64) };
    let places = if exact { "all at their places" } else { "not at their places" };
    let basis = format!("{} of {} packets, {places}", missing.len(), grouped(sent));
    measured(Unit::Packets, asked as f64, got, 0.0, basis)
}

/// Packets that never came where nothing but damage takes them: the receiving kernel has refused them.
pub(in super::super) fn damaged(asked: f64, seen: &Seen) -> Outcome {
    let lost = seen.lost();
    if seen.refused < lost {
        let lost = grouped(lost - seen.refused);
        return Outcome::NotMeasured(format!("{lost} packets were lost, and not by damage"));
    }
    let mut outcome = share(asked, lost, seen.sent.len() as u64);
    if let Outcome::Measured(measured) = &mut outcome {
        let refused = grouped(seen.refused);
        measured.basis += &format!("; the receiver's checksum refused {refused}");
    }
    outcome
}

/// Packets that came twice.
pub(in super::super) fn doubled(asked: f64, seen: &Seen) -> Outcome {
    share(asked, seen.copies(), seen.sent.len() as u64 - seen.lost())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MS, is_inside, is_not_measured, seen};
    use super::*;

    fn lossy(lost: impl Fn(u32) -> bool, many: u32) -> Seen {
        let mut seen = seen(MS, many, MS, MS);
        seen.arrivals.retain(|arrival| !lost(arrival.number));
        seen
    }

    fn burst_loss(share: &str, packets: f64, in_burst: &str) -> BurstLoss {
        BurstLoss { share: share.parse().unwrap(), packets, in_burst: in_burst.parse().unwrap() }
    }

    #[test]
    fn a_loss_is_judged_by_its_interval_and_none_to_the_packet() {
        assert!(is_inside(&share(0.01, 50, 5000)));
        assert!(is_inside(&share(0.01, 32, 5000)) && !is_inside(&share(0.01, 31, 5000)));
        assert!(is_inside(&share(0.01, 68, 5000)) && !is_inside(&share(0.01, 69, 5000)));
        assert!(is_inside(&share(0.0, 0, 5000)) && !is_inside(&share(0.0, 1, 5000)));
        assert!(is_inside(&share(1.0, 5000, 5000)) && !is_inside(&share(1.0, 4990, 5000)));
        assert!(is_not_measured(&share(0.5, 0, 0)));
    }

    #[test]
    fn bursts_vary_more() {
        // Of whole bursts: (1 + stays) / (1 - stays), for 5 % in bursts of 5.
        let chances = Chances::of(burst_loss("5%", 5.0, "100%")).unwrap();
        assert!((chances.enter - 0.010_526).abs() < 1e-6);
        assert!((chances.inflation() - 1.789_47 / 0.210_53).abs() < 1e-3);
        // Bursts of which next to none is lost are independent losses.
        let thin = Chances::of(burst_loss("0.001%", 5.0, "0.1%")).unwrap();
        assert!((thin.inflation() - 1.0).abs() < 0.01);
        assert!(Chances::of(burst_loss("50%", 5.0, "50%")).is_none());
        assert_eq!(Chances::of(burst_loss("20%", 1.0, "100%")).unwrap().inflation(), 1.0);
    }

    #[test]
    fn the_inflation_is_that_of_the_chain_itself() {
        let asked = burst_loss("5%", 5.0, "50%");
        let direction = lastbyte_link::Direction { burst_loss: Some(asked), ..Default::default() };
        let spec = lastbyte_link::Spec { up: direction, ..Default::default() };
        let (runs, length) = (2_000_u32, 2_000_u32);
        let lost = |seed: u32| {
            let mut model =
                lastbyte_link::model::Model::new(&spec, lastbyte_link::Way::Up, seed.into());
            let packet = lastbyte_link::model::Packet { bytes: 100, ecn_capable: false };
            let fates = (0..length).map(|now| model.offer(now.into(), packet));
            f64::from(
                u32::try_from(fates.filter(|f| *f == lastbyte_link::model::Fate::Lost).count())
                    .unwrap(),
            )
        };
        let counts: Vec<f64> = (0..runs).map(lost).collect();
        let mean = counts.iter().sum::<f64>() / f64::from(runs);
        let variance =
            counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / f64::from(runs);
        let alone = f64::from(length) * 0.05 * 0.95;
        let inflation = Chances::of(asked).unwrap().inflation();
        assert!(
            (variance / alone / inflation - 1.0).abs() < 0.15,
            "{} {inflation}",
            variance / alone
        );
    }

    #[test]
    fn bursts_are_judged_by_share_and_length() {
        // A burst of 5 in each 100.
        let regular = lossy(|number| number % 100 < 5, 20_000);
        let verdicts = |asked| -> Vec<bool> {
            bursts(asked, &regular).iter().map(|(_, outcome)| is_inside(outcome)).collect()
        };
        assert_eq!(verdicts(burst_loss("5%", 5.0, "100%")), [true, true]);
        assert_eq!(verdicts(burst_loss("4.1%", 5.0, "100%")), [true, true]);
        assert_eq!(verdicts(burst_loss("3.7%", 5.0, "100%")), [false, true]);
        assert_eq!(verdicts(burst_loss("5%", 5.9, "100%")), [true, true]);
        assert_eq!(verdicts(burst_loss("5%", 6.3, "100%")), [true, false]);
        assert_eq!(verdicts(burst_loss("5%", 4.1, "100%")), [true, false]);
        // With half of a burst lost there would be shorter rows, and gaps in them.
        assert_eq!(verdicts(burst_loss("5%", 5.0, "50%")), [true, false, false]);
        let few = bursts(burst_loss("5%", 5.0, "100%"), &lossy(|number| number < 5, 100));
        assert!(is_not_measured(&few[1].1));
    }

    #[test]
    fn within_a_burst_its_own_share_is_lost() {
        // Of bursts of 21 each other packet is lost: between two lost ones none is.
        let every_other = lossy(|number| number % 100 < 21 && number % 2 == 0, 10_000);
        let judged = |in_burst| in_burst_of(in_burst, &every_other);
        assert!(!is_inside(&judged("50%")), "as many of two, but none of three");
        let mixed = lossy(|number| number % 100 < 40 && number % 4 < 3, 10_000);
        // Of lost, x, lost: 1 of 2 such places is lost in `1110`.
        assert!(is_inside(&in_burst_of("50%", &mixed)) && !is_inside(&in_burst_of("60%", &mixed)));
    }

    fn in_burst_of(in_burst_share: &str, seen: &Seen) -> Outcome {
        let chances = Chances::of(burst_loss("10%", 40.0, in_burst_share)).unwrap();
        let mut lost = vec![false; seen.sent.len()];
        seen.missing().iter().for_each(|number| lost[*number as usize] = true);
        in_burst(chances, &lost)
    }

    #[test]
    fn every_nth_is_exact() {
        let seventh = lossy(|number| number % 7 == 6, 100);
        assert!(is_inside(&every_nth(7, &seventh)));
        assert!(!is_inside(&every_nth(8, &seventh)) && !is_inside(&every_nth(14, &seventh)));
        assert!(!is_inside(&every_nth(7, &lossy(|number| number % 7 == 5, 100))), "one too early");
        assert!(!is_inside(&every_nth(7, &lossy(|_| false, 100))));
        assert!(is_not_measured(&every_nth(101, &seventh)));
    }

    #[test]
    fn damage_is_what_the_receiver_refused() {
        let mut seen = lossy(|number| number % 100 == 0, 5000);
        seen.refused = 50;
        assert!(is_inside(&damaged(0.01, &seen)) && !is_inside(&damaged(0.02, &seen)));
        seen.refused = 49;
        assert!(is_not_measured(&damaged(0.01, &seen)), "one was lost, not damaged");
    }

    #[test]
    fn copies_are_counted() {
        let mut seen = lossy(|_| false, 5000);
        assert!(is_inside(&doubled(0.0, &seen)) && !is_inside(&doubled(0.01, &seen)));
        let again: Vec<_> = seen.arrivals.iter().step_by(100).copied().collect();
        seen.arrivals.extend(again);
        assert!(is_inside(&doubled(0.01, &seen)) && !is_inside(&doubled(0.02, &seen)));
        assert!(!is_inside(&doubled(0.0, &seen)));
    }
}
