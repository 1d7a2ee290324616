//! Packets that arrive corrupted, and those that arrive twice: shares, judged by their interval.
//!
//! Numbered packets over the path without its losses.

use lastbyte_link::{Direction, LinkError};
use lastbyte_units::grouped;

use super::loss::{self, share};
use super::{Claim, numbered};
use crate::asked::Asked;
use crate::check::{Attempt, Check};
use crate::finding::{Outcome, Phase, Subject};
use crate::part;
use crate::probe::Observed;

pub(super) const CLAIM: Claim = Claim {
    phase: Phase::Corruption,
    is_made: |asked| asked.corrupt + asked.duplicate > 0.0,
    measure,
};

/// Of what takes packets away, duplicates or corrupts them, corruption and duplicates alone.
pub(crate) fn part(asked: &Direction) -> Direction {
    Direction { corrupt: asked.corrupt, duplicate: asked.duplicate, ..part::without_losses(asked) }
}

fn measure(check: &Check<'_>) -> Result<Attempt, LinkError> {
    let load = |asked: &Asked| {
        let shares = [asked.corrupt, asked.duplicate].into_iter().filter(|share| *share > 0.0);
        Some(loss::load(asked, shares.reduce(f64::min)?))
    };
    numbered::measure(check, Phase::Corruption, part, load, |asked, seen| {
        let corrupted = (Subject::Corrupted, corrupted(asked.corrupt, seen));
        let duplicated = (Subject::Duplicated, duplicated(asked.duplicate, seen));
        vec![corrupted, duplicated]
    })
}

/// Packets that never arrived where nothing but corruption takes them: the receiving kernel refused
/// them.
fn corrupted(asked: f64, seen: &Observed) -> Outcome {
    let lost = seen.lost();
    if seen.refused < lost {
        let lost = grouped(lost - seen.refused);
        return Outcome::NotMeasured(format!("{lost} packets were lost, and not by damage"));
    }
    let mut outcome = share(asked, lost, seen.sent.len() as u64);
    if let Outcome::Measured(measured) = &mut outcome {
        let refused = grouped(seen.refused);
        measured.basis += &format!("; the receiver's checksum refused {refused}");
    }
    outcome
}

/// Packets that arrived twice.
fn duplicated(asked: f64, seen: &Observed) -> Outcome {
    share(asked, seen.copies(), seen.sent.len() as u64 - seen.lost())
}

#[cfg(test)]
mod tests {
    use super::super::numbered::tests::lossy;
    use super::*;
    use crate::finding::tests::{is_inside, is_not_measured};

    #[test]
    fn damage_is_what_the_receiver_refused() {
        let mut seen = lossy(|number| number % 100 == 0, 5000);
        seen.refused = 50;
        assert!(is_inside(&corrupted(0.01, &seen)) && !is_inside(&corrupted(0.02, &seen)));
        seen.refused = 49;
        assert!(is_not_measured(&corrupted(0.01, &seen)), "one was lost, not damaged");
    }

    #[test]
    fn copies_are_counted() {
        let mut seen = lossy(|_| false, 5000);
        assert!(is_inside(&duplicated(0.0, &seen)) && !is_inside(&duplicated(0.01, &seen)));
        let again: Vec<_> = seen.arrivals.iter().step_by(100).copied().collect();
        seen.arrivals.extend(again);
        assert!(is_inside(&duplicated(0.01, &seen)) && !is_inside(&duplicated(0.02, &seen)));
        assert!(!is_inside(&duplicated(0.0, &seen)));
    }
}
