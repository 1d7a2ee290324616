//! Errors of measuring a program.

use std::io;
use std::time::Duration;

use lastbyte_link::{Host, LinkError};

/// A program could not be run or measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// An invalid command.
    #[error("the command {command:?} {why}")]
    Command {
        /// As it was given.
        command: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A host could not be entered.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The kernel does not report sockets.
    #[error("watching the sockets of the {} host: {cause}", words(*host))]
    Watch {
        /// Where.
        host: Host,
        /// The kernel's error.
        cause: io::Error,
    },
    /// A program could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The program of the far host ended before anything listened there.
    #[error(
        "the far program ended ({code}) before anything listened there; it must stay in the \
         foreground{output}"
    )]
    EndedEarly {
        /// Its exit code.
        code: u8,
        /// The end of its output.
        output: String,
    },
    /// Nothing listened on the far host in time.
    #[error("nothing listened on the far host within {} s{output}", within.as_secs())]
    NothingListens {
        /// How long the run waited.
        within: Duration,
        /// The end of the far program's output.
        output: String,
    },
    /// No connection between the hosts carried a byte.
    #[error(
        "no byte went over the path by TCP; what goes over loopback or by UDP is not seen; the near \
         program {}ended with {code}{output}", if *timed_out { "was stopped when its time was up, and " } else { "" }
    )]
    NoBytes {
        /// The near program's exit code.
        code: u8,
        /// Whether it was stopped at its time limit.
        timed_out: bool,
        /// The end of the programs' output.
        output: String,
    },
}

fn words(host: Host) -> &'static str {
    match host {
        Host::Near => "near",
        Host::Far => "far",
    }
}

/// A program could not be started, or its exit status is unknown.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {program}: {cause}")]
pub struct LaunchError {
    /// The program's name.
    pub program: String,
    /// Why.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

impl LaunchError {
    /// An error of a command whose first element is the program.
    pub fn of(
        command: &[String],
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let program = command.first().cloned().unwrap_or_default();
        Self { program, cause: cause.into() }
    }
}
