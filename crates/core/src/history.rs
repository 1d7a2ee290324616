//! What earlier races told of a host's addresses: RFC 8305 section 4, with an end to it.
//!
//! The next race begins with what worked. So that those that live share the load all the same, every
//! [`TRIAL_PERIOD`]th race of a host may try an address of which nothing is known: see
//! [`crate::race`]. What is known of an address holds for the source address that it was learned
//! with, and so not in another network, and for [`EXPIRY`] or [`EXPIRY_OF_FAILURES`].
//!
//! It has no clock: `now` is the time since the history began.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::race::{Candidate, Standing, Verdict};

/// How long what was learned of an address holds.
pub const EXPIRY: Duration = Duration::from_secs(600);

/// How long it holds that an address failed, which somebody said: to ask again costs a round trip, and
/// a service that starts again is missed as long as nobody does.
pub const EXPIRY_OF_FAILURES: Duration = Duration::from_secs(60);

/// One race of a host in so many may be a trial.
pub const TRIAL_PERIOD: u32 = 4;

/// How many hosts are remembered; then the one unused for longest is forgotten.
pub const MOST_HOSTS: usize = 1024;

/// How many addresses of a host are remembered; then what was learned first is forgotten.
pub const MOST_ADDRESSES: usize = 64;

/// A history: see the module's text.
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

/// What was learned of an address.
#[derive(Clone, Copy, Debug)]
struct Note {
    address: SocketAddr,
    source: IpAddr,
    standing: Standing,
    /// When it holds no more.
    expires: Duration,
}

impl History {
    /// Whether the race of this host that now begins may be a trial.
    #[must_use]
    pub fn trial_is_due(&self, host: &str) -> bool {
        self.hosts.get(host).is_some_and(|host| host.races.is_multiple_of(TRIAL_PERIOD))
    }

    /// What is known of an address of this host, seen from this source address.
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

    /// A race of this host is over: enters what it told.
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
    /// The newest note is the last; an older one of the same address goes, whatever its source.
    fn note(&mut self, note: Note, now: Duration) {
        self.notes.retain(|old| old.address != note.address && now < old.expires);
        if self.notes.len() >= MOST_ADDRESSES {
            self.notes.remove(0);
        }
        self.notes.push(note);
    }
}
