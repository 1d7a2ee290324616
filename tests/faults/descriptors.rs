//! No descriptors left: accepting pauses, open flows go on, and nobody who waits is lost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::streams::{connect, echo, ping};
use crate::support::gate::{Gate, asked, open_descriptors, processor_time, stat};
use crate::support::{LASTBYTE, Scratch};

/// How long nobody gets a descriptor.
const DROUGHT: Duration = Duration::from_secs(2);
/// How many come meanwhile.
const WAITING: usize = 100;

/// A flow has two descriptors: one that has but the first could only be reset.
#[test]
fn without_descriptors_those_who_are_in_go_on_and_others_wait() {
    for limit in [64, 65] {
        drought(limit);
    }
}

/// What the gate keeps for other things than flows.
const SPARE: usize = 16;

fn drought(limit: usize) {
    let scratch = Scratch::new();
    let shell = "ulimit -n $0 && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", shell, &limit.to_string(), LASTBYTE]);
    let words = [&format!("0={}", echo()), "--log", "json", "--workers", "1"];
    let told = asked(&scratch, &words);
    command.args(told.get_args());
    command.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let gate = Gate::spawn(&scratch, &mut command);
    let at = gate.listening();
    // It opens some more while it starts.
    let room = (limit - SPARE - open_descriptors(gate.pid())) / 2 - 2;
    let inside: Vec<_> = (0..room).map(|_| connect(at)).collect();
    inside.iter().for_each(ping);
    let waiting: Vec<_> = (0..WAITING).map(|_| connect(at)).collect();
    waiting.iter().for_each(|mut client| client.write_all(&[7; 64]).unwrap());
    gate.says("accepting pauses");
    let used = processor_time(gate.pid());
    thread::sleep(DROUGHT);
    let used = processor_time(gate.pid()) - used;
    assert!(used < DROUGHT / 10, "{used:?} of processor time: it goes round and round");
    inside.iter().for_each(ping);
    // What can be asked of it still can.
    let open: usize = stat(&scratch, "flows_open").parse().unwrap();
    assert!((room..room + 4).contains(&open), "{open}");
    assert!(open_descriptors(gate.pid()) + SPARE - 4 <= limit);
    assert_ne!(stat(&scratch, "accept_pauses"), "0");

    // Those who wait get what others give back.
    drop(inside);
    let began = Instant::now();
    waiting.into_iter().for_each(|client| assert_answered(&client));
    let served = began.elapsed();
    ping(&connect(at));
    assert_eq!(gate.stderr().matches("accepting pauses").count(), 1, "{}", gate.stderr());
    for account in gate.accounts(room + WAITING + 1) {
        assert_eq!(account["complete"], true, "{account}");
    }
    eprintln!(
        "limit {limit}: {open} flows went on with {used:?} of processor time in {DROUGHT:?}; then \
         {WAITING} who had waited were served within {served:?}"
    );
}

#[track_caller]
fn assert_answered(mut client: &TcpStream) {
    let mut answer = [0; 64];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [7; 64]);
}
