//! Any program over an emulated path, measured without its cooperation.
//!
//! The result is what the kernel of the receiving host counted, for each TCP connection between the
//! two hosts: a [`Watch`] on each host follows them to their end, and [`run()`] pairs what both
//! saw. The program needs no change, and its own figures are not used.
//!
//! The kernel's `tcpi_bytes_received` counts the peer's FIN as one byte, at the socket that
//! receives it; a reset counts nothing. The kernel's last report of a socket does not say whether
//! it had the FIN. So one byte is subtracted if the socket was seen in a state that only a FIN
//! leads to (`CLOSE_WAIT`, `LAST_ACK`, `CLOSING`), or if the count is one more than the other
//! host's kernel sent in all, since a FIN comes last. [`Stream::exact`] says whether one of these
//! was known.
//!
//! Not seen are UDP, and with it QUIC, other protocols, and connections within one host. Bytes that
//! a kernel has received and its program has not read count as received, and are also reported
//! separately.

mod command;
mod connections;
mod counters;
mod error;
mod launch;
mod pairs;
mod watch;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_host::sockets;
use lastbyte_link::{Host, Link, Namespace};
use lastbyte_sys::sock_diag::LISTENING;

pub use command::ForeignCommand;
pub use connections::{Connection, Sample};
pub use counters::Counters;
pub use error::{ForeignError, LaunchError};
pub use launch::{Exit, InNamespace, Launch, Output, Running, Tail};
pub use pairs::{Ending, Pair, Stream, Totals};
pub use watch::{Observed, Watch, WatchError};

/// The time between two checks whether a program has ended, or something listens.
const POLL_EVERY: Duration = Duration::from_millis(5);
/// The time between two samples of a connection.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// What programs moved over a path. Times count from shortly before the near program started.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Foreign {
    /// How the near program ended.
    pub near: Exit,
    /// How the far program ended, if there was one.
    pub far: Option<Exit>,
    /// Whether the far program ended by itself; if not, it was killed.
    pub far_ended: bool,
    /// Whether the near program was killed at its time limit.
    pub timed_out: bool,
    /// How long the near program ran.
    pub ran: Duration,
    /// Payload received at the far host.
    pub up: Totals,
    /// Payload received at the near host.
    pub down: Totals,
    /// The connections, the earliest first.
    pub connections: Vec<Pair>,
    /// What the near host's kernel counted.
    pub near_counters: Counters,
    /// What the far host's kernel counted.
    pub far_counters: Counters,
    /// How often a kernel's report of sockets overflowed: then connections may be missing.
    pub overflows: u64,
}

/// Runs programs over a path and returns what they moved.
///
/// Starts the far program first, and the near one once something listens on the far host. When the
/// near program has ended, or after `time_limit`, waits for bytes in flight; then kills the far
/// program, if it does not end by itself within half a second.
///
/// The hosts should be fresh: counters are those of the whole host, and any listener on the far
/// host is taken for the far program.
///
/// # Errors
/// If a program cannot be started, the far one ends early or never listens, the kernel does not
/// report sockets, or no byte went over the path.
pub fn run(
    link: &Link,
    launch: &dyn Launch,
    command: &ForeignCommand,
    time_limit: Duration,
) -> Result<Foreign, ForeignError> {
    let far = command.far.as_ref();
    let far = far.map(|far| start_far(link.far(), launch, far, time_limit)).transpose()?;
    let began = Instant::now();
    let watches = Watches::start(link, began)?;
    let mut near = launch.launch(link.near(), &command.near)?;
    let started = Instant::now();
    while !near.has_ended() && started.elapsed() < time_limit {
        thread::sleep(POLL_EVERY);
    }
    let ran = started.elapsed();
    let timed_out = !near.has_ended();
    let near = near.end()?;
    watches.settle();
    let (far, far_ended) = match far {
        Some(far) => end_far(far).map(|(exit, ended)| (Some(exit), ended))?,
        None => (None, false),
    };
    watches.empty();

    let (mut near_seen, mut far_seen) = watches.stop()?;
    let connections = pairs::pairs(&mut near_seen, &mut far_seen);
    let overflows = near_seen.overflows + far_seen.overflows;
    let complete = overflows + near_seen.left_out + far_seen.left_out == 0;
    let totals = |to| pairs::totals(&connections, to, complete);
    let (up, down) = (totals(Host::Far), totals(Host::Near));
    if up.received + down.received == 0 {
        let output = last_output(&near) + &far.as_ref().map(last_output).unwrap_or_default();
        return Err(ForeignError::NoBytes { code: near.code, timed_out, output });
    }
    Ok(Foreign {
        near,
        far,
        far_ended,
        timed_out,
        ran,
        up,
        down,
        connections,
        near_counters: near_seen.counters,
        far_counters: far_seen.counters,
        overflows,
    })
}

/// Starts the far program and waits until something listens.
fn start_far(
    host: &Namespace,
    launch: &dyn Launch,
    command: &[String],
    time_limit: Duration,
) -> Result<Box<dyn Running>, ForeignError> {
    /// Long enough for any server to start.
    const TIMEOUT: Duration = Duration::from_secs(30);
    let within = time_limit.min(TIMEOUT);
    let mut far = launch.launch(host, command)?;
    let started = Instant::now();
    loop {
        // Checked first: after the program's end, a listener is not its own.
        let ended = far.has_ended();
        if ended {
            let exit = far.end()?;
            return Err(ForeignError::EndedEarly { code: exit.code, output: last_output(&exit) });
        }
        let listens = host.run(has_listener)?;
        if listens.map_err(|cause| ForeignError::Watch { host: Host::Far, cause })? {
            return Ok(far);
        }
        if started.elapsed() >= within {
            let output = last_output(&far.end()?);
            return Err(ForeignError::NothingListens { within, output });
        }
        thread::sleep(POLL_EVERY);
    }
}

/// Whether something listens in the calling thread's namespace, on an address other than loopback.
fn has_listener() -> io::Result<bool> {
    Ok(sockets::list(LISTENING)?.iter().any(|socket| !socket.local.ip().is_loopback()))
}

/// Gives the far program a moment to end by itself, as a server for one connection does.
fn end_far(mut far: Box<dyn Running>) -> Result<(Exit, bool), ForeignError> {
    const GRACE: Duration = Duration::from_millis(500);
    let began = Instant::now();
    while !far.has_ended() && began.elapsed() < GRACE {
        thread::sleep(POLL_EVERY);
    }
    let ended = far.has_ended();
    Ok((far.end()?, ended))
}

/// The last lines of a program's output, for an error.
fn last_output(exit: &Exit) -> String {
    const LINES: usize = 10;
    let text = exit.stdout.text.lines().chain(exit.stderr.text.lines());
    let lines: Vec<&str> = text.filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("\n  {line}")).collect()
}

/// A watch on each host.
struct Watches {
    near: Watch,
    far: Watch,
}

impl Watches {
    fn start(link: &Link, began: Instant) -> Result<Self, ForeignError> {
        let start = |host| {
            let watch = Watch::start_from(link.host(host), began, SAMPLE_EVERY);
            watch.map_err(watching(host))
        };
        Ok(Self { near: start(Host::Near)?, far: start(Host::Far)? })
    }

    /// Waits until no bytes are in flight: all connections are gone, or none has unacked bytes, and
    /// nothing has changed for a while.
    fn settle(&self) {
        /// Long enough to send a full send buffer at a hundredth of a slow path's rate.
        const TIMEOUT: Duration = Duration::from_secs(120);
        /// A connection without progress for this long, with data in its queue, has a reader that
        /// does not read, or a peer that is gone.
        const STUCK: Duration = Duration::from_secs(10);
        const QUIET: Duration = Duration::from_millis(200);
        let began = Instant::now();
        self.scan();
        while began.elapsed() < TIMEOUT {
            let pulses = [self.near.activity(), self.far.activity()];
            let still =
                pulses.map(|activity| activity.last_scan.saturating_sub(activity.last_change));
            let still = still[0].min(still[1]);
            let queued = pulses.iter().any(|activity| activity.queued);
            let rtt = pulses[0].rtt.max(pulses[1].rtt);
            let gone = pulses.iter().all(|activity| activity.open == 0);
            if gone || still >= if queued { STUCK } else { QUIET } + 2 * rtt {
                return;
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Waits a short time until the sockets that the far program left behind are gone.
    fn empty(&self) {
        const TIMEOUT: Duration = Duration::from_secs(1);
        let began = Instant::now();
        self.scan();
        while began.elapsed() < TIMEOUT {
            if self.near.activity().open + self.far.activity().open == 0 {
                return;
            }
            thread::sleep(POLL_EVERY);
        }
    }

    /// Waits for another scan of both hosts: at most a second, in case there are very many sockets.
    fn scan(&self) {
        const TIMEOUT: Duration = Duration::from_secs(1);
        let began = Instant::now();
        let scans = || [self.near.activity().scans, self.far.activity().scans];
        let before = scans();
        while began.elapsed() < TIMEOUT
            && !before.iter().zip(scans()).all(|(before, now)| now > *before)
        {
            thread::sleep(POLL_EVERY);
        }
    }

    fn stop(self) -> Result<(Observed, Observed), ForeignError> {
        let near = self.near.stop().map_err(watching(Host::Near))?;
        Ok((near, self.far.stop().map_err(watching(Host::Far))?))
    }
}

fn watching(host: Host) -> impl FnOnce(WatchError) -> ForeignError {
    move |error| match error {
        WatchError::Link(error) => error.into(),
        WatchError::Kernel(cause) => ForeignError::Watch { host, cause },
    }
}
