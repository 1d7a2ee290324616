//! Names to addresses, against a DNS server of the tests' own.

use std::fs;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_dial::{Answer, Answers, Found, Origin, QueryError, Question, ResolvConf, Resolver};

use crate::support::dns::{DnsServer, FORGED, NOTIMP, REFUSED, Reply, SERVFAIL, Type, Zone};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const BOTH: &[Question] = &[Question::Aaaa, Question::A];

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let limited = tokio::time::timeout(60 * SECOND, future);
        limited.await.expect("a test has an end")
    })
}

fn resolver(server: &DnsServer) -> Resolver {
    Resolver::dns_from(&server.resolv_conf(), "").unwrap()
}

/// All answers, in the order in which they came, and when.
async fn all(mut answers: Answers) -> Vec<(Answer, Duration)> {
    let began = Instant::now();
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await {
        all.push((answer, began.elapsed()));
    }
    all
}

fn ask(resolver: &Resolver, name: &str, questions: &[Question]) -> Vec<Answer> {
    run(all(resolver.ask(name, questions))).into_iter().map(|(answer, _)| answer).collect()
}

/// The answer to the question for IPv4 addresses.
fn ask_a(resolver: &Resolver, name: &str) -> Result<Found, QueryError> {
    ask(resolver, name, &[Question::A]).remove(0).found
}

fn of(question: Question, answers: &[Answer]) -> &Answer {
    answers.iter().find(|answer| answer.question == question).unwrap()
}

fn addresses(found: &Result<Found, QueryError>) -> Vec<String> {
    let addresses = &found.as_ref().unwrap().addresses;
    addresses.iter().map(|address| address.ip().to_string()).collect()
}

#[test]
fn both_families_are_asked_at_once_and_told() {
    let server = DnsServer::start(
        Zone::new().a("www.test", ["192.0.2.1", "192.0.2.2"]).aaaa("www.test", ["2001:db8::1"]),
    );
    let answers = ask(&resolver(&server), "www.test", BOTH);
    assert_eq!(answers.len(), 2);
    let (a, aaaa) = (of(Question::A, &answers), of(Question::Aaaa, &answers));
    assert_eq!(addresses(&a.found), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(addresses(&aaaa.found), ["2001:db8::1"]);
    let found = a.found.as_ref().unwrap();
    assert_eq!((found.origin, found.cached), (Origin::Dns, false));
    assert_eq!((found.ttl, found.server), (Some(60 * SECOND), Some(server.address())));
    assert_eq!(a.name, "www.test");
    let queries = server.queries();
    assert_eq!(queries.len(), 2);
    assert!(queries.iter().all(|query| query.edns && !query.tcp));
}

#[test]
fn no_answer_waits_for_the_other() {
    for (fast, slow) in [(Type::A, Type::Aaaa), (Type::Aaaa, Type::A)] {
        let address = |kind| if kind == Type::A { "192.0.2.1" } else { "2001:db8::1" };
        let late = Reply::addresses([address(slow)]).after(300 * MS);
        let zone = Zone::new().reply("www.test", fast, Reply::addresses([address(fast)]));
        let server = DnsServer::start(zone.reply("www.test", slow, late));
        let answers = run(all(resolver(&server).ask("www.test", BOTH)));
        assert_eq!(addresses(&answers[0].0.found), [address(fast)]);
        assert_eq!(addresses(&answers[1].0.found), [address(slow)]);
        let (first, second) = (answers[0].1, answers[1].1);
        assert!(second >= 300 * MS && first + 150 * MS < second, "{first:?} {second:?}");
    }
}

#[test]
fn one_family_that_is_missing_is_told_at_once() {
    let zone =
        Zone::new().reply("www.test", Type::A, Reply::addresses(["192.0.2.1"]).after(300 * MS));
    let server = DnsServer::start(zone);
    let answers = run(all(resolver(&server).ask("www.test", BOTH)));
    let missing = Err(QueryError::NoAddresses { server: Some(server.address()) });
    assert_eq!((&answers[0].0.found, answers[0].0.question), (&missing, Question::Aaaa));
    assert_eq!(addresses(&answers[1].0.found), ["192.0.2.1"]);
    let (first, second) = (answers[0].1, answers[1].1);
    assert!(first + 150 * MS < second, "{first:?} {second:?}");
}

#[test]
fn one_family_that_is_never_answered_leaves_the_other() {
    let zone =
        Zone::new().a("www.test", ["192.0.2.1"]).reply("www.test", Type::Aaaa, Reply::never());
    let server = DnsServer::start(zone);
    let answers = run(all(resolver(&server).ask("www.test", BOTH)));
    assert_eq!(addresses(&answers[0].0.found), ["192.0.2.1"]);
    assert!(answers[0].1 < 800 * MS, "{:?}", answers[0].1);
    let servers = vec![server.address()];
    assert_eq!(answers[1].0.found, Err(QueryError::TimedOut { servers, after: SECOND }));
    assert!(answers[1].1 >= SECOND && answers[1].1 < 2 * SECOND, "{:?}", answers[1].1);
    let text = answers[1].0.found.as_ref().unwrap_err().to_string();
    assert_eq!(text, format!("no answer from {} within 1s", server.address()));
}

#[test]
fn what_a_server_says_is_told_with_its_name() {
    let zone = Zone::new()
        .aaaa("six.test", ["2001:db8::1"])
        .both("fails.test", Reply::code(SERVFAIL))
        .both("refused.test", Reply::code(REFUSED))
        .both("strange.test", Reply::code(9))
        .both("notimp.test", Reply::code(NOTIMP));
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    let said = |name| ask_a(&resolver, name).unwrap_err().to_string();
    let by = server.address();
    assert_eq!(said("none.test"), format!("no such name (NXDOMAIN), said {by}"));
    assert_eq!(said("six.test"), format!("no address of this family, said {by}"));
    assert_eq!(said("fails.test"), format!("server failure (SERVFAIL), said {by}"));
    assert_eq!(said("refused.test"), format!("refused (REFUSED), said {by}"));
    assert_eq!(said("strange.test"), format!("response code 9, said {by}"));
    assert_eq!(said("notimp.test"), format!("response code NOTIMP, said {by}"));
}

#[test]
fn a_server_that_is_down_is_told_at_once() {
    // Nobody is at this port: the socket that had it is gone.
    let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let resolver = Resolver::dns_from(&format!("nameserver {gone}\n"), "").unwrap();
    let began = Instant::now();
    let error = ask_a(&resolver, "www.test").unwrap_err();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert!(matches!(&error, QueryError::Unreachable { servers, .. } if servers == &[gone]));
    assert!(error.to_string().starts_with(&format!("no DNS server at {gone}: Connection refused")));
}

#[test]
fn another_server_is_asked_when_one_fails() {
    let good = DnsServer::start(Zone::new().a("www.test", ["192.0.2.1"]));
    let failing = DnsServer::start(Zone::new().otherwise(Reply::code(SERVFAIL)));
    let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for bad in [failing.address(), gone] {
        let text = format!("nameserver {bad}\nnameserver {}\n", good.address());
        // The shortest of some: a machine may be busy.
        let times = ["www.test", "www.test.", "WWW.test"].map(|name| {
            // Each with nothing in its cache.
            let resolver = Resolver::dns_from(&text, "").unwrap();
            let began = Instant::now();
            assert_eq!(addresses(&ask_a(&resolver, name)), ["192.0.2.1"]);
            began.elapsed()
        });
        assert!(times.iter().any(|time| *time < 300 * MS), "{times:?}");
    }
}

#[test]
fn a_silent_server_costs_little_once_and_nothing_then() {
    let good = DnsServer::start(Zone::new().a("a.test", ["192.0.2.1"]).a("b.test", ["192.0.2.2"]));
    let silent = DnsServer::start(Zone::new().otherwise(Reply::never()));
    let text = format!("nameserver {}\nnameserver {}\n", silent.address(), good.address());
    let resolver = Resolver::dns_from(&text, "").unwrap();
    let time = |name| {
        let began = Instant::now();
        assert!(ask_a(&resolver, name).is_ok());
        began.elapsed()
    };
    let (first, _) = (time("a.test"), time("b.test"));
    assert!(first >= 400 * MS, "{first:?}");
    assert_eq!((silent.count("a.test"), silent.count("b.test")), (1, 0));
}

#[test]
fn servers_take_turns_where_that_is_wanted() {
    let servers = [(); 2].map(|()| DnsServer::start(Zone::new()));
    let lines = servers.each_ref().map(DnsServer::resolv_conf).concat();
    let resolver = Resolver::dns_from(&format!("{lines}options rotate\n"), "").unwrap();
    for number in 0..10 {
        assert!(ask_a(&resolver, &format!("n{number}.test")).is_err());
    }
    assert_eq!(servers.map(|server| server.queries().len()), [5, 5]);
}

#[test]
fn a_lost_query_is_sent_again() {
    // A server that begins late: what came before is lost.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let text = format!("nameserver {}\n", socket.local_addr().unwrap());
    let resolver = Resolver::dns_from(&text, "").unwrap();
    let count = thread::spawn(move || {
        let mut buffer = [0; 512];
        let mut froms = Vec::new();
        for _ in 0..3 {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            froms.push((from, [buffer[0], buffer[1]]));
            if froms.len() == 3 {
                buffer[2] |= 0x80;
                buffer[3] = 3;
                socket.send_to(&buffer[..length], from).unwrap();
            }
        }
        froms
    });
    assert!(matches!(ask_a(&resolver, "www.test"), Err(QueryError::NoSuchName { .. })));
    let froms = count.join().unwrap();
    assert!(froms[0].0 != froms[1].0 && froms[1].0 != froms[2].0, "the ports differ: {froms:?}");
    assert!(froms[0].1 != froms[1].1 || froms[1].1 != froms[2].1, "the IDs differ: {froms:?}");
}

#[test]
fn aliases_are_followed_and_told() {
    let chain = Reply::addresses(["192.0.2.1"]).by_way_of(["b.test", "C.test"]);
    let zone = Zone::new()
        .reply("a.test", Type::A, chain)
        .reply("part.test", Type::A, Reply::aliases(["other.test"]).ttl(5))
        .a("other.test", ["192.0.2.2"])
        .reply("nothing.test", Type::A, Reply::no_data().by_way_of(["x.test"]))
        .reply("nobody.test", Type::A, Reply::no_such_name().by_way_of(["x.test"]));
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    let found = ask_a(&resolver, "a.test").unwrap();
    assert_eq!(found.aliases, ["b.test", "c.test"]);
    assert_eq!(addresses(&Ok(found)), ["192.0.2.1"]);
    let found = ask_a(&resolver, "part.test").unwrap();
    assert_eq!(
        (found.aliases.as_slice(), found.ttl),
        (["other.test".to_owned()].as_slice(), Some(5 * SECOND))
    );
    assert!(matches!(ask_a(&resolver, "nothing.test"), Err(QueryError::NoAddresses { .. })));
    assert!(matches!(ask_a(&resolver, "nobody.test"), Err(QueryError::NoSuchName { .. })));
}

#[test]
fn aliases_that_lead_nowhere_are_errors() {
    let zone = Zone::new()
        .reply("round.test", Type::A, Reply::aliases(["b.test", "round.test"]))
        .reply("self.test", Type::A, Reply::aliases(["self.test"]))
        .reply("far.test", Type::A, Reply::aliases(["near.test"]))
        .reply("near.test", Type::A, Reply::aliases(["far.test"]));
    let zone = (0..40).fold(zone, |zone, number| {
        let next = format!("n{}.test", number + 1);
        zone.reply(&format!("n{number}.test"), Type::A, Reply::aliases([&next]))
    });
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    for name in ["round.test", "self.test", "far.test", "n0.test"] {
        let error = ask_a(&resolver, name).unwrap_err();
        assert!(matches!(error, QueryError::AliasLoop { .. }), "{name}: {error}");
    }
    assert!(server.queries().len() <= 20, "{}", server.queries().len());
}

#[test]
fn a_truncated_answer_is_asked_for_over_tcp() {
    let zone = Zone::new().both("www.test", Reply::addresses(["192.0.2.1"]).truncated());
    let server = DnsServer::start(zone.clone());
    assert_eq!(addresses(&ask_a(&resolver(&server), "www.test")), ["192.0.2.1"]);
    assert_eq!(server.queries().iter().map(|query| query.tcp).collect::<Vec<_>>(), [false, true]);
    let without = DnsServer::start(zone.without_tcp());
    let error = ask_a(&resolver(&without), "www.test").unwrap_err().to_string();
    let by = without.address();
    let expected =
        format!("unusable answer from {by}: it is cut short, and nobody answers over TCP");
    assert_eq!(error, expected);
}

#[test]
fn tcp_alone_is_used_where_that_is_wanted() {
    let server = DnsServer::start(Zone::new().a("www.test", ["192.0.2.1"]));
    let text = format!("{}options use-vc\n", server.resolv_conf());
    let resolver = Resolver::dns_from(&text, "").unwrap();
    assert_eq!(addresses(&ask_a(&resolver, "www.test")), ["192.0.2.1"]);
    assert!(server.queries().iter().all(|query| query.tcp));
}

#[test]
fn a_server_that_loses_the_case_is_asked_over_tcp_and_remembered() {
    let reply = || Reply::addresses(["192.0.2.1"]).lower_case();
    let zone = Zone::new().both("first-name.test", reply()).both("second-name.test", reply());
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    assert_eq!(addresses(&ask_a(&resolver, "first-name.test")), ["192.0.2.1"]);
    assert_eq!(addresses(&ask_a(&resolver, "second-name.test")), ["192.0.2.1"]);
    let over_tcp: Vec<bool> = server.queries().iter().map(|query| query.tcp).collect();
    assert_eq!(over_tcp, [false, true, true]);
}

#[test]
fn a_server_that_loses_the_case_and_has_no_tcp_is_asked_plainly() {
    let reply = || Reply::addresses(["192.0.2.1"]).lower_case();
    let zone = Zone::new().both("first-name.test", reply()).both("second-name.test", reply());
    let server = DnsServer::start(zone.without_tcp());
    let resolver = resolver(&server);
    assert_eq!(addresses(&ask_a(&resolver, "first-name.test")), ["192.0.2.1"]);
    assert_eq!(addresses(&ask_a(&resolver, "second-name.test")), ["192.0.2.1"]);
    let names: Vec<String> = server.queries().into_iter().map(|query| query.name).collect();
    assert_ne!(names[0], "first-name.test");
    assert_eq!(names[1..], ["first-name.test", "second-name.test"]);
}

#[test]
fn a_server_from_before_edns_is_asked_without() {
    let server = DnsServer::start(Zone::new().a("a.test", ["192.0.2.1"]).without_edns());
    let resolver = resolver(&server);
    assert_eq!(addresses(&ask_a(&resolver, "a.test")), ["192.0.2.1"]);
    assert!(ask_a(&resolver, "b.test").is_err());
    let edns: Vec<bool> = server.queries().iter().map(|query| query.edns).collect();
    assert_eq!(edns, [true, false, false]);
}

#[test]
fn garbage_is_an_error_and_a_second_answer_is_none() {
    let zone = Zone::new()
        .both("garbage.test", Reply::garbage())
        .both("twice.test", Reply::addresses(["192.0.2.1"]).twice());
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    let error = ask_a(&resolver, "garbage.test").unwrap_err();
    assert!(matches!(error, QueryError::Malformed { .. }), "{error}");
    assert_eq!(addresses(&ask_a(&resolver, "twice.test")), ["192.0.2.1"]);
}

#[test]
fn names_are_searched_as_resolv_conf_says() {
    let zone = Zone::new()
        .a("www.two.test", ["192.0.2.1"])
        .aaaa("only-six.one.test", ["2001:db8::1"])
        .a("only-six.two.test", ["192.0.2.66"])
        .a("dotted.name", ["192.0.2.2"])
        .a("in.a.two.test", ["192.0.2.3"])
        .both("broken.one.test", Reply::code(SERVFAIL))
        .a("broken.two.test", ["192.0.2.66"]);
    let server = DnsServer::start(zone);
    let text = format!("{}search one.test two.test\n", server.resolv_conf());
    let resolver = Resolver::dns_from(&text, "").unwrap();
    let asked = |from: usize| {
        let mut names: Vec<String> = Vec::new();
        for query in server.queries().split_off(from) {
            let name = query.name.to_ascii_lowercase();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let step = |name: &str| {
        let before = server.queries().len();
        let answers = ask(&resolver, name, BOTH);
        assert_eq!(answers.len(), 2, "{name}");
        (answers, asked(before))
    };

    let (answers, names) = step("www");
    assert_eq!(names, ["www.one.test", "www.two.test"]);
    assert_eq!(of(Question::A, &answers).name, "www.two.test");
    assert_eq!(addresses(&of(Question::A, &answers).found), ["192.0.2.1"]);
    assert_eq!(of(Question::Aaaa, &answers).name, "www.two.test");

    // The first domain has one family: the other one is not taken from the second domain.
    let (answers, names) = step("only-six");
    assert_eq!(names, ["only-six.one.test"]);
    assert_eq!(addresses(&of(Question::Aaaa, &answers).found), ["2001:db8::1"]);
    assert!(matches!(of(Question::A, &answers).found, Err(QueryError::NoAddresses { .. })));

    let (_, names) = step("dotted.name");
    assert_eq!(names, ["dotted.name"]);
    let (answers, names) = step("in.a");
    assert_eq!(names, ["in.a", "in.a.one.test", "in.a.two.test"]);
    assert_eq!(of(Question::A, &answers).name, "in.a.two.test");

    // A final dot: this name and no other.
    let (answers, names) = step("www.");
    assert_eq!(names, ["www"]);
    assert_eq!(of(Question::A, &answers).name, "www");

    // Whether this name exists nobody could tell: the next one may be another host's.
    let (answers, names) = step("broken");
    assert_eq!(names, ["broken.one.test"]);
    assert!(matches!(of(Question::A, &answers).found, Err(QueryError::ServerFailure { .. })));

    let (answers, names) = step("none");
    assert_eq!(names, ["none.one.test", "none.two.test", "none"]);
    for answer in answers {
        assert_eq!(answer.name, "none");
        assert!(matches!(answer.found, Err(QueryError::NoSuchName { .. })));
    }
}

#[test]
fn a_name_without_addresses_is_told_rather_than_one_that_is_not_there() {
    let zone = Zone::new().both("www.one.test", Reply::no_data());
    let server = DnsServer::start(zone);
    let text = format!("{}search one.test two.test\n", server.resolv_conf());
    let answers = ask(&Resolver::dns_from(&text, "").unwrap(), "www", BOTH);
    for answer in &answers {
        assert_eq!(answer.name, "www.one.test");
        assert!(matches!(answer.found, Err(QueryError::NoAddresses { .. })));
    }
}

#[test]
fn what_was_answered_is_kept_as_long_as_it_says() {
    let zone = Zone::new()
        .reply("long.test", Type::A, Reply::addresses(["192.0.2.1"]).ttl(60))
        .reply("now.test", Type::A, Reply::addresses(["192.0.2.2"]).ttl(0))
        .both("unsaid.test", Reply::no_such_name().without_soa())
        .both("fails.test", Reply::code(SERVFAIL));
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    let twice = |name: &str| {
        let found = [(); 2].map(|()| ask_a(&resolver, name));
        (server.count(name), found)
    };
    let (count, found) = twice("long.test");
    assert_eq!(count, 1);
    let second = found[1].as_ref().unwrap();
    assert!(second.cached && second.ttl <= Some(60 * SECOND) && second.ttl > Some(50 * SECOND));
    assert!(!found[0].as_ref().unwrap().cached);
    assert_eq!(twice("LONG.test").0, 1);
    assert_eq!(twice("now.test").0, 2);
    assert_eq!(twice("none.test").0, 1);
    assert_eq!(twice("unsaid.test").0, 2);
    assert_eq!(twice("fails.test").0, 2);
}

#[test]
fn nobody_asks_what_is_being_asked() {
    let zone = Zone::new().both("www.test", Reply::addresses(["192.0.2.1"]).after(100 * MS));
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    run(async {
        let open: Vec<Answers> =
            (0..100).map(|_| resolver.ask("www.test", &[Question::A])).collect();
        for answers in open {
            assert!(all(answers).await[0].0.found.is_ok());
        }
    });
    assert_eq!(server.queries().len(), 1);
}

#[test]
fn hosts_come_first_and_alone() {
    let server = DnsServer::start(Zone::new().aaaa("listed.test", ["2001:db8::66"]));
    let hosts =
        "192.0.2.1 listed.test other\n192.0.2.2 LISTED.test\n2001:db8::1 both\n192.0.2.3 both";
    let resolver = Resolver::dns_from(&server.resolv_conf(), hosts).unwrap();
    let answers = ask(&resolver, "Listed.Test", BOTH);
    assert_eq!(addresses(&of(Question::A, &answers).found), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(of(Question::A, &answers).found.as_ref().unwrap().origin, Origin::Hosts);
    let none = &of(Question::Aaaa, &answers).found;
    assert_eq!(none, &Err(QueryError::NoAddresses { server: None }));
    let answers = ask(&resolver, "both", BOTH);
    assert_eq!(addresses(&of(Question::Aaaa, &answers).found), ["2001:db8::1"]);
    assert_eq!(server.queries(), []);
}

#[test]
fn some_names_are_nobody_elses() {
    let server = DnsServer::start(Zone::new().otherwise(Reply::addresses(["192.0.2.66"])));
    let resolver = resolver(&server);
    for name in ["localhost", "LOCALHOST.", "a.b.localhost"] {
        let answers = ask(&resolver, name, BOTH);
        assert_eq!(addresses(&of(Question::A, &answers).found), ["127.0.0.1"], "{name}");
        assert_eq!(addresses(&of(Question::Aaaa, &answers).found), ["::1"], "{name}");
    }
    for name in ["a.invalid", "b.onion."] {
        assert_eq!(ask_a(&resolver, name), Err(QueryError::NoSuchName { server: None }));
    }
    assert_eq!(server.queries(), []);
    let listed = Resolver::dns_from(&server.resolv_conf(), "127.0.0.1 localhost").unwrap();
    let answers = ask(&listed, "localhost", BOTH);
    assert!(matches!(of(Question::Aaaa, &answers).found, Err(QueryError::NoAddresses { .. })));
}

#[test]
fn addresses_and_what_is_no_name_are_answered_too() {
    let resolver = Resolver::dns_from("", "").unwrap();
    let answers = ask(&resolver, "192.0.2.1", BOTH);
    assert_eq!(addresses(&of(Question::A, &answers).found), ["192.0.2.1"]);
    assert!(of(Question::Aaaa, &answers).found.is_err());
    let error = ask_a(&resolver, "a b").unwrap_err();
    assert_eq!(error.to_string(), "a space cannot be in a host's name");
    assert_eq!(ask(&resolver, "www.test", &[]), []);
    let https = ask(&resolver, "www.test", &[Question::Https]).remove(0);
    assert_eq!(https.found, Err(QueryError::Unsupported));
}

#[test]
fn ipv6_addresses_are_not_asked_for_where_that_is_wanted() {
    let server = DnsServer::start(Zone::new().a("www.test", ["192.0.2.1"]));
    let mut configuration = ResolvConf::parse(&server.resolv_conf()).unwrap();
    configuration.no_aaaa = true;
    let answers = ask(&Resolver::dns_with(configuration, ""), "www.test", BOTH);
    assert!(of(Question::A, &answers).found.is_ok());
    assert_eq!(server.queries().len(), 1);
}

/// A directory of a test's own, gone with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lastbyte-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn changed_files_are_read_again() {
    let [old, new] = ["192.0.2.1", "192.0.2.2"]
        .map(|address| DnsServer::start(Zone::new().a("www.test", [address])));
    let directory = Directory::new("reload");
    let (resolv_conf, hosts) = (directory.0.join("resolv.conf"), directory.0.join("hosts"));
    fs::write(&resolv_conf, old.resolv_conf()).unwrap();
    // The hosts file is missing, and the resolver content with it.
    let resolver = Resolver::dns_at(&resolv_conf, &hosts).unwrap();
    assert_eq!(addresses(&ask_a(&resolver, "www.test")), ["192.0.2.1"]);
    fs::write(directory.0.join("next"), new.resolv_conf()).unwrap();
    fs::rename(directory.0.join("next"), &resolv_conf).unwrap();
    let says = |address: &str| addresses(&ask_a(&resolver, "www.test")) == [address];
    let lasted = wait_for("the new file", || says("192.0.2.2"));
    assert!(lasted < 2 * SECOND, "{lasted:?}");
    // Nonsense does not count; what comes after it does.
    fs::write(&resolv_conf, "nameserver nonsense\n").unwrap();
    let checks_again = Instant::now() + 1200 * MS;
    while Instant::now() < checks_again {
        assert!(says("192.0.2.2"));
        thread::sleep(50 * MS);
    }
    fs::write(&hosts, "192.0.2.3 www.test\n").unwrap();
    fs::write(&resolv_conf, new.resolv_conf()).unwrap();
    wait_for("the hosts file", || says("192.0.2.3"));
    let error = Resolver::dns_at(&directory.0, &hosts).unwrap_err().to_string();
    assert!(error.contains("Is a directory"), "{error}");
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many descriptors are open once their number stays the same for a while.
fn settled() -> usize {
    let (mut number, mut same) = (descriptors(), 0);
    for _ in 0..1000 {
        thread::sleep(5 * MS);
        let now = descriptors();
        same = if now == number { same + 1 } else { 0 };
        if same == 20 {
            break;
        }
        number = now;
    }
    number
}

/// What is open: shown by a test that fails.
fn opened() -> Vec<String> {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    let text =
        |path: PathBuf| fs::read_link(&path).map_or(String::new(), |to| to.display().to_string());
    all.map(|entry| text(entry.unwrap().path())).collect()
}

fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// Waits for something that other threads do, at most ten seconds.
fn wait_for(what: &str, is_done: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < 10 * SECOND, "{what} takes too long");
        thread::sleep(5 * MS);
    }
    began.elapsed()
}

#[test]
fn late_answers_are_kept_and_nothing_stays_behind() {
    let zone = Zone::new()
        .both("late.test", Reply::addresses(["192.0.2.1"]).after(300 * MS))
        .both("never.test", Reply::never());
    let server = DnsServer::start(zone);
    let text = format!("nameserver {}\noptions timeout:20\n", server.address());
    let resolver = Resolver::dns_from(&text, "").unwrap();
    // What the first event loop of a process opens for good.
    assert!(ask_a(&Resolver::dns_from(&text, "").unwrap(), "none.test").is_err());
    let before = descriptors();
    eprintln!("before: {:?}", opened());
    assert!(ask_a(&resolver, "none.test").is_err());
    // Those of the thread's event loop come, and those of the test's own go, when nobody wakes it
    // any more. An event loop has three, and a fourth where tokio is built with signals.
    let with_thread = settled();
    eprintln!("with the thread: {:?}", opened());
    assert!(with_thread <= before + 4);

    for name in ["late.test", "never.test"] {
        drop(resolver.ask(name, &[Question::A]));
        wait_for("the question", || server.count(name) == 1);
    }
    assert_eq!(descriptors(), with_thread + 2);
    let lasted = wait_for("the end of both", || descriptors() == with_thread);
    assert!(lasted > 500 * MS && lasted < 2 * SECOND, "{lasted:?}");
    assert!(ask_a(&resolver, "late.test").unwrap().cached);
    assert_eq!(server.count("late.test"), 1);

    // The last clone takes the thread with it, and what it was doing.
    drop(resolver.ask("never.test", &[Question::A]));
    wait_for("the question", || server.count("never.test") >= 3);
    assert_eq!(threads_named("lastbyte-dns"), 1);
    drop(resolver);
    assert_eq!(threads_named("lastbyte-dns"), 0);
    let after = settled();
    assert!(after <= before, "{:?}", opened());
}

#[test]
fn a_resolver_serves_several_event_loops() {
    let zone = Zone::new().a("a.test", ["192.0.2.1"]).a("b.test", ["192.0.2.2"]);
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    // The first loop is gone when the second one asks.
    assert!(ask_a(&resolver, "a.test").is_ok());
    assert!(ask_a(&resolver, "b.test").is_ok());
}

#[test]
fn the_system_answers_each_family_by_itself() {
    let resolver = Resolver::system();
    let answers = ask(&resolver, "localhost", &[Question::A]);
    assert_eq!(addresses(&answers[0].found), ["127.0.0.1"]);
    assert_eq!(answers[0].found.as_ref().unwrap().origin, Origin::System);
    assert_eq!(ask(&resolver, "localhost", BOTH).len(), 2);
    assert_eq!(ask(&resolver, "www.test", &[Question::Https]).len(), 1);
}

#[test]
fn sockets_of_tcp_are_closed() {
    let zone = Zone::new().otherwise(Reply::addresses(["192.0.2.1"]).truncated());
    let server = DnsServer::start(zone);
    let resolver = resolver(&server);
    for number in 0..20 {
        assert!(ask_a(&resolver, &format!("n{number}.test")).is_ok());
    }
    let own = format!(":{:04X} ", server.address().port());
    let is_open = || {
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        // The column `st`: 01 is ESTABLISHED.
        table.lines().any(|line| line.contains(&own) && line.contains(" 01 "))
    };
    wait_for("the end of the connections", || !is_open());
}

#[test]
fn a_tcp_port_that_swallows_everything_ends_in_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let text = format!(
        "nameserver {}\noptions use-vc timeout:0.3 attempts:1",
        listener.local_addr().unwrap()
    );
    let began = Instant::now();
    let error = ask_a(&Resolver::dns_from(&text, "").unwrap(), "www.test").unwrap_err();
    assert!(matches!(error, QueryError::TimedOut { .. }), "{error}");
    assert!(began.elapsed() < SECOND);
}

#[test]
fn records_that_nobody_asked_for_are_not_taken() {
    let zone = Zone::new().both("www.test", Reply::addresses(["192.0.2.1"]).with_extra());
    let server = DnsServer::start(zone.both("empty.test", Reply::no_data().with_extra()));
    let resolver = resolver(&server);
    assert_eq!(addresses(&ask_a(&resolver, "www.test")), ["192.0.2.1"]);
    assert!(matches!(ask_a(&resolver, "empty.test"), Err(QueryError::NoAddresses { .. })));
    // Nor kept: this name is asked for.
    let forged: Vec<SocketAddr> = vec![(FORGED, 0).into()];
    let found = ask_a(&resolver, "evil.test");
    assert!(found.as_ref().map_or(true, |found| found.addresses != forged), "{found:?}");
    assert_eq!(server.count("evil.test"), 1);
}

/// A configuration that no file could have: it is a value that anybody may make.
#[test]
fn times_without_end_and_no_servers_are_no_panic() {
    let server = DnsServer::start(Zone::new().a("host.test", ["192.0.2.1"]));
    for (timeout, attempts) in [(Duration::MAX, u32::MAX), (Duration::MAX, 1), (SECOND, u32::MAX)] {
        let mut configuration = ResolvConf::parse(&server.resolv_conf()).unwrap();
        (configuration.timeout, configuration.attempts) = (timeout, attempts);
        let resolver = Resolver::dns_with(configuration, "");
        assert_eq!(addresses(&ask_a(&resolver, "host.test")), ["192.0.2.1"]);
    }
    let mut configuration = ResolvConf::default();
    configuration.servers.clear();
    let error = ask_a(&Resolver::dns_with(configuration, ""), "host.test").unwrap_err();
    assert_eq!(error.to_string(), "no DNS server is configured");
}

/// As many as a crawler has: with few descriptors, and all of them answered.
#[test]
fn many_names_at_once_are_all_answered() {
    let server = DnsServer::start(Zone::new().otherwise(Reply::addresses(["192.0.2.1"])));
    let resolver = resolver(&server);
    let before = descriptors();
    let names: Vec<String> = (0..3000).map(|number| format!("n{number}.test")).collect();
    let mut all: Vec<Answers> =
        names.iter().map(|name| resolver.ask(name, &[Question::A])).collect();
    run(async {
        let mut most = 0;
        for answers in &mut all {
            let found = answers.next().await.unwrap().found;
            assert!(found.is_ok(), "{found:?}");
            most = most.max(descriptors());
        }
        eprintln!("descriptors: {before}, then at most {most}");
        assert!(most < before + 300);
    });
}
