//! Ending a connection so that nothing is lost: half-close, wait for proof, drain, close.
//!
//! [`Finish`] decides and does nothing itself. Its driver asks [`Finish::next`] what to do, does
//! that one system call, and tells the machine the result by the `on_*` method that [`Action`]
//! names; until [`Action::Done`]. The descriptor stays open all the while: an orphan is given up by
//! the kernel after seconds to minutes, and one late byte from the peer resets it and takes our
//! tail along.
//!
//! | In | asks for | and goes, by the answer, to |
//! |---|---|---|
//! | `Inspect` | `TCP_INFO` | ESTABLISHED, CLOSE_WAIT: `HalfClose`; SYN_SENT, SYN_RECV: `AwaitHandshake`; somebody's FIN is queued: `Count`; else `LastCount` |
//! | `AwaitHandshake` | wait | `Inspect`; past the deadline `LastCount` |
//! | `LookForEnd` (Unix) | `poll` | `HalfClose` |
//! | `HalfClose` | `shutdown` | done: `Wait` where edges are waited for (it raises one) or nothing can be counted, else `MeasureRoundTrip` or `Count`; ENOTCONN: `LastCount` |
//! | `Count` | `SIOCOUTQ` | none left: `CheckError` (Unix), `Drain`, `Wait` for the peer's end, or `Done`; some left: `Drain`, `MeasureRoundTrip` after a timer, or `Wait`; only sending wanted: `Unsent` |
//! | `CheckError` (Unix) | `SO_ERROR` | none: `Drain`, `Wait` or `Done`; an error: `LastCount` |
//! | `Unsent` | `SIOCOUTQNSD` | none left and that was wanted: `Done`; else `Drain` or `Wait` |
//! | `Drain` | `recv` | bytes: again; nothing: `Wait` or `Done`; 0: `ClassifyEnd`; an error: `LastCount` |
//! | `CountUnread` | `SIOCINQ` | `ClassifyEnd` |
//! | `ClassifyEnd` | `TCP_INFO` or `SO_ERROR` | a reset: `LastCount`; else `Count`, or `Done` when all is proven |
//! | `MeasureRoundTrip` | `TCP_INFO` | `Wait`; `Count` where our FIN is acknowledged already or the connection gone: what is then left is lost |
//! | `Wait` | wait | `Count`; the peer's end behind what may not be read: `CountUnread`; past the deadline `LastCount` |
//! | `LastCount` | `SIOCOUTQ` | `LastUnsent`, or `Done` when nothing is left |
//! | `LastUnsent` | `SIOCOUTQNSD` | `Done` |
//!
//! It begins in `Count` where our FIN is queued already, in `HalfClose` where the connection is
//! known to be there and no more than Acked is wanted, and in `Inspect` or `LookForEnd` otherwise.
//! [`Finish::abort`] begins in `Count` and never half-closes: it waits for an empty queue, so that
//! the reset which follows comes after everything.
//!
//! What is claimed, and why it is sound on Linux:
//!
//! - **Acked** over TCP needs our FIN known to be queued (`shutdown` succeeded on an established
//!   connection) and `SIOCOUTQ` at most 1, the FIN itself; without such a FIN only 0, and only if
//!   the connection was seen established. In `SYN_SENT` the counter is 0 with bytes pending, and
//!   after a reset it can be 1 with the last data byte lost: both are excluded by asking for the FIN.
//! - The machine waits on until the FIN too is acknowledged: from then on closing cannot truncate
//!   what a Linux peer reads, even if closing emits a reset. Should the deadline come first, the
//!   bytes are acked all the same.
//! - **Acked** over a Unix socket is claimed when the queue is empty and, looked at in this order,
//!   no error is pending. The kernel sets the error before it throws unread bytes away
//!   (`unix_release_sock`), so the peer's program has read everything: more than the word asks for.
//!   `SIOCOUTQ` counts memory there, so that nothing is said of a part.
//! - **Closed** needs the peer's FIN after that. Where its FIN was there before ours was
//!   acknowledged the level stays Acked. A FIN that overtakes the acknowledgement within a single
//!   wake-up cannot be told from one that follows it, and counts as following.
//! - Over MPTCP and other kinds nothing is claimed; the same is done, so that nothing is lost.

mod words;

use std::time::Duration;

use crate::sample::{State, TcpInfo};
use crate::{Delivery, End, EndEvidence, Kind, PeerEnd, Receipt};
pub use words::{Action, Drain, Drained, Facts, FinishOptions, Unproven, Wake, Woken};

/// The shortest wait after one without an event; later ones follow the measured round trip.
const FIRST_TIMER: Duration = Duration::from_millis(100);
/// The first wait where the round trip is not known: a near peer that does not answer our FIN with
/// its own acknowledges it by then, all the same.
const QUIET: Duration = Duration::from_millis(60);
/// The longest wait between two looks.
const LAST_TIMER: Duration = Duration::from_secs(5);
/// How long the acknowledgement of a lone FIN is held back (`TCP_DELACK_MIN` is 40 ms), and some.
const DELAYED_ACK: Duration = Duration::from_millis(50);
/// How long a peer on this machine may take to see our end.
const NEAR: Duration = Duration::from_millis(10);
/// The first look where no event tells that the queue is empty comes so long after a round trip.
const FIRST_BLIND_TIMER: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inspect,
    AwaitHandshake,
    LookForEnd,
    HalfClose,
    Count,
    CheckError,
    Unsent,
    Drain,
    CountUnread,
    ClassifyEnd,
    MeasureRoundTrip,
    Wait,
    LastCount,
    LastUnsent,
    Done,
}

/// The machine. See the [module](self) for its table.
///
/// Times are durations since an arbitrary start, the same for all calls.
#[derive(Clone, Debug)]
pub struct Finish {
    options: FinishOptions,
    facts: Facts,
    phase: Phase,
    /// To end by a reset: no FIN is queued.
    aborts: bool,
    started: Duration,
    /// When the queue was last seen to become shorter; at first, when it began.
    moved: Duration,
    /// A patient finish has come to its deadline, and looks once more.
    last_look: bool,
    /// The time as last told.
    now: Duration,
    timer: Duration,
    /// The smoothed round trip, once it was asked for.
    rtt: Option<Duration>,
    /// Until then the peer's end is waited for: most peers answer ours with theirs. `None` before
    /// the first wait.
    quiet_until: Option<Duration>,
    /// The last wait ended by its timer: no event came.
    timer_ended: bool,
    /// No event comes any more, and the timer has been set for that.
    blind: bool,
    blind_timer: bool,
    /// The connection was seen to be gone, before the next count.
    gone: bool,
    /// The peer had ended before, and now there was one more event of that kind.
    ended_again: bool,
    /// The connection was there: what its counters say is about it.
    established: bool,
    fin_queued: bool,
    /// The peer's FIN was seen not to be there when ours was queued.
    peer_open_before: bool,
    /// The peer's FIN was there before ours was acknowledged.
    early_fin: bool,
    /// The peer's end was seen behind a count that was not empty: it may have come after it.
    end_in_doubt: bool,
    /// The last answer of `SIOCOUTQ`, FIN included.
    queue: Option<u32>,
    unsent: Option<u32>,
    unread: u64,
    /// No error was pending after the queue of a Unix socket was seen empty.
    read_by_peer: bool,
    /// Whether there may be something to read; `None` before the first wait.
    readable: Option<bool>,
    drained: u64,
    peer: PeerEnd,
    unproven: Option<Unproven>,
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
        Self::begin(facts, options, now, phase)
    }

    /// Begins to end a connection by a reset, after all that was written is acknowledged. The driver
    /// resets it when the machine is done, whatever was proven.
    #[must_use]
    pub fn abort(facts: Facts, deadline: Duration, now: Duration) -> Self {
        let options = FinishOptions { deadline, ..FinishOptions::default() };
        Self::abort_with(facts, options, now)
    }

    /// As [`Finish::abort`], by the deadline of `options`, and its patience.
    #[must_use]
    pub fn abort_with(facts: Facts, options: FinishOptions, now: Duration) -> Self {
        let options = FinishOptions { want: Delivery::Acked, drain: Drain::Keep, ..options };
        let phase = if facts.connected { Phase::Count } else { Phase::Inspect };
        Self { aborts: true, ..Self::begin(facts, options, now, phase) }
    }

    fn begin(facts: Facts, options: FinishOptions, now: Duration, phase: Phase) -> Self {
        let peer = match facts.ended {
            None => PeerEnd::Open,
            Some(End::Fin) => PeerEnd::Fin,
            Some(End::Reset) => PeerEnd::Reset,
            Some(End::Truncated | End::Unknown) => PeerEnd::Unknown,
        };
        Self {
            options,
            facts,
            phase,
            aborts: false,
            started: now,
            moved: now,
            last_look: false,
            now,
            timer: FIRST_TIMER,
            rtt: None,
            quiet_until: None,
            timer_ended: false,
            blind: false,
            blind_timer: false,
            gone: false,
            ended_again: false,
            established: facts.connected || facts.half_closed,
            fin_queued: facts.half_closed,
            peer_open_before: false,
            early_fin: peer == PeerEnd::Fin,
            end_in_doubt: false,
            queue: None,
            unsent: None,
            unread: 0,
            read_by_peer: false,
            readable: None,
            drained: 0,
            peer,
            unproven: None,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Action {
        match self.phase {
            Phase::Inspect | Phase::MeasureRoundTrip => Action::Inspect,
            Phase::LookForEnd => Action::LookForEnd,
            Phase::HalfClose => Action::HalfClose,
            Phase::Count | Phase::LastCount => Action::CountUnacked,
            Phase::Unsent | Phase::LastUnsent => Action::CountUnsent,
            Phase::CheckError => Action::TakeError,
            Phase::Drain => Action::Drain { limit: self.drain_room() },
            Phase::CountUnread => Action::CountUnread,
            Phase::ClassifyEnd if self.facts.kind == Kind::Unix => Action::TakeError,
            Phase::ClassifyEnd => Action::Inspect,
            Phase::AwaitHandshake | Phase::Wait => {
                Action::Wait { until: self.wake_at(), wake: self.wake() }
            }
            Phase::Done => Action::Done,
        }
    }

    /// The answer to [`Action::Inspect`].
    pub fn on_info(&mut self, info: &TcpInfo) {
        match self.phase {
            Phase::ClassifyEnd => self.on_peer_end(Some(info), false),
            Phase::MeasureRoundTrip => self.on_round_trip(info),
            _ => self.on_first_look(info),
        }
    }

    fn on_first_look(&mut self, info: &TcpInfo) {
        self.rtt = Some(Duration::from_micros(u64::from(info.rtt_us)));
        match info.state {
            State::Established | State::CloseWait => {
                self.established = true;
                self.peer_open_before = info.state == State::Established;
                self.early_fin |= info.state == State::CloseWait;
                self.phase = if self.aborts { Phase::Count } else { Phase::HalfClose };
            }
            State::SynSent | State::SynRecv => {
                if std::mem::take(&mut self.timer_ended) {
                    self.timer = (self.timer * 2).min(LAST_TIMER);
                }
                self.phase = Phase::AwaitHandshake;
            }
            // A FIN that others queued: without our own record only an empty queue proves.
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => {
                self.established = true;
                self.phase = Phase::Count;
            }
            // It was there and is gone before we ended our direction: not by an orderly close.
            _ if self.facts.connected => self.on_reset(),
            _ => self.give_up(Unproven::NotConnected),
        }
    }

    fn on_round_trip(&mut self, info: &TcpInfo) {
        self.rtt = Some(Duration::from_micros(u64::from(info.rtt_us)));
        // In these the peer's FIN has not come, and ours is queued.
        self.peer_open_before |= matches!(info.state, State::FinWait1 | State::FinWait2);
        // Gone: by the last acknowledgement, or by a reset behind the peer's FIN, which nothing else
        // tells of. The next count does, as it comes after.
        if info.state == State::Close {
            self.gone = true;
            self.timer_ended = false;
            self.phase = Phase::Count;
            return;
        }
        // Asked right after the half-close, the state tells whether counting can bring anything.
        let waits = matches!(info.state, State::FinWait1 | State::Closing | State::LastAck);
        self.phase = if self.queue.is_some() || waits { self.wait() } else { Phase::Count };
    }

    /// The answer to [`Action::LookForEnd`]: whether the peer has ended its direction.
    pub fn on_look(&mut self, ended: bool) {
        self.peer_open_before = !ended;
        self.early_fin |= ended;
        self.phase = Phase::HalfClose;
    }

    /// The answer to [`Action::HalfClose`]: whether `shutdown` succeeded. It fails only when the
    /// connection is gone (`ENOTCONN`), and then no FIN is queued.
    pub fn on_half_close(&mut self, succeeded: bool) {
        self.fin_queued = succeeded;
        self.established |= succeeded && self.facts.kind != Kind::Tcp;
        if !succeeded {
            self.on_reset();
        } else if self.options.want == Delivery::Written {
            self.phase = Phase::Done;
        } else if self.facts.kind == Kind::Other {
            self.phase = self.look_or_wait();
        } else if self.asks_round_trip() && self.options.want > Delivery::Sent {
            self.phase = Phase::MeasureRoundTrip;
        } else if self.is_told_of_half_close() && self.options.want > Delivery::Sent {
            self.phase = self.wait();
        } else {
            self.phase = Phase::Count;
        }
    }

    /// The answer to [`Action::CountUnacked`].
    pub fn on_unacked(&mut self, queue: u32) {
        if self.queue.is_some_and(|before| queue < before) {
            self.moved = self.now;
            self.last_look = false;
        }
        self.queue = Some(queue);
        self.early_fin |= std::mem::take(&mut self.end_in_doubt) && queue > 0;
        if self.phase == Phase::LastCount {
            let asks = self.facts.kind == Kind::Tcp && !self.all_acked();
            self.phase = if asks { Phase::LastUnsent } else { Phase::Done };
            return;
        }
        if self.gone && queue > 0 {
            return self.on_reset();
        }
        self.phase = if self.options.want == Delivery::Sent && self.facts.kind == Kind::Tcp {
            Phase::Unsent
        } else if queue == 0 && self.facts.kind == Kind::Unix && !self.read_by_peer {
            // The error is told once, and may have been told before.
            match (self.peer, self.facts.connected || self.peer_open_before) {
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
        } else {
            self.conclude()
        }
    }

    /// The answer to [`Action::CountUnsent`].
    pub fn on_unsent(&mut self, unsent: u32) {
        self.unsent = Some(unsent);
        let done = self.phase == Phase::LastUnsent || self.without_fin(unsent) == 0;
        self.phase = if done { Phase::Done } else { self.look_or_wait() };
    }

    /// The answer to [`Action::TakeError`]: whether one was pending.
    pub fn on_error(&mut self, pending: bool) {
        if self.phase == Phase::ClassifyEnd {
            self.on_peer_end(None, pending);
        } else if pending {
            self.on_reset();
        } else {
            self.read_by_peer = true;
            self.phase = self.after_count();
        }
    }

    /// The answer to [`Action::CountUnread`].
    pub fn on_unread(&mut self, unread: u32) {
        self.unread = u64::from(unread);
        self.phase = Phase::ClassifyEnd;
    }

    /// The answer to [`Action::Drain`].
    pub fn on_drained(&mut self, drained: Drained) {
        match drained {
            Drained::Bytes(bytes) => {
                self.drained += bytes;
                self.facts.read = self.facts.read.map(|read| read + bytes);
                if self.drain_room() == 0 {
                    self.after_drain();
                }
            }
            Drained::Nothing => self.after_drain(),
            Drained::Failed => self.on_reset(),
            Drained::End => match self.facts.kind {
                Kind::Tcp if self.would_be_told_of_reset() && self.queue == Some(0) => {
                    self.peer = PeerEnd::Fin;
                    self.readable = Some(false);
                    self.phase = Phase::Done;
                }
                Kind::Tcp => self.phase = Phase::ClassifyEnd,
                // A `recv` that failed would have told of the error.
                Kind::Unix | Kind::Mptcp | Kind::Other => self.on_peer_end(None, false),
            },
        }
    }

    /// The answer to [`Action::Wait`]: the time now, and what the descriptor is ready for.
    pub fn on_wake(&mut self, now: Duration, woken: Woken) {
        self.timer_ended = now >= self.wake_at();
        self.now = now;
        // An edge tells all that is there. Without one, what came before the first wait is not known.
        let unknown = self.readable.is_none() && self.facts.registered && self.timer_ended;
        self.readable = Some(woken.readable || self.readable.unwrap_or(unknown));
        self.blind |= woken.blind;
        self.ended_again = woken.ended && self.peer != PeerEnd::Open;
        let shakes_hands = self.phase == Phase::AwaitHandshake;
        if now >= self.deadline() && self.options.patient && !self.last_look && !shakes_hands {
            // Bytes may have been acknowledged since the last look.
            self.last_look = true;
            self.phase = Phase::Count;
        } else if now >= self.deadline() {
            if self.peer == PeerEnd::Open {
                self.peer = PeerEnd::Silent;
            }
            self.give_up(Unproven::Deadline);
        } else if shakes_hands {
            self.phase = Phase::Inspect;
        } else if woken.ended && self.peer == PeerEnd::Open && !self.may_drain() {
            let counts = self.facts.kind == Kind::Tcp;
            self.phase = if counts { Phase::CountUnread } else { Phase::ClassifyEnd };
            if matches!(self.facts.kind, Kind::Mptcp | Kind::Other) {
                self.on_peer_end(None, false);
            }
        } else if self.facts.kind == Kind::Other {
            self.phase = self.look_or_wait();
        } else {
            self.phase = Phase::Count;
        }
    }

    /// What was proven, once [`Finish::next`] says [`Action::Done`].
    ///
    /// # Errors
    /// The reason why less than the wanted level was proven, with the receipt of what was.
    pub fn outcome(&self, now: Duration) -> Result<Receipt, (Unproven, Receipt)> {
        let receipt = self.receipt(now);
        if receipt.level >= self.options.want {
            return Ok(receipt);
        }
        // The state of a TCP connection has told of the FIN; a Unix socket tells of an end alone.
        let told = self.facts.kind == Kind::Tcp || self.peer != PeerEnd::Unknown;
        let early = self.early_fin && told;
        let otherwise = if early { Unproven::EarlyFin } else { Unproven::Unknowable };
        Err((self.unproven.unwrap_or(otherwise), receipt))
    }

    /// What is proven so far.
    #[must_use]
    pub fn receipt(&self, now: Duration) -> Receipt {
        let written = self.facts.written;
        let unacked = self.unacked();
        let of_written = |rest: Option<u64>| Some(written?.saturating_sub(rest?));
        let all_sent = match self.facts.kind {
            // What is written lies in the peer's queue.
            Kind::Unix => self.established,
            _ => unacked == Some(0) || self.unsent() == Some(0),
        };
        let late_fin = self.peer_open_before && !self.early_fin && !self.aborts;
        let closed = self.peer == PeerEnd::Fin && late_fin;
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
        self.fin_queued
    }

    /// Bytes that the peer's kernel is not known to have, where the queue can tell.
    fn unacked(&self) -> Option<u64> {
        let queue = self.queue.filter(|_| self.established)?;
        match self.facts.kind {
            Kind::Tcp => Some(self.without_fin(queue)),
            Kind::Unix if self.read_by_peer => Some(0),
            Kind::Unix | Kind::Mptcp | Kind::Other => None,
        }
    }

    /// Bytes that did not leave, where the kernel can tell.
    fn unsent(&self) -> Option<u64> {
        let known = self.established && self.facts.kind == Kind::Tcp;
        self.unsent.filter(|_| known).map(|unsent| self.without_fin(unsent))
    }

    /// Our FIN is the last of what is queued: while anything is, it is among it.
    fn without_fin(&self, queue: u32) -> u64 {
        u64::from(if self.fin_queued { queue.saturating_sub(1) } else { queue })
    }

    fn all_acked(&self) -> bool {
        self.unacked() == Some(0)
    }

    /// The peer's end is still to come, and is wanted. For a kind that counts nothing its end is all
    /// that can be waited for.
    fn waits_for_peer(&self) -> bool {
        let wanted = self.options.want >= Delivery::Closed || self.facts.kind == Kind::Other;
        wanted && self.peer == PeerEnd::Open
    }

    /// Everything of ours is acknowledged, the FIN included, and no more is to be waited for.
    fn conclude(&self) -> Phase {
        // One last look, so that closing does not turn into a reset over unread bytes.
        if self.readable != Some(false) && self.may_drain() { Phase::Drain } else { Phase::Done }
    }

    fn look_or_wait(&mut self) -> Phase {
        let asks_again = self.timer_ended || std::mem::take(&mut self.ended_again);
        if self.readable == Some(true) && self.may_drain() {
            Phase::Drain
        } else if self.asks_round_trip() || (asks_again && self.facts.kind == Kind::Tcp) {
            Phase::MeasureRoundTrip
        } else {
            self.wait()
        }
    }

    /// No event tells that the queue is empty: our FIN is not among it, or nothing wakes us at all.
    fn looks_by_timer(&self) -> bool {
        self.aborts || self.blind
    }

    /// Our half-close succeeded, so that there was no reset before; and a `recv` tells of one that
    /// came after it, unless somebody else was told.
    fn would_be_told_of_reset(&self) -> bool {
        self.facts.alone && self.fin_queued && !self.facts.half_closed
    }

    /// Our half-close raises an edge by itself (`inet_shutdown` and `unix_shutdown` of the kernel):
    /// there is nothing to ask before the peer answers.
    fn is_told_of_half_close(&self) -> bool {
        let ours = self.facts.registered && !self.facts.half_closed;
        ours && matches!(self.facts.kind, Kind::Tcp | Kind::Unix)
    }

    /// Before its first wait a driver without edges needs to know how long a peer takes to answer.
    fn asks_round_trip(&self) -> bool {
        let first = self.rtt.is_none() && (self.looks_by_timer() || !self.facts.registered);
        first && self.facts.kind == Kind::Tcp
    }

    /// Sets the timer for the next wait: it backs off when it was what ended the last one.
    fn wait(&mut self) -> Phase {
        let rtt = self.rtt.unwrap_or_default();
        let ended = std::mem::take(&mut self.timer_ended);
        let quiet = !self.facts.registered || self.is_told_of_half_close();
        if self.looks_by_timer() {
            let began = std::mem::replace(&mut self.blind_timer, true);
            self.timer = match (began, ended) {
                (false, _) => rtt + FIRST_BLIND_TIMER,
                (true, true) => (self.timer * 2).min(LAST_TIMER),
                (true, false) => self.timer,
            };
        } else if quiet && self.quiet_until.is_none() {
            self.timer = match self.facts.kind {
                Kind::Tcp if self.rtt.is_none() => QUIET,
                Kind::Tcp => rtt + rtt / 2 + DELAYED_ACK,
                Kind::Unix | Kind::Mptcp | Kind::Other => NEAR,
            };
            self.quiet_until = Some(self.now.saturating_add(self.timer));
        } else if ended {
            self.timer = (self.timer * 2).max(rtt).max(FIRST_TIMER).min(LAST_TIMER);
        }
        Phase::Wait
    }

    /// Nothing more is there to be read now, or nothing more shall be.
    fn after_drain(&mut self) {
        self.readable = Some(false);
        let counted = self.facts.kind != Kind::Other && self.queue == Some(0);
        let proven = counted && self.options.want >= Delivery::Acked && !self.waits_for_peer();
        self.phase = if proven { Phase::Done } else { self.look_or_wait() };
    }

    fn on_peer_end(&mut self, info: Option<&TcpInfo>, error_taken: bool) {
        let evidence = EndEvidence {
            kind: self.facts.kind,
            read: self.facts.read,
            // Where the bytes read are known, the stream is ours, and keeps them in place.
            urgent_inline: true,
            unread: self.unread,
            received: info.and_then(|info| info.bytes_received),
            state: info.map(|info| info.state),
            error_taken,
        };
        self.readable = Some(false);
        // With everything proven the last count stands.
        let counted = self.facts.kind != Kind::Other;
        let proven = self.queue == Some(0) && (self.facts.kind != Kind::Unix || self.read_by_peer);
        self.phase = if counted && !proven { Phase::Count } else { Phase::Done };
        match evidence.classify() {
            End::Fin => {
                self.peer = PeerEnd::Fin;
                // With the peer's FIN there and ours not acknowledged it is one of these.
                match info.map(|info| info.state) {
                    Some(state) => {
                        let early = [State::Closing, State::LastAck, State::CloseWait];
                        self.early_fin |= early.contains(&state);
                    }
                    None => self.end_in_doubt = !proven,
                }
            }
            End::Reset => self.on_reset(),
            End::Truncated | End::Unknown => self.peer = PeerEnd::Unknown,
        }
    }

    fn on_reset(&mut self) {
        self.peer = PeerEnd::Reset;
        self.give_up(Unproven::Reset);
    }

    fn give_up(&mut self, why: Unproven) {
        self.unproven = Some(why);
        let counts = self.facts.kind != Kind::Other && self.established;
        self.phase = if counts { Phase::LastCount } else { Phase::Done };
    }

    fn may_drain(&self) -> bool {
        self.peer == PeerEnd::Open && self.drain_room() > 0
    }

    fn drain_room(&self) -> u64 {
        match self.options.drain {
            Drain::Discard(limit) => limit.saturating_sub(self.drained),
            Drain::Keep => 0,
        }
    }

    fn deadline(&self) -> Duration {
        let from = if self.options.patient { self.moved } else { self.started };
        from.saturating_add(self.options.deadline)
    }

    fn wake_at(&self) -> Duration {
        self.deadline().min(self.now.saturating_add(self.timer))
    }

    /// While the peer has not ended, `poll` sleeps. It is enough where its end is what is waited
    /// for, and at first, since most peers answer our end with theirs.
    fn wake(&self) -> Wake {
        let quiet = self.quiet_until.is_some_and(|until| self.now < until);
        let enough = quiet || self.queue == Some(0);
        if enough && self.peer == PeerEnd::Open && self.phase == Phase::Wait {
            Wake::Level { data: self.may_drain() }
        } else {
            Wake::Edge
        }
    }
}

#[cfg(test)]
mod tests;
