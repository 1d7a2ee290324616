//! The states of the machine, each with its own data.

use std::time::Duration;

use super::{Unproven, Wake};
use crate::{End, PeerEnd};

/// What the machine does next. The table of the [module](super) has a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Inspect,
    AwaitHandshake {
        until: Duration,
    },
    LookForEnd,
    HalfClose,
    Count,
    /// Over a Unix socket: the peer ended its direction, and what was in the queue before that is
    /// not known.
    CountBehindEnd,
    CheckError,
    CountUnsent,
    Drain,
    CountUnread,
    ClassifyEnd {
        /// Unread bytes before the peer's FIN.
        unread: u64,
    },
    MeasureRoundTrip,
    Wait {
        until: Duration,
        wake: Wake,
    },
    LastCount(Unproven),
    LastUnsent(Unproven),
    /// `None` if the machine did not give up: what was proven decides.
    Done(Option<Unproven>),
}

impl Phase {
    /// Why the machine gave up, if it did.
    pub(super) fn gave_up(self) -> Option<Unproven> {
        match self {
            Self::LastCount(why) | Self::LastUnsent(why) => Some(why),
            Self::Done(why) => why,
            _ => None,
        }
    }
}

/// How to end our direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By a FIN.
    HalfClose,
    /// By a reset, which the driver sends when the machine is done.
    Reset,
}

/// What is known about the connection. Its counters prove something only if it was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// Not known to be established.
    NotSeen,
    /// It was established.
    Established,
    /// It was established, and the kernel has closed it since.
    Gone,
}

/// Our FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OurFin {
    /// Not queued, or not by us: only an empty queue is proof.
    NotQueued,
    /// Queued by this finish: there was no reset before.
    Queued,
    /// Queued before this finish began, and recorded.
    QueuedBefore,
}

/// When the peer's FIN came, or may come, relative to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerFin {
    /// Unknown.
    Unknown,
    /// It had not come when ours was queued. If it comes, it comes after the acknowledgement of
    /// ours.
    AfterOurs,
    /// It came before ours was acknowledged.
    BeforeAck,
    /// It came after ours was queued and before ours was acknowledged.
    Crossed,
}

impl PeerFin {
    /// Before anything was asked.
    pub(super) fn of(peer: PeerEnd) -> Self {
        if peer == PeerEnd::Fin { Self::BeforeAck } else { Self::Unknown }
    }

    /// The peer's FIN had not come when ours was queued.
    pub(super) fn on_open(&mut self) {
        *self = match *self {
            Self::Unknown | Self::AfterOurs => Self::AfterOurs,
            Self::BeforeAck | Self::Crossed => Self::Crossed,
        };
    }

    /// The peer's FIN came before ours was acknowledged.
    pub(super) fn on_early(&mut self) {
        *self = match *self {
            Self::Unknown | Self::BeforeAck => Self::BeforeAck,
            Self::AfterOurs | Self::Crossed => Self::Crossed,
        };
    }

    /// Whether it came too early to prove anything about our bytes.
    pub(super) fn is_early(self) -> bool {
        matches!(self, Self::BeforeAck | Self::Crossed)
    }

    /// Whether the peer's direction was open when our FIN was queued.
    pub(super) fn was_open(self) -> bool {
        matches!(self, Self::AfterOurs | Self::Crossed)
    }
}

/// Whether there may be something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readable {
    /// Unknown: before the first wait.
    Unknown,
    No,
    Maybe,
}

/// The peer's end as known before the finish.
pub(super) fn peer_before(ended: Option<End>) -> PeerEnd {
    match ended {
        None => PeerEnd::Open,
        Some(End::Fin) => PeerEnd::Fin,
        Some(End::Reset) => PeerEnd::Reset,
        Some(End::Truncated | End::Unknown) => PeerEnd::Unknown,
    }
}
