//! The judgement, on samples that are made up and on some of real senders.

use proptest::prelude::*;

use super::recorded::{
    CAPPED, FULL, LOSS, PACED, Recorded, SLOW_READER, SLOW_WRITER, SMALL_RECEIVE_BUFFER,
    SMALL_SEND_BUFFER, SMALL_WMEM,
};
use super::*;

const TENTH: Duration = Duration::from_millis(100);
const MSS: u32 = 1448;

/// A connection of which nothing is known but that it stands, on a kernel that knows all fields.
fn idle() -> TcpInfo {
    let mut bytes = [0; 280];
    bytes[0] = 1;
    let mut info = TcpInfo::parse(&bytes).unwrap();
    (info.snd_mss, info.rtt_us) = (MSS, 40_000);
    (info.snd_wnd, info.max_pacing_rate) = (Some(10_000_000), Some(u64::MAX));
    info
}

// --- recorded -----------------------------------------------------------------------------------

#[test]
fn recorded_senders_are_judged_right() {
    use LimitedBy::{
        Application, CongestionWindow, Pacing, ReceiveWindow, SendBuffer as Buffer, Unknown,
    };
    // Without the fill of the buffer and the writer's word a buffer that is not locked tells nothing.
    for (name, rows, locked, right, least) in [
        ("SMALL_SEND_BUFFER", SMALL_SEND_BUFFER, true, Buffer, Buffer),
        ("SMALL_WMEM", SMALL_WMEM, false, Buffer, Unknown),
        ("SMALL_RECEIVE_BUFFER", SMALL_RECEIVE_BUFFER, false, ReceiveWindow, ReceiveWindow),
        ("SLOW_WRITER", SLOW_WRITER, false, Application, Unknown),
        ("SLOW_READER", SLOW_READER, false, ReceiveWindow, ReceiveWindow),
        ("LOSS", LOSS, false, CongestionWindow, CongestionWindow),
        ("CAPPED", CAPPED, false, Pacing, Pacing),
        ("PACED", PACED, false, Pacing, Pacing),
        ("FULL", FULL, false, CongestionWindow, CongestionWindow),
    ] {
        for (fill, word) in [(true, true), (true, false), (false, true), (false, false)] {
            let (first, share) = judged(rows, locked, fill, word).first().unwrap();
            let right = if fill || word { right } else { least };
            assert_eq!(first, right, "{name}, fill {fill}, word {word}");
            assert!(share > 0.8, "{name}, fill {fill}, word {word}: {share}");
        }
    }
}

fn judged(rows: Recorded, locked: bool, fill: bool, word: bool) -> Limits {
    let known = |row| {
        let whole = moment(row);
        Moment {
            send_buffer: whole.send_buffer.filter(|_| fill || locked),
            queued: whole.queued.filter(|_| fill),
            ..whole
        }
    };
    let mut limits = Limits::default();
    for pair in rows.windows(2) {
        let grown = |column: usize| Duration::from_micros(pair[1][column] - pair[0][column]);
        let waiting = word.then(|| grown(19));
        limits.add(&known(&pair[0]), &known(&pair[1]), grown(0), waiting);
    }
    limits
}

fn moment(row: &[u64; 20]) -> Moment {
    let small = |column: usize| u32::try_from(row[column]).unwrap();
    let mut info = idle();
    info.busy_us = Some(row[1]);
    info.rwnd_limited_us = Some(row[2]);
    info.sndbuf_limited_us = Some(row[3]);
    info.unacked_segments = small(4);
    info.sacked_segments = small(5);
    info.lost_segments = small(6);
    info.retrans_segments = small(7);
    info.cwnd_segments = small(8);
    info.notsent_bytes = Some(small(9));
    info.delivery_rate_app_limited = Some(row[10] == 1);
    (info.pacing_rate, info.max_pacing_rate) = (Some(row[11]), Some(row[12]));
    info.bytes_sent = Some(row[13]);
    info.bytes_retrans = Some(row[14]);
    info.bytes_acked = Some(row[15]);
    info.snd_wnd = Some(small(16));
    Moment { info, send_buffer: Some(small(17)), queued: Some(small(18)) }
}

// --- made up ------------------------------------------------------------------------------------

/// What sent 10 MB/s is paced at, where pacing does not hold it back.
const FASTER: u64 = 50_000_000;

/// A tenth of a second of a sender that had data outstanding all the time, with so many segments in
/// flight, so many bytes not sent, and the rest as it is changed to.
fn busy(in_flight: u32, notsent: u32, change: impl Fn(&mut TcpInfo)) -> [TcpInfo; 2] {
    let at = |time: u64| {
        let mut info = idle();
        (info.unacked_segments, info.cwnd_segments) = (in_flight, 400);
        (info.notsent_bytes, info.pacing_rate) = (Some(notsent), Some(FASTER));
        (info.busy_us, info.bytes_acked) = (Some(time), Some(time * 10));
        info.bytes_sent = Some(time * 10 + u64::from(in_flight * MSS));
        change(&mut info);
        info
    };
    [at(0), at(100_000)]
}

fn added(infos: [TcpInfo; 2], of: impl Fn(TcpInfo) -> Moment, waiting: Option<u64>) -> Limits {
    let mut limits = Limits::default();
    let [before, after] = infos.map(of);
    limits.add(&before, &after, TENTH, waiting.map(Duration::from_millis));
    assert_eq!(limits.times().iter().sum::<Duration>(), TENTH);
    limits
}

fn percent(limits: &Limits) -> [u128; 6] {
    let all: Duration = limits.times().iter().sum();
    limits.times().map(|time| time.as_micros() * 100 / all.as_micros())
}

fn named(infos: [TcpInfo; 2]) -> LimitedBy {
    let (first, share) = added(infos, Moment::from, None).first().unwrap();
    assert!(share > 0.999, "{first}: {share}");
    first
}

#[test]
fn the_clocks_come_first() {
    let clocks = |busy: u64, window: u64, buffer: u64| {
        let [before, mut after] = self::busy(400, 50_000, |_| {});
        (after.busy_us, after.rwnd_limited_us) = (Some(busy), Some(window));
        after.sndbuf_limited_us = Some(buffer);
        percent(&added([before, after], Moment::from, None))
    };
    assert_eq!(clocks(10_000, 0, 0), [90, 0, 0, 10, 0, 0]);
    assert_eq!(clocks(100_000, 90_000, 0), [0, 0, 90, 10, 0, 0]);
    assert_eq!(clocks(100_000, 0, 70_000), [0, 70, 0, 30, 0, 0]);
    assert_eq!(clocks(0, 0, 0), [100, 0, 0, 0, 0, 0]);
    // Ahead by the kernel's ticks, and by more.
    assert_eq!(clocks(104_000, 104_000, 0), [0, 0, 100, 0, 0, 0]);
    assert_eq!(clocks(u64::MAX, u64::MAX, 9), [0, 0, 100, 0, 0, 0]);
}

#[test]
fn a_segment_that_waits_tells_what_for() {
    let waits = |in_flight, change: fn(&mut TcpInfo)| named(busy(in_flight, 500_000, change));
    assert_eq!(waits(400, |_| {}), LimitedBy::CongestionWindow);
    assert_eq!(waits(380, |_| {}), LimitedBy::CongestionWindow);
    assert_eq!(waits(200, |_| {}), LimitedBy::Unknown);
    let paced = |info: &mut TcpInfo| info.pacing_rate = Some(10_500_000);
    assert_eq!(waits(200, paced), LimitedBy::Pacing);
    let small_window = |info: &mut TcpInfo| info.snd_wnd = Some(300_000);
    assert_eq!(waits(200, small_window), LimitedBy::ReceiveWindow);
    // A limit that is reached explains more than a window that is full as well.
    let capped = |info: &mut TcpInfo| {
        (info.pacing_rate, info.max_pacing_rate) = (Some(10_500_000), Some(10_500_000));
    };
    assert_eq!(waits(400, capped), LimitedBy::Pacing);
    // What arrived out of order or is lost is not in the pipe, what was sent again is.
    let recovering = |info: &mut TcpInfo| {
        info.cwnd_segments = 100;
        (info.sacked_segments, info.lost_segments, info.retrans_segments) = (90, 20, 10);
    };
    assert_eq!(waits(200, recovering), LimitedBy::CongestionWindow);
    assert_eq!(waits(120, recovering), LimitedBy::Unknown);
}

#[test]
fn when_nothing_waits_the_buffer_or_the_writer_tells() {
    // 100 segments are in flight; less than one waits for more, by Nagle's rule.
    let infos = busy(100, 1_000, |_| {});
    let of =
        |send_buffer, queued| move |info| Moment { info, send_buffer: Some(send_buffer), queued };
    let told = |size, queued, waiting| percent(&added(infos, of(size, queued), waiting));
    let (application, buffer) = ([100, 0, 0, 0, 0, 0], [0, 100, 0, 0, 0, 0]);
    let unknown = [0, 0, 0, 0, 0, 100];
    assert_eq!(told(150_000, Some(150_000), None), buffer);
    assert_eq!(told(150_000, Some(100_000), None), application);
    assert_eq!(told(150_000, Some(110_000), None), unknown);
    // Without the fill, where the bytes in flight tell by themselves.
    assert_eq!(told(131_072, None, None), buffer);
    assert_eq!(told(4_000_000, None, None), application);
    assert_eq!(told(300_000, None, None), unknown);
    assert_eq!(percent(&added(infos, Moment::from, None)), unknown);
    // The writer knows best, unless it waited for room that was there.
    assert_eq!(percent(&added(infos, Moment::from, Some(0))), application);
    assert_eq!(percent(&added(infos, Moment::from, Some(75))), [25, 75, 0, 0, 0, 0]);
    assert_eq!(told(150_000, Some(150_000), Some(0)), application);
    assert_eq!(told(150_000, Some(110_000), Some(150)), buffer);
    assert_eq!(told(150_000, Some(100_000), Some(75)), [25, 0, 0, 0, 0, 75]);
    // Just drained: it was full at the other end, or its clock ran.
    let mut limits = Limits::default();
    let ends = infos.map(of(150_000, Some(110_000)));
    limits.add(&Moment { queued: Some(160_000), ..ends[0] }, &ends[1], TENTH, None);
    assert_eq!(percent(&limits), buffer);
    let mut clock = infos;
    clock[1].sndbuf_limited_us = Some(4_000);
    clock[0].sndbuf_limited_us = Some(0);
    assert_eq!(percent(&added(clock, of(150_000, Some(110_000)), None)), buffer);
}

#[test]
fn a_flow_that_ran_out_of_data_is_not_held_by_what_is_full_for_a_moment() {
    let infos = |rtt_us| {
        busy(400, 500_000, move |info| {
            (info.delivery_rate_app_limited, info.rtt_us) = (Some(true), rtt_us);
        })
    };
    let buffer = |info| Moment { info, send_buffer: Some(131_072), queued: Some(1_100_000) };
    let first = |infos| added(infos, buffer, None).first().unwrap().0;
    assert_eq!(first(infos(40_000)), LimitedBy::SendBuffer);
    // As at the start of every connection.
    assert_eq!(first(infos(200_000)), LimitedBy::CongestionWindow);
    // One mark may be of a time before.
    let [before, mut after] = infos(40_000);
    after.delivery_rate_app_limited = Some(false);
    assert_eq!(first([before, after]), LimitedBy::CongestionWindow);
}

#[test]
fn data_that_is_about_to_leave_is_the_programs_where_it_does_not_wait() {
    let infos = busy(20, 10_000, |_| {});
    let told = |of: fn(TcpInfo) -> Moment, waiting| added(infos, of, waiting).first().unwrap().0;
    let room = |info| Moment { info, send_buffer: Some(2_000_000), queued: Some(50_000) };
    let full = |info| Moment { info, send_buffer: Some(50_000), queued: Some(50_000) };
    assert_eq!(told(Moment::from, Some(0)), LimitedBy::Application);
    assert_eq!(told(room, None), LimitedBy::Application);
    assert_eq!(told(full, None), LimitedBy::Unknown);
    assert_eq!(told(room, Some(50)), LimitedBy::Unknown);
}

#[test]
fn what_contradicts_itself_or_is_not_told_is_unknown() {
    let changed = |change: fn(&mut TcpInfo)| {
        let [before, mut after] = busy(400, 500_000, |_| {});
        change(&mut after);
        named([before, after])
    };
    assert_eq!(changed(|_| {}), LimitedBy::CongestionWindow);
    assert_eq!(changed(|info| info.state = State::Close), LimitedBy::Unknown);
    let old = |info: &mut TcpInfo| (info.busy_us, info.rwnd_limited_us) = (None, None);
    assert_eq!(changed(old), LimitedBy::Unknown);
    assert_eq!(named(busy(400, 500_000, old)), LimitedBy::Unknown);
    assert_eq!(named(busy(400, 500_000, |info| info.notsent_bytes = None)), LimitedBy::Unknown);
    let [before, after] = busy(400, 500_000, |_| {});
    assert_eq!(named([after, before]), LimitedBy::Unknown, "clocks that run backwards");
}

#[test]
fn streams_add_up() {
    assert_eq!(Limits::default().first(), None);
    assert_eq!(Limits::default().shares(), [0.0; 6]);
    let window = added(busy(400, 500_000, |_| {}), Moment::from, None);
    let program = added(busy(100, 0, |_| {}), Moment::from, Some(0));
    let all: Limits = [window, program, window, program, program].into_iter().sum();
    assert_eq!(percent(&all), [60, 0, 0, 40, 0, 0]);
    assert_eq!(all.times()[LimitedBy::CongestionWindow as usize], TENTH * 2);
    assert_eq!(all.first().unwrap().0, LimitedBy::Application);
    for (place, limit) in LimitedBy::ALL.into_iter().enumerate() {
        assert_eq!(limit as usize, place, "{limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 2048 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_kernel_says_the_times_are_the_interval(
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 280), 2),
        same in any::<bool>(),
        (send_buffer, queued) in any::<(Option<u32>, Option<u32>)>(),
        elapsed in any::<u64>(),
        waiting in any::<Option<u64>>(),
    ) {
        let infos = [&bytes[0], &bytes[usize::from(!same)]].map(|bytes| TcpInfo::parse(bytes).unwrap());
        let [before, after] = infos.map(|info| Moment { info, send_buffer, queued });
        let elapsed = Duration::from_micros(elapsed);
        let mut limits = Limits::default();
        limits.add(&before, &after, elapsed, waiting.map(Duration::from_micros));
        prop_assert_eq!(limits.times().iter().sum::<Duration>(), elapsed);
        let shares: f64 = limits.shares().iter().sum();
        prop_assert!(elapsed.is_zero() || (shares - 1.0).abs() < 1e-9);
    }
}
