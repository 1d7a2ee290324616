//! What a path is like.

use std::fmt;
use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span};

/// The shortest queue that a multiple of the bandwidth-delay product is rounded up to: ten full
/// packets, so that a short path still has a queue.
const SHORTEST_QUEUE: u64 = 15_000;

/// A path: what happens to packets on the way out and on the way back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// From the near host to the far one.
    pub up: Direction,
    /// From the far host to the near one.
    pub down: Direction,
}

/// One direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// From the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// The share of packets that are lost on the wire, each independently, after they took their
    /// time in the queue.
    pub loss: Option<Share>,
    /// IP bytes per second; `None` transmits in no time. With 1500-byte packets TCP's payload is
    /// 96.5 % of it (1448 of 1500).
    pub rate: Option<BitRate>,
    /// How much may wait for transmission: more is dropped at the tail. Needs a rate.
    pub queue: Option<Queue>,
}

/// The length of a queue, the packet in transmission included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// In bytes.
    Bytes(ByteSize),
    /// In multiples of the bandwidth-delay product: rate times the path's round trip.
    Bdp(f64),
}

/// A path that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A queue is written in no known way.
    #[error(
        "`{0}` is no queue: write bytes such as 256KiB, or a multiple of the \
             bandwidth-delay product such as 1bdp"
    )]
    Queue(String),
    /// A queue without a rate never fills.
    #[error("a queue without a rate never fills: give a rate too, such as 95mbit")]
    QueueWithoutRate,
    /// A queue shorter than a packet carries nothing.
    #[error(
        "a queue of {0} bytes is shorter than a packet and carries nothing: give at least 1500"
    )]
    QueueTooShort(u64),
}

impl std::str::FromStr for Queue {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let unknown = || SpecError::Queue(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let Some(multiple) = lower.strip_suffix("bdp") else {
            return text.parse().map(Self::Bytes).map_err(|_| unknown());
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
            Self::Bdp(multiple) => write!(f, "{multiple}bdp"),
        }
    }
}

impl Spec {
    /// The time from one end to the other and back, with nothing in the queues.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.up.delay + self.down.delay
    }

    /// Checks what can be checked before a packet flows.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn check(&self) -> Result<(), SpecError> {
        for direction in [&self.up, &self.down] {
            match (direction.queue, direction.rate) {
                (Some(_), None) => return Err(SpecError::QueueWithoutRate),
                (Some(Queue::Bytes(size)), _) if size.bytes() < 1500 => {
                    return Err(SpecError::QueueTooShort(size.bytes()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The queue limit of a direction in bytes; `None` without a rate. A rate without a queue gets
    /// one bandwidth-delay product.
    #[must_use]
    pub fn queue_bytes(&self, direction: &Direction) -> Option<u64> {
        let rate = direction.rate?;
        Some(match direction.queue.unwrap_or(Queue::Bdp(1.0)) {
            Queue::Bytes(size) => size.bytes(),
            Queue::Bdp(multiple) => rate.bytes_in(self.rtt().mul_f64(multiple)).max(SHORTEST_QUEUE),
        })
    }

    /// The most TCP payload that the way out can carry with 1500-byte packets, in bit/s.
    #[must_use]
    pub fn tcp_limit_bits_per_s(&self) -> Option<f64> {
        self.up.rate.map(|rate| rate.bytes_per_s() * 8.0 * 1448.0 / 1500.0)
    }
}

/// What a reader wants to know of a path, on a line.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RTT {}", Span::from(self.rtt()))?;
        let (up, down) = (self.describe(&self.up), self.describe(&self.down));
        if up == down { write!(f, "{up}") } else { write!(f, "; up{up}; down{down}") }
    }
}

impl Spec {
    fn describe(&self, direction: &Direction) -> String {
        let mut text = String::new();
        if let Some(loss) = direction.loss {
            text += &format!(", loss {loss}");
        }
        if let Some((rate, queue)) = direction.rate.zip(self.queue_bytes(direction)) {
            text += &format!(", {rate}, queue {}", ByteSize::from_bytes(queue));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_on_a_line() {
        let mut spec = Spec { up: direction(), down: direction() };
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
        for text in ["1.5bdp", "2576875B"] {
            assert_eq!(text.parse::<Queue>().unwrap().to_string(), text);
        }
        for wrong in ["", "bdp", "0bdp", "-1bdp", "nanbdp", "1e9bdp", "5 packets"] {
            assert_eq!(wrong.parse::<Queue>(), Err(SpecError::Queue(wrong.to_owned())));
        }
    }

    #[test]
    fn one_bdp_is_rate_times_round_trip() {
        let spec = Spec { up: direction(), down: direction() };
        assert_eq!(spec.queue_bytes(&spec.up), Some(2_576_875));
        assert!((spec.tcp_limit_bits_per_s().unwrap() - 91_706_666.6).abs() < 1.0);
    }

    #[test]
    fn nonsense_is_named() {
        let queue = Some(Queue::Bytes("1499B".parse().unwrap()));
        let short = Direction { queue, ..direction() };
        let spec = Spec { up: direction(), down: short };
        assert_eq!(spec.check(), Err(SpecError::QueueTooShort(1499)));
        let rateless = Direction { rate: None, ..short };
        let spec = Spec { up: rateless, down: direction() };
        assert_eq!(spec.check(), Err(SpecError::QueueWithoutRate));
    }
}
