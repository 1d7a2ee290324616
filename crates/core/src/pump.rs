//! Joins two legs: what to do next with each direction, and how each leg is to end.
//!
//! A way is one direction, named by the side that its bytes come from. It never looks at the other
//! way but through the legs:
//!
//! | known of a way | next |
//! |---|---|
//! | the leg that it leads to is dead | over: what is held is lost |
//! | something is held | write |
//! | its source is open | read |
//! | its source ended with a FIN | half-close the leg that it leads to, then over |
//! | its source was cut | over |
//!
//! A leg is dead once it was reset, or given up by our kernel, however we learned of it. What it had
//! sent before can still be read, and is: a write that fails ends its own way alone. When both directions
//! are over, each leg ends by what its own side is to learn:
//!
//! | the other leg | this leg ends by |
//! |---|---|
//! | ended with a FIN and lives | a finish: all it was sent is acknowledged, the FIN with it |
//! | was cut, or is dead | a reset, after all it was sent is acknowledged, a FIN with it |
//!
//! So a side whose peer's FIN had come keeps its clean end, and learns by the reset that what it
//! still wrote went nowhere, as it would without a relay between.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::End;

/// One of the two legs, and the way that comes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one that connected to us.
    Client,
    /// The one that we connected to.
    Upstream,
}

impl Side {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Upstream];

    /// The other one.
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

/// What to do next with a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read from its source; then [`Pump::on_read`] or [`Pump::on_end`].
    Read,
    /// Write what is held; then [`Pump::on_written`] or [`Pump::on_dead`].
    Write,
    /// Half-close the leg that it leads to; then [`Pump::on_half_closed`] or [`Pump::on_dead`].
    HalfClose,
    /// Nothing: it is over.
    Done,
}

/// How a leg is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Orderly: its FIN and the other's are exchanged.
    Finish,
    /// By a reset, after what was written to it is acknowledged.
    Reset,
    /// It is dead: there is nobody to tell.
    Drop,
}

/// What went through a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from its source.
    pub received: u64,
    /// Of those, bytes that our kernel took for the other side. The rest is held, or lost at the end.
    pub written: u64,
    /// How its source ended; `None` while it has not.
    pub end: Option<End>,
}

impl Traffic {
    /// Bytes that were read and not written.
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
    /// Its end was passed on as a FIN.
    half_closed: bool,
}

impl Pump {
    /// Two legs on which nothing has moved, but for `early` bytes of the client that are held.
    #[must_use]
    pub fn new(early: u64) -> Self {
        let mut pump = Self::default();
        pump.directions[Side::Client as usize].traffic.received = early;
        pump
    }

    /// What to do next with the way that comes from `from`.
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

    /// So many bytes, at least 1, were read from this side, and are held.
    pub fn on_read(&mut self, from: Side, bytes: u64) {
        self.directions[from as usize].traffic.received += bytes;
    }

    /// So many of the bytes that are held were taken by the other side's leg.
    ///
    /// # Panics
    /// When more were written than held: the driver's fault.
    pub fn on_written(&mut self, from: Side, bytes: u64) {
        let traffic = &mut self.directions[from as usize].traffic;
        traffic.written += bytes;
        assert!(traffic.written <= traffic.received, "more written than was read");
    }

    /// A read met the end of this side's stream.
    pub fn on_end(&mut self, from: Side, end: End) {
        self.directions[from as usize].traffic.end = Some(end);
        self.first_end.get_or_insert((from, end));
        if end == End::Reset {
            self.dead[from as usize] = true;
        }
    }

    /// The end of this side's stream was passed on.
    pub fn on_half_closed(&mut self, from: Side) {
        self.directions[from as usize].half_closed = true;
    }

    /// This leg is dead: a call on it failed, or an event told of it.
    pub fn on_dead(&mut self, leg: Side) {
        self.dead[leg as usize] = true;
        self.first_end.get_or_insert((leg, End::Reset));
    }

    /// Whether this leg is known to be dead.
    #[must_use]
    pub fn is_dead(&self, leg: Side) -> bool {
        self.dead[leg as usize]
    }

    /// Whether this leg was half-closed by us.
    #[must_use]
    pub fn has_fin(&self, leg: Side) -> bool {
        self.directions[leg.other() as usize].half_closed
    }

    /// Whether both directions are over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        Side::BOTH.iter().all(|from| self.next(*from) == Next::Done)
    }

    /// Whether something is held and has to go out before the flow can end: its source has ended, or
    /// is dead.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        let ending = |from: Side| self.traffic(from).end.is_some() || self.is_dead(from);
        Side::BOTH.iter().any(|from| self.next(*from) == Next::Write && ending(*from))
    }

    /// How a leg is to be ended, once both directions are over.
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

    /// What went through the way that comes from `from`.
    #[must_use]
    pub fn traffic(&self, from: Side) -> Traffic {
        self.directions[from as usize].traffic
    }

    /// Who cut the flow; `None` where nobody did.
    #[must_use]
    pub fn reset_by(&self) -> Option<Side> {
        let first = self.first_end.filter(|(_, end)| *end != End::Fin).map(|(side, _)| side);
        let cut = |side: &Side| self.is_dead(*side) || self.ended_without_fin(*side);
        first.filter(cut).or_else(|| Side::BOTH.into_iter().find(cut))
    }

    /// The side that ended first, however it did.
    #[must_use]
    pub fn first_end(&self) -> Option<Side> {
        self.first_end.map(|(side, _)| side)
    }

    /// Whether the stream of this side ended otherwise than by a FIN. Where nothing can be said about
    /// an end, as over MPTCP, it counts as a FIN unless the leg is known to be dead: an error would
    /// have been told.
    fn ended_without_fin(&self, from: Side) -> bool {
        match self.directions[from as usize].traffic.end {
            None | Some(End::Fin) => false,
            Some(End::Unknown) => self.is_dead(from),
            Some(End::Reset | End::Truncated) => true,
        }
    }
}
