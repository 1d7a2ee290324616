//! What one end of a connection saw.

use std::fmt;
use std::io;

use lastbyte_units::grouped;

/// How a connection ended for one end of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It did not read to the end: nothing is asked of it.
    #[default]
    Unasked,
    /// A FIN came after the last byte.
    Fin,
    /// It was reset, or given up by the kernel.
    Reset,
    /// Nothing more came until the deadline.
    Open,
    /// It could not connect.
    Refused,
    /// It got no connection: the proxy made none.
    Missing,
    /// An end that nobody can tell the kind of.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unasked => "-",
            Self::Fin => "FIN",
            Self::Reset => "RST",
            Self::Open => "no end",
            Self::Refused => "refused",
            Self::Missing => "no connection",
            Self::Unknown => "unknown end",
        })
    }
}

/// What one end of a connection did and saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bytes that its kernel took from it.
    pub wrote: u64,
    /// Of these, bytes that it threw away itself, by closing before they were sent
    /// ([`Step::CloseEarly`](crate::Step::CloseEarly)).
    pub unsent: u64,
    /// Bytes that it read.
    pub got: u64,
    /// The position of the first byte that is not what the other end sent.
    pub wrong_at: Option<u64>,
    /// How the connection ended for its reads.
    pub ending: Ending,
    /// The error of the first write that failed.
    pub told: Option<io::ErrorKind>,
    /// Positions of the urgent bytes that it sent.
    pub urgent: Vec<u64>,
    /// Positions at which the kernel told it of an urgent byte.
    pub marks: Vec<u64>,
    /// Bytes that it could write while the other end read nothing.
    pub pushed: Option<u64>,
    /// The step that was still waiting at its deadline.
    pub stuck: Option<&'static str>,
}

impl Seen {
    /// In some words, for a table: how much came of what the other end sent, and the end. Alike for
    /// all runs that ended alike, so that figures are left out.
    #[must_use]
    pub fn kind(&self, other: &Self) -> String {
        let told = if self.told.is_some() { ", write failed" } else { "" };
        if matches!(self.ending, Ending::Unasked) && self.got == 0 {
            return format!("-{told}");
        }
        let bytes = match self.got {
            _ if self.wrong_at.is_some() => "wrong bytes",
            got if got >= other.owed() => "all",
            0 => "none",
            _ => "part",
        };
        let mark = match self.marks == other.urgent {
            _ if other.urgent.is_empty() => "",
            true => ", mark kept",
            false => ", mark lost",
        };
        format!("{bytes}{mark}, {}{told}", self.ending)
    }

    /// Bytes that the other end has to get from it.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.wrote - self.unsent
    }

    /// The bytes that came, for a person.
    #[must_use]
    pub fn bytes(&self, other: &Self) -> String {
        format!("{} of {} bytes", grouped(self.got), grouped(other.owed()))
    }
}
