//! Tier 3 against the running kernel. Needs root, and says so where it is lacking.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lastbyte_bpf::Kernel;
use lastbyte_core::sample::State;
use lastbyte_doctor::event::{
    Again, Changed, Counts, Ending, Io, Process, ResetSent, Role, Socket, SocketId,
};
use lastbyte_doctor::finding::Evidence;
use lastbyte_doctor::{Doctor, Event, Observer, Plan, Scope, Tier, Traced, What};
use lastbyte_testing::this_test;

/// What is expected comes within this time, or not at all.
const LONG: Duration = Duration::from_secs(10);

/// Tables are looked at once, so that they are not mistaken for what the kernel's programs tell.
const HOUR: Duration = Duration::from_secs(3600);

/// An observer, and all that it has told so far.
struct Watch {
    observer: Observer,
    events: Vec<Event>,
}

impl Watch {
    /// `None`, with the reason said aloud, where tier 3 cannot be had.
    fn start(scope: Scope, traced: Traced) -> Option<Self> {
        Self::start_with(scope, traced, HOUR)
    }

    /// With tables that are looked at so often.
    fn start_with(scope: Scope, traced: Traced, every: Duration) -> Option<Self> {
        let plan = Plan { scope, tier: Some(Tier::Bpf), traced, every };
        match Observer::start(&plan) {
            Ok((observer, _)) => Some(Self { observer, events: Vec::new() }),
            Err(why) => {
                lastbyte_testing::not_tested!("{why}");
                let is_expected = why.to_string().contains("too old")
                    || lastbyte_sys::process::effective_user() != 0;
                assert!(is_expected, "root is refused: {why}");
                None
            }
        }
    }

    fn machine() -> Option<Self> {
        Self::start(Scope::Machine, Traced::Never)
    }

    fn port(port: u16) -> Option<Self> {
        Self::start(Scope::Port(port), Traced::Never)
    }

    /// Looks until something that is looked for is found.
    fn until<T>(&mut self, what: &str, mut find: impl FnMut(&Self) -> Option<T>) -> T {
        let end = Instant::now() + LONG;
        loop {
            let events = &mut self.events;
            self.observer.take(Duration::from_millis(20), &mut |event| events.push(event)).unwrap();
            if let Some(found) = find(self) {
                return found;
            }
            assert!(Instant::now() < end, "{what} did not come; there was {:#?}", self.told());
        }
    }

    /// Looks for a time.
    fn look_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let events = &mut self.events;
            self.observer.take(Duration::from_millis(20), &mut |event| events.push(event)).unwrap();
        }
    }

    /// What the programs in the kernel told, without what tables say again and again.
    fn told(&self) -> Vec<&What> {
        let is_told = |what: &&What| {
            !matches!(what, What::Tick | What::Sample(_) | What::Cpu(_) | What::Counters(_))
        };
        self.events.iter().map(|event| &event.what).filter(is_told).collect()
    }

    fn socket(&self, local: SocketAddr, peer: SocketAddr) -> Option<Socket> {
        self.events.iter().rev().find_map(|event| match &event.what {
            What::Socket(socket) if (socket.local, socket.peer) == (local, peer) => {
                Some(socket.clone())
            }
            _ => None,
        })
    }

    fn id(&self, local: SocketAddr, peer: SocketAddr) -> Option<SocketId> {
        self.socket(local, peer).map(|socket| socket.id)
    }

    fn changed(&self, id: SocketId, to: State) -> Option<Changed> {
        self.events.iter().find_map(|event| match &event.what {
            What::Changed(changed) if changed.socket == id && changed.to == to => {
                Some(changed.clone())
            }
            _ => None,
        })
    }

    fn reset_sent(&self, id: SocketId) -> Option<ResetSent> {
        self.events.iter().find_map(|event| match &event.what {
            What::ResetSent(reset) if reset.socket == Some(id) => Some((**reset).clone()),
            _ => None,
        })
    }

    fn reset_received(&self, id: SocketId) -> Option<Counts> {
        self.events.iter().find_map(|event| match &event.what {
            What::ResetReceived { socket, counts } if *socket == id => *counts,
            _ => None,
        })
    }

    fn process(&self, pid: u32) -> Option<Process> {
        self.events.iter().rev().find_map(|event| match &event.what {
            What::Process(process) if process.pid == pid => Some(process.clone()),
            _ => None,
        })
    }

    fn exited(&self, pid: u32) -> Option<Ending> {
        self.events.iter().find_map(|event| match &event.what {
            What::Exited { pid: ended, ending } if *ended == pid => Some(*ending),
            _ => None,
        })
    }

    fn holders(&self, id: SocketId) -> Vec<u32> {
        let held = self.events.iter().filter_map(|event| match &event.what {
            What::Holds { socket, pid, .. } if *socket == id => Some(*pid),
            _ => None,
        });
        held.collect()
    }

    /// All reads and writes of a socket together.
    fn io(&self, id: SocketId) -> Io {
        let mut sum = Io { socket: id, ..Io::default() };
        for event in &self.events {
            if let What::Io(io) = &event.what
                && io.socket == id
            {
                sum.writes += io.writes;
                sum.written_bytes += io.written_bytes;
                sum.tiny_writes += io.tiny_writes;
                sum.reads += io.reads;
                sum.read_bytes += io.read_bytes;
                sum.not_now += io.not_now;
                sum.held_back += io.held_back;
                sum.held_back_ns += io.held_back_ns;
                sum.turns += io.turns;
            }
        }
        sum
    }
}

/// Two ends of one connection, the connecting one first.
/// Whether the running kernel tells of all resets, with their reasons (Linux 6.10).
fn has_reasons() -> bool {
    Kernel::look().unwrap().arguments_at("tcp_send_reset") == Some(3)
}

/// Whether it tells how much of a Unix socket's packets was read before the close (Linux 6.14).
fn tells_unix_reads() -> bool {
    Kernel::look().unwrap().has_value("skb_drop_reason", "SKB_DROP_REASON_SOCKET_CLOSE")
}

/// Whether it tells of reads and writes (Linux 6.3).
fn tells_io() -> bool {
    Kernel::look().unwrap().arguments_at("sock_send_length").is_some()
}

fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

fn names(stream: &TcpStream) -> (SocketAddr, SocketAddr) {
    (stream.local_addr().unwrap(), stream.peer_addr().unwrap())
}

/// Waits until so many bytes wait to be read.
fn wait_for_unread(stream: &TcpStream, bytes: usize) {
    let mut room = vec![0; bytes];
    let end = Instant::now() + LONG;
    while stream.peek(&mut room).unwrap() < bytes {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

#[test]
fn a_lossy_close_has_its_numbers() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Some(mut watch) = Watch::machine() else { return };
        let (mut client, mut server) = pair(address);
        let (local, peer) = names(&server);
        client.write_all(b"12345").unwrap();
        wait_for_unread(&server, 5);
        // More than both buffers take.
        server.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(bytes) = server.write(&[7; 65536]) {
            written += bytes;
        }
        drop(server);
        let id = watch.until("the socket", |watch| watch.id(local, peer));
        let closed = watch.until("its end", |watch| watch.changed(id, State::Close));
        let counts = closed.counts.unwrap();
        assert_eq!((closed.from, counts.unread()), (State::Established, 5));
        assert_eq!(closed.by.map(|by| (by.pid, by.ending)), Some((std::process::id(), None)));
        assert_eq!((closed.held, closed.errno), (Some(false), 0));
        let reset = watch.until("its reset", |watch| watch.reset_sent(id));
        let expected = has_reasons().then_some("TCP_ABORT_ON_CLOSE");
        assert_eq!(reset.reason.as_deref(), expected);
        assert!(reset.active && reset.by.is_some());
        assert!(watch.holders(id).contains(&std::process::id()));
        // What the other end has is what was acked.
        let other = watch.until("the other end", |watch| watch.id(peer, local));
        let seen = watch.until("the reset there", |watch| watch.reset_received(other));
        let lost = lastbyte_doctor::event::distance(seen.rcv_nxt, counts.write_seq);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap_err();
        assert_eq!(got.len() + usize::try_from(lost).unwrap(), written);
        assert!(counts.unacked() >= lost);
        drop(client);
        watch.until("the last of it", |watch| {
            let is_gone =
                |event: &Event| matches!(event.what, What::Gone { socket, .. } if socket == other);
            watch.events.iter().any(is_gone).then_some(())
        });
    }
}

#[test]
fn a_clean_end_of_others_tells_nothing() {
    let Some(mut watch) = Watch::machine() else { return };
    let mut addresses = Vec::new();
    for _ in 0..50 {
        let (mut client, mut server) = pair("127.0.0.1:0");
        addresses.push(names(&client));
        client.write_all(&[1; 1000]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut room = Vec::new();
        server.read_to_end(&mut room).unwrap();
        server.write_all(&room).unwrap();
        drop(server);
        room.clear();
        client.read_to_end(&mut room).unwrap();
        assert_eq!(room.len(), 1000);
    }
    watch.look_for(Duration::from_millis(300));
    let is_ours = |what: &&&What| match what {
        What::Socket(socket) => {
            addresses.contains(&(socket.local, socket.peer))
                || addresses.contains(&(socket.peer, socket.local))
        }
        What::ResetSent(reset) => addresses.contains(&(reset.local, reset.peer)),
        _ => false,
    };
    let told = watch.told();
    let told: Vec<_> = told.iter().filter(is_ours).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn everything_of_a_port_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(mut watch) = Watch::port(port) else { return };
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (local, peer) = names(&client);
    for _ in 0..10 {
        client.write_all(&[1; 100]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    let mut room = Vec::new();
    server.read_to_end(&mut room).unwrap();
    drop(server);
    client.read_to_end(&mut room).unwrap();
    drop(client);
    let id = watch.until("the client", |watch| watch.id(local, peer));
    let accepted = watch.until("the server", |watch| watch.socket(peer, local));
    assert_eq!(watch.socket(local, peer).unwrap().role, Role::Connected);
    assert_eq!(accepted.role, Role::Accepted);
    for to in [State::SynSent, State::Established, State::FinWait1] {
        watch.until("a state", |watch| watch.changed(id, to));
    }
    watch.until("the server's last ACK", |watch| watch.changed(accepted.id, State::LastAck));
    watch.look_for(Duration::from_millis(1200));
    if tells_io() {
        let io = watch.io(id);
        assert_eq!((io.writes, io.written_bytes, io.tiny_writes), (10, 1000, 10));
        assert_eq!(watch.io(accepted.id).read_bytes, 1000);
    } else {
        lastbyte_testing::not_tested!("reads and writes, of which this kernel does not tell");
    }
    let opened = watch.changed(id, State::SynSent).unwrap();
    assert_eq!(opened.by.map(|by| by.pid), Some(std::process::id()));
    let shut = watch.changed(id, State::FinWait1).unwrap();
    assert_eq!((shut.held, shut.by.map(|by| by.pid)), (Some(true), Some(std::process::id())));
}

#[test]
fn an_abort_by_linger_and_unread_bytes_of_a_unix_socket() {
    let Some(mut watch) = Watch::machine() else { return };
    let (client, server) = pair("127.0.0.1:0");
    let (local, peer) = names(&client);
    lastbyte_sys::socket::set_linger(&client.as_fd(), Some(Duration::ZERO)).unwrap();
    drop(client);
    let id = watch.until("the other end", |watch| watch.id(peer, local));
    watch.until("the reset", |watch| watch.reset_received(id));
    let own = watch.until("its own end", |watch| watch.id(local, peer));
    let reset = watch.until("the reset sent", |watch| watch.reset_sent(own));
    // Nothing was unsent; else it is TCP_DISCONNECT_WITH_DATA.
    let expected = has_reasons().then_some("TCP_STATE");
    assert_eq!(reset.reason.as_deref(), expected);
    drop(server);

    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[1; 700]).unwrap();
    one.write_all(&[1; 77]).unwrap();
    (&other).read_exact(&mut [0; 70]).unwrap();
    drop(other);
    // Before Linux 6.14 it does not tell how much of the first was read. Another test of this process may
    // close a socket with other numbers.
    let unread = if tells_unix_reads() { 707 } else { 777 };
    watch.until("unread bytes", |watch| unread_of(watch, unread));
}

/// Who closed a Unix socket with bytes unread, and who had sent them, of the first such close
/// with so many bytes.
fn unread_of(watch: &Watch, bytes: u64) -> Option<(u32, Option<u32>)> {
    watch.events.iter().find_map(|event| match &event.what {
        What::UnixUnread { by, bytes: found, sender, .. } if *found == bytes => {
            Some((by.pid, *sender))
        }
        _ => None,
    })
}

#[test]
fn the_sender_of_what_is_unread_in_a_unix_socket() {
    // Each close has another number of bytes unread, all of them unusual.
    const SCRIPT: &str = "
def pair(bytes, kind=socket.SOCK_STREAM):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b'x' * bytes)
    return a, b
a, b = pair(11113); b.close()
a, b = pair(11117); a.close(); b.close()
a, b = pair(11119, socket.SOCK_SEQPACKET); a.close(); b.close()
a, b = socket.socketpair()
child = os.fork()
if child == 0:
    b.close(); a.send(b'x' * 11131); os._exit(0)
a.close(); os.wait(); b.close()
l = socket.socket(socket.AF_UNIX)
l.bind('\\0lastbyte-%d' % os.getpid()); l.listen()
named = os.fork()
if named == 0:
    c = socket.socket(socket.AF_UNIX); c.connect(l.getsockname())
    c.send(b'x' * 11149)
    try: c.recv(1)
    except ConnectionResetError: os._exit(0)
s, _ = l.accept(); s.recv(1, socket.MSG_PEEK); s.close(); os.wait()
gone = os.fork()
if gone == 0:
    c = socket.socket(socket.AF_UNIX); c.connect(l.getsockname())
    c.send(b'x' * 11159); os._exit(0)
s, _ = l.accept(); os.wait(); s.close()
print(child, named, gone, flush=True)
sys.stdin.read(1)";
    let Some(mut watch) = Watch::machine() else { return };
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    process.go();
    let said = process.said();
    let pids: Vec<u32> = said.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let own = process.pid();
    let senders = [
        (11113, own),
        (11117, own),
        (11119, own),
        (11131, pids[0]),
        (11149, pids[1]),
        (11159, pids[2]),
    ];
    for (bytes, sender) in senders {
        let found = watch.until("a close", |watch| unread_of(watch, bytes));
        // Where the kernel tells of no writes, who sent it is known of connections that are open alone.
        let is_known = tells_io() || found.1.is_some();
        assert_eq!(found, (own, is_known.then_some(sender)), "{bytes}");
    }
}

#[test]
fn a_sender_from_before_the_watch_is_named_by_its_connection() {
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[1; 11161]).unwrap();
    let Some(mut watch) = Watch::machine() else { return };
    drop(other);
    let found = watch.until("the close", |watch| unread_of(watch, 11161));
    assert_eq!(found, (std::process::id(), Some(std::process::id())));
}

/// Set for the test that runs itself again in a PID namespace of its own: a port of its outer half.
const OUTER_PORT: &str = "LASTBYTE_TEST_OUTER_PORT";

#[test]
fn numbers_are_those_of_our_pid_namespace() {
    if let Ok(port) = std::env::var(OUTER_PORT) {
        return in_a_pid_namespace(port.parse().unwrap());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &this_test(), "--nocapture"]);
    command.env(OUTER_PORT, listener.local_addr().unwrap().port().to_string());
    command.stdout(Stdio::piped());
    let Ok(mut inner) = command.spawn() else {
        lastbyte_testing::not_tested!("there is no unshare");
        return;
    };
    listener.set_nonblocking(true).unwrap();
    let ended = loop {
        if let Ok((server, _)) = listener.accept() {
            // Closed by a process that has no number in there.
            server.set_nonblocking(false).unwrap();
            wait_for_unread(&server, 5);
        }
        if let Some(ended) = inner.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !ended.success() && lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("no PID namespace can be had");
        return;
    }
    let mut said = String::new();
    inner.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(ended.success() && said.contains("1 passed"), "{said}");
}

fn in_a_pid_namespace(outer_port: u16) {
    const SCRIPT: &str = "
child = os.fork()
if child == 0: os._exit(3)
os.waitpid(child, 0)
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname())
s, _ = l.accept()
c.sendall(b'x' * 7)
s.recv(7, socket.MSG_PEEK | socket.MSG_WAITALL)
print(l.getsockname()[1], flush=True)
s.close()
a, b = socket.socketpair()
a.send(b'x' * 11171)
b.close()
sys.stdin.read(1)";
    assert!(std::process::id() < 10, "it has another number outside");
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    let pid = process.pid();
    for scope in [Scope::Process(pid), Scope::Machine] {
        let traced = if scope == Scope::Machine { Traced::Never } else { Traced::Watched };
        if scope == Scope::Machine {
            process = KnownProcess::new(SCRIPT, "").unwrap();
        }
        let pid = process.pid();
        let Some(mut watch) = Watch::start(scope, traced) else { return };
        process.go();
        let port: u16 = process.said().parse().unwrap();
        let closed = watch.until("the close", |watch| {
            let mut sockets = watch.events.iter().filter_map(|event| match &event.what {
                What::Socket(socket) if socket.local.port() == port => Some(socket.id),
                _ => None,
            });
            sockets.find_map(|id| watch.changed(id, State::Close))
        });
        assert_eq!(closed.counts.unwrap().unread(), 7);
        assert_eq!(closed.by.map(|by| (by.pid, by.tid)), Some((pid, pid)));
        let process = watch.until("who it was", |watch| watch.process(pid));
        assert!(process.name.starts_with("python3"), "{process:?}");
        assert_eq!(process.parent, std::process::id());
        let found = watch.until("unread bytes", |watch| unread_of(watch, 11171));
        assert_eq!(found, (pid, Some(pid)));
        if scope != Scope::Machine {
            let child = watch.until("the child", |watch| {
                watch.events.iter().find_map(|event| match &event.what {
                    What::Process(process) if process.parent == pid => Some(process.pid),
                    _ => None,
                })
            });
            assert!(child > pid && child < pid + 1000, "{child}");
            assert_eq!(watch.until("its end", |watch| watch.exited(child)), Ending::Exit(3));
            watch
                .until("its calls", |watch| (calls_of(watch, pid, "accept4").0 == 1).then_some(()));
            continue;
        }
        // Those outside have no number here, and what they do is told all the same.
        let mut client = TcpStream::connect(("127.0.0.1", outer_port)).unwrap();
        let (local, peer) = names(&client);
        client.write_all(b"12345").unwrap();
        let id = watch.until("the outer end", |watch| watch.id(peer, local));
        let reset = watch.until("its reset", |watch| watch.reset_sent(id));
        assert!(reset.active && reset.by.is_none(), "{reset:?}");
    }
}

/// A program in Python that begins when it is told to.
struct KnownProcess(Child);

impl KnownProcess {
    fn new(script: &str, argument: impl ToString) -> Option<Self> {
        let script =
            format!("import errno, os, select, socket, sys, time\nsys.stdin.read(1)\n{script}");
        let mut command = Command::new("python3");
        command.args(["-c", &script, &argument.to_string()]).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).spawn();
        if child.is_err() {
            lastbyte_testing::not_tested!("there is no python3");
        }
        child.ok().map(Self)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"1").unwrap();
    }

    /// Waits until it has said a line.
    fn said(&mut self) -> String {
        let mut line = Vec::new();
        let out = self.0.stdout.as_mut().unwrap();
        let mut byte = [0];
        while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    fn ends_with(&mut self, code: i32) {
        assert_eq!(self.0.wait().unwrap().code(), Some(code));
    }
}

impl Drop for KnownProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_short_life_is_reported_completely() {
    const SCRIPT: &str = "
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.sendall(b'x' * 100)
s.recv(1)
os._exit(3)";
    let Some(mut watch) = Watch::machine() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(mut child) = KnownProcess::new(SCRIPT, port) else { return };
    child.go();
    let (mut server, _) = listener.accept().unwrap();
    let (local, peer) = names(&server);
    wait_for_unread(&server, 100);
    server.write_all(b"123").unwrap();
    child.ends_with(3);
    let id = watch.until("the socket", |watch| watch.id(peer, local));
    let closed = watch.until("its end", |watch| watch.changed(id, State::Close));
    let by = closed.by.unwrap();
    assert_eq!((by.pid, by.ending), (child.pid(), Some(Ending::Exit(3))));
    assert_eq!(closed.counts.unwrap().unread(), 2);
    let process = watch.until("the process", |watch| watch.process(child.pid()));
    assert!(process.name.starts_with("python3"), "{process:?}");
    assert!(process.command.contains("create_connection"), "{process:?}");
    let ending = watch.until("its ending", |watch| watch.exited(child.pid()));
    assert_eq!(ending, Ending::Exit(3));
}

#[test]
fn an_exit_with_unacked_bytes_is_followed_to_its_end() {
    const SCRIPT: &str = "
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.setblocking(False)
n = 0
try:
    while True: n += s.send(b'x' * 65536)
except BlockingIOError: pass
print(n, flush=True)
os._exit(0)";
    for is_read in [true, false] {
        let Some(mut watch) = Watch::machine() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Some(mut process) = KnownProcess::new(SCRIPT, port) else { return };
        process.go();
        let (mut server, _) = listener.accept().unwrap();
        let (local, peer) = names(&server);
        let written: u64 = process.said().parse().unwrap();
        process.ends_with(0);
        let id = watch.until("the socket", |watch| watch.id(peer, local));
        let closed = watch.until("its close", |watch| watch.changed(id, State::FinWait1));
        let by = closed.by.unwrap();
        assert_eq!((by.pid, by.ending), (process.pid(), Some(Ending::Exit(0))));
        let unacked = closed.counts.unwrap().unacked();
        assert!(unacked > 0 && u64::from(unacked) < written);
        if is_read {
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            assert_eq!(got.len() as u64, written);
            let done = watch.until("its FIN's ACK", |watch| watch.changed(id, State::FinWait2));
            assert_eq!(done.counts.unwrap().unacked(), 0);
        } else {
            drop(server);
            let end = watch.until("its end", |watch| watch.changed(id, State::Close));
            assert!(end.by.is_none() && end.errno != 0, "{end:?}");
            let counts = watch.until("the reset", |watch| watch.reset_received(id));
            assert!(counts.unacked() > 0 && counts.unacked() <= unacked + 1);
        }
        let ended = watch.until("its ending", |watch| watch.exited(process.pid()));
        assert_eq!(ended, Ending::Exit(0));
    }
}

#[test]
fn data_after_a_close_are_the_closers() {
    let Some(mut watch) = Watch::machine() else { return };
    let (mut client, server) = pair("127.0.0.1:0");
    let (local, peer) = names(&server);
    // Nothing of its own is left; only what comes later is refused.
    drop(server);
    client.write_all(b"late").unwrap();
    let id = watch.until("the socket", |watch| watch.id(local, peer));
    let closed = watch.until("its close", |watch| watch.changed(id, State::FinWait1));
    assert_eq!(closed.by.map(|by| by.pid), Some(std::process::id()));
    let of_socket = |watch: &Watch| {
        watch.events.iter().find_map(|event| match &event.what {
            What::ResetSent(reset) if (reset.local, reset.peer) == (local, peer) => {
                Some(reset.clone())
            }
            _ => None,
        })
    };
    let reset = watch.until("the reset", of_socket);
    assert!(!reset.active && reset.by.is_none(), "{reset:?}");
}

#[test]
fn data_after_the_end_of_a_socket_are_its_closers() {
    let Some(mut watch) = Watch::machine() else { return };
    let (mut client, server) = pair("127.0.0.1:0");
    let (local, peer) = names(&server);
    drop(server);
    // The ACK of the FIN is delayed; with it the kernel keeps a stub of the socket.
    watch.look_for(Duration::from_millis(200));
    client.write_all(b"late").unwrap();
    let id = watch.until("the socket", |watch| watch.id(local, peer));
    let closed = watch.until("its close", |watch| watch.changed(id, State::FinWait1));
    assert_eq!(closed.by.map(|by| by.pid), Some(std::process::id()));
    let reset = watch.until("the reset", |watch| watch.reset_sent(id));
    assert!(!reset.active, "{reset:?}");
    assert_eq!((reset.local, reset.peer), (local, peer));
}

#[test]
fn the_other_end_that_closed_in_order_is_reported_with_its_counts() {
    const SCRIPT: &str = "
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.sendall(b'x' * 1000)
sys.stdin.read(1)
s.sendall(b'y' * 12345)
sys.stdin.read(1)";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(mut process) = KnownProcess::new(SCRIPT, port) else { return };
    let Some(mut watch) = Watch::start(Scope::Process(process.pid()), Traced::Never) else {
        return;
    };
    process.go();
    let (mut server, _) = listener.accept().unwrap();
    let (local, peer) = names(&server);
    server.read_exact(&mut [0; 1000]).unwrap();
    // It has nothing to lose, and is not asked about; by now the kernel keeps a stub of it alone.
    drop(server);
    watch.look_for(Duration::from_millis(200));
    process.go();
    let ours = watch.until("our end", |watch| watch.id(peer, local));
    let sent = watch.until("its reset", |watch| watch.reset_received(ours));
    let other = watch.until("the other end", |watch| watch.id(local, peer));
    let closed = watch.until("its close", |watch| watch.changed(other, State::FinWait1));
    assert_eq!(closed.by.map(|by| by.pid), Some(std::process::id()));
    let seen = watch.until("its numbers", |watch| watch.reset_sent(other)).counts.unwrap();
    assert_eq!(lastbyte_doctor::event::distance(seen.rcv_nxt, sent.write_seq), 12345);
    assert_eq!((seen.unread(), seen.unacked(), seen.bytes_received), (0, 0, 1000));
    // What the rules make of it: all of the later bytes are lost, and that is sure.
    let mut doctor = Doctor::new();
    let mut found = Vec::new();
    watch.events.iter().for_each(|event| found.extend(doctor.take(event)));
    found.extend(doctor.end());
    let loss: Vec<_> = found.iter().filter(|one| one.bytes == Some(12345)).collect();
    assert_eq!(loss.len(), 1, "{found:#?}");
    assert_eq!(loss[0].evidence["exact"], Evidence::Word("yes".to_owned()), "{loss:#?}");
}

#[test]
fn namespaces_and_shared_sockets() {
    const SCRIPT: &str = "
import ctypes, fcntl, struct
ctypes.CDLL(None).unshare(0x40000000)
fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x49))
l = socket.create_server(('::1', 0), family=socket.AF_INET6)
c = socket.create_connection(l.getsockname()[:2])
s, _ = l.accept()
s.send(b'1')
print(c.getsockname()[1], os.stat('/proc/self/ns/net').st_ino, flush=True)
if os.fork() == 0:
    c.recv(1)
    os._exit(0)
os.wait()
s.send(b'123')
sys.stdin.read(1)
c.close()
sys.stdin.read(1)";
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    let Some(mut watch) = Watch::start(Scope::Process(process.pid()), Traced::Never) else {
        return;
    };
    process.go();
    let said = process.said();
    let (port, network) = said.split_once(' ').unwrap();
    let (port, network): (u16, u64) = (port.parse().unwrap(), network.parse().unwrap());
    let find = |watch: &Watch| {
        watch.events.iter().find_map(|event| match &event.what {
            What::Socket(socket)
                if socket.local.port() == port && socket.role == Role::Connected =>
            {
                Some(socket.clone())
            }
            _ => None,
        })
    };
    let socket = watch.until("the socket", find);
    assert_eq!(socket.network, Some(network));
    assert!(socket.local.is_ipv6() && !socket.mapped);
    let pid = process.pid();
    if tells_io() {
        let child = watch.until("the child", |watch| {
            watch.holders(socket.id).into_iter().find(|holder| *holder != pid)
        });
        let process = watch.process(child).unwrap();
        assert_eq!(process.parent, pid);
        assert_eq!(watch.until("its end", |watch| watch.exited(child)), Ending::Exit(0));
    } else {
        lastbyte_testing::not_tested!("who reads, of which this kernel does not tell");
    }
    process.go();
    let closed = watch.until("the close", |watch| watch.changed(socket.id, State::Close));
    assert_eq!(closed.counts.unwrap().unread(), 3);
    assert_eq!(closed.by.map(|by| by.pid), Some(pid));
}

#[test]
fn mapped_addresses_are_reported_as_such() {
    let Some(mut watch) = Watch::machine() else { return };
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.write_all(b"unread").unwrap();
    wait_for_unread(&server, 6);
    let (local, peer) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
    drop(server);
    let mapped = watch
        .until("a mapped socket", |watch| watch.socket(local, peer).filter(|socket| socket.mapped));
    assert_eq!(
        watch
            .until("its end", |watch| watch.changed(mapped.id, State::Close))
            .counts
            .unwrap()
            .unread(),
        6
    );
}

#[test]
fn a_thread_that_closes_and_no_free_port() {
    let Some(mut watch) = Watch::machine() else { return };
    let (mut client, server) = pair("127.0.0.1:0");
    let (local, peer) = names(&server);
    client.write_all(b"1").unwrap();
    wait_for_unread(&server, 1);
    std::thread::spawn(move || drop(server)).join().unwrap();
    let id = watch.until("the socket", |watch| watch.id(local, peer));
    let by = watch.until("its end", |watch| watch.changed(id, State::Close)).by.unwrap();
    assert!(by.pid == std::process::id() && by.tid != by.pid, "{by:?}");
    // Threads have names too: this one has the test's.
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(watch.process(by.pid).unwrap().name, name.trim_end());

    const SCRIPT: &str = "
port = int(sys.argv[1])
held = []
try:
    for i in range(2):
        s = socket.socket()
        s.setsockopt(socket.IPPROTO_IP, 51, (40001 << 16 | 40001).to_bytes(4, 'little'))
        held.append(s)
        s.connect(('127.0.0.1', port))
except OSError as error:
    os._exit(error.errno)";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let Some(mut process) = KnownProcess::new(SCRIPT, at.port()) else { return };
    process.go();
    process.ends_with(99);
    let (pid, peer, errno) = watch.until("the refusal", |watch| {
        watch.events.iter().find_map(|event| match &event.what {
            What::NotConnected { pid, peer, errno } => Some((*pid, *peer, *errno)),
            _ => None,
        })
    });
    assert_eq!((pid, peer, errno), (process.pid(), at, 99));
}

/// Calls and waiting calls of a process, summed up by name.
fn calls_of(watch: &Watch, pid: u32, call: &str) -> (u64, u64, Option<i32>, u64) {
    let mut sum = (0, 0, None, 0);
    for event in &watch.events {
        match &event.what {
            What::Calls(calls) if calls.pid == pid && calls.call == call => {
                sum.0 += calls.count;
                sum.3 = sum.3.max(calls.highest).max(calls.errors.first().map_or(0, |one| one.1));
            }
            What::Ready(ready) if ready.pid == pid && ready.call == call => {
                sum.1 += ready.idle;
                sum.2 = ready.fd.or(sum.2);
            }
            _ => {}
        }
    }
    sum
}

#[test]
fn calls_that_spin_are_counted() {
    const SCRIPT: &str = "
import fcntl
a, b = socket.socketpair()
t = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(t.getsockname())
e = select.epoll()
e.register(a, select.EPOLLOUT)
for i in range(1000): e.poll()
p = select.poll()
p.register(c, select.POLLOUT)
for i in range(1000): p.poll()
for i in range(1000): select.select([], [c], [])
for i in range(1000): fcntl.ioctl(c, 0x5411, b'0000')
for i in range(1000): a.send(b'1'); b.recv(1); p.poll()
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (c.fileno() + 1, 4096))
d = socket.socket
t.setblocking(False)
for i in range(1000):
    try: t.accept()
    except OSError: pass
print(a.fileno(), c.fileno(), flush=True)
sys.stdin.read(1)";
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    let pid = process.pid();
    let Some(mut watch) = Watch::start(Scope::Process(pid), Traced::Watched) else { return };
    process.go();
    let said = process.said();
    let (a, c) = said.split_once(' ').unwrap();
    let (a, c): (i32, i32) = (a.parse().unwrap(), c.parse().unwrap());
    watch.until("all calls", |watch| (calls_of(watch, pid, "accept4").0 >= 1000).then_some(()));
    watch.look_for(Duration::from_millis(600));
    let epoll = calls_of(&watch, pid, "epoll_wait");
    assert!(epoll.0 == 1000 && (990..=1000).contains(&epoll.1), "{epoll:?}");
    assert_eq!(epoll.2, Some(a));
    let poll = calls_of(&watch, pid, "poll");
    assert!(poll.0 == 2000 && (990..=1010).contains(&poll.1), "{poll:?}");
    assert_eq!(poll.2, Some(c));
    let select = if calls_of(&watch, pid, "select").0 > 0 { "select" } else { "pselect6" };
    let select = calls_of(&watch, pid, select);
    assert!(select.0 == 1000 && select.1 >= 990 && select.2 == Some(c), "{select:?}");
    assert_eq!(select.3, u64::try_from(c).unwrap() + 1);
    assert_eq!(calls_of(&watch, pid, "ioctl:SIOCOUTQ").0, 1000);
    assert!(calls_of(&watch, pid, "accept4").3 > 0);
    let with_socket = watch.events.iter().any(|event| {
        matches!(&event.what, What::Calls(calls) if calls.call == "ioctl:SIOCOUTQ" && calls.socket.is_some())
    });
    assert!(with_socket);
}

#[test]
fn the_socket_that_an_epoll_finds_ready_is_named() {
    const SCRIPT: &str = "
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname())
print(l.getsockname()[1], c.getsockname()[1], flush=True)
e = select.epoll()
e.register(c, select.EPOLLOUT)
while True: e.poll(); time.sleep(0.001)";
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    let pid = process.pid();
    let every = Duration::from_millis(50);
    let watch = Watch::start_with(Scope::Process(pid), Traced::Watched, every);
    let Some(mut watch) = watch else { return };
    process.go();
    let said = process.said();
    let (listens, connected) = said.split_once(' ').unwrap();
    let at = |port: &str| SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    let id = watch.until("the socket", |watch| watch.id(at(connected), at(listens)));
    watch.until("that it is what is ready", |watch| {
        let is_it = |event: &Event| {
            matches!(&event.what, What::Ready(ready)
                if ready.call == "epoll_wait" && ready.socket == Some(id))
        };
        watch.events.iter().any(is_it).then_some(())
    });
}

#[test]
fn nothing_is_left_behind() {
    // What has no file of bpffs lives as long as its descriptors.
    let held = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().contains("bpf")).count()
    };
    let windows =
        Traced::Windows { length: Duration::from_millis(100), every: Duration::from_millis(300) };
    let Some(mut watch) = Watch::start(Scope::Machine, windows) else { return };
    watch.look_for(Duration::from_secs(1));
    let is_call = |event: &Event| matches!(event.what, What::Calls(_));
    assert!(watch.events.iter().any(is_call), "a window shows calls");
    assert!(held() > 20);
    drop(watch);
    assert_eq!(held(), 0);
}

#[test]
fn events_that_are_not_read_in_time_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let Some(mut watch) = Watch::port(at.port()) else { return };
    // Each is told of more than ten times, and there is room for about 40,000 records.
    for _ in 0..6000 {
        let client = TcpStream::connect(at).unwrap();
        let (server, _) = listener.accept().unwrap();
        drop(client);
        drop(server);
    }
    let dropped = watch.until("a word of it", |watch| {
        watch.events.iter().find_map(|event| match event.what {
            What::Dropped { events } => Some(events),
            _ => None,
        })
    });
    let told = watch.told().len();
    assert!(dropped > 0 && told > 30_000, "{dropped} dropped, {told} told");
    // Afterwards all is told again.
    watch.look_for(Duration::from_millis(50));
    let client = TcpStream::connect(at).unwrap();
    let (local, peer) = names(&client);
    watch.until("the next one", |watch| watch.id(local, peer));
}

#[test]
fn a_subflow_of_mptcp_is_reported_as_one() {
    const SCRIPT: &str = "
try: l = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
except OSError:
    print(0, 0, flush=True)
    os._exit(0)
l.bind(('127.0.0.1', 0))
l.listen()
c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
c.connect(l.getsockname())
s, _ = l.accept()
c.send(b'1')
t = socket.create_server(('127.0.0.1', 0))
d = socket.create_connection(t.getsockname())
d.send(b'1')
print(l.getsockname()[1], t.getsockname()[1], flush=True)
sys.stdin.read(1)";
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    let every = Duration::from_millis(50);
    let watch = Watch::start_with(Scope::Process(process.pid()), Traced::Never, every);
    let Some(mut watch) = watch else { return };
    process.go();
    let said = process.said();
    if said == "0 0" {
        lastbyte_testing::not_tested!("this kernel has no MPTCP");
        return;
    }
    let (several, one) = said.split_once(' ').unwrap();
    let (several, one): (u16, u16) = (several.parse().unwrap(), one.parse().unwrap());
    // By the tables as well.
    watch.look_for(Duration::from_millis(300));
    let is_subflow = |port: u16| {
        let told = watch.events.iter().filter_map(|event| match &event.what {
            What::Socket(socket) if socket.peer.port() == port => Some(socket.subflow),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let (several, one) = (is_subflow(several), is_subflow(one));
    assert!(!several.is_empty() && several.iter().all(|is| *is), "{several:?}");
    assert!(!one.is_empty() && one.iter().all(|is| !*is), "{one:?}");
}

#[test]
fn other_sockets_leave_space_for_those_in_scope() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let strange = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(mut watch) = Watch::port(at.port()) else { return };
    // Each ends with a reset, of which is told more than five times: more than there is room for.
    for _ in 0..10_000 {
        let mut client = TcpStream::connect(strange.local_addr().unwrap()).unwrap();
        let (server, _) = strange.accept().unwrap();
        client.write_all(b"unread").unwrap();
        drop(server);
        drop(client);
    }
    let mut client = TcpStream::connect(at).unwrap();
    let (server, _) = listener.accept().unwrap();
    let (local, peer) = names(&server);
    client.write_all(b"unread").unwrap();
    wait_for_unread(&server, 6);
    drop(server);
    let id = watch.until("the socket", |watch| watch.id(local, peer));
    let closed = watch.until("its end", |watch| watch.changed(id, State::Close));
    assert_eq!(closed.counts.unwrap().unread(), 6);
    watch.until("the reset", |watch| watch.reset_sent(id));
    let told = watch.told();
    assert!(!told.iter().any(|what| matches!(what, What::Dropped { .. })));
    let of_strangers = told
        .iter()
        .filter(|what| matches!(what, What::ResetSent(reset) if reset.local.port() != at.port()));
    eprintln!("{} resets of strangers are told of", of_strangers.count());
}

#[test]
fn bytes_that_nagle_holds_back_are_timed() {
    if Kernel::look().is_ok() && !tells_io() {
        lastbyte_testing::not_tested!("this kernel tells of no writes");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let Some(mut watch) = Watch::port(at.port()) else { return };
    let mut client = TcpStream::connect(at).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (local, peer) = names(&client);
    let answers = std::thread::spawn(move || {
        let mut room = [0; 200];
        while server.read_exact(&mut room).is_ok() {
            server.write_all(b"1").unwrap();
        }
    });
    let began = Instant::now();
    for _ in 0..20 {
        // Two writes and a read: the second waits for the ACK of the first, which is delayed.
        client.write_all(&[1; 100]).unwrap();
        client.write_all(&[2; 100]).unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
    }
    let took = began.elapsed();
    drop(client);
    answers.join().unwrap();
    let id = watch.until("the socket", |watch| watch.id(local, peer));
    watch.until("all writes", |watch| (watch.io(id).writes == 40).then_some(()));
    let io = watch.io(id);
    let held = Duration::from_nanos(io.held_back_ns);
    eprintln!("{} held back, {held:?} of {took:?}", io.held_back);
    // In all the time nearly nothing else was waited for.
    assert!(io.held_back >= 10 && held <= took && held * 10 >= took * 8, "{io:?} {took:?}");
    // The server answered each of 20 questions, however often it read; who asked wrote after 19 answers.
    let server = watch.until("the server", |watch| watch.id(peer, local));
    watch.until("all answers", |watch| (watch.io(server).writes == 20).then_some(()));
    assert_eq!((watch.io(server).turns, io.turns), (20, 19));
}

#[test]
fn a_late_connection_and_one_that_is_given_up() {
    const SCRIPT: &str = "
l = socket.socket()
l.bind(('127.0.0.1', 0))
l.listen(0)
at = l.getsockname()
first = socket.create_connection(at)
late = socket.socket()
late.setblocking(False)
never = socket.socket()
never.setblocking(False)
try: late.connect(at)
except BlockingIOError: pass
try: never.connect(at)
except BlockingIOError: pass
print(*('%s:%d' % one.getsockname() for one in (l, late, never)), flush=True)
time.sleep(0.3)
never.close()
l.accept()
late.setblocking(True)
select.select([], [late], [])
sys.stdin.read(1)";
    let Some(mut watch) = Watch::machine() else { return };
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    process.go();
    let said = process.said();
    let addresses: Vec<SocketAddr> =
        said.split_whitespace().map(|address| address.parse().unwrap()).collect();
    let [server, late, never] = addresses[..] else { panic!("{said}") };
    let spent = |watch: &Watch, id: SocketId, to: State| {
        let at = |to: State| {
            watch.events.iter().find_map(|event| match &event.what {
                What::Changed(changed) if changed.socket == id && changed.to == to => {
                    Some(event.at_ns)
                }
                _ => None,
            })
        };
        Some(Duration::from_nanos(at(to)? - at(State::SynSent)?))
    };
    let never = watch.until("the one given up", |watch| watch.id(never, server));
    let waited = watch.until("its end", |watch| spent(watch, never, State::Close));
    assert!(waited >= Duration::from_millis(290) && waited < Duration::from_secs(1), "{waited:?}");
    let by = watch.changed(never, State::Close).unwrap().by;
    assert_eq!(by.map(|by| by.pid), Some(process.pid()));

    let late = watch.until("the late one", |watch| watch.id(late, server));
    let waited = watch.until("that it is there", |watch| spent(watch, late, State::Established));
    assert!(waited >= Duration::from_millis(900) && waited < LONG, "{waited:?}");
    let is_syn = |event: &Event| matches!(event.what, What::Retransmitted { socket, why: Again::Syn, .. } if socket == late);
    assert!(watch.events.iter().any(is_syn));
}

#[test]
fn a_connection_without_a_route_is_reported_if_calls_are_traced() {
    const SCRIPT: &str = "
import ctypes
ctypes.CDLL(None).unshare(0x40000000)
for family, to in ((socket.AF_INET, '192.0.2.1'), (socket.AF_INET6, '2001:db8::1')):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        try: socket.socket(family, kind).connect((to, 443))
        except OSError as error: print(error.errno, flush=True)
sys.stdin.read(1)";
    let Some(mut process) = KnownProcess::new(SCRIPT, "") else { return };
    let pid = process.pid();
    let Some(mut watch) = Watch::start(Scope::Process(pid), Traced::Watched) else { return };
    process.go();
    let told = watch.until("both", |watch| {
        let told = watch.events.iter().filter_map(|event| match &event.what {
            What::NotConnected { pid: of, peer, errno } if *of == pid => {
                Some((peer.to_string(), *errno))
            }
            _ => None,
        });
        Some(told.collect::<Vec<_>>()).filter(|told| told.len() >= 2)
    });
    // Without a route, and without an address of its own.
    let expected = [("192.0.2.1:443", 101), ("[2001:db8::1]:443", 99)];
    assert_eq!(told, expected.map(|(peer, errno)| (peer.to_owned(), errno)));
}
