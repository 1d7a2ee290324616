//! `lastbyte link`.

mod check;
mod persistent;
mod record;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lastbyte_link::{Host, Link, LinkFigures, Scenario, Topology};
use lastbyte_sandbox::{self as sandbox, Guest, Neighbour};

use crate::args::{InitArgs, LinkCommand, LinkRunArgs};
use crate::output::{Align, Table, talk};
use crate::verdict::Verdict;

pub(crate) use persistent::carry;

/// How long a server on the far end may take until it listens.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// Does what the words say.
pub(crate) fn run(command: LinkCommand) -> Result<Verdict> {
    match command {
        LinkCommand::Run(args) => run_program(&args),
        LinkCommand::Check(args) => check::run(&args),
        LinkCommand::Record(args) => record::run(&args),
        LinkCommand::Up(args) => persistent::up(&args),
        LinkCommand::Exec(args) => persistent::exec(&args),
        LinkCommand::Set(args) => persistent::set(&args),
        LinkCommand::Stats(args) => persistent::stats(&args),
        LinkCommand::Down { name } => persistent::down(&name),
        LinkCommand::List => persistent::list(),
        LinkCommand::Scenarios => list_scenarios(),
    }
}

fn list_scenarios() -> Result<Verdict> {
    let mut table = Table::new(&[("name", Align::Left), ("stands for; path", Align::Left)]);
    for scenario in Scenario::all()? {
        table.row(vec![scenario.name, scenario.title]);
        table.row(vec![String::new(), scenario.spec.to_string()]);
    }
    for (name, topology) in Topology::all()? {
        table.row(vec![name.to_owned(), topology.title().to_owned()]);
        let (hosts, links) = (topology.hosts().len(), topology.links().len());
        table.row(vec![String::new(), format!("for link up: {hosts} hosts, {links} links")]);
    }
    table.say();
    Ok(Verdict::Done)
}

/// Makes the path, runs the program in it, and says what the path did.
fn run_program(args: &LinkRunArgs) -> Result<Verdict> {
    let scenario = args.path.must_have_scenario()?;
    let report_to = args.report.as_deref().map(create).transpose()?;
    let link = Link::up(&scenario.spec, args.path.seed)?;
    sandbox::leave_terminal_signals_to_guests()?;
    let far = match args.far.as_deref().map(|command| start_server(&link, command)).transpose()? {
        Some(Server::Interrupted) => return Ok(Verdict::Of(sandbox::INTERRUPTED)),
        Some(Server::Runs(far)) => Some(far),
        None => None,
    };
    let code = Guest::start(link.near(), &Neighbour::of_path(), &args.command)?.wait()?;
    if let Some(far) = far {
        far.end()?;
    }
    let figures = LinkFigures::of(&scenario.name, &link.down()?);
    if !args.quiet {
        figures.lines("link").iter().for_each(|line| talk(line));
    } else if let Some(why) = &figures.broken_promise {
        talk(&format!("link: do not believe this run: {why}"));
    }
    if let Some(mut file) = report_to {
        writeln!(file, "{}", serde_json::to_string(&figures)?).context("writing the report")?;
    }
    Ok(Verdict::Of(code))
}

/// Is process 1 of a guest.
pub(crate) fn init(args: &InitArgs) -> Result<Verdict> {
    match sandbox::init(&args.command, args.parent) {
        Ok(code) => Ok(code.map_or(Verdict::Failed, Verdict::Of)),
        Err(error) => {
            let Some(code) = error.exit_code() else { return Err(error.into()) };
            talk(&format!("lastbyte: {error}"));
            Ok(Verdict::Of(code))
        }
    }
}

/// What came of starting the far program.
enum Server {
    Runs(Guest),
    /// Ctrl-C came first.
    Interrupted,
}

fn start_server(link: &Link, command: &str) -> Result<Server> {
    let shell = ["sh", "-c", command].map(str::to_owned);
    let far = Guest::start(link.host(Host::Far), &Neighbour::of_path(), &shell)?;
    if sandbox::listens(link.far(), &far, SERVER_PATIENCE)? {
        return Ok(Server::Runs(far));
    }
    if !far.has_ended() {
        let patience = SERVER_PATIENCE.as_secs();
        talk(&format!("link: `{command}` does not listen for TCP after {patience} s: going on"));
        return Ok(Server::Runs(far));
    }
    match far.wait()? {
        sandbox::INTERRUPTED => Ok(Server::Interrupted),
        code => bail!("the far program `{command}` ended with {code} before it listened"),
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write a report to {}", path.display()))
}
