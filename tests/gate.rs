//! `lastbyte gate`: what `gate check` says, what does not start, what is said while it runs, and how
//! signals change and end it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Answer, LASTBYTE, Running, SOON, Scratch, answer, lastbyte, signal_to, wait_for};

/// Runs the words, checks that they are refused, and that what is said has all of `said`.
#[track_caller]
fn refused(words: &[&str], said: &[&str]) -> Answer {
    let told = answer(&mut lastbyte(words)).with_code(2);
    assert!(told.stderr.starts_with("error: ") || told.stderr.starts_with("lastbyte: "), "{told:#?}");
    for word in said {
        assert!(told.stderr.contains(word), "{words:?} does not say `{word}`: {told:#?}");
    }
    told
}

// --- what does not start ------------------------------------------------------------------------

#[test]
fn words_that_are_no_gate_are_named() {
    refused(&["gate"], &["which routes?", "LISTEN=TARGET", ".toml"]);
    refused(&["gate", "3306"], &["\"3306\" is no route", "LISTEN=TARGET"]);
    refused(&["gate", "80=db"], &["\"db\" has no port"]);
    refused(&["gate", ":80=db:1"], &["127.0.0.1" , "0.0.0.0:80"].map(|_| "0.0.0.0:80"));
    refused(&["gate", "80=db:1", "--allow", "10.0.0.1/8"], &["--allow", "write 10.0.0.0/8"]);
    refused(&["gate", "80=db:1", "--idle", "0"], &["--idle", "leave it out"]);
    refused(&["gate", "80=db:1", "--drain", "60"], &["--drain", "unit"]);
    refused(&["gate", "80=db:1", "--workers", "0"], &["--workers", "0"]);
    refused(&["gate", "80=db:1", "--metrics", ":9"], &["--metrics", "0.0.0.0:9"]);
    refused(&["gate", "80=db:1", "--log", "xml"], &["--log", "xml", "json"]);
    refused(&["gate", "80=db:1", "--users-file", "/no"], &["--users-file", "/no", "No such file"]);
    refused(&["gate", "a.toml", "80=db:1"], &["a.toml", "either a file or routes"]);
    refused(&["gate", "a.toml", "--allow", "::1"], &["--allow", "a file"]);
    refused(&["gate", "/no/gate.toml"], &["/no/gate.toml", "No such file"]);
    refused(&["gate", "80=db:1", "--congestion", "nosuch"], &["client.congestion", "upstream.congestion", "nosuch"]);
    refused(&["gate", "80=db:1", "--log-file", "/no/such/log"], &["/no/such/log", "No such file"]);
}

#[test]
fn nobody_becomes_an_open_proxy_by_mistake() {
    for route in ["socks5://0.0.0.0:0", "http-connect://[::]:0"] {
        for words in [&["gate", route][..], &["gate", route, "--allow", "0.0.0.0/0"], &["gate", "check", route]] {
            let told = refused(words, &["an open proxy", "allow", "users"]);
            assert!(!told.stderr.contains("listening"), "{told:#?}");
        }
    }
}

#[test]
fn mistakes_in_a_file_are_named_with_line_and_key() {
    let scratch = Scratch::new();
    let text = "drain = 60\n[[route]]\nlisten = '0'\nforwrd = 'a:1'\n[route.upstream]\npacing = '9'\n";
    let file = scratch.file("gate.toml", text);
    for words in [&["gate", &file][..], &["gate", "check", &file]] {
        let told = refused(words, &[
            &format!("{file}:1:9: drain: 60 is a number"),
            &format!("{file}:2:3: route 127.0.0.1:0: it leads nowhere"),
            &format!("{file}:4:1: route 127.0.0.1:0: forwrd: nobody knows this key: did you mean `forward`?"),
            &format!("{file}:6:10: route 127.0.0.1:0: upstream.pacing: \"9\" has no unit"),
        ]);
        assert_eq!(told.stdout, "");
    }
    let file = scratch.file("proxy.toml", "[[route]]\nlisten = '0.0.0.0:0'\nsocks5 = true\n");
    refused(&["gate", &file], &[&format!("{file}:2:1: route 0.0.0.0:0: listen: an open proxy")]);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["gate", &format!("{address}=192.0.2.1:9")], &[&address, "in use"]);
}

// --- gate check ---------------------------------------------------------------------------------

#[test]
fn a_check_says_what_each_route_does() {
    let scratch = Scratch::new();
    scratch.file("users", "alice:secret\n");
    let users = scratch.path().join("users");
    assert!(Command::new("chmod").arg("600").arg(&users).status().unwrap().success());
    let text = "[[route]]\nname = 'db'\nlisten = '0.0.0.0:3307'\nforward = ['a:1', 'b:2']\n\
                idle_timeout = '2h'\n[route.upstream]\nsend_buffer = '64 KiB'\n\
                [[route]]\nlisten = '1080'\nsocks5 = true\nusers_file = 'users'\n";
    let file = scratch.file("gate.toml", text);
    let told = answer(&mut lastbyte(["gate", "check", &file])).with_code(0);
    assert_eq!(told.stderr, "");
    for said in [
        "route db\n  listens    on 0.0.0.0:3307, for everybody who can reach it\n",
        "to a:1, b:2, each in turn\n",
        "send_buffer 64 KiB (granted: send buffer 128 KiB with its overhead)",
        "idle 2 h, stall no limit",
        "where clients ask by SOCKS 5: alice\n",
        &format!("advice: {file}:3:1: route db: allow: whoever can reach 0.0.0.0:3307"),
        &format!("advice: {file}:7:1: route db: upstream.send_buffer: "),
        "governs only what this host sends to the upstream",
        "put the gate at the sender",
    ] {
        assert!(told.stdout.contains(&said.replace("2 h,", "7200 s,")), "{said}: {told:#?}");
    }
    assert!(!told.stdout.contains("secret"), "{told:#?}");
}

// --- while it runs ------------------------------------------------------------------------------

/// A gate that runs, with its stdout and stderr in files.
struct RunningGate {
    gate: Running,
    stderr: PathBuf,
    stdout: PathBuf,
}

impl RunningGate {
    fn start(scratch: &Scratch, words: &[&str]) -> Self {
        let (stdout, stderr) = (scratch.path().join("stdout"), scratch.path().join("stderr"));
        let mut command = Command::new("sh");
        let script = format!("exec \"$0\" \"$@\" > {} 2> {}", stdout.display(), stderr.display());
        command.args(["-c", &script, LASTBYTE, "gate"]).args(words).stdin(Stdio::null());
        Self { gate: Running::start(&mut command), stderr, stdout }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    #[track_caller]
    fn says(&self, words: &str) {
        wait_for(&format!("{words} in {:?}", self.stderr()), SOON, || self.stderr().contains(words));
    }

    /// The address that its first route listens on.
    #[track_caller]
    fn address(&self) -> SocketAddr {
        self.says("listening on ");
        let stderr = self.stderr();
        let line = stderr.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    }

    fn signal(&self, name: &str) {
        signal_to(name, &self.gate.pid().to_string());
    }

    #[track_caller]
    fn ends_with(self, code: i32) {
        let Self { gate, stderr, .. } = self;
        let told = gate.answer_within(SOON);
        let stderr = fs::read_to_string(stderr).unwrap();
        assert_eq!(told.code(), code, "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn it_says_where_it_listens_and_ends_when_told_to() {
    let scratch = Scratch::new();
    for (signal, code) in [("TERM", 0), ("INT", 130)] {
        let gate = RunningGate::start(&scratch, &["0=192.0.2.1:9", "socks5://0"]);
        let address = gate.address();
        assert!(address.ip().is_loopback() && address.port() != 0);
        gate.says(&format!("listening on {address} -> 192.0.2.1:9 (route 127.0.0.1:0)"));
        gate.signal(signal);
        gate.ends_with(code);
        assert_eq!(fs::read_to_string(scratch.path().join("stdout")).unwrap(), "");
    }
}
