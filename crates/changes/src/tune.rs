//! Options of live connections of other programs, through the ledger.

use lastbyte_heal::{Asked, Settings, SocketChanges, Target, take};

use crate::change::{Change, TunedSocket, start_ticks};
use crate::error::{ChangesError, Result, refused};
use crate::ledger::Ledger;

/// A connection that is to be changed.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Which.
    pub target: Target,
    /// What it had before.
    pub before: Settings,
    /// What is to be different, or is.
    pub changes: SocketChanges,
    /// What became of it.
    pub outcome: Outcome,
    /// What it had after it was changed.
    pub after: Option<Settings>,
}

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not changed yet.
    Planned,
    /// It is as asked for already.
    Nothing,
    /// Changed, with its number in the ledger.
    Changed(u64),
    /// It ended before it could be changed.
    Over,
    /// The kernel refused, and why; nothing is changed.
    Failed(String),
}

impl Tuning {
    /// Asks a connection what it has, and says what would be different. `None` if it has ended
    /// meanwhile.
    ///
    /// # Errors
    /// Its descriptor is not for this user, or the kernel is too old.
    pub fn of(target: &Target, asked: &Asked) -> Result<Option<Self>> {
        let taken = take(target.cookie, &target.holders)?;
        let Some(before) = taken.and_then(|fd| Settings::of(&fd).ok()) else { return Ok(None) };
        let changes = asked.of_connection(&before)?;
        let outcome = if changes.is_nothing() { Outcome::Nothing } else { Outcome::Planned };
        Ok(Some(Self { target: target.clone(), before, changes, outcome, after: None }))
    }

    /// Asks a connection once more what it has now; what was known stays where it cannot be asked.
    pub fn look_again(&mut self) {
        let taken = take(self.target.cookie, &self.target.holders).ok().flatten();
        let now = taken.and_then(|fd| Settings::of(&fd).ok());
        self.after = now.or_else(|| self.after.take());
    }
}

/// Changes connections: all of them entered into the ledger, then made, each whole or not at all. What
/// cannot be taken back of one that failed is reported to `tell`.
///
/// # Errors
/// The ledger cannot be written. What becomes of a connection is its outcome.
pub fn tune(
    connections: &mut [&mut Tuning],
    asked: &Asked,
    ledger: &Ledger,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut ready = Vec::new();
    let mut changes = Vec::new();
    for tuning in connections {
        match prepare(tuning, asked) {
            Ok(Some(change)) => {
                changes.push(change);
                ready.push(tuning);
            }
            Ok(None) => {}
            Err(error) => tuning.outcome = Outcome::Failed(error.to_string()),
        }
    }
    let ids = ledger.plan_all(&changes)?;
    for (tuning, id) in ready.iter_mut().zip(&ids) {
        tuning.outcome = match make(tuning) {
            Ok(Some(after)) => {
                tuning.after = Some(after);
                Outcome::Changed(*id)
            }
            Ok(None) => {
                ledger.undone(*id)?;
                Outcome::Over
            }
            Err(error) => {
                if let Err(left) = ledger.undo(*id, tell) {
                    tell(&left.to_string());
                }
                Outcome::Failed(error.to_string())
            }
        };
    }
    let made = ready.iter().filter_map(|tuning| match tuning.outcome {
        Outcome::Changed(id) => Some(id),
        _ => None,
    });
    ledger.made_all(&made.collect::<Vec<u64>>())
}

/// Looks again what a connection has, as that may be something else by now, and returns what is to be
/// changed of it; `None`, with the outcome, where there is nothing.
fn prepare(tuning: &mut Tuning, asked: &Asked) -> Result<Option<Change>> {
    let Target { cookie, local, peer, network, holders } = &tuning.target;
    let holder = holders.first().ok_or_else(|| refused("nobody has it open"))?;
    let pid = i32::try_from(holder.pid).map_err(|error| refused(error.to_string()))?;
    let taken = take(*cookie, holders)?;
    let now = taken.and_then(|fd| Settings::of(&fd).ok());
    let Some((now, start_ticks)) = now.zip(start_ticks(pid)?) else {
        tuning.outcome = Outcome::Over;
        return Ok(None);
    };
    let changes = asked.of_connection(&now)?;
    if changes.is_nothing() {
        tuning.outcome = Outcome::Nothing;
        return Ok(None);
    }
    let tuned = TunedSocket {
        cookie: *cookie,
        local: *local,
        peer: *peer,
        network: network.inode,
        pid,
        start_ticks,
        program: holder.program.clone(),
        fd: holder.fd,
        changes: changes.clone(),
    };
    (tuning.before, tuning.changes) = (now, changes);
    Ok(Some(Change::Socket(tuned)))
}

/// Makes what was prepared. Returns what the connection has now; `None` when it has ended.
fn make(tuning: &Tuning) -> Result<Option<Settings>, ChangesError> {
    let Some(fd) = take(tuning.target.cookie, &tuning.target.holders)? else { return Ok(None) };
    tuning.changes.make(&fd)?;
    Ok(Settings::of(&fd).ok())
}
