//! Scenario files, which users write by hand: each is a path, or an error that says where.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = lastbyte_link::Scenario::parse("fuzzed", text);
        let _ = lastbyte_link::Topology::parse("fuzzed", text);
    }
});
