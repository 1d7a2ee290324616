//! What limited a sender, and for how long.
//!
//! The kernel's own clocks (`tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`) explain a
//! part of an interval between two samples:
//!
//! - nothing unacknowledged: the application;
//! - the clocks of the peer's window and of the send buffer: these two.
//!
//! The rest is time with unacknowledged data. Each of the two samples accounts for half of it:
//!
//! | at the sample | limited by |
//! |---|---|
//! | a segment waits to be sent, the bytes in flight fill the congestion window | congestion window |
//! | it waits, the bytes in flight fill the peer's window | receive window |
//! | it waits, neither window is full, and the flow is as fast as its pacing rate | pacing |
//! | it waits, none of these, and the program does not wait for space in the send buffer | application |
//! | it waits, and none of these | unknown |
//! | nothing waits, and the program waits for space, or the send buffer is full | send buffer |
//! | nothing waits, and the program does not wait, or there is space | application |
//! | nothing waits, and too little is known about the buffer | unknown |
//!
//! A flow that ran out of data in every round trip also counts as "nothing waits", even if a
//! segment waits now: a larger window would not have sent more. The kernel marks what it sends
//! after running out (`tcpi_delivery_rate_app_limited`); a mark at both samples shows such a flow.
//! Without the mark, samples at the same interval as the program's writes would always see the same
//! moment.
//!
//! The clock of the send buffer alone would miss cases. It runs only while everything is sent and
//! the congestion window is not full. With a small buffer cubic and reno send bursts that fill the
//! window for a moment, and the clock stays 0.
//!
//! The kernel wakes a waiting program when a third of the buffer is free. Between that and a full
//! buffer the fill does not show whether a program waits. That time is unknown, unless the buffer
//! was full at the other sample or its clock ran.
//!
//! bbr paces everything it sends, and allows twice as many bytes in flight as it needs. If nothing
//! else limits the flow, its bytes in flight do not fill the window: that time is pacing, even if
//! the pacing rate follows from the path's rate. Loss does not reduce the window as it does for
//! cubic and reno.

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Duration;

use super::{State, TcpInfo};

/// What limited a flow in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The program had nothing to send.
    Application,
    /// Our send buffer was full, with all of it in flight.
    SendBuffer,
    /// The peer's receive window.
    ReceiveWindow,
    /// The congestion window: what the algorithm allows to be in flight.
    CongestionWindow,
    /// The pacing rate, set by the algorithm or by `SO_MAX_PACING_RATE`, with no window full.
    Pacing,
    /// Not known: the samples do not explain it, or contradict each other.
    Unknown,
}

impl LimitedBy {
    /// All variants, in the order of [`Limits::shares`].
    pub const ALL: [Self; 6] = [
        Self::Application,
        Self::SendBuffer,
        Self::ReceiveWindow,
        Self::CongestionWindow,
        Self::Pacing,
        Self::Unknown,
    ];
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Application => "application",
            Self::SendBuffer => "send buffer",
            Self::ReceiveWindow => "receive window",
            Self::CongestionWindow => "congestion window",
            Self::Pacing => "pacing",
            Self::Unknown => "unknown",
        })
    }
}

/// A sample of a sending socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `TCP_INFO`.
    pub info: TcpInfo,
    /// The size of its send buffer, bytes: `SO_SNDBUF`, or `SK_MEMINFO_SNDBUF` of `sock_diag(7)`.
    ///
    /// The kernel autotunes a buffer that is not locked (`SO_BUF_LOCK`), so its size has to be read
    /// with each sample. A locked buffer keeps its size.
    pub send_buffer: Option<u32>,
    /// The bytes in it, with overhead, as its size is counted: `SK_MEMINFO_WMEM_QUEUED` of
    /// `SO_MEMINFO` or `sock_diag(7)`. Without it the fill is estimated from the bytes in flight,
    /// or unknown if they do not decide it.
    pub queued: Option<u32>,
}

impl From<TcpInfo> for Moment {
    /// With nothing known of the send buffer.
    fn from(info: TcpInfo) -> Self {
        Self { info, send_buffer: None, queued: None }
    }
}

/// Time under each limit, summed over consecutive samples of sending sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    times: [Duration; 6],
}

impl Limits {
    /// Adds the interval between two samples of one socket, `elapsed` apart.
    ///
    /// `waiting` is how long the program waited for space in the send buffer in that interval: in
    /// `poll`, or in a write that blocked. It distinguishes a full buffer from an idle program
    /// better than anything the kernel reports. A write that only copies does not wait. `None` if
    /// it is not known, as for another program's socket.
    ///
    /// Intervals should be short, a tenth of a second or a few round trips: time outside the clocks
    /// is judged by the two samples alone. An interval counts as [`LimitedBy::Unknown`] if clocks
    /// or counters run backwards, if the connection is gone at its end, or if the kernel lacks the
    /// clocks (before Linux 4.10).
    pub fn add(
        &mut self,
        before: &Moment,
        after: &Moment,
        elapsed: Duration,
        waiting: Option<Duration>,
    ) {
        let Some(clocks) = Clocks::between(&before.info, &after.info, elapsed) else {
            return self.give(LimitedBy::Unknown, elapsed);
        };
        self.give(LimitedBy::Application, clocks.idle);
        self.give(LimitedBy::ReceiveWindow, clocks.window);
        self.give(LimitedBy::SendBuffer, clocks.buffer);
        let mut flow = Flow::between(before, after, elapsed, waiting);
        flow.was_full |= !clocks.buffer.is_zero();
        let half = clocks.rest / 2;
        self.judge(&flow, before, half);
        self.judge(&flow, after, clocks.rest - half);
    }

    /// The time under each limit, in the order of [`LimitedBy::ALL`].
    #[must_use]
    pub fn times(&self) -> [Duration; 6] {
        self.times
    }

    /// The share of time under each limit, 0 to 1, in the order of [`LimitedBy::ALL`]. All are 0
    /// before the first interval.
    #[must_use]
    pub fn shares(&self) -> [f64; 6] {
        let seconds = self.times.map(|time| time.as_secs_f64());
        let total = seconds.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        seconds.map(|time| time / total)
    }

    /// The limit with the largest share; `None` before the first interval.
    #[must_use]
    pub fn first(&self) -> Option<(LimitedBy, f64)> {
        let shares = LimitedBy::ALL.into_iter().zip(self.shares());
        shares.filter(|(_, share)| *share > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Assigns time with unacknowledged data that no clock covers, by what the sample shows.
    fn judge(&mut self, flow: &Flow, moment: &Moment, time: Duration) {
        let Some(waits) = a_segment_waits(&moment.info) else {
            return self.give(LimitedBy::Unknown, time);
        };
        if waits && !flow.ran_out(&moment.info) {
            return self.give(flow.held_by(&moment.info), time);
        }
        if let Some(share) = flow.waiting {
            let waited = part(time, share);
            // A program that waits although there is space: one of the two is wrong.
            let by = if flow.had_room { LimitedBy::Unknown } else { LimitedBy::SendBuffer };
            self.give(by, waited);
            return self.give(LimitedBy::Application, time - waited);
        }
        let by = match Fill::of(moment) {
            Some(Fill::Full) => LimitedBy::SendBuffer,
            Some(Fill::Between) if flow.was_full => LimitedBy::SendBuffer,
            Some(Fill::Room) => LimitedBy::Application,
            Some(Fill::Between) | None => LimitedBy::Unknown,
        };
        self.give(by, time);
    }

    fn give(&mut self, to: LimitedBy, time: Duration) {
        let sum = &mut self.times[to as usize];
        *sum = sum.saturating_add(time);
    }
}

impl AddAssign for Limits {
    fn add_assign(&mut self, other: Self) {
        for (to, time) in LimitedBy::ALL.into_iter().zip(other.times) {
            self.give(to, time);
        }
    }
}

impl Sum for Limits {
    fn sum<I: Iterator<Item = Self>>(limits: I) -> Self {
        let mut sum = Self::default();
        limits.for_each(|limits| sum += limits);
        sum
    }
}

/// An interval divided by the kernel's clocks.
struct Clocks {
    idle: Duration,
    window: Duration,
    buffer: Duration,
    rest: Duration,
}

impl Clocks {
    /// `None` if the clocks do not exist or contradict each other. They count ticks of up to 10 ms,
    /// so one may exceed the interval by as much: it is capped.
    fn between(before: &TcpInfo, after: &TcpInfo, elapsed: Duration) -> Option<Self> {
        let grown = |field: fn(&TcpInfo) -> Option<u64>| {
            let grown = field(after)?.checked_sub(field(before)?)?;
            Some(Duration::from_micros(grown).min(elapsed))
        };
        if after.state == State::Close {
            return None;
        }
        let busy = grown(|info| info.busy_us)?;
        let window = grown(|info| info.rwnd_limited_us)?;
        let buffer = grown(|info| info.sndbuf_limited_us)?.min(elapsed - window);
        let busy = busy.max(window + buffer);
        Some(Self { idle: elapsed - busy, window, buffer, rest: busy - window - buffer })
    }
}

/// What is known about a whole interval.
struct Flow {
    /// The kernel marked both samples: it ran out of data at most one round trip before each.
    marked: bool,
    elapsed: Duration,
    /// The share of the interval in which the program waited for space.
    waiting: Option<f64>,
    /// The send buffer had space for a waiting program at both samples.
    had_room: bool,
    /// The send buffer was full at a sample, or in between.
    was_full: bool,
    pace: Pace,
}

/// How the bytes sent in an interval compare with the pacing rate.
#[derive(PartialEq, Eq)]
enum Pace {
    /// As many as `SO_MAX_PACING_RATE` allows.
    Capped,
    /// About as many as the algorithm's rate.
    Kept,
    /// Fewer: something else is slower.
    Slower,
    /// Too few fields.
    Unknown,
}

impl Flow {
    fn between(
        before: &Moment,
        after: &Moment,
        elapsed: Duration,
        waiting: Option<Duration>,
    ) -> Self {
        let marked = |moment: &Moment| moment.info.delivery_rate_app_limited == Some(true);
        let fills = [Fill::of(before), Fill::of(after)];
        let whole = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Self {
            marked: marked(before) && marked(after),
            elapsed,
            waiting: waiting.map(|waiting| (waiting.as_secs_f64() / whole).min(1.0)),
            had_room: fills == [Some(Fill::Room); 2],
            was_full: fills.contains(&Some(Fill::Full)),
            pace: Pace::between(&before.info, &after.info, whole),
        }
    }

    /// Whether the flow ran out of data repeatedly. If the round trip is longer than the interval,
    /// both marks may come from one occasion, as in the first round trips of every connection. Then
    /// a full congestion window takes precedence.
    fn ran_out(&self, info: &TcpInfo) -> bool {
        let again = Duration::from_micros(info.rtt_us.into()) <= self.elapsed;
        self.marked && (again || self.held_by(info) != LimitedBy::CongestionWindow)
    }

    /// What keeps a waiting segment from being sent.
    fn held_by(&self, info: &TcpInfo) -> LimitedBy {
        let mss = u64::from(info.snd_mss);
        let congestion = u64::from(info.cwnd_segments) * mss;
        let in_pipe = u64::from(segments_in_pipe(info)) * mss;
        if self.pace == Pace::Capped {
            LimitedBy::Pacing
        } else if self.is_filled(congestion, in_pipe) {
            LimitedBy::CongestionWindow
        } else if info.snd_wnd.is_some_and(|window| self.is_filled(window.into(), in_flight(info)))
        {
            LimitedBy::ReceiveWindow
        } else if self.pace == Pace::Kept {
            LimitedBy::Pacing
        } else if self.pace == Pace::Slower && self.program_did_not_wait() {
            // The waiting segment is about to be sent: the program writes less than could be sent.
            LimitedBy::Application
        } else {
            LimitedBy::Unknown
        }
    }

    fn program_did_not_wait(&self) -> bool {
        self.waiting.map_or(self.had_room, |share| share < 0.05)
    }

    /// Whether `in_flight` bytes fill a window.
    ///
    /// The kernel delays a segment until it can send a long one, of 64 KiB or a third of the window
    /// (`tcp_tso_should_defer`). If pacing already explains the rate, a window must be fuller than
    /// that to explain it better.
    fn is_filled(&self, window: u64, in_flight: u64) -> bool {
        const LONGEST: u64 = 65_536;
        let room = window.saturating_sub(in_flight);
        let enough = if self.pace == Pace::Kept { window / 8 } else { (window / 3).min(LONGEST) };
        room <= enough
    }
}

impl Pace {
    fn between(before: &TcpInfo, after: &TcpInfo, seconds: f64) -> Self {
        let sent = after.bytes_sent.zip(before.bytes_sent);
        let (Some(sent), Some((from, to))) = (
            sent.and_then(|(after, before)| after.checked_sub(before)),
            before.pacing_rate.zip(after.pacing_rate),
        ) else {
            return Self::Unknown;
        };
        let rate = sent as f64 / seconds;
        // The pacing rate may have been anything between the two: bbr varies it by a quarter.
        let kept = rate >= 0.85 * from.min(to) as f64;
        match after.max_pacing_rate {
            Some(cap) if cap < u64::MAX && kept && from >= cap && to >= cap => Self::Capped,
            _ if kept => Self::Kept,
            _ => Self::Slower,
        }
    }
}

/// Whether a full segment is written and not sent. Less than a segment may wait because of Nagle's
/// algorithm, and the kernel's own check ignores it too (`tcp_rate_check_app_limited`).
fn a_segment_waits(info: &TcpInfo) -> Option<bool> {
    info.notsent_bytes.map(|bytes| bytes >= info.snd_mss.max(1))
}

/// The fill of a send buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// At least a third is free: the kernel would have woken a waiting program
    /// (`sk_stream_min_wspace`).
    Room,
    /// The kernel does not yet wake a waiting program, and a running one may still write.
    Between,
    /// A write blocks (`sk_stream_memory_free`).
    Full,
}

impl Fill {
    fn of(moment: &Moment) -> Option<Self> {
        let info = &moment.info;
        let size = u64::from(moment.send_buffer?);
        let of = |queued: u64| match () {
            () if queued >= size => Self::Full,
            () if queued > size * 2 / 3 => Self::Between,
            () => Self::Room,
        };
        if let Some(queued) = moment.queued {
            return Some(of(queued.into()));
        }
        // Long segments have an eighth of overhead in the buffer, short ones much more.
        let bytes = in_flight(info).saturating_add(info.notsent_bytes?.into());
        let least = of(bytes.saturating_add(bytes / 8));
        let most = bytes.saturating_mul(2).saturating_add(u64::from(info.unacked_segments) * 1280);
        Some(least).filter(|least| *least != Self::Room || of(most) == Self::Room)
    }
}

/// Bytes sent and not cumulatively acknowledged. They occupy our buffer and the peer's window,
/// including those that arrived out of order and those that are lost.
fn in_flight(info: &TcpInfo) -> u64 {
    let sent = info.bytes_sent.zip(info.bytes_retrans).zip(info.bytes_acked);
    let known = sent.map(|((sent, again), acked)| sent.saturating_sub(again).saturating_sub(acked));
    known.unwrap_or_else(|| u64::from(info.unacked_segments) * u64::from(info.snd_mss))
}

/// `tcp_packets_in_flight`: what counts against the congestion window.
fn segments_in_pipe(info: &TcpInfo) -> u32 {
    let left = info.sacked_segments.saturating_add(info.lost_segments);
    info.unacked_segments.saturating_sub(left).saturating_add(info.retrans_segments)
}

fn part(time: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * share).map_or(time, |part| part.min(time))
}
