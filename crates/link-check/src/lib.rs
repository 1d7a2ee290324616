//! Measures what a link claims to do, with probes of its own.
//!
//! This crate forbids a property of a path that is neither measured nor called unchecked.
//!
//! UDP packets go from one host to the other through real kernels, and both ends are in this
//! process, so that one clock stamps them: a one-way delay is measured, not guessed as half of a
//! round trip. Nothing is taken from the link but its [`Report`](lastbyte_link::Report), which is
//! checked too.
//!
//! Each [`Phase`] has a fresh link with as much of the path as does not hide what it is about; a
//! figure says what was left out. Changes and cuts are left out of all but their own phase. `claims`
//! has a file for each claim, with its load and its tolerance; in short:
//!
//! - delay: small packets one at a time; what the same probe takes over loopback, its own lateness,
//!   is subtracted. Where the delay varies, quantiles and the distance from the distribution asked;
//! - loss: numbered small packets, slowly enough for the queue; each kind of loss by itself,
//!   corruption and duplicates together. Reordered packets are counted there too;
//! - rate: full packets, at more than the rate;
//! - queue: a burst that does not fit;
//! - recorded rate: more at once than it carries in the time, compared with its opportunities;
//! - `CoDel`: full packets at more than the rate. What it does is compared with what the model does
//!   with packets that arrive when these were sent: the wire is checked against the model, and the
//!   model's own tests check that against RFC 8289;
//! - marks above a length of the queue: the same;
//! - policer: a burst that does not pass whole, and a load behind it;
//! - cuts: a probe at short intervals, on a link beside the others, because it takes longest;
//! - changes: the same for delays; loads over the time of the change for rates and losses.
//!
//! A phase that the machine was too busy for is repeated by itself. Whether it was shows in the
//! link's lateness and the probe's own, and in a sender that was late, never in the figures.
//! [`Outcome::NotChecked`] stands for a property that was not asked or is too far in the future,
//! [`Outcome::NotMeasured`] and [`Outcome::TooBusy`] for attempts without a figure.
//!
//! `asked` names every field of a direction, so that a new one does not compile until it is measured
//! or called unchecked; `driver` runs the claims.

#![forbid(unsafe_code)]

mod asked;
mod check;
mod claims;
mod driver;
mod finding;
mod part;
mod probe;
mod statistics;

pub use driver::measure;
pub use finding::{Finding, Findings, Measured, Moment, Outcome, Phase, Subject};
