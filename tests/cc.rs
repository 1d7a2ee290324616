//! `lastbyte cc`: congestion controls that come into the kernel, and go again however their holder
//! ends; what is kept is in the ledger.
//!
//! Names of algorithms are those of the whole machine: these tests load `lb_reno`, in turns with all
//! others that do (see `support/names.rs`), in a world of their own (see `support/world.rs`), so that
//! what is mounted and kept is seen there alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use lastbyte_sys::{file, process, tcp};
use serde_json::{Value, json};

use crate::support::names::{self, Turn};
use crate::support::world::{World, alone};
use crate::support::{
    Running, SOON, Scratch, answer, congestion_controls, copy_program, lastbyte, signal_to,
    wait_for,
};

const NAME: &str = "lb_reno";
const BPFFS: &str = "/sys/fs/bpf";

// --- what there is ------------------------------------------------------------------------------

#[test]
fn the_list_needs_no_rights() {
    let told = answer(&mut nobody(&Scratch::new(), &["cc", "list", "--json"])).with_code(0);
    let rows = told.json_lines();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("reno")["origin"], "kernel");
    assert_eq!(
        (&row(NAME)["origin"], &row(NAME)["plain_name"]),
        (&json!("catalogue"), &json!("reno"))
    );
    assert_eq!(row("lb_brutal")["takes_rate"], true);
    assert!(rows.iter().all(|row| row["loaded"].is_boolean() && row["good_for"] != ""));
    let default: Vec<_> = rows.iter().filter(|row| row["default"] == true).collect();
    assert!(default.len() <= 1, "{default:?}");

    let told = answer(&mut lastbyte(["cc", "list"])).with_code(0);
    assert!(told.stdout.lines().any(|line| line.starts_with("reno  ")), "{told:#?}");
}

#[test]
fn without_rights_nothing_is_loaded_and_the_sentence_says_which() {
    let Some(_turn) = turn() else { return };
    let scratch = Scratch::new();
    let words = ["cc", "load", "reno", "--for-seconds", "1"];
    let told = answer(&mut nobody(&scratch, &words)).with_code(2);
    for said in [NAME, "CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "root"] {
        assert!(told.stderr.contains(said), "{told:#?}");
    }
    assert!(!is_available());
}

#[test]
fn wrong_names_are_named() {
    let refused = |words: &[&str], said: &[&str]| {
        let told = answer(lastbyte(["cc"]).args(words)).with_code(2);
        assert_eq!(told.stdout, "", "{told:#?}");
        for word in said {
            assert!(told.stderr.contains(word), "`{word}`: {told:#?}");
        }
    };
    refused(&["load", "vegsa"], &["`vegsa`", "did you mean vegas?", "cc list"]);
    refused(&["load", "reno", "nosuch"], &["`nosuch`", "cc list"]);
    refused(&["load", "reno", "--rate", "8mbit"], &["reno", "rate by itself"]);
    refused(&["unload", "nosuch"], &["`nosuch`", "cc list"]);
    let Some(_turn) = turn() else { return };
    refused(&["unload", NAME], &["lb_reno is not loaded"]);
    refused(&["unload", "reno"], &["reno is the kernel's own", "lb_reno is not loaded"]);
}

// --- held ---------------------------------------------------------------------------------------

#[test]
fn it_is_there_for_so_long() {
    let Some(_turn) = turn() else { return };
    let words = ["cc", "load", "reno", "--for-seconds", "1", "--json"];
    let running = Running::start(&mut lastbyte(words));
    wait_for("lb_reno", SOON, is_available);
    let pid = running.pid();
    let told = running.answer_within(SOON).with_code(0);
    assert!(!is_available());
    let line = json!({
        "name": NAME, "plain_name": "reno", "held_by": "process", "pid": pid, "for_s": 1
    });
    assert_eq!(told.json_lines(), [line]);
}

#[test]
fn it_goes_with_its_holder_however_that_ends() {
    let Some(_turn) = turn() else { return };
    for (signal, code) in [("INT", 130), ("TERM", 0), ("HUP", 129), ("KILL", 137)] {
        let running = Running::start(&mut lastbyte(["cc", "load", NAME]));
        // It is loaded before this is said.
        running.wait_for_line("lb_reno is loaded until Ctrl-C");
        assert!(is_available());
        signal_to(signal, &running.pid().to_string());
        let told = running.answer_within(SOON).with_code(code);
        assert_eq!(told.stdout, "lb_reno is loaded until Ctrl-C\n");
        // Before a process that was killed is collected, its descriptors are closed.
        assert!(!is_available(), "{signal}");
        assert_eq!(told.stderr.contains("lb_reno is unloaded"), signal != "KILL", "{told:#?}");
    }
}

#[test]
fn it_is_loaded_once_and_its_holder_is_named() {
    let Some(_turn) = turn() else { return };
    let running = Running::start(&mut lastbyte(["cc", "load", "reno"]));
    wait_for("lb_reno", SOON, is_available);
    let pid = running.pid();
    let process = format!("process {pid} (");
    let again = answer(&mut lastbyte(["cc", "load", "reno"])).with_code(2);
    assert!(again.stderr.contains("lb_reno is loaded already, held by "), "{again:#?}");
    assert!(again.stderr.contains(&process), "{again:#?}");
    let unload = answer(&mut lastbyte(["cc", "unload", "reno"])).with_code(2);
    assert!(unload.stderr.contains(&process), "{unload:#?}");
    assert!(unload.stderr.contains(&format!("`kill {pid}` ends it")), "{unload:#?}");
    let rows = answer(&mut lastbyte(["cc", "list", "--json"])).with_code(0).json_lines();
    let row = rows.iter().find(|row| row["name"] == NAME).unwrap();
    assert_eq!((&row["held_by"], &row["pid"]), (&json!("process"), &json!(pid)));
    signal_to("TERM", &pid.to_string());
    running.answer_within(SOON).with_code(0);
}

// --- for an experiment --------------------------------------------------------------------------

#[test]
fn the_lab_loads_what_the_kernel_lacks() {
    let Some(_turn) = turn() else { return };
    let told = answer(&mut lab(&["--congestion", "lb_reno,brutal=5mbit", "--seconds", "1"]));
    let told = told.with_code(0);
    assert!(!is_available(), "it is taken away again");
    for name in ["lb_reno", "lb_brutal"] {
        assert!(told.stdout.lines().any(|line| line.starts_with(name)), "{told:#?}");
    }
    let refused = answer(&mut lab(&["--congestion", "reno=5mbit"])).with_code(2);
    assert!(refused.stderr.contains("reno"), "{refused:#?}");
    let refused = answer(&mut lab(&["--congestion", "lb_reno=5mbit"])).with_code(2);
    assert!(refused.stderr.contains("rate"), "{refused:#?}");
    // Its own ledger: that is looked at first.
    let words = ["--congestion", "lb_reno", "--apply", "route:192.0.2.1"];
    let scratch = Scratch::new();
    let refused = answer(lab(&words).env("LASTBYTE_STATE_DIR", scratch.path())).with_code(2);
    assert!(refused.stderr.contains("cc load lb_reno --keep"), "{refused:#?}");
    assert!(!is_available());
}

#[test]
fn what_the_lab_loaded_goes_with_it_however_that_ends() {
    let Some(_turn) = turn() else { return };
    for signal in ["INT", "KILL"] {
        let words = ["--congestion", NAME, "--seconds", "100"];
        let running = Running::start(&mut lab(&words));
        wait_for("lb_reno", SOON, is_available);
        signal_to(signal, &running.pid().to_string());
        let told = running.answer_within(SOON);
        assert!(!is_available(), "{signal}: {told:#?}");
    }
}

fn lab(words: &[&str]) -> Command {
    let mut lab = lastbyte(["lab", "--rtt", "1ms", "--rate", "20mbit", "--rounds", "1"]);
    lab.args(["--fairness", "never", "--no-latency"]).args(words);
    lab
}

// --- kept ---------------------------------------------------------------------------------------

#[test]
fn what_is_kept_is_in_the_ledger_and_goes_by_undo() {
    alone(|world| {
        let Some(_turn) = turn_without_bpffs() else { return };
        let told = answer(&mut world.lastbyte(&["cc", "load", "reno", "--keep"])).with_code(0);
        assert!(told.stdout.starts_with("lb_reno is loaded until the next boot"), "{told:#?}");
        assert!(told.stderr.contains("bpffs was not mounted"), "{told:#?}");
        assert!(is_available());
        let listed = answer(&mut world.lastbyte(&["changes", "--json"])).with_code(0).json_lines();
        let file = format!("{BPFFS}/lastbyte/{NAME}");
        let changes: Vec<_> = listed.iter().map(|entry| &entry["change"]).collect();
        let mounted = json!({"kind": "bpffs", "path": BPFFS});
        let kept = json!({"kind": "congestion", "name": NAME, "file": file});
        assert_eq!(changes, [&mounted, &kept]);
        assert!(listed.iter().all(|entry| entry["state"] == "made"), "{listed:?}");

        // Not loaded twice, and not unmounted under it.
        let told = answer(&mut world.lastbyte(&["cc", "load", "reno", "--keep"])).with_code(2);
        assert!(told.stderr.contains(&format!("loaded already, kept by {file}")), "{told:#?}");
        let told = answer(&mut world.lastbyte(&["undo", "1"])).with_code(2);
        assert!(told.stderr.contains("keeps lb_reno: it stays mounted"), "{told:#?}");
        assert_eq!(open(world), 2);

        let told = answer(&mut world.lastbyte(&["undo", "--all"])).with_code(0);
        let undone = format!(
            "undone: congestion control {NAME}, kept by {file}\nundone: bpffs, mounted at {BPFFS}\n"
        );
        assert_eq!(told.stdout, undone);
        assert!(!is_available());
        world.assert_nothing_left();
    });
}

#[test]
fn what_is_kept_goes_by_unload_and_a_mount_of_others_stays() {
    alone(|world| {
        let Some(_turn) = turn_without_bpffs() else { return };
        let load = ["cc", "load", "reno", "--keep"];
        answer(&mut world.lastbyte(&load)).with_code(0);
        let told = answer(&mut world.lastbyte(&["cc", "unload", "reno"])).with_code(0);
        assert_eq!(told.stdout, "lb_reno is unloaded\n");
        assert!(told.stderr.contains("unmounted again"), "{told:#?}");
        assert!(!is_available());
        assert_eq!(open(world), 0);
        world.assert_nothing_left();

        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", BPFFS]).status().unwrap();
        assert!(mounted.success());
        let told = answer(&mut world.lastbyte(&load)).with_code(0);
        assert!(!told.stderr.contains("mounted"), "{told:#?}");
        assert_eq!(open(world), 1);
        let words = ["cc", "unload", "--all", "--json"];
        let told = answer(&mut world.lastbyte(&words)).with_code(0);
        assert_eq!(told.json_lines(), [json!({"name": NAME, "connections": 0})]);
        assert!(!is_available());
        assert_eq!(open(world), 0);
        assert!(file::is_bpffs(BPFFS.as_ref()).unwrap(), "it was there before");
        assert!(!fs::exists(format!("{BPFFS}/lastbyte")).unwrap());
        let told = answer(&mut world.lastbyte(&words[..3])).with_code(0);
        assert_eq!(told.stdout, "nothing is kept in the kernel\n");
    });
}

#[test]
fn of_several_all_are_kept_or_none() {
    alone(|world| {
        let Some(_turn) = turn_without_bpffs() else { return };
        let holder = Running::start(&mut world.lastbyte(&["cc", "load", "reno"]));
        wait_for("lb_reno", SOON, is_available);
        let before = congestion_controls("available").len();
        let words = ["cc", "load", "lp", "reno", "--keep"];
        answer(&mut world.lastbyte(&words)).with_code(2);
        assert!(congestion_controls("available").len() <= before);
        assert_eq!(open(world), 0);
        assert!(!file::is_bpffs(BPFFS.as_ref()).unwrap());
        drop(holder);
        world.assert_nothing_left();

        // A ledger that cannot be written: nothing is kept that it would not know.
        let mut nowhere = world.lastbyte(&["cc", "load", "reno", "--keep"]);
        nowhere.env("LASTBYTE_STATE_DIR", "/dev/null/nowhere");
        answer(&mut nowhere).with_code(2);
        assert!(!is_available());
        world.assert_nothing_left();
    });
}

#[test]
fn what_was_only_planned_is_undone() {
    alone(|world| {
        let Some(_turn) = turn_without_bpffs() else { return };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let line = |id: u32, change: Value| {
            let line = json!({
                "schema": 1, "id": id, "event": "planned", "at_unix_s": 1, "boot_id": boot.trim(),
                "change": change,
            });
            format!("{line}\n")
        };
        let file = format!("{BPFFS}/lastbyte/{NAME}");
        let kept = json!({"kind": "congestion", "name": NAME, "file": file});
        let mounted = json!({"kind": "bpffs", "path": BPFFS});
        // A file that is none of ours is not removed, whatever the ledger says.
        let theirs = "/run/temporary/theirs";
        fs::write(theirs, "").unwrap();
        let strange = json!({"kind": "congestion", "name": NAME, "file": theirs});
        let text = line(1, mounted) + &line(2, kept) + &line(3, strange);
        fs::write(world.state().join("changes.jsonl"), text).unwrap();
        let told = answer(&mut world.lastbyte(&["undo", "--all"])).with_code(2);
        assert!(told.stderr.contains("is not in /sys/fs/bpf/lastbyte"), "{told:#?}");
        assert_eq!(told.stdout.lines().count(), 2, "{told:#?}");
        fs::remove_file(theirs).unwrap();
        world.assert_nothing_left();
    });
}

// --- in use -------------------------------------------------------------------------------------

#[test]
fn one_in_use_is_unloaded_and_its_connection_keeps_it() {
    alone(|world| {
        let Some(_turn) = turn_without_bpffs() else { return };
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        let load = ["cc", "load", "reno", "--keep"];
        answer(&mut world.lastbyte(&load)).with_code(0);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tcp::set_congestion(&near, NAME).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"so far").unwrap();
        far.read_exact(&mut [0; 6]).unwrap();
        let line = status_of(world);
        assert_eq!((&line["available"], &line["established"]), (&json!(true), &json!(1)));

        let told = answer(&mut world.lastbyte(&["cc", "unload", "reno"])).with_code(0);
        let said = "lb_reno is unloaded; 1 connection has it, and keeps it to its end\n";
        assert_eq!(told.stdout, said);
        near.write_all(b"still here").unwrap();
        far.read_exact(&mut [0; 10]).unwrap();
        let line = status_of(world);
        assert_eq!((&line["available"], &line["established"]), (&json!(false), &json!(1)));
        assert!(line["bytes_sent"].as_u64().unwrap() >= 16, "{line}");
        let told = answer(&mut world.lastbyte(&["cc", "status"])).with_code(0);
        let row = told.stdout.lines().find(|line| line.starts_with(NAME)).unwrap();
        assert!(row.ends_with("unloaded"), "{told:#?}");
        let each = ["cc", "status", "--sockets", "--json"];
        let each = answer(&mut world.lastbyte(&each)).with_code(0).json_lines();
        let own = near.local_addr().unwrap().to_string();
        let socket = each.iter().find(|socket| socket["local"] == own).unwrap();
        assert_eq!(
            (&socket["congestion"], &socket["state"]),
            (&json!(NAME), &json!("ESTABLISHED"))
        );

        // The next of that name is another one.
        answer(&mut world.lastbyte(&load)).with_code(0);
        near.write_all(b"still here").unwrap();
        far.read_exact(&mut [0; 10]).unwrap();
        answer(&mut world.lastbyte(&["cc", "unload", "--all"])).with_code(0);
        assert!(!is_available());
    });
}

/// What `cc status` says of our algorithm.
fn status_of(world: &World) -> Value {
    let lines = answer(&mut world.lastbyte(&["cc", "status", "--json"])).with_code(0).json_lines();
    lines.into_iter().find(|line| line["congestion"] == NAME).unwrap()
}

// --- the machine --------------------------------------------------------------------------------

/// The turn to load `lb_reno`, if it can be loaded here; says so if not.
fn turn() -> Option<Turn> {
    if process::effective_user() != 0 {
        lastbyte_testing::not_tested!("only root may load a congestion control");
        return None;
    }
    if let Err(error) = lastbyte_congestion::ability() {
        lastbyte_testing::not_tested!("{error}");
        return None;
    }
    let turn = names::turn()?;
    if is_available() {
        lastbyte_testing::not_tested!("somebody has loaded {NAME}");
        return None;
    }
    Some(turn)
}

/// As [`turn`], in a world in which nothing is mounted for BPF, whatever the machine has there.
fn turn_without_bpffs() -> Option<Turn> {
    let turn = turn()?;
    assert!(!file::is_bpffs(BPFFS.as_ref()).unwrap(), "the world was entered without it");
    Some(turn)
}

fn is_available() -> bool {
    congestion_controls("available").iter().any(|name| name == NAME)
}

/// How many changes the ledger has open.
fn open(world: &World) -> usize {
    answer(&mut world.lastbyte(&["changes", "--json"])).with_code(0).stdout.lines().count()
}

/// The program, run without rights.
fn nobody(scratch: &Scratch, words: &[&str]) -> Command {
    const NOBODY: u32 = 65534;
    let binary = scratch.path().join("lastbyte");
    copy_program(&binary);
    let mut command = Command::new(binary);
    command.args(words).current_dir("/");
    if process::effective_user() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
