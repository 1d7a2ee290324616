//! Joins two legs: what to do next with each direction, and how to close each leg.
//!
//! A direction is named after the side that its bytes come from. It depends on the other direction
//! only through the state of the legs:
//!
//! | known of a direction | next |
//! |---|---|
//! | the leg that it leads to is dead | done: what is buffered is lost |
//! | bytes are buffered | write |
//! | its source is open | read |
//! | its source ended with a FIN | half-close the leg that it leads to, then done |
//! | its source ended without a FIN | done |
//!
//! A leg is dead once the peer reset it or our kernel gave it up, however we learned of it. The
//! pump still reads what the leg had sent before: a failed write ends only its own direction. When
//! both directions are done, the state of one leg decides how to close the other:
//!
//! | the other leg | this leg is closed by |
//! |---|---|
//! | ended with a FIN and is not dead | a finish: everything sent on this leg is acknowledged, including our FIN |
//! | ended without a FIN, or is dead | a reset, after everything sent on this leg is acknowledged, including a FIN if there was one |
//!
//! So a side that received the other's FIN keeps that clean end. The reset tells it that its last
//! bytes were not delivered, as a reset would without a relay.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::End;

/// One of the two legs, and the direction that starts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The leg to the client, which connected to us.
    Client,
    /// The leg to the upstream, which we connected to.
    Upstream,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Upstream];

    /// The other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Upstream,
            Self::Upstream => Self::Client,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
        })
    }
}

/// What to do next with a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read from its source; then [`Pump::on_read`] or [`Pump::on_end`].
    Read,
    /// Write what is buffered; then [`Pump::on_written`] or [`Pump::on_dead`].
    Write,
    /// Half-close the leg that it leads to; then [`Pump::on_half_closed`] or [`Pump::on_dead`].
    HalfClose,
    /// Nothing: the direction is done.
    Done,
}

/// How to close a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// In order: both sides exchange FINs.
    Finish,
    /// By a reset, after everything written to it is acknowledged.
    Reset,
    /// It is dead: release the descriptor.
    Drop,
}

/// What passed through a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from its source.
    pub received: u64,
    /// Of those, bytes written to the other side. The rest is buffered, or lost when the direction
    /// is done.
    pub written: u64,
    /// How its source ended; `None` while it has not.
    pub end: Option<End>,
}

impl Traffic {
    /// Bytes read and not yet written.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        self.received - self.written
    }
}

/// The machine. See the [module](self) for its tables.
#[derive(Clone, Debug, Default)]
pub struct Pump {
    directions: [Direction; 2],
    dead: [bool; 2],
    first_end: Option<(Side, End)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    traffic: Traffic,
    /// We passed its end on as a FIN.
    half_closed: bool,
}

impl Pump {
    /// Two new legs, with `early` bytes from the client buffered.
    #[must_use]
    pub fn new(early: u64) -> Self {
        let mut pump = Self::default();
        pump.directions[Side::Client as usize].traffic.received = early;
        pump
    }

    /// What to do next with the direction from `from`.
    #[must_use]
    pub fn next(&self, from: Side) -> Next {
        let Direction { traffic, half_closed } = self.directions[from as usize];
        match traffic.end {
            _ if half_closed || self.is_dead(from.other()) => Next::Done,
            _ if traffic.buffered() > 0 => Next::Write,
            None => Next::Read,
            Some(_) if self.ended_without_fin(from) => Next::Done,
            Some(_) => Next::HalfClose,
        }
    }

    /// The driver read this many bytes, at least 1, from this side; they are buffered now.
    pub fn on_read(&mut self, from: Side, bytes: u64) {
        self.directions[from as usize].traffic.received += bytes;
    }

    /// The driver wrote this many of the buffered bytes to the other leg.
    ///
    /// # Panics
    /// When the driver reports more bytes than were buffered.
    pub fn on_written(&mut self, from: Side, bytes: u64) {
        let traffic = &mut self.directions[from as usize].traffic;
        traffic.written += bytes;
        assert!(traffic.written <= traffic.received, "more written than was read");
    }

    /// A read reached the end of this side's stream.
    pub fn on_end(&mut self, from: Side, end: End) {
        self.directions[from as usize].traffic.end = Some(end);
        self.first_end.get_or_insert((from, end));
        if end == End::Reset {
            self.dead[from as usize] = true;
        }
    }

    /// The driver passed this side's end of stream on, as a FIN.
    pub fn on_half_closed(&mut self, from: Side) {
        self.directions[from as usize].half_closed = true;
    }

    /// This leg is dead: a call on it failed, or an event reported it.
    pub fn on_dead(&mut self, leg: Side) {
        self.dead[leg as usize] = true;
        self.first_end.get_or_insert((leg, End::Reset));
    }

    /// Whether this leg is known to be dead.
    #[must_use]
    pub fn is_dead(&self, leg: Side) -> bool {
        self.dead[leg as usize]
    }

    /// Whether we half-closed this leg.
    #[must_use]
    pub fn has_fin(&self, leg: Side) -> bool {
        self.directions[leg.other() as usize].half_closed
    }

    /// Whether both directions are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        Side::BOTH.iter().all(|from| self.next(*from) == Next::Done)
    }

    /// Whether buffered bytes delay the end of the flow: their source has ended or is dead, and
    /// they are not written yet.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        let ending = |from: Side| self.traffic(from).end.is_some() || self.is_dead(from);
        Side::BOTH.iter().any(|from| self.next(*from) == Next::Write && ending(*from))
    }

    /// How to close a leg, once both directions are done.
    #[must_use]
    pub fn closing(&self, leg: Side) -> Closing {
        if self.is_dead(leg) {
            Closing::Drop
        } else if self.is_dead(leg.other()) || self.ended_without_fin(leg.other()) {
            Closing::Reset
        } else {
            Closing::Finish
        }
    }

    /// What passed through the direction from `from`.
    #[must_use]
    pub fn traffic(&self, from: Side) -> Traffic {
        self.directions[from as usize].traffic
    }

    /// The side whose connection was reset, truncated or given up; `None` if both ended with a FIN.
    #[must_use]
    pub fn reset_by(&self) -> Option<Side> {
        let first = self.first_end.filter(|(_, end)| *end != End::Fin).map(|(side, _)| side);
        let cut = |side: &Side| self.is_dead(*side) || self.ended_without_fin(*side);
        first.filter(cut).or_else(|| Side::BOTH.into_iter().find(cut))
    }

    /// The side that ended first, with a FIN or without.
    #[must_use]
    pub fn first_end(&self) -> Option<Side> {
        self.first_end.map(|(side, _)| side)
    }

    /// Whether the stream of this side ended without a FIN. An unknown end, as over MPTCP, counts
    /// as a FIN unless the leg is dead: the kernel would have reported an error.
    fn ended_without_fin(&self, from: Side) -> bool {
        match self.directions[from as usize].traffic.end {
            None | Some(End::Fin) => false,
            Some(End::Unknown) => self.is_dead(from),
            Some(End::Reset | End::Truncated) => true,
        }
    }
}
