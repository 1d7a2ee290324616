//! The upstream cannot be had.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Instant;

use lastbyte_sys::socket;

use crate::bed::Bed;
use crate::case::{self, Bytes, Case, Expected, Group, Outcome, Pair, Play};
use crate::end::{Ending, Seen};
use crate::script::{Meeting, Role, Step};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("refused", "Nobody listens at the upstream.", FAILS, refused, 5),
        case("unreachable", "There is no way to the upstream.", FAILS, unreachable, 2),
        case("timed-out", "The upstream never answers.", FAILS_OR_WAITS, timed_out, 1),
    ]
}

/// A clean end without a byte would be an empty answer.
const FAILS: &[Ending] = &[Ending::Refused, Ending::Reset];
const FAILS_OR_WAITS: &[Ending] = &[Ending::Refused, Ending::Reset, Ending::Open];

fn case(
    name: &str,
    does: &'static str,
    endings: &'static [Ending],
    play: fn(&Bed, u64) -> Outcome,
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
        client: Expected { bytes: Bytes::All, endings, told: false },
        server: Expected::NOTHING,
    }
}

fn refused(bed: &Bed, _run: u64) -> Outcome {
    if let Some(address) = bed.asked().refused {
        return look(bed, address);
    }
    bed.stop_listening();
    let outcome = look(bed, bed.asked().proxy);
    listen_again(bed, outcome)
}

fn unreachable(bed: &Bed, _run: u64) -> Outcome {
    match bed.asked().unreachable {
        Some(address) => look(bed, address),
        None => Outcome::NotAsked("--unreachable names no proxy"),
    }
}

fn timed_out(bed: &Bed, _run: u64) -> Outcome {
    if let Some(address) = bed.asked().timed_out {
        return look(bed, address);
    }
    bed.stop_listening();
    let upstream = bed.asked().upstream;
    let outcome = match bed.on_server_side(|| deaf_listener(upstream)) {
        Ok(Ok(_deaf)) => {
            thread::sleep(bed.waits().moment);
            look(bed, bed.asked().proxy)
        }
        _ => Outcome::NotAsked("no listener could be made that does not answer"),
    };
    listen_again(bed, outcome)
}

/// A listener whose queue of connections is full, so that the kernel drops what else comes
/// (`listen(2)`), and what fills it.
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

fn listen_again(bed: &Bed, outcome: Outcome) -> Outcome {
    match bed.listen() {
        Ok(()) => outcome,
        Err(_) => Outcome::NotAsked("our listener could not be opened again"),
    }
}

/// Connects, and looks how that ends.
fn look(bed: &Bed, address: SocketAddr) -> Outcome {
    let begun = Instant::now();
    let client = match bed.connect_to(address) {
        Ok(stream) => {
            let meeting = Meeting::default();
            case::player(bed, 0, &meeting, Role::Client).play(stream, &[Step::ReadToEnd])
        }
        Err(_) => Seen { ending: Ending::Refused, ..Seen::default() },
    };
    Outcome::Pair(Box::new(Pair { client, server: Seen::default(), took: begun.elapsed() }))
}
