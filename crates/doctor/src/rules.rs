//! The rules: pure code over events. Each is told every event after the facts was, and gives findings
//! when it is sure.

mod connect;
#[cfg(test)]
mod corpus;
mod cpu;
mod figures;
mod loss;
mod slow;

use crate::event::Event;
use crate::facts::Facts;
use crate::finding::{Finding, Findings};

/// One rule, or a few that rest on the same evidence.
pub(crate) trait Rule: std::fmt::Debug + Send {
    /// An event, which the facts already knows.
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>);

    /// Nothing more will come: what would have become a finding, becomes one or does not.
    fn at_end(&mut self, facts: &Facts, found: &mut Vec<Finding>) {
        let _ = (facts, found);
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

/// Facts and rules: events in, findings out. Reads no clock and asks nobody.
#[derive(Debug)]
pub struct Doctor {
    facts: Facts,
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
        Self { facts: Facts::new(), rules: all(), findings: Findings::default() }
    }

    /// Takes an event. Returns what is new: findings that are not like one that was already given.
    pub fn take(&mut self, event: &Event) -> Vec<Finding> {
        self.facts.note(event);
        let mut found = Vec::new();
        for rule in &mut self.rules {
            rule.on(event, &self.facts, &mut found);
        }
        self.findings.add(found)
    }

    /// The end: as [`Doctor::take`].
    pub fn end(&mut self) -> Vec<Finding> {
        let mut found = Vec::new();
        for rule in &mut self.rules {
            rule.at_end(&self.facts, &mut found);
        }
        self.findings.add(found)
    }

    /// What is known.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// All findings, with how often each was found: losses first, then in the order of codes.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.all()
    }
}

#[cfg(test)]
impl crate::story::Story {
    /// What the rules find in it, once it has ended.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut doctor = Doctor::new();
        for event in &self.events {
            doctor.take(event);
        }
        doctor.end();
        doctor.findings()
    }

    /// The only finding.
    pub(crate) fn finding(&self) -> Finding {
        let mut findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
}
