//! The claims of a path, one to a file: its load, its part of the path, its tolerance and how what was
//! observed is judged.
//!
//! | File | Claims |
//! |---|---|
//! | `delay` | one-way delays and the round trip |
//! | `delay/jitter` | delays that vary, by the packets of `delay` |
//! | `delay/longest_packet` | the MTU, on the link of `delay` |
//! | `loss` | independent losses |
//! | `reordering` | the order of packets, by those of `loss` |
//! | `burst_loss`, `every_nth`, `corruption` | the other losses, damage and duplicates |
//! | `rate`, `queue`, `recorded_rate` | what limits a flow |
//! | `codel`, `marks` | which packets a managed queue drops or marks |
//! | `policer` | what it lets pass at once, and in the long run |
//! | `cuts`, `changes` | what happens at set times |
//! | `own_report` | what the links report of themselves |
//!
//! `numbered` is the load that all losses share.

pub(crate) mod burst_loss;
pub(crate) mod changes;
pub(crate) mod codel;
pub(crate) mod corruption;
pub(crate) mod cuts;
pub(crate) mod delay;
pub(crate) mod every_nth;
pub(crate) mod loss;
pub(crate) mod marks;
pub(crate) mod numbered;
pub(crate) mod own_report;
pub(crate) mod policer;
pub(crate) mod queue;
pub(crate) mod rate;
pub(crate) mod recorded_rate;
pub(crate) mod reordering;

use lastbyte_link::LinkError;

use crate::asked::Asked;
use crate::check::{Attempt, Check};
use crate::finding::Phase;

/// A claim that is measured in a phase of its own.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    /// Whether a direction makes it.
    pub(crate) is_made: fn(&Asked) -> bool,
    pub(crate) measure: fn(&Check<'_>) -> Result<Attempt, LinkError>,
}

/// The claims that are measured one after the other, in this order.
pub(crate) const IN_TURN: [Claim; 11] = [
    delay::CLAIM,
    loss::CLAIM,
    burst_loss::CLAIM,
    every_nth::CLAIM,
    corruption::CLAIM,
    rate::CLAIM,
    queue::CLAIM,
    recorded_rate::CLAIM,
    codel::CLAIM,
    marks::CLAIM,
    policer::CLAIM,
];

/// Measures the claims that take longest and send least, beside the others: cuts, and changes of a
/// delay.
pub(crate) fn measure_beside(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let mut attempt = cuts::measure(check)?;
    let delays = changes::delays(check)?;
    attempt.list.extend(delays.list);
    attempt.runs.extend(delays.runs);
    Ok(attempt)
}
