//! Lasting changes to a machine: each is written down before it is made, and can be taken back.
//!
//! This crate forbids a lasting change without a record and a way back. A [`Change`] can be made here
//! only once the [`Ledger`] has it, and each kind of it has its way back beside it, which works also
//! after a kill at any moment.
//!
//! [`apply()`] makes routes and settings of the whole machine, [`tune()`] changes live connections of other
//! programs, [`pin()`] keeps congestion controls in the kernel. Who makes another change says so to the
//! ledger: [`Ledger::plan`] before it, [`Ledger::made`] after it.
//!
//! Nothing is printed here: what a way back leaves alone, as somebody has changed it since, is reported
//! to a `tell` that the caller gives.

#![forbid(unsafe_code)]

mod apply;
mod change;
mod error;
mod ledger;
mod pin;
mod prefix;
mod tune;

pub use apply::{Application, Applied, Way, apply, check, congestion_ways, machine_wide_ways};
pub use change::{
    AddedHop, AddedRoute, Change, LiveValue, Metric, MountedBpffs, NewFile, PinnedAlgorithm,
    SysctlFile, TunedSocket,
};
pub use error::{ChangesError, LineError};
pub use ledger::{Entry, Ledger, State, UndoReport};
pub use pin::{NotPinned, pin, take_back_mount, unpin};
pub use prefix::{InvalidPrefix, Prefix};
pub use tune::{Outcome, Tuning, tune};
