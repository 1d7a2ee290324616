//! The words of `lastbyte lab`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use lastbyte_changes::Prefix;
use lastbyte_lab::{Buffers, Direction, Fairness, Rounds};
use lastbyte_units::{BitRate, ByteSize};

use crate::lab::host::HostArgs;
use crate::lab::serve::ServeArgs;
use crate::path::PathArgs;

/// Find the settings that fill a path, counted at the receiver.
///
/// Runs real kernel TCP over an emulated path with each combination of settings, in turn, round
/// after round, until the order is settled; counts the receiver's bytes over the receiver's time;
/// says how sure that is, what held each back, and what to change.
///
/// Or over a real path, up to a host that runs `lastbyte lab serve`: `lastbyte lab HOST:PORT --key KEY`,
/// or `lastbyte lab ssh://USER@HOST`, which starts it there.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Run over this machine's loopback interface instead: needs no rights, has no loss or delay
    #[arg(long)]
    pub(crate) loopback: bool,
    #[command(flatten)]
    pub(crate) matrix: MatrixArgs,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// What else can be done with experiments.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabCommand {
    Serve(ServeArgs),
    Compare(CompareArgs),
    Show(ShowArgs),
}

/// Say what changed between two experiments, and whether it is more than noise.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// An experiment that --save or --json wrote
    pub(crate) before: PathBuf,
    /// Another
    pub(crate) after: PathBuf,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show an experiment that was saved.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// An experiment that --save or --json wrote
    pub(crate) file: PathBuf,
    /// Write a page that shows it, one file for any browser
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Say the lines for the whole machine too
    #[arg(long)]
    pub(crate) machine_wide: bool,
}

/// What is compared: every combination of these.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What to compare, values separated by commas")]
pub(crate) struct MatrixArgs {
    /// Congestion controls [default: all that this kernel offers]. What it lacks is loaded for the time
    /// of the experiment, see `lastbyte cc list`; all is the kernel's and those, each once. brutal=80mbit
    /// loads one with its rate
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) congestion: Vec<String>,
    /// Buffers: auto, auto:8MiB (sized by the kernel up to that), or a fixed size such as 128KiB
    #[arg(long, value_delimiter = ',', default_value = "auto", allow_hyphen_values = true)]
    pub(crate) buffer: Vec<Buffers>,
    /// Which way the load goes: up, down or both
    #[arg(long, value_delimiter = ',', default_value = "up")]
    pub(crate) direction: Vec<Direction>,
    /// Connections that share the load
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) streams: Vec<u32>,
    /// The highest rate of each connection, such as 20mbit, or none
    #[arg(long, value_delimiter = ',', default_value = "none", value_name = "RATE", value_parser = maybe::<BitRate>)]
    pub(crate) pacing: Vec<Maybe<BitRate>>,
    /// How much may be written and not yet sent, such as 16KiB, or none
    #[arg(long, value_delimiter = ',', default_value = "none", value_name = "SIZE", value_parser = maybe::<ByteSize>)]
    pub(crate) notsent_lowat: Vec<Maybe<ByteSize>>,
    /// The rate at which the sending program has something to write, such as 5mbit, or none
    #[arg(long, value_delimiter = ',', default_value = "none", value_name = "RATE", value_parser = maybe::<BitRate>)]
    pub(crate) write_rate: Vec<Maybe<BitRate>>,
    /// The rate at which the receiving program reads, or none
    #[arg(long, value_delimiter = ',', default_value = "none", value_name = "RATE", value_parser = maybe::<BitRate>)]
    pub(crate) read_rate: Vec<Maybe<BitRate>>,
    /// A program to measure, such as 'iperf3 -c far -4 -t 10': alone, or with --congestion beside our
    /// own sender. It finds the hosts as near and far, and is stopped two minutes after --seconds.
    /// May be given more than once
    #[arg(long, value_name = "COMMAND")]
    pub(crate) subject: Vec<String>,
    /// What listens for it on the far host, such as 'iperf3 -s -1': one for all, or one for each
    /// --subject in their order
    #[arg(long, value_name = "COMMAND", requires = "subject")]
    pub(crate) far: Vec<String>,
}

/// How much, how often.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Runs")]
pub(crate) struct RunsArgs {
    /// How long each run sends [default: 20, or as long as --bytes take]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: Option<u64>,
    /// Send so many bytes in each run; with --seconds, what is reached first ends it
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) bytes: Option<ByteSize>,
    /// How often each setting runs: 5 for exactly that, 5..10 to end when the order is settled
    #[arg(long, default_value = "5..10", value_name = "N or MIN..MAX")]
    pub(crate) rounds: Rounds,
    /// Measure what a flow does to a flow of cubic beside it, at a queue of 1 and of 4
    /// bandwidth-delay products
    #[arg(long, value_enum, default_value_t = FairnessWord::Advised, value_name = "WHEN")]
    pub(crate) fairness: FairnessWord,
    /// Do not probe round trips under load
    #[arg(long)]
    pub(crate) no_latency: bool,
    /// The receiver's port; 0 lets the kernel choose
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Runs side by side, each on a link of its own [default: what the processors can carry]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) parallel: Option<u32>,
}

/// Where results go, and what is done about them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct OutputArgs {
    /// Print JSON Lines, with every sample
    #[arg(long)]
    pub(crate) json: bool,
    /// Write these JSON Lines to a file, for `lab show` and `lab compare`
    #[arg(long, value_name = "FILE.json")]
    pub(crate) save: Option<PathBuf>,
    /// Write a page that shows it all, one file for any browser
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Say the lines for the whole machine too
    #[arg(long)]
    pub(crate) machine_wide: bool,
    /// Do what is advised: route:PREFIX adds a route of its own to a host or network, machine
    /// changes the whole machine for good; `lastbyte undo` takes it back. Nothing is replaced
    #[arg(long, value_name = "WHERE")]
    pub(crate) apply: Option<ApplyWord>,
}

/// Where to apply what is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyWord {
    Route(Prefix),
    Machine,
}

impl FromStr for ApplyWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("route", to)) => to.parse().map(Self::Route).map_err(|error| format!("{error}")),
            None if text == "machine" => Ok(Self::Machine),
            _ => Err("write route:PREFIX, such as route:203.0.113.7, or machine".to_owned()),
        }
    }
}

/// When to measure fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FairnessWord {
    /// Not at all: then nothing is advised that may take from others
    Never,
    /// Where a congestion control would be advised that may take from others
    Advised,
    /// For each congestion control
    Always,
}

impl From<FairnessWord> for Fairness {
    fn from(word: FairnessWord) -> Self {
        match word {
            FairnessWord::Never => Self::Never,
            FairnessWord::Advised => Self::WhereAdvised,
            FairnessWord::Always => Self::Always,
        }
    }
}

/// A value, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

fn maybe<T: FromStr>(text: &str) -> Result<Maybe<T>, T::Err> {
    if text.trim() == "none" {
        Ok(Maybe(None))
    } else {
        text.parse().map(|value| Maybe(Some(value)))
    }
}

impl LabArgs {
    /// Whether it makes an emulated path.
    pub(crate) fn needs_a_path(&self) -> bool {
        self.command.is_none()
            && !self.loopback
            && !self.is_remote()
            // A change to this machine is made with its own rights, not with those over a path.
            && self.output.apply.is_none()
    }

    /// Whether the far host is another machine.
    pub(crate) fn is_remote(&self) -> bool {
        self.host.is_meant(self.path.scenario.as_deref())
    }
}
