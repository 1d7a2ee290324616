//! The kinds of change, each with its name, its life, and the way back.
//!
//! A new kind is a new variant of [`Change`] and an arm in each `match` of this file; the compiler
//! names those that are missing. Its way back must be idempotent, must take "already absent" for
//! done, must touch nothing that lastbyte did not make, and must work whether or not the change
//! was made, as a kill may have come before or after it.

mod congestion;
mod persistent_namespace;
mod route;
mod socket;
mod sysctl;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lastbyte_host::process::is_absent;
use lastbyte_host::{Proc, namespace};
use lastbyte_sys::process;
use serde::{Deserialize, Serialize};

pub use congestion::{MountedBpffs, PinnedAlgorithm};
pub use route::{AddedHop, AddedRoute, Metric};
pub use socket::TunedSocket;
pub use sysctl::{LiveValue, NewFile, SysctlFile};

use crate::error::{ChangesError, Doing, Result, must, refused};

/// How long a process gets after each of SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// One change to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// A network namespace that a bind mount at `path` keeps.
    Namespace {
        /// The link that it is for.
        link: String,
        /// Where the mount is.
        path: PathBuf,
    },
    /// A process that carries a link. As a process must run to have a number, plan this while it
    /// waits for a word on a pipe whose end means "stop", and say the word afterwards.
    Process {
        /// The link that it carries.
        link: String,
        /// Its number.
        pid: i32,
        /// When it started, in clock ticks since boot: field 22 of `/proc/PID/stat`. Tells it from
        /// a later process with the same number.
        start_ticks: u64,
        /// What it is, for the reader.
        what: String,
    },
    /// A route that was added to the main table.
    Route(AddedRoute),
    /// Settings of the whole machine.
    SysctlFile(SysctlFile),
    /// A congestion control that stays in the kernel.
    Congestion(PinnedAlgorithm),
    /// The file system that keeps such.
    Bpffs(MountedBpffs),
    /// Options of a connection of another program.
    Socket(TunedSocket),
}

/// Why a change was not made, and why what was done of it could not be taken back, if so.
#[derive(Debug)]
pub(crate) struct NotMade {
    pub(crate) error: ChangesError,
    pub(crate) left: Option<Box<ChangesError>>,
}

impl NotMade {
    fn nothing_left(error: ChangesError) -> Self {
        Self { error, left: None }
    }
}

impl Change {
    /// The change that a running process is.
    ///
    /// # Errors
    /// No such process runs, or `/proc` does not show it.
    pub fn process(link: &str, pid: i32, what: &str) -> Result<Self> {
        let start_ticks =
            start_ticks(pid)?.ok_or_else(|| refused(format!("no process {pid} runs")))?;
        Ok(Self::Process { link: link.to_owned(), pid, start_ticks, what: what.to_owned() })
    }

    /// The link that the change is for.
    #[must_use]
    pub fn link(&self) -> Option<&str> {
        match self {
            Self::Namespace { link, .. } | Self::Process { link, .. } => Some(link),
            Self::Route(_) | Self::SysctlFile(_) => None,
            Self::Congestion(_) | Self::Bpffs(_) | Self::Socket(_) => None,
        }
    }

    /// Whether the change is a process, which may make further changes.
    #[must_use]
    pub fn is_process(&self) -> bool {
        match self {
            Self::Process { .. } => true,
            Self::Namespace { .. } | Self::Route(_) | Self::SysctlFile(_) => false,
            Self::Congestion(_) | Self::Bpffs(_) | Self::Socket(_) => false,
        }
    }

    /// Whether the process that the change is still runs; false for what is no process.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match self {
            Self::Process { pid, start_ticks: then, .. } => {
                start_ticks(*pid).is_ok_and(|now| now == Some(*then))
            }
            Self::Namespace { .. } | Self::Route(_) | Self::SysctlFile(_) => false,
            Self::Congestion(_) | Self::Bpffs(_) | Self::Socket(_) => false,
        }
    }

    /// Whether the change is still there after a reboot.
    #[must_use]
    pub fn outlives_reboot(&self) -> bool {
        match self {
            Self::Namespace { .. } | Self::Process { .. } | Self::Route(_) => false,
            Self::Congestion(_) | Self::Bpffs(_) | Self::Socket(_) => false,
            Self::SysctlFile(_) => true,
        }
    }

    /// Refuses a change that could not be taken back from its record.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Namespace { path, .. } => {
                must(path.is_absolute(), || format!("{} is not an absolute path", path.display()))?;
                must(path.to_str().is_some(), || format!("{} is not UTF-8", path.display()))?;
            }
            Self::Process { pid, .. } => must(*pid > 0, || format!("{pid} is no process id"))?,
            Self::Route(route) => route.check()?,
            Self::SysctlFile(settings) => settings.check()?,
            Self::Congestion(kept) => kept.check()?,
            Self::Bpffs(mounted) => mounted.check()?,
            Self::Socket(tuned) => tuned.check()?,
        }
        Ok(())
    }

    /// Takes the change back; done already counts as done. What was left alone, as somebody has changed
    /// it since, is reported to `tell`.
    pub(crate) fn take_back(&self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        match self {
            Self::Namespace { path, .. } => persistent_namespace::drop_at(path),
            Self::Process { pid, start_ticks, .. } => end_process(*pid, *start_ticks, GRACE),
            Self::Route(route) => route.take_back(tell),
            Self::SysctlFile(settings) => settings.take_back(tell),
            Self::Congestion(kept) => kept.take_back(),
            Self::Bpffs(mounted) => mounted.take_back(),
            Self::Socket(tuned) => tuned.take_back(tell),
        }
    }
}

/// Says what the change is: `the namespace of link wan at /run/lastbyte/wan`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace { link, path } => {
                write!(f, "the namespace of link {link} at {}", path.display())
            }
            Self::Process { link, pid, what, .. } => {
                write!(f, "process {pid} ({what}) of link {link}")
            }
            Self::Route(route) => route.fmt(f),
            Self::SysctlFile(settings) => settings.fmt(f),
            Self::Congestion(kept) => kept.fmt(f),
            Self::Bpffs(mounted) => mounted.fmt(f),
            Self::Socket(tuned) => tuned.fmt(f),
        }
    }
}

/// The calling thread's network namespace, as the inode number of its file in `/proc`. The number of
/// one that is gone may be given to another.
pub(crate) fn network() -> Result<u64> {
    namespace::current().doing("cannot tell which network namespace this is")
}

/// Ends the process `pid` if it is the one that started at `start_ticks`.
fn end_process(pid: i32, start_ticks_then: u64, grace: Duration) -> Result<()> {
    let is_it = || Ok::<_, ChangesError>(start_ticks(pid)? == Some(start_ticks_then));
    if !is_it()? {
        return Ok(());
    }
    let process = match process::pidfd_open(pid) {
        Ok(process) => process,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(error).doing_with(|| format!("cannot open process {pid}")),
    };
    // The number may have passed to another process before the descriptor fixed whose it is.
    if !is_it()? {
        return Ok(());
    }
    for signal in [process::SIGTERM, process::SIGKILL] {
        match process::pidfd_send_signal(&process, signal) {
            Ok(()) => {}
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(error).doing_with(|| format!("cannot end process {pid}")),
        }
        let ended = wait_for_end(&process, grace);
        if ended.doing_with(|| format!("cannot wait for process {pid}"))? {
            return Ok(());
        }
    }
    Err(refused(format!("process {pid} still runs {} s after SIGKILL", grace.as_secs_f64())))
}

/// Waits the whole `grace`, also where a signal to us ends a wait early.
fn wait_for_end(process: &OwnedFd, grace: Duration) -> io::Result<bool> {
    let begin = Instant::now();
    loop {
        let left = grace.saturating_sub(begin.elapsed());
        if process::pidfd_wait(process, left)? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// When the process `pid` started, in clock ticks since boot; `None` if there is none.
pub(crate) fn start_ticks(pid: i32) -> Result<Option<u64>> {
    let Ok(number) = u32::try_from(pid) else { return Ok(None) };
    let start = Proc::default().start(number);
    start.doing_with(|| format!("cannot tell when process {pid} started"))
}

/// What was found, or `None` where there is nothing.
fn present<T>(found: io::Result<T>, path: &Path) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).doing_with(|| format!("cannot reach {}", path.display())),
    }
}

#[cfg(test)]
mod tests;
