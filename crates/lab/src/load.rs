//! How much a run sends, and how often each subject runs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::seconds;

/// How much a run sends in each direction: the first limit that is reached ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The longest time: as much as can be sent in it.
    #[serde(rename = "load_s", with = "seconds::optional")]
    pub time: Option<Duration>,
    /// The most bytes, over all connections.
    #[serde(rename = "load_bytes")]
    pub bytes: Option<u64>,
}

impl Load {
    /// As much as can be sent in a time.
    #[must_use]
    pub fn time(time: Duration) -> Self {
        Self { time: Some(time), bytes: None }
    }

    /// A number of bytes.
    #[must_use]
    pub fn bytes(bytes: u64) -> Self {
        Self { time: None, bytes: Some(bytes) }
    }

    /// The share of one of several connections; the shares add up to the load.
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
    /// The fewest rounds.
    pub least_rounds: u32,
    /// The most rounds: between the two an experiment ends once the order is settled.
    pub most_rounds: u32,
}

impl Rounds {
    /// Exactly this number.
    #[must_use]
    pub fn exactly(rounds: u32) -> Self {
        Self { least_rounds: rounds, most_rounds: rounds }
    }
}

/// Text that is no number of rounds.
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

#[cfg(test)]
mod tests {
    use super::*;

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
