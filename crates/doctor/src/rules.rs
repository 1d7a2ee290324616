//! The rules: pure code over events. Each rule sees every event after [`Facts`] has it, and returns
//! findings when it is sure.

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

/// One rule, or several that use the same evidence.
pub(crate) trait Rule: std::fmt::Debug + Send {
    /// Handles an event that is already part of `facts`.
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>);

    /// Decides everything that is still open, at the end of the observation.
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

/// What is known and the rules: events in, findings out. It reads no clock and makes no system
/// call.
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
    /// A doctor with every rule.
    #[must_use]
    pub fn new() -> Self {
        Self { facts: Facts::new(), rules: all(), findings: Findings::default() }
    }

    /// Takes an event. Returns new findings, without those like a finding already returned.
    pub fn take(&mut self, event: &Event) -> Vec<Finding> {
        self.facts.note(event);
        let mut found = Vec::new();
        for rule in &mut self.rules {
            rule.on(event, &self.facts, &mut found);
        }
        self.findings.add(found)
    }

    /// Ends the observation; returns new findings like [`Doctor::take`].
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

    /// All findings with their number of occurrences: losses first, then by code.
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

    /// The only finding in it.
    pub(crate) fn finding(&self) -> Finding {
        let mut findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
}
