//! Many connections at the same time.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::blocking::Stream;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{KIB, times};
use crate::case::{self, Case, Expected, Group, Outcome, Pair, Play};
use crate::content::Content;
use crate::script::{Role, Step};
use crate::testbed::Testbed;

pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, does, because, play| Case {
        name: format!("{}/{name}", Group::Many),
        group: Group::Many,
        does,
        because,
        runs: 1,
        long: false,
        play: Play::By(play),
        client: Expected::ALL_FIN,
        server: Expected::ALL_FIN,
    };
    let at_once = case(
        "at-once",
        "2,000 connections open at once, each with 1 KiB of its own each way.",
        "connections know nothing of each other.",
        at_once as fn(&Testbed, u64) -> Outcome,
    );
    let random = case(
        "random",
        "16 connections at once that write, pause and end by chance, in order or by a reset.",
        "each is one of the other cases.",
        random as fn(&Testbed, u64) -> Outcome,
    );
    [times(1, vec![at_once]), times(5, vec![random])].concat()
}

/// How many threads each side has: one that waits does not block the others.
pub(super) const THREADS: usize = 16;

/// The next unclaimed number below a limit.
pub(super) fn next_of(next: &AtomicU64, count: u64) -> Option<u64> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    (number < count).then_some(number)
}

/// Why a connection is not counted, for people.
#[derive(Debug)]
pub(super) struct ShortRead(pub(super) String);

/// Everything up to a FIN, and the stream, still open for writes.
pub(super) fn read_to_fin(
    testbed: &Testbed,
    mut stream: Stream,
) -> Result<(Vec<u8>, Stream), ShortRead> {
    let mut read = Vec::new();
    let result = stream
        .set_read_timeout(Some(testbed.waits().deadline))
        .and_then(|()| (&mut stream).take(MOST).read_to_end(&mut read));
    match result {
        Ok(_) => Ok((read, stream)),
        Err(error) => Err(ShortRead(format!("{} bytes, then: {error}", read.len()))),
    }
}

/// More than any of these connections carries.
const MOST: u64 = 1_024 * KIB;

/// Which numbered connections arrived correctly.
#[derive(Debug)]
pub(super) struct Arrived {
    count: u64,
    /// How many were accepted so far.
    accepted: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    good: HashSet<u64>,
    fault: Option<String>,
}

impl Arrived {
    pub(super) fn new(count: u64) -> Self {
        Self { count, accepted: AtomicU64::new(0), book: Mutex::default() }
    }

    /// Accepts connections until all have arrived or no more come, and reads each; `read` returns
    /// its number.
    pub(super) fn accept_each(
        &self,
        testbed: &Testbed,
        read: impl Fn(Stream) -> Result<u64, ShortRead>,
    ) {
        let mut last = Instant::now();
        while self.accepted.load(Ordering::Relaxed) < self.count
            && last.elapsed() < testbed.waits().deadline
        {
            let Some(stream) = testbed.accept_within(testbed.waits().moment) else { continue };
            self.accepted.fetch_add(1, Ordering::Relaxed);
            last = Instant::now();
            self.note(read(stream));
        }
    }

    pub(super) fn note(&self, read: Result<u64, ShortRead>) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = match read {
            Ok(number) if number < self.count && book.good.insert(number) => return,
            Ok(number) => format!("number {number} came twice"),
            Err(ShortRead(why)) => why,
        };
        book.fault.get_or_insert(fault);
    }

    pub(super) fn outcome(self) -> Outcome {
        let book = self.book.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = || "connections never came".to_owned();
        let good = book.good.len() as u64;
        let fault = (good < self.count).then(|| book.fault.unwrap_or_else(missing));
        Outcome::Many { good, of: self.count, fault }
    }
}

const AT_ONCE: u64 = 2_000;

/// All connections are opened and send their request before any response, so that all are open
/// together.
fn at_once(testbed: &Testbed, run: u64) -> Outcome {
    let key = testbed.setup().seed.wrapping_add(run);
    let (next, answered) = (AtomicU64::new(0), Arrived::new(AT_ONCE));
    let clients = Mutex::new(Vec::new());
    let mut servers = Vec::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(number) = next_of(&next, AT_ONCE) {
                    let asked = testbed.connect().map_err(|error| ShortRead(error.to_string()));
                    match asked.and_then(|stream| ask(stream, key, number)) {
                        Ok(stream) => {
                            let mut clients =
                                clients.lock().unwrap_or_else(PoisonError::into_inner);
                            clients.push((number, stream));
                        }
                        Err(error) => answered.note(Err(error)),
                    }
                }
            });
        }
        let mut last = Instant::now();
        while (servers.len() as u64) < AT_ONCE && last.elapsed() < testbed.waits().deadline {
            if let Some(stream) = testbed.accept_within(testbed.waits().moment) {
                servers.push(stream);
                last = Instant::now();
            }
        }
    });
    let servers = Mutex::new(servers);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(stream) = taken_from(&servers) {
                    // An error shows at the client, which gets no response.
                    let _ = answer(testbed, stream, key);
                }
            });
            scope.spawn(|| {
                while let Some((number, stream)) = taken_from(&clients) {
                    answered.note(hear(testbed, stream, key, number));
                }
            });
        }
    });
    answered.outcome()
}

fn taken_from<T>(list: &Mutex<Vec<T>>) -> Option<T> {
    list.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

const LENGTH: usize = 1_024;

/// The number, then content. Requests and responses differ.
fn message(key: u64, number: u64, role: Role) -> Vec<u8> {
    let mut message = number.to_le_bytes().to_vec();
    message.resize(LENGTH, 0);
    let (_, rest) = message.split_at_mut(8);
    Content::new(key.wrapping_add(number * 2 + role as u64)).fill(0, rest);
    message
}

fn ask(mut stream: Stream, key: u64, number: u64) -> Result<Stream, ShortRead> {
    let failed = |error: io::Error| ShortRead(format!("a client's write failed: {error}"));
    stream.write_all(&message(key, number, Role::Client)).map_err(failed)?;
    stream.half_close().map_err(|error| ShortRead(error.to_string()))?;
    Ok(stream)
}

fn answer(testbed: &Testbed, stream: Stream, key: u64) -> Result<(), ShortRead> {
    let (question, mut stream) = read_to_fin(testbed, stream)?;
    let Some((number, _)) = question.split_first_chunk::<8>() else {
        return Err(ShortRead("no question".to_owned()));
    };
    let number = u64::from_le_bytes(*number);
    if question != message(key, number, Role::Client) {
        return Err(ShortRead("another question".to_owned()));
    }
    let failed = |error: io::Error| ShortRead(format!("a server's write failed: {error}"));
    stream.write_all(&message(key, number, Role::Server)).map_err(failed)
}

fn hear(testbed: &Testbed, stream: Stream, key: u64, number: u64) -> Result<u64, ShortRead> {
    let (answer, _) = read_to_fin(testbed, stream)?;
    if answer == message(key, number, Role::Server) {
        return Ok(number);
    }
    Err(ShortRead(format!("an answer of {} bytes, FIN, not the one of {LENGTH}", answer.len())))
}

const EXCHANGES: u64 = 16;

fn random(testbed: &Testbed, run: u64) -> Outcome {
    let seed = testbed.setup().seed.wrapping_add(run);
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut opened = Vec::new();
    for _ in 0..EXCHANGES {
        match testbed.pair() {
            Ok(streams) => opened.push((streams, Exchange::random(&mut random))),
            Err(error) => return failed(0, error.to_string()),
        }
    }
    let faults: Vec<Vec<String>> = thread::scope(|scope| {
        let play = |(number, (streams, exchange)): (usize, ((Stream, Stream), Exchange))| {
            scope.spawn(move || {
                let key = seed.wrapping_mul(EXCHANGES).wrapping_add(number as u64);
                let pair =
                    case::play_over(testbed, key, streams, (&exchange.client, &exchange.server));
                exchange.faults(&pair)
            })
        };
        let threads: Vec<_> = opened.into_iter().enumerate().map(play).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let good = faults.iter().filter(|faults| faults.is_empty()).count() as u64;
    match faults.into_iter().find(|faults| !faults.is_empty()) {
        Some(faults) => failed(good, faults.join(", ")),
        None => Outcome::Many { good, of: EXCHANGES, fault: None },
    }
}

fn failed(good: u64, fault: String) -> Outcome {
    Outcome::Many { good, of: EXCHANGES, fault: Some(fault) }
}

/// One connection of the random ones.
struct Exchange {
    ends_by: &'static str,
    client: Vec<Step>,
    server: Vec<Step>,
    expected: (Expected, Expected),
}

impl Exchange {
    /// Some writes at each end, which reads at the same time, and a close by one of the two.
    fn random(random: &mut Pcg64Mcg) -> Self {
        let (mut actor, written) = writes(random);
        let (mut other, other_written) = writes(random);
        let (ends_by, acts, looks_on, expected) = match below(random, 5) {
            0 => (
                "both half-close",
                vec![Step::HalfClose, Step::ReadToEnd],
                vec![Step::HalfClose, Step::ReadToEnd],
                (Expected::ALL_FIN, Expected::ALL_FIN),
            ),
            1 => (
                "one half-closes, the other goes on",
                vec![Step::HalfClose, Step::ReadToEnd],
                vec![Step::ReadToEnd, Step::write(100 * KIB), Step::HalfClose],
                (Expected::ALL_FIN, Expected::ALL_FIN),
            ),
            2 => (
                "a reset when both have read all",
                vec![Step::ReadTo(other_written), Step::Meet, Step::Reset],
                vec![Step::ReadTo(written), Step::Meet, Step::ReadToEnd],
                (Expected::ALL, Expected::ALL_RESET),
            ),
            3 => (
                "a reset when all is acked",
                vec![Step::ReadTo(other_written), Step::AwaitAcked, Step::Reset],
                vec![Step::ReadToEnd],
                (Expected::ALL, Expected::ALL_RESET),
            ),
            _ => (
                "a reset at any time",
                vec![Step::Reset],
                vec![Step::ReadToEnd],
                (Expected::NOTHING, Expected::PART_RESET),
            ),
        };
        actor.extend(acts);
        other.extend(looks_on);
        if below(random, 2) == 0 {
            return Self { ends_by, client: actor, server: other, expected };
        }
        let expected = (expected.1, expected.0);
        Self { ends_by, client: other, server: actor, expected }
    }

    fn faults(&self, pair: &Pair) -> Vec<String> {
        let mut faults = case::faults_of(self.expected, pair);
        if let Some(first) = faults.first_mut() {
            *first = format!("{}: {first}", self.ends_by);
        }
        faults
    }
}

/// Some steps that write, and how many bytes they write in all.
fn writes(random: &mut Pcg64Mcg) -> (Vec<Step>, u64) {
    let mut written = 0;
    let mut steps = Vec::new();
    for _ in 0..below(random, 5) {
        let magnitude = below(random, 20);
        let bytes = (1 << magnitude) + below(random, 1 << magnitude);
        written += bytes;
        steps.push(match below(random, 3) {
            0 => Step::write_slowly(bytes, 32_768, Duration::from_millis(below(random, 4))),
            _ => Step::write_reading(bytes),
        });
        steps.push(Step::Pause(Duration::from_millis(below(random, 20))));
    }
    (steps, written)
}

/// A random number below `limit`. Its small bias does not matter here.
fn below(random: &mut Pcg64Mcg, limit: u64) -> u64 {
    random.next_u64() % limit
}
