//! The differences between two experiments, and whether they are more than noise.

use lastbyte_stats::{Interval, Metric, Summary, Verdict, compare_many, holm, ratio_interval};

use crate::latency::Responsiveness;
use crate::load::Load;
use crate::record::{About, Experiment, Run};
use crate::setting::Setting;

/// The probability of any false claim, over all subjects and measures.
const LEVEL: f64 = 0.05;
/// The confidence level of the interval of a ratio.
const CONFIDENCE: f64 = 0.95;
const RESAMPLES: usize = 2000;
const SEED: u64 = 1;

/// The differences.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Changes {
    /// Conditions that differ between the experiments, each a sentence.
    pub differences: Vec<String>,
    /// The subjects of both, in the order of the first, with their measures.
    pub settings: Vec<Changed>,
    /// Subjects that only one experiment has.
    pub unmatched: Vec<Setting>,
    /// The rounds needed for the clearest difference to be significant among so many subjects;
    /// `None` if there are enough.
    pub rounds_needed: Option<u32>,
}

/// A subject of both experiments.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Changed {
    /// Which.
    pub setting: Setting,
    /// Its measures in both.
    pub measures: Vec<Change>,
}

/// One measure, before and after.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change {
    /// What.
    pub measure: Measure,
    /// Before.
    pub before: Summary,
    /// After.
    pub after: Summary,
    /// The median after divided by the median before; `None` if that was 0.
    pub ratio: Option<f64>,
    /// The confidence interval of the ratio, by resampling.
    pub interval: Option<Interval>,
    /// The probability of such a difference by chance, corrected for all subjects.
    pub p_value: Option<f64>,
    /// Whether the difference is more than noise.
    pub verdict: Significance,
}

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Measure {
    /// The rate at the receiver, bit/s.
    Received,
    /// The share of bytes that were retransmitted.
    Resent,
    /// The 95th percentile of round trips under load, seconds.
    LoadedRtt,
}

impl Measure {
    const ALL: [Self; 3] = [Self::Received, Self::Resent, Self::LoadedRtt];

    /// Whether more of it is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        self == Self::Received
    }

    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received_bits_per_s",
            Self::Resent => "resent_share",
            Self::LoadedRtt => "rtt_p95_under_load_s",
        }
    }

    fn of(self, run: &Run) -> Option<f64> {
        match self {
            Self::Received => Some(run.received_bits_per_s()),
            Self::Resent => run.resent_share(),
            Self::LoadedRtt => Some(Responsiveness::of(&run.latency)?.loaded_p95),
        }
    }
}

/// Whether a difference is more than noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Significance {
    /// More than before, beyond noise.
    More,
    /// Less than before, beyond noise.
    Less,
    /// No more than noise, which does not prove that nothing changed.
    Noise,
}

/// Compares two experiments, subject by subject.
#[must_use]
pub fn changes(before: &Experiment, after: &Experiment) -> Changes {
    let common: Vec<(usize, usize)> = before
        .about
        .subjects
        .iter()
        .enumerate()
        .filter_map(|(a, setting)| {
            Some((a, after.about.subjects.iter().position(|other| other == setting)?))
        })
        .collect();
    let mut settings: Vec<Changed> = common
        .iter()
        .map(|(a, _)| Changed { setting: before.about.subjects[*a].clone(), measures: Vec::new() })
        .collect();
    let samples = |experiment: &Experiment, subject: usize, measure: Measure| -> Vec<f64> {
        let runs = experiment.runs.iter().filter(|run| run.subject == subject);
        runs.filter_map(|run| measure.of(run)).collect()
    };
    let mut both: Vec<Measured> = Vec::new();
    for (place, (a, b)) in common.iter().enumerate() {
        both.extend(Measure::ALL.map(|measure| Measured {
            place,
            measure,
            before: samples(before, *a, measure),
            after: samples(after, *b, measure),
        }));
    }
    both.retain(|one| !one.before.is_empty() && !one.after.is_empty());
    for (one, change) in both.iter().zip(judged(&both)) {
        settings[one.place].measures.extend(change);
    }
    let unmatched = |one: &Experiment, other: &Experiment| {
        let missing = |setting: &&Setting| !other.about.subjects.contains(setting);
        one.about.subjects.iter().filter(missing).cloned().collect::<Vec<_>>()
    };
    let unmatched = [unmatched(before, after), unmatched(after, before)].concat();
    let rounds_needed = rounds_needed(before, after, &common, both.len());
    Changes { differences: differences(before, after), settings, unmatched, rounds_needed }
}

/// The samples of one measure of one subject.
struct Measured {
    place: usize,
    measure: Measure,
    before: Vec<f64>,
    after: Vec<f64>,
}

/// Tests all measures of all subjects together, since one false claim among them is one too many.
fn judged(both: &[Measured]) -> Vec<Option<Change>> {
    // Higher is "a": after against before.
    let metrics: Vec<Metric<'_>> =
        both.iter().map(|one| Metric { name: "", a: &one.after, b: &one.before }).collect();
    let compared = compare_many(&metrics, LEVEL);
    let changes = both.iter().zip(compared).map(|(one, compared)| {
        let comparison = compared.comparison;
        Some(Change {
            measure: one.measure,
            before: comparison.b?,
            after: comparison.a?,
            ratio: comparison.ratio,
            interval: ratio_interval(&one.after, &one.before, CONFIDENCE, RESAMPLES, SEED),
            p_value: compared.p_value,
            verdict: match comparison.verdict {
                Verdict::AHigher => Significance::More,
                Verdict::BHigher => Significance::Less,
                _ => Significance::Noise,
            },
        })
    });
    changes.collect()
}

/// Conditions that differ between the experiments.
fn differences(before: &Experiment, after: &Experiment) -> Vec<String> {
    let (a, b) = (&before.about, &after.about);
    let mut differences = Vec::new();
    let mut check = |what: &str, a: String, b: String| {
        if a != b {
            differences.push(format!("{what}: {a} before, {b} after"));
        }
    };
    // The description of a real path has a measured round-trip time.
    let words = |about: &About| match about.path.emulated {
        true => format!("{} ({})", about.path.name, about.path.description),
        false => about.path.name.clone(),
    };
    check("path", words(a), words(b));

    let load = |load: &Load| match (load.time, load.bytes) {
        (Some(time), None) => format!("{} s", time.as_secs_f64()),
        (None, Some(bytes)) => format!("{bytes} bytes"),
        (Some(time), Some(bytes)) => format!("{} s or {bytes} bytes", time.as_secs_f64()),
        (None, None) => "none".to_owned(),
    };
    check("load", load(&a.load), load(&b.load));
    check("seed", a.seed.to_string(), b.seed.to_string());
    check("kernel", a.kernel.clone(), b.kernel.clone());
    check("lastbyte", a.version.clone(), b.version.clone());
    check("runs side by side", a.parallel.to_string(), b.parallel.to_string());
    differences
}

/// The rounds that the exact rank test needs for significance, corrected for so many tests.
fn rounds_needed(
    before: &Experiment,
    after: &Experiment,
    common: &[(usize, usize)],
    tests: usize,
) -> Option<u32> {
    let runs = |experiment: &Experiment, subject: usize| {
        experiment.runs.iter().filter(|run| run.subject == subject).count()
    };
    let fewest = common.iter().map(|(a, b)| runs(before, *a).min(runs(after, *b))).min()?;
    let tells = |rounds: usize| {
        let (low, high): (Vec<f64>, Vec<f64>) =
            (0..rounds).map(|sample| (sample as f64, (sample + rounds) as f64)).unzip();
        let least = lastbyte_stats::p_value(&low, &high).unwrap_or(1.0);
        let mut all = vec![1.0; tests.max(1)];
        all[0] = least;
        holm(&all)[0] <= LEVEL
    };
    let needed = (2..=20).find(|rounds| tells(*rounds))?;
    (fewest < needed).then(|| u32::try_from(needed).unwrap_or(u32::MAX))
}
