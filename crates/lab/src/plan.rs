//! What to compare, over which path, how long and how often.

use std::sync::Arc;

use lastbyte_link::Way;
use serde::{Deserialize, Serialize};

use crate::load::{Load, Rounds};
use crate::path::Path;
use crate::setting::{Direction, Setting};
use crate::subject::Subject;

/// The rate that one core carries over emulated links with a margin, in bit/s: runs beyond that
/// wait.
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
    /// How often each subject runs; the order rotates from round to round.
    pub rounds: Rounds,
    /// Whether round-trip times are probed under load.
    pub latency: bool,
    /// Which subjects are measured beside a flow of cubic.
    pub fairness: Fairness,
    /// Decides which packets are lost: all subjects of a round have the same seed.
    pub seed: u64,
    /// The port of the receiver; 0 lets the kernel choose.
    pub port: u16,
    /// How many runs at the same time, each on its own link.
    pub parallel: usize,
    /// The command line, to repeat it.
    pub command: Vec<String>,
}

impl Plan {
    /// How many runs this machine can carry at the same time over a path: one if the path has no
    /// rate.
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

/// Whether to measure what a subject does to a flow of cubic beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fairness {
    /// Not at all.
    Never,
    /// If the subject would be recommended and is not known to share with cubic.
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
}
