//! What is asked of a direction, and how to load a link to see.

use std::time::Duration;

use lastbyte_units::BitRate;

use lastbyte_link::Trace;
use lastbyte_link::{
    BurstLoss, Direction, Jitter, Management, Marks, Policer, QueueLimit, Shape, Spec,
};

use super::probe::{AT_START_EVERY, Lane, Load};
use super::{
    BURST_PACKETS, CODEL_FOR, CODEL_OFFERED, DELAY_EVERY, DELAY_PROBES, DELAY_WITHIN, FULL_PACKET,
    JITTER_FOR, JITTER_PROBES, LEAST_LOSS_PACKETS, LEAST_RATE_PACKETS, LOSS_LATE,
    LOSS_PACKETS_PER_S, LOSS_SHARE_OF_RATE, LOSS_WITHIN, LOSSES_WANTED, MOST_LOSS_PACKETS, OFFERED,
    POLICER_BURST, QUEUE_BURST, QUEUE_EXCESS, QUEUE_LATE, QUEUE_OFFERED, QUEUE_WITHIN, RATE_FOR,
    RATE_PACKETS, RATE_WITHIN, SEND_EVERY, SMALL_PACKET, TRACE_FOR, TRACE_WITHIN, Way,
};

/// How much longer than the path takes a receiver waits for the last packet.
const GRACE: Duration = Duration::from_millis(200);
/// Datagrams that the kernel cuts from one write at most: 64 KiB.
const MOST_AT_ONCE: u32 = 40;
/// So many standard deviations are taken for the width of a normal distribution: of two packets that
/// far apart 2 of 10,000 pairs would come in the wrong order (5 / sqrt 2 deviations).
const NORMAL_WIDTH: u32 = 5;

/// One direction's claims.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) way: Way,
    pub(super) delay: Duration,
    pub(super) jitter: Option<Jitter>,
    /// A fraction of one.
    pub(super) loss: f64,
    pub(super) bursts: Option<BurstLoss>,
    pub(super) lose_every: Option<u64>,
    /// A fraction of one.
    pub(super) corrupt: f64,
    /// A fraction of one.
    pub(super) duplicate: f64,
    pub(super) rate: Option<BitRate>,
    pub(super) trace: Option<Trace>,
    /// In bytes, of full packets where it counts packets.
    pub(super) queue: Option<u64>,
    /// Whether the queue counts packets, however small.
    pub(super) queue_counts: bool,
    pub(super) codel: bool,
    pub(super) marks: Marks,
    pub(super) policer: Option<Policer>,
    /// The rate, or the mean of a recorded one.
    pub(super) mean_rate: Option<BitRate>,
    /// The largest packet.
    pub(super) mtu: u32,
    /// The length of a full packet of ours.
    pub(super) full: u32,
}

impl Asked {
    pub(super) fn of(spec: &Spec, way: Way) -> Self {
        // All fields by name, here and below: a new one has to be decided about before this compiles.
        // What happens at set times is measured in `timetable`.
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

    /// How long a packet takes to be transmitted.
    pub(super) fn time_of(&self, ip_bytes: u32) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.time_to_send(ip_bytes.into()))
    }

    /// How far the delays of two packets may be from each other.
    pub(super) fn spread(&self) -> Duration {
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
    pub(super) fn reorders(&self) -> bool {
        self.jitter.as_ref().is_some_and(|jitter| jitter.reorders)
    }

    /// How long a packet that does not wait in a queue may be on its way at most.
    pub(super) fn idle_wait(&self) -> Duration {
        let table = match self.jitter.as_ref().map(|jitter| &jitter.shape) {
            Some(Shape::Table(table)) => table.last().copied().unwrap_or_default(),
            _ => Duration::ZERO,
        };
        self.delay + self.spread() + table + self.time_of(self.full) + GRACE
    }

    /// How long a packet may be on its way at most.
    pub(super) fn longest_wait(&self) -> Duration {
        self.idle_wait() + self.queue_time().min(QUEUE_WITHIN)
    }

    fn queue_time(&self) -> Duration {
        self.mean_rate
            .zip(self.queue)
            .map_or(Duration::ZERO, |(rate, queue)| rate.time_to_send(queue))
    }

    /// How many packets of a size the queue takes, at least 1.
    fn queue_packets(&self, ip_bytes: u32) -> u32 {
        let each = if self.queue_counts { self.full } else { ip_bytes };
        let packets = self.queue.unwrap_or(u64::MAX) / u64::from(each);
        u32::try_from(packets).unwrap_or(u32::MAX).max(1)
    }

    /// Small packets one at a time. Where the delay varies, so far from each other that none waits for
    /// the one before it.
    pub(super) fn delay_load(&self, every: Duration) -> Load {
        let (packets, within, every) = if self.jitter.is_some() {
            let apart = if self.reorders() { Duration::ZERO } else { self.spread() };
            let every = every.max(apart);
            let fit = JITTER_FOR.div_duration_f64(every);
            #[expect(clippy::cast_possible_truncation, reason = "clamped")]
            #[expect(clippy::cast_sign_loss, reason = "clamped")]
            let packets = fit.clamp(DELAY_PROBES.into(), JITTER_PROBES.into()) as u32;
            (packets, JITTER_FOR * 2, every)
        } else {
            (DELAY_PROBES, DELAY_WITHIN, every.max(DELAY_EVERY))
        };
        Load { packets, within, prompt: true, ..Load::paced(SMALL_PACKET, every) }
    }

    /// Numbered packets, enough to see the share asked.
    pub(super) fn loss_load(&self, share: f64) -> Load {
        let wanted = if share > 0.0 { LOSSES_WANTED / share } else { LEAST_LOSS_PACKETS };
        self.numbered(wanted)
    }

    /// Numbered packets, enough to see bursts and how long they are.
    pub(super) fn burst_load(&self, bursts: BurstLoss) -> Load {
        let share = bursts.share.fraction().max(1e-9);
        self.numbered((LOSSES_WANTED * bursts.packets * 4.0 / share).max(BURST_PACKETS))
    }

    /// Numbered packets, enough to see some of those lost by counting.
    pub(super) fn every_load(&self, every: u64) -> Load {
        self.numbered(every.saturating_mul(5).saturating_add(1) as f64)
    }

    /// Numbered packets, slowly enough for the queue and the policer.
    fn numbered(&self, wanted: f64) -> Load {
        let packets = wanted.clamp(LEAST_LOSS_PACKETS, MOST_LOSS_PACKETS).ceil();
        let bytes = f64::from(SMALL_PACKET);
        let share = |rate: BitRate| rate.bytes_per_s() * LOSS_SHARE_OF_RATE / bytes;
        let fits = self.rate.map_or(f64::INFINITY, |rate| {
            let queued = f64::from(self.queue_packets(SMALL_PACKET)) / LOSS_LATE.as_secs_f64();
            share(rate).min(queued)
        });
        let policed = self.policer.map_or(f64::INFINITY, |policer| share(policer.rate));
        let per_s = LOSS_PACKETS_PER_S.min(fits).min(policed);
        Load {
            #[expect(clippy::cast_possible_truncation, reason = "clamped")]
            #[expect(clippy::cast_sign_loss, reason = "clamped")]
            packets: packets as u32,
            within: LOSS_WITHIN,
            burst: (self.queue_packets(SMALL_PACKET) / 4).clamp(1, self.burst_room()),
            ..Load::paced(SMALL_PACKET, Duration::from_secs_f64(1.0 / per_s))
        }
    }

    /// How many small packets may come at once.
    fn burst_room(&self) -> u32 {
        let policed = self.policer.map_or(u64::MAX, |policer| policer.burst.bytes());
        u32::try_from(policed / 4 / u64::from(SMALL_PACKET)).unwrap_or(u32::MAX).clamp(1, 200)
    }

    /// Full packets at more than the rate; smaller ones where it is low, for enough of them. `None`
    /// without a rate, or with one that carries too few.
    pub(super) fn rate_lane(&self) -> Option<Lane> {
        let rate = self.rate?;
        let (ip_bytes, packets) = self.sized(rate)?;
        let fits = self.queue_packets(ip_bytes);
        let every = rate.time_to_send(ip_bytes.into()).div_f64(OFFERED);
        let load = Load {
            packets: packets.saturating_add(packets / 10),
            within: RATE_WITHIN,
            at_start: fits.div_ceil(2).min(packets / 4),
            burst: fits.div_ceil(4),
            batch: at_once(every).min(fits.div_ceil(8)),
            ..Load::paced(ip_bytes, every)
        };
        Some(self.lane(load, self.longest_wait()))
    }

    /// The length of packets, and how many of them a rate carries in the time that is taken for it;
    /// `None` if they are too few.
    fn sized(&self, rate: BitRate) -> Option<(u32, u32)> {
        let in_time = rate.bytes_in(RATE_WITHIN) / RATE_PACKETS;
        let ip_bytes = u32::try_from(in_time).unwrap_or(u32::MAX).clamp(SMALL_PACKET, self.full);
        let in_time = |time| rate.bytes_in(time) / u64::from(ip_bytes);
        let packets = in_time(RATE_FOR).max(RATE_PACKETS).min(in_time(RATE_WITHIN));
        let packets = u32::try_from(packets).ok().filter(|many| *many >= LEAST_RATE_PACKETS)?;
        Some((ip_bytes, packets))
    }

    /// A burst that the queue does not take. `None` without one, or with one that is too long to
    /// wait for.
    pub(super) fn queue_lane(&self) -> Option<Lane> {
        let (rate, queue) = self.mean_rate.zip(self.queue)?;
        if self.queue_time() > QUEUE_WITHIN {
            return None;
        }
        let excess = QUEUE_EXCESS * u64::from(self.full) + rate.bytes_in(QUEUE_LATE);
        let time = rate.time_to_send(self.full.into());
        // Not so fast that the link cannot read it, but faster than the rate.
        let every =
            time.div_f64(QUEUE_OFFERED).max(AT_START_EVERY.min(time.div_f64(CODEL_OFFERED)));
        let load = Load {
            packets: u32::MAX,
            within: QUEUE_WITHIN / 2,
            burst: QUEUE_BURST,
            batch: at_once(every).min(self.queue_packets(self.full).div_ceil(16)),
            overfill: Some((rate, queue.saturating_add(excess))),
            ..Load::paced(self.full, every)
        };
        Some(self.lane(load, self.longest_wait()))
    }

    /// Full packets at more than the rate, for a queue that is managed.
    pub(super) fn codel_lane(&self) -> Option<Lane> {
        Some(self.growing_lane(self.mean_rate.filter(|_| self.codel)?))
    }

    /// The same for a queue that marks above a length, where it is that long in time.
    pub(super) fn marks_lane(&self) -> Option<Lane> {
        let (rate, threshold) = self.mean_rate.zip(self.threshold())?;
        let room = rate.bytes_in(CODEL_FOR.mul_f64((CODEL_OFFERED - 1.0) / 2.0));
        (threshold <= room).then(|| self.growing_lane(rate))
    }

    /// The length of the queue above which packets are marked, in bytes.
    pub(super) fn threshold(&self) -> Option<u64> {
        match self.marks {
            Marks::Above(size) => Some(size.bytes()),
            Marks::None | Marks::InsteadOfDrops => None,
        }
    }

    /// Full packets at more than the rate.
    fn growing_lane(&self, rate: BitRate) -> Lane {
        let every = rate.time_to_send(self.full.into()).div_f64(CODEL_OFFERED);
        let load = Load {
            packets: u32::MAX,
            within: CODEL_FOR,
            burst: 8,
            batch: at_once(every),
            ecn: self.marks != Marks::None,
            ..Load::paced(self.full, every)
        };
        // What waits at the end, twice that.
        self.lane(load, self.idle_wait() + CODEL_FOR.mul_f64(CODEL_OFFERED - 1.0) * 2)
    }

    /// A burst that a policer does not let pass whole, then more than its rate. `None` without one, or
    /// with a rate that lets too few pass.
    pub(super) fn policer_lane(&self) -> Option<Lane> {
        let Policer { rate, burst } = self.policer?;
        let (ip_bytes, packets) = self.sized(rate)?;
        let at_start = burst.bytes().div_ceil(ip_bytes.into()).saturating_mul(POLICER_BURST);
        let every = rate.time_to_send(ip_bytes.into()).div_f64(CODEL_OFFERED);
        let load = Load {
            packets: u32::try_from(at_start).ok()?.saturating_add(packets + packets / 4),
            within: RATE_WITHIN * 2,
            at_start: u32::try_from(at_start).ok()?,
            burst: 8,
            batch: at_once(every),
            ..Load::paced(ip_bytes, every)
        };
        Some(self.lane(load, self.idle_wait()))
    }

    /// As much as a recorded rate carries in the time taken for it, all at once.
    pub(super) fn trace_lane(&self) -> Option<Lane> {
        let (rate, trace) = self.mean_rate.zip(self.trace.as_ref())?;
        // A whole round, and what is not steady yet.
        let round = trace.length() + trace.length() / 4;
        let time = if round <= TRACE_WITHIN { round.max(TRACE_FOR) } else { TRACE_FOR };
        let packets = rate.bytes_in(time) / u64::from(self.full);
        let packets = u32::try_from(packets).unwrap_or(u32::MAX).clamp(50, 100_000);
        let load = Load {
            packets,
            within: QUEUE_WITHIN,
            at_start: packets,
            batch: MOST_AT_ONCE,
            ..Load::paced(self.full, Duration::ZERO)
        };
        let time = rate.time_to_send(u64::from(packets) * u64::from(self.full));
        Some(self.lane(load, self.idle_wait() + time * 2))
    }

    pub(super) fn lane(&self, load: Load, linger: Duration) -> Lane {
        Lane { way: self.way, load, linger, copies: self.duplicate > 0.0 }
    }
}

/// How many packets are written at once, so that the sender runs every [`SEND_EVERY`].
pub(super) fn at_once(every: Duration) -> u32 {
    let packets = SEND_EVERY.as_nanos() / every.as_nanos().max(1);
    u32::try_from(packets).unwrap_or(u32::MAX).clamp(1, MOST_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastbyte_link::Scenario;

    fn asked(toml: &str) -> Asked {
        Asked::of(&Scenario::parse("test", toml).unwrap().spec, Way::Up)
    }

    #[test]
    fn a_loss_gets_packets_enough_and_not_too_many() {
        let packets = |share| asked("rtt = '1ms'").loss_load(share).packets;
        assert_eq!(packets(0.0), 5_000);
        assert_eq!(packets(0.01), 5_000);
        assert_eq!(packets(0.000_34), 58_824);
        assert_eq!(packets(0.000_01), 100_000);
    }

    #[test]
    fn numbered_packets_leave_half_of_a_rate_and_of_a_policer() {
        let speed = |toml: &str| {
            let load = asked(toml).loss_load(0.01);
            f64::from(load.ip_bytes) * 8.0 / load.every.as_secs_f64()
        };
        let rate = speed("rate = '1mbit'\nqueue = '1MB'");
        assert!((rate - 500_000.0).abs() < 10.0, "{rate}");
        let policed = speed("policer = { rate = '2mbit', burst = '9kB' }");
        assert!((policed - 1_000_000.0).abs() < 20.0, "{policed}");
        let short = asked("rate = '1gbit'\nqueue = '4packets'").loss_load(0.01);
        assert_eq!((short.every, short.burst), (LOSS_LATE / 4, 1));
        let short = asked("rate = '1gbit'\nqueue = '3200B'").loss_load(0.01);
        assert_eq!((short.every, short.burst), (LOSS_LATE / 100, 25));
    }

    #[test]
    fn slow_links_are_measured_with_small_packets_or_not_at_all() {
        let lane = |rate: &str| asked(&format!("rate = '{rate}'")).rate_lane();
        let load = lane("95mbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (1500, 15_833 + 1_583));
        let load = lane("1mbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets, load.batch), (1500, 220, 1));
        let load = lane("64kbit").unwrap().load;
        assert_eq!((load.ip_bytes, load.packets), (200, 220));
        assert!(lane("1kbit").is_none());
    }

    #[test]
    fn fast_senders_write_many_packets_at_once() {
        let load = asked("rtt = '80ms'\nrate = '1gbit'").rate_lane().unwrap().load;
        assert_eq!(load.batch, 18);
        let short = asked("rate = '1gbit'\nqueue = '30kB'").rate_lane().unwrap().load;
        assert_eq!(short.batch, 3, "no more than a short queue takes");
    }

    #[test]
    fn probes_of_a_varying_delay_do_not_wait_for_each_other() {
        let load = |toml: &str| asked(toml).delay_load(Duration::from_millis(2));
        assert_eq!(load("rtt = '50ms'\njitter = '2ms'").every, Duration::from_millis(4));
        let normal = load("rtt = '50ms'\njitter = '8ms'\njitter_shape = 'normal'");
        assert_eq!((normal.every, normal.packets), (Duration::from_millis(40), 200));
        let reordered = load("rtt = '50ms'\njitter = '20ms'\nreorder = true");
        assert_eq!((reordered.every, reordered.packets), (Duration::from_millis(2), 1000));
        assert_eq!(load("rtt = '50ms'").every, DELAY_EVERY);
    }

    #[test]
    fn a_queue_too_long_to_wait_for_gets_no_burst() {
        assert!(asked("rate = '1mbit'\nqueue = '600kB'").queue_lane().is_some());
        assert!(asked("rate = '1mbit'\nqueue = '650kB'").queue_lane().is_none());
        assert!(asked("rtt = '1ms'").queue_lane().is_none());
    }

    #[test]
    fn a_queue_of_packets_counts_full_ones() {
        assert_eq!(asked("rate = '9mbit'\nqueue = '10packets'").queue, Some(15_000));
        let small = asked("mtu = 1000\nrate = '9mbit'\nqueue = '10packets'");
        assert_eq!((small.queue, small.full), (Some(10_000), 1000));
    }
}
