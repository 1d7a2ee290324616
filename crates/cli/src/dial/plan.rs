//! Words to plan: all that can be wrong without the network is found here.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lastbyte_core::text::in_one_line;
use lastbyte_dial::{DialOptions, Families, Host, Resolver};
use lastbyte_socket::{ConnectOptions, Delivery, FinishOptions, Keepalive, SocketOptions};
use lastbyte_transfer::Input;
use lastbyte_units::{ByteSize, Span};

use crate::args::{DialArgs, DialHow, ResolverWord, WantWord};

/// RFC 8305 section 5: the connection attempt delay must not be less.
const LEAST_ATTEMPT_DELAY: Duration = Duration::from_millis(10);
/// No dial that somebody waits for takes longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The kernel's own number of keep-alive probes (`TCP_KEEPCNT`).
const KEEPALIVE_PROBES: u32 = 9;

/// What each dial is like.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) resolver: Resolver,
    pub(super) options: DialOptions,
    pub(super) finish: FinishOptions,
    /// How long to wait for the peer's end; `None` for ever.
    pub(super) wait: Option<Duration>,
    pub(super) voice: Voice,
}

/// What to do with the connection.
#[derive(Debug)]
pub(super) enum Task {
    Draw,
    Repeat(u32),
    Send(Input),
}

/// How to tell about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Text,
    Json,
    Quiet,
}

pub(super) fn plan(args: &DialArgs) -> Result<(Plan, Task)> {
    let voice = match (args.json, args.quiet) {
        (true, _) => Voice::Json,
        (_, true) => Voice::Quiet,
        _ => Voice::Text,
    };
    let want = match args.want {
        WantWord::Acked => Delivery::Acked,
        WantWord::Closed => Delivery::Closed,
    };
    if let Ok(Host::Literal(address)) = Host::parse(&args.host, args.port) {
        let is_v4 = address.is_ipv4();
        ensure!(!args.how.ipv6 || !is_v4, "{} is no IPv6 address, as -6 asks for", args.host);
        ensure!(!args.how.ipv4 || is_v4, "{} is no IPv4 address, as -4 asks for", args.host);
    }
    let deadline = positive("--proof-timeout", args.proof_timeout)?;
    let resolver = match args.how.resolver {
        ResolverWord::Dns => Resolver::dns()?,
        ResolverWord::System => Resolver::system(),
    };
    let plan = Plan {
        host: args.host.clone(),
        port: args.port,
        resolver,
        options: dial_options(&args.how)?,
        finish: FinishOptions::default().want(want).within(deadline),
        wait: args.wait.map(Span::as_duration),
        voice,
    };
    let task = match (args.repeat, input(args)?) {
        (Some(times), _) => Task::Repeat(times),
        (None, Some(input)) => Task::Send(input),
        (None, None) => Task::Draw,
    };
    if !matches!(task, Task::Send(_)) {
        ensure!(!args.how.fast_open, "--fast-open sends the beginning of an input: there is none");
        ensure!(args.wait.is_none(), "--wait is for the end of an answer: nothing is sent");
    }
    ensure!(
        args.wait.is_none() || want <= Delivery::Acked,
        "--wait is for what need not be proven: with --want closed the peer's end is waited for as \
         long as --proof-timeout says"
    );
    Ok((plan, task))
}

fn dial_options(how: &DialHow) -> Result<DialOptions> {
    let mut options = DialOptions::default();
    options.connect = connect_options(how)?;
    options.families = match (how.ipv4, how.ipv6) {
        (true, _) => Families::Ipv4,
        (_, true) => Families::Ipv6,
        _ => Families::Both,
    };
    let race = options.race;
    let delay = |option, asked: Option<Span>, usual| match asked {
        Some(asked) => bounded(option, asked),
        None => Ok(usual),
    };
    let attempt_delay = delay("--attempt-delay", how.attempt_delay, race.connection_attempt_delay)?;
    ensure!(
        attempt_delay >= LEAST_ATTEMPT_DELAY,
        "--attempt-delay: at least {} (RFC 8305, section 5)",
        Span::from(LEAST_ATTEMPT_DELAY)
    );
    options.race = race
        .resolution_delay(delay("--resolution-delay", how.resolution_delay, race.resolution_delay)?)
        .connection_attempt_delay(attempt_delay)
        .within(bounded("--timeout", Span::from(positive("--timeout", how.timeout)?))?);
    Ok(options)
}

fn connect_options(how: &DialHow) -> Result<ConnectOptions> {
    for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
        let count = how.source.iter().filter(|address| family(address)).count();
        ensure!(count <= 1, "--source: at most one address of each family");
    }
    let probed = |every: Span| -> Result<Keepalive> {
        let every = positive("--keepalive", every)?;
        Ok(Keepalive { idle: every, interval: every, probes: KEEPALIVE_PROBES })
    };
    if let Some(name) = &how.congestion {
        let available = lastbyte_congestion::available().unwrap_or_default();
        ensure!(
            available.is_empty() || available.contains(name),
            "congestion control `{}` is not known: this kernel offers {}",
            in_one_line(name),
            available.join(", ")
        );
    }
    let mut socket = SocketOptions::default();
    socket.congestion.clone_from(&how.congestion);
    socket.send_buffer = buffer("--send-buffer", how.send_buffer)?;
    socket.receive_buffer = buffer("--receive-buffer", how.receive_buffer)?;
    socket.user_timeout = how.user_timeout.map(Duration::from);
    socket.keepalive = how.keepalive.map(probed).transpose()?;
    socket.mark = how.mark;
    socket.interface.clone_from(&how.interface);
    let (sources, mptcp) = (how.source.clone(), how.mptcp);
    Ok(ConnectOptions::default().socket(socket).sources(sources).mptcp(mptcp))
}

fn positive(option: &str, time: Span) -> Result<Duration> {
    ensure!(time > Span::ZERO, "{option}: more than no time");
    Ok(time.as_duration())
}

fn bounded(option: &str, time: Span) -> Result<Duration> {
    ensure!(time.as_duration() <= LONGEST, "{option}: at most 24 h");
    Ok(time.as_duration())
}

/// The kernel takes a buffer's size as an `int`, and doubles it.
fn buffer(option: &str, size: Option<ByteSize>) -> Result<Option<u32>> {
    let Some(size) = size else { return Ok(None) };
    let bytes = u32::try_from(size.bytes()).ok().filter(|bytes| *bytes <= i32::MAX as u32 / 2);
    let bytes =
        bytes.with_context(|| format!("{option}: {size} is more than a socket can have"))?;
    Ok(Some(bytes))
}

/// What is to be sent, if anything is.
fn input(args: &DialArgs) -> Result<Option<Input>> {
    let stdin = io::stdin();
    let input = match &args.send {
        Some(path) if path != Path::new("-") => Some(Input::new(open(path)?, false)),
        None if args.repeat.is_some() || args.json => None,
        asked => {
            let typed = stdin.is_terminal();
            let file = stdin.as_fd().try_clone_to_owned().context("stdin")?;
            let file = File::from(file);
            let wanted = asked.is_some() || args.interactive || (!typed && !is_null(&file));
            wanted.then(|| Input::new(file, typed || args.interactive))
        }
    };
    let Some(mut input) = input else { return Ok(None) };
    if args.how.fast_open {
        input.read_early().context("reading the input")?;
    }
    Ok(Some(input))
}

fn open(path: &Path) -> Result<File> {
    let cannot = || format!("--send {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    if file.metadata().with_context(cannot)?.is_dir() {
        bail!("--send {}: a folder has no bytes to send", path.display());
    }
    Ok(file)
}

/// Whether it is /dev/null, as in the jobs of cron and under `ssh -n`; a closed stdin has become that
/// before `main`.
fn is_null(file: &File) -> bool {
    let (Ok(file), Ok(null)) = (file.metadata(), fs::metadata("/dev/null")) else { return false };
    file.file_type().is_char_device() && file.rdev() == null.rdev()
}
