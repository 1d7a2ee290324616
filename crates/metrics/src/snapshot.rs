//! What was counted, as plain data.

use std::fmt;

use crate::declare::{Declared, Kind};

/// All statistics of one or more families, with what was counted until it was taken.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    readings: Vec<Reading>,
}

impl Snapshot {
    pub(crate) fn new(readings: Vec<Reading>) -> Self {
        Self { readings }
    }

    /// This and the statistics of another family.
    ///
    /// # Panics
    /// If both have a statistic of the same name: a name means one thing in a program.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for reading in other.readings {
            let name = reading.declared.name();
            assert!(self.find(name).is_none(), "`{name}` is declared twice");
            self.readings.push(reading);
        }
        self
    }

    /// All statistics, in the order of their declaration.
    #[must_use]
    pub fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// The statistic of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Reading> {
        self.readings.iter().find(|reading| reading.declared.name() == name)
    }
}

/// One statistic with what was counted. Its text has a line for each member, `name{route="db"} 7`,
/// quoted as OpenMetrics does; that of [`total`](Self::total) is the figure alone.
#[derive(Debug, Clone)]
pub struct Reading {
    declared: &'static Declared,
    label: &'static str,
    points: Vec<Point>,
}

impl Reading {
    pub(crate) fn new(
        declared: &'static Declared,
        label: &'static str,
        points: Vec<Point>,
    ) -> Self {
        Self { declared, label, points }
    }

    /// Name, description, unit and kind.
    #[must_use]
    pub fn declared(&self) -> &'static Declared {
        self.declared
    }

    /// The label that tells the points apart, such as `route`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.label
    }

    /// What each member counted, the one without a label first, then by name. In a statistic that is
    /// read, a member without a [`Source`](crate::Source) has no point.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The value of a point of this statistic.
    #[must_use]
    pub fn value(&self, point: &Point) -> Value {
        point.cells.as_ref().map_or(Value::Unknown, |cells| Value::of(self.declared.kind(), cells))
    }

    /// What all members counted, and those that are gone; unknown if one of them is.
    #[must_use]
    pub fn total(&self) -> Value {
        let mut cells = vec![0_u64; self.declared.cells()];
        for point in &self.points {
            let Some(counted) = &point.cells else { return Value::Unknown };
            for (sum, cell) in cells.iter_mut().zip(counted) {
                *sum = sum.wrapping_add(*cell);
            }
        }
        Value::of(self.declared.kind(), &cells)
    }
}

/// What one member counted.
#[derive(Debug, Clone)]
pub struct Point {
    member: String,
    /// `None` if a function returned no value.
    cells: Option<Vec<u64>>,
}

impl Point {
    pub(crate) fn new(member: &str, cells: Option<Vec<u64>>) -> Self {
        Self { member: member.to_owned(), cells }
    }

    /// The name of the member; empty for the one without a label.
    #[must_use]
    pub fn member(&self) -> &str {
        &self.member
    }
}

/// What was counted. Its text is the figure alone, in the statistic's unit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Of a counter.
    Counter(u64),
    /// Of a gauge.
    Gauge(i64),
    /// Of a histogram.
    Histogram(Distribution),
    /// Of a statistic that is read, if its function returned no value.
    Unknown,
}

/// What a histogram counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    /// Their sum, in the statistic's unit.
    pub sum: f64,
    /// The upper bound of each bucket, in the statistic's unit, and how many values are in that
    /// bucket alone. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

impl Value {
    fn of(kind: Kind, cells: &[u64]) -> Self {
        match (kind, cells) {
            (Kind::Counter, [count]) => Self::Counter(*count),
            (Kind::Gauge, [added, taken]) => Self::Gauge(added.wrapping_sub(*taken).cast_signed()),
            (Kind::Histogram(bounds), [buckets @ .., sum]) => {
                let unit = |steps: u64| in_units(steps, bounds.steps_per_unit());
                let upper = bounds.steps().into_iter().map(unit).chain([f64::INFINITY]);
                Self::Histogram(Distribution {
                    count: buckets.iter().copied().fold(0, u64::wrapping_add),
                    sum: unit(*sum),
                    buckets: upper.zip(buckets.iter().copied()).collect(),
                })
            }
            _ => panic!("{} cells are none of a {kind:?}", cells.len()),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "OpenMetrics has these figures as f64")]
fn in_units(steps: u64, steps_per_unit: f64) -> f64 {
    steps as f64 / steps_per_unit
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter(count) => count.fmt(f),
            Self::Gauge(level) => level.fmt(f),
            Self::Histogram(seen) => write!(f, "count {}, sum {}", seen.count, seen.sum),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for point in &self.points {
            let (name, value) = (self.declared.name(), self.value(point));
            if point.member.is_empty() {
                writeln!(f, "{name} {value}")?;
            } else {
                let member = escaped(&point.member);
                writeln!(f, "{name}{{{}=\"{member}\"}} {value}", self.label)?;
            }
        }
        Ok(())
    }
}

/// Text between quotes, or a description, as OpenMetrics 1.0 writes it (ABNF, `escaped-string`).
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
