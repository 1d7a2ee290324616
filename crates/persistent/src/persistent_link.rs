//! A persistent link as a command sees it.

use std::io::Read;
use std::path::{Path, PathBuf};

use lastbyte_changes::{Change, ChangesError, Entry, Ledger};
use lastbyte_host::namespace::NAMES;
use lastbyte_link::{LinkFigures, Namespace};
use lastbyte_sandbox::{Neighbour, in_background};

use crate::carrier::READY;
use crate::control::{self, Answer, Question, SetRequest};
use crate::error::{PersistentError, Result};

/// Room for a device's or file's name beside ours.
pub(crate) const LONGEST_NAME: usize = 32;

/// Makes a link that stays: starts this program again in the background with these arguments, which
/// have to lead to [`Carrier::bring_up`](crate::Carrier::bring_up) and to its answer on stdout. Reports to
/// `tell` what is left alone of a carrier that was killed.
///
/// # Errors
/// Privileges are missing, the name is taken, or what the carrier says.
pub fn up(name: &str, arguments: &[String], tell: &mut dyn FnMut(&str)) -> Result<PersistentLink> {
    if !lastbyte_link::have_rights() {
        return Err(PersistentError::Rights);
    }
    let link = PersistentLink::named(name)?;
    for entry in link.ledger.open_changes()? {
        is_free(name, &entry)?;
    }
    let mut carrier = in_background(arguments).spawn()?;
    let mut said = String::new();
    if let Some(mut stdout) = carrier.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    if said == READY {
        return Ok(link);
    }
    carrier.wait()?;
    if said.is_empty() {
        // It was killed: what it has left is known by its own entry.
        link.take_back_after(carrier.id().cast_signed(), tell)?;
        return Err(PersistentError::CarrierEnded(name.to_owned()));
    }
    Err(PersistentError::Carrier(said.trim().to_owned()))
}

/// Refuses a name that an open change holds.
pub(crate) fn is_free(name: &str, entry: &Entry) -> Result<(), ChangesError> {
    if entry.change.link() == Some(name) {
        let taken = PersistentError::Taken(name.to_owned());
        return Err(ChangesError::Refused(taken.to_string()));
    }
    Ok(())
}

/// All persistent links of this user: each name, and what its carrier is, or `None` if that is dead.
///
/// # Errors
/// The ledger cannot be read.
pub fn list() -> Result<Vec<(String, Option<String>)>> {
    let links = Ledger::of_this_user()?.open_changes()?.into_iter().filter_map(|entry| {
        let is_running = entry.change.is_running();
        match entry.change {
            Change::Process { link, what, .. } => Some((link, is_running.then_some(what))),
            _ => None,
        }
    });
    Ok(links.collect())
}

/// A persistent link, by its name.
#[derive(Debug)]
pub struct PersistentLink {
    name: String,
    ledger: Ledger,
}

impl PersistentLink {
    /// The one with this name, which may or may not be there.
    ///
    /// # Errors
    /// It is no name for a link, or there is no ledger.
    pub fn named(name: &str) -> Result<Self> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), ledger: Ledger::of_this_user()? })
    }

    /// Its hosts.
    ///
    /// # Errors
    /// There is no such link, or its carrier does not answer.
    pub fn hosts(&self) -> Result<Vec<Neighbour>> {
        match self.ask(&Question::Neighbours)? {
            Answer::Neighbours(hosts) => Ok(hosts),
            _ => Err(PersistentError::OtherAnswer),
        }
    }

    /// The namespace of one of its hosts, which are `hosts`.
    ///
    /// # Errors
    /// There is no such host, or its namespace cannot be opened.
    pub fn open(&self, host: &str, hosts: &[Neighbour]) -> Result<Namespace> {
        if !hosts.iter().any(|one| one.name == host) {
            let there = hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
            let (host, link) = (host.to_owned(), self.name.clone());
            return Err(PersistentError::NoHost { host, link, there });
        }
        Ok(Namespace::open(&namespace_path(&self.name, host))?)
    }

    /// Makes a link of it different. Returns its name, and what it is like now.
    ///
    /// # Errors
    /// The carrier does not answer, or refuses what is asked for.
    pub fn set(&self, request: SetRequest) -> Result<(String, String)> {
        match self.ask(&Question::Set(request))? {
            Answer::Set(link, now) => Ok((link, now)),
            _ => Err(PersistentError::OtherAnswer),
        }
    }

    /// What its links have done so far.
    ///
    /// # Errors
    /// There is no such link, or its carrier does not answer.
    pub fn figures(&self) -> Result<Vec<LinkFigures>> {
        match self.ask(&Question::Figures)? {
            Answer::Figures(links) => Ok(links),
            _ => Err(PersistentError::OtherAnswer),
        }
    }

    /// Refuses one of which nothing is there.
    ///
    /// # Errors
    /// There is nothing to take away, or the ledger cannot be read.
    pub fn must_be_there(&self) -> Result<()> {
        if self.entries()?.is_empty() {
            return Err(PersistentError::NothingToTakeAway(self.name.clone()));
        }
        Ok(())
    }

    /// Takes all of it away: one change that fails does not stop the others. What is left alone, and what
    /// fails before the last failure, is reported to `tell`.
    ///
    /// # Errors
    /// The last failure.
    pub fn take_away(&self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let is_its = |entry: &Entry| entry.change.link() == Some(&self.name);
        let mut failed = self.ledger.undo_where(&is_its, tell)?.failed;
        let last = failed.pop();
        for (_, error) in failed {
            tell(&error.to_string());
        }
        last.map_or(Ok(()), |(_, error)| Err(error.into()))
    }

    /// Takes back what a killed carrier has left.
    fn take_back_after(&self, carrier: i32, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let is_its =
            |entry: &Entry| matches!(entry.change, Change::Process { pid, .. } if pid == carrier);
        if self.ledger.open_changes()?.iter().any(is_its) { self.take_away(tell) } else { Ok(()) }
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.ledger.open_changes()?;
        entries.retain(|entry| entry.change.link() == Some(&self.name));
        Ok(entries)
    }

    /// Asks its carrier.
    fn ask(&self, question: &Question) -> Result<Answer> {
        let carrier = self.entries()?.into_iter().find_map(|entry| match entry.change {
            Change::Process { pid, .. } => Some((pid, entry.change.is_running())),
            _ => None,
        });
        match carrier {
            None => Err(PersistentError::NoLink(self.name.clone())),
            Some((_, false)) => Err(PersistentError::CarrierDead(self.name.clone())),
            Some((pid, true)) => control::ask(&self.name, pid, question),
        }
    }
}

/// Where `ip netns` keeps namespaces too: so `ip netns exec lastbyte-NAME-near` works as well.
pub(crate) fn namespace_path(link: &str, host: &str) -> PathBuf {
    Path::new(NAMES).join(format!("lastbyte-{link}-{host}"))
}

/// Refuses what is no name for a link.
///
/// # Errors
/// It is empty, too long, or has other characters than small letters, digits and dashes.
pub fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(allowed) {
        return Err(PersistentError::BadName(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_folder() {
        for good in ["a", "to-malaysia", "x86"] {
            check_name(good).unwrap();
        }
        for bad in ["", "../x", "a/b", "A", "a b", &"x".repeat(33), "ü"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
