//! Accounts as lines: for people, or as JSON Lines.
//!
//! A thread of its own writes, many lines at once if there are many. Between it and the flows is a
//! bounded queue: a flow never waits for the log. Accounts that do not fit are lost and counted, and the
//! next line says how many were lost.

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

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// An object of JSON on each line.
    Json,
}

impl Form {
    /// An account as a line, with the line's end.
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
/// Opens what lines are written to: at first, and whenever it is to be reopened.
pub type Open = Box<dyn FnMut() -> io::Result<Sink> + Send>;
/// Takes a message for the operator of the gate.
pub type Warn = Box<dyn Fn(&str) + Send>;

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
    /// Those that no line has reported.
    unreported: AtomicU64,
    all: AtomicU64,
}

impl Lost {
    fn add(&self, accounts: u64) {
        self.unreported.fetch_add(accounts, Ordering::Relaxed);
        self.all.fetch_add(accounts, Ordering::Relaxed);
    }
}

impl Log {
    /// Opens a log and begins to write. Later failures are reported by `warn`, and do not end it.
    ///
    /// # Errors
    /// It cannot be opened, or the kernel refused a thread.
    pub fn start(form: Form, open: Open, warn: Warn) -> io::Result<Self> {
        Self::with_capacity(QUEUE, form, open, warn)
    }

    fn with_capacity(capacity: usize, form: Form, mut open: Open, warn: Warn) -> io::Result<Self> {
        let (entries, to_write) = mpsc::sync_channel(capacity);
        let (end, ended) = mpsc::sync_channel(1);
        let lost = Arc::new(Lost::default());
        let sink = Some(open()?);
        let lost_too = Arc::clone(&lost);
        let buffer = Vec::with_capacity(BATCH * 2);
        let (state, is_mid_line) = (State::Working, false);
        let mut writer =
            Writer { form, sink, open, warn, lost: lost_too, buffer, state, is_mid_line };
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            writer.run(&to_write);
            let _ = end.try_send(());
        })?;
        Ok(Self { entries, lost, ended: Mutex::new(ended) })
    }

    /// Reopens what it writes to, for programs that rotate logs.
    pub fn reopen(&self) {
        let _ = self.send_within(Entry::Reopen, PATIENCE);
    }

    /// Writes what is in the queue, for at most `limit`, and ends. Accounts that come later are lost.
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

/// How many accounts the queue holds.
const QUEUE: usize = 16_384;
/// How many bytes are collected before they are written, while more accounts wait.
const BATCH: usize = 64 * 1024;
/// How long a reopening waits for a place in a full queue.
const PATIENCE: Duration = Duration::from_millis(100);

/// The thread that writes.
struct Writer {
    form: Form,
    /// `None` once the reader of the log is gone.
    sink: Option<Sink>,
    open: Open,
    warn: Warn,
    lost: Arc<Lost>,
    buffer: Vec<u8>,
    state: State,
    /// Whether the last line was written in part.
    is_mid_line: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Working,
    /// Writing failed, which has been reported.
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
                return self.finish();
            }
        }
    }

    fn put(&mut self, account: &Account) {
        self.report_lost();
        self.buffer.extend_from_slice(self.form.line(account).as_bytes());
    }

    /// Writes a line about lost accounts.
    fn report_lost(&mut self) {
        if self.sink.is_some() && self.state == State::Working {
            let lost = self.lost.unreported.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.buffer.extend_from_slice(self.form.lost(lost).as_bytes());
            }
        }
    }

    fn finish(&mut self) {
        self.report_lost();
        self.flush();
        let lost = self.lost.unreported.load(Ordering::Relaxed);
        if lost > 0 {
            (self.warn)(&format!("{lost} accounts were not written to the log"));
        }
    }

    fn reopen(&mut self) {
        self.flush();
        match (self.open)() {
            Ok(sink) => (self.sink, self.is_mid_line) = (Some(sink), false),
            Err(error) => {
                (self.warn)(&format!(
                    "the log cannot be reopened, and continues in the old file: {error}"
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
                self.state = State::Working;
                (self.warn)("the log can be written again");
            }
            return;
        };
        self.is_mid_line |= written > 0 && lines.get(written - 1) != Some(&b'\n');
        self.lost.add(lines_in(lines.get(written..).unwrap_or_default()));
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.sink = None;
            (self.warn)("the log has no reader any more: flows go on without one");
        } else if self.state == State::Working {
            self.state = State::Failing;
            (self.warn)(&format!("the log cannot be written, and will be tried again: {error}"));
        }
    }
}

/// How many accounts are lost with these bytes: other lines are rare enough to ignore.
fn lines_in(bytes: &[u8]) -> u64 {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    u64::try_from(lines).unwrap_or(u64::MAX)
}

/// As `Write::write_all`; an error comes with the number of bytes written before it.
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
