//! Paths by name, and from TOML files.
//!
//! ```toml
//! title = "USA to Malaysia"
//! rtt = "217ms"       # half of it each way
//! loss = "0.034%"     # of packets, each way
//! rate = "95mbit"     # of IP bytes
//! queue = "1bdp"      # or bytes: "2MB"
//! [down]              # what differs from the far host to the near one
//! delay = "100ms"     # one way
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastbyte_units::{BitRate, Share, Span};
use serde::Deserialize;

use crate::spec::{Direction, Queue, Spec, SpecError};

/// The scenarios that come with lastbyte: name and TOML text.
const KNOWN: &[(&str, &str)] =
    &[("usa-malaysia", include_str!("../../../scenarios/usa-malaysia.toml"))];

/// A path with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name it was asked for by.
    pub name: String,
    /// What it stands for, in a few words.
    pub title: String,
    /// The path.
    pub spec: Spec,
}

/// A scenario that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// There is none of that name.
    #[error("there is no scenario `{name}`: known are {}; or give a file ending in .toml", known())]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("scenario file {}: {cause}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The text is not what a scenario looks like; the message names key and line.
    #[error("scenario {name}: {cause}")]
    Text {
        /// Name or file.
        name: String,
        /// Where and what.
        cause: toml::de::Error,
    },
    /// The path makes no sense.
    #[error("scenario {name}: {cause}")]
    Spec {
        /// Name or file.
        name: String,
        /// What.
        cause: SpecError,
    },
}

fn known() -> String {
    KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl Scenario {
    /// The scenario of a name, or of a file when the name ends in `.toml`.
    ///
    /// # Errors
    /// Names the file, the key and the line, or the known names.
    pub fn find(name: &str) -> Result<Self, ScenarioError> {
        if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
            let path = PathBuf::from(name);
            let text =
                fs::read_to_string(&path).map_err(|cause| ScenarioError::File { path, cause })?;
            return Self::parse(name, &text);
        }
        let text = KNOWN.iter().find(|(known, _)| *known == name);
        let (_, text) = text.ok_or_else(|| ScenarioError::Unknown { name: name.to_owned() })?;
        Self::parse(name, text)
    }

    /// All scenarios that come with lastbyte.
    ///
    /// # Errors
    /// None: they are tested.
    pub fn all() -> Result<Vec<Self>, ScenarioError> {
        KNOWN.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// Reads a scenario from TOML text.
    ///
    /// # Errors
    /// Names the key and the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(text)
            .map_err(|cause| ScenarioError::Text { name: name.to_owned(), cause })?;
        let both = Leg { rtt: file.rtt, ..file.both() };
        let spec = Spec { up: file.up.over(&both), down: file.down.over(&both) };
        spec.check().map_err(|cause| ScenarioError::Spec { name: name.to_owned(), cause })?;
        let title = file.title.unwrap_or_else(|| name.to_owned());
        Ok(Self { name: name.to_owned(), title, spec })
    }
}

/// A scenario file: what holds for both directions, and what differs in one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    rtt: Option<Span>,
    loss: Option<Share>,
    rate: Option<BitRate>,
    queue: Option<QueueText>,
    #[serde(default)]
    up: OneWay,
    #[serde(default)]
    down: OneWay,
}

/// What differs in one direction.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneWay {
    delay: Option<Span>,
    loss: Option<Share>,
    rate: Option<BitRate>,
    queue: Option<QueueText>,
}

/// What holds where a direction says nothing of its own.
struct Leg {
    rtt: Option<Span>,
    loss: Option<Share>,
    rate: Option<BitRate>,
    queue: Option<QueueText>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct QueueText(Queue);

impl TryFrom<String> for QueueText {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse().map(Self)
    }
}

impl File {
    fn both(&self) -> Leg {
        Leg { rtt: self.rtt, loss: self.loss, rate: self.rate, queue: self.queue }
    }
}

impl OneWay {
    fn over(&self, both: &Leg) -> Direction {
        let half = both.rtt.map_or(Duration::ZERO, |rtt| rtt.as_duration() / 2);
        Direction {
            delay: self.delay.map_or(half, Span::as_duration),
            loss: self.loss.or(both.loss),
            rate: self.rate.or(both.rate),
            queue: self.queue.or(both.queue).map(|queue| queue.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_case() {
        let scenario = Scenario::find("usa-malaysia").unwrap();
        assert_eq!(scenario.spec.rtt(), Duration::from_millis(217));
        assert_eq!(scenario.spec.up, scenario.spec.down);
        assert_eq!(scenario.spec.up.rate.unwrap().bits_per_s(), 95_000_000);
        assert!((scenario.spec.up.loss.unwrap().fraction() - 0.000_34).abs() < 1e-12);
        assert_eq!(scenario.spec.queue_bytes(&scenario.spec.up), Some(2_576_875));
    }

    #[test]
    fn every_known_scenario_can_be_used() {
        assert_eq!(Scenario::all().unwrap().len(), KNOWN.len());
    }

    #[test]
    fn one_direction_may_differ() {
        let text = "rtt = '100ms'\nrate = '10mbit'\n[down]\nrate = '1mbit'\ndelay = '70ms'";
        let spec = Scenario::parse("dsl", text).unwrap().spec;
        assert_eq!((spec.up.delay.as_millis(), spec.down.delay.as_millis()), (50, 70));
        assert_eq!(spec.down.rate.unwrap().bits_per_s(), 1_000_000);
    }

    fn complaint(text: &str) -> String {
        Scenario::parse("bad", text).unwrap_err().to_string()
    }

    #[test]
    fn complaints_name_key_and_line() {
        let unknown = complaint("rtt = '1ms'\ncolour = 'blue'");
        assert!(unknown.contains("line 2") && unknown.contains("`colour`"), "{unknown}");
        let negative = complaint("rtt = '1ms'\nloss = '-1%'");
        assert!(negative.contains("line 2") && negative.contains("negative"), "{negative}");
        let nested = complaint("[up]\nlos = '1%'");
        assert!(nested.contains("line 2") && nested.contains("`los`"), "{nested}");
        let unitless = complaint("rtt = '217'");
        assert!(unitless.contains("line 1") && unitless.contains("unit"), "{unitless}");
        assert!(complaint("rate = '0mbit'").contains("line 1"));
        assert!(complaint("queue = '1bdp'").contains("without a rate"));
    }

    #[test]
    fn unknown_names_list_the_known() {
        let error = Scenario::find("usa-malaysa").unwrap_err().to_string();
        assert!(error.contains("usa-malaysia"), "{error}");
        let error = Scenario::find("no-such-file.toml").unwrap_err().to_string();
        assert!(error.contains("no-such-file.toml"), "{error}");
    }
}
