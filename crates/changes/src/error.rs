//! Why a change was refused, not made, or not taken back.

use std::fmt;
use std::io;
use std::path::PathBuf;

use lastbyte_congestion::CongestionError;
use lastbyte_heal::HealError;

/// What this crate's functions return.
pub(crate) type Result<T, E = ChangesError> = std::result::Result<T, E>;

/// A change was refused or failed, or the ledger did. The text names the cause: there is no further
/// `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The machine is not as the change, or its way back, needs it; nothing was done. A sentence says
    /// what is in the way, and what to do.
    #[error("{0}")]
    Refused(String),
    /// The kernel or the disk refused a step.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A step failed.
    #[error("{what}: {cause}")]
    Step {
        /// Which, or what it means for the change.
        what: String,
        /// Why.
        cause: Box<Self>,
    },
    /// The ledger has no change of that number.
    #[error("there is no change {id} in {}: lastbyte changes lists them", ledger.display())]
    UnknownChange {
        /// The number.
        id: u64,
        /// The ledger's file.
        ledger: PathBuf,
    },
    /// A line of the ledger cannot be used.
    #[error("{}:{line}: {cause}", ledger.display())]
    Line {
        /// The ledger's file.
        ledger: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Why.
        cause: LineError,
    },
    /// A congestion control could not be kept or unloaded.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// A connection of another program could not be reached or changed.
    #[error(transparent)]
    Heal(#[from] HealError),
}

/// Why a line of the ledger cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is no record.
    #[error("this line is damaged: restore it, or undo by hand what it says and remove it: {0}")]
    Damaged(String),
    /// Its schema is not known.
    #[error("{NEWER} (its schema is {schema}, the newest known here is {known})")]
    NewerSchema {
        /// The line's.
        schema: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// It is of a known schema, and a kind or an event of the future.
    #[error("{NEWER}: {0}")]
    NotUnderstood(String),
    /// A second change by a number.
    #[error("change {0} is planned a second time")]
    PlannedTwice(u64),
}

const NEWER: &str = "a newer lastbyte wrote this line: use that one to list and undo changes";

/// A sentence about what is in the way.
pub(crate) fn refused(why: impl Into<String>) -> ChangesError {
    ChangesError::Refused(why.into())
}

/// Refuses what does not hold.
pub(crate) fn must(holds: bool, why: impl FnOnce() -> String) -> Result<(), ChangesError> {
    if holds { Ok(()) } else { Err(refused(why())) }
}

/// Says what was tried when something failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, ChangesError>;
    fn doing_with(self, what: impl FnOnce() -> String) -> Result<T, ChangesError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, ChangesError> {
        self.map_err(|cause| ChangesError::System { what: what.to_string(), cause })
    }

    fn doing_with(self, what: impl FnOnce() -> String) -> Result<T, ChangesError> {
        self.map_err(|cause| ChangesError::System { what: what(), cause })
    }
}

impl<T> Doing<T> for Result<T, ChangesError> {
    fn doing(self, what: impl fmt::Display) -> Self {
        self.map_err(|cause| cause.while_doing(what))
    }

    fn doing_with(self, what: impl FnOnce() -> String) -> Self {
        self.map_err(|cause| cause.while_doing(what()))
    }
}

impl ChangesError {
    /// The same, with what it means for the change before it.
    pub(crate) fn while_doing(self, what: impl fmt::Display) -> Self {
        Self::Step { what: what.to_string(), cause: Box::new(self) }
    }
}
