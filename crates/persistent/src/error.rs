//! Why a persistent link could not be made, reached or changed.

use std::io;

use lastbyte_changes::ChangesError;
use lastbyte_host::namespace::NAMES;
use lastbyte_link::LinkError;
use lastbyte_link::scenario::ScenarioError;

/// A persistent link could not be made, reached or changed. The text names the cause: there is no
/// further `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PersistentError {
    /// It is no name for a link.
    #[error(
        "`{0}` is no name for a link: use up to {most} small letters, digits and dashes",
        most = crate::persistent_link::LONGEST_NAME
    )]
    BadName(String),
    /// Privileges are missing.
    #[error(
        "a link that stays is kept in {NAMES}, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as \
         root, such as with sudo; `lastbyte link run` works without"
    )]
    Rights,
    /// There is a link of that name.
    #[error("there is a link {0} already: `lastbyte link down {0}` takes it away")]
    Taken(String),
    /// There is no link of that name.
    #[error("there is no link {0}: `lastbyte link list` lists them, `lastbyte link up` makes one")]
    NoLink(String),
    /// There is no link of that name to take away.
    #[error("there is no link {0}: `lastbyte link list` lists them")]
    NothingToTakeAway(String),
    /// The process that carried it has ended.
    #[error("the carrier of link {0} is dead: `lastbyte link down {0}` takes the rest away")]
    CarrierDead(String),
    /// The process that was to carry it was ended first.
    #[error("the carrier of link {0} was ended before the link was up")]
    CarrierEnded(String),
    /// What the carrier says.
    #[error("{0}")]
    Carrier(String),
    /// The carrier answers something else than it was asked.
    #[error("the carrier answered something else: is it of another version of lastbyte?")]
    OtherAnswer,
    /// Another process has the carrier's address.
    #[error("process {who} pretends to be the carrier of link {link}, which is {pid}")]
    Impostor {
        /// The process.
        who: i32,
        /// The link.
        link: String,
        /// The carrier.
        pid: i32,
    },
    /// The network has no such host.
    #[error("there is no host {host} on {link}: there are {there}")]
    NoHost {
        /// The host.
        host: String,
        /// The network.
        link: String,
        /// Its hosts.
        there: String,
    },
    /// The ledger, or a way back.
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// A namespace or a link of the network.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A key or a value.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The carrier cannot be asked from here.
    #[error("cannot reach the carrier of link {link}, process {pid}, from here: {cause}")]
    Unreachable {
        /// The link.
        link: String,
        /// The carrier.
        pid: i32,
        /// Why.
        cause: Box<Self>,
    },
    /// The kernel refused a step.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel refused.
    #[error("{0}")]
    Io(io::Error),
}

pub(crate) type Result<T, E = PersistentError> = std::result::Result<T, E>;

impl From<io::Error> for PersistentError {
    fn from(cause: io::Error) -> Self {
        Self::Io(cause)
    }
}
