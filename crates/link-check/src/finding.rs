//! What a check can find out about a path.

use std::fmt;

use lastbyte_units::Unit;

use lastbyte_link::Way;

/// What is being measured, each on a link of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Delays.
    Delay,
    /// Independent losses, and the order of packets.
    Loss,
    /// Losses in bursts.
    Bursts,
    /// Losses by counting.
    Counting,
    /// Corruption and duplicates.
    Corruption,
    /// Rates.
    Rate,
    /// Queues.
    Queue,
    /// A recorded rate.
    Recorded,
    /// A queue's management.
    Codel,
    /// Marks of a queue that is longer than a threshold.
    Marks,
    /// A policer.
    Policer,
    /// Cuts, and changes at set times.
    Scheduled,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::Bursts => "losses in bursts",
            Self::Counting => "losses by counting",
            Self::Corruption => "damage and copies",
            Self::Rate => "rate",
            Self::Queue => "queue",
            Self::Recorded => "the recorded rate",
            Self::Codel => "CoDel",
            Self::Marks => "marks",
            Self::Policer => "policer",
            Self::Scheduled => "cuts and changes",
        })
    }
}

/// When, seen from a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// The state before it.
    Before,
    /// The time at which it happened.
    Itself,
    /// The state after it.
    After,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// The median of the sum of both delays.
    RoundTrip,
    /// The median of one way's delay, without the packet's own transmission and the probe's own
    /// lateness.
    Delay,
    /// The time within which 5 % of the packets arrive, where the delay varies.
    DelayLow,
    /// The time within which 95 % of the packets arrive, where the delay varies.
    DelayHigh,
    /// The greatest distance of the delays from the distribution asked, as a share.
    Jitter,
    /// Packets that arrived after one that was sent later (RFC 4737).
    Reordered,
    /// The longest packet that goes through whole.
    LongestPacket,
    /// The share of packets lost, each by itself.
    Loss,
    /// The share of packets lost in bursts.
    BurstLoss,
    /// How many packets are lost in a row, on average.
    BurstLength,
    /// The share of packets lost within a burst.
    InBurst,
    /// Every n-th packet is lost.
    LoseEvery,
    /// The share of packets that arrive corrupted.
    Corrupted,
    /// The share of packets that arrive twice.
    Duplicated,
    /// IP bytes over time.
    Rate,
    /// How long the last packet that a full queue took had to wait.
    QueueTime,
    /// How many bytes a full queue held.
    QueueBytes,
    /// How far packets leave from the opportunities of a recorded rate, 99 % of them at most.
    Opportunities,
    /// When the first packet was sent that `CoDel` drops or marks, after the first of a load.
    FirstSignal,
    /// How many packets of a load `CoDel` drops or marks.
    Signals,
    /// When the first packet was sent that a queue above a length marks, after the first of a load.
    FirstMark,
    /// How many packets of a load it marks.
    Marks,
    /// Packets dropped where they were to be marked.
    DroppedUnmarked,
    /// How much a policer lets pass at once.
    PolicerBurst,
    /// What a policer lets pass in the long run.
    PolicerRate,
    /// When a cut began, by its number from 1.
    CutBegin(u32),
    /// How long a cut lasted, by its number from 1.
    CutLength(u32),
    /// Packets lost outside of cuts.
    LostOutsideCuts,
    /// A change at a set time.
    Change {
        /// Its number, from 1.
        number: u32,
        /// Of what.
        of: &'static str,
        /// The state before or after it, or when it happened.
        moment: Moment,
    },
    /// How late 99 % of packets were at most, as the link reports.
    Lateness,
    /// Packets dropped at the devices, as the link reports.
    DeviceDrops,
    /// Packets that neither the link's counts nor the receivers' account for.
    Unaccounted,
    /// Something asked that is not checked.
    Unchecked(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundTrip => "round trip",
            Self::Delay => "delay",
            Self::DelayLow => "delay, 5 %",
            Self::DelayHigh => "delay, 95 %",
            Self::Jitter => "jitter",
            Self::Reordered => "overtaken",
            Self::LongestPacket => "longest packet",
            Self::Loss => "loss",
            Self::BurstLoss => "loss in bursts",
            Self::BurstLength => "lost in a row",
            Self::InBurst => "lost in a burst",
            Self::LoseEvery => "lost every",
            Self::Corrupted => "damaged",
            Self::Duplicated => "came twice",
            Self::Rate => "rate",
            Self::QueueTime => "queue time",
            Self::QueueBytes => "queue bytes",
            Self::Opportunities => "opportunities",
            Self::FirstSignal => "CoDel's first",
            Self::Signals => "CoDel's number",
            Self::FirstMark => "first mark",
            Self::Marks => "marks",
            Self::DroppedUnmarked => "dropped unmarked",
            Self::PolicerBurst => "policer's burst",
            Self::PolicerRate => "policer's rate",
            Self::CutBegin(number) => return write!(f, "cut {number} begins"),
            Self::CutLength(number) => return write!(f, "cut {number} lasts"),
            Self::LostOutsideCuts => "lost besides cuts",
            Self::Change { number, of, moment } => {
                return match moment {
                    Moment::Before => write!(f, "{of} before {number}"),
                    Moment::Itself => write!(f, "{of} change {number}"),
                    Moment::After => write!(f, "{of} after {number}"),
                };
            }
            Self::Lateness => "lateness",
            Self::DeviceDrops => "unasked drops",
            Self::Unaccounted => "unaccounted",
            Self::Unchecked(what) => what,
        })
    }
}

/// A figure, compared with what was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The unit of the next four.
    pub unit: Unit,
    /// What was asked of the link.
    pub asked: f64,
    /// What was measured.
    pub got: f64,
    /// The least that may have been asked to get this figure; minus infinity where a minimum was asked.
    pub low: f64,
    /// The most that may have been asked to get this figure; infinite where a maximum was asked.
    pub high: f64,
    /// What it rests on: samples and spread.
    pub basis: String,
}

impl Outcome {
    /// A figure that may be off by a tolerance.
    pub(crate) fn within(unit: Unit, asked: f64, got: f64, tolerance: f64, basis: String) -> Self {
        let (low, high) = (got - tolerance, got + tolerance);
        Self::Measured(Measured { unit, asked, got, low, high, basis })
    }

    /// A figure that may be at most as much as asked.
    pub(crate) fn at_most(unit: Unit, asked: f64, got: f64, basis: String) -> Self {
        Self::Measured(Measured { unit, asked, got, low: got, high: f64::INFINITY, basis })
    }

    /// A figure that has to be at least as much as asked.
    pub(crate) fn at_least(unit: Unit, asked: f64, got: f64, basis: String) -> Self {
        Self::Measured(Measured { unit, asked, got, low: f64::NEG_INFINITY, high: got, basis })
    }
}

impl Measured {
    /// Whether what was asked agrees with what was measured.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.low <= self.asked && self.asked <= self.high
    }

    /// How far it is off, in its unit.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.got - self.asked
    }
}

/// The outcome of measuring one property.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A figure.
    Measured(Measured),
    /// Nothing was asked, or it is too far in the future: which.
    NotChecked(String),
    /// The machine was too busy for it in each attempt: how that shows.
    TooBusy(String),
    /// It was tried without a credible figure: why.
    NotMeasured(String),
}

/// One property that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub subject: Subject,
    /// The direction; `None` for a property of both.
    pub way: Option<Way>,
    /// The outcome.
    pub outcome: Outcome,
}

/// All findings about a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// In the order of the phases; what the links report of themselves comes last.
    pub list: Vec<Finding>,
}

impl Findings {
    /// Whether all that was asked and can be checked was measured, and is inside its tolerance.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        self.list.iter().all(|finding| match &finding.outcome {
            Outcome::Measured(measured) => measured.is_inside(),
            Outcome::NotChecked(_) => true,
            Outcome::NotMeasured(_) | Outcome::TooBusy(_) => false,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn is_inside(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Measured(measured) if measured.is_inside())
    }

    pub(crate) fn is_not_measured(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::NotMeasured(_))
    }

    pub(crate) fn is_too_busy(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::TooBusy(_))
    }

    /// For each finding, whether it is inside its tolerance.
    pub(crate) fn insides(list: &[(Subject, Outcome)]) -> Vec<bool> {
        list.iter().map(|(_, outcome)| is_inside(outcome)).collect()
    }

    #[test]
    fn limits_have_one_side() {
        let (most, least) = (
            |got| Outcome::at_most(Unit::Share, 1.0, got, String::new()),
            |got| Outcome::at_least(Unit::Packets, 1.0, got, String::new()),
        );
        assert!(is_inside(&most(0.0)) && is_inside(&most(1.0)) && !is_inside(&most(1.1)));
        assert!(is_inside(&least(9.0)) && is_inside(&least(1.0)) && !is_inside(&least(0.0)));
    }
}
