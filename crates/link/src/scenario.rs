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
//! ecn = true                 # mark instead of dropping, where a packet allows it
//! policer = { rate = "50mbit", burst = "128KiB" }
//! cuts = [{ at = "5s", lasting = "2s" }]
//! cuts_again_every = "60s"   # once if left out
//! [down]                     # what differs from the far host to the near one
//! delay = "100ms"            # one way
//! [[changes]]                # what the path becomes; what is left out stays
//! at = "10s"                 # since the link began
//! rate = "10mbit"
//! [[changes]]
//! at = "20s"
//! way = "down"               # both if left out
//! delay = "20ms"
//! without = ["loss"]         # what no longer happens
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span};
use serde::Deserialize;

use crate::spec::{
    BurstLoss, Change, Cut, Direction, Jitter, Management, Outages, Policer, Queue, Shape, Spec,
    SpecError, Way,
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
    /// Something is to be taken away that no path has.
    #[error("scenario {name}: nothing is called `{key}`, so nothing can be without it")]
    Without {
        /// Name or file.
        name: String,
        /// What was to be taken away.
        key: String,
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
        Self::find_in(None, name)
    }

    /// As [`Scenario::find`], with the folder that a file's name begins from.
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
        let said = Said {
            both: Keys { delay: file.delay.or_else(|| half(file.rtt)), ..Keys::from(&file) },
            own: [&file.up, &file.down],
            mtu: file.mtu,
            changes: &file.changes,
        };
        let spec = said.of(Spec::default(), name, folder)?;
        let title = file.title.clone().unwrap_or_else(|| name.to_owned());
        Ok(Self { name: name.to_owned(), title, spec })
    }
}

/// What is said of a whole path.
struct Said<'a> {
    both: Keys,
    /// What differs on the way up, and down.
    own: [&'a Keys; 2],
    mtu: Option<u32>,
    changes: &'a [ChangeText],
}

impl Said<'_> {
    /// The path that is said to be like this, and as `path` where nothing is said.
    fn of(self, path: Spec, name: &str, folder: Option<&Path>) -> Result<Spec, ScenarioError> {
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

/// What is to become different of a path.
#[derive(Clone, Debug)]
pub struct Setting {
    /// In which direction; `None` in both.
    way: Option<Way>,
    keys: Keys,
    without: Vec<String>,
}

impl Setting {
    /// Reads keys of a scenario, as under `[[changes]]` but without a time.
    ///
    /// # Errors
    /// Names the key and the line.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let text: SettingText = from_toml("set", text)?;
        let keys = Keys { delay: text.delay.or_else(|| half(text.rtt)), ..Keys::from(&text) };
        Ok(Self { way: text.way.map(Way::from), keys, without: text.without })
    }

    /// The path with this difference, now and in all that it becomes later. Files that are named lie
    /// in `folder`.
    ///
    /// # Errors
    /// What makes no sense then, or names nothing.
    pub fn of(&self, spec: &Spec, folder: &Path) -> Result<Spec, ScenarioError> {
        let mut spec = spec.clone();
        let (name, folder) = ("set", Some(folder));
        self.apply(name, folder, [&mut spec.up, &mut spec.down])?;
        for change in &mut spec.changes {
            self.apply(name, folder, [&mut change.up, &mut change.down])?;
        }
        spec.check().map_err(|cause| ScenarioError::Spec { name: name.to_owned(), cause })?;
        Ok(spec)
    }

    fn apply(
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
            (direction.management, direction.marks_ecn) = (none.management, false);
        }
        "queue" => direction.queue = None,
        "management" => (direction.management, direction.marks_ecn) = (none.management, false),
        "ecn" => direction.marks_ecn = false,
        "policer" => direction.policer = None,
        "cuts" => direction.outages = none.outages,
        _ => return false,
    }
    true
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

/// Where a file lies that another one names: beside that.
fn beside(folder: Option<&Path>, named: &Path) -> PathBuf {
    folder.map_or_else(|| named.to_owned(), |folder| folder.join(named))
}

fn read_trace(folder: Option<&Path>, named: &Path) -> Result<Trace, ScenarioError> {
    let path = beside(folder, named);
    let text = read(&path)?;
    Trace::parse(&text).map_err(|cause| ScenarioError::Trace { path, cause })
}

/// A table of TOML with the keys of a direction among others: serde can either flatten a table into
/// another or name the line of a key that it does not know.
macro_rules! table_with_direction_keys {
    ($(#[$about:meta])* $visible:vis $name:ident {
        $($(#[$attribute:meta])* $own_visible:vis $own:ident: $own_type:ty,)*
    }) => {
        table_with_direction_keys! { @ $(#[$about])* $visible $name {
            $($(#[$attribute])* $own_visible $own: $own_type,)*
        } {
            delay: Span,
            jitter: Span,
            jitter_shape: ShapeText,
            jitter_table: Vec<Span>,
            reorder: bool,
            loss: Share,
            burst_loss: BurstText,
            lose_every: u64,
            corrupt: Share,
            duplicate: Share,
            rate: BitRate,
            trace: PathBuf,
            queue: QueueText,
            management: ManagementText,
            ecn: bool,
            policer: PolicerText,
            cuts: Vec<CutText>,
            cuts_again_every: Span,
        } }
    };
    (@ $(#[$about:meta])* $visible:vis $name:ident {
        $($(#[$attribute:meta])* $own_visible:vis $own:ident: $own_type:ty,)*
    } { $($key:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        $visible struct $name {
            $($(#[$attribute])* $own_visible $own: $own_type,)*
            $($key: Option<$type>,)*
        }

        /// What it says of a direction.
        impl From<&$name> for Keys {
            fn from(table: &$name) -> Self {
                Self { $($key: table.$key.clone(),)* }
            }
        }
    };
}

table_with_direction_keys! {
    /// A scenario file: what holds for both directions, what differs in one, and what changes.
    File {
        title: Option<String>,
        rtt: Option<Span>,
        mtu: Option<u32>,
        #[serde(default)]
        up: Keys,
        #[serde(default)]
        down: Keys,
        #[serde(default)]
        changes: Vec<ChangeText>,
    }
}

table_with_direction_keys! {
    /// A link of a topology: between whom, and what its path is like.
    pub(crate) LinkText {
        pub(crate) name: Option<String>,
        pub(crate) between: [String; 2],
        scenario: Option<String>,
        rtt: Option<Span>,
        mtu: Option<u32>,
        #[serde(default)]
        up: Keys,
        #[serde(default)]
        down: Keys,
        #[serde(default)]
        changes: Vec<ChangeText>,
    }
}

impl LinkText {
    /// The path that it names, which its keys are about.
    pub(crate) fn named_path(&self, folder: Option<&Path>) -> Result<Spec, ScenarioError> {
        let named = self.scenario.as_deref().map(|name| Scenario::find_in(folder, name));
        Ok(named.transpose()?.map(|scenario| scenario.spec).unwrap_or_default())
    }

    /// This path, but for what its keys say.
    pub(crate) fn changed(&self, path: Spec, folder: Option<&Path>) -> Result<Spec, ScenarioError> {
        let said = Said {
            both: Keys { delay: self.delay.or_else(|| half(self.rtt)), ..Keys::from(self) },
            own: [&self.up, &self.down],
            mtu: self.mtu,
            changes: &self.changes,
        };
        said.of(path, "", folder)
    }
}

table_with_direction_keys! {
    /// What a path becomes at a time.
    ChangeText {
        at: Span,
        way: Option<WayText>,
        rtt: Option<Span>,
        #[serde(default)]
        without: Vec<String>,
    }
}

table_with_direction_keys! {
    /// What a path is to become.
    SettingText {
        way: Option<WayText>,
        rtt: Option<Span>,
        #[serde(default)]
        without: Vec<String>,
    }
}

table_with_direction_keys! {
    /// What is said of a direction.
    #[derive(Default)]
    Keys {}
}

impl ChangeText {
    fn setting(&self) -> (Duration, Setting) {
        let keys = Keys { delay: self.delay.or_else(|| half(self.rtt)), ..Keys::from(self) };
        let way = self.way.map(Way::from);
        (self.at.as_duration(), Setting { way, keys, without: self.without.clone() })
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WayText {
    Up,
    Down,
}

impl From<WayText> for Way {
    fn from(text: WayText) -> Self {
        match text {
            WayText::Up => Self::Up,
            WayText::Down => Self::Down,
        }
    }
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
    in_burst: Option<Share>,
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

impl Keys {
    /// These, and where they say nothing those for both directions.
    fn over(&self, both: &Self) -> Self {
        let (rated, varied) = (
            self.rate.is_some() || self.trace.is_some(),
            self.jitter.is_some() || self.jitter_table.is_some(),
        );
        Self {
            delay: self.delay.or(both.delay),
            // One excludes the other, so a direction's own stands instead of either.
            jitter: if varied { self.jitter } else { both.jitter },
            jitter_table: if varied { &self.jitter_table } else { &both.jitter_table }.clone(),
            jitter_shape: self.jitter_shape.or(both.jitter_shape),
            reorder: self.reorder.or(both.reorder),
            loss: self.loss.or(both.loss),
            burst_loss: self.burst_loss.or(both.burst_loss),
            lose_every: self.lose_every.or(both.lose_every),
            corrupt: self.corrupt.or(both.corrupt),
            duplicate: self.duplicate.or(both.duplicate),
            rate: if rated { self.rate } else { both.rate },
            trace: if rated { &self.trace } else { &both.trace }.clone(),
            queue: self.queue.or(both.queue),
            management: self.management.or(both.management),
            ecn: self.ecn.or(both.ecn),
            policer: self.policer.or(both.policer),
            cuts: self.cuts.clone().or_else(|| both.cuts.clone()),
            cuts_again_every: self.cuts_again_every.or(both.cuts_again_every),
        }
    }

    /// Makes a direction as they say; where they say nothing it stays as it is.
    fn set(&self, direction: &mut Direction, folder: Option<&Path>) -> Result<(), ScenarioError> {
        direction.delay = self.delay.map_or(direction.delay, Span::as_duration);
        direction.jitter = self.jitter(direction.jitter.take());
        direction.loss = self.loss.or(direction.loss);
        direction.burst_loss = self.burst_loss.map(BurstLoss::from).or(direction.burst_loss);
        direction.lose_every = self.lose_every.or(direction.lose_every);
        direction.corrupt = self.corrupt.or(direction.corrupt);
        direction.duplicate = self.duplicate.or(direction.duplicate);
        if self.rate.is_some() || self.trace.is_some() {
            direction.rate = self.rate;
            let trace = self.trace.as_ref().map(|named| read_trace(folder, named));
            direction.trace = trace.transpose()?;
        }
        direction.queue = self.queue.map(|queue| queue.0).or(direction.queue);
        direction.management = match self.management {
            None => direction.management,
            Some(ManagementText::DropTail) => Management::DropTail,
            Some(ManagementText::Codel) => Management::Codel,
        };
        direction.marks_ecn = self.ecn.unwrap_or(direction.marks_ecn);
        let policer = self.policer.map(|PolicerText { rate, burst }| Policer { rate, burst });
        direction.policer = policer.or(direction.policer);
        let cut =
            |cut: &CutText| Cut { at: cut.at.as_duration(), lasting: cut.lasting.as_duration() };
        let Outages { cuts, every } = &mut direction.outages;
        if let Some(new) = &self.cuts {
            *cuts = new.iter().map(cut).collect();
        }
        *every = self.cuts_again_every.map(Span::as_duration).or(*every);
        Ok(())
    }

    /// The jitter, from what it was before.
    fn jitter(&self, before: Option<Jitter>) -> Option<Jitter> {
        let reorders = self.reorder.or_else(|| before.as_ref().map(|jitter| jitter.reorders));
        let reorders = reorders.unwrap_or(false);
        if let Some(table) = &self.jitter_table {
            let shape = Shape::Table(table.iter().map(|time| time.as_duration()).collect());
            return Some(Jitter { shape, reorders });
        }
        let (size_before, shape_before) = match before.map(|jitter| jitter.shape) {
            Some(Shape::Uniform(size)) => (Some(size), ShapeText::Uniform),
            Some(Shape::Normal(size)) => (Some(size), ShapeText::Normal),
            Some(table @ Shape::Table(_)) if self.jitter.is_none() => {
                return Some(Jitter { shape: table, reorders });
            }
            Some(Shape::Table(_)) | None => (None, ShapeText::Uniform),
        };
        let size = self.jitter.map(Span::as_duration).or(size_before);
        let size = size.filter(|size| !size.is_zero())?;
        let shape = match self.jitter_shape.unwrap_or(shape_before) {
            ShapeText::Uniform => Shape::Uniform(size),
            ShapeText::Normal => Shape::Normal(size),
        };
        Some(Jitter { shape, reorders })
    }
}

impl From<BurstText> for BurstLoss {
    fn from(BurstText { share, packets, in_burst }: BurstText) -> Self {
        Self { share, packets, in_burst: in_burst.unwrap_or(Share::ALL) }
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
        let jitter = jitter.as_ref().unwrap();
        assert!(jitter.reorders && jitter.shape == Shape::Normal(Duration::from_millis(5)));
        assert!(burst_loss.is_some() && policer.is_some() && outages.cuts.len() == 1);
        assert!(spec.up.marks_ecn && spec.up.management == Management::Codel);
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
