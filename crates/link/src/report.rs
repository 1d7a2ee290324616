//! What a link did, and how late its packets were.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::spec::Way;

/// A link keeps its promise if 99 of 100 packets are at most this late: about what timers and the
/// scheduler of a real host add.
pub const PROMISED_LATENESS: Duration = Duration::from_millis(1);

/// What a link did from its beginning to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// From the near host to the far one.
    pub up: DirectionReport,
    /// From the far host to the near one.
    pub down: DirectionReport,
    /// How much later than the model decided packets were delivered. The model's clock for a packet
    /// begins when the carrier reads it.
    pub lateness: Times,
    /// How long packets may have waited in the sending host's device until they were read, a GSO packet
    /// counting as one: since the carrier had last found the device empty, or was woken.
    pub unread: Times,
    /// How long the carrier was ready to run but had no processor; `None` where the kernel does not
    /// count this.
    pub starved: Option<Duration>,
    /// Packets that the kernel dropped at the devices, unasked.
    pub device_drops: u64,
    /// Processor time spent on carrying packets.
    pub cpu: Duration,
}

/// One direction's packets: `packets == delivered + lost + dropped + policed + in_flight`, and what
/// the kernel dropped unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectionReport {
    /// Packets that arrived at the link.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Packets delivered to the other host.
    pub delivered: u64,
    /// Their IP bytes.
    pub delivered_bytes: u64,
    /// Packets lost on the wire, as asked.
    pub lost: u64,
    /// Packets dropped at the queue, as asked.
    pub dropped: u64,
    /// Packets dropped by the policer, as asked.
    pub policed: u64,
    /// Packets delivered with a mark of congestion, as asked.
    pub marked: u64,
    /// Packets delivered corrupted, as asked.
    pub corrupted: u64,
    /// Duplicates delivered, as asked; [`DirectionReport::delivered`] does not count them.
    pub duplicated: u64,
    /// How long packets waited in the queue: those that were delivered or are in flight.
    pub queue_delay: Times,
    /// Packets still in flight when the link ended.
    pub in_flight: u64,
}

/// The distribution of a time over many packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// Half of them at most this.
    pub p50: Duration,
    /// 99 of 100 at most this.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Times {
    /// From a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u32>) -> Self {
        let at = |q| Duration::from_nanos(histogram.value_at_quantile(q));
        Self { p50: at(0.5), p99: at(0.99), max: Duration::from_nanos(histogram.max()) }
    }
}

impl Report {
    /// The packets of one direction.
    #[must_use]
    pub fn direction(&self, way: Way) -> &DirectionReport {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    /// Why this run should not be believed; `None` if the link kept its promise: 99 of 100 packets
    /// delivered at most 1 ms late, none dropped unasked.
    #[must_use]
    pub fn broken_promise(&self) -> Option<String> {
        if self.device_drops > 0 {
            return Some(format!("{} packets were dropped unasked", self.device_drops));
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        if self.lateness.p99 > PROMISED_LATENESS {
            let late = ms(self.lateness.p99);
            return Some(format!("1 of 100 packets was more than {late:.1} ms late"));
        }
        None
    }
}
