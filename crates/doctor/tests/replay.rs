//! Recordings (`corpus/NAME.jsonl`) are looked at again, and what is found is what `corpus/NAME.findings`
//! says: a line for each finding, without its words. With LASTBYTE_BLESS set those files are written
//! anew, to be read by whoever commits them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, Cursor};
use std::path::Path;

use lastbyte_doctor::event::What;
use lastbyte_doctor::finding::Evidence;
use lastbyte_doctor::{Doctor, Event, Finding, Reader, RecordingError, Writer};

const HEADER: &str = r#"{"recording":"lastbyte doctor","format":1}"#;

#[test]
fn every_recording_gives_its_findings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut replayed = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "findings") {
            continue;
        }
        let mut doctor = Doctor::new();
        for event in Reader::begin(open(&path.with_extension("jsonl"))).unwrap() {
            doctor.take(&event.unwrap());
        }
        doctor.end();
        let found = table(&doctor.findings());
        if std::env::var_os("LASTBYTE_BLESS").is_some() {
            fs::write(&path, &found).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        assert_eq!(found, expected, "{}", path.display());
        replayed += 1;
    }
    assert!(replayed > 0);
}

/// `LB101 loss 80000 bytes (at most), socket 1, process 7`.
fn table(findings: &[Finding]) -> String {
    let mut table = String::new();
    for one in findings {
        let bytes = one.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let exact = match one.evidence.get("exact") {
            Some(Evidence::Word(word)) => word,
            _ => "-",
        };
        let harmless = if one.harmless { "harmless, " } else { "" };
        let socket = one.about.socket.map_or_else(|| "-".to_owned(), |socket| socket.0.to_string());
        let process = one.about.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        writeln!(
            table,
            "{} {} {harmless}{bytes} bytes ({exact}), socket {socket}, process {process}, times {}",
            one.code, one.class, one.times
        )
        .unwrap();
    }
    table
}

#[test]
fn a_recording_that_is_read_and_written_stays_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let path = folder.join("loss-data-after-close.jsonl");
    let mut writer = Writer::plain(Vec::new()).unwrap();
    for event in Reader::begin(open(&path)).unwrap() {
        writer.add(&event.unwrap()).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), fs::read(path).unwrap());
}

/// A recording of nothing but ticks: lines of one kind, as most are.
fn ticks() -> Vec<Event> {
    (0..20_000).map(|at| Event { at_ns: at * 100_000_000, what: What::Tick }).collect()
}

#[test]
fn compressed_it_is_a_twentieth_and_gives_the_same_events() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let (mut plain, mut packed) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let events: Vec<Event> = Reader::begin(open(&path)).unwrap().map(Result::unwrap).collect();
        let mut writer = Writer::packed(Vec::new()).unwrap();
        for event in &events {
            writer.add(event).unwrap();
        }
        let file = writer.finish().unwrap();
        let again: Vec<Event> =
            Reader::begin(file.as_slice()).unwrap().map(Result::unwrap).collect();
        assert_eq!(again, events, "{}", path.display());
        plain += fs::metadata(&path).unwrap().len();
        packed += file.len() as u64;
    }
    // One by one: a short file has little before it that it could resemble.
    assert!(packed * 5 < plain, "{packed} of {plain} bytes");

    let mut writer = Writer::packed(Vec::new()).unwrap();
    ticks().iter().for_each(|event| writer.add(event).unwrap());
    let packed = writer.finish().unwrap().len();
    let mut writer = Writer::plain(Vec::new()).unwrap();
    ticks().iter().for_each(|event| writer.add(event).unwrap());
    let plain = writer.finish().unwrap().len();
    assert!(packed * 20 < plain, "{packed} of {plain} bytes");
}

#[test]
fn what_a_killed_doctor_had_flushed_can_be_read() {
    let events = ticks();
    let mut file = Vec::new();
    let mut writer = Writer::packed(&mut file).unwrap();
    events.iter().for_each(|event| writer.add(event).unwrap());
    writer.flush().unwrap();
    // Neither finished nor dropped: the process is gone.
    std::mem::forget(writer);
    let mut read = Reader::begin(file.as_slice()).unwrap();
    for event in &events {
        assert_eq!(&read.next().unwrap().unwrap(), event);
    }
    let error = read.next().unwrap().unwrap_err();
    assert!(matches!(error, RecordingError::Cut { line: 20_002 }), "{error}");
    assert!(read.next().is_none());

    let plain = format!("{HEADER}\n{{\"at_ns\":1,\"event\":\"tick\"}}\n{{\"at_ns\":2,\"ev");
    let mut read = Reader::begin(Cursor::new(plain)).unwrap();
    assert!(read.next().unwrap().is_ok());
    let error = read.next().unwrap().unwrap_err();
    assert!(matches!(error, RecordingError::Cut { line: 3 }), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_and_asks_for_no_memory() {
    let mut writer = Writer::packed(Vec::new()).unwrap();
    ticks().iter().take(200).for_each(|event| writer.add(event).unwrap());
    let file = writer.finish().unwrap();
    for at in 4..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x55;
        let read = Reader::begin(damaged.as_slice());
        let is_noticed = read.map_or(true, |mut read| read.any(|event| event.is_err()));
        assert!(is_noticed, "byte {at}");
    }
    // A frame that asks for a window of 2^31 bytes: RFC 8878, section 3.1.1.1.2.
    let mut greedy = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (31 - 10) << 3];
    greedy.extend([0x01, 0x00, 0x00]);
    let error = Reader::begin(greedy.as_slice()).unwrap_err();
    assert!(matches!(error, RecordingError::Io { line: 1, .. }), "{error}");
}

#[test]
fn what_is_no_recording_says_so() {
    let begin = |text: &'static str| Reader::begin(Cursor::new(text));
    let header = HEADER;
    assert!(matches!(begin(""), Err(RecordingError::NoRecording(_))));
    assert!(matches!(begin("{}\n"), Err(RecordingError::NoRecording(_))));
    let newer = r#"{"recording":"lastbyte doctor","format":2}"#;
    let error = begin(newer).unwrap_err();
    assert!(error.to_string().contains("format 2, not 1"), "{error}");
    let other = r#"{"recording":"something else","format":1}"#;
    assert!(matches!(begin(other), Err(RecordingError::NoRecording(_))));

    let text = format!("{header}\n{{\"at_ns\":1,\"event\":\"tick\"}}\nnonsense\n");
    let mut events = Reader::begin(Cursor::new(text)).unwrap();
    assert!(events.next().unwrap().is_ok());
    let error = events.next().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("line 3 is no event"), "{error}");
    assert!(events.next().is_none());
}

#[test]
fn a_line_without_end_is_not_read_for_ever() {
    let mut text = format!("{HEADER}\n").into_bytes();
    text.resize(text.len() + (3 << 20), b'[');
    let events = Reader::begin(Cursor::new(text)).unwrap();
    let results: Vec<_> = events.collect();
    assert_eq!(results.len(), 1);
    let error = results[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("longer than 1 MiB"), "{error}");
}

fn open(path: &Path) -> BufReader<File> {
    BufReader::new(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}
