//! What a client asks of the server: one line of a set length, so that the server can leave what
//! follows unread.

use std::fmt;
use std::str::FromStr;

/// Every request has this length, its line's end included.
pub(crate) const REQUEST_BYTES: usize = 32;
/// What the server's certificate calls it.
pub(crate) const NAME: &str = "localhost";
/// The longest answer.
pub(crate) const MOST_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// So many bytes, and then the connection ended so.
    Answer(Ending, usize),
    /// What the server has used, once no connection is left.
    Usage,
    /// The same, and the server ends.
    Quit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Close,
    Spin,
    Poll,
    Acked,
    Closed,
}

impl Ending {
    pub(crate) const ALL: [Self; 5] =
        [Self::Close, Self::Spin, Self::Poll, Self::Acked, Self::Closed];
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Close => "close",
            Self::Spin => "spin",
            Self::Poll => "poll",
            Self::Acked => "acked",
            Self::Closed => "closed",
        })
    }
}

impl FromStr for Ending {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|ending| ending.to_string() == name);
        known.ok_or_else(|| format!("`{name}` is no ending"))
    }
}

impl Request {
    pub(crate) fn line(self) -> [u8; REQUEST_BYTES] {
        let text = match self {
            Self::Answer(ending, bytes) => format!("{ending} {bytes}"),
            Self::Usage => "usage".to_owned(),
            Self::Quit => "quit".to_owned(),
        };
        let mut line = [b' '; REQUEST_BYTES];
        line[..text.len()].copy_from_slice(text.as_bytes());
        line[REQUEST_BYTES - 1] = b'\n';
        line
    }

    pub(crate) fn of_line(line: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut parts = std::str::from_utf8(line).ok()?.split_whitespace();
        match (parts.next()?, parts.next()) {
            ("usage", None) => Some(Self::Usage),
            ("quit", None) => Some(Self::Quit),
            (ending, Some(bytes)) => {
                let bytes = bytes.parse().ok().filter(|bytes| *bytes <= MOST_BYTES)?;
                Some(Self::Answer(ending.parse().ok()?, bytes))
            }
            _ => None,
        }
    }
}

/// The bytes of every answer: a lost, doubled or misplaced one shows.
pub(crate) fn pattern() -> Vec<u8> {
    (0..=250).cycle().take(MOST_BYTES).collect()
}

/// What the server has used since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time of its only thread.
    pub(crate) cpu_ns: u64,
    /// How often an ending was woken before it was over.
    pub(crate) wake_ups: u64,
    /// Finishes that proved what was asked of them, and those that did not.
    pub(crate) proven: u64,
    pub(crate) unproven: u64,
}

impl Usage {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            wake_ups: self.wake_ups - before.wake_ups,
            proven: self.proven - before.proven,
            unproven: self.unproven - before.unproven,
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu_ns, wake_ups, proven, unproven } = self;
        writeln!(f, "{cpu_ns} {wake_ups} {proven} {unproven}")
    }
}

impl FromStr for Usage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
        match numbers[..] {
            [cpu_ns, wake_ups, proven, unproven] => Ok(Self { cpu_ns, wake_ups, proven, unproven }),
            _ => Err(format!("the server's answer makes no sense: {text:?}")),
        }
    }
}
