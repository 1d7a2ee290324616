//! From runs to a table and a recommendation.

use lastbyte_link::Way;
use lastbyte_stats::{Summary, Verdict, compare};

use crate::record::{Experiment, Limited, Run};
use crate::setting::{Buffers, Direction, Setting, Settings};

/// Settings whose medians lie within this share of each other are called alike: runs on a shared
/// machine differ by about that much.
const ALIKE: f64 = 0.10;

/// The table, in the order of the plan, and what follows from it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// One row per subject with at least one run that counts.
    pub rows: Vec<Row>,
    /// What to do; `None` when there is nothing to choose between.
    pub recommendation: Option<Recommendation>,
}

/// One subject's runs. Rates in bit/s.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The subject's place in the plan.
    pub subject: usize,
    /// What it is.
    pub setting: Setting,
    /// Rates at the receiver.
    pub received: Summary,
    /// All of them.
    pub samples: Vec<f64>,
    /// The most that TCP could carry over the path, where it has a rate.
    pub limit_bits_per_s: Option<f64>,
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
    /// The median share of bytes resent although the link had dropped nothing for it.
    pub resent_needlessly: Option<f64>,
    /// The share of time under each limit, over all runs and connections.
    pub limited: Limited,
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
        let subjects = experiment.about.subjects.iter().enumerate();
        let rows: Vec<Row> = subjects
            .filter_map(|(subject, setting)| Row::of(experiment, subject, setting))
            .collect();
        let recommendation = Recommendation::of(&rows);
        Self { rows, recommendation }
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
            cap: cap(setting, &runs),
            samples,
        })
    }

    /// Our own sender's settings, where it is that.
    #[must_use]
    pub fn own(&self) -> Option<&Settings> {
        match &self.setting {
            Setting::Own(settings) => Some(settings),
            Setting::Command(_) => None,
        }
    }

    /// The congestion control, where it is known.
    #[must_use]
    pub fn congestion(&self) -> Option<&str> {
        self.own().map(|settings| settings.congestion.as_str())
    }

    /// The buffers, where they are known.
    #[must_use]
    pub fn buffers(&self) -> Option<Buffers> {
        self.own().map(|settings| settings.buffers)
    }
}

/// The most that TCP could carry in the directions that had load.
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

/// A fixed buffer of n bytes holds about n bytes of payload, because the kernel doubles it to make
/// room for its own overhead, and no more than a buffer can be unacknowledged per round trip.
fn cap(setting: &Setting, runs: &[&Run]) -> Option<f64> {
    let Setting::Own(settings) = setting else { return None };
    let Buffers::Fixed(size) = settings.buffers else { return None };
    let rtt = runs.iter().filter_map(|run| run.min_rtt()).min()?;
    // Less than what was asked, if the kernel's maximum was: it grants twice what counts.
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
        let congestion = rows[top].congestion();
        let same = |row: &Row| row.congestion() == congestion;
        let alike = |row: &Row| row.received.median >= rows[top].received.median * (1.0 - ALIKE);
        // Between buffers that are alike, those that ask least of the user.
        let kinds: [fn(&Buffers) -> bool; 2] = [
            |buffers| *buffers == Buffers::Auto,
            |buffers| matches!(buffers, Buffers::AutoUpTo(_)),
        ];
        let best = kinds.iter().find_map(|kind| {
            best_of(&|row| same(row) && alike(row) && row.buffers().as_ref().is_some_and(*kind))
        });
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
            subject: 0,
            setting: Setting::Own(Settings::new(congestion, buffers.parse().unwrap())),
            limit_bits_per_s: None,
            resent_needlessly: None,
            limited: Limited::default(),
            received: Summary::of(samples).unwrap(),
            samples: samples.to_vec(),
            claimed: 0.0,
            complete: samples.len(),
            written: 0,
            received_bytes: 0,
            resent: None,
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
