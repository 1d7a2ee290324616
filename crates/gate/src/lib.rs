//! A TCP gateway: takes connections, opens one for each where it is wanted, and joins the two.
//!
//! This crate forbids a flow without an account: each connection that is accepted leaves exactly one
//! [`Account`](lastbyte_core::account::Account), whatever became of it.

#![forbid(unsafe_code)]

mod balance;
pub mod config;
mod flow;
mod gate;
#[allow(dead_code, reason = "the flow does not ask yet")]
mod limits;
mod listeners;
mod live;
pub mod log;
#[allow(dead_code, reason = "the flow does not ask yet")]
mod loops;
#[allow(dead_code, reason = "the flow does not ask yet")]
mod request;
mod stop;
#[allow(dead_code, reason = "the flow does not ask yet")]
mod targets;
mod tuned;
#[allow(dead_code, reason = "the flow does not ask yet")]
mod users;
mod worker;

pub use gate::{Accounts, Changes, Gate, Listening, Notice, Notices, StartError, Totals};
pub use live::LiveFlow;
