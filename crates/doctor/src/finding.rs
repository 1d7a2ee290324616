//! A finding: a code, a sentence with its numbers, a fix, and the evidence.

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
    /// Wasted processor time.
    Cpu,
    /// Connections that are established late or not at all.
    Connect,
    /// Worth knowing: harmless, or with unknown consequences.
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

/// The code of a finding, like a linter's: `LB101`.
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
    /// Its code.
    pub code: Code,
    /// Its class; [`Class::Note`] if nothing was lost after all.
    pub class: Class,
    /// Whether it had no consequences.
    pub harmless: bool,
    /// Bytes that did not arrive, or the most that may not have; `None` if unknown, or not about bytes.
    pub bytes: Option<u64>,
    /// When it was first seen, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How often: similar findings are merged.
    pub times: u64,
    /// Its subject.
    #[serde(flatten)]
    pub about: About,
    /// What happened, with the numbers; one sentence.
    pub sentence: String,
    /// What to do; one sentence.
    pub fix: String,
    /// A command that fixes a live connection, if there is one.
    pub heal: Option<String>,
    /// The numbers behind the sentence, each with its unit in the name.
    pub evidence: BTreeMap<String, Evidence>,
}

impl Finding {
    /// The precision of `bytes`, from `exact` in its evidence.
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

/// The subject of a finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The process.
    pub pid: Option<u32>,
    /// Its name: any characters.
    pub name: Option<String>,
    /// Its container, as named by its control group.
    pub container: Option<String>,
    /// The name that the runtime gives the container: any characters.
    pub container_name: Option<String>,
    /// The socket.
    pub socket: Option<SocketId>,
    /// The socket's own address.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub peer: Option<SocketAddr>,
    /// The inode number of its network namespace, if it is not the observer's.
    pub network: Option<u64>,
    /// The name of that namespace, if it has one (`ip-netns(8)`): any characters.
    pub network_name: Option<String>,
}

impl About {
    /// Its container and network namespace, if not the observer's: `in web (0123456789ab), netns
    /// lab`. Names may contain any characters.
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

/// One value of the evidence.
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

/// Limit on different findings; more are only counted.
const MOST: usize = 10_000;

/// Findings, with similar ones merged: same code, process and peer address (or own port, if the
/// peer's port was chosen by its kernel).
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: BTreeMap<Key, Finding>,
    /// Findings beyond the limit.
    pub(crate) left_out: u64,
}

type Key = (Class, Code, bool, Option<u32>, Option<SocketAddr>, Option<u16>, Option<u64>);

impl Findings {
    /// Adds findings; returns those that are new.
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

    /// All findings, losses first.
    pub(crate) fn all(&self) -> Vec<Finding> {
        self.all.values().cloned().collect()
    }
}

/// What similar findings share: the server's port at our end, or the server's address at the other
/// end, but not the port that the kernel chose for one connection.
fn key(finding: &Finding) -> Key {
    /// From here on the kernel chooses ports, unless `ip_local_port_range` says otherwise.
    const EPHEMERAL: u16 = 32_768;
    let about = &finding.about;
    let local = about.local.map(|local| local.port()).filter(|port| *port < EPHEMERAL);
    let peer = about.peer.filter(|peer| peer.port() < EPHEMERAL && local.is_none());
    // A finding without socket and process is about its namespace.
    let network = about.network.filter(|_| about.socket.is_none() && about.pid.is_none());
    (finding.class, finding.code, finding.harmless, about.pid, peer, local, network)
}
