//! What is to become different of a path that is there.

use std::path::Path;

use super::keys::{Keys, SettingText};
use super::{ScenarioError, from_toml, half};
use crate::spec::{Direction, Marks, Spec, Way};

/// What errors call it, in place of a scenario's name.
const SET: &str = "as set";

/// What is to become different of a path.
#[derive(Clone, Debug)]
pub struct Setting {
    /// In which direction; `None` in both.
    pub(super) way: Option<Way>,
    pub(super) keys: Keys,
    pub(super) mtu: Option<u32>,
    /// Keys of what is to be taken away.
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

    /// From keys and values as a command line has them: texts without quotation marks, `none` for what
    /// is to be taken away; in one direction, or in both.
    ///
    /// # Errors
    /// Names the key.
    pub fn from_words<'a>(
        words: impl IntoIterator<Item = (&'a str, &'a str)>,
        way: Option<Way>,
    ) -> Result<Self, ScenarioError> {
        let mut text = way.map(|way| format!("way = \"{way}\"\n")).unwrap_or_default();
        let mut without = Vec::new();
        for (key, value) in words {
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

    /// The path with this difference, now and in all that it becomes later. Files that are named lie
    /// in `folder`.
    ///
    /// # Errors
    /// What makes no sense then, or names nothing.
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
                if !take_away(key, direction) {
                    let (name, key) = (name.to_owned(), key.clone());
                    return Err(ScenarioError::Without { name, key });
                }
            }
            self.keys.set(direction, folder)?;
        }
        Ok(())
    }
}

/// Takes what a key asks for away; false for a key that asks for nothing that can be absent.
fn take_away(key: &str, direction: &mut Direction) -> bool {
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

/// A value as TOML has it: what is no number, truth, list or table becomes a text.
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
        Setting::from_words(words.iter().copied(), way)?.of(spec, Path::new("."))
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
        assert!(complaint("loss = \"1%\"\nrate", "1").to_string().contains("nothing is called"));
        assert!(complaint("loss", "1%\"\nrate = \"1mbit").to_string().contains("loss"));
        assert!(complaint("queue", "1bdp").to_string().contains("without a rate"));
    }
}
