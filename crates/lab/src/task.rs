//! The far host's task in a run, and how a connection proves that it belongs to the run.

use std::io;
use std::time::Duration;

use lastbyte_link::Way;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::load::Load;
use crate::setting::Settings;

/// The time between two probes beside a load, and between a receiver's requests to its sender.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(100);

/// What the far host does in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The settings of both hosts.
    pub settings: Settings,
    /// How much each direction carries.
    #[serde(flatten)]
    pub load: Load,
    /// Whether receivers measure round trips through the load.
    pub latency: bool,
}

/// Proves that a connection belongs to a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(pub [u8; 32]);

/// A secret is not for logs.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// A new one, from the kernel's random source.
    ///
    /// # Errors
    /// If the kernel's random source fails.
    pub fn new() -> io::Result<Self> {
        random().map(Self)
    }

    /// Compares in constant time, wherever the two differ.
    fn is(&self, other: &[u8; 32]) -> bool {
        let differ = self.0.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

/// `N` random bytes.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the kernel's random source failed"))?;
    Ok(bytes)
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The near host sends load.
    Up(u32),
    /// The far host sends load.
    Down(u32),
    /// The far host echoes.
    Echo,
}

/// The length of what opens every connection: token, kind, number.
pub(crate) const PREAMBLE: usize = 40;

impl Purpose {
    /// The first bytes of a connection.
    pub(crate) fn preamble(self, token: &Token) -> [u8; PREAMBLE] {
        let (kind, number) = match self {
            Self::Up(stream) => (1_u32, stream),
            Self::Down(stream) => (2, stream),
            Self::Echo => (3, 0),
        };
        let mut bytes = [0; PREAMBLE];
        bytes[..32].copy_from_slice(&token.0);
        bytes[32..36].copy_from_slice(&kind.to_be_bytes());
        bytes[36..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Parses the first bytes of a connection; `None` for a wrong token, or for a direction or
    /// stream that this run does not have.
    pub(crate) fn read(bytes: &[u8; PREAMBLE], task: &Task, expected: &Token) -> Option<Self> {
        let (token, rest) = bytes.split_first_chunk::<32>()?;
        let (kind, number) = rest.split_first_chunk::<4>()?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let known = expected.is(token);
        let ways = task.settings.direction.ways();
        let has = |way| ways.contains(&way) && number < task.settings.streams;
        match u32::from_be_bytes(*kind) {
            _ if !known => None,
            1 if has(Way::Up) => Some(Self::Up(number)),
            2 if has(Way::Down) => Some(Self::Down(number)),
            3 => Some(Self::Echo),
            _ => None,
        }
    }
}
