//! What happened in a dial, and when.

use std::net::SocketAddr;
use std::time::Duration;

use lastbyte_core::race::{Because, Question};

use crate::resolve::Answer;

/// The events of a dial, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// The events.
    pub events: Vec<Event>,
    /// How long the dial took.
    pub took: Duration,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When, since the dial began.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// What happened. Attempts are numbered from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A question was asked about this name.
    Asked(Question),
    /// It was answered.
    Answered(Answer),
    /// An attempt began.
    Started {
        /// Its number.
        attempt: usize,
        /// Where to.
        address: SocketAddr,
        /// Why then.
        because: Because,
    },
    /// An attempt failed.
    Failed {
        /// Its number.
        attempt: usize,
        /// The error's text: operation, both ends, cause.
        error: String,
    },
    /// An attempt connected, and is the one.
    Connected {
        /// Its number.
        attempt: usize,
        /// Our address.
        local: Option<SocketAddr>,
    },
    /// An attempt was given up because another one connected, or the dial ended.
    Cancelled {
        /// Its number.
        attempt: usize,
        /// It had connected all the same, and was reset unused.
        connected: bool,
    },
}
