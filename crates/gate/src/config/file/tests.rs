use super::*;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

fn parse(text: &str) -> Result<ConfigFile, Refused> {
    ConfigFile::parse("gate.toml", text, None)
}

fn documented() -> String {
    let documented = include_str!("../file.rs").lines();
    let toml = documented.skip_while(|line| *line != "//! ```toml").skip(1);
    let toml = toml.take_while(|line| *line != "//! ```");
    let toml: Vec<&str> = toml.map(|line| line.trim_start_matches("//!").trim()).collect();
    toml.join("\n")
}

#[test]
fn every_key_is_understood() {
    let config = parse(&documented()).unwrap().config;
    assert_eq!(config.control, Some("/run/lastbyte/gate.sock".into()));
    assert_eq!(config.metrics, Some("127.0.0.1:9464".parse().unwrap()));
    assert_eq!((config.drain.as_secs(), config.workers), (60, NonZeroUsize::new(2)));
    assert_eq!(config.limits, Limits { flows: 8000, flows_per_client: 1000, dials: 256 });
    let [db, socks, http] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!((&*db.name, db.listen.to_string().as_str()), ("db", "127.0.0.1:3306"));
    let Kind::Forward(forward) = &db.kind else { panic!("{db:?}") };
    let targets: Vec<String> = forward.targets.iter().map(ToString::to_string).collect();
    assert_eq!(targets, ["db.far.example:3306", "[2001:db8::1]:3306"]);
    assert_eq!(forward.choice, super::super::Choice::FirstHealthy);
    assert_eq!(
        db.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["127.0.0.0/8", "::1/128"]
    );
    let seconds = Duration::from_secs;
    assert_eq!(
        db.times,
        Times {
            request: seconds(10),
            connect: seconds(10),
            idle: Some(seconds(7200)),
            stall: Some(seconds(300)),
            settle: seconds(30),
        }
    );
    let every_minute = Keepalive { idle: seconds(60), interval: seconds(60), probes: 9 };
    let bbr = SocketOptions::default().congestion("bbr");
    let tune = bbr.clone().keepalive(every_minute);
    assert_eq!(db.client, LegOptions { tune, ..LegOptions::default() });
    let tune = bbr
        .send_buffer(4 << 20)
        .receive_buffer(4 << 20)
        .notsent_lowat(128 << 10)
        .user_timeout(seconds(30))
        .max_pacing_rate(95_000_000 / 8)
        .keepalive(Keepalive { interval: seconds(10), probes: 6, ..every_minute })
        .mark(7)
        .nodelay(true)
        .interface("eth0");
    let sources: Vec<IpAddr> = ["192.0.2.1", "2001:db8::2"].map(|one| one.parse().unwrap()).into();
    assert_eq!(db.upstream, LegOptions { tune, mptcp: true, sources });
    let Kind::Socks5(Users(users)) = &socks.kind else { panic!("{socks:?}") };
    assert_eq!((users[0].name.as_str(), users[0].password.as_str()), ("alice", "secret"));
    assert_eq!((&*socks.name, socks.listen.port()), ("127.0.0.1:1080", 1080));
    let reach: Vec<String> = socks.reach.iter().map(ToString::to_string).collect();
    assert_eq!(reach, ["10.0.0.0/8", "2001:db8::/32"]);
    assert_eq!(http.kind, Kind::HttpConnect(Users::default()));
}

#[test]
fn every_key_that_is_listed_is_read() {
    let text = documented() + "\nusers_file = \"x\"\n";
    for key in super::super::keys::KEYS {
        assert!(text.contains(&format!("{} = ", key.name)), "{} has no example", key.name);
    }
}

#[test]
fn what_is_not_said_is_the_default() {
    let config = parse("[[route]]\nlisten = \"3306\"\nforward = \"db:3306\"\n").unwrap().config;
    let word: Route = "3306=db:3306".parse().unwrap();
    assert_eq!(config, Config::of(vec![Arc::new(word)]));
}

/// A route to put keys into.
const ROUTE: &str = "[[route]]\nlisten = '1'\nforward = 'a:1'\n";

/// Texts, and how the line of a fault in each begins.
const FAULTS: &[(&str, &str)] = &[
    ("", ":1:1: there is no route: write [[route]]"),
    ("x = ", ":1:"),
    ("drain = 60", ":1:9: drain: 60 is a number: write it in quotation marks"),
    ("drain = '60'", ":1:9: drain: \"60\" has no unit"),
    ("drain = '0s'", ":1:9: drain: 0 is no time limit"),
    ("workers = 0", ":1:11: workers: 0 is a number: write a whole number from 1"),
    ("workers = 1.5", ":1:11: workers: 1.5 is a number"),
    ("metrics = ':9'", ":1:11: metrics: \":9\" is no address to listen on"),
    ("limits = 7", ":1:10: limits: this is a table: write [limits]"),
    ("[limits]\nflow = 7", ":2:1: limits.flow: unknown key: did you mean `flows`?"),
    ("[limits]\nflows = -7", ":2:9: limits.flows: -7 is a number"),
    ("route = 7", ":1:1: route: there may be several: write [[route]]"),
    ("[route]\nlisten = '1'", ":1:2: route: there may be several: write [[route]]"),
    ("[[routes]]", ":1:3: routes: unknown key"),
    ("conrol = 'x'", ":1:1: conrol: unknown key: did you mean `control`?"),
    ("listen = '1'", ":1:1: listen: unknown key: it belongs in [[route]]"),
    ("[[route]]\nforward = 'a:1'", ":1:1: route 1: `listen` is missing"),
    ("[[route]]\nlisten = '1'", ":1:1: route 127.0.0.1:1: it has no target"),
    ("[[route]]\nname = 'a b'\nlisten = '1'\nforward = 'a:1'", ":2:8: route 1: name: \"a b\""),
    ("[[route]]\nlisten = '1'\nforward = 'a'", ":3:11: route 127.0.0.1:1: forward: \"a\" has no"),
    ("[[route]]\nlisten = '1'\nforward = ['a:1', 'b']", ":3:19: route 127.0.0.1:1: forward: \"b\""),
    ("[[route]]\nlisten = '1'\nforward = []", ":3:11: route 127.0.0.1:1: forward: the list is"),
    ("[[route]]\nlisten = '1'\nsocks5 = 'yes'", ":3:10: route 127.0.0.1:1: socks5: \"yes\" is"),
    ("ROUTE socks5 = true", ":4:1: route 127.0.0.1:1: socks5: the route has `forward` already"),
    ("ROUTE users = { a = 'b' }", ":4:1: route 127.0.0.1:1: users: only a route with `socks5`"),
    (
        "ROUTE choice = 'best'",
        ":4:10: route 127.0.0.1:1: choice: \"best\" is no choice: write round",
    ),
    ("ROUTE allow = ['10.0.0.1/8']", ":4:10: route 127.0.0.1:1: allow: \"10.0.0.1/8\" has bits"),
    ("ROUTE reach = ['::/0']", ":4:1: route 127.0.0.1:1: reach: only a route with `socks5`"),
    ("ROUTE allow = []", ":4:9: route 127.0.0.1:1: allow: the list is empty"),
    ("ROUTE client = 7", ":4:10: route 127.0.0.1:1: client: this is a table: write [route.client]"),
    ("ROUTE [route.client]\nsource = '::1'", ":5:1: route 127.0.0.1:1: client.source: unknown key"),
    ("ROUTE [route.up]\n", ":4:8: route 127.0.0.1:1: up: unknown key"),
    (
        "ROUTE [route.upstream]\nsource = 'a'",
        ":5:10: route 127.0.0.1:1: upstream.source: \"a\" is no",
    ),
    (
        "ROUTE [route.upstream]\npacing = '1bit'",
        ":5:10: route 127.0.0.1:1: upstream.pacing: 1 bit/s is",
    ),
    ("ROUTE [route.upstream]\npacing = '0mbit'", ":5:10: "),
    (
        "ROUTE [route.upstream]\nsend_buffer = '2GiB'",
        ":5:15: route 127.0.0.1:1: upstream.send_buffer: 2 GiB",
    ),
    (
        "ROUTE [route.upstream]\nsend_buffer = 9",
        ":5:15: route 127.0.0.1:1: upstream.send_buffer: 9 is a",
    ),
    ("ROUTE [route.upstream]\nmark = -1", ":5:8: route 127.0.0.1:1: upstream.mark: -1 is a number"),
    ("ROUTE [route.upstream]\ninterface = 'a b'", ":5:13: route 127.0.0.1:1: upstream.interface: "),
    (
        "ROUTE [route.upstream]\nkeepalive = '10h'",
        ":5:13: route 127.0.0.1:1: upstream.keepalive: the kernel",
    ),
    (
        "ROUTE [route.upstream]\nkeepalive = { idle = '1s', probes = 0 }",
        ":5:37: route 127.0.0.1:1: upstream.keepalive.probes: 0 is",
    ),
    (
        "ROUTE [route.upstream]\nkeepalive = { probes = 1 }",
        ":5:1: route 127.0.0.1:1: upstream.keepalive: `idle` is missing",
    ),
];

#[test]
fn each_fault_has_its_line_and_key_and_what_would_be_right() {
    for (text, expected) in FAULTS {
        let text = text.replace("ROUTE ", ROUTE);
        let error = parse(&text).unwrap_err().to_string();
        let expected = format!("gate.toml{expected}");
        assert!(
            error.lines().any(|line| line.starts_with(&expected)),
            "{text}\n{expected}\n{error}"
        );
    }
}

#[test]
fn all_faults_are_reported_in_the_order_of_their_lines() {
    let text = "drain = '1'\n[[route]]\nlisten = 'x'\nforwrd = 'a:1'\n[route.upstream]\nmptcp = 1\n\
                [[route]]\nname = 'b'\nlisten = '2'\nforward = 'a'\n";
    let error = parse(text).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    let begins = [
        "gate.toml:1:9: drain: ",
        "gate.toml:2:1: route 1: it has no target",
        "gate.toml:3:10: route 1: listen: ",
        "gate.toml:4:1: route 1: forwrd: unknown key: did you mean `forward`?",
        "gate.toml:6:9: route 1: upstream.mptcp: 1 is a number: write true or false",
        "gate.toml:10:11: route b: forward: ",
    ];
    assert_eq!(lines.len(), begins.len(), "{error}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{begin}\n{error}");
    }
}

#[test]
fn what_is_found_in_a_check_has_its_line_too() {
    let text = format!(
        "{ROUTE}\n[[route]]\nlisten = '0.0.0.0:1080'\nsocks5 = true\n[route.client]\ncongestion = 'nosuch'\n"
    );
    let found = parse(&text).unwrap().check(&Machine::read());
    let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
    let [open, congestion] = &faults[..] else { panic!("{faults:?}") };
    assert!(open.starts_with("gate.toml:6:1: route 0.0.0.0:1080: listen: an open proxy"), "{open}");
    assert!(
        congestion.starts_with("gate.toml:9:1: route 0.0.0.0:1080: client.congestion: "),
        "{congestion}"
    );
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("lastbyte-gate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn users_lie_in_a_file_that_others_cannot_read() {
    let folder = Folder::new("users");
    let gate = "[[route]]\nlisten = '1'\nsocks5 = true\nusers_file = 'users'\n";
    let gate = folder.file("gate.toml", gate, 0o644);
    folder.file("users", "# who\n\nalice:se:cret\nbob:x\n", 0o640);
    let config = ConfigFile::read(&gate).unwrap().config;
    let Kind::Socks5(Users(users)) = &config.routes[0].kind else { panic!("{config:?}") };
    let users: Vec<_> =
        users.iter().map(|user| (user.name.as_str(), user.password.as_str())).collect();
    assert_eq!(users, [("alice", "se:cret"), ("bob", "x")]);
    for (text, mode, expected) in [
        ("alice:secret\n", 0o644, "every user can read it: chmod 640"),
        ("alice:a\nbob\n", 0o600, "users:2: write name:password"),
        ("alice:\n", 0o600, "users:1: the password of \"alice\""),
        ("alice:hidden\nalice:b\n", 0o600, "users:2: there is a line for \"alice\" already"),
        ("\n", 0o600, "has no user"),
    ] {
        folder.file("users", text, mode);
        let error = ConfigFile::read(&gate).unwrap_err().to_string();
        assert!(error.contains(":4:14: route 127.0.0.1:1: users_file: "), "{error}");
        assert!(error.contains(expected) && !error.contains("hidden"), "{expected}: {error}");
    }
}

#[test]
fn passwords_that_every_user_can_read_are_reported() {
    let folder = Folder::new("passwords");
    let text = "[[route]]\nlisten = '1'\nsocks5 = true\nusers = { a = 'b' }\n";
    for (mode, expected) in [(0o644, true), (0o640, false)] {
        let file = ConfigFile::read(&folder.file("gate.toml", text, mode)).unwrap();
        let advice = file.check(&Machine::read()).advice;
        let is_reported = |one: &Remark| one.sentence.contains("can read these passwords");
        assert_eq!(advice.iter().any(is_reported), expected, "{advice:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = ConfigFile::read(Path::new("no-such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("no-such.toml: No such file"), "{error}");
}

#[test]
fn no_password_is_shown() {
    let file = parse(&documented()).unwrap();
    assert!(!format!("{file:?}").contains("secret"));
}
