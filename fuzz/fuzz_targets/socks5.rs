//! SOCKS 5, as a client may say it or not. The law is in `by_bytes`.
#![no_main]

use lastbyte_core::socks5::Socks5;

#[path = "../../crates/core/src/request/tests/pieces.rs"]
mod pieces;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pieces::by_bytes(Socks5::new, bytes));
