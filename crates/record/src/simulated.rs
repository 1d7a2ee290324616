//! Recording over the model of a path, without kernel and clock: deterministic, for any path.

use std::time::Duration;

use lastbyte_link::model::{Fate, Model, Packet, nanos};
use lastbyte_link::{Queue, Scenario, Shape, Spec, Way};

use super::observed::{Observed, Reply};
use super::packet_trains::PacketTrains;
use super::{Load, Method, Outcome, Plan, Recorded, Subject, Target, estimate, small_probes};

/// How fast this machine sends, at best: 1500 bytes in 8 us are 1.5 Gbit/s.
const SENDING: u64 = 8_000;

/// A path whose far host answers at once.
struct Path {
    up: Model,
    down: Model,
    now: u64,
    /// The length of the far host's reply to a packet of this length; 0 for none.
    answers: fn(u32) -> u32,
}

impl Path {
    fn new(spec: &Spec, seed: u64) -> Self {
        let (up, down) = (Model::new(spec, Way::Up, seed), Model::new(spec, Way::Down, !seed));
        Self { up, down, now: 0, answers: |bytes| bytes }
    }

    fn exchange(&mut self, load: &Load) -> Observed {
        let mut seen = Observed { ip_bytes: load.ip_bytes, ..Observed::default() };
        let answer = (self.answers)(load.ip_bytes);
        let mut there = Vec::new();
        for number in 0..load.packets {
            seen.sent.push(Duration::from_nanos(self.now));
            let packet = Packet { bytes: load.ip_bytes, ecn_capable: false };
            if let Fate::Deliver(arrival) = self.up.offer(self.now, packet)
                && answer > 0
            {
                there.extend(vec![(arrival.at, number); 1 + usize::from(arrival.duplicated)]);
            }
            self.now += nanos(load.every).max(SENDING);
        }
        there.sort_unstable();
        let mut back = Vec::new();
        for (at, number) in there {
            let packet = Packet { bytes: answer, ecn_capable: false };
            if let Fate::Deliver(arrival) = self.down.offer(at, packet) {
                back.extend(vec![(arrival.at, number); 1 + usize::from(arrival.duplicated)]);
            }
            self.now = self.now.max(at);
        }
        back.sort_unstable();
        seen.replies.extend(back.iter().map(|(at, number)| Reply {
            number: *number,
            at: Duration::from_nanos(*at),
            ip_bytes: answer,
        }));
        let last = back.last().map_or(0, |(at, _)| *at);
        self.now = self.now.max(last) + nanos(super::PATIENCE);
        seen
    }

    fn record(&mut self, plan: &Plan) -> Recorded {
        let load = Load::small(40, plan.probes(Method::Echo));
        let probes = small_probes(&load, |load| Ok::<_, ()>(self.exchange(load))).unwrap();
        let mut trains = PacketTrains::new(plan.train_budget, &probes);
        while let Some(load) = trains.next() {
            let seen = self.exchange(&load);
            trains.add(seen);
        }
        estimate::recorded(Method::Echo, &probes, Some(&trains))
    }
}

fn spec(toml: &str) -> Spec {
    Scenario::parse("test", toml).unwrap().spec
}

/// What is recorded of a path with a default plan.
fn recorded(toml: &str, seed: u64) -> Recorded {
    Path::new(&spec(toml), seed).record(&Plan::default())
}

fn outcome(recorded: &Recorded, subject: Subject) -> Outcome {
    let figure = recorded.figures.iter().find(|figure| figure.subject == subject);
    figure.unwrap_or_else(|| panic!("no {subject}: {recorded:#?}")).outcome
}

fn basis(recorded: &Recorded, subject: Subject) -> String {
    let figure = recorded.figures.iter().find(|figure| figure.subject == subject);
    figure.map(|figure| figure.basis.clone()).unwrap_or_default()
}

#[track_caller]
fn is_near(got: f64, asked: f64, tolerance: f64) {
    assert!(
        (got - asked).abs() <= tolerance,
        "{got} instead of {asked}, more than {tolerance} off"
    );
}

/// Round trip within 0.5 ms, rate within 3 %, queue within 10 %.
#[track_caller]
fn is_as_asked(got: &Recorded, asked: &Spec) {
    is_near(got.spec.rtt().as_secs_f64(), asked.rtt().as_secs_f64(), 0.5e-3);
    rate_and_queue_are_as_asked(got, asked);
}

#[track_caller]
fn rate_and_queue_are_as_asked(got: &Recorded, asked: &Spec) {
    let (rate, queue) = (asked.up.rate.unwrap().bytes_per_s(), asked.queue_bytes(&asked.up));
    is_near(got.spec.up.rate.unwrap().bytes_per_s(), rate, rate * 0.03);
    let queue = queue.unwrap() as f64;
    is_near(got.spec.queue_bytes(&got.spec.up).unwrap() as f64, queue, queue * 0.1);
}

#[test]
fn a_rate_with_a_queue_is_found() {
    for toml in [
        "rtt = '30ms'\nrate = '20mbit'\nqueue = '100ms'",
        "rtt = '4ms'\nrate = '300mbit'\nqueue = '40packets'",
        "rtt = '40ms'\nrate = '200kbit'\nqueue = '15kB'",
        "rtt = '30ms'\nloss = '2%'\nrate = '20mbit'\nqueue = '100ms'",
        "rtt = '200ms'\nburst_loss = { share = '5%', packets = 5.0 }\nrate = '100mbit'\nqueue = '300kB'",
    ] {
        let (got, asked) = (recorded(toml, 3), spec(toml));
        is_as_asked(&got, &asked);
        assert!(matches!(outcome(&got, Subject::Queue), Outcome::Known { .. }), "{toml}");
        assert!(got.bytes < 2 * super::TRAIN_BUDGET.bytes(), "{toml}: {}", got.bytes);
    }
}

#[test]
fn a_queue_longer_than_the_budget_is_at_least_so_long() {
    let got = recorded("rtt = '217ms'\nrate = '95mbit'", 1);
    assert!(matches!(outcome(&got, Subject::Queue), Outcome::Above(b) if b > 1e6 && b < 2.6e6));
    assert_eq!(got.spec.up.queue, Some(Queue::Bdp(1.0)), "the bound is shorter than that");
    let toml = "rtt = '30ms'\nrate = '20mbit'\nqueue = '2s'";
    let got = recorded(toml, 1);
    let Outcome::Above(bound) = outcome(&got, Subject::Queue) else { panic!("{got:#?}") };
    assert_eq!(got.spec.up.queue.unwrap().to_string(), format!("{bound:.0}B"), "it is longer");
    // With more bytes it is seen.
    let plan = Plan { train_budget: "40MB".parse().unwrap(), ..Plan::default() };
    let got = Path::new(&spec("rtt = '30ms'\nrate = '95mbit'\nqueue = '2.6MB'"), 1).record(&plan);
    is_near(got.spec.queue_bytes(&got.spec.up).unwrap() as f64, 2.6e6, 0.26e6);
}

#[test]
fn a_short_budget_is_kept() {
    let path = spec("rtt = '30ms'\nrate = '20mbit'\nqueue = '100ms'");
    for budget in [0, 24_000, 100_000, 1_000_000] {
        let train_budget = lastbyte_units::ByteSize::from_bytes(budget);
        let plan = Plan { train_budget, ..Plan::default() };
        let got = Path::new(&path, 1).record(&plan);
        assert!(got.bytes - 1200 * 40 <= budget, "{}", got.bytes);
        assert_eq!(got.spec.up.rate.is_some(), budget >= 24_000, "one train is enough");
    }
}

#[test]
fn jitter_is_found_with_its_shape_and_order() {
    let toml = "rtt = '50ms'\njitter = '5ms'\njitter_shape = 'normal'\nreorder = true\n\
                rate = '20mbit'\nqueue = '100ms'";
    let got = recorded(toml, 7);
    let jitter = got.spec.up.jitter.as_ref().unwrap();
    is_near(jitter.shape.deviation().as_secs_f64(), 5e-3, 0.5e-3);
    assert!(matches!(jitter.shape, Shape::Normal(_)) && jitter.reorders, "{jitter:?}");
    rate_and_queue_are_as_asked(&got, &spec(toml));

    let toml = "rtt = '30ms'\njitter = '2ms'\njitter_shape = 'normal'\nreorder = true\n\
                rate = '20mbit'\nqueue = '100ms'";
    for seed in 0..10 {
        let got = recorded(toml, seed);
        let jitter = got.spec.up.jitter.as_ref().unwrap();
        is_near(jitter.shape.deviation().as_secs_f64(), 2e-3, 0.2e-3);
        assert!(matches!(jitter.shape, Shape::Normal(_)) && jitter.reorders, "{jitter:?}");
        assert!(matches!(outcome(&got, Subject::Loss), Outcome::Below(_)), "seed {seed}: {got:#?}");
        is_near(got.spec.rtt().as_secs_f64(), 30e-3, 1e-3);
        rate_and_queue_are_as_asked(&got, &spec(toml));
    }

    let toml = "rtt = '8ms'\njitter = '2ms'\nburst_loss = { share = '2%', packets = 3.0 }\n\
                rate = '40mbit'\nqueue = '100ms'";
    let got = recorded(toml, 7);
    let jitter = got.spec.up.jitter.as_ref().unwrap();
    is_near(jitter.shape.deviation().as_secs_f64(), 2e-3 / 3.0_f64.sqrt(), 0.12e-3);
    assert!(matches!(jitter.shape, Shape::Uniform(_)) && !jitter.reorders, "{jitter:?}");
    is_as_asked(&got, &spec(toml));
}

/// Where order is kept and the delay varies by more than the probes are apart, they have to be sent
/// further apart: else one holds up the next, and the delay seems longer and steadier than it is.
#[test]
fn jitter_longer_than_the_time_between_probes_is_found() {
    let toml = "rtt = '50ms'\njitter = '8ms'\njitter_shape = 'normal'\nrate = '10mbit'\n\
                queue = '400ms'";
    for seed in 0..5 {
        let got = recorded(toml, seed);
        let jitter = got.spec.up.jitter.as_ref().unwrap();
        // Of fewer than 300 probes the shape is wrong now and then; the standard deviation is not.
        is_near(jitter.shape.deviation().as_secs_f64(), 8e-3, 1.2e-3);
        is_near(got.spec.rtt().as_secs_f64(), 50e-3, 2.5e-3);
        assert!(!jitter.reorders, "{jitter:?}");
        rate_and_queue_are_as_asked(&got, &spec(toml));
    }
}

/// A recording so short that there is no time for probes further apart had no delay at all.
#[test]
fn a_short_recording_of_a_path_that_varies_has_a_delay() {
    let path = spec("rtt = '50ms'\njitter = '8ms'\njitter_shape = 'normal'");
    for ms in [300, 1000, 1100, 2000] {
        let plan = Plan { probes_for: Duration::from_millis(ms), ..Plan::default() };
        let got = Path::new(&path, 1).record(&plan);
        is_near(got.spec.rtt().as_secs_f64(), 50e-3, 10e-3);
    }
}

#[test]
fn what_varies_less_than_this_machine_is_no_jitter() {
    let jitter =
        |size: &str| recorded(&format!("rtt = '20ms'\njitter = '{size}'"), 1).spec.up.jitter;
    assert_eq!(jitter("90us"), None);
    assert!(jitter("120us").is_some());
}

#[test]
fn a_path_without_a_rate_gets_none_and_no_queue() {
    let got = recorded("rtt = '40ms'", 1);
    assert_eq!((got.spec.up.rate, got.spec.up.queue), (None, None));
    // As fast as the sender, less what it may be off.
    let limit = 1500.0 * 8.0 / (SENDING as f64 * 1e-9);
    assert!(
        matches!(outcome(&got, Subject::Rate), Outcome::Above(r) if r > 0.7 * limit && r < limit)
    );
    assert_eq!(outcome(&got, Subject::Queue), Outcome::Unknown);
    // Jitter that keeps order bunches packets up; that is no rate.
    let got = recorded("rtt = '40ms'\njitter = '3ms'", 1);
    assert_eq!(got.spec.up.rate, None, "{:#?}", got.figures);
    assert!(matches!(outcome(&got, Subject::Rate), Outcome::Above(rate) if rate > 1e8));
}

#[test]
fn a_rate_as_fast_as_this_machine_has_no_queue_to_be_told() {
    let queue = |rate: &str| {
        let got = recorded(&format!("rtt = '4ms'\nrate = '{rate}'\nqueue = '100kB'"), 1);
        (outcome(&got, Subject::Queue), got.spec.up.queue)
    };
    // 1.5 Gbit/s are sent.
    assert!(matches!(queue("700mbit"), (Outcome::Known { .. }, Some(Queue::Bytes(_)))));
    assert_eq!(queue("800mbit"), (Outcome::Unknown, Some(Queue::Bdp(1.0))));
}

#[test]
fn a_policer_is_no_queue() {
    let toml = "rtt = '40ms'\nrate = '1gbit'\npolicer = { rate = '20mbit', burst = '128KiB' }";
    let got = recorded(toml, 1);
    assert!(matches!(outcome(&got, Subject::Queue), Outcome::Above(_)), "{:#?}", got.figures);
    assert!(basis(&got, Subject::Queue).contains("policer"));
}

#[test]
fn the_slower_direction_is_written_for_both() {
    let got = recorded("rtt = '40ms'\n[up]\nrate = '95mbit'\n[down]\nrate = '20mbit'", 1);
    is_near(got.spec.up.rate.unwrap().bits_per_s() as f64, 20e6, 0.1e6);
    assert_eq!(got.spec.up, got.spec.down);
}

#[test]
fn losses_are_found_and_none_is_said_to_be_less_than() {
    for seed in 0..5 {
        let got = recorded("rtt = '30ms'\nloss = '2%'", seed);
        let Outcome::Known { low, high, .. } = outcome(&got, Subject::Loss) else {
            panic!("{got:?}")
        };
        assert!(low < 0.02 && 0.02 < high && got.spec.up.loss.is_some(), "seed {seed}: {got:#?}");
        let toml = "rtt = '30ms'\nburst_loss = { share = '4%', packets = 5.0 }";
        let got = recorded(toml, seed);
        let bursts = got.spec.up.burst_loss.unwrap();
        assert!(bursts.packets > 2.5 && bursts.packets < 10.0, "seed {seed}: {bursts:?}");
        assert_eq!(got.spec.up.loss, None);
    }
    let got = recorded("rtt = '30ms'", 1);
    assert!(matches!(outcome(&got, Subject::Loss), Outcome::Below(p) if p > 0.002 && p < 0.003));
    assert_eq!((got.spec.up.loss, got.spec.up.burst_loss), (None, None));
}

#[test]
fn duplicates_are_not_losses_nor_overtaken() {
    let got = recorded("rtt = '30ms'\nduplicate = '5%'", 1);
    is_near(got.spec.up.duplicate.unwrap().fraction(), 0.05, 0.015);
    assert!(matches!(outcome(&got, Subject::Loss), Outcome::Below(_)), "{:#?}", got.figures);
}

#[test]
fn a_host_that_answers_small_packets_alone_has_no_rate() {
    let path = spec("rtt = '30ms'\nrate = '20mbit'");
    let answered = |answers| {
        let got = Path { answers, ..Path::new(&path, 1) }.record(&Plan::default());
        (outcome(&got, Subject::Rate), basis(&got, Subject::Rate))
    };
    let (rate, why) = answered(|bytes| if bytes < 100 { bytes } else { 0 });
    assert_eq!(rate, Outcome::Unknown);
    assert!(why.contains("larger echo requests"), "{why}");
    let (rate, why) = answered(|bytes| if bytes < 1450 { bytes } else { 0 });
    assert!(matches!(rate, Outcome::Known { got, .. } if (got - 20e6).abs() < 1e5), "{rate:?}");
    assert!(why.contains("1400 bytes") && why.contains("smaller one"), "{why}");
    // Some give back no more than the first bytes: then the way back carries little.
    let (rate, why) = answered(|bytes| bytes.min(92));
    assert!(matches!(rate, Outcome::Known { got, .. } if (got - 20e6).abs() < 1e5), "{rate:?}");
    assert!(why.contains("way out"), "{why}");
}

#[test]
fn a_train_whose_replies_found_no_room_here_is_left_out() {
    let path = spec("rtt = '30ms'\nrate = '20mbit'\nqueue = '100ms'");
    let mut path = Path::new(&path, 1);
    let probes = path.exchange(&Load::small(40, 100));
    let mut trains = PacketTrains::new(super::TRAIN_BUDGET, &probes);
    let mut sent = 0;
    while let Some(load) = trains.next() {
        let mut seen = path.exchange(&load);
        if sent % 2 == 1 {
            seen.replies.truncate(seen.replies.len() / 2);
            seen.overflowed = 1;
        }
        sent += 1;
        trains.add(seen);
    }
    let got = estimate::recorded(Method::Echo, &probes, Some(&trains));
    is_near(got.spec.up.rate.unwrap().bits_per_s() as f64, 20e6, 1e5);
    assert!(got.assumes.iter().any(|assumed| assumed.contains("too busy")), "{got:#?}");
}

#[test]
fn what_is_written_is_what_is_read() {
    let target = Target { address: ([198, 18, 0, 2], 0).into(), method: Method::Echo };
    for toml in [
        "rtt = '40ms'",
        "rtt = '217ms'\nloss = '0.5%'\nrate = '95mbit'\nqueue = '1bdp'",
        "rtt = '30ms'\nrate = '1234kbit'\nqueue = '40kB'\nduplicate = '1%'",
        "rtt = '8ms'\njitter = '2ms'\nreorder = true\nrate = '40mbit'\nqueue = '100ms'\n\
         burst_loss = { share = '2%', packets = 3.0 }",
    ] {
        let got = recorded(toml, 2);
        let text = got.to_toml(&target, "a \"host\"\nrtt = 1\\", "2026-01-02");
        let read =
            Scenario::parse("written", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read.spec, got.spec, "{text}");
        assert_eq!(read.title, "recorded 2026-01-02: a ?host??rtt = 1?");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for said in ["2026-01-02", "198.18.0.2", "echo requests", "one end", "round trip", "queue"]
        {
            assert!(text.contains(said), "no {said}: {text}");
        }
    }
}

/// Where losses come in bursts and the delay varies, one recording may be unlucky; not the most.
#[test]
fn nine_of_ten_are_right_where_it_is_hardest() {
    let toml = "rtt = '50ms'\njitter = '5ms'\njitter_shape = 'normal'\nreorder = true\n\
                rate = '20mbit'\nqueue = '100ms'\nburst_loss = { share = '3%', packets = 4.0 }";
    let asked = spec(toml);
    let near = |got: f64, asked: f64, share: f64| (got / asked - 1.0).abs() <= share;
    let is_right = |seed: &u64| {
        let got = recorded(toml, *seed);
        let rate = got.spec.up.rate.map_or(0.0, |rate| rate.bytes_per_s());
        let queue = got.spec.queue_bytes(&got.spec.up).unwrap_or(0) as f64;
        let loss = matches!(outcome(&got, Subject::Loss),
            Outcome::Known { low, high, .. } if low <= 0.03 && 0.03 <= high);
        let reorders = got.spec.up.jitter.as_ref().is_some_and(|jitter| jitter.reorders);
        loss && reorders
            && near(rate, 2.5e6, 0.03)
            && near(queue, 250_000.0, 0.1)
            && (got.spec.rtt().as_secs_f64() - asked.rtt().as_secs_f64()).abs() < 1.5e-3
    };
    let right = (0..20).filter(is_right).count();
    assert!(right >= 18, "{right} of 20");
}
