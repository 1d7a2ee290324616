//! From a word to an algorithm.

use anyhow::{Result, anyhow};
use lastbyte_congestion::{Algorithm, all, available, find};

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
    if available().is_ok_and(|names| names.iter().any(|name| name == word)) {
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
        slips(plain, one.plain).min(if begins { 1 } else { usize::MAX })
    };
    let all = || all().iter().filter(|_| plain.len() <= 32);
    let nearest = all().map(far_off).min().filter(|nearest| *nearest <= most);
    let names = all().filter(|one| Some(far_off(one)) == nearest);
    names.map(|one| one.plain).collect()
}

/// How many letters have to be put in, taken out or changed to make one word of another (Levenshtein
/// 1966).
fn slips(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // The distances from the letters of `from` so far to each beginning of `to`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (index, other) in to.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[index + 1];
            row[index + 1] = change.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        assert_eq!(slips("vegas", "vegas"), 0);
        assert_eq!(slips("vegs", "vegas"), 1);
        assert_eq!(slips("kitten", "sitting"), 3);
        assert_eq!((slips("", "nv"), slips("nv", "")), (2, 2));
    }

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
