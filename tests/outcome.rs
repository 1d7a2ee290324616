//! What comes of it: the figures that `quiz`, `lab` and `demo` print are true and have units, and a
//! program under `link run` has a network of its own, keeps its exit code, and leaves nobody behind.
//!
//! Without the rights to make a path, the tests that need one say so and pass. Those that need the links of
//! this machine to keep their promise run one at a time (`.config/nextest.toml`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use lastbyte_host::Proc;
use lastbyte_testing::{Run, first_that_counts};
use serde_json::Value;

use crate::support::{
    self, Answer, LATER, Running, SOON, answer, answer_within, can_make_links, holds_within,
    lastbyte, lateness, processes_with_argument, unique, wait_for,
};

// --- quiz ---------------------------------------------------------------------------------------

#[test]
fn over_loopback_finish_delivers_and_close_loses() {
    let told = answer(&mut lastbyte(["quiz", "--runs", "5", "--json"])).with_code(0);
    let runs = told.json_lines();
    assert_eq!(runs.len(), 5 * 5, "five ways, five runs of each");
    for run in runs_ended_by(&runs, "finish", 5) {
        assert_delivered(run, 1_000_000);
    }
    assert_close_loses(&runs);
}

#[test]
fn over_a_path_finish_delivers_and_close_loses() {
    if !can_make_links() {
        return;
    }
    let words = ["quiz", "--rtt", "20ms", "--runs", "5", "--method", "finish,close", "--json"];
    let runs = answer_within(&mut lastbyte(words), LATER).with_code(0).json_lines();
    assert_eq!(runs.len(), 2 * 5);
    for run in runs_ended_by(&runs, "finish", 5) {
        assert_delivered(run, 1_000_000);
    }
    assert_close_loses(&runs);
}

#[test]
fn a_quiz_about_nothing_is_complete() {
    let words = ["quiz", "--runs", "1", "--bytes", "0", "--method", "finish", "--json"];
    let runs = answer(&mut lastbyte(words)).with_code(0).json_lines();
    for run in runs_ended_by(&runs, "finish", 1) {
        assert_delivered(run, 0);
    }
}

fn runs_ended_by<'a>(runs: &'a [Value], way: &str, count: usize) -> Vec<&'a Value> {
    let ended: Vec<_> = runs.iter().filter(|run| run["ended_by"] == way).collect();
    assert_eq!(ended.len(), count, "runs ended by {way} in {runs:#?}");
    for run in runs {
        assert_keys_have_units(run);
    }
    ended
}

#[track_caller]
fn assert_delivered(run: &Value, bytes: u64) {
    for key in ["written_bytes", "arrived_bytes", "acked_bytes"] {
        assert_eq!(run[key], bytes, "{key} of {run:#}");
    }
    assert_eq!(run["reader_saw"], "FIN", "{run:#}");
    assert!(["acked", "closed"].contains(&run["level"].as_str().unwrap()), "{run:#}");
    assert_eq!(run["writer_was_told_of_failure"], false, "{run:#}");
}

/// Bytes are lost where the reader is slower than the writer, which a busy machine may turn round;
/// that the reader sees a reset instead of an end is certain.
#[track_caller]
fn assert_close_loses(runs: &[Value]) {
    let closed = runs_ended_by(runs, "close", 5);
    let sum = |key: &str| closed.iter().map(|run| run[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("written_bytes"), 5_000_000);
    assert!(closed.iter().all(|run| run["reader_saw"] == "RST"), "a clean end: {closed:#?}");
    assert!(closed.iter().all(|run| run["acked_bytes"].is_null()), "close proves nothing");
}

// --- lab ----------------------------------------------------------------------------------------

#[test]
fn every_byte_of_a_lab_is_counted_and_every_figure_has_its_unit() {
    if !can_make_links() {
        return;
    }
    let path = ["lab", "--rtt", "20ms", "--rate", "50mbit", "--bytes", "1M", "--rounds", "2"];
    let mut lab = lastbyte(path);
    let told = answer_within(lab.args(["--congestion", "cubic,reno", "--json"]), LATER);
    let lines = told.with_code(0).json_lines();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["plan", "run", "run", "run", "run", "ended", "summary", "summary"]);
    assert_eq!(lines[0]["schema"], 2);
    lines.iter().for_each(assert_keys_have_units);

    let plan = &lines[0];
    let path = &plan["path"];
    assert_eq!((&path["rtt_s"], &plan["load_bytes"]), (&0.02.into(), &1_048_576.into()));
    assert_eq!((&path["up_bits_per_s"], &plan["most_rounds"]), (&50_000_000.into(), &2.into()));
    assert_eq!(path["up_queue_bytes"], 125_000, "20 ms of 50 Mbit/s");

    let mut seen = BTreeSet::new();
    for run in &lines[1..5] {
        seen.insert((run["name"].as_str().unwrap(), run["round"].as_u64().unwrap()));
        let (received, sent) = (&run["flows"][0]["received"], &run["flows"][0]["sent"]);
        for bytes in [
            &run["received_bytes"],
            &run["written_bytes"],
            &received["received_bytes"],
            &sent["acked_bytes"],
        ] {
            assert_eq!(*bytes, 1_048_576, "{run:#}");
        }
        assert_eq!((&run["complete"], &received["end"]), (&true.into(), &"fin".into()));
        let tenths = received["received_bytes_per_100_ms"].as_array().unwrap();
        let sum: u64 = tenths.iter().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(sum, 1_048_576, "the tenths of a second make up the whole");
        assert!(!sent["samples"].as_array().unwrap().is_empty());
    }
    assert_eq!(
        seen,
        [("cubic auto", 0), ("cubic auto", 1), ("reno auto", 0), ("reno auto", 1)].into()
    );

    for summary in &lines[6..] {
        assert_eq!((&summary["runs"], &summary["complete_runs"]), (&2.into(), &2.into()));
        let rate = |key: &str| summary[key].as_f64().unwrap();
        let (min, max) = (rate("min_bits_per_s"), rate("max_bits_per_s"));
        assert!((min..=max).contains(&rate("median_bits_per_s")), "{summary:#}");
        assert!(max <= 50e6 * 1448.0 / 1500.0, "more than fits: {summary:#}");
    }
}

#[test]
fn no_more_is_received_than_fits() {
    if !can_make_links() {
        return;
    }
    let words = ["lab", "--rtt", "20ms", "--rate", "20mbit", "--seconds", "2", "--rounds", "1"];
    let mut lab = lastbyte(words);
    let told = answer_within(lab.args(["--congestion", "cubic", "--json"]), LATER).with_code(0);
    let lines = told.json_lines();
    let run = &lines[1];
    assert_eq!(run["received_bytes"], run["written_bytes"]);
    let share = run["received_bits_per_s"].as_f64().unwrap() / 20e6;
    // 1448 bytes of payload in each packet of 1500.
    assert!(share <= 0.966, "{share} of the rate is more than fits: {run:#}");
    assert!(share > 0.7, "{share} of the rate is too little: {run:#}");
}

#[test]
fn each_round_of_a_lab_has_its_own_port_in_its_own_network() {
    if !can_make_links() {
        return;
    }
    // The same port four times, side by side: each run has a network to itself.
    let words = ["lab", "--rtt", "2ms", "--rate", "50mbit", "--bytes", "64KiB", "--rounds", "4"];
    let mut lab = lastbyte(words);
    lab.args(["--congestion", "cubic", "--port", "7", "--parallel", "4", "--json"]);
    let lines = answer_within(&mut lab, LATER).with_code(0).json_lines();
    let complete = |line: &&Value| line["type"] == "run" && line["complete"] == true;
    assert_eq!(lines.iter().filter(complete).count(), 4, "{lines:#?}");
}

#[test]
fn a_full_disk_is_said_and_what_was_measured_is_shown() {
    let congestion = support::congestion_controls("allowed")[0].clone();
    let words =
        ["lab", "--loopback", "--bytes", "1kB", "--rounds", "2", "--congestion", &congestion];
    let lab = |more: &[&str]| answer_within(lastbyte(words).args(more), LATER);
    for option in ["--save", "--report"] {
        let told = lab(&[option, "/dev/full"]).with_code(2);
        assert!(told.stdout.contains("2,000 bytes written, 2,000 received"), "{told:#?}");
        assert!(
            told.stderr.contains("/dev/full") && told.stderr.contains("No space left"),
            "{told:#?}"
        );
        assert!(!fs::metadata("/dev/full").unwrap().is_file(), "a device stays one");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut lab = lastbyte(words);
    let status = lab.arg("--json").stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn what_is_saved_is_shown_and_compared() {
    let folder = support::Scratch::new();
    let congestion = support::congestion_controls("allowed")[0].clone();
    let words =
        ["lab", "--loopback", "--bytes", "100kB", "--rounds", "4", "--congestion", &congestion];
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["a.json", "b.json"] {
        answer_within(lastbyte(words).args(["--save", &file(name)]), LATER).with_code(0);
    }
    let page = file("page.html");
    let told =
        answer_within(&mut lastbyte(["lab", "show", &file("a.json"), "--report", &page]), LATER);
    let told = told.with_code(0);
    assert!(told.stdout.contains("400,000 bytes written, 400,000 received"), "{told:#?}");
    assert!(fs::read_to_string(page).unwrap().starts_with("<!DOCTYPE html>"));
    let compare = ["lab", "compare", &file("a.json"), &file("b.json"), "--json"];
    let lines = answer_within(&mut lastbyte(compare), LATER).json_lines();
    let received = lines.iter().find(|line| line["measure"] == "received_bits_per_s").unwrap();
    assert_eq!((&received["before_runs"], &received["after_runs"]), (&4.into(), &4.into()));
}

/// Every number says in its key what it counts or in which unit it is.
#[track_caller]
fn assert_keys_have_units(line: &Value) {
    /// Counts, whose key is the unit.
    const COUNTS: [&str; 15] = [
        "schema",
        "round",
        "rounds",
        "least_rounds",
        "most_rounds",
        "runs",
        "complete_runs",
        "parallel",
        "repeated",
        "seed",
        "subject",
        "stream",
        "streams",
        "unanswered",
        "round_trips_per_minute",
    ];
    const UNITS: [&str; 9] =
        ["_bytes", "_packets", "_segments", "_share", "_ratio", "_bdp", "_s", "_ms", "_us"];
    let Value::Object(pairs) = line else { panic!("no object: {line}") };
    for (key, value) in pairs {
        let has_unit = UNITS.iter().any(|unit| key.ends_with(unit));
        match value {
            Value::Number(_) => assert!(has_unit || COUNTS.contains(&key.as_str()), "{key}"),
            Value::Array(items) if items.iter().any(Value::is_number) => assert!(has_unit, "{key}"),
            Value::Array(items) => {
                items.iter().filter(|item| item.is_object()).for_each(assert_keys_have_units);
            }
            // The unit of the whole holds for its parts.
            Value::Object(_) if !has_unit => assert_keys_have_units(value),
            _ => {}
        }
    }
}

// --- link run -----------------------------------------------------------------------------------

/// Runs a shell script on the near end of a path of a millisecond.
fn on_a_path(script: &str) -> Answer {
    answer(&mut lastbyte(["link", "run", "-q", "--rtt", "1ms", "--", "sh", "-c", script]))
}

#[test]
fn exit_codes_are_passed_on() {
    if !can_make_links() {
        return;
    }
    for (script, code) in [("true", 0), ("exit 7", 7), ("exit 127", 127), ("exit 255", 255)] {
        on_a_path(script).with_code(code);
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        on_a_path(&format!("kill -s {signal} $$")).with_code(code);
    }
    let words = ["link", "run", "-q", "--rtt", "1ms", "--", "/no/such/program"];
    let told = answer(&mut lastbyte(words)).with_code(127);
    assert!(told.stderr.contains("/no/such/program: No such file"), "{told:#?}");
}

#[test]
fn a_program_sees_its_own_network_only() {
    if !can_make_links() {
        return;
    }
    let hosts = fs::read("/etc/hosts").unwrap();
    let script = "cat /proc/net/dev; echo --; cat /proc/net/route; echo --; ls /sys/class/net; \
                  echo --; cat /etc/hosts; echo --; echo $LASTBYTE_NEAR $LASTBYTE_FAR";
    let told = on_a_path(script).with_code(0);
    assert_eq!(fs::read("/etc/hosts").unwrap(), hosts, "the machine's own is as it was");

    let parts: Vec<&str> = told.stdout.split("--\n").collect();
    let [devices, routes, sys, hosts, variables] = parts[..] else { panic!("{told:#?}") };
    let devices: BTreeSet<&str> =
        devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert_eq!(devices, ["lo", "path0"].into(), "{told:#?}");
    // One line of heading, one for the path itself, none for anything beyond.
    let routes: Vec<&str> = routes.lines().skip(1).collect();
    assert_eq!(routes.len(), 1, "{told:#?}");
    assert!(routes[0].starts_with("path0\t000012C6\t00000000"), "{told:#?}");
    assert_eq!(sys.lines().collect::<BTreeSet<_>>(), ["lo", "path0"].into(), "{told:#?}");
    for line in ["198.18.0.1 near", "2001:2::1 near", "198.18.0.2 far", "2001:2::2 far"] {
        assert!(hosts.lines().any(|there| there == line), "no `{line}`: {told:#?}");
    }
    assert_eq!(variables.trim(), "198.18.0.1 198.18.0.2");
}

#[test]
fn a_program_sees_its_own_processes_only() {
    if !can_make_links() {
        return;
    }
    // `echo` and the pattern are the shell's own.
    let told = on_a_path("echo $$; echo /proc/[0-9]*").with_code(0);
    assert_eq!(told.stdout, "2\n/proc/1 /proc/2\n", "{told:#?}");
}

#[test]
fn a_program_reads_stdin_and_writes_to_both() {
    if !can_make_links() {
        return;
    }
    let words = ["link", "run", "-q", "--rtt", "1ms", "--", "sh", "-c", "cat; echo talk >&2"];
    let mut child = lastbyte(words);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from outside").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"from outside"[..], &b"talk\n"[..]));
}

#[test]
fn what_a_program_left_in_the_background_is_gone_after_it() {
    if !can_make_links() {
        return;
    }
    // Nobody else sleeps exactly so long; it needs no output, and has left its parent's session.
    let time = format!("86400.{}", std::process::id());
    let script = format!("setsid sh -c 'sleep {time} &' > /dev/null 2>&1; echo started");
    let told = on_a_path(&script).with_code(0);
    assert_eq!(told.stdout, "started\n");
    assert_eq!(processes_with_argument(&time), [0; 0], "they outlived `link run`");
}

#[test]
fn the_far_program_is_there_first_and_gone_afterwards() {
    if !can_make_links() {
        return;
    }
    if !has_python() {
        lastbyte_testing::not_tested!("there is no python3 to listen with");
        return;
    }
    let mark = unique("far-of-test");
    let far = format!(
        "exec python3 -c 'import socket, sys\nwith socket.create_server((\"198.18.0.2\", 7)) as s:\
         \n  while True: s.accept()[0].send(b\"hello\")' {mark}"
    );
    let near = "import socket; print(socket.create_connection((\"far\", 7)).recv(5).decode())";
    let words = ["link", "run", "--rtt", "20ms", "--far", &far, "--", "python3", "-c", near];
    let told = answer(&mut lastbyte(words)).with_code(0);
    assert_eq!(told.stdout, "hello\n", "{told:#?}");
    // Whether it kept its promise depends on what else this machine is doing.
    assert!(told.stderr.contains("link: up   "), "{told:#?}");
    assert_eq!(processes_with_argument(&mark), [0; 0], "the far program outlived `link run`");
}

fn has_python() -> bool {
    std::process::Command::new("python3").arg("-V").output().is_ok()
}

#[test]
fn a_far_program_that_ends_early_is_told() {
    if !can_make_links() {
        return;
    }
    let words = ["link", "run", "--rtt", "1ms", "--far", "exit 3", "--", "echo", "begun"];
    let told = answer(&mut lastbyte(words)).with_code(2);
    assert!(told.stderr.contains("`exit 3` ended with 3 before it listened"), "{told:#?}");
    assert_eq!(told.stdout, "", "the program was not begun");
}

#[test]
fn interrupted_while_the_far_program_is_awaited_it_exits_as_interrupted() {
    if !can_make_links() {
        return;
    }
    let time = format!("86401.{}", std::process::id());
    let far = format!("exec sleep {time}");
    let words = ["link", "run", "--rtt", "1ms", "--far", &far, "--", "echo", "begun"];
    let running = Running::start(lastbyte(words).stdin(Stdio::null()).process_group(0));
    wait_for("the far program", SOON, || !processes_with_argument(&time).is_empty());
    running.signal_group("INT");
    let told = running.answer_within(SOON).with_code(130);
    assert_eq!(told.stdout, "", "the program was not begun");
    let gone = holds_within(SOON, || processes_with_argument(&time).is_empty());
    assert!(gone, "the far program outlived `link run`");
}

// --- link record --------------------------------------------------------------------------------

#[test]
fn a_path_that_was_recorded_is_a_scenario_to_run() {
    if !can_make_links() {
        return;
    }
    let scratch = support::Scratch::new();
    let file = scratch.path().join("recorded.toml");
    let (file, program) = (file.to_str().unwrap(), support::LASTBYTE);
    let link = ["link", "run", "-q", "--rtt", "20ms", "--rate", "20mbit", "--loss", "5%", "--"];
    let record = [program, "link", "record", "far", "--seconds", "1", "--budget", "300kB"];
    let record = [&record[..], &["--json", "--output", file]].concat();
    let told = answer(&mut lastbyte([&link[..], &record].concat())).with_code(0);
    assert!(told.stderr.contains("record: to ") && told.stderr.contains("300 kB"), "{told:#?}");
    let lines = told.json_lines();
    lines.iter().for_each(assert_keys_have_units);
    let rtt = lines.iter().find(|line| line["what"] == "round trip").unwrap();
    let rtt = rtt["got_ms"].as_f64().unwrap();
    assert!((20.0..22.0).contains(&rtt), "{told:#?}");
    let scenario = lines.last().unwrap();
    assert_eq!(scenario["toml"].as_str().unwrap(), fs::read_to_string(file).unwrap());

    let again = ["link", "run", "-q", file, "--", program, "link", "record", "far", "-4"];
    let again = [&again[..], &["--seconds", "1", "--budget", "0"]].concat();
    let told = answer(&mut lastbyte(again)).with_code(0);
    let line = told.stdout.lines().find_map(|line| line.strip_prefix("rtt = \"")).unwrap();
    let again: f64 = line.trim_end_matches("ms\"").parse().unwrap();
    assert!((again - rtt).abs() < 2.0, "{rtt} ms, then {again} ms");
}

#[test]
fn a_host_that_answers_nothing_is_no_failure_but_no_recording() {
    if !can_make_links() {
        return;
    }
    // Packets of all lengths are lost.
    let link = ["link", "run", "-q", "--rtt", "1ms", "--loss", "100%", "--"];
    let record = [support::LASTBYTE, "link", "record", "far", "--seconds", "1"];
    let told = answer(&mut lastbyte([&link[..], &record].concat())).with_code(1);
    assert_eq!(told.stdout, "", "{told:#?}");
    for said in ["answered none of 100 echo requests", "--tcp"] {
        assert!(told.stderr.contains(said), "no `{said}`: {told:#?}");
    }
}

#[test]
fn a_recording_that_is_interrupted_leaves_no_file() {
    let scratch = support::Scratch::new();
    let file = scratch.path().join("recorded.toml");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let words = ["link", "record", "127.0.0.1", "--seconds", "60", "--tcp", &port, "--output"];
    let mut record = lastbyte(words);
    record.arg(&file).stdin(Stdio::null()).process_group(0);
    let running = Running::start(&mut record);
    listener.accept().unwrap();
    running.signal_group("INT");
    let told = running.answer_within(Duration::from_secs(5)).with_code(130);
    assert_eq!(told.stdout, "");
    assert!(!file.exists());
}

// --- demo ---------------------------------------------------------------------------------------

#[test]
#[ignore = "half a minute"]
fn the_demo_plays_six_acts() {
    if !can_make_links() {
        return;
    }
    let told = demo_that_counts();
    let acts: Vec<&str> = told.stdout.split("Act ").collect();
    let [_, one, two, three, four, five, six] = acts[..] else { panic!("not six acts: {told:#?}") };
    assert!(one.starts_with("1. ") && one.contains("Over loopback"), "{one}");
    let words: Vec<&str> = one.split_whitespace().collect();
    assert!(
        words.join(" ").contains("finish 100 of 100 0 of 100 1,000,000 1,000,000 FIN 100"),
        "{one}"
    );
    // Acked was asked for; the reader had ended too by then, or it had not.
    let proven = ["acked", "closed"].map(|level| format!("finish:\n  {level}: 1000000 of 1000000"));
    assert!(proven.iter().any(|proven| one.contains(proven)), "{one}");
    assert!(two.starts_with("2. ") && two.contains("usa-malaysia: RTT 217 ms"), "{two}");
    for said in ["sender claims ", "receiver got ", "of the 91.7 that fit"] {
        assert!(two.contains(said), "no `{said}`: {two}");
    }
    for name in support::congestion_controls("available") {
        assert!(three.contains(&format!("\n{name} ")), "no row of {name}: {three}");
    }
    assert!(three.contains("\nUse ") || three.contains("too close"), "{three}");
    assert!(four.starts_with("4. "), "{four}");
    // The delay that the first address is given, 200 ms, and a round trip of 217 ms; then that alone.
    assert!(time_after(four, "lastbyte dial  connected to 198.18.0.2:7 in ") >= 417.0, "{four}");
    assert!(time_after(four, "the next one   connected to 198.18.0.2:7 in ") >= 217.0, "{four}");
    assert!(five.starts_with("5. "), "{five}");
    for said in [
        "straight        3,000,000 bytes in ",
        "by the gate     3,000,000 bytes in ",
        "Connection reset by peer",
        "ended by upstream: 3,000,000 bytes received, 3,000,000 of them acknowledged",
        "reset by upstream: 1,500,000 bytes received, 1,500,000 of them acknowledged",
    ] {
        assert!(five.contains(said), "no `{said}`: {five}");
    }
    assert!(six.starts_with("6. "), "{six}");
    let sees_each_loss =
        answer(&mut lastbyte(["doctor", "--tier", "bpf", "--", "true"])).code() == 0;
    if !sees_each_loss && six.contains("nothing, with no more than") {
        lastbyte_testing::not_tested!("act 6 without tier bpf: {six}");
        told.with_code(1);
        return;
    }
    assert!(six.contains("\nLB101  loss  lastbyte[") && six.contains("bytes that it"), "{six}");
    assert!(!six.contains("That differs from what the reader counted"), "{told:#?}");
    told.with_code(0);
}

/// What the demo told the first time that no link was late, and that something was lost in act 6: of what
/// had all left the sender as it closed, nothing is.
#[track_caller]
fn demo_that_counts() -> Answer {
    let mut counted = None;
    first_that_counts("the demo", |_| {
        let told = answer_within(&mut lastbyte(["demo", "--seconds", "2"]), LATER);
        if let Some(why) = lateness(&told) {
            return Run::Void(why);
        }
        if told.stdout.contains("the reader got 1,000,000 of 1,000,000 bytes") {
            return Run::Void("act 6 lost nothing".to_owned());
        }
        counted = Some(told);
        Run::Right
    });
    counted.expect("one counts, or it has failed")
}

/// The time in ms that follows these words.
#[track_caller]
fn time_after(text: &str, words: &str) -> f64 {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("no `{words}`: {text}"));
    rest.split_once(" ms").unwrap().0.parse().unwrap()
}

#[test]
fn a_run_that_is_interrupted_ends_by_the_signal() {
    let words = ["quiz", "--runs", "100000", "--method", "finish"];
    let running = Running::start(lastbyte(words).stdin(Stdio::null()).process_group(0));
    // It is under way as soon as it has used some of the processor's time.
    let pid = running.pid();
    let has_begun = || Proc::default().stat(pid).unwrap().user > 0;
    wait_for("the quiz to be under way", SOON, has_begun);
    running.signal_group("INT");
    let told = running.answer_within(Duration::from_secs(5)).with_code(130);
    assert_eq!(told.stdout, "", "half a table is no answer");
}
