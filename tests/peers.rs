//! Beside a peer: iperf3 over the same emulated paths. What it reports as sent and what its receiver
//! got are two figures; the lab's are one. And over the published path both have to measure the
//! same, or one of them is wrong.
//!
//! These need iperf3 and take their time: `make test-real` runs them.

use std::process::Command;

use lastbyte_testing::{Run, first_that_counts};
use serde_json::Value;

use crate::support::{
    LATER, answer, answer_that_counts, answer_within, can_make_links, congestion_controls, lastbyte,
};

/// Where iperf3's server listens; `-1` ends it after one test.
const SERVER: &str = "iperf3 -s -1";

#[test]
#[ignore = "needs iperf3"]
fn iperf3_ends_before_its_bytes_arrive_and_the_lab_does_not() {
    if !can_compare("cubic") {
        return;
    }
    // Which bytes arrive rests on no rate: a path that is late is as good.
    let (iperf3, _) = iperf3(&["--rtt", "100ms"], &["-n", "4M", "-C", "cubic"]);
    let bytes = |sum: &str| iperf3["end"][sum]["bytes"].as_u64().unwrap();
    let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
    assert_eq!(sent, 4 << 20, "iperf3 sends what it was asked to, and says so");
    eprintln!("iperf3 says {sent} bytes sent; its receiver has {received}");
    if received >= sent {
        let version = version();
        assert!(!version.starts_with("iperf 3.12 "), "{version} is known to end too early");
        lastbyte_testing::not_tested!(
            "{version} waited for its bytes; older ones are known not to"
        );
    }

    let words = ["lab", "--rtt", "100ms", "--bytes", "4M", "--rounds", "3"];
    let words = [&words[..], &["--congestion", "cubic", "--json"]].concat();
    let play = || answer_within(&mut lastbyte(&words), LATER);
    let told = answer_that_counts("the lab's part", play).with_code(0);
    let lines = told.json_lines();
    let runs: Vec<&Value> = lines.iter().filter(|line| line["type"] == "run").collect();
    // One that was late is not among them.
    assert!((1..=3).contains(&runs.len()), "{told:#?}");
    for run in runs {
        assert_eq!((&run["written_bytes"], &run["complete"]), (&(4 << 20).into(), &true.into()));
        assert_eq!(run["received_bytes"], run["written_bytes"], "{run:#}");
    }
}

#[test]
#[ignore = "needs iperf3"]
fn over_the_published_path_iperf3_and_the_lab_agree() {
    if !can_compare("bbr") {
        return;
    }
    let mut counted = None;
    first_that_counts("iperf3's part", |_| {
        let (report, stderr) = iperf3(&["usa-malaysia"], &["-t", "10", "-C", "bbr"]);
        if !stderr.contains("link: kept its promise") {
            return Run::Void(stderr);
        }
        counted = Some(report);
        Run::Right
    });
    let iperf3 = counted.expect("one counts, or it has failed");
    let peer = iperf3["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();

    let words = ["lab", "usa-malaysia", "--seconds", "10", "--rounds", "1"];
    let words = [&words[..], &["--congestion", "bbr", "--json"]].concat();
    let play = || answer_within(&mut lastbyte(&words), LATER);
    let told = answer_that_counts("the lab's part", play).with_code(0);
    let lines = told.json_lines();
    let run = lines.iter().find(|line| line["type"] == "run").unwrap();
    let ours = run["received_bits_per_s"].as_f64().unwrap();

    let ratio = ours / peer;
    eprintln!("received: iperf3 {:.1} Mbit/s, lab {:.1} Mbit/s", peer / 1e6, ours / 1e6);
    // A coarse guard; bench/ has the comparison.
    assert!((0.85..=1.15).contains(&ratio), "lab {ours} bit/s, iperf3 {peer} bit/s: {ratio}");
}

/// Runs iperf3 between the ends of a path and returns what its client reports, and what the link says.
#[track_caller]
fn iperf3(path: &[&str], client: &[&str]) -> (Value, String) {
    let mut command = lastbyte(["link", "run"]);
    command.args(path).args(["--far", SERVER, "--", "iperf3", "-c", "far", "-J"]).args(client);
    let told = answer_within(&mut command, LATER).with_code(0);
    // The server writes to the same place, before and after: the client's JSON is between.
    let json = told.stdout.find("\n{").map_or(told.stdout.as_str(), |at| &told.stdout[at..]);
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let report = values.next().unwrap().unwrap_or_else(|error| panic!("{error}: {told:#?}"));
    assert!(report["error"].is_null(), "{report:#}");
    (report, told.stderr.clone())
}

/// Whether there are the rights, the congestion control and iperf3; says so if not.
fn can_compare(congestion: &str) -> bool {
    if !congestion_controls("available").iter().any(|name| name == congestion) {
        lastbyte_testing::not_tested!("this kernel does not offer {congestion}");
        return false;
    }
    // `make test-real` installs it.
    assert!(!version().is_empty(), "there is no iperf3: run `make test-real`, which installs it");
    can_make_links()
}

/// The first line of `iperf3 --version`; empty where there is none.
fn version() -> String {
    if Command::new("iperf3").arg("-v").output().is_err() {
        return String::new();
    }
    let told = answer(Command::new("iperf3").arg("-v"));
    told.stdout.lines().next().unwrap_or_default().to_owned()
}
