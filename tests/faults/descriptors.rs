//! No descriptors left: accepting pauses, open flows go on, and nobody who waits is lost.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::streams::{connect, echo, ping};
use crate::support::gate::{Gate, asked, open_descriptors, processor_time};
use crate::support::{LASTBYTE, SOON, Scratch, wait_for};

/// How long nobody gets a descriptor.
const DROUGHT: Duration = Duration::from_secs(4);
/// How many come meanwhile.
const WAITING: usize = 100;

/// A flow has two descriptors: with the last one a client can be accepted whose upstream cannot be
/// connected to, or there is none left for the client. Both limits of each kind.
#[test]
fn without_descriptors_those_who_are_in_go_on_and_others_wait() {
    for limit in [64, 65] {
        drought(limit);
    }
}

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
    let room = (limit - open_descriptors(gate.pid())) / 2;
    let inside: Vec<_> = (0..room).map(|_| connect(at)).collect();
    inside.iter().for_each(ping);
    assert!(limit - open_descriptors(gate.pid()) <= 1, "it is full");

    let waiting: Vec<_> = (0..WAITING).map(|_| connect(at)).collect();
    // One that was refused hears of it when it reads.
    waiting.iter().for_each(|mut client| drop(client.write_all(&[7; 64])));
    gate.says("accepting pauses");
    let used = processor_time(gate.pid());
    thread::sleep(DROUGHT);
    let used = processor_time(gate.pid()) - used;
    assert!(used < DROUGHT / 10, "{used:?} of processor time: it goes round and round");
    inside.iter().for_each(ping);
    let refused = gate.stdout().matches("no_descriptors").count();

    // Those who wait get what others give back.
    drop(inside);
    let served = waiting.into_iter().filter(|client| is_answered(client)).count();
    eprintln!("limit {limit}: {served} served, {refused} refused {}", gate.stderr());
    assert_eq!(served + refused, WAITING, "{}", gate.stderr());
    ping(&connect(at));
    wait_for("all accounts", SOON, || gate.stdout().matches('\n').count() > room + WAITING);
    assert_eq!(gate.stderr().matches("accepting pauses").count(), 1, "{}", gate.stderr());
    eprintln!(
        "limit {limit}: {room} flows went on, {served} of {WAITING} who came were served later, \
         {refused} were refused, {used:?} of processor time in {DROUGHT:?}"
    );
}

/// Whether a client gets its answer; a reset is none.
fn is_answered(mut client: &TcpStream) -> bool {
    let mut answer = [0; 64];
    match client.read_exact(&mut answer) {
        Ok(()) => answer == [7; 64],
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            false
        }
    }
}
