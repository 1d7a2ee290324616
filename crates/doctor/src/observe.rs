//! Observation: by the highest tier that the privileges and the kernel allow, at least by socket
//! tables.

mod counters;
mod idle;
#[cfg(feature = "bpf")]
mod kernel;
#[cfg(not(feature = "bpf"))]
#[path = "observe/kernel/without.rs"]
mod kernel;
mod networks;
mod processes;
mod rows;
mod tables;
mod throttle;
mod tiers;
mod tracefs;

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use lastbyte_host::Proc;
use lastbyte_sys::{poll, process};

use crate::event::{Began, Event, Scope, SocketId, Tier, What};
use tables::{Reports, Tables};

/// What to observe, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is in scope.
    pub scope: Scope,
    /// This tier and no other; `None`: the best that works.
    pub tier: Option<Tier>,
    /// When system calls are traced.
    pub traced: Traced,
    /// The shortest time between two scans of the socket tables; longer if scans would cost more
    /// than 1.5 % of a processor.
    pub every: Duration,
}

/// When system calls are traced (tiers [`Tier::Tracefs`] and [`Tier::Bpf`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// All the time, for the processes in scope.
    Watched,
    /// For all processes, in regular windows.
    Windows {
        /// The length of a window.
        length: Duration,
        /// The time from the beginning of one window to that of the next.
        every: Duration,
    },
    /// Never.
    Never,
}

/// A tier that is not available, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Which.
    pub tier: Tier,
    /// The reason; one sentence.
    pub why: String,
    /// What it would add; one sentence.
    pub adds: &'static str,
}

/// Why observation is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// Not even socket tables are readable, the requested tier is not available, or this user may
    /// not see the descriptors of the process in scope.
    #[error("{0}")]
    Unavailable(String),
    /// A source that worked before has failed.
    #[error("{what}: {error}")]
    Io {
        /// The operation.
        what: String,
        /// The kernel's error.
        #[source]
        error: std::io::Error,
    },
}

/// The paths of `/proc` and `/sys`; in a container, perhaps those of the host.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// Programs of tier 3 that count as refused by the kernel, with the error number, so that tests
    /// can run without them.
    #[doc(hidden)]
    pub refused: Vec<(&'static str, i32)>,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys"), refused: Vec::new() }
    }
}

impl Roots {
    fn proc(&self) -> Proc {
        Proc::at(&self.proc)
    }
}

/// The measured time from one scan to the next; `None` before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Of the socket tables.
    pub tables: Option<Duration>,
    /// Of the holders of sockets, `/proc/PID/fd`.
    pub holders: Option<Duration>,
}

/// Where events go.
type Each<'a> = &'a mut dyn FnMut(Event);

/// A source of events beyond the tables.
trait Source: std::fmt::Debug + Send {
    /// Hands out new events. `tables` know the sockets with an address.
    fn take(&mut self, tables: &mut Tables, each: Each<'_>) -> Result<(), ObserveError>;

    /// All that happened up to this time has been handed out, CLOCK_MONOTONIC.
    fn complete_ns(&self) -> u64 {
        u64::MAX
    }

    /// Readable when the source should be read before the next tick.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Puts a process, and what it starts from now on, in scope.
    fn watch(&mut self, pid: u32, tables: &Tables);

    /// Begins or ends tracing the system calls of all processes.
    fn window(&mut self, is_open: bool);

    /// Whether no loss is missed because of features that this kernel refuses or lacks.
    fn sees_each_loss(&self) -> bool {
        true
    }

    /// What it cannot see on this kernel, in sentences.
    fn blind(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Observes sockets and processes, and reports events.
#[derive(Debug)]
pub struct Observer {
    tier: Tier,
    traced: Traced,
    tables: Tables,
    source: Option<Box<dyn Source>>,
    /// Events for the next call, or for when no earlier event can come any more.
    waiting: Vec<Event>,
    /// Buffer for the events of one call, reused by the next.
    batch: Vec<Event>,
    /// MPTCP subflows that the source reported; the tables do not show it.
    subflows: HashSet<SocketId>,
    tick_ns: u64,
    window_ns: u64,
    is_window: bool,
}

impl Observer {
    /// Begins to observe. Also returns the tiers that are not available, the highest first.
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`].
    pub fn start(plan: &Plan) -> Result<(Self, Vec<Shortfall>), ObserveError> {
        Self::start_in(plan, &Roots::default())
    }

    /// As [`Observer::start`], with `/proc` and `/sys` elsewhere.
    ///
    /// # Errors
    /// [`ObserveError::Unavailable`].
    pub fn start_in(plan: &Plan, roots: &Roots) -> Result<(Self, Vec<Shortfall>), ObserveError> {
        // No source reports earlier events.
        let now_ns = process::monotonic_ns();
        let mut shortfalls = Vec::new();
        let (tier, source) = tiers::start_best(plan, roots, &mut shortfalls)?;
        if let Scope::Process(pid) = plan.scope
            && tier < Tier::Bpf
        {
            visible(pid, roots)?;
        }
        let reports = Reports { changes: source.is_none(), ends: tier < Tier::Bpf };
        let tables = Tables::start(plan, roots.proc(), reports)?;
        let began = Began {
            tier,
            kernel: roots.proc().kernel_release(),
            scope: plan.scope,
            calls: match (tier, plan.traced) {
                (Tier::Procfs, _) | (_, Traced::Never) => Some(false),
                (_, Traced::Watched) => Some(true),
                (Tier::Tracefs, Traced::Windows { .. }) => Some(false),
                (Tier::Bpf, Traced::Windows { .. }) => None,
            },
            sees_each_loss: Some(sees_each_loss(tier, source.as_deref())),
        };
        let mut observer = Self {
            tier,
            traced: plan.traced,
            tables,
            source,
            waiting: vec![Event { at_ns: now_ns, what: What::Began(began) }],
            batch: Vec::new(),
            subflows: HashSet::new(),
            tick_ns: now_ns,
            window_ns: now_ns,
            is_window: false,
        };
        if let Scope::Process(pid) = plan.scope {
            observer.watch(pid);
        }
        Ok((observer, shortfalls))
    }

    /// The tier in use.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Also puts a process, and what it starts from now on, in scope. The process of the scope is
    /// in scope from the start: a caller that starts a program must stop it before its first
    /// instruction until then.
    pub fn watch(&mut self, pid: u32) {
        let now_ns = process::monotonic_ns();
        self.tables.watch(pid, now_ns, &mut |event| self.waiting.push(event));
        if let Some(source) = &mut self.source {
            source.watch(pid, &self.tables);
        }
    }

    /// Whether no loss can be missed: the tier sees short connections too, and the kernel refused
    /// no program that reports losses.
    #[must_use]
    pub fn sees_each_loss(&self) -> bool {
        sees_each_loss(self.tier, self.source.as_deref())
    }

    /// What cannot be seen for want of privileges or on this kernel, in sentences.
    #[must_use]
    pub fn blind(&self) -> Vec<String> {
        let mut blind = self.tables.blind();
        blind.extend(self.source.iter().flat_map(|source| source.blind()));
        blind
    }

    /// The measured times between scans so far.
    #[must_use]
    pub fn intervals(&self) -> Intervals {
        Intervals {
            tables: self.tables.throttle.interval(),
            holders: self.tables.holders.interval(),
        }
    }

    /// The number of scans of the socket tables.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.tables.looks()
    }

    /// Waits for events up to this time, and hands out the new ones in the order of time. The very
    /// first is [`What::Began`].
    ///
    /// # Errors
    /// [`ObserveError::Io`]: a source has failed for good.
    pub fn take(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(Event),
    ) -> Result<(), ObserveError> {
        self.wait(wait)?;
        let now_ns = process::monotonic_ns();
        let is_tick = now_ns >= self.tick_ns;
        let mut events = std::mem::take(&mut self.batch);
        events.append(&mut self.waiting);
        if is_tick {
            self.tables.scan(now_ns, &mut |event| events.push(event));
        }
        self.take_after_scan(events, (now_ns, is_tick), each)
    }

    /// Scans everything once more at the end of the observation, and hands out all events until
    /// now, with the processor time not reported yet.
    ///
    /// # Errors
    /// [`ObserveError::Io`]: a source has failed for good.
    pub fn take_last(&mut self, each: &mut dyn FnMut(Event)) -> Result<(), ObserveError> {
        let now_ns = process::monotonic_ns();
        let mut events = std::mem::take(&mut self.waiting);
        self.tables.scan_last(now_ns, &mut |event| events.push(event));
        let taken = self.take_after_scan(events, (now_ns, true), each);
        self.waiting.drain(..).for_each(&mut *each);
        self.tables.processes().report_used(process::monotonic_ns(), each);
        taken
    }

    fn take_after_scan(
        &mut self,
        mut events: Vec<Event>,
        (now_ns, is_tick): (u64, bool),
        each: &mut dyn FnMut(Event),
    ) -> Result<(), ObserveError> {
        /// A larger buffer than this, in events, is freed.
        const MAX_BATCH: usize = 4096;
        let mut taken = Ok(());
        if let Some(source) = &mut self.source {
            // After the tables: all events from before the scan are available by now.
            taken = source.take(&mut self.tables, &mut |event| events.push(event));
        }
        self.mark_subflows(&mut events);
        if self.tier == Tier::Tracefs {
            put_introductions_first(&mut events);
        }
        if self.source.is_some() {
            events.sort_by_key(|event| event.at_ns);
        }
        if is_tick {
            self.turn_window(now_ns);
            events.push(self.tick());
        }
        let complete_ns = self.source.as_ref().map_or(u64::MAX, |source| source.complete_ns());
        for event in events.drain(..) {
            if event.at_ns <= complete_ns {
                each(event);
            } else {
                self.waiting.push(event);
            }
        }
        if events.capacity() <= MAX_BATCH {
            self.batch = events;
        }
        taken
    }

    /// Adds what the source knows about a socket to the events of the tables.
    fn mark_subflows(&mut self, events: &mut [Event]) {
        /// Limit on remembered subflows; beyond it, the set starts again.
        const MAX_SUBFLOWS: usize = 65_536;
        for event in &*events {
            if let What::Socket(socket) = &event.what
                && socket.subflow
            {
                if self.subflows.len() >= MAX_SUBFLOWS {
                    self.subflows.clear();
                }
                self.subflows.insert(socket.id);
            }
        }
        if self.subflows.is_empty() {
            return;
        }
        for event in events {
            match &mut event.what {
                What::Socket(socket) => socket.subflow = self.subflows.contains(&socket.id),
                What::Gone { socket, .. } => drop(self.subflows.remove(socket)),
                _ => {}
            }
        }
    }

    /// Waits until the next tick, until the source is readable, or until the time is over.
    fn wait(&self, most: Duration) -> Result<(), ObserveError> {
        let now_ns = process::monotonic_ns();
        let to_tick = Duration::from_nanos(self.tick_ns.saturating_sub(now_ns));
        let wait = most.min(to_tick);
        if wait.is_zero() {
            return Ok(());
        }
        match self.source.as_ref().and_then(|source| source.wait_fd()) {
            None => std::thread::sleep(wait),
            Some(fd) => {
                let failed =
                    |error| ObserveError::Io { what: "waiting for events".to_owned(), error };
                poll::wait_for(&fd, poll::READABLE, wait).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Event {
        const TICK_NS: u64 = 100_000_000;
        let now_ns = process::monotonic_ns();
        // Missed ticks are not repeated.
        self.tick_ns = (self.tick_ns + TICK_NS).max(now_ns.saturating_sub(TICK_NS));
        Event { at_ns: now_ns, what: What::Tick }
    }

    /// Opens or closes the window in which all system calls are traced.
    fn turn_window(&mut self, now_ns: u64) {
        let (Traced::Windows { length, every }, Some(source)) = (self.traced, &mut self.source)
        else {
            return;
        };
        if now_ns < self.window_ns {
            return;
        }
        self.is_window = !self.is_window;
        source.window(self.is_window);
        let next = if self.is_window { length } else { every.saturating_sub(length) };
        self.window_ns = now_ns + u64::try_from(next.as_nanos()).unwrap_or(u64::MAX / 2);
    }
}

fn sees_each_loss(tier: Tier, source: Option<&dyn Source>) -> bool {
    tier.sees_short() && source.is_none_or(|source| source.sees_each_loss())
}

/// Checks that this user may see the sockets of a process. A process that has ended is no error.
fn visible(pid: u32, roots: &Roots) -> Result<(), ObserveError> {
    match roots.proc().sockets(pid, &mut |_, _| ()) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(ObserveError::Unavailable(format!(
                "this user may not see which sockets process {pid} holds: that needs its own user, \
                 or root (CAP_SYS_PTRACE)"
            )))
        }
        _ => Ok(()),
    }
}

/// Moves processes, sockets and holders to the front: a scan finds them only after the events that
/// were traced before it.
fn put_introductions_first(events: &mut [Event]) {
    let first = events.iter().map(|event| event.at_ns).min().unwrap_or_default();
    for event in events {
        if matches!(event.what, What::Process(_) | What::Socket(_) | What::Holds { .. }) {
            event.at_ns = first;
        }
    }
}
