//! Marks above a length of the queue: which packets it marks, judged as those of `codel`, with its load
//! and its part of the path.

use lastbyte_link::{LinkError, Marks};

use super::Claim;
use super::codel::{CODEL_FOR, CODEL_OFFERED, Signals, flow, judge, part};
use crate::asked::Asked;
use crate::check::{Attempt, Check, Together};
use crate::finding::{Outcome, Phase, Subject};
use crate::probe::Flow;

pub(super) const CLAIM: Claim =
    Claim { phase: Phase::Marks, is_made: |asked| threshold(asked).is_some(), measure };

/// The length of the queue above which packets are marked, in bytes.
fn threshold(asked: &Asked) -> Option<u64> {
    match asked.marks {
        Marks::Above(size) => Some(size.bytes()),
        Marks::None | Marks::InsteadOfDrops => None,
    }
}

/// Full packets at more than the rate, where the queue grows that long in time.
fn flow_beyond_threshold(asked: &Asked) -> Option<Flow> {
    let (rate, threshold) = asked.mean_rate.zip(threshold(asked))?;
    let room = rate.bytes_in(CODEL_FOR.mul_f64((CODEL_OFFERED - 1.0) / 2.0));
    (threshold <= room).then(|| flow(asked, rate))
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let part = check.part(part);
    let loaded = check.load(Phase::Marks, &part, flow_beyond_threshold, Together::IfSlow)?;
    let mut attempt = Attempt::of(loaded.run);
    for (asked, observed) in check.asked.iter().zip(&loaded.observed) {
        let (Some(rate), Some(threshold)) = (asked.mean_rate, threshold(asked)) else { continue };
        let Some((flow, seen)) = observed else {
            let time = rate.time_to_send(threshold).as_secs_f64();
            let why = format!("the queue takes too long to be {time:.1} s long");
            attempt.add(Subject::Marks, Some(asked.way), Outcome::NotMeasured(why));
            continue;
        };
        let expected = Signals::expected(&part.spec, flow, seen);
        let subjects = [Subject::FirstMark, Subject::Marks];
        for (subject, outcome) in judge(subjects, &expected, rate, true, seen) {
            let outcome = seen.unless_overflowed(outcome);
            attempt.add_over(&part, asked.way, (subject, outcome));
        }
    }
    Ok(attempt)
}
