//! The program `torture`: plays the cases of `lastbyte_torture` against a proxy and prints a table.
//!
//! This crate forbids decisions about what is right: those are in the library. stdout is the
//! result, stderr the diagnostics, the exit code the verdict: 0 if all is as over plain TCP, 1 if
//! not, 2 for misuse or failure.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use lastbyte_link::Namespace;
use lastbyte_torture::tally::{self, Row};
use lastbyte_torture::{Case, Setup, Testbed, cases};
use lastbyte_units::Span;

/// Plays every way to end a TCP connection through a proxy, and reports what differs from plain
/// TCP.
///
/// The client connects to --proxy, the server listens on --upstream: the proxy has to connect there.
/// With both the same it is plain TCP.
#[derive(Debug, Parser)]
#[command(name = "torture", max_term_width = 100)]
struct Args {
    /// The proxy's address, which the client connects to.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "list")]
    proxy: Option<SocketAddr>,
    /// The address on which the server listens.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "list")]
    upstream: Option<SocketAddr>,
    /// Only cases whose name begins with one of these.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// How often each case is played, instead of its own number.
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// Also plays the cases that take long.
    #[arg(long)]
    long: bool,
    /// Prints a line of JSON for each case, with every run.
    #[arg(long)]
    json: bool,
    /// Lists the cases with what is expected and why.
    #[arg(long)]
    list: bool,
    /// How long an end waits for a byte or the end of the stream, beyond the round trip.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    deadline: Span,
    /// How much longer than the round trip each wait for a signal is.
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    settle: Span,
    /// The seed of content and of random exchanges.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A proxy whose upstream refuses connections; without it, our server does for a while.
    #[arg(long, value_name = "HOST:PORT")]
    refused: Option<SocketAddr>,
    /// A proxy whose upstream cannot be reached.
    #[arg(long, value_name = "HOST:PORT")]
    unreachable: Option<SocketAddr>,
    /// A proxy whose upstream never answers; without it, our server does not for a while.
    #[arg(long, value_name = "HOST:PORT")]
    timed_out: Option<SocketAddr>,
    /// A shell command that asks the proxy to stop, run in the middle of a transfer.
    #[arg(long, value_name = "COMMAND", conflicts_with = "kill")]
    stop: Option<String>,
    /// A shell command that kills the proxy, run in the middle of a transfer.
    #[arg(long, value_name = "COMMAND")]
    kill: Option<String>,
    /// The network namespace of the client.
    #[arg(long, value_name = "PATH")]
    proxy_namespace: Option<PathBuf>,
    /// The network namespace of the server.
    #[arg(long, value_name = "PATH")]
    upstream_namespace: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            log(&format!("torture: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let cases = chosen(args)?;
    let (Some(proxy), Some(upstream), false) = (args.proxy, args.upstream, args.list) else {
        for case in &cases {
            say(&described(case))?;
        }
        return Ok(true);
    };
    let testbed = Testbed::open(setup(args, proxy, upstream)?)?;
    let round_trip = testbed.waits().round_trip.as_secs_f64() * 1e3;
    log(&format!("torture: round trip {round_trip:.2} ms, seed {}", args.seed));
    let mut rows = Vec::new();
    for case in &cases {
        let row = tally::row(&testbed, case, args.runs);
        log(&format!("torture: {} {} of {}", row.case, row.good, row.of));
        if args.json {
            say(&serde_json::to_string(&row)?)?;
        }
        rows.push(row);
    }
    if !args.json {
        table(&rows)?;
    }
    Ok(rows.iter().all(Row::is_good))
}

/// The selected cases.
fn chosen(args: &Args) -> Result<Vec<Case>> {
    let named = |case: &Case, name: &str| case.name.starts_with(name);
    for name in &args.only {
        if !cases::all().iter().any(|case| named(case, name)) {
            bail!("--only {name}: no case has a name that begins so; --list names them");
        }
    }
    let wanted = |case: &Case| match args.only.as_slice() {
        [] => args.long || args.list || !case.long,
        names => names.iter().any(|name| named(case, name)) && (args.long || !case.long),
    };
    Ok(cases::all().into_iter().filter(wanted).collect())
}

fn setup(args: &Args, proxy: SocketAddr, upstream: SocketAddr) -> Result<Setup> {
    let open = |path: &Option<PathBuf>| path.as_deref().map(Namespace::open).transpose();
    Ok(Setup {
        proxy,
        upstream,
        proxy_namespace: open(&args.proxy_namespace)?,
        upstream_namespace: open(&args.upstream_namespace)?,
        refused: args.refused,
        unreachable: args.unreachable,
        timed_out: args.timed_out,
        deadline: args.deadline.as_duration(),
        settle: args.settle.as_duration(),
        seed: args.seed,
        stop: args.stop.clone(),
        kill: args.kill.clone(),
    })
}

fn described(case: &Case) -> String {
    let long = if case.long { " (--long)" } else { "" };
    format!(
        "{}{long}\n    {}\n    expected: {}\n    because {}",
        case.name,
        case.does,
        case.expected(),
        case.because
    )
}

fn table(rows: &[Row]) -> Result<()> {
    let headings = ["case", "expected", "seen", "good", "note"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let good = match row.of {
            0 => "not asked".to_owned(),
            of => format!("{} of {of}", row.good),
        };
        let note = if row.of == 0 {
            row.not_asked.unwrap_or_default().to_owned()
        } else {
            row.note.clone()
        };
        [row.case.clone(), row.expected.clone(), row.seen.clone(), good, note]
    });
    let lines: Vec<[String; 5]> = std::iter::once(headings).chain(cells).collect();
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3].map(width);
    for [case, expected, seen, good, note] in &lines {
        let [a, b, c, d] = widths;
        say(&format!("{case:a$}  {expected:b$}  {seen:c$}  {good:d$}  {note}"))?;
    }
    Ok(())
}

/// Prints a line of the result.
fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", line.trim_end())
}

/// Prints a line of diagnostics. A closed stderr is no failure.
fn log(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
