//! Tier 1 over the real kernel: sockets of this process, of children, of other namespaces.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lastbyte_core::sample::State;
use lastbyte_doctor::event::{Event, Role, Sample, Scope, SocketId, Tier, What};
use lastbyte_doctor::{Observer, Plan, Traced};

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
