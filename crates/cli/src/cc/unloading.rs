//! `lastbyte cc unload`.

use anyhow::{Result, anyhow, bail};
use lastbyte_changes::{Ledger, take_back_mount, unpin};
use lastbyte_congestion::{
    Algorithm, BPFFS, Holder, default_algorithm, find, holders, is_available,
};
use lastbyte_units::grouped;
use serde::Serialize;

use super::names;
use super::status::connections_with;
use super::words::UnloadArgs;
use crate::output::{left_alone, say, say_json, talk};
use crate::verdict::Verdict;

/// Unloads what is named: all of it, or, where one cannot be, nothing.
pub(super) fn unload(args: &UnloadArgs) -> Result<Verdict> {
    let holders = holders();
    let names = if args.all { all_of(&holders) } else { named(&args.names, &holders)? };
    let ledger = Ledger::of_this_user()?;
    for name in &names {
        let in_use = connections_with(name).unwrap_or_default();
        unpin(&ledger, name, &mut left_alone)?;
        if args.json {
            say_json(&Line { name, connections: in_use })?;
        } else {
            say(&format!("{name} is unloaded{}", connections(in_use)));
        }
        say_default(name);
    }
    unmount(&ledger)?;
    if names.is_empty() && !args.json {
        say("nothing is kept in the kernel");
    }
    Ok(Verdict::Done)
}

/// An algorithm that was unloaded.
#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    /// Of this network namespace, that keep it to their end.
    connections: u64,
}

/// Those that can be unloaded; says which cannot.
fn all_of(holders: &[(String, Holder)]) -> Vec<String> {
    let is_free = |holder: &Holder| matches!(holder, Holder::File(_) | Holder::Nobody);
    for (name, holder) in holders.iter().filter(|(_, holder)| !is_free(holder)) {
        talk(&format!("cc: {name} stays: it is {holder}"));
    }
    holders.iter().filter(|(_, holder)| is_free(holder)).map(|(name, _)| name.clone()).collect()
}

/// Those that are named, each once, if all of them can be unloaded.
fn named(words: &[String], holders: &[(String, Holder)]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for word in words {
        let Some(algorithm) = find(word) else { return Err(names::unknown(word)) };
        let held = holders.iter().find(|(name, _)| name == algorithm.name);
        let (name, holder) = held.ok_or_else(|| not_loaded(word, algorithm))?;
        match holder {
            Holder::File(_) | Holder::Nobody => {}
            Holder::Process { pid, .. } => {
                bail!("{name} is {holder}, and goes when that ends: `kill {pid}` ends it")
            }
            holder if lastbyte_sys::process::effective_user() != 0 => {
                bail!("{name} is {holder}; to unload it needs root")
            }
            holder => bail!("{name} is {holder}: it is not this command's to unload"),
        }
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

fn not_loaded(word: &str, algorithm: &Algorithm) -> anyhow::Error {
    let name = algorithm.name;
    if word != name && is_available(word).unwrap_or(false) {
        return anyhow!("{word} is the kernel's own, which stays, and {name} is not loaded");
    }
    anyhow!("{name} is not loaded")
}

/// Unmounts what was mounted to keep algorithms, once it keeps none.
fn unmount(ledger: &Ledger) -> Result<()> {
    let report = take_back_mount(ledger, &mut left_alone)?;
    for (_, why) in &report.failed {
        talk(&format!("cc: {why}"));
    }
    if !report.undone.is_empty() {
        talk(&format!("cc: {BPFFS} is unmounted again"));
    }
    Ok(())
}

/// What becomes of those that have it.
pub(super) fn connections(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => "; 1 connection has it, and keeps it to its end".to_owned(),
        _ => format!("; {} connections have it, and keep it to their end", grouped(count)),
    }
}

/// A default that is unloaded goes on being one.
pub(super) fn say_default(name: &str) {
    if default_algorithm().is_ok_and(|default| default == name) {
        talk(&format!(
            "cc: {name} is still the default of this network namespace, and new connections get it: \
             `sysctl net.ipv4.tcp_congestion_control=cubic` gives them another"
        ));
    }
}
