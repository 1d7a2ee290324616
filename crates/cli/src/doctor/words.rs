//! The words of `lastbyte doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lastbyte_doctor::{Class, Tier};
use lastbyte_units::Span;

/// Say why bytes were lost, why it is slow, why it burns processor time.
///
/// Watches a program and what it starts, a process, a port, or the whole machine, and says what it
/// finds: a code, a sentence with the numbers, what to do. `lastbyte explain CODE` has the page behind.
/// It changes nothing; `lastbyte heal` does.
///
/// Without rights it reads tables of sockets. As root it watches from within the kernel: with eBPF, or
/// with a tracefs instance of its own. It says which, and what the better one would add.
///
/// Exit code: the program's own after `-- CMD`; otherwise 0, and 130 when Ctrl-C ended it. 1 when
/// --fail-on found what it names. 2: misuse or failure, also when --fail-on found nothing and could
/// have missed it: events were missed, a recording was cut off, or loss was looked for without eBPF.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Watch this process, and what it starts from now on
    #[arg(long, value_name = "PID", conflicts_with_all = ["port", "command", "replay"])]
    pub(crate) pid: Option<u32>,
    /// Watch TCP connections that have this port at either end
    #[arg(long, value_name = "PORT", conflicts_with_all = ["command", "replay"],
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Look again at what a file of --record holds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "record", "tier", "duration", "calls"])]
    pub(crate) replay: Option<PathBuf>,
    /// End after so long, such as 30s; a program that was started goes on
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub(crate) duration: Option<Span>,
    /// End with 1 if there is such a finding
    #[arg(long, value_enum, value_name = "CLASS")]
    pub(crate) fail_on: Option<FailOn>,
    /// Print harmless findings too, each
    #[arg(long)]
    pub(crate) all: bool,
    /// Say of each better tier why it cannot be had and what it would add
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the answer to this file instead: the program's own stdout stays its own
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write a page of HTML at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write down all that is seen, for --replay
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Watch from there, or not at all [default: the best that can be had]
    #[arg(long, value_enum, value_name = "TIER")]
    pub(crate) tier: Option<TierWord>,
    /// When system calls are traced: of watched programs all the time; of all programs for a second in
    /// each ten; never [default: watched with a program or process, otherwise windows]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) calls: Option<CallsWord>,
    /// After the program's end, follow what it left unacked for at most so long
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) follow: Span,
    /// The program to watch, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// What --fail-on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Loss,
    Slow,
    Cpu,
    Connect,
    Any,
}

impl FailOn {
    /// Whether a class is meant.
    pub(crate) fn means(self, class: Class) -> bool {
        match self {
            Self::Loss => class == Class::Loss,
            Self::Slow => class == Class::Slow,
            Self::Cpu => class == Class::Cpu,
            Self::Connect => class == Class::Connect,
            Self::Any => class != Class::Note,
        }
    }
}

/// A tier's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierWord {
    /// Programs in the kernel (eBPF)
    Bpf,
    /// The kernel's trace points as text
    Tracefs,
    /// Tables of sockets and /proc
    Procfs,
}

impl From<TierWord> for Tier {
    fn from(word: TierWord) -> Self {
        match word {
            TierWord::Bpf => Self::Bpf,
            TierWord::Tracefs => Self::Tracefs,
            TierWord::Procfs => Self::Procfs,
        }
    }
}

/// When system calls are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallsWord {
    /// Of the watched programs, all the time
    Watched,
    /// Of all programs, a second in each ten
    Windows,
    /// Never
    Never,
}

/// A window of [`CallsWord::Windows`], and from the beginning of one to that of the next.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
pub(crate) const WINDOW_EVERY: Duration = Duration::from_secs(10);

/// What becomes the program that is watched.
#[derive(Clone, Debug, Args)]
pub(crate) struct PatientArgs {
    /// The process that has to be the parent still, as `/proc` counts.
    #[arg(long)]
    pub(crate) parent: Option<u32>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}
