//! The words of `lastbyte gate`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lastbyte_gate::config::{Prefix, parse};
use lastbyte_units::Span;

/// Relay TCP connections, and never make a broken transfer look complete.
///
/// Each connection to a route gets another one to the route's target, and what either side does, the
/// other side sees: data in its order, an end as an end, a reset as a reset. Each leaves one line on
/// stdout, with what was acknowledged, who ended it and how.
///
/// A route is LISTEN=TARGET[,TARGET...], such as 127.0.0.1:3306=db.example:3306, or
/// socks5://LISTEN or http-connect://LISTEN; a port alone listens on 127.0.0.1. Or name a file that
/// ends in .toml, which has all that there is to set: docs/manual/gate.md has its keys.
///
/// What is set on a leg governs what this host sends there. For replication or downloads over a long
/// path put the gate at the sender: `lastbyte gate 0.0.0.0:3307=127.0.0.1:3306 --allow REPLICA
/// --congestion bbr`.
///
/// SIGHUP reads the file anew, without an end to any flow. SIGTERM and Ctrl-C let flows come to their
/// end, a second one resets them. Exit code 0: all flows ended by themselves. 1: some were reset. 130:
/// it was ended by Ctrl-C.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GateArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GateCommand>,
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// What else can be done with a gate.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GateCommand {
    Check(Box<CheckArgs>),
    Stat(StatArgs),
    Flows(FlowsArgs),
    /// Have a gate that runs read its file anew, as SIGHUP does, and say what came of it
    Reload(TellArgs),
    /// Have a gate that runs accept nothing more, let its flows come to their end, and end
    Drain(TellArgs),
}

/// Read the statistics of a gate that runs.
///
/// With a name the figure alone is printed, all routes together: `lastbyte gate stat flows_open`.
/// docs/manual/gate.md has the names. Exit code 0: it is read. 2: there is no such name, or no gate that
/// answers.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatArgs {
    /// One statistic [default: all]
    #[arg(conflicts_with_all = ["list", "openmetrics"])]
    pub(crate) name: Option<String>,
    /// The gate's control socket [default: that of the only gate of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// A line for each route
    #[arg(long, conflicts_with_all = ["list", "openmetrics", "json"])]
    pub(crate) by_route: bool,
    /// What statistics there are, and what they say
    #[arg(long, conflicts_with = "openmetrics")]
    pub(crate) list: bool,
    /// As JSON Lines
    #[arg(long, conflicts_with = "openmetrics")]
    pub(crate) json: bool,
    /// As OpenMetrics text, for a collector
    #[arg(long)]
    pub(crate) openmetrics: bool,
}

/// List the flows that are open in a gate that runs, with the bytes that its kernel took so far.
#[derive(Clone, Debug, Args)]
pub(crate) struct FlowsArgs {
    /// The gate's control socket [default: that of the only gate of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// As JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which gate is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct TellArgs {
    /// The gate's control socket [default: that of the only gate of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// Say what a gate would do, what this kernel grants, and what is wrong, without starting it.
///
/// Exit code 0: it would start. 2: it would not, and stderr says why, with line and key.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) what: WhatArgs,
}

/// What a gate is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhatArgs {
    /// A file that ends in .toml, or routes: LISTEN=TARGET[,TARGET...], socks5://LISTEN,
    /// http-connect://LISTEN
    #[arg(value_name = "FILE.toml | ROUTE")]
    pub(crate) words: Vec<String>,
    /// Clients that may come: an address, or a prefix such as 192.0.2.0/24. May be given more than
    /// once [default: everybody]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) allow: Vec<Prefix>,
    /// Where a proxy connects to: an address, or a prefix. May be given more than once [default: all;
    /// off loopback not to loopback and link-local addresses]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) reach: Vec<Prefix>,
    /// Who may use a proxy: lines of name:password, in a file that others cannot read
    #[arg(long, value_name = "FILE")]
    pub(crate) users_file: Option<PathBuf>,
    /// The congestion control of both legs. Each governs what this host sends there
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// That of what this host sends to clients: downloads
    #[arg(long, value_name = "NAME")]
    pub(crate) client_congestion: Option<String>,
    /// That of what this host sends to targets: uploads
    #[arg(long, value_name = "NAME")]
    pub(crate) upstream_congestion: Option<String>,
    /// Multipath TCP on both legs, where the other side has it
    #[arg(long)]
    pub(crate) mptcp: bool,
    /// End flows on which nothing moves for so long [default: never]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) idle: Option<Span>,
    /// End flows of a side that takes nothing for so long, though it has bytes to take
    /// [default: never]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) stall: Option<Span>,
    /// For connecting, names and all addresses included [default: 10s]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) connect_timeout: Option<Span>,
    /// A Unix socket to answer `lastbyte gate stat` on, for this user alone [default: one in
    /// LASTBYTE_RUN_DIR, by default /run/lastbyte for root and $XDG_RUNTIME_DIR/lastbyte for others]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Answer GET /metrics here
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::listen)]
    pub(crate) metrics: Option<SocketAddr>,
    /// How long flows may go on when it is told to stop [default: 60s]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) drain: Option<Span>,
    /// Threads that carry flows [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
}

/// How accounts become lines.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogArgs {
    /// How lines of the log look
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) log: LogWord,
    /// Append them to this file instead of stdout; SIGHUP opens it anew
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogWord {
    /// For people
    Text,
    /// JSON Lines
    Json,
    /// No lines at all
    None,
}
