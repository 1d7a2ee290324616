//! A gate that is killed: nobody takes what it carried for complete, and another one takes its place at
//! once.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use super::streams::{assert_reset, connect, echo, ping, receive, send};
use crate::support::Scratch;
use crate::support::gate::{Gate, flow, upstream};

#[test]
fn a_killed_gate_leaves_resets_and_the_next_one_takes_its_place() {
    let scratch = Scratch::new();
    let (upstream, _) = upstream();
    let targets = [upstream.local_addr().unwrap(), echo()];
    let mut places = ["127.0.0.1:0".parse::<SocketAddr>().unwrap(); 3];
    for round in 0..5 {
        let file = scratch.file("gate.toml", file(places, targets));
        let began = Instant::now();
        let mut gate = Gate::with_file(&scratch, &file);
        // From the first round on they are the same.
        places = ["slow", "echo", "socks5"].map(|route| gate.address(route));
        let [slow, echo, socks5] = places;
        ping(&connect(echo));
        let again = began.elapsed();

        let (up, up_server) = flow(slow, &upstream);
        let (down, down_server) = flow(slow, &upstream);
        let (idle, idle_server) = flow(slow, &upstream);
        // One in the middle of its request.
        let mut asking = connect(socks5);
        asking.write_all(&[5, 1]).unwrap();
        let senders = [up.try_clone().unwrap(), down_server.try_clone().unwrap()];
        let senders = senders.map(|stream| thread::spawn(move || send(&stream, u64::MAX)));
        let so_far = [&up_server, &down].map(|stream| receive(stream, 0, 2_000_000).bytes);
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
            "round {round}: serves {again:?} after its start; killed, resets behind {bytes:?} bytes"
        );
    }
}

fn file([slow, echo, socks5]: [SocketAddr; 3], [to_slow, to_echo]: [SocketAddr; 2]) -> String {
    format!(
        "[[route]]\nname = 'slow'\nlisten = '{slow}'\nforward = '{to_slow}'\n\
         [[route]]\nname = 'echo'\nlisten = '{echo}'\nforward = '{to_echo}'\n\
         [[route]]\nname = 'socks5'\nlisten = '{socks5}'\nsocks5 = true\n"
    )
}
