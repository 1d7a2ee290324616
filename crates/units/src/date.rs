//! Moments as dates and times of UTC.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::{DateTime, datetime};

/// A moment as date and time of UTC. It is only printed: to the minute by [`Display`](fmt::Display)
/// (`2026-11-21 05:26 UTC`), to the millisecond by [`UtcTime::with_millis`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcTime(DateTime);

impl UtcTime {
    /// The moment that long after the beginning of 1970; `None` after the year 9999.
    #[must_use]
    pub fn since_1970(time: Duration) -> Option<Self> {
        let began = datetime(1970, 1, 1, 0, 0, 0, 0);
        let time = SignedDuration::try_from(time).ok()?;
        began.checked_add(time).ok().map(Self)
    }

    /// A moment of the system's clock; one before 1970 counts as its beginning. `None` after the year
    /// 9999.
    #[must_use]
    pub fn of(time: SystemTime) -> Option<Self> {
        Self::since_1970(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// To the millisecond: `2026-11-21 05:26:07.123Z`.
    #[must_use]
    pub fn with_millis(self) -> String {
        let (date, time) = (self.0.date(), self.0.time());
        format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}Z",
            date.year(),
            date.month(),
            date.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.millisecond()
        )
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = (self.0.date(), self.0.time());
        let (year, month, day) = (date.year(), date.month(), date.day());
        write!(f, "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", time.hour(), time.minute())
    }
}
