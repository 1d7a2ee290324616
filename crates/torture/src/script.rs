//! The script of an end: steps, one after the other, and the end that executes them.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::End;
use lastbyte_socket::blocking::Stream;
use lastbyte_sys::{poll, socket, tcp};

use crate::content::Content;
use crate::end::{Ending, Observed};
use crate::testbed::Waits;

/// Which end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that connects, to the proxy.
    Client,
    /// The one that the proxy connects to.
    Server,
}

impl Role {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A step of a script. Each that waits has a deadline ([`Setup::deadline`](crate::Setup)), counted
/// from the last byte that moved; after it, the rest of the script is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes until all is written or a write fails.
    Write(Writing),
    /// Writes until the kernel accepts nothing for a while, or a number of bytes is written.
    Fill(u64),
    /// Writes one urgent byte (`MSG_OOB`), in its place in the content.
    Urgent,
    /// Reads up to a number of bytes, counted from the beginning.
    ReadTo(u64),
    /// Reads to the end.
    ReadToEnd,
    /// Reads to the end in small reads, with a pause after each.
    ReadSlowly(u64, Duration),
    /// Waits for unread bytes.
    AwaitUnread,
    /// Waits until all that was written is acked, a FIN too.
    AwaitAcked,
    /// Waits until the other end reaches its next such step.
    Meet,
    /// Waits a little longer than two signals take over the path.
    PauseAMoment,
    /// Waits for a time.
    Pause(Duration),
    /// Half-closes: sends a FIN and goes on reading.
    HalfClose,
    /// Closes as most programs do (`close(2)`).
    Close,
    /// Closes while the other end still writes. That causes a reset now or soon, and discards
    /// unsent bytes: over a path with delay, those beyond the initial congestion window. They are
    /// not expected at the other end.
    CloseEarly,
    /// Closes with a reset (`SO_LINGER` of 0), which discards unsent bytes.
    Reset,
}

/// How a [`Step::Write`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// How many bytes; `None` until a write fails.
    bytes: Option<u64>,
    /// The largest write, in bytes.
    piece: usize,
    /// The pause after each write.
    pause: Duration,
    /// Whether to read at the same time.
    reading: bool,
}

impl Step {
    /// Writes `bytes` in writes of 64 KiB.
    #[must_use]
    pub const fn write(bytes: u64) -> Self {
        Self::Write(Writing { bytes: Some(bytes), ..WRITING })
    }

    /// Writes `bytes`, and reads at the same time.
    #[must_use]
    pub const fn write_reading(bytes: u64) -> Self {
        Self::Write(Writing { bytes: Some(bytes), reading: true, ..WRITING })
    }

    /// Writes `bytes` in small writes with a pause after each, and reads at the same time.
    #[must_use]
    pub const fn write_slowly(bytes: u64, piece: usize, pause: Duration) -> Self {
        Self::Write(Writing { bytes: Some(bytes), piece, pause, reading: true })
    }

    /// Makes a number of writes of equal size.
    #[must_use]
    pub const fn write_pieces(count: u64, piece: usize) -> Self {
        Self::Write(Writing { bytes: Some(count * piece as u64), piece, ..WRITING })
    }

    /// Makes small writes until one fails.
    #[must_use]
    pub const fn write_until_told() -> Self {
        let pause = Duration::from_millis(5);
        Self::Write(Writing { bytes: None, piece: 100, pause, reading: false })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Write(_) => "writing",
            Self::Fill(_) => "filling",
            Self::Urgent => "writing an urgent byte",
            Self::ReadTo(_) | Self::ReadToEnd | Self::ReadSlowly(..) => "reading",
            Self::AwaitUnread => "waiting for something to arrive",
            Self::AwaitAcked => "waiting for acknowledgements",
            Self::Meet => "waiting for the other end",
            Self::PauseAMoment | Self::Pause(_) => "pausing",
            Self::HalfClose => "half-closing",
            Self::Close | Self::CloseEarly | Self::Reset => "closing",
        }
    }
}

const WRITING: Writing =
    Writing { bytes: Some(0), piece: 65_536, pause: Duration::ZERO, reading: false };

/// Where the two ends of a connection wait for each other.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    /// How many [`Step::Meet`]s each end has reached; [`GONE`] once its script is over.
    came: Mutex<[u64; 2]>,
    somebody_came: Condvar,
}

const GONE: u64 = u64::MAX;

impl Meeting {
    /// Waits for the other end. Each other step has a deadline, so that the other end arrives or is
    /// gone.
    fn meet(&self, role: Role) {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came[role as usize] += 1;
        let mine = came[role as usize];
        self.somebody_came.notify_all();
        while came[role.other() as usize] < mine {
            came = self.somebody_came.wait(came).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks this end as gone.
    pub(crate) fn leave(&self, role: Role) {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)[role as usize] = GONE;
        self.somebody_came.notify_all();
    }

    /// Whether that end's script is over.
    pub(crate) fn is_gone(&self, role: Role) -> bool {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)[role as usize] == GONE
    }
}

/// An end that executes a script.
#[derive(Debug)]
pub(crate) struct Player<'a> {
    pub(crate) role: Role,
    pub(crate) waits: Waits,
    pub(crate) meeting: &'a Meeting,
    /// What it writes, and what it should read.
    pub(crate) out: Content,
    pub(crate) expected: Content,
}

/// The step was still waiting at its deadline.
struct Stuck;

impl Player<'_> {
    /// Executes all steps, then closes the connection.
    pub(crate) fn play(&self, stream: Stream, steps: &[Step]) -> Observed {
        let mut seen = Observed::default();
        let mut stream = Some(stream);
        for step in steps {
            let Some(open) = &mut stream else { break };
            let taken = self.take(step, open, &mut seen);
            if taken.is_err() {
                seen.stuck = Some(step.name());
                break;
            }
            match step {
                Step::Close | Step::CloseEarly => drop(stream.take()),
                Step::Reset => reset(stream.take()),
                _ => {}
            }
        }
        seen
    }

    fn take(&self, step: &Step, stream: &mut Stream, seen: &mut Observed) -> Result<(), Stuck> {
        match step {
            Step::Write(writing) => self.write(*writing, stream, seen),
            Step::Fill(limit) => self.fill(*limit, stream, seen),
            Step::Urgent => self.urgent(stream, seen),
            Step::ReadTo(bytes) => self.read_to(*bytes, stream, seen),
            Step::ReadToEnd => self.read_to(u64::MAX, stream, seen),
            Step::ReadSlowly(bytes, pause) => self.read_slowly((*bytes, *pause), stream, seen),
            Step::AwaitUnread => self.until(|| tcp::unread(stream).map(|bytes| bytes > 0)),
            Step::AwaitAcked => self.until(|| tcp::unacked(stream).map(|bytes| bytes == 0)),
            Step::Meet => {
                self.meeting.meet(self.role);
                Ok(())
            }
            Step::PauseAMoment => {
                thread::sleep(self.waits.moment);
                Ok(())
            }
            Step::Pause(pause) => {
                thread::sleep(*pause);
                Ok(())
            }
            Step::HalfClose => {
                if let Err(error) = stream.half_close() {
                    seen.write_error.get_or_insert_with(|| io::Error::from(error).kind());
                }
                Ok(())
            }
            Step::CloseEarly => {
                // Counted just before the close: bytes sent in between may arrive in addition.
                seen.unsent = tcp::unsent(stream).map_or(0, u64::from);
                Ok(())
            }
            // The close itself is the caller's.
            Step::Close | Step::Reset => Ok(()),
        }
    }

    fn write(&self, how: Writing, stream: &mut Stream, seen: &mut Observed) -> Result<(), Stuck> {
        let begun = Instant::now();
        let mut last = begun;
        let goal = how.bytes.map_or(u64::MAX, |bytes| seen.wrote + bytes);
        let mut piece_end = seen.wrote;
        while seen.wrote < goal && seen.write_error.is_none() {
            if seen.wrote == piece_end {
                if seen.wrote > 0 {
                    pause(how.pause);
                }
                piece_end = goal.min(seen.wrote + how.piece as u64);
            }
            let wrote = self.write_some(piece_end, stream, seen);
            let read = how.reading && self.read_some(READ_PIECE, stream, seen);
            if wrote || read {
                last = Instant::now();
            } else if seen.write_error.is_none() {
                let reads = how.reading && seen.ending == Ending::NotRequired;
                self.wait(stream, (reads, true), last)?;
            }
            if how.bytes.is_none() && begun.elapsed() > self.waits.deadline {
                return Err(Stuck);
            }
        }
        Ok(())
    }

    fn fill(&self, limit: u64, stream: &mut Stream, seen: &mut Observed) -> Result<(), Stuck> {
        let quiet = self.waits.moment * 4;
        let mut last = Instant::now();
        while seen.wrote < limit && seen.write_error.is_none() && last.elapsed() < quiet {
            if self.write_some(limit, stream, seen) {
                last = Instant::now();
            } else {
                let _ = stream.wait(false, true, quiet);
            }
        }
        seen.pushed = Some(seen.wrote);
        Ok(())
    }

    fn urgent(&self, stream: &mut Stream, seen: &mut Observed) -> Result<(), Stuck> {
        let mut byte = [0];
        self.out.fill(seen.wrote, &mut byte);
        let last = Instant::now();
        loop {
            match socket::send_urgent(stream, &byte) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(stream, (false, true), last)?;
                }
                Err(error) => {
                    seen.write_error.get_or_insert_with(|| error.kind());
                    return Ok(());
                }
            }
        }
        seen.urgent.push(seen.wrote);
        seen.wrote += 1;
        Ok(())
    }

    fn read_to(&self, goal: u64, stream: &mut Stream, seen: &mut Observed) -> Result<(), Stuck> {
        let mut last = Instant::now();
        while seen.got < goal && seen.ending == Ending::NotRequired {
            if self.read_some(goal - seen.got, stream, seen) {
                last = Instant::now();
            } else if self.wait(stream, (true, false), last).is_err() {
                seen.ending = Ending::Open;
                return Err(Stuck);
            }
        }
        Ok(())
    }

    fn read_slowly(
        &self,
        (piece, pause): (u64, Duration),
        stream: &mut Stream,
        seen: &mut Observed,
    ) -> Result<(), Stuck> {
        while seen.ending == Ending::NotRequired {
            self.read_to(seen.got.saturating_add(piece), stream, seen)?;
            thread::sleep(pause);
        }
        Ok(())
    }

    /// One non-blocking write, up to position `until`. Returns whether it wrote anything.
    fn write_some(&self, until: u64, stream: &mut Stream, seen: &mut Observed) -> bool {
        let left = usize::try_from(until - seen.wrote).unwrap_or(usize::MAX);
        let mut buffer = vec![0; left.min(WRITING.piece)];
        self.out.fill(seen.wrote, &mut buffer);
        match stream.write_now(&buffer) {
            Ok(count) => {
                seen.wrote += count as u64;
                count > 0
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                seen.write_error.get_or_insert_with(|| error.kind());
                false
            }
        }
    }

    /// One non-blocking read of at most `most` bytes. Returns whether it read anything or met the
    /// end.
    fn read_some(&self, most: u64, stream: &mut Stream, seen: &mut Observed) -> bool {
        if seen.ending != Ending::NotRequired {
            return false;
        }
        // Looked for behind an empty queue, a mark could come between, and the read go past it.
        if !poll::wait_for(stream, poll::READABLE, Duration::ZERO).is_ok_and(|ready| ready.readable)
        {
            return false;
        }
        if socket::at_mark(stream).is_ok_and(|at_mark| at_mark)
            && seen.marks.last() != Some(&seen.got)
        {
            seen.marks.push(seen.got);
        }
        let buffer = usize::try_from(most.min(READ_PIECE)).unwrap_or(1);
        let mut buffer = vec![0; buffer];
        match stream.read_now(&mut buffer) {
            Ok(0) => {
                seen.ending = if stream.observed_end() == Some(End::Fin) {
                    Ending::Fin
                } else {
                    Ending::Unknown
                };
            }
            Ok(count) => {
                let wrong = self.expected.first_wrong(seen.got, &buffer[..count]);
                seen.wrong_at = seen.wrong_at.or(wrong);
                seen.got += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => seen.ending = Ending::Reset,
        }
        true
    }

    /// Waits until the socket is writable or readable, or the deadline after `last`.
    fn wait(&self, stream: &Stream, ways: (bool, bool), last: Instant) -> Result<(), Stuck> {
        let left = self.waits.deadline.checked_sub(last.elapsed()).ok_or(Stuck)?;
        // The next read or write reports an error.
        let _ = stream.wait(ways.0, ways.1, left);
        Ok(())
    }

    /// Polls until the condition holds, or cannot hold any more.
    fn until(&self, is_so: impl Fn() -> io::Result<bool>) -> Result<(), Stuck> {
        let begun = Instant::now();
        while begun.elapsed() < self.waits.deadline {
            if is_so().unwrap_or(true) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(Stuck)
    }
}

const READ_PIECE: u64 = 65_536;

fn pause(pause: Duration) {
    if !pause.is_zero() {
        thread::sleep(pause);
    }
}

fn reset(stream: Option<Stream>) {
    let Some(stream) = stream else { return };
    // Cannot fail for an open socket; otherwise the other end would observe a FIN.
    let _ = socket::set_linger(&stream, Some(Duration::ZERO));
}
