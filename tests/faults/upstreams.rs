//! Upstreams that are killed, that refuse, and that never answer.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use lastbyte_testing::this_test;
use serde_json::Value;

use super::streams::{PingPong, assert_reset, connect, echo, receive, send};
use crate::support::gate::{Gate, memory_of, open_descriptors, stat};
use crate::support::{LATER, SOON, Scratch, holds_within, wait_for};

/// What a killed server had done before.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// It sends, and reads nothing.
    Unread,
    /// It sends, and has read all.
    Read,
    /// It reads, and sends nothing.
    Taking,
}

#[test]
fn a_killed_upstream_is_a_reset_behind_all_that_it_sent() {
    if Server::is_asked_for() {
        return Server::serve();
    }
    let scratch = Scratch::new();
    for round in 0..5 {
        let mut server = Server::start(&scratch, Habit::Unread);
        let gate = Gate::start(&scratch, &[&server.route(), "--log", "json"]);
        let client = connect(gate.listening());
        // It is never read: the kernel knows then that something is missing, and resets.
        send(&client, 1_000);
        let before = receive(&client, 0, 1_000_000).bytes;
        server.kill();
        let bytes = assert_reset(receive(&client, before, u64::MAX));
        let account = gate.accounts(1).remove(0);
        assert_ended(&account, "upstream", "reset");
        let counted = [&account["down_received_bytes"], &account["down_written_bytes"]];
        assert_eq!(counted, [&Value::from(bytes); 2], "{account}");
        eprintln!("killed mid-transfer, round {round}: {bytes} bytes, then the reset");
    }
}

#[test]
fn an_upload_to_a_killed_upstream_is_a_reset() {
    if Server::is_asked_for() {
        return Server::serve();
    }
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch, Habit::Taking);
    let gate = Gate::start(&scratch, &[&server.route(), "--log", "json"]);
    let client = connect(gate.listening());
    let sender = client.try_clone().unwrap();
    let sent = thread::spawn(move || send(&sender, u64::MAX));
    wait_for("some megabytes", SOON, || stat(&scratch, "up_written_bytes").len() > 7);
    server.kill();
    let sent = sent.join().unwrap();
    let received = receive(&client, 0, u64::MAX);
    // Whichever call comes first is told.
    let told = [sent.error, received.error];
    assert!(told.contains(&Some(ErrorKind::ConnectionReset)), "{sent:?}, {received:?}");
    assert_eq!(received.bytes, 0);
    let account = gate.accounts(1).remove(0);
    assert_ended(&account, "upstream", "reset");
    let bytes = |key: &str| account[key].as_u64().unwrap();
    assert!(bytes("up_acked_bytes") <= bytes("up_written_bytes"), "{account}");
    assert!(bytes("up_written_bytes") <= bytes("up_received_bytes"), "{account}");
    assert!(bytes("up_received_bytes") <= sent.bytes, "{account}");
    eprintln!("upload to a killed upstream: {} bytes, then the reset", sent.bytes);
}

/// The kernel ends a killed program's connection with a FIN where nothing was unread: nobody behind it can
/// tell that from an end. The gate makes it neither better nor worse.
#[test]
fn a_killed_upstream_that_had_read_all_ends_as_without_a_gate() {
    if Server::is_asked_for() {
        return Server::serve();
    }
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch, Habit::Read);
    let gate = Gate::start(&scratch, &[&server.route(), "--log", "json"]);
    let clients = [connect(server.address), connect(gate.listening())];
    let before = clients.each_ref().map(|client| receive(client, 0, 1_000_000).bytes);
    server.kill();
    for (client, before) in clients.iter().zip(before) {
        let received = receive(client, before, u64::MAX);
        assert_eq!(received.error, None, "{received:?}");
    }
    drop(clients);
    let account = gate.accounts(1).remove(0);
    assert_eq!((&account["ended_by"], &account["down_end"]), (&"upstream".into(), &"fin".into()));
}

#[track_caller]
fn assert_ended(account: &Value, by: &str, how: &str) {
    assert_eq!(
        (&account["ended_by"], &account["ended_how"]),
        (&by.into(), &how.into()),
        "{account}"
    );
    assert_eq!(account["complete"], false, "{account}");
}

// --- nobody there -------------------------------------------------------------------------------

/// How many connect at once.
const STORM: usize = 4_000;
/// How many connects may be under way, where that is bounded.
const DIALS: usize = 256;

#[test]
fn thousands_of_connects_to_a_refused_port_cost_nobody_else_anything() {
    // Whoever asks for a port gets another one; at this address nobody listens.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = SocketAddr::from(([127, 0, 0, 99], held.local_addr().unwrap().port()));
    let storm = Storm::to(refused, DIALS, "10s");
    for round in 0..3 {
        let (accounts, longest) = storm.blow();
        let count = |how: &str| accounts.iter().filter(|one| one["ended_how"] == how).count();
        assert_eq!(count("refused") + count("too_many_dials"), storm.clients);
        assert!(count("refused") > 0);
        assert!(longest < Duration::from_secs(10), "{longest:?}");
        eprintln!("refused, round {round}: {} refused, {longest:?} at most", count("refused"));
    }
    storm.blows_over();
}

#[test]
fn thousands_of_connects_that_nobody_answers_are_bounded_in_number_and_time() {
    let silent = Silent::new();
    let storm = Storm::to(silent.address, DIALS, "2s");
    for round in 0..3 {
        let (accounts, longest) = storm.blow();
        let count = |how: &str| accounts.iter().filter(|one| one["ended_how"] == how).count();
        assert_eq!(count("connect_timeout") + count("too_many_dials"), storm.clients);
        // On a machine so busy that accepting all takes longer, the first connects time out meanwhile.
        let most = if is_within(&accounts, NOBODY_ANSWERS) { DIALS } else { storm.clients };
        assert!((DIALS..=most).contains(&count("connect_timeout")), "{}", count("connect_timeout"));
        assert!(longest < NOBODY_ANSWERS + SLACK, "{longest:?}");
        eprintln!("no answer, round {round}: each told within {longest:?}");
    }
    storm.blows_over();
}

#[test]
#[ignore = "4,000 connects under way at once"]
fn thousands_of_connects_under_way_at_once_come_to_their_end() {
    let silent = Silent::new();
    let storm = Storm::to(silent.address, STORM, "3s");
    for round in 0..3 {
        let (accounts, longest) = storm.blow();
        let timed_out = accounts.iter().filter(|one| one["ended_how"] == "connect_timeout");
        assert_eq!(timed_out.count(), storm.clients);
        assert!(longest < Duration::from_secs(3) + SLACK, "{longest:?}");
        eprintln!("all under way, round {round}: each told within {longest:?}");
    }
    storm.blows_over();
}

/// The time limit of a connect that nobody answers, as the gate is told above.
const NOBODY_ANSWERS: Duration = Duration::from_secs(2);

/// Whether the gate accepted all these connections within half of a time.
fn is_within(accounts: &[Value], time: Duration) -> bool {
    let began = || accounts.iter().filter_map(|one| one["began_unix_s"].as_f64());
    let (first, last) = (began().fold(f64::MAX, f64::min), began().fold(0.0, f64::max));
    last - first < time.as_secs_f64() / 2.0
}

/// A busy machine is late.
const SLACK: Duration = Duration::from_secs(8);

/// A gate with a route to nobody, and one to somebody.
struct Storm {
    scratch: Scratch,
    gate: Gate,
    /// How many connect: as many as this machine has descriptors for.
    clients: usize,
    /// How many connects may be under way.
    dials: usize,
    nobody: SocketAddr,
    descriptors: usize,
    memory: u64,
    ping_pong: PingPong,
}

impl Storm {
    fn to(nobody: SocketAddr, dials: usize, connect_timeout: &str) -> Self {
        let scratch = Scratch::new();
        let file = format!(
            "workers = 2\nlimits = {{ dials = {dials} }}\n\
             [[route]]\nname = 'dead'\nlisten = '0'\nforward = '{nobody}'\n\
             connect_timeout = '{connect_timeout}'\n\
             [[route]]\nname = 'alive'\nlisten = '0'\nforward = '{}'\n",
            echo()
        );
        let gate = Gate::with_file(&scratch, &scratch.file("gate.toml", file));
        let clients = STORM.min(most_descriptors().saturating_sub(200) / 2);
        if clients < STORM {
            lastbyte_testing::not_tested!("{STORM} connections, {clients} are allowed here");
        }
        // With fewer it is no storm, and would be over before anything was in its way.
        assert!(clients >= 100, "{clients} connections at this limit of descriptors");
        let ping_pong = PingPong::start(gate.address("alive"));
        let (descriptors, memory) = (open_descriptors(gate.pid()), memory_of(gate.pid()));
        Self { scratch, gate, clients, dials, nobody, descriptors, memory, ping_pong }
    }

    /// All connect at once, and are reset. Returns the accounts of this round, and how long it took at
    /// most from a client's connect until it knew.
    #[track_caller]
    fn blow(&self) -> (Vec<Value>, Duration) {
        let told = self.gate.stdout().matches('\n').count();
        let at = self.gate.address("dead");
        let began = Instant::now();
        let clients: Vec<_> = (0..self.clients)
            .map(|_| {
                let stream = match TcpStream::connect(at) {
                    Ok(stream) => Some(stream),
                    // The gate's reset came before this thread went on.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
                    Err(error) => panic!("{error}"),
                };
                (stream, Instant::now())
            })
            .collect();
        let under_way = dials_to(self.nobody);
        assert!(under_way <= self.dials, "{under_way}");
        let longest = clients.iter().map(|(client, since)| {
            if let Some(client) = client {
                client.set_read_timeout(Some(SOON)).unwrap();
                assert_reset(receive(client, 0, u64::MAX));
            }
            since.elapsed()
        });
        let longest = longest.max().unwrap();
        let accounts = self.gate.accounts_within(LATER, told + self.clients).split_off(told);
        assert_eq!(accounts.len(), self.clients, "one account for each");
        eprintln!(
            "{} connects, {under_way} under way, all accounted for after {:?}, memory {} KiB",
            self.clients,
            began.elapsed(),
            memory_of(self.gate.pid()) >> 10
        );
        (accounts, longest)
    }

    /// What it took is given back, and others had noticed nothing.
    #[track_caller]
    fn blows_over(self) {
        let pid = self.gate.pid();
        let is_back = || open_descriptors(pid) == self.descriptors;
        let is_back = holds_within(SOON, is_back);
        assert!(is_back, "{} descriptors, at first {}", open_descriptors(pid), self.descriptors);
        assert_eq!(stat(&self.scratch, "flows_open"), "1");
        let is_given_back = holds_within(SOON, || memory_of(pid) < self.memory + MEMORY);
        let memory = memory_of(pid);
        eprintln!("memory {} KiB at first, then {} KiB", self.memory >> 10, memory >> 10);
        eprintln!("meanwhile {}", self.ping_pong.end());
        assert!(is_given_back, "{memory} bytes, at first {}", self.memory);
        self.gate.signal("TERM");
        self.gate.ends_with(0);
    }
}

/// What the memory of a gate may have grown by, in bytes, after many flows have gone: what the allocator
/// keeps for the next ones.
const MEMORY: u64 = 8 << 20;

/// How many connections to an address are being opened on this host: `SYN_SENT` in `/proc/net/tcp`.
fn dials_to(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { panic!("{address} is not of IPv4") };
    let ip = u32::from_ne_bytes(address.ip().octets());
    let peer = format!("{ip:08X}:{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next() == Some(&peer) && fields.next() == Some("02")
    };
    table.lines().filter(is_one).count()
}

/// How many descriptors this process may have from now on: enough for the storm, if it may allow itself that.
fn most_descriptors() -> usize {
    let (own, most) = lastbyte_sys::process::descriptor_limits().unwrap();
    let enough = own.max((2 * STORM as u64 + 200).min(most));
    lastbyte_sys::process::set_descriptor_limit(enough, most).unwrap();
    usize::try_from(enough).unwrap_or(usize::MAX)
}

/// An address that answers no SYN: a listener that nobody accepts from, with its queue full.
struct Silent {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Silent {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        lastbyte_sys::socket::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let soon = Duration::from_millis(300);
        let connects = || TcpStream::connect_timeout(&address, soon).ok();
        let queued: Vec<_> = std::iter::from_fn(connects).take(10).collect();
        assert!(queued.len() < 10, "its queue has an end");
        Self { address, _listener: listener, _queued: queued }
    }
}

// --- a server that can be killed ----------------------------------------------------------------

/// A process of its own that serves: the test that runs, once more.
struct Server {
    child: Child,
    address: SocketAddr,
}

/// Where a server writes its address, and its habit.
const PLACE: &str = "LASTBYTE_TEST_SERVER";
const HABIT: &str = "LASTBYTE_TEST_SERVER_HABIT";

impl Server {
    #[track_caller]
    fn start(scratch: &Scratch, habit: Habit) -> Self {
        let test = this_test();
        let place = scratch.path().join("server");
        let _ = fs::remove_file(&place);
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", &test, "--nocapture"]);
        command.env(PLACE, &place).env(HABIT, format!("{habit:?}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let mut address = None;
        wait_for("a server", SOON, || {
            let said = fs::read_to_string(&place).unwrap_or_default();
            address = said.strip_suffix('\n').map(|address| address.parse().unwrap());
            address.is_some()
        });
        Self { child, address: address.unwrap() }
    }

    fn route(&self) -> String {
        format!("0={}", self.address)
    }

    /// SIGKILL: it can end nothing.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether this process is such a server.
    fn is_asked_for() -> bool {
        env::var_os(PLACE).is_some()
    }

    fn serve() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = env::var(PLACE).unwrap();
        fs::write(Path::new(&place), format!("{}\n", listener.local_addr().unwrap())).unwrap();
        let habit = env::var(HABIT).unwrap();
        // Until it is killed.
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let is_taking = habit == "Taking";
            thread::spawn(move || match is_taking {
                true => receive(&stream, 0, u64::MAX).bytes,
                false => send(&stream, u64::MAX).bytes,
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
