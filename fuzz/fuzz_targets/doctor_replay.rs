//! Recordings of `lastbyte doctor`. The laws: whatever the lines say, the reader ends and the rules give
//! findings that fit together: harmless ones are no losses, and each has a sentence and a page.
#![no_main]

use lastbyte_doctor::{Class, Doctor, Reader, explain};

const HEADER: &[u8] = b"{\"recording\":\"lastbyte doctor\",\"format\":1}\n";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // As it is, and where it has no header, with one.
    replay(bytes);
    replay(&[HEADER, bytes].concat());
});

fn replay(recording: &[u8]) {
    let Ok(reader) = Reader::begin(recording) else { return };
    let mut doctor = Doctor::new();
    for event in reader {
        let Ok(event) = event else { break };
        doctor.take(&event);
    }
    doctor.end();
    for finding in doctor.findings() {
        assert!(!(finding.harmless && finding.class == Class::Loss), "{finding:?}");
        assert!(!finding.sentence.contains('\n') && finding.sentence.ends_with('.'), "{finding:?}");
        assert!(explain(finding.code).is_some(), "{finding:?}");
    }
}
