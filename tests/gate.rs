//! `lastbyte gate`: what `gate check` says, what does not start, what is said while it runs, and how
//! signals change and end it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use crate::support::gate::{Gate, asked, end, flow, upstream};
use crate::support::{Answer, SOON, Scratch, answer, lastbyte, wait_for};

/// Runs the words, checks that they are refused, and that what is said has all of `said`.
#[track_caller]
fn refused(words: &[&str], said: &[&str]) -> Answer {
    let told = answer(&mut lastbyte(words)).with_code(2);
    assert!(
        told.stderr.starts_with("error: ") || told.stderr.starts_with("lastbyte: "),
        "{told:#?}"
    );
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
    refused(&["gate", ":80=db:1"], &["write 80 for this machine alone", "0.0.0.0:80"]);
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
    refused(
        &["gate", "80=db:1", "--congestion", "nosuch"],
        &["client.congestion", "upstream.congestion", "nosuch"],
    );
    refused(&["gate", "80=db:1", "--log-file", "/no/such/log"], &["/no/such/log", "No such file"]);
}

#[test]
fn nobody_becomes_an_open_proxy_by_mistake() {
    for route in ["socks5://0.0.0.0:0", "http-connect://[::]:0"] {
        for words in [
            &["gate", route][..],
            &["gate", route, "--allow", "0.0.0.0/0"],
            &["gate", "check", route],
        ] {
            let told = refused(words, &["an open proxy", "allow", "users"]);
            assert!(!told.stderr.contains("listening"), "{told:#?}");
        }
    }
}

#[test]
fn mistakes_in_a_file_are_named_with_line_and_key() {
    let scratch = Scratch::new();
    let text =
        "drain = 60\n[[route]]\nlisten = '0'\nforwrd = 'a:1'\n[route.upstream]\npacing = '9'\n";
    let file = scratch.file("gate.toml", text);
    for words in [&["gate", &file][..], &["gate", "check", &file]] {
        let told = refused(
            words,
            &[
                &format!("{file}:1:9: drain: 60 is a number"),
                &format!("{file}:2:1: route 127.0.0.1:0: it has no target"),
                &format!(
                    "{file}:4:1: route 127.0.0.1:0: forwrd: unknown key: did you mean `forward`?"
                ),
                &format!("{file}:6:10: route 127.0.0.1:0: upstream.pacing: \"9\" has no unit"),
            ],
        );
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
        "idle 7200 s, stall no limit",
        "where clients ask by SOCKS 5: alice\n",
        &format!("advice: {file}:1:1: route db: allow: every client that can reach 0.0.0.0:3307"),
        &format!("advice: {file}:7:1: route db: upstream.send_buffer: "),
        "affects only what this host sends to the upstream",
        "run the gate there",
    ] {
        assert!(told.stdout.contains(said), "{said}: {told:#?}");
    }
    assert!(!told.stdout.contains("secret"), "{told:#?}");
}

// --- while it runs ------------------------------------------------------------------------------

#[test]
fn it_says_where_it_listens_and_ends_when_told_to() {
    let scratch = Scratch::new();
    for (signal, code) in [("TERM", 0), ("INT", 130)] {
        let gate = Gate::start(&scratch, &["0=192.0.2.1:9"]);
        let address = gate.address("127.0.0.1:0");
        assert!(address.ip().is_loopback() && address.port() != 0);
        gate.says(&format!("listening on {address} -> 192.0.2.1:9 (route 127.0.0.1:0)"));
        assert_eq!(gate.stdout(), "");
        gate.signal(signal);
        gate.ends_with(code);
    }
}

#[test]
fn a_flow_leaves_its_line() {
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let gate = Gate::start(&scratch, &[&word, "--log", "json"]);
    end(flow(gate.address("127.0.0.1:0"), &upstream));
    let account = gate.accounts(1).remove(0);
    assert_eq!(account["type"], "account", "{account}");
    assert_eq!(account["complete"], true, "{account}");
    assert_eq!((&account["up_acked_bytes"], &account["down_acked_bytes"]), (&1.into(), &5.into()));
    assert_eq!(account["wanted"], upstream.local_addr().unwrap().to_string());
    gate.signal("TERM");
    gate.ends_with(0);
}

#[test]
fn flows_are_drained_and_a_second_signal_resets_the_rest() {
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let gate = Gate::start(&scratch, &[&word, "--log", "json"]);
    let address = gate.address("127.0.0.1:0");
    let (mut client, mut server) = flow(address, &upstream);
    let other = flow(address, &upstream);
    gate.signal("TERM");
    gate.says("draining: 2 flows open, for 60 s at most");
    end(other);
    server.write_all(b"on").unwrap();
    client.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(gate.accounts(1)[0]["complete"], true);
    gate.signal("TERM");
    gate.says("gate: 1 flow reset");
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let accounts = gate.accounts(2);
    assert_eq!(
        (&accounts[1]["ended_how"], &accounts[1]["complete"]),
        (&"stopped".into(), &false.into())
    );
    gate.says("ended: 1 finished, 1 reset");
    gate.ends_with(1);
}

#[test]
fn what_is_left_when_draining_is_over_is_reset() {
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let gate = Gate::start(&scratch, &[&word, "--drain", "10ms"]);
    let (mut client, _server) = flow(gate.address("127.0.0.1:0"), &upstream);
    gate.signal("INT");
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    gate.ends_with(130);
}

#[test]
fn a_broken_file_changes_nothing_and_a_good_one_does() {
    let scratch = Scratch::new();
    let (upstream, _) = upstream();
    let to = upstream.local_addr().unwrap();
    let good = format!("[[route]]\nname = 'a'\nlisten = '0'\nforward = '{to}'\n");
    let file = scratch.file("gate.toml", &good);
    let gate = Gate::with_file(&scratch, &file);
    let address = gate.address("a");
    let open = flow(address, &upstream);

    scratch.file("gate.toml", good.replace("forward", "forwrd"));
    gate.signal("HUP");
    gate.says("nothing is changed, it goes on as before");
    gate.says(&format!("{file}:4:1: route a: forwrd: unknown key: did you mean `forward`?"));
    end(flow(address, &upstream));

    let two = format!("{good}[[route]]\nname = 'b'\nlisten = '0'\nforward = '{to}'\n");
    scratch.file("gate.toml", two);
    gate.signal("HUP");
    gate.says("added b");
    end(flow(gate.address("b"), &upstream));
    end(open);
    gate.signal("TERM");
    gate.ends_with(0);
}

#[test]
fn words_are_not_read_anew() {
    let scratch = Scratch::new();
    let gate = Gate::start(&scratch, &["0=192.0.2.1:9"]);
    gate.address("127.0.0.1:0");
    gate.signal("HUP");
    gate.says("there is no file to read anew");
    gate.signal("TERM");
    gate.ends_with(0);
}

#[test]
fn a_reader_of_the_log_that_goes_away_ends_nothing() {
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gate = Gate::writing_to(&scratch, &mut asked(&scratch, &[&word]), writer.into());
    let address = gate.address("127.0.0.1:0");
    end(flow(address, &upstream));
    gate.says("the log has no reader any more: flows go on without one");
    end(flow(address, &upstream));
    gate.signal("TERM");
    let stderr = gate.ends_with(0);
    assert_eq!(stderr.matches("no reader any more").count(), 1, "{stderr}");
}

#[test]
fn a_log_that_was_moved_away_is_begun_anew() {
    let scratch = Scratch::new();
    let (upstream, word) = upstream();
    let (log, old) = (scratch.path().join("log"), scratch.path().join("log.1"));
    let words = [&word, "--log-file", log.to_str().unwrap()];
    let gate = Gate::start(&scratch, &words);
    let address = gate.address("127.0.0.1:0");
    let lines = |file: &PathBuf| fs::read_to_string(file).unwrap_or_default().matches('\n').count();
    end(flow(address, &upstream));
    wait_for("a line", SOON, || lines(&log) == 1);
    fs::rename(&log, &old).unwrap();
    gate.signal("HUP");
    wait_for("a new log", SOON, || log.exists());
    end(flow(address, &upstream));
    wait_for("a line", SOON, || lines(&log) == 1);
    assert_eq!(lines(&old), 1);
    gate.signal("TERM");
    gate.ends_with(0);
}
