//! Tier 1 over the real kernel: sockets of this process, of children, of other namespaces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lastbyte_core::sample::State;
use lastbyte_doctor::event::{Ending, Event, Role, Sample, Scope, SocketId, Tier, What};
use lastbyte_doctor::{ObserveError, Observer, Plan, Roots, Traced};
use lastbyte_sys::netlink::Interface;
use lastbyte_sys::{namespace, socket as options};
use lastbyte_testing::this_test;

const SECOND: Duration = Duration::from_secs(1);

fn plan(scope: Scope) -> Plan {
    Plan {
        scope,
        tier: Some(Tier::Procfs),
        traced: Traced::Never,
        every: Duration::from_millis(100),
    }
}

/// Watches until all is seen that is waited for.
fn until(observer: &mut Observer, events: &mut Vec<Event>, mut seen: impl FnMut(&[Event]) -> bool) {
    let end = Instant::now() + 20 * SECOND;
    while !seen(events) {
        assert!(Instant::now() < end, "{events:#?}");
        observer.take(SECOND, &mut |event| events.push(event)).unwrap();
    }
}

/// The socket of these ports.
fn socket(events: &[Event], local: u16, peer: u16) -> Option<SocketId> {
    events.iter().find_map(|event| match &event.what {
        What::Socket(one) if (one.local.port(), one.peer.port()) == (local, peer) => Some(one.id),
        _ => None,
    })
}

fn samples(events: &[Event], id: Option<SocketId>) -> impl DoubleEndedIterator<Item = &Sample> {
    events.iter().filter_map(move |event| match &event.what {
        What::Sample(sample) if Some(sample.socket) == id => Some(&**sample),
        _ => None,
    })
}

fn is_gone(events: &[Event], id: Option<SocketId>) -> bool {
    let is = |event: &Event| matches!(event.what, What::Gone { socket, .. } if Some(socket) == id);
    events.iter().any(is)
}

#[test]
fn own_sockets_come_are_held_change_and_go() {
    let (mut observer, shortfalls) =
        Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    assert_eq!((observer.tier(), shortfalls.len()), (Tier::Procfs, 0));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    client.write_all(&[7; 5000]).unwrap();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| {
        let server = socket(events, port, peer.port());
        samples(events, server).any(|sample| sample.receive_queue == 5000)
            && samples(events, server).count() >= 2
    });
    assert!(matches!(&events[0].what, What::Began(began) if began.tier == Tier::Procfs));
    let accepted = socket(&events, port, peer.port());
    let connected = socket(&events, peer.port(), port);
    let role = |id| {
        events.iter().find_map(|event| match &event.what {
            What::Socket(socket) if Some(socket.id) == id => Some(socket.role),
            _ => None,
        })
    };
    assert_eq!(role(accepted), Some(Role::Accepted));
    assert_eq!(role(socket(&events, port, 0)), Some(Role::Listens));
    for (id, fd) in [(accepted, &server), (connected, &client)] {
        let raw = std::os::fd::AsRawFd::as_raw_fd(fd);
        let holds = |event: &Event| {
            matches!(&event.what, What::Holds { socket, pid, fd }
            if Some(*socket) == id && *pid == std::process::id() && *fd == Some(raw))
        };
        assert!(events.iter().any(holds));
    }
    let last = samples(&events, accepted).next_back().unwrap();
    assert!(last.held && last.info.parse().unwrap().bytes_received == Some(5000), "{last:?}");
    server.read_exact(&mut [0; 5000]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let waits = |event: &Event| {
        matches!(&event.what, What::Changed(changed)
            if Some(changed.socket) == accepted && changed.to == State::CloseWait)
    };
    until(&mut observer, &mut events, |events| events.iter().any(waits));
    drop((client, server, listener));
    until(&mut observer, &mut events, |events| {
        is_gone(events, accepted) && is_gone(events, connected)
    });
    let times: Vec<u64> = events.iter().map(|event| event.at_ns).collect();
    assert!(times[1..].iter().all(|at| *at >= times[0]));
}

/// Runs the test whose thread this is in another process, with the variable set.
fn again(variable: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &this_test(), "--nocapture", "--include-ignored"]).env(variable, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

#[test]
fn children_are_followed_with_their_sockets_to_their_end() {
    const CHILD: &str = "LASTBYTE_TEST_CHILD";
    if let Some(port) = std::env::var_os(CHILD) {
        // Connects, and ends when it is told to.
        let port: u16 = port.to_str().unwrap().parse().unwrap();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::io::stdin().read_exact(&mut [0]).unwrap();
        std::process::exit(3);
    }
    let (mut observer, _) = Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut child = again(CHILD).env(CHILD, port.to_string()).spawn().unwrap();
    let peer = listener.accept().unwrap().1;
    let pid = child.id();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| {
        let id = socket(events, peer.port(), port);
        events.iter().any(|event| {
            matches!(&event.what, What::Holds { socket, pid: holder, .. }
            if Some(*socket) == id && *holder == pid)
        })
    });
    let process = |event: &Event| match &event.what {
        What::Process(process) if process.pid == pid => Some(process.clone()),
        _ => None,
    };
    let seen = events.iter().filter_map(process).next_back().unwrap();
    assert_eq!(seen.parent, std::process::id());
    assert!(seen.command.contains("children_are_followed"), "{seen:?}");
    assert!(seen.user.is_some() && seen.network.is_some());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    // Not collected yet, it still says how it ended.
    let ended = |event: &Event| match event.what {
        What::Exited { pid: one, ending } if one == pid => Some(ending),
        _ => None,
    };
    until(&mut observer, &mut events, |events| events.iter().any(|event| ended(event).is_some()));
    assert_eq!(events.iter().find_map(ended), Some(Ending::Exit(3)));
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// Gives this thread a network of its own, not its process; or says why not.
fn has_own_network() -> bool {
    if let Err(error) = namespace::unshare_network() {
        lastbyte_testing::not_tested!("a network namespace: {error}");
        return false;
    }
    Interface::named("lo").unwrap().set_up().unwrap();
    true
}

#[test]
fn another_network_namespace_is_observed() {
    const CHILD: &str = "LASTBYTE_TEST_NAMESPACE";
    if std::env::var_os(CHILD).is_some() {
        if !has_own_network() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        eprintln!("there {port} {}", lastbyte_host::namespace::current().unwrap());
        std::io::stdin().read_exact(&mut [0]).unwrap();
        return;
    }
    let mut child = again(CHILD).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let Some(rest) = line.trim().strip_prefix("there ") else {
        eprintln!("{line}");
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    };
    let (port, network) = rest.split_once(' ').unwrap();
    let (port, network): (u16, u64) = (port.parse().unwrap(), network.parse().unwrap());
    let (mut observer, _) = Observer::start(&plan(Scope::Process(child.id()))).unwrap();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| {
        events.iter().any(|event| {
            matches!(&event.what, What::Socket(socket)
            if socket.role == Role::Accepted && socket.local.port() == port
                && socket.network == Some(network))
        })
    });
    drop(child.stdin.take());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(observer.blind().is_empty(), "{:?}", observer.blind());
}

#[test]
fn a_connection_that_comes_as_its_listener_goes_is_seen_at_the_next_scan() {
    let (give, taken) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let inside = std::thread::spawn(move || {
        if !has_own_network() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        give.send((address.port(), None)).unwrap();
        gone.recv().unwrap();
        // As many sockets as before: one end stays, and the listener goes.
        let client = TcpStream::connect(address).unwrap();
        let server = listener.accept().unwrap().0;
        options::set_linger(&server, Some(Duration::ZERO)).unwrap();
        drop(server);
        drop(listener);
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        give.send((other.local_addr().unwrap().port(), Some(client))).unwrap();
        let _ = gone.recv();
    });
    let Ok((port, _)) = taken.recv() else { return };
    let (mut observer, _) = Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| socket(events, port, 0).is_some());
    let looks = observer.looks();
    while observer.looks() < looks + 3 {
        observer.take(SECOND, &mut |event| events.push(event)).unwrap();
    }
    go.send(()).unwrap();
    let (later, client) = taken.recv().unwrap();
    let looks = observer.looks();
    until(&mut observer, &mut events, |events| socket(events, later, 0).is_some());
    assert!(observer.looks() <= looks + 2, "{} {looks}", observer.looks());
    drop((client, go));
    inside.join().unwrap();
}

#[test]
fn a_namespace_without_threads_is_observed_while_there_are_sockets() {
    let (give, made) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let inside = std::thread::spawn(move || {
        if !has_own_network() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        give.send((client, server)).unwrap();
        let _ = ended.recv();
    });
    let Ok((client, server)) = made.recv() else { return };
    let (mut observer, _) = Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    let mut events = Vec::new();
    let ports = (client.local_addr().unwrap().port(), server.local_addr().unwrap().port());
    until(&mut observer, &mut events, |events| socket(events, ports.0, ports.1).is_some());
    let id = socket(&events, ports.0, ports.1);
    drop(end);
    inside.join().unwrap();
    let ticks = |events: &[Event]| events.iter().filter(|one| one.what == What::Tick).count();
    let before = ticks(&events);
    until(&mut observer, &mut events, |events| ticks(events) > before + 10);
    assert!(!is_gone(&events, id));
    drop((client, server));
    until(&mut observer, &mut events, |events| is_gone(events, id));
}

#[test]
fn a_connection_between_two_scans_is_reported_with_its_final_values() {
    let (mut observer, _) = Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| socket(events, port, 0).is_some());
    if !observer.blind().is_empty() {
        lastbyte_testing::not_tested!("{:?}", observer.blind());
        return;
    }
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, peer) = listener.accept().unwrap();
    client.write_all(&[0; 4321]).unwrap();
    // With all of it unread: a reset.
    drop((server, client));
    until(&mut observer, &mut events, |events| is_gone(events, socket(events, port, peer.port())));
    let id = socket(&events, port, peer.port());
    let last = samples(&events, id).next_back().unwrap();
    assert_eq!((last.state, last.receive_queue), (State::Close, 4321), "{last:?}");
    assert_eq!(last.info.parse().unwrap().bytes_received, Some(4321));
    let holds = |event: &Event| {
        matches!(&event.what, What::Holds { socket, pid, .. }
        if Some(*socket) == id && *pid == std::process::id())
    };
    assert!(events.iter().any(holds));
}

#[test]
fn fixed_buffers_are_reported() {
    let (mut observer, _) = Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (_server, peer) = listener.accept().unwrap();
    options::set_send_buffer(&client, 65_536).unwrap();
    if let Err(error) = options::buffer_lock(&client) {
        lastbyte_testing::not_tested!("SO_BUF_LOCK needs Linux 5.14: {error}");
        return;
    }
    client.write_all(&[0; 10_000]).unwrap();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| {
        let id = socket(events, peer.port(), port);
        samples(events, id).any(|sample| sample.locks == Some(1))
    });
}

#[test]
fn nobody_sees_their_own() {
    const CHILD: &str = "LASTBYTE_TEST_NOBODY";
    if std::env::var_os(CHILD).is_none() {
        if lastbyte_sys::process::effective_user() != 0 {
            lastbyte_testing::not_tested!("only root can become nobody");
            return;
        }
        // Where nobody can reach it.
        let copy = std::env::temp_dir().join(format!("lastbyte-nobody-{}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let mut command = Command::new(&copy);
        command.args(["--exact", &this_test(), "--nocapture"]).env(CHILD, "1");
        let run = command.uid(65_534).gid(65_534).current_dir("/").output();
        std::fs::remove_file(&copy).unwrap();
        let run = run.unwrap();
        let [out, said] =
            [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(run.status.success() && out.contains("1 passed"), "{said}{out}");
        return;
    }
    // Process 1 is another user's: all that it has open is hidden.
    let first = Plan { tier: None, ..plan(Scope::Process(1)) };
    let Err(ObserveError::Unavailable(why)) = Observer::start(&first) else { panic!() };
    assert!(why.contains("process 1 "), "{why}");
    Observer::start(&Plan { scope: Scope::Process(std::process::id()), ..first }).unwrap();
    let any = Plan { tier: None, ..plan(Scope::Machine) };
    let (mut observer, shortfalls) = Observer::start(&any).unwrap();
    let tiers: Vec<Tier> = shortfalls.iter().map(|shortfall| shortfall.tier).collect();
    assert_eq!((observer.tier(), tiers), (Tier::Procfs, vec![Tier::Bpf, Tier::Tracefs]));
    for shortfall in &shortfalls {
        eprintln!("{:?}: {}. It would add {}.", shortfall.tier, shortfall.why, shortfall.adds);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut events = Vec::new();
    until(&mut observer, &mut events, |events| {
        let id = socket(events, port, 0);
        events.iter().any(|event| {
            matches!(&event.what, What::Holds { socket, pid, .. }
            if Some(*socket) == id && *pid == std::process::id())
        })
    });
    eprintln!("{:?}", observer.blind());
    assert!(!observer.blind().is_empty());
}

#[test]
fn a_missing_tier_is_named_and_the_next_one_used() {
    // A /sys without anything, and a /proc of another kernel.
    let folder = std::env::temp_dir().join(format!("lastbyte-roots-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("proc/sys/kernel")).unwrap();
    std::fs::write(folder.join("proc/sys/kernel/osrelease"), "4.14.1\n").unwrap();
    let start = |proc: &str| {
        let roots = Roots { proc: proc.into(), sys: folder.join("sys"), refused: Vec::new() };
        let any = Plan { tier: None, ..plan(Scope::Machine) };
        let (mut observer, shortfalls) = Observer::start_in(&any, &roots).unwrap();
        let mut kernel = String::new();
        let mut first = |event: Event| {
            if let What::Began(began) = event.what {
                kernel = began.kernel;
            }
        };
        observer.take(Duration::ZERO, &mut first).unwrap();
        assert_eq!(observer.tier(), Tier::Procfs);
        let why: Vec<String> = shortfalls.into_iter().map(|shortfall| shortfall.why).collect();
        (why, kernel)
    };
    let old = start(folder.join("proc").to_str().unwrap());
    let here = start("/proc");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(old.1, "4.14.1");
    assert!(old.0[0].contains("too old"), "{old:?}");
    assert!(old.0[1].contains("tracefs is not mounted"), "{old:?}");
    eprintln!("{here:?}");
    assert!(here.0[0] != old.0[0] && here.0.len() == 2, "{here:?}");
}

#[test]
fn counters_that_grew_in_the_last_second_are_reported_at_the_end() {
    let (mut observer, _) = Observer::start(&plan(Scope::Process(std::process::id()))).unwrap();
    let mut events = Vec::new();
    observer.take(Duration::ZERO, &mut |event| events.push(event)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.write_all(b"unread").unwrap();
    drop(server);
    // It is counted by the time that the peer knows of it.
    assert!(client.read(&mut [0]).is_err());
    observer.take_last(&mut |event| events.push(event)).unwrap();
    let has_grown = |event: &Event| {
        matches!(&event.what, What::Counters(counters)
        if counters.aborts_on_close >= 1 && counters.established_resets >= 1)
    };
    assert!(events.iter().any(has_grown), "{events:#?}");
}
