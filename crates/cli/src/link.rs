//! `lastbyte link`.

mod check;
mod record;

use std::time::Duration;

use anyhow::{Result, bail};
use lastbyte_link::{DirectionReport, Host, Link, Report, Scenario};
use lastbyte_units::grouped;

use crate::args::{LinkCommand, LinkRunArgs};
use crate::guest::{self, Guest};
use crate::kept;
use crate::output::{Align, Table, talk};
use crate::verdict::Verdict;

/// How long a server on the far end may take until it listens.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// Does what the words say.
pub(crate) fn run(command: LinkCommand) -> Result<Verdict> {
    match command {
        LinkCommand::Run(args) => run_program(&args),
        LinkCommand::Check(args) => check::run(&args),
        LinkCommand::Record(args) => record::run(&args),
        LinkCommand::Up(args) => kept::up(&args),
        LinkCommand::Exec(args) => kept::exec(&args),
        LinkCommand::Down { name } => kept::down(&name),
        LinkCommand::List => kept::list(),
        LinkCommand::Scenarios => list_scenarios(),
    }
}

fn list_scenarios() -> Result<Verdict> {
    let mut table = Table::new(&[("name", Align::Left), ("stands for; path", Align::Left)]);
    for scenario in Scenario::all()? {
        table.row(vec![scenario.name, scenario.title]);
        table.row(vec![String::new(), scenario.spec.to_string()]);
    }
    table.say();
    Ok(Verdict::Done)
}

/// Makes the path, runs the program in it, and says what the path did.
fn run_program(args: &LinkRunArgs) -> Result<Verdict> {
    let scenario = args.path.must_have_scenario()?;
    let link = Link::up(&scenario.spec, args.path.seed)?;
    guest::leave_terminal_signals_to_guests()?;
    let far = match args.far.as_deref().map(|command| start_server(&link, command)).transpose()? {
        Some(Server::Interrupted) => return Ok(Verdict::Of(guest::INTERRUPTED)),
        Some(Server::Runs(far)) => Some(far),
        None => None,
    };
    let code = Guest::start(link.near(), &args.command)?.wait()?;
    if let Some(far) = far {
        far.end()?;
    }
    let report = link.down()?;
    if !args.quiet {
        describe(&report);
    } else if let Some(why) = report.broken_promise() {
        talk(&format!("link: do not believe this run: {why}"));
    }
    Ok(Verdict::Of(code))
}

/// What came of starting the far program.
enum Server {
    Runs(Guest),
    /// Ctrl-C came first.
    Interrupted,
}

fn start_server(link: &Link, command: &str) -> Result<Server> {
    let shell = ["sh", "-c", command].map(str::to_owned);
    let far = Guest::start(link.host(Host::Far), &shell)?;
    if guest::listens(link.far(), &far, SERVER_PATIENCE)? {
        return Ok(Server::Runs(far));
    }
    if !far.has_ended() {
        let patience = SERVER_PATIENCE.as_secs();
        talk(&format!("link: `{command}` does not listen for TCP after {patience} s: going on"));
        return Ok(Server::Runs(far));
    }
    match far.wait()? {
        guest::INTERRUPTED => Ok(Server::Interrupted),
        code => bail!("the far program `{command}` ended with {code} before it listened"),
    }
}

/// Says what the path did, and whether to believe it.
fn describe(report: &Report) {
    let direction = |name: &str, direction: &DirectionReport| {
        let always = [("lost", direction.lost), ("dropped at the queue", direction.dropped)];
        let sometimes = [
            ("policed", direction.policed),
            ("marked", direction.marked),
            ("corrupted", direction.corrupted),
            ("duplicated", direction.duplicated),
        ];
        let sometimes = sometimes.into_iter().filter(|(_, packets)| *packets > 0);
        let fates = always.into_iter().chain(sometimes);
        let fates = fates.map(|(fate, packets)| format!(", {} {fate}", grouped(packets)));
        let fates: String = fates.collect();
        let waited = direction.queue_delay;
        let waited = if waited.max.is_zero() {
            String::new()
        } else {
            format!(", queued {} to {} (p50, p99)", ms(waited.p50), ms(waited.p99))
        };
        talk(&format!("link: {name} {} packets{fates}{waited}", grouped(direction.packets)));
    };
    direction("up  ", &report.up);
    direction("down", &report.down);
    if report.up.packets + report.down.packets == 0 {
        return;
    }
    let lateness = format!(
        "late by {} at the median, {} at 99 %, {} at most",
        ms(report.lateness.p50),
        ms(report.lateness.p99),
        ms(report.lateness.max)
    );
    match report.broken_promise() {
        None => talk(&format!("link: kept its promise: {lateness}")),
        Some(why) => talk(&format!("link: do not believe this run: {why}; {lateness}")),
    }
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
