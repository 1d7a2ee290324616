//! What a gate holds open, and what it does when nothing more can be opened. Descriptors are the
//! process's: each test is one of its own.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use lastbyte_sys::process;
use lastbyte_testing::this_test;

use crate::support::{LONG, address, ask, config, connect, echo, open_descriptors, route, start};

/// At once.
const CONNECTIONS: usize = 1_000;
/// Descriptors of a connection: the client's, the upstream's, and two of the gate.
const FOR_EACH: usize = 4;

#[test]
fn a_thousand_connections_leave_nothing() {
    let target = echo(1);
    let needed = FOR_EACH * CONNECTIONS + 100;
    if let Err(why) = allow(needed) {
        lastbyte_testing::not_tested!("{why}");
        return;
    }
    let before = open_descriptors();
    let (gate, said) = start(config([route("db", target)], 2));
    let idle = open_descriptors();
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| connect(address(&gate))).collect();
    for client in &mut clients {
        assert_eq!(ask(client, 1), 2);
    }
    assert_eq!(gate.flows().len(), CONNECTIONS);
    let open = open_descriptors();
    assert!(open >= idle + FOR_EACH * CONNECTIONS, "{open} descriptors, {idle} before");
    drop(clients);
    said.accounts(CONNECTIONS);
    assert!(gate.flows().is_empty());
    settles_at(idle);
    gate.reload(config([route("db", target), route("web", target)], 2)).unwrap();
    gate.reload(config([route("db", target)], 2)).unwrap();
    settles_at(idle);
    drop(gate);
    settles_at(before);
}

/// What others close is closed a moment later.
fn settles_at(wanted: usize) {
    let began = Instant::now();
    while open_descriptors() != wanted {
        assert!(began.elapsed() < LONG, "{} descriptors, not {wanted}", open_descriptors());
        thread::yield_now();
    }
}

/// Lets this process have so many descriptors, if it may.
fn allow(needed: usize) -> Result<(), String> {
    let needed = needed as u64;
    let (own, most) = process::descriptor_limits().unwrap();
    if most < needed {
        return Err(format!("{needed} descriptors, {most} are allowed"));
    }
    process::set_descriptor_limit(own.max(needed), most).unwrap();
    Ok(())
}

const CHILD: &str = "LASTBYTE_TEST_FEW_DESCRIPTORS";

#[test]
fn without_descriptors_accepting_pauses_and_flows_live() {
    if env::var_os(CHILD).is_some() {
        return few_descriptors();
    }
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &this_test(), "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let [out, said] =
        [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(child.status.success() && out.contains("1 passed"), "{said}{out}");
}

fn few_descriptors() {
    let (gate, said) = start(config([route("db", echo(1))], 2));
    let mut flow = connect(address(&gate));
    assert_eq!(ask(&mut flow, 1), 2);
    // The client's own, and then every one that is left.
    let waiting = Vec::from_iter((0..3).map(|_| {
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap()
    }));
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for client in &waiting {
        client.connect(&address(&gate).into()).unwrap();
    }
    let notice = said.notice();
    assert!(notice.starts_with("route db: accept"), "{notice}");
    assert!(notice.contains("os error 24") && notice.ends_with("accepting pauses (once lately)"));
    for byte in 0..100 {
        assert_eq!(ask(&mut flow, byte), byte + 1, "it lives on");
    }
    // Two of the gate for each and the upstream's, and some to spare.
    taken.truncate(taken.len() - 4 * waiting.len());
    let began = Instant::now();
    for client in waiting {
        let mut client = std::net::TcpStream::from(client);
        client.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(ask(&mut client, 1), 2);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "a pause has an end");
    drop(gate);
}
