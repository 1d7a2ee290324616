//! One run: a sender, a receiver, and what the kernel said meanwhile.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::sample::{Limits, Moment, TcpInfo};
use lastbyte_link::{Host, Report};
use lastbyte_socket::{
    Delivery, End, FinishError, FinishOptions, Granted, Listener, Sampler, SocketError, Stream,
    Tune,
};

use crate::error::LabError;
use crate::path::PathUp;
use crate::plan::{Buffers, Load, Plan, Subject};

/// Between two samples of the kernel's view.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// A write or read that makes no progress for so long ends the run.
const STALLED: Duration = Duration::from_secs(30);
/// How long the last bytes may take to arrive after the last write: the send buffer at a hundredth
/// of a slow path's rate.
const FINISH_WITHIN: Duration = Duration::from_secs(120);
/// The size of a write, and of a read.
const CHUNK: usize = 128 * 1024;

/// What one run brought.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The place of its subject in the plan.
    pub subject: usize,
    /// Which round, from 0.
    pub round: u32,
    /// What the receiver counted: this is the result.
    pub received: Received,
    /// What the sender knows.
    pub sent: Sent,
    /// What the link did, where there was one.
    pub link: Option<Report>,
}

/// What the receiver counted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// Bytes read.
    pub bytes: u64,
    /// From the accepted connection to the last byte.
    pub time: Duration,
    /// How the stream ended.
    pub end: Option<End>,
    /// Bytes read in each tenth of a second.
    pub tenths: Vec<u64>,
    /// The receiving socket's options as granted.
    pub granted: Granted,
}

/// What the sender knows.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sent {
    /// Bytes that `write` accepted.
    pub written: u64,
    /// From the first write to the last one's return.
    pub writing: Duration,
    /// The proof, or why there is none.
    pub receipt: Result<lastbyte_socket::Receipt, FinishError>,
    /// The sending socket's options as granted.
    pub granted: Granted,
    /// The kernel's view, every 100 ms.
    pub samples: Vec<Sample>,
    /// What held the sender back.
    pub limits: Limits,
    /// A failed write, where one ended the sending.
    pub write_error: Option<io::Error>,
}

/// The kernel's view of the sending socket at one time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Since the first write.
    pub at: Duration,
    /// `TCP_INFO`.
    pub info: TcpInfo,
}

impl Run {
    /// The result: the receiver's bytes over the receiver's time, in bit/s.
    #[must_use]
    pub fn received_bits_per_s(&self) -> f64 {
        per_second(self.received.bytes, self.received.time)
    }

    /// What a sender that believes `write` would claim, in bit/s.
    #[must_use]
    pub fn claimed_bits_per_s(&self) -> f64 {
        per_second(self.sent.written, self.sent.writing)
    }

    /// Whether every byte written was received, with a clean end and a proof of it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.received.bytes == self.sent.written
            && self.received.end == Some(End::Fin)
            && self.sent.receipt.is_ok()
    }

    /// The share of the bytes put on the wire that were repetitions, 0 to 1.
    #[must_use]
    pub fn resent_share(&self) -> Option<f64> {
        let last = self.sent.samples.last()?.info;
        let (sent, resent) = last.bytes_sent.zip(last.bytes_retrans)?;
        Some(resent as f64 / (sent.max(1)) as f64)
    }

    /// The smallest round trip that the sender's kernel saw.
    #[must_use]
    pub fn min_rtt(&self) -> Option<Duration> {
        let min = self.sent.samples.last()?.info.min_rtt_us?;
        Some(Duration::from_micros(min.into()))
    }
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

/// Makes the path and a receiver once, and takes them down: what would make the first run fail is
/// found before anything else.
pub(crate) fn rehearse(plan: &Plan) -> Result<(), LabError> {
    let path = plan.path.up(plan.seed)?;
    let address = SocketAddr::new(path.address(Host::Far), plan.port);
    path.run(Host::Far, || Listener::listen(address, &Tune::default()))??;
    path.down()?;
    Ok(())
}

/// Makes the path, sends and receives over it, and takes it down.
pub(crate) fn run(plan: &Plan, subject: usize, round: u32) -> Result<Run, LabError> {
    let settings = &plan.subjects[subject];
    let path = plan.path.up(plan.seed.wrapping_add(round.into()))?;
    prepare(&path, settings)?;

    let address = SocketAddr::new(path.address(Host::Far), plan.port);
    let tune = settings.receiver();
    let listener = path.run(Host::Far, || Listener::listen(address, &tune))??;
    let address = listener.local_addr();
    let receiver = path.spawn(Host::Far, "receiver", move || receive(&listener))?;
    let (tune, load) = (settings.sender(), plan.load);
    let sender = path.spawn(Host::Near, "sender", move || send(address, &tune, load))?;

    let sent = joined(sender)?;
    // Without a sender the receiver would wait for one: its listener ends by its own time limit.
    let sent = sent.map_err(|error| LabError::from_connect(error, Some(&settings.congestion)))?;
    let received = joined(receiver)??;
    Ok(Run { subject, round, received, sent, link: path.down()? })
}

fn joined<T>(
    thread: thread::JoinHandle<Result<T, lastbyte_link::LinkError>>,
) -> Result<T, LabError> {
    let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(outcome?)
}

/// Sets the maxima of the kernel's own sizing where the subject asks for it.
fn prepare(path: &PathUp, subject: &Subject) -> Result<(), LabError> {
    if let Buffers::AutoUpTo(limit) = subject.buffers {
        let limit = limit.bytes();
        // The kernel's own minima and initial sizes (net/ipv4/tcp.c, tcp_init).
        path.set_sysctl(Host::Near, "ipv4/tcp_wmem", &format!("4096 16384 {limit}"))?;
        path.set_sysctl(Host::Far, "ipv4/tcp_rmem", &format!("4096 131072 {limit}"))?;
    }
    Ok(())
}

/// Takes one connection and counts it to its end.
///
/// # Errors
/// When no connection came, or the kernel does not answer about it. A cut connection is no error
/// here: it is in the result.
pub fn receive(listener: &Listener) -> Result<Received, LabError> {
    let mut stream = listener.accept_within(STALLED)?;
    let started = Instant::now();
    stream.set_read_timeout(Some(STALLED)).map_err(LabError::Receiver)?;
    let mut chunk = vec![0; CHUNK];
    let mut tenths = Vec::new();
    let mut last_byte = started;
    // A cut is known by `ended`, a stall by its absence.
    while let Ok(bytes @ 1..) = stream.read(&mut chunk) {
        last_byte = Instant::now();
        let tenth = (last_byte - started).as_millis() / SAMPLE_EVERY.as_millis();
        let tenth = usize::try_from(tenth).unwrap_or(usize::MAX);
        if tenths.len() <= tenth {
            tenths.resize(tenth + 1, 0);
        }
        tenths[tenth] += bytes as u64;
    }
    Ok(Received {
        bytes: stream.bytes_read(),
        time: last_byte - started,
        end: stream.ended(),
        tenths,
        granted: stream.granted()?,
    })
}

/// Connects, sends, and finishes.
///
/// # Errors
/// When there is no connection, or an option is refused. A connection that is lost on the way is no
/// error here: it is in the result.
pub fn send(address: SocketAddr, tune: &Tune, load: Load) -> Result<Sent, SocketError> {
    let mut stream = Stream::connect(address, tune, STALLED)?;
    let sampler = stream.sampler()?;
    let granted = stream.granted()?;
    // The kernel goes on sizing one that is not fixed.
    let buffer =
        granted.send_buffer_fixed.is_some_and(|fixed| fixed).then_some(granted.send_buffer);
    let started = Instant::now();
    let (written, watched) = thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let watcher = scope.spawn(move || watch(&sampler, started, buffer, &stopped));
        let written = write_load(&mut stream, load, started);
        let writing = started.elapsed();
        let granted = stream.granted();
        let options = FinishOptions {
            want: Delivery::Closed,
            deadline: FINISH_WITHIN,
            ..FinishOptions::default()
        };
        let bytes = stream.written();
        let receipt = stream.finish(options);
        drop(stop);
        let watched = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ((bytes, writing, granted, receipt, written.err()), watched)
    });
    let (written, writing, granted, receipt, write_error) = written;
    let (samples, limits) = watched;
    Ok(Sent { written, writing, receipt, granted: granted?, samples, limits, write_error })
}

fn write_load(stream: &mut Stream, load: Load, started: Instant) -> io::Result<()> {
    let chunk = vec![0x5A; CHUNK];
    // Short, so that a timed load ends in time though the buffer is full.
    stream.set_write_timeout(Some(SAMPLE_EVERY))?;
    let mut progress = Instant::now();
    loop {
        let room = match load {
            Load::Time(time) if started.elapsed() >= time => return Ok(()),
            Load::Time(_) => CHUNK,
            Load::Bytes(bytes) => {
                let left = bytes.saturating_sub(stream.written());
                usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK)
            }
        };
        if room == 0 {
            return Ok(());
        }
        match stream.write(&chunk[..room]) {
            Ok(_) => progress = Instant::now(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if progress.elapsed() > STALLED {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Samples the kernel's view until `stopped` is closed, and once more then.
fn watch(
    sampler: &Sampler,
    started: Instant,
    send_buffer: Option<u32>,
    stopped: &mpsc::Receiver<()>,
) -> (Vec<Sample>, Limits) {
    let mut samples: Vec<Sample> = Vec::new();
    let mut limits = Limits::default();
    loop {
        let last = !matches!(stopped.recv_timeout(SAMPLE_EVERY), Err(RecvTimeoutError::Timeout));
        let Ok(info) = sampler.info() else { return (samples, limits) };
        let sample = Sample { at: started.elapsed(), info };
        if let Some(before) = samples.last().filter(|_| !last) {
            let moment = |info| Moment { send_buffer, ..Moment::from(info) };
            limits.add(&moment(before.info), &moment(info), sample.at - before.at, None);
        }
        samples.push(sample);
        if last {
            return (samples, limits);
        }
    }
}
