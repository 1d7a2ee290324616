//! The record of one flow through a relay. Each flow produces exactly one, at its end.
//!
//! Received, written and acked are three numbers here: what was read from one side, what our kernel
//! accepted for the other, and what the other side's kernel acknowledged.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::sample::LimitedBy;
use crate::{End, pump};

/// One flow: the client's connection, the connection opened for it, and what passed through both.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Account {
    /// The number of the flow, starting at 1, unique in one run of the program.
    pub flow: u64,
    /// The route that accepted it.
    pub route: Arc<str>,
    /// When its connection was accepted, since 1970 (UTC).
    pub began: Duration,
    /// How long the flow lasted, from then on.
    pub took: Duration,
    /// The client's leg.
    pub client: Leg,
    /// The target, as configured or requested: `db:3306`. `None` if the client requested none.
    pub wanted: Option<String>,
    /// The upstream's leg; `None` if there was no connection.
    pub upstream: Option<Leg>,
    /// How long connecting took, name resolution included, whether it succeeded or not. `None` if
    /// it was not tried.
    pub connect: Option<Duration>,
    /// From the client to the upstream.
    pub up: Traffic,
    /// From the upstream to the client.
    pub down: Traffic,
    /// Which party ended the flow, and how.
    pub ended: Ended,
}

impl Account {
    /// The account of a flow that has just been accepted.
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

    /// Whether every byte received from either side was acknowledged by the other side's kernel,
    /// and both sides ended with a FIN that was passed on.
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
    /// The peer's address.
    pub peer: Option<SocketAddr>,
    /// The options requested for this leg, as the kernel granted them: each option's name in the
    /// manual and its value, with its unit if it has one. Empty if none was requested.
    pub granted: Vec<(&'static str, String)>,
    /// The smoothed round-trip time, when the flow ended.
    pub rtt: Option<Duration>,
    /// Segments that our kernel retransmitted.
    pub retransmitted_segments: Option<u32>,
}

/// What passed through one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes read from this direction's source.
    pub received: u64,
    /// Of those, bytes written to the other side.
    pub written: u64,
    /// Of those, bytes that the other side's kernel acknowledged. `None` if the kernel does not
    /// say.
    pub acked: Option<u64>,
    /// How the source ended; `None` if it had not.
    pub end: Option<End>,
    /// What limited this direction for the longest time, and for how long. `None` if the kernel did
    /// not say.
    pub limited_by: Option<(LimitedBy, Duration)>,
}

impl Traffic {
    /// Whether the source ended with a FIN, and the other side's kernel acknowledged all of its
    /// bytes.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end == Some(End::Fin) && self.acked == Some(self.received)
    }
}

impl From<pump::Traffic> for Traffic {
    /// Leaves unknown what became of the written bytes.
    fn from(traffic: pump::Traffic) -> Self {
        let pump::Traffic { received, written, end } = traffic;
        Self { received, written, end, ..Self::default() }
    }
}

/// Which party ended a flow, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The party. If both ended with a FIN, the first.
    pub by: Party,
    /// How.
    pub how: How,
    /// The text of the error, if there was one.
    pub detail: Option<String>,
}

impl Ended {
    /// An end without an error text.
    #[must_use]
    pub fn new(by: Party, how: How) -> Self {
        Self { by, how, detail: None }
    }

    /// An end with the text of an error.
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
    /// The client, which connected to us.
    Client,
    /// The upstream, which we connected to.
    Upstream,
    /// The gate itself.
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
    /// One side reset its connection or stopped answering. The gate reset the other one, after
    /// delivering everything received before.
    Reset,
    /// The upstream refused the connection.
    Refused,
    /// There was no route to the upstream.
    Unreachable,
    /// The upstream did not answer the connect in time.
    ConnectTimeout,
    /// The upstream's name has no address.
    Unresolved,
    /// The route does not allow the client's address, or the destination.
    NotAllowed,
    /// The limit of open flows was reached.
    TooManyFlows,
    /// The limit of open flows of one client was reached.
    TooManyOfClient,
    /// The limit of simultaneous connection attempts was reached.
    TooManyDials,
    /// The destination is the gate itself, or leads back to the gate.
    Loop,
    /// The client's request is malformed.
    BadRequest,
    /// The client sent no credentials, or wrong ones.
    Unauthenticated,
    /// The client did not send its request in time.
    RequestTimeout,
    /// No byte moved within the route's idle time-out.
    Idle,
    /// One side did not accept pending bytes within the route's time-out.
    Stalled,
    /// Everything was written, and one side did not acknowledge it in time.
    Unacked,
    /// The gate was stopped.
    Stopped,
    /// There were no descriptors left.
    NoDescriptors,
    /// Something else failed: see the detail. This stays the last variant.
    Failed,
}

impl How {
    /// All variants, in the order of their declaration.
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

    /// The name of the variant in logs, in JSON and in the names of statistics.
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
