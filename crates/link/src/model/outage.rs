//! When the wire is cut.

use crate::clock::nanos;
use crate::spec::Outages as Schedule;

/// A schedule of cuts, in nanoseconds, repeated.
#[derive(Clone, Debug)]
pub(super) struct Outages {
    /// The beginning and the end of each cut.
    cuts: Vec<(u64, u64)>,
    /// After this time the schedule repeats.
    period: Option<u64>,
}

impl Outages {
    /// `None` without cuts.
    pub(super) fn new(schedule: &Schedule) -> Option<Self> {
        let cut = |cut: &crate::spec::Cut| {
            let start = nanos(cut.at);
            (start, start.saturating_add(nanos(cut.lasting)))
        };
        let cuts: Vec<(u64, u64)> = schedule.cuts.iter().map(cut).collect();
        let period = schedule.every.map(nanos).filter(|period| *period > 0);
        (!cuts.is_empty()).then_some(Self { cuts, period })
    }

    /// Whether the wire is cut at a time since the link began.
    pub(super) fn cut(&self, now: u64) -> bool {
        let now = self.period.map_or(now, |period| now % period);
        self.cuts.iter().any(|(start, end)| (*start..*end).contains(&now))
    }
}
