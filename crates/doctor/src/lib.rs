//! Why bytes were lost, why it is slow, why it burns processor time: seen from outside, said in one
//! sentence each.
//!
//! This crate forbids changing what it looks at, and a finding without its evidence. What mends is
//! `lastbyte heal`.
//!
//! ```text
//!  kernel, /proc --> Observer --Event--> Doctor: Book (what is known), rules --> Finding
//!                       |  one of three tiers       pure; time comes with the events
//!                       '--> a recording, which can be replayed
//! ```

#![forbid(unsafe_code)]

pub mod book;
pub mod event;
mod explain;
pub mod finding;
mod observe;
mod page;
mod pair;
mod recording;
mod rules;
mod summary;
mod words;

pub use book::Served;
pub use event::{Event, Precision, Scope, Tier, What};
pub use explain::{Page, explain, pages};
pub use finding::{Class, Code, Finding};
pub use observe::{Intervals, ObserveError, Observer, Plan, Roots, Shortfall, Traced};
pub use page::page;
pub use recording::{Reader, RecordingError, Writer};
pub use rules::Doctor;
pub use summary::Summary;
pub use words::served as served_words;
