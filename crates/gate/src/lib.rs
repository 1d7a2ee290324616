//! A TCP gateway: takes connections, opens one for each where it is wanted, and joins the two.
//!
//! This crate forbids a flow without an account: each connection that is accepted leaves exactly one
//! [`Account`](lastbyte_core::account::Account), whatever became of it.

#![forbid(unsafe_code)]

pub mod config;
#[expect(dead_code, reason = "it comes with the relay")]
mod flow;
mod gate;

pub use gate::{Accounts, Gate, Listening, StartError};
