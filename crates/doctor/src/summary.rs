//! The findings of a run in numbers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Precision, Scope, Tier};
use crate::facts::Served;
use crate::finding::{Class, Finding};
use crate::rules::Doctor;

/// The findings of a run in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The tier of the observer.
    pub tier: Tier,
    /// What was in scope.
    pub scope: Scope,
    /// `uname -r` of the observed machine.
    pub kernel: String,
    /// How long it was observed, seconds.
    pub watched_s: f64,
    /// Known sockets at the end.
    pub sockets: u64,
    /// Number of losses.
    pub loss: u64,
    /// Lost bytes, as far as known.
    pub bytes_lost: u64,
    /// The precision of that number.
    #[serde(default)]
    pub bytes_lost_precision: Precision,
    /// Whether each loss would have been seen. If not, "no loss found" proves nothing.
    #[serde(default)]
    pub sees_each_loss: bool,
    /// Number of findings of class slow.
    pub slow: u64,
    /// Number of findings of class cpu.
    pub cpu: u64,
    /// Number of findings of class connect.
    pub connect: u64,
    /// Number of harmless findings and notes.
    pub harmless: u64,
    /// Events dropped because they were not read in time.
    pub dropped: u64,
    /// How often the socket tables were scanned; `None` in a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<u64>,
    /// With tables alone: connection ends that the counters of the namespaces in scope have
    /// (`ActiveOpens`, `PassiveOpens`) and no scan showed. At most this many are in scope. `None`
    /// if the tier does not depend on scans, or no namespace is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_connections: Option<u64>,
    /// Scans of the socket tables per second, as measured; `None` in a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_per_s: Option<f64>,
    /// What servers used for each connection, most processor time first.
    #[serde(default)]
    pub served: Vec<Served>,
}

impl Summary {
    /// The summary of what a doctor has found so far.
    #[must_use]
    pub fn of(doctor: &Doctor, watched: Duration) -> Self {
        let findings = doctor.findings();
        // A recording may come from anyone and contain any numbers.
        let sum = |wanted: &dyn Fn(&Finding) -> bool, number: &dyn Fn(&Finding) -> u64| {
            let numbers = findings.iter().filter(|one| wanted(one)).map(number);
            numbers.fold(0, u64::saturating_add)
        };
        let times = |one: &Finding| one.times;
        let of_class =
            |class: Class| sum(&|one: &Finding| one.class == class && !one.harmless, &times);
        let facts = doctor.facts();
        let losses = findings.iter().filter(|one| one.class == Class::Loss && !one.harmless);
        let precision = losses.map(Finding::precision).reduce(Precision::and).unwrap_or_default();
        let bytes_lost_precision = match precision {
            // Losses that were not seen may add to it.
            Precision::Exact if !facts.sees_each_loss() => Precision::AtLeast,
            precision => precision,
        };
        Self {
            tier: facts.tier(),
            scope: facts.scope(),
            kernel: facts.kernel().to_owned(),
            watched_s: watched.as_secs_f64(),
            sockets: facts.sockets().count() as u64,
            loss: of_class(Class::Loss),
            bytes_lost: sum(&|one| one.class == Class::Loss, &|one| one.bytes.unwrap_or(0)),
            bytes_lost_precision,
            sees_each_loss: facts.sees_each_loss(),
            slow: of_class(Class::Slow),
            cpu: of_class(Class::Cpu),
            connect: of_class(Class::Connect),
            harmless: sum(&|one| one.harmless || one.class == Class::Note, &times),
            dropped: facts.dropped(),
            looks: None,
            unseen_connections: facts.unseen_connections(),
            looks_per_s: None,
            served: facts.served(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Actor, Precision, What};
    use crate::story::Story;

    #[test]
    fn numbers_of_a_hostile_recording_do_not_overflow() {
        let mut story = Story::new(Scope::Machine);
        for pid in [4, 5, 5, 6] {
            let by = Actor { pid, tid: pid, ending: None };
            let path = Some("/a".to_owned());
            let (bytes, precision) = (u64::MAX, Precision::Exact);
            story = story.with(What::UnixUnread { by, bytes, precision, sender: None, path });
            story = story.with(What::Dropped { events: u64::MAX });
        }
        let mut doctor = Doctor::new();
        for event in &story.events {
            doctor.take(event);
        }
        doctor.end();
        let summary = Summary::of(&doctor, Duration::MAX);
        assert_eq!((summary.loss, summary.bytes_lost), (4, u64::MAX));
        assert_eq!(summary.dropped, u64::MAX);
        assert!(!summary.sees_each_loss);
    }

    #[test]
    fn a_sum_is_as_sure_as_its_parts() {
        use Precision::{About, AtLeast, AtMost, Exact};
        for (one, other, sum) in [
            (Exact, Exact, Exact),
            (Exact, AtMost, AtMost),
            (AtLeast, Exact, AtLeast),
            (AtLeast, AtMost, About),
            (About, AtMost, About),
        ] {
            assert_eq!(one.and(other), sum, "{one:?} {other:?}");
            assert_eq!(other.and(one), sum, "{other:?} {one:?}");
        }
    }
}
