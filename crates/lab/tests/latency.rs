//! Round trips under load, against links whose queues are known.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_lab::latency::{Confidence, Responsiveness};
use lastbyte_lab::probe::{Echo, PROBE_BYTES, Prober, serve_echo};
use lastbyte_lab::record::Run;
use lastbyte_lab::{
    Buffers, Direction, Fairness, LabError, Load, Path, PathUp, Plan, Rounds, Settings, Subject,
    experiment,
};
use lastbyte_link::{FAR, Host, Link, LinkError, Namespace, Report, Scenario, Way};
use lastbyte_socket::blocking::TcpListener;
use lastbyte_stats::Summary;

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
            lastbyte_testing::not_tested!("{error}");
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

/// A path and an echo on its far host, which ends with the test.
fn with_echo<T>(path: &Path, work: impl FnOnce(&PathUp, Echo) -> T) -> Option<(T, Option<Report>)> {
    let path = match path.up(1) {
        Ok(path) => path,
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let any = SocketAddr::new(path.address(Host::Far), 0);
    let listener = path.run(Host::Far, || TcpListener::bind(any)).unwrap().unwrap();
    let echo = Echo::at(listener.local_addr().unwrap());
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        scope.spawn(|| serve_echo(&listener, &over).unwrap());
        let done = work(&path, echo);
        over.store(true, Ordering::Release);
        done
    });
    Some((done, path.down().unwrap()))
}

#[test]
fn an_idle_path_makes_as_many_round_trips_as_fit() {
    let scenario = Scenario::parse("test", "rtt = '40ms'\nrate = '20mbit'").unwrap();
    let probe = |path: &PathUp, echo| {
        let prober = Prober::start(path, echo).unwrap();
        thread::sleep(Duration::from_millis(1500));
        prober.end().unwrap()
    };
    let Some((mut latency, report)) = with_echo(&Path::Link(Box::new(scenario)), probe) else {
        return;
    };
    latency.load = Duration::from_millis(1500);
    let one = Responsiveness::of([&latency]).unwrap();
    // 60000 / 40 = 1500, and a little for the two hosts.
    assert!((1350.0..1500.0).contains(&one.rpm.median), "{one:?}");
    assert!(one.added_p50.abs() < 0.004 && one.inflation_p50 < 1.1, "{one:?}");
    assert_eq!((latency.idle.len(), one.confidence), (20, Confidence::Low));
    // What the probes cost: at most what they say.
    let probes = latency.handshakes.len() + latency.idle.len() / 2 + 1;
    let report = report.unwrap();
    for way in [&report.up, &report.down] {
        let (bytes, packets) = (way.bytes / probes as u64, way.packets / probes as u64);
        eprintln!("{bytes} bytes in {packets} packets a probe");
        assert!(bytes <= PROBE_BYTES.into(), "{bytes} bytes in {packets} packets a probe");
    }
    assert!((13..=15).contains(&latency.handshakes.len()), "{}", latency.handshakes.len());
}

#[test]
fn a_prober_waits_for_nobody() {
    let path = Path::Loopback.up(1).unwrap();
    // Its kernel shakes hands, and nobody answers.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let began = Instant::now();
    let prober = Prober::start(&path, Echo::at(listener.local_addr().unwrap())).unwrap();
    // The load waits for the idle path, for a time.
    assert!((5..7).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    thread::sleep(Duration::from_millis(550));
    let ending = Instant::now();
    let latency = prober.end().unwrap();
    assert!(ending.elapsed() < Duration::from_millis(500), "{:?}", ending.elapsed());
    assert_eq!(latency.idle.len(), 10, "handshakes alone");
    assert_eq!((latency.beside.len(), latency.unanswered as usize), (0, latency.handshakes.len()));
    assert!((4..=6).contains(&latency.unanswered), "{}", latency.unanswered);
}

#[test]
fn nobody_there_is_no_error() {
    let path = Path::Loopback.up(1).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let latency = Prober::start(&path, Echo::at(address)).unwrap().end().unwrap();
    assert!(latency.idle.is_empty() && latency.handshakes.is_empty());
    assert_eq!(Responsiveness::of([&latency]), None);
}

#[test]
fn an_echo_serves_many_and_outlives_rude_ones() {
    let ((), _) = with_echo(&Path::Loopback, |_, echo| {
        let connect = || TcpStream::connect(echo.address).unwrap();
        // More than are served at once, a few of which only stand there.
        let _idle: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
        for _ in 0..200 {
            let mut one = connect();
            one.write_all(b"?").unwrap();
            one.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            one.read_exact(&mut [0; 1]).unwrap();
        }
        let mut flood = connect();
        flood.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        // It reads nothing: at some time nobody listens to it any more.
        let flooded = (0..1 << 20).find_map(|_| flood.write_all(&[0x5A; 4096]).err());
        let kind = flooded.unwrap().kind();
        assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&kind), "{kind}");
    })
    .unwrap();
}

#[test]
fn the_queue_of_a_link_is_what_is_measured() {
    let down = Settings { direction: Direction::Down, streams: 2, ..cubic() };
    for (settings, way) in [(cubic(), Way::Up), (down, Way::Down)] {
        let path = "rtt = '30ms'\nrate = '20mbit'\nqueue = '40ms'";
        let Some(runs) = runs(path, &[settings], 3.0, true) else { return };
        let run = runs.first().unwrap();
        show("40 ms of queue", run);
        let (one, link) = (of(run), run.link.unwrap());
        let queue = match way {
            Way::Up => link.up,
            Way::Down => link.down,
        };
        // The link's figures are of the whole run, slow start and the last packets included.
        let within = |measured: f64, truth: f64, by: f64| (measured * 1e3 - truth).abs() < by;
        assert!(within(one.added_p50, queue.queued_p50_ms, 10.0), "{one:?} {queue:?}");
        assert!(one.added_p95 * 1e3 < queue.queued_p99_ms + 5.0, "{one:?} {queue:?}");
        assert!(one.inside_p50.unwrap() > one.loaded_p50, "{one:?}");
        assert!(one.samples >= 24, "{one:?}");
        let asked = run.latency.as_ref().unwrap().inside.len();
        assert!((20..=30).contains(&asked), "{asked} of 29 questions answered");
    }
}

#[test]
fn little_unsent_means_early_answers() {
    let low = Settings { notsent_lowat: Some("16KiB".parse().unwrap()), ..cubic() };
    let path = "rtt = '30ms'\nrate = '4mbit'\nqueue = '100ms'";
    let Some(runs) = runs(path, &[cubic(), low], 4.0, true) else { return };
    let inside = |run: &Run| of(run).inside_p50.unwrap();
    let (without, with) = (inside(&runs[0]), inside(&runs[1]));
    eprintln!("without a limit {without:.3} s, with 16 KiB {with:.3} s");
    assert!(with < without / 1.5, "{without} {with}");
    let rate = |run: &Run| run.received_bits_per_s();
    assert!(rate(&runs[1]) > 0.97 * rate(&runs[0]), "it costs no throughput");
}

#[test]
#[ignore = "takes half a minute: a queue of two seconds takes its time to fill"]
fn bufferbloat_is_seen() {
    let path = "rtt = '30ms'\nrate = '20mbit'\nqueue = '2s'";
    let Some(runs) = runs(path, &[cubic()], 24.0, true) else { return };
    let run = runs.first().unwrap();
    show("bufferbloat", run);
    let one = of(run);
    // How soon cubic leaves slow start, and so how much of the queue it has filled, differs.
    assert!((0.6..2.5).contains(&one.loaded_p95), "{one:?}");
    assert!((10.0..120.0).contains(&one.rpm.median), "{one:?}");
    let longest = run.link.unwrap().up.queued_p99_ms;
    assert!((0.9..1.1).contains(&(one.added_p95 * 1e3 / longest)), "{one:?} {longest}");
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
    if std::env::var_os("LASTBYTE_TABLES").is_none() {
        return lastbyte_testing::not_tested!(
            "figures to look at, by LASTBYTE_TABLES=1 or make bench-lab"
        );
    }
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
            Settings { direction: Direction::Down, ..cubic() },
            10.0,
        ),
        (
            "both",
            "rtt = '30ms'\nrate = '20mbit'\nqueue = '200ms'",
            Settings { direction: Direction::Both, ..cubic() },
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
#[ignore = "takes minutes: ten runs of eight seconds and five of iperf3, on each of two links"]
fn probing_costs_less_than_a_hundredth() {
    let Some(_) = runs("rate = '20mbit'", &[cubic()], 0.1, false) else { return };
    thread::scope(|scope| {
        for path in ["rtt = '30ms'\nrate = '20mbit'", "rtt = '30ms'\nrate = '95mbit'"] {
            scope.spawn(move || cost(path));
        }
    });
}

/// Runs with probes, without, and of iperf3, in turn.
fn cost(path: &str) {
    let (mut with, mut without, mut iperf3) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        for (latency, rates) in [(true, &mut with), (false, &mut without)] {
            let runs = runs(path, &[cubic()], 8.0, latency).unwrap();
            rates.extend(runs.first().map(Run::received_bits_per_s));
        }
        iperf3.extend(iperf3_rate(path, 8));
    }
    eprintln!("{path:?}: with {with:.0?} without {without:.0?} iperf3 {iperf3:.0?}");
    let median = |rates: &[f64]| Summary::of(rates).unwrap().median;
    let (with, without, iperf3) = (median(&with), median(&without), median(&iperf3));
    let (probed, beside) = (with / without, with / iperf3);
    eprintln!("{path:?}: {probed:.4} of a run without probes, {beside:.4} of iperf3");
    assert!(probed > 0.99, "{path:?}: probes take {probed}");
    assert!((0.97..1.03).contains(&beside), "{path:?}: {beside} of iperf3");
}

/// What iperf3's receiver counts; `None` where it is not installed or the link was not true.
fn iperf3_rate(path: &str, seconds: u32) -> Option<f64> {
    let link = Link::up(&Scenario::parse("test", path).unwrap().spec, 1).unwrap();
    let far = FAR.to_string();
    let start = |host: &Namespace, words: &[&str]| {
        let start = || Command::new("iperf3").args(words).stdout(Stdio::piped()).spawn();
        host.run(start).unwrap()
    };
    let mut server = start(link.far(), &["-s", "-1", "-p", "5201"]).ok()?;
    let time = seconds.to_string();
    let words = ["-c", &far, "-p", "5201", "-C", "cubic", "-t", &time, "-J"];
    // The server takes a moment to listen.
    let answer = (0..50).find_map(|_| {
        let output = start(link.near(), &words).ok()?.wait_with_output().unwrap();
        thread::sleep(Duration::from_millis(100));
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    });
    server.wait().unwrap();
    let report = link.down().unwrap();
    let answer = answer.filter(|_| report.broken_promise().is_none())?;
    let (_, received) = answer.split_once("\"sum_received\"")?;
    let (_, rate) = received.split_once("\"bits_per_second\":")?;
    rate.split([',', '}']).next()?.trim().parse().ok()
}
