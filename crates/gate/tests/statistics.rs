//! What a gate counts: the same as its accounts say, and as it happens.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use lastbyte_core::account::{Account, How, Party, Traffic};
use lastbyte_gate::View;
use lastbyte_sys::socket;

use crate::support::{LONG, address, ask, config, connect, echo, route, start};

/// The sum over all routes; of a histogram, how many.
fn total(view: &View, name: &str) -> u64 {
    let text = view.statistics().find(name).unwrap().total().to_string();
    let count = text.strip_prefix("count ").and_then(|rest| rest.split(',').next());
    count.unwrap_or(&text).parse().unwrap()
}

#[track_caller]
fn comes_to(view: &View, name: &str, expected: u64) {
    let until = Instant::now() + LONG;
    while total(view, name) != expected {
        assert!(Instant::now() < until, "{name} is {}", total(view, name));
        thread::yield_now();
    }
}

/// Sends so many bytes, reads them back, and ends.
fn exchange(at: SocketAddr, bytes: usize) {
    let mut stream = connect(at);
    let mut writer = stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        writer.write_all(&vec![7; bytes]).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert_eq!(back.len(), bytes);
}

fn reset(stream: TcpStream) {
    socket::set_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
}

/// A server that reads a byte, and resets.
fn resetting() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0]);
            reset(stream);
        }
    });
    address
}

/// What the accounts say, by the names of statistics.
fn sums_of(accounts: &[Account]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let mut add = |name: String, count: u64| *sums.entry(name).or_default() += count;
    for account in accounts {
        add("flows_accepted".to_owned(), 1);
        add("flow_seconds".to_owned(), 1);
        add("flows_complete".to_owned(), account.is_complete().into());
        for how in How::ALL {
            let is_how = account.ended.how == how;
            add(format!("flows_ended_{}", how.word()), is_how.into());
        }
        let by = |party| account.ended.how == How::Reset && account.ended.by == party;
        add("resets_by_client".to_owned(), by(Party::Client).into());
        add("resets_by_upstream".to_owned(), by(Party::Upstream).into());
        for (way, traffic) in [("up", &account.up), ("down", &account.down)] {
            let Traffic { received, written, acked, .. } = *traffic;
            add(format!("{way}_received_bytes"), received);
            add(format!("{way}_written_bytes"), written);
            add(format!("{way}_acked_bytes"), acked.unwrap_or_default());
        }
        add("connect_seconds".to_owned(), account.upstream.is_some().into());
    }
    sums
}

#[test]
fn the_totals_are_those_of_the_accounts() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let routes = [route("echo", echo(1)), route("cut", resetting()), route("refused", nobody)];
    let (gate, said) = start(config(routes, 2));
    let places: Vec<_> = gate.listening().iter().map(|place| place.address).collect();
    let [good, cut, refused] = places[..] else { panic!("{places:?}") };
    for round in 0..20 {
        exchange(good, round * 10_007);
        let mut client = connect(cut);
        client.write_all(&[1]).unwrap();
        assert!(client.read(&mut [0]).is_err(), "it is reset");
        // The reset may be there before the client has seen that it is connected.
        let client = TcpStream::connect(refused);
        assert!(client.and_then(|mut client| client.read(&mut [0])).is_err(), "it is reset");
        let mut client = connect(good);
        assert_eq!(ask(&mut client, 1), 2);
        reset(client);
    }
    // These end because the gate does, in the middle.
    let mut open: Vec<_> = (0..3).map(|_| connect(good)).collect();
    for client in &mut open {
        assert_eq!(ask(client, 1), 2);
    }
    let view = gate.view();
    comes_to(&view, "flows_open", 3);
    gate.stop();
    let _ = gate.wait();
    let accounts = said.accounts(83);
    assert_eq!(accounts.len(), 83);
    for (name, sum) in sums_of(&accounts) {
        assert_eq!(total(&view, &name), sum, "{name}");
    }
    for (name, expected) in [
        ("flows_complete", 20),
        ("flows_ended_refused", 20),
        ("resets_by_client", 20),
        ("resets_by_upstream", 20),
        ("flows_ended_stopped", 3),
        ("flows_open", 0),
        ("workers", 0),
    ] {
        assert_eq!(total(&view, name), expected, "{name}");
    }
}

#[test]
fn bytes_are_counted_while_a_flow_goes_on() {
    let (gate, said) = start(config([route("db", echo(1))], 1));
    let view = gate.view();
    let mut client = connect(address(&gate));
    for turn in 1..=100 {
        assert_eq!(ask(&mut client, 1), 2);
        comes_to(&view, "down_written_bytes", turn);
        assert_eq!(total(&view, "up_received_bytes"), turn);
    }
    assert_eq!(total(&view, "flow_seconds"), 0, "it has not ended");
    let flow = gate.flows().remove(0);
    assert_eq!((flow.moved.up.written, flow.moved.down.written), (100, 100));
    assert_eq!(flow.wanted.unwrap(), flow.upstream.unwrap().to_string());
    drop(client);
    let account = said.accounts(1).remove(0);
    assert_eq!(account.up.received, 100);
    assert_eq!(total(&view, "up_received_bytes"), 100, "not counted twice");
}

#[test]
fn a_route_that_stays_goes_on_counting_and_one_that_goes_is_not_lost() {
    let target = echo(1);
    let (gate, said) = start(config([route("a", target), route("b", target)], 1));
    let view = gate.view();
    for place in gate.listening() {
        exchange(place.address, 10);
    }
    said.accounts(2);
    gate.reload(config([route("a", echo(2))], 1)).unwrap();
    assert!(gate.reload(config([], 1)).is_ok());
    assert_eq!((total(&view, "reloads"), total(&view, "up_received_bytes")), (2, 20));
}
