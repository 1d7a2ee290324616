//! Watching: from the highest tier that the rights and the kernel allow, down to tables of sockets.

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

/// What is to be watched, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is asked about.
    pub scope: Scope,
    /// This tier and no other; `None`: the best that works.
    pub tier: Option<Tier>,
    /// When system calls are traced.
    pub traced: Traced,
    /// Tables of sockets are looked at so often at most; seldom where that would cost more than
    /// one and a half hundredths of a processor.
    pub every: Duration,
}

/// When system calls are traced (tiers [`Tier::Tracefs`] and [`Tier::Bpf`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// All the time, of the processes of the scope alone.
    Watched,
    /// Of all processes, in windows of this length, one in each such time.
    Windows {
        /// How long one is.
        length: Duration,
        /// From the beginning of one to that of the next.
        every: Duration,
    },
    /// Never.
    Never,
}

/// A tier that could not be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Which.
    pub tier: Tier,
    /// Why not; one sentence.
    pub why: String,
    /// What it would add; one sentence.
    pub adds: &'static str,
}

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// Not even tables of sockets can be read, the tier that was asked for cannot be had, or what the
    /// process of the scope has open is not shown to this user.
    #[error("{0}")]
    Unavailable(String),
    /// A source that worked before has failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's word.
        #[source]
        error: std::io::Error,
    },
}

/// Where `/proc` and `/sys` lie: elsewhere for a host's that are seen from a container.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// Programs of tier 3 that are taken for refused by the kernel, with the error number: so tests see
    /// what is left without them.
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

/// How long it really is from one look to the next; `None` before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// At tables of sockets.
    pub tables: Option<Duration>,
    /// At who has what open, `/proc/PID/fd`.
    pub holders: Option<Duration>,
}

/// Where events go.
type Each<'a> = &'a mut dyn FnMut(Event);

/// What tells more than tables do.
trait Source: std::fmt::Debug + Send {
    /// Hands out what has come. `tables` know the sockets that have names already.
    fn take(&mut self, tables: &mut Tables, each: Each<'_>) -> Result<(), ObserveError>;

    /// All that happened up to this time has been handed out, CLOCK_MONOTONIC.
    fn complete_ns(&self) -> u64 {
        u64::MAX
    }

    /// Readable when it should be emptied before its time.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// A process, and what it starts from now on, is asked about.
    fn watch(&mut self, pid: u32, tables: &Tables);

    /// Traces the system calls of all processes, or no more.
    fn window(&mut self, is_open: bool);

    /// Whether no loss is missed for want of what this kernel refuses or lacks.
    fn sees_each_loss(&self) -> bool {
        true
    }

    /// What this kernel does not let it see, in sentences.
    fn blind(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Watches.
#[derive(Debug)]
pub struct Observer {
    tier: Tier,
    traced: Traced,
    tables: Tables,
    source: Option<Box<dyn Source>>,
    /// What is to be handed out next, or once nothing from before it can come any more.
    waiting: Vec<Event>,
    /// Room for the events of a turn, kept from one to the next.
    batch: Vec<Event>,
    /// Those that the source has told to be such; the tables do not say it.
    subflows: HashSet<SocketId>,
    tick_ns: u64,
    window_ns: u64,
    is_window: bool,
}

impl Observer {
    /// Begins to watch. What could not be had is told with it, the highest first.
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
        // No source tells of anything earlier.
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

    /// From where is watched.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// A process, and what it starts from now on, is asked about too. The process of the scope is so from
    /// the start: whoever starts a program to watch it holds it before its first step until then.
    pub fn watch(&mut self, pid: u32) {
        let now_ns = process::monotonic_ns();
        self.tables.watch(pid, now_ns, &mut |event| self.waiting.push(event));
        if let Some(source) = &mut self.source {
            source.watch(pid, &self.tables);
        }
    }

    /// Whether a loss could not have been missed: the tier sees short connections too, and nothing that
    /// tells of losses was refused.
    #[must_use]
    pub fn sees_each_loss(&self) -> bool {
        sees_each_loss(self.tier, self.source.as_deref())
    }

    /// What cannot be seen for want of rights, or because this kernel does not tell, in sentences.
    #[must_use]
    pub fn blind(&self) -> Vec<String> {
        let mut blind = self.tables.blind();
        blind.extend(self.source.iter().flat_map(|source| source.blind()));
        blind
    }

    /// How often was looked so far.
    #[must_use]
    pub fn intervals(&self) -> Intervals {
        Intervals {
            tables: self.tables.throttle.interval(),
            holders: self.tables.holders.interval(),
        }
    }

    /// How many looks at tables of sockets there were.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.tables.looks()
    }

    /// Waits for events for at most so long, and hands out what has come, in the order of time; the
    /// first of all is [`What::Began`].
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

    /// Looks once more before the end of the watch, at everything and at once, and hands out all that came
    /// until now, with the processor time that was not told yet.
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
        /// More batch than this, events, is given back.
        const MAX_BATCH: usize = 4096;
        let mut taken = Ok(());
        if let Some(source) = &mut self.source {
            // After the tables: all that came before what they say is there by now.
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

    /// What the source knows of a socket is said by the tables too.
    fn mark_subflows(&mut self, events: &mut [Event]) {
        /// So many are remembered; then those that are told anew.
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

    /// Until the next tick, the source's wish or the end of the wait.
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
        // Ticks that were missed are not made up for.
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

/// That the tables can find the sockets of a process; one that is gone is no fault.
fn visible(pid: u32, roots: &Roots) -> Result<(), ObserveError> {
    match roots.proc().sockets(pid, &mut |_, _| ()) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(ObserveError::Unavailable(format!(
                "which sockets process {pid} holds is not shown to this user: that needs its own user, or \
                 root (CAP_SYS_PTRACE)"
            )))
        }
        _ => Ok(()),
    }
}

/// The tables know who is who only when they are looked at: after what was traced since the last time.
fn put_introductions_first(events: &mut [Event]) {
    let first = events.iter().map(|event| event.at_ns).min().unwrap_or_default();
    for event in events {
        if matches!(event.what, What::Process(_) | What::Socket(_) | What::Holds { .. }) {
            event.at_ns = first;
        }
    }
}
