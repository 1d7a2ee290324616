//! Which set of cells a thread counts in.
//!
//! A slot belongs to one thread at a time, from its first count to its end. So its cells have one
//! writer, which needs no atomic addition. A later thread may have it next, and goes on from what it
//! finds there.

use std::cell::Cell;
use std::sync::atomic::Ordering;

#[cfg(lastbyte_loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(not(lastbyte_loom))]
use std::sync::atomic::AtomicU64;

/// Slots that belong to one thread at a time.
///
/// A gate has as many threads that count as processors; machines with more than 64 share the rest.
pub(crate) const OWNED: usize = 64;

/// The slot of all threads that have none of their own. It takes atomic additions.
pub(crate) const SHARED: usize = OWNED;

/// The slot of the calling thread.
#[inline]
pub(crate) fn current() -> usize {
    match SLOT.get() {
        UNCLAIMED => claim(),
        slot => slot,
    }
}

thread_local! {
    /// Has no destructor, so that it can be read until the thread has ended.
    static SLOT: Cell<usize> = const { Cell::new(UNCLAIMED) };
    /// Gives the slot back when the thread ends.
    static CLAIM: Claim = Claim { slot: POOL.take() };
}

const UNCLAIMED: usize = usize::MAX;

#[cold]
fn claim() -> usize {
    // The destructors of a thread may count after that of the claim has run.
    let slot = CLAIM.try_with(|claim| claim.slot).ok().flatten().unwrap_or(SHARED);
    SLOT.set(slot);
    slot
}

struct Claim {
    slot: Option<usize>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        SLOT.set(SHARED);
        if let Some(slot) = self.slot {
            POOL.give_back(slot);
        }
    }
}

#[cfg(not(lastbyte_loom))]
static POOL: Pool = Pool { taken: AtomicU64::new(0) };
#[cfg(lastbyte_loom)]
loom::lazy_static! {
    static ref POOL: Pool = Pool { taken: AtomicU64::new(0) };
}

/// The owned slots; a bit is set while a thread has that slot.
#[derive(Debug)]
struct Pool {
    taken: AtomicU64,
}

impl Pool {
    /// The lowest free slot, if there is one. Whoever gets it sees what was counted in it before.
    fn take(&self) -> Option<usize> {
        let mut slot = OWNED;
        let lowest_free = |taken: u64| {
            slot = taken.trailing_ones() as usize;
            (slot < OWNED).then(|| taken | 1 << slot)
        };
        let changed = self.taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest_free);
        changed.ok().map(|_| slot)
    }

    fn give_back(&self, slot: usize) {
        self.taken.fetch_and(!(1 << slot), Ordering::Release);
    }
}

#[cfg(all(test, not(lastbyte_loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn each_slot_is_given_once_until_it_comes_back() {
        let pool = Pool { taken: AtomicU64::new(0) };
        let taken: Vec<_> = (0..OWNED).map(|_| pool.take().unwrap()).collect();
        assert_eq!(taken, (0..OWNED).collect::<Vec<_>>());
        assert_eq!(pool.take(), None);
        pool.give_back(17);
        assert_eq!(pool.take(), Some(17));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn a_thread_keeps_its_slot() {
        assert_eq!(current(), current());
        let here = current();
        let there = thread::spawn(current).join().unwrap();
        assert!(there != here || here == SHARED);
    }

    #[test]
    fn a_thread_that_ends_may_still_count() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(current() <= SHARED);
            }
        }
        thread_local!(static LATE: Late = const { Late });
        // Destructors run in an order of their own: one of the two comes after that of the claim.
        let late_first = thread::spawn(|| {
            LATE.with(|_| ());
            current();
        });
        let claim_first = thread::spawn(|| {
            current();
            LATE.with(|_| ());
        });
        late_first.join().unwrap();
        claim_first.join().unwrap();
    }
}

/// Every order in which two threads can have the same slot: `make test-loom`.
#[cfg(all(test, lastbyte_loom))]
mod every_order {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn who_has_a_slot_next_goes_on_from_what_was_counted() {
        loom::model(|| {
            let pool = Arc::new(Pool { taken: AtomicU64::new(0) });
            let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let count = |pool: &Pool, cells: &[AtomicU64]| {
                let slot = pool.take().unwrap();
                // As `Cells::add` does.
                let before = cells[slot].load(Ordering::Relaxed);
                cells[slot].store(before + 1, Ordering::Release);
                pool.give_back(slot);
            };
            let other = {
                let (pool, cells) = (Arc::clone(&pool), Arc::clone(&cells));
                thread::spawn(move || count(&pool, cells.as_slice()))
            };
            count(&pool, cells.as_slice());
            other.join().unwrap();
            let sum: u64 = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
            assert_eq!(sum, 2);
        });
    }
}
