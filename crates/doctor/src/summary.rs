//! All that was found, in numbers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Scope, Tier};
use crate::finding::{Class, Finding};
use crate::rules::Doctor;

/// All that was found, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// From where was watched.
    pub tier: Tier,
    /// What was asked about.
    pub scope: Scope,
    /// `uname -r` of the machine that was watched.
    pub kernel: String,
    /// For how long, seconds.
    pub watched_s: f64,
    /// Sockets that are remembered.
    pub sockets: u64,
    /// How often bytes were lost.
    pub loss: u64,
    /// The bytes of those, as far as they are known.
    pub bytes_lost: u64,
    /// How often it was slow.
    pub slow: u64,
    /// How often processor time was burnt.
    pub cpu: u64,
    /// How often connections came late or not at all.
    pub connect: u64,
    /// Things of which nothing came.
    pub harmless: u64,
    /// Events that came faster than they could be taken.
    pub dropped: u64,
}

impl Summary {
    /// Of what a doctor has found so far.
    #[must_use]
    pub fn of(doctor: &Doctor, watched: Duration) -> Self {
        let findings = doctor.findings();
        let sum = |wanted: &dyn Fn(&Finding) -> bool| {
            findings.iter().filter(|one| wanted(one)).map(|one| one.times).sum()
        };
        let of_class =
            |class: Class| sum(&move |one: &Finding| one.class == class && !one.harmless);
        let book = doctor.book();
        Self {
            tier: book.tier(),
            scope: book.scope(),
            kernel: book.kernel().to_owned(),
            watched_s: watched.as_secs_f64(),
            sockets: book.sockets().count() as u64,
            loss: of_class(Class::Loss),
            bytes_lost: findings
                .iter()
                .filter(|one| one.class == Class::Loss)
                .filter_map(|one| one.bytes)
                .sum(),
            slow: of_class(Class::Slow),
            cpu: of_class(Class::Cpu),
            connect: of_class(Class::Connect),
            harmless: sum(&|one: &Finding| one.harmless || one.class == Class::Note),
            dropped: book.dropped(),
        }
    }
}
