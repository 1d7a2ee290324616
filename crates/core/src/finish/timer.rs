//! How long to wait: the timer of each wait, and the deadline of all.

use std::time::Duration;

use super::FinishOptions;
use crate::Kind;

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
/// The first look where no event reports that the queue is empty comes so long after a round trip.
const FIRST_BLIND_TIMER: Duration = Duration::from_millis(1);

/// The timer of the next wait.
#[derive(Clone, Debug)]
pub(super) struct Timer {
    /// The time as the driver last gave it.
    pub(super) now: Duration,
    length: Duration,
    /// The smoothed round trip, once it was asked for.
    rtt: Option<Duration>,
    events: Events,
    /// Until then the peer's end is waited for: most peers answer ours with theirs. `None` before
    /// the first wait of that kind.
    quiet_until: Option<Duration>,
    /// The last wait ended by the timer, and the next one has not taken that into account yet.
    pub(super) expired: bool,
}

/// Whether events report that the queue is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    /// They do: the timer is a precaution.
    Come,
    /// They do not, and the timer is to be set for that.
    Missing,
    /// They do not, and the timer backs off.
    MissingTimed,
}

impl Timer {
    /// The timer of a machine that begins. Before a reset our FIN is not in the queue, so that no event
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

    /// Whether only the timer can find out that the queue is empty.
    pub(super) fn is_blind(&self) -> bool {
        self.events != Events::Come
    }

    /// Whether the first time is not over in which most peers answer our FIN with theirs.
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

    /// When a wait that begins now is to end.
    pub(super) fn until(&self, deadline: Duration) -> Duration {
        deadline.min(self.now.saturating_add(self.length))
    }

    /// Sets the timer for one more wait for the handshake.
    pub(super) fn set_for_handshake(&mut self) {
        if std::mem::take(&mut self.expired) {
            self.length = (self.length * 2).min(LAST_TIMER);
        }
    }

    /// Sets the timer for the next wait: it backs off if the last wait ended by it. `quietly` if the
    /// first wait is to be for the peer's end.
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
    /// A patient finish: `limit` after bytes were last seen to be acknowledged.
    Moving { at: Duration, limit: Duration },
    /// A patient finish that has come to its deadline, and looks once more.
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

    /// It has passed. Returns whether to look once more: bytes may have been acknowledged since the
    /// last look.
    pub(super) fn take_last_look(&mut self) -> bool {
        let Self::Moving { at, limit } = *self else { return false };
        *self = Self::LastLook { at, limit };
        true
    }
}
