//! Algorithms for the time of an experiment: which are meant, and what the kernel gets.

use lastbyte_units::{BitRate, UnitError};

use crate::{Algorithm, CongestionError, Given, Registered, all, available, find, load};

/// Stands for all there are.
pub const ALL: &str = "all";

/// Why algorithms could not be borrowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BorrowError {
    /// The rate behind a name is none.
    #[error("--congestion {word}: {cause}")]
    Rate {
        /// The name with the rate.
        word: String,
        /// Why.
        cause: UnitError,
    },
    /// The algorithm is there, with the rate that it has.
    #[error("{0} is there already: it takes no rate from here")]
    ThereAlready(String),
    /// The same algorithm is asked for with two rates.
    #[error("{0} has one rate for the whole machine: give it one")]
    TwoRates(String),
    /// An algorithm that is asked for cannot be loaded.
    #[error("congestion control `{name}` is not of this kernel, and cannot be loaded: {cause}")]
    NotLoaded {
        /// Its plain name.
        name: &'static str,
        /// Why.
        cause: CongestionError,
    },
    /// One of all cannot be loaded, though others can.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
}

type Result<T, E = BorrowError> = std::result::Result<T, E>;

/// What was loaded for an experiment. Dropped, it goes; if this process is killed, the kernel takes it.
#[derive(Default)]
pub struct Borrowed(Vec<Registered>);

impl Borrowed {
    /// Whether the kernel had all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names in the kernel.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(Registered::name).collect()
    }
}

/// Loads what these words ask for and the kernel lacks. A word is a name, with a rate behind it or not, or
/// [`ALL`]. What should be known of it is reported to `tell`.
///
/// # Errors
/// A rate that is none, or that the algorithm cannot have; one that cannot be loaded.
pub fn borrow(words: &[String], tell: &mut dyn FnMut(&str)) -> Result<Borrowed> {
    let mut borrowed = Borrowed::default();
    let available = available().unwrap_or_default();
    for (algorithm, rate) in wanted(words, &available)? {
        match load(algorithm, Given { rate: rate.map(in_bytes) }) {
            // Somebody was faster.
            Err(CongestionError::Loaded { .. }) if rate.is_none() => {}
            Ok(registered) => borrowed.0.push(registered),
            Err(cause) => return Err(BorrowError::NotLoaded { name: algorithm.plain, cause }),
        }
        if algorithm.wants_rate && rate.is_none() {
            tell(&format!(
                "{0} has no rate, and sends slowly: `{0}=80mbit` gives it one",
                algorithm.plain
            ));
        }
    }
    if words.iter().any(|word| word == ALL) {
        borrow_all(&mut borrowed, &available, tell)?;
    }
    Ok(borrowed)
}

/// What is to be loaded for these words, each once, with its rate.
fn wanted(words: &[String], available: &[String]) -> Result<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for word in words.iter().filter(|word| *word != ALL) {
        let (name, rate) = split(word)?;
        let Some(algorithm) = missing(name, available) else {
            // What is not known at all is said of a name later.
            let is_there = there(name, available).is_some();
            if is_there && rate.is_some() {
                return Err(BorrowError::ThereAlready(name.to_owned()));
            }
            continue;
        };
        match wanted.iter().find(|(one, _)| *one == algorithm) {
            None => wanted.push((algorithm, rate)),
            Some((_, earlier)) if *earlier == rate => {}
            Some(_) => return Err(BorrowError::TwoRates(name.to_owned())),
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
fn borrow_all(
    borrowed: &mut Borrowed,
    available: &[String],
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let lacks = |one: &&Algorithm| {
        let has = |name: &str| available.iter().any(|there| there == name);
        let is_there = has(one.name) || (one.is_as_kernels && has(one.plain));
        !one.wants_rate && !is_there
    };
    for algorithm in all().iter().filter(lacks) {
        if borrowed.names().contains(&algorithm.name) {
            continue;
        }
        match load(algorithm, Given::default()) {
            Ok(registered) => borrowed.0.push(registered),
            // Somebody was faster.
            Err(CongestionError::Loaded { .. }) => {}
            // The others may do without.
            Err(error @ CongestionError::WantsPacing(_)) => tell(&error.to_string()),
            Err(error) if borrowed.is_empty() => {
                tell(&format!("only what this kernel has by itself is compared: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A name, and the rate behind it: `brutal=80mbit`.
///
/// # Errors
/// The rate is none.
pub fn split(word: &str) -> Result<(&str, Option<BitRate>)> {
    match word.split_once('=') {
        None => Ok((word, None)),
        Some((name, rate)) => {
            let rate = rate.parse();
            let rate = rate.map_err(|cause| BorrowError::Rate { word: word.to_owned(), cause })?;
            Ok((name, Some(rate)))
        }
    }
}

/// The algorithm that has to be loaded before a name can be used.
fn missing(name: &str, available: &[String]) -> Option<&'static Algorithm> {
    if there(name, available).is_some() { None } else { find(name) }
}

/// What a name stands for, of what is there: itself, or ours of the same plain name.
#[must_use]
pub fn there(name: &str, available: &[String]) -> Option<String> {
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
