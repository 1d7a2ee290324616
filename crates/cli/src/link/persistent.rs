//! `lastbyte link up`, `exec`, `set`, `stats`, `down` and `list`: links that outlive their command.

use anyhow::{Result, bail};
use lastbyte_link::Way;
use lastbyte_persistent::{
    Carrier, PersistentError, PersistentLink, READY, SetRequest, check_name, describe,
    list as all_links, up as bring_up,
};
use lastbyte_sandbox::{Guest, Neighbour, leave_terminal_signals_to_guests};
use lastbyte_sys::process;

use crate::args::{CarryArgs, LinkExecArgs, LinkSetArgs, LinkStatsArgs, LinkUpArgs};
use crate::output::{Align, Table, left_alone, say, say_json, talk};
use crate::verdict::Verdict;

/// Makes a link that stays.
pub(super) fn up(args: &LinkUpArgs) -> Result<Verdict> {
    check_name(&args.name)?;
    let topology = args.path.must_have_topology()?;
    let link = bring_up(&args.name, &carrier_args(args), &mut left_alone)?;
    say(&format!("link {} is up: {}", args.name, describe(&topology)));
    let hosts = link.hosts()?;
    say(&hosts.iter().map(Neighbour::to_string).collect::<Vec<_>>().join(", "));
    let first = hosts.first().map_or("HOST", |host| host.name.as_str());
    say(&format!("use it:     lastbyte link exec {} {first} -- COMMAND", args.name));
    say(&format!("take away:  lastbyte link down {}", args.name));
    Ok(Verdict::Done)
}

/// The arguments by which the carrier gets the same.
fn carrier_args(args: &LinkUpArgs) -> Vec<String> {
    let path = &args.path;
    let mut words = vec!["link-carry".to_owned(), args.name.clone()];
    words.extend(path.scenario.clone());
    let options = [
        ("rtt", path.rtt.map(|value| value.to_string())),
        ("loss", path.loss.map(|value| value.to_string())),
        ("rate", path.rate.map(|value| value.to_string())),
        ("queue", path.queue.map(|value| value.to_string())),
        ("seed", Some(path.seed.to_string())),
    ];
    for (option, value) in options {
        words.extend(value.map(|value| format!("--{option}={value}")));
    }
    words.extend(path.set.iter().map(|(key, value)| format!("--set={key}={value}")));
    words
}

/// The life of the carrier. Its answer goes to stdout: [`READY`] or what went wrong.
pub(crate) fn carry(args: &CarryArgs) -> Result<Verdict> {
    let topology = args.path.must_have_topology();
    let carrier = topology.and_then(|topology| {
        Ok(Carrier::bring_up(&args.name, &topology, args.path.seed, &mut left_alone)?)
    });
    match carrier {
        Ok(carrier) => {
            say(READY);
            // The pipe to `link up` is closed by this; the link lives on.
            process::let_go_of_stdout()?;
            carrier.serve()?;
            Ok(Verdict::Done)
        }
        Err(error) => {
            say(&format!("{error:#}"));
            Ok(Verdict::Failed)
        }
    }
}

/// Runs a program on one end of a link.
pub(super) fn exec(args: &LinkExecArgs) -> Result<Verdict> {
    let link = PersistentLink::named(&args.name)?;
    let hosts = link.hosts()?;
    let namespace = link.open(&args.host, &hosts)?;
    leave_terminal_signals_to_guests()?;
    Ok(Verdict::Of(Guest::start(&namespace, &hosts, &args.command)?.wait()?))
}

/// Makes a link different.
pub(super) fn set(args: &LinkSetArgs) -> Result<Verdict> {
    let pairs = args.words.chunks(2).map(|pair| match pair {
        [key, value] => Ok((key.clone(), value.clone())),
        _ => bail!("`{}` has no value: write KEY VALUE, such as loss 1%", pair.join(" ")),
    });
    let request = SetRequest {
        link: args.link.clone(),
        way: args.way.map(Way::from),
        words: pairs.collect::<Result<_>>()?,
        folder: std::env::current_dir()?,
    };
    let (link, now) = PersistentLink::named(&args.name)?.set(request)?;
    say(&format!("link {link} is now: {now}"));
    Ok(Verdict::Done)
}

/// Says what a link has done so far.
pub(super) fn stats(args: &LinkStatsArgs) -> Result<Verdict> {
    let links = PersistentLink::named(&args.name)?.figures()?;
    if args.json {
        links.iter().try_for_each(say_json)?;
        return Ok(Verdict::Done);
    }
    let mut columns = vec![("link", Align::Left), ("way", Align::Left)];
    let counts = ["packets", "bytes", "delivered", "bytes", "lost", "dropped", "policed", "marked"];
    columns.extend(counts.map(|count| (count, Align::Right)));
    columns.extend(["under way", "queued p50", "p99"].map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    for figures in &links {
        table.row(figures.up.row(&figures.link, "up"));
        table.row(figures.down.row(&figures.link, "down"));
    }
    table.say();
    for figures in &links {
        talk(&format!("{}: {}", figures.link, figures.truth()));
    }
    Ok(Verdict::Done)
}

/// Takes a link away, and says what it did.
pub(super) fn down(name: &str) -> Result<Verdict> {
    let link = PersistentLink::named(name)?;
    link.must_be_there()?;
    // One that is dead or does not answer is taken away all the same.
    match link.figures() {
        Ok(links) => {
            let lines = links.iter().flat_map(|figures| figures.lines(&figures.link));
            lines.for_each(|line| talk(&line));
        }
        Err(error @ PersistentError::OtherAnswer) => talk(&format!("lastbyte: {error}")),
        Err(error) => talk(&format!("lastbyte: what it did is not known: {error}")),
    }
    link.take_away(&mut left_alone)?;
    say(&format!("link {name} is gone"));
    Ok(Verdict::Done)
}

/// Lists links.
pub(super) fn list() -> Result<Verdict> {
    let links = all_links()?;
    if links.is_empty() {
        say("no link is up");
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&[("name", Align::Left), ("link", Align::Left)]);
    for (name, what) in links {
        table.row(vec![name, what.unwrap_or_else(|| "its carrier is dead".to_owned())]);
    }
    table.say();
    Ok(Verdict::Done)
}
