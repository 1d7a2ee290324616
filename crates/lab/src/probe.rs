//! Round-trip times on separate connections, before a load and beside it.
//!
//! A probe is a new connection with a request and a response of one byte each. So it measures what
//! another program on the path sees: the queues, and their losses. The schedule of the probes does
//! not depend on the responses.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lastbyte_link::{Host, LinkError};
use lastbyte_socket::blocking::{Listener, Stream};
use lastbyte_sys::poll::{self, AsFdDyn, READABLE, WRITABLE};
use lastbyte_sys::socket;
use lastbyte_units::BitRate;

use crate::error::LabError;
use crate::path::PathUp;
use crate::record::{Latency, RoundTrip};
use crate::task::{PROBE_EVERY, Purpose, Token};

/// The most that one probe sends in one direction, in IP bytes: a SYN, the request with its
/// preamble, a FIN, and acknowledgements.
pub const PROBE_BYTES: u32 = 400;
/// The share of a path that probes may take (draft-ietf-ippm-responsiveness-08 section 5.2, PTC).
const SHARE: f64 = 0.05;
/// The longest time between two probes, in seconds, so that a slow path has probes too.
const SLOWEST: f64 = 10.0;
/// Probes before the load.
const IDLE_PROBES: usize = 10;
/// The time between two of these.
const IDLE_EVERY: Duration = Duration::from_millis(20);
/// How long the load waits for them.
const IDLE_WITHIN: Duration = Duration::from_secs(5);
/// How long a handshake and its response may take together.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The most probes at the same time: at one every 100 ms, enough for a queue of three seconds, as
/// each takes two round trips.
const MAX_PENDING: usize = 64;

/// An echo service.
#[derive(Clone, Debug)]
pub struct Echo {
    /// Its address.
    pub address: SocketAddr,
    /// What a connection sends before its request; often nothing.
    pub preamble: Vec<u8>,
    /// The rate of the path's slower direction, if known: probes take a small share of it. Without
    /// it they take 32 kbit/s in each direction.
    pub capacity: Option<BitRate>,
}

impl Echo {
    /// An echo without a preamble, such as [`serve_echo`] serves, over a path of unknown capacity.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, preamble: Vec::new(), capacity: None }
    }

    /// The echo of a run on the far host.
    pub(crate) fn of_run(path: &PathUp, address: SocketAddr, token: &Token) -> Self {
        let preamble = Purpose::Echo.preamble(token).to_vec();
        Self { address, preamble, capacity: path.capacity() }
    }

    /// The time between two probes beside a load.
    #[must_use]
    pub fn every(&self) -> Duration {
        let Some(capacity) = self.capacity else { return PROBE_EVERY };
        let least = f64::from(PROBE_BYTES) / (SHARE * capacity.bytes_per_s());
        PROBE_EVERY.max(Duration::from_secs_f64(least.min(SLOWEST)))
    }
}

/// Probes from the near host until [`Prober::end`].
#[derive(Debug)]
pub struct Prober {
    /// Closing it stops the thread.
    stop: UnixStream,
    thread: JoinHandle<Result<Latency, LinkError>>,
}

impl Prober {
    /// Measures some round trips on the idle path, and goes on probing. The load can begin when
    /// this returns; the times of its results count from then.
    ///
    /// # Errors
    /// If no thread can be started on the near host. A path without a single response is no error.
    pub fn start(path: &PathUp, echo: Echo) -> Result<Self, LabError> {
        let (stop, stopped) = UnixStream::pair().map_err(LabError::Receiver)?;
        let (idle, idle_known) = mpsc::channel();
        let thread = path.spawn(Host::Near, "prober", move || {
            let mut probing = Probing::new(&echo, &stopped);
            probing.run(IDLE_EVERY, IDLE_PROBES, IDLE_WITHIN);
            let took = |one: &RoundTrip| one.took;
            let latency = probing.end();
            let idle_trips: Vec<Duration> =
                latency.handshakes.iter().chain(&latency.beside).map(took).collect();
            let mut probing = Probing::new(&echo, &stopped);
            let _ = idle.send(());
            probing.run(echo.every(), usize::MAX, Duration::MAX);
            Latency { idle: idle_trips, ..probing.end() }
        })?;
        // A thread that could not enter its host sends nothing, and reports that at the end.
        let _ = idle_known.recv();
        Ok(Self { stop, thread })
    }

    /// Stops at once and returns the results. Pending probes count as unanswered.
    ///
    /// # Errors
    /// If the near host could not be entered.
    pub fn end(self) -> Result<Latency, LabError> {
        drop(self.stop);
        let joined = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(joined?)
    }
}

/// A pending probe.
struct Probe {
    socket: OwnedFd,
    began: Instant,
    /// When the connection was established and the request written.
    asked: Option<Instant>,
}

/// The pending probes, and the results of the completed ones.
struct Probing<'a> {
    echo: &'a Echo,
    stopped: &'a UnixStream,
    origin: Instant,
    pending: Vec<Probe>,
    found: Latency,
}

impl<'a> Probing<'a> {
    fn new(echo: &'a Echo, stopped: &'a UnixStream) -> Self {
        Self {
            echo,
            stopped,
            origin: Instant::now(),
            pending: Vec::new(),
            found: Latency::default(),
        }
    }

    /// Starts `most` probes, one at a time with `every` between them, and handles their responses
    /// until all have ended, the time is over, or the prober is stopped.
    fn run(&mut self, every: Duration, most: usize, within: Duration) {
        let (mut begun, mut due) = (0, self.origin);
        loop {
            let now = Instant::now();
            if begun < most && now >= due {
                begun += 1;
                self.begin(now);
                // A late probe is not caught up on: two at the same time would be a burst.
                due = if now < due + every { due + every } else { now + every };
            }
            self.give_up(now);
            let left = within.saturating_sub(now - self.origin);
            if left.is_zero() || (begun == most && self.pending.is_empty()) {
                return;
            }
            let wait = if begun < most { due.saturating_duration_since(now) } else { left };
            match self.wait(wait.min(left).min(ANSWER_WITHIN)) {
                Ok(false) => {}
                Ok(true) | Err(_) => return,
            }
        }
    }

    /// Sends a SYN, unless too many probes are pending.
    fn begin(&mut self, now: Instant) {
        if self.pending.len() >= MAX_PENDING {
            return;
        }
        let address = self.echo.address;
        let begun = socket::open_tcp_nonblocking(address)
            .and_then(|socket| socket::begin_connect(&socket, address).map(|()| socket));
        match begun {
            Ok(socket) => self.pending.push(Probe { socket, began: now, asked: None }),
            Err(_) => self.found.unanswered += 1,
        }
    }

    fn give_up(&mut self, now: Instant) {
        let before = self.pending.len();
        self.pending.retain(|probe| now - probe.began < ANSWER_WITHIN);
        self.unanswered(before - self.pending.len());
    }

    fn unanswered(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.found.unanswered = self.found.unanswered.saturating_add(count);
    }

    /// Waits for the next event and handles it. Returns whether the prober was stopped.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let stopped = self.stopped;
        let mut wanted: [(&dyn AsFdDyn, i16); MAX_PENDING + 1] =
            [(stopped, READABLE); MAX_PENDING + 1];
        for (slot, probe) in wanted[1..].iter_mut().zip(&self.pending) {
            let next = if probe.asked.is_none() { WRITABLE } else { READABLE };
            *slot = (&probe.socket, next);
        }
        let ready = poll::wait(wanted, Some(timeout))?;
        let now = Instant::now();
        if ready[0] {
            return Ok(true);
        }
        let mut failed = 0;
        let pending = std::mem::take(&mut self.pending);
        for (mut probe, ready) in pending.into_iter().zip(&ready[1..]) {
            match if *ready { self.advance(&mut probe, now) } else { Ok(false) } {
                Ok(true) => {}
                Ok(false) => self.pending.push(probe),
                Err(_) => failed += 1,
            }
        }
        self.unanswered(failed);
        Ok(false)
    }

    /// Advances one probe. Returns whether it is complete.
    fn advance(&mut self, probe: &mut Probe, now: Instant) -> io::Result<bool> {
        let Some(asked) = probe.asked else {
            if let Some(error) = socket::take_error(&probe.socket)? {
                return Err(error);
            }
            self.found.handshakes.push(self.round_trip(probe.began, now));
            // In one write: Nagle's algorithm would delay a second small one.
            let question = [&self.echo.preamble[..], b"?"].concat();
            probe.asked = Some(Instant::now());
            let written = socket::send_now(&probe.socket, &question)?;
            return if written == question.len() {
                Ok(false)
            } else {
                Err(io::ErrorKind::WriteZero.into())
            };
        };
        match socket::receive_now(&probe.socket, &mut [0; 1]) {
            Ok(1..) => {
                self.found.beside.push(self.round_trip(asked, now));
                Ok(true)
            }
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn round_trip(&self, from: Instant, to: Instant) -> RoundTrip {
        RoundTrip { at: from - self.origin, took: to - from }
    }

    fn end(mut self) -> Latency {
        self.unanswered(self.pending.len());
        self.found
    }
}

/// The time between two checks whether the echo service is to end.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// How long a connection may stay open: its response is long sent.
const SERVE_WITHIN: Duration = Duration::from_secs(30);

/// Echoes on up to 64 connections at the same time, until `over`. Further connections wait.
///
/// # Errors
/// The kernel's: `ENOMEM`.
pub fn serve_echo(listener: &Listener, over: &AtomicBool) -> io::Result<()> {
    let mut served: Vec<(Stream, Instant)> = Vec::new();
    while !over.load(Ordering::Acquire) {
        let wanted = if served.len() < MAX_PENDING { READABLE } else { 0 };
        let mut fds: [(&dyn AsFdDyn, i16); MAX_PENDING + 1] = [(listener, wanted); MAX_PENDING + 1];
        for (slot, (stream, _)) in fds[1..].iter_mut().zip(&served) {
            *slot = (stream, READABLE);
        }
        let ready = poll::wait(fds, Some(POLL_EVERY))?;
        let now = Instant::now();
        let mut place = 0;
        served.retain_mut(|(stream, since)| {
            place += 1;
            let over = now - *since > SERVE_WITHIN;
            !over && (!ready[place] || send_back(stream))
        });
        if ready[0]
            && served.len() < MAX_PENDING
            && let Ok(stream) = listener.accept_within(Duration::ZERO)
        {
            served.push((stream, now));
        }
    }
    Ok(())
}

/// Echoes once. Returns whether the connection goes on.
fn send_back(stream: &mut Stream) -> bool {
    let mut buffer = [0; 64];
    match stream.read_now(&mut buffer) {
        Ok(0) => false,
        // A peer that fills our send buffer does not read its responses.
        Ok(length) => stream.write_now(&buffer[..length]).is_ok_and(|written| written == length),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn probes_take_a_small_share_of_a_slow_path() {
        let every = |rate: &str| {
            let capacity = Some(rate.parse().unwrap());
            Echo { capacity, ..Echo::at((Ipv4Addr::LOCALHOST, 1).into()) }.every()
        };
        assert_eq!(every("20mbit"), PROBE_EVERY);
        assert_eq!(every("640kbit"), PROBE_EVERY);
        assert_eq!(every("64kbit"), Duration::from_secs(1));
        assert_eq!(every("1bit"), Duration::from_secs(10));
    }
}
