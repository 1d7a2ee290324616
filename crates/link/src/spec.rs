//! The properties of a path.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span};
use serde::{Deserialize, Serialize};

use crate::trace::Trace;

/// The shortest queue that a multiple of the bandwidth-delay product is rounded up to: ten full
/// packets, so that a short path still has a queue.
const SHORTEST_QUEUE: u64 = 15_000;

/// The largest IP packet where a path does not say, as on an Ethernet.
pub const DEFAULT_MTU: u32 = 1500;
/// What every IPv4 host must be able to take (RFC 1122 section 3.3.3), and jumbo frames.
const MTUS: std::ops::RangeInclusive<u32> = 576..=9000;

/// A path: what happens to packets on the way out and on the way back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// From the near host to the far one.
    pub up: Direction,
    /// From the far host to the near one.
    pub down: Direction,
    /// The largest IP packet in bytes, of both hosts' devices; [`DEFAULT_MTU`] if not said. Below 1280
    /// there is no IPv6 (RFC 8200 section 5).
    pub mtu: Option<u32>,
    /// Its scheduled changes, in order of time.
    pub changes: Vec<Change>,
}

/// A scheduled change of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The time since the link began.
    pub at: Duration,
    /// From the near host to the far one, from then on.
    pub up: Direction,
    /// From the far host to the near one, from then on.
    pub down: Direction,
}

/// A direction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the near host to the far one.
    Up,
    /// From the far host to the near one.
    Down,
}

impl Way {
    /// Up, then down.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// Its place in [`Way::BOTH`], and in all that has one value for each direction.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Up => 0,
            Self::Down => 1,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// One direction of a path. A property that is `None` does not apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// From the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// How the delay varies.
    pub jitter: Option<Jitter>,
    /// The share of packets that are lost on the wire, each independently, after they took their
    /// time in the queue.
    pub loss: Option<Share>,
    /// Loss in bursts, beside the independent one.
    pub burst_loss: Option<BurstLoss>,
    /// Every n-th packet is lost.
    pub lose_every: Option<u64>,
    /// The share of packets that arrive corrupted: the receiver's checksum detects most of them.
    pub corrupt: Option<Share>,
    /// The share of packets that arrive twice.
    pub duplicate: Option<Share>,
    /// IP bytes per second; with `None` a transmission takes no time. With 1500-byte packets TCP's
    /// payload is 96.5 % of it (1448 of 1500).
    pub rate: Option<BitRate>,
    /// A recorded rate instead of a constant one.
    pub trace: Option<Trace>,
    /// How much may wait for transmission: more is dropped at the tail. Needs a rate.
    pub queue: Option<Queue>,
    /// How a long queue is managed.
    pub management: Management,
    /// Which ECN-capable packets (RFC 3168) are marked with CE.
    pub marks: Marks,
    /// A limit without a queue: packets that exceed it are dropped at once.
    pub policer: Option<Policer>,
    /// When the wire is cut, and nothing gets through.
    pub outages: Outages,
}

impl Direction {
    /// The rate, or the mean of a recorded one; `None` where nothing limits it.
    #[must_use]
    pub fn mean_rate(&self) -> Option<BitRate> {
        let recorded = || BitRate::from_bits_per_s(self.trace.as_ref()?.mean_bits_per_s()).ok();
        self.rate.or_else(recorded)
    }

    /// What gets through in the long run: the lower of [`Direction::mean_rate`] and the policer's rate;
    /// `None` where nothing limits it.
    #[must_use]
    pub fn lasting_rate(&self) -> Option<BitRate> {
        let policed = self.policer.map(|policer| policer.rate);
        [self.mean_rate(), policed].into_iter().flatten().min()
    }

    /// The limit of the queue on a path of this round trip.
    fn queue_limit(&self, rtt: Duration) -> Option<QueueLimit> {
        let rate = self.mean_rate()?;
        Some(QueueLimit::Bytes(match self.queue.unwrap_or(Queue::Bdp(1.0)) {
            Queue::Packets(packets) => return Some(QueueLimit::Packets(packets)),
            Queue::Bytes(size) => size.bytes(),
            Queue::Bdp(multiple) => rate.bytes_in(rtt.mul_f64(multiple)).max(SHORTEST_QUEUE),
            Queue::Time(time) => rate.bytes_in(time).max(SHORTEST_QUEUE),
        }))
    }

    fn check(&self, mtu: u32) -> Result<(), SpecError> {
        if self.rate.is_some() && self.trace.is_some() {
            return Err(SpecError::TwoRates);
        }
        let has_rate = self.mean_rate().is_some();
        let wants_queue = self.queue.is_some()
            || self.management != Management::DropTail
            || matches!(self.marks, Marks::Above(_));
        if !has_rate && wants_queue {
            return Err(SpecError::QueueWithoutRate);
        }
        if let Some(Queue::Bytes(size)) = self.queue
            && size.bytes() < u64::from(mtu)
        {
            return Err(SpecError::QueueTooShort(size.bytes(), mtu));
        }
        if self.marks == Marks::InsteadOfDrops && self.management == Management::DropTail {
            return Err(SpecError::NothingMarks);
        }
        if matches!(self.marks, Marks::Above(_)) && self.management != Management::DropTail {
            return Err(SpecError::TwoMarks);
        }
        if self.policer.is_some_and(|policer| policer.burst.bytes() < u64::from(mtu)) {
            return Err(SpecError::BurstTooShort(mtu));
        }
        if let Some(Jitter { shape: Shape::Table(table), .. }) = &self.jitter
            && (table.len() < 2 || !table.is_sorted())
        {
            return Err(SpecError::JitterTable);
        }
        self.check_loss()
    }

    fn check_loss(&self) -> Result<(), SpecError> {
        if self.lose_every == Some(0) {
            return Err(SpecError::NoSuchLoss);
        }
        let Some(BurstLoss { share, packets, in_burst }) = self.burst_loss else { return Ok(()) };
        if !(packets >= 1.0 && packets.is_finite()) {
            return Err(SpecError::NoSuchLoss);
        }
        if share.fraction() > in_burst.fraction() {
            return Err(SpecError::MoreThanBursts);
        }
        Ok(())
    }
}

/// The length of a queue, the packet in transmission included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// In bytes.
    Bytes(ByteSize),
    /// In packets, whatever their size.
    Packets(u64),
    /// In multiples of the bandwidth-delay product: rate times the path's round trip.
    Bdp(f64),
    /// As long as the rate needs to empty it.
    Time(Duration),
}

/// A queue's length as the model counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// In bytes.
    Bytes(u64),
    /// In packets.
    Packets(u64),
}

/// Which ECN-capable packets (RFC 3168: ECT(0) or ECT(1)) are marked with CE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// None.
    #[default]
    None,
    /// Those that the queue's management would drop.
    InsteadOfDrops,
    /// Those that arrive while more than this waits, as in switches for DCTCP (RFC 8257 section 3.1);
    /// the others wait as in any drop-tail queue. A threshold above the limit of the queue marks
    /// nothing.
    Above(ByteSize),
}

/// How a long queue is managed before it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Management {
    /// Nothing.
    #[default]
    DropTail,
    /// `CoDel`: once packets have waited 5 ms for 100 ms, some are dropped (RFC 8289).
    Codel,
}

/// How a delay varies from packet to packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Jitter {
    /// The distribution of the delay.
    pub shape: Shape,
    /// Whether a packet may overtake another. If not, a packet that would overtake waits.
    pub reorders: bool,
}

/// A distribution of delays.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Uniform, from this much less to this much more than the path's delay; cut off at 0.
    Uniform(Duration),
    /// Normal around the path's delay, with this standard deviation; cut off at 0.
    Normal(Duration),
    /// What is added to the path's delay, as quantiles in equal steps from the least to the greatest;
    /// uniform between two of them. At least two, ascending.
    Table(Arc<[Duration]>),
}

impl Shape {
    /// The standard deviation of what it adds to a delay that is not cut off.
    #[must_use]
    pub fn deviation(&self) -> Duration {
        match self {
            Self::Uniform(half) => half.div_f64(3.0_f64.sqrt()),
            Self::Normal(deviation) => *deviation,
            Self::Table(table) => {
                // Each step is uniform between two quantiles.
                let steps =
                    || table.windows(2).map(|pair| [pair[0].as_secs_f64(), pair[1].as_secs_f64()]);
                let n = steps().count().max(1) as f64;
                let mean = steps().map(|[low, high]| (low + high) / 2.0).sum::<f64>() / n;
                let square = |[low, high]: [f64; 2]| (low * low + low * high + high * high) / 3.0;
                let variance = steps().map(square).sum::<f64>() / n - mean * mean;
                Duration::from_secs_f64(variance.max(0.0).sqrt())
            }
        }
    }
}

/// Loss in bursts (Gilbert 1960). With an independent loss beside it this is the model of Elliott
/// (1963): a good state in which few are lost, and a bad one in which many are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoss {
    /// The share of all packets that bursts take.
    pub share: Share,
    /// The mean length of a burst in packets, at least 1.
    pub packets: f64,
    /// The share of the packets in a burst that are lost: all of them, or fewer.
    pub in_burst: Share,
}

/// A rate that is enforced by dropping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// IP bytes per second in the long run.
    pub rate: BitRate,
    /// How much may pass at once.
    pub burst: ByteSize,
}

/// When the wire is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// The cuts, by time since the link began.
    pub cuts: Vec<Cut>,
    /// The time after which they repeat; `None` if they happen once.
    pub every: Option<Duration>,
}

/// A time during which nothing gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Its beginning.
    pub at: Duration,
    /// Its length.
    pub lasting: Duration,
}

/// Why a path is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A queue's length cannot be read.
    #[error(
        "`{0}` is not the length of a queue: write bytes such as 256KiB, packets such as 100packets, \
         a time such as 200ms, or a multiple of the bandwidth-delay product such as 1bdp"
    )]
    Queue(String),
    /// A queue without a rate never fills.
    #[error("a queue without a rate never fills: give a rate too, such as 95mbit")]
    QueueWithoutRate,
    /// A rate and a trace exclude each other.
    #[error("there is a rate and a trace: give one of them")]
    TwoRates,
    /// Marks need something that decides when.
    #[error(
        "a drop-tail queue marks nothing by itself: give management = \"codel\" with ecn, or a \
         length of the queue such as ecn = \"30kB\""
    )]
    NothingMarks,
    /// Either the length of the queue decides what is marked, or its management.
    #[error("there are marks by the queue's length and a management: give one of them")]
    TwoMarks,
    /// A bucket shorter than a packet lets nothing through.
    #[error("a policer's burst shorter than a packet lets nothing through: give at least {0}")]
    BurstTooShort(u32),
    /// The parameters of a loss are out of range.
    #[error("a burst of losses has at least 1 packet on average, and lose_every is at least 1")]
    NoSuchLoss,
    /// More is to be lost in bursts than there are packets in bursts.
    #[error("bursts cannot lose a larger share than in_burst: give an in_burst above the share")]
    MoreThanBursts,
    /// A queue shorter than a packet carries nothing.
    #[error("a queue of {0} bytes is shorter than a packet and carries nothing: give at least {1}")]
    QueueTooShort(u64, u32),
    /// The MTU is out of range.
    #[error("the MTU is {0}: give {min} to {max}", min = MTUS.start(), max = MTUS.end())]
    Mtu(u32),
    /// The MTU of a link cannot change while it is up.
    #[error("a link that is up keeps its MTU of {0}: take it down and make it again")]
    OtherMtu(u32),
    /// A jitter table is too short or not sorted.
    #[error("a jitter table has at least two delays, and none is less than the one before it")]
    JitterTable,
    /// Changes are not in the order of their times.
    #[error("changes are listed in the order of their times, each later than the one before it")]
    ChangesOutOfOrder,
}

impl std::str::FromStr for Queue {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let unknown = || SpecError::Queue(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        if let Some(packets) = lower.strip_suffix("packets") {
            let packets = packets.trim().parse().ok().filter(|packets| *packets > 0);
            return packets.map(Self::Packets).ok_or_else(unknown);
        }
        let Some(multiple) = lower.strip_suffix("bdp") else {
            let bytes = text.parse().map(Self::Bytes);
            let time = || text.parse::<Span>().map(|time| Self::Time(time.as_duration()));
            return bytes.or_else(|_| time()).map_err(|_| unknown());
        };
        let multiple: f64 = multiple.trim().parse().map_err(|_| unknown())?;
        if multiple.is_finite() && multiple > 0.0 && multiple <= 1000.0 {
            Ok(Self::Bdp(multiple))
        } else {
            Err(unknown())
        }
    }
}

/// Written so that it can be read again, to the byte.
impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => write!(f, "{}B", size.bytes()),
            Self::Packets(packets) => write!(f, "{packets}packets"),
            Self::Bdp(multiple) => write!(f, "{multiple}bdp"),
            Self::Time(time) => write!(f, "{}ns", time.as_nanos()),
        }
    }
}

impl Spec {
    /// The time from one end to the other and back, with nothing in the queues.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.up.delay + self.down.delay
    }

    /// The largest IP packet in bytes.
    #[must_use]
    pub fn largest_packet(&self) -> u32 {
        self.mtu.unwrap_or(DEFAULT_MTU)
    }

    /// Checks what can be checked before a packet flows.
    ///
    /// # Errors
    /// Names what is not possible.
    pub fn check(&self) -> Result<(), SpecError> {
        let mtu = self.largest_packet();
        if !MTUS.contains(&mtu) {
            return Err(SpecError::Mtu(mtu));
        }
        if !self.changes.is_sorted_by(|one, next| one.at < next.at) {
            return Err(SpecError::ChangesOutOfOrder);
        }
        let later = self.changes.iter().flat_map(|change| [&change.up, &change.down]);
        [&self.up, &self.down].into_iter().chain(later).try_for_each(|one| one.check(mtu))
    }

    /// One direction at the beginning.
    #[must_use]
    pub fn direction(&self, way: Way) -> &Direction {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    /// The states of one direction, from the beginning on: when each begins, and the limit of its queue.
    pub fn states(
        &self,
        way: Way,
    ) -> impl Iterator<Item = (Duration, &Direction, Option<QueueLimit>)> {
        let first = (Duration::ZERO, &self.up, &self.down);
        let later = self.changes.iter().map(|change| (change.at, &change.up, &change.down));
        std::iter::once(first).chain(later).map(move |(at, up, down)| {
            let direction = match way {
                Way::Up => up,
                Way::Down => down,
            };
            (at, direction, direction.queue_limit(up.delay + down.delay))
        })
    }

    /// The queue limit of a direction as the model counts it; `None` without a rate. A rate without a
    /// queue gets one bandwidth-delay product.
    #[must_use]
    pub fn queue_limit(&self, direction: &Direction) -> Option<QueueLimit> {
        direction.queue_limit(self.rtt())
    }

    /// The queue limit of a direction in bytes, packets counting 1500 each; `None` without a rate.
    #[must_use]
    pub fn queue_bytes(&self, direction: &Direction) -> Option<u64> {
        Some(match self.queue_limit(direction)? {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(1500),
        })
    }

    /// The most TCP payload that a direction can carry in the long run with full packets, in bit/s,
    /// as the path is at the beginning.
    #[must_use]
    pub fn tcp_limit_bits_per_s(&self, way: Way) -> Option<f64> {
        let rate = self.direction(way).lasting_rate();
        let mtu = f64::from(self.largest_packet());
        // 20 bytes of IPv4, 20 of TCP, 12 of its time stamps.
        rate.map(|rate| rate.bytes_per_s() * 8.0 * (mtu - 52.0) / mtu)
    }
}

/// A summary of a path, on one line.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RTT {}", Span::from(self.rtt()))?;
        let (up, down) = (self.describe(&self.up), self.describe(&self.down));
        if up == down {
            f.write_str(&up)?;
        } else {
            write!(f, "; up{up}; down{down}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, ", MTU {mtu}")?;
        }
        match self.changes.len() {
            0 => Ok(()),
            1 => write!(f, "; 1 change"),
            many => write!(f, "; {many} changes"),
        }
    }
}

impl Spec {
    fn describe(&self, direction: &Direction) -> String {
        let mut text = String::new();
        let mut add = |part: String| text += &format!(", {part}");
        if let Some(jitter) = &direction.jitter {
            let order = if jitter.reorders { " with reordering" } else { "" };
            let size = match &jitter.shape {
                Shape::Uniform(size) | Shape::Normal(size) => Span::from(*size).to_string(),
                Shape::Table(table) => {
                    format!("up to {}", Span::from(table.last().copied().unwrap_or_default()))
                }
            };
            add(format!("jitter {size}{order}"));
        }
        if let Some(loss) = direction.loss {
            add(format!("loss {loss}"));
        }
        if let Some(bursts) = direction.burst_loss {
            add(format!("loss {} in bursts of {}", bursts.share, bursts.packets));
        }
        if let Some(every) = direction.lose_every {
            add(format!("every {every}th lost"));
        }
        if let Some(share) = direction.corrupt {
            add(format!("{share} corrupted"));
        }
        if let Some(share) = direction.duplicate {
            add(format!("{share} duplicated"));
        }
        if let Some((rate, queue)) = direction.mean_rate().zip(self.queue_limit(direction)) {
            let mean = if direction.trace.is_some() { " on average, as recorded" } else { "" };
            let queue = match queue {
                QueueLimit::Bytes(bytes) => ByteSize::from_bytes(bytes).to_string(),
                QueueLimit::Packets(packets) => format!("{packets} packets"),
            };
            let codel = if direction.management == Management::Codel { " CoDel" } else { "" };
            let ecn = match direction.marks {
                Marks::None => String::new(),
                Marks::InsteadOfDrops => " with ECN".to_owned(),
                Marks::Above(size) => format!(" with ECN above {size}"),
            };
            add(format!("{rate}{mean}, queue {queue}{codel}{ecn}"));
        }
        if let Some(policer) = direction.policer {
            add(format!("policed to {} with bursts of {}", policer.rate, policer.burst));
        }
        if !direction.outages.cuts.is_empty() {
            add(format!("{} cuts", direction.outages.cuts.len()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_deviation() {
        let ms = Duration::from_millis;
        let table = |times: &[u64]| Shape::Table(times.iter().map(|time| ms(*time)).collect());
        let is = |shape: Shape, ms: f64| {
            let got = shape.deviation().as_secs_f64() * 1e3;
            assert!((got - ms).abs() < 1e-3, "{shape:?}: {got}");
        };
        is(Shape::Normal(ms(7)), 7.0);
        is(Shape::Uniform(ms(6)), 3.4641);
        is(table(&[0, 12]), 3.4641);
        is(table(&[5, 9, 13, 17]), 3.4641);
        // Half at 0, half uniform up to 12: 48 / 2 - 9.
        is(table(&[0, 0, 12]), 15.0_f64.sqrt());
    }

    #[test]
    fn a_path_on_a_line() {
        let mut spec = Spec { up: direction(), down: direction(), ..Spec::default() };
        assert_eq!(spec.to_string(), "RTT 217 ms, 95 Mbit/s, queue 2.6 MB");
        spec.down.loss = Some("1%".parse().unwrap());
        let both = "95 Mbit/s, queue 2.6 MB";
        assert_eq!(spec.to_string(), format!("RTT 217 ms; up, {both}; down, loss 1 %, {both}"));
    }

    fn direction() -> Direction {
        Direction {
            delay: Duration::from_micros(108_500),
            rate: Some("95mbit".parse().unwrap()),
            ..Direction::default()
        }
    }

    #[test]
    fn a_queue_is_bytes_or_multiples() {
        assert_eq!("1bdp".parse(), Ok(Queue::Bdp(1.0)));
        assert_eq!(" 0.5 BDP".parse(), Ok(Queue::Bdp(0.5)));
        assert_eq!("2MB".parse(), Ok(Queue::Bytes("2MB".parse().unwrap())));
        assert_eq!("5 packets".parse(), Ok(Queue::Packets(5)));
        assert_eq!("2s".parse(), Ok(Queue::Time(Duration::from_secs(2))));
        for text in ["1.5bdp", "2576875B", "100packets", "2000000000ns"] {
            assert_eq!(text.parse::<Queue>().unwrap().to_string(), text);
        }
        for wrong in ["", "bdp", "0bdp", "-1bdp", "nanbdp", "1e9bdp", "0packets", "packets", "-1s"]
        {
            assert_eq!(wrong.parse::<Queue>(), Err(SpecError::Queue(wrong.to_owned())));
        }
    }

    #[test]
    fn one_bdp_is_rate_times_round_trip() {
        let spec = Spec { up: direction(), down: direction(), ..Spec::default() };
        assert_eq!(spec.queue_bytes(&spec.up), Some(2_576_875));
        assert!((spec.tcp_limit_bits_per_s(Way::Up).unwrap() - 91_706_666.6).abs() < 1.0);
    }

    #[test]
    fn nonsense_is_named() {
        let queue = Some(Queue::Bytes("1499B".parse().unwrap()));
        let short = Direction { queue, ..direction() };
        let spec = Spec { up: direction(), down: short.clone(), ..Spec::default() };
        assert_eq!(spec.check(), Err(SpecError::QueueTooShort(1499, 1500)));
        let rateless = Direction { rate: None, ..short };
        let spec = Spec { up: rateless, down: direction(), ..Spec::default() };
        assert_eq!(spec.check(), Err(SpecError::QueueWithoutRate));
    }
}
