//! The program: what it prints where, and its exit codes.

use std::process::{Command, Output};

use crate::support::{WrongProxy, free_address};

fn torture(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torture")).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn cases_are_listed_with_their_reasons() {
    let listed = torture(&["--list"]);
    assert_eq!(listed.status.code(), Some(0));
    assert!(text(&listed.stdout).contains("half-close/then-answer-after-12s (--long)\n"));
    assert!(text(&listed.stdout).contains("    because "));
}

#[test]
fn plain_tcp_is_good_and_is_shown_as_a_table() {
    let address = free_address().to_string();
    let ran = torture(&["--proxy", &address, "--upstream", &address, "--only", "small/empty"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let lines: Vec<&str> = text(&ran.stdout).lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("case "));
    assert!(
        lines[1].starts_with("small/empty/client  server all, FIN") && lines[1].ends_with("5 of 5")
    );
    assert!(text(&ran.stderr).contains("seed 1"));
}

#[test]
fn a_wrong_proxy_is_told_by_the_exit_code_and_in_json() {
    let (listen, upstream) = (free_address(), free_address());
    let _proxy = WrongProxy::start(listen, upstream);
    let (listen, upstream) = (listen.to_string(), upstream.to_string());
    let words = ["--proxy", &listen, "--upstream", &upstream, "--json", "--runs", "1"];
    let ran = torture(&[&words[..], &["--only", "reset/after-data/server,small/empty"]].concat());
    assert_eq!(ran.status.code(), Some(1), "{}", text(&ran.stderr));
    let rows: Vec<serde_json::Value> =
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["case"], "reset/after-data/server");
    assert_eq!((&rows[0]["good"], &rows[0]["of"]), (&0.into(), &1.into()));
    assert_eq!(rows[0]["runs"][0]["faults"][0], "client saw FIN");
    assert_eq!(rows[0]["runs"][0]["client_got"], 1_048_576);
    assert_eq!(rows[1]["good"], 1);
}

#[test]
fn misuse_is_told() {
    let address = free_address().to_string();
    let nobody = torture(&["--proxy", &free_address().to_string(), "--upstream", &address]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).starts_with("torture: cannot connect to the proxy: "));
    let unknown = torture(&["--proxy", &address, "--upstream", &address, "--only", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("--list names them"));
    assert_eq!(torture(&["--proxy", &address]).status.code(), Some(2));
}
