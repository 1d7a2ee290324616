//! The process of each thread that the processes in scope have started, from the lines alone: these
//! also show threads that ended before `/proc` could be read.

use std::collections::{HashMap, VecDeque};

/// Limit on threads. For others the kernel's own record of their process is used, if there is one.
const MOST: usize = 65_536;
/// The actions of a thread are reported at most this much later than its end.
const ENDED_NS: u64 = 2_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Family {
    /// The process of each thread.
    groups: HashMap<u32, u32>,
    /// Ended threads, oldest first.
    ended: VecDeque<(u64, u32)>,
}

impl Family {
    pub(super) fn add(&mut self, tid: u32, pid: u32) {
        if self.groups.len() < MOST {
            self.groups.insert(tid, pid);
            // The TID was reused.
            self.ended.retain(|(_, ended)| *ended != tid);
        }
    }

    pub(super) fn group(&self, tid: u32) -> Option<u32> {
        self.groups.get(&tid).copied()
    }

    pub(super) fn end(&mut self, tid: u32, at_ns: u64) {
        if self.groups.contains_key(&tid) {
            self.ended.push_back((at_ns, tid));
        }
    }

    /// Forgets those that ended a while ago.
    pub(super) fn forget(&mut self, now_ns: u64) {
        while self.ended.front().is_some_and(|(at_ns, _)| at_ns + ENDED_NS < now_ns) {
            if let Some((_, tid)) = self.ended.pop_front() {
                self.groups.remove(&tid);
            }
        }
    }
}

/// The process of each living thread, from `/proc`. The kernel updates its own record, shown in a
/// line, when it switches to or from a thread: before the first switch the record is missing, or of
/// the thread that had the TID before.
#[derive(Debug, Default)]
pub(super) struct Living(HashMap<u32, u32>);

impl Living {
    /// The process of a line's thread: what `ask` finds while the thread lives, once for each
    /// thread, or else the kernel's record.
    pub(super) fn group(
        &mut self,
        tid: u32,
        noted: Option<u32>,
        ask: impl FnOnce(u32) -> Option<u32>,
    ) -> Option<u32> {
        // The idle task, which interrupts run in, is in no process.
        if tid == 0 {
            return noted;
        }
        if let Some(pid) = self.0.get(&tid) {
            return Some(*pid);
        }
        let asked = ask(tid);
        if let Some(pid) = asked
            && self.0.len() < MOST
        {
            self.0.insert(tid, pid);
        }
        asked.or(noted)
    }

    /// This TID belongs to no thread now, or to another.
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_remembered_for_a_while_after_its_end() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut family = Family::default();
        family.add(8, 7);
        family.end(8, 0);
        family.end(9, 0);
        family.forget(SECOND_NS);
        assert_eq!((family.group(8), family.group(9)), (Some(7), None));
        // The TID of an ended thread belongs to another.
        family.add(8, 8);
        family.forget(3 * SECOND_NS);
        assert_eq!(family.group(8), Some(8));
        family.end(8, 3 * SECOND_NS);
        family.forget(6 * SECOND_NS);
        assert_eq!((family.group(8), family.ended.len()), (None, 0));
    }

    #[test]
    fn a_note_of_an_earlier_thread_is_not_believed_of_one_that_lives() {
        let mut living = Living::default();
        // As observed: thread 7224 of process 7223, recorded for 7220, which had the TID before.
        assert_eq!(living.group(7224, Some(7220), |_| Some(7223)), Some(7223));
        assert_eq!(living.group(7224, Some(7220), |_| unreachable!("asked twice")), Some(7223));
        living.forget(7224);
        assert_eq!(living.group(7224, Some(7224), |_| None), Some(7224));
        assert_eq!(living.group(7224, None, |_| None), None);
        assert_eq!(living.group(0, Some(0), |_| unreachable!("no process")), Some(0));
    }
}
