//! `lastbyte lab serve` and `lastbyte lab HOST`: one line to paste, over a link, and over ssh; bytes
//! only after a yes; and what is no host, no key or no ssh is said in a sentence.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{
    Answer, LASTBYTE, LATER, Running, SOON, Scratch, answer, answer_within, can_make_links,
    lastbyte, wait_for,
};

/// A key that nobody has.
const NO_KEY: &str = "0000-0000-0000-0000-0000-0000-0000";

/// A server on loopback whose stdout goes to a file, and the words of its line.
fn serving(scratch: &Scratch, words: &[&str]) -> (Running, Vec<String>) {
    let line = scratch.path().join("line");
    let mut command = lastbyte([&["lab", "serve"], words].concat());
    command.stdin(Stdio::null()).process_group(0);
    let script = format!("exec \"$0\" \"$@\" > {}", line.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    shell.stdin(Stdio::null()).process_group(0);
    let server = Running::start(&mut shell);
    let read = || fs::read_to_string(&line).unwrap_or_default();
    wait_for("its line", SOON, || read().ends_with('\n'));
    let line = read();
    assert_eq!(line.lines().count(), 1, "{line}");
    (server, line.split_whitespace().skip(1).map(str::to_owned).collect())
}

/// Checks the JSON Lines of an experiment: each of so many runs arrived whole.
#[track_caller]
fn assert_whole(told: &Answer, runs: usize, bytes: u64) {
    let lines = told.json_lines();
    let of_type = |wanted: &str| {
        let is = |line: &&Value| line["type"] == wanted;
        lines.iter().filter(is).cloned().collect::<Vec<_>>()
    };
    let counted = of_type("run");
    assert_eq!(counted.len(), runs, "{told:#?}");
    for run in counted {
        assert_eq!(run["complete"], true, "{run}");
        assert_eq!(run["flows"][0]["received"]["received_bytes"], bytes, "{run}");
    }
    assert_eq!(of_type("void").len(), 0, "{told:#?}");
}

// --- over a link --------------------------------------------------------------------------------

#[test]
fn the_line_is_pasted_on_the_other_host() {
    if !can_make_links() {
        return;
    }
    let scratch = Scratch::new();
    let line = scratch.path().join("line");
    let line = line.display();
    let serve = format!("{LASTBYTE} lab serve --once > {line}");
    // It listens before it prints.
    let paste = format!(
        "until grep -q key {line}; do sleep 0.02; done; \
         exec {LASTBYTE} $(sed 's/^lastbyte//' {line}) --congestion cubic --bytes 1MB --rounds 2 \
         --yes --json"
    );
    let words = ["link", "run", "-q", "--rtt", "10ms", "--rate", "100mbit", "--far", &serve];
    let words = [&words[..], &["--", "sh", "-c", &paste]].concat();
    let told = answer_within(&mut lastbyte(words), LATER).with_code(0);
    assert_whole(&told, 2, 1_000_000);
    assert!(told.stderr.contains("at most 2,000,000 bytes will go there"), "{told:#?}");
    let plan = &told.json_lines()[0];
    let rtt = plan["path"]["rtt_s"].as_f64().unwrap();
    assert!((0.010..0.030).contains(&rtt), "{plan}");
    assert_eq!(plan["path"]["emulated"], false, "{plan}");
}

// --- on this machine ----------------------------------------------------------------------------

#[test]
fn nothing_is_sent_without_a_yes() {
    let scratch = Scratch::new();
    let (_server, words) = serving(&scratch, &["--listen", "127.0.0.1:0"]);
    let told = answer(&mut lastbyte(&words)).with_code(2);
    assert!(told.stderr.contains("--yes"), "{told:#?}");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let few = ["--congestion", "cubic", "--seconds", "1", "--max-bytes", "1kB", "--yes"];
    let told = answer(&mut lastbyte([&words[..], &few].concat())).with_code(2);
    assert!(told.stderr.contains("show nothing"), "{told:#?}");
    let many = ["--congestion", "cubic", "--bytes", "1GB", "--rounds", "100", "--yes"];
    let told = answer(&mut lastbyte([&words[..], &many].concat())).with_code(2);
    assert!(told.stderr.contains("--max-bytes"), "{told:#?}");
    let long = ["--congestion", "cubic", "--seconds", "3600", "--yes"];
    let told = answer(&mut lastbyte([&words[..], &long].concat())).with_code(2);
    assert!(told.stderr.contains("600 s at most"), "{told:#?}");
}

#[test]
fn the_key_comes_from_a_file_or_the_environment() {
    let scratch = Scratch::new();
    let (_server, words) = serving(&scratch, &["--listen", "127.0.0.1:0"]);
    let (place, key) = (&words[1], &words[3]);
    let file = scratch.file("key", format!("{key}\n"));
    let run = ["--congestion", "cubic", "--bytes", "10kB", "--rounds", "1", "--yes", "--json"];
    let words = ["lab", place, "--key-file", &file];
    let told = answer(&mut lastbyte([&words[..], &run].concat())).with_code(0);
    assert_whole(&told, 1, 10_000);
    let words = [&["lab", place.as_str()], &run[..]].concat();
    let told = answer(lastbyte(words).env("LASTBYTE_LAB_KEY", key.to_uppercase())).with_code(0);
    assert_whole(&told, 1, 10_000);
    let words = ["lab", place, "--key", NO_KEY, "--yes"];
    let told = answer(&mut lastbyte(words)).with_code(2);
    assert!(told.stderr.contains("the key is not the same on both hosts"), "{told:#?}");
    assert_eq!(told.stdout, "");
}

#[test]
fn ctrl_c_and_the_end_of_its_parent_end_it() {
    let scratch = Scratch::new();
    let (server, _) = serving(&scratch, &["--listen", "127.0.0.1:0"]);
    server.signal_group("INT");
    let told = server.answer_within(SOON);
    assert_eq!(told.code(), 130, "{told:#?}");
    let (server, _) = serving(&scratch, &["--listen", "127.0.0.1:0", "--parent-pipe"]);
    // Its stdin is at its end from the beginning.
    let told = server.answer_within(SOON).with_code(0);
    assert!(told.stderr.contains("lab serve: ended"), "{told:#?}");
    let (server, _) = serving(&scratch, &["--listen", "127.0.0.1:0", "--for", "200ms"]);
    server.answer_within(SOON).with_code(0);
}

#[test]
fn what_is_no_host_is_said() {
    let refused = |words: &[&str], said: &str| {
        let told = answer(lastbyte([&["lab"], words].concat()).env_remove("LASTBYTE_LAB_KEY"));
        let told = told.with_code(2);
        assert!(told.stderr.contains(said), "{words:?} does not say `{said}`: {told:#?}");
        assert_eq!(told.stdout, "");
    };
    refused(&["host:http"], "no port");
    refused(&["127.0.0.1:1"], "which key?");
    refused(&["--key", NO_KEY], "which host?");
    refused(&["usa-malaysia", "--key", NO_KEY], "no HOST:PORT");
    refused(&["127.0.0.1:1", "--key", "secret"], "28 letters and digits");
    refused(&["127.0.0.1:1", "--key", NO_KEY], "127.0.0.1 port 1");
    refused(&["127.0.0.1:1", "--key-file", "/nowhere"], "/nowhere");
    refused(&["ssh://-oProxyCommand=touch"], "names no host");
    refused(&["serve", "--listen", "192.0.2.77:0"], "192.0.2.77");
    refused(&["serve", "--max-seconds", "0"], "--max-seconds");
    refused(&["serve", "--for", "-1h"], "--for");
}

// --- over ssh -----------------------------------------------------------------------------------

/// A program of this name, found before all others by the command.
fn with_program(command: &mut Command, scratch: &Scratch, name: &str, script: &str) {
    let file = scratch.file(name, format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", scratch.path().display()));
}

const RUN: [&str; 8] =
    ["--congestion", "cubic", "--bytes", "100kB", "--rounds", "1", "--yes", "--json"];

#[test]
fn over_ssh_the_server_is_started_and_ends() {
    let scratch = Scratch::new();
    let words = ["lab", "ssh://me@there:2222", "--remote-command", LASTBYTE];
    let mut command = lastbyte([&words[..], &RUN].concat());
    // It notes its arguments, says something a terminal would obey, and is the host itself.
    let noted = scratch.path().join("noted");
    let script = format!(
        "echo \"$@\" >> {}; [ \"$1\" = -G ] && exec echo hostname 127.0.0.1; \
         printf 'Welcome\\n'; printf 'a \\033[31mword\\n' >&2; for last; do :; done; \
         sh -c \"$last\"; echo \"ended $?\" >> {}",
        noted.display(),
        noted.display()
    );
    with_program(&mut command, &scratch, "ssh", &script);
    let told = answer_within(&mut command, LATER).with_code(0);
    assert_whole(&told, 1, 100_000);
    assert!(told.stderr.contains(r"there: a \u{1b}[31mword"), "{told:#?}");
    let noted = fs::read_to_string(noted).unwrap();
    assert!(noted.contains("-T -p2222 -- me@there "), "{noted}");
    assert!(noted.ends_with("ended 0\n"), "{noted}");
    assert!(!noted.contains("key"), "{noted}");
}

#[test]
fn an_ssh_that_fails_is_shown() {
    let scratch = Scratch::new();
    let mut command = lastbyte([&["lab", "ssh://there"], &RUN[..]].concat());
    let script = "echo 'Permission denied (publickey).' >&2; exit 255";
    with_program(&mut command, &scratch, "ssh", script);
    let told = answer(&mut command).with_code(2);
    assert!(told.stderr.contains("there: Permission denied"), "{told:#?}");
    assert!(told.stderr.contains("did not start on there"), "{told:#?}");
}

#[test]
#[ignore = "needs sshd"]
fn over_ssh_with_a_real_sshd() {
    if !can_make_links() {
        return;
    }
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    for key in ["host", "user"] {
        let words = ["-q", "-t", "ed25519", "-N", "", "-f", &at(key)];
        assert!(Command::new("ssh-keygen").args(words).status().unwrap().success());
    }
    let user = Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(user.stdout).unwrap();
    let user = user.trim();
    // sshd wants it, and distributions make it when they start theirs.
    let _ = fs::create_dir("/run/sshd");
    let sshd_config = scratch.file(
        "sshd_config",
        format!(
            "ListenAddress 0.0.0.0:2222\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
            at("host"),
            at("user.pub")
        ),
    );
    let ssh_config = scratch.file(
        "ssh_config",
        format!(
            "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\n\
             StrictHostKeyChecking accept-new\nHost alias\nHostName far\n",
            at("user"),
            at("known")
        ),
    );
    let ssh = ["/usr/bin/ssh", "/bin/ssh"].into_iter().find(|ssh| Path::new(ssh).exists()).unwrap();
    let sshd = format!("/usr/sbin/sshd -D -e -f {sshd_config}");
    let target = format!("ssh://{user}@alias:2222");
    let words =
        ["link", "run", "-q", "--rtt", "10ms", "--far", &sshd, "--", LASTBYTE, "lab", &target];
    let words = [&words[..], &["--remote-command", LASTBYTE], &RUN].concat();
    let mut command = lastbyte(words);
    with_program(&mut command, &scratch, "ssh", &format!("exec {ssh} -F {ssh_config} \"$@\""));
    let told = answer_within(&mut command, LATER).with_code(0);
    assert_whole(&told, 1, 100_000);
    assert!(told.stderr.contains("there: lab serve: ended"), "{told:#?}");
}
