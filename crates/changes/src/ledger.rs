//! The ledger: every change that lastbyte makes to a machine is written down before it is made, so
//! that `lastbyte changes` can list it and `lastbyte undo` can take it back, also after a kill.
//!
//! It is one file of JSON Lines. A change is `planned` (on disk before anything is done), then
//! `made`, then `undone`; it is `gone` when a reboot took it back. The last record of a change says
//! where it stands. Whatever is planned or made is open, and taking back works for either, since a
//! kill may have come before or after the change itself.
//!
//! Writers take turns by `flock(2)`, which leaves no stale lock behind. A record counts once its
//! line has its end; what a kill left of a line is ignored, and removed by the next writer. Once
//! the file exceeds [`COMPACT_FROM_BYTES`], changes that were closed more than
//! [`KEEP_CLOSED_S`] ago are dropped from it; open ones never are, and no number is used twice.
//!
//! What a change is, and how each kind of it is taken back, is in `change.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lastbyte_host::Proc;
use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::error::{ChangesError, Doing, LineError, Result, refused};

/// The version of the records that this program reads and writes.
const SCHEMA: u32 = 1;
const FILE_NAME: &str = "changes.jsonl";
/// From this size on the file is rewritten without what was closed long ago.
const COMPACT_FROM_BYTES: u64 = 1 << 20;
/// How long closed changes are kept at least: 30 days.
const KEEP_CLOSED_S: u64 = 30 * 24 * 3600;

/// The ledger of one user, or of the whole machine if that is root.
#[derive(Debug)]
pub struct Ledger {
    file: PathBuf,
    boot_id: String,
}

/// Where a change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Written down; whether it was made is not known.
    Planned,
    /// Made, and still there as far as lastbyte knows.
    Made,
    /// Taken back.
    Undone,
    /// Ended by a reboot.
    Gone,
}

/// A change and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// Where it stands.
    pub state: State,
    /// When it was written down.
    pub planned_at_unix_s: u64,
    /// When it came to stand where it stands.
    pub at_unix_s: u64,
    /// The boot it was planned or made in.
    pub boot_id: String,
    /// What it is.
    pub change: Change,
}

/// What came of taking back several changes.
#[derive(Debug, Default)]
pub struct UndoReport {
    /// Taken back now, in this order.
    pub undone: Vec<Entry>,
    /// Not taken back, or not recorded, and why; these stay open.
    pub failed: Vec<(Entry, ChangesError)>,
}

impl Ledger {
    /// The ledger of the user who runs this program.
    ///
    /// # Errors
    /// There is no place for it: no directory of this user's is known, or `/proc` is missing.
    pub fn of_this_user() -> Result<Self> {
        let root = lastbyte_sys::process::effective_user() == 0;
        let directory = state_directory(|name| std::env::var_os(name), root)?;
        let directory = std::path::absolute(&directory)
            .doing_with(|| format!("cannot make {} absolute", directory.display()))?;
        let boot_id = Proc::default().sysctl("kernel.random.boot_id").doing(
            "cannot tell this boot from others: cannot read /proc/sys/kernel/random/boot_id",
        )?;
        Ok(Self::at(directory.join(FILE_NAME), boot_id))
    }

    /// The ledger in `file`, read and written in the boot `boot_id`.
    #[must_use]
    pub fn at(file: PathBuf, boot_id: String) -> Self {
        Self { file, boot_id }
    }

    /// Where the ledger is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Writes down, durably, that `change` is about to be made. Returns its number, by which
    /// [`made`](Self::made) and [`undone`](Self::undone) know it. Only then may it be made.
    ///
    /// # Errors
    /// A change that could not be taken back from its record; the ledger cannot be read or written.
    pub fn plan(&self, change: &Change) -> Result<u64> {
        self.plan_if(change, &|_| Ok(()))
    }

    /// As [`plan`](Self::plan), unless `allowed` says no. It is asked about each open change while
    /// no other process can write one: of two that want the same, one is refused.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), and that of `allowed`.
    pub fn plan_if(&self, change: &Change, allowed: &dyn Fn(&Entry) -> Result<()>) -> Result<u64> {
        change.check()?;
        let mut planned = 0;
        self.append(|entries| {
            entries.values().filter(|entry| entry.is_open()).try_for_each(allowed)?;
            planned = entries.last_key_value().map_or(0, |(last, _)| *last) + 1;
            Ok(Some(self.record(planned, State::Planned, change)))
        })?;
        Ok(planned)
    }

    /// As [`plan`](Self::plan), for many at once. Returns their numbers, in their order.
    ///
    /// # Errors
    /// As [`plan`](Self::plan): then none of them is written down.
    pub fn plan_all(&self, changes: &[Change]) -> Result<Vec<u64>> {
        changes.iter().try_for_each(Change::check)?;
        let mut planned = Vec::new();
        self.append(|entries| {
            let first = entries.last_key_value().map_or(0, |(last, _)| *last) + 1;
            planned = (first..).take(changes.len()).collect();
            let records = planned.iter().zip(changes);
            Ok(records
                .map(|(id, change)| self.record(*id, State::Planned, change))
                .collect::<Vec<_>>())
        })?;
        Ok(planned)
    }

    /// As [`made`](Self::made), for many at once.
    ///
    /// # Errors
    /// As [`made`](Self::made).
    pub fn made_all(&self, ids: &[u64]) -> Result<()> {
        self.advance(ids, State::Made)
    }

    /// Writes down that a planned change was made. Opens it again if somebody undid it meanwhile:
    /// what was made last is there.
    ///
    /// # Errors
    /// There is no such change; the ledger cannot be read or written.
    pub fn made(&self, id: u64) -> Result<()> {
        self.advance(&[id], State::Made)
    }

    /// Writes down that a change is no longer there.
    ///
    /// # Errors
    /// There is no such change; the ledger cannot be read or written.
    pub fn undone(&self, id: u64) -> Result<()> {
        self.advance(&[id], State::Undone)
    }

    /// All changes the file still holds, oldest first.
    ///
    /// # Errors
    /// The ledger cannot be read, or a line of it is damaged or of the future.
    pub fn changes(&self) -> Result<Vec<Entry>> {
        let history = match File::open(&self.file) {
            Ok(file) => self.read(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.cannot("open", error)),
        };
        Ok(self.entries(&history.records)?.into_values().collect())
    }

    /// The changes that are there or may be there, oldest first.
    ///
    /// # Errors
    /// As [`changes`](Self::changes).
    pub fn open_changes(&self) -> Result<Vec<Entry>> {
        let mut changes = self.changes()?;
        changes.retain(Entry::is_open);
        Ok(changes)
    }

    /// Takes one change back and writes that down. Returns it as it stands now: one that was no
    /// longer open stays as it was. What is left alone is reported to `tell`.
    ///
    /// # Errors
    /// There is no such change; it cannot be taken back; the ledger cannot be read or written.
    pub fn undo(&self, id: u64, tell: &mut dyn FnMut(&str)) -> Result<Entry> {
        self.undo_with(id, &mut |change| change.take_back(tell))
    }

    /// Takes all open changes back and writes that down. One that fails does not stop the others.
    ///
    /// Processes come first, since one that is ended makes no further change; then all others, newest
    /// first.
    ///
    /// # Errors
    /// The ledger cannot be read. What cannot be taken back is in the report.
    pub fn undo_all(&self, tell: &mut dyn FnMut(&str)) -> Result<UndoReport> {
        self.undo_where(&|_| true, tell)
    }

    /// As [`undo_all`](Self::undo_all), for some of them.
    ///
    /// # Errors
    /// As [`undo_all`](Self::undo_all).
    pub fn undo_where(
        &self,
        chosen: &dyn Fn(&Entry) -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<UndoReport> {
        self.undo_where_with(chosen, &mut |change| change.take_back(tell))
    }

    fn undo_with(
        &self,
        id: u64,
        take_back: &mut dyn FnMut(&Change) -> Result<()>,
    ) -> Result<Entry> {
        let changes = self.changes()?;
        let entry = changes.into_iter().find(|entry| entry.id == id);
        let entry = entry.ok_or_else(|| self.unknown(id))?;
        if !entry.is_open() {
            return Ok(entry);
        }
        let mut report = UndoReport::default();
        self.close_all(vec![entry], take_back, &mut report);
        match report.failed.pop() {
            Some((_, error)) => Err(error),
            None => report.undone.pop().ok_or_else(|| self.unknown(id)),
        }
    }

    fn undo_where_with(
        &self,
        chosen: &dyn Fn(&Entry) -> bool,
        take_back: &mut dyn FnMut(&Change) -> Result<()>,
    ) -> Result<UndoReport> {
        let mut report = UndoReport::default();
        let mut tried = BTreeSet::new();
        loop {
            // Read again each time: a process may have planned something before it was ended.
            let batch = self.next_to_undo(chosen, &tried)?;
            if batch.is_empty() {
                return Ok(report);
            }
            tried.extend(batch.iter().map(|entry| entry.id));
            self.close_all(batch, take_back, &mut report);
        }
    }

    /// All processes that are left; where there are none, so many of the rest, the newest first.
    fn next_to_undo(
        &self,
        chosen: &dyn Fn(&Entry) -> bool,
        tried: &BTreeSet<u64>,
    ) -> Result<Vec<Entry>> {
        /// What a kill may leave recorded as not taken back, though it is.
        const BATCH: usize = 100;
        let mut left = self.open_changes()?;
        left.retain(|entry| chosen(entry) && !tried.contains(&entry.id));
        if left.iter().any(|entry| entry.change.is_process()) {
            left.retain(|entry| entry.change.is_process());
        }
        left.reverse();
        left.truncate(BATCH);
        Ok(left)
    }

    /// Takes them back one after the other, and writes that down at once: the file is read whole, and
    /// brought to the disk, each time.
    fn close_all(
        &self,
        batch: Vec<Entry>,
        take_back: &mut dyn FnMut(&Change) -> Result<()>,
        report: &mut UndoReport,
    ) {
        let mut closed = Vec::new();
        for entry in batch {
            let Entry { id, change, .. } = &entry;
            match take_back(change).doing_with(|| format!("cannot undo change {id}, {change}")) {
                Ok(()) => closed.push(entry),
                Err(error) => report.failed.push((entry, error)),
            }
        }
        let ids: Vec<u64> = closed.iter().map(|entry| entry.id).collect();
        let recorded = self.advance(&ids, State::Undone);
        for mut entry in closed {
            match &recorded {
                Ok(()) => {
                    entry.state = State::Undone;
                    report.undone.push(entry);
                }
                Err(error) => {
                    let why = refused(format!(
                        "change {} is undone, but not recorded so: {error}",
                        entry.id
                    ));
                    report.failed.push((entry, why));
                }
            }
        }
    }

    /// Writes down where changes stand now, those that do not stand there already.
    fn advance(&self, ids: &[u64], state: State) -> Result<()> {
        self.append(|entries| {
            let mut records = Vec::new();
            for id in ids {
                let entry = entries.get(id).ok_or_else(|| self.unknown(*id))?;
                if entry.state != state {
                    records.push(self.record(*id, state, &entry.change));
                }
            }
            Ok(records)
        })
    }

    fn record(&self, id: u64, event: State, change: &Change) -> Record {
        let (boot_id, change) = (self.boot_id.clone(), change.clone());
        Record { schema: SCHEMA, id, event, at_unix_s: now_unix_s(), boot_id, change }
    }

    fn unknown(&self, id: u64) -> ChangesError {
        ChangesError::UnknownChange { id, ledger: self.file.clone() }
    }

    fn damaged(&self, index: usize, cause: LineError) -> ChangesError {
        ChangesError::Line { ledger: self.file.clone(), line: index + 1, cause }
    }

    fn cannot(&self, what: &str, error: io::Error) -> ChangesError {
        let what = format!("cannot {what} the ledger {}", self.file.display());
        ChangesError::System { what, cause: error }
    }
}

impl Entry {
    /// Whether the change is there or may be there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Planned | State::Made)
    }
}

/// One line of the file. Each holds the whole change, so that it can be read on its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    id: u64,
    event: State,
    at_unix_s: u64,
    boot_id: String,
    change: Change,
}

/// What of a record tells whether this program can read the rest.
#[derive(Deserialize)]
struct Stamp {
    schema: u32,
}

/// What a file says.
#[derive(Debug)]
struct History {
    records: Vec<Record>,
    /// The length of the whole lines; what comes after is what a kill left of one.
    whole_bytes: u64,
    /// The length of the file.
    bytes: u64,
}

/// Reading.
impl Ledger {
    fn read(&self, mut file: impl Read) -> Result<History> {
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| self.cannot("read", error))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = text[..whole].split_inclusive(|byte| *byte == b'\n');
        let records = lines
            .enumerate()
            .map(|(index, line)| parse(line).map_err(|cause| self.damaged(index, cause)));
        Ok(History {
            records: records.collect::<Result<_>>()?,
            whole_bytes: whole as u64,
            bytes: text.len() as u64,
        })
    }

    /// Where each change stands, by number.
    fn entries(&self, records: &[Record]) -> Result<BTreeMap<u64, Entry>> {
        let mut entries = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            let Record { id, event: state, at_unix_s, .. } = *record;
            let again = entries.contains_key(&id);
            if again && state == State::Planned {
                return Err(self.damaged(index, LineError::PlannedTwice(id)));
            }
            let entry = entries.entry(id).or_insert_with(|| Entry {
                id,
                state,
                planned_at_unix_s: at_unix_s,
                at_unix_s,
                boot_id: record.boot_id.clone(),
                change: record.change.clone(),
            });
            (entry.state, entry.at_unix_s) = (state, at_unix_s);
            if entry.is_open() {
                entry.boot_id.clone_from(&record.boot_id);
            }
        }
        for entry in entries.values_mut() {
            let rebooted = entry.boot_id != self.boot_id;
            if entry.is_open() && rebooted && !entry.change.outlives_reboot() {
                entry.state = State::Gone;
            }
        }
        Ok(entries)
    }
}

fn parse(line: &[u8]) -> Result<Record, LineError> {
    let stamp: Stamp =
        serde_json::from_slice(line).map_err(|error| LineError::Damaged(error.to_string()))?;
    if stamp.schema > SCHEMA {
        return Err(LineError::NewerSchema { schema: stamp.schema, known: SCHEMA });
    }
    // Well-formed, of a known schema, and yet not understood: a kind or an event of the future.
    serde_json::from_slice(line).map_err(|error| LineError::NotUnderstood(error.to_string()))
}

/// Writing.
impl Ledger {
    /// Appends the records that `next` gives, durably, with the file locked; before it, that those
    /// changes are gone which a reboot ended.
    fn append<R: IntoIterator<Item = Record>>(
        &self,
        next: impl FnOnce(&BTreeMap<u64, Entry>) -> Result<R>,
    ) -> Result<()> {
        let mut file = self.lock()?;
        let mut history = self.read(&file)?;
        let entries = self.entries(&history.records)?;
        let mut records = self.newly_gone(&history.records, &entries);
        records.extend(next(&entries)?);
        if records.is_empty() {
            return Ok(());
        }
        if history.whole_bytes < history.bytes {
            file.set_len(history.whole_bytes).map_err(|error| self.cannot("repair", error))?;
        }
        file.write_all(lines(&records)?.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| self.cannot("write", error))?;
        if history.records.is_empty() {
            sync_directories(&self.file).map_err(|error| self.cannot("keep", error))?;
        }
        if history.bytes >= COMPACT_FROM_BYTES {
            history.records.extend(records);
            // The record is safe either way; a full disk must not turn that into a failure. The
            // next writer tries again.
            let _ = self.compact(history.records);
        }
        Ok(())
    }

    /// Opens the file and waits for its lock, which ends when the file is dropped.
    fn lock(&self) -> Result<File> {
        let directory = self.file.parent().unwrap_or_else(|| Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .doing_with(|| format!("cannot make the directory {}", directory.display()))?;
        loop {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(0o600);
            let file = options.open(&self.file).map_err(|error| self.cannot("open", error))?;
            wait_for_lock(&file).map_err(|error| self.cannot("lock", error))?;
            // Whoever had the lock may have put a compacted file in this one's place.
            if is_same_file(&file, &self.file).map_err(|error| self.cannot("open", error))? {
                return Ok(file);
            }
        }
    }

    fn newly_gone(&self, records: &[Record], entries: &BTreeMap<u64, Entry>) -> Vec<Record> {
        let gone = records.iter().filter(|r| r.event == State::Gone).map(|r| r.id);
        let recorded: BTreeSet<u64> = gone.collect();
        let gone = entries.values().filter(|entry| entry.state == State::Gone);
        gone.filter(|entry| !recorded.contains(&entry.id))
            .map(|entry| self.record(entry.id, State::Gone, &entry.change))
            .collect()
    }

    /// Puts a file in place that lacks what was closed long ago. The caller holds the lock, and
    /// writes no more: the old file is nobody's afterwards.
    fn compact(&self, mut records: Vec<Record>) -> Result<()> {
        let all = records.len();
        let entries = self.entries(&records)?;
        // The highest number stays, so that none is used twice.
        let last = entries.last_key_value().map(|(id, _)| *id);
        let old = now_unix_s().saturating_sub(KEEP_CLOSED_S);
        records.retain(|record| {
            let recent = |entry: &Entry| entry.is_open() || entry.at_unix_s >= old;
            Some(record.id) == last || entries.get(&record.id).is_some_and(recent)
        });
        if records.len() == all {
            return Ok(());
        }
        self.replace(&lines(&records)?).map_err(|error| self.cannot("compact", error))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let beside = self.file.with_extension("jsonl.new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.file)?;
        sync_directories(&self.file)
    }
}

fn lines(records: &[Record]) -> Result<String> {
    let mut text = String::new();
    for record in records {
        let line = serde_json::to_string(record).map_err(|error| {
            refused(format!("cannot write down change {}: {error}", record.change))
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

fn wait_for_lock(file: &File) -> io::Result<()> {
    loop {
        match lastbyte_sys::file::lock_exclusive(file) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let here = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the name of a new file durable, and that of its directory, which may be new as well.
fn sync_directories(file: &Path) -> io::Result<()> {
    file.ancestors().skip(1).take(2).try_for_each(|directory| File::open(directory)?.sync_all())
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Where the ledger lies: as told, or where the system or the user keeps state.
///
/// A variable that is empty counts as not set, and so does a relative `XDG_STATE_HOME`: both after
/// the XDG Base Directory Specification.
fn state_directory(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> Result<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(told) = path("LASTBYTE_STATE_DIR") {
        return Ok(told);
    }
    if root {
        return Ok(PathBuf::from("/var/lib/lastbyte"));
    }
    if let Some(state) = path("XDG_STATE_HOME").filter(|state| state.is_absolute()) {
        return Ok(state.join("lastbyte"));
    }
    let home = path("HOME").ok_or_else(|| {
        refused(
            "no place for the ledger of changes: HOME is not set; set it, or LASTBYTE_STATE_DIR",
        )
    })?;
    Ok(home.join(".local/state/lastbyte"))
}

#[cfg(test)]
pub(crate) mod tests;
