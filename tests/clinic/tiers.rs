//! What each tier of the doctor has to find in the clinic. Tier bpf finds every disease; of the lower ones
//! it is said here what they have no view of. All else has to be found by them too, so that a disease that a
//! tier does not find any more is a failure.

use super::catalogue::Case;

/// What has to be in the doctor's answer about a patient that is sick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The disease by its code, and its bytes.
    Found,
    /// The disease by its code, as a loss; its bytes, or that they are not known.
    Told,
    /// The code; no loss, since whether anybody waited for the bytes cannot be seen.
    Noted,
    /// A loss, but not which: that is LB110, without bytes.
    Doubted,
    /// This end shows nothing of it. If the other end does, as LB105, that has to be its bytes.
    OtherEnd,
    /// This tier has no view of it. If it is found all the same, its bytes have to be right.
    Unseen,
}

pub(super) fn expected(tier: &str, case: &Case) -> Expected {
    let Some(disease) = case.disease else {
        // A note is of what only the kernel itself tells: who let go of a connection at its end.
        return if tier == "bpf" { Expected::Found } else { Expected::Unseen };
    };
    let is_of = |list: &[&str]| list.contains(&disease) || list.contains(&case.name);
    match tier {
        "bpf" => Expected::Found,
        "tracefs" if is_of(&NOTED_BY_TRACEFS) => Expected::Noted,
        "tracefs" if is_of(&TOLD_BY_TRACEFS) => Expected::Told,
        "tracefs" if is_of(&OTHER_END_BY_TRACEFS) => Expected::OtherEnd,
        "tracefs" if is_of(&UNSEEN_BY_TRACEFS) => Expected::Unseen,
        "tracefs" => Expected::Found,
        _ if is_of(&DOUBTED_BY_PROCFS) => Expected::Doubted,
        _ if is_of(&OTHER_END_BY_TRACEFS) => Expected::OtherEnd,
        _ if is_of(&UNSEEN_BY_TRACEFS) || is_of(&UNSEEN_BY_PROCFS) => Expected::Unseen,
        _ => Expected::Found,
    }
}

/// Of these the bytes, or who waited for them, are in tables that it does not read.
const NOTED_BY_TRACEFS: [&str; 2] = ["LB107", "unread input, other network"];

/// An abort leaves no numbers, and text is read, and tables are looked at, some times in a second.
const TOLD_BY_TRACEFS: [&str; 1] = ["linger 0, gone in milliseconds"];

/// What the other end sent in vain is told by no trace point, if it is answered but once or twice. The last
/// look at that end may show it.
const OTHER_END_BY_TRACEFS: [&str; 1] = ["receiver closes early, in Python"];

/// Diseases, and single cases by their names: first calls of the program and what its sockets waited for,
/// then connects that succeed in the end.
const UNSEEN_BY_TRACEFS: [&str; 7] =
    ["LB205", "LB303", "LB304", "LB401", "LB402", "LB403", "LB405"];

/// In no table there is who closed what, and how; the namespace's counters tell that something was lost.
const DOUBTED_BY_PROCFS: [&str; 4] =
    ["LB102", "data after close in C", "data after close in Go", "linger 0, gone in milliseconds"];

/// Besides these.
const UNSEEN_BY_PROCFS: [&str; 3] = [
    "LB107",
    "LB305",
    // Another network's tables are read where the doctor is told of a process in it.
    "unread input, other network",
];
