//! What the program says: bad input gets one clear sentence and exit code 2, and leaves nothing
//! half-done; help and lists go to stdout; who lacks rights is told which, and what works without.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::support::{
    self, Answer, LATER, Running, SOON, Scratch, answer, answer_that_counts, answer_within,
    congestion_controls, lastbyte, unique,
};

/// The user without rights: `nobody`, on every Linux.
const NOBODY: u32 = 65534;

/// Runs the words, checks that they are refused, and that the sentence has all of `said`.
#[track_caller]
fn refused(words: &[&str], said: &[&str]) -> Answer {
    check_refused(&mut lastbyte(words), said)
}

#[track_caller]
fn check_refused(command: &mut Command, said: &[&str]) -> Answer {
    let told = answer(command).with_code(2);
    assert_eq!(told.stdout, "", "{command:?} answered though it was misuse: {told:#?}");
    let sentence = sentence_of(&told.stderr);
    for word in said {
        assert!(sentence.contains(word), "{command:?} does not say `{word}`: {told:#?}");
    }
    told
}

/// What went wrong, without the usage and the hint that follow it.
#[track_caller]
fn sentence_of(stderr: &str) -> &str {
    let sentence = stderr.split("\n\n").next().unwrap_or_default();
    let begins = ["error: ", "lastbyte: "].iter().any(|begin| sentence.starts_with(begin));
    assert!(begins, "no sentence that says who speaks: {stderr}");
    sentence
}

// --- bad values ---------------------------------------------------------------------------------

#[test]
fn bad_values_are_named() {
    refused(&["lab", "nowhere"], &["`nowhere`", "usa-malaysia", ".toml"]);
    refused(&["quiz", "nowhere"], &["`nowhere`", "usa-malaysia"]);
    refused(&["link", "check", "nowhere"], &["`nowhere`", "usa-malaysia"]);
    refused(&["link", "run", "nowhere", "--", "true"], &["`nowhere`", "usa-malaysia"]);

    refused(&["lab", "--loss", "-1%"], &["--loss", "-1%", "negative", "100%"]);
    refused(&["lab", "--loss", "101%"], &["--loss", "101%", "too large", "100%"]);
    refused(&["lab", "--loss", "0.01"], &["--loss", "0.01", "unit"]);
    refused(&["lab", "--loss", "nan%"], &["--loss", "nan%"]);
    refused(&["lab", "--rate", "0mbit"], &["--rate", "0mbit", "carries nothing"]);
    refused(&["lab", "--rate", "0"], &["--rate", "unit"]);
    refused(&["lab", "--rtt", "217"], &["--rtt", "217", "unit", "217ms"]);
    refused(&["lab", "--rtt", "-5ms"], &["--rtt", "-5ms", "negative"]);
    refused(&["lab", "--rtt", "99999999999999999999h"], &["--rtt", "too large"]);
    refused(&["quiz", "--bytes", "garbage"], &["--bytes", "garbage", "128KiB"]);
    refused(&["quiz", "--bytes", "-5"], &["--bytes", "negative"]);
    refused(&["quiz", "--runs", "0"], &["--runs", "0", "1..="]);
    refused(&["quiz", "--method", "hope"], &["--method", "hope", "finish"]);
    refused(&["lab", "--buffer", "big"], &["--buffer", "`big`", "auto", "128KiB"]);
    refused(&["lab", "--seconds", "0"], &["--seconds", "0"]);
    refused(&["lab", "--port", "65536", "--loopback"], &["--port", "65536"]);
    refused(&["lab", "--seed", "-1"], &["-1"]);
    refused(&["link", "record", "h", "--seconds", "0"], &["--seconds", "0"]);
    refused(&["link", "record", "h", "--tcp", "0"], &["--tcp", "0"]);
    refused(&["link", "record", "h", "--budget", "much"], &["--budget", "much"]);
}

#[test]
fn what_is_not_one_host_is_not_recorded() {
    // Longer than a label may be: nobody is asked for it.
    let nobody = "x".repeat(70);
    refused(&["link", "record", &nobody], &[&nobody, "address"]);
    refused(&["link", "record", "224.0.0.1"], &["224.0.0.1", "multicast", "one host"]);
    refused(&["link", "record", "0.0.0.0"], &["0.0.0.0", "no host"]);
    refused(&["link", "record", "[ff02::1]"], &["ff02::1", "multicast"]);
    refused(&["link", "record", "255.255.255.255"], &["255.255.255.255", "broadcast"]);
    refused(&["link", "record", "127.0.0.1", "-6"], &["127.0.0.1", "IPv6", "-6"]);
    refused(&["link", "record", "::1", "-4"], &["::1", "IPv4"]);
}

#[test]
fn a_recording_overwrites_no_file_unasked() {
    let scratch = Scratch::new();
    let file = scratch.file("path.toml", "kept");
    // Said before anything is sent, whoever the host is.
    refused(&["link", "record", "192.0.2.1", "--output", &file], &[&file, "--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    refused(&["link", "record", "192.0.2.1", "--force"], &["--output"]);
    refused(&["link", "record", "192.0.2.1", "--output", "path"], &["path", ".toml"]);
    let nowhere = scratch.path().join("nowhere/path.toml");
    let nowhere = nowhere.to_str().unwrap();
    refused(&["link", "record", "192.0.2.1", "--output", nowhere], &[nowhere, "folder"]);
}

#[test]
fn words_that_do_not_fit_together_are_named() {
    refused(&["lab"], &["which path?", "--rtt 217ms"]);
    refused(&["link", "up", "a"], &["which path?"]);
    refused(&["link", "check"], &["which path?"]);
    refused(
        &["link", "run", "dumbbell", "--", "true"],
        &["several links", "link up NAME dumbbell"],
    );
    refused(&["link", "up", "a", "dumbbell", "--loss", "1%"], &["several links", "its file"]);
    refused(&["link", "run", "lan", "--set", "loss", "--", "true"], &["KEY=VALUE"]);
    refused(&["link", "run", "lan", "--set", "los=1%", "--", "true"], &["unknown field `los`"]);
    refused(&["link", "check", "--all", "--rtt", "1ms"], &["--all", "path"]);
    refused(&["link", "record"], &["<HOST>"]);
    refused(&["link", "record", "h", "-4", "-6"], &["-4", "-6"]);
    refused(&["link", "record", "h", "--tcp", "9", "--budget", "1MB"], &["--tcp", "--budget"]);
    refused(&["lab", "--rtt", "1ms", "--queue", "1MB"], &["queue", "rate"]);
    refused(&["lab", "--rate", "1mbit", "--queue", "100"], &["queue", "100 bytes", "1500"]);
    refused(&["lab", "--rate", "1mbit", "--queue", "0bdp"], &["--queue", "0bdp"]);
    refused(&["lab", "--loopback", "usa-malaysia"], &["--loopback", "path"]);
    refused(&["lab", "--loopback", "--rtt", "1ms"], &["--loopback", "path"]);
    refused(&["lab", "--loopback", "--rounds", "5..2"], &["--rounds", "5..2", "5..10"]);
    refused(&["lab", "--loopback", "--subject", "true"], &["--subject", "path"]);
    refused(&["lab", "--loopback", "--far", "true"], &["--subject"]);
    refused(&["lab", "--loopback", "--direction", "left"], &["`left`", "up, down or both"]);
    refused(&["lab", "--loopback", "--apply", "here"], &["--apply", "route:PREFIX"]);
    refused(&["lab", "compare", "/dev/null", "/dev/null"], &["/dev/null", "not an experiment"]);
    refused(&["lab", "show", "/nowhere"], &["/nowhere"]);
    let two = ["lab", "--loopback", "--port", "9", "--parallel", "2"];
    refused(&two, &["--parallel", "--port"]);
    refused(&["link", "run", "usa-malaysia"], &["<COMMAND>"]);
    refused(&["link", "run", "--rtt", "1ms", "--"], &["<COMMAND>"]);
    refused(&["link", "exec", "a", "near"], &["<COMMAND>"]);
    refused(&["cc", "load"], &["<NAME>"]);
    refused(&["cc", "load", "reno", "--keep", "--for-seconds", "1"], &["--keep", "--for-seconds"]);
    refused(&["cc", "load", "reno", "--for-seconds", "0"], &["--for-seconds", "0"]);
    refused(&["cc", "unload"], &["<NAME>"]);
    refused(&["cc", "unload", "reno", "--all"], &["--all"]);
    refused(&["doctor", "--pid", "1", "--port", "80"], &["--pid", "--port"]);
    refused(&["doctor", "--pid", "4194305"], &["4194305"]);
    refused(&["doctor", "--port", "0"], &["--port", "0"]);
    refused(&["doctor", "--for", "1s", "--"], &["no program after --"]);
    refused(&["doctor", "--fail-on", "all"], &["--fail-on", "loss"]);
    refused(&["doctor", "--replay", "/dev/null"], &["/dev/null", "no recording"]);
    refused(&["doctor", "--replay", "/nowhere"], &["/nowhere"]);
    refused(&["doctor", "--for", "1s", "--output", "/nowhere/at/all"], &["/nowhere/at/all"]);
    refused(&["explain", "LB999"], &["LB999", "lastbyte explain"]);
    refused(&["explain", "what"], &["what", "LB101"]);
    refused(&["heal", "--unlock-buffers"], &["--pid", "--port", "--socket"]);
    refused(&["heal", "--pid", "1", "--port", "1"], &["--pid", "--port"]);
    refused(&["heal", "--port", "1"], &["--unlock-buffers", "--congestion", "--pacing"]);
    refused(&["heal", "--port", "1", "--fd", "1", "--unlock-buffers"], &["--port", "--fd"]);
    refused(&["heal", "--port", "0", "--unlock-buffers"], &["--port", "0"]);
    refused(&["heal", "--socket", "1,2", "--unlock-buffers"], &["`1,2`", "LOCAL,PEER"]);
    refused(&["heal", "--port", "1", "--pacing", "0"], &["--pacing"]);
    refused(&["heal", "--port", "1", "--notsent-lowat", "5GB"], &["--notsent-lowat", "at most"]);
    refused(&["heal", "--port", "1", "--congestion", "nosuch"], &["`nosuch`", "reno"]);
    refused(&["undo", "1", "--all"], &["--all"]);
    refused(&["undo", "one"], &["one"]);
    refused(&["frobnicate"], &["frobnicate"]);
    refused(&["lab", "--frobnicate"], &["--frobnicate"]);
}

#[test]
fn congestion_controls_that_the_kernel_lacks_are_named_with_those_it_has() {
    let known = congestion_controls("available");
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let said = [&["nosuch"], known.as_slice()].concat();
    refused(&["lab", "--loopback", "--congestion", "nosuch"], &said);
    refused(&["lab", "--rtt", "1ms", "--congestion", "nosuch"], &said);
}

// --- scenario files -----------------------------------------------------------------------------

#[test]
fn mistakes_in_scenario_files_are_named_with_their_line() {
    let scratch = Scratch::new();
    let refused_file = |name: &str, text: &str, said: &[&str]| {
        let file = scratch.file(name, text);
        let said = [&[name], said].concat();
        refused(&["lab", &file], &said);
    };
    refused_file("key.toml", "rtt = '1ms'\nflavour = 1\n", &["line 2", "`flavour`", "`rate`"]);
    refused_file(
        "down.toml",
        "rtt = '1ms'\n[down]\nrtt = '1ms'\n",
        &["line 3", "`rtt`", "`delay`"],
    );
    refused_file("value.toml", "title = 'x'\nloss = '150%'\n", &["line 2", "150%", "100%"]);
    refused_file("unit.toml", "\n\nrtt = '5'\n", &["line 3", "unit"]);
    refused_file("number.toml", "rtt = 5\n", &["line 1", "quotation marks"]);
    refused_file("syntax.toml", "rtt = \n", &["line 1"]);
    refused_file("queue.toml", "queue = '1MB'\n", &["queue", "rate"]);
}

#[test]
fn scenario_files_that_cannot_be_read_are_named() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("missing.toml");
    let missing = missing.to_str().unwrap();
    refused(&["lab", missing], &[missing, "No such file"]);
    let folder = scratch.path().join("folder.toml");
    fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    refused(&["link", "run", folder, "--", "true"], &[folder, "directory"]);
    let binary = scratch.file("binary.toml", [0xFF, 0xFE, 0x00]);
    refused(&["quiz", &binary], &[&binary, "UTF-8"]);
}

// --- ports, links, the ledger -------------------------------------------------------------------

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, port) = (taken.local_addr().unwrap(), taken.local_addr().unwrap().port());
    let words = ["lab", "--loopback", "--seconds", "1", "--rounds", "1"];
    let told = answer(lastbyte(words).args(["--port", &port.to_string()])).with_code(2);
    let sentence = sentence_of(&told.stderr);
    for said in [&address.to_string(), "in use"] {
        assert!(sentence.contains(said), "{told:#?}");
    }
}

#[test]
fn a_lab_that_cannot_begin_answers_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let lab = ["lab", "--loopback", "--seconds", "1", "--rounds", "1", "--port", &port];
    refused(&lab, &["in use"]);
    refused(&[&lab[..], &["--json"]].concat(), &["in use"]);
}

#[test]
fn a_cause_is_said_once() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("missing.toml");
    let file = scratch.file("key.toml", "flavour = 1\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let told = [
        answer(&mut lastbyte(["lab", missing.to_str().unwrap()])),
        answer(&mut lastbyte(["lab", &file])),
        answer(&mut lastbyte(["lab", &scratch.file("queue.toml", "queue = '1MB'\n")])),
        answer(&mut lastbyte(["lab", "--loopback", "--port", &port])),
    ];
    let mut twice = Vec::new();
    for told in told {
        let text = told.with_code(2).stderr.trim().to_owned();
        // Any part after a colon that was said before it.
        let is_twice = |(at, _): (usize, &str)| text[..at].contains(&text[at + 2..]);
        if text.match_indices(": ").any(is_twice) {
            twice.push(text);
        }
    }
    assert!(twice.is_empty(), "said twice:\n{}", twice.join("\n"));
}

#[test]
fn unknown_links_and_changes_are_named() {
    let scratch = Scratch::new();
    let name = unique("never-made");
    let refused = |words: &[&str], said: &[&str]| {
        check_refused(lastbyte(words).env("LASTBYTE_STATE_DIR", scratch.path()), said)
    };
    refused(&["undo", "77"], &["77", "changes.jsonl", "lastbyte changes"]);
    refused(&["link", "down", &name], &[&name, "no link"]);
    refused(&["link", "exec", &name, "near", "--", "true"], &[&name, "no link", "link up"]);
    refused(&["link", "set", &name, "loss", "1%"], &[&name, "no link", "link up"]);
    refused(&["link", "stats", &name], &[&name, "no link", "link up"]);
    let too_long = "x".repeat(33);
    for bad in ["../x", "a/b", "A", "a b", "ü", "", ".", &too_long] {
        let said = [&format!("`{bad}`"), "small letters"];
        refused(&["link", "up", bad, "--rtt", "1ms"], &said);
        refused(&["link", "down", bad], &said);
        refused(&["link", "exec", bad, "near", "--", "true"], &said);
    }
    let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
    assert!(left.is_empty(), "refused words made files: {left:?}");
}

#[test]
fn a_ledger_that_cannot_be_read_is_named_with_its_line() {
    let scratch = Scratch::new();
    let refused = |words: &[&str], said: &[&str]| {
        check_refused(lastbyte(words).env("LASTBYTE_STATE_DIR", scratch.path()), said)
    };
    let file = scratch.file("changes.jsonl", "{\"schema\":1\n");
    let line = format!("{file}:1");
    for words in [&["changes"][..], &["undo", "--all"], &["link", "list"]] {
        refused(words, &[&line, "damaged"]);
    }
    fs::write(&file, "{\"schema\":99}\n").unwrap();
    refused(&["undo", "--all"], &[&line, "newer lastbyte"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"schema\":99}\n", "and left as it was");
    check_refused(&mut lastbyte(["changes"]), &["ledger", "no-ledger-in-this-test"]);
}

// --- good words ---------------------------------------------------------------------------------

/// Every command, hidden ones aside.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["quiz"],
    &["lab"],
    &["link"],
    &["link", "run"],
    &["link", "check"],
    &["link", "record"],
    &["link", "up"],
    &["link", "exec"],
    &["link", "set"],
    &["link", "stats"],
    &["link", "down"],
    &["link", "list"],
    &["link", "scenarios"],
    &["cc"],
    &["cc", "list"],
    &["cc", "load"],
    &["cc", "unload"],
    &["cc", "status"],
    &["lab", "serve"],
    &["lab", "compare"],
    &["lab", "show"],
    &["dial"],
    &["gate"],
    &["gate", "check"],
    &["gate", "stat"],
    &["gate", "flows"],
    &["gate", "reload"],
    &["gate", "drain"],
    &["doctor"],
    &["explain"],
    &["heal"],
    &["changes"],
    &["undo"],
    &["demo"],
];

#[test]
fn every_command_has_help_on_stdout_that_fits_the_terminal() {
    for command in COMMANDS {
        for help in ["-h", "--help"] {
            let words = [command, &[help][..]].concat();
            let told = answer(lastbyte(&words).env("COLUMNS", "60")).with_code(0);
            assert_eq!(told.stderr, "", "{words:?}");
            assert!(told.stdout.contains("Usage: lastbyte"), "{told:#?}");
            // clap leaves usage lines whole.
            let lines = told.stdout.lines().filter(|line| !line.starts_with("Usage: "));
            let widest = lines.map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 60, "{words:?}: a line of {widest}: {}", told.stdout);
        }
    }
}

#[test]
fn the_list_of_commands_here_is_complete() {
    for place in [&[][..], &["link"], &["lab"], &["gate"], &["cc"]] {
        let help = answer(lastbyte(place).arg("--help")).with_code(0).stdout;
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in commands.take_while(|line| !line.is_empty()) {
            // A line that goes on with a description begins further right.
            let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else {
                continue;
            };
            let name = name.split(' ').next().unwrap();
            let listed = COMMANDS.contains(&[place, &[name]].concat().as_slice());
            assert!(listed || name == "help", "{name} is missing");
        }
    }
}

#[test]
fn the_version_and_the_scenarios_are_told() {
    let told = answer(&mut lastbyte(["--version"])).with_code(0);
    assert_eq!(told.stdout, format!("lastbyte {}\n", env!("CARGO_PKG_VERSION")));
    let told = answer(&mut lastbyte(["link", "scenarios"])).with_code(0);
    assert!(told.stdout.contains("\nusa-malaysia  "), "{told:#?}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let first = congestion_controls("allowed")[0].clone();
    let lab = ["lab", "--loopback", "--bytes", "1kB", "--rounds", "1", "--congestion", &first];
    let all: [&[&str]; 7] = [
        &["--help"],
        &["--version"],
        &["link", "scenarios"],
        &["quiz", "--runs", "1"],
        &["quiz", "--runs", "1", "--json"],
        &lab,
        &[&lab[..], &["--json"]].concat(),
    ];
    for words in all {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = lastbyte(words);
        let child = child.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let output = child.spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn a_full_disk_is_told() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let child = lastbyte(["link", "scenarios"]).stdout(full).stderr(Stdio::piped()).spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write the answer: No space left"), "{stderr}");
}

// --- without rights -----------------------------------------------------------------------------

/// The binary where everybody may run it, and a place where `nobody` may keep a ledger.
struct Unprivileged {
    scratch: Scratch,
}

impl Unprivileged {
    fn new() -> Self {
        let scratch = Scratch::new();
        let binary = scratch.path().join("lastbyte");
        support::copy_program(&binary);
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let state = scratch.path().join("state");
        fs::create_dir(&state).unwrap();
        if is_root() {
            chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Self { scratch }
    }

    /// The binary, run without rights.
    fn lastbyte(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.scratch.path().join("lastbyte"));
        command.args(words).current_dir("/");
        command.env_remove("LASTBYTE_STATE_DIR");
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// The binary, run where user namespaces are forbidden too, as some machines have it: in one that
    /// lets no further one be made, and without the capabilities that root has in there.
    fn lastbyte_without_user_namespaces(&self, words: &[&str]) -> Command {
        let forbid = "echo 0 > /proc/sys/user/max_user_namespaces; \
                      exec setpriv --bounding-set=-all -- \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--", "sh", "-c", forbid]);
        command.arg(self.scratch.path().join("lastbyte")).args(words).current_dir("/");
        command.env("LASTBYTE_STATE_DIR", self.scratch.path().join("state"));
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Whether this machine lets users make namespaces. If not, says that a test was left out.
    fn may_make_links(&self) -> bool {
        let words = ["link", "run", "-q", "--rtt", "1ms", "--", "true"];
        let tried = answer(&mut self.lastbyte(&words));
        let lacks_rights = tried.stderr.contains("making a path needs");
        assert!(tried.code() == 0 || lacks_rights, "{tried:#?}");
        if lacks_rights {
            lastbyte_testing::not_tested!("{}", tried.stderr.trim());
        }
        !lacks_rights
    }

    /// Whether they can be forbidden here for a test. If not, says that it was left out.
    fn may_forbid_namespaces(&self) -> bool {
        if !self.may_make_links() {
            return false;
        }
        let tried = self.lastbyte_without_user_namespaces(&["--version"]).output();
        let works = tried.is_ok_and(|tried| tried.status.success() && tried.stderr.is_empty());
        if !works {
            lastbyte_testing::not_tested!("util-linux cannot forbid user namespaces here");
        }
        works
    }
}

fn is_root() -> bool {
    lastbyte_sys::process::effective_user() == 0
}

#[test]
fn without_rights_a_link_that_stays_is_refused_with_the_way_to_get_them() {
    let nobody = Unprivileged::new();
    let words = ["link", "up", "of-nobody", "usa-malaysia"];
    let told = answer(&mut nobody.lastbyte(&words)).with_code(2);
    let sentence = sentence_of(&told.stderr);
    for said in ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "sudo", "link run"] {
        assert!(sentence.contains(said), "it does not say {said}: {told:#?}");
    }
    let told = answer(&mut nobody.lastbyte(&["changes"])).with_code(0);
    assert_eq!(told.stdout, "lastbyte has left no change on this machine\n", "{told:#?}");
}

#[test]
fn without_user_namespaces_a_path_is_refused_with_what_stands_in_the_way() {
    let nobody = Unprivileged::new();
    if !nobody.may_forbid_namespaces() {
        return;
    }
    for words in [
        &["lab", "usa-malaysia"][..],
        &["quiz", "usa-malaysia"],
        &["link", "run", "usa-malaysia", "--", "true"],
    ] {
        let told = answer(&mut nobody.lastbyte_without_user_namespaces(words)).with_code(2);
        let sentence = sentence_of(&told.stderr);
        for said in ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "sudo", "user.max_user_namespaces = 0"] {
            assert!(sentence.contains(said), "{words:?} does not say {said}: {told:#?}");
        }
    }
}

#[test]
fn without_rights_a_program_runs_on_a_path_as_its_own_root() {
    let nobody = Unprivileged::new();
    if !nobody.may_make_links() {
        return;
    }
    let run = |words: &[&str]| {
        let words = [&["link", "run", "--rtt", "20ms", "--"], words].concat();
        answer(&mut nobody.lastbyte(&words))
    };
    let told = run(&["sh", "-c", "id -u; ls /sys/class/net; echo $$; exit 7"]).with_code(7);
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(lines, ["0", "lo", "path0", "2"], "{told:#?}");
    assert!(told.stderr.contains("link: up   0 packets"), "{told:#?}");
    // What it writes is its user's.
    let file = nobody.scratch.path().join("state/mine");
    run(&["touch", file.to_str().unwrap()]).with_code(0);
    let owner = fs::metadata(&file).unwrap().uid();
    assert_eq!(owner, if is_root() { NOBODY } else { lastbyte_sys::process::effective_user() });

    let told = run(&["ping", "-c", "2", "far"]);
    if [126, 127].contains(&told.code()) {
        lastbyte_testing::not_tested!("no ping here: {}", told.stderr.trim());
        return;
    }
    assert!(told.stdout.contains(" 0% packet loss"), "{told:#?}");
    let least = told.stdout.split("mdev = ").nth(1).and_then(|rest| rest.split('/').next());
    let least: f64 = least.unwrap().parse().unwrap();
    assert!((20.0..25.0).contains(&least), "{told:#?}");
    assert!(told.stderr.contains("link: up   2 packets, 0 lost"), "{told:#?}");
}

#[test]
#[ignore = "slow: a link that is not late needs the machine for itself"]
fn without_rights_the_lab_works_over_a_path_with_every_congestion_control() {
    let nobody = Unprivileged::new();
    if !nobody.may_make_links() {
        return;
    }
    let words = [
        "lab",
        "--rtt",
        "20ms",
        "--rate",
        "20mbit",
        "--seconds",
        "2",
        "--rounds",
        "1",
        "--parallel",
        "1",
    ];
    let play = || answer_within(&mut nobody.lastbyte(&words), LATER);
    let told = answer_that_counts("the lab without rights", play).with_code(0);
    for name in congestion_controls("available") {
        assert!(told.stdout.contains(&format!("\n{name} ")), "{name} has no row: {told:#?}");
    }
    let bytes = told.stdout.lines().find(|line| line.contains(" bytes written, ")).unwrap();
    let (written, rest) = bytes.split_once(" bytes written, ").unwrap();
    assert_eq!(rest.split_once(" received;").unwrap().0, written, "{told:#?}");
}

#[test]
#[ignore = "slow: a link that is not late needs the machine for itself"]
fn without_rights_the_lab_sets_the_buffers_of_its_hosts() {
    let nobody = Unprivileged::new();
    if !nobody.may_make_links() {
        return;
    }
    let first = congestion_controls("available")[0].clone();
    let words = ["lab", "--rtt", "20ms", "--rate", "20mbit", "--bytes", "1MB", "--rounds", "1"];
    let words = [&words[..], &["--congestion", &first, "--buffer", "auto:64KiB"]].concat();
    let play = || answer_within(&mut nobody.lastbyte(&words), LATER);
    let told = answer_that_counts("the lab's buffers without rights", play).with_code(0);
    assert!(told.stdout.contains("auto to 64 KiB"), "{told:#?}");
}

#[test]
fn without_rights_the_quiz_works_over_a_path() {
    let nobody = Unprivileged::new();
    if !nobody.may_make_links() {
        return;
    }
    let words = ["quiz", "--rtt", "20ms", "--runs", "5", "--method", "finish"];
    let told = answer_within(&mut nobody.lastbyte(&words), LATER).with_code(0);
    for said in ["5 of 5", "FIN 5", "acked 5"] {
        assert!(told.stdout.contains(said), "it does not say `{said}`: {told:#?}");
    }
}

#[test]
fn without_user_namespaces_a_path_is_refused_in_one_sentence_and_without_an_answer() {
    let nobody = Unprivileged::new();
    if !nobody.may_forbid_namespaces() {
        return;
    }
    for words in [
        &["lab", "usa-malaysia"][..],
        &["lab", "usa-malaysia", "--json"],
        &["quiz", "usa-malaysia"],
        &["link", "run", "usa-malaysia", "--", "true"],
    ] {
        let told =
            check_refused(&mut nobody.lastbyte_without_user_namespaces(words), &["CAP_SYS_ADMIN"]);
        let times = told.stderr.matches("Operation not permitted").count();
        assert_eq!(times, 1, "{words:?}: {told:#?}");
    }
}

#[test]
fn without_rights_a_path_is_recorded_by_tcp_and_by_echo_where_that_is_allowed() {
    let nobody = Unprivileged::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let words = ["link", "record", "127.0.0.1", "--seconds", "1", "--tcp", &port];
    let told = answer(&mut nobody.lastbyte(&words)).with_code(0);
    for said in ["TCP connects", "rate: not known", "queue: not known", "\nrtt = \""] {
        assert!(told.stdout.contains(said), "it does not say `{said}`: {told:#?}");
    }
    let told = answer(&mut nobody.lastbyte(&words[..5]));
    if told.code() == 0 {
        lastbyte_testing::not_tested!("here everybody may open ICMP echo sockets");
        return;
    }
    let told = told.with_code(2);
    assert_eq!(told.stdout, "", "{told:#?}");
    for said in ["net.ipv4.ping_group_range", "root", "--tcp"] {
        assert!(told.stderr.contains(said), "it does not say `{said}`: {told:#?}");
    }
}

#[test]
fn without_rights_the_quiz_and_the_ledger_work() {
    let nobody = Unprivileged::new();
    let told = answer(&mut nobody.lastbyte(&["quiz", "--runs", "3"])).with_code(0);
    assert!(told.stdout.contains("finish"), "{told:#?}");
    assert!(told.stdout.contains("acked 3"), "{told:#?}");
    for words in [&["changes"][..], &["changes", "--all", "--json"], &["link", "list"]] {
        answer(&mut nobody.lastbyte(words)).with_code(0);
    }
    let told = answer(&mut nobody.lastbyte(&["undo", "--all"])).with_code(0);
    assert_eq!(told.stdout, "lastbyte has left no change on this machine\n");
}

#[test]
fn without_rights_the_lab_says_what_it_leaves_out() {
    let nobody = Unprivileged::new();
    let words = ["lab", "--loopback", "--seconds", "1", "--rounds", "1"];
    let told = answer_within(&mut nobody.lastbyte(&words), LATER).with_code(0);
    let allowed = congestion_controls("allowed");
    for name in &allowed {
        assert!(told.stdout.contains(&format!("\n{name} ")), "{name} has no row: {told:#?}");
    }
    let mut left_out = congestion_controls("available");
    left_out.retain(|name| !allowed.contains(name));
    for name in &left_out {
        assert!(told.stderr.contains("left out"), "{told:#?}");
        assert!(told.stderr.contains(name), "{name} is left out without a word: {told:#?}");
        // Asked for by name it is an error, not left out.
        let words = [&words[..], &["--congestion", name]].concat();
        let told = answer_within(&mut nobody.lastbyte(&words), LATER).with_code(2);
        assert!(told.stderr.contains("tcp_allowed_congestion_control"), "{told:#?}");
    }
    if left_out.is_empty() {
        lastbyte_testing::not_tested!(
            "every congestion control of this kernel is open to everybody"
        );
    }
}

#[test]
#[ignore = "slow: a link that is not late needs the machine for itself"]
fn without_rights_the_demo_plays_all_acts() {
    let nobody = Unprivileged::new();
    if !nobody.may_make_links() {
        return;
    }
    let play = || answer_within(&mut nobody.lastbyte(&["demo", "--seconds", "1"]), LATER);
    let told = answer_that_counts("the demo without rights", play);
    for said in [
        "Act 1.",
        "Act 2.",
        "Act 3.",
        "bytes written were received, and proven.",
        "Act 4.",
        "connected to 198.18.0.2:7 in ",
        "Act 5.",
        "ended by upstream: 1,500,000 bytes received, 1,500,000 of them acknowledged",
        "Act 6.",
        "of 1,000,000 bytes; the doctor says:",
    ] {
        assert!(told.stdout.contains(said), "it does not say `{said}`: {told:#?}");
    }
    told.with_code(0);
}

#[test]
fn without_user_namespaces_the_demo_plays_what_it_can() {
    let nobody = Unprivileged::new();
    if !nobody.may_forbid_namespaces() {
        return;
    }
    let mut demo = nobody.lastbyte_without_user_namespaces(&["demo", "--seconds", "1"]);
    let demo = Running::start(demo.stdin(Stdio::null()));
    let told = demo.answer_within(SOON).with_code(0);
    for said in ["Act 1.", "Acts 2 to 6 are left out: ", "CAP_NET_ADMIN", "sudo"] {
        assert!(told.stdout.contains(said), "it does not say `{said}`: {told:#?}");
    }
    assert!(!told.stdout.contains("Act 2."), "{told:#?}");
}
