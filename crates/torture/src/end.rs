//! What one end of a connection saw.

use std::fmt;
use std::io;

use lastbyte_units::grouped;

/// How a connection ended for one end of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It did not read to the end of the stream: none is required.
    #[default]
    NotRequired,
    /// A FIN came after the last byte.
    Fin,
    /// It was reset, or the kernel gave it up.
    Reset,
    /// Nothing arrived until the deadline.
    Open,
    /// It could not connect.
    Refused,
    /// The proxy made no connection to it.
    Missing,
    /// It ended, and the kernel does not show how.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotRequired => "-",
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
pub struct Observed {
    /// Bytes that its kernel accepted.
    pub wrote: u64,
    /// Of these, bytes that it discarded itself, by closing before they were sent
    /// ([`Step::CloseEarly`](crate::Step::CloseEarly)).
    pub unsent: u64,
    /// Bytes that it read.
    pub got: u64,
    /// The position of the first byte that is not what the other end sent.
    pub wrong_at: Option<u64>,
    /// How the connection ended for its reads.
    pub ending: Ending,
    /// The error of the first write that failed.
    pub write_error: Option<io::ErrorKind>,
    /// Positions of the urgent bytes that it sent.
    pub urgent: Vec<u64>,
    /// Positions at which the kernel reported an urgent byte.
    pub marks: Vec<u64>,
    /// Bytes that it could write while the other end read nothing.
    pub pushed: Option<u64>,
    /// The step that was still waiting at its deadline.
    pub stuck: Option<&'static str>,
}

impl Observed {
    /// A short description for a table: how much of what the other end sent arrived, and how the
    /// stream ended. It has no figures, so that runs of one kind have equal descriptions.
    #[must_use]
    pub fn kind(&self, other: &Self) -> String {
        let write_error = if self.write_error.is_some() { ", write failed" } else { "" };
        if matches!(self.ending, Ending::NotRequired) && self.got == 0 {
            return format!("-{write_error}");
        }
        let bytes = match self.got {
            _ if self.wrong_at.is_some() => "wrong bytes",
            got if got >= other.expected_bytes() => "all",
            0 => "none",
            _ => "part",
        };
        let mark = match self.marks == other.urgent {
            _ if other.urgent.is_empty() => "",
            true => ", mark kept",
            false => ", mark lost",
        };
        format!("{bytes}{mark}, {}{write_error}", self.ending)
    }

    /// Bytes that the other end has to receive.
    #[must_use]
    pub fn expected_bytes(&self) -> u64 {
        self.wrote - self.unsent
    }

    /// The bytes received, for people.
    #[must_use]
    pub fn bytes(&self, other: &Self) -> String {
        format!("{} of {} bytes", grouped(self.got), grouped(other.expected_bytes()))
    }
}
