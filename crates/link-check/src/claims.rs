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

#[cfg(test)]
mod tests {
    use lastbyte_link::{Direction, Scenario, Spec, Way};

    use super::*;
    use crate::part::{Part, steady};

    type Keep = fn(&Direction) -> Direction;

    fn spec(toml: &str) -> Spec {
        Scenario::parse("test", toml).unwrap().spec
    }

    fn left_out(spec: &Spec, keep: Keep) -> String {
        Part::of(spec, keep).left_out(Way::Up).to_owned()
    }

    #[test]
    fn what_is_left_out_is_named() {
        let all = spec(
            "rtt = '2ms'\njitter = '1ms'\nloss = '1%'\nlose_every = 7\ncorrupt = '1%'\n\
             rate = '9mbit'\nmanagement = 'codel'\npolicer = { rate = '1mbit', burst = '9kB' }\n\
             cuts = [{ at = '1s', lasting = '1s' }]",
        );
        assert_eq!(left_out(&all, Direction::clone), "");
        assert_eq!(left_out(&all, steady), "cuts");
        assert_eq!(left_out(&all, loss::part), "its losses, damage, cuts");
        let left = "jitter, its losses, damage, CoDel, the policer, cuts";
        assert_eq!(left_out(&all, rate::part), left);
        let left = "jitter, its losses, damage, its rate, CoDel, cuts";
        assert_eq!(left_out(&all, policer::part), left);
    }

    #[test]
    fn every_part_is_a_path() {
        let managed_rate = "rate = '9mbit'\nqueue = '50packets'\nmanagement = 'codel'\necn = true";
        let text =
            format!("rtt = '2ms'\nmtu = 1400\njitter = '1ms'\nduplicate = '1%'\n{managed_rate}");
        let managed = spec(&text);
        let plain = spec("rtt = '2ms'");
        let parts: [Keep; 12] = [
            steady,
            loss::part,
            burst_loss::part,
            every_nth::part,
            corruption::part,
            rate::part,
            recorded_rate::part,
            recorded_rate::part_with_queue,
            codel::part,
            policer::part,
            cuts::part,
            changes::only_loss,
        ];
        for keep in parts {
            assert_eq!(Part::of(&managed, keep).spec.check(), Ok(()));
            assert_eq!(Part::of(&plain, keep).spec, plain);
        }
    }
}
