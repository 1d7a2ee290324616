//! An end that reads late, slowly or never.

use std::time::Duration;

use super::{Draft, KIB, MIB, times};
use crate::case::{Case, Expected, Group};
use crate::script::Step;

/// A proxy that accepts more than this while the reader does not read has no limit. Plain TCP
/// buffers `tcp_wmem` and `tcp_rmem` of one connection (10 MiB by default), a proxy of two.
const MOST: u64 = 64 * MIB;

pub(super) fn cases() -> Vec<Case> {
    times(2, [late(), slowly(), never()].concat())
}

fn late() -> Vec<Case> {
    Draft {
        group: Group::Slow,
        name: "reads-late",
        does: "One end writes until nothing more is taken; then the other begins to read.",
        because: "nothing is taken that there is no room for, and what is taken arrives.",
        actor: (
            vec![Step::Fill(MOST), Step::Meet, Step::HalfClose, Step::ReadToEnd],
            Expected::ALL_FIN,
        ),
        other: (vec![Step::Meet, Step::ReadToEnd, Step::Close], Expected::ALL_FIN),
    }
    .by_either()
}

fn slowly() -> Vec<Case> {
    Draft {
        group: Group::Slow,
        name: "reads-slowly",
        does: "One end writes 16 MiB; the other reads 256 KiB every 5 ms.",
        because: "a reader's pace holds back the writer, and nothing else.",
        actor: (vec![Step::write(16 * MIB), Step::HalfClose, Step::ReadToEnd], Expected::ALL_FIN),
        other: (
            vec![Step::ReadSlowly(256 * KIB, Duration::from_millis(5)), Step::Close],
            Expected::ALL_FIN,
        ),
    }
    .by_either()
}

fn never() -> Vec<Case> {
    Draft {
        group: Group::Slow,
        name: "reads-never",
        does: "One end writes until nothing more is taken; the other closes without having read.",
        because: "a close with unread data is a reset (RFC 2525, section 2.17).",
        actor: (vec![Step::Fill(MOST), Step::Meet, Step::ReadToEnd], Expected::ALL_RESET),
        other: (vec![Step::Meet, Step::Close], Expected::NOTHING),
    }
    .by_either()
}
