//! Samples of one flow, summed over a time long enough to judge.

use std::time::Duration;

use lastbyte_core::sample::{Limits, Moment, TcpInfo};

use super::super::figures;
use crate::event::Sample;
use crate::facts::round_trip_us;

/// A flow is judged after this time, nanoseconds. Slow start over 200 ms takes about as long;
/// nobody waits for a shorter transfer.
const SHORTEST_NS: u64 = 3_000_000_000;
/// And after this many round trips: growing buffers and windows double in each.
const ROUND_TRIPS: u64 = 10;
/// But after no more than this, however long a round trip is, nanoseconds.
const LONGEST_NS: u64 = 20_000_000_000;
/// Fewer intervals show too little.
const FEWEST: u32 = 5;
/// After a pause of this length a new window begins, nanoseconds.
const PAUSE_NS: u64 = 1_000_000_000;

/// A parsed sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at_ns: u64,
    pub(super) moment: Moment,
    pub(super) receive_queue: u32,
    pub(super) receive_buffer: Option<u32>,
    pub(super) send_queue: u32,
}

impl Seen {
    /// `None` without `tcp_info`.
    pub(super) fn of(at_ns: u64, sample: &Sample) -> Option<Self> {
        let moment = Moment {
            info: sample.info.parse()?,
            send_buffer: sample.send_buffer,
            queued: sample.queued,
        };
        Some(Self {
            at_ns,
            moment,
            receive_queue: sample.receive_queue,
            receive_buffer: sample.receive_buffer,
            send_queue: sample.send_queue,
        })
    }

    pub(super) fn info(&self) -> &TcpInfo {
        &self.moment.info
    }

    /// Whether nothing is in flight in either direction.
    pub(super) fn rests(&self) -> bool {
        let info = self.info();
        info.unacked_segments == 0
            && info.notsent_bytes.unwrap_or_default() == 0
            && self.receive_queue == 0
    }

    /// Whether it may still be receiving, although there is nothing to read at this moment: it
    /// received much, the last of it just now.
    pub(super) fn may_receive(&self) -> bool {
        const MUCH: u64 = 16 * 1024;
        const MOMENT_MS: u32 = 200;
        let info = self.info();
        info.bytes_received.is_some_and(|bytes| bytes >= MUCH)
            && info.last_data_received_ms <= MOMENT_MS
    }

    /// Whether bytes wait behind a window into which no segment fits.
    pub(super) fn is_shut_out(&self) -> bool {
        let info = self.info();
        let waits = info.notsent_bytes.is_some_and(|bytes| bytes > 0);
        waits && info.unacked_segments <= 1 && info.snd_wnd.is_some_and(|room| room < info.snd_mss)
    }

    /// The round trip without queueing and without delayed acknowledgements if that is known,
    /// microseconds.
    pub(super) fn trip_us(&self) -> u32 {
        round_trip_us(self.info())
    }

    /// Whether there is a queue on the path: the round trip exceeds the shortest one by more than
    /// bursts and busy machines explain.
    pub(super) fn feels_queue(&self) -> bool {
        const BURSTS_US: u32 = 2_000;
        let info = self.info();
        let Some(least) = info.min_rtt_us.filter(|least| *least > 0) else { return true };
        info.rtt_us > least.saturating_add(least / 4).saturating_add(BURSTS_US)
    }

    /// Whether less than a segment waits for an acknowledgement that is late (RFC 9293 section
    /// 3.7.4, RFC 1122 section 4.2.3.2).
    pub(super) fn waits_for_a_late_ack(&self) -> bool {
        /// The receiver may delay an acknowledgement by 40 ms or more; a busy receiver is a few
        /// milliseconds late anyway.
        const LATE_MS: u32 = 10;
        /// On a longer path a delayed acknowledgement looks like one that is in flight.
        const LONGEST_US: u32 = 10_000;
        let info = self.info();
        let waits = info.notsent_bytes.is_some_and(|bytes| bytes > 0 && bytes < info.snd_mss);
        let is_whole = info.lost_segments == 0 && info.retrans_segments == 0;
        let has_room = info.snd_wnd.is_none_or(|room| room / 2 >= info.snd_mss);
        let late = info.last_data_sent_ms >= (self.trip_us() / 1_000).saturating_add(LATE_MS);
        waits
            && info.unacked_segments > 0
            && info.unacked_segments <= 2
            && self.trip_us() < LONGEST_US
            && is_whole
            && has_room
            && late
    }

    /// Whether less than a segment is unsent.
    fn all_is_sent(&self) -> bool {
        self.info().notsent_bytes.is_some_and(|bytes| bytes < self.info().snd_mss.max(1))
    }

    /// The used share of the send buffer.
    fn fill(&self) -> Option<f64> {
        let size = self.moment.send_buffer.filter(|size| *size > 0)?;
        Some(f64::from(self.moment.queued?) / f64::from(size))
    }

    /// Whether the send buffer is so full that a write waits, although the peer's window and the
    /// congestion window are open.
    fn is_starved(&self) -> bool {
        let info = self.info();
        let room = info.cwnd_segments - info.cwnd_segments / 4;
        self.is_overfull() && self.all_is_sent() && info.unacked_segments < room
    }

    /// Whether the send buffer is so full that a write waits (`sk_stream_memory_free`).
    fn is_overfull(&self) -> bool {
        self.fill().is_some_and(|fill| fill >= 1.0)
    }

    /// Whether unread bytes fill a good part of the receive buffer.
    fn is_unread(&self) -> bool {
        self.receive_buffer.is_some_and(|size| size > 0 && self.receive_queue >= size / 4)
    }
}

/// Totals of a flow over a time. Bytes are payload, except for a FIN.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// How long it is.
    pub(super) ns: u64,
    /// The number of intervals between samples.
    pub(super) intervals: u32,
    /// What limited the sending direction.
    pub(super) limits: Limits,
    pub(super) acked: u64,
    pub(super) received: u64,
    /// Bytes that the program read.
    pub(super) read: u64,
    /// Intervals in which bytes were acked, and those in which bytes were received.
    pub(super) acked_in: u32,
    pub(super) received_in: u32,
    /// Retransmitted segments; those lost while there was no queue; and intervals with any.
    pub(super) again: u64,
    pub(super) again_unqueued: u64,
    pub(super) again_in: u32,
    /// Intervals that ended with a queue on the path.
    pub(super) queue_in: u32,
    /// Intervals that ended with bytes waiting for a closed window.
    pub(super) shut_out_in: u32,
    /// Intervals that ended with a small segment waiting for a late acknowledgement.
    pub(super) late_ack_in: u32,
    /// Intervals that ended with unread bytes, and those in which the program read some.
    pub(super) unread_in: u32,
    pub(super) read_in: u32,
    /// Intervals that ended with all bytes sent and the send buffer so full that a waiting program
    /// was not woken yet; and the largest used share.
    pub(super) full_in: u32,
    pub(super) fullest: f64,
    /// Intervals that ended with the send buffer so full that a write waited; and those of them
    /// with all bytes sent and open windows.
    pub(super) overfull_in: u32,
    pub(super) starved_in: u32,
    /// Intervals that ended with all bytes sent.
    pub(super) all_sent_in: u32,
    /// The fastest delivery rate observed, bytes per second.
    pub(super) delivered_most: u64,
    /// The peer's window: as it was first, the smallest, the largest.
    pub(super) peer_first: Option<u32>,
    pub(super) peer_least: u32,
    pub(super) peer_most: u32,
    /// Our own window: the largest that was offered.
    pub(super) offered_most: u32,
    /// The most that was in flight, bytes.
    pub(super) flight_most: u64,
    /// The send buffer: the smallest and largest size.
    pub(super) buffer_least: u32,
    pub(super) buffer_most: u32,
    /// How long nothing has been in flight.
    rests_ns: u64,
}

impl Window {
    /// Adds the interval between two samples; `false` if the clock or a counter ran backwards.
    pub(super) fn add(&mut self, before: &Seen, after: &Seen) -> bool {
        let Some(ns) = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0) else {
            return false;
        };
        let Some(grown) = Grown::between(before, after) else { return false };
        let rests = before.rests() && after.rests() && grown.acked == 0 && grown.received == 0;
        self.rests_ns = if rests { self.rests_ns.saturating_add(ns) } else { 0 };
        if rests && (self.intervals == 0 || self.rests_ns >= PAUSE_NS) {
            *self = Self { rests_ns: self.rests_ns, ..Self::default() };
            return true;
        }
        self.ns = self.ns.saturating_add(ns);
        self.intervals = self.intervals.saturating_add(1);
        self.limits.add(&before.moment, &after.moment, Duration::from_nanos(ns), None);
        self.count(&grown, before, after);
        self.sizes(after);
        true
    }

    /// Whether it is long enough to be judged.
    pub(super) fn is_whole(&self, now: &Seen) -> bool {
        let trips = u64::from(now.info().rtt_us) * 1_000 * ROUND_TRIPS;
        let enough = trips.clamp(SHORTEST_NS, LONGEST_NS);
        self.ns >= enough && self.intervals >= FEWEST
    }

    /// A number of intervals, as a share of all.
    pub(super) fn share_of(&self, intervals: u32) -> f64 {
        f64::from(intervals) / f64::from(self.intervals.max(1))
    }

    /// Bytes acked per second.
    pub(super) fn rate(&self) -> f64 {
        figures::per_second(self.acked, self.ns)
    }

    /// Bytes received per second.
    pub(super) fn receive_rate(&self) -> f64 {
        figures::per_second(self.received, self.ns)
    }

    fn count(&mut self, grown: &Grown, before: &Seen, after: &Seen) {
        self.acked = self.acked.saturating_add(grown.acked);
        self.received = self.received.saturating_add(grown.received);
        let there = grown.received.saturating_add(before.receive_queue.into());
        let read = there.saturating_sub(after.receive_queue.into());
        self.read = self.read.saturating_add(read);
        self.read_in += u32::from(read > 0);
        self.acked_in += u32::from(grown.acked > 0);
        self.received_in += u32::from(grown.received > 0);
        self.again = self.again.saturating_add(grown.again);
        self.again_in += u32::from(grown.again > 0);
        if !before.feels_queue() && !after.feels_queue() {
            self.again_unqueued = self.again_unqueued.saturating_add(grown.again);
        }
        self.queue_in += u32::from(after.feels_queue());
        self.shut_out_in += u32::from(after.is_shut_out());
        self.late_ack_in += u32::from(after.waits_for_a_late_ack());
        self.unread_in += u32::from(after.is_unread());
    }

    fn sizes(&mut self, after: &Seen) {
        /// A program that waits for room is woken when a third is free (`sk_stream_min_wspace`).
        const WOKEN: f64 = 2.0 / 3.0;
        if let Some(fill) = after.fill() {
            self.full_in += u32::from(fill > WOKEN && after.all_is_sent());
            self.fullest = self.fullest.max(fill);
        }
        self.all_sent_in += u32::from(after.all_is_sent());
        self.overfull_in += u32::from(after.is_overfull());
        self.starved_in += u32::from(after.is_starved());
        let info = after.info();
        self.delivered_most = self.delivered_most.max(info.delivery_rate.unwrap_or_default());
        self.offered_most = self.offered_most.max(info.rcv_wnd.unwrap_or_default());
        if let Some(room) = info.snd_wnd {
            let is_first = self.peer_first.is_none();
            self.peer_first = self.peer_first.or(Some(room));
            self.peer_least = if is_first { room } else { self.peer_least.min(room) };
            self.peer_most = self.peer_most.max(room);
        }
        if let Some(size) = after.moment.send_buffer {
            let is_first = self.buffer_most == 0;
            self.buffer_least = if is_first { size } else { self.buffer_least.min(size) };
            self.buffer_most = self.buffer_most.max(size);
        }
        let flight = u64::from(info.unacked_segments) * u64::from(info.snd_mss);
        self.flight_most = self.flight_most.max(flight);
    }
}

/// The growth of the counters.
struct Grown {
    acked: u64,
    received: u64,
    again: u64,
}

impl Grown {
    /// `None` if they are missing or ran backwards.
    fn between(before: &Seen, after: &Seen) -> Option<Self> {
        let (before, after) = (before.info(), after.info());
        let again = after.total_retrans_segments.checked_sub(before.total_retrans_segments)?;
        Some(Self {
            acked: after.bytes_acked?.checked_sub(before.bytes_acked?)?,
            received: after.bytes_received?.checked_sub(before.bytes_received?)?,
            again: again.into(),
        })
    }
}
