//! Forged answers: what a forger may send, from the server's own address and port, and what does not
//! become of it. In a network namespace of the tests' own, with the server at its usual port. Without
//! the rights these tests say so and pass.

use std::collections::HashSet;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lastbyte_dial::{Found, QueryError, Question, Resolver};
use lastbyte_link::{LinkError, Namespace};

use crate::support::dns::{DnsServer, FORGED, Forgery, Query, Reply, Type, Zone};

const MS: Duration = Duration::from_millis(1);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);
/// Another address of the same host.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const TRUE: &str = "192.0.2.1";
const TRUE_V6: &str = "2001:db8::1";

/// Runs a test in a namespace of its own, or says why not.
fn alone(test: impl FnOnce() + Send) {
    match Namespace::create() {
        Ok(namespace) => namespace.run(test).unwrap(),
        Err(error @ LinkError::Rights { .. }) => lastbyte_testing::not_tested!("{error}"),
        Err(error) => panic!("{error}"),
    }
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let limited = tokio::time::timeout(Duration::from_secs(60), future);
        limited.await.expect("a test has an end")
    })
}

fn ask(resolver: &Resolver, name: &str, question: Question) -> Result<Found, QueryError> {
    run(async { resolver.ask(name, &[question]).next().await }).unwrap().found
}

/// The server of a name whose true answer comes 30 ms after the forged ones; `None` for never.
fn forging<const N: usize>(forged: [Forgery; N], comes: bool) -> Zone {
    let truth = |addresses| {
        let reply = Reply::addresses(addresses).after(30 * MS).forged(forged);
        if comes { reply } else { reply.forged_alone() }
    };
    Zone::new().reply("bank.test", Type::A, truth([TRUE])).reply(
        "bank.test",
        Type::Aaaa,
        truth([TRUE_V6]),
    )
}

/// Every forgery by itself, and whether the truth is then had over UDP still.
const FORGERIES: [(Forgery, bool); 11] = [
    (Forgery::WrongIds(2), true),
    (Forgery::WrongIds(1000), false),
    (Forgery::WrongPort, true),
    (Forgery::WrongAddress(ELSEWHERE), true),
    (Forgery::WrongName, true),
    (Forgery::WrongType, true),
    (Forgery::TwoQuestions, true),
    (Forgery::NoQuestion, true),
    (Forgery::WrongCase, false),
    (Forgery::Query, false),
    (Forgery::Short, true),
];

#[test]
fn the_truth_comes_behind_any_forgery() {
    alone(|| {
        for (forgery, over_udp) in FORGERIES {
            let server = DnsServer::start_on(SERVER, forging([forgery], true));
            let resolver = Resolver::dns_from("nameserver 127.0.0.1\n", "").unwrap();
            for (question, truth) in [(Question::A, TRUE), (Question::Aaaa, TRUE_V6)] {
                let found = ask(&resolver, "bank.test", question).unwrap();
                let truth: IpAddr = truth.parse().unwrap();
                assert_eq!(found.addresses, [SocketAddr::new(truth, 0)], "{forgery:?}");
            }
            // What a forger provoked is over TCP, where nobody can forge blindly.
            let tcp = server.queries().iter().any(|query| query.tcp);
            assert_eq!(tcp, !over_udp, "{forgery:?}");
        }
    });
}

#[test]
fn the_truth_comes_behind_all_forgeries_together() {
    alone(|| {
        let all = FORGERIES.map(|(forgery, _)| forgery);
        let server = DnsServer::start_on(SERVER, forging(all, true));
        let resolver = Resolver::dns_from("nameserver 127.0.0.1\n", "").unwrap();
        let found = ask(&resolver, "bank.test", Question::A).unwrap();
        assert_eq!(found.addresses, [SocketAddr::new(TRUE.parse().unwrap(), 0)]);
        drop(server);
    });
}

#[test]
fn a_forgery_alone_is_no_answer() {
    alone(|| {
        for (forgery, _) in FORGERIES {
            if forgery == Forgery::WrongCase {
                // Without TCP the server is asked in plain case then, and this forger, who knows ID
                // and port, needs no more: see `resolve`.
                continue;
            }
            let zone = forging([forgery], false).without_tcp();
            let server = DnsServer::start_on(SERVER, zone);
            let text = "nameserver 127.0.0.1\noptions timeout:0.3 attempts:1\n";
            let resolver = Resolver::dns_from(text, "").unwrap();
            let error = ask(&resolver, "bank.test", Question::A).unwrap_err();
            assert!(
                matches!(error, QueryError::TimedOut { .. } | QueryError::Malformed { .. }),
                "{forgery:?}: {error}"
            );
            drop(server);
        }
    });
}

#[test]
fn records_beside_the_answer_are_not_taken() {
    alone(|| {
        let reply = Reply::addresses([TRUE]).with_extra();
        let zone = Zone::new().reply("bank.test", Type::A, reply).a("evil.test", ["192.0.2.9"]);
        let server = DnsServer::start_on(SERVER, zone);
        let resolver = Resolver::dns_from("nameserver 127.0.0.1\n", "").unwrap();
        for (name, truth) in [("bank.test", TRUE), ("evil.test", "192.0.2.9")] {
            let found = ask(&resolver, name, Question::A).unwrap();
            assert_eq!(found.addresses, [SocketAddr::new(truth.parse().unwrap(), 0)]);
            assert!(!found.addresses.contains(&(FORGED, 0).into()));
        }
        assert_eq!(server.count("evil.test"), 1);
    });
}

/// Queries of the test for their spread.
const QUERIES: usize = 1000;
/// How far a count of `QUERIES` fair coins may be from its mean: 5.5 standard deviations, beyond
/// which one of 100 counts is in 3 million runs.
const OFF: usize = 87;
/// The 99.9999 % quantile of chi-square with 15 degrees of freedom, rounded up.
const CHI_SQUARE_15: f64 = 56.5;

fn is_fair(count: usize) -> bool {
    count.abs_diff(QUERIES / 2) <= OFF
}

/// Chi-square of numbers below `below` in 16 equal parts.
fn chi_square(numbers: impl Iterator<Item = usize>, below: usize) -> f64 {
    let mut parts = [0_u32; 16];
    for number in numbers {
        parts[number * 16 / below] += 1;
    }
    let expected = f64::from(parts.iter().sum::<u32>()) / 16.0;
    parts.iter().map(|part| (f64::from(*part) - expected).powi(2) / expected).sum()
}

#[test]
fn ports_ids_and_cases_are_spread() {
    alone(|| {
        let server = DnsServer::start_on(SERVER, Zone::new());
        let resolver = Resolver::dns_from("nameserver 127.0.0.1\n", "").unwrap();
        for number in 0..QUERIES {
            let name = format!("abcdefghijklmnop.{number}.test");
            assert!(ask(&resolver, &name, Question::A).is_err());
        }
        let queries: Vec<Query> = server.queries().into_iter().filter(|query| !query.tcp).collect();
        // A packet that this machine was slow to answer is sent again.
        assert!(queries.len() >= QUERIES && queries.len() < QUERIES + 50, "{}", queries.len());
        let queries = &queries[..QUERIES];

        // Of 64512 ports and 65536 IDs, 1000 drawn by chance are 992 different ones on average.
        let ports: HashSet<u16> = queries.iter().map(|query| query.from.port()).collect();
        let ids: HashSet<u16> = queries.iter().map(|query| query.id).collect();
        assert!(ports.len() > 960 && ids.len() > 960, "{} {}", ports.len(), ids.len());
        assert!(ports.iter().all(|port| *port >= 1024));
        let of_ports = chi_square(
            queries.iter().map(|query| usize::from(query.from.port()) - 1024),
            65_536 - 1024,
        );
        let of_ids = chi_square(queries.iter().map(|query| usize::from(query.id)), 65_536);
        eprintln!(
            "{} ports, chi-square {of_ports:.1}; {} IDs, chi-square {of_ids:.1}; 15 degrees of freedom",
            ports.len(),
            ids.len()
        );
        assert!(of_ports < CHI_SQUARE_15 && of_ids < CHI_SQUARE_15, "{of_ports} {of_ids}");
        for bit in 0..16 {
            let set = queries.iter().filter(|query| query.id >> bit & 1 == 1).count();
            assert!(is_fair(set), "bit {bit} of the ID is set {set} times");
        }

        let cases: HashSet<&str> = queries.iter().map(|query| &query.name[..16]).collect();
        assert!(cases.len() > 960, "{}", cases.len());
        for letter in 0..16 {
            let is_capital = |query: &&Query| query.name.as_bytes()[letter].is_ascii_uppercase();
            let capital = queries.iter().filter(is_capital).count();
            assert!(is_fair(capital), "letter {letter} is a capital {capital} times");
        }
    });
}

#[test]
fn one_question_is_outstanding_however_many_ask() {
    alone(|| {
        let zone = Zone::new().both("bank.test", Reply::addresses([TRUE]).after(100 * MS));
        let server = DnsServer::start_on(SERVER, zone);
        let resolver = Resolver::dns_from("nameserver 127.0.0.1\n", "").unwrap();
        run(async {
            let mut open: Vec<_> =
                (0..1000).map(|_| resolver.ask("bank.test", &[Question::A])).collect();
            for answers in &mut open {
                assert!(answers.next().await.unwrap().found.is_ok());
            }
        });
        assert_eq!(server.count("bank.test"), 1);
    });
}
