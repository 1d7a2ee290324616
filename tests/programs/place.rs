//! What these tests share: a place with servers in it, a gate before one of them, and bytes to move.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::ops::RangeBounds;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Answer, LATER, SOON, Scratch, answer_within, code_of, holds_within, lastbyte, signal_to,
    wait_for,
};

/// Runs a client to its end, which it has to reach in time and without a failure.
#[track_caller]
pub(super) fn succeed(command: &mut Command) -> Answer {
    answer_within(command, LATER).with_code(0)
}

/// Runs a line of shell, all of whose programs have to succeed.
#[track_caller]
pub(super) fn shell(line: &str) -> Answer {
    succeed(Command::new("bash").args(["-euo", "pipefail", "-c", line]))
}

/// A program that serves, with what it says in a file. It is killed when dropped, and what it started
/// in its process group.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server and waits until it takes connections at this port.
    #[track_caller]
    pub(super) fn at(port: u16, scratch: &Scratch, command: &mut Command) -> Self {
        let mut server = Self::start(scratch, command);
        server.wait_for("connections", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    /// Starts a server that says which port it has, as the last word of a line that has this in it.
    #[track_caller]
    pub(super) fn that_says(mark: &str, scratch: &Scratch, command: &mut Command) -> (Self, u16) {
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

    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it by a signal and waits for its end.
    #[track_caller]
    pub(super) fn end(&mut self, signal: &str) -> ExitStatus {
        signal_to(signal, &self.child.id().to_string());
        let mut status = None;
        wait_for("a server's end", LATER, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// The same, if it has not ended by itself.
    pub(super) fn end_if_running(&mut self, signal: &str) {
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

/// The port at the end of the first address after the mark.
fn port_said(text: &str, mark: &str) -> Option<u16> {
    let whole_lines = &text[..text.rfind('\n')?];
    let line = whole_lines.lines().find(|line| line.contains(mark))?;
    let words = line.split_once(mark)?.1.split_whitespace().next()?;
    words.rsplit(':').next()?.parse().ok()
}

/// A gate on a port of its own, before a server of this host.
#[derive(Debug)]
pub(super) struct Gate {
    server: Server,
    pub(super) port: u16,
}

impl Gate {
    #[track_caller]
    pub(super) fn before(port: u16, scratch: &Scratch) -> Self {
        let route = format!("127.0.0.1:0=127.0.0.1:{port}");
        let mut gate = lastbyte(["gate", "--log", "json", &route]);
        let (server, port) = Server::that_says("listening on ", scratch, &mut gate);
        Self { server, port }
    }

    /// Where its clients find it.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Tells it to stop, which it does once its last flow has ended, and returns the account of each.
    /// None was ended by the gate, and those that ended well lost nothing.
    #[track_caller]
    fn accounts(mut self) -> Vec<Value> {
        let status = self.server.end("TERM");
        let said = self.server.said();
        assert_eq!(code_of(status), 0, "{said}");
        let lines = said.lines().filter_map(|line| serde_json::from_str(line).ok());
        let accounts: Vec<Value> = lines.filter(|line: &Value| line["type"] == "account").collect();
        for account in &accounts {
            assert_ne!(account["ended_by"], "gate", "{account:#}");
            assert_eq!(account["ended_how"] == "fin", account["complete"] == true, "{account:#}");
        }
        accounts
    }

    /// The same, where so many flows are expected, each ended as its programs like.
    #[track_caller]
    pub(super) fn assert_flows(self, expected: impl RangeBounds<usize> + Debug) -> Vec<Value> {
        let accounts = self.accounts();
        let count = accounts.len();
        assert!(expected.contains(&count), "{count} flows, expected {expected:?}: {accounts:#?}");
        accounts
    }

    /// The same, where the programs end none of their connections but by a FIN.
    #[track_caller]
    pub(super) fn assert_complete(self, expected: impl RangeBounds<usize> + Debug) {
        for account in self.assert_flows(expected) {
            assert_eq!(account["complete"], true, "{account:#}");
        }
    }
}

/// A port that nobody has at the moment.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes a file of so many bytes that look random and are the same each time. No two blocks of it
/// are the same.
pub(super) fn write_random(path: &Path, bytes: usize, seed: u64) {
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
pub(super) fn digest_of(path: &Path) -> String {
    first_word(&succeed(Command::new("sha256sum").arg(path)))
}

/// The first word that a program answered.
#[track_caller]
pub(super) fn first_word(told: &Answer) -> String {
    told.stdout.split_whitespace().next().unwrap().to_owned()
}

/// Waits until a file has so many bytes.
#[track_caller]
pub(super) fn wait_for_bytes(path: &Path, bytes: u64) {
    let has = || fs::metadata(path).is_ok_and(|file| file.len() >= bytes);
    wait_for(&format!("{bytes} bytes in {}", path.display()), SOON, has);
}

/// For a program that has nothing more to do.
pub(super) const AT_ONCE: Duration = SOON;
