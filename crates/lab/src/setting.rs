//! Settings under test.

use std::fmt;
use std::str::FromStr;

use lastbyte_link::Way;
use lastbyte_socket::SocketOptions;
use lastbyte_units::{BitRate, ByteSize};
use serde::{Deserialize, Serialize};

/// What a subject is, in a form that can be stored and compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Our own sender.
    Own(Settings),
    /// Another program.
    Command(Command),
}

/// The settings of our own sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// The sender's congestion control, by name.
    pub congestion: String,
    /// The buffers of both sides.
    pub buffers: Buffers,
    /// The direction of the bytes.
    pub direction: Direction,
    /// How many connections share the load.
    pub streams: u32,
    /// The highest rate of each connection (`SO_MAX_PACING_RATE`).
    #[serde(
        rename = "pacing_bits_per_s",
        with = "exact_rate",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub pacing: Option<BitRate>,
    /// The limit of bytes written and not yet sent (`TCP_NOTSENT_LOWAT`).
    #[serde(
        rename = "notsent_lowat_bytes",
        with = "exact_size",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub notsent_lowat: Option<ByteSize>,
    /// The rate at which the sending program writes.
    #[serde(
        rename = "write_bits_per_s",
        with = "exact_rate",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub write_rate: Option<BitRate>,
    /// The rate at which the receiving program reads.
    #[serde(
        rename = "read_bits_per_s",
        with = "exact_rate",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub read_rate: Option<BitRate>,
}

/// Another program, by the commands that start it on the two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Command {
    /// The command on the near host; the run ends with it.
    pub near: String,
    /// The command on the far host, a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
}

impl Settings {
    /// A congestion control and its buffers, one connection, up.
    #[must_use]
    pub fn new(congestion: &str, buffers: Buffers) -> Self {
        Self {
            congestion: congestion.to_owned(),
            buffers,
            direction: Direction::Up,
            streams: 1,
            pacing: None,
            notsent_lowat: None,
            write_rate: None,
            read_rate: None,
        }
    }

    /// The options of the sending socket.
    #[must_use]
    pub fn sender(&self) -> SocketOptions {
        let mut options = SocketOptions::default().congestion(&self.congestion);
        options.send_buffer = self.fixed();
        options.notsent_lowat = self.notsent_lowat.map(|size| as_u32(size.bytes()));
        options.max_pacing_rate = self.pacing.map(|rate| (rate.bits_per_s() / 8).max(1));
        options
    }

    /// The options of the receiving socket.
    #[must_use]
    pub fn receiver(&self) -> SocketOptions {
        let mut options = SocketOptions::default();
        options.receive_buffer = self.fixed();
        options
    }

    fn fixed(&self) -> Option<u32> {
        match self.buffers {
            Buffers::Fixed(size) => Some(as_u32(size.bytes())),
            Buffers::Auto | Buffers::AutoUpTo(_) => None,
        }
    }
}

fn as_u32(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(settings) => settings.fmt(f),
            Self::Command(command) => f.write_str(&command.near),
        }
    }
}

/// Prints what differs from the defaults.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.congestion, self.buffers)?;
        if self.direction != Direction::Up {
            write!(f, " {}", self.direction)?;
        }
        if self.streams != 1 {
            write!(f, " x{}", self.streams)?;
        }
        for (name, rate) in
            [("paced", self.pacing), ("written at", self.write_rate), ("read at", self.read_rate)]
        {
            if let Some(rate) = rate {
                write!(f, " {name} {rate}")?;
            }
        }
        if let Some(size) = self.notsent_lowat {
            write!(f, " notsent {size}")?;
        }
        Ok(())
    }
}

/// The direction of a run's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the near host to the far one.
    #[default]
    Up,
    /// From the far host to the near one.
    Down,
    /// Both at the same time, on separate connections.
    Both,
}

impl Direction {
    /// The single directions in it.
    #[must_use]
    pub fn ways(self) -> &'static [Way] {
        match self {
            Self::Up => &[Way::Up],
            Self::Down => &[Way::Down],
            Self::Both => &[Way::Up, Way::Down],
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        })
    }
}

/// Text that is no direction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no direction: write up, down or both")]
pub struct DirectionError(String);

impl FromStr for Direction {
    type Err = DirectionError;

    fn from_str(text: &str) -> Result<Self, DirectionError> {
        match text.trim() {
            "up" => Ok(Self::Up),
            "down" => Ok(Self::Down),
            "both" => Ok(Self::Both),
            _ => Err(DirectionError(text.to_owned())),
        }
    }
}

/// How buffers are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// Autotuned by the kernel, within the machine's limits.
    Auto,
    /// Autotuned by the kernel up to this maximum (`net.ipv4.tcp_wmem` and `tcp_rmem` of the
    /// hosts).
    AutoUpTo(ByteSize),
    /// Fixed: `SO_SNDBUF` at the sender, `SO_RCVBUF` at the receiver.
    Fixed(ByteSize),
}

/// Text that is no buffer setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no buffer setting: write auto, auto:8MiB (the kernel sizes them up to that), or a \
         fixed size such as 128KiB"
)]
pub struct BuffersError(String);

impl FromStr for Buffers {
    type Err = BuffersError;

    fn from_str(text: &str) -> Result<Self, BuffersError> {
        let size = |size: &str| match size.parse::<ByteSize>() {
            Ok(size) if (1..=1 << 30).contains(&size.bytes()) => Ok(size),
            _ => Err(BuffersError(text.to_owned())),
        };
        match text.trim().strip_prefix("auto") {
            Some("") => Ok(Self::Auto),
            Some(rest) => match rest.strip_prefix(':') {
                Some(limit) => size(limit).map(Self::AutoUpTo),
                None => Err(BuffersError(text.to_owned())),
            },
            None => size(text).map(Self::Fixed),
        }
    }
}

impl fmt::Display for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::AutoUpTo(limit) => f.pad(&format!("auto to {limit}")),
            Self::Fixed(size) => f.pad(&format!("fixed {size}")),
        }
    }
}

/// In the syntax of the option: `auto`, `auto:8MiB`, `128KiB`.
impl Serialize for Buffers {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::AutoUpTo(limit) => {
                serializer.collect_str(&format_args!("auto:{}", limit.bytes()))
            }
            Self::Fixed(size) => serializer.collect_str(&size.bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for Buffers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A rate as its number of bit/s, because its text is rounded.
mod exact_rate {
    use lastbyte_units::BitRate;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        rate: &Option<BitRate>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        rate.map(BitRate::bits_per_s).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<BitRate>, D::Error> {
        let bits = Option::<u64>::deserialize(from)?;
        bits.map(BitRate::from_bits_per_s).transpose().map_err(serde::de::Error::custom)
    }
}

/// A size as its number of bytes, because its text is rounded.
mod exact_size {
    use lastbyte_units::ByteSize;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        size: &Option<ByteSize>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        size.map(ByteSize::bytes).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ByteSize>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(ByteSize::from_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_written_three_ways() {
        let size = |text: &str| text.parse::<ByteSize>().unwrap();
        assert_eq!("auto".parse(), Ok(Buffers::Auto));
        assert_eq!("auto:8MiB".parse(), Ok(Buffers::AutoUpTo(size("8MiB"))));
        assert_eq!("128KiB".parse(), Ok(Buffers::Fixed(size("128KiB"))));
        for wrong in ["", "auto8MiB", "auto:", "big", "0", "2GiB", "-1"] {
            assert_eq!(wrong.parse::<Buffers>(), Err(BuffersError(wrong.to_owned())));
        }
    }

    #[test]
    fn settings_are_named_by_what_is_unusual() {
        let mut settings = Settings::new("cubic", Buffers::Auto);
        assert_eq!(settings.to_string(), "cubic auto");
        settings.direction = Direction::Both;
        settings.streams = 4;
        settings.pacing = Some("10mbit".parse().unwrap());
        assert_eq!(settings.to_string(), "cubic auto both x4 paced 10 Mbit/s");
    }
}
