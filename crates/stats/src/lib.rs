//! Samples to conclusions: how large, how sure, and whether two sets of samples differ.
//!
//! This crate forbids a figure without its spread: a median comes with the least and the greatest
//! sample, an estimate with its interval, and a comparison claims a difference only where the
//! samples leave none of the usual doubts. It also forbids the clock and hidden chance: whatever
//! draws at random takes a seed and gives the same answer for it on every machine.
//!
//! It knows nothing of what was measured; every figure is in the unit of the samples. Samples are
//! taken in any order; where one is missing, infinite or not a number, there is no answer (`None`)
//! rather than a wrong one.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod bootstrap;
mod compare;
mod many;
mod normal;
mod pairs;
mod ranks;
mod settle;
mod student;
mod summary;
mod wilson;

pub use bootstrap::{MAX_RESAMPLES, bootstrap_interval, difference_interval, ratio_interval};
pub use compare::{Comparison, MIN_SAMPLES, Verdict, compare, compare_at};
pub use many::{Corrected, Metric, compare_many, holm};
pub use pairs::{paired_p_value, paired_ratio_interval};
pub use ranks::{EXACT_SAMPLES, p_value};
pub use settle::{Decision, Place, Rule, Standing, settle};
pub use summary::{Interval, Summary, jain, quantile, trimmed_mean};
pub use wilson::{Z_99, wilson, wilson_of_share};
