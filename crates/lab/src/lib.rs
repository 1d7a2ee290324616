//! Experiments with real kernel TCP, counted at the receiver.
//!
//! This crate forbids the sender's word for what arrived: a figure here is the receiver's bytes over
//! the receiver's time, and a run counts only if its link kept its promise. The sender's claim is
//! kept beside it, because the difference is the lesson.
//!
//! - [`Plan`] and [`experiment()`]: which settings to compare, over which path, and the runs.
//! - [`Findings`]: the table and the recommendation.
//! - [`foreign`]: any program over an emulated path, measured without its help.
//! - [`quiz`]: does what was written arrive, by four ways of ending a connection?

#![forbid(unsafe_code)]

mod error;
mod experiment;
mod findings;
pub mod foreign;
mod path;
mod plan;
pub mod quiz;
mod run;

pub use error::LabError;
pub use experiment::{Event, Experiment, experiment};
pub use findings::{Findings, Recommendation, Row};
pub use path::{Path, PathUp};
pub use plan::{Buffers, BuffersError, Load, Plan, Subject};
pub use run::{Received, Run, Sample, Sent, receive, send};
