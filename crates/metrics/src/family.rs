//! The same statistics for several members, told apart by one label.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::cells::{Cells, Places, Seen};
use crate::declare::{Declared, Kind, Origin, check_word};
use crate::function::{Function, lock};
use crate::snapshot::{Point, Reading, Snapshot};
use crate::statistics::Statistics;

/// The same statistics for several members, such as the routes of a gate, told apart by one label.
///
/// A member exists as long as anything that counts for it: the struct that
/// [`register`](Self::register) returned, one of its fields' clones, a [`Held`](crate::Held), or a
/// [`Source`](crate::Source). Then it is removed, and its counts move to the member without a
/// label, so that no total ever goes down. There are as many members as names in use; names must
/// not come from a network.
pub struct Family<S> {
    label: &'static str,
    members: Mutex<Members>,
    of: PhantomData<fn() -> S>,
}

impl<S: Statistics> Family<S> {
    /// A family without members.
    ///
    /// # Panics
    /// If the label is not of `a-z`, `0-9` and `_`, does not begin with a letter, or is `le`, which
    /// histograms have.
    #[must_use]
    pub const fn new(label: &'static str) -> Self {
        check_word(label);
        assert!(!matches!(label.as_bytes(), b"le"), "histograms have the label `le`");
        Self { label, members: Mutex::new(Members::NONE), of: PhantomData }
    }

    /// Statistics of a member, to count with. The empty name is no label: a program's own statistics
    /// have one member, without a label.
    ///
    /// Under a name that is in use, this counts in the same place as those before: a reload that
    /// registers the new routes before it drops the old ones loses nothing. A name that is no longer
    /// in use begins at zero.
    pub fn register(&self, name: &str) -> S {
        let mut members = self.members();
        members.retire_unused();
        let new = || Arc::new(Cells::of(S::declared()));
        let cells = members.living.entry(name.to_owned()).or_insert_with(new);
        S::placed(&mut Places::new(cells, S::declared()))
    }

    /// What was counted until now, member by member, the one without a label first. This calls the
    /// functions of statistics that are read, and takes as long as they do.
    pub fn snapshot(&self) -> Snapshot {
        // First, and without a lock: a function may register and count.
        for function in self.functions() {
            function.ask();
        }
        let mut members = self.members();
        members.retire_unused();
        let mut first = 0;
        let readings = S::declared().iter().map(|declared| {
            let cells = first..first + declared.cells();
            first = cells.end;
            Reading::new(declared, self.label, members.points(declared, cells))
        });
        Snapshot::new(readings.collect())
    }

    fn functions(&self) -> Vec<Arc<Function>> {
        let members = self.members();
        members.living.values().flat_map(|cells| lock(cells.functions()).clone()).collect()
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // The worst that a panic leaves here is a member that was not retired.
        lock(&self.members)
    }
}

impl<S> fmt::Debug for Family<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("label", &self.label).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Members {
    living: BTreeMap<String, Arc<Cells>>,
    /// The counts of removed members, by cell; empty if there were none.
    retired: Vec<u64>,
}

impl Members {
    const NONE: Self = Self { living: BTreeMap::new(), retired: Vec::new() };

    /// Removes members that nothing counts for any more, and takes over their counts.
    fn retire_unused(&mut self) {
        let retired = &mut self.retired;
        self.living.retain(|_, cells| {
            // This is the last reference, so that all counts through the others are visible.
            let Some(unused) = Arc::get_mut(cells) else { return true };
            retired.resize(unused.len(), 0);
            for (at, sum) in retired.iter_mut().enumerate() {
                *sum = sum.wrapping_add(unused.sum(at));
            }
            false
        });
    }

    /// The cells of this statistic, of each member that has a value of it.
    fn points(&self, declared: &Declared, cells: std::ops::Range<usize>) -> Vec<Point> {
        let is_read = declared.origin() == Origin::Read;
        // A gauge that is read leaves nothing behind.
        let stays = !is_read || declared.kind() != Kind::Gauge;
        let retired = self.retired.get(cells.clone()).filter(|_| stays);
        let mut points = Vec::new();
        if let Some(retired) = retired
            && !self.living.contains_key("")
        {
            points.push(Point::new("", Some(retired.to_vec())));
        }
        for (name, living) in &self.living {
            let before = retired.filter(|_| name.is_empty());
            let mut sums = match living.read(cells.clone()) {
                Seen::Sums(sums) => sums,
                Seen::Nothing if is_read && before.is_none() => continue,
                Seen::Nothing => vec![0; cells.len()],
                Seen::Unknown => {
                    points.push(Point::new(name, None));
                    continue;
                }
            };
            for (sum, before) in sums.iter_mut().zip(before.unwrap_or_default()) {
                *sum = sum.wrapping_add(*before);
            }
            points.push(Point::new(name, Some(sums)));
        }
        points
    }
}
