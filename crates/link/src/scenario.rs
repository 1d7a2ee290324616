//! Paths by name, and from TOML files.
//!
//! ```toml
//! title = "every key there is"
//! rtt = "217ms"              # half of it each way
//! mtu = 1400                 # of both hosts' devices; 1500 if left out
//! jitter = "5ms"             # half the width, or the standard deviation of
//! jitter_shape = "normal"    # "uniform" if left out
//! # jitter_table = ["0ms", "1ms", "9ms"]   # instead: quantiles of what is added to the delay
//! reorder = true             # packets may overtake each other; false if left out
//! loss = "0.034%"            # of packets, each independently
//! burst_loss = { share = "1%", packets = 8.0 }   # in bursts of so many on average; with
//!                            # in_burst = "50%" half of the packets of a burst are lost
//! lose_every = 1000          # and every thousandth
//! corrupt = "0.01%"          # a bit is wrong
//! duplicate = "0.01%"        # arrives twice
//! rate = "95mbit"            # of IP bytes
//! # trace = "lte.down"       # instead of a rate: a mahimahi trace, beside this file
//! queue = "1bdp"             # or bytes "2MB", packets "100packets", time "200ms"
//! management = "codel"       # "drop-tail" if left out
//! ecn = true                 # mark instead of dropping, where a packet allows it; or, of a drop-tail
//!                            # queue, "30kB": mark what comes while more than this waits
//! policer = { rate = "50mbit", burst = "128KiB" }
//! cuts = [{ at = "5s", lasting = "2s" }]
//! cuts_again_every = "60s"   # once if left out
//! [down]                     # what differs from the far host to the near one
//! delay = "100ms"            # one way
//! [[changes]]                # how the path changes; what is left out stays
//! at = "10s"                 # since the link began
//! rate = "10mbit"
//! [[changes]]
//! at = "20s"
//! way = "down"               # both if left out
//! delay = "20ms"
//! without = ["loss"]         # what is removed
//! ```

mod keys;
mod setting;

use std::fs;
use std::path::{Path, PathBuf};

use lastbyte_units::Span;

use crate::spec::{Change, Spec, SpecError};
use crate::trace::{Trace, TraceError};
pub(crate) use keys::LinkText;
use keys::{ChangeText, File, Keys};
pub use setting::Setting;

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
    /// What it represents, in a few words.
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
    /// The text is not a valid scenario; the message names key and line.
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
    /// A property is to be removed that no path has.
    #[error("scenario {name}: `{key}` cannot be removed: no property of a path is called so")]
    Without {
        /// Name or file.
        name: String,
        /// What was to be removed.
        key: String,
    },
    /// The path is not possible.
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
        Self::find_in(None, name)
    }

    /// As [`Scenario::find`], with the folder that file names are relative to.
    fn find_in(folder: Option<&Path>, name: &str) -> Result<Self, ScenarioError> {
        if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
            let path = beside(folder, Path::new(name));
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
        let file: File = from_toml(name, text)?;
        let path = PathText {
            both: Keys { delay: file.delay.or_else(|| half(file.rtt)), ..Keys::from(&file) },
            own: [&file.up, &file.down],
            mtu: file.mtu,
            changes: &file.changes,
        };
        let spec = path.apply_to(Spec::default(), name, folder)?;
        let title = file.title.clone().unwrap_or_else(|| name.to_owned());
        Ok(Self { name: name.to_owned(), title, spec })
    }
}

/// What a file says of a whole path.
struct PathText<'a> {
    both: Keys,
    /// What differs in one direction: up, down.
    own: [&'a Keys; 2],
    mtu: Option<u32>,
    changes: &'a [ChangeText],
}

impl PathText<'_> {
    /// The path as this text says, and like `path` where it says nothing.
    fn apply_to(
        self,
        path: Spec,
        name: &str,
        folder: Option<&Path>,
    ) -> Result<Spec, ScenarioError> {
        let mut spec = Spec { mtu: self.mtu.or(path.mtu), ..path };
        let [up, down] = self.own.map(|own| own.over(&self.both));
        up.set(&mut spec.up, folder)?;
        down.set(&mut spec.down, folder)?;
        for change in &mut spec.changes {
            up.set(&mut change.up, folder)?;
            down.set(&mut change.down, folder)?;
        }
        for (at, setting) in self.changes.iter().map(ChangeText::setting) {
            let last = spec.changes.last();
            let (up, down) = last.map_or((&spec.up, &spec.down), |last| (&last.up, &last.down));
            let (mut up, mut down) = (up.clone(), down.clone());
            setting.apply(name, folder, [&mut up, &mut down])?;
            spec.changes.push(Change { at, up, down });
        }
        spec.check().map_err(|cause| ScenarioError::Spec { name: name.to_owned(), cause })?;
        Ok(spec)
    }
}

fn from_toml<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T, ScenarioError> {
    toml::from_str(text).map_err(|cause| ScenarioError::Text { name: name.to_owned(), cause })
}

fn half(rtt: Option<Span>) -> Option<Span> {
    rtt.map(|rtt| (rtt.as_duration() / 2).into())
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    let failed = |cause| ScenarioError::File { path: path.to_owned(), cause };
    fs::read_to_string(path).map_err(failed)
}

/// The path of a file that another one names: relative to that.
fn beside(folder: Option<&Path>, named: &Path) -> PathBuf {
    folder.map_or_else(|| named.to_owned(), |folder| folder.join(named))
}

fn read_trace(folder: Option<&Path>, named: &Path) -> Result<Trace, ScenarioError> {
    let path = beside(folder, named);
    let text = read(&path)?;
    Trace::parse(&text).map_err(|cause| ScenarioError::Trace { path, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::spec::{Direction, Management, Marks, Shape};

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
        let jitter = jitter.as_ref().unwrap();
        assert!(jitter.reorders && jitter.shape == Shape::Normal(Duration::from_millis(5)));
        assert!(burst_loss.is_some() && policer.is_some() && outages.cuts.len() == 1);
        assert!(spec.up.marks == Marks::InsteadOfDrops && spec.up.management == Management::Codel);
        assert_eq!((spec.up.lose_every, spec.mtu), (Some(1000), Some(1400)));
        let [first, second] = &spec.changes[..] else { panic!("{:?}", spec.changes) };
        let ten = "10mbit".parse().unwrap();
        assert_eq!(
            (first.at.as_secs(), first.up.rate, first.down.rate),
            (10, Some(ten), Some(ten))
        );
        assert_eq!(first.up.loss, spec.up.loss);
        assert_eq!((second.down.delay.as_millis(), second.down.loss), (20, None));
        assert_eq!(second.up, first.up);
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
        let both = "rate = '1mbit'\nmanagement = 'codel'\necn = '30kB'";
        assert!(complaint(both).contains("one of them"));
        assert!(complaint("rtt = '1ms'\necn = '30kB'").contains("without a rate"));
        let odd = complaint("rate = '1mbit'\necn = 7");
        assert!(odd.contains("line 2") && odd.contains("30kB"), "{odd}");
        assert!(complaint("rate = '1mbit'\necn = 'much'").contains("line 2"));
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
