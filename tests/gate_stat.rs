//! `lastbyte gate stat` and what else can be asked of a gate that runs: the figures are what was sent,
//! the socket is its user's alone, and the dead make room where the living do not.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::support::gate::{Gate, asked, run_folder, socket_of, stat};
use crate::support::{self, Answer, SOON, Scratch, answer, wait_for};

/// The user without rights: `nobody`, on every Linux.
const NOBODY: u32 = 65534;

#[track_caller]
fn refused(command: &mut Command, said: &[&str]) -> Answer {
    let told = answer(command).with_code(2);
    assert_eq!(told.stdout, "", "{told:#?}");
    for word in said {
        assert!(told.stderr.contains(word), "{command:?} does not say `{word}`: {told:#?}");
    }
    told
}

/// Takes all that it is sent, and answers with so many bytes.
fn upstream(bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let word = format!("0={}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.read_to_end(&mut Vec::new());
                let _ = stream.write_all(&vec![1; bytes]);
            });
        }
    });
    word
}

/// Sends so many bytes, and reads the answer.
fn exchange(gate: SocketAddr, bytes: usize) -> usize {
    let mut stream = TcpStream::connect(gate).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&vec![0; bytes]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.len()
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_figures_are_what_was_sent() {
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &[&upstream(4_321)]);
    let at = gate.listening();
    for _ in 0..3 {
        assert_eq!(exchange(at, 100_000), 4_321);
    }
    // The client has read its end before the gate has finished.
    wait_for("three accounts", SOON, || stat(&scratch, "flows_complete") == "3");
    for (name, value) in [
        ("flows_accepted", "3"),
        ("flows_open", "0"),
        ("flows_ended_fin", "3"),
        ("up_received_bytes", "300000"),
        ("up_acked_bytes", "300000"),
        ("down_written_bytes", "12963"),
        ("down_acked_bytes", "12963"),
        ("workers", "1"),
    ] {
        assert_eq!(stat(&scratch, name), value, "{name}");
    }
    let all = answer(&mut asked(&scratch, &["stat", "--json"])).with_code(0).json_lines();
    let list = answer(&mut asked(&scratch, &["stat", "--list"])).with_code(0).stdout;
    let names: Vec<_> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let listed: Vec<_> = list.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, listed);
    let table = answer(&mut asked(&scratch, &["stat", "--by-route"])).with_code(0).stdout;
    let line = table.lines().find(|line| line.starts_with("up_acked_bytes ")).unwrap();
    assert_eq!(line.split_whitespace().nth(1), Some("127.0.0.1:0"), "{table}");
    let text = answer(&mut asked(&scratch, &["stat", "--openmetrics"])).with_code(0).stdout;
    assert!(text.contains("_up_acked_bytes_total{route=\"127.0.0.1:0\"} 300000\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn open_flows_are_listed() {
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &[&upstream(1)]);
    let told = answer(&mut asked(&scratch, &["flows"]));
    // It may not listen yet.
    assert!([0, 2].contains(&told.code()), "{told:#?}");
    let mut client = TcpStream::connect(gate.listening()).unwrap();
    client.write_all(&[0; 1_234]).unwrap();
    let mut flows = Vec::new();
    wait_for("the bytes", SOON, || {
        flows = answer(&mut asked(&scratch, &["flows", "--json"])).with_code(0).json_lines();
        flows.len() == 1 && flows[0]["up_written_bytes"] == 1_234
    });
    assert_eq!(flows[0]["client"], Value::from(client.local_addr().unwrap().to_string()));
    assert_eq!(flows[0]["wanted"], flows[0]["upstream"]);
    let table = answer(&mut asked(&scratch, &["flows"])).with_code(0).stdout;
    assert!(table.contains("1,234"), "{table}");
    drop(client);
    wait_for("its end", SOON, || {
        let told = answer(&mut asked(&scratch, &["flows"])).with_code(0).stdout;
        told == "no flow is open\n"
    });
}

#[test]
fn what_cannot_be_asked_is_named() {
    let scratch = Scratch::new();
    refused(&mut asked(&scratch, &["stat"]), &["no gate of this user runs", "--control"]);
    let nowhere = scratch.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    refused(&mut asked(&scratch, &["flows", "--control", nowhere]), &[nowhere, "no gate answers"]);
    let first = Gate::start(&scratch, &["0=192.0.2.1:9"]);
    first.listening();
    refused(&mut asked(&scratch, &["stat", "flows_opn"]), &["\"flows_opn\"", "`flows_open`"]);
    refused(&mut asked(&scratch, &["stat", "two words"]), &["\"two words\"", "--list"]);
    refused(&mut asked(&scratch, &["stat", "x", "--list"]), &["--list"]);
    let second = Gate::start(&scratch, &["0=192.0.2.1:9"]);
    let at = second.listening().to_string();
    let told = refused(&mut asked(&scratch, &["stat"]), &["2 gates run here", "--control", &at]);
    for gate in [&first, &second] {
        let socket = socket_of(gate, &scratch);
        assert!(told.stderr.contains(socket.to_str().unwrap()), "{told:#?}");
        let named = ["stat", "flows_open", "--control", socket.to_str().unwrap()];
        assert_eq!(answer(&mut asked(&scratch, &named)).with_code(0).stdout, "0\n");
    }
}

#[test]
fn the_socket_is_its_users_alone_and_goes_with_the_gate() {
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &["0=192.0.2.1:9"]);
    gate.listening();
    let socket = socket_of(&gate, &scratch);
    assert_eq!((mode_of(&socket), mode_of(&run_folder(&scratch))), (0o600, 0o700));
    let told = answer(&mut asked(&scratch, &["drain"])).with_code(0);
    assert!(told.stdout.contains("drains"), "{told:#?}");
    gate.ends_with(0);
    assert!(!socket.exists());
    assert_eq!(fs::read_dir(run_folder(&scratch)).unwrap().count(), 0);
}

#[test]
fn a_living_gate_keeps_its_place_and_a_killed_one_makes_room() {
    let scratch = Scratch::new();
    let socket = scratch.path().join("gate.sock");
    let socket = socket.to_str().unwrap();
    let words = ["0=192.0.2.1:9", "--control", socket];
    let mut first = Gate::start(&scratch, &words);
    first.listening();
    let pid = first.pid().to_string();
    let told = refused(&mut asked(&scratch, &words), &[socket, &pid, "already"]);
    assert!(!told.stderr.contains("listening on"), "{told:#?}");
    assert_eq!(mode_of(Path::new(socket)), 0o600);
    first.kill();
    assert!(Path::new(socket).exists(), "a killed gate cannot clean up");
    let second = Gate::start(&scratch, &words);
    second.listening();
    let told = answer(&mut asked(&scratch, &["stat", "workers", "--control", socket]));
    assert_eq!(told.with_code(0).stdout, "1\n");
    answer(&mut asked(&scratch, &["drain", "--control", socket])).with_code(0);
    second.ends_with(0);
    assert!(!Path::new(socket).exists());
    let file = scratch.file("plain", "kept");
    refused(&mut asked(&scratch, &["0=192.0.2.1:9", "--control", &file]), &[&file, "no socket"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn another_user_gets_no_answer() {
    let scratch = Scratch::new();
    if fs::metadata(scratch.path()).unwrap().uid() != 0 {
        return lastbyte_testing::not_tested!("only root can become another user");
    }
    let socket = scratch.path().join("gate.sock");
    let words = ["0=192.0.2.1:9", "--control", socket.to_str().unwrap()];
    let gate = Gate::start(&scratch, &words);
    gate.listening();
    let binary = scratch.path().join("lastbyte");
    support::copy_program(&binary);
    let ask = |at: &Path| {
        let mut command = Command::new(&binary);
        command.args(["gate", "stat", "--control"]).arg(at).uid(NOBODY).gid(NOBODY);
        command
    };
    refused(&mut ask(&socket), &["Permission denied"]);
    // Nor where the file would let it in.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    refused(&mut ask(&socket), &["closed the connection", "its own user and root"]);
    // Root can ask anybody's.
    let own = scratch.path().join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let at = own.join("s");
    let mut command = Command::new(&binary);
    command.args(["gate", "0=192.0.2.1:9", "--control"]).arg(&at).uid(NOBODY).gid(NOBODY);
    let theirs = Gate::spawn(&scratch, &mut command);
    theirs.listening();
    let named = ["stat", "flows_open", "--control", at.to_str().unwrap()];
    assert_eq!(answer(&mut asked(&scratch, &named)).with_code(0).stdout, "0\n");
}

#[test]
fn a_reload_says_what_came_of_it() {
    let scratch = Scratch::new();
    let text = "[[route]]\nname = 'a'\nlisten = '0'\nforward = '192.0.2.1:9'\n";
    let file = scratch.file("gate.toml", text);
    let gate = Gate::with_file(&scratch, &file);
    gate.listening();
    scratch.file("gate.toml", text.replace("192.0.2.1:9", "192.0.2.2:9"));
    let told = answer(&mut asked(&scratch, &["reload"])).with_code(0);
    assert!(told.stdout.contains("changed a"), "{told:#?}");
    scratch.file("gate.toml", "[[rout]]");
    refused(&mut asked(&scratch, &["reload"]), &["nothing is changed", &format!("{file}:1:")]);
    assert_eq!(
        (stat(&scratch, "reloads"), stat(&scratch, "reloads_failed")),
        ("1".to_owned(), "1".to_owned())
    );
}

/// Reads what a collector's own library makes of a page: names and values, a line each.
const READER: &str = "
import sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families
page = urllib.request.urlopen(sys.argv[1], timeout=20)
assert page.headers['Content-Type'].startswith('application/openmetrics-text; version=1.0.0')
for family in text_string_to_metric_families(page.read().decode()):
    assert family.documentation, family.name
    for sample in family.samples:
        print(sample.name, sample.labels.get('route'), int(sample.value))
";

#[test]
#[ignore = "needs python3-prometheus-client"]
fn the_library_of_the_field_reads_what_is_answered() {
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &[&upstream(5), "--metrics", "127.0.0.1:0"]);
    let url = format!("http://{}/metrics", gate.metrics());
    assert_eq!(exchange(gate.listening(), 7), 5);
    wait_for("the account", SOON, || stat(&scratch, "flows_complete") == "1");
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut import = Command::new(python);
        answer(import.args(["-c", "import prometheus_client"])).status.success()
    });
    let python = python.expect("`make test-real` installs it");
    let told = answer(Command::new(python).args(["-c", READER, &url])).with_code(0).stdout;
    for line in [
        "lastbyte_gate_up_acked_bytes_total 127.0.0.1:0 7",
        "lastbyte_gate_down_acked_bytes_total 127.0.0.1:0 5",
        "lastbyte_gate_connect_seconds_count 127.0.0.1:0 1",
        "lastbyte_gate_workers None 1",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}: {told}");
    }
}

#[test]
fn a_collector_reads_the_same_over_http() {
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &[&upstream(5), "--metrics", "127.0.0.1:0"]);
    let metrics = gate.metrics();
    assert!(metrics.ip().is_loopback());
    assert_eq!(exchange(gate.listening(), 7), 5);
    wait_for("the account", SOON, || stat(&scratch, "flows_complete") == "1");
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gate\r\n\r\n").unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).unwrap();
    let (_, body) = got.split_once("\r\n\r\n").unwrap();
    let told = answer(&mut asked(&scratch, &["stat", "--openmetrics"])).with_code(0).stdout;
    assert_eq!(body, told);
    // A second one there does not start.
    let place = metrics.to_string();
    let words = ["0=192.0.2.1:9", "--metrics", &place];
    refused(&mut asked(&scratch, &words), &[&place, "in use"]);
}
