//! The race for a connection, called in any order. The law is in `by_bytes`.
#![no_main]

#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../crates/core/src/race/tests/network.rs"]
mod network;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network::by_bytes(bytes));
