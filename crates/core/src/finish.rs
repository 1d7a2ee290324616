//! Ending a connection so that nothing is lost: half-close, wait for proof, drain, close.
//!
//! [`Finish`] only decides. Its driver asks [`Finish::next`] what to do, makes that one system
//! call, and passes the result to the `on_*` method that [`Action`] names, until [`Action::Done`].
//! The descriptor stays open meanwhile: the kernel gives up an orphan after seconds to minutes, and
//! one late byte from the peer would reset it and lose our last bytes.
//!
//! | Phase | Asks for | By the answer it goes to |
//! |---|---|---|
//! | `Inspect` | `TCP_INFO` | ESTABLISHED, CLOSE_WAIT: `HalfClose`, or `Count` before a reset; SYN_SENT, SYN_RECV: `AwaitHandshake`; another state after a FIN: `Count`; no connection: `LastCount` where there was one, else `Done` |
//! | `AwaitHandshake` | wait | `Inspect`; past the deadline `Done` |
//! | `LookForEnd` (Unix) | `poll` | `HalfClose` |
//! | `HalfClose` | `shutdown` | done: `Wait` where it raises an edge or nothing can be counted, else `MeasureRoundTrip` or `Count`; `Done` where no more than Written is wanted; ENOTCONN: `LastCount` where there was a connection, else `Done` |
//! | `Count` | `SIOCOUTQ` | none left: `CheckError` (Unix), `Drain`, `Wait` for the peer's end, or `Done`; some left: `Drain`, `MeasureRoundTrip` after a timer, or `Wait`; only sending wanted: `CountUnsent`; a reset: `LastCount` |
//! | `CountBehindEnd` (Unix) | `SIOCOUTQ` | the same, and what is left makes the peer's end an early one: `CheckError`, `Wait` or `Done` |
//! | `CheckError` (Unix) | `SO_ERROR` | none: `Drain`, `Wait` or `Done`; an error: `LastCount` |
//! | `CountUnsent` | `SIOCOUTQNSD` | none left: `Done`; else `Drain`, `MeasureRoundTrip` or `Wait` |
//! | `Drain` | `recv` | bytes: `Drain`; nothing, or no more is to be read: `MeasureRoundTrip`, `Wait` or `Done`; the end: over TCP `ClassifyEnd`, or `Done` where this call would have reported a reset; else `Count`, `CountBehindEnd` (Unix) or `Done`; an error: `LastCount`, or `Done` where nothing can be counted |
//! | `CountUnread` | `SIOCINQ` | `ClassifyEnd` |
//! | `ClassifyEnd` | `TCP_INFO` or `SO_ERROR` | a reset: `LastCount`; else `Count`, `CountBehindEnd` (Unix), or `Done` when all is proven |
//! | `MeasureRoundTrip` | `TCP_INFO` | `Wait`; `Count` where our FIN is acknowledged already or the connection gone: what is then left is lost |
//! | `Wait` | wait | `Count`; the peer's end behind what may not be read: `CountUnread` (TCP), `ClassifyEnd` (Unix); where nothing can be counted `Drain`, `Wait` or `Done`; past the deadline `LastCount` or `Done` |
//! | `LastCount` | `SIOCOUTQ` | `LastUnsent`, or `Done` when nothing is left |
//! | `LastUnsent` | `SIOCOUTQNSD` | `Done` |
//!
//! It begins in `Count` if our FIN is already queued, in `HalfClose` if the connection is known to
//! be established and no more than Acked is wanted, and otherwise in `Inspect` or `LookForEnd`.
//! [`Finish::abort`] begins in `Count` and never half-closes: it waits for an empty queue, so that
//! the reset follows after all bytes.
//!
//! What each level needs, and why that is proof on Linux:
//!
//! - **Acked** over TCP needs our FIN known to be queued (`shutdown` succeeded on an established
//!   connection) and `SIOCOUTQ` at most 1, the FIN itself; without such a FIN only 0, and only if
//!   the connection was seen established. In `SYN_SENT` the counter is 0 with bytes pending, and
//!   after a reset it can be 1 with the last data byte lost: both are excluded by asking for the FIN.
//! - The machine goes on waiting until the FIN is acknowledged too: from then on closing cannot
//!   truncate what a Linux peer reads, even if it sends a reset. If the deadline comes first, the
//!   bytes are still acked.
//! - **Acked** over a Unix socket needs an empty queue and, checked after that, no pending error.
//!   The kernel sets the error before it discards unread bytes (`unix_release_sock`), so the peer's
//!   program has read everything, which is more than Acked requires. `SIOCOUTQ` counts memory
//!   there, so nothing is known about a part of the bytes.
//! - **Closed** needs the peer's FIN after that. If the peer's FIN came before it acknowledged
//!   ours, the level stays Acked. If both arrive within one wake-up, their order is not known, and
//!   the FIN counts as the later one.
//! - Over MPTCP and other kinds nothing is proven; the same steps are taken, so that no bytes are
//!   lost.

mod state;
mod timer;
mod types;

use std::time::Duration;

use crate::sample::{State, TcpInfo};
use crate::{Delivery, End, EndEvidence, Kind, PeerEnd, Receipt};
use state::{Connection, Ending, OurFin, PeerFin, Phase, Readable};
use timer::{Deadline, Timer};
pub use types::{Action, Drain, Drained, Facts, FinishOptions, Unproven, Wake, Woken};

/// The machine. See the [module](self) for its table.
///
/// Times are durations since an arbitrary start, the same for all calls. A result that the machine
/// did not ask for is a bug of the driver: it changes nothing, and panics if debug assertions are
/// on.
#[derive(Clone, Debug)]
pub struct Finish {
    options: FinishOptions,
    facts: Facts,
    ending: Ending,
    started: Duration,
    phase: Phase,
    connection: Connection,
    our_fin: OurFin,
    peer_fin: PeerFin,
    /// How the peer's direction ended, as far as we have read to its end.
    peer: PeerEnd,
    /// The last result of `SIOCOUTQ`, our FIN included.
    queue: Option<u32>,
    unsent: Option<u32>,
    /// No error was pending after the queue of a Unix socket was seen empty.
    read_by_peer: bool,
    readable: Readable,
    drained: u64,
    deadline: Deadline,
    timer: Timer,
    /// The peer had ended before, and the last wait reported an end again.
    ended_again: bool,
}

impl Finish {
    /// Begins to finish a connection.
    #[must_use]
    pub fn new(facts: Facts, options: FinishOptions, now: Duration) -> Self {
        let asks_first = !facts.connected || options.want >= Delivery::Closed;
        let phase = match facts.kind {
            _ if facts.half_closed => Phase::Count,
            Kind::Tcp if asks_first => Phase::Inspect,
            Kind::Unix if asks_first => Phase::LookForEnd,
            _ => Phase::HalfClose,
        };
        Self::begin(facts, options, Ending::HalfClose, now, phase)
    }

    /// Begins to end a connection by a reset, after all written bytes are acknowledged. The driver
    /// resets it when the machine is done, whatever was proven.
    #[must_use]
    pub fn abort(facts: Facts, deadline: Duration, now: Duration) -> Self {
        let options = FinishOptions { deadline, ..FinishOptions::default() };
        Self::abort_with(facts, options, now)
    }

    /// [`Finish::abort`] with the deadline of `options`, and
    /// [`FinishOptions::patient`](field@FinishOptions::patient).
    #[must_use]
    pub fn abort_with(facts: Facts, options: FinishOptions, now: Duration) -> Self {
        let options = FinishOptions { want: Delivery::Acked, drain: Drain::Keep, ..options };
        let phase = if facts.connected { Phase::Count } else { Phase::Inspect };
        Self::begin(facts, options, Ending::Reset, now, phase)
    }

    fn begin(
        facts: Facts,
        options: FinishOptions,
        ending: Ending,
        now: Duration,
        phase: Phase,
    ) -> Self {
        let was_there = facts.connected || facts.half_closed;
        let peer = state::peer_before(facts.ended);
        Self {
            options,
            facts,
            ending,
            started: now,
            phase,
            connection: if was_there { Connection::Established } else { Connection::NotSeen },
            our_fin: if facts.half_closed { OurFin::QueuedBefore } else { OurFin::NotQueued },
            peer_fin: PeerFin::of(peer),
            peer,
            queue: None,
            unsent: None,
            read_by_peer: false,
            readable: Readable::Unknown,
            drained: 0,
            deadline: Deadline::new(&options, now),
            timer: Timer::new(now, ending == Ending::HalfClose),
            ended_again: false,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Action {
        match self.phase {
            Phase::Inspect | Phase::MeasureRoundTrip => Action::Inspect,
            Phase::AwaitHandshake { until } => Action::Wait { until, wake: Wake::Edge },
            Phase::LookForEnd => Action::LookForEnd,
            Phase::HalfClose => Action::HalfClose,
            Phase::Count | Phase::CountBehindEnd | Phase::LastCount(_) => Action::CountUnacked,
            Phase::CheckError => Action::TakeError,
            Phase::CountUnsent | Phase::LastUnsent(_) => Action::CountUnsent,
            Phase::Drain => Action::Drain { limit: self.left_to_drain() },
            Phase::CountUnread => Action::CountUnread,
            Phase::ClassifyEnd { .. } if self.facts.kind == Kind::Unix => Action::TakeError,
            Phase::ClassifyEnd { .. } => Action::Inspect,
            Phase::Wait { until, wake } => Action::Wait { until, wake },
            Phase::Done(_) => Action::Done,
        }
    }

    /// The answer to [`Action::Inspect`].
    pub fn on_info(&mut self, info: &TcpInfo) {
        match self.phase {
            Phase::Inspect => self.on_first_look(info),
            Phase::ClassifyEnd { unread } => self.on_peer_end(unread, Some(info), false),
            Phase::MeasureRoundTrip => self.on_round_trip(info),
            _ => self.not_asked("TCP_INFO"),
        }
    }

    fn on_first_look(&mut self, info: &TcpInfo) {
        self.timer.set_rtt(info.rtt_us);
        match info.state {
            State::Established | State::CloseWait => {
                self.connection = Connection::Established;
                if info.state == State::Established {
                    self.peer_fin.on_open();
                } else {
                    self.peer_fin.on_early();
                }
                self.phase = match self.ending {
                    Ending::HalfClose => Phase::HalfClose,
                    Ending::Reset => Phase::Count,
                };
            }
            State::SynSent | State::SynRecv => {
                self.timer.set_for_handshake();
                self.phase = Phase::AwaitHandshake { until: self.timer.until(self.deadline.at()) };
            }
            // Another process queued the FIN: without our own record only an empty queue is proof.
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => {
                self.connection = Connection::Established;
                self.phase = Phase::Count;
            }
            // The connection existed and is gone before we ended our direction: it was not closed
            // in order.
            _ if self.facts.connected => self.on_reset(),
            _ => self.give_up(Unproven::NotConnected),
        }
    }

    fn on_round_trip(&mut self, info: &TcpInfo) {
        self.timer.set_rtt(info.rtt_us);
        // In these states the peer's FIN has not come, and ours is queued.
        if matches!(info.state, State::FinWait1 | State::FinWait2) {
            self.peer_fin.on_open();
        }
        // The connection is gone: by the last acknowledgement, or by a reset after the peer's FIN,
        // which nothing else reports. The next count shows which.
        if info.state == State::Close {
            self.connection = Connection::Gone;
            self.timer.expired = false;
            self.phase = Phase::Count;
            return;
        }
        // Right after the half-close, the state shows whether a count can be of use.
        let waits = matches!(info.state, State::FinWait1 | State::Closing | State::LastAck);
        self.phase = if self.queue.is_some() || waits { self.wait() } else { Phase::Count };
    }

    /// The answer to [`Action::LookForEnd`]: whether the peer has ended its direction.
    pub fn on_look(&mut self, ended: bool) {
        if self.phase != Phase::LookForEnd {
            return self.not_asked("poll");
        }
        if ended {
            self.peer_fin.on_early();
        } else {
            self.peer_fin.on_open();
        }
        self.phase = Phase::HalfClose;
    }

    /// The answer to [`Action::HalfClose`]: whether `shutdown` succeeded. It fails only when the
    /// connection is gone (`ENOTCONN`), and then no FIN is queued.
    pub fn on_half_close(&mut self, succeeded: bool) {
        if self.phase != Phase::HalfClose {
            return self.not_asked("shutdown");
        }
        if !succeeded {
            return self.on_reset();
        }
        self.our_fin = OurFin::Queued;
        // Over TCP it also succeeds in SYN_SENT, so the state was inspected first.
        if self.facts.kind != Kind::Tcp {
            self.connection = Connection::Established;
        }
        self.phase = if self.options.want == Delivery::Written {
            Phase::Done(None)
        } else if self.facts.kind == Kind::Other {
            self.look_or_wait()
        } else if self.asks_round_trip() && self.options.want > Delivery::Sent {
            Phase::MeasureRoundTrip
        } else if self.half_close_raises_edge() && self.options.want > Delivery::Sent {
            self.wait()
        } else {
            Phase::Count
        };
    }

    /// The answer to [`Action::CountUnacked`].
    pub fn on_unacked(&mut self, queue: u32) {
        if self.queue.is_some_and(|before| queue < before) {
            self.deadline.on_progress(self.timer.now);
        }
        match self.phase {
            Phase::Count => {}
            Phase::CountBehindEnd if queue > 0 => self.peer_fin.on_early(),
            Phase::CountBehindEnd => {}
            Phase::LastCount(why) => {
                self.queue = Some(queue);
                let asks = self.facts.kind == Kind::Tcp && !self.all_acked();
                self.phase = if asks { Phase::LastUnsent(why) } else { Phase::Done(Some(why)) };
                return;
            }
            _ => return self.not_asked("SIOCOUTQ"),
        }
        self.queue = Some(queue);
        if self.connection == Connection::Gone && queue > 0 {
            return self.on_reset();
        }
        self.phase = if self.options.want == Delivery::Sent && self.facts.kind == Kind::Tcp {
            Phase::CountUnsent
        } else if queue == 0 && self.facts.kind == Kind::Unix && !self.read_by_peer {
            // The kernel reports the error once, and may have reported it before.
            match (self.peer, self.facts.connected || self.peer_fin.was_open()) {
                (PeerEnd::Reset, _) => return self.on_reset(),
                (_, true) => Phase::CheckError,
                (_, false) => self.after_count(),
            }
        } else {
            self.after_count()
        };
    }

    fn after_count(&mut self) -> Phase {
        if self.queue != Some(0) || self.waits_for_peer() {
            self.look_or_wait()
        } else if self.readable != Readable::No && self.may_drain() {
            // A last check, so that unread bytes do not turn the close into a reset.
            Phase::Drain
        } else {
            Phase::Done(None)
        }
    }

    /// The answer to [`Action::TakeError`]: whether one was pending.
    pub fn on_error(&mut self, pending: bool) {
        match self.phase {
            Phase::CheckError if pending => self.on_reset(),
            Phase::CheckError => {
                self.read_by_peer = true;
                self.phase = self.after_count();
            }
            Phase::ClassifyEnd { unread } => self.on_peer_end(unread, None, pending),
            _ => self.not_asked("SO_ERROR"),
        }
    }

    /// The answer to [`Action::CountUnsent`].
    pub fn on_unsent(&mut self, unsent: u32) {
        let gave_up = match self.phase {
            Phase::CountUnsent => None,
            Phase::LastUnsent(why) => Some(why),
            _ => return self.not_asked("SIOCOUTQNSD"),
        };
        self.unsent = Some(unsent);
        self.phase = if gave_up.is_some() || self.without_fin(unsent) == 0 {
            Phase::Done(gave_up)
        } else {
            self.look_or_wait()
        };
    }

    /// The answer to [`Action::Drain`].
    pub fn on_drained(&mut self, drained: Drained) {
        if self.phase != Phase::Drain {
            return self.not_asked("recv");
        }
        match drained {
            Drained::Bytes(bytes) => {
                self.drained += bytes;
                if self.left_to_drain() == 0 {
                    self.after_drain();
                }
            }
            Drained::Nothing => self.after_drain(),
            Drained::Failed => self.on_reset(),
            Drained::End => match self.facts.kind {
                Kind::Tcp if self.recv_reports_reset() && self.queue == Some(0) => {
                    self.peer = PeerEnd::Fin;
                    self.readable = Readable::No;
                    self.phase = Phase::Done(None);
                }
                Kind::Tcp => self.phase = Phase::ClassifyEnd { unread: 0 },
                // With a pending error, `recv` would have failed.
                Kind::Unix | Kind::Mptcp | Kind::Other => self.on_peer_end(0, None, false),
            },
        }
    }

    /// There is nothing more to read now, or nothing more should be read.
    fn after_drain(&mut self) {
        self.readable = Readable::No;
        let counted = self.facts.kind != Kind::Other && self.queue == Some(0);
        let proven = counted && self.options.want >= Delivery::Acked && !self.waits_for_peer();
        self.phase = if proven { Phase::Done(None) } else { self.look_or_wait() };
    }

    /// The answer to [`Action::CountUnread`].
    pub fn on_unread(&mut self, unread: u32) {
        if self.phase != Phase::CountUnread {
            return self.not_asked("SIOCINQ");
        }
        self.phase = Phase::ClassifyEnd { unread: u64::from(unread) };
    }

    fn on_peer_end(&mut self, unread: u64, info: Option<&TcpInfo>, error_taken: bool) {
        let evidence = EndEvidence {
            kind: self.facts.kind,
            read: self.facts.read.map(|read| read + self.drained),
            // If the count of bytes read is known, the stream is ours and keeps urgent bytes
            // inline.
            urgent_inline: true,
            unread,
            received: info.and_then(|info| info.bytes_received),
            state: info.map(|info| info.state),
            error_taken,
        };
        self.readable = Readable::No;
        // If everything is proven, the last count stays valid.
        let counted = self.facts.kind != Kind::Other;
        let proven = self.queue == Some(0) && (self.facts.kind != Kind::Unix || self.read_by_peer);
        self.phase = if counted && !proven { Phase::Count } else { Phase::Done(None) };
        match evidence.classify() {
            End::Fin => {
                self.peer = PeerEnd::Fin;
                // In these states the peer's FIN came and ours is not acknowledged.
                match info.map(|info| info.state) {
                    Some(State::Closing | State::LastAck | State::CloseWait) => {
                        self.peer_fin.on_early();
                    }
                    Some(_) => {}
                    None if proven => {}
                    None => self.phase = Phase::CountBehindEnd,
                }
            }
            End::Reset => self.on_reset(),
            End::Truncated | End::Unknown => self.peer = PeerEnd::Unknown,
        }
    }

    /// The answer to [`Action::Wait`]: the time now, and what the descriptor is ready for.
    pub fn on_wake(&mut self, now: Duration, woken: Woken) {
        let (until, in_handshake) = match self.phase {
            Phase::AwaitHandshake { until } => (until, true),
            Phase::Wait { until, .. } => (until, false),
            _ => return self.not_asked("wait"),
        };
        self.timer.on_wake(now, until, woken.blind);
        let may_read = match self.readable {
            // An edge reports everything there is to read. Without one, earlier bytes are not
            // known.
            Readable::Unknown => self.facts.registered && self.timer.expired,
            Readable::No => false,
            Readable::Maybe => true,
        };
        self.readable = if woken.readable || may_read { Readable::Maybe } else { Readable::No };
        self.ended_again = woken.ended && self.peer != PeerEnd::Open;
        if now >= self.deadline.at() {
            self.on_deadline(in_handshake);
        } else if in_handshake {
            self.phase = Phase::Inspect;
        } else if woken.ended && self.peer == PeerEnd::Open && !self.may_drain() {
            match self.facts.kind {
                Kind::Tcp => self.phase = Phase::CountUnread,
                Kind::Unix => self.phase = Phase::ClassifyEnd { unread: 0 },
                Kind::Mptcp | Kind::Other => self.on_peer_end(0, None, false),
            }
        } else if self.facts.kind == Kind::Other {
            self.phase = self.look_or_wait();
        } else {
            self.phase = Phase::Count;
        }
    }

    fn on_deadline(&mut self, in_handshake: bool) {
        if !in_handshake && self.deadline.take_last_look() {
            self.phase = Phase::Count;
            return;
        }
        if self.peer == PeerEnd::Open {
            self.peer = PeerEnd::Silent;
        }
        self.give_up(Unproven::Deadline);
    }

    fn on_reset(&mut self) {
        self.peer = PeerEnd::Reset;
        self.give_up(Unproven::Reset);
    }

    fn give_up(&mut self, why: Unproven) {
        let counts = self.facts.kind != Kind::Other && self.connection != Connection::NotSeen;
        self.phase = if counts { Phase::LastCount(why) } else { Phase::Done(Some(why)) };
    }

    fn look_or_wait(&mut self) -> Phase {
        let asks_again = self.timer.expired || std::mem::take(&mut self.ended_again);
        if self.readable == Readable::Maybe && self.may_drain() {
            Phase::Drain
        } else if self.asks_round_trip() || (asks_again && self.facts.kind == Kind::Tcp) {
            Phase::MeasureRoundTrip
        } else {
            self.wait()
        }
    }

    fn wait(&mut self) -> Phase {
        let quietly = !self.facts.registered || self.half_close_raises_edge();
        self.timer.set(self.facts.kind, quietly);
        Phase::Wait { until: self.timer.until(self.deadline.at()), wake: self.wake() }
    }

    /// `poll` sleeps until the peer ends its direction. That is enough while the machine waits for
    /// that end, and at first, since most peers answer our FIN with theirs.
    fn wake(&self) -> Wake {
        let enough = self.timer.is_quiet() || self.queue == Some(0);
        if enough && self.peer == PeerEnd::Open {
            Wake::Level { data: self.may_drain() }
        } else {
            Wake::Edge
        }
    }

    fn not_asked(&self, answer: &str) {
        debug_assert!(false, "an answer of {answer} in {:?}", self.phase);
    }

    /// What was proven, once [`Finish::next`] says [`Action::Done`].
    ///
    /// # Errors
    /// Why less than the wanted level was proven, and the receipt of what was proven.
    pub fn outcome(&self, now: Duration) -> Result<Receipt, (Unproven, Receipt)> {
        let receipt = self.receipt(now);
        if receipt.level >= self.options.want {
            return Ok(receipt);
        }
        // The state of a TCP connection shows a FIN; a Unix socket shows only that there is an end.
        let is_fin = self.facts.kind == Kind::Tcp || self.peer != PeerEnd::Unknown;
        let early = self.peer_fin.is_early() && is_fin;
        let otherwise = if early { Unproven::EarlyFin } else { Unproven::Unknowable };
        Err((self.phase.gave_up().unwrap_or(otherwise), receipt))
    }

    /// The receipt of what is proven so far.
    #[must_use]
    pub fn receipt(&self, now: Duration) -> Receipt {
        let written = self.facts.written;
        let unacked = self.unacked();
        let of_written = |rest: Option<u64>| Some(written?.saturating_sub(rest?));
        let all_sent = match self.facts.kind {
            // Written bytes are in the peer's receive queue.
            Kind::Unix => self.connection != Connection::NotSeen,
            _ => unacked == Some(0) || self.unsent() == Some(0),
        };
        let answers_ours = self.peer_fin == PeerFin::AfterOurs && self.ending == Ending::HalfClose;
        let closed = self.peer == PeerEnd::Fin && answers_ours;
        let level = match (unacked, all_sent) {
            (Some(0), _) if closed && self.queue == Some(0) => Delivery::Closed,
            (Some(0), _) => Delivery::Acked,
            (_, true) => Delivery::Sent,
            (_, false) => Delivery::Written,
        };
        Receipt {
            level,
            written,
            sent: if all_sent { written } else { of_written(self.unsent()) },
            acked: of_written(unacked),
            unacked: unacked.map(|rest| written.map_or(rest, |written| rest.min(written))),
            drained: self.drained,
            peer: self.peer,
            took: now.saturating_sub(self.started),
        }
    }

    /// Whether our FIN is known to be queued.
    #[must_use]
    pub fn fin_queued(&self) -> bool {
        self.our_fin != OurFin::NotQueued
    }

    /// Unacked bytes, if the queue shows them.
    fn unacked(&self) -> Option<u64> {
        let queue = self.queue.filter(|_| self.connection != Connection::NotSeen)?;
        match self.facts.kind {
            Kind::Tcp => Some(self.without_fin(queue)),
            Kind::Unix if self.read_by_peer => Some(0),
            Kind::Unix | Kind::Mptcp | Kind::Other => None,
        }
    }

    /// Bytes not sent yet, if the kernel counts them.
    fn unsent(&self) -> Option<u64> {
        let known = self.connection != Connection::NotSeen && self.facts.kind == Kind::Tcp;
        self.unsent.filter(|_| known).map(|unsent| self.without_fin(unsent))
    }

    /// Our FIN is last in the queue: while anything is queued, the FIN is.
    fn without_fin(&self, queue: u32) -> u64 {
        u64::from(if self.fin_queued() { queue.saturating_sub(1) } else { queue })
    }

    fn all_acked(&self) -> bool {
        self.unacked() == Some(0)
    }

    /// The peer has not ended, and its end is wanted. For a kind without counts, its end is all
    /// that one can wait for.
    fn waits_for_peer(&self) -> bool {
        let wanted = self.options.want >= Delivery::Closed || self.facts.kind == Kind::Other;
        wanted && self.peer == PeerEnd::Open
    }

    /// Our half-close succeeded, so there was no reset before it. Our own `recv` reports a later
    /// reset, unless the kernel reported it to another reader or writer.
    fn recv_reports_reset(&self) -> bool {
        self.facts.alone && self.our_fin == OurFin::Queued
    }

    /// Our half-close itself raises an edge (`inet_shutdown` and `unix_shutdown` in the kernel):
    /// there is nothing to check before the peer answers.
    fn half_close_raises_edge(&self) -> bool {
        let ours = self.facts.registered && self.our_fin != OurFin::QueuedBefore;
        ours && matches!(self.facts.kind, Kind::Tcp | Kind::Unix)
    }

    /// Before its first wait, a driver without edges needs the round-trip time.
    fn asks_round_trip(&self) -> bool {
        let first = !self.timer.knows_rtt() && (self.timer.is_blind() || !self.facts.registered);
        first && self.facts.kind == Kind::Tcp
    }

    fn may_drain(&self) -> bool {
        self.peer == PeerEnd::Open && self.left_to_drain() > 0
    }

    fn left_to_drain(&self) -> u64 {
        match self.options.drain {
            Drain::Discard(limit) => limit.saturating_sub(self.drained),
            Drain::Keep => 0,
        }
    }
}

#[cfg(test)]
mod tests;
