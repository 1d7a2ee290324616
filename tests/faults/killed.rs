//! A gate that is killed: nobody takes what it carried for complete, and another one takes its place at
//! once.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use super::streams::{assert_reset, connect, ping, receive, send};
use crate::support::Scratch;
use crate::support::gate::{Gate, asked, flow, stat, upstream};

#[test]
fn a_killed_gate_leaves_resets_and_the_next_one_takes_its_place() {
    let scratch = Scratch::new();
    let echo = super::streams::echo().to_string();
    let (upstream, word) = upstream();
    let mut words = vec![word, "0=".to_owned() + &echo, "socks5://0".to_owned()];
    let mut places = None;
    for round in 0..5 {
        let started: Vec<&str> = words.iter().map(String::as_str).collect();
        let began = Instant::now();
        let mut gate = Gate::spawn(&scratch, asked(&scratch, &started).args(["--workers", "2"]));
        let at = *places.get_or_insert_with(|| listening(&gate, &mut words));
        gate.says(&format!(
            "(route {})",
            words[2].replace("socks5://", if round == 0 { "127.0.0.1:" } else { "" })
        ));
        ping(&connect(at[1]));
        let again = began.elapsed();

        let (up, up_server) = flow(at[0], &upstream);
        let (down, down_server) = flow(at[0], &upstream);
        let (idle, idle_server) = flow(at[0], &upstream);
        // One in the middle of its request.
        let mut asking = connect(at[2]);
        asking.write_all(&[5, 1]).unwrap();
        let senders = [up.try_clone().unwrap(), down_server.try_clone().unwrap()];
        let senders = senders.map(|stream| thread::spawn(move || send(&stream, u64::MAX)));
        let so_far = [&up_server, &down].map(|stream| receive(stream, 0, 2_000_000).bytes);
        assert!(!stat(&scratch, "flows_open").is_empty());
        gate.kill();

        let bytes = [(&up_server, so_far[0]), (&down, so_far[1])]
            .map(|(stream, so_far)| assert_reset(receive(stream, so_far, u64::MAX)));
        for sender in senders {
            let sent = sender.join().unwrap();
            assert!(sent.error.is_some(), "{sent:?}");
        }
        for stream in [&idle, &idle_server, &asking] {
            assert_eq!(assert_reset(receive(stream, 0, 1)), 0);
        }
        eprintln!(
            "round {round}: serves {again:?} after its start; killed, a reset behind {bytes:?} bytes"
        );
        drop::<[TcpStream; 4]>([up, down_server, idle, idle_server]);
    }
}

/// Where the routes listen, which are to be the same from now on.
fn listening(gate: &Gate, words: &mut [String]) -> [std::net::SocketAddr; 3] {
    gate.says("-> where clients ask by SOCKS 5");
    let said = gate.stderr();
    let lines = said.lines().filter_map(|line| line.strip_prefix("listening on "));
    let places: Vec<_> =
        lines.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    for (word, place) in words.iter_mut().zip(&places) {
        let place: &std::net::SocketAddr = place;
        *word = match word.strip_prefix("0=") {
            Some(target) => format!("{place}={target}"),
            None => format!("socks5://{place}"),
        };
    }
    places.try_into().unwrap()
}
