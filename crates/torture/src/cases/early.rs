//! The server responds before it has read all, or the client closes before it has.

use std::time::Duration;

use super::{Draft, KIB, MIB, times};
use crate::case::{Bytes, Case, Expected, Group};
use crate::end::Ending;
use crate::script::{Role, Step};

/// As often as other proxies were measured.
const RUNS: u32 = 30;

pub(super) fn cases() -> Vec<Case> {
    times(RUNS, [answer(), big_answer(), slow_upload(), quiz()].concat())
}

/// The responses 401, 413, quota exceeded.
fn answer() -> Vec<Case> {
    Draft {
        group: Group::Early,
        name: "answer",
        does: "The client uploads without end; the server reads 64 KiB, answers 16 KiB, closes.",
        because: "the answer is sent before the reset, and read before the error.",
        actor: (
            vec![
                Step::ReadTo(64 * KIB),
                Step::write(16 * KIB),
                Step::AwaitUnread,
                Step::CloseEarly,
            ],
            Expected::NOTHING,
        ),
        other: (vec![Step::write(256 * MIB), Step::ReadToEnd], Expected::ALL_RESET.and_told()),
    }
    .by(Role::Server)
}

fn big_answer() -> Vec<Case> {
    Draft {
        group: Group::Early,
        name: "big-answer",
        does: "As before, with 1 MiB; the server closes when it is acked, the client reads meanwhile.",
        because: "what was acknowledged lies in the reader's kernel, which gives it out first.",
        actor: (
            vec![
                Step::ReadTo(64 * KIB),
                Step::write(MIB),
                Step::AwaitAcked,
                Step::AwaitUnread,
                Step::Close,
            ],
            Expected::NOTHING,
        ),
        other: (
            vec![Step::write_reading(256 * MIB), Step::ReadToEnd],
            Expected::ALL_RESET.and_told(),
        ),
    }
    .by(Role::Server)
}

/// If nothing is unread at the close, the kernel sends a FIN, and answers only later data with a
/// reset.
fn slow_upload() -> Vec<Case> {
    const ANSWERED: Expected =
        Expected { bytes: Bytes::All, endings: &[Ending::Fin, Ending::Reset], write_error: true };
    Draft {
        group: Group::Early,
        name: "answer-to-slow-upload",
        does: "The client uploads 4 KiB every 2 ms and reads; the server answers 16 KiB, closes.",
        because: "the answer is sent before the end, whichever it is.",
        actor: (
            vec![Step::ReadTo(64 * KIB), Step::write(16 * KIB), Step::CloseEarly],
            Expected::NOTHING,
        ),
        other: (
            vec![Step::write_slowly(256 * MIB, 4_096, Duration::from_millis(2)), Step::ReadToEnd],
            ANSWERED,
        ),
    }
    .by(Role::Server)
}

fn quiz() -> Vec<Case> {
    Draft {
        group: Group::Early,
        name: "quiz",
        does: "The server greets; the client never reads that, writes 1,000,000 bytes and closes.",
        because: "a close with unread data is a reset, and what is not sent yet is gone.",
        actor: (vec![Step::AwaitUnread, Step::write(1_000_000), Step::Close], Expected::NOTHING),
        other: (vec![Step::write(37), Step::ReadToEnd], Expected::PART_RESET),
    }
    .by(Role::Client)
}
