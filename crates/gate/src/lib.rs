//! A TCP gateway: takes connections, opens one for each where it is wanted, and joins the two.
//!
//! This crate forbids a flow without an account: each connection that is accepted leaves exactly one
//! [`Account`](lastbyte_core::account::Account), whatever became of it.

#![forbid(unsafe_code)]

pub mod config;
#[expect(dead_code, reason = "it comes with the relay")]
mod flow;
mod gate;
#[allow(dead_code, reason = "it comes with the relay")]
mod limits;
#[allow(dead_code, reason = "it comes with the relay")]
mod loops;
#[allow(dead_code, reason = "it comes with the relay")]
mod request;
#[allow(dead_code, reason = "it comes with the relay")]
mod targets;
#[allow(dead_code, reason = "it comes with the relay")]
mod users;

pub use gate::{Accounts, Gate, Listening, StartError};
