//! Flows that are made up: the edges of the rules, and numbers that make no sense. Real ones are in
//! the corpus.

use proptest::prelude::*;

use super::*;
use crate::event::{Info, Io, Scope};
use crate::finding::Finding;
use crate::story::Story;

const SECOND: u64 = 1_000_000_000;

/// What a flow looks like, and how it grows from one look to the next.
#[derive(Clone, Debug)]
struct Look {
    /// Bytes acked each 100 ms.
    pace: u64,
    rtt_us: u32,
    min_rtt_us: u32,
    unacked: u32,
    cwnd: u32,
    again: u32,
    timeouts: u16,
    last_sent_ms: u32,
    unsent: u32,
    peer_window: u32,
    window_limited_us: u64,
    acked: u64,
    received: u64,
    busy_us: u64,
    app_limited: bool,
    sample: Sample,
}

impl Look {
    /// 64 KiB fixed: 91 segments in flight fill it, and the peer has room for ten times as many.
    fn fixed() -> Self {
        let sample = Sample {
            socket: SocketId(1),
            state: State::Established,
            receive_queue: 0,
            send_queue: 131_072,
            receive_buffer: Some(131_072),
            send_buffer: Some(131_072),
            queued: Some(144_760),
            locks: Some(1),
            held: true,
            congestion: Some("cubic".to_owned()),
            info: Info::default(),
        };
        Self {
            pace: 262_144,
            rtt_us: 51_000,
            min_rtt_us: 50_000,
            unacked: 91,
            cwnd: 199,
            again: 0,
            timeouts: 0,
            last_sent_ms: 8,
            unsent: 376,
            peer_window: 1_300_480,
            window_limited_us: 0,
            acked: 0,
            received: 0,
            busy_us: 0,
            app_limited: true,
            sample,
        }
    }

    /// cubic at its window, with all the buffer it wants.
    fn full() -> Self {
        let mut look = Self { unacked: 199, unsent: 500_000, app_limited: false, ..Self::fixed() };
        look.sample.locks = Some(0);
        look.sample.send_buffer = Some(1_500_000);
        look.sample.queued = Some(900_000);
        look
    }

    /// Nothing is under way.
    fn resting(&self) -> Self {
        let mut look = Self { unacked: 0, unsent: 0, last_sent_ms: 500, ..self.clone() };
        look.sample.queued = Some(0);
        look.sample.send_queue = 0;
        look
    }

    fn what(&self) -> What {
        let mut bytes = vec![0_u8; 248];
        bytes[0] = 1;
        bytes[7] = match (self.app_limited, cfg!(target_endian = "big")) {
            (false, _) => 0,
            (true, true) => 128,
            (true, false) => 1,
        };
        let words = [
            (16, 1448),
            (24, self.unacked),
            (44, self.last_sent_ms),
            (68, self.rtt_us),
            (80, self.cwnd),
            (100, self.again),
            (144, self.unsent),
            (148, self.min_rtt_us),
            (228, self.peer_window),
        ];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let longs = [
            (104, u64::MAX),
            (112, u64::MAX),
            (120, self.acked),
            (128, self.received),
            (168, self.busy_us),
            (176, self.window_limited_us),
            (200, self.acked + u64::from(self.unacked) * 1448),
        ];
        for (at, long) in longs {
            bytes[at..at + 8].copy_from_slice(&long.to_ne_bytes());
        }
        bytes[240..242].copy_from_slice(&self.timeouts.to_ne_bytes());
        let info = Info(Some(bytes.into()));
        What::Sample(Box::new(Sample { info, ..self.sample.clone() }))
    }
}

fn story() -> Story {
    Story::new(Scope::Machine).process(7, "sender").socket(1, ("10.0.0.1:40000", "10.0.0.2:80"), 7)
}

/// A look each 100 ms; `change` makes each of the one before.
fn flow(looks: u32, first: Look, change: impl Fn(u32, &mut Look)) -> Story {
    let mut look = first;
    let mut story = story().with(look.what());
    for number in 1..=looks {
        if look.unacked > 0 {
            look.acked += look.pace;
            look.busy_us += 100_000;
        }
        change(number, &mut look);
        story = story.after(100).with(look.what());
    }
    story
}

fn nothing(_: u32, _: &mut Look) {}

fn only(story: &Story, code: u16) -> Finding {
    let finding = story.finding();
    assert_eq!((finding.code, finding.class), (Code(code), Class::Slow), "{}", finding.sentence);
    finding
}

fn found(looks: u32, first: Look) -> Vec<Code> {
    flow(looks, first, nothing).findings().iter().map(|finding| finding.code).collect()
}

#[test]
fn a_fixed_send_buffer_is_reported_once_with_its_size() {
    let finding = only(&flow(200, Look::fixed(), nothing), 201);
    assert_eq!(finding.times, 1);
    assert_eq!(
        finding.sentence,
        "sender (7): the send buffer, which the program fixed at 131,072 bytes, was full for 100 % \
         of 3.0 s with all of it in flight: 21 Mbit/s at a round trip of 50 ms, where the peer's \
         window allows 208 Mbit/s, for which about 2,600,960 bytes are needed."
    );
    assert_eq!(finding.heal.as_deref(), Some("lastbyte heal --socket 1 --unlock-buffers"));
    let Evidence::Number(rate) = finding.evidence["allowed_rate_bits_per_second"] else {
        panic!("{finding:#?}");
    };
    assert!((207e6..209e6).contains(&rate), "{rate}");
    // In its first seconds it is given time.
    assert_eq!(found(29, Look::fixed()), []);
}

#[test]
fn a_moment_of_rest_does_not_begin_a_flow_anew() {
    let told_at = |rests: std::ops::Range<u32>| {
        let fixed = Look::fixed();
        let mut story = story().with(fixed.what());
        let mut look = fixed;
        for number in 1..=60 {
            let is_at_rest = rests.contains(&number);
            if !is_at_rest {
                look.acked += look.pace;
                look.busy_us += 100_000;
            }
            let what = if is_at_rest { look.resting().what() } else { look.what() };
            story = story.after(100).with(what);
        }
        only(&story, 201).at_ns
    };
    let steady_ns = told_at(0..0);
    // Two looks, and then two seconds of nothing.
    assert!(told_at(15..17) <= steady_ns + 300_000_000);
    assert!(told_at(10..30) >= steady_ns + 2_000_000_000);
}

#[test]
fn a_send_buffer_is_not_blamed_for_what_it_does_not_do() {
    let fixed = Look::fixed;
    let locked = |locks: Option<u8>| {
        let mut look = fixed();
        look.sample.locks = locks;
        look
    };
    // The kernel sizes it; it is the receive buffer that is fixed.
    assert_eq!(found(60, locked(Some(0))), []);
    assert_eq!(found(60, locked(Some(2))), []);
    // The processors are the limit.
    assert_eq!(found(60, Look { rtt_us: 300, min_rtt_us: 200, ..fixed() }), []);
    // The path is full: there is a queue.
    assert_eq!(found(60, Look { rtt_us: 80_000, ..fixed() }), []);
    // The peer's window is hardly larger.
    assert_eq!(found(60, Look { peer_window: 140_000, ..fixed() }), []);
    // It is as large as the kernel would make it.
    let mut large = fixed();
    large.sample.send_buffer = Some(4 << 20);
    large.sample.queued = Some(4 << 20);
    assert_eq!(found(60, large), []);
}

#[test]
fn a_lock_that_cannot_be_read_is_guessed_from_a_buffer_that_does_not_grow() {
    let mut look = Look::fixed();
    look.sample.locks = None;
    let finding = only(&flow(60, look.clone(), nothing), 201);
    assert!(finding.sentence.contains("which seems to be fixed at"), "{finding:?}");
    let grows = flow(60, look, |number, look| {
        look.sample.send_buffer = Some(131_072 + number);
    });
    assert_eq!(grows.findings(), []);
}

#[test]
fn a_window_that_stays_full_is_reported() {
    let limited = |_: u32, look: &mut Look| look.window_limited_us += 95_000;
    let full = Look { peer_window: 80_480, unacked: 55, ..Look::full() };
    let finding = only(&flow(60, full.clone(), limited), 202);
    assert!(finding.sentence.contains("receive window of 80,480 bytes was full"), "{finding:?}");
    // It opens by itself.
    let opens = flow(60, full.clone(), |number, look| {
        limited(number, look);
        look.peer_window += look.peer_window / 50;
    });
    assert_eq!(opens.findings(), []);
    let near = Look { rtt_us: 200, min_rtt_us: 100, ..full };
    assert_eq!(flow(60, near, limited).findings(), []);
}

#[test]
fn losses_without_a_queue_are_reported_for_algorithms_that_react_to_them() {
    let lossy = |number: u32, look: &mut Look| look.again += u32::from(number.is_multiple_of(5));
    let finding = only(&flow(60, Look::full(), lossy), 203);
    assert!(finding.sentence.contains("cubic took 6 lost segments (0.11 %)"), "{finding:?}");
    assert_eq!(finding.heal.as_deref(), Some("lastbyte heal --socket 1 --congestion bbr"));
    let mut bbr = Look::full();
    bbr.sample.congestion = Some("bbr".to_owned());
    assert_eq!(flow(60, bbr, lossy).findings(), []);
    // Losses of a full queue.
    let queue = flow(60, Look::full(), |number, look| {
        look.rtt_us = if number.is_multiple_of(5) { 75_000 } else { 51_000 };
        lossy(number, look);
    });
    assert_eq!(queue.findings(), []);
    // More than any algorithm bears.
    assert_eq!(flow(60, Look::full(), |_, look| look.again += 20).findings(), []);
    assert_eq!(flow(60, Look::full(), nothing).findings(), []);
}

#[test]
fn a_program_that_feeds_a_steady_flow_too_slowly_is_reported() {
    let mut slow = Look { pace: 100_000, unacked: 28, unsent: 900, ..Look::fixed() };
    slow.sample.locks = Some(0);
    slow.sample.queued = Some(50_000);
    let finding = only(&flow(60, slow.clone(), nothing), 204);
    assert!(finding.sentence.contains("it wrote 8 Mbit/s"), "{finding:?}");
    // Somebody asks, and is answered.
    let answers = flow(60, slow.clone(), |_, look| look.received += 100);
    assert_eq!(answers.findings(), []);
    // A log, some keys, a heartbeat.
    assert_eq!(found(60, Look { pace: 2_000, unacked: 1, ..slow.clone() }), []);
    let seldom = flow(60, slow, |number, look| {
        if !number.is_multiple_of(3) {
            look.acked -= look.pace;
        }
    });
    assert_eq!(seldom.findings(), []);
}

#[test]
fn a_connection_at_rest_is_well() {
    let rest = Look::fixed().resting();
    assert_eq!(found(600, rest), []);
    // A question each second, as large as the buffer.
    let asks = flow(600, Look::fixed(), |number, look| {
        *look = match number % 10 {
            0 => Look { acked: look.acked, busy_us: look.busy_us, ..Look::fixed() },
            _ => look.resting(),
        };
    });
    assert_eq!(asks.findings(), []);
}

#[test]
fn timeouts_are_counted_and_the_time_that_nothing_moved() {
    let still = |number: u32, look: &mut Look| {
        look.acked -= look.pace;
        look.timeouts = look.timeouts.wrapping_add(u16::from(matches!(number, 3 | 7 | 15 | 31)));
    };
    let first = Look { timeouts: u16::MAX, ..Look::full() };
    let finding = only(&flow(40, first.clone(), still), 207);
    assert_eq!(finding.evidence["timeouts"], Evidence::Count(2));
    assert_eq!(finding.evidence["still_seconds"], Evidence::Number(1.0));
    let Evidence::Number(over) = finding.evidence["over_seconds"] else { panic!("{finding:#?}") };
    assert!((1.0..4.0).contains(&over), "{over}");
    // One, at the end of a burst.
    let once = flow(40, first.clone(), |number, look| {
        look.timeouts = look.timeouts.wrapping_add(u16::from(number == 5));
    });
    assert_eq!(once.findings(), []);
    // The peer has no room: these are probes.
    let shut = Look { peer_window: 0, unacked: 1, ..first };
    let codes: Vec<_> = flow(40, shut, still).findings().iter().map(|one| one.code).collect();
    assert_eq!(codes, [Code(208)]);
}

#[test]
fn events_tell_of_timeouts_where_the_kernel_does_not_count_them() {
    let mut look = Look { pace: 0, ..Look::full() };
    let mut story = story().with(look.what());
    for number in 1..40 {
        if matches!(number, 3 | 7 | 15) {
            let (why, segments) = (Again::TimeOut, 1);
            story = story.with(What::Retransmitted { socket: SocketId(1), why, segments });
        }
        look.busy_us += 100_000;
        story = story.after(100).with(look.what());
    }
    assert_eq!(only(&story, 207).evidence["timeouts"], Evidence::Count(2));
}

#[test]
fn a_window_that_falls_in_pauses_is_reported_the_third_time() {
    let bursts = |number: u32, look: &mut Look| {
        let (acked, busy_us, again) = (look.acked, look.busy_us, look.again);
        let name = look.sample.congestion.clone();
        *look = if number.is_multiple_of(8) {
            Look { cwnd: 60, unacked: 60, ..Look::full() }
        } else {
            Look { cwnd: 200, ..Look::full() }.resting()
        };
        (look.acked, look.busy_us, look.again) = (acked, busy_us, again);
        look.sample.congestion = name;
    };
    let finding = only(&flow(60, Look::full().resting(), bursts), 209);
    assert_eq!(finding.evidence["window_before_segments"], Evidence::Count(200));
    assert_eq!(flow(22, Look::full().resting(), bursts).findings(), []);
    let mut bbr = Look::full().resting();
    bbr.sample.congestion = Some("lb_bbr".to_owned());
    assert_eq!(flow(60, bbr, bursts).findings(), []);
    // It fell because of a loss.
    let lossy = flow(60, Look::full().resting(), |number, look| {
        bursts(number, look);
        look.again += u32::from(number.is_multiple_of(8));
    });
    assert_eq!(lossy.findings(), []);
}

#[test]
fn counters_that_run_backwards_begin_a_new_story() {
    let back = flow(200, Look::fixed(), |number, look| {
        if number.is_multiple_of(20) {
            (look.acked, look.busy_us) = (0, 0);
        }
    });
    assert_eq!(back.findings(), []);
}

#[test]
fn only_sockets_in_scope_are_reported() {
    let mut events = flow(60, Look::fixed(), nothing).events;
    let What::Began(began) = &mut events[0].what else { panic!("no beginning") };
    began.scope = Scope::Port(443);
    let mut doctor = crate::Doctor::new();
    for event in &events {
        assert_eq!(doctor.take(event), []);
    }
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut slow = Slow::default();
    let mut facts = Facts::new();
    for event in flow(5, Look::fixed(), nothing).with(io(10, 0, 0)).gone(1).events {
        facts.note(&event);
        slow.on(&event, &facts, &mut Vec::new());
    }
    assert!(slow.flows.is_empty() && slow.writes.is_empty());
}

/// Writes of 100 ms, of which so many were held back for so long each.
fn io(writes: u64, held_back: u64, each_ms: u64) -> What {
    What::Io(Io {
        socket: SocketId(1),
        pid: 7,
        over_ns: SECOND / 10,
        writes,
        written_bytes: writes * 100,
        tiny_writes: writes,
        held_back,
        held_back_ns: held_back * each_ms * 1_000_000,
        ..Io::default()
    })
}

fn ios(what: &What) -> Story {
    (0..200).fold(story(), |story, _| story.after(100).with(what.clone()))
}

#[test]
fn writes_that_wait_for_delayed_acknowledgements_are_reported() {
    let finding = only(&ios(&io(4, 2, 41)), 205);
    assert_eq!(finding.evidence["held_back_writes"], Evidence::Count(6));
    assert!(finding.sentence.contains("delayed 41 ms each"), "{finding:?}");
    // An acknowledgement comes after a round trip.
    assert_eq!(ios(&io(4, 2, 1)).findings(), []);
    // A large write waits by itself.
    let What::Io(held) = io(4, 2, 41) else { unreachable!() };
    let large = What::Io(Io { written_bytes: 4_000_000, tiny_writes: 0, ..held });
    assert_eq!(ios(&large).findings(), []);
    let far = Look { rtt_us: 101_000, min_rtt_us: 100_000, ..Look::fixed() }.resting();
    let far = (0..50).fold(story().with(far.what()), |story, _| story.with(io(4, 2, 101)));
    assert_eq!(far.findings(), []);
}

#[test]
fn two_kinds_of_evidence_are_one_finding() {
    let mut look = Look { unacked: 1, unsent: 100, last_sent_ms: 25, pace: 400, ..Look::full() };
    (look.rtt_us, look.min_rtt_us) = (22_000, 2_000);
    let mut story = story();
    for _ in 0..60 {
        look.acked += look.pace;
        look.busy_us += 100_000;
        story = story.after(100).with(look.what()).with(io(4, 2, 41));
    }
    assert_eq!(only(&story, 205).times, 1);
}

#[test]
fn thousands_of_tiny_writes_are_reported() {
    let finding = only(&ios(&io(5_000, 0, 0)), 206);
    assert!(finding.sentence.contains("100.0 bytes each"), "{finding:?}");
    assert_eq!(finding.times, 1);
    // Soon over.
    let short = (0..29).fold(story(), |story, _| story.after(100).with(io(50_000, 0, 0)));
    assert_eq!(short.findings(), []);
    // Keys, at the rate of a very quick person.
    assert_eq!(ios(&io(50, 0, 0)).findings(), []);
    // Answers to as many questions.
    let What::Io(writes) = io(5_000, 0, 0) else { panic!("no writes") };
    assert_eq!(ios(&What::Io(Io { reads: 5_000, ..writes })).findings(), []);
    // Large ones.
    assert_eq!(ios(&What::Io(Io { tiny_writes: 4_000, ..writes })).findings(), []);
}

proptest! {
    /// Whatever the bytes and numbers are, nothing breaks, and what is told is finite.
    #[test]
    fn any_samples(looks in prop::collection::vec(any_sample(), 1..80)) {
        check(looks)?;
    }

    /// Of a flow that is nearly one that is told of.
    #[test]
    fn nearly_sick(looks in prop::collection::vec(any_change(), 40..80)) {
        let mut look = Look::fixed();
        let mut events = Vec::new();
        for (at, byte, locks) in looks {
            look.acked = look.acked.saturating_add(look.pace);
            look.busy_us += 100_000;
            look.sample.locks = locks;
            let What::Sample(mut sample) = look.what() else { panic!("no sample") };
            if let Some(info) = &mut sample.info.0 {
                info[at] = byte;
            }
            events.push((100, What::Sample(sample)));
        }
        check(events)?;
    }
}

fn check(looks: Vec<(u64, What)>) -> Result<(), TestCaseError> {
    let mut story = story();
    for (ms, what) in looks {
        story = story.after(ms).with(what);
    }
    for finding in story.findings() {
        let text = serde_json::to_string(&finding).unwrap();
        let again: Finding = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(again.evidence.len(), finding.evidence.len());
        prop_assert!(!finding.sentence.contains("inf") && !finding.sentence.contains("NaN"));
    }
    Ok(())
}

fn any_change() -> impl Strategy<Value = (usize, u8, Option<u8>)> {
    (0..248_usize, any::<u8>(), prop::option::of(0..4_u8))
}

fn any_sample() -> impl Strategy<Value = (u64, What)> {
    let number = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let info = prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
    let numbers = prop::collection::vec(prop::option::of(number), 6);
    (0..2_000_u64, numbers, info, any::<u8>()).prop_map(|(ms, n, info, state)| {
        let or_zero = |number: Option<u32>| number.unwrap_or_default();
        let sample = Sample {
            socket: SocketId(1),
            state: State::from(state % 13),
            receive_queue: or_zero(n[0]),
            send_queue: or_zero(n[1]),
            receive_buffer: n[2],
            send_buffer: n[3],
            queued: n[4],
            locks: n[5].map(|locks| locks.to_ne_bytes()[0]),
            held: true,
            congestion: Some("cubic".to_owned()),
            info: Info(info.map(Into::into)),
        };
        (ms, What::Sample(Box::new(sample)))
    })
}
