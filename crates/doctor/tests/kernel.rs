//! Tier 3 against the running kernel. Needs root, and says so where it is lacking.

#![cfg(feature = "bpf")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says aloud what it leaves out"
)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use lastbyte_core::sample::State;
use lastbyte_doctor::event::{
    Changed, Counts, Ending, Io, Process, ResetSent, Role, Socket, SocketId,
};
use lastbyte_doctor::{Event, Observer, Plan, Scope, Tier, Traced, What};

/// One at a time: each sees all that happens on the machine.
static ALONE: Mutex<()> = Mutex::new(());
/// What is expected comes within this time, or not at all.
const LONG: Duration = Duration::from_secs(10);

/// An observer, and all that it has told so far.
struct Watch {
    observer: Observer,
    events: Vec<Event>,
    _alone: MutexGuard<'static, ()>,
}

impl Watch {
    /// `None`, with the reason said aloud, where tier 3 cannot be had.
    fn start(scope: Scope, traced: Traced) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let plan = Plan { scope, tier: Some(Tier::Bpf), traced, every: Duration::from_millis(100) };
        match Observer::start(&plan) {
            Ok((observer, _)) => Some(Self { observer, events: Vec::new(), _alone: alone }),
            Err(why) => {
                eprintln!("left out: {why}");
                assert!(lastbyte_sys::process::effective_user() != 0, "root is refused: {why}");
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
            What::ResetSent(reset) if reset.socket == Some(id) => Some(reset.clone()),
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
            }
        }
        sum
    }
}

/// Two ends of one connection, the connecting one first.
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
        assert_eq!(reset.reason.as_deref(), Some("TCP_ABORT_ON_CLOSE"));
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
    let about = |what: &&&What| match what {
        What::Socket(socket) => {
            // Tables see what is open as they look.
            addresses.contains(&(socket.local, socket.peer)) && false
        }
        What::Changed(_) | What::Gone { .. } | What::Io(_) | What::ResetSent(_) => true,
        _ => false,
    };
    let told = watch.told();
    let told: Vec<_> = told.iter().filter(about).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn everything_of_a_port_is_told() {
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
    let io = watch.io(id);
    assert_eq!((io.writes, io.written_bytes, io.tiny_writes), (10, 1000, 10));
    assert_eq!(watch.io(accepted.id).read_bytes, 1000);
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
    assert_eq!(
        reset.reason.as_deref(),
        Some("TCP_DISCONNECT_WITH_DATA").or(reset.reason.as_deref())
    );
    drop(server);

    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[1; 700]).unwrap();
    one.write_all(&[1; 77]).unwrap();
    (&other).read_exact(&mut [0; 70]).unwrap();
    drop(other);
    let found = watch.until("unread bytes", |watch| {
        watch.events.iter().find_map(|event| match &event.what {
            What::UnixUnread { by, bytes, .. } if by.pid == std::process::id() => Some(*bytes),
            _ => None,
        })
    });
    assert_eq!(found, 707);
}

/// A program of Python's that is gone at once.
fn python(script: &str, argument: &str) -> Option<Child> {
    let child = Command::new("python3").args(["-c", script, argument]).stdin(Stdio::null()).spawn();
    if child.is_err() {
        eprintln!("left out: there is no python3");
    }
    child.ok()
}

#[test]
fn a_short_life_is_told_whole() {
    const SCRIPT: &str = "import os, socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.sendall(b'x' * 100)
s.recv(1)
os._exit(3)";
    let Some(mut watch) = Watch::machine() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(mut child) = python(SCRIPT, &port.to_string()) else { return };
    let (mut server, _) = listener.accept().unwrap();
    let (local, peer) = names(&server);
    wait_for_unread(&server, 100);
    server.write_all(b"123").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let id = watch.until("the socket", |watch| watch.id(peer, local));
    let closed = watch.until("its end", |watch| watch.changed(id, State::Close));
    let by = closed.by.unwrap();
    assert_eq!((by.pid, by.ending), (child.id(), Some(Ending::Exit(3))));
    assert_eq!(closed.counts.unwrap().unread(), 2);
    let process = watch.until("the process", |watch| watch.process(child.id()));
    assert!(process.name.starts_with("python3"), "{process:?}");
    assert!(process.command.contains("create_connection"), "{process:?}");
    let ending = watch.until("its ending", |watch| watch.exited(child.id()));
    assert_eq!(ending, Ending::Exit(3));
}
