//! Real programs at their normal work, watched by the doctor with all that they start: nothing is lost, and
//! nothing may be called lost. And iperf3, which does lose.
//!
//! Each test runs again, as the program that the doctor watches, in a network of its own. Without a
//! doctor it does the same work unwatched.

use std::fs;
use std::path::Path;
use std::process::Command;

use lastbyte_link::{FAR, Link, Namespace, Scenario};
use lastbyte_testing::this_test;
use serde_json::Value;

use super::bed::Bed;
use super::diagnosis::has_tier;
use super::visit::Failure;
use crate::support::servers::git::{commit_all, git, git_command};
use crate::support::servers::postgres::Database;
use crate::support::servers::ssh::Ssh;
use crate::support::servers::{
    Server, free_port, redis_server, shell, succeed, web_server, write_random,
};
use crate::support::{LASTBYTE, LATER, Scratch};

#[test]
#[ignore = "needs curl and wget"]
fn curl_and_wget_from_a_web_server_in_python() {
    at_work(|| {
        let scratch = Scratch::new();
        let (_server, port) = web_server(&scratch);
        fetch_from(&scratch, port);
    });
}

#[test]
#[ignore = "needs nginx, HAProxy, curl and wget"]
fn nginx_behind_haproxy() {
    at_work(|| {
        let scratch = Scratch::new();
        let (_server, port) = nginx(&scratch);
        let (_proxy, proxy_port) = haproxy(&scratch, port);
        fetch_from(&scratch, port);
        fetch_from(&scratch, proxy_port);
    });
}

#[test]
#[ignore = "needs nginx, openssl and curl"]
fn nginx_over_tls() {
    at_work(|| {
        let scratch = Scratch::new();
        let (_server, _) = nginx(&scratch);
        write_random(&scratch.path().join("file"), 8 << 20, 7);
        let url = format!("https://127.0.0.1:{}/file", tls_port(&scratch));
        for _ in 0..10 {
            shell(&format!("curl -q -sS --insecure --noproxy '*' {url} | wc -c"));
        }
    });
}

#[test]
#[ignore = "needs Node"]
fn node_serves_and_fetches() {
    at_work(|| {
        let scratch = Scratch::new();
        let script = scratch.file("server.mjs", NODE_SERVER);
        let mut node = Command::new("node");
        let (_server, port) = Server::that_says("listening on ", &scratch, node.arg(script));
        let client = scratch.file("client.mjs", NODE_CLIENT);
        let told = succeed(Command::new("node").args([client, port.to_string()]));
        assert_eq!(told.stdout.trim(), (20 * 1_000_000).to_string());
    });
}

#[test]
#[ignore = "needs ssh and rsync"]
fn rsync_over_ssh() {
    at_work(|| {
        let scratch = Scratch::new();
        let ssh = Ssh::start(&scratch);
        let tree = scratch.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for file in 0..50 {
            write_random(&tree.join(format!("file-{file}")), 40_000 * file, 7);
        }
        let (from, to) = (tree.display(), scratch.path().join("copy"));
        let remote = format!("{}@127.0.0.1", ssh.user);
        let command = ssh.command(ssh.port);
        shell(&format!("rsync -a -e '{command}' {from}/ {remote}:{}", to.display()));
        shell(&format!("{command} {remote} cat {from}/* | wc -c; diff -r {from} {}", to.display()));
    });
}

#[test]
#[ignore = "needs git"]
fn git_clones_and_pushes() {
    at_work(|| {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path().join(name);
        git(scratch.path(), &["init", "-q", "-b", "main", "origin"]);
        for commit in 1..=5 {
            write_random(&path("origin").join(format!("file {commit}")), 1 << 20, commit);
            commit_all(&path("origin"));
        }
        git(scratch.path(), &["clone", "-q", "--bare", "origin", "served"]);
        let port = free_port();
        let mut daemon = git_command(scratch.path());
        daemon.args(["daemon", "--export-all", "--enable=receive-pack", "--listen=127.0.0.1"]);
        let base = format!("--base-path={}", scratch.path().display());
        let _daemon = Server::at(port, &scratch, daemon.args([base, format!("--port={port}")]));
        let url = format!("git://127.0.0.1:{port}/served");
        git(scratch.path(), &["clone", "-q", &url, "first"]);
        write_random(&path("first").join("more"), 8 << 20, 99);
        commit_all(&path("first"));
        git(&path("first"), &["push", "-q", "origin", "main"]);
    });
}

#[test]
#[ignore = "needs redis-tools"]
fn redis_benchmark() {
    at_work(|| {
        let scratch = Scratch::new();
        let (_server, port) = redis_server(&scratch);
        for words in
            ["-n 20000 -c 50 -t ping_mbulk,set,get,lrange_100", "-n 1000 -c 20 -k 0 -t set"]
        {
            let mut benchmark = Command::new("redis-benchmark");
            benchmark.args(["--csv", "-p", &port.to_string()]);
            succeed(benchmark.args(words.split(' ')));
        }
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.arg("-s").arg(scratch.path().join("redis"));
        succeed(benchmark.args([
            "-q",
            "-n",
            "2000",
            "-c",
            "20",
            "-k",
            "0",
            "-t",
            "set,lrange_100",
        ]));
    });
}

#[test]
#[ignore = "needs postgresql"]
fn pgbench() {
    at_work(|| {
        let scratch = Scratch::new();
        let database = Database::start(&scratch);
        database.client("pgbench", database.port, &["-i", "-q", "-s", "1", "postgres"]);
        let words = ["-c", "4", "-j", "2", "-T", "3", "postgres"];
        database.client("pgbench", database.port, &words);
        let copy = ["-c", "COPY pgbench_accounts TO STDOUT", "postgres"];
        database.client("psql", database.port, &copy);
        // By its Unix socket, as most programs on one machine do.
        let folder = database.folder.display().to_string();
        for of_client in [&["pgbench", "-C", "-T", "1"][..], &["psql", copy[0], copy[1]]] {
            let words = [&["-h", &folder], &of_client[1..], &["postgres"]].concat();
            database.client(of_client[0], database.port, &words);
        }
    });
}

/// iperf3's receiver closes when it is told that all has been sent, while data are on their way.
#[test]
#[ignore = "needs iperf3"]
fn iperf3_loses_its_tail_and_the_doctor_says_how_much() {
    let looked_on = has_tier("bpf");
    for watched in [Watched::Receiver, Watched::Sender] {
        if let Some((lost, findings)) = iperf3(watched) {
            assert!(lost > 100_000, "iperf3 lost only {lost} bytes");
            let losses = losses_in(&findings);
            let bytes: u64 = losses.iter().filter_map(|loss| loss["bytes"].as_u64()).sum();
            match watched {
                _ if !looked_on => {}
                // Data came after its close, or it closed with some unread: as they happen to come.
                Watched::Receiver => {
                    let is_its = |loss: &&Value| ["LB101", "LB104"].contains(&code_in(loss));
                    assert!(losses.iter().any(is_its), "{findings:#?}");
                }
                // Some had come to the receiver's kernel and not to its program.
                Watched::Sender => {
                    let unread = lost.checked_sub(bytes);
                    assert!(
                        unread.is_some_and(|unread| unread < 256 << 10),
                        "{lost}: {findings:#?}"
                    );
                }
            }
        }
    }
}

fn code_in(finding: &Value) -> &str {
    finding["code"].as_str().unwrap_or_default()
}

/// Whose kernel is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Receiver,
    Sender,
}

/// How much of 4 MiB over a path of 100 ms the receiver's program did not get, and what the doctor said.
fn iperf3(watched: Watched) -> Option<(u64, Vec<Value>)> {
    let spec = Scenario::parse("clinic", "rtt = '100ms'").unwrap().spec;
    let link = match Link::up(&spec, 9).map_err(Failure::of_link) {
        Ok(link) => link,
        Err(Failure::NotHere(why)) => {
            lastbyte_testing::not_tested!("{why}");
            return None;
        }
        Err(Failure::Broken(why)) => panic!("{why}"),
    };
    let scratch = Scratch::new();
    let json = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(scratch.path().join(name)).unwrap()).unwrap()
    };
    let run = |who: Watched, words: &str, log: &str| {
        let log = scratch.path().join(log);
        let line = format!("exec iperf3 -J {words} > {}", log.display());
        let words = ["bash", "-c", &line].map(str::to_owned).to_vec();
        let words = if who == watched { under_doctor(words, &scratch) } else { words };
        let place = if who == Watched::Receiver { link.far() } else { link.near() };
        Bed::start(place, &words, LATER).map_err(|error| format!("{error:?}")).unwrap()
    };
    let server = run(Watched::Receiver, "-s -1", "server");
    let listens = || {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", server.pid()));
        let tables = tables.iter().map(|table| fs::read_to_string(table).unwrap_or_default());
        tables.into_iter().any(|table| table.contains(":1451 ")) // 5201
    };
    crate::support::wait_for("iperf3", LATER, listens);
    let client = run(Watched::Sender, &format!("-c {FAR} -n 4M"), "client");
    for end in [client.end(), server.end()] {
        end.map_err(|error| format!("{error:?}")).unwrap();
    }
    let sent = json("client")["end"]["sum_sent"]["bytes"].as_u64().unwrap();
    let received = json("client")["end"]["sum_received"]["bytes"].as_u64().unwrap();
    Some((sent - received, findings_in(&scratch)))
}

/// Does the work of the test whose thread this is under the doctor; no loss may be found.
#[track_caller]
fn at_work(work: impl FnOnce()) {
    let test = this_test();
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return work();
    }
    let place = match Namespace::create().map_err(Failure::of_link) {
        Ok(place) => place,
        Err(why) => return lastbyte_testing::not_tested!("{why:?}"),
    };
    let scratch = Scratch::new();
    let me = std::env::current_exe().unwrap();
    let again = ["--exact", &test, "--nocapture", "--include-ignored"];
    let inside = format!("{INSIDE}={test}");
    let words = ["env", &inside, me.to_str().unwrap()].into_iter().chain(again);
    let words = under_doctor(words.map(str::to_owned).collect(), &scratch);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let told = place.run(|| crate::support::answer_within(&mut command, LATER)).unwrap();
    assert!(told.code() == 0 && told.stdout.contains("1 passed"), "{told:#?}");
    let findings = findings_in(&scratch);
    let harmless = findings.iter().filter(|finding| finding["harmless"] == true).count();
    eprintln!("{test}: {} findings, {harmless} of them harmless", findings.len());
    assert!(losses_in(&findings).is_empty(), "{findings:#?}");
}

/// Set inside, to the name of the test.
const INSIDE: &str = "LASTBYTE_TEST_AT_WORK";

fn under_doctor(words: Vec<String>, scratch: &Scratch) -> Vec<String> {
    let answer = scratch.path().join("answer").display().to_string();
    let doctor =
        [LASTBYTE, "doctor", "--json", "--all", "--output", &answer, "--"].map(str::to_owned);
    doctor.into_iter().chain(words).collect()
}

/// What the doctor found, whose answer has to be there, whole, and by tier bpf: nothing found by less is
/// not tested.
#[track_caller]
fn findings_in(scratch: &Scratch) -> Vec<Value> {
    let answer = fs::read_to_string(scratch.path().join("answer")).expect("the doctor's answer");
    let lines = answer.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    let end = lines.last().filter(|line| line["type"] == "end");
    let end = end.unwrap_or_else(|| panic!("the doctor's answer is not whole: {answer}"));
    if end["sees_each_loss"] != true {
        lastbyte_testing::not_tested!("a loss could be missed by tier {} here", end["tier"]);
    }
    lines.into_iter().filter(|line| line["type"] == "finding").collect()
}

fn losses_in(findings: &[Value]) -> Vec<&Value> {
    findings.iter().filter(|finding| finding["class"] == "loss").collect()
}

/// Small and large files, one at a time and several at once, whole and in part.
fn fetch_from(scratch: &Scratch, port: u16) {
    for (name, bytes) in [("small", 100), ("file", 8 << 20)] {
        write_random(&scratch.path().join(name), bytes, 7);
    }
    let (url, at) = (format!("http://127.0.0.1:{port}"), scratch.path().display());
    let curl = "curl -q -sS --fail --noproxy '*'";
    for name in ["small", "file"] {
        shell(&format!("{curl} {url}/{name} | cmp - {at}/{name}"));
        shell(&format!("wget -q --no-config --no-proxy -O - {url}/{name} | cmp - {at}/{name}"));
    }
    shell(&format!("{curl} --parallel {url}/small {url}/file {url}/small | wc -c"));
    shell(&format!("{curl} -I {url}/file; {curl} -H 'Connection: close' {url}/small | wc -c"));
    // A file that is not there.
    shell(&format!("! {curl} {url}/nothing"));
}

/// An nginx that serves the files of a place, also over TLS at the next port that was free.
fn nginx(scratch: &Scratch) -> (Server, u16) {
    let (port, tls) = (free_port(), free_port());
    let at = scratch.path().display();
    let subject = "-subj /CN=localhost -days 2 -newkey rsa:2048 -nodes";
    shell(&format!("openssl req -x509 {subject} -keyout {at}/key -out {at}/certificate 2>&1"));
    scratch.file("tls-port", tls.to_string());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: Vec<_> =
        temporary.iter().map(|kind| format!("{kind}_temp_path {at}/{kind};")).collect();
    let config = scratch.file(
        "nginx.conf",
        format!(
            "daemon off; pid {at}/nginx.pid; error_log stderr; worker_processes 2;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; {} server {{ root {at}; listen 127.0.0.1:{port};\n\
             listen 127.0.0.1:{tls} ssl; ssl_certificate {at}/certificate;\n\
             ssl_certificate_key {at}/key; }} }}\n",
            temporary.concat()
        ),
    );
    let mut nginx = Command::new(daemon("nginx"));
    (Server::at(port, scratch, nginx.args(["-c", &config])), port)
}

fn tls_port(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.path().join("tls-port")).unwrap()
}

/// An HAProxy before a web server.
fn haproxy(scratch: &Scratch, upstream: u16) -> (Server, u16) {
    let port = free_port();
    let config = scratch.file(
        "haproxy.cfg",
        format!(
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  \
             timeout server 30s\n  option http-ignore-probes\nlisten web\n  bind 127.0.0.1:{port}\n  \
             server one 127.0.0.1:{upstream}\n"
        ),
    );
    let mut haproxy = Command::new(daemon("haproxy"));
    (Server::at(port, scratch, haproxy.args(["-db", "-f", &config])), port)
}

/// Daemons lie where only root looks.
fn daemon(name: &str) -> String {
    let path = format!("/usr/sbin/{name}");
    if Path::new(&path).exists() { path } else { name.to_owned() }
}

const NODE_SERVER: &str = "
    import http from 'node:http';
    const body = Buffer.alloc(1000000);
    const server = http.createServer((request, response) => response.end(body));
    server.listen(0, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));
";

const NODE_CLIENT: &str = "
    const url = `http://127.0.0.1:${process.argv[2]}/`;
    const lengths = Array.from({ length: 20 }, async () => {
      const answer = await fetch(url);
      return (await answer.arrayBuffer()).byteLength;
    });
    console.log((await Promise.all(lengths)).reduce((one, other) => one + other));
";
