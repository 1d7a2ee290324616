//! Losses, each packet by itself: a share, judged by its interval.
//!
//! Numbered packets over the path without its other losses.

use lastbyte_link::{Direction, LinkError};
use lastbyte_stats::{Interval, Z_99, wilson};
use lastbyte_units::{Unit, grouped};

use super::delay::jitter::Distribution;
use super::numbered::LEAST_LOSS_PACKETS;
use super::{Claim, numbered, reordering};
use crate::asked::Asked;
use crate::check::{Attempt, Check};
use crate::finding::{Measured, Outcome, Phase, Subject};
use crate::part;
use crate::probe::Load;

/// How many losses a load should show: their count then has a standard deviation of less than a quarter
/// of itself.
pub(super) const LOSSES_WANTED: f64 = 20.0;

pub(super) const CLAIM: Claim = Claim { phase: Phase::Loss, is_made: |_| true, measure };

/// Of what takes packets away, duplicates or corrupts them, the independent loss alone.
pub(crate) fn part(asked: &Direction) -> Direction {
    Direction { loss: asked.loss, ..part::without_losses(asked) }
}

/// Numbered packets, enough to see the share asked.
pub(super) fn load(asked: &Asked, share: f64) -> Load {
    let wanted = if share > 0.0 { LOSSES_WANTED / share } else { LEAST_LOSS_PACKETS };
    numbered::load(asked, wanted)
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let load = |asked: &Asked| Some(load(asked, asked.loss));
    numbered::measure(check, Phase::Loss, part, load, |asked, seen| {
        let lost = share(asked.loss, seen.lost(), seen.sent.len() as u64);
        let distribution = Distribution::of(asked);
        let order = reordering::judge(asked.reorders().then_some(&distribution), seen);
        vec![(Subject::Loss, lost), (Subject::Reordered, order)]
    })
}

/// A share of packets that were hit, each by itself.
pub(super) fn share(asked: f64, hits: u64, trials: u64) -> Outcome {
    if trials == 0 {
        return Outcome::NotMeasured("no packet was sent".to_owned());
    }
    let got = hits as f64 / trials as f64;
    let basis = format!("{} of {} packets", grouped(hits), grouped(trials));
    let certain = Interval { low: got, high: got };
    let Interval { low, high } = if asked > 0.0 { wilson(hits, trials, Z_99) } else { certain };
    Outcome::Measured(Measured { unit: Unit::Share, asked, got, low, high, basis })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::tests::asked;
    use crate::finding::tests::{is_inside, is_not_measured};

    #[test]
    fn a_loss_gets_packets_enough_and_not_too_many() {
        let packets = |share| load(&asked("rtt = '1ms'"), share).packets;
        assert_eq!(packets(0.0), 5_000);
        assert_eq!(packets(0.01), 5_000);
        assert_eq!(packets(0.000_34), 58_824);
        assert_eq!(packets(0.000_01), 100_000);
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
}
