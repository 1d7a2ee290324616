//! Recordings of real flows over emulated links (`corpus/slow-*.jsonl`) and of real loops
//! (`corpus/cpu-*.jsonl`), sick ones and well ones, and what is to be found in each. Most paths are of 50
//! ms and 100 Mbit/s; all by Linux 6.18.

use std::fs::File;
use std::io::BufReader;

use crate::finding::{Class, Code, Finding};
use crate::{Doctor, Event, Reader, What};

/// What is found in a recording of a flow, and about which of its sockets: 1 sends, 2 receives.
const SICK: [(&str, u16, u64); 22] = [
    ("slow-send-buffer-cubic", 201, 1),
    ("slow-send-buffer-bbr", 201, 1),
    // Of 256 KiB asked for: half the rate of the path, and never seen quite full.
    ("slow-send-buffer-half", 201, 1),
    // Unpaced, over 20 and 200 Mbit/s: more in flight than its buffer holds, and a queue, at moments.
    ("slow-send-buffer-bursts", 201, 1),
    ("slow-send-buffer-bursts-large", 201, 1),
    ("slow-receive-buffer-cubic", 202, 1),
    ("slow-receive-buffer-bbr", 202, 1),
    // The receiver is another machine.
    ("slow-receive-buffer-far", 202, 1),
    // The sender is.
    ("slow-receive-buffer-near", 202, 2),
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

/// What is found in a recording of a program alone.
const PROGRAMS: [(&str, u16); 9] = [
    ("slow-tiny-writes", 206),
    ("cpu-room-epoll", 301),
    ("cpu-room-poll", 301),
    ("cpu-queue-asked", 302),
    ("cpu-hung-up", 303),
    ("cpu-read-after-end", 303),
    ("cpu-select", 304),
    ("cpu-accept-without-room", 305),
    ("cpu-tried-again", 306),
];

/// In these nothing is found.
const WELL: [&str; 21] = [
    // Requests and responses as fast as possible, read until EAGAIN.
    "cpu-not-busy",
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
    "slow-not-bursts-cubic",
    "slow-not-receive-buffer-near",
    // Ten requests and responses per second.
    "slow-not-keys",
    "slow-not-idle",
    "slow-not-long-poll",
    "slow-not-restart-bbr",
    "slow-not-restart-small-cubic",
    "slow-not-satellite-cubic",
    "slow-not-lte-cubic",
    "slow-not-lan-cubic",
    // 300 kB for each request.
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
fn what_a_program_does_for_nothing_is_found() {
    for (name, code) in PROGRAMS {
        let found = findings(name);
        let told: Vec<_> = found.iter().map(|one| (one.code, one.times)).collect();
        assert_eq!(told, [(Code(code), 1)], "{name}");
        assert_eq!(found[0].about.pid, Some(1_000), "{name}");
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
        let Some(name) = name.strip_suffix(".jsonl") else { continue };
        if !name.starts_with("slow-") && !name.starts_with("cpu-") {
            continue;
        }
        let sick = SICK.iter().map(|one| one.0).chain(PROGRAMS.iter().map(|one| one.0));
        assert!(WELL.into_iter().chain(sick).any(|one| one == name), "{name}");
        seen += 1;
    }
    assert_eq!(seen, SICK.len() + PROGRAMS.len() + WELL.len());
}

/// The finding has the needed size of a fixed send buffer: this path carries 95 Mbit/s.
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

/// On a machine with many sockets each is sampled less often.
#[test]
fn healthy_recordings_give_nothing_with_fewer_samples_either() {
    for name in WELL {
        for each in 2..=10 {
            let found = seldom(name, each);
            let told: Vec<_> = found.iter().map(|one| &one.sentence).collect();
            assert!(told.is_empty(), "{name}, each {each}: {told:?}");
        }
    }
}

/// The findings about the sick recordings stay the same.
#[test]
fn fewer_samples_give_no_wrong_finding() {
    for (name, code, _) in SICK {
        for each in 2..=10 {
            let others: Vec<_> =
                seldom(name, each).into_iter().filter(|one| one.code != Code(code)).collect();
            assert!(others.is_empty(), "{name}, each {each}: {others:?}");
        }
    }
}

/// Findings with only one in this many samples.
fn seldom(name: &str, each: u64) -> Vec<Finding> {
    let mut number = 0;
    judge(events(name).filter(|event| {
        let is_sample = matches!(event.what, What::Sample(_));
        number += u64::from(is_sample);
        !is_sample || number.is_multiple_of(each)
    }))
}

fn findings(name: &str) -> Vec<Finding> {
    judge(events(name))
}

fn judge(events: impl Iterator<Item = Event>) -> Vec<Finding> {
    let mut doctor = Doctor::new();
    for event in events {
        doctor.take(&event);
    }
    doctor.end();
    let found = doctor.findings().into_iter();
    found.filter(|finding| matches!(finding.class, Class::Slow | Class::Cpu)).collect()
}

fn events(name: &str) -> impl Iterator<Item = Event> {
    let file = format!("{}/corpus/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let reader = Reader::begin(BufReader::new(File::open(file).unwrap())).unwrap();
    reader.map(|event| event.unwrap())
}
