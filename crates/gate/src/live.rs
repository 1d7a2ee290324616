//! The flows that are open now: a list for each worker, which only that worker and readers of it lock.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::lock::lock;
use crate::progress::{Moved, Progress};

/// An open flow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveFlow {
    /// Its number: see [`Account::flow`](lastbyte_core::account::Account::flow).
    pub flow: u64,
    /// The route that it took.
    pub route: Arc<str>,
    /// The client's address.
    pub client: SocketAddr,
    /// When its connection was accepted, since 1970 (UTC).
    pub began: Duration,
    /// The thread that serves it: the number behind `gate-`.
    pub worker: usize,
    /// The host and port that it asks for, once that is known.
    pub wanted: Option<String>,
    /// The upstream's address, once it is connected.
    pub upstream: Option<SocketAddr>,
    /// What has moved so far.
    pub moved: Moved,
}

/// The flows of one worker, each in a place of its own, which a later one can take.
#[derive(Debug, Default)]
pub(crate) struct Live {
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    flows: Vec<Option<Entry>>,
    free: Vec<u32>,
}

/// What is known of a flow when it begins, how far it is, and how its task is woken.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) flow: u64,
    pub(crate) route: Arc<str>,
    pub(crate) client: SocketAddr,
    pub(crate) began: Duration,
    pub(crate) progress: Arc<Progress>,
    pub(crate) waker: Waker,
}

impl Entry {
    fn as_seen_in(&self, worker: usize) -> LiveFlow {
        LiveFlow {
            flow: self.flow,
            route: Arc::clone(&self.route),
            client: self.client,
            began: self.began,
            worker,
            wanted: self.progress.wanted(),
            upstream: self.progress.upstream(),
            moved: self.progress.moved(),
        }
    }
}

/// A place in the list of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Live {
    /// Enters a flow that begins.
    pub(crate) fn enter(&self, entry: Entry) -> Place {
        let mut places = lock(&self.places);
        let entry = Some(entry);
        if let Some(place) = places.free.pop() {
            places.flows[place as usize] = entry;
            return Place(place);
        }
        places.flows.push(entry);
        // Each flow has a descriptor, and there are fewer of those.
        Place(u32::try_from(places.flows.len() - 1).expect("fewer flows than 2^32"))
    }

    /// Removes a flow.
    pub(crate) fn leave(&self, Place(place): Place) {
        let mut places = lock(&self.places);
        places.flows[place as usize] = None;
        places.free.push(place);
    }

    /// Wakes the task of each flow.
    pub(crate) fn wake_all(&self) {
        for entry in lock(&self.places).flows.iter().flatten() {
            entry.waker.wake_by_ref();
        }
    }

    /// The flows that are open now, in the thread of that number.
    pub(crate) fn list(&self, worker: usize) -> Vec<LiveFlow> {
        let seen = |entry: &Entry| entry.as_seen_in(worker);
        lock(&self.places).flows.iter().flatten().map(seen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u64) -> Entry {
        Entry {
            flow: number,
            route: "db".into(),
            client: ([127, 0, 0, 1], 1).into(),
            began: Duration::ZERO,
            progress: Arc::default(),
            waker: Waker::noop().clone(),
        }
    }

    #[test]
    fn a_place_that_was_left_is_taken_again() {
        let live = Live::default();
        let numbers = |live: &Live| live.list(0).iter().map(|flow| flow.flow).collect::<Vec<_>>();
        let enter = |number| live.enter(flow(number));
        let first = enter(1);
        enter(2);
        live.leave(first);
        assert_eq!(numbers(&live), [2]);
        assert_eq!(enter(3), first);
        assert_eq!(numbers(&live), [3, 2]);
        live.wake_all();
    }
}
