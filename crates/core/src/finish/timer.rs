//! How long to wait: the timer of each wait, and the deadline of the finish.

use std::time::Duration;

use super::FinishOptions;
use crate::Kind;

/// The shortest wait after one without an event; later waits follow the measured round-trip time.
const FIRST_TIMER: Duration = Duration::from_millis(100);
/// The first wait if the round-trip time is not known. A near peer that does not answer our FIN
/// with its own has at least acknowledged it by then.
const QUIET: Duration = Duration::from_millis(60);
/// The longest wait between two checks.
const LAST_TIMER: Duration = Duration::from_secs(5);
/// The longest delayed acknowledgement of a lone FIN (`TCP_DELACK_MIN` is 40 ms), with a margin.
const DELAYED_ACK: Duration = Duration::from_millis(50);
/// How long a peer on this machine may take to see our FIN.
const NEAR: Duration = Duration::from_millis(10);
/// How long after one round trip the first check follows, if no event reports an empty queue.
const FIRST_BLIND_TIMER: Duration = Duration::from_millis(1);

/// The timer of the next wait.
#[derive(Clone, Debug)]
pub(super) struct Timer {
    /// The time that the driver last passed.
    pub(super) now: Duration,
    length: Duration,
    /// The smoothed round-trip time, once measured.
    rtt: Option<Duration>,
    events: Events,
    /// Until then the machine waits only for the peer's FIN, since most peers answer our FIN with
    /// theirs. `None` before the first such wait.
    quiet_until: Option<Duration>,
    /// The timer ended the last wait, and the next wait has not accounted for that yet.
    pub(super) expired: bool,
}

/// Whether events report that the queue is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    /// Events report it: the timer is a precaution.
    Come,
    /// Events do not report it; set the timer for a first check.
    Missing,
    /// Events do not report it; the timer backs off.
    MissingTimed,
}

impl Timer {
    /// The timer of a new machine. Before a reset there is no FIN of ours in the queue, so no event
    /// reports when it is empty.
    pub(super) fn new(now: Duration, events_come: bool) -> Self {
        let events = if events_come { Events::Come } else { Events::Missing };
        let (length, rtt, quiet_until) = (FIRST_TIMER, None, None);
        Self { now, length, rtt, events, quiet_until, expired: false }
    }

    pub(super) fn set_rtt(&mut self, rtt_us: u32) {
        self.rtt = Some(Duration::from_micros(u64::from(rtt_us)));
    }

    pub(super) fn knows_rtt(&self) -> bool {
        self.rtt.is_some()
    }

    /// Whether only the timer can show that the queue is empty.
    pub(super) fn is_blind(&self) -> bool {
        self.events != Events::Come
    }

    /// Whether the machine still waits for the answer that most peers give to our FIN.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_until.is_some_and(|until| self.now < until)
    }

    /// A wait until `until` has ended now.
    pub(super) fn on_wake(&mut self, now: Duration, until: Duration, blind: bool) {
        self.expired = now >= until;
        self.now = now;
        if blind && self.events == Events::Come {
            self.events = Events::Missing;
        }
    }

    /// When a wait that begins now ends.
    pub(super) fn until(&self, deadline: Duration) -> Duration {
        deadline.min(self.now.saturating_add(self.length))
    }

    /// Sets the timer for one more wait for the handshake.
    pub(super) fn set_for_handshake(&mut self) {
        if std::mem::take(&mut self.expired) {
            self.length = (self.length * 2).min(LAST_TIMER);
        }
    }

    /// Sets the timer for the next wait: it backs off if it ended the last wait. With `quietly`,
    /// the first wait is only for the peer's FIN.
    pub(super) fn set(&mut self, kind: Kind, quietly: bool) {
        let rtt = self.rtt.unwrap_or_default();
        let expired = std::mem::take(&mut self.expired);
        match self.events {
            Events::Missing => {
                self.events = Events::MissingTimed;
                self.length = rtt + FIRST_BLIND_TIMER;
            }
            Events::MissingTimed if expired => self.length = (self.length * 2).min(LAST_TIMER),
            Events::MissingTimed => {}
            Events::Come if quietly && self.quiet_until.is_none() => {
                self.length = match kind {
                    Kind::Tcp if self.rtt.is_none() => QUIET,
                    Kind::Tcp => rtt + rtt / 2 + DELAYED_ACK,
                    Kind::Unix | Kind::Mptcp | Kind::Other => NEAR,
                };
                self.quiet_until = Some(self.now.saturating_add(self.length));
            }
            Events::Come if expired => {
                self.length = (self.length * 2).max(rtt).max(FIRST_TIMER).min(LAST_TIMER);
            }
            Events::Come => {}
        }
    }
}

/// When to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// At a fixed time.
    Fixed { at: Duration },
    /// A patient finish: `limit` after the last acknowledgement of more bytes.
    Moving { at: Duration, limit: Duration },
    /// A patient finish that has reached its deadline and checks once more.
    LastLook { at: Duration, limit: Duration },
}

impl Deadline {
    pub(super) fn new(options: &FinishOptions, now: Duration) -> Self {
        let (limit, at) = (options.deadline, now.saturating_add(options.deadline));
        if options.patient { Self::Moving { at, limit } } else { Self::Fixed { at } }
    }

    pub(super) fn at(self) -> Duration {
        match self {
            Self::Fixed { at } | Self::Moving { at, .. } | Self::LastLook { at, .. } => at,
        }
    }

    /// The queue became shorter.
    pub(super) fn on_progress(&mut self, now: Duration) {
        if let Self::Moving { limit, .. } | Self::LastLook { limit, .. } = *self {
            *self = Self::Moving { at: now.saturating_add(limit), limit };
        }
    }

    /// The deadline passed. Returns whether to check once more: bytes may have been acknowledged
    /// since the last check.
    pub(super) fn take_last_look(&mut self) -> bool {
        let Self::Moving { at, limit } = *self else { return false };
        *self = Self::LastLook { at, limit };
        true
    }
}
