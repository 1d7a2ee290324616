//! From runs to a table and a recommendation.

use lastbyte_core::sample::LimitedBy;
use lastbyte_stats::{Summary, Verdict, compare};

use crate::experiment::Experiment;
use crate::plan::{Buffers, Subject};
use crate::run::Run;

/// Settings whose medians lie within this share of each other are called alike: runs on a shared
/// machine differ by about that much.
const ALIKE: f64 = 0.10;

/// The table, in the order of the plan, and what follows from it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// One row per subject with at least one run that counts.
    pub rows: Vec<Row>,
    /// The most that TCP could carry, bit/s, where the path has a rate.
    pub limit_bits_per_s: Option<f64>,
    /// What to do; `None` when there is nothing to choose between.
    pub recommendation: Option<Recommendation>,
}

/// One subject's runs. Rates in bit/s.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The setting.
    pub subject: Subject,
    /// Rates at the receiver.
    pub received: Summary,
    /// All of them.
    pub samples: Vec<f64>,
    /// The median of what the sender would have claimed.
    pub claimed: f64,
    /// Runs in which every byte written was received, and proven.
    pub complete: usize,
    /// Bytes written in all runs, as the senders' kernels took them.
    pub written: u64,
    /// Bytes received in all runs.
    pub received_bytes: u64,
    /// The median share of resent bytes.
    pub resent: Option<f64>,
    /// What held the sender back most, and for what share of the time.
    pub limited_by: Option<(LimitedBy, f64)>,
    /// For fixed buffers: the rate at which one buffer per round trip flows, their cap.
    pub cap: Option<f64>,
}

/// What to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recommendation {
    /// The best row, by its place in the table.
    pub best: usize,
    /// The next best congestion control's row, where several were compared.
    pub next: Option<usize>,
    /// Whether the best is better than the next beyond the spread of the runs.
    pub certain: bool,
    /// Other buffer settings of the best congestion control within 10 % of its best.
    pub buffers_alike: Vec<usize>,
    /// Its buffer settings that cost more than that.
    pub buffers_costly: Vec<usize>,
}

impl Findings {
    /// Draws the table and the conclusion.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        let plan = &experiment.plan;
        let rows: Vec<Row> = (0..plan.subjects.len())
            .filter_map(|subject| {
                let runs: Vec<&Run> =
                    experiment.runs.iter().filter(|run| run.subject == subject).collect();
                Row::of(&plan.subjects[subject], &runs)
            })
            .collect();
        let scenario = plan.path.scenario();
        let limit_bits_per_s = scenario.and_then(|scenario| scenario.spec.tcp_limit_bits_per_s());
        let recommendation = Recommendation::of(&rows);
        Self { rows, limit_bits_per_s, recommendation }
    }
}

impl Row {
    fn of(subject: &Subject, runs: &[&Run]) -> Option<Self> {
        let samples: Vec<f64> = runs.iter().map(|run| run.received_bits_per_s()).collect();
        let median = |values: Vec<f64>| Summary::of(&values).map(|summary| summary.median);
        Some(Self {
            subject: subject.clone(),
            received: Summary::of(&samples)?,
            claimed: median(runs.iter().map(|run| run.claimed_bits_per_s()).collect())?,
            complete: runs.iter().filter(|run| run.is_complete()).count(),
            written: runs.iter().map(|run| run.sent.written).sum(),
            received_bytes: runs.iter().map(|run| run.received.bytes).sum(),
            resent: median(runs.iter().filter_map(|run| run.resent_share()).collect()),
            limited_by: limited_by(runs),
            cap: cap(subject, runs),
            samples,
        })
    }
}

/// The limit with the largest share over all runs.
fn limited_by(runs: &[&Run]) -> Option<(LimitedBy, f64)> {
    let mut shares = [0.0; 6];
    for run in runs {
        for (sum, share) in shares.iter_mut().zip(run.sent.limits.shares()) {
            *sum += share / runs.len() as f64;
        }
    }
    let largest = LimitedBy::ALL.into_iter().zip(shares).max_by(|a, b| a.1.total_cmp(&b.1));
    largest.filter(|(_, share)| *share > 0.0)
}

/// A fixed buffer of n bytes holds about n bytes of payload, because the kernel doubles it to make
/// room for its own overhead, and no more than a buffer can be unacknowledged per round trip.
fn cap(subject: &Subject, runs: &[&Run]) -> Option<f64> {
    let Buffers::Fixed(size) = subject.buffers else { return None };
    let rtt = runs.iter().filter_map(|run| run.min_rtt()).min()?;
    // Less than what was asked, if the kernel's maximum was: it grants twice what counts.
    let granted = runs
        .iter()
        .map(|run| run.sent.granted.send_buffer.min(run.received.granted.receive_buffer));
    let bytes = size.bytes().min(u64::from(granted.min()?) / 2);
    Some(bytes as f64 * 8.0 / rtt.as_secs_f64())
}

impl Recommendation {
    fn of(rows: &[Row]) -> Option<Self> {
        let best_of = |keep: &dyn Fn(&Row) -> bool| {
            let kept = rows.iter().enumerate().filter(|(_, row)| keep(row));
            kept.max_by(|a, b| a.1.received.median.total_cmp(&b.1.received.median))
                .map(|(place, _)| place)
        };
        if rows.len() < 2 {
            return None;
        }
        let top = best_of(&|_| true)?;
        let congestion = rows[top].subject.congestion.as_str();
        let same = |row: &Row| row.subject.congestion == congestion;
        let alike = |row: &Row| row.received.median >= rows[top].received.median * (1.0 - ALIKE);
        // Between buffers that are alike, those that ask least of the user.
        let kinds: [fn(&Buffers) -> bool; 2] = [
            |buffers| *buffers == Buffers::Auto,
            |buffers| matches!(buffers, Buffers::AutoUpTo(_)),
        ];
        let best = kinds
            .iter()
            .find_map(|kind| best_of(&|row| same(row) && alike(row) && kind(&row.subject.buffers)));
        let best = best.unwrap_or(top);
        let next = best_of(&|row| !same(row));
        let certain = next.is_none_or(|next| {
            compare(&rows[best].samples, &rows[next].samples).verdict == Verdict::AHigher
        });
        let others = || (0..rows.len()).filter(|place| *place != best && same(&rows[*place]));
        Some(Self {
            best,
            next,
            certain,
            buffers_alike: others().filter(|place| alike(&rows[*place])).collect(),
            buffers_costly: others().filter(|place| !alike(&rows[*place])).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(congestion: &str, buffers: &str, samples: &[f64]) -> Row {
        Row {
            subject: Subject {
                congestion: congestion.to_owned(),
                buffers: buffers.parse().unwrap(),
            },
            received: Summary::of(samples).unwrap(),
            samples: samples.to_vec(),
            claimed: 0.0,
            complete: samples.len(),
            written: 0,
            received_bytes: 0,
            resent: None,
            limited_by: None,
            cap: None,
        }
    }

    #[test]
    fn the_faster_algorithm_with_buffers_left_alone() {
        let rows = [
            row("cubic", "auto", &[16.0, 20.0, 28.0]),
            row("bbr", "auto", &[60.0, 62.0, 61.0]),
            row("bbr", "4MiB", &[63.0, 62.5, 62.0]),
            row("bbr", "128KiB", &[4.8, 4.8, 4.8]),
        ];
        let advice = Recommendation::of(&rows).unwrap();
        assert_eq!((advice.best, advice.next, advice.certain), (1, Some(0), true));
        assert_eq!((advice.buffers_alike, advice.buffers_costly), (vec![2], vec![3]));
    }

    #[test]
    fn a_machine_whose_limits_are_too_low_is_told_to_raise_them() {
        let rows = [
            row("bbr", "auto", &[65.0, 65.0, 65.0]),
            row("bbr", "4MiB", &[77.0, 77.0, 77.0]),
            row("bbr", "auto:8MiB", &[76.0, 76.0, 76.0]),
        ];
        let advice = Recommendation::of(&rows).unwrap();
        assert_eq!((advice.best, advice.next), (2, None));
        assert_eq!((advice.buffers_alike, advice.buffers_costly), (vec![1], vec![0]));
    }

    #[test]
    fn overlapping_runs_are_not_certain() {
        let rows =
            [row("cubic", "auto", &[50.0, 60.0, 70.0]), row("bbr", "auto", &[60.0, 65.0, 80.0])];
        let advice = Recommendation::of(&rows).unwrap();
        assert_eq!((advice.best, advice.certain), (1, false));
        assert!(Recommendation::of(&rows[..1]).is_none(), "one row is no comparison");
    }
}
