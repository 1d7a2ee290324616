//! The types that code counts with.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::cells::{Place, Places};
use crate::declare::{Bounds, Kind, Origin, nanoseconds};

/// Goes up only, from 0; past 2^64 - 1 it starts again. A clone counts in the same place.
#[derive(Debug, Clone)]
pub struct Counter {
    place: Place,
}

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.place.add(0, n);
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn kind() -> Kind {
        Kind::Counter
    }

    #[doc(hidden)]
    pub const ORIGIN: Origin = Origin::Counted;

    #[doc(hidden)]
    #[must_use]
    pub fn placed(places: &mut Places<'_>) -> Self {
        Self { place: places.next().0 }
    }
}

/// Goes up and down, from 0: how many there are now, summed over all threads. It is moved, never
/// set. A clone counts in the same place.
#[derive(Debug, Clone)]
pub struct Gauge {
    place: Place,
}

impl Gauge {
    /// Goes up by `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.place.add(Self::ADDED, n);
    }

    /// Goes down by `n`, on this thread or another. A reader never sees it below zero if the
    /// additions happened before this call.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.place.add(Self::TAKEN, n);
    }

    /// Goes up by 1 until what is returned is dropped.
    #[must_use = "the gauge goes down when this is dropped"]
    pub fn hold(&self) -> Held {
        self.add(1);
        Held { gauge: self.clone() }
    }

    pub(crate) const ADDED: usize = 0;
    pub(crate) const TAKEN: usize = 1;

    #[doc(hidden)]
    #[must_use]
    pub const fn kind() -> Kind {
        Kind::Gauge
    }

    #[doc(hidden)]
    pub const ORIGIN: Origin = Origin::Counted;

    #[doc(hidden)]
    #[must_use]
    pub fn placed(places: &mut Places<'_>) -> Self {
        Self { place: places.next().0 }
    }
}

/// One that a [`Gauge`] counts, until it is dropped.
#[derive(Debug)]
pub struct Held {
    gauge: Gauge,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.sub(1);
    }
}

/// Counts values by size: of [`Duration`], shown in seconds, or of `u64`. A clone counts in the same
/// place.
///
/// The sum of all values is kept in nanoseconds or whole numbers, without rounding.
#[derive(Debug, Clone)]
pub struct Histogram<T> {
    place: Place,
    /// In steps, ascending.
    bounds: Arc<[u64]>,
    of: PhantomData<fn(T)>,
}

impl<T: Observed> Histogram<T> {
    /// Counts a value, in the first bucket whose upper bound is not below it.
    #[inline]
    pub fn observe(&self, value: T) {
        let steps = value.steps();
        let bucket = self.bounds.partition_point(|bound| *bound < steps);
        self.place.add(bucket, 1);
        self.place.add(self.bounds.len() + 1, steps);
    }

    #[doc(hidden)]
    pub const ORIGIN: Origin = Origin::Counted;

    #[doc(hidden)]
    #[must_use]
    pub fn placed(places: &mut Places<'_>) -> Self {
        let (place, declared) = places.next();
        let Kind::Histogram(bounds) = declared.kind() else {
            panic!("`{}` is declared as a histogram", declared.name());
        };
        Self { place, bounds: bounds.steps().into(), of: PhantomData }
    }
}

impl Histogram<Duration> {
    #[doc(hidden)]
    #[must_use]
    pub const fn kind(bounds: &'static [Duration]) -> Kind {
        Kind::Histogram(Bounds::Times(bounds))
    }
}

impl Histogram<u64> {
    #[doc(hidden)]
    #[must_use]
    pub const fn kind(bounds: &'static [u64]) -> Kind {
        Kind::Histogram(Bounds::Numbers(bounds))
    }
}

/// What a [`Histogram`] takes.
pub trait Observed {
    /// The value in whole steps: nanoseconds for a time.
    fn steps(self) -> u64;
}

impl Observed for Duration {
    #[inline]
    fn steps(self) -> u64 {
        nanoseconds(self)
    }
}

impl Observed for u64 {
    #[inline]
    fn steps(self) -> u64 {
        self
    }
}
