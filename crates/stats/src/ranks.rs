use crate::normal::both_tails;

/// Up to how many samples on each side the rank test counts every arrangement.
pub const EXACT_SAMPLES: usize = 10;

/// The probability that chance alone separates `a` and `b` at least as much, if they came from the
/// same distribution: the two-sided p-value of the rank test of Mann and Whitney, "On a Test of
/// Whether one of Two Random Variables is Stochastically Larger than the Other", The Annals of
/// Mathematical Statistics 18 (1947), 50-60.
///
/// With up to [`EXACT_SAMPLES`] on each side it is exact: all ways to deal the ranks (mid-ranks for
/// equal samples) to the two sides are counted. With more it is the normal approximation, with the
/// corrections for continuity and for equal samples.
///
/// Its smallest value is 0.1 for 3 and 3 samples, 0.029 for 4 and 4, 0.008 for 5 and 5.
///
/// `None` if a side has no samples, or one that is not finite.
#[must_use]
pub fn p_value(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() || !a.iter().chain(b).all(|sample| sample.is_finite()) {
        return None;
    }
    let ranks = Ranks::of(a, b);
    if a.len() <= EXACT_SAMPLES && b.len() <= EXACT_SAMPLES {
        Some(exact(&ranks, a.len()))
    } else {
        Some(approximate(&ranks, a.len(), b.len()))
    }
}

/// The ranks of all samples, of both sides together.
struct Ranks {
    /// Twice the rank of each sample, least first, counted from 1: whole also for mid-ranks.
    doubled: Vec<usize>,
    /// The sum of the doubled ranks of side `a`.
    doubled_sum_a: usize,
    /// The sum of `t^3 - t` over all groups of `t` equal samples.
    ties: f64,
}

impl Ranks {
    fn of(a: &[f64], b: &[f64]) -> Self {
        let side_a = a.iter().map(|sample| (*sample, true));
        let side_b = b.iter().map(|sample| (*sample, false));
        let mut all: Vec<(f64, bool)> = side_a.chain(side_b).collect();
        all.sort_by(|x, y| x.0.total_cmp(&y.0));
        let mut ranks =
            Self { doubled: Vec::with_capacity(all.len()), doubled_sum_a: 0, ties: 0.0 };
        // Zero and minus zero are one group, as by `==`.
        for group in all.chunk_by(|x, y| x.0 == y.0) {
            // The mean of the ranks `before + 1` to `before + group.len()`, doubled.
            let before = ranks.doubled.len();
            let rank = 2 * before + group.len() + 1;
            ranks.doubled.extend(std::iter::repeat_n(rank, group.len()));
            ranks.doubled_sum_a += rank * group.iter().filter(|(_, is_a)| *is_a).count();
            let t = group.len() as f64;
            ranks.ties += t * t * t - t;
        }
        ranks
    }
}

/// Counts the ways to choose `n` of the ranks whose sum is at least as far from the mean sum as the
/// observed one, among all ways.
fn exact(ranks: &Ranks, n: usize) -> f64 {
    let most: usize = ranks.doubled.iter().sum();
    // ways[k][s]: how often k of the ranks seen so far have the sum s.
    let mut ways = vec![vec![0_u64; most + 1]; n + 1];
    ways[0][0] = 1;
    // The sum of all the ranks seen so far: no choice of them has more.
    let mut reach = 0;
    for (seen, rank) in ranks.doubled.iter().enumerate() {
        for k in (1..=n.min(seen + 1)).rev() {
            let (fewer, here) = ways.split_at_mut(k);
            for (sum, before) in fewer[k - 1].iter().enumerate().take(reach + 1) {
                here[0][sum + rank] += before;
            }
        }
        reach += rank;
    }
    // The mean of the doubled sum: n ranks of (N + 1) on average, each doubled.
    let mean = n * (ranks.doubled.len() + 1);
    let observed = ranks.doubled_sum_a.abs_diff(mean);
    let all: u64 = ways[n].iter().sum();
    let far = ways[n].iter().enumerate().filter(|(sum, _)| sum.abs_diff(mean) >= observed);
    far.map(|(_, count)| count).sum::<u64>() as f64 / all as f64
}

fn approximate(ranks: &Ranks, len_a: usize, len_b: usize) -> f64 {
    let (a, b) = (len_a as f64, len_b as f64);
    let all = a + b;
    let mean = a * (all + 1.0) / 2.0;
    let variance = a * b / 12.0 * (all + 1.0 - ranks.ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        // All samples are equal.
        return 1.0;
    }
    let distance = (ranks.doubled_sum_a as f64 / 2.0 - mean).abs();
    both_tails((distance - 0.5).max(0.0) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(from: i32, to: i32) -> Vec<f64> {
        (from..=to).map(f64::from).collect()
    }

    fn assert_p(a: &[f64], b: &[f64], expected: f64) {
        let p = p_value(a, b).unwrap();
        assert!((p - expected).abs() < 1e-9, "{a:?} {b:?}: {p} not {expected}");
    }

    #[test]
    fn separated_samples_have_the_least_p() {
        for (n, ways) in [(1, 2.0), (2, 6.0), (3, 20.0), (4, 70.0), (5, 252.0), (10, 184_756.0)] {
            let p = 2.0 / ways;
            assert_p(&range(1, n), &range(n + 1, 2 * n), p);
            assert_p(&range(n + 1, 2 * n), &range(1, n), p);
        }
        assert_p(&range(1, 3), &range(4, 8), 2.0 / 56.0);
    }

    /// Counted by hand: of the 20 ways to deal the ranks 1 to 6, a sum of 8 or less, or 13 or more,
    /// has 4 + 4; of 7 or 14 has 2 + 2.
    #[test]
    fn counted_by_hand() {
        assert_p(&[1.0, 2.0, 5.0], &[3.0, 4.0, 6.0], 8.0 / 20.0);
        assert_p(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0], 4.0 / 20.0);
        assert_p(&[1.0, 4.0, 5.0], &[2.0, 3.0, 6.0], 20.0 / 20.0);
    }

    /// Mid-ranks: of 1, 2, 2, 3 the ranks are 1, 2.5, 2.5, 4; the six sums of two are 3.5, 3.5, 5, 5,
    /// 6.5, 6.5, of which four are as far from 5 as 3.5 is.
    #[test]
    fn equal_samples_share_their_rank() {
        assert_p(&[1.0, 2.0], &[2.0, 3.0], 4.0 / 6.0);
        assert_p(&[5.0; 4], &[5.0; 4], 1.0);
        assert_p(&[5.0; 20], &[5.0; 20], 1.0);
        assert_p(&[0.0, 0.0], &[-0.0, -0.0], 1.0);
    }

    /// `erfc((60.5 - 0.5) / s / sqrt(2))` in Python, with `s = sqrt(11 * 11 * 23 / 12)`.
    #[test]
    fn many_samples_use_the_normal_distribution() {
        assert_p(&range(1, 11), &range(12, 22), 8.151_536_127_743_24e-5);
    }

    #[test]
    fn exact_and_approximate_agree_where_they_meet() {
        for shift in 0..8 {
            let (a, b) = (range(1, 10), range(1 + shift, 10 + shift));
            let ranks = Ranks::of(&a, &b);
            let (exact, approximate) = (exact(&ranks, 10), approximate(&ranks, 10, 10));
            assert!((exact - approximate).abs() < 0.02, "{shift}: {exact} {approximate}");
        }
    }

    #[test]
    fn no_p_value_without_samples() {
        for (a, b) in [(&[][..], &[1.0][..]), (&[1.0], &[]), (&[1.0], &[f64::NAN])] {
            assert_eq!(p_value(a, b), None);
        }
    }

    proptest! {
        #[test]
        fn the_sides_can_be_exchanged(
            a in prop::collection::vec(-5..5, 1..14),
            b in prop::collection::vec(-5..5, 1..14),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let p = p_value(&a, &b).unwrap();
            prop_assert!(p > 0.0 && p <= 1.0);
            prop_assert!((p - p_value(&b, &a).unwrap()).abs() < 1e-12);
        }

        #[test]
        fn the_order_of_samples_does_not_matter(
            mut a in prop::collection::vec(-1e3..1e3, 1..10),
            b in prop::collection::vec(-1e3..1e3, 1..10),
        ) {
            let p = p_value(&a, &b);
            a.reverse();
            prop_assert_eq!(p_value(&a, &b), p);
        }
    }
}
