//! Recording over real links, and through real kernels: what comes out is what was asked of the link.
//! Without the rights these tests say so and pass.
//!
//! They run one at a time (`.config/nextest.toml`), as they are about time.
//!
//! What holds whatever the machine does is in the first tests. How well a path is recorded depends on the
//! clock: that is in `soak`, where most runs have to come out right, of those in which the link kept its
//! promise; and without kernel and clock in `src/simulated.rs`, where all have to.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use lastbyte_link::{FAR, FAR_V6, Link, LinkError, Scenario, Spec};
use lastbyte_record::{Method, Outcome, Plan, RecordError, Recorded, Subject, Target, record};
use lastbyte_units::ByteSize;

const MS: Duration = Duration::from_millis(1);

fn spec(toml: &str) -> Spec {
    Scenario::parse("test", toml).unwrap().spec
}

/// A link, or the reason aloud why this machine cannot make one.
fn link(spec: &Spec, seed: u64) -> Option<Link> {
    match Link::up(spec, seed) {
        Ok(link) => Some(link),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn echo(address: impl Into<IpAddr>) -> Target {
    Target { address: SocketAddr::new(address.into(), 0), method: Method::Echo }
}

fn for_ms(ms: u32) -> Plan {
    Plan { probes_for: MS * ms, ..Plan::default() }
}

/// Records from the near host.
fn recorded(link: &Link, target: &Target, plan: &Plan) -> Result<Recorded, RecordError> {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let recorded = link.near().run(|| record(target, plan, &mut |_| {})).unwrap();
    assert_eq!(descriptors(), before, "all descriptors are closed again");
    recorded
}

fn outcome(recorded: &Recorded, subject: Subject) -> Option<Outcome> {
    let figure = recorded.figures.iter().find(|figure| figure.subject == subject);
    figure.map(|figure| figure.outcome)
}

#[test]
fn each_family_and_kind_of_socket_can_ask() {
    let Some(link) = link(&spec("rtt = '10ms'\nrate = '50mbit'"), 1) else { return };
    let plan = Plan { train_budget: ByteSize::from_bytes(100_000), ..for_ms(200) };
    // A new namespace lets no group open datagram sockets: the first round is a raw one's.
    for groups in ["1 0", "0 0"] {
        link.near().set_sysctl("ipv4/ping_group_range", groups).unwrap();
        for far in [IpAddr::V4(FAR), IpAddr::V6(FAR_V6)] {
            let got = recorded(&link, &echo(far), &plan).unwrap();
            // No answer comes before its time; how late it is, and so the rate, is the machine's matter too.
            assert!(got.spec.rtt() >= 9 * MS, "{far}: {:#?}", got.figures);
            let rate = outcome(&got, Subject::Rate);
            assert!(rate.is_some_and(|rate| rate != Outcome::Unknown), "{far}: {:#?}", got.figures);
            assert!(got.bytes < 110_000, "{} bytes were sent", got.bytes);
        }
    }
}

#[test]
fn connects_record_delay_and_loss_by_answers_of_either_kind() {
    let Some(link) = link(&spec("rtt = '20ms'"), 1) else { return };
    let listener = link.far().run(|| TcpListener::bind((FAR, 0)).unwrap()).unwrap();
    let open = listener.local_addr().unwrap();
    let closed = {
        let gone = link.far().run(|| TcpListener::bind((FAR, 0)).unwrap()).unwrap();
        gone.local_addr().unwrap()
    };
    for address in [open, closed] {
        let target = Target { address, method: Method::Connect };
        let got = recorded(&link, &target, &for_ms(500)).unwrap();
        assert!(got.spec.rtt() >= 19 * MS, "{address}: {:#?}", got.figures);
        assert!(outcome(&got, Subject::Loss).is_some(), "{address}: {:#?}", got.figures);
        assert_eq!(outcome(&got, Subject::Rate), Some(Outcome::Unknown));
        assert_eq!(outcome(&got, Subject::Queue), Some(Outcome::Unknown));
    }
    // Nothing waits for its end afterwards.
    let left = link.near().run(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap();
    assert_eq!(left.unwrap().lines().count(), 1, "the heading alone");
}

#[test]
fn a_silent_host_is_no_recording() {
    let Some(link) = link(&spec("rtt = '2ms'"), 1) else { return };
    link.far().set_sysctl("ipv4/icmp_echo_ignore_all", "1").unwrap();
    let error = recorded(&link, &echo(FAR), &for_ms(200)).unwrap_err();
    assert!(matches!(&error, RecordError::NoAnswer { sent: 20, .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("198.18.0.2") && said.contains("--tcp"), "{said}");
    let unreachable = echo([198, 18, 1, 1]);
    let error = recorded(&link, &unreachable, &for_ms(200)).unwrap_err();
    assert!(matches!(&error, RecordError::Step { .. }), "there is no way there: {error:?}");
}

#[test]
fn what_is_not_one_host_gets_no_packet() {
    for (address, what) in [
        ("0.0.0.0", "no host"),
        ("::", "no host"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("::ffff:224.0.0.1", "multicast"),
        ("255.255.255.255", "broadcast"),
    ] {
        let target = echo(address.parse::<IpAddr>().unwrap());
        let error = record(&target, &for_ms(100), &mut |_| panic!("it begins")).unwrap_err();
        assert!(matches!(error, RecordError::NotOneHost(..)), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let Some(link) = link(&spec("rtt = '2ms'"), 1) else { return };
    let error = recorded(&link, &echo([198, 18, 0, 255]), &for_ms(100)).unwrap_err();
    assert!(error.to_string().contains("broadcast"), "{error}");
    assert_eq!(link.down().unwrap().up.packets, 0);
}

mod soak {
    use lastbyte_testing::{Run, mostly};

    use super::*;

    /// Records a path until most recordings came out right; `wrong` says what is not. Void is a run in which
    /// the link did not do what was asked of it either.
    fn recorded_mostly(
        toml: &str,
        plan: &Plan,
        wrong: impl Fn(&Recorded, &Spec) -> Option<String>,
    ) {
        let asked = spec(toml);
        mostly(toml, |seed| {
            let link = match Link::up(&asked, seed) {
                Ok(link) => link,
                Err(error @ LinkError::Rights { .. }) => return Run::NotHere(error.to_string()),
                Err(error) => panic!("{error}"),
            };
            let got = recorded(&link, &echo(FAR), plan).unwrap();
            match (link.down().unwrap().broken_promise(), wrong(&got, &asked)) {
                (Some(why), _) => Run::Void(why),
                (None, None) => Run::Right,
                (None, Some(wrong)) => Run::Wrong(format!("{wrong}: {:?}", got.figures)),
            }
        });
    }

    fn ms_off(got: Duration, asked: Duration) -> f64 {
        (got.as_secs_f64() - asked.as_secs_f64()).abs() * 1e3
    }

    fn off(what: &str, got: f64, asked: f64, allowed: f64) -> Option<String> {
        ((got - asked).abs() > allowed).then(|| format!("{what}: {got} instead of {asked}"))
    }

    fn delay(got: &Recorded, asked: &Spec, allowed_ms: f64) -> Option<String> {
        let off = ms_off(got.spec.rtt(), asked.rtt());
        (off > allowed_ms).then(|| format!("round trip: {off:.2} ms off"))
    }

    fn rate(got: &Recorded, asked: &Spec) -> Option<String> {
        let asked = [&asked.up, &asked.down].into_iter().filter_map(|one| one.rate).min().unwrap();
        let asked = asked.bytes_per_s();
        let got = got.spec.up.rate.map_or(0.0, |rate| rate.bytes_per_s());
        off("rate", got, asked, asked * 0.03)
    }

    fn queue(got: &Recorded, asked: &Spec) -> Option<String> {
        let asked = asked.queue_bytes(&asked.up).unwrap() as f64;
        match outcome(got, Subject::Queue) {
            Some(Outcome::Known { got, .. }) => off("queue", got, asked, asked * 0.1),
            other => Some(format!("queue: {other:?}")),
        }
    }

    fn loss(got: &Recorded, asked: f64) -> Option<String> {
        match outcome(got, Subject::Loss) {
            Some(Outcome::Known { low, high, .. }) if low <= asked && asked <= high => None,
            Some(Outcome::Below(limit)) if asked < limit => None,
            other => Some(format!("loss: {other:?}")),
        }
    }

    #[test]
    #[ignore = "records a path for a minute"]
    fn a_rate_with_a_queue_is_recorded_and_can_be_emulated() {
        recorded_mostly(
            "rtt = '30ms'\nrate = '20mbit'\nqueue = '100ms'",
            &for_ms(1000),
            |got, asked| {
                let toml = got.to_toml(&echo(FAR), "far", "2026-01-02");
                assert_eq!(Scenario::parse("recorded", &toml).unwrap().spec, got.spec, "{toml}");
                let jitter = got.spec.up.jitter.as_ref().map(|jitter| format!("{jitter:?}"));
                jitter
                    .or_else(|| delay(got, asked, 0.5))
                    .or_else(|| rate(got, asked))
                    .or_else(|| queue(got, asked))
            },
        );
    }

    #[test]
    #[ignore = "records a path for a minute"]
    fn jitter_with_reordering_is_recorded() {
        let toml = "rtt = '30ms'\njitter = '2ms'\njitter_shape = 'normal'\nreorder = true\n\
                rate = '20mbit'\nqueue = '100ms'";
        recorded_mostly(toml, &for_ms(2000), |got, asked| {
            let Some(jitter) = got.spec.up.jitter.as_ref() else {
                return Some("no jitter was found".to_owned());
            };
            let size = jitter.shape.deviation().as_secs_f64() * 1e3;
            off("jitter", size, 2.0, 0.4)
                .or_else(|| (!jitter.reorders).then(|| "order was kept".to_owned()))
                .or_else(|| delay(got, asked, 1.0))
                .or_else(|| loss(got, 0.0))
                .or_else(|| rate(got, asked))
                .or_else(|| queue(got, asked))
        });
    }

    #[test]
    #[ignore = "takes ten minutes"]
    fn scenarios_are_recorded_as_they_are() {
        let jittery = "rtt = '50ms'\njitter = '8ms'\njitter_shape = 'normal'\nqueue = '400ms'\n\
                   rate = '10mbit'";
        recorded_mostly(jittery, &Plan::default(), |got, asked| {
            if got.spec.up.jitter.is_none() {
                return Some("no jitter was found".to_owned());
            }
            let rate_off = rate(got, asked).or_else(|| queue(got, asked));
            rate_off.or_else(|| delay(got, asked, 2.5))
        });
        let losing = "rtt = '30ms'\nloss = '2%'\nrate = '20mbit'\nqueue = '100ms'";
        recorded_mostly(losing, &Plan::default(), |got, asked| {
            let is_alone = got.spec.up.loss.is_some();
            (!is_alone)
                .then(|| "losses in bursts".to_owned())
                .or_else(|| loss(got, 0.02))
                .or_else(|| delay(got, asked, 0.5))
                .or_else(|| rate(got, asked))
                .or_else(|| queue(got, asked))
        });
        let bursts = "rtt = '40ms'\nburst_loss = { share = '3%', packets = 5.0 }\nrate = '50mbit'\n\
                  queue = '200kB'";
        recorded_mostly(bursts, &Plan::default(), |got, asked| {
            let bursts = got.spec.up.burst_loss.map_or(0.0, |bursts| bursts.packets);
            off("bursts", bursts, 5.0, 3.0)
                .or_else(|| loss(got, 0.03))
                .or_else(|| delay(got, asked, 0.5))
                .or_else(|| rate(got, asked))
                .or_else(|| queue(got, asked))
        });
        let long = "rtt = '217ms'\nloss = '0.034%'\nrate = '95mbit'\nqueue = '1bdp'";
        recorded_mostly(long, &Plan::default(), |got, asked| {
            let found = outcome(got, Subject::Queue);
            let is_bound = matches!(found, Some(Outcome::Above(bound)) if bound < 2.6e6);
            (!is_bound)
                .then(|| format!("queue: {found:?}"))
                .or_else(|| delay(got, asked, 0.5))
                .or_else(|| rate(got, asked))
                .or_else(|| loss(got, 0.000_34))
        });
        // The queue too, with as many bytes as that takes.
        let plan = Plan { train_budget: ByteSize::from_bytes(30_000_000), ..for_ms(2000) };
        recorded_mostly(long, &plan, queue);
    }
}
