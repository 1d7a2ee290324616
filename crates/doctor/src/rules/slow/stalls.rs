//! Stalls: Nagle's algorithm with delayed acknowledgements as samples show it (LB205),
//! retransmission timeouts (LB207), and restarts after a pause (LB209).

use super::super::figures;
use super::Draft;
use super::window::{Seen, Window};
use crate::text;

/// LB205 if calls are not counted: samples show small segments that wait for delayed
/// acknowledgements.
pub(super) fn nagle(window: &Window, now: &Seen) -> Option<Draft> {
    /// With stalls of 40 ms one after the other, two of five samples, 100 ms apart, meet one.
    const SHARE: f64 = 0.2;
    const FEWEST: u32 = 5;
    let share = window.share_of(window.late_ack_in);
    if window.late_ack_in < FEWEST || share < SHARE {
        return None;
    }
    let rtt = now.trip_us();
    let sentence = format!(
        "in {} of the samples within {} less than a segment waited for an acknowledgement that was \
         late, at a round trip of {}: this is how Nagle's algorithm and delayed acknowledgements \
         wait for each other",
        figures::percent(share),
        text::time(window.ns),
        figures::microseconds(rtt),
    );
    let evidence = figures::evidence([
        ("late_looks", window.late_ack_in.into()),
        ("looks", window.intervals.into()),
        ("over_seconds", (window.ns as f64 / 1e9).into()),
        ("min_rtt_us", rtt.into()),
    ]);
    Some(Draft { evidence, ..nagle_draft(sentence) })
}

/// LB205, without its evidence.
pub(super) fn nagle_draft(sentence: String) -> Draft {
    let fix = "Write a whole message with one call (writev, a buffer), or set TCP_NODELAY.";
    Draft {
        code: 205,
        sentence,
        fix: fix.to_owned(),
        heal: None,
        evidence: Default::default(),
        by: None,
    }
}

/// LB207: the retransmission timer runs out (RFC 6298), and nothing moves until then.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    /// Start of the count, nanoseconds.
    since_ns: u64,
    /// How often it expired, by the socket's counter, and by events.
    seen: u64,
    reported: u64,
    /// How long nothing was acked around these, nanoseconds.
    still_ns: u64,
    /// How long nothing has been acked now, and whether the timer has expired in that time.
    now_still_ns: u64,
    ran_out: bool,
}

impl Timeouts {
    /// An event reported segments that were retransmitted after a timeout.
    pub(super) fn add_reported(&mut self, segments: u32) {
        self.reported = self.reported.saturating_add(segments.into());
        self.ran_out = true;
    }

    /// Adds the interval between two samples.
    pub(super) fn add(&mut self, before: &Seen, after: &Seen) -> Option<Draft> {
        /// The count starts again after this time, nanoseconds.
        const STORY_NS: u64 = 30_000_000_000;
        if self.since_ns == 0 || after.at_ns.saturating_sub(self.since_ns) > STORY_NS {
            *self = Self { since_ns: before.at_ns.max(1), ..Self::default() };
        }
        let (from, to) = (before.info(), after.info());
        let counts = from.total_rto.zip(to.total_rto);
        // The counter has 16 bits, which wrap.
        let new = counts.map_or(0, |(from, to)| to.wrapping_sub(from)).into();
        self.seen = self.seen.saturating_add(new);
        self.ran_out |= new > 0;
        let ns = after.at_ns.saturating_sub(before.at_ns);
        let is_still = to.unacked_segments > 0 && from.bytes_acked == to.bytes_acked;
        if after.is_shut_out() || to.snd_wnd == Some(0) {
            // The peer's window is closed: these are zero-window probes (RFC 9293 section 3.8.6.1).
            (self.seen, self.reported, self.ran_out) = (0, 0, false);
            return None;
        }
        if !is_still {
            (self.now_still_ns, self.ran_out) = (0, false);
            return None;
        }
        // The time before the timer expired was spent waiting for it.
        self.now_still_ns = self.now_still_ns.saturating_add(ns);
        if self.ran_out {
            self.still_ns = self.still_ns.saturating_add(self.now_still_ns);
            self.now_still_ns = 0;
        }
        self.judge(after)
    }

    fn judge(&self, now: &Seen) -> Option<Draft> {
        /// One timeout is how TCP finds the loss of the end of a burst.
        const FEWEST: u64 = 2;
        /// Nobody notices a shorter stall, nanoseconds.
        const STILL_NS: u64 = 1_000_000_000;
        let count = self.seen.max(self.reported);
        if count < FEWEST || self.still_ns < STILL_NS {
            return None;
        }
        let over_ns = now.at_ns.saturating_sub(self.since_ns);
        let sentence = format!(
            "the retransmission timer expired {} times in {}, and nothing was acked for {} of it: \
             packets are lost on this path so often, or in such bursts, that no acknowledgement \
             reports it",
            text::count(count),
            text::time(over_ns),
            text::time(self.still_ns),
        );
        let fix = "Look for the loss (ip -s link, a mobile or wireless path, a policer, a broken \
                   path MTU): no setting of this socket fixes it.";
        let evidence = figures::evidence([
            ("timeouts", count.into()),
            ("still_seconds", (self.still_ns as f64 / 1e9).into()),
            ("over_seconds", (over_ns as f64 / 1e9).into()),
            ("rtt_us", now.info().rtt_us.into()),
            ("retransmitted_segments", now.info().total_retrans_segments.into()),
        ]);
        Some(Draft { code: 207, sentence, fix: fix.to_owned(), heal: None, evidence, by: None })
    }
}

/// LB209: after a pause the congestion window is halved for each retransmission timeout that fits
/// into it (RFC 2861, RFC 5681 section 4.1; `tcp_slow_start_after_idle`), and the next bytes wait.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// The window before the current pause.
    paused: Option<Pause>,
    count: u32,
    /// The window before and after the last restart.
    from: u32,
    to: u32,
    /// Round trips that all restarts have cost.
    trips: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    window: u32,
    again: u32,
}

impl Restarts {
    /// Adds the interval between two samples.
    pub(super) fn add(&mut self, before: &Seen, after: &Seen, name: Option<&str>) -> Option<Draft> {
        let (from, to) = (before.info(), after.info());
        if before.rests() {
            let (window, again) = (from.cwnd_segments, from.total_retrans_segments);
            self.paused = Some(Pause { window, again });
        }
        let pause = self.paused.filter(|_| !after.rests())?;
        self.paused = None;
        // Segments that it wanted to send, and could not at once.
        let mss = u64::from(to.snd_mss.max(1));
        let written = u64::from(to.unacked_segments) + u64::from(to.notsent_bytes?) / mss;
        let waits = written > u64::from(to.cwnd_segments) || to.bytes_acked > from.bytes_acked;
        let fell = to.cwnd_segments < pause.window - pause.window / 4;
        // bbr and its variants continue at the known rate, and reduce the window for other reasons.
        let keeps = name.is_none_or(|name| name.contains("bbr"));
        if !fell || !waits || keeps || to.total_retrans_segments != pause.again {
            return None;
        }
        self.count = self.count.saturating_add(1);
        (self.from, self.to) = (pause.window, to.cwnd_segments);
        self.trips = self.trips.saturating_add((self.from / self.to.max(1)).max(2).ilog2());
        self.judge(after)
    }

    fn judge(&self, now: &Seen) -> Option<Draft> {
        const FEWEST: u32 = 3;
        /// On a shorter path the window soon recovers, microseconds.
        const SHORTEST_US: u32 = 20_000;
        let rtt = now.info().rtt_us;
        if self.count < FEWEST || rtt < SHORTEST_US {
            return None;
        }
        let lost_us = rtt.saturating_mul(self.trips);
        let sentence = format!(
            "the congestion window fell after a pause {} times, at last from {} to {} segments, \
             and had to grow again while bytes waited: about {} for it so far, at a round trip of \
             {}",
            self.count,
            text::count(self.from.into()),
            text::count(self.to.into()),
            figures::microseconds(lost_us),
            figures::microseconds(rtt),
        );
        let fix = "Set net.ipv4.tcp_slow_start_after_idle to 0 at the sender, or use bbr, which \
                   continues at the known rate.";
        let evidence = figures::evidence([
            ("restarts", self.count.into()),
            ("window_before_segments", self.from.into()),
            ("window_after_segments", self.to.into()),
            ("lost_round_trips", self.trips.into()),
            ("rtt_us", rtt.into()),
        ]);
        Some(Draft { code: 209, sentence, fix: fix.to_owned(), heal: None, evidence, by: None })
    }
}
