//! A connection ends in the middle.

use std::time::Duration;

use super::{Draft, KIB, MIB};
use crate::case::{Bytes, Case, Expected, Group};
use crate::end::Ending;
use crate::script::{Role, Step};

/// What a reader may observe of a reset: the bytes that had arrived, and never a FIN.
const BECAUSE: &str = "Linux gives what had arrived to the reader first, then the error.";

pub(super) fn cases() -> Vec<Case> {
    [
        at_once(Role::Client),
        at_once(Role::Server),
        before_data(),
        during_data(),
        while_receiving(),
        after_data(),
        right_after_data(),
        right_after_much_data(),
        after_fin(),
        right_after_fin(),
    ]
    .concat()
}

/// A client may close before the proxy connects: then the server sees no connection. A server's
/// reset may come before the client's `connect` has returned, which fails then.
fn at_once(actor: Role) -> Vec<Case> {
    let (name, endings): (_, &[Ending]) = match actor {
        Role::Client => ("at-once/client", &[Ending::Reset, Ending::Missing]),
        Role::Server => ("at-once/server", &[Ending::Reset, Ending::Refused]),
    };
    Draft {
        group: Group::Reset,
        name,
        does: "One end resets as soon as it is connected.",
        because: BECAUSE,
        actor: (vec![Step::Reset], Expected::NOTHING),
        other: (vec![Step::ReadToEnd], Expected { bytes: Bytes::All, endings, write_error: false }),
    }
    .by(actor)
}

fn before_data() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "before-data",
        does: "Both are connected; one resets without a byte.",
        because: BECAUSE,
        actor: (vec![Step::Meet, Step::PauseAMoment, Step::Reset], Expected::NOTHING),
        other: (vec![Step::Meet, Step::ReadToEnd], Expected::ALL_RESET),
    }
    .by_either()
}

fn during_data() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "during-data",
        does: "One end writes until nothing more is taken, and resets; only then the other reads.",
        because: "what was in flight is gone; what had arrived is read, then the error.",
        actor: (vec![Step::Fill(FILL), Step::Meet, Step::Reset], Expected::NOTHING),
        other: (vec![Step::Meet, Step::PauseAMoment, Step::ReadToEnd], Expected::PART_RESET),
    }
    .by_either()
}

fn while_receiving() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "while-receiving",
        does: "One end writes without end; the other reads 64 KiB of it and resets.",
        because: "the writer's next write fails, and its reads do too.",
        actor: (vec![Step::ReadTo(64 * KIB), Step::Reset], Expected::NOTHING),
        other: (
            vec![Step::write_reading(256 * MIB), Step::ReadToEnd],
            Expected::ALL_RESET.and_told(),
        ),
    }
    .by_either()
}

fn after_data() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "after-data",
        does: "One end writes 1 MiB; when the other has read it, the first resets.",
        because: BECAUSE,
        actor: (vec![Step::write(MIB), Step::Meet, Step::Reset], Expected::NOTHING),
        other: (vec![Step::ReadTo(MIB), Step::Meet, Step::ReadToEnd], Expected::ALL_RESET),
    }
    .by_either()
}

fn right_after_data() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "right-after-data",
        does: "One end writes 48 KiB, and resets when it is acked; the other reads later.",
        because: "what was acknowledged lies in the reader's kernel, which gives it out first.",
        actor: (
            vec![Step::write(48 * KIB), Step::AwaitAcked, Step::Meet, Step::Reset],
            Expected::NOTHING,
        ),
        other: (vec![Step::Meet, Step::PauseAMoment, Step::ReadToEnd], Expected::ALL_RESET),
    }
    .by_either()
}

fn right_after_much_data() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "right-after-much-data",
        does: "One end writes 4 MiB to a slow reader, and resets when it is acked.",
        because: "what was acknowledged lies in the reader's kernel, which gives it out first.",
        actor: (vec![Step::write(4 * MIB), Step::AwaitAcked, Step::Reset], Expected::NOTHING),
        other: (vec![Step::ReadSlowly(64 * KIB, Duration::from_millis(5))], Expected::ALL_RESET),
    }
    .by_either()
}

fn after_fin() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "after-fin",
        does: "One end writes 64 KiB and half-closes; when the other has read it, the first resets.",
        because: "the reader had its end; its writes go nowhere, and fail.",
        actor: (
            vec![Step::write(64 * KIB), Step::HalfClose, Step::Meet, Step::Reset],
            Expected::NOTHING,
        ),
        other: (
            vec![Step::ReadToEnd, Step::Meet, Step::write_until_told()],
            Expected::ALL_FIN.and_told(),
        ),
    }
    .by_either()
}

fn right_after_fin() -> Vec<Case> {
    Draft {
        group: Group::Reset,
        name: "right-after-fin",
        does: "One end writes 48 KiB, half-closes, and resets when that is acked; the other reads late.",
        because: "the FIN came first, so that the reader's end is clean; its writes fail.",
        actor: (
            vec![
                Step::write(48 * KIB),
                Step::HalfClose,
                Step::AwaitAcked,
                Step::Meet,
                Step::Reset,
            ],
            Expected::NOTHING,
        ),
        other: (
            vec![
                Step::Meet,
                Step::PauseAMoment,
                Step::ReadToEnd,
                Step::write_until_told(),
            ],
            Expected::ALL_FIN.and_told(),
        ),
    }
    .by_either()
}

/// More than all buffers on the path can hold.
const FILL: u64 = 64 * MIB;
