//! How a connection ended, judged by what was observed, and how many bytes that cost.

use lastbyte_core::sample::State;

use super::{OTHER_END_NS, SETTLE_NS};
use crate::event::{Actor, Changed, Ending, ResetSent, Role, Sample, SocketId, Tier};
use crate::facts::{Facts, FinalCounts, KnownSocket, got_fin};
use crate::finding::Code;

/// Why a connection had no orderly end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Closed with unread input.
    Unread,
    /// Aborted by a program: SO_LINGER of 0 s, a connect to AF_UNSPEC, `ss -K`.
    Abort,
    /// Data came after the close.
    DataAfterClose,
    /// A reset came.
    PeerReset,
    /// The peer did not answer for too long, or no route led to it.
    NoAnswer,
    /// The kernel had no memory for it, or too many orphans.
    Memory,
    /// It disappeared with unacked bytes, and no event shows why.
    Unknown,
}

impl Cause {
    pub(super) fn code(self) -> Code {
        Code(match self {
            Self::Unread => 101,
            Self::Abort => 103,
            Self::DataAfterClose => 104,
            Self::PeerReset => 105,
            Self::NoAnswer => 108,
            Self::Memory => 109,
            Self::Unknown => 110,
        })
    }
}

/// A socket whose process exited.
#[derive(Clone, Debug)]
pub(super) struct Exit {
    pub(super) at_ns: u64,
    pub(super) by: Actor,
    /// Bytes unacked at that time; 0 if unknown so far.
    pub(super) unacked: u32,
}

impl Exit {
    /// The exit, if a change is the orderly close of a socket by the exit of its last holder, with
    /// unacked bytes or an unknown number of them.
    pub(super) fn of(at_ns: u64, changed: &Changed, facts: &Facts) -> Option<Self> {
        let known = facts.socket(changed.socket).filter(|known| !known.socket.subflow)?;
        let by = match changed.by {
            Some(by) => by,
            // From tables: no process holds the socket, and all former holders have ended.
            None if changed.held == Some(false) => {
                let endings = known.holders.iter().map(|(pid, _)| (*pid, ending(facts, *pid)));
                let all: Option<Vec<_>> = endings.map(|(pid, how)| Some((pid, how?))).collect();
                let (pid, how) = all?.pop()?;
                Actor { pid, tid: pid, ending: Some(how) }
            }
            None => return None,
        };
        let was_open = matches!(changed.from, State::Established | State::CloseWait);
        let sampled = || {
            let sample = known.sample.as_ref().map(|(_, sample)| sample)?;
            (!is_handshake(sample.state)).then_some(sample.send_queue)
        };
        let reported = changed.counts.map(|counts| counts.unacked());
        let unacked = reported.or_else(sampled).unwrap_or(0);
        let is_exit = was_open && by.ending.is_some() && (unacked > 0 || reported.is_none());
        is_exit.then_some(Self { at_ns, by, unacked })
    }

    /// The exit with the unacked bytes that a later sample showed: at least this many were unacked
    /// at the exit.
    pub(super) fn shown(self, sample: &Sample) -> Option<Self> {
        let is_left = matches!(
            sample.state,
            State::FinWait1 | State::Closing | State::LastAck | State::Close
        );
        // The last byte is our FIN.
        let unacked = sample.send_queue.saturating_sub(1);
        (is_left && unacked > 0).then_some(Self { unacked, ..self })
    }
}

fn ending(facts: &Facts, pid: u32) -> Option<Ending> {
    facts.process(pid)?.ending
}

/// The evidence of a bad end.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// When the first sign came.
    pub(super) since_ns: u64,
    /// The change to CLOSED.
    pub(super) closed: Option<Changed>,
    /// A reset that a call or a timer sent.
    pub(super) sent: Option<ResetSent>,
    /// Resets that answered data after the close.
    pub(super) answered: u64,
    /// The reason of the first of those resets.
    pub(super) answered_why: Option<String>,
    /// On a kernel that reports no reasons: the socket, or its TIME-WAIT remainder, sent one, which
    /// it does only in answer to data.
    pub(super) answered_itself: bool,
    /// A reset came.
    pub(super) received: bool,
    /// The socket's pending error, `errno`; 0 if none.
    pub(super) errno: i32,
    /// Whether counters show that a program aborted it, if no event does.
    pub(super) is_counted: bool,
}

impl Hints {
    /// Whether no more evidence is expected.
    pub(super) fn is_due(&self, facts: &Facts, id: SocketId) -> bool {
        let age_ns = facts.now_ns().saturating_sub(self.since_ns);
        if facts.tier() == Tier::Procfs {
            return age_ns >= COUNTED_NS;
        }
        let Some(known) = facts.socket(id) else { return true };
        if self.needs_counters(facts, known) && age_ns < COUNTED_NS {
            return false;
        }
        let needs_other =
            self.answered > 0 || known.final_counts().is_some_and(|last| last.unacked() > 0);
        let other_is_open = || {
            let is_open =
                |other: &KnownSocket| other.final_counts().is_none() && other.gone_ns.is_none();
            facts.other_end(id).is_some_and(is_open)
        };
        age_ns >= SETTLE_NS && (age_ns >= OTHER_END_NS || !needs_other || !other_is_open())
    }

    /// Whether it was an abort with unknown bytes. Then only counters distinguish a program's abort
    /// from the kernel's: when a listening socket is closed, the kernel aborts connections that no
    /// program has accepted.
    pub(super) fn needs_counters(&self, facts: &Facts, known: &KnownSocket) -> bool {
        facts.tier() == Tier::Tracefs
            && self.cause(known) == Some(Cause::Abort)
            && Queues::of(known).is_none()
    }

    /// Whether the connection was never established, as later events show.
    pub(super) fn is_attempt(&self, known: &KnownSocket) -> bool {
        /// ECONNREFUSED: only a reset that answers a SYN causes it.
        const REFUSED: i32 = 111;
        let state = match (known.changed(), known.state) {
            (Some((_, changed)), Some(State::Close)) => Some(changed.from),
            (_, state) => state,
        };
        self.errno == REFUSED || state.is_some_and(is_handshake)
    }

    /// The cause, if the evidence shows it.
    pub(super) fn cause(&self, known: &KnownSocket) -> Option<Cause> {
        let reason = self.sent.as_ref().and_then(|reset| reset.reason.as_deref());
        match reason {
            Some("TCP_ABORT_ON_MEMORY") => return Some(Cause::Memory),
            Some("TCP_ABORT_ON_CLOSE") => return Some(Cause::Unread),
            Some("TCP_KEEPALIVE_TIMEOUT") => return Some(Cause::NoAnswer),
            _ => {}
        }
        if self.answered > 0 {
            // In this case the kernel ends its socket as if it had received a reset.
            return Some(Cause::DataAfterClose);
        }
        if self.received {
            return Some(Cause::PeerReset);
        }
        if is_no_answer(self.errno) {
            return Some(Cause::NoAnswer);
        }
        let by_call = self.closed.as_ref().is_some_and(|closed| {
            closed.by.is_some() && matches!(closed.from, State::Established | State::CloseWait)
        });
        if self.sent.is_some() || by_call {
            let unread = Queues::of(known).and_then(|numbers| numbers.unread);
            let says_more = reason.is_none() && unread.is_some_and(|unread| unread > 0);
            return Some(if says_more { Cause::Unread } else { Cause::Abort });
        }
        if is_reset(self.errno) {
            return Some(Cause::PeerReset);
        }
        let was_orphan = self.closed.as_ref().is_some_and(|closed| {
            matches!(closed.from, State::FinWait1 | State::Closing | State::LastAck)
        });
        let has_left = known.final_counts().is_some_and(|last| last.unacked() > 0);
        (was_orphan && has_left).then_some(Cause::NoAnswer)
    }
}

/// Whether a reset with this reason was sent because data came after the close.
pub(super) fn answers_data(reason: Option<&str>, active: bool, known: &KnownSocket) -> bool {
    // Data after an abort is answered in the same way, and is not news.
    let is_orderly = |changed: &Changed| changed.to != State::Close;
    if active || !known.closed().is_some_and(|(_, changed)| is_orderly(changed)) {
        return false;
    }
    match reason {
        Some("TCP_ABORT_ON_DATA" | "TCP_TIMEWAIT_SOCKET") => true,
        // The kernel has destroyed the connection; the reason is `TCP_FLAGS` if a socket listens on
        // its port. After its FIN the peer sends no data.
        Some("NO_SOCKET" | "TCP_FLAGS") | None => known.fin_received().is_none(),
        Some(_) => false,
    }
}

/// Whether a reset with this reason ended a connection from our side.
pub(super) fn aborts(reason: Option<&str>, active: bool) -> bool {
    let by_timer = ["TCP_ABORT_ON_MEMORY", "TCP_KEEPALIVE_TIMEOUT"];
    active || reason.is_some_and(|reason| by_timer.contains(&reason))
}

/// Counters are read once a second: one that grew because of an end is reported within this time.
pub(super) const COUNTED_NS: u64 = 1_200_000_000;

/// The queues of a socket at its end, data only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queues {
    pub(super) unacked: u32,
    pub(super) unsent: Option<u32>,
    pub(super) unread: Option<u32>,
    /// How long before the end they were read, nanoseconds; 0 if at the end itself.
    pub(super) age_ns: u64,
}

impl Queues {
    /// The queues at the end itself, or at the last sample before it.
    pub(super) fn of(known: &KnownSocket) -> Option<Self> {
        if known.socket.subflow {
            return None;
        }
        if let Some(last) = known.final_counts() {
            let (unacked, unread) = (last.unacked(), Some(last.unread()));
            return Some(Self { unacked, unsent: Some(last.unsent()), unread, age_ns: 0 });
        }
        /// An older sample says nothing about the end.
        const FRESH_NS: u64 = 1_000_000_000;
        let (at_ns, sample) = known.sample.as_ref()?;
        // The last sample of a destroyed socket has the state CLOSED. After an orderly end, the
        // only byte left may be a FIN that no scan has shown.
        let one_is_fin = |queue: u32| sample.state == State::Close && queue == 1;
        let fin_sent = known.fin_sent || one_is_fin(sample.send_queue);
        let fin_received = known.fin_received().is_some()
            || sample.state == State::CloseWait
            || one_is_fin(sample.receive_queue);
        let changed_ns = known.changed().map(|(at_ns, _)| *at_ns);
        let end_ns = known.gone_ns.into_iter().chain(changed_ns).min().unwrap_or(*at_ns);
        let age_ns = end_ns.saturating_sub(*at_ns);
        let numbers = Self {
            unacked: sample.send_queue.saturating_sub(fin_sent.into()),
            unsent: None,
            unread: Some(sample.receive_queue.saturating_sub(fin_received.into())),
            age_ns: age_ns.max(1),
        };
        // During the handshake a queue contains the SYN and no data; a listening socket's contains
        // connections.
        let has_data = sample.state != State::Listen && !is_handshake(sample.state);
        (age_ns <= FRESH_NS && has_data).then_some(numbers)
    }
}

/// Bytes that were written at one end and never reached the other end's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostBytes {
    /// Both ends show it, or nothing was in flight.
    Exactly(u32),
    /// At least those never sent, at most those unacked.
    Between(u32, u32),
    /// Unacked bytes at the last sample before the end.
    About(u32),
    /// Bytes that the other end had not received, by the last samples of both before the end.
    AboutMissing(u32),
    Unknown,
}

impl LostBytes {
    /// The largest possible number.
    pub(super) fn most(self) -> Option<u64> {
        match self {
            Self::Exactly(most)
            | Self::Between(_, most)
            | Self::About(most)
            | Self::AboutMissing(most) => Some(most.into()),
            Self::Unknown => None,
        }
    }

    /// The precision, as the evidence has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Exactly(_) => "yes",
            Self::Between(..) => "at most",
            Self::About(_) | Self::AboutMissing(_) => "about",
            Self::Unknown => "not known",
        }
    }
}

/// The bytes that a socket's program wrote and that did not arrive.
pub(super) fn lost(facts: &Facts, id: SocketId, known: &KnownSocket) -> LostBytes {
    let last = known.final_counts().filter(|_| !known.socket.subflow);
    let Some(last) = last else {
        let Some(Queues { unacked, .. }) = Queues::of(known) else { return LostBytes::Unknown };
        if unacked <= CLOSING_MESSAGE && was_just_begun(known) {
            return LostBytes::Unknown;
        }
        let missing =
            facts.other_end(id).and_then(|other| missing_by_samples(known, other, unacked));
        return missing.map_or(LostBytes::About(unacked), LostBytes::AboutMissing);
    };
    let missing = |other: &FinalCounts| last.missing_at(other);
    if let Some(missing) = facts.other_end(id).and_then(|other| missing(&other.final_counts()?)) {
        return LostBytes::Exactly(missing);
    }
    match (last.unsent(), last.unacked()) {
        (unsent, unacked) if unsent >= unacked => LostBytes::Exactly(unacked),
        (unsent, unacked) => LostBytes::Between(unsent, unacked),
    }
}

/// Whether a connection was so young at its last sample that it may have written all its bytes
/// after that.
fn was_just_begun(known: &KnownSocket) -> bool {
    /// The time between two scans.
    const YOUNG_NS: u64 = 100_000_000;
    let Some((at_ns, sample)) = &known.sample else { return false };
    // The sample of a destroyed socket has its final values.
    sample.state != State::Close && *at_ns < known.since_ns.saturating_add(YOUNG_NS)
}

/// What a sample of each end shows of the bytes between them: bytes that the other end's kernel
/// received in order are not lost, even if not acked yet. `None` if one sample does not show it.
fn missing_by_samples(known: &KnownSocket, other: &KnownSocket, unacked: u32) -> Option<u32> {
    // At the end that connected, the SYN counts as an acked byte. If the tables do not show which
    // end did, the result may be one byte too large.
    let has_syn = known.socket.role == Role::Connected;
    let ((acked, _), (_, received)) = (known.carried?, other.carried?);
    let has_our_fin = got_fin(other.sample.as_ref()?.1.state);
    let acked = acked.wrapping_sub(has_syn.into());
    // Received and not acked; none if the other end's sample is older.
    let came = received.wrapping_sub(has_our_fin.into()).wrapping_sub(acked);
    Some(if came <= unacked { unacked - came } else { unacked })
}

/// The longest closing message: TLS close_notify after HTTP/2 GOAWAY, SSH's disconnect, a "221
/// Bye". It only says that nothing more follows.
pub(super) const CLOSING_MESSAGE: u32 = 128;

/// Whether bytes that were or may have been lost are a closing message: few, all sent, and, if they
/// were certainly lost, written after the peer's FIN.
pub(super) fn is_closing_message(lost: LostBytes, known: &KnownSocket) -> bool {
    match lost {
        LostBytes::Between(0, most) => most <= CLOSING_MESSAGE,
        LostBytes::Exactly(bytes) => bytes <= CLOSING_MESSAGE && bytes <= written_after_fin(known),
        _ => false,
    }
}

/// Bytes that a program wrote after the peer's FIN was received.
fn written_after_fin(known: &KnownSocket) -> u32 {
    let at_fin = known.fin_received().and_then(|(_, counts)| counts);
    let written = |last: FinalCounts| {
        at_fin.map(|counts| crate::event::distance(counts.write_seq, last.written_to()))
    };
    known.final_counts().and_then(written).unwrap_or(0)
}

/// The states before a connection is established (RFC 9293 section 3.3.2).
fn is_handshake(state: State) -> bool {
    matches!(state, State::SynSent | State::SynRecv)
}

fn is_no_answer(errno: i32) -> bool {
    /// ENETDOWN, ENETUNREACH, ETIMEDOUT, EHOSTDOWN, EHOSTUNREACH.
    const ALL: [i32; 5] = [100, 101, 110, 112, 113];
    ALL.contains(&errno)
}

fn is_reset(errno: i32) -> bool {
    /// EPIPE, ECONNRESET.
    const ALL: [i32; 2] = [32, 104];
    ALL.contains(&errno)
}
