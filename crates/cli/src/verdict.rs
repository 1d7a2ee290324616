//! The exit code is the verdict.

use std::process::ExitCode;

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done and proven.
    Done,
    /// It ran, and the answer is no.
    No,
    /// Misuse or failure.
    Failed,
    /// The exit code of a program that was run.
    Of(u8),
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(match verdict {
            Verdict::Done => 0,
            Verdict::No => 1,
            Verdict::Failed => 2,
            Verdict::Of(code) => code,
        })
    }
}

impl From<bool> for Verdict {
    fn from(yes: bool) -> Self {
        if yes { Self::Done } else { Self::No }
    }
}
