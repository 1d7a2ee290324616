//! Losses by counting: exactly every n-th packet.
//!
//! Numbered packets over the path without its other losses.

use lastbyte_link::{Direction, LinkError};
use lastbyte_units::{Unit, grouped};

use super::{Claim, numbered};
use crate::asked::Asked;
use crate::check::{Attempt, Check};
use crate::finding::{Outcome, Phase, Subject};
use crate::part;
use crate::probe::{Load, Observed};

pub(super) const CLAIM: Claim =
    Claim { phase: Phase::Counting, is_made: |asked| asked.lose_every.is_some(), measure };

/// Of what takes packets away, duplicates or corrupts them, the losses by counting alone.
pub(crate) fn part(asked: &Direction) -> Direction {
    Direction { lose_every: asked.lose_every, ..part::without_losses(asked) }
}

/// Numbered packets, enough to see some of those lost by counting.
fn load(asked: &Asked, every: u64) -> Load {
    numbered::load(asked, every.saturating_mul(5).saturating_add(1) as f64)
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let load = |asked: &Asked| Some(load(asked, asked.lose_every?));
    numbered::measure(check, Phase::Counting, part, load, |asked, seen| {
        let every = asked.lose_every.map(|every| judge(every, seen));
        every.map(|outcome| (Subject::LoseEvery, outcome)).into_iter().collect()
    })
}

/// Exactly every n-th packet is lost, counted from the first packet of the link.
fn judge(asked: u64, seen: &Observed) -> Outcome {
    let sent = seen.sent.len() as u64;
    let missing: Vec<u64> = seen.missing().into_iter().map(u64::from).collect();
    if sent < asked {
        return Outcome::NotMeasured(format!("only {} packets were sent", grouped(sent)));
    }
    let due = (1..=sent / asked).map(|loss| loss * asked - 1);
    let exact = due.clone().eq(missing.iter().copied());
    let mut last = -1.0;
    let mut gaps = missing.iter().map(|number| {
        let gap = *number as f64 - last;
        last = *number as f64;
        gap
    });
    let wrong = gaps.find(|gap| (gap - asked as f64).abs() > 0.5);
    let got = if exact { asked as f64 } else { wrong.unwrap_or(sent as f64) };
    let places = if exact { "all at their places" } else { "not at their places" };
    let basis = format!("{} of {} packets, {places}", missing.len(), grouped(sent));
    Outcome::within(Unit::Packets, asked as f64, got, 0.0, basis)
}

#[cfg(test)]
mod tests {
    use super::super::numbered::tests::lossy;
    use super::*;
    use crate::finding::tests::{is_inside, is_not_measured};

    #[test]
    fn every_nth_is_exact() {
        let seventh = lossy(|number| number % 7 == 6, 100);
        assert!(is_inside(&judge(7, &seventh)));
        assert!(!is_inside(&judge(8, &seventh)) && !is_inside(&judge(14, &seventh)));
        assert!(!is_inside(&judge(7, &lossy(|number| number % 7 == 5, 100))), "one too early");
        assert!(!is_inside(&judge(7, &lossy(|_| false, 100))));
        assert!(is_not_measured(&judge(101, &seventh)));
    }
}
