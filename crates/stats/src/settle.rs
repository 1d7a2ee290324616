//! When an experiment may stop: which subject is best, and which differ from it significantly.
//!
//! Several subjects run in rounds, once each in a round, under the same conditions. After each
//! round, from [`Rule::least_rounds`] on, every open subject is compared with the best, which is
//! the one with the highest median among the open ones:
//!
//! - **Worse**: the difference is significant, and large enough to matter (at least
//!   [`Rule::least`]). It is significant if one of two tests says so after the corrections below.
//!   One is the exact rank test ([`p_value`]), which is robust against outliers. The other is
//!   Student's test of the logarithms of the ratios by round ([`paired_p_value`]), which is robust
//!   against drift and needs the fewest rounds. As it assumes normal noise, it counts only if a
//!   test without assumptions agrees at a laxer level: the rank test or the sign test at `alpha`
//!   divided by the number of rivals. Otherwise, with two kinds of runs, fast and slow, one subject
//!   could by chance have only fast ones.
//! - **Alike**: the interval of the ratio to the best ([`paired_ratio_interval`]) lies within
//!   [`Rule::alike`] of 1. A difference that is significant but below [`Rule::least`] ends here
//!   too.
//! - **Open**: neither. It runs again, and the best with it. The others do not: successive
//!   elimination, as by Even-Dar, Mannor and Mansour, "Action Elimination and Stopping Conditions
//!   for the Multi-Armed Bandit and Reinforcement Learning Problems", JMLR 7 (2006), 1079-1105.
//!
//! Many looks at many subjects find a difference by chance sooner or later, so `alpha`, the
//! probability of any false claim, is divided (Bonferroni):
//!
//! - by the number of looks, one a round;
//! - by the number of *pairs* of subjects not yet found worse. The best was chosen from the same
//!   samples, so comparing it with the rest amounts to comparing all with all. A subject found
//!   worse leaves the count, the clearest first (step down: Holm, "A Simple Sequentially Rejective
//!   Multiple Test Procedure", Scandinavian Journal of Statistics 6 (1979), 65-70; Shaffer,
//!   "Modified Sequentially Rejective Multiple Test Procedures", JASA 81 (1986), 826-831);
//! - by the two tests.
//!
//! Calling subjects alike is a second claim with an `alpha` of its own: two one-sided tests
//! (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), 657-680), divided by the
//! looks and by the rivals.
//!
//! With 5 rounds the rank test's p is at least 0.008, so that with many subjects a claim needs more
//! rounds. That is intended.
//!
//! Simulated with the default rule (`the_table_of_rates` below): of experiments with 2 or 9 equal
//! subjects, at most 2.1 % claimed a difference, whether noise was 0.5, 2, 10 or 30 %, with drift,
//! stray runs or two kinds of runs. One of two with 10 % more and noise up to 2 % was found in all
//! of 2000, after 5.2 rounds on average; if 1 of 10 runs is 30 % lower, in 80 % (the rest end open
//! after 10 rounds: allow more). With 10 % noise, 10 rounds detect 10 % in a quarter of cases, 30 %
//! in 99 %. Equal subjects are found alike after 5 rounds with 0.5 % noise; two with 2 % noise
//! after 6.3; with 10 % noise never.

use crate::{Interval, p_value, paired_p_value, paired_ratio_interval, pairs::sign_p_value};
use crate::{quantile, summary::sorted};

/// When to stop, and what counts as a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// After how many rounds the first look is taken; at least 2. With fewer than 4 rounds nothing
    /// is found worse at an `alpha` of 0.05, whatever the samples.
    pub least_rounds: usize,
    /// After how many rounds the last look is taken; not below `least_rounds`. More possible looks
    /// make each of them stricter.
    pub most_rounds: usize,
    /// The probability, above 0 and below 1, of any claim of a difference between subjects that are
    /// all equal.
    pub alpha: f64,
    /// How far from 1 a ratio may be to count as alike: above 0, below 1.
    pub alike: f64,
    /// How far below 1 a ratio must be to count as worse: at least 0, below 1.
    pub least: f64,
}

impl Default for Rule {
    /// 5 to 10 rounds; a false claim in 1 of 20 experiments; within 5 % is alike, below 2 % does
    /// not matter.
    fn default() -> Self {
        Self { least_rounds: 5, most_rounds: 10, alpha: 0.05, alike: 0.05, least: 0.02 }
    }
}

impl Rule {
    fn is_sound(&self) -> bool {
        let share = |value: f64| value > 0.0 && value < 1.0;
        self.least_rounds >= 2
            && self.least_rounds <= self.most_rounds
            && share(self.alpha)
            && share(self.alike)
            && (share(self.least) || self.least == 0.0)
    }

    fn looks(&self) -> f64 {
        (self.most_rounds - self.least_rounds + 1) as f64
    }
}

/// The decision after some rounds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// How many rounds it is based on.
    pub rounds: usize,
    /// The subject with the highest median among those not found worse.
    pub best: usize,
    /// The standing of each subject, in their order.
    pub standings: Vec<Standing>,
    /// Whether no subject is open.
    pub settled: bool,
    /// Whether another round may decide more: not settled, and below [`Rule::most_rounds`].
    pub go_on: bool,
}

impl Decision {
    /// The open subjects.
    #[must_use]
    pub fn open(&self) -> Vec<usize> {
        let positions = self.standings.iter().enumerate();
        positions
            .filter(|(_, it)| it.position == Position::Open)
            .map(|(subject, _)| subject)
            .collect()
    }

    /// The subjects that must run in the next round: the open ones and the best; none once there is
    /// no need to go on.
    #[must_use]
    pub fn next(&self) -> Vec<usize> {
        let needed = |subject: &usize| {
            *subject == self.best || self.standings[*subject].position == Position::Open
        };
        if self.go_on { (0..self.standings.len()).filter(needed).collect() } else { Vec::new() }
    }
}

/// One subject compared with the best.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Standing {
    /// Its position.
    pub position: Position,
    /// The subject it was last compared with: itself for the best.
    pub against: usize,
    /// After how many rounds its position was decided. `None` for the best and for open ones.
    pub since: Option<usize>,
    /// The median ratio by round of its sample to that of `against`, a pure number. `None` before
    /// the first look, for the best, and without a common round in which `against` is above zero.
    pub ratio: Option<f64>,
    /// The confidence interval of the ratio, over all looks and all rivals together: it decides
    /// what is alike. As that is the weaker claim, it may exclude 1 a little before the subject is
    /// found worse.
    pub interval: Option<Interval>,
    /// The p-value, corrected for looks, pairs and tests: to be compared with [`Rule::alpha`].
    pub p_value: Option<f64>,
}

/// A subject's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Position {
    /// It has the highest median: the others are compared with it.
    Best,
    /// It is significantly lower than the best, by a difference that matters.
    Worse,
    /// It is as good as the best, within a difference that does not matter.
    Alike,
    /// Undecided.
    Open,
}

/// Decides from the samples of each subject, in the order of rounds, higher being better.
///
/// `samples[subject][round]` is `None` if the subject did not run in that round or the run is void;
/// a missing end means the same. All earlier looks are repeated, so that only the samples need to
/// be stored. Rounds after [`Rule::most_rounds`] are ignored.
///
/// After each round from [`Rule::least_rounds`] on, each open subject is compared with the best by
/// the exact rank test and by Student's test of the ratios by round; the p-values are corrected for
/// all looks, all pairs of subjects and both tests.
///
/// A subject found worse stays so. One found alike opens again if another becomes best and the two
/// are not alike.
///
/// `None` if there are no subjects, a sample is negative or not finite, or the rule is not sound.
#[must_use]
pub fn settle(samples: &[Vec<Option<f64>>], rule: &Rule) -> Option<Decision> {
    let allowed = |sample: &f64| sample.is_finite() && *sample >= 0.0;
    let all_allowed = samples.iter().flatten().flatten().all(allowed);
    if samples.is_empty() || !all_allowed || !rule.is_sound() {
        return None;
    }
    let rounds = samples.iter().map(Vec::len).max()?.min(rule.most_rounds);
    let mut looks = Looks::new(samples, rule);
    looks.choose_best(rounds.min(rule.least_rounds));
    for round in rule.least_rounds..=rounds {
        looks.look(round);
    }
    let settled = looks.standings.iter().all(|standing| standing.position != Position::Open);
    let go_on = !settled && rounds < rule.most_rounds;
    Some(Decision { rounds, best: looks.best, standings: looks.standings, settled, go_on })
}

/// The looks taken so far.
struct Looks<'a> {
    samples: &'a [Vec<Option<f64>>],
    rule: &'a Rule,
    best: usize,
    standings: Vec<Standing>,
}

impl<'a> Looks<'a> {
    fn new(samples: &'a [Vec<Option<f64>>], rule: &'a Rule) -> Self {
        let standings = (0..samples.len()).map(|subject| Standing::of(Position::Open, subject));
        Self { samples, rule, best: 0, standings: standings.collect() }
    }

    fn look(&mut self, round: usize) {
        self.choose_best(round);
        // The clearest first: each subject found worse weakens the correction for the rest.
        loop {
            let rivals = self.rivals();
            let tested = self
                .open()
                .map(|subject| (subject, self.compare_with_best(subject, round, rivals)));
            let tested: Vec<(usize, Standing)> = tested.collect();
            let chance = |standing: &Standing| standing.p_value.unwrap_or(1.0);
            let clear = tested.iter().filter(|(_, it)| it.position == Position::Worse);
            let clearest = clear.min_by(|x, y| chance(&x.1).total_cmp(&chance(&y.1)));
            if let Some((subject, standing)) = clearest {
                self.standings[*subject] = *standing;
            } else {
                for (subject, standing) in tested {
                    self.standings[subject] = standing;
                }
                break;
            }
        }
    }

    /// Chooses the best of the open subjects, after `round` rounds.
    fn choose_best(&mut self, round: usize) {
        let median = |subject: &usize| {
            let samples: Vec<f64> =
                self.samples[*subject].iter().take(round).flatten().copied().collect();
            sorted(&samples).and_then(|sorted| quantile(&sorted, 0.5))
        };
        let candidates = (0..self.samples.len())
            .filter(|it| matches!(self.standings[*it].position, Position::Open | Position::Best));
        let known = candidates.filter_map(|subject| Some((subject, median(&subject)?)));
        // The first of equal ones.
        let highest = known.reduce(|high, next| if next.1 > high.1 { next } else { high });
        let best = highest.map_or(self.best, |(subject, _)| subject);
        if best != self.best {
            for (subject, standing) in self.standings.iter_mut().enumerate() {
                if standing.position != Position::Worse {
                    *standing = Standing::of(Position::Open, subject);
                }
            }
        }
        self.best = best;
        self.standings[best] = Standing::of(Position::Best, best);
    }

    fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.standings.len()).filter(|it| self.standings[*it].position == Position::Open)
    }

    /// How many subjects besides the best are not found worse.
    fn rivals(&self) -> f64 {
        let left =
            self.standings.iter().filter(|standing| standing.position != Position::Worse).count();
        (left - 1) as f64
    }

    /// Compares an open subject with the best.
    fn compare_with_best(&self, subject: usize, round: usize, rivals: f64) -> Standing {
        let both = self.samples[subject].iter().zip(&self.samples[self.best]).take(round);
        let pairs: Vec<(f64, f64)> = both.filter_map(|(a, b)| a.zip(*b)).collect();
        let ratio = median_ratio(&pairs);
        let alike_alpha = self.rule.alpha / self.rule.looks() / rivals;
        let interval = paired_ratio_interval(&pairs, 1.0 - 2.0 * alike_alpha);
        let tests = 2.0 * self.rule.looks() * rivals * (rivals + 1.0) / 2.0;
        let p_value = lower_p_value(&pairs, self.rule.alpha / rivals)
            .map(|p_value| (p_value * tests).min(1.0));
        let worse = p_value.is_some_and(|p_value| p_value <= self.rule.alpha)
            && ratio.is_some_and(|ratio| ratio < 1.0 && ratio <= 1.0 - self.rule.least);
        let (low, high) = (1.0 - self.rule.alike, 1.0 + self.rule.alike);
        let alike = interval.is_some_and(|it| low <= it.low && it.high <= high);
        let position = match (worse, alike) {
            (true, _) => Position::Worse,
            (false, true) => Position::Alike,
            (false, false) => Position::Open,
        };
        let since = (position != Position::Open).then_some(round);
        Standing { position, against: self.best, since, ratio, interval, p_value }
    }
}

impl Standing {
    /// The standing of a subject before any comparison.
    fn of(position: Position, subject: usize) -> Self {
        let (ratio, interval) = (None, None);
        Self { position, against: subject, since: None, ratio, interval, p_value: None }
    }
}

fn median_ratio(pairs: &[(f64, f64)]) -> Option<f64> {
    let ratios = pairs.iter().map(|(a, b)| a / b).filter(|ratio| ratio.is_finite());
    sorted(&ratios.collect::<Vec<f64>>()).and_then(|ratios| quantile(&ratios, 0.5))
}

/// The smaller p-value of the two tests that the first of each pair is lower, not corrected; 1 if
/// it is not lower. `agree` is the level at which one of the tests without assumptions must agree
/// with Student's.
fn lower_p_value(pairs: &[(f64, f64)], agree: f64) -> Option<f64> {
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let balance = |(x, y): (f64, f64)| i32::from(x < y) - i32::from(x > y);
    let ranked = b.iter().flat_map(|y| a.iter().map(move |x| (*x, *y))).map(balance).sum::<i32>();
    let signed = pairs.iter().copied().map(balance).sum::<i32>();
    let if_lower = |lower: bool, p: f64| if lower { p } else { 1.0 };
    let rank = if_lower(ranked > 0, p_value(&a, &b)?);
    let sign = if_lower(signed > 0, sign_p_value(pairs));
    // Pairs with a zero have no logarithm: then only the rank test applies.
    let student = paired_p_value(pairs).filter(|_| rank.min(sign) <= agree);
    let mean_lower = || pairs.iter().map(|(a, b)| (a / b).ln()).sum::<f64>() < 0.0;
    Some(student.filter(|_| mean_lower()).unwrap_or(1.0).min(rank))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bootstrap::SplitMix64;

    /// What a made-up experiment is made of.
    #[derive(Clone, Copy)]
    struct Made {
        /// The true rates of the subjects.
        rates: &'static [f64],
        /// The standard deviation of the logarithm of a run's factor.
        noise: f64,
        kind: Kind,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        Plain,
        /// 1 % up or down a round.
        Drift,
        /// 1 of 10 runs is 30 % lower.
        Tails,
        /// Both of these.
        Both,
        /// Every second run, by chance, is 20 % lower.
        Twofold,
    }

    /// How many of many made-up experiments ended in which way.
    #[derive(Debug, Default)]
    struct Ends {
        /// Any subject told worse that is as good as any.
        false_worse: f64,
        /// Any subject told alike that is not.
        false_alike: f64,
        /// All that are lower told worse than the true best, and nothing false.
        right: f64,
        settled: f64,
        rounds: f64,
        runs: f64,
    }

    impl Made {
        fn run(self, random: &mut SplitMix64, trend: f64, round: usize, subject: usize) -> f64 {
            let mut log = self.rates[subject].ln() + self.noise * random.normal();
            if matches!(self.kind, Kind::Drift | Kind::Both) {
                log += trend * round as f64;
            }
            if matches!(self.kind, Kind::Tails | Kind::Both) && random.share() < 0.1 {
                log += 0.7_f64.ln();
            }
            if self.kind == Kind::Twofold && random.share() < 0.5 {
                log += 0.8_f64.ln();
            }
            log.exp()
        }

        /// Runs one experiment as the rule says, and how many runs it took.
        fn experiment(self, random: &mut SplitMix64, rule: &Rule) -> (Decision, usize) {
            let mut samples = vec![Vec::new(); self.rates.len()];
            let trend = if random.share() < 0.5 { 0.01 } else { -0.01 };
            let mut decision = settle(&samples, rule).unwrap();
            let mut runs = 0;
            while decision.go_on {
                let next = decision.next();
                runs += next.len();
                for (subject, samples) in samples.iter_mut().enumerate() {
                    let run = self.run(random, trend, decision.rounds, subject);
                    samples.push(next.contains(&subject).then_some(run));
                }
                decision = settle(&samples, rule).unwrap();
            }
            (decision, runs)
        }

        fn ends(self, experiments: usize, rule: &Rule) -> Ends {
            let mut random = SplitMix64(2026);
            let mut ends = Ends::default();
            let top = self.rates.iter().copied().fold(0.0, f64::max);
            let one = 100.0 / experiments as f64;
            for _ in 0..experiments {
                let (decision, runs) = self.experiment(&mut random, rule);
                let decided = |position| {
                    let standings = decision.standings.iter().enumerate();
                    standings.filter(move |(_, it)| it.position == position)
                };
                let false_worse = decided(Position::Worse)
                    .any(|(it, decided)| self.rates[it] >= self.rates[decided.against]);
                let false_alike = decided(Position::Alike).any(|(it, decided)| {
                    (self.rates[it] / self.rates[decided.against] - 1.0).abs() > rule.alike
                });
                let found_worse = |it: usize| decision.standings[it].position == Position::Worse;
                let right =
                    (0..self.rates.len()).all(|it| found_worse(it) == (self.rates[it] < top));
                ends.false_worse += if false_worse { one } else { 0.0 };
                ends.false_alike += if false_alike { one } else { 0.0 };
                ends.right += if right { one } else { 0.0 };
                ends.settled += if decision.settled { one } else { 0.0 };
                ends.rounds += decision.rounds as f64 * one / 100.0;
                ends.runs += runs as f64 * one / 100.0;
            }
            ends
        }
    }

    const KINDS: [Kind; 5] = [Kind::Plain, Kind::Drift, Kind::Tails, Kind::Both, Kind::Twofold];
    const NOISES: [f64; 4] = [0.005, 0.02, 0.1, 0.3];

    fn of(samples: &[&[f64]]) -> Vec<Vec<Option<f64>>> {
        samples.iter().map(|subject| subject.iter().copied().map(Some).collect()).collect()
    }

    fn positions(decision: &Decision) -> Vec<Position> {
        decision.standings.iter().map(|standing| standing.position).collect()
    }

    const FAST: [f64; 6] = [110.0, 111.0, 109.0, 110.5, 109.5, 110.0];
    const SLOW: [f64; 6] = [100.0, 101.0, 99.5, 100.5, 99.0, 100.2];
    const MIDDLE: [f64; 6] = [109.8, 111.3, 109.4, 110.2, 109.3, 110.1];

    #[test]
    fn clear_differences_are_told_at_the_first_look() {
        let rule = Rule::default();
        let decision = settle(&of(&[&SLOW[..4], &FAST[..4], &MIDDLE[..4]]), &rule).unwrap();
        assert_eq!(positions(&decision), [Position::Open, Position::Best, Position::Open]);
        assert_eq!((decision.settled, decision.go_on), (false, true));
        assert_eq!((decision.open(), decision.next()), (vec![0, 2], vec![0, 1, 2]));
        let decision = settle(&of(&[&SLOW[..5], &FAST[..5], &MIDDLE[..5]]), &rule).unwrap();
        assert_eq!(positions(&decision), [Position::Worse, Position::Best, Position::Alike]);
        assert_eq!((decision.rounds, decision.best, decision.settled), (5, 1, true));
        assert_eq!((decision.go_on, decision.next()), (false, vec![]));
        let worse = decision.standings[0];
        assert_eq!((worse.against, worse.since), (1, Some(5)));
        assert!((worse.ratio.unwrap() - 100.5 / 110.5).abs() < 1e-3, "{worse:?}");
        assert!(worse.p_value.unwrap() < 0.05, "{worse:?}");
        assert!(worse.interval.unwrap().high < 0.95, "{worse:?}");
    }

    #[test]
    fn certain_and_not_worth_it_is_alike() {
        let steady = [100.0, 100.1, 99.9, 100.2, 99.8];
        let samples = of(&[&steady, &steady.map(|sample| sample * 0.99 + 0.01)]);
        let decision = settle(&samples, &Rule::default()).unwrap();
        assert_eq!(positions(&decision), [Position::Best, Position::Alike]);
        assert!(decision.standings[1].p_value.unwrap() < 0.05);
        let rule = Rule { least: 0.0, ..Rule::default() };
        assert_eq!(positions(&settle(&samples, &rule).unwrap())[1], Position::Worse);
    }

    #[test]
    fn whoever_is_told_need_not_run_again() {
        let wild = [105.0, 60.0, 108.0, 70.0, 109.0, 80.0];
        let mut samples = of(&[&FAST, &SLOW, &wild]);
        samples[1].truncate(5);
        let decision = settle(&samples, &Rule::default()).unwrap();
        assert_eq!(decision.best, 0);
        assert_eq!(decision.standings[1].since, Some(5));
        assert_eq!((decision.open(), decision.next()), (vec![2], vec![0, 2]));
    }

    #[test]
    fn one_told_alike_opens_again_under_another_best() {
        // Alike to the first, which the third overtakes later.
        let first = [100.0, 100.2, 99.8, 100.1, 99.9, 100.0, 100.0, 100.1, 99.9, 100.0, 100.0];
        let second = first.map(|sample| sample * 0.999);
        let third = [90.0, 95.0, 98.0, 91.0, 130.0, 128.0, 131.0, 129.0, 130.0, 131.0, 130.0];
        let rule = Rule { most_rounds: 11, ..Rule::default() };
        let mut samples = of(&[&first, &second, &third]);
        samples[1].truncate(5);
        let before: Vec<_> = samples.iter().map(|it| it[..5].to_vec()).collect();
        let decision = settle(&before, &rule).unwrap();
        assert_eq!(positions(&decision), [Position::Best, Position::Alike, Position::Open]);
        let decision = settle(&samples, &rule).unwrap();
        assert_eq!((decision.best, decision.standings[1].position), (2, Position::Open));
        assert_eq!(decision.standings[1].against, 2);
    }

    #[test]
    fn void_runs_leave_their_round_out() {
        let mut samples = of(&[&FAST, &SLOW]);
        samples[0][1] = None;
        samples[1][4] = None;
        // Four common rounds of six are few, but here enough for both tests together.
        let decision = settle(&samples, &Rule::default()).unwrap();
        assert_eq!(decision.rounds, 6);
        let standing = decision.standings[1];
        assert!((standing.ratio.unwrap() - 0.911).abs() < 0.002, "{standing:?}");
        samples[1] = vec![None; 6];
        let decision = settle(&samples, &Rule::default()).unwrap();
        assert_eq!(
            (positions(&decision), decision.go_on),
            (vec![Position::Best, Position::Open], true)
        );
        assert_eq!(decision.standings[1].p_value, None);
    }

    #[test]
    fn a_subject_that_gets_nothing_across_is_worse() {
        let decision = settle(&of(&[&[0.0; 8], &[5.0; 8]]), &Rule::default()).unwrap();
        assert_eq!(positions(&decision), [Position::Worse, Position::Best]);
        let decision = settle(&of(&[&[0.0; 12], &[0.0; 12]]), &Rule::default()).unwrap();
        assert_eq!((positions(&decision)[1], decision.rounds), (Position::Open, 10));
        assert!(!decision.settled && !decision.go_on);
    }

    #[test]
    fn one_subject_is_settled_and_odd_input_is_not_taken() {
        let rule = Rule::default();
        let alone = settle(&of(&[&[]]), &rule).unwrap();
        assert_eq!((alone.settled, alone.go_on, alone.best), (true, false, 0));
        assert_eq!(settle(&[], &rule), None);
        for odd in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(settle(&of(&[&[1.0], &[odd]]), &rule), None);
        }
        for rule in [
            Rule { least_rounds: 1, ..rule },
            Rule { most_rounds: 4, ..rule },
            Rule { alpha: 0.0, ..rule },
            Rule { alpha: f64::NAN, ..rule },
            Rule { alike: 1.0, ..rule },
            Rule { least: -0.1, ..rule },
        ] {
            assert_eq!(settle(&of(&[&FAST, &SLOW]), &rule), None, "{rule:?}");
        }
    }

    /// A few of the experiments of the table below.
    #[test]
    fn equal_subjects_are_not_told_apart() {
        for kind in KINDS {
            for noise in [0.02, 0.3] {
                let ends = Made { rates: &[1.0; 2], noise, kind }.ends(120, &Rule::default());
                assert!(ends.false_worse <= 5.0, "{kind:?} {noise}: {ends:?}");
            }
            let ends = Made { rates: &[1.0; 9], noise: 0.02, kind }.ends(12, &Rule::default());
            assert!(ends.false_worse < 10.0, "{kind:?}, 9 subjects: {ends:?}");
        }
    }

    #[test]
    fn a_tenth_more_is_told() {
        for kind in [Kind::Plain, Kind::Drift] {
            for noise in [0.005, 0.02] {
                let ends = Made { rates: &[1.0, 1.1], noise, kind }.ends(120, &Rule::default());
                assert!(ends.right >= 95.0 && ends.rounds < 6.0, "{kind:?} {noise}: {ends:?}");
            }
        }
    }

    #[test]
    #[ignore = "minutes of arithmetic: the whole table of rates"]
    fn the_table_of_rates() {
        // Ten times as many where the code is optimised.
        const TIMES: usize = if cfg!(debug_assertions) { 1 } else { 10 };
        const NINE: [f64; 9] = [1.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        const STAIRS: [f64; 9] = [1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.76];
        let cases: [(&str, &'static [f64], usize); 7] = [
            ("2 equal", &[1.0; 2], 400),
            ("9 equal", &[1.0; 9], 100),
            ("2, +3 %", &[1.0, 1.03], 100),
            ("2, +10 %", &[1.0, 1.1], 200),
            ("2, +30 %", &[1.0, 1.3], 100),
            ("9, one +10 %", &NINE, 50),
            ("9 stairs of 3 %", &STAIRS, 50),
        ];
        for (name, rates, experiments) in cases {
            for kind in KINDS {
                for noise in NOISES {
                    let ends =
                        Made { rates, noise, kind }.ends(experiments * TIMES, &Rule::default());
                    eprintln!("{name:16} {kind:8?} {noise:5} {ends:6.2?}");
                    assert!(ends.false_worse <= 5.0, "{name} {kind:?} {noise}: {ends:?}");
                    assert!(ends.false_alike <= 5.0, "{name} {kind:?} {noise}: {ends:?}");
                }
            }
        }
    }

    fn any_samples() -> impl Strategy<Value = Vec<Vec<Option<f64>>>> {
        let sample = prop::option::weighted(0.9, 1.0..200.0);
        prop::collection::vec(prop::collection::vec(sample, 0..12), 1..6)
    }

    proptest! {
        #[test]
        fn a_decision_is_of_one_piece(samples in any_samples()) {
            let decision = settle(&samples, &Rule::default()).unwrap();
            let bests = positions(&decision).iter().filter(|position| **position == Position::Best).count();
            prop_assert_eq!(bests, 1);
            prop_assert_eq!(decision.standings[decision.best].position, Position::Best);
            prop_assert_eq!(decision.settled, decision.open().is_empty());
            prop_assert_eq!(decision.go_on, !decision.next().is_empty());
            for standing in &decision.standings {
                let decided = matches!(standing.position, Position::Worse | Position::Alike);
                prop_assert_eq!(decided, standing.since.is_some());
                if standing.position == Position::Worse {
                    prop_assert!(standing.p_value.unwrap() <= 0.05);
                    prop_assert!(standing.ratio.unwrap() <= 0.98);
                }
            }
        }

        #[test]
        fn what_is_told_worse_stays_so(samples in any_samples(), round in 0_usize..12) {
            let cut = |it: &Vec<Option<f64>>| it.iter().take(round).copied().collect::<Vec<_>>();
            let before: Vec<_> = samples.iter().map(cut).collect();
            let before = settle(&before, &Rule::default()).unwrap();
            let after = settle(&samples, &Rule::default()).unwrap();
            for (before, after) in before.standings.iter().zip(&after.standings) {
                prop_assert!(before.position != Position::Worse || before == after);
            }
        }

        #[test]
        fn the_unit_does_not_matter(samples in any_samples(), power in -20..20) {
            let unit = 2.0_f64.powi(power);
            let scale = |it: &Vec<Option<f64>>| it.iter().map(|x| x.map(|x| x * unit)).collect();
            let scaled: Vec<Vec<Option<f64>>> = samples.iter().map(scale).collect();
            prop_assert_eq!(settle(&samples, &Rule::default()), settle(&scaled, &Rule::default()));
        }
    }
}
