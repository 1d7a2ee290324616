//! The wire between two devices without hosts, with a clock that the test sets.

use lastbyte_units::{BitRate, Share};
use proptest::prelude::*;

use super::*;
use crate::gso;
use crate::port::tests::Script;
use crate::spec::{BurstLoss, Change, Direction, Jitter, Policer, Queue, Shape};

const MS: u64 = 1_000_000;

/// What arrived at the far host, one packet each, and when.
type Delivered = Vec<(Nanos, Vec<u8>)>;

struct Simulation {
    wire: Wire,
    delivered: Delivered,
}

impl Simulation {
    fn new(spec: &Spec, seed: u64) -> Self {
        let line = |way| (Port::Script(Script::new()), Model::new(spec, way, seed));
        Self { wire: Wire::new(line(Way::Up), line(Way::Down)).unwrap(), delivered: Vec::new() }
    }

    /// Lets time pass, from one event to the next.
    fn advance(&mut self, until: Nanos) {
        loop {
            let line = &self.wire.lines[0];
            let due = line.in_flight.front().map(InFlight::due);
            let next = due.into_iter().chain(line.model.next_change()).min();
            let Some(now) = next.filter(|next| *next <= until) else { return };
            self.wire.make_changes(now);
            self.wire.deliver_due(Way::Up, Clock::At(now)).unwrap();
            self.collect(now);
        }
    }

    fn collect(&mut self, now: Nanos) {
        let Port::Script(far) = &self.wire.lines[1].port else { unreachable!("it is a script") };
        for packet in far.to_host.borrow_mut().drain(..) {
            self.delivered.extend(singles(&packet).into_iter().map(|one| (now, one)));
        }
    }

    /// Packets leave the near host.
    fn offer(&mut self, now: Nanos, packets: Vec<Vec<u8>>) {
        self.advance(now);
        let Port::Script(near) = &mut self.wire.lines[0].port else {
            unreachable!("it is a script")
        };
        near.from_host.extend(packets);
        let Wire { lines: [near, _], unread, .. } = &mut self.wire;
        while near.read_batch(Clock::At(now), unread).unwrap() {}
        self.check();
    }

    /// Every packet that came is somewhere.
    fn check(&mut self) -> DirectionReport {
        let up = self.wire.report().unwrap().up;
        let fates = up.delivered + up.lost + up.dropped + up.policed + up.in_flight;
        assert_eq!(up.packets, fates, "{up:?}");
        let arrived = self.delivered.len() as u64;
        assert!(arrived >= up.delivered && arrived <= up.delivered + up.duplicated, "{up:?}");
        up
    }
}

/// The packets that a packet is made of.
fn singles(packet: &[u8]) -> Vec<Vec<u8>> {
    let Some(gso) = GsoPacket::of(packet) else { return vec![packet.to_vec()] };
    let single = |segment| {
        let mut part = vec![0; gso.longest_segment()];
        let length = gso.split(packet, segment..segment + 1, &mut part);
        part.truncate(length);
        part
    };
    (0..gso.segments()).map(single).collect()
}

/// TCP data that came in one piece of this length, each piece with bytes of its own.
fn piece(number: usize, bytes: usize) -> Vec<u8> {
    let mut packet = gso::tests::gso_packet(number % 2 == 1, bytes);
    if GsoPacket::of(&packet).is_none() {
        packet[1] = 0;
    }
    let data = packet.len() - bytes;
    for (place, byte) in packet[data..].iter_mut().enumerate() {
        *byte = (place / 7 + number).to_le_bytes()[0];
    }
    packet
}

prop_compose! {
    fn direction()(
        delay_us in 0_u64..30_000,
        jitter in prop::option::of((1_u64..5_000, any::<bool>())),
        loss in prop::option::of(0.0..0.5_f64),
        bursts in prop::option::of(0.0..0.3_f64),
        lose_every in prop::option::of(2_u64..20),
        harm in prop::option::of(0.0..0.5_f64),
        rate in prop::option::of((1_000_u64..1_000_000, 20_000_u64..200_000)),
        policer in prop::option::of(1_000_u64..100_000),
    ) -> Direction {
        let share = |fraction: f64| Share::from_fraction(fraction).unwrap();
        let kbit = |kbit: u64| BitRate::from_bits_per_s(kbit * 1000).unwrap();
        let jitter = jitter.map(|(size, reorders)| {
            Jitter { shape: Shape::Uniform(Duration::from_micros(size)), reorders }
        });
        let bursts = bursts.map(|fraction| {
            BurstLoss { share: share(fraction), packets: 3.0, in_burst: Share::ALL }
        });
        Direction {
            delay: Duration::from_micros(delay_us),
            jitter,
            loss: loss.map(share),
            burst_loss: bursts,
            lose_every,
            corrupt: harm.map(share),
            duplicate: harm.map(share),
            rate: rate.map(|(rate, _)| kbit(rate)),
            queue: rate.map(|(_, queue)| Queue::Bytes(queue.to_string().parse().unwrap())),
            policer: policer.map(|rate| Policer {
                rate: kbit(rate),
                burst: "64KiB".parse().unwrap(),
            }),
            ..Direction::default()
        }
    }
}

prop_compose! {
    fn path()(up in direction(), later in prop::option::of((1_u64..40, direction()))) -> Spec {
        let changes = later.into_iter().map(|(ms, up)| {
            Change { at: Duration::from_millis(ms), up, down: Direction::default() }
        });
        let changes = changes.collect();
        Spec { up, changes, ..Spec::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whether segments come as one or one by one: the same are delivered at the same times. None is
    /// without a fate, and none overtakes where that was not asked.
    #[test]
    fn uncut_segments_meet_the_fate_of_single_ones(
        spec in path(),
        seed: u64,
        pieces in prop::collection::vec((0_u64..5 * MS, 1_usize..60_000), 1..30),
    ) {
        let (mut uncut, mut cut) = (Simulation::new(&spec, seed), Simulation::new(&spec, seed));
        let (mut now, mut offered) = (0, Vec::new());
        for (number, (pause, bytes)) in pieces.into_iter().enumerate() {
            now += pause;
            let whole = piece(number, bytes);
            offered.extend(singles(&whole));
            cut.offer(now, singles(&whole));
            uncut.offer(now, vec![whole]);
        }
        for simulation in [&mut uncut, &mut cut] {
            simulation.advance(u64::MAX);
            let up = simulation.check();
            prop_assert_eq!((up.packets, up.in_flight), (offered.len() as u64, 0));
        }
        // Not printed as bytes.
        let times = |simulation: &Simulation| -> Vec<_> {
            simulation.delivered.iter().map(|(at, one)| (*at, one.len())).collect()
        };
        prop_assert_eq!(times(&uncut), times(&cut));
        prop_assert!(uncut.delivered == cut.delivered, "other bytes");
        prop_assert_eq!(uncut.check(), cut.check());
        let states = || std::iter::once(&spec.up).chain(spec.changes.iter().map(|later| &later.up));
        let harmless = states().all(|up| up.corrupt.is_none());
        if harmless && states().all(|up| up.jitter.as_ref().is_none_or(|jitter| !jitter.reorders)) {
            let mut left = offered.iter();
            let in_order = uncut.delivered.iter().all(|(_, one)| left.any(|sent| sent == one));
            prop_assert!(in_order, "as sent, and in the order in which it was sent");
        }
    }
}

#[test]
fn what_is_due_at_once_goes_on_as_one() {
    let mut simulation = Simulation::new(&Spec::default(), 1);
    simulation.offer(0, vec![piece(0, 14_480)]);
    simulation.wire.deliver_due(Way::Up, Clock::At(0)).unwrap();
    let Port::Script(far) = &simulation.wire.lines[1].port else { unreachable!("it is a script") };
    assert_eq!(*far.to_host.borrow(), [piece(0, 14_480)]);
}

#[test]
fn rooms_are_used_again() {
    let spec = Spec {
        up: Direction { loss: Some(Share::from_fraction(0.3).unwrap()), ..Direction::default() },
        ..Spec::default()
    };
    let mut simulation = Simulation::new(&spec, 1);
    for turn in 0..100 {
        simulation.offer(turn * MS, vec![piece(0, 30_000), piece(1, 100)]);
        simulation.advance(turn * MS);
    }
    let pool = &simulation.wire.lines[0].pool;
    assert!(
        pool.buffers() <= 4,
        "{} buffers for what one delivery at a time needs",
        pool.buffers()
    );
}
