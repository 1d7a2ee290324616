//! What to compare, over which path, how long and how often.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_link::Way;
use serde::{Deserialize, Serialize};

use crate::path::Path;
use crate::record::seconds_or_none;
use crate::setting::{Direction, Setting};
use crate::subject::Subject;

/// What one core of this machine carries over emulated links with room to spare, in bit/s: more at
/// once is left to run after the others.
const BITS_PER_S_PER_CORE: u64 = 300_000_000;

/// A plan of runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where.
    pub path: Path,
    /// What to compare.
    pub subjects: Vec<Arc<dyn Subject>>,
    /// How much each run sends.
    pub load: Load,
    /// How often each subject runs; the order turns from round to round.
    pub rounds: Rounds,
    /// Whether round trips are probed under load.
    pub latency: bool,
    /// What each is measured for beside a flow of cubic.
    pub fairness: Fairness,
    /// Decides which packets are lost: all subjects of a round meet the same seed.
    pub seed: u64,
    /// The port of the receiver; 0 lets the kernel choose.
    pub port: u16,
    /// How many runs at once, each on a link of its own.
    pub parallel: usize,
    /// The words that asked for it, to be repeated by.
    pub command: Vec<String>,
}

impl Plan {
    /// How many runs this machine can carry at once over a path: one where nothing bounds the rate.
    #[must_use]
    pub fn parallel_for(path: &Path, direction: Direction, cores: usize) -> usize {
        let rate = path.scenario().and_then(|scenario| {
            let spec = &scenario.spec;
            let rate = |way: Way| spec.direction(way).lasting_rate();
            let (up, down) = (rate(Way::Up)?.bits_per_s(), rate(Way::Down)?.bits_per_s());
            Some(match direction {
                Direction::Up => up,
                Direction::Down => down,
                Direction::Both => up.saturating_add(down),
            })
        });
        let Some(rate) = rate else { return 1 };
        let budget = BITS_PER_S_PER_CORE.saturating_mul(cores as u64);
        usize::try_from(budget / rate).unwrap_or(usize::MAX).max(1)
    }

    /// What the subjects are.
    pub fn settings(&self) -> impl Iterator<Item = Setting> + '_ {
        self.subjects.iter().map(|subject| subject.setting())
    }
}

/// How much a run sends in each direction: what is reached first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// As much as it can, for so long.
    #[serde(rename = "load_s", with = "seconds_or_none")]
    pub time: Option<Duration>,
    /// So many bytes, over all connections.
    #[serde(rename = "load_bytes")]
    pub bytes: Option<u64>,
}

impl Load {
    /// As much as can be sent in so long.
    #[must_use]
    pub fn time(time: Duration) -> Self {
        Self { time: Some(time), bytes: None }
    }

    /// So many bytes.
    #[must_use]
    pub fn bytes(bytes: u64) -> Self {
        Self { time: None, bytes: Some(bytes) }
    }

    /// The part of one of several connections; together they are the whole.
    #[must_use]
    pub fn share(self, stream: u32, streams: u32) -> Self {
        let share = |bytes: u64| {
            let (stream, streams) = (u64::from(stream), u64::from(streams.max(1)));
            bytes / streams + u64::from(stream < bytes % streams)
        };
        Self { bytes: self.bytes.map(share), ..self }
    }
}

/// How often each subject runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// At least so often.
    pub least_rounds: u32,
    /// At most so often: between the two it ends when the order is settled.
    pub most_rounds: u32,
}

impl Rounds {
    /// Exactly so often.
    #[must_use]
    pub fn exactly(rounds: u32) -> Self {
        Self { least_rounds: rounds, most_rounds: rounds }
    }
}

/// Rounds that are not written as such.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no number of rounds: write 5 for exactly that, or 5..10 to end when it is settled (1 to 10000)"
)]
pub struct RoundsError(String);

impl FromStr for Rounds {
    type Err = RoundsError;

    fn from_str(text: &str) -> Result<Self, RoundsError> {
        let number = |text: &str| text.trim().parse().ok().filter(|n| (1..=10_000).contains(n));
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        match (number(least), number(most)) {
            (Some(least_rounds), Some(most_rounds)) if least_rounds <= most_rounds => {
                Ok(Self { least_rounds, most_rounds })
            }
            _ => Err(RoundsError(text.to_owned())),
        }
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least_rounds, self.most_rounds) {
            (1, 1) => f.write_str("1 round"),
            (least, most) if least == most => write!(f, "{most} rounds"),
            (least, most) => write!(f, "{least} to {most} rounds"),
        }
    }
}

/// Whether to measure what a subject does to a flow of cubic beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fairness {
    /// Not at all.
    Never,
    /// Where the subject would be advised, and is not known to share.
    #[default]
    WhereAdvised,
    /// For every congestion control.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_runs_leave_room() {
        let link = |toml| Path::Link(Box::new(lastbyte_link::Scenario::parse("t", toml).unwrap()));
        let up = Direction::Up;
        assert_eq!(Plan::parallel_for(&link("rate = '95mbit'"), up, 2), 6);
        assert_eq!(Plan::parallel_for(&link("rate = '95mbit'"), Direction::Both, 2), 3);
        assert_eq!(Plan::parallel_for(&link("rate = '1gbit'"), up, 2), 1);
        assert_eq!(Plan::parallel_for(&link("rtt = '1ms'"), up, 64), 1);
        assert_eq!(Plan::parallel_for(&Path::Loopback, up, 64), 1);
    }

    #[test]
    fn rounds_are_a_number_or_a_range() {
        assert_eq!("5".parse(), Ok(Rounds::exactly(5)));
        assert_eq!("5..10".parse(), Ok(Rounds { least_rounds: 5, most_rounds: 10 }));
        for wrong in ["", "0", "10..5", "5..", "-1", "1..99999"] {
            assert!(wrong.parse::<Rounds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_shares_of_a_load_are_the_load() {
        for streams in 1..7 {
            let shares = (0..streams).map(|stream| Load::bytes(100).share(stream, streams));
            assert_eq!(shares.filter_map(|share| share.bytes).sum::<u64>(), 100);
        }
    }
}
