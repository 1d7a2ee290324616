//! What is declared of a statistic: name, description, unit and kind.

use std::time::Duration;

/// What is known of a statistic before anything is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    name: &'static str,
    description: &'static str,
    unit: Option<Unit>,
    kind: Kind,
    origin: Origin,
}

impl Declared {
    /// Checks what was declared, while the program is compiled.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, description: &'static str, kind: Kind) -> Self {
        check_name(name);
        let description = description.trim_ascii();
        assert!(!description.is_empty(), "a statistic has a description");
        let unit = Unit::of(name);
        let is_seconds = matches!(unit, Some(Unit::Seconds));
        let holds_times = matches!(kind, Kind::Histogram(Bounds::Times(_)));
        assert!(is_seconds || !holds_times, "the name of a time ends in `_seconds`");
        assert!(holds_times || !is_seconds, "seconds are a `Histogram<Duration>`");
        if let Kind::Histogram(bounds) = kind {
            bounds.check();
        }
        Self { name, description, unit, kind, origin: Origin::Counted }
    }

    /// The same with this origin.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// The name, such as `sent_bytes`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its description: the documentation of the field, its lines joined.
    #[must_use]
    pub const fn description(&self) -> &'static str {
        self.description
    }

    /// The unit that the name ends in; none for a plain number.
    #[must_use]
    pub const fn unit(&self) -> Option<Unit> {
        self.unit
    }

    /// What kind of statistic it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it is counted, or read from a function.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// How many cells it takes in each thread's set.
    pub(crate) fn cells(&self) -> usize {
        match self.kind {
            Kind::Counter => 1,
            // What was added, and what was taken away.
            Kind::Gauge => 2,
            // The buckets, the last without a bound, and the sum.
            Kind::Histogram(bounds) => bounds.len() + 2,
        }
    }
}

/// What a statistic can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Goes up only.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size, in buckets with these upper bounds and one more without a bound.
    Histogram(Bounds),
}

/// Where the value of a statistic comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Code counts it as it happens.
    Counted,
    /// A snapshot reads it from a function.
    Read,
}

/// The upper bounds of a histogram's buckets, each belonging to its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bounds {
    /// Of times.
    Times(&'static [Duration]),
    /// Of numbers.
    Numbers(&'static [u64]),
}

impl Bounds {
    /// Each in steps: nanoseconds for a time.
    pub(crate) fn steps(self) -> Box<[u64]> {
        match self {
            Self::Times(bounds) => bounds.iter().map(|bound| nanoseconds(*bound)).collect(),
            Self::Numbers(bounds) => bounds.into(),
        }
    }

    /// How many of its steps make one of its unit.
    pub(crate) fn steps_per_unit(self) -> f64 {
        match self {
            Self::Times(_) => 1e9,
            Self::Numbers(_) => 1.0,
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Times(bounds) => bounds.len(),
            Self::Numbers(bounds) => bounds.len(),
        }
    }

    const fn check(self) {
        assert!(self.len() > 0, "a histogram has bounds");
        let mut at = 1;
        while at < self.len() {
            let ascends = match self {
                Self::Times(bounds) => bounds[at - 1].as_nanos() < bounds[at].as_nanos(),
                Self::Numbers(bounds) => bounds[at - 1] < bounds[at],
            };
            assert!(ascends, "bounds are in ascending order");
            at += 1;
        }
    }
}

/// A time in nanoseconds; one of more than 584 years counts as that.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The unit of a statistic, which its name ends in (OpenMetrics 1.0, "Units and Base Units").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// The word that a name ends in.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }

    const fn of(name: &str) -> Option<Self> {
        if ends_in(name, "_bytes") {
            Some(Self::Bytes)
        } else if ends_in(name, "_seconds") {
            Some(Self::Seconds)
        } else {
            None
        }
    }
}

/// Refuses names that OpenMetrics 1.0 refuses or gives another meaning ("Suffixes").
const fn check_name(name: &str) {
    check_word(name);
    let mut at = 0;
    while at < RESERVED.len() {
        assert!(!ends_in(name, RESERVED[at]), "OpenMetrics gives this ending a meaning");
        at += 1;
    }
}

const RESERVED: [&str; 7] = ["_total", "_created", "_count", "_sum", "_bucket", "_info", "_gsum"];

/// Refuses a name or a label that is not of `a-z`, `0-9` and `_`, or does not begin with a letter.
pub(crate) const fn check_word(word: &str) {
    let bytes = word.as_bytes();
    assert!(!bytes.is_empty() && bytes[0].is_ascii_lowercase(), "a name begins with one of a-z");
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let fits = byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(fits, "a name has nothing but a-z, 0-9 and _");
        at += 1;
    }
}

const fn ends_in(name: &str, ending: &str) -> bool {
    let (name, ending) = (name.as_bytes(), ending.as_bytes());
    if name.len() < ending.len() {
        return false;
    }
    let mut at = 0;
    while at < ending.len() {
        if name[name.len() - ending.len() + at] != ending[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_end_of_the_name() {
        assert_eq!(Unit::of("sent_bytes"), Some(Unit::Bytes));
        assert_eq!(Unit::of("connect_seconds"), Some(Unit::Seconds));
        assert_eq!(Unit::of("bytes"), None);
        assert_eq!(Unit::of("megabytes"), None);
        assert_eq!(Unit::of("bytes_sent"), None);
    }

    #[test]
    fn lines_of_a_description_are_joined() {
        let declared = Declared::new("flows", concat!(" One line,", " and another. "), Kind::Gauge);
        assert_eq!(declared.description(), "One line, and another.");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let one = &[Duration::ZERO];
        let refused: [(&'static str, &'static str, Kind); 10] = [
            ("flows", "", Kind::Counter),
            ("flows", " \t", Kind::Counter),
            ("Flows", "Flows.", Kind::Counter),
            ("_flows", "Flows.", Kind::Counter),
            ("flöws", "Flows.", Kind::Counter),
            ("flows_total", "Flows.", Kind::Counter),
            ("busy_seconds", "Time.", Kind::Counter),
            ("connect", "Time.", Kind::Histogram(Bounds::Times(one))),
            ("flow_bytes", "Sizes.", Kind::Histogram(Bounds::Numbers(&[]))),
            ("flow_bytes", "Sizes.", Kind::Histogram(Bounds::Numbers(&[2, 2]))),
        ];
        for (name, description, kind) in refused {
            let made = std::panic::catch_unwind(|| Declared::new(name, description, kind));
            assert!(made.is_err(), "{name:?}, {description:?}, {kind:?}");
        }
    }
}
