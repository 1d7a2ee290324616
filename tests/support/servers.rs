//! Servers of others, each in a place of its own, and what their clients are run with.

pub(crate) mod git;
pub(crate) mod postgres;
pub(crate) mod ssh;

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{Answer, LATER, SOON, Scratch, answer_within, holds_within, signal_to, wait_for};

/// Runs a client to its end, which it has to reach in time and without a failure.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> Answer {
    answer_within(command, LATER).with_code(0)
}

/// Runs a line of shell, all of whose programs have to succeed.
#[track_caller]
pub(crate) fn shell(line: &str) -> Answer {
    succeed(Command::new("bash").args(["-euo", "pipefail", "-c", line]))
}

/// A program that serves, with what it says in a file. It is killed when dropped, and what it started
/// in its process group.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server and waits until it takes connections at this port.
    #[track_caller]
    pub(crate) fn at(port: u16, scratch: &Scratch, command: &mut Command) -> Self {
        let mut server = Self::start(scratch, command);
        server.wait_for("connections", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    /// Starts a server that says which port it has, as the last word of a line that has this in it.
    #[track_caller]
    pub(crate) fn that_says(mark: &str, scratch: &Scratch, command: &mut Command) -> (Self, u16) {
        let mut server = Self::start(scratch, command);
        let mut port = None;
        let log = server.log.clone();
        server.wait_for(mark, || {
            port = port_said(&fs::read_to_string(&log).unwrap(), mark);
            port.is_some()
        });
        (server, port.unwrap())
    }

    #[track_caller]
    fn start(scratch: &Scratch, command: &mut Command) -> Self {
        let program = Path::new(command.get_program()).file_name().unwrap().to_str().unwrap();
        let log = scratch.path().join(format!("{program}-{}.log", free_port()));
        let file = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let started = command.process_group(0).spawn();
        let child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log }
    }

    /// Waits for a condition; the server's end is a failure, with what it said.
    #[track_caller]
    fn wait_for(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let holds =
            holds_within(LATER, &mut || condition() || self.child.try_wait().unwrap().is_some());
        let ended = self.child.try_wait().unwrap();
        assert!(holds && ended.is_none(), "no {what} ({ended:?}): {}", self.said());
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it by a signal and waits for its end.
    #[track_caller]
    pub(crate) fn end(&mut self, signal: &str) -> ExitStatus {
        signal_to(signal, &self.child.id().to_string());
        let mut status = None;
        wait_for("a server's end", LATER, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// The same, if it has not ended by itself.
    pub(crate) fn end_if_running(&mut self, signal: &str) {
        if self.child.try_wait().unwrap().is_none() {
            self.end(signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            signal_to("KILL", &format!("-{}", self.child.id()));
            let _ = self.child.wait();
        }
    }
}

/// Python's own web server, for the files of a place.
pub(crate) fn web_server(scratch: &Scratch) -> (Server, u16) {
    let port = free_port();
    let mut server = Command::new("python3");
    server.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
    let server = Server::at(port, scratch, server.arg(scratch.path()).arg(port.to_string()));
    (server, port)
}

/// A server that keeps nothing. Debian's package of tools has the server too, which is what it is
/// called.
pub(crate) fn redis_server(scratch: &Scratch) -> (Server, u16) {
    let port = free_port();
    let mut server = Command::new("redis-check-rdb");
    server.arg0("redis-server").current_dir(scratch.path());
    server.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
    server.arg("--unixsocket").arg(scratch.path().join("redis"));
    let server = Server::at(port, scratch, &mut server);
    (server, port)
}

/// The port at the end of the first address after the mark.
fn port_said(text: &str, mark: &str) -> Option<u16> {
    let whole_lines = &text[..text.rfind('\n')?];
    let line = whole_lines.lines().find(|line| line.contains(mark))?;
    let words = line.split_once(mark)?.1.split_whitespace().next()?;
    words.rsplit(':').next()?.parse().ok()
}

/// A port that nobody has at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes a file of so many bytes that look random and are the same each time. No two blocks of it
/// are the same.
pub(crate) fn write_random(path: &Path, bytes: usize, seed: u64) {
    const BLOCK: usize = 1 << 20;
    let mut block = Vec::with_capacity(BLOCK);
    let mut state = seed | 1;
    while block.len() < BLOCK.min(bytes) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend(state.to_le_bytes());
    }
    let mut file = File::create(path).unwrap();
    for at in (0..bytes).step_by(BLOCK) {
        if at > 0 {
            block[..8].copy_from_slice(&at.to_le_bytes());
        }
        file.write_all(&block[..BLOCK.min(bytes - at)]).unwrap();
    }
}

/// What sha256sum says about a file.
pub(crate) fn digest_of(path: &Path) -> String {
    first_word(&succeed(Command::new("sha256sum").arg(path)))
}

/// The first word that a program answered.
#[track_caller]
pub(crate) fn first_word(told: &Answer) -> String {
    told.stdout.split_whitespace().next().unwrap().to_owned()
}

/// Waits until a file has so many bytes.
#[track_caller]
pub(crate) fn wait_for_bytes(path: &Path, bytes: u64) {
    let has = || fs::metadata(path).is_ok_and(|file| file.len() >= bytes);
    wait_for(&format!("{bytes} bytes in {}", path.display()), SOON, has);
}

/// For a program that has nothing more to do.
pub(crate) const AT_ONCE: Duration = SOON;
