//! Scripts for each transition, and random connections against the law:
//! written = acked + unacked, and never more acked than the peer's kernel had.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A kernel that knows one connection, as Linux answers for it.
#[derive(Clone, Debug)]
struct Kernel {
    state: State,
    written: u64,
    /// What the peer's kernel has of ours.
    delivered: u64,
    fin_queued: bool,
    fin_acked: bool,
    unsent: u64,
    incoming: u64,
    read: u64,
    peer_fin: bool,
    reset: bool,
    error_pending: bool,
    calls: Vec<Action>,
}

impl Kernel {
    fn connected(written: u64) -> Self {
        Self {
            state: State::Established,
            written,
            delivered: 0,
            fin_queued: false,
            fin_acked: false,
            unsent: 0,
            incoming: 0,
            read: 0,
            peer_fin: false,
            reset: false,
            error_pending: false,
            calls: Vec::new(),
        }
    }

    fn facts(&self) -> Facts {
        Facts {
            connected: true,
            half_closed: false,
            plain_tcp: true,
            written: self.written,
            read: Some(self.read),
            ended: None,
        }
    }

    fn info(&self) -> TcpInfo {
        let mut bytes = [0; 280];
        bytes[0] = match self.state {
            State::Established => 1,
            State::SynSent => 2,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::Close => 7,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Closing => 11,
            other => panic!("not modelled: {other:?}"),
        };
        let mut info = TcpInfo::parse(&bytes).unwrap();
        info.rtt_us = 50_000;
        info.bytes_received = Some(self.read + self.incoming + u64::from(self.peer_fin));
        info
    }

    fn half_close(&mut self) -> bool {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            // Seen on Linux: succeeds, throws pending bytes away and queues no FIN.
            State::SynSent => return true,
            _ => return false,
        }
        self.fin_queued = true;
        true
    }

    fn queue(&self) -> u32 {
        let fin = u64::from(self.fin_queued && !self.fin_acked);
        u32::try_from(self.written - self.delivered + fin).unwrap()
    }

    fn drain(&mut self, limit: u64) -> Drained {
        if self.incoming > 0 {
            let bytes = self.incoming.min(limit);
            self.incoming -= bytes;
            self.read += bytes;
            Drained::Bytes(bytes)
        } else if self.peer_fin {
            Drained::End
        } else if self.reset {
            // The error is told once; after that the stream just looks ended.
            if std::mem::take(&mut self.error_pending) { Drained::Failed } else { Drained::End }
        } else {
            Drained::Nothing
        }
    }

    fn deliver(&mut self, bytes: u64) {
        if !self.reset {
            self.delivered = (self.delivered + bytes).min(self.written);
        }
    }

    fn ack_fin(&mut self) {
        if self.fin_queued && !self.reset {
            self.delivered = self.written;
            self.fin_acked = true;
            self.state = match self.state {
                State::FinWait1 => State::FinWait2,
                State::Closing | State::LastAck => State::Close,
                other => other,
            };
        }
    }

    fn peer_ends(&mut self) {
        if self.reset || self.peer_fin {
            return;
        }
        self.peer_fin = true;
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::Close,
            other => other,
        };
    }

    fn peer_resets(&mut self) {
        if self.state != State::Close {
            (self.reset, self.error_pending, self.state) = (true, !self.peer_fin, State::Close);
        }
    }

    /// Drives the machine; `events` happen one at each wait, and time passes to its end.
    fn finish(
        &mut self,
        facts: Facts,
        options: FinishOptions,
        events: &[fn(&mut Self)],
    ) -> Result<Receipt, (Unproven, Receipt)> {
        let mut machine = Finish::new(facts, options, Duration::ZERO);
        let mut events = events.iter();
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            let action = machine.next();
            self.calls.push(action);
            match action {
                Action::Inspect => machine.on_info(&self.info()),
                Action::HalfClose => machine.on_half_close(self.half_close()),
                Action::CountUnacked => machine.on_unacked(self.queue()),
                Action::CountUnsent => machine.on_unsent(u32::try_from(self.unsent).unwrap()),
                Action::Drain { limit } => {
                    assert!(limit > 0, "a read of nothing looks like an end");
                    machine.on_drained(self.drain(limit));
                }
                Action::Wait { until } => {
                    assert!(until >= now, "waits in the past");
                    if let Some(event) = events.next() {
                        event(self);
                        now += MS;
                    } else {
                        now = until;
                    }
                    let readable = self.incoming > 0 || self.peer_fin || self.reset;
                    machine.on_wake(now, readable);
                }
                Action::Done => return self.checked(machine.outcome(now)),
            }
        }
        panic!("the machine does not end: {:?}", self.calls);
    }

    /// The law, for every outcome.
    fn checked<E: Copy + std::fmt::Debug>(
        &self,
        outcome: Result<Receipt, (E, Receipt)>,
    ) -> Result<Receipt, (E, Receipt)> {
        let receipt = match &outcome {
            Ok(receipt) => receipt,
            Err((_, receipt)) => receipt,
        };
        assert_eq!(receipt.written, self.written);
        if let Some(acked) = receipt.acked {
            assert!(acked <= self.delivered, "{receipt:?} claims more than {self:?}");
            assert_eq!(acked + receipt.unacked().unwrap(), receipt.written);
        }
        if receipt.level >= Delivery::Acked {
            assert_eq!(receipt.acked, Some(self.written));
        }
        if receipt.level >= Delivery::Closed {
            assert!(self.peer_fin && self.fin_acked);
        }
        outcome
    }
}

fn want(want: Delivery) -> FinishOptions {
    FinishOptions { want, ..FinishOptions::default() }
}

fn acked_after(events: &[fn(&mut Kernel)]) -> (Kernel, Result<Receipt, (Unproven, Receipt)>) {
    let mut kernel = Kernel::connected(1000);
    let outcome = kernel.finish(kernel.facts(), FinishOptions::default(), events);
    (kernel, outcome)
}

#[test]
fn acked_in_six_calls_when_the_ack_comes_by_an_event() {
    let (kernel, outcome) = acked_after(&[|_| (), Kernel::ack_fin]);
    assert_eq!(outcome.unwrap().level, Delivery::Acked);
    use Action::{CountUnacked, Done, HalfClose, Wait};
    let until = |ms| Wait { until: MS * ms };
    assert_eq!(
        kernel.calls,
        [HalfClose, CountUnacked, until(100), CountUnacked, until(101), CountUnacked, Done],
        "half-close, and then an ioctl after each of two waits"
    );
}

#[test]
fn closed_in_nine_calls_when_the_peer_answers_with_fin_and_ack() {
    let mut kernel = Kernel::connected(1000);
    let answers = |kernel: &mut Kernel| {
        kernel.ack_fin();
        kernel.peer_ends();
    };
    let facts = kernel.facts();
    let receipt = kernel.finish(facts, want(Delivery::Closed), &[|_| (), answers]).unwrap();
    assert_eq!((receipt.level, receipt.peer), (Delivery::Closed, PeerEnd::Fin));
    assert_eq!(kernel.calls.len() - 1, 9, "{:?}", kernel.calls);
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
    assert_eq!((receipt.unacked(), receipt.peer), (Some(600), PeerEnd::Reset));
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
    let mut kernel = Kernel::connected(100);
    let facts = Facts { plain_tcp: false, ..kernel.facts() };
    let (why, receipt) = kernel.finish(facts, want(Delivery::Acked), &[]).unwrap_err();
    assert_eq!((why, receipt.acked, receipt.sent), (Unproven::Unknowable, None, None));

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
        let options = FinishOptions { drain_limit: limit, ..FinishOptions::default() };
        let receipt = kernel.finish(kernel.facts(), options, &[|_| (), Kernel::ack_fin]).unwrap();
        assert_eq!((receipt.drained, kernel.incoming), (limit.min(100), left));
    }
}

#[test]
fn drains_once_even_if_everything_was_acked_at_once() {
    let mut kernel = Kernel::connected(0);
    kernel.incoming = 7;
    let mut machine = Finish::new(kernel.facts(), FinishOptions::default(), Duration::ZERO);
    machine.on_half_close(kernel.half_close());
    machine.on_unacked(0);
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

/// One thing that can happen to the connection while the machine waits.
fn event() -> impl Strategy<Value = fn(&mut Kernel)> {
    prop_oneof![
        4 => Just((|kernel| kernel.deliver(137)) as fn(&mut Kernel)),
        2 => Just((|kernel| kernel.deliver(1_000_000)) as fn(&mut Kernel)),
        2 => Just(Kernel::ack_fin as fn(&mut Kernel)),
        2 => Just((|kernel| kernel.incoming += u64::from(!kernel.reset && !kernel.peer_fin) * 90)
            as fn(&mut Kernel)),
        1 => Just(Kernel::peer_ends as fn(&mut Kernel)),
        1 => Just(Kernel::peer_resets as fn(&mut Kernel)),
        1 => Just((|kernel| kernel.error_pending = false) as fn(&mut Kernel)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn never_claims_more_than_the_peers_kernel_had(
        written in 0_u64..3000,
        before in proptest::collection::vec(event(), 0..4),
        during in proptest::collection::vec(event(), 0..12),
        want in prop_oneof![
            Just(Delivery::Written), Just(Delivery::Sent), Just(Delivery::Acked),
            Just(Delivery::Closed), Just(Delivery::Confirmed)
        ],
        connected: bool,
        drain_limit in 0_u64..200,
    ) {
        let mut kernel = Kernel::connected(written);
        for event in before {
            event(&mut kernel);
        }
        let facts = Facts { connected, ..kernel.facts() };
        let options = FinishOptions { want, drain_limit, ..FinishOptions::default() };
        let _ = kernel.finish(facts, options, &during);
    }
}
