//! The words of `lastbyte cc`.

use clap::{Args, Subcommand};
use lastbyte_units::BitRate;

/// Load a congestion control that the kernel was not built with, and take it away again.
///
/// Programs in BPF, without a kernel module (Linux 5.6 and later). Their names are those of the whole
/// machine and begin with lb_, so that they stand beside the kernel's own: `vegas` and `lb_vegas` are
/// the same here.
#[derive(Clone, Debug, Args)]
pub(crate) struct CcArgs {
    #[command(subcommand)]
    pub(crate) command: CcCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CcCommand {
    List(ListArgs),
    Load(LoadArgs),
    Unload(UnloadArgs),
    Status(StatusArgs),
}

/// List the kernel's congestion controls and those that can be loaded, and what each is good for.
///
/// "root" in the second column: a program needs CAP_NET_ADMIN to choose it, as long as
/// net.ipv4.tcp_allowed_congestion_control does not name it; "all": it does.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Load congestion controls into the kernel: all of those named, or none.
///
/// They are there until Ctrl-C or a kill; connections that have one keep it to their end. Needs root, or
/// CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
///
/// Exit code 0: they were there for as long as asked, or until SIGTERM. 2: they could not be loaded.
/// 130: ended by Ctrl-C.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    /// Names from `lastbyte cc list`
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Hold them for so long, and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) for_seconds: Option<u64>,
    /// Keep them until the next boot, `cc unload` or `undo`, and enter that in the ledger
    #[arg(long, conflicts_with = "for_seconds")]
    pub(crate) keep: bool,
    /// For what goes by a rate, such as brutal: the one of all sockets without SO_MAX_PACING_RATE
    #[arg(long, allow_hyphen_values = true, value_name = "RATE")]
    pub(crate) rate: Option<BitRate>,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Unload congestion controls that were kept, or that a killed process has left.
///
/// One in use can be unloaded: nobody can choose it any more, and connections that have it keep it to
/// their end. What another process holds goes when that ends.
#[derive(Clone, Debug, Args)]
pub(crate) struct UnloadArgs {
    /// Names from `lastbyte cc list`
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// All that are kept or left
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say which TCP sockets of this network namespace have which congestion control.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// A line for each socket
    #[arg(long)]
    pub(crate) sockets: bool,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}
