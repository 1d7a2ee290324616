//! What the tests of the whole binary share: running it with a deadline, places of their own, and
//! worlds of their own in which everything that is left behind can be counted.
//!
//! Nothing here waits for a time to pass: it waits for a condition, at most until a deadline.

pub(crate) mod gate;
pub(crate) mod names;
pub(crate) mod servers;
pub(crate) mod world;

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_host::Proc;
use lastbyte_testing::{Run, first_that_counts};
use serde_json::Value;

/// For what takes an instant.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// For what runs several seconds; a busy machine may take several times that.
pub(crate) const LATER: Duration = Duration::from_secs(120);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The binary under test.
pub(crate) const LASTBYTE: &str = env!("CARGO_BIN_EXE_lastbyte");

/// A command that runs the binary under test. Unless told otherwise it can reach no ledger, and
/// no other gate.
pub(crate) fn lastbyte<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(LASTBYTE);
    command.args(words).env("LASTBYTE_STATE_DIR", "/dev/null/no-ledger-in-this-test");
    command.env("LASTBYTE_RUN_DIR", "/dev/null/no-gates-in-this-test");
    command
}

/// What runs the program and the words that are added to it in a network namespace of its own: root's tests are in
/// one each (`scripts/own-network.sh`), and others may make one in a user namespace. `None`, and said aloud, where
/// there may be none.
#[track_caller]
pub(crate) fn own_network() -> Option<impl Fn() -> Command> {
    let is_root = lastbyte_sys::process::effective_user() == 0;
    let make = move || {
        if is_root {
            return Command::new("env");
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--net", "--"]);
        unshare.args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
        unshare
    };
    let tried = make().arg("true").output();
    if let Ok(tried) = &tried
        && tried.status.success()
    {
        return Some(make);
    }
    lastbyte_testing::not_tested!("no network namespace of its own: {tried:?}");
    None
}

/// What a program answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Its exit code; 128 and the signal's number after a signal.
    pub(crate) fn code(&self) -> i32 {
        code_of(self.status)
    }

    /// Itself, if the exit code is as expected; panics with all that was said otherwise.
    #[track_caller]
    pub(crate) fn with_code(self, expected: i32) -> Self {
        assert_eq!(self.code(), expected, "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// The lines of stdout as JSON.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        self.stdout.lines().map(parse).collect()
    }
}

pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).expect("it has ended")
}

/// Runs a program to its end, with nothing on stdin; a deadline passed is a failure.
#[track_caller]
pub(crate) fn answer_within(command: &mut Command, limit: Duration) -> Answer {
    command.stdin(Stdio::null());
    Running::start(command).answer_within(limit)
}

/// Copies the program to a place where others may start it, by a process of its own: a descriptor to write
/// it by would be in each program that another test starts just then, and what is open for writing
/// cannot be executed (`ETXTBSY`).
pub(crate) fn copy_program(to: &Path) {
    let copied = Command::new("cp").args([Path::new(LASTBYTE), to]).status();
    assert!(copied.expect("cp is everywhere").success());
}

/// Runs a program that takes an instant.
#[track_caller]
pub(crate) fn answer(command: &mut Command) -> Answer {
    answer_within(command, SOON)
}

/// What a program answered, the first time that its links were not late by their own account: it is run
/// again, a bounded number of times, and if none counts the test fails as not tested.
#[track_caller]
pub(crate) fn answer_that_counts(what: &str, mut play: impl FnMut() -> Answer) -> Answer {
    let mut counted = None;
    first_that_counts(what, |_| {
        let told = play();
        if let Some(why) = lateness(&told) {
            return Run::Void(why);
        }
        counted = Some(told);
        Run::Right
    });
    counted.expect("one counts, or it has failed")
}

/// What a program that failed said of links that were late.
pub(crate) fn lateness(told: &Answer) -> Option<String> {
    let is_late = |line: &&str| line.contains("ms late") || line.contains("dropped unasked");
    let line = told.stderr.lines().find(is_late).filter(|_| told.code() != 0);
    line.map(str::to_owned)
}

/// A program that runs, and is killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<String>,
    /// What of it has come until now.
    stdout_so_far: Arc<Mutex<Vec<u8>>>,
    stderr: Receiver<String>,
    what: String,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{what}: {error}"));
        let stdout_so_far = Arc::default();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stdout = read_to_end(stdout, Arc::clone(&stdout_so_far));
        let stderr = read_to_end(child.stderr.take().expect("stderr is a pipe"), Arc::default());
        Self { child, stdout, stdout_so_far, stderr, what }
    }

    /// Waits until the program has written a whole line to stdout.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, line: &str) {
        wait_for(&format!("{line:?} of {}", self.what), SOON, || {
            let bytes = self.stdout_so_far.lock().unwrap();
            String::from_utf8_lossy(&bytes).contains(&format!("{line}\n"))
        });
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end and for that of its output, which whatever it left running
    /// would keep open.
    #[track_caller]
    pub(crate) fn answer_within(mut self, limit: Duration) -> Answer {
        let until = Instant::now() + limit;
        let mut status = None;
        wait_for(&format!("the end of {}", self.what), limit, || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        let status = status.expect("it has ended");
        let text = |output: &Receiver<String>| {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(2));
            let text = output.recv_timeout(left);
            text.unwrap_or_else(|_| panic!("{} has ended, its output has not", self.what))
        };
        Answer { status, stdout: text(&self.stdout), stderr: text(&self.stderr) }
    }

    /// Sends a signal, by name, to the program's process group, as a terminal does: it has to have
    /// been started with `process_group(0)`.
    pub(crate) fn signal_group(&self, signal: &str) {
        signal_to(signal, &format!("-{}", self.pid()));
    }

    /// SIGKILL to the program alone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends all at its end, and shows what has come until then in `so_far`.
fn read_to_end(
    mut from: impl Read + Send + 'static,
    so_far: Arc<Mutex<Vec<u8>>>,
) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut block = [0; 4096];
        loop {
            match from.read(&mut block) {
                Ok(0) => break,
                Ok(length) => so_far.lock().unwrap().extend_from_slice(&block[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = sender.send(String::from_utf8_lossy(&so_far.lock().unwrap()).into_owned());
    });
    receiver
}

/// Sends a signal to a process, or to a group with a minus sign before its number.
pub(crate) fn signal_to(signal: &str, target: &str) {
    let kill = format!("kill -s {signal} -- {target}");
    let status = Command::new("sh").args(["-c", &kill]).status().expect("there is a sh");
    assert!(status.success(), "{kill}");
}

/// Waits until the condition holds; it not holding within `limit` is a failure.
#[track_caller]
pub(crate) fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    assert!(holds_within(limit, &mut condition), "waited {limit:?} for {what}");
}

/// Whether the condition comes to hold within `limit`.
pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A directory of one's own that everybody may read, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// In another place than that of temporary files.
    pub(crate) fn below(place: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lastbyte-test-{}-{count}", std::process::id());
        let path = place.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, all).expect("it is ours");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns its path as text.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.to_str().expect("paths of tests are text").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether this machine lets us make links. If not, says why, and that a test was left out.
pub(crate) fn can_make_links() -> bool {
    let tried = answer(&mut lastbyte(["link", "run", "-q", "--rtt", "1ms", "--", "true"]));
    let lacks_rights = tried.stderr.contains("making a path needs");
    assert!(tried.code() == 0 || lacks_rights, "{tried:#?}");
    if lacks_rights {
        lastbyte_testing::not_tested!("{}", tried.stderr.trim());
    }
    !lacks_rights
}

/// The congestion controls that a kernel file names: `available` or `allowed`.
pub(crate) fn congestion_controls(which: &str) -> Vec<String> {
    let setting = format!("net.ipv4.tcp_{which}_congestion_control");
    let text = Proc::default().sysctl(&setting);
    text.unwrap_or_else(|error| panic!("{setting}: {error}"))
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// A name that no other test process uses at the same time.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Every running process that has this word among its arguments.
pub(crate) fn processes_with_argument(word: &str) -> Vec<u32> {
    /// Longer than any command line of ours, bytes.
    const MOST: usize = 1 << 20;
    let has_word =
        |pid: &u32| Proc::default().arguments(*pid, MOST).iter().any(|argument| argument == word);
    processes().into_iter().filter(has_word).collect()
}

/// The numbers of all processes that can be seen.
pub(crate) fn processes() -> Vec<u32> {
    Proc::default().pids().expect("/proc can be read")
}
