//! The machine that ends connections, against a kernel to which anything can happen between any two
//! calls. The law: never more acked than the peer's kernel had, and always an end.
#![no_main]

#[path = "../../crates/core/src/finish/tests/kernel.rs"]
mod kernel;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kernel::by_bytes(bytes));
