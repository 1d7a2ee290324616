//! From runs to a table and a recommendation.

use lastbyte_link::Way;
use lastbyte_stats::{Decision, Position, Rule, Standing, Summary, Verdict, compare, settle};

use crate::latency::Responsiveness;
use crate::record::{Experiment, Limited, Run};
use crate::setting::{Buffers, Direction, Setting, Settings};
use crate::share::Share;

/// Subjects whose medians differ by less than this share are called alike: runs of one subject on a
/// shared machine differ by about as much.
const ALIKE: f64 = 0.10;

/// Congestion controls that reduce their rate at a loss as cubic does, and so share with it (RFC
/// 9438 section 1, RFC 5681). For all others that has to be measured.
pub const SHARE_LIKE_CUBIC: [&str; 2] = ["cubic", "reno"];

/// The table, in the order of the plan, and the conclusions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// One row per subject with at least one run that counts.
    pub rows: Vec<Row>,
    /// Which subject is best, and which differ from it; `None` for fewer than two rounds.
    pub order: Option<Order>,
    /// The recommendation; `None` if there is nothing to choose between.
    pub recommendation: Option<Recommendation>,
}

/// The runs of one subject. Rates in bit/s.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The subject's index in the plan.
    pub subject: usize,
    /// What it is.
    pub setting: Setting,
    /// Rates at the receiver.
    pub received: Summary,
    /// The rate of each run.
    pub samples: Vec<f64>,
    /// How it compares with the best: see [`lastbyte_stats::settle()`].
    pub standing: Option<Standing>,
    /// For the best: how the next best compares with it.
    pub next: Option<Standing>,
    /// The most TCP payload that the path can carry, if it has a rate.
    pub limit_bits_per_s: Option<f64>,
    /// The median of the rates by the senders' `write` calls.
    pub claimed: f64,
    /// Runs in which every byte written was received and proven.
    pub complete: usize,
    /// Bytes written in all runs.
    pub written: u64,
    /// Bytes received in all runs.
    pub received_bytes: u64,
    /// The median share of retransmitted bytes.
    pub resent: Option<f64>,
    /// The median share of bytes retransmitted although the link had dropped no such packet.
    pub resent_needlessly: Option<f64>,
    /// The share of time under each limit, over all runs and connections.
    pub limited: Limited,
    /// The path's responsiveness, if it was probed.
    pub latency: Option<Responsiveness>,
    /// Its shares beside a flow of cubic, by queue, if they were measured.
    pub shares: Vec<Share>,
    /// For fixed buffers: the rate of one buffer for each round trip, which they cannot exceed.
    pub cap: Option<f64>,
}

/// What to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recommendation {
    /// The index of the best row in the table.
    pub best: usize,
    /// The row of the next best congestion control, if several were compared.
    pub next: Option<usize>,
    /// The confidence that the best is better than the next.
    pub confidence: Confidence,
    /// Whether the best may be unfair to others on a shared path: then it is recommended only with
    /// its shares beside cubic.
    pub may_be_unfair: bool,
    /// Its shares beside cubic, if they were measured.
    pub shares: Vec<Share>,
    /// Rows with other buffers of the best congestion control, within 10 % of its best.
    pub buffers_alike: Vec<usize>,
    /// Rows with buffers that cost more than that.
    pub buffers_costly: Vec<usize>,
}

impl Recommendation {
    /// The row that needs its shares beside cubic measured before it can be recommended.
    #[must_use]
    pub fn needs_shares(&self) -> Option<usize> {
        let ahead = matches!(self.confidence, Confidence::Certain | Confidence::Likely);
        (ahead && self.is_withheld()).then_some(self.best)
    }

    /// Whether the best must not be recommended, because its shares beside cubic are unknown.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        self.may_be_unfair && self.shares.is_empty()
    }
}

/// The confidence that one subject is better than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Nothing to compare with.
    Alone,
    /// Significant: chance alone shows such a difference in at most 1 of 20 experiments.
    Certain,
    /// Every run of one was better than every run of the other, but there were too few runs.
    Likely,
    /// They differ by too little to matter.
    Alike,
    /// Undecided.
    Open,
}

impl Findings {
    /// Computes the table and the conclusions.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        let subjects = experiment.about.subjects.iter().enumerate();
        let order = Order::of(experiment);
        let rows: Vec<Row> = subjects
            .filter_map(|(subject, setting)| {
                let row = Row::of(experiment, subject, setting)?;
                let standing = order.as_ref().and_then(|order| order.standing(subject));
                let next = order.as_ref().and_then(|order| next_to(order, subject, experiment));
                Some(Row { standing, next, ..row })
            })
            .collect();
        let recommendation = Recommendation::of(&rows, order.as_ref());
        Self { rows, order, recommendation }
    }
}

impl Row {
    fn of(experiment: &Experiment, subject: usize, setting: &Setting) -> Option<Self> {
        let runs: Vec<&Run> = experiment.runs.iter().filter(|run| run.subject == subject).collect();
        let samples: Vec<f64> = runs.iter().map(|run| run.received_bits_per_s()).collect();
        let median = |values: Vec<f64>| Summary::of(&values).map(|summary| summary.median);
        let limited: Vec<Limited> =
            runs.iter().flat_map(|run| run.sent()).map(|sent| sent.limited).collect();
        Some(Self {
            subject,
            standing: None,
            next: None,
            setting: setting.clone(),
            received: Summary::of(&samples)?,
            limit_bits_per_s: limit(experiment, setting, &runs),
            claimed: median(runs.iter().map(|run| run.claimed_bits_per_s()).collect())?,
            complete: runs.iter().filter(|run| run.is_complete()).count(),
            written: runs.iter().map(|run| run.written_bytes()).sum(),
            received_bytes: runs.iter().map(|run| run.received_bytes()).sum(),
            resent: median(runs.iter().filter_map(|run| run.resent_share()).collect()),
            resent_needlessly: median(
                runs.iter().filter_map(|run| run.resent_needlessly_share()).collect(),
            ),
            limited: Limited::mean(&limited),
            latency: Responsiveness::of(runs.iter().filter_map(|run| run.latency.as_ref())),
            shares: Share::of(&experiment.beside, subject),
            cap: cap(setting, &runs),
            samples,
        })
    }

    /// The settings of our own sender, if the subject is one.
    #[must_use]
    pub fn own(&self) -> Option<&Settings> {
        match &self.setting {
            Setting::Own(settings) => Some(settings),
            Setting::Command(_) => None,
        }
    }

    /// The congestion control, if known.
    #[must_use]
    pub fn congestion(&self) -> Option<&str> {
        self.own().map(|settings| settings.congestion.as_str())
    }

    /// The buffers, if known.
    #[must_use]
    pub fn buffers(&self) -> Option<Buffers> {
        self.own().map(|settings| settings.buffers)
    }
}

/// The order of the subjects that have runs, as the rounds so far show it.
#[derive(Clone, Debug)]
pub struct Order {
    /// The subjects with runs, by their indices in the plan.
    present: Vec<usize>,
    /// Its indices are those of `present`.
    decision: Decision,
}

impl Order {
    pub(crate) fn of(experiment: &Experiment) -> Option<Self> {
        let runs =
            |subject: usize| experiment.runs.iter().filter(move |run| run.subject == subject);
        let present: Vec<usize> = (0..experiment.about.subjects.len())
            .filter(|subject| runs(*subject).next().is_some())
            .collect();
        let samples: Vec<_> = present.iter().map(|subject| by_round(runs(*subject))).collect();
        let decision = settle(&samples, &rule(experiment))?;
        Some(Self { present, decision })
    }

    /// The subject with the highest median among those not found worse.
    #[must_use]
    pub fn best(&self) -> usize {
        self.present[self.decision.best]
    }

    /// Whether each subject's comparison with the best is decided.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.decision.settled
    }

    /// The subjects that should run again: none if all is decided, or no more rounds are allowed.
    #[must_use]
    pub fn next(&self) -> Vec<usize> {
        self.decision.next().into_iter().map(|place| self.present[place]).collect()
    }

    /// A subject's standing; [`Order::is_against_best`] interprets [`Standing::against`].
    #[must_use]
    pub fn standing(&self, subject: usize) -> Option<Standing> {
        let place = self.present.iter().position(|it| *it == subject)?;
        self.decision.standings.get(place).copied()
    }

    /// Whether a subject was last compared with the one that is best now.
    #[must_use]
    pub fn is_against_best(&self, standing: &Standing) -> bool {
        standing.against == self.decision.best
    }
}

fn rule(experiment: &Experiment) -> Rule {
    let rounds = experiment.about.rounds;
    let (least, most) = (rounds.least_rounds as usize, rounds.most_rounds as usize);
    // An interrupted experiment is judged by its completed rounds.
    let most = if experiment.ended.interrupted.is_some() {
        experiment.ended.rounds as usize
    } else {
        most
    };
    // One round shows no variation.
    Rule { least_rounds: least.max(2).min(most), most_rounds: most, ..Rule::default() }
}

/// The figures of one subject in the order of rounds.
fn by_round<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Option<f64>> {
    let mut samples = Vec::new();
    for run in runs {
        let round = run.round as usize;
        // A file may claim any round.
        if round < 100_000 {
            samples.resize(samples.len().max(round + 1), None);
            samples[round] = Some(run.received_bits_per_s());
        }
    }
    samples
}

/// The standing of the next best subject, for the best one.
fn next_to(order: &Order, subject: usize, experiment: &Experiment) -> Option<Standing> {
    if order.best() != subject {
        return None;
    }
    let median = |other: usize| {
        let runs = experiment.runs.iter().filter(|run| run.subject == other);
        Summary::of(&runs.map(Run::received_bits_per_s).collect::<Vec<_>>()).map(|it| it.median)
    };
    let others = order.present.iter().filter(|other| **other != subject);
    let ranked = others.filter_map(|other| Some((*other, median(*other)?)));
    order.standing(ranked.max_by(|a, b| a.1.total_cmp(&b.1))?.0)
}

/// The most TCP payload that the path can carry in the directions that had load.
fn limit(experiment: &Experiment, setting: &Setting, runs: &[&Run]) -> Option<f64> {
    let path = &experiment.about.path;
    let of = |way: Way| match way {
        Way::Up => path.up_limit_bits_per_s,
        Way::Down => path.down_limit_bits_per_s,
    };
    let direction = match setting {
        Setting::Own(settings) => settings.direction,
        Setting::Command(_) => {
            let bytes = |way| -> u64 {
                let flows = runs.iter().flat_map(|run| &run.flows).filter(|flow| flow.way == way);
                flows.filter_map(|flow| flow.received.as_ref()).map(|one| one.bytes).sum()
            };
            if bytes(Way::Up) >= bytes(Way::Down) { Direction::Up } else { Direction::Down }
        }
    };
    direction.ways().iter().map(|way| of(*way)).sum()
}

/// A fixed buffer of n bytes holds about n bytes of payload, because the kernel doubles it for its
/// own overhead, and no more than one buffer can be unacked in a round trip.
fn cap(setting: &Setting, runs: &[&Run]) -> Option<f64> {
    let Setting::Own(settings) = setting else { return None };
    let Buffers::Fixed(size) = settings.buffers else { return None };
    let rtt = runs.iter().filter_map(|run| run.min_rtt()).min()?;
    // Less than requested, if the kernel's maximum was lower: it grants twice the size.
    let flows = runs.iter().flat_map(|run| &run.flows);
    let granted = flows.filter_map(|flow| {
        let send = flow.sent.as_ref()?.send_buffer_bytes?;
        Some(send.min(flow.received.as_ref()?.receive_buffer_bytes?))
    });
    let bytes = size.bytes().min(u64::from(granted.min()?) / 2);
    let ways = settings.direction.ways().len() as f64;
    Some(bytes as f64 * 8.0 / rtt.as_secs_f64() * f64::from(settings.streams) * ways)
}

impl Recommendation {
    fn of(rows: &[Row], order: Option<&Order>) -> Option<Self> {
        let best_of = |keep: &dyn Fn(&Row) -> bool| {
            let kept = rows.iter().enumerate().filter(|(_, row)| keep(row));
            kept.max_by(|a, b| a.1.received.median.total_cmp(&b.1.received.median))
                .map(|(place, _)| place)
        };
        if rows.len() < 2 {
            return None;
        }
        let top = best_of(&|_| true)?;
        let congestion = rows[top].congestion();
        let same = |row: &Row| row.congestion() == congestion;
        let alike = |row: &Row| row.received.median >= rows[top].received.median * (1.0 - ALIKE);
        // Among buffers that are alike, prefer those that need least configuration.
        let kinds: [fn(&Buffers) -> bool; 2] = [
            |buffers| *buffers == Buffers::Auto,
            |buffers| matches!(buffers, Buffers::AutoUpTo(_)),
        ];
        let best = kinds.iter().find_map(|kind| {
            best_of(&|row| same(row) && alike(row) && row.buffers().as_ref().is_some_and(*kind))
        });
        let best = best.unwrap_or(top);
        let next = best_of(&|row| !same(row));
        let confidence = confidence(rows, order, (best, next));
        let others = || (0..rows.len()).filter(|place| *place != best && same(&rows[*place]));
        Some(Self {
            best,
            next,
            confidence,
            may_be_unfair: congestion.is_none_or(|name| !SHARE_LIKE_CUBIC.contains(&name)),
            shares: rows[best].shares.clone(),
            buffers_alike: others().filter(|place| alike(&rows[*place])).collect(),
            buffers_costly: others().filter(|place| !alike(&rows[*place])).collect(),
        })
    }
}

/// The confidence that the best row is better than the next.
fn confidence(
    rows: &[Row],
    order: Option<&Order>,
    (best, next): (usize, Option<usize>),
) -> Confidence {
    let Some(next) = next else { return Confidence::Alone };
    let (best, next) = (&rows[best], &rows[next]);
    let standing = match order {
        Some(order) if order.best() == best.subject => next.standing,
        // A slightly better subject was passed over for one that needs less configuration.
        Some(order) => pair(order, best, next),
        None => None,
    };
    match standing.map(|it| it.position) {
        Some(Position::Worse) => Confidence::Certain,
        Some(Position::Alike) => Confidence::Alike,
        _ if compare(&best.samples, &next.samples).verdict == Verdict::AHigher => {
            Confidence::Likely
        }
        _ => Confidence::Open,
    }
}

/// Compares two subjects of which neither is the best, as one of all pairs.
fn pair(order: &Order, best: &Row, next: &Row) -> Option<Standing> {
    let pairs = order.present.len() * (order.present.len() - 1) / 2;
    let samples = |row: &Row| row.samples.iter().copied().map(Some).collect::<Vec<_>>();
    let both = [samples(best), samples(next)];
    let rounds = both[0].len().max(both[1].len());
    let usual = Rule::default();
    let rule = Rule {
        least_rounds: rounds,
        most_rounds: rounds,
        alpha: usual.alpha / pairs.max(1) as f64,
        ..usual
    };
    let decision = settle(&both, &rule)?;
    (decision.best == 0).then(|| decision.standings[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(congestion: &str, buffers: &str, samples: &[f64]) -> Row {
        Row {
            subject: 0,
            setting: Setting::Own(Settings::new(congestion, buffers.parse().unwrap())),
            limit_bits_per_s: None,
            resent_needlessly: None,
            limited: Limited::default(),
            latency: None,
            shares: Vec::new(),
            received: Summary::of(samples).unwrap(),
            samples: samples.to_vec(),
            standing: None,
            next: None,
            claimed: 0.0,
            complete: samples.len(),
            written: 0,
            received_bytes: 0,
            resent: None,
            cap: None,
        }
    }

    fn advice(rows: &[Row]) -> Recommendation {
        Recommendation::of(rows, None).unwrap()
    }

    #[test]
    fn what_may_take_from_others_is_withheld_until_it_was_measured() {
        let rows = [row("cubic", "auto", &[16.0, 20.0, 28.0]), row("bbr", "auto", &[60.0; 3])];
        assert!(advice(&rows).is_withheld());
        let mut rows = rows;
        let share = Summary::of(&[0.6]).unwrap();
        rows[1].shares = vec![Share { queue_bdp: Some(1.0), share }];
        let told = advice(&rows);
        assert!(!told.is_withheld() && told.shares.len() == 1);
        let rows = [row("cubic", "auto", &[60.0; 3]), row("bbr", "auto", &[16.0, 20.0, 28.0])];
        assert!(!advice(&rows).is_withheld());
    }

    #[test]
    fn the_faster_algorithm_with_buffers_left_alone() {
        let rows = [
            row("cubic", "auto", &[16.0, 20.0, 28.0]),
            row("bbr", "auto", &[60.0, 62.0, 61.0]),
            row("bbr", "4MiB", &[63.0, 62.5, 62.0]),
            row("bbr", "128KiB", &[4.8, 4.8, 4.8]),
        ];
        let advice = advice(&rows);
        assert_eq!((advice.best, advice.next, advice.confidence), (1, Some(0), Confidence::Likely));
        assert_eq!((advice.buffers_alike, advice.buffers_costly), (vec![2], vec![3]));
    }

    #[test]
    fn a_machine_whose_limits_are_too_low_is_told_to_raise_them() {
        let rows = [
            row("bbr", "auto", &[65.0, 65.0, 65.0]),
            row("bbr", "4MiB", &[77.0, 77.0, 77.0]),
            row("bbr", "auto:8MiB", &[76.0, 76.0, 76.0]),
        ];
        let advice = advice(&rows);
        assert_eq!((advice.best, advice.next), (2, None));
        assert_eq!((advice.buffers_alike, advice.buffers_costly), (vec![1], vec![0]));
    }

    #[test]
    fn overlapping_runs_are_not_certain() {
        let rows =
            [row("cubic", "auto", &[50.0, 60.0, 70.0]), row("bbr", "auto", &[60.0, 65.0, 80.0])];
        let advice = advice(&rows);
        assert_eq!((advice.best, advice.confidence), (1, Confidence::Open));
        assert!(Recommendation::of(&rows[..1], None).is_none(), "one row is no comparison");
    }
}
