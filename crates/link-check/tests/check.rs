//! The check over real links: it finds true ones true, and says what it did not measure. Without the
//! rights these tests say so and pass.
//!
//! They run one at a time (`.config/nextest.toml`), as they are about time.
//!
//! What holds whatever the machine does is in the first tests: counts, what arrives not too early, what is
//! and is not measured. What depends on the clock is in `soak`: most runs have to come out right, of those
//! in which the link was not late by its own account. How figures are judged is tested without a clock,
//! in `src/claims`.

use lastbyte_link::{LinkError, Scenario, Spec, Way};
use lastbyte_link_check::{Finding, Findings, Measured, Moment, Outcome, Subject, measure};
use lastbyte_testing::{Run, first_that_counts};

/// Checks a path, and `judge` panics where what was found is wrong. A run with figures that the machine was
/// too busy for is void.
fn found(toml: &str, judge: fn(&Findings)) {
    let spec = Scenario::parse("test", toml).unwrap().spec;
    first_that_counts(toml, |_| match measured(&spec, 1) {
        Err(why) => Run::NotHere(why),
        Ok(findings) => match too_busy(&findings) {
            Some(why) => Run::Void(why),
            None => {
                judge(&findings);
                Run::Right
            }
        },
    });
}

/// The first figure that the machine was too busy for.
fn too_busy(findings: &Findings) -> Option<String> {
    let is_missing = |one: &&Finding| matches!(one.outcome, Outcome::TooBusy(_));
    findings.list.iter().find(is_missing).map(|one| format!("{one:?}"))
}

/// What was found, or which right is missing.
fn measured(spec: &Spec, seed: u64) -> Result<Findings, String> {
    let before = descriptors();
    let measured = measure(spec, seed, &mut |_| {});
    assert_eq!(descriptors(), before, "all descriptors are closed again");
    match measured {
        Ok(findings) => Ok(findings),
        Err(error @ LinkError::Rights { .. }) => Err(error.to_string()),
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
fn every_packet_is_accounted_for_and_every_field_is_measured() {
    let toml = "rtt = '20ms'\nloss = '2%'\nrate = '8mbit'\n[down]\nrate = '4mbit'\ndelay = '5ms'";
    found(toml, |findings| {
        assert_all_measured(findings);
        let [up, down] = [Way::Up, Way::Down].map(|way| {
            assert!(figure(findings, Subject::Unaccounted, Some(way)).is_inside());
            // A link holds packets. How exactly it does is the machine's matter too.
            let delay = figure(findings, Subject::Delay, Some(way));
            assert!(delay.got > delay.asked / 2.0, "{delay:?}");
            (figure(findings, Subject::Rate, Some(way)), figure(findings, Subject::Loss, Some(way)))
        });
        assert_eq!((up.0.asked, down.0.asked), (8e6, 4e6));
        for (rate, loss) in [up, down] {
            assert!(rate.got > 0.0 && rate.got < rate.asked * 1.02, "{rate:?}");
            // The seed decides which are lost, not the machine.
            assert!(loss.is_inside() && loss.got > 0.0, "{loss:?}");
        }
    });
}

#[test]
fn what_was_not_asked_is_not_checked() {
    found("rtt = '2ms'", |findings| {
        for subject in [Subject::Rate, Subject::QueueTime, Subject::QueueBytes] {
            let outcome = &finding(findings, subject, Some(Way::Up)).outcome;
            assert!(matches!(outcome, Outcome::NotChecked(_)), "{outcome:?}");
        }
        let loss = figure(findings, Subject::Loss, Some(Way::Down));
        assert_eq!((loss.asked, loss.got), (0.0, 0.0), "{loss:?}");
    });
}

#[test]
fn a_link_that_loses_all_has_no_delay_but_a_loss() {
    found("rtt = '2ms'\nloss = '100%'", |findings| {
        assert_eq!(figure(findings, Subject::Loss, Some(Way::Up)).got, 1.0);
        let delay = &finding(findings, Subject::Delay, Some(Way::Up)).outcome;
        assert!(matches!(delay, Outcome::NotMeasured(_)), "{delay:?}");
        assert!(!findings.is_as_asked());
    });
}

/// Each thing that can happen to packets, with what of it the seed decides alone.
#[test]
fn all_that_can_happen_to_packets_is_measured() {
    let toml = "rtt = '10ms'\nmtu = 1300\n[up]\njitter = '1ms'\nreorder = true\n\
                burst_loss = { share = '3%', packets = 4.0 }\ncorrupt = '2%'\nduplicate = '2%'\n\
                lose_every = 1000\nrate = '16mbit'\nqueue = '200kB'\nmanagement = 'codel'\n\
                ecn = true\n[down]\npolicer = { rate = '16mbit', burst = '20kB' }";
    found(toml, |findings| {
        assert_all_measured(findings);
        for way in [Way::Up, Way::Down] {
            assert!(figure(findings, Subject::Unaccounted, Some(way)).is_inside());
        }
        let up = |subject| figure(findings, subject, Some(Way::Up)).got;
        assert_eq!((up(Subject::LoseEvery), up(Subject::LongestPacket)), (1000.0, 1300.0));
        assert!(up(Subject::BurstLoss) > 0.0 && up(Subject::Corrupted) > 0.0);
        assert!(up(Subject::Duplicated) > 0.0 && up(Subject::Signals) > 0.0);
        assert_eq!(up(Subject::DroppedUnmarked), 0.0);
        assert_eq!(figure(findings, Subject::Reordered, Some(Way::Down)).got, 0.0);
    });
}

/// Each thing that was asked has a figure. A phase for which this machine was too busy has none, and says so.
#[track_caller]
fn assert_all_measured(findings: &Findings) {
    let has_none = |one: &&Finding| matches!(one.outcome, Outcome::NotMeasured(_));
    let without: Vec<_> = findings.list.iter().filter(has_none).collect();
    assert!(without.is_empty(), "{without:#?}");
}

mod soak {
    use lastbyte_testing::mostly;

    use super::*;

    /// Checks a path until most runs came out right: as asked, and as `more` says.
    fn mostly_as_asked(toml: &str, more: fn(&Findings) -> bool) {
        let spec = Scenario::parse("test", toml).unwrap().spec;
        mostly(toml, |seed| judged(&spec, seed, more));
    }

    /// Void is a run in which the link was late or lost packets at its devices, by its own account, or the
    /// machine too busy to receive; a link that always is fails as not tested.
    fn judged(spec: &Spec, seed: u64, more: fn(&Findings) -> bool) -> Run {
        let findings = match measured(spec, seed) {
            Ok(findings) => findings,
            Err(why) => return Run::NotHere(why),
        };
        for way in [Way::Up, Way::Down] {
            assert!(figure(&findings, Subject::Unaccounted, Some(way)).is_inside());
        }
        let is_own =
            |one: &Finding| matches!(one.subject, Subject::Lateness | Subject::DeviceDrops);
        let wrong = |one: &&Finding| match &one.outcome {
            Outcome::Measured(measured) => !measured.is_inside(),
            Outcome::NotChecked(_) => false,
            _ => true,
        };
        let wrong: Vec<_> = findings.list.iter().filter(wrong).collect();
        let late = || wrong.iter().find(|one| is_own(one)).map(|one| format!("{one:?}"));
        if let Some(why) = too_busy(&findings).or_else(late) {
            return Run::Void(why);
        }
        Run::right_if(findings.is_as_asked() && more(&findings), || format!("{wrong:?}"))
    }

    #[test]
    #[ignore = "measures a link for a minute"]
    fn a_link_does_what_was_asked_of_it() {
        let toml =
            "rtt = '20ms'\nloss = '2%'\nrate = '8mbit'\n[down]\nrate = '4mbit'\ndelay = '5ms'";
        mostly_as_asked(toml, |findings| {
            figure(findings, Subject::Rate, Some(Way::Down)).asked == 4e6
        });
    }

    #[test]
    #[ignore = "measures a link for a minute"]
    fn what_happens_to_packets_is_measured() {
        let toml = "rtt = '10ms'\nmtu = 1300\n[up]\njitter = '1ms'\nreorder = true\n\
                    burst_loss = { share = '3%', packets = 4.0 }\ncorrupt = '2%'\nduplicate = '2%'\n\
                    lose_every = 1000\nrate = '16mbit'\nqueue = '200kB'\nmanagement = 'codel'\n\
                    ecn = true\n[down]\npolicer = { rate = '16mbit', burst = '20kB' }";
        mostly_as_asked(toml, |findings| {
            let up = |subject| figure(findings, subject, Some(Way::Up)).got;
            let down = |subject| figure(findings, subject, Some(Way::Down)).got;
            (up(Subject::LoseEvery), up(Subject::LongestPacket)) == (1000.0, 1300.0)
                && up(Subject::Reordered) >= 1.0
                && up(Subject::BurstLoss) > 0.0
                && up(Subject::Corrupted) > 0.0
                && up(Subject::Duplicated) > 0.0
                && up(Subject::DelayHigh) > up(Subject::DelayLow) + 0.001
                // A packet that is struck after 100 ms above 5 ms was sent before it waited.
                && up(Subject::FirstSignal) > 0.09
                && up(Subject::Signals) > 50.0
                && up(Subject::DroppedUnmarked) == 0.0
                && (down(Subject::PolicerBurst) - 20_000.0).abs() < 3_300.0
                && down(Subject::Reordered) == 0.0
        });
    }

    #[test]
    #[ignore = "measures a link for a minute"]
    fn marks_above_a_length_of_the_queue_are_measured() {
        let toml = "rtt = '4ms'\nrate = '16mbit'\nqueue = '200kB'\necn = '30kB'";
        mostly_as_asked(toml, |findings| {
            [Way::Up, Way::Down].into_iter().all(|way| {
                let got = |subject| figure(findings, subject, Some(way)).got;
                // A queue that grows by 4 Mbit/s is 30 kB long after 60 ms.
                (got(Subject::FirstMark) - 0.06).abs() < 0.01
                    && got(Subject::Marks) > 3_000.0
                    && got(Subject::DroppedUnmarked) == 0.0
            })
        });
    }

    #[test]
    #[ignore = "measures a link for a minute"]
    fn what_happens_at_set_times_is_measured() {
        let toml = "rtt = '4ms'\nrate = '8mbit'\ncuts = [{ at = '400ms', lasting = '200ms' }]\n\
                    [[changes]]\nat = '700ms'\nrate = '4mbit'\nloss = '5%'\n\
                    [[changes]]\nat = '1200ms'\nway = 'down'\ndelay = '12ms'\n\
                    [[changes]]\nat = '1h'\nrate = '1mbit'";
        mostly_as_asked(toml, |findings| {
            let delay = Subject::Change { number: 2, of: "delay", moment: Moment::After };
            let both = [Way::Up, Way::Down].into_iter().all(|way| {
                let rate = Subject::Change { number: 1, of: "rate", moment: Moment::Itself };
                let far = &finding(findings, Subject::Unchecked("a change"), Some(way)).outcome;
                (figure(findings, Subject::CutLength(1), Some(way)).got - 0.2).abs() < 0.012
                    && (figure(findings, rate, Some(way)).got - 0.7).abs() < 0.03
                    && matches!(far, Outcome::NotChecked(why) if why.contains("number 3"))
            });
            both && figure(findings, delay, Some(Way::Down)).asked == 0.012
        });
    }

    #[test]
    #[ignore = "checks all scenarios over real links: ten minutes on an idle machine"]
    fn every_scenario_is_checked_whole() {
        for scenario in Scenario::all().unwrap() {
            mostly(&scenario.name, |seed| {
                judged(&scenario.spec, seed, |findings| {
                    let unchecked = |one: &Finding| matches!(one.outcome, Outcome::NotChecked(_));
                    !findings.list.iter().any(unchecked)
                })
            });
        }
    }
}
