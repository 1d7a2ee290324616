//! The rules: pure code over events. Each is told every event after the book was, and gives findings
//! when it is sure.

mod connect;
#[cfg(test)]
mod corpus;
mod cpu;
mod loss;
mod say;
mod slow;
#[cfg(test)]
pub(crate) mod story;

use crate::book::Book;
use crate::event::Event;
use crate::finding::{Finding, Findings};

/// One rule, or a few that rest on the same evidence.
pub(crate) trait Rule: std::fmt::Debug + Send {
    /// An event, which the book already knows.
    fn on(&mut self, event: &Event, book: &Book, found: &mut Vec<Finding>);

    /// Nothing more will come: what would have become a finding, becomes one or does not.
    fn at_end(&mut self, book: &Book, found: &mut Vec<Finding>) {
        let _ = (book, found);
    }
}

/// Every rule.
fn all() -> Vec<Box<dyn Rule>> {
    let mut rules = loss::rules();
    rules.extend(slow::rules());
    rules.extend(cpu::rules());
    rules.extend(connect::rules());
    rules
}

/// Book and rules: events in, findings out. Reads no clock and asks nobody.
#[derive(Debug)]
pub struct Doctor {
    book: Book,
    rules: Vec<Box<dyn Rule>>,
    findings: Findings,
}

impl Default for Doctor {
    fn default() -> Self {
        Self::new()
    }
}

impl Doctor {
    /// With every rule.
    #[must_use]
    pub fn new() -> Self {
        Self { book: Book::new(), rules: all(), findings: Findings::default() }
    }

    /// Takes an event. Returns what is new: findings that are not like one that was already given.
    pub fn take(&mut self, event: &Event) -> Vec<Finding> {
        self.book.note(event);
        let mut found = Vec::new();
        for rule in &mut self.rules {
            rule.on(event, &self.book, &mut found);
        }
        self.findings.add(found)
    }

    /// The end: as [`Doctor::take`].
    pub fn end(&mut self) -> Vec<Finding> {
        let mut found = Vec::new();
        for rule in &mut self.rules {
            rule.at_end(&self.book, &mut found);
        }
        self.findings.add(found)
    }

    /// What is known.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// All findings, with how often each was found: losses first, then in the order of codes.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.all()
    }
}
