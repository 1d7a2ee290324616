//! Recording over the model of a path, without kernel and clock: any path, the same each time.

use std::time::Duration;

use super::seen::{Reply, Seen};
use super::trains::Trains;
use super::{Figure, Load, Method, Outcome, Plan, Recorded, Subject, fit, small_probes};
use crate::clock::nanos;
use crate::model::{Fate, Model, Packet};
use crate::scenario::Scenario;
use crate::spec::{Queue, Shape, Spec};

/// How fast this machine sends, at best: 1500 bytes in 8 us are 1.5 Gbit/s.
const SENDING: u64 = 8_000;

/// A path whose far host answers at once.
struct Path {
    up: Model,
    down: Model,
    now: u64,
    /// Whether the far host answers packets of this length.
    answers: fn(u32) -> bool,
}

impl Path {
    fn new(spec: &Spec, seed: u64) -> Self {
        let (up, down) = (Model::new(spec, &spec.up, seed), Model::new(spec, &spec.down, !seed));
        Self { up, down, now: 0, answers: |_| true }
    }

    fn exchange(&mut self, load: &Load) -> Seen {
        let mut seen = Seen { ip_bytes: load.ip_bytes, ..Seen::default() };
        let mut there = Vec::new();
        for number in 0..load.packets {
            seen.sent.push(Duration::from_nanos(self.now));
            let packet = Packet { bytes: load.ip_bytes, ecn_capable: false };
            if let Fate::Deliver(arrival) = self.up.offer(self.now, packet)
                && (self.answers)(load.ip_bytes)
            {
                there.extend(vec![(arrival.at, number); 1 + usize::from(arrival.duplicated)]);
            }
            self.now += nanos(load.every).max(SENDING);
        }
        there.sort_unstable();
        let mut back = Vec::new();
        for (at, number) in there {
            let packet = Packet { bytes: load.ip_bytes, ecn_capable: false };
            if let Fate::Deliver(arrival) = self.down.offer(at, packet) {
                back.extend(vec![(arrival.at, number); 1 + usize::from(arrival.duplicated)]);
            }
            self.now = self.now.max(at);
        }
        back.sort_unstable();
        seen.replies.extend(back.iter().map(|(at, number)| Reply {
            number: *number,
            at: Duration::from_nanos(*at),
            ip_bytes: load.ip_bytes,
        }));
        let last = back.last().map_or(0, |(at, _)| *at);
        self.now = self.now.max(last) + nanos(load.patience);
        seen
    }

    fn record(&mut self, plan: &Plan) -> Recorded {
        let load = Load::small(40, plan.probes(Method::Echo));
        let probes = small_probes(&load, |load| Ok::<_, ()>(self.exchange(load))).unwrap();
        let mut trains = Trains::new(plan.train_budget, &probes);
        while let Some(load) = trains.next() {
            let seen = self.exchange(&load);
            trains.took(seen);
        }
        fit::recorded(Method::Echo, &probes, Some(&trains))
    }
}

fn spec(toml: &str) -> Spec {
    Scenario::parse("test", toml).unwrap().spec
}

#[test]
fn look() {
    for toml in [
        "rtt='217ms'\nloss='0.034%'\nrate='95mbit'",
        "rtt='30ms'\nrate='20mbit'\nqueue='100ms'",
        "rtt='30ms'\nrate='20mbit'\nqueue='100ms'\nloss='2%'",
        "rtt='200ms'\nrate='100mbit'\nqueue='300kB'\nburst_loss={share='5%',packets=5.0}",
        "rtt='50ms'\njitter='8ms'\njitter_shape='normal'\nqueue='400ms'\n[up]\nrate='10mbit'\n[down]\nrate='40mbit'",
        "rtt='50ms'\njitter='5ms'\njitter_shape='normal'\nreorder=true\nrate='20mbit'\nqueue='100ms'",
        "rtt='8ms'\njitter='2ms'\nburst_loss={share='2%',packets=3.0}\nrate='40mbit'\nqueue='100ms'",
        "rtt='600ms'\nloss='0.05%'\nqueue='1bdp'\n[up]\nrate='5mbit'\n[down]\nrate='50mbit'",
        "rtt='30ms'\nrate='20mbit'\nqueue='2s'",
        "rtt='0.4ms'\nrate='1gbit'\nqueue='512KiB'",
        "rtt='40ms'\nrate='1gbit'\npolicer={rate='20mbit',burst='128KiB'}",
        "rtt='40ms'\njitter='3ms'",
        "rtt='40ms'\nduplicate='1%'",
        "rtt='40ms'\nrate='200kbit'\nqueue='10packets'",
        "rtt='40ms'\nrate='64kbit'\nqueue='1s'",
        "rtt='40ms'\n[up]\nrate='95mbit'\n[down]\nrate='20mbit'\nqueue='100ms'",
    ] {
        let got = Path::new(&spec(toml), 7).record(&Plan::default());
        println!("=== {}\n    {}", spec(toml), got.spec);
        for figure in &got.figures {
            println!("    {} {}: {}", figure.subject, super::write::value(figure), figure.basis);
        }
    }
}
