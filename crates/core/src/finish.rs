//! Ending a connection so that nothing is lost: half-close, wait for proof, drain, close.
//!
//! [`Finish`] decides and does nothing itself. Its driver asks [`Finish::next`] what to do, does
//! that one system call, and tells the machine the result by the `on_*` method that [`Action`]
//! names; until [`Action::Done`]. The descriptor stays open all the while: an orphan is given up by
//! the kernel after seconds to minutes, and one late byte from the peer resets it and takes our
//! tail along.
//!
//! ```text
//!              +-----------+  SYN_SENT, SYN_RECV: wait
//!   foreign -->| Inspect   |----.
//!   or Closed  +-----------+<---'
//!   wanted           | ESTABLISHED, CLOSE_WAIT            | FIN queued already
//!   ours ---.        |                                    |
//!            v       v                                    |
//!          +-----------+ ENOTCONN                         |
//!          | HalfClose |--------------------------.       |
//!          +-----------+                          |       |
//!                | ok: our FIN is queued          |       |
//!                v                                |       |
//!          +-----------+<-------------------------|-------'
//!     .--->| Count     |--- 0 left, and the peer's end as wanted ----------> Done
//!     |    +-----------+                          |                           ^
//!     |          | more left                      |                           |
//!     |          v                                v                           |
//!     |    +-----------+ reset, error      +-----------+   +-----------+      |
//!     |    | Drain     |------------------>| LastCount |-->| Unsent    |------'
//!     |    +-----------+                   +-----------+   +-----------+
//!     |          | nothing there, peer's FIN      ^
//!     |          v                                |
//!     |    +-----------+ deadline                 |
//!     '----| Wait      |--------------------------'
//!   event, +-----------+
//!   timer
//! ```
//!
//! What is claimed, and why it is sound on Linux:
//!
//! - **Acked** needs our FIN known to be queued (`shutdown` succeeded on an established connection)
//!   and `SIOCOUTQ` at most 1, the FIN itself; without such a FIN only 0. In `SYN_SENT` the counter
//!   is 0 with bytes pending, and after a reset it can be 1 with the last data byte lost: both are
//!   excluded by asking for the FIN.
//! - The machine waits on until the FIN too is acknowledged: from then on closing cannot truncate
//!   what a Linux peer reads, even if closing emits a reset. Should the deadline come first, the
//!   bytes are acked all the same.
//! - **Closed** needs the peer's FIN after that. Where its FIN was there before ours was
//!   acknowledged the level stays Acked. A FIN that overtakes the acknowledgement within a single
//!   wake-up cannot be told from one that follows it, and counts as following.

use std::time::Duration;

use crate::sample::{State, TcpInfo};
use crate::{Delivery, End, EndEvidence, PeerEnd, Receipt};

/// The first look at the clock when no event comes; later ones follow the measured round trip.
const FIRST_TIMER: Duration = Duration::from_millis(100);
/// The longest wait between two looks.
const LAST_TIMER: Duration = Duration::from_secs(5);

/// What the caller of a finish wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishOptions {
    /// How long to wait for proof, from the start of the finish. Default 30 s: with a first
    /// retransmission time-out of 0.4 s, as on a path of 200 ms, six retransmissions of the last
    /// segment fit in (the sixth leaves after 25 s).
    pub deadline: Duration,
    /// The level to wait for. Default [`Delivery::Acked`]. TCP cannot prove
    /// [`Delivery::Confirmed`]: asking for it fails at once.
    pub want: Delivery,
    /// How many bytes of the peer to read and throw away while waiting. Default 1 MiB. Past it the
    /// peer's data stays unread, and the close that follows resets the connection.
    pub drain_limit: u64,
}

impl Default for FinishOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30), want: Delivery::Acked, drain_limit: 1 << 20 }
    }
}

/// What is known of the connection before it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The handshake is known to be over: the connection came from our own connect or accept.
    pub connected: bool,
    /// Our FIN is known to be queued: we half-closed before, and recorded that it succeeded.
    pub half_closed: bool,
    /// The socket speaks plain TCP, not MPTCP.
    pub plain_tcp: bool,
    /// Bytes written over the life of the connection.
    pub written: u64,
    /// Bytes read over the life of the connection; `None` when others may have read.
    pub read: Option<u64>,
    /// The end of the peer's stream, where the reader met it already.
    pub ended: Option<End>,
}

/// The next system call to make, and the method that takes its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `getsockopt(TCP_INFO)`; then [`Finish::on_info`].
    Inspect,
    /// `shutdown(SHUT_WR)`; then [`Finish::on_half_close`].
    HalfClose,
    /// `ioctl(SIOCOUTQ)`; then [`Finish::on_unacked`].
    CountUnacked,
    /// `ioctl(SIOCOUTQNSD)`; then [`Finish::on_unsent`].
    CountUnsent,
    /// Read and throw away at most so many bytes, without waiting; then [`Finish::on_drained`].
    Drain {
        /// Bytes, at least 1.
        limit: u64,
    },
    /// Wait for an edge on the descriptor, at most until this time; then [`Finish::on_wake`].
    Wait {
        /// On the same clock as `now`.
        until: Duration,
    },
    /// It is over: [`Finish::outcome`].
    Done,
}

/// What a `recv` that throws away brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// So many bytes, at least 1.
    Bytes(u64),
    /// The end of the stream, whatever it means.
    End,
    /// Nothing is there now.
    Nothing,
    /// The connection failed: reset, or given up by our kernel.
    Failed,
}

/// Why a finish could not prove what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unproven {
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The peer reset the connection, or our kernel gave it up.
    #[error("the connection was reset")]
    Reset,
    /// The connection was gone, or never there, before a FIN could be queued.
    #[error("the socket was not connected")]
    NotConnected,
    /// The peer had ended its direction before our FIN was acknowledged: its FIN says nothing
    /// about our bytes.
    #[error("the peer's FIN came before ours was acknowledged")]
    EarlyFin,
    /// The kernel cannot know it for this kind of socket or this level.
    #[error("this cannot be known for this socket")]
    Unknowable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inspect,
    AwaitHandshake,
    HalfClose,
    Count,
    Drain,
    ClassifyEnd,
    MeasureRoundTrip,
    Wait,
    LastCount,
    Unsent,
    LastUnsent,
    Done,
}

/// The machine. See the [module](self) for its drawing.
///
/// Times are durations since an arbitrary start, the same for all calls.
#[derive(Clone, Debug)]
pub struct Finish {
    options: FinishOptions,
    facts: Facts,
    phase: Phase,
    started: Duration,
    /// The time as last told.
    now: Duration,
    timer: Duration,
    /// The last wait ended by its timer: no event came.
    timer_ended: bool,
    fin_queued: bool,
    /// The peer's FIN was seen not to be there when ours was queued.
    peer_open_before: bool,
    /// The peer's FIN was there before ours was acknowledged.
    early_fin: bool,
    /// The last answer of `SIOCOUTQ`, FIN included.
    queue: Option<u32>,
    unsent: Option<u32>,
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
        let peer = match facts.ended {
            None => PeerEnd::Open,
            Some(End::Fin) => PeerEnd::Fin,
            Some(End::Reset) => PeerEnd::Reset,
            Some(End::Truncated | End::Unknown) => PeerEnd::Unknown,
        };
        let phase = if facts.half_closed {
            Phase::Count
        } else if facts.connected && options.want < Delivery::Closed {
            Phase::HalfClose
        } else {
            Phase::Inspect
        };
        Self {
            options,
            facts,
            phase,
            started: now,
            now,
            timer: FIRST_TIMER,
            timer_ended: false,
            fin_queued: facts.half_closed,
            peer_open_before: false,
            early_fin: peer == PeerEnd::Fin,
            queue: None,
            unsent: None,
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
            Phase::Inspect | Phase::ClassifyEnd | Phase::MeasureRoundTrip => Action::Inspect,
            Phase::HalfClose => Action::HalfClose,
            Phase::Count | Phase::LastCount => Action::CountUnacked,
            Phase::Unsent | Phase::LastUnsent => Action::CountUnsent,
            Phase::Drain => Action::Drain { limit: self.drain_room() },
            Phase::AwaitHandshake | Phase::Wait => Action::Wait { until: self.wake_at() },
            Phase::Done => Action::Done,
        }
    }

    /// The answer to [`Action::Inspect`].
    pub fn on_info(&mut self, info: &TcpInfo) {
        match self.phase {
            Phase::ClassifyEnd => self.on_peer_end(info),
            Phase::MeasureRoundTrip => {
                let rtt = Duration::from_micros(u64::from(info.rtt_us));
                self.timer = (self.timer * 2).max(rtt).min(LAST_TIMER);
                self.phase = Phase::Wait;
            }
            _ => self.on_first_look(info),
        }
    }

    fn on_first_look(&mut self, info: &TcpInfo) {
        match info.state {
            State::Established | State::CloseWait => {
                self.peer_open_before = info.state == State::Established;
                self.early_fin |= info.state == State::CloseWait;
                self.phase = Phase::HalfClose;
            }
            State::SynSent | State::SynRecv => self.phase = Phase::AwaitHandshake,
            // A FIN that others queued: without our own record only an empty queue proves.
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => {
                self.phase = Phase::Count;
            }
            // It was there and is gone before we ended our direction: not by an orderly close.
            _ if self.facts.connected => self.on_reset(),
            _ => self.give_up(Unproven::NotConnected),
        }
    }

    /// The answer to [`Action::HalfClose`]: whether `shutdown` succeeded. It fails only when the
    /// connection is gone (`ENOTCONN`), and then no FIN is queued.
    pub fn on_half_close(&mut self, succeeded: bool) {
        self.fin_queued = succeeded;
        if !succeeded {
            self.on_reset();
        } else if !self.facts.plain_tcp || self.options.want == Delivery::Written {
            self.unproven = Some(Unproven::Unknowable);
            self.phase = Phase::Done;
        } else {
            self.phase = Phase::Count;
        }
    }

    /// The answer to [`Action::CountUnacked`].
    pub fn on_unacked(&mut self, queue: u32) {
        self.queue = Some(queue);
        self.phase = if self.phase == Phase::LastCount {
            if self.all_acked() { Phase::Done } else { Phase::LastUnsent }
        } else if self.options.want == Delivery::Sent {
            Phase::Unsent
        } else if queue > 0 || self.waits_for_peer() {
            self.look_or_wait()
        } else {
            self.conclude()
        };
    }

    /// The answer to [`Action::CountUnsent`].
    pub fn on_unsent(&mut self, unsent: u32) {
        self.unsent = Some(unsent);
        let done = self.phase == Phase::LastUnsent || unsent == 0;
        self.phase = if done { Phase::Done } else { self.look_or_wait() };
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
            Drained::End => self.phase = Phase::ClassifyEnd,
            Drained::Failed => self.on_reset(),
        }
    }

    /// The answer to [`Action::Wait`]: the time now, and whether the descriptor is readable, in
    /// error or hung up.
    pub fn on_wake(&mut self, now: Duration, readable: bool) {
        self.timer_ended = now >= self.wake_at();
        self.now = now;
        self.readable = Some(readable || self.readable.unwrap_or(false));
        if now < self.deadline() {
            let inspect = self.phase == Phase::AwaitHandshake;
            self.phase = if inspect { Phase::Inspect } else { Phase::Count };
            return;
        }
        if self.peer == PeerEnd::Open {
            self.peer = PeerEnd::Silent;
        }
        self.give_up(Unproven::Deadline);
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
        let otherwise = if self.early_fin { Unproven::EarlyFin } else { Unproven::Unknowable };
        Err((self.unproven.unwrap_or(otherwise), receipt))
    }

    /// What is proven so far.
    #[must_use]
    pub fn receipt(&self, now: Duration) -> Receipt {
        let written = self.facts.written;
        let acked = self.acked();
        let all_acked = acked == Some(written);
        let unsent = self.unsent.filter(|_| self.facts.plain_tcp);
        let sent = match unsent {
            _ if all_acked => Some(written),
            unsent => unsent.map(|unsent| written.saturating_sub(self.without_fin(unsent))),
        };
        let closed = self.peer == PeerEnd::Fin && self.peer_open_before && !self.early_fin;
        let level = match (all_acked, sent) {
            (true, _) if closed && self.queue == Some(0) => Delivery::Closed,
            (true, _) => Delivery::Acked,
            (false, Some(sent)) if sent == written => Delivery::Sent,
            (false, _) => Delivery::Written,
        };
        let took = now.saturating_sub(self.started);
        Receipt { level, written, sent, acked, drained: self.drained, peer: self.peer, took }
    }

    /// Bytes of ours that the peer's kernel has, where the queue can tell.
    fn acked(&self) -> Option<u64> {
        let queue = self.queue.filter(|_| self.facts.plain_tcp)?;
        Some(self.facts.written.saturating_sub(self.without_fin(queue)))
    }

    /// Our FIN is the last of what is queued: while anything is, it is among it.
    fn without_fin(&self, queue: u32) -> u64 {
        u64::from(if self.fin_queued { queue.saturating_sub(1) } else { queue })
    }

    fn all_acked(&self) -> bool {
        self.acked() == Some(self.facts.written)
    }

    /// Everything of ours is acknowledged; the peer's end is still to come.
    fn waits_for_peer(&self) -> bool {
        self.options.want >= Delivery::Closed && self.peer == PeerEnd::Open
    }

    /// Everything of ours is acknowledged, the FIN included, and no more is to be waited for.
    fn conclude(&self) -> Phase {
        // One last look, so that closing does not turn into a reset over unread bytes.
        if self.readable != Some(false) && self.may_drain() { Phase::Drain } else { Phase::Done }
    }

    fn look_or_wait(&mut self) -> Phase {
        if self.readable == Some(true) && self.may_drain() {
            Phase::Drain
        } else if std::mem::take(&mut self.timer_ended) {
            Phase::MeasureRoundTrip
        } else {
            Phase::Wait
        }
    }

    /// Nothing more is there to be read now, or nothing more shall be.
    fn after_drain(&mut self) {
        self.readable = Some(false);
        let acked = self.queue == Some(0) && self.options.want >= Delivery::Acked;
        self.phase = if acked && !self.waits_for_peer() { Phase::Done } else { Phase::Wait };
    }

    fn on_peer_end(&mut self, info: &TcpInfo) {
        let evidence = EndEvidence {
            plain_tcp: self.facts.plain_tcp,
            read: self.facts.read,
            received: info.bytes_received,
        };
        self.readable = Some(false);
        // With our FIN acknowledged the last count stands.
        self.phase = if self.queue == Some(0) { Phase::Done } else { Phase::Count };
        match evidence.classify() {
            End::Fin => {
                self.peer = PeerEnd::Fin;
                // With the peer's FIN there and ours not acknowledged it is one of these.
                self.early_fin |=
                    matches!(info.state, State::Closing | State::LastAck | State::CloseWait);
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
        self.phase = Phase::LastCount;
    }

    fn may_drain(&self) -> bool {
        self.peer == PeerEnd::Open && self.drain_room() > 0
    }

    fn drain_room(&self) -> u64 {
        self.options.drain_limit.saturating_sub(self.drained)
    }

    fn deadline(&self) -> Duration {
        self.started.saturating_add(self.options.deadline)
    }

    fn wake_at(&self) -> Duration {
        self.deadline().min(self.now.saturating_add(self.timer))
    }
}

#[cfg(test)]
mod tests;
