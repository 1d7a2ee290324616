//! Round trips under load, against links whose queues are known.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_lab::latency::Responsiveness;
use lastbyte_lab::record::Run;
use lastbyte_lab::{
    Buffers, Fairness, LabError, Load, Path, Plan, Rounds, Settings, Subject, experiment,
};
use lastbyte_link::{LinkError, Scenario};

/// The runs of some settings over a path; `None`, aloud, where paths cannot be made here.
fn runs(path: &str, settings: &[Settings], seconds: f64, latency: bool) -> Option<Vec<Run>> {
    let subject = |one: &Settings| Arc::new(one.clone()) as Arc<dyn Subject>;
    let plan = Plan {
        path: Path::Link(Box::new(Scenario::parse("test", path).unwrap())),
        subjects: settings.iter().map(subject).collect(),
        load: Load::time(Duration::from_secs_f64(seconds)),
        rounds: Rounds::exactly(1),
        latency,
        fairness: Fairness::Never,
        seed: 1,
        port: 0,
        parallel: 1,
        command: Vec::new(),
    };
    match experiment(&plan, &mut |_| ControlFlow::Continue(())) {
        Ok(done) => {
            for void in &done.void {
                eprintln!("void: {void:?}");
            }
            Some(done.runs)
        }
        Err(LabError::Link(error @ LinkError::Rights { .. })) => {
            eprintln!("NOT TESTED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn cubic() -> Settings {
    Settings::new("cubic", Buffers::Auto)
}

fn of(run: &Run) -> Responsiveness {
    Responsiveness::of(&run.latency).unwrap()
}

fn show(name: &str, run: &Run) {
    let one = of(run);
    let ms = |seconds: f64| seconds * 1e3;
    let inside = |of: Option<f64>| of.map_or(f64::NAN, ms);
    let link = run.link.unwrap();
    eprintln!(
        "{name:32} {:6.2} Mbit/s idle {:6.1} p50 {:7.1} p95 {:7.1} inside p50 {:7.1} p95 {:7.1} \
         rpm {:7.1} {:?} n {} unanswered {} | link up p50 {:7.1} p99 {:7.1} down p50 {:5.1} p99 {:5.1} drops {}",
        run.received_bits_per_s() / 1e6,
        ms(one.idle_p50),
        ms(one.loaded_p50),
        ms(one.loaded_p95),
        inside(one.inside_p50),
        inside(one.inside_p95),
        one.rpm.median,
        one.confidence,
        one.samples,
        one.unanswered,
        link.up.queued_p50_ms,
        link.up.queued_p99_ms,
        link.down.queued_p50_ms,
        link.down.queued_p99_ms,
        link.up.dropped_packets,
    );
}

#[test]
#[ignore = "takes minutes: figures to look at"]
fn table() {
    let bbr = Settings::new("bbr", Buffers::Auto);
    let low = Settings { notsent_lowat: Some("16KiB".parse().unwrap()), ..cubic() };
    let slow = "rtt = '30ms'\nrate = '4mbit'\nqueue = '100ms'";
    for (name, path, settings, seconds) in [
        ("bufferbloat", "rtt = '30ms'\nrate = '20mbit'\nqueue = '2s'", cubic(), 12.0),
        ("bufferbloat 24 s", "rtt = '30ms'\nrate = '20mbit'\nqueue = '2s'", cubic(), 24.0),
        ("bufferbloat bbr", "rtt = '30ms'\nrate = '20mbit'\nqueue = '2s'", bbr, 12.0),
        ("20 ms of queue", "rtt = '30ms'\nrate = '20mbit'\nqueue = '20ms'", cubic(), 10.0),
        ("95 mbit 1 bdp", "rtt = '40ms'\nrate = '95mbit'", cubic(), 10.0),
        ("slow, no lowat", slow, cubic(), 10.0),
        ("slow, lowat 16 KiB", slow, low, 10.0),
        (
            "slow, fixed 4 MiB",
            slow,
            Settings::new("cubic", Buffers::Fixed("4MiB".parse().unwrap())),
            10.0,
        ),
        (
            "down",
            "rtt = '30ms'\nrate = '20mbit'\nqueue = '200ms'",
            Settings { direction: lastbyte_lab::Direction::Down, ..cubic() },
            10.0,
        ),
        (
            "both",
            "rtt = '30ms'\nrate = '20mbit'\nqueue = '200ms'",
            Settings { direction: lastbyte_lab::Direction::Both, ..cubic() },
            10.0,
        ),
    ] {
        let Some(runs) = runs(path, &[settings], seconds, true) else { return };
        for run in &runs {
            show(name, run);
        }
    }
}

#[test]
#[ignore = "scratch"]
fn scratch() {
    let low = Settings { notsent_lowat: Some("16KiB".parse().unwrap()), ..cubic() };
    let slow = "rtt = '30ms'\nrate = '4mbit'\nqueue = '100ms'";
    for run in runs(slow, &[low], 6.0, true).unwrap() {
        show("low", &run);
        for sample in &run.flows[0].sent.as_ref().unwrap().samples {
            eprintln!(
                "{:?} cwnd {} unacked {} notsent {:?} rtt {} peer {:?}",
                sample.at,
                sample.cwnd_bytes,
                sample.unacked_bytes,
                sample.notsent_bytes,
                sample.rtt_us,
                sample.peer_window_bytes
            );
        }
        for one in &run.latency.unwrap().inside {
            eprint!("{:.1}:{:.0} ", one.at.as_secs_f64(), one.took.as_secs_f64() * 1e3);
        }
    }
}
