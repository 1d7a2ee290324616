//! What is asked for, by a host with IPv6 and by one without.

use std::process::Command;
use std::time::Duration;

use lastbyte_dial::blocking::Dialer;
use lastbyte_dial::{DialOptions, Families, Question, Resolver, What};
use lastbyte_link::{LinkError, Namespace};

#[test]
fn a_host_without_ipv6_asks_for_ipv4_alone() {
    let host = match Namespace::create() {
        Ok(host) => host,
        Err(error @ LinkError::Rights { .. }) => return lastbyte_testing::not_tested!("{error}"),
        Err(error) => panic!("{error}"),
    };
    let both = vec![Question::Aaaa, Question::A];
    host.run(|| {
        assert_eq!(asked("name.invalid", Families::Both), [Question::A]);
        assert_eq!(asked("name.invalid", Families::Ipv6), [Question::Aaaa], "told to");
        for name in ["localhost", "LocalHost.", "one.localhost", "printer.local"] {
            assert_eq!(asked(name, Families::Both), both, "{name}");
        }
        // It has ::1, and from now on one more.
        let add = ["-6", "address", "add", "fd00::1/128", "dev", "lo", "nodad"];
        match Command::new("ip").args(add).output() {
            Ok(said) if said.status.success() => {
                assert_eq!(asked("name.invalid", Families::Both), both);
                assert_eq!(asked("name.invalid", Families::Ipv4), [Question::A], "told to");
            }
            said => lastbyte_testing::not_tested!("ip {add:?}: {said:?}"),
        }
    })
    .unwrap();
}

/// The questions of one dial, which nobody answers. Nothing listens on port 1.
fn asked(name: &str, families: Families) -> Vec<Question> {
    let mut options = DialOptions::default();
    options.families = families;
    options.race.deadline = Duration::from_millis(300);
    let dialer = Dialer::new(Resolver::system()).unwrap();
    let error = dialer.dial((name, 1), &options).unwrap_err();
    let questions = error.timeline.events.iter().filter_map(|event| match &event.what {
        What::Asked(question) => Some(*question),
        _ => None,
    });
    questions.collect()
}
