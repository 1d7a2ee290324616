//! Links that outlive their command: `link up`, `exec`, `down`, `list`.
//!
//! `link up` starts this binary again in the background (`link-carry`), which enters itself and both
//! namespaces into the ledger, each before it is made, and then carries packets until it is ended.
//! A kill at any moment leaves nothing that the ledger does not know.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lastbyte_link::{Host, Link, Namespace};
use lastbyte_sys::process;

use crate::args::{CarryArgs, LinkExecArgs, LinkUpArgs};
use crate::guest::{self, Guest};
use crate::ledger::{Change, Entry, Ledger};
use crate::output::{Align, Table, say, talk};
use crate::verdict::Verdict;

/// Where `ip netns` keeps namespaces too: so `ip netns exec lastbyte-NAME-near` works as well.
const NAMESPACES: &str = "/run/netns";
/// What the carrier says when all is there.
const READY: &str = "ready\n";
/// Room for a device's or file's name beside ours.
const LONGEST_NAME: usize = 32;

/// Makes a link that stays.
pub(crate) fn up(args: &LinkUpArgs) -> Result<Verdict> {
    check_name(&args.name)?;
    let scenario = args.path.must_have_scenario()?;
    ensure!(
        entries_of(&args.name)?.is_empty(),
        "there is a link {0} already: `lastbyte link down {0}` takes it away",
        args.name
    );
    let mut carrier = guest::in_background(&carry_words(args)).spawn()?;
    let mut said = String::new();
    if let Some(mut stdout) = carrier.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    if said != READY {
        carrier.wait()?;
        // What it had made until then.
        take_back(&args.name)?;
        bail!("{}", said.trim().trim_start_matches("lastbyte: "));
    }
    say(&format!("link {} is up: {}", args.name, scenario.spec));
    say(&format!(
        "near has {}, far has {}",
        guest::addresses(Host::Near),
        guest::addresses(Host::Far)
    ));
    say(&format!("use it:     lastbyte link exec {} near -- COMMAND", args.name));
    say(&format!("take away:  lastbyte link down {}", args.name));
    Ok(Verdict::Done)
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
    words
}

/// The life of the carrier. Its answer goes to stdout: [`READY`] or what went wrong.
pub(crate) fn carry(args: &CarryArgs) -> Result<Verdict> {
    match bring_up(args) {
        Ok(link) => {
            say(READY);
            // The pipe to `link up` is closed by this; the link lives on.
            process::let_go_of_stdout()?;
            link.wait()?;
            Ok(Verdict::Done)
        }
        Err(error) => {
            say(&format!("{error:#}"));
            Ok(Verdict::Failed)
        }
    }
}

fn bring_up(args: &CarryArgs) -> Result<Link> {
    let scenario = args.path.must_have_scenario()?;
    let ledger = Ledger::of_this_user()?;
    let what = format!("carries {}", scenario.spec);
    let me = Change::process(&args.name, i32::try_from(std::process::id())?, &what)?;
    let me = ledger.plan(&me)?;
    ledger.made(me)?;
    let near = keep(&ledger, &args.name, "near")?;
    let far = keep(&ledger, &args.name, "far")?;
    Ok(Link::between(near, far, &scenario.spec, args.path.seed)?)
}

/// Makes a namespace and keeps it under a name, entered in the ledger before.
fn keep(ledger: &Ledger, link: &str, host: &str) -> Result<Namespace> {
    let path = namespace_path(link, host);
    let namespace = Namespace::create()?;
    let id = ledger.plan(&Change::Namespace { link: link.to_owned(), path: path.clone() })?;
    std::fs::create_dir_all(NAMESPACES)?;
    let file = std::fs::File::options().write(true).create_new(true).open(&path);
    file.with_context(|| format!("cannot make {}", path.display()))?;
    namespace.keep_at(&path)?;
    ledger.made(id)?;
    Ok(namespace)
}

fn namespace_path(link: &str, host: &str) -> PathBuf {
    Path::new(NAMESPACES).join(format!("lastbyte-{link}-{host}"))
}

/// Runs a program on one end of a kept link.
pub(crate) fn exec(args: &LinkExecArgs) -> Result<Verdict> {
    check_name(&args.name)?;
    let host = match Host::from(args.host) {
        Host::Near => "near",
        Host::Far => "far",
    };
    let path = namespace_path(&args.name, host);
    ensure!(
        path.exists(),
        "there is no link {}: `lastbyte link list` lists them, `lastbyte link up` makes one",
        args.name
    );
    let namespace = Namespace::open(&path)?;
    guest::leave_terminal_signals_to_guests()?;
    Ok(Verdict::Of(Guest::start(&namespace, &args.command)?.wait()?))
}

/// Takes a kept link away.
pub(crate) fn down(name: &str) -> Result<Verdict> {
    check_name(name)?;
    ensure!(!entries_of(name)?.is_empty(), "there is no link {name}");
    take_back(name)?;
    say(&format!("link {name} is gone"));
    Ok(Verdict::Done)
}

/// Undoes all of a link's changes, newest first: one that fails does not stop the others.
fn take_back(name: &str) -> Result<()> {
    let ledger = Ledger::of_this_user()?;
    let mut failed = None;
    for entry in entries_of(name)?.into_iter().rev() {
        if let Err(error) = ledger.undo(entry.id) {
            talk(&format!("lastbyte: {error:#}"));
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

fn entries_of(name: &str) -> Result<Vec<Entry>> {
    let mut entries = Ledger::of_this_user()?.open_changes()?;
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
