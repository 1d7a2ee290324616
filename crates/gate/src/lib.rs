//! A TCP gateway: accepts connections, opens another for each to its target, and joins the two.
//!
//! This crate forbids a flow without an account: each accepted connection leaves exactly one
//! [`Account`](lastbyte_core::account::Account), whatever became of it.

#![forbid(unsafe_code)]

mod account;
mod balance;
pub mod config;
mod context;
pub mod control;
mod flow;
mod gate;
mod granted;
mod limits;
mod listeners;
mod live;
mod lock;
pub mod log;
mod loops;
mod progress;
mod reports;
mod request;
mod route;
mod scrape;
pub mod statistics;
mod steps;
mod stop;
mod targets;
mod users;
mod watch;
mod worker;

pub use gate::{Changes, Gate, Listening, StartError, Totals, View};
pub use live::LiveFlow;
pub use progress::{Bytes, Moved};
pub use reports::{Accounts, Notice, Notices};
pub use watch::{Watch, WatchError, Watching};
