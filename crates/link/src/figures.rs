//! What a link did, in words and as JSON.

use std::time::Duration;

use lastbyte_units::grouped;
use serde::{Deserialize, Serialize};

use crate::report::{DirectionReport, Report, Times};

const SCHEMA: u32 = 1;

/// A link's report, for readers outside of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    schema: u32,
    #[serde(rename = "type")]
    kind: String,
    /// The link's name.
    pub link: String,
    /// From near to far.
    pub up: WayFigures,
    /// From far to near.
    pub down: WayFigures,
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    /// Waits in the sending host's device, at most.
    unread_p99_ms: f64,
    unread_max_ms: f64,
    /// `null` where the kernel does not count it.
    starved_ms: Option<f64>,
    device_drops_packets: u64,
    cpu_s: f64,
    /// Why it is not to be believed.
    pub broken_promise: Option<String>,
}

/// One direction of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WayFigures {
    packets: u64,
    bytes: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    lost_packets: u64,
    dropped_packets: u64,
    policed_packets: u64,
    marked_packets: u64,
    corrupted_packets: u64,
    duplicated_packets: u64,
    in_flight_packets: u64,
    queued_p50_ms: f64,
    queued_p99_ms: f64,
    queued_max_ms: f64,
}

impl LinkFigures {
    /// Of a link with this name.
    #[must_use]
    pub fn of(link: &str, report: &Report) -> Self {
        let Times { p50, p99, max, .. } = report.lateness;
        Self {
            schema: SCHEMA,
            kind: "link".to_owned(),
            link: link.to_owned(),
            up: WayFigures::of(&report.up),
            down: WayFigures::of(&report.down),
            late_p50_ms: ms(p50),
            late_p99_ms: ms(p99),
            late_max_ms: ms(max),
            unread_p99_ms: ms(report.unread.p99),
            unread_max_ms: ms(report.unread.max),
            starved_ms: report.starved.map(ms),
            device_drops_packets: report.device_drops,
            cpu_s: report.cpu.as_secs_f64(),
            broken_promise: report.broken_promise(),
        }
    }

    /// What the link did, and whether to believe it, in lines; each begins with `name`.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<String> {
        let mut lines = vec![
            format!("{name}: up   {}", self.up.words()),
            format!("{name}: down {}", self.down.words()),
        ];
        if self.up.packets + self.down.packets > 0 {
            lines.push(format!("{name}: {}", self.truth()));
        }
        lines
    }

    /// How true it was.
    #[must_use]
    pub fn truth(&self) -> String {
        let lateness = format!(
            "late by {:.2} ms at the median, {:.2} ms at 99 %, {:.2} ms at most",
            self.late_p50_ms, self.late_p99_ms, self.late_max_ms
        );
        match &self.broken_promise {
            None => format!("kept its promise: {lateness}{}{}", self.starvation(), self.cost()),
            Some(why) => {
                format!("do not believe this run: {why}; {lateness}{}", self.starvation())
            }
        }
    }

    /// How long the link had to wait for a processor, where that was long enough to be seen.
    fn starvation(&self) -> String {
        match self.starved_ms {
            Some(waited) if waited >= 1.0 => {
                format!("; without a processor for {waited:.0} ms in all")
            }
            _ => String::new(),
        }
    }

    /// What a gigabyte cost, where there was one.
    fn cost(&self) -> String {
        let gb = (self.up.delivered_bytes + self.down.delivered_bytes) as f64 / 1e9;
        if gb < 0.1 {
            return String::new();
        }
        format!("; CPU {:.2} s, {:.2} s per GB", self.cpu_s, self.cpu_s / gb)
    }
}

impl WayFigures {
    fn of(direction: &DirectionReport) -> Self {
        let waited = direction.queue_delay;
        Self {
            packets: direction.packets,
            bytes: direction.bytes,
            delivered_packets: direction.delivered,
            delivered_bytes: direction.delivered_bytes,
            lost_packets: direction.lost,
            dropped_packets: direction.dropped,
            policed_packets: direction.policed,
            marked_packets: direction.marked,
            corrupted_packets: direction.corrupted,
            duplicated_packets: direction.duplicated,
            in_flight_packets: direction.in_flight,
            queued_p50_ms: ms(waited.p50),
            queued_p99_ms: ms(waited.p99),
            queued_max_ms: ms(waited.max),
        }
    }

    fn words(&self) -> String {
        let always = [("lost", self.lost_packets), ("dropped at the queue", self.dropped_packets)];
        let sometimes = [
            ("policed", self.policed_packets),
            ("marked", self.marked_packets),
            ("corrupted", self.corrupted_packets),
            ("duplicated", self.duplicated_packets),
        ];
        let sometimes = sometimes.into_iter().filter(|(_, packets)| *packets > 0);
        let fates = always.into_iter().chain(sometimes);
        let fates = fates.map(|(fate, packets)| format!(", {} {fate}", grouped(packets)));
        let waited = if self.queued_max_ms == 0.0 {
            String::new()
        } else {
            let (p50, p99) = (self.queued_p50_ms, self.queued_p99_ms);
            format!(", queued {p50:.2} ms to {p99:.2} ms (p50, p99)")
        };
        format!("{} packets{}{waited}", grouped(self.packets), fates.collect::<String>())
    }

    /// A row of a table: packets and bytes in, delivered, lost and so on.
    #[must_use]
    pub fn row(&self, link: &str, way: &str) -> Vec<String> {
        let counts = [
            self.packets,
            self.bytes,
            self.delivered_packets,
            self.delivered_bytes,
            self.lost_packets,
            self.dropped_packets,
            self.policed_packets,
            self.marked_packets,
            self.in_flight_packets,
        ];
        let mut row = vec![link.to_owned(), way.to_owned()];
        row.extend(counts.map(grouped));
        row.push(format!("{:.2} ms", self.queued_p50_ms));
        row.push(format!("{:.2} ms", self.queued_p99_ms));
        row
    }
}

/// To the nanosecond, and no further.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e9).round() / 1e6
}
