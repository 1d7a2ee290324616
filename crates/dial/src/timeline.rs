//! The events of a dial, with their times.

use std::net::SocketAddr;
use std::time::Duration;

use lastbyte_core::race::{Because, Question};

use crate::resolve::Answer;

/// The events of a dial, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// The events.
    pub events: Vec<Event>,
    /// How long the dial took.
    pub took: Duration,
}

/// One event of a dial.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When, since the start of the dial.
    pub at: Duration,
    /// What happened.
    pub what: What,
}

/// What happened. Attempts are numbered from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The dialer asked a DNS question.
    Asked(Question),
    /// A question was answered.
    Answered(Answer),
    /// An attempt started.
    Started {
        /// Its number.
        attempt: usize,
        /// Where to.
        address: SocketAddr,
        /// Why it started at this time.
        because: Because,
    },
    /// An attempt failed.
    Failed {
        /// Its number.
        attempt: usize,
        /// The error's text: operation, addresses, cause.
        error: String,
    },
    /// An attempt connected: the dial returns this connection.
    Connected {
        /// Its number.
        attempt: usize,
        /// Our address.
        local: Option<SocketAddr>,
    },
    /// An attempt was cancelled because another one connected, or the dial ended.
    Cancelled {
        /// Its number.
        attempt: usize,
        /// Whether it had connected meanwhile; then it was reset unused.
        connected: bool,
    },
}
