//! A model of a kernel with one connection, and the events that can happen to it. The tests drive the
//! machine against it, and so does the fuzzer (`fuzz/fuzz_targets/finish.rs`), which includes this file.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "for tests alone")]

use std::time::Duration;

use lastbyte_core::finish::{
    Action, Drain, Drained, Facts, Finish, FinishOptions, Unproven, Wake, Woken,
};
use lastbyte_core::sample::{State, TcpInfo};
use lastbyte_core::{Delivery, Kind, PeerEnd, Receipt};

const MS: Duration = Duration::from_millis(1);

/// Something that happens to the connection.
pub type Event = fn(&mut Kernel);

/// A kernel with one connection, which answers as Linux does.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub kind: Kind,
    pub state: State,
    pub written: u64,
    /// The bytes of ours that the peer's kernel has; over a Unix socket, those that its program has read.
    pub delivered: u64,
    pub fin_queued: bool,
    pub fin_acked: bool,
    pub unsent: u64,
    pub incoming: u64,
    pub read: u64,
    pub peer_fin: bool,
    pub reset: bool,
    pub error_pending: bool,
    /// The driver's poller sees both directions closed, and reports no event.
    pub blind: bool,
    /// Events just before the call of that number, between two answers.
    pub sudden: Vec<(usize, Event)>,
    /// No other reader or writer can take an error.
    pub alone: bool,
    pub calls: Vec<Action>,
}

impl Kernel {
    pub fn connected(written: u64) -> Self {
        Self {
            kind: Kind::Tcp,
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
            blind: false,
            sudden: Vec::new(),
            alone: false,
            calls: Vec::new(),
        }
    }

    pub fn facts(&self) -> Facts {
        Facts {
            kind: self.kind,
            connected: true,
            half_closed: false,
            written: Some(self.written),
            read: Some(self.read),
            ended: None,
            registered: true,
            alone: self.alone,
        }
    }

    pub fn info(&self) -> TcpInfo {
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

    pub fn half_close(&mut self) -> bool {
        match self.state {
            _ if self.kind != Kind::Tcp => {}
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            // Seen on Linux: succeeds, throws pending bytes away and queues no FIN.
            State::SynSent => return true,
            _ => return false,
        }
        self.fin_queued = true;
        true
    }

    pub fn queue(&self) -> u32 {
        let left = self.written - self.delivered;
        let queue = match self.kind {
            // Memory, and none of it once the peer has closed.
            Kind::Unix => {
                if self.reset {
                    0
                } else {
                    left * 2
                }
            }
            // Data alone, and nothing after a reset.
            Kind::Mptcp => {
                if self.reset {
                    0
                } else {
                    left
                }
            }
            _ => left + u64::from(self.fin_queued && !self.fin_acked),
        };
        u32::try_from(queue).unwrap()
    }

    pub fn woken(&self) -> Woken {
        let ended = self.peer_fin || self.reset;
        Woken { readable: self.incoming > 0 || ended, ended, blind: self.blind }
    }

    /// Whether `poll` or an edge-triggered registration would let the driver sleep.
    pub fn sleeps(&self, wake: Wake) -> bool {
        match wake {
            Wake::Level { data } => !(self.woken().ended || (data && self.incoming > 0)),
            Wake::Edge => true,
        }
    }

    pub fn drain(&mut self, limit: u64) -> Drained {
        if self.incoming > 0 {
            let bytes = self.incoming.min(limit);
            self.incoming -= bytes;
            self.read += bytes;
            Drained::Bytes(bytes)
        } else if self.peer_fin && !(self.kind == Kind::Unix && self.reset) {
            Drained::End
        } else if self.reset {
            // The error is reported once; after that the stream just looks ended.
            if std::mem::take(&mut self.error_pending) { Drained::Failed } else { Drained::End }
        } else {
            Drained::Nothing
        }
    }

    pub fn deliver(&mut self, bytes: u64) {
        if !self.reset {
            self.delivered = (self.delivered + bytes).min(self.written);
        }
    }

    pub fn ack_fin(&mut self) {
        if (self.fin_queued || self.kind == Kind::Unix) && !self.reset {
            self.delivered = self.written;
            self.fin_acked = true;
            self.state = match self.state {
                State::FinWait1 => State::FinWait2,
                State::Closing | State::LastAck => State::Close,
                other => other,
            };
        }
    }

    pub fn peer_ends(&mut self) {
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

    pub fn peer_resets(&mut self) {
        if self.kind == Kind::Unix {
            // Closing with nothing unread is a clean end.
            let reset = self.written > self.delivered;
            self.peer_fin |= !reset && !self.reset;
            self.error_pending |= reset && !self.reset;
            self.reset |= reset;
        } else if self.state != State::Close {
            (self.reset, self.error_pending, self.state) = (true, !self.peer_fin, State::Close);
        }
    }

    /// Drives the machine; `events` happen one at each wait, and time passes to its end.
    pub fn finish(
        &mut self,
        facts: Facts,
        options: FinishOptions,
        events: &[fn(&mut Self)],
    ) -> Result<Receipt, (Unproven, Receipt)> {
        self.drive(Finish::new(facts, options, Duration::ZERO), events)
    }

    pub fn abort(
        &mut self,
        facts: Facts,
        deadline: Duration,
        events: &[fn(&mut Self)],
    ) -> Result<Receipt, (Unproven, Receipt)> {
        let outcome = self.drive(Finish::abort(facts, deadline, Duration::ZERO), events);
        assert!(!self.calls.contains(&Action::HalfClose), "a FIN before the reset");
        outcome
    }

    pub fn drive(
        &mut self,
        mut machine: Finish,
        events: &[fn(&mut Self)],
    ) -> Result<Receipt, (Unproven, Receipt)> {
        let mut events = events.iter();
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            let action = machine.next();
            for (at, event) in self.sudden.clone() {
                if at == self.calls.len() {
                    event(self);
                }
            }
            self.calls.push(action);
            match action {
                Action::Inspect => {
                    assert_eq!(self.kind, Kind::Tcp, "only TCP has a TCP_INFO");
                    machine.on_info(&self.info());
                }
                Action::LookForEnd => machine.on_look(self.woken().ended),
                Action::TakeError => machine.on_error(std::mem::take(&mut self.error_pending)),
                Action::CountUnread => {
                    machine.on_unread(u32::try_from(self.incoming).unwrap());
                }
                Action::HalfClose => machine.on_half_close(self.half_close()),
                Action::CountUnacked => machine.on_unacked(self.queue()),
                Action::CountUnsent => machine.on_unsent(u32::try_from(self.unsent).unwrap()),
                Action::Drain { limit } => {
                    assert!(limit > 0, "a read of nothing looks like an end");
                    machine.on_drained(self.drain(limit));
                }
                Action::Wait { until, wake } => {
                    assert!(until >= now, "waits in the past");
                    if !self.sleeps(wake) {
                        // Wakes at once, and may not do so for ever.
                    } else if let Some(event) = events.next() {
                        event(self);
                        now += MS;
                    } else {
                        now = until;
                    }
                    machine.on_wake(now, self.woken());
                }
                Action::Done => return self.checked(machine.outcome(now)),
            }
        }
        panic!("the machine does not end: {:?}", self.calls);
    }

    /// The law, for every outcome.
    pub fn checked<E: Copy + std::fmt::Debug>(
        &self,
        outcome: Result<Receipt, (E, Receipt)>,
    ) -> Result<Receipt, (E, Receipt)> {
        let receipt = match &outcome {
            Ok(receipt) => receipt,
            Err((_, receipt)) => receipt,
        };
        assert!(receipt.written.is_none_or(|written| written == self.written));
        if let Some(acked) = receipt.acked {
            assert!(acked <= self.delivered, "{receipt:?} claims more than {self:?}");
            assert_eq!(acked + receipt.unacked.unwrap(), self.written);
        }
        if let Some(unacked) = receipt.unacked {
            let left = self.written - self.delivered;
            assert!(unacked >= left, "{receipt:?} misses some of {self:?}");
        }
        if receipt.level >= Delivery::Acked {
            assert_eq!((receipt.unacked, self.delivered), (Some(0), self.written));
            assert!(matches!(self.kind, Kind::Tcp | Kind::Unix));
        }
        if receipt.level >= Delivery::Closed {
            assert!(self.peer_fin && (self.fin_acked || self.kind == Kind::Unix));
        }
        if receipt.peer == PeerEnd::Fin {
            assert!(self.peer_fin, "{receipt:?} takes a reset for a FIN: {self:?}");
        }
        outcome
    }
}

/// All events; frequent ones are listed more than once.
pub const EVENTS: [Event; 12] = [
    |kernel| kernel.deliver(137),
    |kernel| kernel.deliver(137),
    |kernel| kernel.deliver(1_000_000),
    Kernel::ack_fin,
    Kernel::ack_fin,
    |kernel| kernel.incoming += u64::from(!kernel.reset && !kernel.peer_fin) * 90,
    |kernel| kernel.incoming += u64::from(!kernel.reset && !kernel.peer_fin) * 90,
    |kernel| kernel.unsent = kernel.unsent.saturating_sub(500),
    Kernel::peer_ends,
    Kernel::peer_resets,
    // A failed write takes the report. Over a Unix socket the report is all there is.
    |kernel| kernel.error_pending &= kernel.kind == Kind::Unix || kernel.alone,
    |_| (),
];

/// A connection and what happens to it, all chosen by bytes; what is missing is zero.
pub fn by_bytes(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let mut next = || usize::from(bytes.next().unwrap_or(0));
    let written = (next() * 13) as u64;
    let kind = [Kind::Tcp, Kind::Tcp, Kind::Unix, Kind::Mptcp, Kind::Other][next() % 5];
    let bits = next();
    let bit = |number: usize| bits >> number & 1 == 1;
    let mut kernel = Kernel { kind, alone: bit(0), blind: bit(1), ..Kernel::connected(written) };
    let want =
        [Delivery::Written, Delivery::Sent, Delivery::Acked, Delivery::Closed, Delivery::Confirmed]
            [next() % 5];
    let drain = if bit(2) { Drain::Keep } else { Drain::Discard(next() as u64) };
    for _ in 0..next() % 5 {
        EVENTS[next() % EVENTS.len()](&mut kernel);
    }
    let during: Vec<Event> = (0..next() % 16).map(|_| EVENTS[next() % EVENTS.len()]).collect();
    kernel.sudden = (0..next() % 8).map(|_| (next() % 40, EVENTS[next() % EVENTS.len()])).collect();
    let facts = Facts {
        connected: bit(3),
        registered: bit(4),
        written: bit(5).then_some(written),
        ..kernel.facts()
    };
    let deadline = Duration::from_secs(next() as u64);
    let options = FinishOptions::default().want(want).drain(drain).within(deadline);
    let _ = if bit(6) && kind == Kind::Tcp {
        kernel.abort(facts, options.deadline, &during)
    } else {
        kernel.finish(facts, options, &during)
    };
}
