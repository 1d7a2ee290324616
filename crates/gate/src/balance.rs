//! Whether a worker keeps a connection that it has accepted, or hands it over to one with fewer flows.
//!
//! Handing over costs the other worker a wake-up. That is worth it for a few long flows, which then share
//! the processors evenly; it is not for many short ones, among which chance decides from moment to moment
//! which worker has more.

use std::time::{Duration, Instant};

/// How many connections may be handed over at once because of a small difference.
const BURST: u32 = 64;

/// The time after which one more may be handed over.
const PACE: Duration = Duration::from_millis(10);

/// The memory of one worker.
#[derive(Debug)]
pub(crate) struct Balance {
    /// How many connections may be handed over.
    left: u32,
    /// When `left` was updated.
    at: Instant,
}

impl Balance {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: BURST, at: now }
    }

    /// Whether a worker with `own` open flows hands the next one to a worker with `others`.
    pub(crate) fn hands_over(&mut self, own: usize, others: usize, now: Instant) -> bool {
        if own <= others + others / 8 {
            return false;
        }
        // Such a difference is more than chance.
        if own > 2 * others + 16 {
            return true;
        }
        let earned = now.saturating_duration_since(self.at).as_nanos() / PACE.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(BURST).min(BURST);
        if earned > 0 {
            self.left = (self.left + earned).min(BURST);
            self.at = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One worker accepts `flows`, all of which stay; returns how many each has then.
    fn all_by_one(flows: usize, workers: usize) -> Vec<usize> {
        let now = Instant::now();
        let mut balance = Balance::new(now);
        let mut loads = vec![0; workers];
        for _ in 0..flows {
            let least = (0..workers).min_by_key(|worker| loads[*worker]).unwrap();
            let hands_over = balance.hands_over(loads[0], loads[least], now);
            loads[if hands_over { least } else { 0 }] += 1;
        }
        loads
    }

    #[test]
    fn few_flows_are_shared_evenly() {
        assert_eq!(all_by_one(8, 2), [4, 4]);
        assert_eq!(all_by_one(7, 2), [4, 3]);
        assert_eq!(all_by_one(8, 4), [2, 2, 2, 2]);
        assert_eq!(all_by_one(1, 2), [1, 0]);
    }

    #[test]
    fn many_flows_at_once_are_never_far_apart() {
        let loads = all_by_one(4_000, 2);
        assert!(loads[0] <= 2 * loads[1] + 17, "{loads:?}");
    }

    #[test]
    fn small_differences_are_made_up_for_at_a_pace() {
        let began = Instant::now();
        let mut balance = Balance::new(began);
        let over = |balance: &mut Balance, now| {
            (0..1_000).filter(|_| balance.hands_over(3, 1, now)).count()
        };
        assert_eq!(over(&mut balance, began), BURST as usize);
        assert_eq!(over(&mut balance, began + PACE), 1);
        assert_eq!(over(&mut balance, began + 10 * PACE), 9);
        assert_eq!(over(&mut balance, began + Duration::from_secs(3_600)), BURST as usize);
    }

    #[test]
    fn equals_keep_what_they_have_accepted() {
        let now = Instant::now();
        let mut balance = Balance::new(now);
        for (own, others) in [(0, 0), (5, 5), (0, 9), (112, 100), (1_125, 1_000)] {
            assert!(!balance.hands_over(own, others, now), "{own} {others}");
        }
        assert!(balance.hands_over(113, 100, now));
    }
}
