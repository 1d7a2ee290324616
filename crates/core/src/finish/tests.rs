//! Scripts for each transition, and random connections against the law:
//! written = acked + unacked, and never more acked than the peer's kernel had.

mod kernel;
mod table;

use proptest::prelude::*;

use super::*;
use kernel::{Event, Kernel, by_bytes};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn want(want: Delivery) -> FinishOptions {
    FinishOptions { want, ..FinishOptions::default() }
}

fn acked_after(events: &[fn(&mut Kernel)]) -> (Kernel, Result<Receipt, (Unproven, Receipt)>) {
    let mut kernel = Kernel::connected(1000);
    let outcome = kernel.finish(kernel.facts(), FinishOptions::default(), events);
    (kernel, outcome)
}

/// The peer's answer to our FIN: it acknowledges it, and ends its own direction.
fn answers(kernel: &mut Kernel) {
    kernel.ack_fin();
    kernel.peer_ends();
}

#[test]
fn acked_in_three_calls_when_the_peer_answers() {
    let mut kernel = Kernel { alone: true, ..Kernel::connected(1000) };
    let receipt = kernel.finish(kernel.facts(), want(Delivery::Acked), &[answers]).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Fin));
    use Action::{CountUnacked, Done, Drain, HalfClose, Wait};
    let wait = Wait { until: 60 * MS, wake: Wake::Level { data: true } };
    let drain = Drain { limit: 1 << 20 };
    assert_eq!(kernel.calls, [HalfClose, wait, CountUnacked, drain, Done]);
}

#[test]
fn closed_in_four_calls_when_the_peer_answers() {
    let mut kernel = Kernel { alone: true, ..Kernel::connected(1000) };
    let receipt = kernel.finish(kernel.facts(), want(Delivery::Closed), &[answers]).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
    // One wait and the end are no calls of their own.
    assert_eq!(kernel.calls.len() - 2, 4, "{:?}", kernel.calls);
}

/// When a finish gives up, if the queue has this length at each time.
fn given_up_at(patient: bool, queue: fn(Duration) -> u32) -> Duration {
    let kernel = Kernel::connected(1000);
    let facts = kernel.facts();
    let options = FinishOptions { deadline: SECOND, patient, ..FinishOptions::default() };
    let mut finish = Finish::abort_with(facts, options, Duration::ZERO);
    let mut now = Duration::ZERO;
    for _ in 0..1000 {
        match finish.next() {
            Action::CountUnacked => finish.on_unacked(queue(now)),
            Action::CountUnsent => finish.on_unsent(0),
            Action::Inspect => finish.on_info(&kernel.info()),
            Action::Wait { until, .. } => {
                now = until;
                finish.on_wake(now, Woken::default());
            }
            Action::Done => return now,
            action => panic!("{action:?} is not for a reset"),
        }
    }
    panic!("it never ends");
}

#[test]
fn a_patient_finish_gives_up_only_where_nothing_moves() {
    let slow = |now: Duration| 2000 - u32::try_from(now.as_millis() / 100).unwrap().min(100);
    assert_eq!(given_up_at(false, slow), SECOND);
    assert!(given_up_at(true, slow) > 10 * SECOND);
    assert_eq!(given_up_at(true, |_| 1000), SECOND);
    // Acknowledged after the last look but one.
    let late = |now: Duration| if now < SECOND { 1000 } else { 999 };
    assert_eq!(given_up_at(true, late), 2 * SECOND);
}

#[test]
fn a_shared_socket_asks_once_more_how_the_peer_ended() {
    let mut kernel = Kernel::connected(1000);
    let receipt = kernel.finish(kernel.facts(), want(Delivery::Acked), &[answers]).unwrap();
    assert_eq!(receipt.peer, PeerEnd::Fin);
    assert_eq!(kernel.calls[4..], [Action::Inspect, Action::Done]);
}

#[test]
fn an_exclusive_socket_sees_a_reset_after_everything_was_acked() {
    let mut kernel = Kernel { alone: true, ..Kernel::connected(1000) };
    let resets = |kernel: &mut Kernel| {
        kernel.ack_fin();
        kernel.peer_resets();
    };
    let receipt = kernel.finish(kernel.facts(), want(Delivery::Acked), &[resets]).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Reset));
}

#[test]
fn after_an_earlier_half_close_a_reset_may_have_been_taken() {
    let mut kernel = Kernel { alone: true, ..Kernel::connected(1000) };
    assert!(kernel.half_close());
    kernel.ack_fin();
    kernel.peer_resets();
    // By a failed write after the half-close.
    kernel.error_pending = false;
    let facts = Facts { half_closed: true, ..kernel.facts() };
    let receipt = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Reset));
}

#[test]
fn a_peer_that_only_acknowledges_is_waited_for_by_edges_after_a_while() {
    let mut kernel = Kernel::connected(1000);
    let mut machine = Finish::new(kernel.facts(), want(Delivery::Acked), Duration::ZERO);
    machine.on_half_close(kernel.half_close());
    for (passed, wake) in [(60, Wake::Level { data: true }), (180, Wake::Edge)] {
        let Action::Wait { until, wake: asked } = machine.next() else {
            panic!("{:?}", machine.next());
        };
        assert_eq!((until, asked), (passed * MS, wake));
        machine.on_wake(until, kernel.woken());
        machine.on_unacked(kernel.queue());
        if let Action::Drain { .. } = machine.next() {
            machine.on_drained(Drained::Nothing);
        }
        machine.on_info(&kernel.info());
    }
    kernel.ack_fin();
    machine.on_wake(181 * MS, kernel.woken());
    machine.on_unacked(kernel.queue());
    assert_eq!(machine.next(), Action::Done);
}

#[test]
fn bytes_from_before_the_finish_are_looked_for_without_an_event() {
    let mut kernel = Kernel::connected(1000);
    let mut machine = Finish::new(kernel.facts(), want(Delivery::Acked), Duration::ZERO);
    machine.on_half_close(kernel.half_close());
    // A driver that reports only new events does not know of bytes that came before.
    machine.on_wake(60 * MS, Woken::default());
    machine.on_unacked(kernel.queue());
    assert!(matches!(machine.next(), Action::Drain { .. }));
}

#[test]
fn after_an_earlier_half_close_edges_are_waited_for_at_once() {
    let mut kernel = Kernel::connected(1000);
    assert!(kernel.half_close());
    let facts = Facts { half_closed: true, ..kernel.facts() };
    kernel.finish(facts, want(Delivery::Acked), &[Kernel::ack_fin]).unwrap();
    use Action::{CountUnacked, Done, Wait};
    let wait = Wait { until: 100 * MS, wake: Wake::Edge };
    assert_eq!(kernel.calls, [CountUnacked, wait, CountUnacked, Done]);
}

#[test]
fn closed_when_the_peers_fin_comes_later() {
    let mut kernel = Kernel::connected(1000);
    let events: [fn(&mut Kernel); 3] = [|_| (), Kernel::ack_fin, Kernel::peer_ends];
    let facts = kernel.facts();
    let receipt = kernel.finish(facts, want(Delivery::Closed), &events).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
}

#[test]
fn data_acked_and_fin_not_is_acked_at_the_deadline() {
    let (_, outcome) = acked_after(&[|kernel| kernel.deliver(1000)]);
    let receipt = outcome.unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Silent));
}

#[test]
fn the_last_byte_missing_is_not_acked() {
    let (_, outcome) = acked_after(&[|kernel| kernel.deliver(999)]);
    let (why, receipt) = outcome.unwrap_err();
    assert_eq!((why, receipt.acked), (Unproven::Deadline, Some(999)));
    assert_eq!(receipt.level, Delivery::Sent);
}

#[test]
fn a_reset_reports_what_came_first() {
    let (_, outcome) = acked_after(&[|kernel| kernel.deliver(400), Kernel::peer_resets]);
    let (why, receipt) = outcome.unwrap_err();
    assert_eq!((why, receipt.acked), (Unproven::Reset, Some(400)));
    assert_eq!((receipt.unacked, receipt.peer), (Some(600), PeerEnd::Reset));
}

#[test]
fn a_reset_before_the_half_close_leaves_no_fin_to_count() {
    let mut kernel = Kernel::connected(1000);
    kernel.deliver(999);
    kernel.peer_resets();
    let (why, receipt) = kernel.finish(kernel.facts(), want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!((why, receipt.acked), (Unproven::Reset, Some(999)), "the queue reads 1: a byte");
}

#[test]
fn a_reset_after_everything_was_acked_is_acked() {
    let (_, outcome) = acked_after(&[|kernel| kernel.deliver(1000), Kernel::peer_resets]);
    let receipt = outcome.unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Acked, PeerEnd::Reset));
}

#[test]
fn a_reset_that_somebody_else_took_is_still_a_reset() {
    let taken = |kernel: &mut Kernel| {
        kernel.peer_resets();
        kernel.error_pending = false;
    };
    let (_, outcome) = acked_after(&[|kernel| kernel.deliver(400), taken]);
    assert_eq!(outcome.unwrap_err().1.peer, PeerEnd::Reset);
}

#[test]
fn an_early_fin_does_not_make_it_closed() {
    for late in [false, true] {
        let mut kernel = Kernel::connected(1000);
        let events: &[fn(&mut Kernel)] =
            if late { &[|_| (), Kernel::peer_ends, Kernel::ack_fin] } else { &[Kernel::ack_fin] };
        if !late {
            kernel.peer_ends();
        }
        let facts = kernel.facts();
        let (why, receipt) = kernel.finish(facts, want(Delivery::Closed), events).unwrap_err();
        assert_eq!((why, receipt.level), (Unproven::EarlyFin, Delivery::Acked));
    }
}

#[test]
fn an_early_fin_is_no_hindrance_to_acked() {
    let (_, outcome) = acked_after(&[Kernel::peer_ends, Kernel::ack_fin]);
    assert_eq!(outcome.unwrap().level, Delivery::Acked);
}

#[test]
fn never_claims_anything_in_syn_sent() {
    let mut kernel = Kernel::connected(100);
    kernel.state = State::SynSent;
    let facts = Facts { connected: false, ..kernel.facts() };
    let connects: [fn(&mut Kernel); 2] = [|_| (), |kernel| kernel.state = State::Established];
    let (why, receipt) = kernel.finish(facts, want(Delivery::Acked), &connects).unwrap_err();
    assert_eq!((why, receipt.acked), (Unproven::Deadline, Some(0)));
    let shutdown = kernel.calls.iter().position(|call| *call == Action::HalfClose).unwrap();
    assert!(shutdown > 2, "half-closed before the handshake was over: {:?}", kernel.calls);
}

/// It counted once more instead, found the queue of a connection in SYN_SENT empty, and said that
/// nothing can be known.
#[test]
fn a_patient_finish_whose_handshake_never_ends_names_the_deadline() {
    for patient in [false, true] {
        let mut kernel = Kernel::connected(100);
        (kernel.state, kernel.delivered) = (State::SynSent, 100);
        let facts = Facts { connected: false, ..kernel.facts() };
        let options = FinishOptions { patient, ..FinishOptions::default().within(SECOND) };
        let (why, receipt) = kernel.finish(facts, options, &[]).unwrap_err();
        assert_eq!((why, receipt.peer), (Unproven::Deadline, PeerEnd::Silent));
        assert_eq!((receipt.acked, receipt.took), (None, SECOND));
        assert!(!kernel.calls.contains(&Action::CountUnacked), "{:?}", kernel.calls);
    }
}

#[test]
fn a_foreign_fin_proves_only_by_an_empty_queue() {
    let mut kernel = Kernel::connected(100);
    assert!(kernel.half_close());
    kernel.deliver(100);
    let facts = Facts { connected: false, ..kernel.facts() };
    let (_, receipt) = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!(receipt.acked, Some(99), "the 1 may be a byte: counted as one");
}

#[test]
fn mptcp_and_confirmed_are_unknowable() {
    for kind in [Kind::Mptcp, Kind::Other] {
        let mut kernel = Kernel { kind, ..Kernel::connected(100) };
        let events: [fn(&mut Kernel); 2] = [Kernel::ack_fin, Kernel::peer_ends];
        let facts = kernel.facts();
        let (why, receipt) = kernel.finish(facts, want(Delivery::Acked), &events).unwrap_err();
        assert_eq!((why, receipt.acked, receipt.sent), (Unproven::Unknowable, None, None));
        assert!(kernel.calls.contains(&Action::HalfClose), "nothing is lost for it");
    }

    let mut kernel = Kernel::connected(100);
    let events: [fn(&mut Kernel); 2] = [Kernel::ack_fin, Kernel::peer_ends];
    let facts = kernel.facts();
    let (why, receipt) = kernel.finish(facts, want(Delivery::Confirmed), &events).unwrap_err();
    assert_eq!((why, receipt.level), (Unproven::Unknowable, Delivery::Closed));
}

#[test]
fn drains_up_to_its_limit_and_no_further() {
    for (limit, left) in [(99, 1), (100, 0), (101, 0)] {
        let mut kernel = Kernel::connected(1000);
        kernel.incoming = 100;
        let drain = Drain::Discard(limit);
        let options = FinishOptions { drain, ..FinishOptions::default() };
        let receipt = kernel.finish(kernel.facts(), options, &[|_| (), Kernel::ack_fin]).unwrap();
        assert_eq!((receipt.drained, kernel.incoming), (limit.min(100), left));
    }
}

#[test]
fn drains_once_even_if_everything_was_acked_at_once() {
    let mut kernel = Kernel::connected(0);
    kernel.incoming = 7;
    let mut machine = Finish::new(without_edges(&kernel), want(Delivery::Acked), Duration::ZERO);
    machine.on_half_close(kernel.half_close());
    kernel.ack_fin();
    machine.on_info(&kernel.info());
    machine.on_unacked(kernel.queue());
    assert!(matches!(machine.next(), Action::Drain { .. }));
}

#[test]
fn wants_less_waits_less() {
    let mut kernel = Kernel::connected(1000);
    let receipt = kernel.finish(kernel.facts(), want(Delivery::Written), &[]).unwrap();
    assert_eq!((receipt.level, receipt.acked), (Delivery::Written, None));

    let mut kernel = Kernel::connected(1000);
    kernel.unsent = 500;
    let sends: [fn(&mut Kernel); 2] = [|_| (), |kernel| kernel.unsent = 0];
    let receipt = kernel.finish(kernel.facts(), want(Delivery::Sent), &sends).unwrap();
    assert_eq!((receipt.level, receipt.acked), (Delivery::Sent, Some(0)));
}

#[test]
fn a_deadline_of_zero_looks_once() {
    let mut kernel = Kernel::connected(1000);
    let options = FinishOptions { deadline: Duration::ZERO, ..FinishOptions::default() };
    let (why, receipt) = kernel.finish(kernel.facts(), options, &[]).unwrap_err();
    assert_eq!((why, receipt.took), (Unproven::Deadline, Duration::ZERO));
}

#[test]
fn looks_less_and_less_often_at_a_silent_peer() {
    let (kernel, outcome) = acked_after(&[]);
    assert_eq!(outcome.unwrap_err().1.peer, PeerEnd::Silent);
    let waits = kernel.calls.iter().filter(|call| matches!(call, Action::Wait { .. })).count();
    assert!(waits <= 12, "{waits} wake-ups in 30 s");
}

fn unix(written: u64) -> Kernel {
    Kernel { kind: Kind::Unix, ..Kernel::connected(written) }
}

fn without_edges(kernel: &Kernel) -> Facts {
    Facts { registered: false, ..kernel.facts() }
}

#[test]
fn without_edges_most_peers_are_waited_for_in_six_calls() {
    let mut kernel = Kernel::connected(1000);
    let facts = without_edges(&kernel);
    let answers = |kernel: &mut Kernel| {
        kernel.ack_fin();
        kernel.peer_ends();
    };
    let receipt = kernel.finish(facts, want(Delivery::Acked), &[answers]).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
    use Action::{CountUnacked, Done, Drain, HalfClose, Inspect, Wait};
    let wait = Wait { until: MS * 125, wake: Wake::Level { data: true } };
    let drain = Drain { limit: 1 << 20 };
    // The round trip is 50 ms, and a lone FIN's acknowledgement may be held back.
    let calls = [HalfClose, Inspect, wait, CountUnacked, drain, Inspect, Done];
    assert_eq!(kernel.calls, calls);
}

#[test]
fn without_edges_a_peer_that_does_not_answer_is_waited_for_by_edges() {
    let mut kernel = Kernel::connected(1000);
    let facts = without_edges(&kernel);
    let receipt = kernel
        .finish(facts, want(Delivery::Acked), &[|_| (), |kernel| kernel.incoming = 5])
        .unwrap_err()
        .1;
    assert_eq!((receipt.drained, receipt.peer), (5, PeerEnd::Silent));
    let edges = |call: &&Action| matches!(call, Action::Wait { wake: Wake::Edge, .. });
    let waits = kernel.calls.iter().filter(edges).count();
    assert!((1..12).contains(&waits), "{:?}", kernel.calls);
}

#[test]
fn what_is_kept_is_not_read_and_the_peers_end_is_known_all_the_same() {
    for registered in [false, true] {
        let mut kernel = Kernel::connected(1000);
        let events: [fn(&mut Kernel); 3] =
            [|kernel| kernel.incoming = 90, Kernel::ack_fin, Kernel::peer_ends];
        let facts = Facts { registered, ..kernel.facts() };
        let options = FinishOptions { drain: Drain::Keep, ..want(Delivery::Closed) };
        let receipt = kernel.finish(facts, options, &events).unwrap();
        assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
        assert_eq!((receipt.drained, kernel.incoming), (0, 90));
    }
}

#[test]
fn a_unix_socket_is_acked_when_its_peers_program_has_read_all() {
    for registered in [false, true] {
        let mut kernel = unix(1000);
        let facts = Facts { registered, ..kernel.facts() };
        let events: [fn(&mut Kernel); 2] = [|kernel| kernel.deliver(400), Kernel::ack_fin];
        let receipt = kernel.finish(facts, want(Delivery::Acked), &events).unwrap();
        assert_eq!((receipt.level, receipt.acked), (Delivery::Acked, Some(1000)));
    }
}

#[test]
fn a_unix_peer_that_closes_without_reading_empties_the_queue_and_proves_nothing() {
    let mut kernel = unix(1000);
    let events: [fn(&mut Kernel); 2] = [|kernel| kernel.deliver(400), Kernel::peer_resets];
    let facts = kernel.facts();
    let (why, receipt) = kernel.finish(facts, want(Delivery::Acked), &events).unwrap_err();
    assert_eq!((why, receipt.peer), (Unproven::Reset, PeerEnd::Reset));
    assert_eq!((receipt.level, receipt.acked, receipt.unacked), (Delivery::Sent, None, None));
}

#[test]
fn a_unix_reset_that_a_reader_met_before_is_no_empty_queue() {
    let mut kernel = unix(1000);
    kernel.peer_resets();
    kernel.error_pending = false;
    let facts = Facts { ended: Some(End::Reset), ..kernel.facts() };
    let (why, receipt) = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!((why, receipt.acked), (Unproven::Reset, None));
}

#[test]
fn a_foreign_unix_socket_whose_error_may_be_gone_proves_nothing() {
    let mut kernel = unix(1000);
    kernel.peer_resets();
    kernel.error_pending = false;
    let facts = Facts { connected: false, written: None, read: None, ..kernel.facts() };
    let (_, receipt) = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!((receipt.level, receipt.unacked), (Delivery::Sent, None));
}

#[test]
fn a_unix_peer_that_reads_and_then_closes_makes_it_closed() {
    let mut kernel = unix(10);
    let events: [fn(&mut Kernel); 2] = [Kernel::ack_fin, Kernel::peer_resets];
    let facts = kernel.facts();
    let receipt = kernel.finish(facts, want(Delivery::Closed), &events).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
}

/// Seen once in 20,000 connections: it was called an early end.
#[test]
fn a_unix_peer_that_reads_and_closes_between_two_looks_makes_it_closed() {
    for (early, level) in [(false, Delivery::Closed), (true, Delivery::Acked)] {
        let mut kernel = unix(10);
        let mut machine = Finish::new(kernel.facts(), want(Delivery::Closed), Duration::ZERO);
        machine.on_look(false);
        machine.on_half_close(kernel.half_close());
        machine.on_wake(10 * MS, Woken::default());
        machine.on_unacked(kernel.queue());
        assert!(matches!(machine.next(), Action::Drain { .. }));
        if !early {
            kernel.ack_fin();
        }
        kernel.peer_ends();
        machine.on_drained(Drained::End);
        machine.on_unacked(kernel.queue());
        if early {
            kernel.ack_fin();
            machine.on_wake(11 * MS, kernel.woken());
            machine.on_unacked(kernel.queue());
        }
        machine.on_error(false);
        assert_eq!(machine.receipt(11 * MS).level, level);
    }
}

#[test]
fn an_abort_comes_after_everything_was_acked() {
    let mut kernel = Kernel::connected(1000);
    let events: [fn(&mut Kernel); 2] = [|kernel| kernel.deliver(999), |kernel| kernel.deliver(1)];
    let receipt = kernel.abort(kernel.facts(), SECOND, &events).unwrap();
    assert_eq!((receipt.level, receipt.acked), (Delivery::Acked, Some(1000)));
}

#[test]
fn an_abort_without_an_event_looks_after_a_round_trip_and_then_less_often() {
    let mut kernel = Kernel::connected(1000);
    let (why, receipt) = kernel.abort(kernel.facts(), 10 * SECOND, &[]).unwrap_err();
    assert_eq!((why, receipt.acked), (Unproven::Deadline, Some(0)));
    let waits: Vec<_> = kernel
        .calls
        .iter()
        .filter_map(|call| match call {
            Action::Wait { until, .. } => Some(*until),
            _ => None,
        })
        .collect();
    assert_eq!(waits[0], 51 * MS, "the round trip is 50 ms");
    assert!((5..12).contains(&waits.len()), "{waits:?}");
}

#[test]
fn an_abort_waits_on_behind_the_peers_fin_and_not_behind_its_reset() {
    let mut kernel = Kernel::connected(10);
    let events: [fn(&mut Kernel); 2] = [Kernel::peer_ends, |kernel| kernel.deliver(10)];
    let receipt = kernel.abort(kernel.facts(), SECOND, &events).unwrap();
    assert_eq!((receipt.acked, receipt.peer), (Some(10), PeerEnd::Fin));

    let mut kernel = Kernel::connected(10);
    let (why, receipt) = kernel.abort(kernel.facts(), SECOND, &[Kernel::peer_resets]).unwrap_err();
    assert_eq!((why, receipt.took), (Unproven::Reset, MS));
}

#[test]
fn a_reset_behind_the_peers_fin_is_noticed_at_once() {
    let mut kernel = Kernel::connected(1000);
    let resets = |kernel: &mut Kernel| kernel.state = State::Close;
    let events: [fn(&mut Kernel); 3] = [|_| (), Kernel::peer_ends, resets];
    let (why, receipt) = kernel.finish(kernel.facts(), want(Delivery::Acked), &events).unwrap_err();
    assert_eq!((why, receipt.peer), (Unproven::Reset, PeerEnd::Reset));
    assert!(receipt.took < 10 * MS, "{receipt:?}");
}

#[test]
fn where_no_event_comes_the_timer_follows_the_round_trip() {
    let mut kernel = Kernel { blind: true, ..Kernel::connected(1000) };
    kernel.peer_ends();
    let facts = Facts { ended: Some(End::Fin), ..kernel.facts() };
    let events: [fn(&mut Kernel); 3] = [|_| (), |_| (), Kernel::ack_fin];
    let receipt = kernel.finish(facts, want(Delivery::Acked), &events).unwrap();
    assert_eq!(receipt.level, Delivery::Acked);
    let waits: Vec<_> = kernel
        .calls
        .iter()
        .filter_map(|call| match call {
            Action::Wait { until, .. } => Some(*until),
            _ => None,
        })
        .collect();
    // The first wait finds out; then a round trip of 50 ms, and a little.
    assert_eq!(waits[..2], [60 * MS, MS + 51 * MS]);
}

#[test]
fn what_others_wrote_is_not_counted_and_what_is_left_of_it_is() {
    let mut kernel = Kernel::connected(1000);
    kernel.deliver(400);
    let facts = Facts { connected: false, written: None, read: None, ..kernel.facts() };
    let (_, receipt) = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!((receipt.written, receipt.acked, receipt.unacked), (None, None, Some(600)));
}

#[test]
fn a_foreign_connection_that_is_gone_proves_nothing_by_its_empty_queue() {
    let mut kernel = Kernel::connected(1000);
    kernel.deliver(1000);
    kernel.peer_resets();
    let facts = Facts { connected: false, ..kernel.facts() };
    let (why, receipt) = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!(
        (why, receipt.level, receipt.acked),
        (Unproven::NotConnected, Delivery::Written, None)
    );
}

/// One thing that can happen to the connection.
fn event() -> impl Strategy<Value = Event> {
    (0..kernel::EVENTS.len()).prop_map(|number| kernel::EVENTS[number])
}

/// What a fuzzer has found worth keeping: `fuzz/corpus/finish`.
#[test]
#[cfg_attr(miri, ignore = "Miri lets nobody look for a file")]
fn the_corpus_of_the_fuzzer_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/finish");
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        by_bytes(&std::fs::read(&path).unwrap());
        cases += 1;
    }
    assert!(cases > 0, "{folder} is empty");
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Miri takes its time, and lets nobody look for a file.
        cases: if cfg!(miri) { 16 } else { 4096 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn never_claims_more_than_the_peers_kernel_had(
        written in 0_u64..3000,
        before in proptest::collection::vec(event(), 0..4),
        during in proptest::collection::vec(event(), 0..12),
        sudden in proptest::collection::vec((0_usize..30, event()), 0..6),
        want in prop_oneof![
            Just(Delivery::Written), Just(Delivery::Sent), Just(Delivery::Acked),
            Just(Delivery::Closed), Just(Delivery::Confirmed)
        ],
        kind in prop_oneof![
            4 => Just(Kind::Tcp), 2 => Just(Kind::Unix), 1 => Just(Kind::Mptcp), 1 => Just(Kind::Other)
        ],
        (connected, registered, known, aborts, blind, alone) in any::<(bool, bool, bool, bool, bool, bool)>(),
        drain in prop_oneof![(0_u64..200).prop_map(Drain::Discard), Just(Drain::Keep)],
    ) {
        let mut kernel = Kernel { kind, alone, ..Kernel::connected(written) };
        for event in before {
            event(&mut kernel);
        }
        (kernel.sudden, kernel.blind) = (sudden, blind);
        let written = known.then_some(written);
        let facts = Facts { connected, registered, written, ..kernel.facts() };
        let options = FinishOptions { want, drain, ..FinishOptions::default() };
        if aborts && kind == Kind::Tcp {
            let _ = kernel.abort(facts, Duration::from_secs(30), &during);
        } else {
            let _ = kernel.finish(facts, options, &during);
        }
    }
}
