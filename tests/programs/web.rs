//! A web server and curl: a large file whole, and a file that was cut never whole, with a length
//! and, where only the way it ended tells, without one.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::place::Gate;
use crate::support::servers::{
    Server, digest_of, first_word, shell, wait_for_bytes, web_server, write_random,
};
use crate::support::{Answer, LATER, Running, Scratch, answer_within};

/// A curl that knows nothing of its user's habits, and that goes straight to the server.
const CURL: [&str; 4] = ["-q", "-sS", "--noproxy", "*"];
/// What curl says where a file ended before its length.
const PARTIAL_FILE: i32 = 18;
/// What curl says where receiving failed, as by a reset.
const RECEIVING_FAILED: i32 = 56;

#[test]
#[ignore = "moves two gigabytes"]
fn a_gigabyte_arrives_whole() {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    write_random(&file, 1 << 30, 7);
    let (_server, port) = web_server(&scratch);
    let gate = Gate::before(port, &scratch);
    let curl = format!("curl {} --fail http://{}/file", CURL.join(" "), gate.address());
    let got = shell(&format!("set -f; {curl} | sha256sum"));
    assert_eq!(first_word(&got), digest_of(&file));
    let accounts = gate.assert_flows(1..=1);
    assert_eq!(accounts[0]["complete"], true, "{accounts:#?}");
    // The head of the answer is part of it.
    assert!(accounts[0]["down_acked_bytes"].as_u64().unwrap() > 1 << 30, "{accounts:#?}");
}

#[test]
#[ignore = "moves a tenth of a gigabyte"]
fn a_server_killed_in_the_middle_of_a_file_is_noticed() {
    let scratch = Scratch::new();
    write_random(&scratch.path().join("file"), 100 << 20, 7);
    let got = scratch.path().join("got");
    for through_gate in [false, true] {
        let (mut server, port) = web_server(&scratch);
        let gate = Gate::before(port, &scratch);
        let port = if through_gate { gate.port } else { port };
        let url = format!("http://127.0.0.1:{port}/file");
        let mut curl = Command::new("curl");
        let curl =
            Running::start(curl.args(CURL).args(["--limit-rate", "20M", "-o"]).arg(&got).arg(url));
        wait_for_bytes(&got, 10 << 20);
        server.end("KILL");
        let told = curl.answer_within(LATER).with_code(PARTIAL_FILE);
        assert!(told.stderr.contains("bytes remaining to read"), "{told:#?}");
        fs::remove_file(&got).unwrap();
    }
}

#[test]
#[ignore = "needs curl and python3"]
fn a_reset_is_no_end_of_a_file_without_length() {
    let scratch = Scratch::new();
    let (_server, port) = rude_server(&scratch);
    let gate = Gate::before(port, &scratch);
    for (whom, port) in [("the server", port), ("the gate", gate.port)] {
        for _ in 0..20 {
            let cut = curl(port, "/cut", &[]);
            assert_eq!(cut.code(), RECEIVING_FAILED, "from {whom}: {cut:#?}");
            // The same file, ended as it should be.
            let whole = curl(port, "/whole", &[]).with_code(0);
            assert!(whole.stdout.ends_with("200 4000000"), "{}", whole.stderr);
        }
    }
    let accounts = gate.assert_flows(40..=40);
    let reset = accounts.iter().filter(|account| is_reset_by_upstream(account)).count();
    assert_eq!(reset, 20, "{accounts:#?}");
}

#[test]
#[ignore = "needs curl and python3"]
fn an_upload_refused_early_has_its_answer() {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    write_random(&file, 32 << 20, 7);
    let (_server, port) = rude_server(&scratch);
    let gate = Gate::before(port, &scratch);
    let upload = ["-H", "Expect:", "-T", file.to_str().unwrap()];
    for (whom, port) in [("the server", port), ("the gate", gate.port)] {
        let answered = |_: &i32| curl(port, "/early", &upload).stdout.contains("413 16384");
        assert_eq!((0..20).filter(answered).count(), 20, "early answers of 20 from {whom}");
    }
    for account in gate.assert_flows(20..=20) {
        assert!(is_reset_by_upstream(&account), "{account:#}");
        assert!(account["down_acked_bytes"].as_u64().unwrap() > 16_384, "{account:#}");
    }
}

fn is_reset_by_upstream(account: &Value) -> bool {
    account["ended_by"] == "upstream" && account["ended_how"] == "reset"
}

/// Asks for a path and throws away what comes; its last words are the status and the number of bytes.
fn curl(port: u16, path: &str, words: &[&str]) -> Answer {
    let mut curl = Command::new("curl");
    curl.args(CURL).args(["-o", "/dev/null", "-w", "%{http_code} %{size_download}"]).args(words);
    answer_within(curl.arg(format!("http://127.0.0.1:{port}{path}")), LATER)
}

/// One that ends connections in other ways than it should.
fn rude_server(scratch: &Scratch) -> (Server, u16) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/rude_server.py");
    Server::that_says("listening on ", scratch, Command::new("python3").arg(script))
}
