//! Asking a gate: over its control socket and over HTTP, politely and not.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lastbyte_gate::control::{self, Answer, AskError, Commands, Figure};
use lastbyte_gate::{Gate, Watch, Watching};

use crate::support::{LONG, Said, address, ask, config, connect, echo, route, start};

/// A folder of a test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lastbyte-watch-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Counts the commands.
#[derive(Default)]
struct Commanded {
    reloads: AtomicU32,
    drains: AtomicU32,
}

impl Commands for Commanded {
    fn reload(&self) -> Result<String, String> {
        match self.reloads.fetch_add(1, Ordering::Relaxed) {
            0 => Ok("it is new".to_owned()),
            _ => Err("it is broken".to_owned()),
        }
    }

    fn drain(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }
}

struct Watched {
    scratch: Scratch,
    gate: Gate,
    said: Arc<Said>,
    commanded: Arc<Commanded>,
    metrics: SocketAddr,
    _watching: Watching,
}

impl Watched {
    fn start() -> Self {
        let scratch = Scratch::new();
        let (gate, said) = start(config([route("db", echo(1))], 1));
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let watch = Watch::open(Some(&scratch.0.join("s")), Some(here)).unwrap();
        let metrics = watch.metrics().unwrap();
        let commanded = Arc::new(Commanded::default());
        let watching = watch.start(gate.view(), commanded.clone()).unwrap();
        Self { scratch, gate, said, commanded, metrics, _watching: watching }
    }

    fn ask(&self, words: &str) -> Answer {
        control::ask(&self.scratch.0.join("s"), words).unwrap()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.scratch.0.join("s")).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// What is answered over HTTP.
    fn http(&self, request: &str) -> String {
        let mut stream = connect(self.metrics);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_gate_answers_what_it_is_asked() {
    let watched = Watched::start();
    let mut client = connect(address(&watched.gate));
    assert_eq!(ask(&mut client, 1), 2);
    let Answer::Statistics(all) = watched.ask("stat") else { panic!("no statistics") };
    let Answer::List(list) = watched.ask("list") else { panic!("no list") };
    let described: Vec<_> = all.iter().map(|one| one.description.clone()).collect();
    assert_eq!(described, list);
    let Answer::Statistics(one) = watched.ask("stat flows_open") else { panic!("no statistic") };
    let [one] = one.as_slice() else { panic!("{one:?}") };
    assert_eq!((&one.total, one.routes.len()), (&Figure::Count(1), 1));
    assert_eq!((one.routes[0].route.as_str(), &one.routes[0].value), ("db", &Figure::Count(1)));
    let Answer::Flows(flows) = watched.ask("flows") else { panic!("no flows") };
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].client, client.local_addr().unwrap());
    assert!(u128::from(flows[0].age_ms) < LONG.as_millis(), "{flows:?}");
    let Answer::Openmetrics(text) = watched.ask("openmetrics") else { panic!("no text") };
    assert!(text.contains("lastbyte_gate_flows_open{route=\"db\"} 1\n"), "{text}");
    let Answer::Version(who) = watched.ask(" version  ") else { panic!("nobody") };
    assert_eq!(who.pid, std::process::id());
    assert_eq!(who.routes, [("db".to_owned(), address(&watched.gate))]);
    drop(client);
    watched.said.accounts(1);
    assert_eq!(watched.ask("flows"), Answer::Flows(Vec::new()));
}

#[test]
fn orders_are_passed_on() {
    let watched = Watched::start();
    assert_eq!(watched.ask("reload"), Answer::Done("it is new".to_owned()));
    assert_eq!(watched.ask("reload"), Answer::Error("it is broken".to_owned()));
    watched.ask("drain");
    watched.ask("drain");
    assert_eq!(watched.commanded.drains.load(Ordering::Relaxed), 2);
}

#[test]
fn what_is_no_question_gets_an_error() {
    let watched = Watched::start();
    for words in ["", "stat a b", "STAT", "statx", "flows 1", "quit"] {
        assert!(matches!(watched.ask(words), Answer::Error(_)), "{words}");
    }
    let long = "x".repeat(4096);
    for question in [long.as_bytes(), b"stat", b"\xff\xfe\n"] {
        let mut stream = watched.connect();
        stream.write_all(question).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answer: Answer = serde_json::from_str(&answer).unwrap();
        assert!(matches!(&answer, Answer::Error(why) if why.contains("4096")), "{answer:?}");
    }
}

#[test]
fn silent_clients_delay_neither_others_nor_flows() {
    let watched = Watched::start();
    let _silent: Vec<_> = (0..8).map(|_| watched.connect()).collect();
    let _slow: Vec<_> = (0..8).map(|_| connect(watched.metrics)).collect();
    assert!(matches!(watched.ask("version"), Answer::Version(_)));
    assert!(watched.http("GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"));
    assert_eq!(ask(&mut connect(address(&watched.gate)), 1), 2);
}

#[test]
#[ignore = "waits until the gate is tired of silence: 5 s"]
fn the_silent_are_sent_away_and_others_have_their_turn() {
    let watched = Watched::start();
    let silent: Vec<_> = (0..70).map(|_| watched.connect()).collect();
    assert!(matches!(watched.ask("version"), Answer::Version(_)));
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is sent away");
    }
}

#[test]
fn a_socket_without_a_gate_differs_from_one_that_closes_the_connection() {
    let scratch = Scratch::new();
    let path = scratch.0.join("s");
    assert!(matches!(control::ask(&path, "stat"), Err(AskError::NoGate)));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let hanging_up = std::thread::spawn(move || drop(listener.accept()));
    let error = control::ask(&path, "stat").unwrap_err();
    assert!(matches!(error, AskError::HungUp), "{error}");
    hanging_up.join().unwrap();
    assert!(matches!(control::ask(&path, "stat"), Err(AskError::NoGate)), "it is dead");
}

#[test]
fn metrics_are_read_over_http() {
    let watched = Watched::start();
    let answer = watched.http("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0;"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    assert!(body.contains("lastbyte_gate_flows_accepted_total{route=\"db\"} 0\n"), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    for (request, begins, without_body) in [
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200", true),
        ("GET /metrics?name=x HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200", false),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404", false),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405", false),
        ("nonsense\r\n\r\n", "HTTP/1.1 400", true),
    ] {
        let answer = watched.http(request);
        assert!(answer.starts_with(begins), "{request}: {answer}");
        assert_eq!(answer.ends_with("\r\n\r\n"), without_body, "{request}: {answer}");
    }
    // A head without an end is not collected for ever.
    let mut stream = connect(watched.metrics);
    let begin = "GET /metrics HTTP/1.1\r\nX: ".to_owned();
    let sent = stream.write_all((begin + &"x".repeat(1 << 20)).as_bytes());
    let mut answer = Vec::new();
    let got = stream.read_to_end(&mut answer);
    let is_cut = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    };
    assert!(sent.as_ref().err().is_none_or(is_cut), "{sent:?}");
    let refused = String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 431");
    assert!(refused || got.as_ref().err().is_some_and(is_cut), "{got:?}");
}
