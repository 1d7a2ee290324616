//! From a word to an algorithm.

use anyhow::{Result, anyhow};
use lastbyte_congestion::{Algorithm, all, find, is_available};
use strsim::levenshtein;

/// The algorithms of the catalogue that these words name, each once.
pub(super) fn in_catalogue(words: &[String]) -> Result<Vec<&'static Algorithm>> {
    let mut found = Vec::new();
    for word in words {
        let algorithm = find(word).ok_or_else(|| unknown(word))?;
        if !found.contains(&algorithm) {
            found.push(algorithm);
        }
    }
    Ok(found)
}

/// Why a word names nothing of the catalogue.
pub(super) fn unknown(word: &str) -> anyhow::Error {
    if is_available(word).unwrap_or(false) {
        return anyhow!("{word} is there already, and not of this catalogue: it stays as it is");
    }
    let mean = match near(word).as_slice() {
        [] => String::new(),
        names => format!(", did you mean {}?", names.join(" or ")),
    };
    let mark = if mean.is_empty() { ";" } else { "" };
    anyhow!("there is no congestion control `{word}`{mean}{mark} `lastbyte cc list` has all")
}

/// Names of the catalogue that are one or two slips of the finger away, the nearest alone.
fn near(word: &str) -> Vec<&'static str> {
    /// More would be another name.
    const SLIPS: usize = 2;
    // What is much longer than a name is no name; so is what is all slip.
    let most = SLIPS.min(word.len().saturating_sub(1));
    let word = word.to_lowercase();
    let plain = word.strip_prefix("lb_").unwrap_or(&word);
    let far_off = |one: &Algorithm| {
        let begins = plain.len() > 2 && one.plain.starts_with(plain);
        levenshtein(plain, one.plain).min(if begins { 1 } else { usize::MAX })
    };
    let all = || all().iter().filter(|_| plain.len() <= 32);
    let nearest = all().map(far_off).min().filter(|nearest| *nearest <= most);
    let names = all().filter(|one| Some(far_off(one)) == nearest);
    names.map(|one| one.plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        assert_eq!(near("vegsa"), ["vegas"]);
        assert_eq!(near("lb_cubik"), ["cubic"]);
        assert_eq!(near("Reno"), ["reno"]);
        assert_eq!(near("bbr3"), ["bbr"]);
        assert_eq!(near("scal"), ["scalable"]);
        assert!(near("x").is_empty() && near("").is_empty());
        assert!(near("frobnicate").is_empty() && near(&"v".repeat(10_000)).is_empty());
    }

    #[test]
    fn each_is_found_once_by_either_name() {
        let words = ["reno", "lb_reno", "vegas"].map(str::to_owned);
        let names: Vec<_> = in_catalogue(&words).unwrap().iter().map(|one| one.name).collect();
        assert_eq!(names, ["lb_reno", "lb_vegas"]);
        let error = in_catalogue(&["vegsa".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`vegsa`, did you mean vegas? `lastbyte cc list`"), "{error}");
    }
}
