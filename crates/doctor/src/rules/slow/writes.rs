//! Writes as the program makes them: Nagle's algorithm (LB205), and many tiny ones (LB206).

use std::collections::BTreeMap;

use super::super::figures;
use super::Draft;
use super::stalls::nagle_draft;
use crate::event::{Io, SocketId};
use crate::text;

/// So many pairs of socket and process are followed at once.
const MAX_PAIRS: usize = 20_000;
/// So long is one story, nanoseconds: the counts begin anew after it.
const STORY_NS: u64 = 10_000_000_000;

/// Follows what programs do with sockets.
#[derive(Debug, Default)]
pub(super) struct Writes {
    of: BTreeMap<(SocketId, u32), Sums>,
}

/// What one program did with one socket, lately.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ns: u64,
    writes: u64,
    tiny: u64,
    bytes: u64,
    reads: u64,
    held_back: u64,
    held_back_ns: u64,
    reported_nagle: bool,
    reported_tiny: bool,
}

impl Writes {
    /// Adds what was done. `rtt_us` is the round trip, where it is known.
    pub(super) fn add(&mut self, io: &Io, rtt_us: Option<u32>) -> Vec<Draft> {
        let key = (io.socket, io.pid);
        if io.writes == 0 && io.held_back == 0 {
            // Most sockets of most programs, and nothing to begin a story with.
            return Vec::new();
        }
        if self.of.len() >= MAX_PAIRS && !self.of.contains_key(&key) {
            return Vec::new();
        }
        let sums = self.of.entry(key).or_default();
        sums.add(io);
        [sums.nagle(rtt_us), sums.tiny()].into_iter().flatten().collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn forget(&mut self, socket: SocketId) {
        let last = (socket, u32::MAX);
        while let Some((key, _)) = self.of.range((socket, 0)..=last).next() {
            let key = *key;
            self.of.remove(&key);
        }
    }
}

impl Sums {
    fn add(&mut self, io: &Io) {
        if self.ns >= STORY_NS {
            let (reported_nagle, reported_tiny) = (self.reported_nagle, self.reported_tiny);
            *self = Self { reported_nagle, reported_tiny, ..Self::default() };
        }
        self.ns = self.ns.saturating_add(io.over_ns);
        self.writes = self.writes.saturating_add(io.writes);
        self.tiny = self.tiny.saturating_add(io.tiny_writes);
        self.bytes = self.bytes.saturating_add(io.written_bytes);
        self.reads = self.reads.saturating_add(io.reads);
        self.held_back = self.held_back.saturating_add(io.held_back);
        self.held_back_ns = self.held_back_ns.saturating_add(io.held_back_ns);
    }

    /// LB205: what Nagle's algorithm holds back goes on with the next acknowledgement, and the receiver
    /// delays that by 40 ms and more.
    fn nagle(&mut self, rtt_us: Option<u32>) -> Option<Draft> {
        /// Bulk data ends with one such write each time it pauses.
        const FEWEST: u64 = 5;
        /// A delayed acknowledgement takes at least 40 ms (`TCP_DELACK_MIN`), and the kernel's clock may
        /// begin a tick before it. On top of the round trip: one that is not delayed takes that long.
        const LATE_NS: u64 = 25_000_000;
        /// Longer than this it was not an acknowledgement that was delayed.
        const LATEST_NS: u64 = 500_000_000;
        /// Of a write that is larger, the kernel's own buffer is the limit: it waits for room in the
        /// middle of it, after it has filled up what was held back.
        const LARGE: u64 = 65_536;
        let each_ns = self.held_back_ns.checked_div(self.held_back)?;
        if self.bytes / self.writes.max(1) >= LARGE {
            return None;
        }
        let rtt_ns = u64::from(rtt_us.unwrap_or_default()) * 1_000;
        let late = LATE_NS.saturating_add(rtt_ns)..LATEST_NS.saturating_add(rtt_ns);
        if self.reported_nagle || self.held_back < FEWEST || !late.contains(&each_ns) {
            return None;
        }
        self.reported_nagle = true;
        let each_us = u32::try_from(each_ns / 1_000).unwrap_or(u32::MAX);
        let sentence = format!(
            "the end of {} writes in {} was held back {} each, {} in all, until an acknowledgement came \
             that the peer delayed: Nagle's algorithm and delayed acknowledgements wait for each other",
            text::count(self.held_back),
            text::time(self.ns),
            figures::microseconds(each_us),
            text::time(self.held_back_ns),
        );
        let mut draft = nagle_draft(sentence);
        draft.evidence = figures::evidence([
            ("held_back_writes", self.held_back.into()),
            ("held_back_ms", (self.held_back_ns as f64 / 1e6).into()),
            ("held_back_each_ms", (each_ns as f64 / 1e6).into()),
            ("over_seconds", (self.ns as f64 / 1e9).into()),
        ]);
        if let Some(rtt) = rtt_us {
            draft.evidence.insert("min_rtt_us".to_owned(), rtt.into());
        }
        Some(draft)
    }

    /// LB206: a call for each few bytes costs more than the bytes.
    fn tiny(&mut self) -> Option<Draft> {
        const FEWEST: u64 = 10_000;
        const SHARE: f64 = 0.9;
        /// A person, and a program that answers a person, write less often, writes a second.
        const OFTEN: f64 = 1_000.0;
        /// So long at least, nanoseconds: what is over sooner cost less than a second of a processor.
        const LONG_NS: u64 = 3_000_000_000;
        /// Who answers small questions with small answers, has read one before each.
        const FOR_EACH_READ: u64 = 4;
        let rate = figures::per_second(self.writes, self.ns);
        let answers = self.writes < self.reads.saturating_mul(FOR_EACH_READ);
        let is_tiny = figures::share(self.tiny, self.writes) >= SHARE;
        let is_long = self.tiny >= FEWEST && self.ns >= LONG_NS;
        if self.reported_tiny || !is_long || !is_tiny || rate < OFTEN || answers {
            return None;
        }
        self.reported_tiny = true;
        let each = self.bytes as f64 / self.writes.max(1) as f64;
        let sentence = format!(
            "the program wrote {} bytes with {} calls in {}, {each:.1} bytes each: the calls cost more \
             than the bytes",
            text::count(self.bytes),
            text::count(self.writes),
            text::time(self.ns),
        );
        let fix = "Collect what is written in a buffer of some kilobytes, and flush it where the peer \
                   has to have it.";
        let evidence = figures::evidence([
            ("writes", self.writes.into()),
            ("tiny_writes", self.tiny.into()),
            ("written_bytes", self.bytes.into()),
            ("bytes_each", each.into()),
            ("writes_per_second", rate.into()),
            ("over_seconds", (self.ns as f64 / 1e9).into()),
        ]);
        Some(Draft { code: 206, sentence, fix: fix.to_owned(), heal: None, evidence, by: None })
    }
}
