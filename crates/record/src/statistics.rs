//! Statistics that several parts of a recording use.

/// The probability of at least `hits` in `trials` trials with probability `chance` each: the tail of the
/// binomial distribution.
pub(super) fn at_least(hits: u64, trials: u64, chance: f64) -> f64 {
    if hits == 0 || chance >= 1.0 {
        return 1.0;
    }
    if hits > trials || chance <= 0.0 {
        return 0.0;
    }
    let ln_combinations = |of: u64| -> f64 {
        (1..=of).map(|i| ((trials - of + i) as f64).ln() - (i as f64).ln()).sum()
    };
    let mut term = (ln_combinations(hits)
        + hits as f64 * chance.ln()
        + (trials - hits) as f64 * (-chance).ln_1p())
    .exp();
    let mut sum = term;
    for hit in hits..trials {
        term *= (trials - hit) as f64 / (hit + 1) as f64 * chance / (1.0 - chance);
        sum += term;
    }
    sum.min(1.0)
}

/// The median of a list; `None` of an empty one.
pub(super) fn median(mut list: Vec<f64>) -> Option<f64> {
    list.sort_by(f64::total_cmp);
    let (low, high) = (list.get(list.len().checked_sub(1)? / 2)?, list.get(list.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_tails_as_in_tables() {
        let near = |got: f64, right: f64| assert!((got - right).abs() < 1e-9, "{got} {right}");
        near(at_least(0, 10, 0.5), 1.0);
        near(at_least(10, 10, 0.5), 1.0 / 1024.0);
        near(at_least(1, 10, 0.1), 1.0 - 0.9_f64.powi(10));
        near(at_least(5, 10, 0.5), 638.0 / 1024.0);
        assert_eq!(
            (at_least(3, 2, 0.5), at_least(1, 2, 0.0), at_least(1, 2, 1.0)),
            (0.0, 0.0, 1.0)
        );
        assert_eq!(at_least(5000, 10_000, 0.001), 0.0);
    }
}
