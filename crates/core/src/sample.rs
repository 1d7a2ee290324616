//! `struct tcp_info` read with care, and what held a flow back.
//!
//! The struct grows with the kernel (144 bytes in 4.4, 280 in 6.18): a field beyond the length that
//! this kernel returned is `None`, never zero.

use std::fmt;
use std::time::Duration;

/// TCP connection states, in the words of RFC 9293 section 3.3.2, by Linux's numbers
/// (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the states are the standard's own")]
pub enum State {
    Established,
    SynSent,
    SynRecv,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    /// A number this version does not know.
    Other(u8),
}

impl From<u8> for State {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynRecv,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Close,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            other => Self::Other(other),
        }
    }
}

/// What became of data in the SYN (TCP fast open, RFC 7413). It says nothing of bytes that were
/// sent after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FastOpen {
    /// None was sent, or nothing is known of it yet.
    Unused,
    /// The answer to the SYN acknowledged it. Also at the side that received it.
    Acked,
    /// No cookie of the peer was known: the SYN asked for one, and had no data.
    NoCookie,
    /// The peer took the SYN and not its data, which was sent again after the handshake.
    NotAcked,
    /// The SYN had to be sent again, the second time without data: it was lost, or something on the
    /// way drops a SYN with data.
    SynRetransmitted,
}

impl FastOpen {
    /// Of `tcpi_options` and the byte of bit fields that has `tcpi_fastopen_client_fail`
    /// (`enum tcp_fastopen_client_fail`), which is 0 before Linux 5.5.
    fn of(options: u8, fields: u8) -> Self {
        /// `TCPI_OPT_SYN_DATA`.
        const SYN_DATA: u8 = 32;
        // The two bits after the first one, counted from the end where compilers begin.
        let fail = if cfg!(target_endian = "big") { fields >> 5 } else { fields >> 1 } & 3;
        match fail {
            _ if options & SYN_DATA != 0 => Self::Acked,
            0 => Self::Unused,
            1 => Self::NoCookie,
            2 => Self::NotAcked,
            _ => Self::SynRetransmitted,
        }
    }
}

impl fmt::Display for FastOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unused => "unused",
            Self::Acked => "acked",
            Self::NoCookie => "no cookie",
            Self::NotAcked => "not acked",
            Self::SynRetransmitted => "SYN retransmitted",
        })
    }
}

/// What the kernel tells of one connection (`include/uapi/linux/tcp.h`). Times in microseconds,
/// rates in bytes per second, windows in bytes unless a field says segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// `tcpi_state`.
    pub state: State,
    /// `TCPI_OPT_SYN_DATA` of `tcpi_options`, and `tcpi_fastopen_client_fail`.
    pub fast_open: FastOpen,
    /// `tcpi_snd_mss`, bytes.
    pub snd_mss: u32,
    /// `tcpi_unacked`: segments in flight. Zeroed by a reset: no proof of delivery.
    pub unacked_segments: u32,
    /// `tcpi_rtt`: the smoothed round trip.
    pub rtt_us: u32,
    /// `tcpi_snd_cwnd`, segments.
    pub cwnd_segments: u32,
    /// `tcpi_total_retrans`, segments.
    pub total_retrans_segments: u32,
    /// `tcpi_pacing_rate`; `u64::MAX` where nothing paces.
    pub pacing_rate: Option<u64>,
    /// `tcpi_bytes_acked`: SYN (on the connecting side) and FIN count one each.
    pub bytes_acked: Option<u64>,
    /// `tcpi_bytes_received`: in order; the peer's FIN counts one.
    pub bytes_received: Option<u64>,
    /// `tcpi_notsent_bytes`.
    pub notsent_bytes: Option<u32>,
    /// `tcpi_min_rtt`.
    pub min_rtt_us: Option<u32>,
    /// `tcpi_delivery_rate`.
    pub delivery_rate: Option<u64>,
    /// `tcpi_busy_time`: with data outstanding.
    pub busy_us: Option<u64>,
    /// `tcpi_rwnd_limited`: held back by the peer's window.
    pub rwnd_limited_us: Option<u64>,
    /// `tcpi_sndbuf_limited`: held back by our send buffer. Misses cases: see [`LimitedBy`].
    pub sndbuf_limited_us: Option<u64>,
    /// `tcpi_bytes_sent`, retransmissions included.
    pub bytes_sent: Option<u64>,
    /// `tcpi_bytes_retrans`.
    pub bytes_retrans: Option<u64>,
    /// `tcpi_snd_wnd`: the peer's window as last advertised.
    pub snd_wnd: Option<u32>,
}

impl TcpInfo {
    /// Reads the bytes of a `TCP_INFO` answer; `None` when they are too few for the fields of
    /// Linux 2.6 (104 bytes).
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            state: State::from(*bytes.first()?),
            fast_open: FastOpen::of(*bytes.get(5)?, *bytes.get(7)?),
            snd_mss: u32_at(bytes, 16)?,
            unacked_segments: u32_at(bytes, 24)?,
            rtt_us: u32_at(bytes, 68)?,
            cwnd_segments: u32_at(bytes, 80)?,
            total_retrans_segments: u32_at(bytes, 100)?,
            pacing_rate: u64_at(bytes, 104),
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            notsent_bytes: u32_at(bytes, 144),
            min_rtt_us: u32_at(bytes, 148),
            delivery_rate: u64_at(bytes, 160),
            busy_us: u64_at(bytes, 168),
            rwnd_limited_us: u64_at(bytes, 176),
            sndbuf_limited_us: u64_at(bytes, 184),
            bytes_sent: u64_at(bytes, 200),
            bytes_retrans: u64_at(bytes, 208),
            snd_wnd: u32_at(bytes, 228),
        })
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset + 8)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

/// What held a flow back in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The program had nothing to send.
    Application,
    /// Our send buffer was full, and fixed: the kernel may not make it larger.
    SendBuffer,
    /// The peer's receive window.
    ReceiveWindow,
    /// The congestion window: what the algorithm allows to be in flight.
    CongestionWindow,
    /// The rate at which the algorithm spaces packets out, the window not being full.
    Pacing,
}

impl LimitedBy {
    /// All of them, in the order of [`Limits::shares`].
    pub const ALL: [Self; 5] = [
        Self::Application,
        Self::SendBuffer,
        Self::ReceiveWindow,
        Self::CongestionWindow,
        Self::Pacing,
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
        })
    }
}

/// Time spent under each limit, added up from consecutive samples of one sending socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    times: [Duration; 5],
}

impl Limits {
    /// Adds the interval between two samples, `elapsed` apart.
    ///
    /// The kernel's clocks give the receive window, the send buffer, and the time without data.
    /// What is left of the interval goes to the congestion window when the flight fills it, to the
    /// send buffer when that is fixed (`send_buffer_fixed`, from `SO_BUF_LOCK`) and fully in flight,
    /// and otherwise to pacing: `tcpi_sndbuf_limited` alone stays 0 for a program that writes faster
    /// than a fixed buffer drains.
    pub fn add(
        &mut self,
        before: &TcpInfo,
        after: &TcpInfo,
        elapsed: Duration,
        send_buffer_fixed: bool,
    ) {
        let grown = |field: fn(&TcpInfo) -> Option<u64>| {
            let grown = field(after).zip(field(before)).map(|(a, b)| a.saturating_sub(b));
            Duration::from_micros(grown.unwrap_or(0)).min(elapsed)
        };
        let window = grown(|info| info.rwnd_limited_us);
        let buffer = grown(|info| info.sndbuf_limited_us).min(elapsed - window);
        let busy = if after.busy_us.is_some() { grown(|info| info.busy_us) } else { elapsed };
        let rest = busy.saturating_sub(window + buffer);
        self.times[0] += elapsed.saturating_sub(busy.max(window + buffer));
        self.times[1] += buffer;
        self.times[2] += window;
        self.times[rest_belongs_to(after, send_buffer_fixed)] += rest;
    }

    /// The share of time under each limit, 0 to 1, in the order of [`LimitedBy::ALL`].
    #[must_use]
    pub fn shares(&self) -> [f64; 5] {
        let total: Duration = self.times.iter().sum();
        let total = total.as_secs_f64().max(f64::MIN_POSITIVE);
        self.times.map(|time| time.as_secs_f64() / total)
    }

    /// The limit with the largest share; `None` before any interval was added.
    #[must_use]
    pub fn first(&self) -> Option<(LimitedBy, f64)> {
        let shares = LimitedBy::ALL.into_iter().zip(self.shares());
        shares.filter(|(_, share)| *share > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn rest_belongs_to(info: &TcpInfo, send_buffer_fixed: bool) -> usize {
    let window_full = info.unacked_segments + 1 >= info.cwnd_segments;
    match (window_full, send_buffer_fixed, info.notsent_bytes) {
        (true, _, _) => 3,
        (false, true, Some(0..=65_535)) => 1,
        (false, _, _) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        bytes[0] = 1;
        let mut put = |at: usize, field: &[u8]| {
            if let Some(room) = bytes.get_mut(at..at + field.len()) {
                room.copy_from_slice(field);
            }
        };
        put(16, &1448_u32.to_ne_bytes());
        put(68, &217_000_u32.to_ne_bytes());
        put(128, &5001_u64.to_ne_bytes());
        put(176, &77_u64.to_ne_bytes());
        put(228, &65_160_u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn fields_beyond_the_kernels_length_are_unknown() {
        let whole = TcpInfo::parse(&bytes(280)).unwrap();
        assert_eq!(whole.state, State::Established);
        assert_eq!((whole.snd_mss, whole.rtt_us), (1448, 217_000));
        assert_eq!(whole.bytes_received, Some(5001));
        assert_eq!(whole.rwnd_limited_us, Some(77));
        assert_eq!(whole.snd_wnd, Some(65_160));
        let old = TcpInfo::parse(&bytes(144)).unwrap();
        assert_eq!(old.bytes_received, Some(5001));
        assert_eq!((old.notsent_bytes, old.rwnd_limited_us, old.snd_wnd), (None, None, None));
        assert_eq!(TcpInfo::parse(&bytes(103)), None);
        assert!(TcpInfo::parse(&bytes(104)).is_some());
        assert_eq!(TcpInfo::parse(&[]), None);
    }

    #[test]
    fn the_fate_of_data_in_the_syn_is_told_by_two_fields() {
        // Beside other options, and the bit of `tcpi_delivery_rate_app_limited`.
        let told = |options: u8, fail: u8| {
            let mut bytes = bytes(104);
            bytes[5] = options;
            bytes[7] = if cfg!(target_endian = "big") { 128 | fail << 5 } else { 1 | fail << 1 };
            TcpInfo::parse(&bytes).unwrap().fast_open
        };
        assert_eq!(told(7, 0), FastOpen::Unused);
        assert_eq!(told(7 | 32, 0), FastOpen::Acked);
        assert_eq!(told(7 | 32, 1), FastOpen::Acked);
        assert_eq!(told(7, 1), FastOpen::NoCookie);
        assert_eq!(told(7, 2), FastOpen::NotAcked);
        assert_eq!(told(7, 3), FastOpen::SynRetransmitted);
    }

    /// What a fuzzer has found worth keeping: `fuzz/corpus/tcp_info`.
    #[test]
    #[cfg_attr(miri, ignore = "Miri lets nobody look for a file")]
    fn the_corpus_of_the_fuzzer_is_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/tcp_info");
        for entry in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert_eq!(TcpInfo::parse(&bytes).is_some(), bytes.len() >= 104, "{}", bytes.len());
        }
    }

    fn at(busy: u64, rwnd: u64, sndbuf: u64, (unacked, cwnd): (u32, u32)) -> TcpInfo {
        let mut info = TcpInfo::parse(&bytes(280)).unwrap();
        info.busy_us = Some(busy);
        info.rwnd_limited_us = Some(rwnd);
        info.sndbuf_limited_us = Some(sndbuf);
        (info.unacked_segments, info.cwnd_segments) = (unacked, cwnd);
        info.notsent_bytes = Some(0);
        info
    }

    fn first(after: &TcpInfo, fixed: bool) -> LimitedBy {
        let mut limits = Limits::default();
        limits.add(&at(0, 0, 0, (0, 10)), after, Duration::from_millis(100), fixed);
        assert!((limits.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        limits.first().unwrap().0
    }

    #[test]
    fn each_limit_is_named() {
        assert_eq!(first(&at(10_000, 0, 0, (0, 10)), false), LimitedBy::Application);
        assert_eq!(first(&at(100_000, 90_000, 0, (5, 10)), false), LimitedBy::ReceiveWindow);
        assert_eq!(first(&at(100_000, 0, 90_000, (5, 10)), true), LimitedBy::SendBuffer);
        assert_eq!(first(&at(100_000, 0, 0, (10, 10)), true), LimitedBy::CongestionWindow);
        assert_eq!(first(&at(100_000, 0, 0, (5, 10)), true), LimitedBy::SendBuffer);
        assert_eq!(first(&at(100_000, 0, 0, (5, 10)), false), LimitedBy::Pacing);
        assert_eq!(Limits::default().first(), None);
    }

    #[test]
    fn clocks_that_run_ahead_do_not_exceed_the_interval() {
        let mut limits = Limits::default();
        let elapsed = Duration::from_millis(100);
        limits.add(&at(0, 0, 0, (0, 10)), &at(u64::MAX, u64::MAX, 9, (0, 10)), elapsed, false);
        assert_eq!(limits.times.iter().sum::<Duration>(), elapsed);
    }
}
