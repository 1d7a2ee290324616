use proptest::prelude::*;

use super::*;

use Side::{Client, Upstream};

fn pump() -> Pump {
    Pump::new(0)
}

/// A FIN of this side, passed on.
fn pass_fin(pump: &mut Pump, from: Side) {
    pump.on_end(from, End::Fin);
    assert_eq!(pump.next(from), Next::HalfClose);
    pump.on_half_closed(from);
    assert_eq!(pump.next(from), Next::Done);
}

#[test]
fn what_is_read_is_written_before_more_is_read() {
    let mut pump = pump();
    assert_eq!((pump.next(Client), pump.next(Upstream)), (Next::Read, Next::Read));
    pump.on_read(Client, 5);
    assert_eq!((pump.next(Client), pump.next(Upstream)), (Next::Write, Next::Read));
    pump.on_written(Client, 3);
    assert_eq!(pump.next(Client), Next::Write);
    pump.on_written(Client, 2);
    assert_eq!(pump.next(Client), Next::Read);
    assert_eq!(pump.traffic(Client), Traffic { received: 5, written: 5, end: None });
}

#[test]
fn what_came_with_the_request_goes_first() {
    let pump = Pump::new(7);
    assert_eq!((pump.next(Client), pump.next(Upstream)), (Next::Write, Next::Read));
    assert_eq!(pump.traffic(Client).buffered(), 7);
}

#[test]
fn a_fin_ends_its_own_way_alone_and_after_all_data() {
    let mut pump = pump();
    pump.on_read(Client, 5);
    pump.on_end(Client, End::Fin);
    assert_eq!(pump.next(Client), Next::Write);
    pump.on_written(Client, 5);
    assert_eq!(pump.next(Client), Next::HalfClose);
    pump.on_half_closed(Client);
    assert_eq!((pump.next(Client), pump.next(Upstream)), (Next::Done, Next::Read));
    assert!(!pump.is_done());
    pump.on_read(Upstream, 9);
    pump.on_written(Upstream, 9);
    pass_fin(&mut pump, Upstream);
    assert!(pump.is_done());
    assert_eq!((pump.closing(Client), pump.closing(Upstream)), (Closing::Finish, Closing::Finish));
    assert_eq!((pump.first_end(), pump.reset_by()), (Some(Client), None));
}

#[test]
fn a_reset_is_passed_on_after_what_came_before_it() {
    let mut pump = pump();
    pump.on_read(Upstream, 5);
    pump.on_end(Upstream, End::Reset);
    assert_eq!((pump.next(Upstream), pump.next(Client)), (Next::Write, Next::Done));
    assert!(pump.is_flushing());
    pump.on_written(Upstream, 5);
    assert!(pump.is_done());
    assert_eq!((pump.closing(Client), pump.closing(Upstream)), (Closing::Reset, Closing::Drop));
    assert_eq!(pump.reset_by(), Some(Upstream));
}

#[test]
fn a_failed_write_leaves_the_early_answer_to_be_delivered() {
    let mut pump = pump();
    pump.on_read(Client, 100);
    pump.on_dead(Upstream);
    assert_eq!((pump.next(Client), pump.next(Upstream)), (Next::Done, Next::Read));
    pump.on_read(Upstream, 16);
    pump.on_end(Upstream, End::Reset);
    pump.on_written(Upstream, 16);
    assert!(pump.is_done());
    assert_eq!((pump.closing(Client), pump.closing(Upstream)), (Closing::Reset, Closing::Drop));
    assert_eq!(pump.traffic(Client).buffered(), 100, "lost, and counted");
}

#[test]
fn a_reset_behind_a_fin_leaves_the_reader_its_end_and_tells_the_writer() {
    let mut pump = pump();
    pass_fin(&mut pump, Upstream);
    assert!(pump.has_fin(Client));
    pump.on_read(Client, 10);
    pump.on_dead(Upstream);
    assert!(pump.is_done());
    assert_eq!(pump.closing(Client), Closing::Reset, "after its FIN is acknowledged");
    assert_eq!(pump.traffic(Upstream).end, Some(End::Fin));
    assert_eq!((pump.first_end(), pump.reset_by()), (Some(Upstream), Some(Upstream)));
}

#[test]
fn two_dead_legs_end_both_directions_whatever_is_buffered() {
    let mut pump = pump();
    pump.on_read(Client, 10);
    pump.on_read(Upstream, 10);
    pump.on_dead(Client);
    pump.on_dead(Upstream);
    assert!(pump.is_done());
    assert_eq!((pump.closing(Client), pump.closing(Upstream)), (Closing::Drop, Closing::Drop));
    assert_eq!(pump.reset_by(), Some(Client));
}

#[test]
fn an_end_that_cannot_be_told_is_a_fin_unless_the_leg_died() {
    let mut clean = pump();
    clean.on_end(Client, End::Unknown);
    assert_eq!(clean.next(Client), Next::HalfClose);
    let mut dead = pump();
    dead.on_dead(Client);
    dead.on_end(Client, End::Unknown);
    assert_eq!(dead.next(Client), Next::Done);
    assert_eq!(dead.closing(Upstream), Closing::Reset);
    let mut truncated = pump();
    truncated.on_end(Client, End::Truncated);
    assert_eq!((truncated.next(Client), truncated.closing(Upstream)), (Next::Done, Closing::Reset));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Read(u64),
    Written(u64),
    End(End),
    WriteFailed,
    Dead,
}

fn event() -> impl Strategy<Value = (Side, Event)> {
    let side = prop_oneof![Just(Client), Just(Upstream)];
    let ends = prop_oneof![Just(End::Fin), Just(End::Reset), Just(End::Unknown)];
    let event = prop_oneof![
        8 => (1..1000u64).prop_map(Event::Read),
        8 => (1..1000u64).prop_map(Event::Written),
        2 => ends.prop_map(Event::End),
        1 => Just(Event::WriteFailed),
        1 => Just(Event::Dead),
    ];
    (side, event)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 2000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever happens, no bytes appear or vanish, a FIN follows only a FIN and all its data, and
    /// what was cut never ends in a finish.
    #[test]
    fn nothing_cut_looks_complete(events in prop::collection::vec(event(), 0..60)) {
        let mut pump = pump();
        for (side, event) in events {
            let next = pump.next(side);
            match (event, next) {
                (Event::Read(bytes), Next::Read) => pump.on_read(side, bytes),
                (Event::End(end), Next::Read) => pump.on_end(side, end),
                (Event::Written(bytes), Next::Write) => {
                    pump.on_written(side, bytes.min(pump.traffic(side).buffered()));
                }
                (Event::WriteFailed, Next::Write | Next::HalfClose) => pump.on_dead(side.other()),
                (Event::Dead, _) => pump.on_dead(side),
                _ => {}
            }
            if pump.next(side) == Next::HalfClose {
                prop_assert_eq!(pump.traffic(side).buffered(), 0);
                prop_assert!(matches!(pump.traffic(side).end, Some(End::Fin | End::Unknown)));
                pump.on_half_closed(side);
            }
            for from in Side::BOTH {
                let traffic = pump.traffic(from);
                prop_assert!(traffic.written <= traffic.received);
            }
        }
        if pump.is_done() {
            for from in Side::BOTH {
                let whole = pump.has_fin(from.other()) && pump.traffic(from).buffered() == 0;
                if pump.closing(from.other()) == Closing::Finish {
                    prop_assert!(whole, "{from} was cut: {pump:?}");
                }
            }
            let finished = Side::BOTH.iter().all(|leg| pump.closing(*leg) == Closing::Finish);
            prop_assert_eq!(finished, pump.reset_by().is_none());
        }
    }
}
