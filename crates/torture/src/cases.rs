//! All cases, one module for each family.

mod early;
mod half_close;
mod many;
mod reset;
mod slow;
mod small;
mod stop;
mod upstream;
mod urgent;

use crate::case::{Case, Expected, Group, Play};
use crate::script::{Role, Step};

/// All of them, in the order of the table.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        half_close::cases(),
        reset::cases(),
        early::cases(),
        small::cases(),
        urgent::cases(),
        slow::cases(),
        many::cases(),
        upstream::cases(),
        stop::cases(),
    ]
    .concat()
}

const KIB: u64 = 1_024;
const MIB: u64 = 1_024 * KIB;

/// A case of one connection, in which one end acts and the other observes; either may be the
/// client.
struct Draft {
    group: Group,
    /// The name without the group's, and without the end that acts.
    name: &'static str,
    does: &'static str,
    because: &'static str,
    actor: (Vec<Step>, Expected),
    other: (Vec<Step>, Expected),
}

impl Draft {
    /// The two cases: the client acts, the server acts.
    fn by_either(self) -> Vec<Case> {
        vec![self.of(Role::Client, "/client"), self.of(Role::Server, "/server")]
    }

    /// The case in which this end acts.
    fn by(self, actor: Role) -> Vec<Case> {
        vec![self.of(actor, "")]
    }

    fn of(&self, actor: Role, suffix: &str) -> Case {
        let (client, server) = match actor {
            Role::Client => (&self.actor, &self.other),
            Role::Server => (&self.other, &self.actor),
        };
        Case {
            name: format!("{}/{}{suffix}", self.group, self.name),
            group: self.group,
            does: self.does,
            because: self.because,
            runs: USUAL_RUNS,
            long: false,
            play: Play::Scripts { client: client.0.clone(), server: server.0.clone() },
            client: client.1,
            server: server.1,
        }
    }
}

/// How often a case without randomness is played.
const USUAL_RUNS: u32 = 5;

/// The same cases, played `runs` times.
fn times(runs: u32, cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| Case { runs, ..case }).collect()
}

/// The same cases, played once, and only with `--long`.
fn long(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| Case { runs: 1, long: true, ..case }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_different_and_begin_with_their_group() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(case.name.starts_with(&format!("{}/", case.group)), "{}", case.name);
            assert!(names.insert(case.name.clone()), "{} is there twice", case.name);
            assert!(case.does.ends_with('.') && case.because.ends_with('.'), "{}", case.name);
        }
    }
}
