//! Experiments with real kernel TCP, counted at the receiver.
//!
//! This crate forbids the sender's word for what arrived: a figure here is the receiver's bytes over
//! the receiver's time, and a run counts only if its link kept its promise. The sender's claim is
//! kept beside it, because the difference is the lesson.
//!
//! - [`Plan`] and [`experiment()`]: what to compare, over which path, and the runs.
//! - [`Subject`]: what can be compared: [`Settings`] of our own sender, and programs of others.
//! - [`flow`]: one connection that carries load.
//! - [`record`]: what an experiment brought, as plain data.
//! - [`latency`], [`fairness`]: what a load does to the round trips and to a flow beside it.
//! - [`Findings`]: the table and the recommendation.
//! - [`compare`]: what changed between two experiments.
//! - [`foreign`]: any program over an emulated path, measured without its help.
//! - [`page`](mod@page): all of it as one page to show.
//! - [`remote`]: a far host that is another machine.
//! - [`quiz`]: does what was written arrive, by four ways of ending a connection?

#![forbid(unsafe_code)]

pub mod compare;
mod error;
mod experiment;
pub mod fairness;
mod far;
mod findings;
pub mod flow;
pub mod foreign;
mod guests;
pub mod latency;
pub mod page;
mod path;
mod plan;
pub mod probe;
mod program;
pub mod quiz;
pub mod record;
pub mod remote;
mod setting;
mod subject;

pub use error::LabError;
pub use experiment::{Event, Watch, experiment};
pub use far::{FarEnd, Over, Task, Token, serve};
pub use findings::{Confidence, Findings, Order, Recommendation, Row, SHARE_LIKE_CUBIC};
pub use path::{Path, PathUp};
pub use plan::{Fairness, Load, Plan, Rounds, RoundsError};
pub use program::Program;
pub use record::{Experiment, Run};
pub use setting::{Buffers, BuffersError, Command, Direction, DirectionError, Setting, Settings};
pub use subject::{Orders, Outcome, Subject};
