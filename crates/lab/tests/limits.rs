//! What held a sender back, in made-up bottlenecks over emulated links: the right one is named first.
//!
//! Each run is judged four times: with what the kernel says of the send buffer's fill or without,
//! and with the writer's own word on its waiting or without. Without both nobody can tell an idle
//! program from a buffer that is not locked: there "unknown" is right.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::sample::{LimitedBy, Limits, Moment};
use lastbyte_link::{FAR, Link, LinkError, Scenario};
use lastbyte_socket::blocking::{Listener, Stream};
use lastbyte_socket::{ConnectOptions, ListenOptions, Sampler, SocketOptions, TcpInfo};
use lastbyte_sys::socket;

const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A bottleneck. What is not said is the kernel's own choice.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    rtt: &'static str,
    loss: &'static str,
    tune: fn(&mut SocketOptions),
    receive_buffer: Option<u32>,
    /// `net.ipv4.tcp_wmem` of the sender.
    wmem: Option<&'static str>,
    writes: Rhythm,
    reads: Rhythm,
    /// What is right with cubic and reno, and with bbr.
    limit: LimitedBy,
    bbr: LimitedBy,
}

/// So many bytes at a time, and the time from one to the next.
#[derive(Clone, Copy, Debug)]
struct Rhythm {
    bytes: usize,
    every: Duration,
}

const UNHINDERED: Rhythm = Rhythm { bytes: 128 * 1024, every: Duration::ZERO };
const TICKING: Rhythm = Rhythm { bytes: 5_000, every: Duration::from_millis(20) };
const BURSTS: Rhythm = Rhythm { bytes: 16 * 1024, every: Duration::from_millis(50) };

const FULL: Case = Case {
    name: "the link alone",
    rtt: "40ms",
    loss: "0%",
    tune: |_| {},
    receive_buffer: None,
    wmem: None,
    writes: UNHINDERED,
    reads: UNHINDERED,
    limit: LimitedBy::CongestionWindow,
    bbr: LimitedBy::Pacing,
};
const SMALL_SEND_BUFFER: Case = Case {
    name: "SO_SNDBUF 64 KiB",
    tune: |tune| tune.send_buffer = Some(65_536),
    limit: LimitedBy::SendBuffer,
    bbr: LimitedBy::SendBuffer,
    ..FULL
};
const SMALL_RECEIVE_BUFFER: Case = Case {
    name: "SO_RCVBUF 64 KiB",
    receive_buffer: Some(65_536),
    limit: LimitedBy::ReceiveWindow,
    bbr: LimitedBy::ReceiveWindow,
    ..FULL
};
const SLOW_WRITER: Case = Case {
    name: "writes 16 KiB each 50 ms",
    writes: BURSTS,
    limit: LimitedBy::Application,
    bbr: LimitedBy::Application,
    ..FULL
};
/// bbr fills the path all the same: what holds it is the pace of its model.
const LOSS: Case = Case { name: "2 % lost", loss: "2%", ..FULL };
const PACED: Case = Case {
    name: "SO_MAX_PACING_RATE 10 Mbit/s",
    tune: |tune| tune.max_pacing_rate = Some(1_250_000),
    limit: LimitedBy::Pacing,
    ..FULL
};

const CASES: [Case; 11] = [
    FULL,
    SMALL_SEND_BUFFER,
    Case {
        name: "tcp_wmem up to 64 KiB",
        tune: |_| {},
        wmem: Some("4096 16384 65536"),
        ..SMALL_SEND_BUFFER
    },
    SMALL_RECEIVE_BUFFER,
    SLOW_WRITER,
    Case { name: "writes 5 kB each 20 ms", writes: TICKING, ..SLOW_WRITER },
    Case {
        name: "... with SO_SNDBUF 64 KiB",
        tune: |tune| tune.send_buffer = Some(65_536),
        ..SLOW_WRITER
    },
    Case {
        name: "reads 5 kB each 20 ms",
        receive_buffer: None,
        reads: TICKING,
        ..SMALL_RECEIVE_BUFFER
    },
    LOSS,
    PACED,
    Case {
        name: "... with SO_SNDBUF 1 MiB",
        tune: |tune| {
            tune.max_pacing_rate = Some(1_250_000);
            tune.send_buffer = Some(1 << 20);
        },
        ..PACED
    },
];

// --- the tests ----------------------------------------------------------------------------------

#[test]
fn the_right_limit_is_named() {
    let quick = [
        (SMALL_SEND_BUFFER, "cubic"),
        (SMALL_RECEIVE_BUFFER, "bbr"),
        (SLOW_WRITER, "bbr"),
        (PACED, "reno"),
    ];
    thread::scope(|scope| {
        for (case, congestion) in quick {
            scope.spawn(move || hold(&case, congestion, Duration::from_secs(2)));
        }
    });
}

#[test]
#[ignore = "two minutes of sending"]
fn the_right_limit_is_named_in_every_bottleneck_with_every_algorithm() {
    for case in &CASES {
        for congestion in ["cubic", "reno", "bbr"] {
            hold(case, congestion, Duration::from_secs(4));
        }
    }
}

#[test]
#[ignore = "half a minute of sending"]
fn the_right_limit_is_named_where_a_round_trip_is_longer_than_an_interval() {
    for case in [SMALL_SEND_BUFFER, SMALL_RECEIVE_BUFFER, SLOW_WRITER, LOSS, PACED] {
        hold(&Case { rtt: "200ms", ..case }, "cubic", Duration::from_secs(6));
    }
}

/// Runs one, says what was found, and holds it against what is right.
fn hold(case: &Case, congestion: &str, time: Duration) {
    let Some(seen) = run(case, congestion, time) else { return };
    let right = if congestion == "bbr" { case.bbr } else { case.limit };
    let of_the_writer = [LimitedBy::Application, LimitedBy::SendBuffer].contains(&right);
    for (fill, word) in [(true, true), (true, false), (false, true), (false, false)] {
        let limits = judged(&seen, fill, word);
        let (first, share) = limits.first().unwrap();
        let shares = limits.shares().map(|share| format!("{:4.0}", share * 100.0)).concat();
        let known = format!(
            "{} {congestion}, {}, {}",
            case.name,
            if fill { "fill" } else { "no fill" },
            if word { "word" } else { "no word" }
        );
        eprintln!("{known:54}{shares} %: {first} {:.0} %", share * 100.0);
        // A buffer that drains may be seen neither full nor with room each time.
        let seldom_full = right == LimitedBy::SendBuffer && !word;
        let blind = of_the_writer && !fill && !word && !seen[0].fixed;
        let unknown = (seldom_full || blind) && first == LimitedBy::Unknown;
        assert!(first == right || unknown, "{known}: {first}, not {right}");
    }
}

fn judged(seen: &[Seen], fill: bool, word: bool) -> Limits {
    let moment = |seen: &Seen| Moment {
        info: seen.info,
        send_buffer: (fill || seen.fixed).then_some(seen.send_buffer),
        queued: fill.then_some(seen.queued),
    };
    let mut limits = Limits::default();
    for pair in seen.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let waiting = word.then(|| after.waited - before.waited);
        limits.add(&moment(before), &moment(after), after.at - before.at, waiting);
    }
    limits
}

// --- a run --------------------------------------------------------------------------------------

/// What was known of the sender at one time.
struct Seen {
    at: Duration,
    info: TcpInfo,
    send_buffer: u32,
    fixed: bool,
    queued: u32,
    /// How long the writer has waited for room until then.
    waited: Duration,
}

/// Sends for so long over a link of 50 Mbit/s.
fn run(case: &Case, congestion: &str, time: Duration) -> Option<Vec<Seen>> {
    let (rtt, loss) = (case.rtt, case.loss);
    let path = format!("rtt = '{rtt}'\nrate = '50mbit'\nqueue = '1bdp'\nloss = '{loss}'");
    let scenario = Scenario::parse("test", &path).unwrap();
    let link = match Link::up(&scenario.spec, 7) {
        Ok(link) => link,
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    if let Some(wmem) = case.wmem {
        link.near().set_sysctl("ipv4/tcp_wmem", wmem).unwrap();
    }
    let mut tune = SocketOptions::default();
    tune.receive_buffer = case.receive_buffer;
    let address = SocketAddr::from((FAR, 0));
    let options = ListenOptions::default().socket(tune);
    let listener = link.far().run(|| Listener::bind_with(address, &options)).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let reads = case.reads;
    let receiver = thread::spawn(move || read(&listener, reads));
    let mut tune = SocketOptions::default().congestion(congestion);
    (case.tune)(&mut tune);
    let writes = case.writes;
    let sender = link.near().spawn("sender", move || {
        let options = ConnectOptions::default().socket(tune).within(PATIENCE);
        let mut stream = Stream::connect_with(address, &options).unwrap();
        let seen = watched(&mut stream, |stream, waiting| write(stream, writes, time, waiting));
        // What is still on its way is of no interest: it is thrown away, where there is any.
        drop(stream.abort(Duration::ZERO));
        seen
    });
    let seen = sender.unwrap().join().unwrap().unwrap();
    receiver.join().unwrap();
    Some(seen)
}

/// Reads in a rhythm until the sender resets the connection.
fn read(listener: &Listener, rhythm: Rhythm) {
    let mut stream = listener.accept_within(PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut chunk = vec![0; rhythm.bytes];
    let mut next = Instant::now();
    while let Ok(1..) = stream.read(&mut chunk) {
        next += rhythm.every;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// How long a writer has waited for room.
#[derive(Default)]
struct Waiting {
    before: Duration,
    since: Option<Instant>,
}

impl Waiting {
    fn until(&self, now: Instant) -> Duration {
        let waits = self.since.map(|since| now.saturating_duration_since(since));
        self.before + waits.unwrap_or_default()
    }
}

/// Writes in a rhythm, for so long, and says when it waits for room.
fn write(stream: &mut Stream, rhythm: Rhythm, time: Duration, waiting: &Mutex<Waiting>) {
    let chunk = vec![0x5A; rhythm.bytes];
    let end = Instant::now() + time;
    let mut next = Instant::now();
    while Instant::now() < end {
        let mut left = rhythm.bytes;
        while left > 0 && Instant::now() < end {
            match stream.write_now(&chunk[..left]) {
                Ok(bytes) => left -= bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    waiting.lock().unwrap().since = Some(Instant::now());
                    stream.wait(false, true, SAMPLE_EVERY).unwrap();
                    let mut waiting = waiting.lock().unwrap();
                    waiting.before = waiting.until(Instant::now());
                    waiting.since = None;
                }
                Err(error) => panic!("{error}"),
            }
        }
        next += rhythm.every;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Does it, and watches the connection meanwhile.
fn watched(stream: &mut Stream, work: impl FnOnce(&mut Stream, &Mutex<Waiting>)) -> Vec<Seen> {
    let sampler = stream.sampler().unwrap();
    let fd = stream.as_fd().try_clone_to_owned().unwrap();
    let fixed = stream.granted().unwrap().send_buffer_fixed == Some(true);
    let waiting = Arc::new(Mutex::new(Waiting::default()));
    let (stop, stopped) = mpsc::channel::<()>();
    let shared = Arc::clone(&waiting);
    let watcher = thread::spawn(move || {
        let started = Instant::now();
        let mut seen = Vec::new();
        while matches!(stopped.recv_timeout(SAMPLE_EVERY), Err(RecvTimeoutError::Timeout)) {
            seen.push(look(&sampler, &fd, (started, fixed), &shared));
        }
        seen
    });
    work(stream, &waiting);
    drop(stop);
    watcher.join().unwrap()
}

fn look(
    sampler: &Sampler,
    fd: &OwnedFd,
    (started, fixed): (Instant, bool),
    waiting: &Mutex<Waiting>,
) -> Seen {
    let now = Instant::now();
    Seen {
        at: now - started,
        info: sampler.info().unwrap(),
        send_buffer: socket::send_buffer(fd).unwrap().unsigned_abs(),
        fixed,
        queued: socket::send_queue(fd).unwrap(),
        waited: waiting.lock().unwrap().until(now),
    }
}
