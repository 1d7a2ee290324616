//! What a path asks of one direction.

use std::time::Duration;

use lastbyte_link::{
    BurstLoss, Direction, Jitter, Management, Marks, Policer, QueueLimit, Shape, Spec, Trace, Way,
};
use lastbyte_units::BitRate;

use crate::probe::{FULL_PACKET, Flow, Load};

/// How much longer than the path takes a receiver waits for the last packet.
const GRACE: Duration = Duration::from_millis(200);
/// How long a full queue may take to run empty, and a sender to fill it.
pub(crate) const QUEUE_WITHIN: Duration = Duration::from_secs(5);
/// The width of a normal distribution, in standard deviations: of two packets sent that far apart 2 of
/// 10,000 pairs would arrive in the wrong order (5 / sqrt 2 deviations).
const NORMAL_WIDTH: u32 = 5;

/// What a path asks of one direction, for the claims to measure.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) way: Way,
    pub(crate) delay: Duration,
    pub(crate) jitter: Option<Jitter>,
    /// A fraction of one.
    pub(crate) loss: f64,
    pub(crate) bursts: Option<BurstLoss>,
    pub(crate) lose_every: Option<u64>,
    /// A fraction of one.
    pub(crate) corrupt: f64,
    /// A fraction of one.
    pub(crate) duplicate: f64,
    pub(crate) rate: Option<BitRate>,
    pub(crate) trace: Option<Trace>,
    /// In bytes, of full packets where it counts packets.
    pub(crate) queue: Option<u64>,
    /// Whether the queue is limited in packets, however small they are.
    pub(crate) queue_counts: bool,
    pub(crate) codel: bool,
    pub(crate) marks: Marks,
    pub(crate) policer: Option<Policer>,
    /// The rate, or the mean of a recorded one.
    pub(crate) mean_rate: Option<BitRate>,
    /// The largest packet.
    pub(crate) mtu: u32,
    /// The length of a full packet of ours.
    pub(crate) full: u32,
}

impl Asked {
    pub(crate) fn of(spec: &Spec, way: Way) -> Self {
        // All fields by name, here and below: a new one does not compile until it is measured or left
        // out. What happens at set times, cuts and changes, is measured from the path itself.
        let Spec { up: _, down: _, mtu: _, changes: _ } = spec;
        let direction = spec.direction(way);
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
            marks,
            policer,
            outages: _,
        } = direction;
        let mtu = spec.largest_packet();
        let full = mtu.min(FULL_PACKET);
        let limit = spec.queue_limit(direction);
        let queue = limit.map(|limit| match limit {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(full.into()),
        });
        Self {
            way,
            delay: *delay,
            jitter: jitter.clone(),
            loss: loss.map_or(0.0, |share| share.fraction()),
            bursts: *burst_loss,
            lose_every: *lose_every,
            corrupt: corrupt.map_or(0.0, |share| share.fraction()),
            duplicate: duplicate.map_or(0.0, |share| share.fraction()),
            rate: *rate,
            trace: trace.clone(),
            queue,
            queue_counts: matches!(limit, Some(QueueLimit::Packets(_))),
            codel: *management == Management::Codel,
            marks: *marks,
            policer: *policer,
            mean_rate: direction.mean_rate(),
            mtu,
            full,
        }
    }

    /// How long the transmission of a packet takes.
    pub(crate) fn time_of(&self, ip_bytes: u32) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.time_to_send(ip_bytes.into()))
    }

    /// The greatest difference of the delays of two packets.
    pub(crate) fn spread(&self) -> Duration {
        match self.jitter.as_ref().map(|jitter| &jitter.shape) {
            None => Duration::ZERO,
            Some(Shape::Uniform(half)) => *half * 2,
            Some(Shape::Normal(deviation)) => *deviation * NORMAL_WIDTH,
            Some(Shape::Table(table)) => {
                let ends = table.first().zip(table.last());
                ends.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(*first))
            }
        }
    }

    /// Whether packets may overtake each other.
    pub(crate) fn reorders(&self) -> bool {
        self.jitter.as_ref().is_some_and(|jitter| jitter.reorders)
    }

    /// The longest time from sending to arrival of a packet that does not wait in a queue.
    pub(crate) fn idle_wait(&self) -> Duration {
        let table = match self.jitter.as_ref().map(|jitter| &jitter.shape) {
            Some(Shape::Table(table)) => table.last().copied().unwrap_or_default(),
            _ => Duration::ZERO,
        };
        self.delay + self.spread() + table + self.time_of(self.full) + GRACE
    }

    /// The longest time from sending to arrival of a packet, with a full queue that is waited for.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.idle_wait() + self.queue_time().min(QUEUE_WITHIN)
    }

    /// How long a full queue takes to run empty.
    pub(crate) fn queue_time(&self) -> Duration {
        self.mean_rate
            .zip(self.queue)
            .map_or(Duration::ZERO, |(rate, queue)| rate.time_to_send(queue))
    }

    /// How many packets of a size the queue takes, at least 1.
    pub(crate) fn queue_packets(&self, ip_bytes: u32) -> u32 {
        let each = if self.queue_counts { self.full } else { ip_bytes };
        let packets = self.queue.unwrap_or(u64::MAX) / u64::from(each);
        u32::try_from(packets).unwrap_or(u32::MAX).max(1)
    }

    /// The flow of a load in this direction; its receiver waits for `linger` after the last packet.
    pub(crate) fn flow(&self, load: Load, linger: Duration) -> Flow {
        Flow { way: self.way, load, linger, copies: self.duplicate > 0.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use lastbyte_link::Scenario;

    use super::*;

    /// What a scenario asks of the upward direction.
    pub(crate) fn asked(toml: &str) -> Asked {
        Asked::of(&Scenario::parse("test", toml).unwrap().spec, Way::Up)
    }

    #[test]
    fn a_queue_of_packets_counts_full_ones() {
        assert_eq!(asked("rate = '9mbit'\nqueue = '10packets'").queue, Some(15_000));
        let small = asked("mtu = 1000\nrate = '9mbit'\nqueue = '10packets'");
        assert_eq!((small.queue, small.full), (Some(10_000), 1000));
    }
}
