//! What earlier races showed about a host's addresses (RFC 8305 section 4), for a limited time.
//!
//! The next race begins with an address that worked. So that working addresses still share the
//! load, every [`TRIAL_PERIOD`]th race of a host may try an address of which nothing is known: see
//! [`crate::race`]. A note about an address is valid only for the source address it was learned
//! with, and so not in another network. It expires after [`EXPIRY`] or [`EXPIRY_OF_FAILURES`].
//!
//! The history has no clock: `now` is the time since it was created.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::race::{Candidate, Standing, Verdict};

/// How long a note about an address is valid.
pub const EXPIRY: Duration = Duration::from_secs(600);

/// How long a note is valid that says an address refused or was unreachable. Trying again costs one
/// round trip; not trying misses a service that has restarted.
pub const EXPIRY_OF_FAILURES: Duration = Duration::from_secs(60);

/// One in this many races of a host may be a trial.
pub const TRIAL_PERIOD: u32 = 4;

/// How many hosts are remembered. Beyond that, the least recently used is forgotten.
pub const MOST_HOSTS: usize = 1024;

/// How many addresses of a host are remembered. Beyond that, the oldest note is forgotten.
pub const MOST_ADDRESSES: usize = 64;

/// The results of earlier races, by host: see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct History {
    hosts: HashMap<String, Host>,
}

#[derive(Clone, Debug, Default)]
struct Host {
    races: u32,
    used: Duration,
    notes: Vec<Note>,
}

/// What a race showed about an address.
#[derive(Clone, Copy, Debug)]
struct Note {
    address: SocketAddr,
    source: IpAddr,
    standing: Standing,
    /// When this note expires.
    expires: Duration,
}

impl History {
    /// Whether the next race of this host may be a trial.
    #[must_use]
    pub fn trial_is_due(&self, host: &str) -> bool {
        self.hosts.get(host).is_some_and(|host| host.races.is_multiple_of(TRIAL_PERIOD))
    }

    /// What is known of this host's address, when connecting from this source address.
    #[must_use]
    pub fn standing(
        &self,
        host: &str,
        address: SocketAddr,
        source: IpAddr,
        now: Duration,
    ) -> Standing {
        let notes = self.hosts.get(host).map_or(&[][..], |host| &host.notes);
        let note = notes.iter().find(|note| note.address == address && note.source == source);
        note.filter(|note| now < note.expires).map_or(Standing::Unknown, |note| note.standing)
    }

    /// Records the verdicts of a race of this host that has ended.
    pub fn record<'a>(
        &mut self,
        host: &str,
        verdicts: impl Iterator<Item = (&'a Candidate, Verdict)>,
        now: Duration,
    ) {
        let entry = match self.hosts.get_mut(host) {
            Some(entry) => entry,
            None => {
                self.evict_oldest();
                self.hosts.entry(host.to_owned()).or_default()
            }
        };
        entry.races = entry.races.wrapping_add(1);
        entry.used = now;
        for (candidate, verdict) in verdicts {
            let Some(source) = candidate.source else { continue };
            let (standing, expiry) = match verdict {
                Verdict::Connected(rtt) => (Standing::Good { rtt }, EXPIRY),
                Verdict::Failed => (Standing::Suspect, EXPIRY_OF_FAILURES),
                Verdict::Suspect => (Standing::Suspect, EXPIRY),
            };
            let (address, source, expires) = (candidate.address, source.address, now + expiry);
            entry.note(Note { address, source, standing, expires }, now);
        }
    }

    fn evict_oldest(&mut self) {
        if self.hosts.len() < MOST_HOSTS {
            return;
        }
        let oldest = self.hosts.iter().min_by_key(|(_, host)| host.used);
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.hosts.remove(&name);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.hosts.clear();
    }
}

impl Host {
    /// Appends the newest note, and removes older ones of the same address, whatever their source.
    fn note(&mut self, note: Note, now: Duration) {
        self.notes.retain(|old| old.address != note.address && now < old.expires);
        if self.notes.len() >= MOST_ADDRESSES {
            self.notes.remove(0);
        }
        self.notes.push(note);
    }
}
