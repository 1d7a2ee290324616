//! The model against its arithmetic.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::spec::Queue;

fn direction(rate: &str, queue: &str) -> Direction {
    Direction {
        rate: Some(rate.parse().unwrap()),
        queue: Some(queue.parse().unwrap()),
        ..Direction::default()
    }
}

fn model(direction: Direction, seed: u64) -> Model {
    Model::new(&Spec { up: direction, down: Direction::default() }, &direction, seed)
}

fn losing(share: &str, seed: u64) -> Model {
    model(Direction { loss: Some(share.parse().unwrap()), ..Direction::default() }, seed)
}

#[test]
fn delay_alone_adds_delay() {
    let delay = Duration::from_micros(108_500);
    let mut model = model(Direction { delay, ..Direction::default() }, 1);
    assert_eq!(model.offer(7, 1500), Fate::Deliver { at: 108_500_007 });
    assert_eq!(model.offer(7, 40), Fate::Deliver { at: 108_500_007 });
}

#[test]
fn packets_leave_at_the_rate_and_a_pause_earns_no_credit() {
    // 12 kbit/s: 1500 bytes take a second.
    let mut model = model(direction("12kbit", "1MB"), 1);
    let second = 1_000_000_000;
    assert_eq!(model.offer(0, 1500), Fate::Deliver { at: second });
    assert_eq!(model.offer(0, 1500), Fate::Deliver { at: 2 * second });
    assert_eq!(model.offer(10 * second, 1500), Fate::Deliver { at: 11 * second });
    assert_eq!(model.offer(10 * second, 1500), Fate::Deliver { at: 12 * second });
}

#[test]
fn the_rate_holds_over_a_million_packets_that_do_not_divide_a_nanosecond() {
    let mut model = model(direction("95mbit", "1bdp"), 1);
    let mut last = 0;
    for _ in 0..1_000_000 {
        let Fate::Deliver { at } = model.offer(last, 1500) else { panic!("an empty queue drops") };
        last = at;
    }
    // The queue ran empty each time: at most one nanosecond per packet may be lost.
    let exact = 1_000_000_u128 * 12_000 * 1_000_000_000 / 95_000_000;
    assert!(exact.abs_diff(last.into()) <= 1_000_000, "{last} for {exact}");

    let mut model = self::model(direction("95mbit", "2GB"), 1);
    for _ in 0..1_000_000 {
        let Fate::Deliver { at } = model.offer(0, 1500) else { panic!("2 GB hold 1.5") };
        last = at;
    }
    assert!(exact.abs_diff(last.into()) <= 1, "{last} for {exact} with a standing queue");
}

#[test]
fn the_queue_drops_at_its_limit_and_not_before() {
    let mut model = model(direction("12kbit", "4500B"), 1);
    for _ in 0..3 {
        assert!(matches!(model.offer(0, 1500), Fate::Deliver { .. }));
    }
    assert_eq!(model.offer(0, 1500), Fate::Dropped);
    assert_eq!(model.offer(0, 1), Fate::Dropped);
    // A second later one packet has left.
    assert_eq!(model.offer(1_000_000_000, 1501), Fate::Dropped);
    assert!(matches!(model.offer(1_000_000_000, 1500), Fate::Deliver { at: 4_000_000_000 }));
}

#[test]
fn a_full_queue_delays_by_its_length() {
    let spec = Spec { up: direction("95mbit", "1bdp"), down: Direction::default() };
    let up = Direction { delay: Duration::from_millis(100), ..spec.up };
    let spec = Spec { up, ..spec };
    let mut model = Model::new(&spec, &up, 1);
    let mut last = 0;
    while let Fate::Deliver { at } = model.offer(0, 1500) {
        last = at;
    }
    // One bandwidth-delay product of queue doubles the round trip, to within a packet.
    let doubled = 200_000_000_u64;
    assert!(last <= doubled && last + 126_316 > doubled, "{last}");
}

#[test]
fn loss_is_inside_its_interval() {
    for (share, packets) in [("0.034%", 3_000_000), ("1%", 1_000_000), ("50%", 100_000)] {
        let p = share.parse::<lastbyte_units::Share>().unwrap().fraction();
        let mut model = losing(share, 42);
        let lost = (0..packets).filter(|_| model.offer(0, 1500) == Fate::Lost).count();
        let (mean, sigma) = (p * packets as f64, (p * (1.0 - p) * packets as f64).sqrt());
        assert!((lost as f64 - mean).abs() < 2.58 * sigma, "{share}: {lost} lost, expected {mean}");
    }
}

#[test]
fn all_or_nothing() {
    let mut all = losing("100%", 1);
    assert!((0..100).all(|_| all.offer(0, 1500) == Fate::Lost));
    let mut nothing = losing("0%", 1);
    assert!((0..100).all(|_| nothing.offer(0, 1500) != Fate::Lost));
}

#[test]
fn the_losses_of_a_seed_never_change() {
    let mut model = losing("10%", 7);
    let lost: Vec<usize> = (0..60).filter(|_| model.offer(0, 1) == Fate::Lost).collect();
    assert_eq!(lost, LOST_OF_SEED_7, "replays of old runs would change");
}

#[test]
fn a_train_meets_the_same_losses_as_its_packets() {
    let (mut one_by_one, mut train) = (losing("10%", 7), losing("10%", 7));
    let lost: Vec<u32> = (0..300).filter(|_| one_by_one.offer(0, 1) == Fate::Lost).collect();
    let mut lost_of_trains = Vec::new();
    for start in (0..300).step_by(30) {
        let mut next = 0;
        while next < 30 {
            next += train.offer_train(0, 30 - next).passed;
            if next < 30 {
                lost_of_trains.push(start + next);
                next += 1;
            }
        }
    }
    assert_eq!(lost, lost_of_trains);
}

const LOST_OF_SEED_7: [usize; 6] = [3, 11, 24, 25, 37, 52];

proptest! {
    #[test]
    fn order_is_kept_and_every_packet_has_one_fate(
        seed: u64,
        loss in 0.0..1.0_f64,
        delay_us in 0_u64..500_000,
        rate_kbit in 1_u64..1_000_000,
        queue in 1500_u64..100_000,
        packets in proptest::collection::vec((0_u64..10_000_000, 20_u32..1501), 1..200),
    ) {
        let direction = Direction {
            delay: Duration::from_micros(delay_us),
            loss: Some(lastbyte_units::Share::from_fraction(loss).unwrap()),
            rate: Some(lastbyte_units::BitRate::from_bits_per_s(rate_kbit * 1000).unwrap()),
            queue: Some(Queue::Bytes(queue.to_string().parse().unwrap())),
        };
        let (mut one, mut same) = (model(direction, seed), model(direction, seed));
        let (mut now, mut last) = (0, 0);
        for (pause, bytes) in packets {
            now += pause;
            let fate = one.offer(now, bytes);
            prop_assert_eq!(fate, same.offer(now, bytes), "same seed, same arrivals");
            if let Fate::Deliver { at } = fate {
                prop_assert!(at >= last && at >= now + delay_us * 1000);
                last = at;
            }
        }
    }
}
