//! Recordings of real flows over emulated links (`corpus/slow-*.jsonl`), sick ones and well ones, and
//! what is to be found in each. Most are of 50 ms and 100 Mbit/s, by Linux 6.18.

use std::fs::File;
use std::io::BufReader;

use crate::finding::{Code, Finding};
use crate::{Doctor, Reader};

/// What is found in a recording, and about which of its sockets: 1 sends, 2 receives.
const SICK: [(&str, u16, u64); 19] = [
    ("slow-send-buffer-cubic", 201, 1),
    ("slow-send-buffer-bbr", 201, 1),
    // Of 256 KiB asked for: half the rate of the path, and never seen quite full.
    ("slow-send-buffer-half", 201, 1),
    ("slow-receive-buffer-cubic", 202, 1),
    ("slow-receive-buffer-bbr", 202, 1),
    // The receiver is another machine.
    ("slow-receive-buffer-far", 202, 1),
    ("slow-loss-cubic", 203, 1),
    ("slow-loss-reno", 203, 1),
    ("slow-writer-cubic", 204, 1),
    ("slow-writer-bbr", 204, 1),
    ("slow-nagle", 205, 1),
    ("slow-timeouts-cubic", 207, 1),
    ("slow-timeouts-bbr", 207, 1),
    ("slow-reader-stops-cubic", 208, 2),
    ("slow-reader-stops-bbr", 208, 2),
    ("slow-reader-stops-far", 208, 1),
    ("slow-reader-bbr", 208, 2),
    ("slow-reader-far", 208, 1),
    ("slow-restart-cubic", 209, 1),
];

/// In these nothing is found.
const WELL: [&str; 18] = [
    "slow-not-bulk-cubic",
    "slow-not-bulk-bbr",
    "slow-not-short-queue-cubic",
    "slow-not-bloat-cubic",
    "slow-not-loss-bbr",
    // 4 MB over 100 ms.
    "slow-not-short-cubic",
    "slow-not-short-bbr",
    // Fixed buffers that are large enough.
    "slow-not-enough-buffer-cubic",
    "slow-not-large-buffer-bbr",
    // Ten questions and answers a second.
    "slow-not-keys",
    "slow-not-idle",
    "slow-not-long-poll",
    "slow-not-restart-bbr",
    "slow-not-restart-small-cubic",
    "slow-not-satellite-cubic",
    "slow-not-lte-cubic",
    "slow-not-lan-cubic",
    // 300 kB for each question.
    "slow-not-answers-bbr",
];

#[test]
fn what_is_sick_is_found_and_nothing_else() {
    for (name, code, socket) in SICK {
        let found = findings(name);
        let told: Vec<_> = found.iter().map(|one| (one.code, one.about.socket)).collect();
        assert_eq!(told.len(), 1, "{name}: {told:?}");
        assert_eq!(told[0].0, Code(code), "{name}");
        assert_eq!(told[0].1.map(|id| id.0), Some(socket), "{name}");
    }
}

#[test]
fn what_is_well_gives_nothing() {
    for name in WELL {
        let found = findings(name);
        let told: Vec<_> = found.iter().map(|one| &one.sentence).collect();
        assert!(told.is_empty(), "{name}: {told:?}");
    }
}

#[test]
fn every_recording_is_expected_to_be_something() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".jsonl").filter(|name| name.starts_with("slow-"))
        else {
            continue;
        };
        let is_known = WELL.contains(&name) || SICK.iter().any(|sick| sick.0 == name);
        assert!(is_known, "{name}");
        seen += 1;
    }
    assert_eq!(seen, SICK.len() + WELL.len());
}

/// What a fixed send buffer costs is said with the number: this path carries 95 Mbit/s.
#[test]
fn the_number_of_a_fixed_send_buffer_is_about_what_the_path_needs() {
    let found = findings("slow-send-buffer-cubic").remove(0);
    let number = |name: &str| match &found.evidence[name] {
        crate::finding::Evidence::Count(count) => *count,
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(number("send_buffer_bytes"), 131_072);
    // Twice 50 ms of 73 Mbit/s, which is what the peer's window would let go at this moment.
    assert!((800_000..1_200_000).contains(&number("needed_send_buffer_bytes")));
    assert_eq!(found.heal.as_deref(), Some("lastbyte heal --socket 1 --unlock-buffers"));
}

fn findings(name: &str) -> Vec<Finding> {
    let file = format!("{}/corpus/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let mut doctor = Doctor::new();
    for event in Reader::begin(BufReader::new(File::open(file).unwrap())).unwrap() {
        doctor.take(&event.unwrap());
    }
    doctor.end();
    doctor.findings()
}
