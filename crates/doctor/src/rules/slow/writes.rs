//! The writes of a program: Nagle's algorithm (LB205), and many tiny writes (LB206).

use std::collections::BTreeMap;

use super::super::figures;
use super::Draft;
use super::stalls::nagle_draft;
use crate::event::{Io, SocketId};
use crate::text;

/// Limit on pairs of socket and process.
const MAX_PAIRS: usize = 20_000;
/// The counts start again after this time, nanoseconds.
const STORY_NS: u64 = 10_000_000_000;

/// Follows what programs do with sockets.
#[derive(Debug, Default)]
pub(super) struct Writes {
    of: BTreeMap<(SocketId, u32), Sums>,
}

/// Recent calls of one program on one socket.
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
    /// Adds counted calls. `rtt_us` is the round trip if known.
    pub(super) fn add(&mut self, io: &Io, rtt_us: Option<u32>) -> Vec<Draft> {
        let key = (io.socket, io.pid);
        if io.writes == 0 && io.held_back == 0 {
            // True for most sockets; nothing to count.
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

    /// LB205: Nagle's algorithm delays a segment until the next acknowledgement, which the receiver
    /// delays by 40 ms or more.
    fn nagle(&mut self, rtt_us: Option<u32>) -> Option<Draft> {
        /// A bulk transfer ends with one such write before each pause.
        const FEWEST: u64 = 5;
        /// An acknowledgement is delayed by at least 40 ms (`TCP_DELACK_MIN`), minus a tick of the
        /// kernel's clock. The round trip comes on top.
        const LATE_NS: u64 = 25_000_000;
        /// No acknowledgement is delayed longer than this.
        const LATEST_NS: u64 = 500_000_000;
        /// A larger write is limited by the send buffer: it waits for free space halfway, after it
        /// has filled the delayed segment.
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
            "the end of {} writes in {} was delayed {} each, {} in all, until an acknowledgement \
             came that the peer delayed: Nagle's algorithm and delayed acknowledgements wait for \
             each other",
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

    /// LB206: system calls for a few bytes each cost more than the bytes.
    fn tiny(&mut self) -> Option<Draft> {
        const FEWEST: u64 = 10_000;
        const SHARE: f64 = 0.9;
        /// A person, and a program that answers a person, write less often than this, writes per
        /// second.
        const OFTEN: f64 = 1_000.0;
        /// Minimum duration, nanoseconds: less cost less than a second of processor time.
        const LONG_NS: u64 = 3_000_000_000;
        /// A program that answers small requests reads one before each response.
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
            "the program wrote {} bytes with {} calls in {}, {each:.1} bytes each: the calls cost \
             more than the bytes",
            text::count(self.bytes),
            text::count(self.writes),
            text::time(self.ns),
        );
        let fix = "Collect what is written in a buffer of some kilobytes, and flush it where the \
                   peer has to have it.";
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
