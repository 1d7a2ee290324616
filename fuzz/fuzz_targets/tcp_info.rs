//! What the kernel says of a connection, however short or wrong.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let info = lastbyte_core::sample::TcpInfo::parse(bytes);
    assert_eq!(info.is_some(), bytes.len() >= 104);
});
