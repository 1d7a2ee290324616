//! Why bytes were lost, why a program is slow, and why it burns processor time: observed from outside,
//! and reported in one sentence each.
//!
//! This crate forbids changing what it observes, and a finding without its evidence. `lastbyte heal`
//! repairs.
//!
//! ```text
//!  kernel, /proc --> Observer --Event--> Doctor: Facts (what is known), rules --> Finding
//!                       |  one of three tiers       pure; time comes with the events
//!                       '--> a recording, which can be replayed
//! ```

#![forbid(unsafe_code)]

mod address_pair;
pub mod event;
mod explain;
pub mod facts;
pub mod finding;
mod observe;
mod page;
mod recording;
mod rules;
#[cfg(test)]
mod story;
mod summary;
mod text;

pub use event::{Event, Precision, Scope, Tier, What};
pub use explain::{Page, explain, pages};
pub use facts::Served;
pub use finding::{Class, Code, Finding};
pub use observe::{Intervals, ObserveError, Observer, Plan, Roots, Shortfall, Traced};
pub use page::page;
pub use recording::{Reader, RecordingError, Writer};
pub use rules::Doctor;
pub use summary::Summary;
