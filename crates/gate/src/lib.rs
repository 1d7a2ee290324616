//! A TCP gateway: takes connections, opens one for each where it is wanted, and joins the two.
//!
//! This crate forbids a flow without an account: each connection that is accepted leaves exactly one
//! [`Account`](lastbyte_core::account::Account), whatever became of it.

#![forbid(unsafe_code)]

mod balance;
pub mod config;
pub mod control;
mod flow;
mod gate;
mod limits;
mod listeners;
mod live;
pub mod log;
mod loops;
mod progress;
mod request;
mod scrape;
pub mod statistics;
mod stop;
mod targets;
mod tuned;
mod users;
mod watch;
mod worker;

pub use gate::{Accounts, Changes, Gate, Listening, Notice, Notices, StartError, Totals, View};
pub use live::LiveFlow;
pub use progress::{Bytes, Moved};
pub use watch::{Watch, WatchError, Watching};
