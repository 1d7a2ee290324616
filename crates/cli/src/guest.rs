//! A program that runs on a host of a link, and nothing of which outlives it.
//!
//! It gets three namespaces: the host's network; mounts, so that `/sys` and `/etc/hosts` tell of that
//! host; and process ids. Process 1 of the last is this binary again (`link-init`): it starts the
//! program, collects orphans, and when it ends the kernel ends all that is left. It dies with the
//! `lastbyte` that started it, also by a kill.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use lastbyte_host::Proc;
use lastbyte_link::{Host, LinkError, Namespace};
use lastbyte_sys::{mount, namespace, process};
use serde::{Deserialize, Serialize};

use crate::output::talk;
use crate::verdict::Verdict;

/// Signals of the terminal, which are the program's to handle.
const OF_THE_TERMINAL: &[i32] = &[process::SIGINT, process::SIGQUIT];
/// As shells do it: the program could not be started.
pub(crate) const NOT_FOUND: u8 = 127;
pub(crate) const NOT_STARTED: u8 = 126;
/// As shells say it of a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;
/// Between two looks whether a server listens.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A host that programs find by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Neighbour {
    pub(crate) name: String,
    /// The best first; at least one.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Neighbour {
    /// The two hosts of a path.
    pub(crate) fn of_path() -> Vec<Self> {
        let host = |name: &str, host: Host| Self {
            name: name.to_owned(),
            addresses: vec![host.address().into(), host.address_v6().into()],
        };
        vec![host("near", Host::Near), host("far", Host::Far)]
    }

    /// Its name and addresses, for the reader.
    pub(crate) fn words(&self) -> String {
        let addresses = self.addresses.iter().map(ToString::to_string);
        format!("{} has {}", self.name, addresses.collect::<Vec<_>>().join(" and "))
    }
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Guest {
    thread: JoinHandle<Result<Result<ExitStatus>, LinkError>>,
    pid: i32,
}

impl Guest {
    /// Starts a program on a host, where it finds these by their names.
    pub(crate) fn start(
        host: &Namespace,
        neighbours: &[Neighbour],
        command: &[String],
    ) -> Result<Self> {
        Self::start_with(host, neighbours, command, |_| {})
    }

    /// As [`Guest::start`], with its standard streams as they are set.
    pub(crate) fn start_with(
        host: &Namespace,
        neighbours: &[Neighbour],
        command: &[String],
        set_streams: impl FnOnce(&mut Command) + Send + 'static,
    ) -> Result<Self> {
        let (command, neighbours) = (command.to_vec(), neighbours.to_vec());
        let (started, pid) = mpsc::channel();
        // The thread lives as long as the program, whose life is bound to it.
        let thread = host.spawn("guest", move || {
            prepare(&neighbours).context("preparing a host for a program")?;
            let mut init = init_command(&command, &neighbours);
            set_streams(&mut init);
            let mut child = init.spawn().context("starting a program")?;
            // It holds the program's ends of pipes.
            drop(init);
            let _ = started.send(child.id());
            Ok(child.wait()?)
        })?;
        match pid.recv() {
            Ok(pid) => Ok(Self { thread, pid: i32::try_from(pid)? }),
            Err(_) => match joined(thread) {
                Ok(status) => Err(anyhow!("the program did not start: {status}")),
                Err(error) => Err(error),
            },
        }
    }

    /// Waits for the program's end and returns its exit code, 128 and the signal's number after a
    /// signal.
    pub(crate) fn wait(self) -> Result<u8> {
        Ok(code(joined(self.thread)?))
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the program and all that it started.
    pub(crate) fn end(self) -> Result<()> {
        self.end_as().map(drop)
    }

    /// As [`Guest::end`]; returns the exit code as [`Guest::wait`] does.
    pub(crate) fn end_as(self) -> Result<u8> {
        if let Ok(init) = process::pidfd_open(self.pid) {
            // It may have ended meanwhile; a pidfd never means another process.
            let _ = process::pidfd_send_signal(&init, process::SIGKILL);
        }
        joined(self.thread).map(code)
    }
}

fn joined(thread: JoinHandle<Result<Result<ExitStatus>, LinkError>>) -> Result<ExitStatus> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
}

/// The exit code of a program; 128 and the number of the signal that ended it, as a shell has it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(255)).unwrap_or(255)
}

/// Gives the calling thread the host's view of the machine.
fn prepare(neighbours: &[Neighbour]) -> Result<()> {
    namespace::unshare_mounts()?;
    mount::make_all_private()?;
    show_hosts(neighbours).context("writing /etc/hosts")?;
    mount::sysfs().context("mounting /sys")?;
    namespace::unshare_child_pids()?;
    Ok(())
}

/// Puts the names of the network's hosts into `/etc/hosts` as this thread's mount namespace has it. The file
/// lies in memory, below where `/sys` is mounted next: nothing of it is left behind.
fn show_hosts(neighbours: &[Neighbour]) -> Result<()> {
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
    Ok(mount::bind(&file, hosts)?)
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

/// The life of process 1: starts the program, collects what has ended, ends with the program.
pub(crate) fn init(command: &[String], parent: Option<u32>) -> Result<Verdict> {
    if parent.is_some_and(has_ended) {
        return Ok(Verdict::Failed);
    }
    mount::proc().context("mounting /proc")?;
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    process::with_default_signals(&mut program, OF_THE_TERMINAL);
    for signal in OF_THE_TERMINAL {
        process::ignore_signal(*signal)?;
    }
    let child = match program.spawn() {
        Ok(child) => child,
        Err(error) => {
            talk(&format!("lastbyte: cannot run {}: {error}", command[0]));
            let missing = error.kind() == ErrorKind::NotFound;
            return Ok(Verdict::Of(if missing { NOT_FOUND } else { NOT_STARTED }));
        }
    };
    let child = i32::try_from(child.id())?;
    while let Some((pid, status)) = process::reap_any()? {
        if pid == child {
            return Ok(Verdict::Of(code(ExitStatus::from_raw(status))));
        }
    }
    Ok(Verdict::Failed)
}

/// Whether the parent of this process ended before this process could ask to end with it: `/proc` still
/// shows the outer processes.
pub(crate) fn has_ended(parent: u32) -> bool {
    Proc::default().own_stat().is_ok_and(|own| own.parent != parent)
}

/// Lets the terminal's signals go to the guests alone while they run.
pub(crate) fn leave_terminal_signals_to_guests() -> Result<()> {
    for signal in OF_THE_TERMINAL {
        process::ignore_signal(*signal)?;
    }
    Ok(())
}

/// Waits until something on a host listens for TCP connections, at most `timeout`, or until the
/// guest has ended. Returns whether something listens.
pub(crate) fn listens(host: &Namespace, guest: &Guest, timeout: Duration) -> Result<bool> {
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
pub(crate) fn in_background(arguments: &[String]) -> Command {
    let mut command = this_program();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    process::in_own_session(&mut command);
    command
}
