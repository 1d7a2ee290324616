//! Experiments with a far host that is another machine: what is sent arrives and is counted on both
//! sides, and strangers, liars and the dead get nothing and hold nothing up.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lastbyte_lab::record::{Ending, Flow};
use lastbyte_lab::remote::protocol::{
    Handshake, Hello, Key, PROOF, ProtocolError, Refusal, Request, Response, Role, Session,
};
use lastbyte_lab::remote::{ChannelError, Limits, Remote, RemoteError, Server, ServerEvent};
use lastbyte_lab::{
    Buffers, Direction, Event, Fairness, LabError, Load, Path, Plan, Rounds, Settings, Subject,
    Task,
};
use lastbyte_link::{FAR, Link, LinkError, Scenario, Way};
use lastbyte_socket::ConnectOptions;
use lastbyte_socket::blocking::{self, Stream};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

// --- a server, and what it says -----------------------------------------------------------------

/// A server in a thread, which ends with this.
struct Serving {
    key: Key,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    notes: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

fn limits() -> Limits {
    Limits {
        most_bytes: 1 << 30,
        most_time: Duration::from_secs(5),
        serve_for: Duration::from_secs(120),
        once: false,
        data_port: 0,
    }
}

impl Serving {
    fn start(limits: Limits) -> Self {
        let key = Key::new().unwrap();
        let here = (Ipv4Addr::LOCALHOST, 0).into();
        Self::of(Server::listen(here, key.clone(), limits).unwrap(), key)
    }

    fn of(server: Server, key: Key) -> Self {
        let address = server.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let notes = Arc::new(Mutex::new(Vec::new()));
        let (told, stopped) = (Arc::clone(&notes), Arc::clone(&stop));
        let tell = move |note: ServerEvent<'_>| told.lock().unwrap().push(format!("{note:?}"));
        let thread = thread::spawn(move || server.serve(&stopped, &tell));
        Self { key, address, stop, notes, thread: Some(thread) }
    }

    fn connect(&self) -> Stream {
        Stream::connect_with(self.address, &ConnectOptions::default().within(SOON)).unwrap()
    }

    /// Opens a session as soon as one that has just ended makes room for it.
    fn open(&self) -> Arc<Remote> {
        let end = Instant::now() + SOON;
        loop {
            match Remote::open(self.connect(), "there", self.key.clone(), u64::MAX) {
                Err(RemoteError::Busy) if Instant::now() < end => thread::yield_now(),
                opened => return opened.unwrap(),
            }
        }
    }

    fn path(&self) -> Path {
        Path::Remote(self.open())
    }

    /// Waits until it has said something with this word in it.
    #[track_caller]
    fn says(&self, word: &str) {
        let said = || self.notes.lock().unwrap().iter().any(|note| note.contains(word));
        assert!(holds(said), "it does not say {word}: {:#?}", self.notes.lock().unwrap());
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// How many descriptors there are once a server that was just started has opened all of its own: no
/// other number was seen for a while.
fn descriptors_at_rest() -> usize {
    let (mut seen, mut looks) = (descriptors(), 0);
    while looks < 40 {
        thread::sleep(Duration::from_millis(5));
        let now = descriptors();
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
    }
    seen
}

fn holds(condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + SOON;
    while !condition() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

fn settings(direction: Direction) -> Settings {
    Settings { direction, ..Settings::new("cubic", Buffers::Auto) }
}

fn plan(path: Path, subjects: Vec<Settings>, bytes: u64) -> Plan {
    Plan {
        command: Vec::new(),
        path,
        subjects: subjects.into_iter().map(|one| Arc::new(one) as Arc<dyn Subject>).collect(),
        load: Load::bytes(bytes),
        rounds: Rounds::exactly(1),
        latency: true,
        fairness: Fairness::Never,
        seed: 1,
        port: 0,
        parallel: 1,
    }
}

fn experiment(plan: &Plan) -> Result<lastbyte_lab::Experiment, LabError> {
    lastbyte_lab::experiment(plan, &mut |_: Event<'_>| ControlFlow::Continue(()))
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

// --- experiments --------------------------------------------------------------------------------

#[test]
fn every_byte_arrives_up_down_and_both() {
    let server = Serving::start(limits());
    let ways = [Direction::Up, Direction::Down, Direction::Both];
    let subjects = ways.map(|way| Settings { streams: 3, ..settings(way) }).to_vec();
    let plan = plan(server.path(), subjects, 1_000_003);
    let experiment = experiment(&plan).unwrap();
    assert!(experiment.void.is_empty(), "{:?}", experiment.void);
    for (run, flows) in experiment.runs.iter().zip([3, 3, 6]) {
        assert_eq!(run.flows.len(), flows);
        assert!(run.is_complete(), "{run:#?}");
        for way in Way::BOTH {
            let of_way = |flow: &&Flow| flow.way == way;
            let bytes: Vec<u64> = run
                .flows
                .iter()
                .filter(of_way)
                .map(|flow| flow.received.as_ref().unwrap().bytes)
                .collect();
            assert!(bytes.is_empty() || bytes.iter().sum::<u64>() == 1_000_003, "{bytes:?}");
        }
        assert!(!run.latency.as_ref().unwrap().idle.is_empty());
    }
    let words = experiment.about.path;
    assert_eq!(words.name, "there");
    assert!(
        words.description.contains("127.0.0.1") && words.description.contains("Linux"),
        "{}",
        words.description
    );
    drop(plan);
    server.says("lost: None, received: 2000006, sent: 2000006");
}

#[test]
fn over_a_link_it_is_as_with_a_far_host_of_ones_own() {
    let spec = Scenario::parse("test", "rate = '50mbit'\nrtt = '20ms'").unwrap().spec;
    let link = match Link::up(&spec, 1) {
        Err(error @ LinkError::Rights { .. }) => return lastbyte_testing::not_tested!("{error}"),
        link => link.unwrap(),
    };
    let key = Key::new().unwrap();
    let at = (FAR, 0).into();
    let server = link.far().run(|| Server::listen(at, key.clone(), limits()).unwrap()).unwrap();
    let (address, stop) = (server.local_addr(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let serving = link.far().spawn("server", move || {
        server.serve(&stopped, &|_: ServerEvent<'_>| {});
    });
    let experiment = link.near().run(|| {
        let stream =
            Stream::connect_with(address, &ConnectOptions::default().within(SOON)).unwrap();
        let remote = Remote::open(stream, "there", key, u64::MAX).unwrap();
        assert!(remote.rtt() >= Duration::from_millis(20), "{:?}", remote.rtt());
        assert!(remote.rtt() < Duration::from_millis(40), "{:?}", remote.rtt());
        let ways = [Direction::Up, Direction::Down, Direction::Both];
        let subjects = ways.map(settings).to_vec();
        let plan = plan(Path::Remote(remote), subjects, 3_000_000);
        experiment(&plan).unwrap()
    });
    let experiment = experiment.unwrap();
    assert!(experiment.void.is_empty(), "{:?}", experiment.void);
    assert_eq!(experiment.runs.len(), 3);
    for run in &experiment.runs {
        assert!(run.is_complete(), "{run:#?}");
        for way in Way::BOTH {
            let mbit = run.received_bits_per_s_on(way).map(|rate| rate / 1e6);
            assert!(mbit.is_none_or(|mbit| (10.0..50.0).contains(&mbit)), "{way}: {mbit:?}");
        }
    }
    stop.store(true, Ordering::Release);
    serving.unwrap().join().unwrap().unwrap();
}

#[test]
fn what_cannot_be_is_said_and_the_rest_goes_on() {
    let server = Serving::start(limits());
    let subjects = vec![
        Settings::new("cubic", "auto:8MiB".parse::<Buffers>().unwrap()),
        settings(Direction::Up),
        Settings { congestion: "hope".to_owned(), ..settings(Direction::Down) },
        Settings { streams: 65, ..settings(Direction::Down) },
    ];
    let experiment = experiment(&plan(server.path(), subjects, 100_000)).unwrap();
    assert_eq!(experiment.runs.len(), 1);
    assert_eq!(experiment.runs[0].subject, 1);
    let why = |subject| {
        let void = experiment.void.iter().find(|void| void.subject == subject);
        void.map(|void| void.why.clone()).unwrap_or_default()
    };
    assert!(why(0).contains("auto or a fixed size"), "{}", why(0));
    assert!(why(2).contains("hope: on the far host: this kernel"), "{}", why(2));
    assert!(why(3).contains("1 to 64 streams"), "{}", why(3));
}

#[test]
fn limits_hold_over_all_runs() {
    let server = Serving::start(Limits { most_bytes: 250_000, ..limits() });
    let two = vec![settings(Direction::Down), settings(Direction::Down)];
    let remote = server.open();
    assert_eq!(remote.most_bytes(), [250_000; 2]);
    let mut plan = plan(Path::Remote(remote), two, 100_000);
    plan.rounds = Rounds::exactly(2);
    let experiment = experiment(&plan).unwrap();
    assert_eq!(experiment.runs.len(), 2);
    let cut = experiment.ended.interrupted.unwrap();
    assert!(cut.contains("250000 bytes that may go down are used up"), "{cut}");

    // A near host that does not care meets the same limit there, whatever experiment it says it is.
    drop(plan);
    let mut liar = Liar::open(&server);
    match liar.run(&task(&json!({ "direction": "down" }), 100_000)) {
        Response::Refused(Refusal::Far(why)) => {
            assert!(why.contains("leaves 50000 bytes"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_timed_run_ends_by_its_bytes_or_its_time() {
    let server = Serving::start(limits());
    let mut plan = plan(server.path(), vec![settings(Direction::Both)], 2_000_000);
    plan.load.time = Some(Duration::from_secs(4));
    plan.latency = false;
    let began = Instant::now();
    let run = experiment(&plan).unwrap().runs.pop().unwrap();
    assert_eq!((run.written_bytes(), run.received_bytes()), (4_000_000, 4_000_000));
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_server_for_one_experiment_ends_after_it() {
    let server = Serving::start(Limits { once: true, ..limits() });
    let remote = server.open();
    let second = Remote::open(server.connect(), "there", server.key.clone(), u64::MAX);
    assert!(matches!(second, Err(RemoteError::Busy)), "{second:?}");
    remote.bye();
    // One without runs was none.
    server.says("lost: None");
    let experiment = experiment(&plan(server.path(), vec![settings(Direction::Up)], 1000));
    assert!(experiment.unwrap().runs[0].is_complete());
    assert!(holds(|| server.is_over()));
}

#[test]
fn one_experiment_at_a_time() {
    let server = Serving::start(limits());
    let first = server.open();
    let second = || Remote::open(server.connect(), "there", server.key.clone(), u64::MAX);
    assert!(matches!(second(), Err(RemoteError::Busy)));
    drop(first);
    assert!(holds(|| second().is_ok()));
}

#[test]
fn a_port_that_is_closed_on_the_way_is_said() {
    // Control connections go through what stands between; load finds nothing on its address.
    let server = Serving::start(limits());
    let at = SocketAddr::from(([127, 0, 0, 2], 0));
    let between = Between::start_at(at, server.address);
    let stream =
        Stream::connect_with(between.address, &ConnectOptions::default().within(SOON)).unwrap();
    let remote = Remote::open(stream, "there", server.key.clone(), u64::MAX).unwrap();
    let mut plan = plan(Path::Remote(remote), vec![settings(Direction::Up)], 1000);
    plan.latency = false;
    let error = experiment(&plan).unwrap_err().to_string();
    assert!(error.contains("--data-port"), "{error}");
}

// --- what is lost -------------------------------------------------------------------------------

/// Between a near host and a server: can cut what goes through it. Load does not go through it.
struct Between {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// All that near hosts have said.
    said: Arc<Mutex<Vec<u8>>>,
}

impl Between {
    fn start(to: SocketAddr) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), to)
    }

    fn start_at(at: SocketAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (cut, heard) = (Arc::clone(&open), Arc::clone(&said));
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(to) else { continue };
                let pairs = [
                    (near.try_clone().unwrap(), far.try_clone().unwrap(), Some(Arc::clone(&heard))),
                    (far.try_clone().unwrap(), near.try_clone().unwrap(), None),
                ];
                cut.lock().unwrap().extend([near, far]);
                for (mut from, mut to, heard) in pairs {
                    thread::spawn(move || {
                        let mut piece = [0; 4096];
                        while let Ok(length @ 1..) = from.read(&mut piece) {
                            if let Some(heard) = &heard {
                                heard.lock().unwrap().extend_from_slice(&piece[..length]);
                            }
                            if to.write_all(&piece[..length]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                        let _ = from.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, open, said }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_lost_control_connection_is_made_anew() {
    let server = Serving::start(limits());
    let between = Between::start(server.address);
    let stream =
        Stream::connect_with(between.address, &ConnectOptions::default().within(SOON)).unwrap();
    let remote = Remote::open(stream, "there", server.key.clone(), u64::MAX).unwrap();
    let mut plan = plan(Path::Remote(remote), vec![settings(Direction::Up)], 100_000);
    plan.rounds = Rounds::exactly(3);
    let mut runs = 0;
    // It is lost while the second run is asked for.
    let mut watch = |event: Event<'_>| {
        if let Event::Running { done: 1, .. } = event {
            between.cut();
        }
        runs += u32::from(matches!(event, Event::Counted(_)));
        ControlFlow::Continue(())
    };
    let experiment = lastbyte_lab::experiment(&plan, &mut watch).unwrap();
    assert_eq!((runs, experiment.ended.rounds), (2, 3));
    assert_eq!(experiment.ended.interrupted, None);
    let [void] = &experiment.void[..] else { panic!("{:?}", experiment.void) };
    assert!(void.why.contains("the far host was lost"), "{}", void.why);
}

#[test]
fn a_far_host_that_is_gone_leaves_what_there_is() {
    let server = Serving::start(limits());
    let path = server.path();
    let mut plan = plan(path, vec![settings(Direction::Up)], 100_000);
    plan.rounds = Rounds::exactly(5);
    let server = Mutex::new(Some(server));
    let mut watch = |event: Event<'_>| {
        if let Event::Running { done: 2, .. } = event {
            drop(server.lock().unwrap().take());
        }
        ControlFlow::Continue(())
    };
    let experiment = lastbyte_lab::experiment(&plan, &mut watch).unwrap();
    assert_eq!(experiment.runs.len(), 2);
    let cut = experiment.ended.interrupted.unwrap();
    assert!(cut.contains("the far host is gone"), "{cut}");
}

#[test]
fn another_version_is_told_to_both() {
    let server = Serving::start(limits());
    let mut stream = TcpStream::connect(server.address).unwrap();
    let mut own = Hello::new().unwrap();
    own.protocol = 7;
    stream.write_all(&own.to_bytes()).unwrap();
    let mut hello = [0; Hello::LENGTH];
    stream.read_exact(&mut hello).unwrap();
    let theirs = Hello::from_bytes(&hello).unwrap();
    let handshake = Handshake::new(&server.key, Role::Near, own, theirs);
    stream.write_all(&handshake.proof()).unwrap();
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof).unwrap();
    handshake.check(&proof).unwrap();
    let version = handshake.session().unwrap_err().to_string();
    assert!(version.contains("the peer speaks protocol 1, this host 7"), "{version}");
    server.says("the peer speaks protocol 7, this host 1");
}

#[test]
fn what_is_no_server_is_told() {
    let key = Key::new().unwrap();
    let listener = blocking::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let mut stream = listener.accept().unwrap();
        stream.write_all(&b"HTTP/1.1 400 Bad Request\r\n".repeat(4)).unwrap();
        let _ = stream.read(&mut [0; 64]);
        // A silent one is not tried here: that takes 10 s.
        stream.finish().wait()
    });
    let stream = Stream::connect_with(address, &ConnectOptions::default().within(SOON)).unwrap();
    match Remote::open(stream, "there", key, u64::MAX) {
        Err(RemoteError::Channel(ChannelError::Protocol(ProtocolError::NoHello))) => {}
        other => panic!("{other:?}"),
    }
    let _ = thread.join().unwrap();
}

// --- strangers ----------------------------------------------------------------------------------

/// Whether the server ends a connection on which it has said no more than `most` bytes.
fn is_turned_away(stream: &mut TcpStream, most: usize) -> bool {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut said = Vec::new();
    match stream.take(1 << 20).read_to_end(&mut said) {
        Ok(_) => said.len() <= most,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset && said.len() <= most,
    }
}

#[test]
fn a_wrong_key_is_refused_and_told() {
    let server = Serving::start(limits());
    let refused = Remote::open(server.connect(), "there", Key::new().unwrap(), u64::MAX);
    match refused {
        Err(RemoteError::Channel(ChannelError::Protocol(ProtocolError::WrongKey))) => {}
        other => panic!("{other:?}"),
    }
    server.says("the key is not the same");
    drop(server.open());
}

#[test]
fn strangers_hear_a_nonce_and_nothing_else() {
    let server = Serving::start(limits());
    let hello = Hello::new().unwrap().to_bytes();
    let requests: [&[u8]; 4] = [b"GET / HTTP/1.1\r\nHost: there\r\n\r\n", &[0; 100], &[], &hello];
    for request in requests {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let most = if request == hello { Hello::LENGTH } else { 0 };
        assert!(is_turned_away(&mut stream, most), "{request:?}");
    }
}

#[test]
fn a_recorded_session_is_worth_nothing() {
    let server = Serving::start(limits());
    let between = Between::start(server.address);
    let stream =
        Stream::connect_with(between.address, &ConnectOptions::default().within(SOON)).unwrap();
    let remote = Remote::open(stream, "there", server.key.clone(), u64::MAX).unwrap();
    let subject = settings(Direction::Down);
    let recorded = experiment(&plan(Path::Remote(remote), vec![subject], 100_000)).unwrap();
    assert_eq!(recorded.runs.len(), 1);
    let said = between.said.lock().unwrap().clone();
    assert!(said.len() > Hello::LENGTH + PROOF + 100, "{}", said.len());
    let mut again = TcpStream::connect(server.address).unwrap();
    // It may be cut before all is said.
    let _ = again.write_all(&said);
    assert!(is_turned_away(&mut again, Hello::LENGTH));
    server.says("the key is not the same");
    drop(server.open());
}

#[test]
fn the_slow_and_the_silent_hold_nobody_up() {
    let server = Serving::start(limits());
    let before = descriptors_at_rest();
    let silent: Vec<TcpStream> =
        (0..1000).map_while(|_| TcpStream::connect(server.address).ok()).collect();
    eprintln!("{} silent connections", silent.len());
    assert!(silent.len() > 300, "too few of them");
    // Of their own, and what the server keeps of them: two for each, 64 at most.
    assert!(descriptors() <= before + silent.len() + 2 * 64 + 8, "{}", descriptors());
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"l").unwrap();
    let began = Instant::now();
    let remote = server.open();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let run = experiment(&plan(Path::Remote(remote), vec![settings(Direction::Both)], 100_000));
    assert!(run.unwrap().runs[0].is_complete());
    // One byte a second is not enough.
    let began = Instant::now();
    for byte in &Hello::new().unwrap().to_bytes()[1..] {
        thread::sleep(Duration::from_secs(1));
        if slow.write_all(&[*byte]).is_err() || began.elapsed() > SOON {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    server.says("Refused");
    drop(silent);
    assert!(holds(|| descriptors() <= before + 1), "{} of {before}", descriptors());
}

// --- those who have the key, and lie --------------------------------------------------------------

/// A near host that says what it likes.
struct Liar {
    stream: TcpStream,
    session: Session,
    runs: u64,
}

impl Liar {
    fn greet(server: &Serving) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let own = Hello::new().unwrap();
        stream.write_all(&own.to_bytes()).unwrap();
        let mut hello = [0; Hello::LENGTH];
        stream.read_exact(&mut hello).unwrap();
        let theirs = Hello::from_bytes(&hello).unwrap();
        let handshake = Handshake::new(&server.key, Role::Near, own, theirs);
        stream.write_all(&handshake.proof()).unwrap();
        stream.read_exact(&mut [0; PROOF]).unwrap();
        Self { stream, session: handshake.session().unwrap(), runs: 0 }
    }

    /// Opens a session as soon as one that has just ended makes room for it.
    fn open(server: &Serving) -> Self {
        let end = Instant::now() + SOON;
        let open = json!({ "open": { "experiment": "x", "version": "\u{1b}[31m", "kernel": "x" } });
        loop {
            let mut liar = Self::greet(server);
            liar.say(&open);
            match liar.hear() {
                Some(Response::Opened(_)) => return liar,
                Some(Response::Busy) if Instant::now() < end => thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn say(&mut self, message: &Value) {
        let bytes = self.session.outbox.seal(message).unwrap();
        // It may be cut before all is said.
        let _ = self.stream.write_all(&bytes);
    }

    /// The next answer; `None` where the connection ends.
    fn hear(&mut self) -> Option<Response> {
        let mut piece = [0; 4096];
        loop {
            if let Some(answer) = self.session.inbox.take().unwrap() {
                return Some(answer);
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(length) => self.session.inbox.put(&piece[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("neither an answer nor an end: {error}"),
            }
        }
    }

    fn run(&mut self, task: &Value) -> Response {
        self.say(&json!({ "run": { "number": self.runs, "task": task } }));
        self.runs += 1;
        self.hear().unwrap()
    }
}

/// A task with some of its settings changed.
fn task(changes: &Value, bytes: u64) -> Value {
    let task = Task { settings: settings(Direction::Up), load: Load::bytes(bytes), latency: false };
    let mut task = serde_json::to_value(task).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        let load = key.starts_with("load");
        let place = if load { &mut task[key] } else { &mut task["settings"][key] };
        *place = value.clone();
    }
    task
}

#[test]
fn numbers_without_sense_are_refused() {
    let server = Serving::start(limits());
    let mut liar = Liar::open(&server);
    server.says(r"\\u{1b}[31m");
    for changes in [
        json!({ "streams": 0 }),
        json!({ "streams": 4_000_000_000_u32 }),
        json!({ "load_bytes": u64::MAX }),
        json!({ "load_bytes": null }),
        json!({ "load_s": 1e9 }),
        json!({ "congestion": "" }),
        json!({ "congestion": "cubic\u{0}" }),
        json!({ "congestion": "x".repeat(10_000) }),
        json!({ "buffers": "auto:8MiB" }),
    ] {
        let answer = liar.run(&task(&changes, 1000));
        assert!(matches!(answer, Response::Refused(_)), "{changes}: {answer:?}");
    }
    // What is not even a number of its kind ends the session.
    for changes in [
        json!({ "streams": 4e9 }),
        json!({ "streams": -1 }),
        json!({ "load_bytes": 1e300 }),
        json!({ "load_s": 1e300 }),
        json!({ "load_s": -1 }),
        json!({ "load_s": "NaN" }),
        json!({ "buffers": "3000GiB" }),
        json!({ "read_bits_per_s": 0 }),
    ] {
        drop(liar);
        assert!(holds(|| server.notes.lock().unwrap().last().unwrap().contains("Closed")));
        liar = Liar::open(&server);
        let message = json!({ "run": { "number": 0, "task": task(&changes, 1000) } });
        liar.say(&message);
        assert_eq!(liar.hear(), None, "{changes}");
        server.says("cannot be read");
    }
}

#[test]
fn messages_out_of_turn_end_the_session() {
    let server = Serving::start(limits());
    let run = |number: u64| json!({ "run": { "number": number, "task": task(&json!({}), 1000) } });
    for message in [run(1), json!({ "end": { "number": 0 } }), json!("unheard"), json!({})] {
        let mut liar = Liar::open(&server);
        liar.say(&message);
        assert_eq!(liar.hear(), None, "{message}");
        drop(liar);
        assert!(holds(|| server.notes.lock().unwrap().last().unwrap().contains("Closed")));
    }
    let mut liar = Liar::greet(&server);
    liar.say(&json!("ping"));
    assert_eq!(liar.hear(), None, "before it has opened anything");
    let mut liar = Liar::open(&server);
    liar.stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
    assert_eq!(liar.hear(), None, "a length without end");
    server.says("4294967295 bytes was announced, and 65536 are allowed");
}

#[test]
fn repeated_and_reordered_messages_end_the_session() {
    let server = Serving::start(limits());
    for order in [[0, 0], [1, 0]] {
        let mut liar = Liar::open(&server);
        let ping = serde_json::to_value(Request::Ping).unwrap();
        let messages = [0, 1].map(|_| liar.session.outbox.seal(&ping).unwrap());
        for place in order {
            let _ = liar.stream.write_all(&messages[place]);
        }
        let mut pongs = 0;
        while let Some(answer) = liar.hear() {
            assert_eq!(answer, Response::Pong);
            pongs += 1;
        }
        assert_eq!(pongs, usize::from(order == [0, 0]), "{order:?}");
        drop(liar);
        server.says("was repeated, reordered, changed");
        assert!(holds(|| server.notes.lock().unwrap().last().unwrap().contains("Closed")));
    }
}

#[test]
fn who_sends_more_than_it_said_is_not_read_on() {
    let server = Serving::start(limits());
    let mut liar = Liar::open(&server);
    let port = match liar.run(&task(&json!({}), 10_000)) {
        Response::Listening { port } => port,
        other => panic!("{other:?}"),
    };
    let data = || TcpStream::connect((server.address.ip(), port)).unwrap();
    let preamble = |token: [u8; 32], kind: u32| {
        [&token[..], &kind.to_be_bytes(), &0_u32.to_be_bytes()].concat()
    };
    // Without the token, with that of another run, and for what the run has not.
    let token = liar.session.token(0).0;
    let others = liar.session.token(1).0;
    for wrong in [preamble([0; 32], 1), preamble(others, 1), preamble(token, 2), preamble(token, 9)]
    {
        let mut stream = data();
        stream.write_all(&wrong).unwrap();
        assert!(is_turned_away(&mut stream, 0));
    }
    let mut stream = data();
    stream.write_all(&preamble(token, 1)).unwrap();
    let mut sent = 0;
    while sent < 100 << 20 && stream.write_all(&[0; 1 << 16]).is_ok() {
        sent += 1 << 16;
    }
    assert!(sent < 50 << 20, "{sent} bytes went through");
    // Its part is served once.
    let mut stream = data();
    stream.write_all(&preamble(token, 1)).unwrap();
    assert!(is_turned_away(&mut stream, 0));
    liar.say(&json!({ "end": { "number": 0 } }));
    let Some(Response::Done { flows }) = liar.hear() else { panic!("no end") };
    let received = flows[0].received.as_ref().unwrap();
    assert!((10_001..10_000 + (1 << 20)).contains(&received.bytes), "{}", received.bytes);
    assert_ne!(received.end, Some(Ending::Fin));
}

#[test]
fn a_near_host_that_vanishes_mid_run_leaves_nothing() {
    let server = Serving::start(limits());
    let before = descriptors_at_rest();
    let mut liar = Liar::open(&server);
    let port = match liar.run(&task(&json!({ "direction": "down" }), 1 << 29)) {
        Response::Listening { port } => port,
        other => panic!("{other:?}"),
    };
    let mut stream = TcpStream::connect((server.address.ip(), port)).unwrap();
    let token = liar.session.token(0).0;
    let preamble = [&token[..], &2_u32.to_be_bytes(), &0_u32.to_be_bytes()].concat();
    stream.write_all(&preamble).unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    // The load's connection stays open and is not read; the control connection ends.
    drop(liar);
    server.says("Closed");
    let rest = stream.take(1 << 29).read_to_end(&mut Vec::new());
    assert!(rest.is_err() || rest.unwrap() < 1 << 28, "all of it was sent");
    drop(server.open());
    assert!(holds(|| descriptors() <= before + 1), "{} of {before}", descriptors());
}
