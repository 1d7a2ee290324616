//! The check over real links: it finds true ones true, and says what it did not measure. Without the
//! rights these tests say so and pass.
//!
//! They measure, and a machine that is busy with other things is late: what depends on the clock is
//! tried a few times, and has to come out right once.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

use std::sync::{Mutex, PoisonError};

use lastbyte_link::Way;
use lastbyte_link::check::{Finding, Findings, Measured, Outcome, Subject, measure};
use lastbyte_link::{LinkError, Scenario};

const TRIES: u32 = 3;
/// One at a time: they are about time.
static MEASURING: Mutex<()> = Mutex::new(());

/// What was found, or the reason aloud why this machine cannot make a link.
fn found(toml: &str) -> Option<Findings> {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let spec = Scenario::parse("test", toml).unwrap().spec;
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let measured = measure(&spec, 1, &mut |_| {});
    assert_eq!(descriptors(), before, "all descriptors are closed again");
    match measured {
        Ok(findings) => Some(findings),
        Err(error @ LinkError::Rights { .. }) => {
            eprintln!("NOT TESTED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn finding(findings: &Findings, subject: Subject, way: Option<Way>) -> &Finding {
    let is_it = |one: &&Finding| one.subject == subject && one.way == way;
    findings.list.iter().find(is_it).unwrap()
}

fn figure(findings: &Findings, subject: Subject, way: Option<Way>) -> &Measured {
    match &finding(findings, subject, way).outcome {
        Outcome::Measured(measured) => measured,
        other => panic!("{subject}: {other:?}"),
    }
}

#[test]
fn a_link_does_what_was_asked_of_it() {
    let toml = "rtt = '20ms'\nloss = '2%'\nrate = '8mbit'\n[down]\nrate = '4mbit'\ndelay = '5ms'";
    for attempt in 1..=TRIES {
        let Some(findings) = found(toml) else { return };
        for way in [Way::Up, Way::Down] {
            // Counts are exact, whatever the machine does.
            assert!(figure(&findings, Subject::Unaccounted, Some(way)).is_inside());
        }
        if findings.is_as_asked() {
            assert_eq!(figure(&findings, Subject::Rate, Some(Way::Down)).asked, 4e6);
            return;
        }
        eprintln!("attempt {attempt}: {:#?}", findings.list);
        assert!(attempt < TRIES, "never as asked");
    }
}

#[test]
fn what_was_not_asked_is_not_checked() {
    let Some(findings) = found("rtt = '2ms'") else { return };
    for subject in [Subject::Rate, Subject::QueueTime, Subject::QueueBytes] {
        let outcome = &finding(&findings, subject, Some(Way::Up)).outcome;
        assert!(matches!(outcome, Outcome::NotChecked(_)), "{outcome:?}");
    }
    let loss = figure(&findings, Subject::Loss, Some(Way::Down));
    assert_eq!((loss.asked, loss.got), (0.0, 0.0), "{loss:?}");
}

#[test]
fn a_link_that_loses_all_has_no_delay_but_a_loss() {
    let Some(findings) = found("rtt = '2ms'\nloss = '100%'") else { return };
    assert_eq!(figure(&findings, Subject::Loss, Some(Way::Up)).got, 1.0);
    let delay = &finding(&findings, Subject::Delay, Some(Way::Up)).outcome;
    assert!(matches!(delay, Outcome::NotMeasured(_)), "{delay:?}");
    assert!(!findings.is_as_asked());
}
