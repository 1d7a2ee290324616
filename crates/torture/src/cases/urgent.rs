//! Urgent data: every byte in order, and the urgent mark at the same byte (RFC 9293, section
//! 3.8.5).

use super::{Draft, KIB, MIB};
use crate::case::{Case, Expected, Group};
use crate::script::Step;

pub(super) fn cases() -> Vec<Case> {
    [
        urgent("middle", vec![Step::write(1_000), Step::Urgent, Step::write(1_000)]),
        urgent("first", vec![Step::Urgent, Step::write(1_000)]),
        urgent("last", vec![Step::write(1_000), Step::Urgent]),
        urgent("alone", vec![Step::Urgent]),
        two(),
        urgent("in-bulk", vec![Step::write(2 * MIB), Step::Urgent, Step::write(2 * MIB)]),
    ]
    .concat()
}

fn urgent(name: &'static str, mut steps: Vec<Step>) -> Vec<Case> {
    steps.extend([Step::HalfClose, Step::ReadToEnd]);
    Draft {
        group: Group::Urgent,
        name,
        does: "One end sends an urgent byte where the name says; the other has SO_OOBINLINE set.",
        because: "the byte stays in its place, and the kernel knows where that is.",
        actor: (steps, Expected::ALL_FIN),
        other: (vec![Step::ReadToEnd, Step::Close], Expected::ALL_FIN),
    }
    .by_either()
}

/// The other end reads up to the first before the second is sent: the kernel knows one at a time.
fn two() -> Vec<Case> {
    const BETWEEN: u64 = 10 * KIB;
    Draft {
        group: Group::Urgent,
        name: "two",
        does: "One end sends two urgent bytes; the second when the other has read the first.",
        because: "each byte stays in its place, and the kernel knows where that is.",
        actor: (
            vec![
                Step::write(1_000),
                Step::Urgent,
                Step::write(BETWEEN),
                Step::Meet,
                Step::Urgent,
                Step::write(1_000),
                Step::HalfClose,
                Step::ReadToEnd,
            ],
            Expected::ALL_FIN,
        ),
        other: (
            vec![Step::ReadTo(1_001 + BETWEEN), Step::Meet, Step::ReadToEnd, Step::Close],
            Expected::ALL_FIN,
        ),
    }
    .by_either()
}
