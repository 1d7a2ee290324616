//! Which requests were lost, and whether in bursts: pure arithmetic.

use lastbyte_stats::{Interval, Z_99, wilson_of_share};

use super::statistics::at_least;

/// Losses count as bursts if independent losses would follow each other as often with at most this
/// probability.
pub(super) const BURST_CHANCE: f64 = 0.01;

/// Losses of round trips, and how they follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Losses {
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// Runs: losses in a row count as one.
    pub(super) runs: u64,
    /// The probability that at least as many of independent losses follow another loss.
    pub(super) chance: f64,
}

impl Losses {
    pub(super) fn of(lost: &[bool]) -> Self {
        let count = lost.iter().filter(|lost| **lost).count() as u64;
        let follows = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as u64;
        // No request follows the last one.
        let before = count - u64::from(lost.last() == Some(&true));
        let others = (lost.len() as u64).saturating_sub(1);
        let share = count.saturating_sub(1) as f64 / others.max(1) as f64;
        // The probability of a loss at each of the other requests.
        let chance = if follows == 0 { 1.0 } else { at_least(follows, before, share) };
        Self { sent: lost.len() as u64, lost: count, runs: count - follows, chance }
    }

    pub(super) fn are_bursts(&self) -> bool {
        self.lost < self.sent && self.chance < BURST_CHANCE
    }

    /// The 99 % interval of the share. Losses in bursts count as fewer independent requests: those of a
    /// two-state Markov chain as (1 - r) / (1 + r) of them, r being the correlation of neighbours.
    pub(super) fn interval(&self) -> Interval {
        let (sent, lost) = (self.sent.max(1) as f64, self.lost as f64);
        let share = lost / sent;
        let worth = if self.are_bursts() {
            let again = 1.0 - 1.0 / self.mean_run();
            let predicts = ((again - share) / (1.0 - share)).clamp(0.0, 1.0);
            (1.0 - predicts) / (1.0 + predicts)
        } else {
            1.0
        };
        wilson_of_share(share, (sent * worth).max(1.0), Z_99)
    }

    pub(super) fn mean_run(&self) -> f64 {
        self.lost as f64 / self.runs.max(1) as f64
    }

    /// The mean length of a burst in one direction: a run of lost round trips may be made of bursts of
    /// both directions that touch. For two independent and equal Gilbert chains.
    pub(super) fn burst(&self) -> f64 {
        let lost = self.lost as f64 / self.sent as f64;
        let share = one_way(lost);
        // A run begins where either direction begins a burst.
        let begins = (lost / ((1.0 - lost) * self.mean_run())).min(1.0);
        let enter = 1.0 - (1.0 - begins).sqrt();
        let leave = enter * (1.0 - share) / share;
        if leave > 0.0 { (1.0 / leave).max(1.0) } else { self.mean_run() }
    }
}

/// One direction's share of losses from the round trip's, both alike.
pub(super) fn one_way(both: f64) -> f64 {
    1.0 - (1.0 - both).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(text: &str) -> Losses {
        Losses::of(&text.chars().map(|c| c == 'x').collect::<Vec<_>>())
    }

    /// A text, repeated.
    fn often(word: &str, times: usize) -> String {
        word.repeat(times)
    }

    #[test]
    fn losses_in_a_row_are_bursts_and_pairs_by_chance_are_not() {
        let apart = often("x.........", 100);
        assert!(!lost(&apart).are_bursts());
        let bursts = [often("xxxx", 10), often(".", 960)].concat();
        assert!(lost(&bursts).are_bursts());
        let bursts = lost(&often("xxxx................", 50));
        assert!(bursts.are_bursts() && bursts.runs == 50, "{bursts:?}");
        assert!((bursts.mean_run() - 4.0).abs() < 1e-9);
        // Of 2 losses among n, one follows the other in 2 of n cases.
        let pair = |others| [often(".", others), "xx".to_owned(), often(".", 1)].concat();
        assert!(lost(&pair(200)).are_bursts() && !lost(&pair(190)).are_bursts());
        assert!(!lost("x").are_bursts() && !lost("").are_bursts() && !lost(".x").are_bursts());
        assert!(!lost("xxxxxxxx").are_bursts(), "all of them say nothing of each other");
    }

    /// Two chains of Gilbert's side by side: bursts of 5 at 5 % each make runs of 5.16 at 9.75 %.
    #[test]
    fn a_burst_is_that_of_one_direction() {
        let losses = Losses { sent: 1_000_000, lost: 97_500, runs: 18_895, chance: 0.0 };
        assert!((losses.burst() - 5.0).abs() < 0.01, "{}", losses.burst());
        assert!((one_way(0.0975) - 0.05).abs() < 1e-12);
    }

    #[test]
    fn losses_in_bursts_tell_less() {
        let width = |losses: Losses| losses.interval().high - losses.interval().low;
        let apart = lost(&often("x...................", 50));
        let bursts = lost(&often(&[often("x", 5), often(".", 95)].concat(), 10));
        assert_eq!((apart.lost, apart.sent), (bursts.lost, bursts.sent));
        assert!(width(bursts) > 2.0 * width(apart));
        assert_eq!(lost("....").interval().low, 0.0);
    }
}
