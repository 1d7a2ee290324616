//! Tests whose runs are not all alike.
//!
//! [`first_that_counts`] is for what holds in each run that the machine did not spoil: the first run
//! that counts decides, so that a defect in one of N runs is not hidden by the other N - 1.
//! [`mostly`] is for what chance has a part in, and only for the slow tests that are run to find out,
//! never for the gate: at least [`RIGHT`] of [`COUNTED`] runs that count have to be right.
//!
//! A run that is void counts neither way. It is repeated, as often as [`MOST_VOID`] says; that
//! none counted is a failure, since nothing was tested.

use std::fmt::{self, Display};

/// How many runs are judged by [`mostly`].
pub const COUNTED: usize = 5;
/// How many of them have to be right.
pub const RIGHT: usize = 4;
/// So many void runs, and it is given up.
pub const MOST_VOID: usize = 5;

/// What one run said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// As it has to be.
    Right,
    /// Not so, and what was found instead.
    Wrong(String),
    /// The machine spoiled it, and how: it tells nothing of what is tested.
    Void(String),
    /// It cannot be run here at all, and why. Said by the first run that counts; later it is a failure,
    /// since it could be run before.
    NotHere(String),
}

impl Run {
    /// Right if it holds, else wrong, with this found instead.
    pub fn right_if(holds: bool, found: impl FnOnce() -> String) -> Self {
        if holds { Self::Right } else { Self::Wrong(found()) }
    }
}

impl Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("right"),
            Self::Wrong(found) => write!(f, "wrong: {found}"),
            Self::Void(why) => write!(f, "void: {why}"),
            Self::NotHere(why) => write!(f, "not here: {why}"),
        }
    }
}

/// Runs until a run counts, and that one decides. `run` gets the number of the run, from 1 on, as a
/// seed for what it draws.
///
/// # Panics
///
/// If the run that counts is wrong, and if [`MOST_VOID`] runs were void: then nothing was tested.
#[track_caller]
pub fn first_that_counts(what: &str, run: impl FnMut(u64) -> Run) {
    say_verdict(judged(what, Rule::FirstThatCounts, run));
}

/// Runs until [`RIGHT`] runs were right or it cannot come to that any more, of at most [`COUNTED`] that
/// count. `run` gets the number of the run, from 1 on, as a seed for what it draws.
///
/// # Panics
///
/// If too many runs were wrong, and if [`MOST_VOID`] runs were void. The message has all runs.
#[track_caller]
pub fn mostly(what: &str, run: impl FnMut(u64) -> Run) {
    say_verdict(judged(what, Rule::Mostly, run));
}

/// One line on stderr for each void run, `VOID: reason`.
fn said_if_void(what: &str, mut run: impl FnMut(u64) -> Run) -> impl FnMut(u64) -> Run {
    move |seed| {
        let one = run(seed);
        if let Run::Void(why) = &one {
            crate::say("VOID", format_args!("{what}, seed {seed}: {why}"));
        }
        one
    }
}

/// What came of the runs of a test that goes on afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With all runs.
    Passed(String),
    /// With all runs.
    Failed(String),
    /// Why it cannot be run here.
    NotHere(String),
}

/// How many runs have to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// As by [`first_that_counts`].
    FirstThatCounts,
    /// As by [`mostly`].
    Mostly,
}

/// As [`first_that_counts`] and [`mostly`], for a test of many things that tells of all that are wrong.
pub fn judged(what: &str, rule: Rule, run: impl FnMut(u64) -> Run) -> Verdict {
    let (needed, counted) = match rule {
        Rule::FirstThatCounts => (1, 1),
        Rule::Mostly => (RIGHT, COUNTED),
    };
    judge(what, needed, counted, said_if_void(what, run))
}

#[track_caller]
fn say_verdict(verdict: Verdict) {
    match verdict {
        Verdict::Passed(runs) => crate::say("RUNS", format_args!("{runs}")),
        Verdict::NotHere(why) => crate::not_tested!("{why}"),
        Verdict::Failed(why) => panic!("{why}"),
    }
}

fn judge(what: &str, needed: usize, counted: usize, mut run: impl FnMut(u64) -> Run) -> Verdict {
    let mut said = Vec::new();
    let (mut right, mut wrong, mut void) = (0, 0, 0);
    for seed in 1.. {
        let one = run(seed);
        said.push(format!("seed {seed}: {one}"));
        match one {
            Run::Right => right += 1,
            Run::Wrong(_) => wrong += 1,
            Run::Void(_) => void += 1,
            Run::NotHere(why) if right + wrong == 0 => return Verdict::NotHere(why),
            Run::NotHere(_) => wrong = counted,
        }
        if right >= needed || wrong > counted - needed || void >= MOST_VOID {
            break;
        }
    }
    let runs =
        format!("{what}: {right} right, {wrong} wrong, {void} void\n  {}", said.join("\n  "));
    if right >= needed {
        Verdict::Passed(runs)
    } else if wrong > counted - needed {
        Verdict::Failed(runs)
    } else {
        Verdict::Failed(format!("not tested, {MOST_VOID} runs were void: {runs}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTED, RIGHT, Run, Verdict, judge};

    /// `r`ight, `w`rong, `v`oid, `n`ot here: the verdict, and how many of the runs it took.
    fn mostly(runs: &str) -> (&'static str, usize) {
        of(RIGHT, COUNTED, runs)
    }

    fn of(needed: usize, counted: usize, runs: &str) -> (&'static str, usize) {
        let mut left = runs.chars();
        let mut seeds = Vec::new();
        let verdict = judge("a game", needed, counted, |seed| {
            seeds.push(seed);
            match left.next().expect("no more runs than that") {
                'r' => Run::Right,
                'w' => Run::Wrong("lost".into()),
                'v' => Run::Void("rain".into()),
                _ => Run::NotHere("no field".into()),
            }
        });
        assert_eq!(seeds, (1..=seeds.len() as u64).collect::<Vec<_>>());
        let verdict = match verdict {
            Verdict::Passed(_) => "passed",
            Verdict::NotHere(why) => {
                assert_eq!(why, "no field");
                "not here"
            }
            Verdict::Failed(why) if why.starts_with("not tested, 5 runs were void: ") => "void",
            Verdict::Failed(why) => {
                assert!(why.starts_with("a game: "), "{why}");
                assert!(why.contains("seed 1: "), "{why}");
                "failed"
            }
        };
        (verdict, seeds.len())
    }

    #[test]
    fn four_of_five_pass_and_three_fail() {
        assert_eq!(mostly("rrrr"), ("passed", 4));
        assert_eq!(mostly("wrrrr"), ("passed", 5));
        assert_eq!(mostly("rrwrr"), ("passed", 5));
        assert_eq!(mostly("ww"), ("failed", 2));
        assert_eq!(mostly("rrrww"), ("failed", 5));
        assert_eq!(mostly("wrw"), ("failed", 3));
    }

    #[test]
    fn void_runs_count_neither_way_and_are_bounded() {
        assert_eq!(mostly("vvvvrrrr"), ("passed", 8));
        assert_eq!(mostly("vwvrrvrr"), ("passed", 8));
        assert_eq!(mostly("wvvw"), ("failed", 4));
        assert_eq!(mostly("vvvvv"), ("void", 5));
        assert_eq!(mostly("rrrvvvvv"), ("void", 8));
    }

    #[test]
    fn the_first_run_that_counts_decides() {
        assert_eq!(of(1, 1, "r"), ("passed", 1));
        assert_eq!(of(1, 1, "w"), ("failed", 1));
        assert_eq!(of(1, 1, "vvr"), ("passed", 3));
        assert_eq!(of(1, 1, "vvw"), ("failed", 3));
        assert_eq!(of(1, 1, "vvvvv"), ("void", 5));
    }

    #[test]
    fn what_cannot_be_run_says_so_at_first_or_not_at_all() {
        assert_eq!(mostly("n"), ("not here", 1));
        assert_eq!(mostly("vn"), ("not here", 2));
        assert_eq!(mostly("rn"), ("failed", 2));
    }
}
