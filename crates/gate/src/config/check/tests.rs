use super::*;

use crate::config::{Times, User};

fn machine() -> Machine {
    Machine {
        available: vec!["cubic".to_owned(), "bbr".to_owned()],
        allowed: vec!["cubic".to_owned()],
        try_congestion: |name| match name {
            "cubic" | "bbr" => Ok(()),
            "dctcp" => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        },
        descriptors: Some(1_000_000),
        largest_send_buffer: Some(212_992),
        largest_receive_buffer: Some(212_992),
        has_mptcp: true,
        may_mark: false,
        interfaces: vec!["lo".to_owned(), "eth0".to_owned()],
    }
}

fn config(words: &[&str]) -> Config {
    Config::of(words.iter().map(|word| Arc::new(word.parse().unwrap())).collect())
}

/// The one route of a word, made different.
fn changed(word: &str, change: impl FnOnce(&mut Route)) -> Config {
    let mut route: Route = word.parse().unwrap();
    change(&mut route);
    Config::of(vec![Arc::new(route)])
}

fn shown(remarks: &[Remark]) -> Vec<String> {
    remarks.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn faults(config: &Config) -> Vec<String> {
    shown(&config.check(&machine()).faults)
}

#[track_caller]
fn advice(config: &Config) -> Vec<String> {
    shown(&config.check(&machine()).advice)
}

#[track_caller]
fn assert_reports(remarks: &[String], parts: &[&str]) {
    let has_all = |line: &String| parts.iter().all(|part| line.contains(part));
    assert!(remarks.iter().any(has_all), "nothing with {parts:?} in {remarks:#?}");
}

#[test]
fn a_plain_gate_on_loopback_has_no_remarks() {
    let plain = config(&["3306=db:3306", "socks5://1080", "http-connect://[::1]:3128"]);
    assert_eq!(plain.check(&machine()), Findings::default());
}

#[test]
fn an_open_proxy_is_refused() {
    let prefixes =
        |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect::<Vec<Prefix>>();
    for word in ["socks5://0.0.0.0:1080", "http-connect://192.0.2.1:3128", "socks5://[::]:1080"] {
        for none in [
            &[][..],
            &["0.0.0.0/0"],
            &["::/0"],
            &["0.0.0.0/1", "128.0.0.0/1"],
            &["2000::/3", "10.0.0.0/8"],
        ] {
            let open = changed(word, |route| route.allow = prefixes(none));
            assert_reports(&faults(&open), &["listen: an open proxy", "allow", "users"]);
        }
        let listed = changed(word, |route| route.allow = prefixes(&["10.0.0.0/8"]));
        assert_eq!(faults(&listed), [""; 0]);
        let by_password = changed(word, |route| {
            let user = User { name: "alice".to_owned(), password: "secret".to_owned() };
            let users = Users(vec![user]);
            route.kind = match route.kind {
                Kind::Socks5(_) => Kind::Socks5(users),
                _ => Kind::HttpConnect(users),
            };
        });
        assert_eq!(faults(&by_password), [""; 0]);
        assert_reports(&advice(&by_password), &["users: passwords cross the network"]);
        assert_reports(&advice(&by_password), &["listen: ", "except its loopback"]);
        let near = changed(word, |route| {
            (route.allow, route.reach) = (prefixes(&["10.0.0.0/8"]), prefixes(&["127.0.0.1"]));
        });
        assert_eq!(faults(&near), [""; 0]);
        assert_reports(&advice(&near), &["reach: ", "on this host's loopback"]);
        let far = changed(word, |route| {
            (route.allow, route.reach) = (prefixes(&["10.0.0.0/8"]), prefixes(&["192.0.2.0/24"]));
        });
        assert_eq!(advice(&far), [""; 0]);
    }
}

#[test]
fn a_forward_for_everybody_is_advised_about() {
    let open = config(&["0.0.0.0:3307=127.0.0.1:3306"]);
    assert_eq!(faults(&open), [""; 0]);
    assert_reports(
        &advice(&open),
        &["allow: every client that can reach 0.0.0.0:3307 is forwarded"],
    );
    let listed = changed("0.0.0.0:3307=db:3306", |route| {
        route.allow = vec!["192.0.2.7".parse().unwrap()];
    });
    assert_eq!(advice(&listed), [""; 0]);
}

#[test]
fn loops_that_can_be_seen_are_faults() {
    for word in [
        "3306=127.0.0.1:3306",
        "3306=localhost:3306",
        "0.0.0.0:3306=127.0.0.2:3306",
        "[::]:3306=[::1]:3306",
        "3306=0.0.0.0:3306",
        "3306=db:1,127.0.0.1:3306",
        "192.0.2.1:80=192.0.2.1:80",
    ] {
        assert_reports(&faults(&config(&[word])), &["forward: it leads back to itself"]);
    }
    for word in ["0.0.0.0:3307=127.0.0.1:3306", "127.0.0.1:3306=127.0.0.2:3306", "3306=db:3306"] {
        assert_eq!(faults(&config(&[word])), [""; 0], "{word}");
    }
    let round = config(&["1=127.0.0.1:2", "2=127.0.0.1:3", "3=127.0.0.1:1"]);
    assert_eq!(faults(&round).len(), 3);
    assert_reports(&faults(&round), &["route 127.0.0.1:1: forward", "by route 127.0.0.1:3"]);
    let into = config(&["1=127.0.0.1:2", "2=127.0.0.1:2"]);
    assert_eq!(faults(&into).len(), 1, "the first one only leads there");
}

#[test]
fn names_and_addresses_are_each_routes_own() {
    let remarks = faults(&config(&["3306=a:1", "127.0.0.1:3306=b:1"]));
    assert_reports(&remarks, &["name: another route has the name"]);
    assert_reports(&remarks, &["listen: route 127.0.0.1:3306 already listens on 127.0.0.1:3306"]);
    assert_reports(
        &faults(&config(&["0.0.0.0:80=a:1", "80=b:1"])),
        &["already listens on 0.0.0.0:80"],
    );
    assert_eq!(faults(&config(&["[::1]:80=a:1", "80=b:1"])), [""; 0]);
    assert_reports(&faults(&config(&[])), &["there is no route"]);
}

#[test]
fn congestion_controls_that_cannot_be_had_are_faults() {
    let asked = |name: &str| {
        changed("1=a:1", |route| route.upstream.tune.congestion = Some(name.to_owned()))
    };
    assert_eq!(faults(&asked("bbr")), [""; 0]);
    assert_reports(
        &faults(&asked("bbr9")),
        &["upstream.congestion: ", "\"bbr9\": it has cubic, bbr"],
    );
    assert_reports(&faults(&asked("dctcp")), &["CAP_NET_ADMIN", "others may use cubic"]);
}

#[test]
fn settings_of_a_sender_are_explained_for_each_leg() {
    let tuned = changed("1=a:1", |route| {
        route.client.tune.congestion = Some("bbr".to_owned());
        route.upstream.tune.max_pacing_rate = Some(11_875_000);
        route.upstream.tune.notsent_lowat = Some(131_072);
        route.upstream.tune.send_buffer = Some(1 << 20);
    });
    let remarks = advice(&tuned);
    assert_reports(
        &remarks,
        &["client.congestion: ", "control bbr affects only what this host sends to the client"],
    );
    let sender = "for replication or downloads run the gate there";
    for key in
        ["upstream.pacing: pacing at 95 Mbit/s", "upstream.notsent_lowat", "upstream.send_buffer"]
    {
        assert_reports(
            &remarks,
            &[key, "affects only what this host sends to the upstream", sender],
        );
    }
    assert!(
        !remarks.iter().any(|line| line.contains("client.") && line.contains(sender)),
        "{remarks:#?}"
    );
}

#[test]
fn buffers_beyond_the_kernels_limit_are_reported_with_what_is_granted() {
    let large = changed("1=a:1", |route| route.client.tune.receive_buffer = Some(4 << 20));
    assert_reports(
        &advice(&large),
        &["client.receive_buffer: ", "grants 208 KiB of 4 MiB", "net.core.rmem_max is 212,992"],
    );
    let small = changed("1=a:1", |route| route.client.tune.receive_buffer = Some(65_536));
    assert_reports(
        &advice(&small),
        &["client.receive_buffer: ", "never sized by the kernel again"],
    );
}

#[test]
fn conflicting_times_are_reported() {
    let seconds = Duration::from_secs;
    let keepalive =
        lastbyte_socket::Keepalive { idle: seconds(60), interval: seconds(9), probes: 9 };
    let timed = changed("1=a:1", |route| {
        route.times =
            Times { stall: Some(seconds(3)), idle: Some(seconds(30)), ..Times::default() };
        route.upstream.tune.user_timeout = Some(seconds(5));
        route.upstream.tune.keepalive = Some(keepalive);
    });
    let remarks = advice(&timed);
    let key = "upstream.user_timeout: ";
    assert_reports(&remarks, &[key, "reads nothing for 5 s", "not after the number of probes"]);
    assert_reports(&remarks, &[key, "stall_timeout is shorter", "connect_timeout is 10 s"]);
    assert_reports(&remarks, &["upstream.keepalive: idle_timeout ends a flow before"]);
    let none = changed("1=a:1", |route| route.times.connect = Duration::ZERO);
    assert_reports(&faults(&none), &["connect_timeout: 0 is no time limit"]);
}

#[test]
fn what_the_machine_lacks_is_reported() {
    let mut all = changed("1=a:1", |route| {
        route.upstream.mptcp = true;
        route.upstream.tune.mark = Some(7);
        route.upstream.tune.interface = Some("eth7".to_owned());
        route.upstream.sources = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    });
    let remarks = faults(&all);
    assert_reports(&remarks, &["upstream.mark: ", "CAP_NET_ADMIN"]);
    assert_reports(&remarks, &["upstream.interface: ", "\"eth7\"", "it has lo, eth0"]);
    assert_reports(&remarks, &["upstream.source: at most one address of each family"]);
    assert_reports(&advice(&all), &["upstream.mptcp: ", "never complete"]);
    (all.limits.dials, all.limits.flows) = (0, 10_000);
    all.control = Some("x".repeat(108).into());
    all.metrics = Some("0.0.0.0:9".parse().unwrap());
    let few = Machine { descriptors: Some(20_000), may_mark: true, ..machine() };
    let found = all.check(&few);
    assert_reports(&shown(&found.faults), &["limits.dials: 0 would admit no client"]);
    assert_reports(&shown(&found.faults), &["control: a Unix socket's path"]);
    assert!(!shown(&found.faults).iter().any(|line| line.contains("mark")));
    assert_reports(&shown(&found.advice), &["limits.flows: 10,000 flows", "about 9,968"]);
    assert_reports(&shown(&found.advice), &["metrics: every client that can reach 0.0.0.0:9"]);
}

#[test]
fn either_of_two_capabilities_lets_a_process_mark() {
    assert!(may_mark(0x1FF_FFFF_FFFF) && may_mark(1 << 12) && may_mark(1 << 13));
    assert!(!may_mark(0) && !may_mark(!(3 << 12)));
}

#[test]
fn this_machine_grants_what_it_says() {
    let machine = Machine::read();
    assert!(machine.descriptors.is_some_and(|most| most > 0));
    let Some(name) = machine.allowed.first() else {
        return lastbyte_testing::not_tested!("/proc does not tell of congestion controls");
    };
    let tune = SocketOptions::default().congestion(name.clone());
    let options = LegOptions { tune, ..LegOptions::default() };
    assert_eq!(&granted(&options).unwrap().congestion, name);
    assert!((machine.try_congestion)("nosuch").is_err());
}
