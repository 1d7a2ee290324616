//! From samples to conclusions: estimates, their intervals, and whether two sets of samples differ.
//!
//! This crate forbids a figure without its spread: a median comes with the least and the greatest
//! sample, an estimate with its interval, and a comparison claims a difference only if it is
//! significant. It also forbids the clock and hidden chance: a function that draws at random takes
//! a seed, and returns the same for it on every machine.
//!
//! Every figure is in the unit of the samples. Samples may be in any order; if one is missing,
//! infinite or not a number, the result is `None`.

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
pub use settle::{Decision, Position, Rule, Standing, settle};
pub use summary::{Interval, Summary, jain, quantile, trimmed_mean};
pub use wilson::{Z_99, wilson, wilson_of_share};
