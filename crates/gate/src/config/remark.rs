//! Remarks on a configuration, each with its line.

use std::fmt;
use std::sync::Arc;

/// A sentence about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its position, if the configuration is from a file.
    pub place: Option<Place>,
    /// What it is about.
    pub of: Subject,
    /// The key, after the table of the route that it is in: `upstream.congestion`. Empty where the remark
    /// is about the whole.
    pub key: String,
    /// What is wrong or worth knowing, and what would be right.
    pub sentence: String,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// The line, from 1 on.
    pub line: usize,
    /// The character in the line, from 1 on.
    pub column: usize,
}

/// What a remark is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The gate.
    Gate,
    /// A route: its index from 0 on, and its name, if it is known.
    Route(usize, Option<Arc<str>>),
}

impl Subject {
    /// The index of the route.
    pub(super) fn index(&self) -> Option<usize> {
        match self {
            Self::Gate => None,
            Self::Route(index, _) => Some(*index),
        }
    }
}

impl Remark {
    pub(super) fn new(of: Subject, key: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { place: None, of, key: key.into(), sentence: sentence.into() }
    }
}

/// `gate.toml:7:14: route db: upstream.congestion: this kernel has no ...`
impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { file, line, column }) = &self.place {
            write!(f, "{file}:{line}:{column}: ")?;
        }
        match &self.of {
            Subject::Gate => {}
            Subject::Route(_, Some(name)) => write!(f, "route {name}: ")?,
            Subject::Route(index, None) => write!(f, "route {}: ", index + 1)?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.sentence)
    }
}

/// Why a configuration cannot be used: all faults, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub Vec<Remark>);

impl std::error::Error for Refused {}

/// A line for each.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}
