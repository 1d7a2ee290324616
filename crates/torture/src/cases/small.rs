//! Little data, or none, and a close.

use std::sync::atomic::AtomicU64;
use std::thread;

use lastbyte_socket::blocking::Stream;

use super::many::{self, ShortRead};
use super::{Draft, KIB, times};
use crate::case::{Case, Expected, Group, Outcome, Play};
use crate::content::Content;
use crate::script::{Role, Step};
use crate::testbed::Testbed;

pub(super) fn cases() -> Vec<Case> {
    [pieces(), times(2, vec![connections()]), empty(), answered(), simultaneous_close()].concat()
}

fn pieces() -> Vec<Case> {
    Draft {
        group: Group::Small,
        name: "pieces",
        does: "One end writes 7 bytes 1,000 times and closes.",
        because: "a close sends what is queued, where nothing is unread.",
        actor: (vec![Step::write_pieces(1_000, PIECE), Step::Close], Expected::NOTHING),
        other: (vec![Step::ReadToEnd], Expected::ALL_FIN),
    }
    .by_either()
}

fn connections() -> Case {
    Case {
        name: format!("{}/connections", Group::Small),
        group: Group::Small,
        does: "1,000 connections, each with 7 bytes and a close at once.",
        because: "a close sends what is queued, where nothing is unread.",
        runs: 1,
        long: false,
        play: Play::By(many_connections),
        client: Expected::NOTHING,
        server: Expected::ALL_FIN,
    }
}

fn empty() -> Vec<Case> {
    Draft {
        group: Group::Small,
        name: "empty",
        does: "One end closes without a byte; the other reads.",
        because: "a close without unread data is a FIN.",
        actor: (vec![Step::Meet, Step::Close], Expected::NOTHING),
        other: (vec![Step::Meet, Step::ReadToEnd], Expected::ALL_FIN),
    }
    .by_either()
}

fn answered() -> Vec<Case> {
    Draft {
        group: Group::Small,
        name: "answered-and-closed",
        does: "The client asks, reads the answer of 64 KiB and closes, without a half-close.",
        because: "a close without unread data is a FIN.",
        actor: (vec![Step::write(100), Step::ReadTo(64 * KIB), Step::Close], Expected::ALL),
        other: (vec![Step::ReadTo(100), Step::write(64 * KIB), Step::ReadToEnd], Expected::ALL_FIN),
    }
    .by(Role::Client)
}

fn simultaneous_close() -> Vec<Case> {
    let end = vec![Step::write(KIB), Step::ReadTo(KIB), Step::Meet, Step::Close];
    Draft {
        group: Group::Small,
        name: "simultaneous-close",
        does: "Both write 1 KiB, read the other's, and close at the same moment.",
        because: "both have all that there is.",
        actor: (end.clone(), Expected::ALL),
        other: (end, Expected::ALL),
    }
    .by(Role::Client)
}

const PIECE: usize = 7;
const CONNECTIONS: u64 = 1_000;

/// Each has its number in its first bytes, so that a duplicate or a changed one is detected.
fn many_connections(testbed: &Testbed, run: u64) -> Outcome {
    let key = testbed.setup().seed.wrapping_add(run);
    let arrived = many::Arrived::new(CONNECTIONS);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..many::THREADS {
            scope.spawn(|| arrived.accept_each(testbed, |stream| read_piece(testbed, stream, key)));
            scope.spawn(|| {
                while let Some(number) = many::next_of(&next, CONNECTIONS) {
                    if let Ok(mut client) = testbed.connect() {
                        // A failure shows at the server.
                        let _ = std::io::Write::write_all(&mut client, &piece(key, number));
                    }
                }
            });
        }
    });
    arrived.outcome()
}

fn piece(key: u64, number: u64) -> [u8; PIECE] {
    let mut piece = [0; PIECE];
    Content::new(key.wrapping_add(number)).fill(0, &mut piece);
    let [low, high, ..] = number.to_le_bytes();
    [piece[0], piece[1], piece[2], piece[3], piece[4], low, high]
}

fn read_piece(testbed: &Testbed, stream: Stream, key: u64) -> Result<u64, ShortRead> {
    let (read, _) = many::read_to_fin(testbed, stream)?;
    let wrong = || ShortRead(format!("{} other bytes, FIN", read.len()));
    let [.., low, high] = *read.as_slice() else { return Err(wrong()) };
    let number = u64::from(u16::from_le_bytes([low, high]));
    if read == piece(key, number) { Ok(number) } else { Err(wrong()) }
}
