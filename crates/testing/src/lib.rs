//! What the tests of all crates share: saying that something was not tested, judging what the
//! machine or chance has a part in, and finding what was built for them. No byte of it is in what we
//! ship.
//!
//! It forbids a test that passes without having looked and without a word.

#![forbid(unsafe_code)]

mod built;
mod runs;

pub use built::built;
pub use runs::{COUNTED, MOST_VOID, RIGHT, Rule, Run, Verdict, first_that_counts, judged, mostly};

use std::fmt::Arguments;
use std::io::{self, Write};
use std::thread;

/// Says that a test, or a part of one, cannot run here, and why; what follows is up to the caller.
///
/// One line on stderr, `NOT TESTED: reason`, which whoever runs the tests collects. There is no
/// other way to say it: `tests/house.rs` beside it sees to that.
#[macro_export]
macro_rules! not_tested {
    ($($reason:tt)+) => { $crate::say_not_tested(::std::format_args!($($reason)+)) };
}

/// What [`not_tested!`] does.
pub fn say_not_tested(reason: Arguments<'_>) {
    say("NOT TESTED", reason);
}

/// Repeats what a part of the test in a process of its own said on stderr: its `NOT TESTED` and `VOID`
/// as if said here, all else for a test that fails.
#[allow(clippy::print_stderr, reason = "the talk of a test, which libtest shows if it fails")]
pub fn pass_on(stderr: &str) {
    for line in stderr.lines() {
        match line.split_once(": ") {
            Some((what @ ("NOT TESTED" | "VOID" | "RUNS"), reason)) => {
                say(what, format_args!("{reason}"));
            }
            _ => eprintln!("{line}"),
        }
    }
}

/// The name of the test whose thread this is, with its modules, as `--exact` takes it: what a test runs again
/// in another process, in a namespace or as another user.
///
/// # Panics
///
/// If this is not the thread that libtest runs a test in, which has the test's name.
#[must_use]
pub fn this_test() -> String {
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main");
    name.expect("it is asked by the thread of a test").to_owned()
}

/// Past libtest, which shows what is printed by a test that failed alone. A line is one write, so
/// that tests beside each other do not mix theirs; that it cannot be written is no failure.
fn say(what: &str, reason: Arguments<'_>) {
    let line = format!("{}\n", one_line(what, &reason.to_string()));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whatever stands in the reason.
fn one_line(what: &str, reason: &str) -> String {
    let lines: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let reason = if lines.is_empty() { "no reason was given".into() } else { lines.join("; ") };
    format!("{what}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::{one_line, this_test};

    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(this_test(), "tests::a_test_knows_its_name");
    }

    #[test]
    fn a_reason_is_one_line_and_never_none() {
        assert_eq!(one_line("VOID", "late"), "VOID: late");
        assert_eq!(one_line("VOID", "\n one\n\n  two \n"), "VOID: one; two");
        assert_eq!(one_line("NOT TESTED", " \n"), "NOT TESTED: no reason was given");
    }
}
