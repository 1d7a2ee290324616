//! One direction ends, the other goes on.

use std::time::Duration;

use super::{Draft, KIB, MIB, long};
use crate::case::{Case, Expected, Group};
use crate::script::{Role, Step};

const BECAUSE: &str = "the two directions end each by itself (RFC 9293, section 3.6.1).";

pub(super) fn cases() -> Vec<Case> {
    [
        then_answer("then-answer", Step::PauseAMoment),
        then_answer("then-answer-after-1s", Step::Pause(Duration::from_secs(1))),
        long(then_answer("then-answer-after-12s", Step::Pause(Duration::from_secs(12)))),
        server_first("server-first", Step::PauseAMoment),
        server_first("server-first-then-1s", Step::Pause(Duration::from_secs(1))),
        long(server_first("server-first-then-12s", Step::Pause(Duration::from_secs(12)))),
        answer_and_half_close(),
        both_with_data(),
    ]
    .concat()
}

fn then_answer(name: &'static str, pause: Step) -> Vec<Case> {
    Draft {
        group: Group::HalfClose,
        name,
        does: "The client asks and half-closes; the server reads to the end, pauses, answers 1 MiB.",
        because: BECAUSE,
        actor: (vec![Step::write(100), Step::HalfClose, Step::ReadToEnd], Expected::ALL_FIN),
        other: (
            vec![Step::ReadToEnd, pause, Step::write(MIB), Step::Close],
            Expected::ALL_FIN,
        ),
    }
    .by(Role::Client)
}

fn server_first(name: &'static str, pause: Step) -> Vec<Case> {
    Draft {
        group: Group::HalfClose,
        name,
        does: "The server half-closes at once; the client sees the end, pauses, uploads 4 MiB.",
        because: BECAUSE,
        actor: (vec![Step::HalfClose, Step::ReadToEnd], Expected::ALL_FIN),
        other: (vec![Step::ReadToEnd, pause, Step::write(4 * MIB), Step::Close], Expected::ALL_FIN),
    }
    .by(Role::Server)
}

fn answer_and_half_close() -> Vec<Case> {
    Draft {
        group: Group::HalfClose,
        name: "data-first",
        does: "One end writes 64 KiB and half-closes; the other reads to the end, then writes 4 MiB.",
        because: BECAUSE,
        actor: (
            vec![Step::write(64 * KIB), Step::HalfClose, Step::ReadToEnd],
            Expected::ALL_FIN,
        ),
        other: (
            vec![Step::ReadToEnd, Step::write(4 * MIB), Step::HalfClose],
            Expected::ALL_FIN,
        ),
    }
    .by_either()
}

fn both_with_data() -> Vec<Case> {
    let end = vec![Step::write_reading(MIB), Step::Meet, Step::HalfClose, Step::ReadToEnd];
    Draft {
        group: Group::HalfClose,
        name: "simultaneous",
        does: "Both write 1 MiB while they read, and half-close at the same moment.",
        because: "FINs that cross are both acknowledged (RFC 9293, section 3.6, case 3).",
        actor: (end.clone(), Expected::ALL_FIN),
        other: (end, Expected::ALL_FIN),
    }
    .by(Role::Client)
}
