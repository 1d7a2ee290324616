//! Paths by name, and from TOML files.
//!
//! ```toml
//! title = "every key there is"
//! rtt = "217ms"              # half of it each way
//! jitter = "5ms"             # half the width, or the standard deviation of
//! jitter_shape = "normal"    # "uniform" if left out
//! reorder = true             # packets may overtake each other; false if left out
//! loss = "0.034%"            # of packets, each independently
//! burst_loss = { share = "1%", packets = 8.0 }   # in bursts of so many on average
//! lose_every = 1000          # and every thousandth
//! corrupt = "0.01%"          # a bit is wrong
//! duplicate = "0.01%"        # arrives twice
//! rate = "95mbit"            # of IP bytes
//! # trace = "lte.down"       # instead of a rate: a mahimahi trace, beside this file
//! queue = "1bdp"             # or bytes "2MB", packets "100packets", time "200ms"
//! management = "codel"       # "drop-tail" if left out
//! ecn = true                 # mark instead of dropping, where a packet allows it
//! policer = { rate = "50mbit", burst = "128KiB" }
//! cuts = [{ at = "5s", lasting = "2s" }]
//! cuts_again_every = "60s"   # once if left out
//! [down]                     # what differs from the far host to the near one
//! delay = "100ms"            # one way
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span};
use serde::Deserialize;

use crate::spec::{
    BurstLoss, Cut, Direction, Jitter, Management, Outages, Policer, Queue, Shape, Spec, SpecError,
};
use crate::trace::{Trace, TraceError};

/// The scenarios that come with lastbyte: name and TOML text.
const KNOWN: &[(&str, &str)] = &[
    ("bufferbloat", include_str!("../../../scenarios/bufferbloat.toml")),
    ("china-lossy", include_str!("../../../scenarios/china-lossy.toml")),
    ("flaky", include_str!("../../../scenarios/flaky.toml")),
    ("geo-satellite", include_str!("../../../scenarios/geo-satellite.toml")),
    ("lan", include_str!("../../../scenarios/lan.toml")),
    ("longfat-1g", include_str!("../../../scenarios/longfat-1g.toml")),
    ("lte", include_str!("../../../scenarios/lte.toml")),
    ("policed", include_str!("../../../scenarios/policed.toml")),
    ("transatlantic-1g", include_str!("../../../scenarios/transatlantic-1g.toml")),
    ("usa-malaysia", include_str!("../../../scenarios/usa-malaysia.toml")),
    ("wifi-lossy", include_str!("../../../scenarios/wifi-lossy.toml")),
];

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
    /// A recorded rate cannot be read.
    #[error("trace {}: {cause}", path.display())]
    Trace {
        /// Which file.
        path: PathBuf,
        /// Which line, and why.
        cause: TraceError,
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
            let text = read(&path)?;
            return Self::parse_in(path.parent(), name, &text);
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
        Self::parse_in(None, name, text)
    }

    /// As [`Scenario::parse`], with the folder in which the files that it names lie.
    fn parse_in(folder: Option<&Path>, name: &str, text: &str) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(text)
            .map_err(|cause| ScenarioError::Text { name: name.to_owned(), cause })?;
        let direction = |one: &OneWay| -> Result<Direction, ScenarioError> {
            let both = file.trace.as_ref().filter(|_| one.rate.is_none());
            let named = one.trace.as_ref().or(both);
            let trace = named.map(|named| read_trace(folder, named)).transpose()?;
            Ok(Direction { trace, ..one.over(&file) })
        };
        let spec = Spec { up: direction(&file.up)?, down: direction(&file.down)? };
        spec.check().map_err(|cause| ScenarioError::Spec { name: name.to_owned(), cause })?;
        let title = file.title.clone().unwrap_or_else(|| name.to_owned());
        Ok(Self { name: name.to_owned(), title, spec })
    }
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    let failed = |cause| ScenarioError::File { path: path.to_owned(), cause };
    fs::read_to_string(path).map_err(failed)
}

fn read_trace(folder: Option<&Path>, named: &Path) -> Result<Trace, ScenarioError> {
    let path = folder.map_or_else(|| named.to_owned(), |folder| folder.join(named));
    let text = read(&path)?;
    Trace::parse(&text).map_err(|cause| ScenarioError::Trace { path, cause })
}

/// A scenario file: what holds for both directions, and what differs in one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    rtt: Option<Span>,
    jitter: Option<Span>,
    jitter_shape: Option<ShapeText>,
    reorder: Option<bool>,
    loss: Option<Share>,
    burst_loss: Option<BurstText>,
    lose_every: Option<u64>,
    corrupt: Option<Share>,
    duplicate: Option<Share>,
    rate: Option<BitRate>,
    trace: Option<PathBuf>,
    queue: Option<QueueText>,
    management: Option<ManagementText>,
    ecn: Option<bool>,
    policer: Option<PolicerText>,
    cuts: Option<Vec<CutText>>,
    cuts_again_every: Option<Span>,
    #[serde(default)]
    up: OneWay,
    #[serde(default)]
    down: OneWay,
}

/// What differs in one direction: the same keys, and its delay.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneWay {
    delay: Option<Span>,
    jitter: Option<Span>,
    jitter_shape: Option<ShapeText>,
    reorder: Option<bool>,
    loss: Option<Share>,
    burst_loss: Option<BurstText>,
    lose_every: Option<u64>,
    corrupt: Option<Share>,
    duplicate: Option<Share>,
    rate: Option<BitRate>,
    trace: Option<PathBuf>,
    queue: Option<QueueText>,
    management: Option<ManagementText>,
    ecn: Option<bool>,
    policer: Option<PolicerText>,
    cuts: Option<Vec<CutText>>,
    cuts_again_every: Option<Span>,
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

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShapeText {
    Uniform,
    Normal,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ManagementText {
    DropTail,
    Codel,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstText {
    share: Share,
    packets: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicerText {
    rate: BitRate,
    burst: ByteSize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CutText {
    at: Span,
    lasting: Span,
}

impl OneWay {
    /// This direction, with what holds for both where it says nothing itself.
    fn over(&self, both: &File) -> Direction {
        let half = both.rtt.map_or(Duration::ZERO, |rtt| rtt.as_duration() / 2);
        let shape = match self.jitter_shape.or(both.jitter_shape) {
            None | Some(ShapeText::Uniform) => Shape::Uniform,
            Some(ShapeText::Normal) => Shape::Normal,
        };
        let reorders = self.reorder.or(both.reorder).unwrap_or(false);
        let jitter = self.jitter.or(both.jitter).map(Span::as_duration);
        let jitter = jitter.filter(|size| !size.is_zero());
        let bursts = self.burst_loss.or(both.burst_loss);
        let policer = self.policer.or(both.policer);
        let cut =
            |cut: &CutText| Cut { at: cut.at.as_duration(), lasting: cut.lasting.as_duration() };
        let cuts = self.cuts.as_ref().or(both.cuts.as_ref());
        // A direction's own trace stands instead of the rate for both.
        let rate_for_both = both.rate.filter(|_| self.trace.is_none());
        Direction {
            delay: self.delay.map_or(half, Span::as_duration),
            jitter: jitter.map(|size| Jitter { size, shape, reorders }),
            loss: self.loss.or(both.loss),
            burst_loss: bursts.map(|BurstText { share, packets }| BurstLoss { share, packets }),
            lose_every: self.lose_every.or(both.lose_every),
            corrupt: self.corrupt.or(both.corrupt),
            duplicate: self.duplicate.or(both.duplicate),
            rate: self.rate.or(rate_for_both),
            trace: None,
            queue: self.queue.or(both.queue).map(|queue| queue.0),
            management: match self.management.or(both.management) {
                None | Some(ManagementText::DropTail) => Management::DropTail,
                Some(ManagementText::Codel) => Management::Codel,
            },
            marks_ecn: self.ecn.or(both.ecn).unwrap_or(false),
            policer: policer.map(|PolicerText { rate, burst }| Policer { rate, burst }),
            outages: Outages {
                cuts: cuts.map(|cuts| cuts.iter().map(cut).collect()).unwrap_or_default(),
                every: self.cuts_again_every.or(both.cuts_again_every).map(Span::as_duration),
            },
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
    fn every_key_is_understood() {
        let documented = include_str!("scenario.rs").lines();
        let toml = documented.skip_while(|line| *line != "//! ```toml").skip(1);
        let toml = toml.take_while(|line| *line != "//! ```");
        let toml: Vec<&str> = toml.map(|line| line.trim_start_matches("//!").trim()).collect();
        let spec = Scenario::parse("documented", &toml.join("\n")).unwrap().spec;
        assert_eq!(spec.down.delay.as_millis(), 100);
        let Direction { jitter, burst_loss, policer, outages, .. } = &spec.up;
        assert!(jitter.is_some_and(|jitter| jitter.reorders && jitter.shape == Shape::Normal));
        assert!(burst_loss.is_some() && policer.is_some() && outages.cuts.len() == 1);
        assert!(spec.up.marks_ecn && spec.up.management == Management::Codel);
        assert_eq!(spec.up.lose_every, Some(1000));
    }

    #[test]
    fn a_recorded_rate_lies_beside_the_scenario() {
        let folder = std::env::temp_dir().join(format!("lastbyte-trace-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let toml = folder.join("recorded.toml");
        fs::write(&toml, "rtt = '40ms'\nrate = '1mbit'\n[down]\ntrace = 'down.ms'").unwrap();
        fs::write(folder.join("down.ms"), "1\n2\n3\n").unwrap();
        let spec = Scenario::find(toml.to_str().unwrap()).unwrap().spec;
        assert_eq!((spec.up.trace, spec.down.rate), (None, None));
        assert_eq!(spec.down.mean_rate().unwrap().bits_per_s(), 12_000_000);
        fs::write(folder.join("down.ms"), "2\n1\n").unwrap();
        let error = Scenario::find(toml.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("down.ms") && error.contains("line 2"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
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
        assert!(complaint("rate = '1mbit'\necn = true").contains("codel"));
        assert!(complaint("rtt = '1ms'\nlose_every = 0").contains("at least 1"));
        let shape = complaint("rtt = '1ms'\njitter_shape = 'odd'");
        assert!(shape.contains("line 2") && shape.contains("uniform"), "{shape}");
        let burst = complaint("rate = '9mbit'\npolicer = { rate = '1mbit', burst = '10B' }");
        assert!(burst.contains("burst"), "{burst}");
    }

    #[test]
    fn unknown_names_list_the_known() {
        let error = Scenario::find("usa-malaysa").unwrap_err().to_string();
        assert!(error.contains("usa-malaysia"), "{error}");
        let error = Scenario::find("no-such-file.toml").unwrap_err().to_string();
        assert!(error.contains("no-such-file.toml"), "{error}");
    }
}
