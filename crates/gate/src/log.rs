//! Accounts as lines: for people, or as JSON Lines.
//!
//! A thread of its own writes, many lines at once where there are many. Between it and the flows is a
//! queue that has an end: a flow never waits for the log. What does not fit is counted, and the next
//! line says how many were lost.

mod json;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::account::Account;

use crate::Accounts;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// An object of JSON on each line.
    Json,
}

impl Form {
    /// An account as a line, with its end.
    #[must_use]
    pub fn line(self, account: &Account) -> String {
        match self {
            Self::Text => text::line(account),
            Self::Json => json::line(account),
        }
    }

    fn lost(self, accounts: u64) -> String {
        match self {
            Self::Text => text::lost(accounts),
            Self::Json => json::lost(accounts),
        }
    }
}

/// What lines are written to.
pub type Sink = Box<dyn Write + Send>;
/// Opens what lines are written to: once at first, and whenever it is to be opened anew.
pub type Open = Box<dyn FnMut() -> io::Result<Sink> + Send>;
/// Takes a sentence for whoever runs the gate.
pub type Tell = Box<dyn Fn(&str) + Send>;

/// A log that is being written.
pub struct Log {
    entries: SyncSender<Entry>,
    lost: Arc<Lost>,
    ended: Mutex<Receiver<()>>,
}

enum Entry {
    Account(Box<Account>),
    Reopen,
    End,
}

/// Accounts that never became a line.
#[derive(Debug, Default)]
struct Lost {
    /// Those that no line has told of.
    untold: AtomicU64,
    all: AtomicU64,
}

impl Lost {
    fn add(&self, accounts: u64) {
        self.untold.fetch_add(accounts, Ordering::Relaxed);
        self.all.fetch_add(accounts, Ordering::Relaxed);
    }
}

impl Log {
    /// Opens a log and begins to write; failures later on are told, and end nothing.
    ///
    /// # Errors
    /// It cannot be opened, or there is no thread to be had.
    pub fn start(form: Form, open: Open, tell: Tell) -> io::Result<Self> {
        Self::with_room(QUEUE, form, open, tell)
    }

    fn with_room(room: usize, form: Form, mut open: Open, tell: Tell) -> io::Result<Self> {
        let (entries, to_write) = mpsc::sync_channel(room);
        let (end, ended) = mpsc::sync_channel(1);
        let lost = Arc::new(Lost::default());
        let sink = Some(open()?);
        let lost_too = Arc::clone(&lost);
        let buffer = Vec::with_capacity(BATCH * 2);
        let (state, is_mid_line) = (State::Well, false);
        let mut writer =
            Writer { form, sink, open, tell, lost: lost_too, buffer, state, is_mid_line };
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            writer.run(&to_write);
            let _ = end.try_send(());
        })?;
        Ok(Self { entries, lost, ended: Mutex::new(ended) })
    }

    /// Opens what it writes to anew, as a program that rotates logs wants it.
    pub fn reopen(&self) {
        let _ = self.send_within(Entry::Reopen, PATIENCE);
    }

    /// Writes what there is, at most for so long, and ends. Accounts that come later are lost.
    pub fn end(&self, limit: Duration) {
        let until = Instant::now() + limit;
        if self.send_within(Entry::End, limit)
            && let Ok(ended) = self.ended.lock()
        {
            let _ = ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// How many accounts never became a line.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.all.load(Ordering::Relaxed)
    }

    fn send_within(&self, mut entry: Entry, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            match self.entries.try_send(entry) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if Instant::now() < until => entry = back,
                Err(_) => return false,
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Never waits.
impl Accounts for Log {
    fn enter(&self, account: Account) {
        if self.entries.try_send(Entry::Account(Box::new(account))).is_err() {
            self.lost.add(1);
        }
    }

    fn lost(&self) -> u64 {
        self.lost()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// How many accounts may wait to be written.
const QUEUE: usize = 16_384;
/// How many bytes are collected before they are written, while there are more.
const BATCH: usize = 64 * 1024;
/// How long a reopening waits for room in a full queue.
const PATIENCE: Duration = Duration::from_millis(100);

/// The thread that writes.
struct Writer {
    form: Form,
    /// `None` once nobody reads any more.
    sink: Option<Sink>,
    open: Open,
    tell: Tell,
    lost: Arc<Lost>,
    buffer: Vec<u8>,
    state: State,
    /// Whether the last line was cut.
    is_mid_line: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Well,
    /// It failed, which has been told.
    Failing,
}

impl Writer {
    fn run(&mut self, entries: &Receiver<Entry>) {
        while let Ok(first) = entries.recv() {
            let mut next = Some(first);
            let mut is_end = false;
            while let Some(entry) = next.take() {
                match entry {
                    Entry::Account(account) => self.put(&account),
                    Entry::Reopen => self.reopen(),
                    Entry::End => is_end = true,
                }
                if !is_end && self.buffer.len() < BATCH {
                    next = entries.try_recv().ok();
                }
            }
            self.flush();
            if is_end {
                return self.last_words();
            }
        }
    }

    fn put(&mut self, account: &Account) {
        self.tell_lost();
        self.buffer.extend_from_slice(self.form.line(account).as_bytes());
    }

    /// A line for those that have none.
    fn tell_lost(&mut self) {
        if self.sink.is_some() && self.state == State::Well {
            let lost = self.lost.untold.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.buffer.extend_from_slice(self.form.lost(lost).as_bytes());
            }
        }
    }

    fn last_words(&mut self) {
        self.tell_lost();
        self.flush();
        let lost = self.lost.untold.load(Ordering::Relaxed);
        if lost > 0 {
            (self.tell)(&format!("{lost} accounts were not written to the log"));
        }
    }

    fn reopen(&mut self) {
        self.flush();
        match (self.open)() {
            Ok(sink) => (self.sink, self.is_mid_line) = (Some(sink), false),
            Err(error) => {
                (self.tell)(&format!(
                    "the log cannot be opened anew, and goes on where it was: {error}"
                ));
            }
        }
    }

    fn flush(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            self.write(&buffer);
        }
        self.buffer = buffer;
        self.buffer.clear();
    }

    fn write(&mut self, lines: &[u8]) {
        let Some(sink) = &mut self.sink else { return self.lost.add(lines_in(lines)) };
        if self.is_mid_line && write_all(sink, b"\n").is_ok() {
            self.is_mid_line = false;
        }
        let Err((written, error)) = write_all(sink, lines) else {
            if self.state == State::Failing {
                self.state = State::Well;
                (self.tell)("the log can be written again");
            }
            return;
        };
        self.is_mid_line |= written > 0 && lines.get(written - 1) != Some(&b'\n');
        self.lost.add(lines_in(lines.get(written..).unwrap_or_default()));
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.sink = None;
            (self.tell)("nobody reads the log any more: flows go on without one");
        } else if self.state == State::Well {
            self.state = State::Failing;
            (self.tell)(&format!("the log cannot be written, and is tried again: {error}"));
        }
    }
}

/// Accounts that are lost where these bytes are: other lines are rare enough.
fn lines_in(bytes: &[u8]) -> u64 {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    u64::try_from(lines).unwrap_or(u64::MAX)
}

/// As `Write::write_all`; an error comes with how much was written before it.
fn write_all(sink: &mut Sink, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match sink.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    sink.flush().map_err(|error| (written, error))
}

#[cfg(test)]
mod tests;
