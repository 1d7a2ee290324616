//! Guests: programs that run on a host of an emulated link.
//!
//! This crate forbids a program of which anything outlives its command: all that it started ends with it,
//! also if `lastbyte` is killed.
//!
//! It gets three namespaces: the host's network; mounts, so that `/sys` and `/etc/hosts` tell of that
//! host; and process ids. Process 1 of the last is this binary again (`link-init`): it starts the
//! program, collects orphans, and when it ends the kernel ends all that is left. It dies with the
//! `lastbyte` that started it, also by a kill. So the program that uses this crate has to call [`init`]
//! for its command `link-init`.

#![forbid(unsafe_code)]

mod stopped;

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lastbyte_host::Proc;
use lastbyte_link::{Host, LinkError, Namespace};
use lastbyte_sys::{mount, namespace, process};
use serde::{Deserialize, Serialize};

pub use stopped::{StoppedProgram, become_program};

/// Signals of the terminal, which are the program's to handle.
const OF_THE_TERMINAL: &[i32] = &[process::SIGINT, process::SIGQUIT];
/// As shells do it: there is no such program.
pub const NOT_FOUND: u8 = 127;
/// As shells do it: the program could not be started.
pub const NOT_STARTED: u8 = 126;
/// As shells say it of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;
/// Between two looks whether a server listens.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A host that programs find by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// The best first; at least one.
    pub addresses: Vec<IpAddr>,
}

impl Neighbour {
    /// The two hosts of a path.
    #[must_use]
    pub fn of_path() -> Vec<Self> {
        let host = |name: &str, host: Host| Self {
            name: name.to_owned(),
            addresses: vec![host.address().into(), host.address_v6().into()],
        };
        vec![host("near", Host::Near), host("far", Host::Far)]
    }
}

/// Its name and addresses: `near has 10.0.0.1 and fd00::1`.
impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        write!(f, "{} has {}", self.name, addresses.join(" and "))
    }
}

/// A program did not start, or what became of it is not known. The text names the cause: there is no
/// further `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The host's namespace could not be entered.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The kernel refused a step.
    #[error("{doing}: {cause}")]
    Step {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// Process 1 ended before it was known.
    #[error("the program did not start: {0}")]
    NotStarted(ExitStatus),
    /// A stopped program ended before it was let go.
    #[error("the process that was to become {0} ended before it began")]
    EndedEarly(String),
    /// What was to become a program cannot wait for who watches it.
    #[error("cannot wait for the doctor: {0}")]
    NotAwaited(io::Error),
    /// The program cannot be run.
    #[error("cannot run {program}: {cause}")]
    CannotRun {
        /// Its name.
        program: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

impl SandboxError {
    /// The exit code for it, as shells have it; `None` where that is no failure of the program.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            Self::CannotRun { cause, .. } if cause.kind() == ErrorKind::NotFound => Some(NOT_FOUND),
            Self::CannotRun { .. } | Self::NotAwaited(_) => Some(NOT_STARTED),
            _ => None,
        }
    }
}

type Result<T, E = SandboxError> = std::result::Result<T, E>;

/// How a guest's thread ends.
type Ended = Result<Result<ExitStatus>, LinkError>;

fn step(doing: &'static str) -> impl FnOnce(io::Error) -> SandboxError {
    move |cause| SandboxError::Step { doing, cause }
}

/// A running program.
#[derive(Debug)]
pub struct Guest {
    thread: JoinHandle<Ended>,
    pid: i32,
}

impl Guest {
    /// Starts a program on a host, where it finds these by their names.
    ///
    /// # Errors
    /// The host cannot be prepared for it, or no process can be started.
    pub fn start(host: &Namespace, neighbours: &[Neighbour], command: &[String]) -> Result<Self> {
        Self::start_with(host, neighbours, command, |_| {})
    }

    /// As [`Guest::start`], with its standard streams as they are set.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn start_with(
        host: &Namespace,
        neighbours: &[Neighbour],
        command: &[String],
        set_streams: impl FnOnce(&mut Command) + Send + 'static,
    ) -> Result<Self> {
        let (command, neighbours) = (command.to_vec(), neighbours.to_vec());
        let (started, pid) = mpsc::channel();
        // The thread lives as long as the program, whose life is bound to it.
        let thread = host.spawn("guest", move || {
            prepare(&neighbours)?;
            let mut init = init_command(&command, &neighbours);
            set_streams(&mut init);
            let mut child = init.spawn().map_err(step("starting a program"))?;
            // It holds the program's ends of pipes.
            drop(init);
            let _ = started.send(child.id());
            child.wait().map_err(step("waiting for a program"))
        })?;
        match pid.recv() {
            Ok(pid) => Ok(Self { thread, pid: pid.cast_signed() }),
            Err(_) => match joined(thread) {
                Ok(status) => Err(SandboxError::NotStarted(status)),
                Err(error) => Err(error),
            },
        }
    }

    /// Waits for the program's end and returns its exit code, 128 and the signal's number after a
    /// signal.
    ///
    /// # Errors
    /// It did not start, or cannot be waited for.
    pub fn wait(self) -> Result<u8> {
        Ok(code(joined(self.thread)?))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the program and all that it started.
    ///
    /// # Errors
    /// As [`Guest::wait`].
    pub fn end(self) -> Result<()> {
        self.end_as().map(drop)
    }

    /// As [`Guest::end`]; returns the exit code as [`Guest::wait`] does.
    ///
    /// # Errors
    /// As [`Guest::wait`].
    pub fn end_as(self) -> Result<u8> {
        if let Ok(init) = process::pidfd_open(self.pid) {
            // It may have ended meanwhile; a pidfd never means another process.
            let _ = process::pidfd_send_signal(&init, process::SIGKILL);
        }
        joined(self.thread).map(code)
    }
}

fn joined(thread: JoinHandle<Ended>) -> Result<ExitStatus> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
}

/// The exit code of a program; 128 and the number of the signal that ended it, as a shell has it.
#[must_use]
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(255)).unwrap_or(255)
}

/// Gives the calling thread the host's view of the machine.
fn prepare(neighbours: &[Neighbour]) -> Result<()> {
    const PREPARING: &str = "preparing a host for a program";
    namespace::unshare_mounts().map_err(step(PREPARING))?;
    mount::make_all_private().map_err(step(PREPARING))?;
    show_hosts(neighbours).map_err(step("preparing a host for a program: writing /etc/hosts"))?;
    mount::sysfs().map_err(step("preparing a host for a program: mounting /sys"))?;
    namespace::unshare_child_pids().map_err(step(PREPARING))
}

/// Puts the names of the network's hosts into `/etc/hosts` as this thread's mount namespace has it. The file
/// lies in memory, below where `/sys` is mounted next: nothing of it is left behind.
fn show_hosts(neighbours: &[Neighbour]) -> io::Result<()> {
    let hosts = Path::new("/etc/hosts");
    if !hosts.exists() {
        return Ok(());
    }
    let mut text = fs::read_to_string(hosts)?;
    text.push('\n');
    for Neighbour { name, addresses } in neighbours {
        text.extend(addresses.iter().map(|address| format!("{address} {name}\n")));
    }
    let place = Path::new("/sys");
    mount::tmpfs(place)?;
    let file = place.join("hosts");
    fs::write(&file, text)?;
    mount::bind(&file, hosts)
}

fn init_command(command: &[String], neighbours: &[Neighbour]) -> Command {
    let mut init = this_program();
    init.arg("link-init");
    if let Ok(own) = Proc::default().own_stat() {
        init.args(["--parent", &own.pid.to_string()]);
    }
    init.arg("--").args(command);
    for Neighbour { name, addresses } in neighbours {
        let variable = format!("LASTBYTE_{}", name.to_ascii_uppercase().replace('-', "_"));
        if variable == "LASTBYTE_STATE_DIR" {
            // That one has a meaning already.
            continue;
        }
        init.envs(addresses.first().map(|address| (variable, address.to_string())));
    }
    process::die_with_parent(&mut init, process::SIGKILL);
    init
}

/// This binary again, under its own name.
fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("lastbyte");
    command
}

/// The life of process 1: starts the program, collects what has ended, ends with the program. Returns
/// its exit code; `None` where the parent has ended, or nothing is left to wait for.
///
/// # Errors
/// `/proc` cannot be mounted, or the program cannot be run.
pub fn init(command: &[String], parent: Option<u32>) -> Result<Option<u8>> {
    if parent.is_some_and(has_ended) {
        return Ok(None);
    }
    mount::proc().map_err(step("mounting /proc"))?;
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    process::with_default_signals(&mut program, OF_THE_TERMINAL);
    leave_terminal_signals_to_guests()?;
    let child = program
        .spawn()
        .map_err(|cause| SandboxError::CannotRun { program: command[0].clone(), cause })?;
    let child = child.id().cast_signed();
    while let Some((pid, status)) = process::reap_any().map_err(step("waiting for a program"))? {
        if pid == child {
            return Ok(Some(code(ExitStatus::from_raw(status))));
        }
    }
    Ok(None)
}

/// Whether the parent of this process ended before this process could ask to end with it: `/proc` still
/// shows the outer processes.
#[must_use]
pub fn has_ended(parent: u32) -> bool {
    Proc::default().own_stat().is_ok_and(|own| own.parent != parent)
}

/// Lets the terminal's signals go to the guests alone while they run.
///
/// # Errors
/// The kernel refuses, which it does for no signal of these.
pub fn leave_terminal_signals_to_guests() -> Result<()> {
    for signal in OF_THE_TERMINAL {
        process::ignore_signal(*signal).map_err(step("ignoring a signal"))?;
    }
    Ok(())
}

/// Waits until something on a host listens for TCP connections, at most `timeout`, or until the
/// guest has ended. Returns whether something listens.
///
/// # Errors
/// The host's namespace cannot be entered.
pub fn listens(host: &Namespace, guest: &Guest, timeout: Duration) -> Result<bool> {
    let started = Instant::now();
    while started.elapsed() < timeout && !guest.has_ended() {
        if host.run(has_listener)? {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}

/// Whether `/proc/net/tcp` or `tcp6` of the calling thread's namespace has a socket in state
/// `LISTEN` (`0A`).
fn has_listener() -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(Path::new("/proc/thread-self/net").join(table));
        let listens = |line: &str| line.split_whitespace().nth(3) == Some("0A");
        table.is_ok_and(|table| table.lines().any(listens))
    })
}

/// Starts this binary again in the background, out of the terminal's reach, with its answer on a
/// pipe.
#[must_use]
pub fn in_background(arguments: &[String]) -> Command {
    let mut command = this_program();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    process::in_own_session(&mut command);
    command
}
