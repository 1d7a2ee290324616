//! A gate that runs: its flows are shared out, its routes change under them, and it ends as told.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use lastbyte_core::account::{Account, How};
use lastbyte_gate::config::Route;
use lastbyte_gate::{Accounts, Gate, Notice, Notices, StartError};

use crate::support::{self, LONG, SECOND, address, ask, config, connect, echo, route, start};

#[test]
fn flows_that_stay_are_shared_out_evenly() {
    let (gate, said) = start(config([route("db", echo(1))], 2));
    let mut clients: Vec<_> = (0..8).map(|_| connect(address(&gate))).collect();
    for client in &mut clients {
        assert_eq!(ask(client, 1), 2);
    }
    let flows = gate.flows();
    let of_first = flows.iter().filter(|flow| flow.worker == 0).count();
    assert_eq!((flows.len(), of_first), (8, 4), "{flows:?}");
    let mut peers: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
    let mut listed: Vec<_> = flows.iter().map(|flow| flow.client).collect();
    peers.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, peers);
    drop(clients);
    let mut numbers: Vec<_> = said.accounts(8).iter().map(|account| account.flow).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(gate.flows().is_empty());
}

#[test]
fn flows_keep_their_route_and_new_ones_take_the_new_one() {
    let (gate, _said) = start(config([route("db", echo(1))], 2));
    let at = address(&gate);
    let mut old = connect(at);
    assert_eq!(ask(&mut old, 1), 2);
    let changes = gate.reload(config([route("db", echo(2)), route("web", echo(3))], 2)).unwrap();
    assert_eq!((changes.added, changes.changed), (vec!["web".into()], vec!["db".into()]));
    assert_eq!(address(&gate), at, "it keeps its port");
    assert_eq!(ask(&mut connect(at), 1), 3);
    let web = gate.listening()[1].address;
    let mut flow = connect(web);
    assert_eq!(ask(&mut flow, 1), 4);
    let changes = gate.reload(config([route("db", echo(2))], 3)).unwrap();
    assert_eq!((changes.removed, changes.ignored), (vec!["web".into()], vec!["workers"]));
    closes(web);
    assert_eq!(ask(&mut flow, 1), 4, "its flow lives on");
    assert_eq!(ask(&mut old, 1), 2);
}

#[test]
fn no_connection_is_lost_while_routes_change() {
    let target = echo(1);
    let (gate, _said) = start(config([route("db", target)], 2));
    let at = address(&gate);
    let (answered, answers) = mpsc::sync_channel(0);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let answered = answered.clone();
            thread::spawn(move || {
                // Until nobody counts any more.
                loop {
                    assert_eq!(ask(&mut connect(at), 7), 8);
                    if answered.send(()).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    for round in 0..50 {
        let mut db = route("db", target);
        db.client.tune.nodelay = (round % 2 == 0).then_some(true);
        db.client.tune.receive_buffer = (round % 3 == 0).then_some(65_536);
        let others = (round % 2 == 0).then(|| route("web", target));
        gate.reload(config([db].into_iter().chain(others), 2)).unwrap();
        answers.recv_timeout(LONG).unwrap();
    }
    drop(answers);
    for client in clients {
        client.join().unwrap();
    }
}

/// Takes an account only when it is let.
struct Slow {
    entering: mpsc::SyncSender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Accounts for Slow {
    fn enter(&self, _: Account) {
        let _ = self.entering.try_send(());
        let _ = self.go_on.lock().unwrap().recv();
    }
}

impl Notices for Slow {
    fn notice(&self, _: Notice) {}
}

/// A gate of one worker, which stands still, and ten clients that wait to be accepted.
fn standing_still() -> (Gate, mpsc::Sender<()>, Vec<TcpStream>) {
    let (entering, entered) = mpsc::sync_channel(1);
    let (let_go, go_on) = mpsc::channel();
    let slow = Arc::new(Slow { entering, go_on: Mutex::new(go_on) });
    let gate = Gate::start(config([route("db", echo(1))], 1), slow.clone(), slow).unwrap();
    assert_eq!(ask(&mut connect(address(&gate)), 1), 2);
    entered.recv_timeout(LONG).unwrap();
    let waiting = (0..10).map(|_| connect(address(&gate))).collect();
    (gate, let_go, waiting)
}

#[test]
fn what_waits_is_served_when_its_route_goes() {
    let (gate, let_go, waiting) = standing_still();
    let at = address(&gate);
    gate.reload(config([route("web", echo(2))], 1)).unwrap();
    drop(let_go);
    for mut client in waiting {
        assert_eq!(ask(&mut client, 1), 2);
    }
    closes(at);
}

#[test]
fn what_waits_is_served_when_the_gate_drains() {
    let (gate, let_go, waiting) = standing_still();
    let at = address(&gate);
    gate.drain(LONG);
    drop(let_go);
    for mut client in waiting {
        assert_eq!(ask(&mut client, 1), 2);
    }
    closes(at);
    let totals = gate.wait();
    assert!(totals.finished >= 10 && totals.reset == 0, "{totals:?}");
}

#[test]
fn what_cannot_be_had_changes_nothing() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let target = echo(1);
    let (gate, _said) = start(config([route("db", target)], 2));
    let listening = gate.listening();
    let mut flow = connect(address(&gate));
    assert_eq!(ask(&mut flow, 1), 2);
    let at = |name: &str, listen: SocketAddr| Route { listen, ..route(name, echo(9)) };
    let new = at("new", free);
    let in_use = at("taken", taken.local_addr().unwrap());
    let mut unknown = route("db", echo(9));
    unknown.client.tune.congestion = Some("no-such-thing".to_owned());
    let mut multipath = route("db", echo(9));
    multipath.client.mptcp = true;
    for (wrong, text) in [
        (in_use, "route taken: listen"),
        (unknown, "route db: set TCP_CONGESTION"),
        (multipath, "route db: mptcp cannot be changed while the gate runs"),
    ] {
        let error = gate.reload(config([new.clone(), wrong], 2)).unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!(gate.listening(), listening);
        refuses(free);
        assert_eq!(ask(&mut connect(address(&gate)), 1), 2);
    }
    assert_eq!(ask(&mut flow, 1), 2);
    // Nor does it begin with that.
    let said = Arc::new(support::Said::default());
    let in_use = at("taken", taken.local_addr().unwrap());
    let error = Gate::start(config([new, in_use], 2), said.clone(), said).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    refuses(free);
}

#[test]
fn a_gate_that_drains_waits_for_its_flows() {
    let (gate, said) = start(config([route("db", echo(1))], 2));
    let at = address(&gate);
    let mut flow = connect(at);
    assert_eq!(ask(&mut flow, 1), 2);
    gate.drain(Duration::MAX);
    closes(at);
    assert!(matches!(gate.reload(config([], 2)), Err(StartError::Stopping)));
    assert!(!gate.ended(Duration::from_millis(50)));
    assert_eq!(ask(&mut flow, 2), 3, "its flow goes on");
    drop(flow);
    assert!(gate.ended(LONG));
    let totals = gate.wait();
    assert!(totals.finished >= 1 && totals.reset == 0, "{totals:?}");
    assert_ne!(said.accounts(1)[0].ended.how, How::Stopped);
}

#[test]
fn what_has_not_ended_at_the_limit_is_reset() {
    let (gate, said) = start(config([route("db", echo(1))], 2));
    let mut flows: Vec<_> = (0..5).map(|_| connect(address(&gate))).collect();
    for flow in &mut flows {
        assert_eq!(ask(flow, 1), 2);
    }
    gate.drain(Duration::from_millis(100));
    assert!(gate.ended(LONG));
    for flow in &mut flows {
        is_reset(flow);
    }
    let totals = gate.wait();
    assert_eq!((totals.finished, totals.reset), (0, 5));
    assert!(said.accounts(5).iter().all(|account| account.ended.how == How::Stopped));
}

#[test]
fn a_gate_that_is_stopped_or_dropped_resets_its_flows() {
    for stop in [Gate::stop as fn(&Gate), |gate| gate.drain(Duration::ZERO), |_| {}] {
        let (gate, said) = start(config([route("db", echo(1))], 2));
        let at = address(&gate);
        let mut flow = connect(at);
        assert_eq!(ask(&mut flow, 1), 2);
        stop(&gate);
        drop(gate);
        is_reset(&mut flow);
        assert_eq!(said.accounts(1)[0].ended.how, How::Stopped);
        refuses(at);
    }
}

/// Nobody listens there.
fn refuses(at: SocketAddr) {
    let error = TcpStream::connect_timeout(&at, SECOND).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{at}");
}

/// Soon nobody listens there. While it closes each of two workers accepts up to 4,096 connections more, and
/// as many may wait in the queue: on a busy machine these attempts may be among them.
fn closes(at: SocketAddr) {
    for _ in 0..3 * 4_096 {
        if TcpStream::connect_timeout(&at, SECOND).is_err() {
            return;
        }
        thread::yield_now();
    }
    panic!("{at} is still listened on");
}

fn is_reset(flow: &mut TcpStream) {
    let error = flow.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
