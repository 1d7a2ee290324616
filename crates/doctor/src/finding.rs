//! What was found: a code, a sentence with the numbers, what to do, and the evidence.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::event::{Precision, SocketId};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Bytes did not arrive.
    Loss,
    /// Slower than the path allows.
    Slow,
    /// Processor time for nothing.
    Cpu,
    /// Connections that come late or not at all.
    Connect,
    /// Worth knowing: harmless, or what comes of it is not known.
    Note,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Loss => "loss",
            Self::Slow => "slow",
            Self::Cpu => "cpu",
            Self::Connect => "connect",
            Self::Note => "note",
        })
    }
}

/// The name of a finding, as a linter's: `LB101`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("LB{}", self.0))
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.to_string()
    }
}

impl TryFrom<String> for Code {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Code {
    type Err = String;

    /// `LB101`, in either case, or `101`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text.get(..2) {
            Some(start) if start.eq_ignore_ascii_case("LB") => &text[2..],
            _ => text,
        };
        let refused = || format!("{text:?} is no code such as LB101");
        number.parse().map(Self).map_err(|_| refused())
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name.
    pub code: Code,
    /// What it is about; [`Class::Note`] where nothing was lost after all.
    pub class: Class,
    /// Whether nothing came of it.
    pub harmless: bool,
    /// Bytes that did not arrive, or the most that may not have; `None` where it is not about that, or
    /// not known.
    pub bytes: Option<u64>,
    /// When it was first so, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How often: findings that are alike are put together.
    pub times: u64,
    /// Whom it is about.
    #[serde(flatten)]
    pub about: About,
    /// What happened, with the numbers; one sentence.
    pub sentence: String,
    /// What to do; one sentence.
    pub fix: String,
    /// A command that mends a live connection, where one can.
    pub heal: Option<String>,
    /// The numbers that the sentence rests on, each with its unit in the name.
    pub evidence: BTreeMap<String, Evidence>,
}

impl Finding {
    /// How well `bytes` is known, by the word `exact` of its evidence.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match self.evidence.get("exact") {
            Some(Evidence::Word(word)) => Precision::of_word(word),
            _ if self.bytes.is_some() => Precision::Exact,
            _ => Precision::AtLeast,
        }
    }

    /// The evidence speaks for all that are put together.
    fn sum_precision(&mut self, other: &Self) {
        let words = [self, other].map(|one| one.evidence.get("exact"));
        if words[0] == words[1] {
            return;
        }
        let word = match self.precision().and(other.precision()) {
            Precision::Exact => "yes",
            Precision::AtMost => "at most",
            Precision::AtLeast => "at least",
            Precision::About => "about",
        };
        self.evidence.insert("exact".to_owned(), word.into());
    }
}

/// Whom a finding is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The process.
    pub pid: Option<u32>,
    /// What it calls itself: any characters.
    pub name: Option<String>,
    /// Its container, as its control group names it.
    pub container: Option<String>,
    /// What its runtime calls the container beside the id: any characters.
    pub container_name: Option<String>,
    /// The socket.
    pub socket: Option<SocketId>,
    /// Its own address.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: Option<SocketAddr>,
    /// The inode number of its network namespace, where that is not ours.
    pub network: Option<u64>,
    /// The name of that, where it has one (`ip-netns(8)`): any characters.
    pub network_name: Option<String>,
}

impl About {
    /// Where it is, beside the machine's own network: `in web (0123456789ab), netns lab`. Names are of
    /// any characters.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let container = match (&self.container, &self.container_name) {
            (Some(id), Some(name)) => Some(format!("{name} ({id})")),
            (Some(id), None) => Some(id.clone()),
            (None, _) => None,
        };
        let network = self.network.map(|inode| match &self.network_name {
            Some(name) => format!("netns {name}"),
            None => format!("netns {inode}"),
        });
        let places: Vec<String> = container.into_iter().chain(network).collect();
        (!places.is_empty()).then(|| format!("in {}", places.join(", ")))
    }
}

/// One number, or word, of the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Evidence {
    /// A count.
    Count(u64),
    /// A share, a rate, a time.
    Number(f64),
    /// A name.
    Word(String),
}

impl From<u64> for Evidence {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Evidence {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<f64> for Evidence {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Evidence {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

/// So many different findings are kept; of more, only how many.
const MOST: usize = 10_000;

/// Findings, those that are alike put together: of the same code, process and peer's address (or own
/// port, where the peer's port is one of many).
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: BTreeMap<Key, Finding>,
    /// Different ones that found no room.
    pub(crate) left_out: u64,
}

type Key = (Class, Code, bool, Option<u32>, Option<SocketAddr>, Option<u16>, Option<u64>);

impl Findings {
    /// Adds findings; returns those that are the first of their kind.
    pub(crate) fn add(&mut self, found: Vec<Finding>) -> Vec<Finding> {
        found.into_iter().filter(|finding| self.is_new(finding)).collect()
    }

    fn is_new(&mut self, finding: &Finding) -> bool {
        let key = key(finding);
        if let Some(known) = self.all.get_mut(&key) {
            known.times = known.times.saturating_add(finding.times);
            known.sum_precision(finding);
            known.bytes = match (known.bytes, finding.bytes) {
                (Some(one), Some(other)) => Some(one.saturating_add(other)),
                (one, other) => one.or(other),
            };
            return false;
        }
        if self.all.len() >= MOST {
            self.left_out = self.left_out.saturating_add(finding.times);
            return false;
        }
        self.all.insert(key, finding.clone());
        true
    }

    /// All, losses first.
    pub(crate) fn all(&self) -> Vec<Finding> {
        self.all.values().cloned().collect()
    }
}

/// What is alike: a server's port at our end, or a server's address at the other, and not the port that
/// the kernel chose for this one connection.
fn key(finding: &Finding) -> Key {
    /// From here on ports are chosen by the kernel, unless told otherwise (`ip_local_port_range`).
    const EPHEMERAL: u16 = 32_768;
    let about = &finding.about;
    let local = about.local.map(|local| local.port()).filter(|port| *port < EPHEMERAL);
    let peer = about.peer.filter(|peer| peer.port() < EPHEMERAL && local.is_none());
    // What is about no socket and no process is about its namespace.
    let network = about.network.filter(|_| about.socket.is_none() && about.pid.is_none());
    (finding.class, finding.code, finding.harmless, about.pid, peer, local, network)
}
