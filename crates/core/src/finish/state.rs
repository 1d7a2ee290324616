//! The states of the machine, each with the data that only it has.

use std::time::Duration;

use super::{Unproven, Wake};
use crate::{End, PeerEnd};

/// What is asked for next. The table of the [module](super) has a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Inspect,
    AwaitHandshake {
        until: Duration,
    },
    LookForEnd,
    HalfClose,
    Count,
    /// Over a Unix socket: the peer's end was seen, and what the queue had before that is not known.
    CountBehindEnd,
    CheckError,
    CountUnsent,
    Drain,
    CountUnread,
    ClassifyEnd {
        /// Bytes in front of the peer's end.
        unread: u64,
    },
    MeasureRoundTrip,
    Wait {
        until: Duration,
        wake: Wake,
    },
    LastCount(Unproven),
    LastUnsent(Unproven),
    /// `None` where the machine did not give up: what was proven decides.
    Done(Option<Unproven>),
}

impl Phase {
    /// Why the machine has given up, if it has.
    pub(super) fn gave_up(self) -> Option<Unproven> {
        match self {
            Self::LastCount(why) | Self::LastUnsent(why) => Some(why),
            Self::Done(why) => why,
            _ => None,
        }
    }
}

/// How our direction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By a FIN.
    HalfClose,
    /// By a reset, which the driver causes when the machine is done.
    Reset,
}

/// What is known of the connection. Its counters say something only if it was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// It was not seen to be established.
    NotSeen,
    /// It was established.
    Established,
    /// It was, and the kernel has closed it since.
    Gone,
}

/// Our FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OurFin {
    /// Not queued, or not by us: only an empty queue proves something.
    NotQueued,
    /// Queued by this finish: there was no reset before.
    Queued,
    /// Queued before this finish began, and recorded.
    QueuedBefore,
}

/// When the peer's FIN came or is to come, measured by ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerFin {
    /// Unknown.
    Unknown,
    /// It was not there when ours was queued. If it comes, it comes after ours was acknowledged.
    AfterOurs,
    /// It was there before ours was acknowledged.
    BeforeAck,
    /// It was there before ours was acknowledged, and not when ours was queued.
    Crossed,
}

impl PeerFin {
    /// Before anything was asked.
    pub(super) fn of(peer: PeerEnd) -> Self {
        if peer == PeerEnd::Fin { Self::BeforeAck } else { Self::Unknown }
    }

    /// The peer's FIN was seen not to be there when ours was queued.
    pub(super) fn on_open(&mut self) {
        *self = match *self {
            Self::Unknown | Self::AfterOurs => Self::AfterOurs,
            Self::BeforeAck | Self::Crossed => Self::Crossed,
        };
    }

    /// The peer's FIN was seen before ours was acknowledged.
    pub(super) fn on_early(&mut self) {
        *self = match *self {
            Self::Unknown | Self::BeforeAck => Self::BeforeAck,
            Self::AfterOurs | Self::Crossed => Self::Crossed,
        };
    }

    /// Whether it says nothing about our bytes, because it came too early.
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

/// How the peer stands before the machine has asked anything.
pub(super) fn peer_before(ended: Option<End>) -> PeerEnd {
    match ended {
        None => PeerEnd::Open,
        Some(End::Fin) => PeerEnd::Fin,
        Some(End::Reset) => PeerEnd::Reset,
        Some(End::Truncated | End::Unknown) => PeerEnd::Unknown,
    }
}
