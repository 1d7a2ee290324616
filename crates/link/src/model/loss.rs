//! Which packets are lost.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use super::uniform;
use crate::spec::BurstLoss;

/// Independent trials: it draws the number of packets until the next hit, not the fate of each, so that
/// a run of packets passes without a decision.
#[derive(Clone, Debug)]
pub(super) struct Bernoulli {
    random: Pcg64Mcg,
    /// `ln(1 - p)`: 0 for a share too small to tell from none, minus infinity for all.
    ln_pass: f64,
    until_next: u64,
}

impl Bernoulli {
    /// `None` for a share of 0.
    pub(super) fn new(share: f64, random: Pcg64Mcg) -> Option<Self> {
        if share <= 0.0 {
            return None;
        }
        let mut gaps = Self { random, ln_pass: (-share).ln_1p(), until_next: 0 };
        gaps.until_next = gaps.draw();
        Some(gaps)
    }

    /// Whether this packet is hit.
    pub(super) fn hits(&mut self) -> bool {
        if self.until_next > 0 {
            self.until_next -= 1;
            return false;
        }
        self.until_next = self.draw();
        true
    }

    /// If this packet is hit, a random number that chooses where.
    pub(super) fn hit_at(&mut self) -> Option<u64> {
        self.hits().then(|| self.random.next_u64())
    }

    /// How many of `packets` pass before a hit; consumes these, and the one that is hit.
    pub(super) fn passes(&mut self, packets: u32) -> u32 {
        match u32::try_from(self.until_next) {
            Ok(passed) if passed < packets => {
                self.until_next = self.draw();
                passed
            }
            _ => {
                self.until_next -= u64::from(packets);
                packets
            }
        }
    }

    /// A geometric number by inversion (Devroye 1986, chapter X.2): packets that pass before a hit.
    fn draw(&mut self) -> u64 {
        let gap = uniform(&mut self.random).ln() / self.ln_pass;
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is not negative")]
        #[expect(clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let gap = gap.floor() as u64;
        gap
    }
}

/// Loss in bursts (Gilbert 1960): a good state in which nothing is lost, and a bad one in which each
/// packet is lost with the same probability, often 1. The state may change before each packet.
#[derive(Clone, Debug)]
pub(super) struct Bursts {
    random: Pcg64Mcg,
    bad: bool,
    enter: f64,
    leave: f64,
    /// The probability of a loss in the bad state.
    in_burst: f64,
}

impl Bursts {
    /// `None` for a share of 0.
    pub(super) fn new(bursts: BurstLoss, random: Pcg64Mcg) -> Option<Self> {
        let in_burst = bursts.in_burst.fraction();
        if bursts.share.fraction() <= 0.0 {
            return None;
        }
        // The share of packets in the bad state; `Spec::check` keeps it at most 1.
        let share = (bursts.share.fraction() / in_burst).min(1.0);
        // The bad state lasts 1 / leave packets on average; its share of all is
        // enter / (enter + leave).
        let leave = 1.0 / bursts.packets;
        let enter = if share < 1.0 { leave * share / (1.0 - share) } else { 1.0 };
        let leave = if share < 1.0 { leave } else { 0.0 };
        Some(Self { random, bad: false, enter, leave, in_burst })
    }

    /// Whether this packet is lost.
    pub(super) fn hits(&mut self) -> bool {
        let change = if self.bad { self.leave } else { self.enter };
        // `uniform` is in (0, 1]: a probability of 1 always hits, one of 0 never.
        if change > 0.0 && uniform(&mut self.random) <= change {
            self.bad = !self.bad;
        }
        self.bad && (self.in_burst >= 1.0 || uniform(&mut self.random) <= self.in_burst)
    }
}

/// Loss of every n-th packet.
#[derive(Clone, Debug)]
pub(super) struct EveryNth {
    every: u64,
    passed: u64,
}

impl EveryNth {
    pub(super) fn new(every: u64) -> Self {
        Self { every: every.max(1), passed: 0 }
    }

    /// Whether this packet is lost.
    pub(super) fn hits(&mut self) -> bool {
        self.passed += 1;
        if self.passed < self.every {
            return false;
        }
        self.passed = 0;
        true
    }
}
