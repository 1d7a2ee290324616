//! The keys of a scenario's TOML, and how they change a path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::{PathText, Scenario, ScenarioError, Setting, half, read_trace};
use crate::spec::{
    BurstLoss, Cut, Direction, Jitter, Management, Marks, Outages, Policer, Queue, Shape, Spec,
    SpecError, Way,
};

/// A table of TOML with the keys of a direction among others: serde can either flatten a table into
/// another or name the line of a key that it does not know.
macro_rules! table_with_direction_keys {
    ($(#[$about:meta])* $name:ident { $($(#[$attribute:meta])* $own:ident: $own_type:ty,)* }) => {
        table_with_direction_keys! { @ $(#[$about])* $name { $($(#[$attribute])* $own: $own_type,)* } {
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
            ecn: EcnText,
            policer: PolicerText,
            cuts: Vec<CutText>,
            cuts_again_every: Span,
        } }
    };
    (@ $(#[$about:meta])* $name:ident { $($(#[$attribute:meta])* $own:ident: $own_type:ty,)* }
        { $($key:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$attribute])* pub(crate) $own: $own_type,)*
            $(pub(crate) $key: Option<$type>,)*
        }

        /// Its keys of a direction.
        impl From<&$name> for Keys {
            fn from(table: &$name) -> Self {
                Self { $($key: table.$key.clone(),)* }
            }
        }
    };
}

table_with_direction_keys! {
    /// A scenario file: keys for both directions, for one of them, and changes.
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
    /// A link of a topology: its hosts, and the keys of its path.
    LinkText {
        name: Option<String>,
        between: [String; 2],
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
    /// The path that it names, which its keys change.
    pub(crate) fn named_path(&self, folder: Option<&Path>) -> Result<Spec, ScenarioError> {
        let named = self.scenario.as_deref().map(|name| Scenario::find_in(folder, name));
        Ok(named.transpose()?.map(|scenario| scenario.spec).unwrap_or_default())
    }

    /// This path, changed by its keys.
    pub(crate) fn changed(&self, path: Spec, folder: Option<&Path>) -> Result<Spec, ScenarioError> {
        let text = PathText {
            both: Keys { delay: self.delay.or_else(|| half(self.rtt)), ..Keys::from(self) },
            own: [&self.up, &self.down],
            mtu: self.mtu,
            changes: &self.changes,
        };
        text.apply_to(path, "", folder)
    }
}

table_with_direction_keys! {
    /// A change of a path at a set time.
    ChangeText {
        at: Span,
        way: Option<WayText>,
        rtt: Option<Span>,
        #[serde(default)]
        without: Vec<String>,
    }
}

table_with_direction_keys! {
    /// A change of a path at once.
    SettingText {
        way: Option<WayText>,
        rtt: Option<Span>,
        mtu: Option<u32>,
        #[serde(default)]
        without: Vec<String>,
    }
}

table_with_direction_keys! {
    /// The keys of a direction.
    #[derive(Default)]
    Keys {}
}

impl ChangeText {
    /// The time, and what differs from then on.
    pub(super) fn setting(&self) -> (Duration, Setting) {
        let keys = Keys { delay: self.delay.or_else(|| half(self.rtt)), ..Keys::from(self) };
        let way = self.way.map(Way::from);
        (self.at.as_duration(), Setting { way, keys, mtu: None, without: self.without.clone() })
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WayText {
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
pub(crate) struct QueueText(Queue);

impl TryFrom<String> for QueueText {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse().map(Self)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ShapeText {
    Uniform,
    Normal,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ManagementText {
    DropTail,
    Codel,
}

/// `true`, or the length of the queue above which packets are marked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnText(Marks);

impl<'de> Deserialize<'de> for EcnText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EcnVisitor)
    }
}

struct EcnVisitor;

impl Visitor<'_> for EcnVisitor {
    type Value = EcnText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a length of the queue such as \"30kB\"")
    }

    fn visit_bool<E: Error>(self, marks: bool) -> Result<EcnText, E> {
        Ok(EcnText(if marks { Marks::InsteadOfDrops } else { Marks::None }))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<EcnText, E> {
        text.parse().map(|size| EcnText(Marks::Above(size))).map_err(E::custom)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BurstText {
    share: Share,
    packets: f64,
    in_burst: Option<Share>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicerText {
    rate: BitRate,
    burst: ByteSize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CutText {
    at: Span,
    lasting: Span,
}

impl Keys {
    /// These keys, and where they are missing those for both directions.
    pub(super) fn over(&self, both: &Self) -> Self {
        let (rated, varied) = (
            self.rate.is_some() || self.trace.is_some(),
            self.jitter.is_some() || self.jitter_table.is_some(),
        );
        Self {
            delay: self.delay.or(both.delay),
            // One excludes the other: a direction's own replaces either of them.
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

    /// Sets these keys of a direction; where they are missing it stays as it is.
    pub(super) fn set(
        &self,
        direction: &mut Direction,
        folder: Option<&Path>,
    ) -> Result<(), ScenarioError> {
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
        direction.marks = self.ecn.map_or(direction.marks, |ecn| ecn.0);
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
