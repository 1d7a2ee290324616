//! `lastbyte doctor` as its users meet it: programs of others, exit codes, files, signals, rights.
//!
//! What it finds is tested beside its rules and in the clinic. The patients here are in Python; without
//! it a test says so and passes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lastbyte_host::Proc;
use serde_json::Value;

use crate::support::{
    self, Answer, LASTBYTE, LATER, Running, SOON, Scratch, answer, answer_within, lastbyte,
};
use crate::support::{signal_to, wait_for};

/// Writes until nothing more is taken, and closes with 5 bytes unread: what has not arrived is lost. The
/// peer is a process of its own. Says how many bytes were written, and how many the peer got.
const LOSES: &str = r#"
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
told, tell = os.pipe()
peer = os.fork()
if peer == 0:
    listening, listener = listener, None
    near, _ = listening.accept()
    near.send(b"hello")
    os.close(tell)
    os.read(told, 1)
    got = 0
    try:
        while part := near.recv(65536):
            got += len(part)
    except ConnectionResetError:
        pass
    print("got", got, flush=True)
    os._exit(0)
os.close(told)
far = socket.create_connection(listener.getsockname())
far.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL)
far.setblocking(False)
written = 0
try:
    while True:
        written += far.send(b"x" * 65536)
except BlockingIOError:
    pass
far.close()
os.close(tell)
os.waitpid(peer, 0)
print("written", written, flush=True)
"#;

fn doctor(words: &[&str]) -> Command {
    let mut command = lastbyte(["doctor"]);
    command.args(words).stdin(Stdio::null());
    command
}

/// Watches a program, with these options before it.
fn watched(options: &[&str], program: &[&str]) -> Answer {
    let words = [options, &["--"], program].concat();
    answer_within(&mut doctor(&words), LATER)
}

fn has_python() -> bool {
    let has = Command::new("python3").arg("-V").output().is_ok_and(|told| told.status.success());
    if !has {
        lastbyte_testing::not_tested!("there is no python3");
    }
    has
}

/// The tier that this machine gives, by what was told first.
fn tier(told: &Answer) -> String {
    told.json_lines()[0]["tier"].as_str().unwrap().to_owned()
}

fn findings(told: &Answer) -> Vec<Value> {
    let lines = told.json_lines().into_iter();
    lines.filter(|line| line["type"] == "finding").collect()
}

/// What the patient printed after a word.
fn number_after(word: &str, text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
    line.trim().parse().unwrap()
}

// --- programs ------------------------------------------------------------------------------------

#[test]
fn the_programs_own_exit_code_and_streams_are_kept() {
    let told = watched(&[], &["sh", "-c", "echo out; echo err >&2; exit 7"]).with_code(7);
    assert_eq!(told.stdout, "out\n");
    assert!(told.stderr.contains("err\n") && told.stderr.contains("nothing found"), "{told:#?}");
    watched(&[], &["sh", "-c", "kill -9 $$"]).with_code(137);
    let told = watched(&[], &["/nowhere/at/all"]).with_code(127);
    assert!(told.stderr.contains("cannot run /nowhere/at/all"), "{told:#?}");
    watched(&[], &["/dev/null"]).with_code(126);
}

#[test]
fn a_loss_is_found_counted_and_ends_a_build() {
    if !has_python() {
        return;
    }
    let scratch = Scratch::new();
    let (answer, record) = (scratch.path().join("answer"), scratch.path().join("record"));
    let page = scratch.path().join("page.html");
    let (answer, record) = (answer.to_str().unwrap(), record.to_str().unwrap());
    let options = ["--json", "--output", answer, "--record", record, "--fail-on", "loss"];
    let options = [&options[..], &["--report", page.to_str().unwrap()]].concat();
    let told = watched(&options, &["python3", "-c", LOSES]);
    let json = Answer { stdout: fs::read_to_string(answer).unwrap(), ..told };
    let missing = number_after("written", &told.stdout) - number_after("got", &told.stdout);
    if tier(&json) != "bpf" {
        lastbyte_testing::not_tested!("exact counts need tier bpf");
        return;
    }
    let lost: Vec<Value> =
        findings(&json).into_iter().filter(|one| one["class"] == "loss").collect();
    assert_eq!((json.code(), lost[0]["code"].as_str()), (1, Some("LB101")), "{json:#?}");
    assert_eq!(lost[0]["bytes"], missing, "{json:#?}");
    assert_eq!(lost[0]["bytes_precision"], "exact", "{json:#?}");
    assert_eq!(lost[0]["name"], "python3");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("LB101") && page.contains("What the codes mean"));

    // What was recorded says the same again, and fails again.
    let again = answer_within(&mut doctor(&["--replay", record, "--json"]), SOON).with_code(0);
    assert_eq!(findings(&again), findings(&json));
    let served = |told: &Answer| told.json_lines().pop().unwrap()["served"].clone();
    assert_eq!(served(&again), served(&json));
    // The peer accepted one connection, and a short one takes little.
    assert_eq!(served(&json)[0]["connections"], 1, "{json:#?}");
    assert!(served(&json)[0].get("cpu_ms_per_connection").is_some(), "{json:#?}");
    let words = ["--replay", record, "--fail-on", "loss"];
    let again = answer_within(&mut doctor(&words), SOON).with_code(1);
    assert!(again.stdout.contains("LB101") && again.stdout.contains("fix: "), "{again:#?}");
}

/// Loses 872,000 bytes or so, always.
const BAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/bad.py");

/// Whatever the tier: a loss that it cannot see is not taken for none.
#[test]
fn a_loss_never_ends_a_build_as_a_success() {
    if !has_python() {
        return;
    }
    // In a network of its own: what others lose meanwhile is counted too.
    let Some(alone) = support::own_network() else { return };
    let watched = |options: &[&str], program: &[&str]| {
        let words = [&[LASTBYTE, "doctor"], options, &["--"], program].concat();
        answer_within(alone().args(words).stdin(Stdio::null()), LATER)
    };
    let options = ["--tier", "procfs", "--fail-on", "loss"];
    for _ in 0..10 {
        let told = watched(&options, &["python3", BAD]);
        assert!([1, 2].contains(&told.code()), "{told:#?}");
        // Where a line ends rests on the numbers in it.
        let text = told.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        // It ran, and was watched to its end.
        assert!(text.contains("; watched for "), "{told:#?}");
        assert!(!text.contains("nothing found"), "{told:#?}");
        // The connection itself where a look met it, and what the kernel counted where none did.
        assert!(text.contains("LB1"), "{told:#?}");
        assert!(text.contains(" looks (") && text.contains("between two"), "{told:#?}");
    }
    let json = watched(&[&options[..], &["--json"]].concat(), &["python3", BAD]);
    let end = json.json_lines().pop().unwrap();
    assert!(end["looks"].as_u64() >= Some(5) && end["unseen_connections"].is_u64(), "{json:#?}");
    let losses = findings(&json).into_iter().filter(|one| one["class"] == "loss");
    let precisions = losses.map(|one| one["bytes_precision"].clone()).collect::<Vec<_>>();
    let is_known = |precision: &Value| ["at_least", "about"].contains(&precision.as_str().unwrap());
    assert!(!precisions.is_empty() && precisions.iter().all(is_known), "{json:#?}");
    let told = watched(&options, &["true"]).with_code(2);
    let text = told.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("nothing found, but a loss could have been missed"), "{told:#?}");
}

/// Asks for more than it reads, and closes with the rest unread, as `curl | head` does. Its peer is a process of
/// its own, which writes until it is reset.
const BREAKS_OFF: &str = r#"
import os, socket
listener = socket.create_server(("127.0.0.1", 0))
peer = os.fork()
if peer == 0:
    near, _ = listener.accept()
    near.recv(100)
    try:
        while True:
            near.send(b"x" * 65536)
    except ConnectionError:
        os._exit(0)
far = socket.create_connection(listener.getsockname())
far.send(b"GET / HTTP/1.0\r\n\r\n")
far.recv(100, socket.MSG_WAITALL)
far.recv(65536, socket.MSG_PEEK | socket.MSG_WAITALL)
far.close()
os.waitpid(peer, 0)
"#;

#[test]
fn a_download_that_its_client_breaks_off_is_no_loss() {
    if !has_python() {
        return;
    }
    let told = watched(&["--json", "--fail-on", "loss"], &["python3", "-c", BREAKS_OFF]);
    if tier(&told) != "bpf" {
        return lastbyte_testing::not_tested!("{}", told.stdout);
    }
    let told = told.with_code(0);
    let of_server = findings(&told).into_iter().find(|one| one["code"] == "LB105");
    let of_server = of_server.unwrap_or_else(|| panic!("{told:#?}"));
    assert_eq!(of_server["class"], "note", "{told:#?}");
    assert!(of_server["bytes"].as_u64() > Some(0), "{told:#?}");
    let sentence = of_server["sentence"].as_str().unwrap();
    assert!(
        sentence
            .ends_with("; it had connected and sent a request, and stopped reading the response.")
    );
}

#[test]
fn a_hostile_name_commands_no_terminal_and_no_page() {
    if !has_python() {
        return;
    }
    let scratch = Scratch::new();
    let page = scratch.path().join("page.html");
    let renamed =
        format!("import ctypes\nctypes.CDLL(None).prctl(15, b'\\x1b]0;x\\x07<b>&\\n')\n{LOSES}");
    let options = ["--all", "--report", page.to_str().unwrap()];
    let told = watched(&options, &["python3", "-c", &renamed]).with_code(0);
    let page = fs::read_to_string(page).unwrap();
    for text in [&told.stderr, &page] {
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
    }
    assert!(!page.contains("<b>&") && !page.contains("]0;x\u{7}"));
}

#[test]
fn ctrl_c_is_the_programs_and_what_was_found_is_said_after() {
    let mut command = doctor(&["--", "sh", "-c", "echo begun; exec sleep 86400"]);
    let running = Running::start(command.process_group(0));
    wait_for("the program", SOON, || child_called("sleep", running.pid()));
    running.signal_group("INT");
    let told = running.answer_within(SOON).with_code(130);
    assert!(told.stdout == "begun\n" && told.stderr.contains("nothing found"), "{told:#?}");
}

#[test]
fn a_signal_to_end_goes_to_the_program_and_what_was_found_is_said() {
    let running = Running::start(&mut doctor(&["--", "sleep", "86400"]));
    wait_for("the program", SOON, || child_called("sleep", running.pid()));
    signal_to("TERM", &running.pid().to_string());
    let told = running.answer_within(SOON).with_code(143);
    assert!(told.stderr.contains("nothing found"), "{told:#?}");
}

/// At whatever moment: what was to become the program must not wait for ever.
#[test]
fn a_doctor_that_is_killed_leaves_nobody_stopped() {
    let word = support::unique("86400.").replace('-', "");
    for ms in [0, 5, 20, 50, 100, 200, 300] {
        let mut running = Running::start(&mut doctor(&["--", "sleep", &word]));
        std::thread::sleep(Duration::from_millis(ms));
        running.kill();
        let stopped = |pid: &u32| Proc::default().stat(*pid).is_some_and(|stat| stat.state == b'T');
        wait_for("nobody to be stopped", SOON, || {
            !support::processes_with_argument(&word).iter().any(stopped)
        });
        // One that was let go runs on, as it would without a doctor.
        for pid in support::processes_with_argument(&word) {
            signal_to("KILL", &pid.to_string());
        }
    }
}

#[test]
fn a_watch_that_ends_first_leaves_the_program_alone() {
    let scratch = Scratch::new();
    let (pipe, done) = (scratch.path().join("pipe"), scratch.path().join("done"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = format!("read line < {} && : > {}", pipe.display(), done.display());
    let mut command = doctor(&["--for", "300ms", "--follow", "0s", "--", "sh", "-c", &script]);
    // Its output would be waited for otherwise.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    assert!(!done.exists());
    fs::write(&pipe, "on\n").unwrap();
    wait_for("the program's end", SOON, || done.exists());
}

// --- what runs already -----------------------------------------------------------------------------

#[test]
fn a_process_is_watched_to_its_end_and_the_machine_for_a_time() {
    let mut sleep = Command::new("sleep").arg("86400").spawn().unwrap();
    let pid = sleep.id().to_string();
    let running = Running::start(&mut doctor(&["--pid", &pid, "--json"]));
    wait_until_it_watches(&running);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    let told = running.answer_within(SOON).with_code(0);
    assert_eq!(told.json_lines().last().unwrap()["type"], "end", "{told:#?}");
    let told = answer(&mut doctor(&["--for", "300ms"])).with_code(0);
    // What others on this machine lose meanwhile stands before it.
    assert!(told.stdout.lines().any(|line| line.starts_with("doctor: ")), "{told:#?}");
    let told = answer(&mut doctor(&["--for", "300ms", "--port", "9", "--json"])).with_code(0);
    assert_eq!(told.json_lines()[0]["scope"]["port"], 9, "{told:#?}");
}

#[test]
fn a_signal_ends_it_in_order() {
    let mut command = doctor(&["--json"]);
    let running = Running::start(command.process_group(0));
    wait_until_it_watches(&running);
    running.signal_group("INT");
    let told = running.answer_within(SOON).with_code(130);
    assert_eq!(told.json_lines().last().unwrap()["type"], "end", "{told:#?}");
}

/// Whether a process has a child that calls itself so.
fn child_called(name: &str, parent: u32) -> bool {
    let proc = Proc::default();
    let children = proc.children(parent, parent).unwrap_or_default();
    children.into_iter().any(|child| proc.name(child) == name)
}

/// It blocks its signals, to read them, once the words are understood.
fn wait_until_it_watches(doctor: &Running) {
    let status = format!("/proc/{}/status", doctor.pid());
    wait_for("the doctor to watch", SOON, || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        blocked.is_some_and(|mask| !mask.trim().trim_start_matches('0').is_empty())
    });
}

// --- rights ------------------------------------------------------------------------------------------

#[test]
fn without_rights_there_is_a_lower_tier_and_a_sentence() {
    let scratch = Scratch::new();
    let binary = scratch.path().join("lastbyte");
    support::copy_program(&binary);
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let nobody = |words: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(words).current_dir("/").uid(65534).gid(65534);
        answer_within(&mut command, SOON)
    };
    if lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("needs root to become another user");
        return;
    }
    let told = nobody(&["doctor", "--json", "--for", "300ms"]).with_code(0);
    let lines = told.json_lines();
    assert_eq!(lines[0]["tier"], "procfs", "{told:#?}");
    assert!(lines.iter().any(|line| line["type"] == "shortfall" && line["tier"] == "bpf"));
    let told = nobody(&["doctor", "--", "sh", "-c", "exit 3"]).with_code(3);
    assert!(told.stderr.contains("not from within the kernel (eBPF): "), "{told:#?}");
    // Two better ones in one line; all of it where it is asked for.
    let lines = |told: &Answer| told.stderr.matches("\ndoctor: not ").count();
    assert_eq!(lines(&told), 1, "{told:#?}");
    assert_eq!(lines(&nobody(&["doctor", "--verbose", "--", "true"]).with_code(0)), 2);
    for tier in ["bpf", "tracefs"] {
        let told = nobody(&["doctor", "--tier", tier, "--for", "300ms"]).with_code(2);
        assert!(!told.stderr.is_empty() && told.stdout.is_empty(), "{told:#?}");
    }
}

#[test]
fn losses_are_counted_in_a_network_namespace_that_may_not_be_entered() {
    if !has_python() {
        return;
    }
    let inside = ["unshare", "--user", "--map-root-user", "--net"];
    let made = Command::new(inside[0]).args(&inside[1..]).arg("true").output();
    if !made.is_ok_and(|made| made.status.success()) {
        lastbyte_testing::not_tested!("this user may make no user and network namespace");
        return;
    }
    // The first ones may be over before the namespace is noticed.
    let program = format!("ip link set lo up && for _ in $(seq 30); do python3 {BAD}; done");
    let lacking = match lastbyte_sys::process::effective_user() {
        0 => &["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"][..],
        _ => &[],
    };
    let options = ["--tier", "procfs", "--json", "--fail-on", "loss"];
    let words =
        [lacking, &[LASTBYTE, "doctor"], &options, &["--"], &inside, &["sh", "-c", &program]];
    let words = words.concat();
    let mut command = Command::new(words[0]);
    let told = answer_within(command.args(&words[1..]).stdin(Stdio::null()), LATER).with_code(2);
    let counted = findings(&told).into_iter().find(|one| one["code"] == "LB110");
    let counted = counted.unwrap_or_else(|| panic!("{told:#?}"));
    assert_eq!(counted["class"], "loss", "{told:#?}");
    let inode = counted["network"].as_u64().unwrap_or_else(|| panic!("{told:#?}"));
    let refused = format!("entering network namespace {inode} failed: ");
    assert!(told.stdout.contains(&refused), "{told:#?}");
    assert!(told.stdout.contains("; only its counters are read"), "{told:#?}");
}

/// A thread of it is in a network namespace of its own, in which it has lost bytes. Says so, and stays until its
/// input ends.
const HAS_LOST: &str = r#"
import ctypes, subprocess, sys, threading
def inside():
    if ctypes.CDLL(None).unshare(0x40000000) != 0:
        return print("refused", flush=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["python3", sys.argv[1]], check=True)
    print("lost", flush=True)
    sys.stdin.read()
threading.Thread(target=inside).start()
"#;

#[test]
fn what_a_network_namespace_counted_before_is_not_of_now() {
    if !has_python() {
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-c", HAS_LOST, BAD]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line == "lost\n" {
        let pid = child.id().to_string();
        let told = answer_within(
            &mut doctor(&["--tier", "procfs", "--json", "--for", "1500ms", "--pid", &pid]),
            LATER,
        );
        assert_eq!(findings(&told.with_code(0)), Vec::<Value>::new());
    } else {
        lastbyte_testing::not_tested!("a network namespace of its own was {}", line.trim());
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn each_tier_can_be_asked_for() {
    for tier in ["bpf", "tracefs", "procfs"] {
        let told = watched(&["--tier", tier, "--json"], &["true"]);
        if told.code() == 2 {
            lastbyte_testing::not_tested!("{}", told.stderr.trim());
            continue;
        }
        assert_eq!((told.code(), self::tier(&told).as_str()), (0, tier), "{told:#?}");
    }
}

/// Builds what has the kernel refuse kinds of BPF programs; `None`, said aloud, where that cannot be.
fn refuser(scratch: &Scratch) -> Option<String> {
    if lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("it needs root");
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/doctor/refuse.c");
    let program = scratch.path().join("refuse").display().to_string();
    match Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o", &program, source])
        .status()
    {
        Ok(status) => assert!(status.success(), "cc: {status}"),
        Err(error) => {
            lastbyte_testing::not_tested!("there is no cc: {error}");
            return None;
        }
    }
    Some(program)
}

/// A program closes with a greeting unread; whether the doctor, with eBPF and nothing less, reports that
/// on a kernel that refuses programs of these kinds. What it could not see.
fn not_seen_where_refused(refuser: &str, kinds: &str) -> Vec<String> {
    let doctor = ["doctor", "--tier", "bpf", "--fail-on", "loss", "--"];
    let mut command = Command::new(refuser);
    command.args([kinds, LASTBYTE]).args(doctor).args(["python3", BAD]).stdin(Stdio::null());
    command.env("LASTBYTE_STATE_DIR", "/dev/null/no-ledger-in-this-test");
    let answer = answer_within(&mut command, LATER).with_code(1);
    assert!(answer.stderr.contains("\nLB10"), "{answer:#?}");
    let lines = answer.stderr.lines().filter(|line| line.contains("not seen is"));
    lines.map(str::to_owned).collect()
}

#[test]
fn kernels_that_refuse_iterators_by_policy_cost_no_loss() {
    if lastbyte_sys::process::effective_user() == 0
        && !Path::new("/sys/kernel/btf/vmlinux").exists()
    {
        lastbyte_testing::not_tested!("the kernel does not describe its types");
        return;
    }
    let scratch = Scratch::new();
    let Some(refuser) = refuser(&scratch) else { return };
    if !has_python() {
        return;
    }
    let kinds = "iter/bpf_sk_storage_map,iter/bpf_map_elem,iter/sockmap";
    assert_eq!(not_seen_where_refused(&refuser, kinds), Vec::<String>::new());
    let lacks = not_seen_where_refused(&refuser, "iter");
    let [lack] = &lacks[..] else { panic!("{lacks:#?}") };
    assert!(lack.contains("tell_counts_of_network") && lack.contains("policy"), "{lack}");
    assert!(!lack.contains("root has"), "{lack}");
}
