//! Which congestion controls are compared, and what the kernel gets for the time of it.

use anyhow::{Context, Result, bail, ensure};
use lastbyte_congestion::{
    Algorithm, CongestionError, Given, Registered, allowed, available, find, load,
};
use lastbyte_lab::Path;
use lastbyte_link::Way;
use lastbyte_units::BitRate;

use super::host::Far;
use super::words::MatrixArgs;
use crate::output::talk;

/// Stands for all there are.
const ALL: &str = "all";

/// What was loaded for an experiment. Dropped, it goes; if this process is killed, the kernel takes it.
#[derive(Default)]
pub(super) struct Brought(Vec<Registered>);

impl Brought {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(Registered::name).collect()
    }
}

/// Loads what is asked for and missing, where this machine sends.
pub(super) fn bring(matrix: &MatrixArgs, far: Option<&Far>) -> Result<Brought> {
    let mut brought = Brought::default();
    if far.is_some() && !sends(matrix, Way::Up) {
        return Ok(brought);
    }
    let available = available().unwrap_or_default();
    for (algorithm, rate) in wanted(&matrix.congestion, &available)? {
        match load(algorithm, Given { rate: rate.map(in_bytes) }) {
            // Somebody was faster.
            Err(CongestionError::Loaded { .. }) if rate.is_none() => {}
            other => brought.0.push(other.with_context(|| {
                let name = algorithm.plain;
                format!("congestion control `{name}` is not of this kernel, and cannot be loaded")
            })?),
        }
        if algorithm.wants_rate && rate.is_none() {
            talk(&format!(
                "lab: {0} has no rate, and sends slowly: `{0}=80mbit` gives it one",
                algorithm.plain
            ));
        }
    }
    if matrix.congestion.iter().any(|word| word == ALL) {
        bring_all(&mut brought, &available)?;
    }
    Ok(brought)
}

/// What is to be loaded for these words, each once, with its rate.
fn wanted(words: &[String], available: &[String]) -> Result<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for word in words.iter().filter(|word| *word != ALL) {
        let (name, rate) = split(word)?;
        let Some(algorithm) = missing(name, available) else {
            // What is not known at all is said of a name later.
            let is_there = there(name, available).is_some();
            ensure!(
                !(is_there && rate.is_some()),
                "{name} is there already: it takes no rate from here"
            );
            continue;
        };
        match wanted.iter().find(|(one, _)| *one == algorithm) {
            None => wanted.push((algorithm, rate)),
            Some((_, earlier)) => {
                ensure!(*earlier == rate, "{name} has one rate for the whole machine: give it one");
            }
        }
    }
    Ok(wanted)
}

/// An algorithm to be loaded, with the rate that it is to have.
type Wanted = (&'static Algorithm, Option<BitRate>);

/// A rate in bytes a second, of which one is the least that can be said.
fn in_bytes(rate: BitRate) -> u64 {
    (rate.bits_per_s() / 8).max(1)
}

/// Loads all that the kernel lacks, but for what needs a rate. Where nothing can be, says so: the
/// kernel's own are compared then.
fn bring_all(brought: &mut Brought, available: &[String]) -> Result<()> {
    let lacks = |one: &&Algorithm| {
        let has = |name: &str| available.iter().any(|there| there == name);
        let is_there = has(one.name) || (one.is_as_kernels && has(one.plain));
        !one.wants_rate && !is_there
    };
    for algorithm in lastbyte_congestion::all().iter().filter(lacks) {
        if brought.names().contains(&algorithm.name) {
            continue;
        }
        match load(algorithm, Given::default()) {
            Ok(registered) => brought.0.push(registered),
            // Somebody was faster.
            Err(CongestionError::Loaded { .. }) => {}
            // The others may do without.
            Err(error @ CongestionError::WantsPacing(_)) => talk(&format!("lab: {error}")),
            Err(error) if brought.is_empty() => {
                talk(&format!("lab: only what this kernel has by itself is compared: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The congestion controls asked for, or all that may be used.
pub(super) fn chosen(matrix: &MatrixArgs, path: &Path, far: Option<&Far>) -> Result<Vec<String>> {
    let asked = &matrix.congestion;
    // Who sends must have it.
    let (up, down) = (sends(matrix, Way::Up), sends(matrix, Way::Down));
    let mut available = match far {
        Some(far) if !up => far.remote.about().congestion.clone(),
        _ => available().unwrap_or_default(),
    };
    let far_alone = far.is_some() && !up;
    if let Some(far) = far.filter(|_| up && down) {
        available.retain(|name| far.remote.about().congestion.contains(name));
    }
    let mut names: Vec<String> = Vec::new();
    for word in asked.iter().filter(|word| *word != ALL) {
        let (name, _) = split(word)?;
        let who = if far.is_some() { "who sends" } else { "this kernel" };
        let Some(name) = there(name, &available) else {
            bail!(
                "congestion control `{name}` is not known: {who} offers {}{}",
                available.join(", "),
                if far_alone { "; `lastbyte cc load` there loads others" } else { "" }
            );
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() && asked.iter().all(|word| word != ALL) {
        return Ok(names);
    }
    let root = lastbyte_sys::process::effective_user() == 0;
    if root || far_alone || path.scenario().is_some() {
        return Ok(available);
    }
    let mut allowed = allowed().unwrap_or_default();
    allowed.retain(|name| available.contains(name));
    let left_out: Vec<_> = available.iter().filter(|name| !allowed.contains(name)).collect();
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|name| name.as_str()).collect();
        talk(&format!("lab: left out, because only root may use it here: {}", names.join(", ")));
    }
    Ok(allowed)
}

fn sends(matrix: &MatrixArgs, way: Way) -> bool {
    matrix.direction.iter().any(|direction| direction.ways().contains(&way))
}

/// A name, and the rate behind it: `brutal=80mbit`.
fn split(word: &str) -> Result<(&str, Option<BitRate>)> {
    match word.split_once('=') {
        None => Ok((word, None)),
        Some((name, rate)) => {
            let rate = rate.parse().with_context(|| format!("--congestion {word}"))?;
            Ok((name, Some(rate)))
        }
    }
}

/// The algorithm that has to be loaded before a name can be used.
fn missing(name: &str, available: &[String]) -> Option<&'static Algorithm> {
    if there(name, available).is_some() { None } else { find(name) }
}

/// What a name stands for, of what is there: itself, or ours of the same plain name.
fn there(name: &str, available: &[String]) -> Option<String> {
    let ours = find(name).map(|one| one.name);
    let names = [Some(name), ours].into_iter().flatten();
    names.map(str::to_owned).find(|name| available.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Vec<String> {
        ["reno", "cubic", "lb_vegas"].map(str::to_owned).to_vec()
    }

    #[test]
    fn the_kernels_own_comes_first() {
        assert_eq!(there("reno", &kernel()).as_deref(), Some("reno"));
        assert_eq!(there("vegas", &kernel()).as_deref(), Some("lb_vegas"));
        assert_eq!(there("lb_vegas", &kernel()).as_deref(), Some("lb_vegas"));
        assert_eq!(there("lb_reno", &kernel()), None);
        assert_eq!(missing("lb_reno", &kernel()), find("reno"));
        assert_eq!(missing("reno", &kernel()), None);
        assert_eq!(missing("veno", &kernel()), find("veno"));
        assert_eq!(missing("nothing", &kernel()), None);
    }

    #[test]
    fn each_is_wanted_once_with_its_rate() {
        let wanted = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let wanted = wanted(&words, &kernel());
            wanted.map(|all| all.iter().map(|(one, _)| one.plain).collect::<Vec<_>>())
        };
        assert_eq!(wanted(&["reno", "vegas", "all", "nothing", ""]).unwrap(), [""; 0]);
        assert_eq!(wanted(&["veno", "lb_veno", "veno"]).unwrap(), ["veno"]);
        assert_eq!(wanted(&["brutal=8mbit", "lb_brutal=8mbit"]).unwrap(), ["brutal"]);
        assert!(wanted(&["brutal", "brutal=8mbit"]).is_err());
        assert!(wanted(&["brutal=8mbit", "brutal=9mbit"]).is_err());
        assert!(wanted(&["vegas=8mbit"]).is_err(), "it is there");
        assert_eq!(wanted(&["all=8mbit"]).unwrap(), [""; 0], "which nothing is called");
        assert_eq!(in_bytes("1bit".parse().unwrap()), 1);
    }

    #[test]
    fn a_rate_follows_the_name() {
        assert_eq!(split("vegas").unwrap(), ("vegas", None));
        let (name, rate) = split("brutal=80mbit").unwrap();
        assert_eq!((name, rate.unwrap().bits_per_s()), ("brutal", 80_000_000));
        assert!(split("brutal=much").is_err());
    }
}
