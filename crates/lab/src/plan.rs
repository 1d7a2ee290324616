//! What to compare, over which path, how long and how often.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lastbyte_socket::Tune;
use lastbyte_units::ByteSize;

use crate::path::Path;

/// What one core of this machine carries over emulated links with room to spare, in bit/s: more at
/// once is left to run after the others.
const BITS_PER_S_PER_CORE: u64 = 300_000_000;

/// A plan of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where.
    pub path: Path,
    /// The settings to compare.
    pub subjects: Vec<Subject>,
    /// How much each run sends.
    pub load: Load,
    /// How often each subject runs; the order turns from round to round.
    pub rounds: u32,
    /// Decides which packets are lost: all subjects of a round meet the same seed.
    pub seed: u64,
    /// The port of the receiver; 0 lets the kernel choose.
    pub port: u16,
    /// How many runs at once, each on a link of its own.
    pub parallel: usize,
}

impl Plan {
    /// How many runs this machine can carry at once over a path: one where nothing bounds the rate.
    #[must_use]
    pub fn parallel_for(path: &Path, cores: usize) -> usize {
        let rate = path.scenario().and_then(|scenario| scenario.spec.up.rate);
        let Some(rate) = rate else { return 1 };
        let budget = BITS_PER_S_PER_CORE.saturating_mul(cores as u64);
        usize::try_from(budget / rate.bits_per_s()).unwrap_or(usize::MAX).max(1)
    }
}

/// How much a run sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// As much as it can, for so long.
    Time(Duration),
    /// So many bytes.
    Bytes(u64),
}

/// One setting under test.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// The sender's congestion control, by name.
    pub congestion: String,
    /// The buffers of both sides.
    pub buffers: Buffers,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.congestion, self.buffers)
    }
}

/// How buffers are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// The kernel sizes them, within the machine's limits.
    Auto,
    /// The kernel sizes them, up to this maximum (`net.ipv4.tcp_wmem` and `tcp_rmem` of the hosts).
    AutoUpTo(ByteSize),
    /// Fixed by hand: `SO_SNDBUF` at the sender, `SO_RCVBUF` at the receiver.
    Fixed(ByteSize),
}

/// Buffers that are written in no known way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no buffer setting: write auto, auto:8MiB (the kernel sizes them up to that), or a \
         fixed size such as 128KiB"
)]
pub struct BuffersError(String);

impl FromStr for Buffers {
    type Err = BuffersError;

    fn from_str(text: &str) -> Result<Self, BuffersError> {
        let size = |size: &str| match size.parse::<ByteSize>() {
            Ok(size) if (1..=1 << 30).contains(&size.bytes()) => Ok(size),
            _ => Err(BuffersError(text.to_owned())),
        };
        match text.trim().strip_prefix("auto") {
            Some("") => Ok(Self::Auto),
            Some(rest) => match rest.strip_prefix(':') {
                Some(limit) => size(limit).map(Self::AutoUpTo),
                None => Err(BuffersError(text.to_owned())),
            },
            None => size(text).map(Self::Fixed),
        }
    }
}

impl fmt::Display for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::AutoUpTo(limit) => f.pad(&format!("auto to {limit}")),
            Self::Fixed(size) => f.pad(&format!("fixed {size}")),
        }
    }
}

impl Subject {
    /// The options of the sending socket.
    #[must_use]
    pub fn sender(&self) -> Tune {
        let congestion = Some(self.congestion.clone());
        Tune { congestion, send_buffer: self.fixed(), ..Tune::default() }
    }

    /// The options of the receiving socket.
    #[must_use]
    pub fn receiver(&self) -> Tune {
        Tune { receive_buffer: self.fixed(), ..Tune::default() }
    }

    fn fixed(&self) -> Option<u32> {
        match self.buffers {
            Buffers::Fixed(size) => Some(u32::try_from(size.bytes()).unwrap_or(u32::MAX)),
            Buffers::Auto | Buffers::AutoUpTo(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_written_three_ways() {
        let size = |text: &str| text.parse::<ByteSize>().unwrap();
        assert_eq!("auto".parse(), Ok(Buffers::Auto));
        assert_eq!("auto:8MiB".parse(), Ok(Buffers::AutoUpTo(size("8MiB"))));
        assert_eq!("128KiB".parse(), Ok(Buffers::Fixed(size("128KiB"))));
        for wrong in ["", "auto8MiB", "auto:", "big", "0", "2GiB", "-1"] {
            assert_eq!(wrong.parse::<Buffers>(), Err(BuffersError(wrong.to_owned())));
        }
    }

    #[test]
    fn parallel_runs_leave_room() {
        let link = |toml| Path::Link(Box::new(lastbyte_link::Scenario::parse("t", toml).unwrap()));
        assert_eq!(Plan::parallel_for(&link("rate = '95mbit'"), 2), 6);
        assert_eq!(Plan::parallel_for(&link("rate = '1gbit'"), 2), 1);
        assert_eq!(Plan::parallel_for(&link("rtt = '1ms'"), 64), 1);
        assert_eq!(Plan::parallel_for(&Path::Loopback, 64), 1);
    }
}
