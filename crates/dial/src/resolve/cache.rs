//! The cache of DNS answers.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use lastbyte_core::race::Question;

use super::QueryError;

/// The most cached answers. Beyond that, those that expire first are dropped.
const CAPACITY: usize = 4096;
/// The longest time to cache addresses, whatever their time to live: a day, as in hickory.
const LONGEST: Duration = Duration::from_secs(86_400);
/// The longest time to cache a missing name. RFC 2308 section 5 allows three hours, but a new name
/// should be found soon.
const LONGEST_MISSING: Duration = Duration::from_secs(300);

/// A question about a name in lower case, with its final dot.
pub(super) type Key = (String, Question);

/// Addresses as a server gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) aliases: Vec<String>,
    /// Their remaining time to live.
    pub(super) ttl: Duration,
    pub(super) server: SocketAddr,
    pub(super) cached: bool,
}

/// An answer to one question.
pub(super) type Outcome = Result<Records, QueryError>;

#[derive(Debug, Default)]
pub(super) struct Cache(HashMap<Key, (Outcome, Instant)>);

impl Cache {
    /// The cached answer, with its remaining time to live.
    pub(super) fn find(&self, key: &Key, now: Instant) -> Option<Outcome> {
        let (outcome, ends) = self.0.get(key)?;
        let ttl = ends.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some(outcome.clone().map(|records| Records { ttl, cached: true, ..records }))
    }

    /// Caches an answer for its time to live, a missing name for `missing`. A time of 0 or none
    /// caches nothing.
    pub(super) fn keep(
        &mut self,
        key: Key,
        outcome: &Outcome,
        missing: Option<Duration>,
        now: Instant,
    ) {
        let ttl = match (outcome, missing) {
            (Ok(records), _) => records.ttl.min(LONGEST),
            (Err(_), Some(missing)) => missing.min(LONGEST_MISSING),
            (Err(_), None) => return,
        };
        if ttl.is_zero() {
            return;
        }
        if self.0.len() >= CAPACITY && !self.0.contains_key(&key) {
            self.make_room(now);
        }
        self.0.insert(key, (outcome.clone(), now + ttl));
    }

    /// Drops expired answers; if there are none, the eighth that expires first, so that this is
    /// rare.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, (_, ends)| *ends > now);
        if self.0.len() >= CAPACITY {
            let mut all: Vec<Instant> = self.0.values().map(|(_, ends)| *ends).collect();
            let (_, last, _) = all.select_nth_unstable(CAPACITY / 8);
            let last = *last;
            self.0.retain(|_, (_, ends)| *ends > last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn records(ttl: Duration) -> Outcome {
        let server = ([192, 0, 2, 53], 53).into();
        Ok(Records { addresses: Vec::new(), aliases: Vec::new(), ttl, server, cached: false })
    }

    fn key(name: &str) -> Key {
        (name.to_owned(), Question::A)
    }

    #[test]
    fn an_answer_is_kept_as_long_as_it_says() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.keep(key("a."), &records(60 * SECOND), None, now);
        let found = cache.find(&key("a."), now + 59 * SECOND).unwrap().unwrap();
        assert_eq!((found.ttl, found.cached), (SECOND, true));
        assert_eq!(cache.find(&key("a."), now + 60 * SECOND), None);
        assert_eq!(cache.find(&("a.".to_owned(), Question::Aaaa), now), None);
        cache.keep(key("b."), &records(Duration::ZERO), None, now);
        assert_eq!(cache.find(&key("b."), now), None);
    }

    #[test]
    fn times_have_bounds() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.keep(key("a."), &records(LONGEST * 9), None, now);
        assert!(cache.find(&key("a."), now + LONGEST - SECOND).is_some());
        assert!(cache.find(&key("a."), now + LONGEST).is_none());
        let missing = Err(QueryError::NoSuchName { server: None });
        cache.keep(key("b."), &missing, Some(LONGEST), now);
        assert_eq!(cache.find(&key("b."), now + LONGEST_MISSING - SECOND), Some(missing.clone()));
        assert_eq!(cache.find(&key("b."), now + LONGEST_MISSING), None);
        cache.keep(key("c."), &missing, None, now);
        assert_eq!(cache.find(&key("c."), now), None);
    }

    #[test]
    fn it_stays_within_its_capacity_and_keeps_what_lasts() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.keep(key("lasting."), &records(LONGEST), None, now);
        for number in 0..2 * CAPACITY {
            cache.keep(key(&format!("{number}.")), &records(60 * SECOND), None, now);
            assert!(cache.0.len() <= CAPACITY);
        }
        assert!(cache.find(&key("lasting."), now).is_some());
    }
}
