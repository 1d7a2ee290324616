//! What the small probes say about a path, for the trains that follow them.

use super::losses::Losses;
use super::observed::Observed;
use super::round_trips::RoundTrips;

/// What is known about the path without trains.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    /// The standard deviation of the round trip, in seconds; 0 without jitter.
    pub(super) varies: f64,
    /// The upper bound of the share of lost round trips.
    pub(super) loss: f64,
    /// The mean length of a burst of losses; 1 where they are independent.
    pub(super) burst: f64,
}

impl Conditions {
    /// From the small probes.
    pub(super) fn of(probes: &Observed) -> Self {
        let losses = Losses::of(&probes.lost());
        Self {
            varies: RoundTrips::of(probes).map_or(0.0, |trips| trips.deviation()),
            loss: losses.interval().high,
            burst: if losses.are_bursts() { losses.mean_run() } else { 1.0 },
        }
    }
}
