use super::*;

use std::sync::mpsc::{Sender, channel};

use lastbyte_core::End;
use lastbyte_core::account::{Ended, How, Leg, Party, Traffic};
use lastbyte_core::sample::LimitedBy;

fn account() -> Account {
    let mut client = Leg::default();
    client.local = Some("192.0.2.1:3306".parse().unwrap());
    client.peer = Some("192.0.2.7:51234".parse().unwrap());
    client.granted = vec![("TCP_CONGESTION", "bbr".to_owned())];
    let began = Duration::from_micros(1_795_319_100_250_000);
    let mut account = Account::begin(7, "db".into(), began, client);
    account.took = Duration::from_millis(12_300);
    account.wanted = Some("db.far:3306".to_owned());
    let mut upstream = Leg::default();
    upstream.local = Some("192.0.2.1:40000".parse().unwrap());
    upstream.peer = Some("198.51.100.7:3306".parse().unwrap());
    upstream.rtt = Some(Duration::from_micros(217_400));
    upstream.retransmitted_segments = Some(3);
    account.upstream = Some(upstream);
    account.connect = Some(Duration::from_millis(217));
    account.up = traffic(1_234);
    account.down = traffic(99_000);
    account.down.limited_by = Some((LimitedBy::CongestionWindow, Duration::from_millis(8_100)));
    account.ended = Ended::new(Party::Client, How::Fin);
    account
}

fn traffic(bytes: u64) -> Traffic {
    let mut traffic = Traffic::default();
    (traffic.received, traffic.written, traffic.acked) = (bytes, bytes, Some(bytes));
    traffic.end = Some(End::Fin);
    traffic
}

#[test]
fn a_line_for_people_has_what_matters() {
    assert_eq!(
        Form::Text.line(&account()),
        "2026-11-22 03:45:12.550Z db 192.0.2.7:51234 -> db.far:3306 (198.51.100.7:3306) complete, \
         ended by client; 12.3 s; up 1,234 all acked; down 99,000 all acked; connect 217 ms; \
         down held back by congestion window 8.1 s; client TCP_CONGESTION=bbr\n"
    );
    let mut cut = account();
    cut.ended = Ended::new(Party::Upstream, How::Reset);
    (cut.down.acked, cut.down.limited_by, cut.up.acked) = (Some(88_000), None, None);
    cut.client.granted.clear();
    assert_eq!(
        Form::Text.line(&cut),
        "2026-11-22 03:45:12.550Z db 192.0.2.7:51234 -> db.far:3306 (198.51.100.7:3306) not \
         complete, reset by upstream; 12.3 s; up 1,234, acked unknown; down 99,000, 88,000 acked; \
         connect 217 ms\n"
    );
}

#[test]
fn a_flow_that_never_was_has_a_line_too() {
    let mut refused = Account::begin(1, "socks".into(), Duration::ZERO, Leg::default());
    refused.ended = Ended::because(Party::Gate, How::BadRequest, "\u{1b}]0;x\u{7} is no request");
    assert_eq!(
        Form::Text.line(&refused),
        "1970-01-01 00:00:00.000Z socks ? -> ? not complete, bad request by gate: \
         \\u{1b}]0;x\\u{7} is no request; 0 ms; up 0; down 0\n"
    );
}

#[test]
fn json_has_every_field_with_its_unit() {
    assert_eq!(
        Form::Json.line(&account()),
        concat!(
            r#"{"type":"account","schema":1,"flow":7,"route":"db","complete":true,"#,
            r#""ended_by":"client","ended_how":"fin","ended_detail":null,"#,
            r#""began_unix_s":1795319100.25,"took_s":12.3,"wanted":"db.far:3306","#,
            r#""connect_ms":217.0,"#,
            r#""up_received_bytes":1234,"up_written_bytes":1234,"up_acked_bytes":1234,"#,
            r#""up_end":"fin","up_limited_by":null,"up_limited_s":null,"#,
            r#""down_received_bytes":99000,"down_written_bytes":99000,"down_acked_bytes":99000,"#,
            r#""down_end":"fin","down_limited_by":"congestion_window","down_limited_s":8.1,"#,
            r#""client":{"local":"192.0.2.1:3306","peer":"192.0.2.7:51234","rtt_ms":null,"#,
            r#""retransmitted_segments":null,"tuned":{"TCP_CONGESTION":"bbr"}},"#,
            r#""upstream":{"local":"192.0.2.1:40000","peer":"198.51.100.7:3306","rtt_ms":217.4,"#,
            r#""retransmitted_segments":3,"tuned":{}}}"#,
            "\n"
        )
    );
}

#[test]
fn the_manual_has_every_key() {
    let manual = include_str!("../../../../docs/manual/gate.md");
    let value: serde_json::Value = serde_json::from_str(&Form::Json.line(&account())).unwrap();
    let legs = ["client", "upstream"].map(|leg| value[leg].as_object().unwrap());
    let keys =
        [value.as_object().unwrap()].into_iter().chain(legs).flat_map(|object| object.keys());
    for key in keys.filter(|key| !key.starts_with("down_")) {
        assert!(manual.contains(&format!("`{key}`")), "docs/manual/gate.md does not have {key}");
    }
    for word in How::ALL.map(How::word) {
        assert!(manual.contains(&format!("`{word}`")), "docs/manual/gate.md does not have {word}");
    }
}

#[test]
fn json_commands_no_terminal_and_loses_nothing() {
    let mut evil = account();
    let text = "a\u{1b}[31m\u{9b}2J\u{202e}\n\"ümläut\u{1F600}";
    evil.wanted = Some(text.to_owned());
    let line = Form::Json.line(&evil);
    assert_eq!(line.matches('\n').count(), 1);
    assert!(!line.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{line}");
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["wanted"], text);
}

/// Passes on what is written, each piece with what is to be answered.
struct Piped {
    written: Sender<Vec<u8>>,
    answers: Receiver<io::Result<usize>>,
}

impl Write for Piped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.send(bytes.to_vec()).unwrap();
        // A writer that nobody answers any more takes all.
        self.answers.recv().unwrap_or(Ok(usize::MAX)).map(|taken| taken.min(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Bed {
    log: Log,
    written: Receiver<Vec<u8>>,
    answer: Sender<io::Result<usize>>,
    warnings: Receiver<String>,
}

const LONG: Duration = Duration::from_secs(20);

impl Bed {
    fn with_capacity(room: usize) -> Self {
        let (written, see) = channel();
        let (answer, answers) = channel();
        let (warn, warnings) = channel();
        let mut piped = Some(Piped { written, answers });
        let open = move || -> io::Result<Sink> {
            Ok(Box::new(piped.take().ok_or(io::ErrorKind::NotFound)?))
        };
        let warn = move |sentence: &str| warn.send(sentence.to_owned()).unwrap();
        let log = Log::with_capacity(room, Form::Text, Box::new(open), Box::new(warn)).unwrap();
        Self { log, written: see, answer, warnings }
    }

    /// The next piece that is written, as text.
    fn piece(&self) -> String {
        String::from_utf8(self.written.recv_timeout(LONG).unwrap()).unwrap()
    }

    fn take_all(&self) {
        self.answer.send(Ok(usize::MAX)).unwrap();
    }
}

#[test]
fn a_flow_never_waits_and_what_is_lost_is_counted() {
    let bed = Bed::with_capacity(3);
    bed.log.enter(account());
    assert_eq!(bed.piece().lines().count(), 1, "and from here on the writer is stuck");
    for _ in 0..10 {
        bed.log.enter(account());
    }
    assert_eq!(bed.log.lost(), 7, "three had room");
    bed.take_all();
    let piece = bed.piece();
    let lines: Vec<&str> = piece.lines().collect();
    assert_eq!(lines.len(), 4, "all at once: {lines:?}");
    assert!(lines[0].starts_with("7 accounts were lost here"), "{lines:?}");
    bed.take_all();
    bed.log.end(LONG);
    assert!(bed.warnings.try_recv().is_err());
}

#[test]
fn a_broken_pipe_is_reported_once_and_ends_nothing() {
    let bed = Bed::with_capacity(100);
    bed.log.enter(account());
    bed.piece();
    bed.answer.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
    assert!(bed.warnings.recv_timeout(LONG).unwrap().contains("the log has no reader any more"));
    for _ in 0..5 {
        bed.log.enter(account());
    }
    bed.log.end(LONG);
    assert_eq!(bed.log.lost(), 6);
    assert!(bed.warnings.recv_timeout(LONG).unwrap().starts_with("6 accounts were not written"));
    assert!(bed.warnings.try_recv().is_err());
}

#[test]
fn a_full_disk_is_reported_once_and_no_line_is_truncated() {
    let bed = Bed::with_capacity(100);
    let full = || Err(io::ErrorKind::StorageFull.into());
    bed.log.enter(account());
    let first = bed.piece();
    bed.answer.send(Ok(10)).unwrap();
    assert_eq!(bed.piece(), first[10..]);
    bed.answer.send(full()).unwrap();
    assert!(bed.warnings.recv_timeout(LONG).unwrap().contains("cannot be written"));
    bed.log.enter(account());
    assert_eq!(bed.piece(), "\n", "the end of the half line comes first");
    bed.answer.send(full()).unwrap();
    bed.piece();
    bed.answer.send(full()).unwrap();
    bed.log.enter(account());
    assert_eq!(bed.piece(), "\n");
    bed.take_all();
    assert_eq!(bed.piece().lines().count(), 1);
    bed.take_all();
    assert!(bed.warnings.recv_timeout(LONG).unwrap().contains("can be written again"));
    bed.log.enter(account());
    assert!(bed.piece().starts_with("2 accounts were lost here"));
    bed.take_all();
    bed.log.end(LONG);
}

#[test]
fn an_end_does_not_wait_for_a_reader_that_does_not_read() {
    let bed = Bed::with_capacity(1);
    bed.log.enter(account());
    bed.piece();
    bed.log.enter(account());
    let began = Instant::now();
    bed.log.end(Duration::from_millis(50));
    assert!(began.elapsed() < LONG);
}

#[test]
fn a_log_is_reopened_on_request() {
    let opened = Arc::new(AtomicU64::new(0));
    let opening = Arc::clone(&opened);
    let open = move || -> io::Result<Sink> {
        opening.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(io::sink()))
    };
    let log = Log::start(Form::Json, Box::new(open), Box::new(|_: &str| {})).unwrap();
    log.enter(account());
    log.reopen();
    log.end(LONG);
    assert_eq!((opened.load(Ordering::Relaxed), log.lost()), (2, 0));
}
