//! Statistics that are not counted: a function has their value, and a snapshot asks it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cells::{Place, Places};
use crate::declare::{Kind, Origin};

/// A gauge that a function reads when a snapshot is taken: how many descriptors are open, how long a
/// queue is. Between snapshots it costs nothing. A clone is read in the same place.
///
/// It has a value as long as a [`Source`] of it lives. With several, the value is their sum.
#[derive(Debug, Clone)]
pub struct ReadGauge {
    place: Place,
}

impl ReadGauge {
    /// Has each snapshot ask this function, until what is returned is dropped. The function returns
    /// the value in the statistic's unit, or `None` where it cannot know it now.
    ///
    /// One thread at a time calls it, with no lock held but its own, so that it may count and
    /// register. It must not take a snapshot of its own family, which would wait for itself. If it
    /// owns what keeps its [`Source`], neither is ever dropped: let it own a `Weak` instead.
    ///
    /// A function that panics knows no value that time, and is asked again by the next snapshot.
    #[must_use = "the function is asked until this is dropped"]
    pub fn read_with<V: Into<Option<u64>>>(
        &self,
        mut function: impl FnMut() -> V + Send + 'static,
    ) -> Source {
        Source::new(&self.place, Kind::Gauge, Box::new(move || function().into()))
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn kind() -> Kind {
        Kind::Gauge
    }

    #[doc(hidden)]
    pub const ORIGIN: Origin = Origin::Read;

    #[doc(hidden)]
    #[must_use]
    pub fn placed(places: &mut Places<'_>) -> Self {
        Self { place: places.next().0 }
    }
}

/// A counter that is counted elsewhere, and that a function reads when a snapshot is taken. A clone is
/// read in the same place.
///
/// It never goes down: a lower value than the function had before counts as that one, as does none. What
/// a [`Source`] had counted stays when it is dropped.
#[derive(Debug, Clone)]
pub struct ReadCounter {
    place: Place,
}

impl ReadCounter {
    /// As [`ReadGauge::read_with`]. The function is asked once more when what is returned is dropped, so
    /// that nothing is lost which was counted after the last snapshot.
    #[must_use = "the function is asked until this is dropped"]
    pub fn read_with<V: Into<Option<u64>>>(
        &self,
        mut function: impl FnMut() -> V + Send + 'static,
    ) -> Source {
        Source::new(&self.place, Kind::Counter, Box::new(move || function().into()))
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn kind() -> Kind {
        Kind::Counter
    }

    #[doc(hidden)]
    pub const ORIGIN: Origin = Origin::Read;

    #[doc(hidden)]
    #[must_use]
    pub fn placed(places: &mut Places<'_>) -> Self {
        Self { place: places.next().0 }
    }
}

/// What a [`ReadGauge`] or a [`ReadCounter`] is read from, until it is dropped. Its member of the
/// [`Family`](crate::Family) stays as long.
#[derive(Debug)]
pub struct Source {
    place: Place,
    function: Arc<Function>,
}

impl Source {
    fn new(place: &Place, kind: Kind, call: Call) -> Self {
        let (call, answer) = (Mutex::new(call), Mutex::new(Answer::NotAsked));
        let function = Arc::new(Function { at: place.first(), kind, call, answer });
        lock(place.functions()).push(Arc::clone(&function));
        Self { place: place.clone(), function }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let is_counter = self.function.kind == Kind::Counter;
        if is_counter {
            self.function.ask();
        }
        // Whoever reads meanwhile holds this lock: it finds the value in the function or in the cell.
        let mut functions = lock(self.place.functions());
        functions.retain(|other| !Arc::ptr_eq(other, &self.function));
        if is_counter && let Answer::Known(counted) = *lock(&self.function.answer) {
            self.place.add(0, counted);
        }
    }
}

/// The functions of one member.
pub(crate) type Functions = Mutex<Vec<Arc<Function>>>;

type Call = Box<dyn FnMut() -> Option<u64> + Send>;

pub(crate) struct Function {
    /// The first cell of its statistic.
    pub(crate) at: usize,
    kind: Kind,
    /// Held while it is called: an answer never overwrites that of a later call.
    call: Mutex<Call>,
    answer: Mutex<Answer>,
}

/// What a function said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    NotAsked,
    Unknown,
    Known(u64),
}

impl Function {
    /// Calls it, and keeps what it says.
    pub(crate) fn ask(&self) {
        let mut call = lock(&self.call);
        // The panic has said so itself. One broken statistic must not take the others from a reader.
        let said = catch_unwind(AssertUnwindSafe(&mut *call)).unwrap_or(None);
        let mut answer = lock(&self.answer);
        *answer = match (self.kind, *answer, said) {
            (Kind::Counter, Answer::Known(before), now) => {
                Answer::Known(before.max(now.unwrap_or_default()))
            }
            (_, _, Some(now)) => Answer::Known(now),
            (_, _, None) => Answer::Unknown,
        };
    }

    pub(crate) fn answer(&self) -> Answer {
        *lock(&self.answer)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("answer", &self.answer()).finish_non_exhaustive()
    }
}

/// Nothing that these locks guard is left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
