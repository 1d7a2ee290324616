//! Options of a connection of another program.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lastbyte_core::sample::State;
use lastbyte_core::text::in_one_line;
use lastbyte_heal::{SocketChanges, Whereabouts, state, take, whereabouts};
use lastbyte_host::Holder;
use serde::{Deserialize, Serialize};

use super::start_ticks;
use crate::error::{Result, must, refused};

/// A connection whose options were changed through a descriptor of the program's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedSocket {
    /// The number that the kernel knows it by until the next boot.
    pub cookie: u64,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The network namespace, by the inode number of its file, where that could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<u64>,
    /// A process that had it open, when that had started (field 22 of `/proc/PID/stat`), and the
    /// number by which it did. Others may have it by now.
    pub pid: i32,
    /// When the process started.
    pub start_ticks: u64,
    /// The program's name.
    pub program: String,
    /// The number by which the process had it open.
    pub fd: i32,
    /// What is different.
    #[serde(flatten)]
    pub changes: SocketChanges,
}

impl TunedSocket {
    pub(super) fn check(&self) -> Result<()> {
        must(self.cookie != 0, || "0 is no socket's cookie".to_owned())?;
        must(self.pid > 0, || format!("{} is no process id", self.pid))?;
        must(!self.changes.is_nothing(), || "nothing of the socket is changed".to_owned())
    }

    pub(super) fn take_back(&self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        self.check()?;
        let cookie = self.cookie;
        match self.find()? {
            Ok(fd) => Ok(self.changes.take_back(&fd, &mut |what| {
                tell(&format!("socket {cookie:#x}: {what}"));
            })?),
            Err(over) => {
                tell(&format!("socket {cookie:#x}: {over}: there is nothing to take back"));
                Ok(())
            }
        }
    }

    /// The socket, wherever it is open now, or why it needs nothing any more.
    fn find(&self) -> Result<Result<OwnedFd, &'static str>> {
        let recorded = self.recorded();
        // Somebody else's process may have the number by now: it is left in peace.
        let is_same = start_ticks(self.pid)? == Some(self.start_ticks);
        let taken = if is_same { take(self.cookie, &[recorded])? } else { None };
        let taken = match taken {
            Some(fd) => fd,
            None => match whereabouts(self.cookie, self.network)? {
                Whereabouts::Held(holders) => match take(self.cookie, &holders)? {
                    Some(fd) => fd,
                    None => return Ok(Err(CLOSED)),
                },
                Whereabouts::Orphaned => return Ok(Err(CLOSED)),
                Whereabouts::Over => return Ok(Err(OVER)),
                Whereabouts::OutOfSight => {
                    return Err(refused(
                        "this user cannot see whether the connection is still there: try as root, \
                         such as with sudo",
                    ));
                }
            },
        };
        let is_over = matches!(state(&taken), Ok(State::Close | State::TimeWait));
        Ok(if is_over { Err(OVER) } else { Ok(taken) })
    }

    fn recorded(&self) -> Holder {
        Holder { pid: self.pid.unsigned_abs(), fd: self.fd, program: self.program.clone() }
    }
}

const CLOSED: &str = "no program has the connection open any more";
const OVER: &str = "the connection is over";

/// Says which connection, and what is different: `socket 0x1a2b of curl (process 7), 192.0.2.1:40000
/// to 192.0.2.9:443: buffers unlocked`.
impl fmt::Display for TunedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cookie, local, peer, pid, program, .. } = self;
        let program = in_one_line(program);
        write!(f, "socket {cookie:#x} of {program} (process {pid}), {local} to {peer}: ")?;
        self.changes.fmt(f)
    }
}
