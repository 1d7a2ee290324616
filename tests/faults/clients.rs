//! Clients that send next to nothing, and clients that never read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::streams::{assert_reset, connect, echo, ping, receive, send};
use crate::support::gate::{Gate, flow, memory_of, stat, upstream};
use crate::support::{SOON, Scratch, wait_for};

#[test]
fn a_byte_now_and_then_keeps_a_flow_and_silence_does_not() {
    const IDLE: Duration = Duration::from_secs(2);
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let gate = Gate::start(&scratch, &[&word, "--idle", "2s", "--log", "json"]);
    let at = gate.listening();
    let (mut up, mut up_server) = flow(at, &upstream);
    let (mut down, mut down_server) = flow(at, &upstream);
    let (silent, silent_server) = flow(at, &upstream);
    let began = Instant::now();
    while began.elapsed() < 2 * IDLE {
        // One way each: either keeps the whole flow.
        for (from, to) in [(&mut up, &mut up_server), (&mut down_server, &mut down)] {
            from.write_all(b"x").unwrap();
            to.read_exact(&mut [0]).unwrap();
        }
        thread::sleep(IDLE / 8);
    }
    for stream in [&silent, &silent_server] {
        assert_eq!(assert_reset(receive(stream, 0, 1)), 0);
    }
    let accounts = gate.accounts(1);
    assert_eq!(accounts.len(), 1, "the others go on");
    let account = &accounts[0];
    assert_eq!((&account["ended_by"], &account["ended_how"]), (&"gate".into(), &"idle".into()));
    assert_eq!((&account["up_acked_bytes"], &account["complete"]), (&1.into(), &false.into()));
    let took = account["took_s"].as_f64().unwrap();
    assert!((2.0..4.0).contains(&took), "{account}");
    eprintln!("silent for {took} s: {} by {}", account["ended_how"], account["ended_by"]);
    up.write_all(b"y").unwrap();
    up_server.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_flow_that_says_next_to_nothing_takes_next_to_no_memory() {
    const FLOWS: u64 = 500;
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &[&format!("0={}", echo()), "--log", "none"]);
    let at = gate.listening();
    drop((0..10).map(|_| ping_pong(at)).collect::<Vec<_>>());
    wait_for("their ends", SOON, || stat(&scratch, "flows_open") == "0");
    let before = memory_of(gate.pid());
    let flows: Vec<_> = (0..FLOWS).map(|_| ping_pong(at)).collect();
    let each = memory_of(gate.pid()).saturating_sub(before) / FLOWS;
    eprintln!("{FLOWS} flows on which something moved now and then: {each} bytes each");
    assert!(each < 8 << 10, "{each}");
    flows.iter().for_each(ping);
}

fn ping_pong(to: std::net::SocketAddr) -> TcpStream {
    let stream = connect(to);
    ping(&stream);
    stream
}

#[test]
fn a_client_that_never_reads_is_ended_by_the_deadline() {
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let gate = Gate::start(&scratch, &[&word, "--stall", "1s", "--log", "json"]);
    let (client, server) = flow(gate.listening(), &upstream);
    let sent = send(&server, u64::MAX);
    assert_eq!(sent.error, Some(std::io::ErrorKind::ConnectionReset));
    let account = gate.accounts(1).remove(0);
    assert_eq!((&account["ended_by"], &account["ended_how"]), (&"gate".into(), &"stalled".into()));
    assert_eq!(account["ended_detail"], "the client stopped reading", "{account}");
    assert_eq!(account["complete"], false);
    let [received, written, acked] =
        ["down_received_bytes", "down_written_bytes", "down_acked_bytes"]
            .map(|key| account[key].as_u64().unwrap());
    assert!(sent.bytes >= received && received >= written && written >= acked, "{account}");
    // What its kernel had acknowledged it may still read.
    let read = assert_reset(receive(&client, 0, u64::MAX));
    assert_eq!(read, acked, "{account}");
    eprintln!(
        "never read: {} sent, {received} received, {written} written, {acked} acked, after {} s",
        sent.bytes, account["took_s"]
    );
}

#[test]
fn a_client_that_does_not_read_holds_its_upstream_back() {
    const ALL: u64 = 64 << 20;
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let gate = Gate::start(&scratch, &[&word, "--log", "json"]);
    let (client, server) = flow(gate.listening(), &upstream);
    let before = memory_of(gate.pid());
    let sending = thread::spawn(move || send(&server, ALL));
    let mut moved = (String::new(), Instant::now());
    wait_for("a standstill", SOON, || {
        let now = stat(&scratch, "down_received_bytes");
        if moved.0 != now || now == "0" {
            moved = (now, Instant::now());
        }
        moved.1.elapsed() > Duration::from_secs(2)
    });
    let grown = memory_of(gate.pid()).saturating_sub(before);
    let held: u64 = moved.0.parse().unwrap();
    assert!(held < ALL && grown < 4 << 20, "{held} bytes held, memory grew by {grown}");
    assert!(!sending.is_finished(), "it is held back");
    assert_eq!(gate.stdout(), "", "and the flow is open");
    let received = receive(&client, 0, ALL);
    assert_eq!((received.bytes, sending.join().unwrap().bytes), (ALL, ALL));
    drop(client);
    let account = gate.accounts(1).remove(0);
    assert_eq!(account["down_acked_bytes"], Value::from(ALL), "{account}");
    eprintln!("not read: {held} bytes on the way, the gate's memory grew by {grown} bytes");
}
