//! The flows that are open now: a list for each worker, which only that worker and those who ask lock.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// A flow that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveFlow {
    /// Its number: see [`Account::flow`](lastbyte_core::account::Account::flow).
    pub flow: u64,
    /// The route that it took.
    pub route: Arc<str>,
    /// Who connected.
    pub client: SocketAddr,
    /// When its connection was accepted, since 1970 (UTC).
    pub began: Duration,
    /// The thread that it lives in: the number behind `gate-`.
    pub worker: usize,
}

/// The flows of one worker, each in a place of its own that the next one takes over.
#[derive(Debug, Default)]
pub(crate) struct Live {
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    flows: Vec<Option<(LiveFlow, Waker)>>,
    free: Vec<u32>,
}

/// A place in the list of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Live {
    /// Enters a flow, and how its task is woken.
    pub(crate) fn enter(&self, flow: LiveFlow, waker: Waker) -> Place {
        let mut places = self.lock();
        let entry = Some((flow, waker));
        if let Some(place) = places.free.pop() {
            places.flows[place as usize] = entry;
            return Place(place);
        }
        places.flows.push(entry);
        // Each flow has a descriptor, and of those there are fewer.
        Place(u32::try_from(places.flows.len() - 1).expect("fewer flows than 2^32"))
    }

    /// Takes a flow out.
    pub(crate) fn leave(&self, Place(place): Place) {
        let mut places = self.lock();
        places.flows[place as usize] = None;
        places.free.push(place);
    }

    /// Has each flow look at what has changed.
    pub(crate) fn wake_all(&self) {
        for (_, waker) in self.lock().flows.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn list(&self) -> Vec<LiveFlow> {
        self.lock().flows.iter().flatten().map(|(flow, _)| flow.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u64) -> LiveFlow {
        LiveFlow {
            flow: number,
            route: "db".into(),
            client: ([127, 0, 0, 1], 1).into(),
            began: Duration::ZERO,
            worker: 0,
        }
    }

    #[test]
    fn a_place_that_was_left_is_taken_again() {
        let live = Live::default();
        let numbers = |live: &Live| live.list().iter().map(|flow| flow.flow).collect::<Vec<_>>();
        let first = live.enter(flow(1), Waker::noop().clone());
        live.enter(flow(2), Waker::noop().clone());
        live.leave(first);
        assert_eq!(numbers(&live), [2]);
        assert_eq!(live.enter(flow(3), Waker::noop().clone()), first);
        assert_eq!(numbers(&live), [3, 2]);
        live.wake_all();
    }
}
