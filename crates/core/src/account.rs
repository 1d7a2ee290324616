//! What became of one flow through a relay: the last step, of which exactly one leaves per flow.
//!
//! A level never stands for another here: what was received from one side, what our kernel took for
//! the other, and what that one's kernel acknowledged are three numbers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::sample::LimitedBy;
use crate::{End, pump};

/// One flow: a client's connection, the one that was opened for it, and what went through.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Account {
    /// Its number, from 1 on, unique in one run of the program.
    pub flow: u64,
    /// The route that it took.
    pub route: Arc<str>,
    /// When its connection was accepted, since 1970 (UTC).
    pub began: Duration,
    /// From there to its end.
    pub took: Duration,
    /// The client's leg.
    pub client: Leg,
    /// The host and port that it was to reach, as they were configured or asked for: `db:3306`.
    /// `None` where nothing was asked for.
    pub wanted: Option<String>,
    /// The leg to there; `None` where there was no connection.
    pub upstream: Option<Leg>,
    /// How long it took to connect, names included, or until that was given up. `None` where it was
    /// not tried.
    pub connect: Option<Duration>,
    /// From the client to the upstream.
    pub up: Traffic,
    /// From the upstream to the client.
    pub down: Traffic,
    /// Who ended it, and how.
    pub ended: Ended,
}

impl Account {
    /// An account of a flow that has just been accepted, and to which nothing has happened.
    #[must_use]
    pub fn begin(flow: u64, route: Arc<str>, began: Duration, client: Leg) -> Self {
        Self {
            flow,
            route,
            began,
            took: Duration::ZERO,
            client,
            wanted: None,
            upstream: None,
            connect: None,
            up: Traffic::default(),
            down: Traffic::default(),
            ended: Ended { by: Party::Gate, how: How::Failed, detail: None },
        }
    }

    /// Whether every byte that was received from either side is acknowledged by the other's kernel,
    /// and both sides saw the other's end as what it was: a FIN.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended.how == How::Fin && self.up.is_complete() && self.down.is_complete()
    }
}

/// One leg: one connection of the flow.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Leg {
    /// Our address.
    pub local: Option<SocketAddr>,
    /// The other side's.
    pub peer: Option<SocketAddr>,
    /// The settings that were asked for of this leg, as the kernel granted them: the option's name in the
    /// manual, and its value, with its unit where it has one. Empty where all is the kernel's own choice.
    pub granted: Vec<(&'static str, String)>,
    /// The smoothed round trip, at the end.
    pub rtt: Option<Duration>,
    /// Segments that we had to send again.
    pub retransmitted_segments: Option<u32>,
}

/// What one direction traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes that were read from the one side.
    pub received: u64,
    /// Of those, bytes that our kernel took for the other side.
    pub written: u64,
    /// Of those, bytes that the other side's kernel acknowledged. `None` where it cannot be known.
    pub acked: Option<u64>,
    /// How the one side ended; `None` if it had not.
    pub end: Option<End>,
    /// What held the sending of this direction back for the longest time, and for how long. `None`
    /// where the kernel did not say.
    pub limited_by: Option<(LimitedBy, Duration)>,
}

impl Traffic {
    /// Whether the one side ended with a FIN, and all that it sent is acknowledged by the other.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end == Some(End::Fin) && self.acked == Some(self.received)
    }
}

impl From<pump::Traffic> for Traffic {
    /// With nothing known of what became of the written bytes.
    fn from(traffic: pump::Traffic) -> Self {
        let pump::Traffic { received, written, end } = traffic;
        Self { received, written, end, ..Self::default() }
    }
}

/// Who ended a flow, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Who: of two that ended well, the first.
    pub by: Party,
    /// How.
    pub how: How,
    /// What is known beyond that: the error's text.
    pub detail: Option<String>,
}

impl Ended {
    /// Ended so, and nothing more is known.
    #[must_use]
    pub fn new(by: Party, how: How) -> Self {
        Self { by, how, detail: None }
    }

    /// Ended so, with the text of an error.
    #[must_use]
    pub fn because(by: Party, how: How, detail: impl fmt::Display) -> Self {
        Self { by, how, detail: Some(detail.to_string()) }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.how, self.by)?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

/// A party of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The side that connected to us.
    Client,
    /// The side that we connected to.
    Upstream,
    /// Ourselves.
    Gate,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Gate => "gate",
        })
    }
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// Both sides ended with a FIN, and each was passed on.
    Fin,
    /// One side reset its connection, or vanished from it; the other was reset after all that had
    /// come before.
    Reset,
    /// The upstream refused the connection.
    Refused,
    /// No way led there.
    Unreachable,
    /// Nobody answered in time.
    ConnectTimeout,
    /// Its name has no address.
    Unresolved,
    /// The client's address is not on the route's list, or the destination is none that the route may
    /// reach.
    NotAllowed,
    /// As many flows as there may be were open.
    TooManyFlows,
    /// As many flows of this client as there may be were open.
    TooManyOfClient,
    /// As many connections as may be were being opened.
    TooManyDials,
    /// The destination is the gate itself, or leads back to it.
    Loop,
    /// What the client asked cannot be understood.
    BadRequest,
    /// The client did not say who it is, or not truly.
    Unauthenticated,
    /// The client did not say in time what it wants.
    RequestTimeout,
    /// Nothing moved for as long as the route allows.
    Idle,
    /// A side that had bytes to take took none for as long as the route allows.
    Stalled,
    /// All was handed to the kernel, and a side did not acknowledge it in time.
    Unacked,
    /// The gate was told to stop.
    Stopped,
    /// There were no descriptors left.
    NoDescriptors,
    /// Something else failed: see the detail. It stays the last of these.
    Failed,
}

impl How {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 20] = [
        Self::Fin,
        Self::Reset,
        Self::Refused,
        Self::Unreachable,
        Self::ConnectTimeout,
        Self::Unresolved,
        Self::NotAllowed,
        Self::TooManyFlows,
        Self::TooManyOfClient,
        Self::TooManyDials,
        Self::Loop,
        Self::BadRequest,
        Self::Unauthenticated,
        Self::RequestTimeout,
        Self::Idle,
        Self::Stalled,
        Self::Unacked,
        Self::Stopped,
        Self::NoDescriptors,
        Self::Failed,
    ];

    /// One word for it, the same in a log, in JSON and in the names of statistics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fin => "fin",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::Unresolved => "unresolved",
            Self::NotAllowed => "not_allowed",
            Self::TooManyFlows => "too_many_flows",
            Self::TooManyOfClient => "too_many_of_client",
            Self::TooManyDials => "too_many_dials",
            Self::Loop => "loop",
            Self::BadRequest => "bad_request",
            Self::Unauthenticated => "unauthenticated",
            Self::RequestTimeout => "request_timeout",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Unacked => "unacked",
            Self::Stopped => "stopped",
            Self::NoDescriptors => "no_descriptors",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fin => "ended",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "no answer to the connect",
            Self::Unresolved => "no address",
            Self::NotAllowed => "not allowed",
            Self::TooManyFlows => "too many flows",
            Self::TooManyOfClient => "too many flows of this client",
            Self::TooManyDials => "too many connects under way",
            Self::Loop => "a loop",
            Self::BadRequest => "bad request",
            Self::Unauthenticated => "not authenticated",
            Self::RequestTimeout => "no request in time",
            Self::Idle => "idle for too long",
            Self::Stalled => "not read for too long",
            Self::Unacked => "not acknowledged in time",
            Self::Stopped => "stopped",
            Self::NoDescriptors => "no descriptors left",
            Self::Failed => "failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(received: u64, acked: Option<u64>, end: Option<End>) -> Traffic {
        Traffic { received, written: received, acked, end, limited_by: None }
    }

    #[test]
    fn complete_is_only_what_was_acked_both_ways_and_ended_by_fin() {
        let leg = Leg::default();
        let mut account = Account::begin(1, "db".into(), Duration::ZERO, leg);
        assert!(!account.is_complete(), "nothing happened yet");
        account.ended = Ended::new(Party::Client, How::Fin);
        account.up = traffic(5, Some(5), Some(End::Fin));
        account.down = traffic(0, Some(0), Some(End::Fin));
        assert!(account.is_complete());
        for down in [
            traffic(7, Some(6), Some(End::Fin)),
            traffic(7, None, Some(End::Fin)),
            traffic(7, Some(7), Some(End::Reset)),
            traffic(7, Some(7), Some(End::Unknown)),
            traffic(7, Some(7), None),
        ] {
            assert!(!Account { down, ..account.clone() }.is_complete());
        }
        account.ended.how = How::Reset;
        assert!(!account.is_complete());
    }

    #[test]
    fn the_list_of_all_ends_is_complete() {
        for (at, how) in How::ALL.into_iter().enumerate() {
            assert_eq!(how as usize, at, "{how}");
        }
        assert_eq!(How::Failed as usize + 1, How::ALL.len());
    }

    #[test]
    fn who_and_how_are_said_in_words() {
        let ended = Ended::because(Party::Upstream, How::Refused, "connect -> 127.0.0.1:1");
        assert_eq!(ended.to_string(), "refused by upstream: connect -> 127.0.0.1:1");
        assert_eq!(Ended::new(Party::Client, How::Fin).to_string(), "ended by client");
    }
}
