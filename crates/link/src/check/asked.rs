//! What is asked of a direction, as far as the check knows it, and how to load a link to see.

use std::time::Duration;

use lastbyte_units::BitRate;

use crate::spec::{Direction, Management, Spec};

use super::probe::{Lane, Load};
use super::{
    FULL_PACKET, LEAST_LOSS_PACKETS, LEAST_RATE_PACKETS, LOSS_LATE, LOSS_PACKETS_PER_S,
    LOSS_SHARE_OF_RATE, LOSS_WITHIN, LOSSES_WANTED, MOST_LOSS_PACKETS, OFFERED, QUEUE_BURST,
    QUEUE_EXCESS, QUEUE_LATE, QUEUE_OFFERED, QUEUE_WITHIN, RATE_FOR, RATE_PACKETS, RATE_WITHIN,
    SMALL_PACKET, Way,
};

/// How much longer than the path takes a receiver waits for the last packet.
const GRACE: Duration = Duration::from_millis(200);

/// One direction's claims.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) way: Way,
    pub(super) delay: Duration,
    /// A fraction of one.
    pub(super) loss: f64,
    pub(super) rate: Option<BitRate>,
    /// In bytes.
    pub(super) queue: Option<u64>,
    /// What else is asked, by name, and why it is not checked.
    pub(super) unknown: Vec<(&'static str, &'static str)>,
}

impl Asked {
    pub(super) fn of(spec: &Spec, way: Way) -> Self {
        let direction = spec.direction(way);
        // All fields by name: a new one has to be decided about here before this compiles. Where it
        // is asked for and not measured, it goes into `unknown`.
        let Direction {
            delay,
            jitter,
            loss,
            burst_loss,
            lose_every,
            corrupt,
            duplicate,
            rate,
            trace,
            queue: _,
            management,
            marks_ecn: _,
            policer,
            outages,
        } = direction;
        let asked_for = [
            ("jitter", jitter.is_some()),
            ("losses in bursts", burst_loss.is_some()),
            ("losses by counting", lose_every.is_some()),
            ("corruption", corrupt.is_some()),
            ("duplication", duplicate.is_some()),
            ("a recorded rate", trace.is_some()),
            ("CoDel", *management == Management::Codel),
            ("a policer", policer.is_some()),
            ("cuts", !outages.cuts.is_empty()),
            ("changes", !spec.changes.is_empty()),
        ];
        let why = "the path was measured without it";
        let unknown = asked_for.into_iter().filter(|(_, asked)| *asked);
        Self {
            way,
            delay: *delay,
            loss: loss.map_or(0.0, |share| share.fraction()),
            rate: *rate,
            queue: spec.queue_bytes(direction).filter(|_| rate.is_some()),
            unknown: unknown.map(|(what, _)| (what, why)).collect(),
        }
    }

    /// How long a packet takes to be transmitted.
    pub(super) fn time_of(&self, ip_bytes: u32) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.time_to_send(ip_bytes.into()))
    }

    /// How long a packet may be on its way at most.
    pub(super) fn longest_wait(&self) -> Duration {
        self.delay + self.queue_time().min(QUEUE_WITHIN) + GRACE
    }

    fn queue_time(&self) -> Duration {
        self.rate.zip(self.queue).map_or(Duration::ZERO, |(rate, queue)| rate.time_to_send(queue))
    }

    /// How many packets of a size the queue takes, at least 1.
    fn queue_packets(&self, ip_bytes: u32) -> u32 {
        let packets = self.queue.unwrap_or(u64::MAX) / u64::from(ip_bytes);
        u32::try_from(packets).unwrap_or(u32::MAX).max(1)
    }

    /// Numbered packets, enough to see the share asked, slowly enough for the queue.
    pub(super) fn loss_load(&self) -> Load {
        let wanted = if self.loss > 0.0 { LOSSES_WANTED / self.loss } else { LEAST_LOSS_PACKETS };
        let packets = wanted.clamp(LEAST_LOSS_PACKETS, MOST_LOSS_PACKETS).ceil();
        let fits = self.rate.map_or(f64::INFINITY, |rate| {
            let transmitted = rate.bytes_per_s() * LOSS_SHARE_OF_RATE / f64::from(SMALL_PACKET);
            let queued = f64::from(self.queue_packets(SMALL_PACKET)) / LOSS_LATE.as_secs_f64();
            transmitted.min(queued)
        });
        Load {
            #[expect(clippy::cast_possible_truncation, reason = "clamped")]
            #[expect(clippy::cast_sign_loss, reason = "clamped")]
            packets: packets as u32,
            within: LOSS_WITHIN,
            burst: (self.queue_packets(SMALL_PACKET) / 4).clamp(1, 200),
            ..Load::paced(SMALL_PACKET, Duration::from_secs_f64(1.0 / LOSS_PACKETS_PER_S.min(fits)))
        }
    }

    /// Full packets at more than the rate; smaller ones where it is low, for enough of them. `None`
    /// without a rate, or with one that carries too few.
    pub(super) fn rate_lane(&self) -> Option<Lane> {
        let rate = self.rate?;
        let in_time = rate.bytes_in(RATE_WITHIN) / RATE_PACKETS;
        let ip_bytes = u32::try_from(in_time).unwrap_or(u32::MAX).clamp(SMALL_PACKET, FULL_PACKET);
        let in_time = |time| rate.bytes_in(time) / u64::from(ip_bytes);
        let packets = in_time(RATE_FOR).max(RATE_PACKETS).min(in_time(RATE_WITHIN));
        let packets = u32::try_from(packets).ok().filter(|many| *many >= LEAST_RATE_PACKETS)?;
        let fits = self.queue_packets(ip_bytes);
        let load = Load {
            packets: packets.saturating_add(packets / 10),
            within: RATE_WITHIN,
            at_start: fits.div_ceil(2).min(packets / 4),
            burst: fits.div_ceil(4),
            ..Load::paced(ip_bytes, self.time_of(ip_bytes).div_f64(OFFERED))
        };
        Some(Lane { way: self.way, load, linger: self.longest_wait() })
    }

    /// A burst that the queue does not take. `None` without one, or with one that is too long to
    /// wait for.
    pub(super) fn queue_lane(&self) -> Option<Lane> {
        let (rate, queue) = self.rate.zip(self.queue)?;
        if self.queue_time() > QUEUE_WITHIN {
            return None;
        }
        let excess = QUEUE_EXCESS * u64::from(FULL_PACKET) + rate.bytes_in(QUEUE_LATE);
        let load = Load {
            packets: u32::MAX,
            within: QUEUE_WITHIN / 2,
            burst: QUEUE_BURST,
            overfill: Some((rate, queue.saturating_add(excess))),
            ..Load::paced(FULL_PACKET, self.time_of(FULL_PACKET).div_f64(QUEUE_OFFERED))
        };
        Some(Lane { way: self.way, load, linger: self.longest_wait() })
    }
}

/// The path with no more than what is measured.
pub(super) fn what_is_measured(spec: &Spec) -> Spec {
    let only = |direction: &Direction| Direction {
        delay: direction.delay,
        loss: direction.loss,
        rate: direction.rate,
        queue: direction.queue.filter(|_| direction.rate.is_some()),
        ..Direction::default()
    };
    Spec { up: only(&spec.up), down: only(&spec.down), mtu: spec.mtu, changes: Vec::new() }
}

/// The path without what takes packets away by chance.
pub(super) fn without_loss(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    for direction in [&mut spec.up, &mut spec.down] {
        direction.loss = None;
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn asked(toml: &str) -> Asked {
        Asked::of(&Scenario::parse("test", toml).unwrap().spec, Way::Up)
    }

    #[test]
    fn a_loss_gets_packets_enough_and_not_too_many() {
        let packets = |loss: &str| asked(&format!("loss = '{loss}'")).loss_load().packets;
        assert_eq!(packets("0%"), 5_000);
        assert_eq!(packets("1%"), 5_000);
        assert_eq!(packets("0.034%"), 58_824);
        assert_eq!(packets("0.001%"), 100_000);
    }

    #[test]
    fn numbered_packets_leave_half_of_a_rate() {
        let load = asked("rate = '1mbit'\nloss = '1%'\nqueue = '1MB'").loss_load();
        let rate = f64::from(load.ip_bytes) * 8.0 / load.every.as_secs_f64();
        assert!((rate - 500_000.0).abs() < 10.0, "{rate}");
        let short = asked("rate = '1gbit'\nqueue = '3200B'").loss_load();
        assert_eq!(short.every, LOSS_LATE / 100);
    }

    #[test]
    fn slow_links_are_measured_with_small_packets_or_not_at_all() {
        let lane = |rate: &str| asked(&format!("rate = '{rate}'")).rate_lane();
        let load = lane("95mbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (1500, 15_833 + 1_583));
        let load = lane("1mbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (1500, 220));
        let load = lane("64kbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (200, 220));
        assert!(lane("1kbit").is_none());
    }

    #[test]
    fn a_queue_too_long_to_wait_for_gets_no_burst() {
        assert!(asked("rate = '1mbit'\nqueue = '600kB'").queue_lane().is_some());
        assert!(asked("rate = '1mbit'\nqueue = '650kB'").queue_lane().is_none());
        assert!(asked("rtt = '1ms'").queue_lane().is_none());
    }
}
