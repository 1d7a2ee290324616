//! What an end does: steps, one after the other, and the end that takes them.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::End;
use lastbyte_socket::blocking::Stream;
use lastbyte_sys::{poll, socket, tcp};

use crate::bed::Waits;
use crate::content::Content;
use crate::end::{Ending, Seen};

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

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// What an end does next. Each that waits has a deadline ([`Asked::deadline`](crate::Asked)), counted
/// from the last byte that moved; when it has passed, the rest of the script is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes, until it is done or a write fails.
    Write(Writing),
    /// Writes until nothing more is taken for a while, or so many bytes are.
    Fill(u64),
    /// Writes one urgent byte (`MSG_OOB`), in its place in the content.
    Urgent,
    /// Reads so many bytes, counted from the beginning.
    ReadTo(u64),
    /// Reads to the end.
    ReadToEnd,
    /// Reads to the end, so many bytes at a time, and pauses after each time.
    ReadSlowly(u64, Duration),
    /// Waits until something has arrived that is not read.
    AwaitUnread,
    /// Waits until all that was written is acknowledged, a FIN too.
    AwaitAcked,
    /// Waits until the other end comes to its next such step as well.
    Meet,
    /// Waits as long as two signals take over the path, and a little longer.
    PauseAMoment,
    /// Waits so long.
    Pause(Duration),
    /// Ends its direction with a FIN; goes on reading.
    HalfClose,
    /// Closes as most programs do (`close(2)`).
    Close,
    /// Closes while the other end still writes. That is a reset now or soon, and what is not sent yet is
    /// gone: over a path with a round trip, what goes past the first congestion window. Nobody is
    /// owed that.
    CloseEarly,
    /// Closes with a reset (`SO_LINGER` of 0); what is not sent yet is gone.
    Reset,
}

/// How a [`Step::Write`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// So many bytes. Without a number, until a write fails.
    bytes: Option<u64>,
    /// In pieces of so many bytes at most.
    piece: usize,
    /// With a pause after each.
    pause: Duration,
    /// Reads what comes meanwhile.
    reading: bool,
}

impl Step {
    /// Writes so many bytes, in pieces of 64 KiB.
    #[must_use]
    pub const fn write(bytes: u64) -> Self {
        Self::Write(Writing { bytes: Some(bytes), ..WRITING })
    }

    /// Writes so many bytes, and reads meanwhile what comes.
    #[must_use]
    pub const fn write_reading(bytes: u64) -> Self {
        Self::Write(Writing { bytes: Some(bytes), reading: true, ..WRITING })
    }

    /// Writes so many bytes in small pieces with a pause after each, and reads meanwhile what comes.
    #[must_use]
    pub const fn write_slowly(bytes: u64, piece: usize, pause: Duration) -> Self {
        Self::Write(Writing { bytes: Some(bytes), piece, pause, reading: true })
    }

    /// Makes so many writes of so many bytes.
    #[must_use]
    pub const fn write_pieces(count: u64, piece: usize) -> Self {
        Self::Write(Writing { bytes: Some(count * piece as u64), piece, ..WRITING })
    }

    /// Writes a little again and again until a write fails.
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
    /// How often each end has come to a [`Step::Meet`]; [`GONE`] once its script is over.
    came: Mutex<[u64; 2]>,
    somebody_came: Condvar,
}

const GONE: u64 = u64::MAX;

impl Meeting {
    /// Comes, and waits for the other. Each other step has its deadline, so that it comes or is gone.
    fn meet(&self, role: Role) {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came[role as usize] += 1;
        let mine = came[role as usize];
        self.somebody_came.notify_all();
        while came[role.other() as usize] < mine {
            came = self.somebody_came.wait(came).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Says that this end will not come any more.
    pub(crate) fn leave(&self, role: Role) {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)[role as usize] = GONE;
        self.somebody_came.notify_all();
    }

    /// Whether that end's script is over.
    pub(crate) fn is_gone(&self, role: Role) -> bool {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)[role as usize] == GONE
    }
}

/// An end that takes the steps of a script.
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
    /// Takes all steps. The connection is closed when they are over.
    pub(crate) fn play(&self, stream: Stream, steps: &[Step]) -> Seen {
        let mut seen = Seen::default();
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

    fn take(&self, step: &Step, stream: &mut Stream, seen: &mut Seen) -> Result<(), Stuck> {
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
                    seen.told.get_or_insert_with(|| io::Error::from(error).kind());
                }
                Ok(())
            }
            Step::CloseEarly => {
                // Told just before: what is sent in between comes on top of what is owed.
                seen.unsent = tcp::unsent(stream).map_or(0, u64::from);
                Ok(())
            }
            // The close itself is the caller's.
            Step::Close | Step::Reset => Ok(()),
        }
    }

    fn write(&self, how: Writing, stream: &mut Stream, seen: &mut Seen) -> Result<(), Stuck> {
        let begun = Instant::now();
        let mut last = begun;
        let goal = how.bytes.map_or(u64::MAX, |bytes| seen.wrote + bytes);
        let mut piece_end = seen.wrote;
        while seen.wrote < goal && seen.told.is_none() {
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
            } else if seen.told.is_none() {
                let reads = how.reading && seen.ending == Ending::Unasked;
                self.wait(stream, (reads, true), last)?;
            }
            if how.bytes.is_none() && begun.elapsed() > self.waits.deadline {
                return Err(Stuck);
            }
        }
        Ok(())
    }

    fn fill(&self, limit: u64, stream: &mut Stream, seen: &mut Seen) -> Result<(), Stuck> {
        let quiet = self.waits.moment * 4;
        let mut last = Instant::now();
        while seen.wrote < limit && seen.told.is_none() && last.elapsed() < quiet {
            if self.write_some(limit, stream, seen) {
                last = Instant::now();
            } else {
                let _ = stream.wait(false, true, quiet);
            }
        }
        seen.pushed = Some(seen.wrote);
        Ok(())
    }

    fn urgent(&self, stream: &mut Stream, seen: &mut Seen) -> Result<(), Stuck> {
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
                    seen.told.get_or_insert_with(|| error.kind());
                    return Ok(());
                }
            }
        }
        seen.urgent.push(seen.wrote);
        seen.wrote += 1;
        Ok(())
    }

    fn read_to(&self, goal: u64, stream: &mut Stream, seen: &mut Seen) -> Result<(), Stuck> {
        let mut last = Instant::now();
        while seen.got < goal && seen.ending == Ending::Unasked {
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
        seen: &mut Seen,
    ) -> Result<(), Stuck> {
        while seen.ending == Ending::Unasked {
            self.read_to(seen.got.saturating_add(piece), stream, seen)?;
            thread::sleep(pause);
        }
        Ok(())
    }

    /// One write that does not wait, up to position `until`. Whether it moved anything.
    fn write_some(&self, until: u64, stream: &mut Stream, seen: &mut Seen) -> bool {
        let left = usize::try_from(until - seen.wrote).unwrap_or(usize::MAX);
        let mut room = vec![0; left.min(WRITING.piece)];
        self.out.fill(seen.wrote, &mut room);
        match stream.write_now(&room) {
            Ok(count) => {
                seen.wrote += count as u64;
                count > 0
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                seen.told.get_or_insert_with(|| error.kind());
                false
            }
        }
    }

    /// One read that does not wait, of `most` bytes at most. Whether it moved anything or met the end.
    fn read_some(&self, most: u64, stream: &mut Stream, seen: &mut Seen) -> bool {
        if seen.ending != Ending::Unasked {
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
        let room = usize::try_from(most.min(READ_PIECE)).unwrap_or(1);
        let mut room = vec![0; room];
        match stream.read_now(&mut room) {
            Ok(0) => {
                seen.ending = if stream.observed_end() == Some(End::Fin) {
                    Ending::Fin
                } else {
                    Ending::Unknown
                };
            }
            Ok(count) => {
                let wrong = self.expected.first_wrong(seen.got, &room[..count]);
                seen.wrong_at = seen.wrong_at.or(wrong);
                seen.got += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => seen.ending = Ending::Reset,
        }
        true
    }

    /// Waits for room or something to read, until the deadline after `last`.
    fn wait(&self, stream: &Stream, ways: (bool, bool), last: Instant) -> Result<(), Stuck> {
        let left = self.waits.deadline.checked_sub(last.elapsed()).ok_or(Stuck)?;
        // What it cannot tell, the next read or write does.
        let _ = stream.wait(ways.0, ways.1, left);
        Ok(())
    }

    /// Asks again and again until it is so, or cannot be any more.
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
    // Cannot fail for an open socket; a plain close would show in what the other end sees.
    let _ = socket::set_linger(&stream, Some(Duration::ZERO));
}
