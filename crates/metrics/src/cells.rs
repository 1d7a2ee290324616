//! The memory for counts: for each thread a set of cells, on cache lines that no other thread
//! writes.

use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::declare::Declared;
use crate::function::{Answer, Functions, lock};
use crate::slot::{self, SHARED};

/// The cells of one struct of statistics, a set for each slot that has counted here.
#[derive(Debug)]
pub(crate) struct Cells {
    sets: [OnceLock<Box<[Line]>>; SHARED + 1],
    len: usize,
    /// The functions of statistics that are read. Counting does not use this lock.
    functions: Functions,
}

impl Cells {
    /// Cells for these statistics, all zero. A set is allocated at its first count.
    pub(crate) fn of(declared: &[Declared]) -> Self {
        let len = declared.iter().map(Declared::cells).sum();
        let functions = Mutex::new(Vec::new());
        Self { sets: [const { OnceLock::new() }; SHARED + 1], len, functions }
    }

    /// How many cells a set has.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds to a cell of the calling thread. A reader that sees this also sees what the thread did
    /// before.
    #[inline]
    pub(crate) fn add(&self, at: usize, n: u64) {
        let slot = slot::current();
        let set = self.sets[slot].get_or_init(|| self.empty_set());
        let cell = &set[at / PER_LINE].0[at % PER_LINE];
        if slot == SHARED {
            cell.fetch_add(n, Ordering::Release);
        } else {
            // The slot is this thread's: no other thread adds between the two.
            let before = cell.load(Ordering::Relaxed);
            cell.store(before.wrapping_add(n), Ordering::Release);
        }
    }

    /// The sum of a cell over all threads.
    pub(crate) fn sum(&self, at: usize) -> u64 {
        let sets = self.sets.iter().filter_map(OnceLock::get);
        let cells = sets.map(|set| set[at / PER_LINE].0[at % PER_LINE].load(Ordering::Acquire));
        cells.fold(0, u64::wrapping_add)
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The sums of a statistic's cells, with the last answers of its functions.
    pub(crate) fn read(&self, cells: Range<usize>) -> Seen {
        let functions = lock(&self.functions);
        // From the last: what a gauge lost is read before what it gained.
        let mut sums: Vec<u64> = cells.clone().rev().map(|at| self.sum(at)).collect();
        sums.reverse();
        let mut answers = functions.iter().filter(|function| function.at == cells.start);
        let has_answers = answers.try_fold(false, |found, function| match function.answer() {
            Answer::NotAsked => Some(found),
            Answer::Unknown => None,
            Answer::Known(value) => {
                sums[0] = sums[0].wrapping_add(value);
                Some(true)
            }
        });
        match has_answers {
            None => Seen::Unknown,
            Some(false) if sums.iter().all(|sum| *sum == 0) => Seen::Nothing,
            Some(_) => Seen::Sums(sums),
        }
    }

    #[cold]
    fn empty_set(&self) -> Box<[Line]> {
        (0..self.len.div_ceil(PER_LINE)).map(|_| Line::default()).collect()
    }
}

/// The result of reading the cells of a statistic.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The sum of each cell.
    Sums(Vec<u64>),
    /// Zeros, and no function has answered.
    Nothing,
    /// A function returned no value.
    Unknown,
}

/// Two cache lines of most processors, which fetch the neighbour of a line along with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; PER_LINE]);

const PER_LINE: usize = 16;

/// Hands out the places of statistics, in the order of their declaration.
#[derive(Debug)]
pub struct Places<'a> {
    cells: &'a Arc<Cells>,
    declared: slice::Iter<'a, Declared>,
    next: usize,
}

impl<'a> Places<'a> {
    pub(crate) fn new(cells: &'a Arc<Cells>, declared: &'a [Declared]) -> Self {
        Self { cells, declared: declared.iter(), next: 0 }
    }

    /// The place of the next statistic, and its declaration; panics if there is none.
    pub(crate) fn next(&mut self) -> (Place, &'a Declared) {
        let declared = self.declared.next().unwrap_or_else(|| panic!("one place for each field"));
        let place = Place { cells: Arc::clone(self.cells), first: self.next };
        self.next += declared.cells();
        (place, declared)
    }
}

/// The cells of one statistic.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    cells: Arc<Cells>,
    first: usize,
}

impl Place {
    /// Adds to one of the statistic's cells.
    #[inline]
    pub(crate) fn add(&self, at: usize, n: u64) {
        self.cells.add(self.first + at, n);
    }

    pub(crate) fn first(&self) -> usize {
        self.first
    }

    pub(crate) fn functions(&self) -> &Functions {
        self.cells.functions()
    }
}
