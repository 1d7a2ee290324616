//! The order in which packets arrive, judged by the packets that `loss` sends.

use std::time::Duration;

use lastbyte_units::Unit;

use super::delay::jitter::{Distribution, chance_to_overtake};
use crate::finding::Outcome;
use crate::probe::Observed;
use crate::statistics::DOUBT;

/// Packets that arrived after one that was sent later (RFC 4737 section 3.3: reordered): there must be
/// none, or at least one.
pub(super) fn judge(asked: Option<&Distribution<'_>>, seen: &Observed) -> Outcome {
    let mut next = 0;
    let mut got = 0;
    let mut arrived = vec![false; seen.sent.len()];
    for arrival in &seen.arrivals {
        // A duplicate is not reordered.
        match arrived.get_mut(arrival.number as usize) {
            Some(arrived) if !*arrived => *arrived = true,
            _ => continue,
        }
        got += u32::from(arrival.number < next);
        next = next.max(arrival.number + 1);
    }
    let first = seen.sent.first().zip(seen.sent.last());
    let every = first.map_or(Duration::ZERO, |(first, last)| *last - *first)
        / u32::try_from(seen.sent.len()).unwrap_or(u32::MAX).max(1);
    let basis =
        format!("of {} packets, {:.3} ms apart", seen.arrivals.len(), every.as_secs_f64() * 1e3);
    let Some(asked) = asked else {
        return Outcome::within(Unit::Packets, 0.0, got.into(), 0.0, basis);
    };
    let chance = chance_to_overtake(asked, every.as_secs_f64());
    // Pairs of neighbours, each packet counted once; 1 of 100 such runs would show none.
    let pairs = seen.arrivals.len() as f64 / 2.0;
    if chance * pairs < DOUBT.recip().ln() {
        return Outcome::NotMeasured(format!("too rare to be seen among these {pairs:.0} pairs"));
    }
    Outcome::at_least(Unit::Packets, 1.0, got.into(), basis)
}

#[cfg(test)]
mod tests {
    use lastbyte_link::Shape;

    use super::super::delay::jitter::tests::{distribution, jitter};
    use super::*;
    use crate::finding::tests::{is_inside, is_not_measured};
    use crate::probe::tests::{MS, seen};

    #[test]
    fn overtaking_is_none_or_some() {
        let uniform = jitter(Shape::Uniform(5 * MS));
        let asked = distribution(10 * MS, &uniform);
        let mut ordered = seen(MS, 400, MS, 10 * MS);
        assert!(is_inside(&judge(None, &ordered)));
        assert!(!is_inside(&judge(Some(&asked), &ordered)));
        ordered.arrivals.swap(7, 8);
        assert!(!is_inside(&judge(None, &ordered)) && is_inside(&judge(Some(&asked), &ordered)));
        let rare = seen(11 * MS, 400, MS, 10 * MS);
        assert!(is_not_measured(&judge(Some(&asked), &rare)));
    }
}
