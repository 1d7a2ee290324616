//! The upstream cannot be connected to.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Instant;

use lastbyte_sys::socket;

use crate::case::{self, Bytes, Case, Expected, Group, Outcome, Pair, Play};
use crate::end::{Ending, Observed};
use crate::script::{Meeting, Role, Step};
use crate::testbed::Testbed;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("refused", "Nobody listens at the upstream.", FAILS, refused, 5),
        case("unreachable", "There is no way to the upstream.", FAILS, unreachable, 2),
        case("timed-out", "The upstream never answers.", FAILS_OR_WAITS, timed_out, 1),
    ]
}

/// A FIN without a byte would be an empty response.
const FAILS: &[Ending] = &[Ending::Refused, Ending::Reset];
const FAILS_OR_WAITS: &[Ending] = &[Ending::Refused, Ending::Reset, Ending::Open];

fn case(
    name: &str,
    does: &'static str,
    endings: &'static [Ending],
    play: fn(&Testbed, u64) -> Outcome,
    runs: u32,
) -> Case {
    Case {
        name: format!("{}/{name}", Group::Upstream),
        group: Group::Upstream,
        does,
        because: "a connection that fails is an error, never an empty stream.",
        runs,
        long: false,
        play: Play::By(play),
        client: Expected { bytes: Bytes::All, endings, write_error: false },
        server: Expected::NOTHING,
    }
}

fn refused(testbed: &Testbed, _run: u64) -> Outcome {
    if let Some(address) = testbed.setup().refused {
        return look(testbed, address);
    }
    testbed.stop_listening();
    let outcome = look(testbed, testbed.setup().proxy);
    listen_again(testbed, outcome)
}

fn unreachable(testbed: &Testbed, _run: u64) -> Outcome {
    match testbed.setup().unreachable {
        Some(address) => look(testbed, address),
        None => Outcome::NotPlayed("--unreachable names no proxy"),
    }
}

fn timed_out(testbed: &Testbed, _run: u64) -> Outcome {
    if let Some(address) = testbed.setup().timed_out {
        return look(testbed, address);
    }
    testbed.stop_listening();
    let upstream = testbed.setup().upstream;
    let outcome = match testbed.on_server_side(|| deaf_listener(upstream)) {
        Ok(Ok(_deaf)) => {
            thread::sleep(testbed.waits().moment);
            look(testbed, testbed.setup().proxy)
        }
        _ => Outcome::NotPlayed("no listener could be made that does not answer"),
    };
    listen_again(testbed, outcome)
}

/// A listener whose accept queue is full, so that the kernel drops further SYNs (`listen(2)`), and
/// the connections that fill it.
fn deaf_listener(address: SocketAddr) -> io::Result<Vec<OwnedFd>> {
    let listener = socket::open_tcp(address)?;
    socket::bind(&listener, address)?;
    socket::listen(&listener, 0)?;
    let mut open = vec![listener];
    for _ in 0..4 {
        let filler = socket::open_tcp_nonblocking(address)?;
        socket::begin_connect(&filler, address)?;
        open.push(filler);
    }
    Ok(open)
}

fn listen_again(testbed: &Testbed, outcome: Outcome) -> Outcome {
    match testbed.listen() {
        Ok(()) => outcome,
        Err(_) => Outcome::NotPlayed("our listener could not be opened again"),
    }
}

/// Connects, and observes how that ends.
fn look(testbed: &Testbed, address: SocketAddr) -> Outcome {
    let begun = Instant::now();
    let client = match testbed.connect_to(address) {
        Ok(stream) => {
            let meeting = Meeting::default();
            case::player(testbed, 0, &meeting, Role::Client).play(stream, &[Step::ReadToEnd])
        }
        Err(_) => Observed { ending: Ending::Refused, ..Observed::default() },
    };
    Outcome::Pair(Box::new(Pair { client, server: Observed::default(), took: begun.elapsed() }))
}
