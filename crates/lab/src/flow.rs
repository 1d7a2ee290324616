//! One connection that carries load: the sender, and the receiver, which counts.
//!
//! The load is a sequence of frames of 16 KiB. The first four bytes of a frame are a number: that
//! of the receiver's request that it answers, or 0. So the receiver can measure round trips on the
//! connection that carries the load, through every queue that the load fills, the sender's own
//! buffer included.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::sample::{LimitedBy, Limits, Moment, TcpInfo};
use lastbyte_socket::blocking::{OwnedReadHalf, OwnedWriteHalf, Stream};
use lastbyte_socket::{Delivery, End, FinishOptions, Receipt, Sampler, SocketError};
use lastbyte_sys::poll;
use lastbyte_units::BitRate;

use crate::load::Load;
use crate::record::{Ending, LimitKind, Limited, Received, RoundTrip, Sample, Sent};
use crate::run_state::RunState;
use crate::task::{PROBE_EVERY, Task};

/// The time between two samples of `TCP_INFO`.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// A write or read without progress for this long ends the flow.
pub(crate) const STALLED: Duration = Duration::from_secs(30);
/// How long the last bytes may take to arrive after the last write: the send buffer at a hundredth
/// of a slow path's rate.
const FINISH_WITHIN: Duration = Duration::from_secs(120);
/// A response goes out with the next frame, so that it waits for the rest of one frame at most. The
/// length of a frame of HTTP/2 (RFC 9113 section 4.2).
const FRAME: usize = 16 * 1024;
/// The size of a write, and of a read.
const CHUNK: usize = 8 * FRAME;
/// The number at the head of a frame.
const HEAD: usize = 4;
/// The longest sleep of a sender, so that it notices requests and the end of its time.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// The time between two reads for requests.
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Requests that may wait for their frame; a peer that sends more gets fewer responses.
const MAX_REQUESTS: usize = 64;

/// How a receiver reads.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOptions<'a> {
    /// When the run began on this host.
    pub run_began: Instant,
    /// The rate at which the program reads; `None` for as fast as it can.
    pub rate: Option<BitRate>,
    /// When to send requests for round trips through the load; `None` for never.
    pub requests: Option<RequestSchedule>,
    /// The most bytes that the sender may send: the receiver stops reading beyond it.
    pub most_bytes: Option<u64>,
    /// When reading stops. Without a deadline, a sender that never quite stalls could go on for
    /// ever, and so could a reader slower than the sender.
    pub until: Option<Instant>,
    /// The run's state: an aborted run is read no further.
    pub run: Option<&'a RunState>,
}

/// When a receiver sends its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSchedule {
    /// The time of the first request.
    pub first: Duration,
    /// The interval between requests.
    pub every: Duration,
}

impl RequestSchedule {
    /// The schedule of one of a task's connections; `None` if the task measures no latency.
    pub(crate) fn of(task: &Task, stream: u32) -> Option<Self> {
        task.latency.then(|| Self::in_turn(stream, task.settings.streams))
    }

    /// The schedule of one connection of several that take turns: together they send one request
    /// for each probe.
    #[must_use]
    pub fn in_turn(stream: u32, streams: u32) -> Self {
        let after = |turns: u32| PROBE_EVERY.saturating_mul(turns.max(1));
        Self { first: after(stream.saturating_add(1)), every: after(streams) }
    }
}

/// When the receiver of a load must have it all; `None` for a load that is bytes alone.
pub(crate) fn until(load: Load) -> Option<Instant> {
    let time = load.time?.saturating_add(FINISH_WITHIN).saturating_add(2 * STALLED);
    Instant::now().checked_add(time)
}

/// Receives to the end of the stream and counts. A reset is no error here: it is in the result.
///
/// # Errors
/// If the kernel reports nothing about the connection.
pub fn receive(mut stream: Stream, reading: &ReceiveOptions<'_>) -> Result<Received, SocketError> {
    let before = stream.bytes_read();
    let began = Instant::now();
    let mut counter = Counter::new(began);
    // A read without end means that the sender vanished.
    let _ = stream.set_read_timeout(Some(STALLED));
    if let Some(schedule) = reading.requests {
        let (read, write) = stream.into_split();
        let (read, write) = request_and_count((read, write), schedule, &mut counter, reading);
        stream = read.reunite(write).unwrap_or_else(|_| unreachable!("two halves of one stream"));
    } else {
        counter.count(&mut stream, reading);
    }
    Ok(Received {
        bytes: stream.bytes_read() - before,
        began: began - reading.run_began,
        time: counter.last_byte - began,
        end: stream.observed_end().map(Ending::from),
        tenths: counter.tenths,
        receive_buffer_bytes: Some(stream.granted()?.receive_buffer),
        answers: counter.answers,
    })
}

/// Reads in one thread and sends requests in another.
fn request_and_count(
    (mut read, mut write): (OwnedReadHalf, OwnedWriteHalf),
    schedule: RequestSchedule,
    counter: &mut Counter,
    reading: &ReceiveOptions<'_>,
) -> (OwnedReadHalf, OwnedWriteHalf) {
    let requested_at = Arc::new(Mutex::new(Vec::new()));
    counter.requested_at = Some(Arc::clone(&requested_at));
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let requester = scope.spawn(|| {
            let stopped = stopped;
            let mut wait = schedule.first;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
                wait = schedule.every;
                let number = {
                    let mut requested_at = lock(&requested_at);
                    requested_at.push(Instant::now());
                    u32::try_from(requested_at.len()).unwrap_or(u32::MAX)
                };
                if write.write_all(&number.to_be_bytes()).is_err() {
                    break;
                }
            }
            write
        });
        counter.count(&mut read, reading);
        drop(stop);
        let write = requester.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (read, write)
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The counts of a receiver.
struct Counter {
    began: Instant,
    last_byte: Instant,
    tenths: Vec<u64>,
    /// The position of the next byte in its frame.
    position: usize,
    head: [u8; HEAD],
    requested_at: Option<Arc<Mutex<Vec<Instant>>>>,
    answers: Vec<RoundTrip>,
}

impl Counter {
    fn new(began: Instant) -> Self {
        Self {
            began,
            last_byte: began,
            tenths: Vec::new(),
            position: 0,
            head: [0; HEAD],
            requested_at: None,
            answers: Vec::new(),
        }
    }

    /// Reads to the end of the stream. A reset is known by the observed end, a stall by its
    /// absence.
    fn count(&mut self, from: &mut impl Read, reading: &ReceiveOptions<'_>) {
        let mut chunk = vec![0; CHUNK];
        let mut total = 0;
        let most = reading.most_bytes.unwrap_or(u64::MAX);
        let is_over = || {
            reading.until.is_some_and(|until| Instant::now() > until)
                || reading.run.is_some_and(RunState::is_aborted)
        };
        while total <= most && !is_over() {
            let room = match reading.rate {
                Some(rate) => allowed(rate, self.began, total),
                None => CHUNK,
            };
            if room == 0 {
                thread::sleep(POLL_EVERY);
                continue;
            }
            let Ok(bytes @ 1..) = from.read(&mut chunk[..room]) else { return };
            total += bytes as u64;
            self.last_byte = Instant::now();
            let tenth = (self.last_byte - self.began).as_millis() / SAMPLE_EVERY.as_millis();
            let tenth = usize::try_from(tenth).unwrap_or(usize::MAX);
            if self.tenths.len() <= tenth {
                self.tenths.resize(tenth + 1, 0);
            }
            self.tenths[tenth] += bytes as u64;
            if self.requested_at.is_some() {
                self.find_answers(&chunk[..bytes]);
            }
        }
    }

    /// Finds responses in the heads of frames.
    fn find_answers(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let place = (self.position + at) % FRAME;
            if place >= HEAD {
                at += FRAME - place;
                continue;
            }
            self.head[place] = bytes[at];
            at += 1;
            if place == HEAD - 1 {
                self.take(u32::from_be_bytes(self.head));
            }
        }
        self.position = (self.position + bytes.len()) % FRAME;
    }

    fn take(&mut self, number: u32) {
        let Some(requested_at) = &self.requested_at else { return };
        let place = (number as usize).wrapping_sub(1);
        if let Some(when) = lock(requested_at).get(place).copied() {
            let (at, took) = (when - self.began, self.last_byte - when);
            self.answers.push(RoundTrip { at, took });
        }
    }
}

/// The bytes that may pass now to keep to a rate; at most a chunk.
fn allowed(rate: BitRate, began: Instant, total: u64) -> usize {
    let due = rate.bytes_per_s() * began.elapsed().as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let room = (due - total as f64).clamp(0.0, CHUNK as f64) as usize;
    room
}

/// Sends a load and finishes. A lost connection is no error here: it is in the result.
///
/// # Errors
/// If the kernel reports nothing about the connection.
pub fn send(mut stream: Stream, load: Load, rate: Option<BitRate>) -> Result<Sent, SocketError> {
    let sampler = stream.sampler()?;
    let before = stream.written();
    let started = Instant::now();
    let waiting = Waiting::default();
    let waits = &waiting;
    let (written, watched) = thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let watcher = scope.spawn(move || watch(&sampler, started, waits, &stopped));
        let mut writer = Writer::new(&mut stream, started, waits);
        let outcome = writer.write(load, rate);
        waits.end();
        let writing = started.elapsed();
        let granted = stream.granted();
        let options = FinishOptions::default().want(Delivery::Closed).within(FINISH_WITHIN);
        let written = stream.written() - before;
        let finished = stream.finish_with(options);
        drop(stop);
        let watched = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ((written, writing, granted, finished, outcome.err()), watched)
    });
    let (written, writing, granted, finished, write_error) = written;
    let (samples, limits, last) = watched;
    let granted = granted?;
    let (receipt, failure): (Receipt, Option<String>) = match finished {
        Ok(receipt) => (receipt, write_error.map(|error| error.to_string())),
        Err(error) => (error.receipt, Some(error.to_string())),
    };
    Ok(Sent {
        written,
        writing,
        level: receipt.level.to_string(),
        acked_bytes: receipt.acked.map(|acked| acked.saturating_sub(before)),
        failure,
        congestion: granted.congestion,
        send_buffer_bytes: Some(granted.send_buffer),
        send_buffer_fixed: granted.send_buffer_fixed,
        sent_bytes: last.and_then(|info| info.bytes_sent),
        resent_bytes: last.and_then(|info| info.bytes_retrans),
        min_rtt: last.and_then(|info| info.min_rtt_us).map(|us| Duration::from_micros(us.into())),
        limited: Limited::from(&limits),
        samples,
    })
}

/// Writes frames, and answers requests in them.
struct Writer<'a> {
    stream: &'a mut Stream,
    started: Instant,
    waiting: &'a Waiting,
    chunk: Vec<u8>,
    /// The position of the next byte in the chunk.
    at: usize,
    written: u64,
    /// The longest next write: a frame after a wait, and twice as much after each write. Below a
    /// chunk, the writer first polls for writability: a write without that exceeds
    /// `TCP_NOTSENT_LOWAT` by up to 64 KiB.
    max_write: usize,
    requests: VecDeque<u32>,
    /// The beginning of a request of which the rest has not arrived.
    incomplete: Vec<u8>,
    looked: Instant,
}

impl<'a> Writer<'a> {
    fn new(stream: &'a mut Stream, started: Instant, waiting: &'a Waiting) -> Self {
        let mut chunk = vec![0x5A; CHUNK];
        for frame in chunk.chunks_mut(FRAME) {
            frame[..HEAD].fill(0);
        }
        Self {
            stream,
            started,
            waiting,
            chunk,
            at: 0,
            written: 0,
            max_write: CHUNK,
            requests: VecDeque::new(),
            incomplete: Vec::new(),
            looked: started,
        }
    }

    fn write(&mut self, load: Load, rate: Option<BitRate>) -> io::Result<()> {
        let mut progress = Instant::now();
        loop {
            if load.time.is_some_and(|time| self.started.elapsed() >= time) {
                return Ok(());
            }
            let left = load.bytes.map_or(u64::MAX, |bytes| bytes - self.written);
            if left == 0 {
                return Ok(());
            }
            self.read_requests();
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let mut room = self.room().min(self.max_write).min(left);
            if let Some(rate) = rate {
                room = room.min(allowed(rate, self.started, self.written));
                if room == 0 {
                    thread::sleep(POLL_EVERY);
                    progress = Instant::now();
                    continue;
                }
            }
            let written = match self.max_write < CHUNK && !self.is_writable()? {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => self.stream.write_now(&self.chunk[self.at..self.at + room]),
            };
            match written {
                Ok(bytes) => {
                    self.advance(bytes);
                    self.max_write = (self.max_write * 2).min(CHUNK);
                    progress = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if progress.elapsed() > STALLED {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.wait(load)?;
                    self.max_write = FRAME;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn is_writable(&self) -> io::Result<bool> {
        Ok(poll::wait_for(self.stream, poll::WRITABLE, Duration::ZERO)?.writable)
    }

    /// How much of the chunk can be written as it is: to its end, or to the end of the frame if a
    /// request waits for the next.
    fn room(&mut self) -> usize {
        let in_frame = self.at % FRAME;
        let answering = self.chunk[self.at - in_frame..][..HEAD] != [0; HEAD];
        if in_frame == 0
            && !answering
            && let Some(number) = self.requests.pop_front()
        {
            self.chunk[self.at..self.at + HEAD].copy_from_slice(&number.to_be_bytes());
            return FRAME;
        }
        if answering || !self.requests.is_empty() { FRAME - in_frame } else { CHUNK - self.at }
    }

    fn advance(&mut self, bytes: usize) {
        let frame = self.at - self.at % FRAME;
        self.at += bytes;
        self.written += bytes as u64;
        if self.at >= frame + FRAME {
            self.chunk[frame..frame + HEAD].fill(0);
        }
        self.at %= CHUNK;
    }

    fn wait(&self, load: Load) -> io::Result<()> {
        let left = load.time.map_or(MAX_SLEEP, |time| time.saturating_sub(self.started.elapsed()));
        self.waiting.during(|| self.stream.wait(false, true, left.min(MAX_SLEEP)))
    }

    fn read_requests(&mut self) {
        if self.looked.elapsed() < POLL_EVERY {
            return;
        }
        self.looked = Instant::now();
        let mut bytes = [0; 4 * HEAD];
        // With no data, a FIN or a reset, the next write fails or goes on.
        let Ok(length) = self.stream.read_now(&mut bytes) else { return };
        self.incomplete.extend_from_slice(&bytes[..length]);
        while self.incomplete.len() >= HEAD {
            let number: Vec<u8> = self.incomplete.drain(..HEAD).collect();
            if let Ok(number) = <[u8; HEAD]>::try_from(number)
                && self.requests.len() < MAX_REQUESTS
            {
                self.requests.push_back(u32::from_be_bytes(number));
            }
        }
    }
}

/// Samples `TCP_INFO` until `stopped` is closed, and once more then.
fn watch(
    sampler: &Sampler,
    started: Instant,
    waiting: &Waiting,
    stopped: &mpsc::Receiver<()>,
) -> (Vec<Sample>, Limits, Option<TcpInfo>) {
    let mut samples = Vec::new();
    let mut limits = Limits::default();
    let mut before: Option<(Duration, Moment, Option<Duration>)> = None;
    loop {
        let last = !matches!(stopped.recv_timeout(SAMPLE_EVERY), Err(RecvTimeoutError::Timeout));
        let Ok(moment) = sampler.moment() else {
            return (samples, limits, before.map(|(_, moment, _)| moment.info));
        };
        let (at, waited) = (started.elapsed(), waiting.so_far());
        let mut limited_by = None;
        if let Some((then, before, had_waited)) = before.filter(|_| !last) {
            let waited = waited.zip(had_waited).map(|(now, then)| now.saturating_sub(then));
            let mut interval = Limits::default();
            interval.add(&before, &moment, at - then, waited);
            limited_by = interval.first().map(|(limit, _)| LimitKind::from(limit));
            limits += interval;
        }
        samples.push(Sample::of(at, &moment.info, limited_by));
        before = Some((at, moment, waited));
        if last {
            return (samples, limits, Some(moment.info));
        }
    }
}

/// How long a writer has waited for space in the send buffer; shared with the sampling thread.
#[derive(Debug, Default)]
struct Waiting(Mutex<Waits>);

#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// The sum of the waits that have ended.
    before: Duration,
    /// When the present wait began.
    since: Option<Instant>,
    /// Nothing more will be written.
    ended: bool,
}

impl Waiting {
    /// Waits, and counts it.
    fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        lock(&self.0).since = Some(began);
        let done = wait();
        let mut waits = lock(&self.0);
        waits.since = None;
        waits.before += began.elapsed();
        done
    }

    fn end(&self) {
        lock(&self.0).ended = true;
    }

    /// The sum so far; `None` after the last write.
    fn so_far(&self) -> Option<Duration> {
        let waits = *lock(&self.0);
        let now = waits.since.map(|since| since.elapsed()).unwrap_or_default();
        (!waits.ended).then_some(waits.before + now)
    }
}

impl Sample {
    /// The part of `TCP_INFO` that records have.
    pub(crate) fn of(at: Duration, info: &TcpInfo, limited_by: Option<LimitKind>) -> Self {
        let bytes = |segments: u32| u64::from(segments) * u64::from(info.snd_mss);
        Self {
            at,
            cwnd_bytes: bytes(info.cwnd_segments),
            unacked_bytes: bytes(info.unacked_segments),
            rtt_us: info.rtt_us,
            notsent_bytes: info.notsent_bytes,
            pacing_bytes_per_s: info.pacing_rate.filter(|rate| *rate != u64::MAX),
            delivery_bytes_per_s: info.delivery_rate,
            resent_bytes: info.bytes_retrans,
            peer_window_bytes: info.snd_wnd,
            limited_by,
        }
    }
}

impl From<&Limits> for Limited {
    fn from(limits: &Limits) -> Self {
        let mut limited = Self::default();
        for (limit, share) in LimitedBy::ALL.into_iter().zip(limits.shares()) {
            *match LimitKind::from(limit) {
                LimitKind::Application => &mut limited.application,
                LimitKind::SendBuffer => &mut limited.send_buffer,
                LimitKind::ReceiveWindow => &mut limited.receive_window,
                LimitKind::CongestionWindow => &mut limited.congestion_window,
                LimitKind::Pacing => &mut limited.pacing,
                LimitKind::Unknown => &mut limited.unknown,
            } += share;
        }
        limited
    }
}

impl From<End> for Ending {
    fn from(end: End) -> Self {
        match end {
            End::Fin => Self::Fin,
            End::Reset => Self::Reset,
            End::Truncated => Self::Truncated,
            _ => Self::Unknown,
        }
    }
}
