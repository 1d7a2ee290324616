//! The results of an experiment, as plain data: the same in memory, in a file, and from a far host.
//!
//! Keys carry their units. Times are written in seconds, with fractions.

use std::time::Duration;

use lastbyte_core::sample::LimitedBy;
use lastbyte_link::Way;
use serde::{Deserialize, Serialize};

use crate::load::{Load, Rounds};
use crate::seconds;
use crate::setting::Setting;

/// The version of the records that this program writes, and the one that it reads.
pub const SCHEMA: u32 = 2;

/// An experiment with its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Experiment {
    /// What was planned, over which path, by which program.
    pub about: About,
    /// The runs that count, in the order in which they ended.
    pub runs: Vec<Run>,
    /// Runs that do not count.
    pub void: Vec<Void>,
    /// Runs beside a flow of cubic.
    pub beside: Vec<Beside>,
    /// How the rounds ended.
    pub ended: Ended,
}

/// What was planned, over which path, by which program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct About {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// The version of the program that made the experiment.
    pub version: String,
    /// The kernel's release, as `uname -r` has it.
    pub kernel: String,
    /// When it began, in seconds since 1970. For readers only: no measurement uses it.
    pub began_unix_s: u64,
    /// The command line that started it, by argument.
    pub command: Vec<String>,
    /// Where.
    pub path: PathDescription,
    /// What was compared.
    pub subjects: Vec<Setting>,
    /// How much each run sent.
    #[serde(flatten)]
    pub load: Load,
    /// How often.
    #[serde(flatten)]
    pub rounds: Rounds,
    /// What decided which packets were lost.
    pub seed: u64,
    /// How many runs at once.
    pub parallel: usize,
}

/// A path, described in a sentence and in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PathDescription {
    /// Its name: `loopback`, a scenario's, or a host's.
    pub name: String,
    /// Whether it was emulated.
    pub emulated: bool,
    /// The description, a sentence.
    #[serde(rename = "words")]
    pub description: String,
    /// The round-trip time with empty queues, if the path has a configured one.
    #[serde(rename = "rtt_s", with = "seconds::optional")]
    pub rtt: Option<Duration>,
    /// The rate up, IP bytes.
    pub up_bits_per_s: Option<u64>,
    /// The rate down, IP bytes.
    pub down_bits_per_s: Option<u64>,
    /// The highest rate of TCP payload up, after the headers of its packets.
    pub up_limit_bits_per_s: Option<f64>,
    /// The highest rate of TCP payload down.
    pub down_limit_bits_per_s: Option<f64>,
    /// The limit of the queue up.
    pub up_queue_bytes: Option<u64>,
    /// The share of packets lost in the direction up, 0 to 1.
    pub up_loss_share: Option<f64>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// The index of its subject in the plan.
    pub subject: usize,
    /// Its round, counted from 0.
    pub round: u32,
    /// Its connections.
    pub flows: Vec<Flow>,
    /// Round-trip times beside and inside the load, if they were probed.
    pub latency: Option<Latency>,
    /// The link's own counts, if the path was emulated.
    pub link: Option<LinkFigures>,
    /// How often this run was repeated because its link broke its promise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A run that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Void {
    /// The index of its subject in the plan.
    pub subject: usize,
    /// Its round, counted from 0.
    pub round: u32,
    /// The reason.
    pub why: String,
    /// Whether it was a run beside a flow of cubic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
}

/// How the rounds ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// Rounds completed.
    pub rounds: u32,
    /// Whether the order of the subjects is settled; `None` if the number of rounds was fixed.
    pub settled: Option<bool>,
    /// What ended it early, if anything did.
    #[serde(rename = "cut")]
    pub interrupted: Option<String>,
}

/// One connection of a run: the receiver's counts and the sender's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Flow {
    /// The direction of the bytes.
    pub way: Way,
    /// The index of the connection in its direction, from 0.
    pub stream: u32,
    /// Whether it is a control connection, which the rate leaves out: other programs open such.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aside: bool,
    /// The receiver's counts: this is the result. `None` if its host has none.
    pub received: Option<Received>,
    /// The sender's counts.
    pub sent: Option<Sent>,
}

/// A receiver's counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Received {
    /// Bytes read.
    #[serde(rename = "received_bytes")]
    pub bytes: u64,
    /// When the connection was established, since the run began on the receiver's host.
    #[serde(rename = "began_s", with = "seconds")]
    pub began: Duration,
    /// From then to the last byte.
    #[serde(rename = "received_s", with = "seconds")]
    pub time: Duration,
    /// How the stream ended; `None` if no end was observed.
    pub end: Option<Ending>,
    /// Bytes read in each tenth of a second.
    #[serde(rename = "received_bytes_per_100_ms")]
    pub tenths: Vec<u64>,
    /// The receive buffer as granted, the kernel's overhead included.
    pub receive_buffer_bytes: Option<u32>,
    /// Round trips through the load, timed from when the connection was established: see
    /// [`Latency::inside`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<RoundTrip>,
}

/// How a stream ended for its reader, or for the kernel that received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The sender's FIN.
    Fin,
    /// A reset.
    Reset,
    /// The stream ended before its end was sent.
    Truncated,
    /// Unknown.
    Unknown,
}

/// A sender's counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sent {
    /// Bytes that `write` accepted; with another program, bytes that its kernel sent.
    #[serde(rename = "written_bytes")]
    pub written: u64,
    /// From the first write to the last one's return.
    #[serde(rename = "writing_s", with = "seconds")]
    pub writing: Duration,
    /// How far all bytes are proven to have come, as `Delivery` prints it.
    pub level: String,
    /// Bytes that the receiver's kernel acknowledged.
    pub acked_bytes: Option<u64>,
    /// Why `Delivery::Closed` was not proven.
    pub failure: Option<String>,
    /// The congestion control in use, as read back.
    pub congestion: String,
    /// The send buffer as granted, the kernel's overhead included.
    pub send_buffer_bytes: Option<u32>,
    /// Whether the send buffer was fixed, so that the kernel did not autotune it.
    pub send_buffer_fixed: Option<bool>,
    /// Bytes sent, retransmissions included.
    pub sent_bytes: Option<u64>,
    /// Bytes retransmitted.
    pub resent_bytes: Option<u64>,
    /// The smallest round-trip time that the sender's kernel measured.
    #[serde(rename = "min_rtt_s", with = "seconds::optional")]
    pub min_rtt: Option<Duration>,
    /// The share of time under each limit.
    #[serde(rename = "limited_share")]
    pub limited: Limited,
    /// Samples of `TCP_INFO`, every 100 ms.
    pub samples: Vec<Sample>,
}

/// The share of time under each limit, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `LimitedBy`")]
pub struct Limited {
    pub application: f64,
    pub send_buffer: f64,
    pub receive_window: f64,
    pub congestion_window: f64,
    pub pacing: f64,
    #[serde(default)]
    pub unknown: f64,
}

/// A sample of a sending socket's `TCP_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// Since the first write.
    #[serde(rename = "at_s", with = "seconds")]
    pub at: Duration,
    /// The congestion window.
    pub cwnd_bytes: u64,
    /// Bytes in flight.
    pub unacked_bytes: u64,
    /// The smoothed round-trip time.
    pub rtt_us: u32,
    /// Written and not yet sent.
    pub notsent_bytes: Option<u32>,
    /// The pacing rate; `None` without pacing.
    pub pacing_bytes_per_s: Option<u64>,
    /// The kernel's delivery rate.
    pub delivery_bytes_per_s: Option<u64>,
    /// Bytes retransmitted so far.
    pub resent_bytes: Option<u64>,
    /// The receive window.
    pub peer_window_bytes: Option<u32>,
    /// What limited the sender for most of the time since the previous sample.
    pub limited_by: Option<LimitKind>,
}

/// [`LimitedBy`], with the names that records use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in `LimitedBy`")]
pub enum LimitKind {
    Application,
    SendBuffer,
    ReceiveWindow,
    CongestionWindow,
    Pacing,
    Unknown,
}

/// Round-trip times while the load ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// Before the load: handshakes, and requests with their responses.
    #[serde(rename = "idle_s", with = "seconds::list")]
    pub idle: Vec<Duration>,
    /// How long the load ran: until the first of its senders had written all of its part.
    #[serde(rename = "load_s", with = "seconds")]
    pub load: Duration,
    /// Handshakes of new connections.
    pub handshakes: Vec<RoundTrip>,
    /// Request and response on these new connections, beside the load.
    pub beside: Vec<RoundTrip>,
    /// Request and response on a connection that carries the load, through its send buffer too.
    pub inside: Vec<RoundTrip>,
    /// Connections without a response when the run ended, or within ten seconds.
    pub unanswered: u32,
}

/// A round trip and its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Since the load began.
    #[serde(rename = "at_s", with = "seconds")]
    pub at: Duration,
    /// From the request to the response.
    #[serde(rename = "took_s", with = "seconds")]
    pub took: Duration,
}

/// A link's report of itself: its counts and its lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkFigures {
    /// From the near host to the far one.
    pub up: LinkDirection,
    /// From the far host to the near one.
    pub down: LinkDirection,
    /// Packets that the devices dropped, which the scenario did not ask for.
    pub device_drops_packets: u64,
    /// How late packets were delivered: 50 % at most this.
    pub late_p50_ms: f64,
    /// 99 % of packets were at most this late.
    pub late_p99_ms: f64,
    /// The latest packet.
    pub late_max_ms: f64,
    /// Processor time spent on carrying packets.
    pub cpu_s: f64,
}

/// A link's counts of one direction, all as the scenario asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `lastbyte_link::DirectionReport`")]
pub struct LinkDirection {
    #[serde(rename = "arrived_packets")]
    pub packets: u64,
    #[serde(rename = "arrived_bytes")]
    pub bytes: u64,
    pub lost_packets: u64,
    pub dropped_packets: u64,
    pub policed_packets: u64,
    pub marked_packets: u64,
    pub queued_p50_ms: f64,
    pub queued_p99_ms: f64,
}

/// A run of one subject beside a flow of cubic, both sending all the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Beside {
    /// The index of the subject in the plan.
    pub subject: usize,
    /// Its round, counted from 0.
    pub round: u32,
    /// The queue's length in bandwidth-delay products; `None` for the scenario's own.
    pub queue_bdp: Option<f64>,
    /// The subject's rate at the receiver while both sent.
    pub subject_bits_per_s: f64,
    /// Cubic's rate at the receiver over the same time.
    pub cubic_bits_per_s: f64,
}

impl Run {
    /// The result: in each direction the receivers' bytes over the receivers' time, in bit/s; the
    /// sum where both directions were loaded.
    #[must_use]
    pub fn received_bits_per_s(&self) -> f64 {
        Way::BOTH.iter().filter_map(|way| self.received_bits_per_s_on(*way)).sum()
    }

    /// The receivers' bytes over the receivers' time of one direction; `None` if it has no load.
    #[must_use]
    pub fn received_bits_per_s_on(&self, way: Way) -> Option<f64> {
        let received: Vec<&Received> = self.received_on(way).collect();
        let began = received.iter().map(|one| one.began).min()?;
        let ended = received.iter().map(|one| one.began + one.time).max()?;
        let bytes: u64 = received.iter().map(|one| one.bytes).sum();
        Some(per_second(bytes, ended - began))
    }

    fn received_on(&self, way: Way) -> impl Iterator<Item = &Received> {
        self.flows
            .iter()
            .filter(move |flow| flow.way == way && !flow.aside)
            .filter_map(|flow| flow.received.as_ref())
    }

    /// The rate by the sender's `write` calls, in bit/s: what a sender would claim.
    #[must_use]
    pub fn claimed_bits_per_s(&self) -> f64 {
        let claimed = |sent: &Sent| per_second(sent.written, sent.writing);
        self.sent().map(claimed).sum()
    }

    /// Bytes received, over all connections.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.flows.iter().filter_map(|flow| flow.received.as_ref()).map(|one| one.bytes).sum()
    }

    /// Bytes written, over all connections.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.flows.iter().filter_map(|flow| flow.sent.as_ref()).map(|sent| sent.written).sum()
    }

    /// The senders' counts of the load.
    pub fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.flows.iter().filter(|flow| !flow.aside).filter_map(|flow| flow.sent.as_ref())
    }

    /// From the first connection to the last byte, the longer of both directions.
    #[must_use]
    pub fn time(&self) -> Duration {
        let end = |one: &Received| one.began + one.time;
        self.flows
            .iter()
            .filter_map(|flow| flow.received.as_ref())
            .map(end)
            .max()
            .unwrap_or_default()
    }

    /// Whether every byte written was received, on every connection, with a FIN and a proof.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.flows.is_empty() && self.flows.iter().all(Flow::is_complete)
    }

    /// The share of retransmissions in the bytes sent, 0 to 1.
    #[must_use]
    pub fn resent_share(&self) -> Option<f64> {
        let (sent, resent) = self.sent_and_resent()?;
        Some(resent as f64 / sent.max(1) as f64)
    }

    /// The share of the bytes sent that were retransmitted although the link had dropped no such
    /// packet; `None` without the link's counts.
    #[must_use]
    pub fn resent_needlessly_share(&self) -> Option<f64> {
        let (sent, resent) = self.sent_and_resent()?;
        let link = self.link.as_ref()?;
        let loaded = |way| self.flows.iter().any(|flow| flow.way == way);
        let dropped = |way: &LinkDirection| {
            let packets = way.lost_packets + way.dropped_packets + way.policed_packets;
            // Nearly all packets of the loaded direction are full.
            packets as f64 * way.bytes as f64 / way.packets.max(1) as f64
        };
        let of = |way, link| if loaded(way) { dropped(link) } else { 0.0 };
        let dropped = of(Way::Up, &link.up) + of(Way::Down, &link.down);
        Some((resent as f64 - dropped).max(0.0) / sent.max(1) as f64)
    }

    fn sent_and_resent(&self) -> Option<(u64, u64)> {
        let each = self.sent().map(|sent| sent.sent_bytes.zip(sent.resent_bytes));
        let sum = each.reduce(|sum, one| Some((sum?.0 + one?.0, sum?.1 + one?.1)));
        sum.flatten()
    }

    /// The smallest round-trip time that a sender's kernel measured.
    #[must_use]
    pub fn min_rtt(&self) -> Option<Duration> {
        self.sent().filter_map(|sent| sent.min_rtt).min()
    }
}

impl Flow {
    /// Whether every byte written was received, with a FIN and a proof.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let (Some(received), Some(sent)) = (&self.received, &self.sent) else { return false };
        received.bytes == sent.written
            && received.end == Some(Ending::Fin)
            && sent.failure.is_none()
    }

    /// Whether figures of another host can be summed: none is so large that a sum would overflow.
    #[must_use]
    pub fn is_plausible(&self, streams: u32) -> bool {
        const MAX_TIME: Duration = Duration::from_secs(1 << 20);
        const MAX_BYTES: u64 = 1 << 50;
        let time = |time: &Duration| *time <= MAX_TIME;
        let received = self.received.as_ref().is_none_or(|received| {
            time(&received.began)
                && time(&received.time)
                && received.bytes <= MAX_BYTES
                && received.tenths.iter().all(|bytes| *bytes <= MAX_BYTES)
                && received.answers.iter().all(|trip| time(&trip.at) && time(&trip.took))
        });
        let sent = self.sent.as_ref().is_none_or(|sent| {
            let bytes = [Some(sent.written), sent.acked_bytes, sent.sent_bytes, sent.resent_bytes];
            let shares = sent.limited.shares();
            let bytes_of = |sample: &Sample| {
                [sample.cwnd_bytes, sample.unacked_bytes, sample.resent_bytes.unwrap_or(0)]
            };
            time(&sent.writing)
                && sent.min_rtt.as_ref().is_none_or(time)
                && bytes.into_iter().flatten().all(|bytes| bytes <= MAX_BYTES)
                && shares.iter().all(|(_, share)| (0.0..=1.001).contains(share))
                && sent.samples.iter().all(|sample| {
                    time(&sample.at) && bytes_of(sample).iter().all(|bytes| *bytes <= MAX_BYTES)
                })
        });
        self.stream < streams && received && sent
    }
}

impl Limited {
    /// The shares with their names.
    #[must_use]
    pub fn shares(&self) -> [(LimitKind, f64); 6] {
        [
            (LimitKind::Application, self.application),
            (LimitKind::SendBuffer, self.send_buffer),
            (LimitKind::ReceiveWindow, self.receive_window),
            (LimitKind::CongestionWindow, self.congestion_window),
            (LimitKind::Pacing, self.pacing),
            (LimitKind::Unknown, self.unknown),
        ]
    }

    /// The limit with the largest share; `None` where nothing was sampled.
    #[must_use]
    pub fn first(&self) -> Option<(LimitKind, f64)> {
        let largest = self.shares().into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        largest.filter(|(_, share)| *share > 0.0)
    }

    /// The mean of several.
    #[must_use]
    pub fn mean(of: &[Self]) -> Self {
        let mean =
            |part: fn(&Self) -> f64| of.iter().map(part).sum::<f64>() / of.len().max(1) as f64;
        Self {
            application: mean(|one| one.application),
            send_buffer: mean(|one| one.send_buffer),
            receive_window: mean(|one| one.receive_window),
            congestion_window: mean(|one| one.congestion_window),
            pacing: mean(|one| one.pacing),
            unknown: mean(|one| one.unknown),
        }
    }
}

impl From<LimitedBy> for LimitKind {
    fn from(limit: LimitedBy) -> Self {
        match limit {
            LimitedBy::Application => Self::Application,
            LimitedBy::SendBuffer => Self::SendBuffer,
            LimitedBy::ReceiveWindow => Self::ReceiveWindow,
            LimitedBy::CongestionWindow => Self::CongestionWindow,
            LimitedBy::Pacing => Self::Pacing,
            _ => Self::Unknown,
        }
    }
}

impl LimitKind {
    /// The short name, as `ss -i` has it.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Application => "app",
            Self::SendBuffer => "sndbuf",
            Self::ReceiveWindow => "rwnd",
            Self::CongestionWindow => "cwnd",
            Self::Pacing => "pacing",
            Self::Unknown => "?",
        }
    }
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}
