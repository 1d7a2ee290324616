//! Statistics that a snapshot reads by calling a function, instead of code counting them.

use std::sync::Arc;

use crate::cells::{Place, Places};
use crate::declare::{Kind, Origin};
use crate::function::{Answer, Call, Function, lock};

/// A gauge whose value a function returns when a snapshot is taken, such as the number of open
/// descriptors or the length of a queue. Between snapshots it costs nothing. A clone is the same gauge.
///
/// It has a value while it has a [`Source`]. With several sources, the value is their sum.
#[derive(Debug, Clone)]
pub struct ReadGauge {
    place: Place,
}

impl ReadGauge {
    /// Registers a function that each snapshot calls, until the returned [`Source`] is dropped. The
    /// function returns the value in the statistic's unit, or `None` if the value is unknown now.
    ///
    /// One thread at a time calls it, holding no lock but the function's own, so the function may count
    /// and register. It must not take a snapshot of its own family: that would deadlock. If it owns
    /// what owns its `Source`, neither is ever dropped: let it own a `Weak` instead.
    ///
    /// If the function panics, the value is unknown this time, and the next snapshot calls it again.
    #[must_use = "the function is called until this is dropped"]
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

/// A counter that other code keeps, and whose value a function returns when a snapshot is taken. A clone
/// is the same counter.
///
/// It never goes down: if the function returns less than before, or `None`, the earlier value stands. The
/// count of a [`Source`] stays when the source is dropped.
#[derive(Debug, Clone)]
pub struct ReadCounter {
    place: Place,
}

impl ReadCounter {
    /// As [`ReadGauge::read_with`]. Dropping the returned [`Source`] calls the function once more, so
    /// that counts after the last snapshot are not lost.
    #[must_use = "the function is called until this is dropped"]
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

/// A function registered for a [`ReadGauge`] or a [`ReadCounter`], until this is dropped. It keeps its
/// member of the [`Family`](crate::Family).
#[derive(Debug)]
pub struct Source {
    place: Place,
    function: Arc<Function>,
}

impl Source {
    fn new(place: &Place, kind: Kind, call: Call) -> Self {
        let function = Arc::new(Function::new(place.first(), kind, call));
        lock(place.functions()).push(Arc::clone(&function));
        Self { place: place.clone(), function }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let is_counter = self.function.kind() == Kind::Counter;
        if is_counter {
            self.function.ask();
        }
        // A reader holds this lock: it finds the count either in the function or in the cell.
        let mut functions = lock(self.place.functions());
        functions.retain(|other| !Arc::ptr_eq(other, &self.function));
        if is_counter && let Answer::Known(counted) = self.function.answer() {
            self.place.add(0, counted);
        }
    }
}
