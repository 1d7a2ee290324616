//! Experiments with real kernel TCP, counted at the receiver.
//!
//! This crate forbids the sender's word for what arrived: a figure here is the receiver's bytes
//! over the receiver's time, and a run counts only if its link kept its promise. The sender's claim
//! is recorded too, because the difference is the lesson.
//!
//! - [`Plan`] and [`experiment()`]: what to compare, over which path, and the runs.
//! - [`Subject`]: what can be compared: [`Settings`] of our own sender, and other programs.
//! - [`flow`]: one connection that carries load.
//! - [`record`]: the results of an experiment, as plain data; [`file`](mod@file): the same as JSON Lines.
//! - [`latency`], [`fairness`]: what a load does to round-trip times and to a flow beside it.
//! - [`Findings`]: the table and the recommendation.
//! - [`compare`]: what changed between two experiments.
//! - [`foreign`]: any other program over an emulated path, measured without its cooperation.
//! - [`page`](mod@page): the results as one page of HTML.
//! - [`remote`]: a far host that is another machine.
//! - [`quiz`]: how many of the bytes written arrive, by five ways to end a connection.

#![forbid(unsafe_code)]

mod admission;
pub mod compare;
mod error;
mod event;
mod experiment;
pub mod fairness;
mod far;
pub mod file;
mod findings;
pub mod flow;
pub mod foreign;
pub mod latency;
mod load;
pub mod page;
mod path;
mod plan;
pub mod probe;
mod program;
pub mod quiz;
pub mod record;
pub mod remote;
mod run_state;
mod seconds;
mod setting;
mod share;
mod subject;
mod task;

pub use error::LabError;
pub use event::{Event, Watch};
pub use experiment::experiment;
pub use far::{FarEnd, serve};
pub use findings::{Confidence, Findings, Order, Recommendation, Row, SHARE_LIKE_CUBIC};
pub use load::{Load, Rounds, RoundsError};
pub use path::{Path, PathUp};
pub use plan::{Fairness, Plan};
pub use program::Program;
pub use record::{Experiment, Run};
pub use run_state::RunState;
pub use setting::{Buffers, BuffersError, Command, Direction, DirectionError, Setting, Settings};
pub use share::Share;
pub use subject::{Outcome, RunOptions, Subject};
pub use task::{Task, Token};
