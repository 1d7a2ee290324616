//! Which of several targets a flow tries first, and which then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::config::{Choice, Kind, Target};

/// Orders the targets of a route for each flow. All threads share it; none waits for another.
///
/// [`Choice::FirstHealthy`] puts a target that failed behind the others: for one second at first, then for
/// twice as long each time, 30 s at most. After that one flow tries it first, and the others do so only
/// when that one has connected: so a silent target costs its time-out to one flow each time, not to all.
/// A target that cannot be reached stays in the order, at its end.
#[derive(Debug)]
pub(crate) struct Chooser {
    targets: Vec<Arc<Target>>,
    choice: Choice,
    /// How many orders were made.
    flows: AtomicUsize,
    /// How each target stands: see [`Health`].
    healths: Vec<AtomicU64>,
    began: Instant,
}

impl Chooser {
    /// A chooser for the targets of a route; one without fixed targets has none.
    pub(crate) fn new(kind: &Kind) -> Self {
        let (targets, choice) = match kind {
            Kind::Forward(forward) => {
                (forward.targets.iter().cloned().map(Arc::new).collect(), forward.choice)
            }
            _ => (Vec::new(), Choice::default()),
        };
        Self {
            healths: targets.iter().map(|_| AtomicU64::new(Health::GOOD.packed())).collect(),
            targets,
            choice,
            flows: AtomicUsize::new(0),
            began: Instant::now(),
        }
    }

    /// The targets for the next flow, in the order in which they are to be tried.
    pub(crate) fn order(&self) -> Vec<Arc<Target>> {
        if let [only] = &self.targets[..] {
            return vec![Arc::clone(only)];
        }
        let order = self.order_at(self.began.elapsed());
        order.into_iter().map(|number| Arc::clone(&self.targets[number])).collect()
    }

    /// A flow connected to this target, or failed to. A target of another route is ignored.
    pub(crate) fn report(&self, target: &Target, connected: bool) {
        // The other choices do not use it.
        if self.choice == Choice::FirstHealthy {
            let now = self.began.elapsed();
            let numbers =
                (0..self.targets.len()).filter(|number| *self.targets[*number] == *target);
            numbers.for_each(|number| self.report_at(number, connected, now));
        }
    }

    fn order_at(&self, now: Duration) -> Vec<usize> {
        let all = 0..self.targets.len();
        match self.choice {
            _ if all.len() < 2 => all.collect(),
            Choice::RoundRobin => {
                let first = self.flows.fetch_add(1, Ordering::Relaxed) % all.len();
                (first..all.len()).chain(0..first).collect()
            }
            Choice::FirstHealthy => {
                let is_first = |number: &usize| self.is_good(*number) || self.is_due(*number, now);
                let first = all.clone().find(is_first);
                let others = || all.clone().filter(|number| Some(*number) != first);
                let good = others().filter(|number| self.is_good(*number));
                let mut order: Vec<usize> = first.into_iter().chain(good).collect();
                // Compared with the order itself: a target's health may have changed meanwhile.
                let rest: Vec<usize> = others().filter(|number| !order.contains(number)).collect();
                order.extend(rest);
                order
            }
        }
    }

    fn report_at(&self, number: usize, connected: bool, now: Duration) {
        let health = &self.healths[number];
        let (old, now) = (Health::of(health.load(Ordering::Relaxed)), Moment::of(now));
        let new = if connected { Health::GOOD } else { old.after_failure(now) };
        if old != new {
            // Another report at the same moment is as good.
            let _ = health.compare_exchange(
                old.packed(),
                new.packed(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    fn is_good(&self, number: usize) -> bool {
        self.healths[number].load(Ordering::Relaxed) == Health::GOOD.packed()
    }

    /// Whether this flow is the one that tries the target again.
    fn is_due(&self, number: usize, now: Duration) -> bool {
        let health = &self.healths[number];
        let old = Health::of(health.load(Ordering::Relaxed));
        let Some(new) = old.on_trial(Moment::of(now)) else { return false };
        health
            .compare_exchange(old.packed(), new.packed(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// A time in milliseconds, of which 56 bits are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

impl Moment {
    fn of(time: Duration) -> Self {
        Self(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(u64::MAX >> 8))
    }

    fn after(self, delay: Duration) -> Self {
        Self::of(Duration::from_millis(self.0).saturating_add(delay))
    }
}

/// How a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Health {
    /// How many failures in a row have counted; 0 while it is good.
    failures: u8,
    /// Until when it is behind the others.
    until: Moment,
}

impl Health {
    const GOOD: Self = Self { failures: 0, until: Moment(0) };

    fn of(packed: u64) -> Self {
        let [failures, ..] = packed.to_le_bytes();
        Self { failures, until: Moment(packed >> 8) }
    }

    fn packed(self) -> u64 {
        self.until.0 << 8 | u64::from(self.failures)
    }

    /// A flow failed. A failure while it is behind says nothing new: that flow began before, or had no
    /// other target left.
    fn after_failure(self, now: Moment) -> Self {
        if self != Self::GOOD && now < self.until { self } else { self.put_behind(now) }
    }

    /// The health while one flow tries it again; `None` where none should. For all other flows it stays
    /// behind, as long as after another failure.
    fn on_trial(self, now: Moment) -> Option<Self> {
        (self != Self::GOOD && now >= self.until).then(|| self.put_behind(now))
    }

    fn put_behind(self, now: Moment) -> Self {
        let failures = self.failures.saturating_add(1);
        let doubled = SHORTEST.saturating_mul(1 << (failures - 1).min(16));
        Self { failures, until: now.after(doubled.min(LONGEST)) }
    }
}

/// How long a target that failed is behind, the first time.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long it is behind at most.
const LONGEST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{Forward, Users};

    fn chooser(count: u16, choice: Choice) -> Chooser {
        let target = |port| Target { host: "db.example".to_owned(), port };
        Chooser::new(&Kind::Forward(Forward { targets: (1..=count).map(target).collect(), choice }))
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn in_turn_each_is_first_as_often() {
        let chooser = chooser(3, Choice::RoundRobin);
        let ports = || chooser.order().iter().map(|target| target.port).collect::<Vec<_>>();
        assert_eq!([ports(), ports(), ports()], [[1, 2, 3], [2, 3, 1], [3, 1, 2]]);
        let first = chooser.order()[0].clone();
        chooser.report(&first, false);
        assert_eq!(ports(), [2, 3, 1], "nobody is passed over");
    }

    #[test]
    fn threads_share_the_turns() {
        let chooser = chooser(4, Choice::RoundRobin);
        let firsts = || (0..1000).map(|_| chooser.order_at(ms(0))[0]).collect::<Vec<_>>();
        let firsts: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(firsts)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        for target in 0..4 {
            assert_eq!(firsts.iter().filter(|first| **first == target).count(), 1000);
        }
    }

    #[test]
    fn one_that_failed_is_behind_for_longer_each_time() {
        let chooser = chooser(3, Choice::FirstHealthy);
        assert_eq!(chooser.order_at(ms(0)), [0, 1, 2]);
        chooser.report_at(0, false, ms(5));
        let mut now = 5;
        for delay in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            // All that fail at once count for one.
            chooser.report_at(0, false, ms(now + 1));
            assert_eq!(chooser.order_at(ms(now + delay - 1)), [1, 2, 0]);
            now += delay;
            assert_eq!(chooser.order_at(ms(now)), [0, 1, 2], "one flow tries it");
            assert_eq!(chooser.order_at(ms(now)), [1, 2, 0], "and the others do not");
        }
        chooser.report_at(0, true, ms(now));
        assert_eq!(chooser.order_at(ms(now)), [0, 1, 2]);
        chooser.report_at(0, false, ms(now));
        assert_eq!(chooser.order_at(ms(now + 1_000)), [0, 1, 2], "it begins anew");
    }

    #[test]
    fn where_all_failed_the_order_is_that_of_the_route() {
        let chooser = chooser(3, Choice::FirstHealthy);
        for number in [2, 1, 0] {
            chooser.report_at(number, false, ms(0));
        }
        assert_eq!(chooser.order_at(ms(1)), [0, 1, 2]);
        chooser.report_at(2, true, ms(1));
        assert_eq!(chooser.order_at(ms(1)), [2, 0, 1]);
    }

    #[test]
    fn reports_name_the_target() {
        let chooser = chooser(2, Choice::FirstHealthy);
        let [first, second] =
            [1, 2].map(|port| Arc::new(Target { host: "db.example".to_owned(), port }));
        chooser.report(&Target { host: "elsewhere".to_owned(), port: 1 }, false);
        assert_eq!(chooser.order(), [first.clone(), second.clone()]);
        chooser.report(&first, false);
        assert_eq!(chooser.order(), [second, first]);
        let none = Chooser::new(&Kind::Socks5(Users::default()));
        none.report(&Target { host: "a".to_owned(), port: 1 }, false);
        assert!(none.order().is_empty());
    }

    proptest! {
        #[test]
        fn every_order_has_all_the_good_ones_first(
            steps in prop::collection::vec((0..5_usize, any::<bool>(), 0..20_000_u64), 1..60),
        ) {
            let chooser = chooser(5, Choice::FirstHealthy);
            let mut now = 0;
            // How each would stand if nobody tried again: behind since then, or good.
            let mut failed = [None; 5];
            for (number, connected, later) in steps {
                now += later;
                chooser.report_at(number, connected, ms(now));
                failed[number] = if connected { None } else { Some(now) };
                let order = chooser.order_at(ms(now));
                let mut sorted = order.clone();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, [0, 1, 2, 3, 4]);
                // The first may be on trial; of the rest the good ones lead, in their order.
                let good = |number: &usize| failed[*number].is_none();
                let rest: Vec<bool> = order[1..].iter().map(good).collect();
                prop_assert!(rest.is_sorted_by_key(|good| !good), "{:?}", order);
                prop_assert!(order[1..].iter().filter(|number| good(number)).is_sorted());
                if !good(&order[0]) && failed.iter().any(Option::is_none) {
                    let on_trial = Health::of(chooser.healths[order[0]].load(Ordering::Relaxed));
                    prop_assert!(on_trial.until > Moment::of(ms(now)), "one flow at a time");
                }
            }
            // None is behind for ever.
            let trials: Vec<usize> = (1..=200).map(|second| {
                chooser.order_at(ms(now) + LONGEST + Duration::from_secs(second))[0]
            }).collect();
            for number in (0..5).take_while(|number| failed[*number].is_some()) {
                prop_assert!(trials.contains(&number), "{} in {:?}", number, trials);
            }
        }

        #[test]
        fn a_health_fits_in_a_word(failures in any::<u8>(), until in any::<u64>()) {
            let health = Health { failures, until: Moment::of(ms(until)) };
            prop_assert_eq!(Health::of(health.packed()), health);
            let later = health.put_behind(Moment::of(ms(until)));
            prop_assert!(later.until >= health.until && later.failures >= failures);
        }
    }
}
