//! The system's own resolver, with a server that it can be made to wait for: in a network and a mount
//! namespace of the tests' own, with their own `/etc/resolv.conf`. Without the rights these tests say so
//! and pass.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_dial::{Answer, Answers, QueryError, Question, Resolver};
use lastbyte_link::{LinkError, Namespace};
use lastbyte_sys::{mount, namespace};
use tokio::runtime::{Builder, Runtime};

use crate::support::dns::{DnsServer, Reply, Type, Zone};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);
const BOTH: &[Question] = &[Question::Aaaa, Question::A];

/// Runs a test in namespaces of its own, with a server whose zone this is, or says why not.
fn alone(zone: Zone, test: impl FnOnce(&DnsServer) + Send) {
    let work = || {
        namespace::unshare_mounts().unwrap();
        mount::make_all_private().unwrap();
        let file = std::env::temp_dir().join(format!("lastbyte-resolv-{}", std::process::id()));
        fs::write(&file, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").unwrap();
        mount::bind(&file, Path::new("/etc/resolv.conf")).unwrap();
        fs::remove_file(&file).unwrap();
        test(&DnsServer::start_on(SERVER, zone));
    };
    match Namespace::create() {
        Ok(namespace) => namespace.run(work).unwrap(),
        Err(error @ LinkError::Rights { .. }) => lastbyte_testing::not_tested!("{error}"),
        Err(error) => panic!("{error}"),
    }
    wait_for("the end of the threads", || threads_that_ask() == 0);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn all(mut answers: Answers) -> Vec<(Answer, Duration)> {
    let began = Instant::now();
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await {
        all.push((answer, began.elapsed()));
    }
    all
}

fn threads_that_ask() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "lastbyte-gai").count()
}

/// Waits for something that other threads do, at most twenty seconds.
fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < 20 * SECOND, "{what} takes too long");
        thread::sleep(5 * MS);
    }
}

#[test]
fn each_family_comes_by_itself() {
    let zone =
        Zone::new().a("www.test", ["192.0.2.1"]).reply("www.test", Type::Aaaa, Reply::never());
    alone(zone, |_| {
        let answers = runtime().block_on(all(Resolver::system().ask("www.test", BOTH)));
        let (first, when) = &answers[0];
        let found = first.found.as_ref().unwrap();
        assert_eq!(found.addresses, ["192.0.2.1:0".parse::<SocketAddr>().unwrap()]);
        assert!(*when < 500 * MS, "{when:?}");
        let (second, when) = &answers[1];
        assert!(matches!(second.found, Err(QueryError::System { .. })), "{second:?}");
        assert!(*when >= 900 * MS, "{when:?}");
        let text = second.found.as_ref().unwrap_err().to_string();
        assert_eq!(text, "Temporary failure in name resolution");
    });
}

#[test]
fn what_there_is_not_is_told() {
    alone(Zone::new().aaaa("six.test", ["2001:db8::1"]), |_| {
        let error = |name: &str| {
            let answers = runtime().block_on(all(Resolver::system().ask(name, &[Question::A])));
            answers[0].0.found.clone().unwrap_err()
        };
        assert_eq!(error("none.test").to_string(), "Name or service not known");
        assert_eq!(error("six.test"), QueryError::NoAddresses { server: None });
    });
}

#[test]
fn a_hanging_call_holds_up_nobody() {
    alone(Zone::new().otherwise(Reply::never()), |server| {
        let resolver = Resolver::system();
        let loop_of_user = runtime();
        let open: Vec<Answers> = loop_of_user.block_on(async {
            (0..100).map(|number| resolver.ask(&format!("n{number}.test"), BOTH)).collect()
        });
        wait_for("the first questions", || server.queries().len() >= 32);
        assert_eq!(threads_that_ask(), 32);
        // An event loop that waited for its threads would last as long as they.
        let began = Instant::now();
        drop(loop_of_user);
        assert!(began.elapsed() < 500 * MS, "{:?}", began.elapsed());
        drop(open);
        drop(resolver);
        // What nobody waits for is not asked any more.
        wait_for("the end of the threads", || threads_that_ask() == 0);
        assert!(server.queries().len() < 100, "{}", server.queries().len());
    });
}
