//! `lastbyte dial`: what it connects to and draws, what it sends arrives and is accounted for, and
//! whatever ends it early looks like that to the peer.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    self, Answer, LASTBYTE, Running, SOON, Scratch, answer, can_make_links, congestion_controls,
    lastbyte,
};

/// More than all buffers of a connection over loopback.
const LARGE: usize = 24 << 20;

// --- bad input ----------------------------------------------------------------------------------

/// Runs the words, checks that they are refused before anything is dialed, and that the sentence has
/// all of `said`.
#[track_caller]
fn refused(words: &[&str], said: &[&str]) {
    let words = [&["dial"], words].concat();
    let told = answer(&mut lastbyte(&words)).with_code(2);
    assert_eq!(told.stdout, "", "{words:?} answered though it was misuse: {told:#?}");
    assert_sentence(&told, said);
}

#[track_caller]
fn assert_sentence(told: &Answer, said: &[&str]) {
    let begins = ["error: ", "lastbyte: "].iter().any(|begin| told.stderr.starts_with(begin));
    assert!(begins, "no sentence that says who speaks: {told:#?}");
    for word in said {
        assert!(told.stderr.contains(word), "it does not say `{word}`: {told:#?}");
    }
}

#[test]
fn bad_values_are_named() {
    refused(&["127.0.0.1"], &["PORT"]);
    refused(&["127.0.0.1", "0"], &["PORT", "0", "1..=65535"]);
    refused(&["127.0.0.1", "65536"], &["PORT", "65536", "1..=65535"]);
    refused(&["127.0.0.1", "http"], &["PORT", "http"]);
    let here = |words: &[&str], said: &[&str]| {
        refused(&[&["127.0.0.1", "7"], words].concat(), said);
    };
    here(&["--timeout", "5"], &["--timeout", "unit"]);
    here(&["--timeout", "0"], &["--timeout", "more than no time"]);
    here(&["--timeout", "99999999999999h"], &["--timeout", "at most 24 h"]);
    here(&["--attempt-delay", "25h"], &["--attempt-delay", "at most 24 h"]);
    here(&["--attempt-delay", "9ms"], &["--attempt-delay", "10 ms", "RFC 8305"]);
    here(&["--resolution-delay", "-1ms"], &["--resolution-delay", "negative"]);
    here(&["--keepalive", "0s"], &["--keepalive"]);
    here(&["--proof-timeout", "0s"], &["--proof-timeout"]);
    here(&["--send-buffer", "3GB"], &["--send-buffer", "3 GB"]);
    here(&["--receive-buffer", "big"], &["--receive-buffer", "big"]);
    here(&["--source", "near"], &["--source", "near"]);
    here(&["--source", "127.0.0.1", "--source", "127.0.0.2"], &["--source", "each family"]);
    here(&["--congestion", "hope"], &["`hope`", &congestion_controls("available")[0]]);
    here(&["--resolver", "hope"], &["--resolver", "system"]);
    here(&["--want", "confirmed"], &["--want", "confirmed", "closed"]);
    here(&["--repeat", "0"], &["--repeat", "0"]);
    here(&["-4", "-6"], &["-4", "-6"]);
    here(&["-6"], &["127.0.0.1", "-6"]);
    refused(&["::1", "7", "-4"], &["::1", "-4"]);
}

#[test]
fn words_that_do_not_fit_together_are_named() {
    let scratch = Scratch::new();
    let file = scratch.file("request", "hello");
    let here = |words: &[&str], said: &[&str]| {
        refused(&[&["127.0.0.1", "7"], words].concat(), said);
    };
    here(&["--repeat", "2", "--send", &file], &["--repeat", "--send"]);
    here(&["--interactive", "--json"], &["--interactive", "--json"]);
    here(&["--quiet", "--json"], &["--quiet", "--json"]);
    here(&["--fast-open"], &["--fast-open", "input"]);
    here(&["--wait", "1s"], &["--wait", "nothing is sent"]);
    let closed = ["--wait", "1s", "--want", "closed", "--send", &file];
    here(&closed, &["--wait", "--proof-timeout"]);
    here(&["--send", "/nowhere/at/all"], &["--send", "/nowhere/at/all", "No such file"]);
    here(&["--send", "/"], &["--send", "folder"]);
}

#[test]
fn what_is_no_name_is_refused_with_a_sentence() {
    refused(&["", "7"], &["the host is empty"]);
    refused(&[&"x".repeat(300), "7"], &["253", "300"]);
    refused(&["no\u{1b}[31mwhere", "7"], &["dial no\\u{1b}[31mwhere port 7", "U+001B"]);
    refused(&["two words", "7"], &["space"]);
    refused(&["line\nbreak", "7"], &["U+000A"]);
}

#[test]
fn a_name_that_nobody_has_ends_in_a_sentence() {
    for resolver in ["dns", "system"] {
        let words = ["dial", "nobody.invalid", "7", "--timeout", "5s", "--resolver", resolver];
        let told = answer(&mut lastbyte(words)).with_code(2);
        assert_sentence(&told, &["nobody.invalid"]);
    }
}

#[test]
fn where_no_resolver_answers_it_ends_in_time() {
    if !can_make_links() {
        return;
    }
    // No way leads from there to whatever /etc/resolv.conf names.
    for resolver in ["dns", "system"] {
        let dial = ["dial", "example.com", "7", "--timeout", "1s", "--resolver", resolver];
        let words = [&["link", "run", "-q", "--rtt", "1ms", "--", LASTBYTE], &dial[..]].concat();
        let began = std::time::Instant::now();
        let told = answer(&mut lastbyte(words)).with_code(2);
        assert_sentence(&told, &["example.com"]);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

// --- connecting ---------------------------------------------------------------------------------

/// A peer for one connection.
struct Peer<T> {
    port: String,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Peer<T> {
    fn new(course: impl FnOnce(TcpStream) -> T + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let thread = thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            // A peer that waits for ever fails its test.
            stream.set_read_timeout(Some(SOON)).unwrap();
            stream.set_write_timeout(Some(SOON)).unwrap();
            course(stream)
        });
        Self { port, thread }
    }

    fn dial(&self, words: &[&str]) -> Command {
        lastbyte([&["dial", "127.0.0.1", &self.port], words].concat())
    }

    #[track_caller]
    fn told(self) -> T {
        self.thread.join().unwrap()
    }
}

/// All that came, and the error that it ended with.
fn read_all(stream: &mut TcpStream) -> (Vec<u8>, Option<io::ErrorKind>) {
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).err();
    (bytes, error.map(|error| error.kind()))
}

fn reset(stream: TcpStream) {
    lastbyte_sys::socket::set_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Letters, so that an answer can be compared as text.
fn letters(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + u8::try_from(at % 23).unwrap()).collect()
}

#[test]
fn it_draws_how_it_connected_and_sends_nothing() {
    let peer = Peer::new(|mut stream| read_all(&mut stream));
    let told = answer(&mut peer.dial(&[])).with_code(0);
    for said in ["1 -> 127.0.0.1:", "1 connected, from", "connected to", "congestion control"] {
        assert!(told.stdout.contains(said), "it does not say `{said}`: {told:#?}");
    }
    assert_eq!(told.stderr, "");
    assert_eq!(peer.told(), (Vec::new(), None));
}

#[test]
fn a_name_is_asked_for() {
    let peer = Peer::new(|mut stream| read_all(&mut stream));
    let told = answer(&mut lastbyte(["dial", "localhost", &peer.port])).with_code(0);
    for said in
        ["asked AAAA and A", "A: 127.0.0.1", &format!("connected to 127.0.0.1:{}", peer.port)]
    {
        assert!(told.stdout.contains(said), "it does not say `{said}`: {told:#?}");
    }
    peer.told();
}

#[test]
fn a_closed_stdin_is_nothing_to_send() {
    let peer = Peer::new(|mut stream| read_all(&mut stream));
    let script = format!("exec {LASTBYTE} dial 127.0.0.1 {} <&-", peer.port);
    let told = answer(Command::new("sh").args(["-c", &script])).with_code(0);
    assert!(told.stdout.contains("1 connected"), "{told:#?}");
    assert_eq!(peer.told(), (Vec::new(), None));
}

/// A port where nobody listens.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn that_nobody_listens_is_an_answer() {
    let told = answer(&mut lastbyte(["dial", "127.0.0.1", &free_port()])).with_code(1);
    assert!(told.stdout.contains("1 failed: "), "{told:#?}");
    assert_sentence(&told, &["lastbyte: dial", "127.0.0.1", "refused"]);
}

#[test]
fn what_cannot_even_be_tried_is_a_failure() {
    let port = free_port();
    for (words, said) in [
        (["--interface", "nowhere0"], "No such device"),
        (["--source", "192.0.2.1"], "bind 192.0.2.1"),
        (["--source", "2001:db8::1"], "source addresses"),
    ] {
        let words = [&["dial", "127.0.0.1", &port][..], &words].concat();
        let told = answer(&mut lastbyte(words)).with_code(2);
        assert_sentence(&told, &[said]);
    }
}

#[test]
fn silence_is_an_answer_once_time_is_over() {
    let listener = full_listener();
    let port = listener.0.local_addr().unwrap().port().to_string();
    let words = ["dial", "127.0.0.1", &port, "--timeout", "300ms"];
    let told = answer(&mut lastbyte(words)).with_code(1);
    assert_sentence(&told, &["timed out"]);
}

/// A listener that answers no further SYN: its queue is full.
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let fd = lastbyte_sys::socket::open_tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = TcpListener::from(fd);
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    lastbyte_sys::socket::bind(&listener, address).unwrap();
    lastbyte_sys::socket::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let limit = Duration::from_millis(200);
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, limit) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "a queue without an end");
    }
    (listener, waiting)
}

#[test]
fn a_narrow_terminal_can_be_read() {
    for (columns, bars) in [("40", false), ("80", true)] {
        let peer = Peer::new(|mut stream| read_all(&mut stream));
        let mut dial = lastbyte(["dial", "localhost", &peer.port]);
        let told = answer(dial.env("COLUMNS", columns)).with_code(0);
        let limit = columns.parse().unwrap();
        let widest = told.stdout.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= limit, "{widest} columns: {told:#?}");
        assert_eq!(told.stdout.contains("===="), bars, "{told:#?}");
        assert!(told.stdout.contains("127.0.0.1"), "{told:#?}");
        peer.told();
    }
}

#[test]
fn less_than_was_asked_for_is_said() {
    let limit = fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let peer = Peer::new(|mut stream| read_all(&mut stream));
    let asked = format!("{}", limit + 1024);
    let told =
        answer(&mut peer.dial(&["--send-buffer", &asked, "--keepalive", "30s"])).with_code(0);
    for said in ["dial: asked for a send buffer", "net.core.wmem_max"] {
        assert!(told.stderr.contains(said), "it does not say `{said}`: {told:#?}");
    }
    assert!(told.stdout.contains("probed after 30 s"), "{told:#?}");
    peer.told();
}

#[test]
fn quiet_is_quiet() {
    let peer = Peer::new(|mut stream| read_all(&mut stream));
    let told = answer(&mut peer.dial(&["--quiet"])).with_code(0);
    assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("", ""));
    peer.told();
}

// --- sending ------------------------------------------------------------------------------------

/// Runs it with this file on stdin.
#[track_caller]
fn answer_to(dial: &mut Command, file: &str) -> Answer {
    Running::start(dial.stdin(File::open(file).unwrap())).answer_within(SOON)
}

#[test]
fn a_file_is_sent_proven_and_answered() {
    let scratch = Scratch::new();
    let file = scratch.file("request", letters(3_000_000));
    for (by, want) in [("stdin", "acked"), ("option", "closed"), ("pipe", "closed")] {
        let peer = Peer::new(|mut stream| {
            let read = read_all(&mut stream);
            stream.write_all(b"thank you\n").unwrap();
            read
        });
        let told = match by {
            "stdin" => answer_to(&mut peer.dial(&["--want", want]), &file),
            "option" => answer(&mut peer.dial(&["--want", want, "--send", &file])),
            _ => {
                let script =
                    format!("cat {file} | {LASTBYTE} dial 127.0.0.1 {} --want {want}", peer.port);
                answer(Command::new("sh").args(["-c", &script]))
            }
        };
        let told = told.with_code(0);
        assert_eq!(told.stdout, "thank you\n", "{by}: {told:#?}");
        let receipt = format!("{want}: 3000000 of 3000000 bytes acked, peer ended with FIN");
        for said in ["dial: connected to 127.0.0.1:", &receipt, "; 10 bytes received"] {
            assert!(told.stderr.contains(said), "it does not say `{said}`: {told:#?}");
        }
        assert_eq!(peer.told(), (letters(3_000_000), None));
    }
}

#[test]
fn an_empty_file_is_sent_and_the_answer_read() {
    let scratch = Scratch::new();
    for file in [scratch.file("empty", ""), "/dev/null".to_owned()] {
        let peer = Peer::new(|mut stream| {
            stream.write_all(b"220 hello\r\n").unwrap();
            read_all(&mut stream)
        });
        let told = answer(&mut peer.dial(&["--send", &file])).with_code(0);
        assert_eq!(told.stdout, "220 hello\r\n");
        assert!(told.stderr.contains("0 of 0 bytes acked"), "{told:#?}");
        assert_eq!(peer.told(), (Vec::new(), None));
    }
}

#[test]
fn fast_open_loses_nothing_and_doubles_nothing() {
    let scratch = Scratch::new();
    for length in [1, 1_199, 1_200, 1_201, 300_000] {
        let file = scratch.file("request", letters(length));
        let peer = Peer::new(|mut stream| read_all(&mut stream));
        let told = answer_to(&mut peer.dial(&["--fast-open"]), &file).with_code(0);
        let receipt = format!("{length} of {length} bytes acked");
        assert!(told.stderr.contains(&receipt), "{told:#?}");
        assert_eq!(peer.told(), (letters(length), None));
    }
}

#[test]
fn both_ways_are_copied_at_once() {
    let scratch = Scratch::new();
    let file = scratch.file("large", letters(LARGE));
    // One that says all it has to say before it listens, and one that says back what it hears.
    let talker: fn(TcpStream) -> usize = |mut stream| {
        stream.write_all(&letters(LARGE)).unwrap();
        read_all(&mut stream).0.len()
    };
    let echo: fn(TcpStream) -> usize = |mut stream| {
        let mut chunk = vec![0; 64 << 10];
        let mut total = 0;
        loop {
            match stream.read(&mut chunk).unwrap() {
                0 => return total,
                read => {
                    total += read;
                    stream.write_all(&chunk[..read]).unwrap();
                }
            }
        }
    };
    for (course, want) in [(talker, "acked"), (talker, "closed"), (echo, "acked"), (echo, "closed")]
    {
        let peer = Peer::new(course);
        let told = answer_to(&mut peer.dial(&["--want", want]), &file);
        assert_eq!(told.code(), 0, "{}", told.stderr);
        assert!(told.stdout.as_bytes() == letters(LARGE), "{} bytes came", told.stdout.len());
        assert_eq!(peer.told(), LARGE);
    }
}

#[test]
fn a_peer_that_has_said_all_is_still_sent_to() {
    let scratch = Scratch::new();
    let file = scratch.file("large", letters(LARGE));
    let peer = Peer::new(|mut stream| {
        stream.write_all(b"go on").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream).0.len()
    });
    let told = answer_to(&mut peer.dial(&[]), &file).with_code(0);
    assert_eq!((told.stdout.as_str(), peer.told()), ("go on", LARGE));
}

#[test]
fn a_peer_that_does_not_end_is_waited_for_as_long_as_asked() {
    let scratch = Scratch::new();
    let file = scratch.file("request", "hello");
    for (words, code) in
        [(&["--wait", "50ms"][..], 0), (&["--want", "closed", "--proof-timeout", "50ms"], 1)]
    {
        let (done, until) = mpsc::channel::<()>();
        let peer = Peer::new(move |mut stream| {
            let read = read_all(&mut stream);
            let _ = until.recv();
            read
        });
        let told = answer_to(&mut peer.dial(words), &file).with_code(code);
        let why = if code == 0 { "did not end within 50 ms" } else { "the deadline passed" };
        for said in [why, "acked: 5 of 5 bytes acked"] {
            assert!(told.stderr.contains(said), "it does not say `{said}`: {told:#?}");
        }
        drop(done);
        assert_eq!(peer.told().0, b"hello");
    }
}

#[test]
fn a_peer_that_ended_before_has_not_closed_after() {
    let (teller, ended) = mpsc::channel();
    let peer = Peer::new(move |mut stream| {
        stream.shutdown(Shutdown::Write).unwrap();
        thread_until(|| lastbyte_sys::tcp::unacked(&stream).unwrap() == 0);
        teller.send(()).unwrap();
        read_all(&mut stream)
    });
    let (stdin, mut input) = io::pipe().unwrap();
    let running = Running::start(peer.dial(&["--want", "closed"]).stdin(stdin));
    input.write_all(b"hello").unwrap();
    ended.recv_timeout(SOON).unwrap();
    drop(input);
    let told = running.answer_within(SOON).with_code(1);
    assert_sentence_in(&told, &["FIN came before ours", "acked: 5 of 5"]);
    assert_eq!(peer.told(), (b"hello".to_vec(), None));
}

// --- what goes wrong ----------------------------------------------------------------------------

#[test]
fn a_reset_while_sending_is_told_with_what_was_proven() {
    let scratch = Scratch::new();
    let file = scratch.file("large", letters(LARGE));
    let peer = Peer::new(|mut stream| {
        stream.read_exact(&mut [0; 100_000]).unwrap();
        reset(stream);
    });
    let told = answer_to(&mut peer.dial(&[]), &file).with_code(1);
    // Of what was written all may be proven, which is not all there was.
    assert_sentence_in(&told, &["connection", "not all of the input was sent"]);
    assert!(told.stderr.contains("bytes acked, peer ended with RST"), "{told:#?}");
    peer.told();
}

#[track_caller]
fn assert_sentence_in(told: &Answer, said: &[&str]) {
    let sentence = told.stderr.lines().find(|line| line.starts_with("lastbyte: "));
    let sentence = sentence.unwrap_or_else(|| panic!("no sentence: {told:#?}"));
    for word in said {
        assert!(sentence.contains(word), "it does not say `{word}`: {told:#?}");
    }
}

#[test]
fn an_answer_that_was_cut_is_no_whole_one() {
    let scratch = Scratch::new();
    let file = scratch.file("request", "hello");
    let peer = Peer::new(|mut stream| {
        let read = read_all(&mut stream);
        stream.write_all(b"half an ans").unwrap();
        // Once it is read, so that the reset does not take it away.
        thread_until(|| lastbyte_sys::tcp::unacked(&stream).unwrap() == 0);
        reset(stream);
        read
    });
    let told = answer_to(&mut peer.dial(&[]), &file).with_code(1);
    assert_sentence_in(&told, &["answer was cut after 11 bytes", "incomplete"]);
    assert!(told.stderr.contains("acked: 5 of 5 bytes acked"), "{told:#?}");
    assert_eq!(told.stdout, "half an ans");
    assert_eq!(peer.told().0, b"hello");
}

#[track_caller]
fn thread_until(condition: impl FnMut() -> bool) {
    assert!(support::holds_within(SOON, condition), "waited for something in vain");
}

/// A dial whose input does not end, once its first bytes have arrived.
fn dial_underway() -> (Running, io::PipeWriter, Receiver<usize>, Peer<Ended>) {
    let (teller, arrived) = mpsc::channel();
    let peer = Peer::new(move |mut stream| {
        let mut chunk = [0; 5];
        stream.read_exact(&mut chunk).unwrap();
        teller.send(chunk.len()).unwrap();
        read_all(&mut stream)
    });
    let (stdin, mut input) = io::pipe().unwrap();
    let running = Running::start(peer.dial(&[]).stdin(stdin).process_group(0));
    input.write_all(b"hello").unwrap();
    (running, input, arrived, peer)
}

type Ended = (Vec<u8>, Option<io::ErrorKind>);

#[test]
fn ctrl_c_is_no_end_of_the_input() {
    for (signal, code) in [("INT", 130), ("KILL", 137)] {
        let (running, input, arrived, peer) = dial_underway();
        assert_eq!(arrived.recv_timeout(SOON), Ok(5));
        running.signal_group(signal);
        let told = running.answer_within(SOON);
        assert_eq!(told.code(), code, "{told:#?}");
        assert_eq!(peer.told(), (Vec::new(), Some(io::ErrorKind::ConnectionReset)));
        drop(input);
    }
}

#[test]
fn the_end_of_the_input_is_one() {
    let (running, input, arrived, peer) = dial_underway();
    assert_eq!(arrived.recv_timeout(SOON), Ok(5));
    drop(input);
    running.answer_within(SOON).with_code(0);
    assert_eq!(peer.told(), (Vec::new(), None));
}

#[test]
fn an_input_that_cannot_be_read_is_no_end_of_it() {
    // Nothing is mapped at its beginning: the first read fails.
    let peer = Peer::new(|mut stream| read_all(&mut stream));
    let told = answer(&mut peer.dial(&["--send", "/proc/self/mem"])).with_code(2);
    assert_sentence_in(&told, &["reading the input"]);
    assert_eq!(peer.told(), (Vec::new(), Some(io::ErrorKind::ConnectionReset)));
}

#[test]
fn a_reset_ends_it_though_the_input_is_silent() {
    let peer = Peer::new(|mut stream| {
        stream.read_exact(&mut [0; 5]).unwrap();
        reset(stream);
    });
    let (stdin, mut input) = io::pipe().unwrap();
    let running = Running::start(peer.dial(&[]).stdin(stdin));
    input.write_all(b"hello").unwrap();
    let told = running.answer_within(SOON).with_code(1);
    assert_sentence_in(&told, &["not all of the input was sent"]);
    peer.told();
}

#[test]
fn whoever_types_is_done_when_the_peer_is() {
    let peer = Peer::new(|mut stream| {
        stream.write_all(b"bye\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream)
    });
    let (stdin, input) = io::pipe().unwrap();
    let running = Running::start(peer.dial(&["--interactive"]).stdin(stdin));
    let told = running.answer_within(SOON).with_code(0);
    assert_eq!(told.stdout, "bye\n");
    assert_eq!(peer.told(), (Vec::new(), None));
    drop(input);
}

#[test]
fn where_nobody_reads_the_answer_all_is_sent_all_the_same() {
    let scratch = Scratch::new();
    let file = scratch.file("large", letters(LARGE));
    let peer = Peer::new(|mut stream| {
        // Until it is told to stop: nobody reads this.
        let mut writer = stream.try_clone().unwrap();
        let writing = thread::spawn(move || while writer.write_all(&[7; 65536]).is_ok() {});
        let read = read_all(&mut stream);
        writing.join().unwrap();
        read.0.len()
    });
    let script = format!(
        "{{ {LASTBYTE} dial 127.0.0.1 {} --send {file}; echo code $? >&2; }} | head -c 1",
        peer.port
    );
    let told = answer(Command::new("sh").args(["-c", &script])).with_code(0);
    assert!(told.stderr.contains("code 0"), "{told:#?}");
    assert!(!told.stderr.contains("lastbyte: "), "{told:#?}");
    assert_eq!(peer.told(), LARGE);
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let peer = Peer::new(|mut stream| {
        stream.write_all(b"hello").unwrap();
        read_all(&mut stream)
    });
    let script = format!("sleep 60 | {LASTBYTE} dial 127.0.0.1 {} >/dev/full", peer.port);
    // The shell waits for `sleep`, which nobody needs once the dial is over.
    let mut shell = Running::start(Command::new("sh").args(["-c", &script]).process_group(0));
    assert_eq!(peer.told(), (Vec::new(), Some(io::ErrorKind::ConnectionReset)));
    shell.signal_group("KILL");
    shell.kill();
}

// --- several, and machines ----------------------------------------------------------------------

/// A listener that takes whatever comes, until the test ends.
fn open_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            read_all(&mut stream.unwrap());
        }
    });
    port
}

#[test]
fn several_dials_are_summed_up() {
    let port = open_port();
    let told = answer(&mut lastbyte(["dial", "localhost", &port, "--repeat", "5"])).with_code(0);
    let dials = told.stdout.lines().filter(|line| line.contains(" ms  127.0.0.1:")).count();
    assert_eq!(dials, 5, "{told:#?}");
    assert!(told.stdout.contains("which worked before"), "{told:#?}");
    let row = told.stdout.lines().last().unwrap();
    assert!(row.starts_with(&format!("127.0.0.1:{port} ")) && row.contains("5 of 5"), "{told:#?}");
}

#[test]
fn several_dials_that_fail_say_so_each_time() {
    let words = ["dial", "127.0.0.1", &free_port(), "--repeat", "3"];
    let told = answer(&mut lastbyte(words)).with_code(1);
    assert_eq!(told.stderr.matches("lastbyte: dial").count(), 3, "{told:#?}");
    assert!(told.stdout.contains("0 of 3"), "{told:#?}");
    // What cannot be dialed once, cannot be dialed again.
    let told = answer(&mut lastbyte(["dial", "", "7", "--repeat", "3"])).with_code(2);
    assert_eq!(told.stderr.matches("lastbyte: dial").count(), 1, "{told:#?}");
}

#[test]
fn json_has_a_line_for_each_event_and_units_in_its_keys() {
    let port = open_port();
    let words = ["dial", "localhost", &port, "--json", "--repeat", "2"];
    let lines = answer(&mut lastbyte(words)).with_code(0).json_lines();
    for line in &lines {
        assert_eq!(line["schema"], 1);
        assert_keys_have_units(line);
    }
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let first: Vec<&str> = of("event")
        .iter()
        .filter(|line| line["dial"] == 1)
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(first[..2], ["asked", "asked"]);
    assert_eq!(first.iter().filter(|event| **event == "connected").count(), 1, "{first:?}");
    let dialed = of("dialed");
    assert_eq!(dialed.len(), 2);
    assert_eq!(dialed[0]["address"], format!("127.0.0.1:{port}"));
    assert_eq!(
        (&dialed[0]["from_history"], &dialed[1]["from_history"]),
        (&false.into(), &true.into())
    );
    assert!(dialed[0]["granted"]["send_buffer_bytes"].as_u64().unwrap() > 0);
    let won: Vec<_> = of("summary").iter().map(|line| line["won"].as_u64().unwrap()).collect();
    assert_eq!(won.iter().sum::<u64>(), 2);
    assert_eq!(lines.last().unwrap()["type"], "summary");
}

#[test]
fn json_tells_of_failures_and_of_what_was_sent() {
    let told = answer(&mut lastbyte(["dial", "127.0.0.1", &free_port(), "--json"])).with_code(1);
    let lines = told.json_lines();
    let last = lines.last().unwrap();
    assert_eq!((&last["type"], &last["why"]), (&"undialed".into(), &"all_failed".into()));
    assert!(last["attempts"][0]["error"].as_str().unwrap().contains("refused"), "{last:#}");
    assert_keys_have_units(last);

    let told = answer(&mut lastbyte(["dial", "", "7", "--json"])).with_code(2);
    let lines = told.json_lines();
    assert_eq!((lines.len(), &lines[0]["why"]), (1, &"bad_host".into()));

    let scratch = Scratch::new();
    let file = scratch.file("request", "hello");
    let peer = Peer::new(|mut stream| {
        stream.write_all(b"no JSON").unwrap();
        read_all(&mut stream)
    });
    let told = answer(&mut peer.dial(&["--json", "--send", &file])).with_code(0);
    let lines = told.json_lines();
    let sent = lines.last().unwrap();
    assert_keys_have_units(sent);
    assert_eq!((&sent["type"], &sent["level"]), (&"sent".into(), &"acked".into()));
    assert_eq!((&sent["acked_bytes"], &sent["received_bytes"]), (&5.into(), &7.into()));
    assert_eq!(peer.told().0, b"hello");
}

#[test]
fn who_sends_nothing_leaves_stdin_to_others() {
    let port = open_port();
    for words in ["--json", "--repeat 2"] {
        let dial = format!("{LASTBYTE} dial 127.0.0.1 {port} {words} >&2");
        let script = format!("printf 'one\\ntwo\\n' | {{ {dial}; cat; }}");
        let told = answer(Command::new("sh").args(["-c", &script])).with_code(0);
        assert_eq!(told.stdout, "one\ntwo\n", "{told:#?}");
    }
}

/// Every number says in its key what it counts or in which unit it is.
#[track_caller]
fn assert_keys_have_units(line: &Value) {
    /// Counts and numbers by which something is known, whose key is the unit.
    const COUNTS: [&str; 10] = [
        "schema",
        "dial",
        "dials",
        "attempt",
        "attempts",
        "failed_attempts",
        "cancelled_attempts",
        "port",
        "tried",
        "won",
    ];
    const UNITS: [&str; 3] = ["_bytes", "_s", "_ms"];
    let Value::Object(pairs) = line else { panic!("no object: {line}") };
    for (key, value) in pairs {
        match value {
            Value::Number(_) => {
                let has_unit = UNITS.iter().any(|unit| key.ends_with(unit));
                assert!(has_unit || COUNTS.contains(&key.as_str()), "{key}");
            }
            Value::Array(items) => {
                items.iter().filter(|item| item.is_object()).for_each(assert_keys_have_units);
            }
            Value::Object(_) => assert_keys_have_units(value),
            _ => {}
        }
    }
}
