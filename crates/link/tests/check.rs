//! The check over real links: it finds true ones true, and says what it did not measure. Without the
//! rights these tests say so and pass.
//!
//! They measure, and a machine that is busy with other things is late: what depends on the clock is
//! tried a few times, and has to come out right once.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

use std::sync::{Mutex, PoisonError};

use lastbyte_link::Way;
use lastbyte_link::check::{Finding, Findings, Measured, Moment, Outcome, Subject, measure};
use lastbyte_link::{LinkError, Scenario};

const TRIES: u32 = 5;
/// One at a time: they are about time.
static MEASURING: Mutex<()> = Mutex::new(());

/// What was found, or the reason aloud why this machine cannot make a link.
fn found(toml: &str) -> Option<Findings> {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let spec = Scenario::parse("test", toml).unwrap().spec;
    let before = descriptors();
    let measured = measure(&spec, 1, &mut |_| {});
    assert_eq!(descriptors(), before, "all descriptors are closed again");
    match measured {
        Ok(findings) => Some(findings),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Open descriptors of things that are no files: a test that panics beside this one reads files for its
/// backtrace.
fn descriptors() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_no_file =
        |path: std::path::PathBuf| !std::fs::metadata(path).is_ok_and(|it| it.is_file());
    open.filter(|entry| is_no_file(entry.as_ref().unwrap().path())).count()
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

/// Tries a path until all is as asked; what was found then.
fn as_asked(toml: &str) -> Option<Findings> {
    for attempt in 1..=TRIES {
        let findings = found(toml)?;
        for way in [Way::Up, Way::Down] {
            assert!(figure(&findings, Subject::Unaccounted, Some(way)).is_inside());
        }
        if findings.is_as_asked() {
            return Some(findings);
        }
        let wrong = |one: &&Finding| match &one.outcome {
            Outcome::Measured(measured) => !measured.is_inside(),
            _ => true,
        };
        eprintln!(
            "attempt {attempt}: {:#?}",
            findings.list.iter().filter(wrong).collect::<Vec<_>>()
        );
    }
    panic!("never as asked: {toml}");
}

#[test]
fn what_happens_to_packets_is_measured() {
    let toml = "rtt = '10ms'\nmtu = 1300\n[up]\njitter = '1ms'\nreorder = true\n\
                burst_loss = { share = '3%', packets = 4.0 }\ncorrupt = '2%'\nduplicate = '2%'\n\
                lose_every = 1000\nrate = '16mbit'\nqueue = '200kB'\nmanagement = 'codel'\n\
                ecn = true\n[down]\npolicer = { rate = '16mbit', burst = '20kB' }";
    let Some(findings) = as_asked(toml) else { return };
    let up = |subject| figure(&findings, subject, Some(Way::Up)).got;
    assert_eq!((up(Subject::LoseEvery), up(Subject::LongestPacket)), (1000.0, 1300.0));
    assert!(up(Subject::Overtaken) >= 1.0 && up(Subject::BurstLoss) > 0.0);
    assert!(up(Subject::Damaged) > 0.0 && up(Subject::Doubled) > 0.0);
    assert!(up(Subject::DelayHigh) > up(Subject::DelayLow) + 0.001);
    // A packet that is struck after 100 ms above 5 ms was sent before it waited.
    assert!(up(Subject::FirstStrike) > 0.09, "100 ms above 5 ms");
    assert!(up(Subject::Strikes) > 50.0 && up(Subject::DroppedUnmarked) == 0.0);
    let down = |subject| figure(&findings, subject, Some(Way::Down)).got;
    assert!((down(Subject::PolicerBurst) - 20_000.0).abs() < 3_300.0);
    assert_eq!(down(Subject::Overtaken), 0.0);
}

#[test]
fn marks_above_a_length_of_the_queue_are_measured() {
    let toml = "rtt = '4ms'\nrate = '16mbit'\nqueue = '200kB'\necn = '30kB'";
    let Some(findings) = as_asked(toml) else { return };
    for way in [Way::Up, Way::Down] {
        let got = |subject| figure(&findings, subject, Some(way)).got;
        // A queue that grows by 4 Mbit/s is 30 kB long after 60 ms.
        assert!((got(Subject::FirstMark) - 0.06).abs() < 0.01);
        assert!(got(Subject::Marks) > 3_000.0 && got(Subject::DroppedUnmarked) == 0.0);
    }
}

#[test]
fn what_happens_at_set_times_is_measured() {
    let toml = "rtt = '4ms'\nrate = '8mbit'\ncuts = [{ at = '400ms', lasting = '200ms' }]\n\
                [[changes]]\nat = '700ms'\nrate = '4mbit'\nloss = '5%'\n\
                [[changes]]\nat = '1200ms'\nway = 'down'\ndelay = '12ms'\n\
                [[changes]]\nat = '1h'\nrate = '1mbit'";
    let Some(findings) = as_asked(toml) else { return };
    for way in [Way::Up, Way::Down] {
        let cut = figure(&findings, Subject::CutLength(1), Some(way));
        assert!((cut.got - 0.2).abs() < 0.012, "{cut:?}");
        let subject = Subject::Change { number: 1, of: "rate", moment: Moment::Itself };
        assert!((figure(&findings, subject, Some(way)).got - 0.7).abs() < 0.03);
        let far = &finding(&findings, Subject::Unchecked("a change"), Some(way)).outcome;
        assert!(matches!(far, Outcome::NotChecked(why) if why.contains("number 3")), "{far:?}");
    }
    let subject = Subject::Change { number: 2, of: "delay", moment: Moment::After };
    assert_eq!(figure(&findings, subject, Some(Way::Down)).asked, 0.012);
}

#[test]
#[ignore = "checks all scenarios over real links: three minutes on an idle machine"]
fn every_scenario_is_checked_whole() {
    for scenario in Scenario::all().unwrap() {
        for attempt in 1..=TRIES {
            let findings = match measure(&scenario.spec, 1, &mut |_| {}) {
                Ok(findings) => findings,
                Err(error @ LinkError::Rights { .. }) => {
                    return lastbyte_testing::not_tested!("{error}");
                }
                Err(error) => panic!("{}: {error}", scenario.name),
            };
            let unchecked = |one: &&Finding| matches!(one.outcome, Outcome::NotChecked(_));
            let unchecked: Vec<_> = findings.list.iter().filter(unchecked).collect();
            assert!(unchecked.is_empty(), "{}: {unchecked:#?}", scenario.name);
            if findings.is_as_asked() {
                break;
            }
            eprintln!("{}, attempt {attempt}: {:#?}", scenario.name, findings.list);
            assert!(attempt < TRIES, "{}: never as asked", scenario.name);
        }
    }
}
