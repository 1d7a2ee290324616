//! What held a sender back, in time.
//!
//! The kernel's own clocks (`tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`) explain a
//! part of an interval between two samples:
//!
//! - nothing outstanding: the application;
//! - the clock of the peer's window, and that of the send buffer: these.
//!
//! The rest is time with data outstanding. Each of the two samples speaks for half of it:
//!
//! | at the sample | held back by |
//! |---|---|
//! | a segment waits to be sent, the flight fills the congestion window | congestion window |
//! | it waits, the flight fills the peer's window | receive window |
//! | it waits, neither is full, and the flow goes as fast as it is paced | pacing |
//! | it waits, none of these, and the program does not wait for room | application |
//! | it waits, and none of these | unknown |
//! | nothing waits, and the program waits for room, or the send buffer is full | send buffer |
//! | nothing waits, and the program does not, or there is room | application |
//! | nothing waits, and of the buffer too little is known | unknown |
//!
//! "Nothing waits" is also a flow that ran out of data in every round trip, though a segment waits
//! just now: a larger window could not have carried more. The kernel marks what it sends after it
//! ran out (`tcpi_delivery_rate_app_limited`), and a mark at both samples is such a flow. Without
//! it, a program that writes as regularly as it is sampled would be seen at the same moment each
//! time.
//!
//! The clock of the send buffer alone would miss cases. It runs only where all is sent while the
//! congestion window has room; cubic and reno behind a small buffer send in bursts that fill their
//! window for a moment, and it stays 0.
//!
//! A program that waits is woken when a third of the buffer is free. Between that and a full buffer
//! the fill alone does not tell whether one waits: there it is unknown, but where the buffer was full
//! at the other sample, or its clock ran.
//!
//! bbr spaces out all that it sends and allows itself twice as much in flight as it needs. On a path
//! where nothing else binds its flight does not fill its window: that time is pacing, also where the
//! path's own rate is behind the pace. Loss does not narrow it as it does cubic and reno.

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;
use std::time::Duration;

use super::{State, TcpInfo};

/// What held a flow back in an interval.
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
    /// The rate at which packets are spaced out, by the algorithm or by `SO_MAX_PACING_RATE`, no
    /// window being full.
    Pacing,
    /// What is known does not explain it, or contradicts itself.
    Unknown,
}

impl LimitedBy {
    /// All of them, in the order of [`Limits::shares`].
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

/// What is known of a sending socket at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `TCP_INFO`.
    pub info: TcpInfo,
    /// The size of its send buffer, bytes: `SO_SNDBUF`, or `SK_MEMINFO_SNDBUF` of `sock_diag(7)`.
    ///
    /// The kernel goes on sizing a buffer that is not locked (`SO_BUF_LOCK`): of such a one only its
    /// size at this moment will do. What a locked one was granted once stays true.
    pub send_buffer: Option<u32>,
    /// What lies in it, bytes, counted as its size is, overhead included:
    /// `SK_MEMINFO_WMEM_QUEUED`, of `SO_MEMINFO` or `sock_diag(7)`. Without it the fill is estimated
    /// from the bytes in flight, and left open where they do not tell.
    pub queued: Option<u32>,
}

impl From<TcpInfo> for Moment {
    /// With nothing known of the send buffer.
    fn from(info: TcpInfo) -> Self {
        Self { info, send_buffer: None, queued: None }
    }
}

/// Time spent under each limit, added up from consecutive samples of sending sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    times: [Duration; 6],
}

impl Limits {
    /// Adds the interval between two samples of one socket, `elapsed` apart.
    ///
    /// `waiting` is the time in it that the program spent waiting for room in the send buffer: in a
    /// poll for it, or in a write that waited. It tells a full buffer from an idle program better
    /// than all that the kernel says. A write that only copies does not wait. `None` where it is
    /// not known, as of another's socket.
    ///
    /// Intervals should be short, of a tenth of a second or a few round trips: what is in no clock is
    /// judged by their two ends. An interval whose clocks or counters run backwards, or at whose end
    /// the connection is gone, and all of them on a kernel without the clocks (before Linux 4.10),
    /// are [`LimitedBy::Unknown`].
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
    /// before any interval was added.
    #[must_use]
    pub fn shares(&self) -> [f64; 6] {
        let seconds = self.times.map(|time| time.as_secs_f64());
        let total = seconds.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        seconds.map(|time| time / total)
    }

    /// The limit with the largest share; `None` before any interval was added.
    #[must_use]
    pub fn first(&self) -> Option<(LimitedBy, f64)> {
        let shares = LimitedBy::ALL.into_iter().zip(self.shares());
        shares.filter(|(_, share)| *share > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Gives time with data outstanding, of which no clock tells, to what the moment shows.
    fn judge(&mut self, flow: &Flow, moment: &Moment, time: Duration) {
        let Some(waits) = a_segment_waits(&moment.info) else {
            return self.give(LimitedBy::Unknown, time);
        };
        if waits && !flow.ran_out(&moment.info) {
            return self.give(flow.held_by(&moment.info), time);
        }
        if let Some(share) = flow.waiting {
            let waited = part(time, share);
            // A program that waits for room that is there: one of both is wrong.
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

/// What the kernel's clocks say of an interval; together they are the interval.
struct Clocks {
    idle: Duration,
    window: Duration,
    buffer: Duration,
    rest: Duration,
}

impl Clocks {
    /// `None` where they do not exist, or contradict each other. They count in the kernel's ticks, of
    /// up to 10 ms, so that one may be ahead of the interval by as much: it is cut.
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

/// What is known of a whole interval.
struct Flow {
    /// The kernel marked both ends: it ran out of data no longer than a round trip before each.
    marked: bool,
    elapsed: Duration,
    /// The share of the interval in which the program waited for room.
    waiting: Option<f64>,
    /// The send buffer had room for a waiting program at both ends.
    had_room: bool,
    /// It was full in between, or at an end.
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

    /// Whether it ran out of data again and again. Over a round trip that is longer than the interval
    /// both marks may be of one time, as in the first round trips of every connection: where the
    /// congestion window is full, that is believed.
    fn ran_out(&self, info: &TcpInfo) -> bool {
        let again = Duration::from_micros(info.rtt_us.into()) <= self.elapsed;
        self.marked && (again || self.held_by(info) != LimitedBy::CongestionWindow)
    }

    /// What keeps a segment that waits from being sent.
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
            // What waits is about to leave: the program writes less than could be sent.
            LimitedBy::Application
        } else {
            LimitedBy::Unknown
        }
    }

    fn program_did_not_wait(&self) -> bool {
        self.waiting.map_or(self.had_room, |share| share < 0.05)
    }

    /// Whether a window of so many bytes is filled by so many in flight.
    ///
    /// The kernel waits with a segment until it can send a long one, of 64 KiB or a third of the
    /// window (`tcp_tso_should_defer`). Where the pace explains the rate, a window must be fuller than
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
        // The rate may have been any between both: bbr changes it by a quarter up and down.
        let kept = rate >= 0.85 * from.min(to) as f64;
        match after.max_pacing_rate {
            Some(cap) if cap < u64::MAX && kept && from >= cap && to >= cap => Self::Capped,
            _ if kept => Self::Kept,
            _ => Self::Slower,
        }
    }
}

/// Whether a full segment is written and not sent. Less than that may wait for more by Nagle's rule,
/// and is no full segment to the kernel's own question either (`tcp_rate_check_app_limited`).
fn a_segment_waits(info: &TcpInfo) -> Option<bool> {
    info.notsent_bytes.map(|bytes| bytes >= info.snd_mss.max(1))
}

/// The fill of a send buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// A program that waited would have been woken: a third is free (`sk_stream_min_wspace`).
    Room,
    /// One that waits is not yet woken, one that does not may still write.
    Between,
    /// A write waits (`sk_stream_memory_free`).
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
        // Long segments lie in the buffer with an eighth of overhead, short ones with much more.
        let bytes = in_flight(info).saturating_add(info.notsent_bytes?.into());
        let least = of(bytes.saturating_add(bytes / 8));
        let most = bytes.saturating_mul(2).saturating_add(u64::from(info.unacked_segments) * 1280);
        Some(least).filter(|least| *least != Self::Room || of(most) == Self::Room)
    }
}

/// Bytes sent and not cumulatively acknowledged: they lie in our buffer and count against the peer's
/// window, also those that arrived out of order and those that are lost.
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
