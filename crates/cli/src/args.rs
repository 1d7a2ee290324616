//! The words of the command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lastbyte_link::Way;
use lastbyte_units::{ByteSize, Span};

use crate::cc::CcArgs;
use crate::doctor::{DoctorArgs, PatientArgs};
use crate::explain::ExplainArgs;
use crate::gate::GateArgs;
use crate::heal::HealArgs;
use crate::lab::LabArgs;
use crate::path::PathArgs;

pub(crate) const AFTER_HELP: &str = "\
stdout is the answer, stderr is the talk, the exit code is the verdict:
0 done and proven, 1 ran and the answer is no, 2 misuse or failure, 130 on Ctrl-C.
`link run` and `link exec` pass the program's own exit code on.
Making a path needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or a kernel that lets users make user
namespaces; link up and cc load need root. quiz, dial and lab --loopback need neither.
The ledger of changes is kept in LASTBYTE_STATE_DIR, by default /var/lib/lastbyte for root and
the user's state directory for others.";

/// TCP tells you that your bytes were sent. lastbyte makes sure that they arrived, and tells the
/// truth about it.
#[derive(Debug, Parser)]
#[command(name = "lastbyte", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Quiz(QuizArgs),
    Lab(Box<LabArgs>),
    Link(LinkArgs),
    Cc(CcArgs),
    Dial(Box<DialArgs>),
    Gate(Box<GateArgs>),
    Doctor(Box<DoctorArgs>),
    Explain(ExplainArgs),
    Heal(HealArgs),
    Changes(ChangesArgs),
    Undo(UndoArgs),
    Demo(DemoArgs),
    #[command(hide = true)]
    LinkInit(InitArgs),
    #[command(hide = true)]
    LinkCarry(CarryArgs),
    #[command(hide = true)]
    DoctorPatient(PatientArgs),
}

impl Command {
    /// Whether it makes a path that ends with it. One that stays needs more than the rights over it.
    pub(crate) fn needs_a_path(&self) -> bool {
        match self {
            Self::Quiz(args) => !args.path.is_empty(),
            Self::Lab(args) => args.needs_a_path(),
            Self::Link(args) => matches!(args.command, LinkCommand::Run(_)),
            Self::Demo(_) => true,
            _ => false,
        }
    }
}

/// Count how many of a million written bytes arrive, for five ways to end a connection.
///
/// One program connects, writes, and ends the connection; the other greets with a line that the
/// first never reads, and counts. Over loopback, which needs no rights, or over an emulated path.
/// The verdict is about `finish`: whether all of its runs arrived whole, and were proven.
#[derive(Clone, Debug, Args)]
pub(crate) struct QuizArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Runs of each way
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) runs: u32,
    /// Bytes written in each run
    #[arg(long, default_value = "1000000", allow_hyphen_values = true)]
    pub(crate) bytes: ByteSize,
    /// The ways to try, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) method: Vec<MethodWord>,
    /// Connections side by side [default: 1 over loopback, 10 over a path]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) at_once: Option<u32>,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodWord {
    /// close()
    Close,
    /// SO_LINGER of 30 s, then close()
    Linger,
    /// sendfile() of a file, then close()
    Sendfile,
    /// shutdown(SHUT_WR), read to the end, close()
    Shutdown,
    /// Stream::finish of this library
    Finish,
}

/// Make a bad network on this machine, and run programs in it.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    pub(crate) command: LinkCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    Run(LinkRunArgs),
    Check(LinkCheckArgs),
    Record(LinkRecordArgs),
    Up(LinkUpArgs),
    Exec(LinkExecArgs),
    Set(LinkSetArgs),
    Stats(LinkStatsArgs),
    /// Take a network made by `link up` away, and say what it did
    Down {
        /// Its name
        name: String,
    },
    /// List networks made by `link up`
    List,
    /// List the scenarios that come with lastbyte
    Scenarios,
}

/// Run a program on the near end of a bad network that lasts as long as it does.
///
/// Both ends are network namespaces without any other way out. The program finds the addresses as
/// `near` and `far`, and in LASTBYTE_NEAR and LASTBYTE_FAR. All that it started ends with it.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkRunArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// A shell command to run on the far end, such as a server: it is started first, and the program
    /// waits up to 5 s for it to listen
    #[arg(long, value_name = "COMMAND")]
    pub(crate) far: Option<String>,
    /// Do not say at the end what the link did
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Write what the link did to a file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// Measure whether a bad network does what was asked of it.
///
/// Sends probes of its own over fresh links, stamps them at both ends with one clock, and compares
/// all that the path asks for with what it got, and what the link counts with what arrived. About
/// 10 s for a path, and as long as its last cut within 50 s or change within 20 s. Exit code 1: a
/// figure is outside of its tolerance, or could not be measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkCheckArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Check all scenarios that come with lastbyte
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Record a real path as a scenario for `link run`.
///
/// Asks a host with small echo requests and short trains of full ones, from this end alone, and prints
/// a scenario that behaves like the path: delay, jitter, losses, rate and queue, each with what it
/// rests on and what one end cannot know. About 15 s. Needs no rights where
/// net.ipv4.ping_group_range lets the user's group ask. Exit code 1: the host did not answer.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkRecordArgs {
    /// A name or an address
    pub(crate) host: String,
    /// How long small probes are sent; trains follow for some seconds more
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// What all trains together may send [default: 6MB]; a long queue in front of a fast link takes
    /// more to be seen
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", conflicts_with = "tcp")]
    pub(crate) budget: Option<ByteSize>,
    /// Ask by TCP connects to this port instead: says nothing of rate and queue
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) tcp: Option<u16>,
    /// Over IPv4
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Over IPv6
    #[arg(short = '6')]
    pub(crate) ipv6: bool,
    /// Write the scenario to this file, and print a table of the figures
    #[arg(long, short, value_name = "FILE.toml")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a bad network that lasts until `link down`, and enter it in the ledger.
///
/// Between two hosts, or of many: a topology, by name or as a file of hosts, links and routes. Its hosts
/// are the network namespaces lastbyte-NAME-near and lastbyte-NAME-far, or lastbyte-NAME-HOST, for
/// `link exec` and for `ip netns exec`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkUpArgs {
    /// Its name: small letters, digits and dashes
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) path: PathArgs,
}

/// Run a program on one end of a network made by `link up`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkExecArgs {
    /// The network's name
    pub(crate) name: String,
    /// The host to run on: near or far, or one of a topology's
    pub(crate) host: String,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// Say what a network made by `link up` has done so far.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkStatsArgs {
    /// The network's name
    pub(crate) name: String,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a network that is up different.
///
/// What is set holds at once: what waits for its transmission goes at the new rate, what is under way
/// arrives as it was to. Keys are those of a scenario file; `none` takes away. Such as
/// `link set wan loss 1% rate 10mbit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkSetArgs {
    /// The network's name
    pub(crate) name: String,
    /// The link, where the network has more than one
    #[arg(long)]
    pub(crate) link: Option<String>,
    /// In this direction alone
    #[arg(long)]
    pub(crate) way: Option<WayWord>,
    /// Keys and values in turn
    #[arg(required = true, num_args = 2.., value_name = "KEY VALUE")]
    pub(crate) words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WayWord {
    /// From near to far
    Up,
    /// From far to near
    Down,
}

impl From<WayWord> for Way {
    fn from(word: WayWord) -> Self {
        match word {
            WayWord::Up => Self::Up,
            WayWord::Down => Self::Down,
        }
    }
}

/// Connect to a host by the address that works, first, and draw how that came about.
///
/// Asks for IPv6 and IPv4 addresses at once, tries them side by side as RFC 8305 (Happy Eyeballs)
/// says, and prints what was asked, answered, tried and cancelled, and when.
///
/// With a file or a pipe on stdin, or with --send, it is an `nc` that finishes: it sends all of that,
/// prints what the peer sends on stdout as it comes, and says on stderr whether everything is proven
/// to have arrived. Ended before that, by Ctrl-C or a kill, it resets the connection, so that the
/// peer cannot take a part for the whole. It sends nothing where stdin is a terminal, closed or
/// /dev/null: a loop of a shell that has its list on stdin wants `</dev/null`.
///
/// Exit code 0: connected, and all that was sent is proven. 1: no attempt connected, or not all is
/// proven, or the peer reset the connection. 2: misuse, or no address was found.
#[derive(Clone, Debug, Args)]
pub(crate) struct DialArgs {
    /// A name or an address
    pub(crate) host: String,
    /// The port
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Print JSON Lines; reads no stdin, and what the peer sends is counted and thrown away
    #[arg(long)]
    pub(crate) json: bool,
    /// Dial so often, one after the other, and sum up; reads no stdin. What one dial learns of the
    /// addresses, the next one uses
    #[arg(long, value_name = "N", conflicts_with_all = ["send", "interactive"],
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) repeat: Option<u32>,
    /// Send this file, and print what the peer sends; `-` is stdin, also where that is a terminal,
    /// and /dev/null sends nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) send: Option<PathBuf>,
    /// Send what is typed, until Ctrl-D or the peer's end: as --send -
    #[arg(long, short, conflicts_with_all = ["send", "json"])]
    pub(crate) interactive: bool,
    /// What must be proven of all that is sent
    #[arg(long, value_name = "LEVEL", default_value = "acked")]
    pub(crate) want: WantWord,
    /// How long to wait for that proof once everything is written
    #[arg(long, allow_hyphen_values = true, value_name = "TIME", default_value = "30s")]
    pub(crate) proof_timeout: Span,
    /// How long to go on reading after that, if the peer does not end [default: for ever]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) wait: Option<Span>,
    /// Print nothing but what the peer sends, and what goes wrong
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) how: DialHow,
}

/// How to dial, and with which options of the socket.
#[derive(Clone, Debug, Args)]
pub(crate) struct DialHow {
    /// For the whole dial, names included
    #[arg(long, allow_hyphen_values = true, value_name = "TIME", default_value = "30s")]
    pub(crate) timeout: Span,
    /// Whom to ask for addresses
    #[arg(long, value_name = "WHO", default_value = "dns")]
    pub(crate) resolver: ResolverWord,
    /// Over IPv4
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Over IPv6
    #[arg(short = '6')]
    pub(crate) ipv6: bool,
    /// How long to wait for the IPv6 addresses once the others are there [default: 50ms]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) resolution_delay: Option<Span>,
    /// How long an attempt runs alone before the next one begins beside it [default: 200ms]
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) attempt_delay: Option<Span>,
    /// Connect from this address; once for each family
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Vec<IpAddr>,
    /// Use this interface alone
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// Mark the packets, for routes and filters; needs CAP_NET_ADMIN
    #[arg(long, value_name = "NUMBER")]
    pub(crate) mark: Option<u32>,
    /// The congestion control
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// The send buffer, instead of one sized by the kernel
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE")]
    pub(crate) send_buffer: Option<ByteSize>,
    /// The receive buffer, instead of one sized by the kernel
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE")]
    pub(crate) receive_buffer: Option<ByteSize>,
    /// How long bytes may stay unacknowledged before the kernel gives up (TCP_USER_TIMEOUT)
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) user_timeout: Option<Span>,
    /// Probe the peer after so long a silence, and as often from then on (SO_KEEPALIVE)
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub(crate) keepalive: Option<Span>,
    /// Ask for multipath TCP. Over it the kernel does not tell what was acknowledged: nothing that is
    /// sent can be proven
    #[arg(long)]
    pub(crate) mptcp: bool,
    /// Send the beginning of the input with the SYN where the peer allows that (TCP fast open). It may
    /// arrive twice, and at several servers of the name: only for what may be done twice
    #[arg(long)]
    pub(crate) fast_open: bool,
}

/// A level of delivery that TCP can prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WantWord {
    /// The peer's kernel acknowledged all of it
    Acked,
    /// And the peer ended its direction after that, within the same time
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResolverWord {
    /// DNS servers, as /etc/resolv.conf and /etc/hosts say
    Dns,
    /// getaddrinfo, as /etc/nsswitch.conf says
    System,
}

/// List what lastbyte has changed on this machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChangesArgs {
    /// Also those that were taken back or are gone
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take changes back.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct UndoArgs {
    /// Numbers from `lastbyte changes`
    pub(crate) id: Vec<u64>,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
}

/// Show in three minutes what this is about.
///
/// Act 1 loses bytes and saves them, over loopback. Acts 2 to 6, which need root or user namespaces,
/// send over an emulated path from the USA to Malaysia, find what fills it, connect to a name whose
/// first address is dead, put a gate beside a server, and let the doctor say what act 1 lost.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Seconds per run in acts 2 and 3
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct InitArgs {
    /// The process that has to be the parent still, as `/proc` counts.
    #[arg(long)]
    pub(crate) parent: Option<u32>,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CarryArgs {
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) path: PathArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_words_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_override_a_scenario() {
        let cli = ["lastbyte", "lab", "usa-malaysia", "--loss", "1%"];
        let Command::Lab(args) = Cli::parse_from(cli).command else { panic!("not lab") };
        let spec = args.path.must_have_scenario().unwrap().spec;
        assert_eq!(spec.to_string(), "RTT 217 ms, loss 1 %, 95 Mbit/s, queue 2.6 MB");
    }

    fn refused(arguments: &[&str]) -> String {
        let arguments = [&["lastbyte"], arguments].concat();
        Cli::try_parse_from(arguments).unwrap_err().to_string()
    }

    #[test]
    fn bad_values_are_refused_with_a_sentence() {
        assert!(refused(&["lab", "--loss", "-1%"]).contains("negative"));
        assert!(refused(&["lab", "--rate", "0"]).contains("rate"));
        assert!(refused(&["lab", "--rtt", "217"]).contains("unit"));
        assert!(refused(&["lab", "--buffer", "big"]).contains("buffer setting"));
        assert!(refused(&["lab", "--seconds", "0"]).contains("0"));
        assert!(refused(&["link", "run", "usa-malaysia"]).contains("COMMAND"));
        assert!(refused(&["undo"]).contains("--all"));
    }
}
