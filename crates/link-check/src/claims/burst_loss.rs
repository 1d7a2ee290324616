//! Losses in bursts, as Gilbert's model has them: their share, how many are lost in a row, and the
//! share lost within a burst.
//!
//! Numbered packets over the path without its other losses.

use lastbyte_link::{BurstLoss, Direction, LinkError};
use lastbyte_stats::{Interval, Z_99, wilson_of_share};
use lastbyte_units::{Unit, grouped};

use super::loss::{LOSSES_WANTED, share};
use super::{Claim, numbered};
use crate::asked::Asked;
use crate::check::{Attempt, Check};
use crate::finding::{Measured, Outcome, Phase, Subject};
use crate::part;
use crate::probe::{Load, Observed};

/// Packets at least: there are fewer bursts than losses.
const BURST_PACKETS: f64 = 20_000.0;
/// With fewer bursts their length is not judged.
const LEAST_BURSTS: usize = 20;

pub(super) const CLAIM: Claim =
    Claim { phase: Phase::Bursts, is_made: |asked| asked.bursts.is_some(), measure };

/// Of what takes packets away, duplicates or corrupts them, the losses in bursts alone.
pub(crate) fn part(asked: &Direction) -> Direction {
    Direction { burst_loss: asked.burst_loss, ..part::without_losses(asked) }
}

/// Numbered packets, enough to see bursts and how long they are.
fn load(asked: &Asked, bursts: BurstLoss) -> Load {
    let share = bursts.share.fraction().max(1e-9);
    numbered::load(asked, (LOSSES_WANTED * bursts.packets * 4.0 / share).max(BURST_PACKETS))
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let load = |asked: &Asked| Some(load(asked, asked.bursts?));
    numbered::measure(check, Phase::Bursts, part, load, |asked, seen| {
        asked.bursts.map_or_else(Vec::new, |bursts| judge(bursts, seen))
    })
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
fn judge(asked: BurstLoss, seen: &Observed) -> Vec<(Subject, Outcome)> {
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
    Outcome::within(Unit::Packets, asked, got, tolerance.max(1e-9), basis)
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

#[cfg(test)]
mod tests {
    use lastbyte_link::model::{Fate, Model, Packet};
    use lastbyte_link::{Spec, Way};

    use super::super::numbered::tests::lossy;
    use super::*;
    use crate::finding::tests::{is_inside, is_not_measured};

    fn burst_loss(share: &str, packets: f64, in_burst: &str) -> BurstLoss {
        BurstLoss { share: share.parse().unwrap(), packets, in_burst: in_burst.parse().unwrap() }
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
        let direction = Direction { burst_loss: Some(asked), ..Default::default() };
        let spec = Spec { up: direction, ..Default::default() };
        let (runs, length) = (2_000_u32, 2_000_u32);
        let lost = |seed: u32| {
            let mut model = Model::new(&spec, Way::Up, seed.into());
            let packet = Packet { bytes: 100, ecn_capable: false };
            let fates = (0..length).map(|now| model.offer(now.into(), packet));
            f64::from(u32::try_from(fates.filter(|f| *f == Fate::Lost).count()).unwrap())
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
            judge(asked, &regular).iter().map(|(_, outcome)| is_inside(outcome)).collect()
        };
        assert_eq!(verdicts(burst_loss("5%", 5.0, "100%")), [true, true]);
        assert_eq!(verdicts(burst_loss("4.1%", 5.0, "100%")), [true, true]);
        assert_eq!(verdicts(burst_loss("3.7%", 5.0, "100%")), [false, true]);
        assert_eq!(verdicts(burst_loss("5%", 5.9, "100%")), [true, true]);
        assert_eq!(verdicts(burst_loss("5%", 6.3, "100%")), [true, false]);
        assert_eq!(verdicts(burst_loss("5%", 4.1, "100%")), [true, false]);
        // With half of a burst lost there would be shorter rows, and gaps in them.
        assert_eq!(verdicts(burst_loss("5%", 5.0, "50%")), [true, false, false]);
        let few = judge(burst_loss("5%", 5.0, "100%"), &lossy(|number| number < 5, 100));
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

    fn in_burst_of(in_burst_share: &str, seen: &Observed) -> Outcome {
        let chances = Chances::of(burst_loss("10%", 40.0, in_burst_share)).unwrap();
        let mut lost = vec![false; seen.sent.len()];
        seen.missing().iter().for_each(|number| lost[*number as usize] = true);
        in_burst(chances, &lost)
    }
}
