//! A subject's share of a bottleneck beside a flow of cubic.

use lastbyte_stats::Summary;

use crate::record::Beside;

/// A subject's share of a bottleneck beside one flow of cubic.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Share {
    /// The queue's length in bandwidth-delay products; `None` for the scenario's own.
    pub queue_bdp: Option<f64>,
    /// The subject's share of the bytes that both received, 0 to 1. The fair share of n connections
    /// is n / (n + 1).
    pub share: Summary,
}

impl Share {
    /// One share for each queue, the shortest queue first.
    #[must_use]
    pub fn of(all: &[Beside], subject: usize) -> Vec<Self> {
        let own = || all.iter().filter(|one| one.subject == subject);
        let mut queues: Vec<Option<f64>> = own().map(|one| one.queue_bdp).collect();
        queues.sort_by(|a, b| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0)));
        queues.dedup();
        let share = |queue_bdp| {
            let of_queue = own().filter(|one| one.queue_bdp == queue_bdp);
            let shares: Vec<f64> = of_queue.map(Beside::subject_share).collect();
            Some(Self { queue_bdp, share: Summary::of(&shares)? })
        };
        queues.into_iter().filter_map(share).collect()
    }
}

impl Beside {
    /// The subject's share of the bytes that both received, 0 to 1.
    #[must_use]
    pub fn subject_share(&self) -> f64 {
        self.subject_bits_per_s / (self.subject_bits_per_s + self.cubic_bits_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_by_subject_and_queue() {
        let one = |subject, queue_bdp, subject_bits_per_s| Beside {
            subject,
            round: 0,
            queue_bdp,
            subject_bits_per_s,
            cubic_bits_per_s: 4e6,
        };
        let all = [
            one(0, Some(4.0), 1e6),
            one(0, Some(1.0), 4e6),
            one(0, Some(1.0), 12e6),
            one(1, None, 4e6),
        ];
        let shares = Share::of(&all, 0);
        assert_eq!(
            shares.iter().map(|one| one.queue_bdp).collect::<Vec<_>>(),
            [Some(1.0), Some(4.0)]
        );
        assert_eq!(shares[0].share, Summary::of(&[0.5, 0.75]).unwrap());
        assert_eq!(Share::of(&all, 1)[0].queue_bdp, None);
        assert_eq!(Share::of(&all, 2), []);
    }
}
