//! HTTP's CONNECT, as a client may say it or not. The law is in `by_bytes`.
#![no_main]

use lastbyte_core::http_connect::HttpConnect;

#[path = "../../crates/core/src/request/tests/pieces.rs"]
mod pieces;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pieces::by_bytes(HttpConnect::new, bytes));
