//! `struct tcp_info`, and what limited a flow.
//!
//! The struct grows with the kernel (144 bytes in 4.4, 280 in 6.18): a field beyond the length that
//! this kernel returned is `None`, never 0.

mod limits;

use std::fmt;

pub use limits::{LimitedBy, Limits, Moment};

/// TCP connection states of RFC 9293 section 3.3.2, by Linux's numbers
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
    /// A number that this version does not know.
    Other(u8),
}

impl State {
    /// The name in RFC 9293; `None` for a number that this version does not know.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Established => "ESTABLISHED",
            Self::SynSent => "SYN-SENT",
            Self::SynRecv => "SYN-RECEIVED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::TimeWait => "TIME-WAIT",
            Self::Close => "CLOSED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::LastAck => "LAST-ACK",
            Self::Listen => "LISTEN",
            Self::Closing => "CLOSING",
            Self::Other(_) => return None,
        })
    }
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

/// What became of data in the SYN (TCP Fast Open, RFC 7413). It says nothing about bytes sent after
/// the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FastOpen {
    /// No data was sent in the SYN, or its fate is not known yet.
    Unused,
    /// The SYN-ACK acknowledged the data; also on the side that received it.
    Acked,
    /// The peer's cookie was not known: the SYN requested one and carried no data.
    NoCookie,
    /// The peer accepted the SYN but not its data, which was sent again after the handshake.
    NotAcked,
    /// The SYN was retransmitted without data: the first one was lost, or something on the path
    /// drops a SYN with data.
    SynRetransmitted,
}

impl FastOpen {
    /// Reads `tcpi_options`, and the byte of bit fields with `tcpi_fastopen_client_fail` (`enum
    /// tcp_fastopen_client_fail`), which is 0 before Linux 5.5.
    fn of(options: u8, fields: u8) -> Self {
        /// `TCPI_OPT_SYN_DATA`.
        const SYN_DATA: u8 = 32;
        // Bits 1 and 2, counted from where the compiler begins.
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

/// What the kernel reports about one connection (`include/uapi/linux/tcp.h`). Times are in
/// microseconds, rates in bytes per second, windows in bytes unless the name says segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// `tcpi_state`.
    pub state: State,
    /// `TCPI_OPT_SYN_DATA` of `tcpi_options`, and `tcpi_fastopen_client_fail`.
    pub fast_open: FastOpen,
    /// `tcpi_delivery_rate_app_limited`: [`TcpInfo::delivery_rate`] was measured while there was
    /// nothing more to send, and no faster measurement or one with data waiting came since. An idle
    /// program sets it, and so does a full send buffer that is all in flight. Linux 4.9.
    pub delivery_rate_app_limited: Option<bool>,
    /// `tcpi_snd_mss`, bytes.
    pub snd_mss: u32,
    /// `tcpi_unacked`: segments sent and not cumulatively acknowledged. Zeroed by a reset: no proof
    /// of delivery.
    pub unacked_segments: u32,
    /// `tcpi_sacked`: segments of these that the peer has selectively acknowledged (RFC 2018).
    pub sacked_segments: u32,
    /// `tcpi_lost`: segments of these that the kernel considers lost.
    pub lost_segments: u32,
    /// `tcpi_retrans`: segments of these that were retransmitted and are not yet acknowledged.
    pub retrans_segments: u32,
    /// `tcpi_last_data_sent`: milliseconds since data was last sent.
    pub last_data_sent_ms: u32,
    /// `tcpi_last_data_recv`: milliseconds since data was last received.
    pub last_data_received_ms: u32,
    /// `tcpi_rtt`: the smoothed round-trip time.
    pub rtt_us: u32,
    /// `tcpi_snd_ssthresh`, segments: slow start ends there (RFC 5681 section 3.1). 2,147,483,647
    /// before the first loss.
    pub ssthresh_segments: u32,
    /// `tcpi_snd_cwnd`, segments.
    pub cwnd_segments: u32,
    /// `tcpi_total_retrans`, segments.
    pub total_retrans_segments: u32,
    /// `tcpi_pacing_rate`; `u64::MAX` without pacing.
    pub pacing_rate: Option<u64>,
    /// `tcpi_max_pacing_rate`: the most that `SO_MAX_PACING_RATE` allows; `u64::MAX` is no limit.
    pub max_pacing_rate: Option<u64>,
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
    /// `tcpi_busy_time`: time with unacknowledged data.
    pub busy_us: Option<u64>,
    /// `tcpi_rwnd_limited`: time limited by the peer's receive window.
    pub rwnd_limited_us: Option<u64>,
    /// `tcpi_sndbuf_limited`: time limited by our send buffer. It misses cases: see [`LimitedBy`].
    pub sndbuf_limited_us: Option<u64>,
    /// `tcpi_bytes_sent`, retransmissions included.
    pub bytes_sent: Option<u64>,
    /// `tcpi_bytes_retrans`.
    pub bytes_retrans: Option<u64>,
    /// `tcpi_reord_seen`: how often data was found to have arrived out of order.
    pub reordering_seen: Option<u32>,
    /// `tcpi_snd_wnd`: the peer's window as last advertised.
    pub snd_wnd: Option<u32>,
    /// `tcpi_rcv_wnd`: our own window as last advertised. Linux 6.2.
    pub rcv_wnd: Option<u32>,
    /// `tcpi_total_rto`: how often the retransmission timer expired (RFC 6298). Linux 6.7.
    pub total_rto: Option<u16>,
}

impl TcpInfo {
    /// Parses the bytes of `TCP_INFO`; `None` if there are fewer than those of Linux 2.6 (104
    /// bytes).
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            state: State::from(*bytes.first()?),
            fast_open: FastOpen::of(*bytes.get(5)?, *bytes.get(7)?),
            delivery_rate_app_limited: u64_at(bytes, 160).map(|_| app_limited(bytes[7])),
            snd_mss: u32_at(bytes, 16)?,
            unacked_segments: u32_at(bytes, 24)?,
            sacked_segments: u32_at(bytes, 28)?,
            lost_segments: u32_at(bytes, 32)?,
            retrans_segments: u32_at(bytes, 36)?,
            last_data_sent_ms: u32_at(bytes, 44)?,
            last_data_received_ms: u32_at(bytes, 52)?,
            rtt_us: u32_at(bytes, 68)?,
            ssthresh_segments: u32_at(bytes, 76)?,
            cwnd_segments: u32_at(bytes, 80)?,
            total_retrans_segments: u32_at(bytes, 100)?,
            pacing_rate: u64_at(bytes, 104),
            max_pacing_rate: u64_at(bytes, 112),
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
            reordering_seen: u32_at(bytes, 220),
            snd_wnd: u32_at(bytes, 228),
            rcv_wnd: u32_at(bytes, 232),
            total_rto: u16_at(bytes, 240),
        })
    }
}

/// The counters of `struct tcp_info` that show whether anything moved. See the fields of the same
/// names in [`TcpInfo`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are documented in TcpInfo")]
#[non_exhaustive]
pub struct Progress {
    pub bytes_acked: Option<u64>,
    pub bytes_received: Option<u64>,
    pub bytes_sent: Option<u64>,
    pub total_rto: Option<u16>,
}

impl Progress {
    /// Parses the bytes of `TCP_INFO`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        Self {
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            bytes_sent: u64_at(bytes, 200),
            total_rto: u16_at(bytes, 240),
        }
    }
}

/// Bit 0, counted from where the compiler begins.
fn app_limited(fields: u8) -> bool {
    fields & if cfg!(target_endian = "big") { 128 } else { 1 } != 0
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..offset + 2)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset + 8)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
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
        for (at, value) in [(28, 3_u32), (32, 2), (36, 1), (44, 40), (76, 167), (220, 6)] {
            put(at, &value.to_ne_bytes());
        }
        put(68, &217_000_u32.to_ne_bytes());
        put(112, &1_250_000_u64.to_ne_bytes());
        put(128, &5001_u64.to_ne_bytes());
        put(176, &77_u64.to_ne_bytes());
        put(228, &65_160_u32.to_ne_bytes());
        put(232, &65_536_u32.to_ne_bytes());
        put(240, &4_u16.to_ne_bytes());
        bytes
    }

    #[test]
    fn fields_beyond_the_kernels_length_are_unknown() {
        let whole = TcpInfo::parse(&bytes(280)).unwrap();
        assert_eq!(whole.state, State::Established);
        assert_eq!((whole.snd_mss, whole.rtt_us), (1448, 217_000));
        assert_eq!(whole.bytes_received, Some(5001));
        assert_eq!(whole.rwnd_limited_us, Some(77));
        assert_eq!((whole.snd_wnd, whole.rcv_wnd), (Some(65_160), Some(65_536)));
        let segments = (whole.sacked_segments, whole.lost_segments, whole.retrans_segments);
        assert_eq!(segments, (3, 2, 1));
        assert_eq!((whole.last_data_sent_ms, whole.ssthresh_segments), (40, 167));
        assert_eq!(whole.max_pacing_rate, Some(1_250_000));
        assert_eq!((whole.reordering_seen, whole.total_rto), (Some(6), Some(4)));
        let old = TcpInfo::parse(&bytes(144)).unwrap();
        assert_eq!(old.bytes_received, Some(5001));
        for length in [280, 241, 144, 127] {
            let (all, progress) =
                (TcpInfo::parse(&bytes(length)).unwrap(), Progress::parse(&bytes(length)));
            assert_eq!(progress.bytes_acked, all.bytes_acked);
            assert_eq!(progress.bytes_received, all.bytes_received);
            assert_eq!((progress.bytes_sent, progress.total_rto), (all.bytes_sent, all.total_rto));
        }
        assert_eq!((old.notsent_bytes, old.rwnd_limited_us, old.snd_wnd), (None, None, None));
        assert_eq!((old.delivery_rate_app_limited, old.rcv_wnd, old.total_rto), (None, None, None));
        assert_eq!(TcpInfo::parse(&bytes(236)).unwrap().rcv_wnd, Some(65_536));
        assert_eq!(TcpInfo::parse(&bytes(241)).unwrap().total_rto, None);
        assert_eq!(TcpInfo::parse(&bytes(103)), None);
        assert!(TcpInfo::parse(&bytes(104)).is_some());
        assert_eq!(TcpInfo::parse(&[]), None);
    }

    #[test]
    fn two_fields_show_what_became_of_data_in_the_syn() {
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

    #[test]
    fn the_bit_of_the_delivery_rate_is_read_only_with_a_rate() {
        let told = |length: usize, fields: u8| {
            let mut bytes = bytes(length);
            bytes[7] = fields;
            TcpInfo::parse(&bytes).unwrap().delivery_rate_app_limited
        };
        let (first, others) = if cfg!(target_endian = "big") { (128, 96) } else { (1, 6) };
        assert_eq!(told(280, first), Some(true));
        assert_eq!(told(280, others), Some(false));
        assert_eq!(told(167, first), None);
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
}
