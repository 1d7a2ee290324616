//! The model against its arithmetic.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::spec::{
    BurstLoss, Change, Cut, Jitter, Management, Marks, Outages, Policer, Queue, Shape,
};
use crate::trace::Trace;

const MS: u64 = 1_000_000;

fn direction(rate: &str, queue: &str) -> Direction {
    Direction {
        rate: Some(rate.parse().unwrap()),
        queue: Some(queue.parse().unwrap()),
        ..Direction::default()
    }
}

fn model(direction: Direction, seed: u64) -> Model {
    let spec = Spec { up: direction, ..Spec::default() };
    Model::new(&spec, Way::Up, seed)
}

fn plain(bytes: u32) -> Packet {
    Packet { bytes, ecn_capable: false }
}

/// When an unharmed packet arrives; `None` for any other fate.
fn arrives(fate: Fate) -> Option<u64> {
    match fate {
        Fate::Deliver(arrival) => Some(arrival.at),
        _ => None,
    }
}

fn losing(share: &str, seed: u64) -> Model {
    model(Direction { loss: Some(share.parse().unwrap()), ..Direction::default() }, seed)
}

#[test]
fn delay_alone_adds_delay() {
    let delay = Duration::from_micros(108_500);
    let mut model = model(Direction { delay, ..Direction::default() }, 1);
    assert_eq!(arrives(model.offer(7, plain(1500))), Some(108_500_007));
    assert_eq!(arrives(model.offer(7, plain(40))), Some(108_500_007));
}

#[test]
fn packets_leave_at_the_rate_and_a_pause_earns_no_credit() {
    // 12 kbit/s: 1500 bytes take a second.
    let mut model = model(direction("12kbit", "1MB"), 1);
    let second = 1_000_000_000;
    assert_eq!(arrives(model.offer(0, plain(1500))), Some(second));
    assert_eq!(arrives(model.offer(0, plain(1500))), Some(2 * second));
    assert_eq!(arrives(model.offer(10 * second, plain(1500))), Some(11 * second));
    assert_eq!(arrives(model.offer(10 * second, plain(1500))), Some(12 * second));
}

#[test]
fn the_rate_holds_over_a_million_packets_that_do_not_divide_a_nanosecond() {
    let mut model = model(direction("95mbit", "1bdp"), 1);
    let mut last = 0;
    for _ in 0..1_000_000 {
        let at = arrives(model.offer(last, plain(1500))).expect("an empty queue has room");
        last = at;
    }
    // The queue ran empty each time: at most one nanosecond per packet may be lost.
    let exact = 1_000_000_u128 * 12_000 * 1_000_000_000 / 95_000_000;
    assert!(exact.abs_diff(last.into()) <= 1_000_000, "{last} for {exact}");

    let mut model = self::model(direction("95mbit", "2GB"), 1);
    for _ in 0..1_000_000 {
        let at = arrives(model.offer(0, plain(1500))).expect("2 GB hold 1.5");
        last = at;
    }
    assert!(exact.abs_diff(last.into()) <= 1, "{last} for {exact} with a standing queue");
}

#[test]
fn the_queue_drops_at_its_limit_and_not_before() {
    let mut model = model(direction("12kbit", "4500B"), 1);
    for _ in 0..3 {
        assert!(arrives(model.offer(0, plain(1500))).is_some());
    }
    assert_eq!(model.offer(0, plain(1500)), Fate::Dropped);
    assert_eq!(model.offer(0, plain(1)), Fate::Dropped);
    // A second later one packet has left.
    assert_eq!(model.offer(1_000_000_000, plain(1501)), Fate::Dropped);
    assert_eq!(arrives(model.offer(1_000_000_000, plain(1500))), Some(4_000_000_000));
}

#[test]
fn a_full_queue_delays_by_its_length() {
    let delay = Duration::from_millis(100);
    let mut model = model(Direction { delay, ..direction("95mbit", "1bdp") }, 1);
    let (mut last, mut queued) = (0, 0);
    while let Fate::Deliver(arrival) = model.offer(0, plain(1500)) {
        (last, queued) = (arrival.at, arrival.queued);
    }
    assert_eq!(last - queued, 100 * MS + 126_316, "all but its delay and its own transmission");
    // One bandwidth-delay product of queue doubles the round trip, to within a packet.
    let doubled = 200_000_000_u64;
    assert!(last <= doubled && last + 126_316 > doubled, "{last}");
}

#[test]
fn loss_is_inside_its_interval() {
    for (share, packets) in [("0.034%", 3_000_000), ("1%", 1_000_000), ("50%", 100_000)] {
        let p = share.parse::<Share>().unwrap().fraction();
        let mut model = losing(share, 42);
        let lost = (0..packets).filter(|_| model.offer(0, plain(1500)) == Fate::Lost).count();
        let (mean, sigma) = (p * packets as f64, (p * (1.0 - p) * packets as f64).sqrt());
        assert!((lost as f64 - mean).abs() < 2.58 * sigma, "{share}: {lost} lost, expected {mean}");
    }
}

#[test]
fn all_or_nothing() {
    let mut all = losing("100%", 1);
    assert!((0..100).all(|_| all.offer(0, plain(1500)) == Fate::Lost));
    let mut nothing = losing("0%", 1);
    assert!((0..100).all(|_| nothing.offer(0, plain(1500)) != Fate::Lost));
}

#[test]
fn the_losses_of_a_seed_never_change() {
    let mut model = losing("10%", 7);
    let lost: Vec<usize> = (0..60).filter(|_| model.offer(0, plain(1)) == Fate::Lost).collect();
    assert_eq!(lost, LOST_OF_SEED_7, "replays of old runs would change");
}

#[test]
fn a_train_meets_the_same_losses_as_its_packets() {
    let (mut one_by_one, mut train) = (losing("10%", 7), losing("10%", 7));
    let lost: Vec<u32> = (0..300).filter(|_| one_by_one.offer(0, plain(1)) == Fate::Lost).collect();
    let mut lost_of_trains = Vec::new();
    for start in (0..300).step_by(30) {
        let mut next = 0;
        while next < 30 {
            next += train.offer_batch(0, 30 - next).passed;
            if next < 30 {
                lost_of_trains.push(start + next);
                next += 1;
            }
        }
    }
    assert_eq!(lost, lost_of_trains);
}

#[test]
fn bursts_have_their_share_and_their_length() {
    let bursts = BurstLoss { share: "5%".parse().unwrap(), packets: 8.0, in_burst: Share::ALL };
    let mut model = model(Direction { burst_loss: Some(bursts), ..Direction::default() }, 3);
    let lost: Vec<bool> =
        (0..1_000_000).map(|_| model.offer(0, plain(1500)) == Fate::Lost).collect();
    let all = lost.iter().filter(|lost| **lost).count() as f64;
    let begun = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    assert!((all / 1e6 - 0.05).abs() < 0.003, "{all} lost of a million");
    assert!((all / begun - 8.0).abs() < 0.3, "{} to a burst", all / begun);
}

#[test]
fn every_nth_is_counted() {
    let mut model = model(Direction { lose_every: Some(4), ..Direction::default() }, 1);
    let lost: Vec<usize> = (1..=12).filter(|_| model.offer(0, plain(1)) == Fate::Lost).collect();
    assert_eq!(lost, [4, 8, 12]);
}

#[test]
fn damage_and_copies_have_their_shares() {
    let share = |text: &str| Some(text.parse().unwrap());
    let (corrupt, duplicate) = (share("1%"), share("2%"));
    let mut model = model(Direction { corrupt, duplicate, ..Direction::default() }, 9);
    let (mut damaged, mut twice) = (0, 0);
    for _ in 0..100_000 {
        let Fate::Deliver(arrival) = model.offer(0, plain(1500)) else { panic!("nothing is lost") };
        damaged += u32::from(arrival.corrupted.is_some());
        twice += u32::from(arrival.duplicated);
    }
    // 99 %: 2.58 standard deviations, 31 and 44.
    assert!(damaged.abs_diff(1000) < 82 && twice.abs_diff(2000) < 115, "{damaged}, {twice}");
}

const UNIFORM: Shape = Shape::Uniform(Duration::from_millis(5));
const NORMAL: Shape = Shape::Normal(Duration::from_millis(5));

fn jittered(shape: Shape, reorders: bool) -> Vec<i64> {
    let jitter = Some(Jitter { shape, reorders });
    let delay = Duration::from_millis(50);
    let mut model = model(Direction { delay, jitter, ..Direction::default() }, 5);
    let delays = (0..20_000).map(|packet| {
        let now = packet * 100_000;
        let at = arrives(model.offer(now, plain(1500))).expect("nothing is lost");
        i64::try_from(at).unwrap() - i64::try_from(now).unwrap()
    });
    delays.collect()
}

#[test]
fn jitter_has_its_shape() {
    let ms = 1_000_000.0;
    for (shape, deviation) in [(UNIFORM, 5.0 / 3.0_f64.sqrt()), (NORMAL, 5.0)] {
        let delays = jittered(shape, true);
        let n = delays.len() as f64;
        let mean = delays.iter().map(|delay| *delay as f64 / ms).sum::<f64>() / n;
        let square = delays.iter().map(|delay| (*delay as f64 / ms - mean).powi(2)).sum::<f64>();
        let got = (square / n).sqrt();
        assert!((mean - 50.0).abs() < 0.15 && (got - deviation).abs() < 0.15, "{mean} {got}");
    }
    let uniform = jittered(UNIFORM, true);
    let (least, most) = (uniform.iter().min().unwrap(), uniform.iter().max().unwrap());
    assert!(*least >= 45_000_000 && *most <= 55_000_000, "{least} to {most}");
}

#[test]
fn packets_overtake_only_where_asked() {
    let arrivals = |reorders| {
        let delays = jittered(UNIFORM, reorders).into_iter();
        delays.zip(0_i64..).map(|(delay, packet)| packet * 100_000 + delay).collect::<Vec<_>>()
    };
    assert!(arrivals(false).is_sorted());
    assert!(!arrivals(true).is_sorted());
}

#[test]
fn a_cut_wire_loses_everything_for_its_time_and_again() {
    let seconds = Duration::from_secs;
    let cuts = vec![Cut { at: seconds(5), lasting: seconds(2) }];
    let outages = Outages { cuts, every: Some(seconds(60)) };
    let mut model = model(Direction { outages, ..Direction::default() }, 1);
    for (at_ms, lost) in
        [(4999, false), (5000, true), (6999, true), (7000, false), (60_000, false), (66_000, true)]
    {
        assert_eq!(model.offer(at_ms * MS, plain(1500)) == Fate::Lost, lost, "at {at_ms} ms");
    }
}

#[test]
fn what_is_under_way_when_the_wire_is_cut_is_lost() {
    let cuts = vec![Cut { at: Duration::from_secs(1), lasting: Duration::from_secs(9) }];
    let outages = Outages { cuts, every: None };
    // 12 kbit/s: a packet takes a second.
    let mut model = model(Direction { outages, ..direction("12kbit", "1MB") }, 1);
    assert_eq!(model.offer(0, plain(1500)), Fate::Lost, "its last bit would leave at 1 s");
    assert!(arrives(model.offer(10_000 * MS, plain(1500))).is_some());
}

#[test]
fn a_policer_lets_a_burst_and_then_the_rate_through() {
    let policer = Policer { rate: "12mbit".parse().unwrap(), burst: "15000B".parse().unwrap() };
    let mut model = model(Direction { policer: Some(policer), ..Direction::default() }, 1);
    let at_once = (0..20).filter(|_| arrives(model.offer(0, plain(1500))).is_some()).count();
    assert_eq!(at_once, 10, "the bucket holds ten");
    // 1 packet a millisecond is the rate: offered twice that for a second, half of it passes.
    let passed = (1..=2000_u64)
        .filter(|half_ms| arrives(model.offer(half_ms * MS / 2, plain(1500))).is_some())
        .count();
    assert_eq!(passed, 1000);
    assert_eq!(model.offer(1000 * MS, plain(1500)), Fate::Policed);
}

#[test]
fn a_queue_in_packets_counts_packets() {
    let mut model = model(direction("12kbit", "3packets"), 1);
    for bytes in [1500, 40, 40] {
        assert!(arrives(model.offer(0, plain(bytes))).is_some());
    }
    assert_eq!(model.offer(0, plain(40)), Fate::Dropped);
    assert!(arrives(model.offer(1000 * MS, plain(40))).is_some(), "one has left");
}

#[test]
fn a_recorded_rate_is_kept_and_unused_opportunities_are_gone() {
    let trace = Some(Trace::parse("1\n1\n5\n").unwrap());
    let mut model = model(Direction { trace, ..Direction::default() }, 1);
    let arrival = |model: &mut Model, now, bytes| arrives(model.offer(now, plain(bytes)));
    // Two at 1 ms, one at 5, then again from 5 on.
    let times: Vec<_> = (0..4).filter_map(|_| arrival(&mut model, 0, 1500)).collect();
    assert_eq!(times, [MS, MS, 5 * MS, 6 * MS]);
    // Half a packet leaves room for another half, and a whole one needs the next opportunity too.
    assert_eq!(arrival(&mut model, 7 * MS, 750), Some(10 * MS));
    assert_eq!(arrival(&mut model, 7 * MS, 750), Some(10 * MS));
    assert_eq!(arrival(&mut model, 7 * MS, 750), Some(11 * MS));
    assert_eq!(arrival(&mut model, 7 * MS, 1500), Some(11 * MS));
    // Long after: nothing has been saved up.
    assert_eq!(arrival(&mut model, 1001 * MS + 1, 1500), Some(1005 * MS));
}

/// The waiting times of an unresponsive sender at twice the rate, and its drops, over 10 s.
fn overloaded(management: Management, ecn: bool) -> (u64, usize, usize) {
    let marks = if ecn { Marks::InsteadOfDrops } else { Marks::None };
    let up = Direction { management, marks, ..direction("12mbit", "1MB") };
    let mut model = model(up, 1);
    let (mut longest, mut dropped, mut marked) = (0, 0, 0);
    for half_ms in 0..20_000_u64 {
        let now = half_ms * MS / 2;
        match model.offer(now, Packet { bytes: 1500, ecn_capable: ecn }) {
            Fate::Deliver(arrival) => {
                longest = arrival.at - now;
                marked += usize::from(arrival.marked);
            }
            _ => dropped += 1,
        }
    }
    (longest / MS, dropped, marked)
}

#[test]
fn codel_drops_more_and_more_of_what_does_not_yield() {
    let (waits_ms, dropped, marked) = overloaded(Management::DropTail, false);
    assert!((660..=667).contains(&waits_ms), "1 MB at 12 Mbit/s, not {waits_ms} ms");
    let (with_codel, drops, _) = overloaded(Management::Codel, false);
    assert!(drops > dropped, "{drops} with CoDel, {dropped} without");
    assert!(with_codel <= waits_ms && marked == 0);
    let (_, dropped, marked) = overloaded(Management::Codel, true);
    assert!(marked > 100 && dropped < drops, "{marked} marked, {dropped} dropped with ECN");
}

#[test]
fn a_threshold_marks_what_comes_above_it_and_drops_nothing() {
    let marks = Marks::Above("4500B".parse().unwrap());
    let mut model = model(Direction { marks, ..direction("12mbit", "10500B") }, 1);
    let mut fates = |now: u64, ecn_capable: bool, packets: usize| -> Vec<Option<bool>> {
        let offer = |_| match model.offer(now, Packet { bytes: 1500, ecn_capable }) {
            Fate::Deliver(arrival) => Some(arrival.marked),
            _ => None,
        };
        (0..packets).map(offer).collect()
    };
    let (plain, marked) = (Some(false), Some(true));
    // Up to three wait before the first four: no more than the threshold.
    let first = [plain, plain, plain, plain, marked, marked, marked, None];
    assert_eq!(fates(0, true, 8), first);
    // Packets that do not allow it are left alone up to the queue's end.
    assert_eq!(fates(2 * MS, false, 3), [plain, plain, None]);
    // A packet takes 1 ms: three wait, then four.
    assert_eq!(fates(6 * MS, true, 2), [plain, marked]);
}

#[test]
fn codel_leaves_a_short_queue_alone() {
    let codel = Direction { management: Management::Codel, ..direction("12mbit", "1MB") };
    let mut model = model(codel, 1);
    // Three packets at once every 3 ms: the rate exactly, and never 5 ms of waiting.
    for turn in 0..10_000_u64 {
        for _ in 0..3 {
            assert!(arrives(model.offer(turn * 3 * MS, plain(1500))).is_some());
        }
    }
}

#[test]
fn a_burst_may_lose_only_some() {
    let share = |text: &str| text.parse::<Share>().unwrap();
    let bursts = BurstLoss { share: share("2%"), packets: 20.0, in_burst: share("25%") };
    let mut model = model(Direction { burst_loss: Some(bursts), ..Direction::default() }, 3);
    let lost: Vec<bool> =
        (0..1_000_000).map(|_| model.offer(0, plain(1500)) == Fate::Lost).collect();
    let all = lost.iter().filter(|lost| **lost).count() as f64;
    assert!((all / 1e6 - 0.02).abs() < 0.002, "{all} lost of a million");
    // In a burst the next one is lost in a quarter of the cases, but for its end.
    let twice = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
    assert!((twice / all - 0.25 * 19.0 / 20.0).abs() < 0.02, "{twice} of {all}");
}

#[test]
fn a_table_has_its_quantiles() {
    let table = [0, 1, 2, 30].map(Duration::from_millis);
    let delays = jittered(Shape::Table(table.into()), true);
    let below = |ms: i64| {
        let delay = |delay: &&i64| **delay < (50 + ms) * 1_000_000;
        delays.iter().filter(delay).count() as f64 / delays.len() as f64
    };
    assert_eq!((below(0), below(31)), (0.0, 1.0));
    for (ms, share) in [(1, 1.0 / 3.0), (2, 2.0 / 3.0), (16, 2.0 / 3.0 + 1.0 / 6.0)] {
        assert!((below(ms) - share).abs() < 0.02, "{} below {ms} ms", below(ms));
    }
}

/// A path that becomes others at these seconds.
fn changing(up: Direction, changes: &[(u64, Direction)]) -> Spec {
    let change = |(at, up): &(u64, Direction)| Change {
        at: Duration::from_secs(*at),
        up: up.clone(),
        down: Direction::default(),
    };
    Spec { up, changes: changes.iter().map(change).collect(), ..Spec::default() }
}

#[test]
fn a_new_rate_holds_for_what_waits() {
    // 1500 bytes take a second, then half a second.
    let spec = changing(direction("12kbit", "1MB"), &[(2, direction("24kbit", "1MB"))]);
    let mut model = Model::new(&spec, Way::Up, 1);
    let offer = |model: &mut Model, now| arrives(model.offer(now, plain(1500)));
    let sent: Vec<_> = (0..4).filter_map(|_| offer(&mut model, 500 * MS)).collect();
    assert_eq!(sent, [1500 * MS, 2500 * MS, 3500 * MS, 4500 * MS]);
    assert_eq!((model.next_change(), model.make_change(1999 * MS)), (Some(2000 * MS), None));
    let retiming = model.make_change(2000 * MS).unwrap();
    // The second one is half sent.
    let now: Vec<_> = sent.iter().map(|sent| retiming.of(*sent)).collect();
    assert_eq!(now, [1500 * MS, 2250 * MS, 2750 * MS, 3250 * MS]);
    assert_eq!((model.next_change(), model.make_change(u64::MAX)), (None, None));
    model.set_last_arrival(3250 * MS);
    assert_eq!(offer(&mut model, 2000 * MS), Some(3750 * MS));
    // Slower again, as told, and then without a rate.
    let retiming = model.replace(3250 * MS, &changing(direction("12kbit", "1MB"), &[]), Way::Up);
    assert_eq!(retiming.of(3750 * MS), 4250 * MS);
    let retiming = model.replace(3300 * MS, &Spec::default(), Way::Up);
    assert_eq!(retiming.of(4250 * MS), 3300 * MS);
    model.set_last_arrival(3300 * MS);
    assert_eq!(offer(&mut model, 3300 * MS), Some(3300 * MS));
}

#[test]
fn the_queue_counts_what_is_left_after_a_change() {
    let spec = changing(direction("12kbit", "4500B"), &[(1, direction("120kbit", "4500B"))]);
    let mut model = Model::new(&spec, Way::Up, 1);
    for _ in 0..3 {
        assert!(arrives(model.offer(500 * MS, plain(1500))).is_some());
    }
    assert_eq!(model.offer(999 * MS, plain(1500)), Fate::Dropped);
    model.make_change(1000 * MS).unwrap();
    assert_eq!(model.offer(1000 * MS, plain(751)), Fate::Dropped);
    assert!(arrives(model.offer(1000 * MS, plain(750))).is_some(), "half a packet has left");
    assert_eq!(model.offer(1099 * MS, plain(1500)), Fate::Dropped);
    assert!(arrives(model.offer(1100 * MS, plain(1500))).is_some());
}

#[test]
fn a_change_leaves_what_did_not_change_as_it_was() {
    let loss = Some("10%".parse().unwrap());
    let lossy = |ms| Direction { loss, delay: Duration::from_millis(ms), ..Direction::default() };
    let mut model = Model::new(&changing(lossy(1), &[(1, lossy(2))]), Way::Up, 7);
    let mut lost = Vec::new();
    for packet in 0..60 {
        if packet == 30 {
            model.make_change(1000 * MS).unwrap();
        }
        if model.offer(packet * 40 * MS, plain(1)) == Fate::Lost {
            lost.push(usize::try_from(packet).unwrap());
        }
    }
    assert_eq!(lost, LOST_OF_SEED_7);
}

#[test]
fn a_shorter_delay_overtakes_nothing() {
    let delay = |ms| Direction { delay: Duration::from_millis(ms), ..Direction::default() };
    let mut model = Model::new(&changing(delay(100), &[(1, delay(10))]), Way::Up, 1);
    assert_eq!(arrives(model.offer(999 * MS, plain(1))), Some(1099 * MS));
    model.make_change(1000 * MS).unwrap();
    assert_eq!(arrives(model.offer(1000 * MS, plain(1))), Some(1099 * MS));
    assert_eq!(arrives(model.offer(1090 * MS, plain(1))), Some(1100 * MS));
}

#[test]
fn a_step_that_is_added_leaves_the_losses_as_they_were() {
    let losses = |direction: Direction| {
        let mut model = model(direction, 7);
        (0..60).filter(|_| model.offer(0, plain(1)) == Fate::Lost).collect::<Vec<usize>>()
    };
    let loss = Some("10%".parse().unwrap());
    let jitter = Some(Jitter { shape: NORMAL, reorders: true });
    let alone = losses(Direction { loss, ..Direction::default() });
    assert_eq!(alone, losses(Direction { loss, jitter, ..Direction::default() }));
    let corrupt = Some("50%".parse().unwrap());
    assert_eq!(
        alone,
        losses(Direction { loss, corrupt, duplicate: corrupt, ..Direction::default() })
    );
}

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
            loss: Some(Share::from_fraction(loss).unwrap()),
            rate: Some(lastbyte_units::BitRate::from_bits_per_s(rate_kbit * 1000).unwrap()),
            queue: Some(Queue::Bytes(queue.to_string().parse().unwrap())),
            ..Direction::default()
        };
        let (mut one, mut same) = (model(direction.clone(), seed), model(direction, seed));
        let (mut now, mut last) = (0, 0);
        for (pause, bytes) in packets {
            now += pause;
            let fate = one.offer(now, plain(bytes));
            prop_assert_eq!(fate, same.offer(now, plain(bytes)), "same seed, same arrivals");
            if let Some(at) = arrives(fate) {
                prop_assert!(at >= last && at >= now + delay_us * 1000);
                last = at;
            }
        }
    }
}

const LOST_OF_SEED_7: [usize; 6] = [3, 11, 24, 25, 37, 52];
