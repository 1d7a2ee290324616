//! Recorded rates: the format of mahimahi, so that its traces can be replayed.
//!
//! Each line of a file is a delivery opportunity: the time in milliseconds since the beginning at which
//! a packet of 1500 bytes could leave. Times never decrease; a time that is listed twice is two
//! packets. The last one is the length of the trace, after which it repeats.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of one opportunity.
pub(crate) const OPPORTUNITY_BYTES: u64 = 1500;
const NANOS_PER_MS: u64 = 1_000_000;
/// The longest trace: a day.
const LONGEST_MS: u64 = 24 * 3600 * 1000;

/// A recorded rate.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds, ascending.
    opportunities: Arc<[u64]>,
}

/// A trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Not a number of milliseconds, or beyond a day.
    #[error("line {0} is not a number of milliseconds within a day")]
    NoTime(usize),
    /// A time before that of the line above.
    #[error("line {0} is earlier than the line before it")]
    Backwards(usize),
    /// No line at all, or all at time 0.
    #[error("the trace has no length: its last line must be at least 1")]
    Empty,
}

impl Trace {
    /// Reads a trace. Empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// Names the line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities = Vec::new();
        let mut last = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let time: u64 = line.parse().map_err(|_| TraceError::NoTime(number))?;
            if time > LONGEST_MS {
                return Err(TraceError::NoTime(number));
            }
            if time < last {
                return Err(TraceError::Backwards(number));
            }
            last = time;
            opportunities.push(time);
        }
        if last == 0 {
            Err(TraceError::Empty)
        } else {
            Ok(Self { opportunities: opportunities.into() })
        }
    }

    /// The mean rate in bit/s of IP packets, at least 1.
    #[must_use]
    pub fn mean_bits_per_s(&self) -> u64 {
        let bits = self.opportunities.len() as u64 * OPPORTUNITY_BYTES * 8;
        (bits.saturating_mul(1000) / self.length_ms()).max(1)
    }

    /// Its length in milliseconds.
    fn length_ms(&self) -> u64 {
        self.opportunities.last().copied().unwrap_or(1)
    }

    /// Its length, after which it repeats.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.length_ms())
    }

    /// The number of opportunities until it repeats.
    #[must_use]
    pub fn opportunities(&self) -> u64 {
        self.opportunities.len() as u64
    }

    /// The time of an opportunity, counted from 0 through all repetitions, in nanoseconds.
    #[must_use]
    pub fn time(&self, number: u64) -> u64 {
        let count = self.opportunities.len() as u64;
        let (round, place) = (number / count, number % count);
        let place = usize::try_from(place).unwrap_or_default();
        let ms = round.saturating_mul(self.length_ms()) + self.opportunities[place];
        ms.saturating_mul(NANOS_PER_MS)
    }

    /// The number of the first opportunity at or after a time in nanoseconds.
    #[must_use]
    pub fn first_at(&self, now: u64) -> u64 {
        let ms = now.div_ceil(NANOS_PER_MS);
        let (round, within) = (ms / self.length_ms(), ms % self.length_ms());
        let count = self.opportunities.len() as u64;
        let place = self.opportunities.partition_point(|time| *time < within) as u64;
        let number = round * count + place;
        // The last opportunities of a round are at the time at which the next round begins.
        let earlier = (0..number.min(count)).take_while(|back| self.time(number - back - 1) >= now);
        number - earlier.count() as u64
    }
}

/// Not its thousands of times.
impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace of {} ms, {} bit/s", self.length_ms(), self.mean_bits_per_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_and_repeated() {
        let trace = Trace::parse("# two packets at 1 ms, one at 3\n1\n1\n\n3\n").unwrap();
        let times: Vec<u64> = (0..7).map(|number| trace.time(number) / NANOS_PER_MS).collect();
        assert_eq!(times, [1, 1, 3, 4, 4, 6, 7]);
        assert_eq!(trace.mean_bits_per_s(), 12_000_000);
    }

    #[test]
    fn the_next_opportunity_is_found() {
        for text in ["1\n1\n3\n", "0\n2\n5\n5\n", "7"] {
            let trace = Trace::parse(text).unwrap();
            for now in (0..40 * NANOS_PER_MS).step_by(250_000) {
                let number = trace.first_at(now);
                assert!(trace.time(number) >= now, "{text:?} at {now}");
                assert!(number == 0 || trace.time(number - 1) < now, "{text:?} at {now}");
            }
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        assert_eq!(Trace::parse("1\nx"), Err(TraceError::NoTime(2)));
        assert_eq!(Trace::parse("-1"), Err(TraceError::NoTime(1)));
        assert_eq!(Trace::parse("86400001"), Err(TraceError::NoTime(1)));
        assert_eq!(Trace::parse("5\n\n4"), Err(TraceError::Backwards(3)));
        assert_eq!(Trace::parse(""), Err(TraceError::Empty));
        assert_eq!(Trace::parse("0\n0"), Err(TraceError::Empty));
    }
}
