//! A gate that runs, as the binary under test, and flows through it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lastbyte_host::Proc;
use serde_json::Value;

use super::{SOON, Scratch, answer, code_of, holds_within, lastbyte, signal_to, wait_for};

/// A gate that runs, with what it says in files. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Gate {
    /// With one worker, so that figures do not depend on the machine.
    pub(crate) fn start(scratch: &Scratch, words: &[&str]) -> Self {
        Self::spawn(scratch, asked(scratch, words).args(["--workers", "1"]))
    }

    /// From a file, which says all, with accounts in JSON.
    pub(crate) fn with_file(scratch: &Scratch, file: &str) -> Self {
        Self::spawn(scratch, &mut asked(scratch, &[file, "--log", "json"]))
    }

    /// However it is started.
    pub(crate) fn spawn(scratch: &Scratch, command: &mut Command) -> Self {
        let stdout = scratch.path().join(format!("stdout-{}", next()));
        let log = fs::File::create(&stdout).unwrap();
        let mut gate = Self::writing_to(scratch, command, log.into());
        gate.stdout = stdout;
        gate
    }

    /// With its accounts written to somewhere else.
    pub(crate) fn writing_to(scratch: &Scratch, command: &mut Command, log: Stdio) -> Self {
        let stderr = scratch.path().join(format!("stderr-{}", next()));
        command.stdin(Stdio::null()).stdout(log).stderr(fs::File::create(&stderr).unwrap());
        Self { child: command.spawn().unwrap(), stdout: PathBuf::new(), stderr }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log, as it is by now.
    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// What it has said by now.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until it says so.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        let says = holds_within(SOON, || self.stderr().contains(words));
        assert!(says, "waited for {words:?} in {}", self.stderr());
    }

    /// The address that its first route listens on.
    #[track_caller]
    pub(crate) fn listening(&self) -> SocketAddr {
        self.address_in(|line| line.strip_prefix("listening on "))
    }

    /// The address that a route listens on.
    #[track_caller]
    pub(crate) fn address(&self, route: &str) -> SocketAddr {
        let route = format!("(route {route})");
        let of_route = |line: &str| line.ends_with(&route);
        self.address_in(|line| line.strip_prefix("listening on ").filter(|line| of_route(line)))
    }

    /// The address where its metrics are.
    #[track_caller]
    pub(crate) fn metrics(&self) -> SocketAddr {
        self.address_in(|line| line.strip_prefix("metrics on http://"))
    }

    #[track_caller]
    fn address_in(&self, rest: impl Fn(&str) -> Option<&str>) -> SocketAddr {
        let mut address = None;
        let is_said = holds_within(SOON, || {
            let said = self.stderr();
            // Only whole lines.
            let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            let first = lines.find_map(&rest).and_then(|rest| rest.split([' ', '/']).next());
            address = first.map(|address| address.parse().unwrap());
            address.is_some()
        });
        assert!(is_said, "waited for an address in {}", self.stderr());
        address.unwrap()
    }

    /// All accounts, once there are so many. The log has to be of JSON.
    #[track_caller]
    pub(crate) fn accounts(&self, count: usize) -> Vec<Value> {
        self.accounts_within(SOON, count)
    }

    /// All accounts, once there are so many.
    #[track_caller]
    pub(crate) fn accounts_within(&self, limit: Duration, count: usize) -> Vec<Value> {
        let lines = || self.stdout().matches('\n').count();
        let are_there = holds_within(limit, || lines() >= count);
        assert!(are_there, "waited {limit:?} for {count} accounts, there are {}", lines());
        self.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal_to(name, &self.pid().to_string());
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It ends by itself, with this exit code. Returns all that it has said.
    #[track_caller]
    pub(crate) fn ends_with(mut self, code: i32) -> String {
        let mut status = None;
        wait_for("the end of the gate", SOON, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let said = self.stderr();
        assert_eq!(code_of(status.unwrap()), code, "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files of several gates in one folder have different names.
fn next() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Where the control sockets of a test's gates lie.
pub(crate) fn run_folder(scratch: &Scratch) -> PathBuf {
    scratch.path().join("run")
}

/// `lastbyte gate` with these words, among the gates of the scratch folder.
pub(crate) fn asked(scratch: &Scratch, words: &[&str]) -> Command {
    let mut command = lastbyte(["gate"]);
    command.args(words).env("LASTBYTE_RUN_DIR", run_folder(scratch));
    command
}

/// One figure of the only gate of the scratch folder.
#[track_caller]
pub(crate) fn stat(scratch: &Scratch, name: &str) -> String {
    answer(&mut asked(scratch, &["stat", name])).with_code(0).stdout.trim_end().to_owned()
}

/// Somebody to connect to, and the word of a route that leads there.
pub(crate) fn upstream() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let word = format!("0={}", listener.local_addr().unwrap());
    (listener, word)
}

/// A flow through the gate: both its ends, with a byte moved.
#[track_caller]
pub(crate) fn flow(gate: SocketAddr, upstream: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(gate).unwrap();
    client.write_all(b"?").unwrap();
    let (mut server, _) = upstream.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(SOON)).unwrap();
    }
    server.read_exact(&mut [0]).unwrap();
    (client, server)
}

/// Ends a flow well, from the client's side.
#[track_caller]
pub(crate) fn end((mut client, mut server): (TcpStream, TcpStream)) {
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    server.write_all(b"hello").unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"hello");
}

/// The control socket of a gate that was not told of another place.
pub(crate) fn socket_of(gate: &Gate, scratch: &Scratch) -> PathBuf {
    run_folder(scratch).join(format!("gate-{}.sock", gate.pid()))
}

/// How many descriptors a process has open.
pub(crate) fn open_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// How much of a process's memory is its own, and not of files: in bytes.
pub(crate) fn memory_of(pid: u32) -> u64 {
    let status =
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kibibytes: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    kibibytes << 10
}

/// The processor time that a process has used, in its own code and in the kernel: `utime` and `stime` of
/// proc_pid_stat(5).
pub(crate) fn processor_time(pid: u32) -> Duration {
    /// `sysconf(_SC_CLK_TCK)` on every Linux that this runs on.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = Proc::default().stat(pid).unwrap();
    Duration::from_millis((stat.user + stat.system) * 1_000 / TICKS_PER_SECOND)
}
