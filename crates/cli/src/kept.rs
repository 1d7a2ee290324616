//! Links that outlive their command: `link up`, `exec`, `set`, `stats`, `down`, `list`.
//!
//! `link up` starts this binary again in the background (`link-carry`), which enters itself and both
//! namespaces into the ledger, each before it is made, and then carries packets and answers commands
//! until it is ended. A kill at any moment leaves nothing that the ledger does not know.

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use lastbyte_changes::{Change, ChangesError, Entry, Ledger};
use lastbyte_host::namespace::NAMES;
use lastbyte_link::{HostPlan, Namespace, Network, Report, Setting, Spec, Topology, Way};
use lastbyte_sys::process;

use crate::args::{CarryArgs, LinkExecArgs, LinkSetArgs, LinkStatsArgs, LinkUpArgs};
use crate::control::{self, Answer, Ear, Question, Wish};
use crate::guest::{self, Guest, Neighbour};
use crate::link::figures::LinkFigures;
use crate::output::{Align, Table, left_alone, say, say_json, talk};
use crate::verdict::Verdict;

/// What the carrier says when all is there.
const READY: &str = "ready\n";
/// How often a carrier looks whether its link still is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Room for a device's or file's name beside ours.
const LONGEST_NAME: usize = 32;

/// Makes a link that stays.
pub(crate) fn up(args: &LinkUpArgs) -> Result<Verdict> {
    check_name(&args.name)?;
    let topology = args.path.must_have_topology()?;
    ensure!(
        lastbyte_link::have_rights(),
        "a link that stays is kept in {NAMES}, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run \
         it as root, such as with sudo; `lastbyte link run` works without"
    );
    let ledger = Ledger::of_this_user()?;
    for entry in ledger.open_changes()? {
        is_free(&args.name, &entry)?;
    }
    let mut carrier = guest::in_background(&carry_words(args)).spawn()?;
    let mut said = String::new();
    if let Some(mut stdout) = carrier.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    if said != READY {
        carrier.wait()?;
        if said.is_empty() {
            // It was killed: what it has left is known by its own entry.
            take_back_after(&ledger, &args.name, i32::try_from(carrier.id())?)?;
            bail!("the carrier of link {} was ended before the link was up", args.name);
        }
        bail!("{}", said.trim());
    }
    say(&format!("link {} is up: {}", args.name, what_is(&topology)));
    let Answer::Neighbours(hosts) = ask(&args.name, &Question::Neighbours)? else {
        bail!("{NONSENSE}");
    };
    say(&hosts.iter().map(Neighbour::words).collect::<Vec<_>>().join(", "));
    let first = hosts.first().map_or("HOST", |host| host.name.as_str());
    say(&format!("use it:     lastbyte link exec {} {first} -- COMMAND", args.name));
    say(&format!("take away:  lastbyte link down {}", args.name));
    Ok(Verdict::Done)
}

/// A network on a line.
fn what_is(topology: &Topology) -> String {
    match topology.links() {
        [only] => only.spec().to_string(),
        links => {
            format!("{}: {} hosts, {} links", topology.title(), topology.hosts().len(), links.len())
        }
    }
}

/// Refuses a name that an open change holds.
fn is_free(name: &str, entry: &Entry) -> Result<(), ChangesError> {
    if entry.change.link() == Some(name) {
        return Err(ChangesError::Refused(format!(
            "there is a link {name} already: `lastbyte link down {name}` takes it away"
        )));
    }
    Ok(())
}

/// Takes back what a killed carrier has left.
fn take_back_after(ledger: &Ledger, name: &str, carrier: i32) -> Result<()> {
    let is_its =
        |entry: &Entry| matches!(entry.change, Change::Process { pid, .. } if pid == carrier);
    if ledger.open_changes()?.iter().any(is_its) { take_back(ledger, name) } else { Ok(()) }
}

/// The words by which the carrier is told the same.
fn carry_words(args: &LinkUpArgs) -> Vec<String> {
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
    match bring_up(args) {
        Ok((mut carried, ear)) => {
            say(READY);
            // The pipe to `link up` is closed by this; the link lives on.
            process::let_go_of_stdout()?;
            loop {
                ear.answer_one(LOOK_EVERY, &mut |question| carried.answer(question))?;
                carried.look_for_failures();
            }
        }
        Err(error) => {
            say(&format!("{error:#}"));
            Ok(Verdict::Failed)
        }
    }
}

/// Makes the network, each change entered before it is made; takes back what was made if one fails.
fn bring_up(args: &CarryArgs) -> Result<(Carried, Ear)> {
    let topology = args.path.must_have_topology()?;
    let ledger = Ledger::of_this_user()?;
    let what = format!("carries {}", what_is(&topology));
    let me = Change::process(&args.name, i32::try_from(std::process::id())?, &what)?;
    let me = ledger.plan_if(&me, &|entry| is_free(&args.name, entry))?;
    let mut kept = Vec::new();
    let made = (|| {
        ledger.made(me)?;
        let mut hosts = Vec::new();
        for host in topology.hosts() {
            hosts.push(keep(&ledger, &args.name, host.name(), &mut kept)?);
        }
        let network = Network::between(&topology, hosts, args.path.seed)?;
        Ok((Carried::new(&args.name, network), Ear::open(&args.name)?))
    })();
    if made.is_err() {
        for id in kept {
            ledger.undo(id, &mut left_alone)?;
        }
        // This process is about to end by itself.
        ledger.undone(me)?;
    }
    made
}

/// What a carrier carries.
#[derive(Debug)]
struct Carried {
    name: String,
    network: Network,
    /// What each link is like now.
    specs: Vec<Spec>,
    /// Why a link carries no more.
    failure: Option<String>,
}

impl Carried {
    fn new(name: &str, network: Network) -> Self {
        let specs = network.links().map(|(plan, _)| plan.spec().clone()).collect();
        Self { name: name.to_owned(), network, specs, failure: None }
    }

    /// A link that fails is told of to whoever asks, for as long as the network is there.
    fn look_for_failures(&mut self) {
        if let Some(error) = self.network.take_failure() {
            self.failure = Some(error.to_string());
        }
    }

    fn answer(&mut self, question: Question) -> Result<Answer> {
        Ok(match question {
            Question::Figures => {
                self.is_whole()?;
                let links = self.network.report()?;
                let figures =
                    |(link, report): &(String, Report)| LinkFigures::of(self.name_of(link), report);
                Answer::Figures(links.iter().map(figures).collect())
            }
            Question::Neighbours => {
                Answer::Neighbours(self.network.hosts().map(|(host, _)| neighbour(host)).collect())
            }
            Question::Set(wish) => self.set(&wish)?,
        })
    }

    /// What the reader knows a link by: the only one by the name that it was made with.
    fn name_of<'a>(&'a self, link: &'a str) -> &'a str {
        if self.specs.len() == 1 { &self.name } else { link }
    }

    fn is_whole(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |why| Err(anyhow!("it has failed: {why}")))
    }

    fn set(&mut self, wish: &Wish) -> Result<Answer> {
        self.is_whole()?;
        let names: Vec<&str> =
            self.network.links().map(|(plan, _)| self.name_of(plan.name())).collect();
        let place = match &wish.link {
            Some(link) => names.iter().position(|name| name == link),
            None => Some(0).filter(|_| names.len() == 1),
        };
        let there_are = names.join(", ");
        let place = match (place, &wish.link) {
            (Some(place), _) => place,
            (None, Some(link)) => bail!("there is no link {link} here: there are {there_are}"),
            (None, None) => bail!("which link? Say --link and one of {there_are}"),
        };
        let way = wish.way.as_deref().map(|way| match way {
            "up" => Ok(Way::Up),
            "down" => Ok(Way::Down),
            other => bail!("`{other}` is no direction"),
        });
        let words = wish.words.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let setting = Setting::from_pairs(words, way.transpose()?)?;
        let spec = setting.of(&self.specs[place], &wish.folder)?;
        let (_, link) = self.network.links().nth(place).context("it was there a moment ago")?;
        link.become_path(&spec)?;
        let answer = Answer::Set(names[place].to_owned(), spec.to_string());
        self.specs[place] = spec;
        Ok(answer)
    }
}

/// A host by the addresses that do not depend on where one comes from.
fn neighbour(host: &HostPlan) -> Neighbour {
    let (v4, v6) = (host.address().into(), host.address_v6().map(IpAddr::from));
    Neighbour { name: host.name().to_owned(), addresses: std::iter::once(v4).chain(v6).collect() }
}

/// Makes a namespace and keeps it under a name, entered in the ledger before; its number goes into
/// `kept`.
fn keep(ledger: &Ledger, link: &str, host: &str, kept: &mut Vec<u64>) -> Result<Namespace> {
    let path = namespace_path(link, host);
    let namespace = Namespace::create()?;
    let id = ledger.plan(&Change::Namespace { link: link.to_owned(), path: path.clone() })?;
    std::fs::create_dir_all(NAMES)?;
    if let Err(error) = std::fs::File::options().write(true).create_new(true).open(&path) {
        // Not ours, so not ours to take back either.
        ledger.undone(id)?;
        return Err(error).with_context(|| format!("cannot make {}", path.display()));
    }
    kept.push(id);
    namespace.keep_at(&path)?;
    ledger.made(id)?;
    Ok(namespace)
}

/// Where `ip netns` keeps namespaces too: so `ip netns exec lastbyte-NAME-near` works as well.
fn namespace_path(link: &str, host: &str) -> PathBuf {
    Path::new(NAMES).join(format!("lastbyte-{link}-{host}"))
}

/// Runs a program on one end of a kept link.
pub(crate) fn exec(args: &LinkExecArgs) -> Result<Verdict> {
    let Answer::Neighbours(hosts) = ask(&args.name, &Question::Neighbours)? else {
        bail!("{NONSENSE}");
    };
    let names = || hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
    ensure!(
        hosts.iter().any(|host| host.name == args.host),
        "there is no host {} on {}: there are {}",
        args.host,
        args.name,
        names()
    );
    let namespace = Namespace::open(&namespace_path(&args.name, &args.host))?;
    guest::leave_terminal_signals_to_guests()?;
    Ok(Verdict::Of(Guest::start(&namespace, &hosts, &args.command)?.wait()?))
}

/// Makes a kept link different.
pub(crate) fn set(args: &LinkSetArgs) -> Result<Verdict> {
    let pairs = args.words.chunks(2).map(|pair| match pair {
        [key, value] => Ok((key.clone(), value.clone())),
        _ => bail!("`{}` has no value: write KEY VALUE, such as loss 1%", pair.join(" ")),
    });
    let wish = Wish {
        link: args.link.clone(),
        way: args.way.map(|way| Way::from(way).to_string()),
        words: pairs.collect::<Result<_>>()?,
        folder: std::env::current_dir()?,
    };
    let Answer::Set(link, now) = ask(&args.name, &Question::Set(wish))? else {
        bail!("{NONSENSE}");
    };
    say(&format!("link {link} is now: {now}"));
    Ok(Verdict::Done)
}

/// Says what a kept link has done so far.
pub(crate) fn stats(args: &LinkStatsArgs) -> Result<Verdict> {
    let Answer::Figures(links) = ask(&args.name, &Question::Figures)? else { bail!("{NONSENSE}") };
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

/// Takes a kept link away, and says what it did.
pub(crate) fn down(name: &str) -> Result<Verdict> {
    check_name(name)?;
    let ledger = Ledger::of_this_user()?;
    ensure!(
        !entries_of(&ledger, name)?.is_empty(),
        "there is no link {name}: `lastbyte link list` lists them"
    );
    // One that is dead or does not answer is taken away all the same.
    match ask(name, &Question::Figures) {
        Ok(Answer::Figures(links)) => {
            links.iter().for_each(|figures| figures.describe(&figures.link));
        }
        Ok(_) => talk(&format!("lastbyte: {NONSENSE}")),
        Err(error) => talk(&format!("lastbyte: what it did is not known: {error:#}")),
    }
    take_back(&ledger, name)?;
    say(&format!("link {name} is gone"));
    Ok(Verdict::Done)
}

const NONSENSE: &str = "the carrier answered something else: is it of another version of lastbyte?";

/// Asks the carrier of a kept link.
fn ask(name: &str, question: &Question) -> Result<Answer> {
    check_name(name)?;
    let entries = entries_of(&Ledger::of_this_user()?, name)?;
    let carrier = entries.iter().find_map(|entry| match &entry.change {
        Change::Process { pid, .. } => Some((*pid, entry.change.is_running())),
        _ => None,
    });
    match carrier {
        None => bail!(
            "there is no link {name}: `lastbyte link list` lists them, `lastbyte link up` makes one"
        ),
        Some((_, false)) => bail!(
            "the carrier of link {name} is dead: `lastbyte link down {name}` takes the rest away"
        ),
        Some((pid, true)) => control::ask(name, pid, question),
    }
}

/// Undoes all of a link's changes: one that fails does not stop the others.
fn take_back(ledger: &Ledger, name: &str) -> Result<()> {
    let is_its = |entry: &Entry| entry.change.link() == Some(name);
    let mut failed = ledger.undo_where(&is_its, &mut left_alone)?.failed;
    let last = failed.pop();
    for (_, error) in failed {
        talk(&format!("lastbyte: {error}"));
    }
    last.map_or(Ok(()), |(_, error)| Err(error.into()))
}

fn entries_of(ledger: &Ledger, name: &str) -> Result<Vec<Entry>> {
    let mut entries = ledger.open_changes()?;
    entries.retain(|entry| entry.change.link() == Some(name));
    Ok(entries)
}

/// Lists kept links.
pub(crate) fn list() -> Result<Verdict> {
    let mut table = Table::new(&[("name", Align::Left), ("link", Align::Left)]);
    let mut any = false;
    for entry in Ledger::of_this_user()?.open_changes()? {
        if let Change::Process { link, what, .. } = &entry.change {
            any = true;
            let state =
                if entry.change.is_running() { what.as_str() } else { "its carrier is dead" };
            table.row(vec![link.clone(), state.to_owned()]);
        }
    }
    if any {
        table.say();
    } else {
        say("no link is up");
    }
    Ok(Verdict::Done)
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(allowed),
        "`{name}` is no name for a link: use up to {LONGEST_NAME} small letters, digits and dashes"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_folder() {
        for good in ["a", "to-malaysia", "x86"] {
            check_name(good).unwrap();
        }
        for bad in ["", "../x", "a/b", "A", "a b", &"x".repeat(33), "ü"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
