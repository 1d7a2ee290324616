//! Gates that lead to themselves and to each other: what goes round comes to an end, and other routes of
//! the same gates are served.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::requests::{http, socks5_by_name};
use super::streams::{PingPong, assert_reset, connect, echo, receive};
use crate::support::gate::{Gate, asked, open_descriptors, stat};
use crate::support::{LATER, Scratch, answer, holds_within};

/// Flows of one client from which on hops are counted, and the hops that a connection begins with.
const SUSPICIOUS: usize = 256;
const HOPS: usize = 64;

#[test]
fn two_gates_that_lead_to_each_other_end_the_circle() {
    let scratches = [Scratch::new(), Scratch::new()];
    let echo = echo();
    // Each has to know where the other one listens.
    let files = scratches.each_ref().map(|at| at.file("gate.toml", file(echo, echo, "")));
    let gates = [0, 1].map(|own| Gate::with_file(&scratches[own], &files[own]));
    let places = gates.each_ref().map(|gate| gate.address("circle"));
    for own in [0, 1] {
        scratches[own].file("gate.toml", file(places[1 - own], echo, ""));
        gates[own].signal("HUP");
        gates[own].says("reloaded");
    }
    let before = gates.each_ref().map(|gate| open_descriptors(gate.pid()));
    let neighbour = PingPong::start(gates[0].address("other"));
    let began = Instant::now();
    assert_eq!(assert_reset(receive(&connect(places[0]), 0, 1)), 0);
    let took = began.elapsed();
    let tally = ended(scratches.iter().zip(&gates), &[before[0] + 2, before[1]]);
    eprintln!("two gates: {tally:?}, over after {took:?}; meanwhile {}", neighbour.end());
    assert_eq!(tally["loop"], 1, "{tally:?}");
    let flows: usize = tally.values().sum();
    // Each of the two counts its own flows.
    assert!(flows <= 2 * (SUSPICIOUS + HOPS), "{tally:?}");
}

#[test]
fn a_circle_through_another_proxy_is_bounded_by_the_flows_of_a_client() {
    const MOST: usize = 100;
    let scratch = Scratch::new();
    let echo = echo();
    let limits = format!("limits = {{ flows_per_client = {MOST} }}\n");
    let name = scratch.file("gate.toml", file(echo, echo, &limits));
    let gate = Gate::with_file(&scratch, &name);
    let place = gate.address("circle");
    scratch.file("gate.toml", file(other_proxy(place), echo, &limits));
    gate.signal("HUP");
    gate.says("reloaded");
    let before = open_descriptors(gate.pid());
    let began = Instant::now();
    let mut client = connect(place);
    let _ = client.read(&mut [0]);
    drop(client);
    let took = began.elapsed();
    let tally = ended([(&scratch, &gate)], &[before]);
    eprintln!("through another proxy: {tally:?}, over after {took:?}");
    assert_eq!(tally["too_many_of_client"], 1, "{tally:?}");
    assert_eq!(tally.values().sum::<usize>(), MOST + 1, "{tally:?}");
}

#[test]
fn a_gate_does_not_connect_to_itself() {
    let scratch = Scratch::new();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = held.local_addr().unwrap();
    // What can be seen is told before it starts.
    for target in [own.to_string(), format!("localhost:{}", own.port())] {
        let words = [&format!("{own}={target}")];
        let told = answer(&mut asked(&scratch, &words.map(String::as_str)));
        eprintln!("{target}: {}", told.stderr.trim());
        assert!(told.with_code(2).stderr.contains("it leads back to itself"));
    }
    let words = ["socks5://0", "--log", "json"];
    let gate = Gate::start(&scratch, &words);
    let own = gate.listening();
    for host in ["localhost", "127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1"] {
        let mut client = connect(own);
        client.write_all(&socks5_by_name(host, own.port())).unwrap();
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).unwrap();
        assert!(reply.len() > 4 && reply[3] != 0, "{host}: {reply:?}");
    }
    let accounts = gate.accounts(4);
    assert_eq!(accounts.len(), 4, "no flow came of a flow: {accounts:#?}");
    for account in &accounts {
        assert_eq!((&account["ended_by"], &account["ended_how"]), (&"gate".into(), &"loop".into()));
    }
    eprintln!("itself: {} {}", accounts[0]["ended_how"], accounts[0]["ended_detail"]);
    drop(gate);

    let gate = Gate::start(&scratch, &["http-connect://0", "--log", "json"]);
    let mut client = connect(gate.listening());
    client.write_all(&http(gate.listening())).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains(" 200 "), "{answer}");
    assert_eq!(gate.accounts(1)[0]["ended_how"], "loop");
}

fn file(to: SocketAddr, echo: SocketAddr, limits: &str) -> String {
    format!(
        "workers = 2\n{limits}[[route]]\nname = 'circle'\nlisten = '0'\nforward = '{to}'\n\
         [[route]]\nname = 'other'\nlisten = '0'\nforward = '{echo}'\n"
    )
}

/// Once all is over: how often flows of the circle ended in each way.
#[track_caller]
fn ended<'a>(
    gates: impl IntoIterator<Item = (&'a Scratch, &'a Gate)>,
    descriptors: &[usize],
) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for ((scratch, gate), descriptors) in gates.into_iter().zip(descriptors) {
        let is_back = || open_descriptors(gate.pid()) == *descriptors;
        let is_back = holds_within(LATER, is_back);
        assert!(is_back, "{} descriptors, not {descriptors}", open_descriptors(gate.pid()));
        let figure = |name: &str| stat(scratch, name).parse::<usize>().unwrap();
        let flows = figure("flows_accepted") - figure("flows_open");
        for account in gate.accounts(flows) {
            assert_eq!(account["route"], "circle");
            let is_loop = account["ended_how"] == "loop";
            assert!(!is_loop || account["ended_by"] == "gate", "{account}");
            *tally.entry(text(&account["ended_how"])).or_default() += 1;
        }
    }
    tally
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A proxy that knows nothing of circles: it joins each who comes with this address.
fn other_proxy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            thread::spawn(move || {
                let upstream = TcpStream::connect(to).unwrap();
                let copies = [(&client, &upstream), (&upstream, &client)];
                thread::scope(|scope| {
                    for (mut from, mut to) in copies {
                        scope.spawn(move || {
                            let _ = std::io::copy(&mut from, &mut to);
                            let _ = from.shutdown(std::net::Shutdown::Both);
                            let _ = to.shutdown(std::net::Shutdown::Both);
                        });
                    }
                });
            });
        }
    });
    own
}
