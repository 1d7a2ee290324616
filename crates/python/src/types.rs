//! The library's types as Python reads them: by name or number.

use std::time::Duration;

use lastbyte::{Delivery, FinishError, PeerEnd, Receipt, State, TcpInfo, Unproven};
use pyo3::prelude::*;

/// A receipt: returned as a `dict`, taken from any object with these attributes.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct ReceiptFields {
    level: u8,
    written: Option<u64>,
    sent: Option<u64>,
    acked: Option<u64>,
    unacked: Option<u64>,
    drained: u64,
    peer: String,
    took: f64,
}

impl ReceiptFields {
    /// The receipt of a finish that did not begin.
    pub(crate) fn of_nothing() -> Self {
        Self {
            level: level(Delivery::Written),
            written: None,
            sent: None,
            acked: None,
            unacked: None,
            drained: 0,
            peer: PeerEnd::Unknown.to_string(),
            took: 0.0,
        }
    }

    /// `None` if the level or the peer's end is not valid.
    pub(crate) fn read(&self) -> Option<Receipt> {
        let mut receipt = Receipt::new(level_of(self.level)?);
        receipt.written = self.written;
        receipt.sent = self.sent;
        receipt.acked = self.acked;
        receipt.unacked = self.unacked;
        receipt.drained = self.drained;
        receipt.peer = peer_of(&self.peer)?;
        receipt.took = Duration::try_from_secs_f64(self.took).ok()?;
        Some(receipt)
    }
}

impl From<Receipt> for ReceiptFields {
    fn from(receipt: Receipt) -> Self {
        Self {
            level: level(receipt.level),
            written: receipt.written,
            sent: receipt.sent,
            acked: receipt.acked,
            unacked: receipt.unacked,
            drained: receipt.drained,
            peer: receipt.peer.to_string(),
            took: receipt.took.as_secs_f64(),
        }
    }
}

/// Why a finish proved less than the wanted level: a `dict`.
#[derive(IntoPyObject)]
pub(crate) struct Failure {
    why: &'static str,
    number: i32,
    text: String,
}

impl Failure {
    pub(crate) fn of(error: &FinishError) -> Self {
        let (why, number, begun) = reason(error.why);
        let number =
            error.source.as_ref().and_then(|source| source.raw_os_error()).unwrap_or(number);
        // Without a begun finish the receipt is empty.
        let text =
            if begun { error.to_string() } else { format!("{}: {}", error.operation, error.why) };
        Self { why, number, text }
    }

    pub(crate) fn not_open() -> Self {
        let (why, number, _) = reason(Unproven::NotOpen);
        Self { why, number, text: format!("finish: {}", Unproven::NotOpen) }
    }
}

/// Its name, the closest `errno`, and whether the finish began.
fn reason(why: Unproven) -> (&'static str, i32, bool) {
    match why {
        Unproven::Deadline => ("deadline", ETIMEDOUT, true),
        Unproven::Reset => ("reset", ECONNRESET, true),
        Unproven::NotConnected => ("not connected", ENOTCONN, true),
        Unproven::EarlyFin => ("early FIN", EPROTO, true),
        Unproven::Unknowable => ("unknowable", EOPNOTSUPP, true),
        Unproven::Stopped => ("stopped", ECANCELED, true),
        Unproven::NotOpen => ("not open", EBADF, false),
        Unproven::NoSocket => ("no socket", ENOTSOCK, false),
        Unproven::NoStream => ("no stream", EPROTOTYPE, false),
        Unproven::Listening => ("listening", EINVAL, false),
        _ => ("refused", EIO, true),
    }
}

/// Why a dial has no connection: a `dict`.
#[derive(IntoPyObject)]
pub(crate) struct UndialedFields {
    /// One of the names that the Python half knows.
    pub(crate) why: &'static str,
    pub(crate) number: i32,
    pub(crate) text: String,
    /// How each attempt failed: `errno` and text.
    pub(crate) attempts: Vec<(i32, String)>,
}

impl UndialedFields {
    pub(crate) fn new(why: &'static str, number: i32, text: String) -> Self {
        Self { why, number, text, attempts: Vec::new() }
    }
}

// `errno(3)`, by Linux's numbers (`include/uapi/asm-generic/errno.h`).
pub(crate) const EIO: i32 = 5;
pub(crate) const EBADF: i32 = 9;
pub(crate) const EINVAL: i32 = 22;
const EPROTO: i32 = 71;
const ENOTSOCK: i32 = 88;
const EPROTOTYPE: i32 = 91;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const EADDRNOTAVAIL: i32 = 99;
const ECONNRESET: i32 = 104;
const ENOTCONN: i32 = 107;
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const ECONNREFUSED: i32 = 111;
const ECANCELED: i32 = 125;

const LEVELS: [Delivery; 5] =
    [Delivery::Written, Delivery::Sent, Delivery::Acked, Delivery::Closed, Delivery::Confirmed];

pub(crate) fn level(level: Delivery) -> u8 {
    level as u8
}

pub(crate) fn level_of(number: u8) -> Option<Delivery> {
    LEVELS.get(usize::from(number)).copied()
}

fn peer_of(name: &str) -> Option<PeerEnd> {
    let all = [PeerEnd::Open, PeerEnd::Fin, PeerEnd::Reset, PeerEnd::Silent, PeerEnd::Unknown];
    all.into_iter().find(|end| end.to_string() == name)
}

/// A state by its name, or by its number if this version has no name for it.
#[derive(IntoPyObject)]
enum StateName {
    Name(&'static str),
    Number(u8),
}

impl From<State> for StateName {
    fn from(state: State) -> Self {
        match (state.name(), state) {
            (Some(name), _) => Self::Name(name),
            (None, State::Other(number)) => Self::Number(number),
            (None, _) => Self::Number(0),
        }
    }
}

/// `TCP_INFO`: a `dict` with units in its keys.
#[derive(IntoPyObject)]
pub(crate) struct InfoFields {
    state: StateName,
    mss_bytes: u32,
    unacked_segments: u32,
    rtt_us: u32,
    cwnd_segments: u32,
    retransmitted_segments: u32,
    pacing_bytes_per_s: Option<u64>,
    acked_bytes: Option<u64>,
    received_bytes: Option<u64>,
    unsent_bytes: Option<u32>,
    min_rtt_us: Option<u32>,
    delivery_bytes_per_s: Option<u64>,
    busy_us: Option<u64>,
    receive_window_limited_us: Option<u64>,
    send_buffer_limited_us: Option<u64>,
    sent_bytes: Option<u64>,
    retransmitted_bytes: Option<u64>,
    peer_window_bytes: Option<u32>,
}

impl From<TcpInfo> for InfoFields {
    fn from(info: TcpInfo) -> Self {
        Self {
            state: info.state.into(),
            mss_bytes: info.snd_mss,
            unacked_segments: info.unacked_segments,
            rtt_us: info.rtt_us,
            cwnd_segments: info.cwnd_segments,
            retransmitted_segments: info.total_retrans_segments,
            // The largest number means no limit.
            pacing_bytes_per_s: info.pacing_rate.filter(|rate| *rate != u64::MAX),
            acked_bytes: info.bytes_acked,
            received_bytes: info.bytes_received,
            unsent_bytes: info.notsent_bytes,
            min_rtt_us: info.min_rtt_us,
            delivery_bytes_per_s: info.delivery_rate,
            busy_us: info.busy_us,
            receive_window_limited_us: info.rwnd_limited_us,
            send_buffer_limited_us: info.sndbuf_limited_us,
            sent_bytes: info.bytes_sent,
            retransmitted_bytes: info.bytes_retrans,
            peer_window_bytes: info.snd_wnd,
        }
    }
}
