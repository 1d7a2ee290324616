//! A change of an existing path, from a command line or a file.

use std::path::Path;

use super::keys::{Keys, SettingText};
use super::{ScenarioError, from_toml, half};
use crate::spec::{Direction, Marks, Spec, Way};

/// The name in errors, in place of a scenario's.
const SET: &str = "as set";

/// A change of a path.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The direction; `None` for both.
    pub(super) way: Option<Way>,
    pub(super) keys: Keys,
    pub(super) mtu: Option<u32>,
    /// Keys to be removed.
    pub(super) without: Vec<String>,
}

impl Setting {
    /// Reads keys of a scenario, as under `[[changes]]` but without a time.
    ///
    /// # Errors
    /// Names the key and the line.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let text: SettingText = from_toml(SET, text)?;
        let keys = Keys { delay: text.delay.or_else(|| half(text.rtt)), ..Keys::from(&text) };
        Ok(Self { way: text.way.map(Way::from), keys, mtu: text.mtu, without: text.without })
    }

    /// From the keys and values of a command line: texts without quotation marks, and `none` to remove a
    /// key; for one direction, or for both.
    ///
    /// # Errors
    /// Names the key.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        way: Option<Way>,
    ) -> Result<Self, ScenarioError> {
        let mut text = way.map(|way| format!("way = \"{way}\"\n")).unwrap_or_default();
        let mut without = Vec::new();
        for (key, value) in pairs {
            let is_key = |c: char| c.is_ascii_lowercase() || c == '_';
            if value == "none" || !key.chars().all(is_key) {
                without.push(key.to_owned());
            } else {
                text += &format!("{key} = {}\n", in_toml(value));
            }
        }
        let mut setting = Self::parse(&text)?;
        setting.without.extend(without);
        Ok(setting)
    }

    /// The path with this change, now and in all its scheduled changes. Files that it names are in
    /// `folder`.
    ///
    /// # Errors
    /// Where the path is then not possible, or a key is unknown.
    pub fn of(&self, spec: &Spec, folder: &Path) -> Result<Spec, ScenarioError> {
        let mut spec = spec.clone();
        spec.mtu = self.mtu.or(spec.mtu);
        let (name, folder) = (SET, Some(folder));
        self.apply(name, folder, [&mut spec.up, &mut spec.down])?;
        for change in &mut spec.changes {
            self.apply(name, folder, [&mut change.up, &mut change.down])?;
        }
        spec.check().map_err(|cause| ScenarioError::Spec { name: SET.to_owned(), cause })?;
        Ok(spec)
    }

    pub(super) fn apply(
        &self,
        name: &str,
        folder: Option<&Path>,
        directions: [&mut Direction; 2],
    ) -> Result<(), ScenarioError> {
        for (way, direction) in Way::BOTH.into_iter().zip(directions) {
            if self.way.is_some_and(|only| only != way) {
                continue;
            }
            for key in &self.without {
                if !remove(key, direction) {
                    let (name, key) = (name.to_owned(), key.clone());
                    return Err(ScenarioError::Without { name, key });
                }
            }
            self.keys.set(direction, folder)?;
        }
        Ok(())
    }
}

/// Removes a key; false for one that is unknown or cannot be absent.
fn remove(key: &str, direction: &mut Direction) -> bool {
    let none = Direction::default();
    match key {
        "delay" | "rtt" => direction.delay = none.delay,
        "jitter" | "jitter_table" => direction.jitter = None,
        "loss" => direction.loss = None,
        "burst_loss" => direction.burst_loss = None,
        "lose_every" => direction.lose_every = None,
        "corrupt" => direction.corrupt = None,
        "duplicate" => direction.duplicate = None,
        // A queue and its management need a rate.
        "rate" | "trace" => {
            (direction.rate, direction.trace, direction.queue) = (None, None, None);
            (direction.management, direction.marks) = (none.management, none.marks);
        }
        "queue" => direction.queue = None,
        "management" => {
            direction.management = none.management;
            if direction.marks == Marks::InsteadOfDrops {
                direction.marks = none.marks;
            }
        }
        "ecn" => direction.marks = none.marks,
        "policer" => direction.policer = None,
        "cuts" => direction.outages = none.outages,
        _ => return false,
    }
    true
}

/// A value in TOML: what is not a number, boolean, list or table becomes a string.
fn in_toml(value: &str) -> String {
    let alone = toml::from_str::<toml::Table>(&format!("value = {value}"));
    if !value.contains('\n') && alone.is_ok_and(|table| table.len() == 1) {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn spec(toml: &str) -> Spec {
        Scenario::parse("test", toml).unwrap().spec
    }

    fn set(spec: &Spec, words: &[(&str, &str)], way: Option<Way>) -> Result<Spec, ScenarioError> {
        Setting::from_pairs(words.iter().copied(), way)?.of(spec, Path::new("."))
    }

    #[test]
    fn words_mean_what_a_file_says() {
        let before = spec("rtt = '10ms'\nrate = '1mbit'\nloss = '1%'");
        let bursts = "{ share = '2%', packets = 3.0 }";
        let words =
            [("loss", "none"), ("rtt", "20ms"), ("lose_every", "7"), ("burst_loss", bursts)];
        let after =
            spec(&format!("rtt = '20ms'\nrate = '1mbit'\nlose_every = 7\nburst_loss = {bursts}"));
        assert_eq!(set(&before, &words, None).unwrap(), after);
    }

    #[test]
    fn one_way_alone_and_all_that_comes_later() {
        let changes = "rate = '1mbit'\n[[changes]]\nat = '1s'\nrate = '2mbit'";
        let after = set(&spec(changes), &[("queue", "9000B"), ("ecn", "false")], Some(Way::Down));
        let after = after.unwrap();
        assert_eq!((after.up.queue, after.changes[0].up.queue), (None, None));
        assert!(after.down.queue.is_some() && after.changes[0].down.queue.is_some());
    }

    #[test]
    fn without_a_rate_there_is_no_queue() {
        let before = spec("rate = '1mbit'\nqueue = '1bdp'\nmanagement = 'codel'\necn = true");
        assert_eq!(set(&before, &[("rate", "none")], None).unwrap(), Spec::default());
    }

    #[test]
    fn wrong_words_are_named() {
        let complaint = |key, value| set(&Spec::default(), &[(key, value)], None).unwrap_err();
        assert!(complaint("los", "1%").to_string().contains("`los`"));
        assert!(complaint("loss", "-1%").to_string().contains("negative"));
        assert!(complaint("colour", "none").to_string().contains("`colour`"));
        assert!(complaint("loss = \"1%\"\nrate", "1").to_string().contains("cannot be removed"));
        assert!(complaint("loss", "1%\"\nrate = \"1mbit").to_string().contains("loss"));
        assert!(complaint("queue", "1bdp").to_string().contains("without a rate"));
    }
}
