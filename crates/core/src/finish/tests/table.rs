//! The table at the top of the machine, compared with what the machine does.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// From each phase, those that were seen to follow.
type Transitions = BTreeMap<String, BTreeSet<String>>;

/// The name of a phase, without its data.
fn name(phase: Phase) -> String {
    format!("{phase:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// Rows of the table: the first column has the phase, the last one all that can follow.
fn written() -> Transitions {
    let heading =
        include_str!("../../finish.rs").lines().take_while(|line| line.starts_with("//!"));
    let rows = heading.filter(|line| line.starts_with("//! | `"));
    rows.map(|row| {
        let columns: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let names = |column: &str| -> Vec<String> {
            column.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let [_, first, _, last] = columns[..] else { panic!("not three columns: {row}") };
        (names(first).remove(0), names(last).into_iter().collect())
    })
    .collect()
}

/// The next number of splitmix64, below `end`.
fn below(state: &mut u64, end: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    usize::try_from((mixed ^ mixed >> 32) % end as u64).unwrap()
}

/// A machine of random facts and options.
fn any_machine(chance: &mut u64) -> Finish {
    let mut pick = |end| below(chance, end);
    let kind = [Kind::Tcp, Kind::Tcp, Kind::Unix, Kind::Mptcp, Kind::Other][pick(5)];
    let want = [Delivery::Written, Delivery::Sent, Delivery::Acked, Delivery::Closed][pick(4)];
    let ended = [None, None, Some(End::Fin), Some(End::Reset), Some(End::Unknown)][pick(5)];
    // One that is half-closed was connected.
    let half_closed = pick(4) == 0;
    let facts = Facts {
        kind,
        connected: pick(2) == 0 || half_closed,
        half_closed,
        written: [None, Some(9)][pick(2)],
        read: [None, Some(5)][pick(2)],
        ended,
        registered: pick(2) == 0,
        alone: pick(2) == 0,
    };
    let drain = [Drain::Keep, Drain::Discard(0), Drain::Discard(3), Drain::Discard(1000)][pick(4)];
    let deadline = [Duration::ZERO, SECOND][pick(2)];
    let options = FinishOptions { deadline, want, drain, patient: pick(2) == 0 };
    match pick(4) {
        0 if kind == Kind::Tcp => Finish::abort_with(facts, options, Duration::ZERO),
        _ => Finish::new(facts, options, Duration::ZERO),
    }
}

/// Gives any answer to what is asked next, also such as no kernel would give.
fn answer(machine: &mut Finish, now: &mut Duration, chance: &mut u64) {
    let action = machine.next();
    let mut pick = |end| below(chance, end);
    let left = [0, 0, 1, 2, 5][pick(5)];
    match action {
        Action::Inspect => {
            let mut bytes = [0; 280];
            // No SYN_SENT or SYN_RECV where the handshake is known to be over.
            let connected = machine.facts.connected;
            let states: &[u8] =
                if connected { &[1, 4, 5, 7, 8, 9, 11] } else { &[1, 2, 3, 4, 5, 6, 7, 8] };
            bytes[0] = states[pick(states.len())];
            let mut info = TcpInfo::parse(&bytes).unwrap();
            info.bytes_received = [None, Some(5), Some(6)][pick(3)];
            machine.on_info(&info);
        }
        Action::LookForEnd => machine.on_look(pick(2) == 0),
        Action::HalfClose => machine.on_half_close(pick(4) > 0),
        Action::CountUnacked => machine.on_unacked(left),
        Action::CountUnsent => machine.on_unsent(left),
        Action::CountUnread => machine.on_unread(left),
        Action::TakeError => machine.on_error(pick(4) == 0),
        Action::Drain { limit } => {
            let bytes = Drained::Bytes(limit.min(1 + below(chance, 5) as u64));
            let answers = [Drained::Nothing, bytes, Drained::End, Drained::Failed];
            machine.on_drained(answers[below(chance, 4)]);
        }
        Action::Wait { until, .. } => {
            *now = [*now, *now + MS, until][pick(3)];
            let (readable, ended, blind) = (pick(2) == 0, pick(3) == 0, pick(8) == 0);
            machine.on_wake(*now, Woken { readable, ended, blind });
        }
        Action::Done => {}
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri would take minutes for so many connections")]
fn the_table_has_every_transition_and_no_other() {
    let mut seen = Transitions::new();
    let mut chance = 21;
    for _ in 0..60_000 {
        let mut machine = any_machine(&mut chance);
        let mut now = Duration::ZERO;
        for _ in 0..40 {
            let before = name(machine.phase);
            if machine.next() == Action::Done {
                break;
            }
            answer(&mut machine, &mut now, &mut chance);
            seen.entry(before).or_default().insert(name(machine.phase));
        }
    }
    for (phase, followers) in written() {
        let seen = seen.remove(&phase).unwrap_or_default();
        assert_eq!(followers, seen, "left: the table's row of {phase}, right: what it does");
    }
    assert_eq!(seen, Transitions::new(), "phases without a row");
}
