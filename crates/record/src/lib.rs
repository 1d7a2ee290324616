//! Records a real path: a scenario that behaves like it, from gentle probes of one end.
//!
//! This crate forbids a figure that the probes did not show: a bound is called a bound, and what one end
//! cannot know is unknown.
//!
//! Small echo requests, one at a time, give round trips and losses; short trains of full ones give
//! the rate, by how far apart their replies come (packet dispersion: Dovrolis, Ramanathan and Moore,
//! "Packet-dispersion techniques and a capacity-estimation methodology", IEEE/ACM ToN 12(6), 2004;
//! RFC 5136 section 2.3 names what is measured), and longer ones the queue, where their tails are
//! dropped. A host that does not answer echo requests can be asked by TCP connects; those say nothing
//! of rate and queue.
//!
//! One end cannot know in which direction something happened, so what is written is the same for
//! both. Each figure says what it rests on ([`Outcome`], [`Figure::basis`]).
//!
//! `probe` and `connect` ask the network, `packet_trains` decides what to send next, `round_trips`,
//! `losses`, `conditions`, `dispersion` and `estimate` are arithmetic, `echo` and `scenario_text` make
//! bytes and text.

#![forbid(unsafe_code)]

mod conditions;
mod connect;
mod dispersion;
mod echo;
mod estimate;
mod losses;
mod observed;
mod packet_trains;
mod probe;
mod round_trips;
mod scenario_text;
mod statistics;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lastbyte_link::Spec;
use lastbyte_units::{ByteSize, Unit};

use observed::Observed;
use packet_trains::PacketTrains;
use probe::Prober;

/// Small echo requests per second: 32 kbit/s, less than a telephone call.
pub const PROBES_PER_S: u32 = 100;
/// TCP connects per second: each is work for a program on the host.
pub const CONNECTS_PER_S: u32 = 10;
/// How long small probes are sent by default: 1200 of them, so that a loss of 0.5 % on the round trip is
/// seen six times.
pub const PROBES_FOR: Duration = Duration::from_secs(12);
/// What all trains together may send by default, and get back: about two web pages.
pub const TRAIN_BUDGET: ByteSize = ByteSize::from_bytes(6_000_000);
/// How long trains may take, all together.
pub const TRAINS_WITHIN: Duration = Duration::from_secs(10);
/// How long a host may answer nothing before it is given up.
pub const GIVE_UP: Duration = Duration::from_secs(3);

/// How long to wait for the first replies after the last request. For later ones it is 1.5 times the
/// slowest round trip so far and three times the longest gap between replies, and at least [`LATE`].
const PATIENCE: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(100);

/// Probes that show how much the delay varies, before the others are sent: one second.
const FIRST_PROBES: u32 = PROBES_PER_S;

/// How a host is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// ICMP echo requests.
    Echo,
    /// TCP connects to the port of the address.
    Connect,
}

/// The host to probe, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host; its port counts for [`Method::Connect`] alone.
    pub address: SocketAddr,
    /// How.
    pub method: Method,
}

impl Target {
    /// Refuses addresses that reach many hosts, or none.
    ///
    /// # Errors
    /// [`RecordError::NotOneHost`]; that an address is the broadcast one of a network here, only the
    /// kernel knows when it is asked to send.
    pub fn check(&self) -> Result<(), RecordError> {
        let address = self.address.ip().to_canonical();
        let what = match address {
            _ if address.is_unspecified() => "the address of no host",
            _ if address.is_multicast() => "a multicast address",
            IpAddr::V4(address) if address.is_broadcast() => "the broadcast address",
            _ => return Ok(()),
        };
        Err(RecordError::NotOneHost(address, what))
    }
}

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How long small probes are sent.
    pub probes_for: Duration,
    /// IP bytes that all trains together may send; as many may be returned.
    pub train_budget: ByteSize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { probes_for: PROBES_FOR, train_budget: TRAIN_BUDGET }
    }
}

impl Plan {
    /// The most small probes that are sent.
    #[must_use]
    pub fn probes(&self, method: Method) -> u32 {
        let per_s = match method {
            Method::Echo => PROBES_PER_S,
            Method::Connect => CONNECTS_PER_S,
        };
        let probes = u128::from(per_s) * self.probes_for.as_millis() / 1000;
        u32::try_from(probes).unwrap_or(u32::MAX).max(1)
    }
}

/// What is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Small probes.
    Probes,
    /// A train of this many full packets.
    Train(u32),
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probes => f.write_str("small probes"),
            Self::Train(packets) => write!(f, "a train of {packets} packets"),
        }
    }
}

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// The round trip with empty queues.
    RoundTrip,
    /// How the delay of one direction varies: the size of a scenario's jitter.
    Jitter,
    /// The share of replies that arrived after one to a later request.
    Reordering,
    /// The share of packets lost in one direction.
    Loss,
    /// The mean length of a burst of losses in one direction.
    BurstLength,
    /// The share of packets that arrive twice in one direction.
    Duplicates,
    /// IP bytes over time.
    Rate,
    /// How many bytes may wait for transmission.
    Queue,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundTrip => "round trip",
            Self::Jitter => "jitter",
            Self::Reordering => "reordering",
            Self::Loss => "loss",
            Self::BurstLength => "loss bursts",
            Self::Duplicates => "duplicates",
            Self::Rate => "rate",
            Self::Queue => "queue",
        })
    }
}

/// What came of measuring one thing; in the unit of its [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// A figure with its interval: its basis says which one.
    Known {
        /// The figure.
        got: f64,
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// None was observed: it is less than this.
    Below(f64),
    /// It is more than this; how much more is not known.
    Above(f64),
    /// Nothing is known.
    Unknown,
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What.
    pub subject: Subject,
    /// The unit of the outcome.
    pub unit: Unit,
    /// What came of it.
    pub outcome: Outcome,
    /// What it rests on, or why it is not known.
    pub basis: String,
}

impl Figure {
    /// Its outcome in words.
    #[must_use]
    pub fn value(&self) -> String {
        scenario_text::value(self)
    }
}

/// What was recorded of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The path as it can be emulated: the same in both directions.
    pub spec: Spec,
    /// Each figure with its basis.
    pub figures: Vec<Figure>,
    /// What the figures assume, and what one end cannot know.
    pub assumes: Vec<String>,
    /// Packets sent.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
}

impl Recorded {
    /// The scenario as TOML, with a heading that says where it comes from and what it rests on. `of`
    /// names the host as its user did, `on` the date.
    #[must_use]
    pub fn to_toml(&self, target: &Target, of: &str, on: &str) -> String {
        scenario_text::toml(self, target, of, on)
    }
}

/// A path that could not be recorded. The text names the cause: there is no further `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The address is not that of one host.
    #[error("{0} is {1}: give the address of one host")]
    NotOneHost(IpAddr, &'static str),
    /// Opening an ICMP socket is not allowed.
    #[error(
        "opening an ICMP echo socket: {0}; let your group do it (sysctl \
         net.ipv4.ping_group_range=\"0 2147483647\"), run it as root, or ask by TCP (--tcp 443)"
    )]
    Rights(io::Error),
    /// The host answered nothing.
    #[error(
        "{address} answered none of {sent} {probes} in {seconds:.0} s{}; {advice}",
        reported(.network_error)
    )]
    NoAnswer {
        /// The host.
        address: IpAddr,
        /// How many probes.
        sent: u64,
        /// The kind of probes.
        probes: &'static str,
        /// How long they were sent and waited for.
        seconds: f64,
        /// The error that the network reported instead.
        network_error: Option<String>,
        /// What to do.
        advice: &'static str,
    },
    /// A step failed.
    #[error("{doing}: {cause}")]
    Step {
        /// What was being done.
        doing: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

fn reported(network_error: &Option<String>) -> String {
    network_error.as_ref().map_or_else(String::new, |what| format!(" (the network said: {what})"))
}

impl RecordError {
    fn at(doing: &str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Step { doing: doing.to_owned(), cause }
    }

    fn at_open(cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::Rights(cause),
            _ => Self::at("opening an ICMP echo socket")(cause),
        }
    }

    fn at_connect(to: SocketAddr, cause: io::Error) -> Self {
        match cause.kind() {
            // connect(2): EACCES for a broadcast address.
            io::ErrorKind::PermissionDenied => {
                Self::NotOneHost(to.ip(), "a broadcast address of a network here")
            }
            _ => Self::Step { doing: format!("reaching {}", to.ip()), cause },
        }
    }

    fn no_answer(target: &Target, seen: &Observed) -> Self {
        let last = seen.sent.last().copied().unwrap_or_default();
        let first = seen.sent.first().copied().unwrap_or_default();
        let (probes, advice) = match target.method {
            Method::Echo => (
                "echo requests",
                "it is not there, or answers none: try --tcp with a port that is open or refused",
            ),
            Method::Connect => (
                "connects",
                "it is not there, something drops what goes to that port, or it is further away \
                 than 0.9 s: try another port",
            ),
        };
        Self::NoAnswer {
            address: target.address.ip(),
            sent: seen.sent.len() as u64,
            probes,
            seconds: (last.saturating_sub(first) + PATIENCE).as_secs_f64(),
            network_error: seen.network_error.clone(),
            advice,
        }
    }
}

/// Records the path to a host, with what `plan` allows. Calls `watch` as each phase begins.
///
/// # Errors
/// [`RecordError::NotOneHost`] before anything is sent; [`RecordError::NoAnswer`] from a host that is
/// silent; [`RecordError::Rights`] says what is missing and how to get it.
pub fn record(
    target: &Target,
    plan: &Plan,
    watch: &mut dyn FnMut(Phase),
) -> Result<Recorded, RecordError> {
    target.check()?;
    watch(Phase::Probes);
    let packets = plan.probes(target.method);
    match target.method {
        Method::Connect => {
            let load = Load {
                every: Duration::from_secs(1) / CONNECTS_PER_S,
                ..Load::small(connect::SYN_BYTES, packets)
            };
            let probes = connect::exchange(target.address, &load)?;
            require_answers(target, &probes)?;
            Ok(estimate::recorded(target.method, &probes, None))
        }
        Method::Echo => {
            let mut prober = Prober::open(target.address)?;
            let load = Load::small(prober.shortest(), packets);
            let probes = small_probes(&load, |load| prober.exchange(load))?;
            require_answers(target, &probes)?;
            let mut trains = PacketTrains::new(plan.train_budget, &probes);
            while let Some(load) = trains.next() {
                watch(Phase::Train(load.packets));
                let seen = prober.exchange(&load)?;
                trains.add(seen);
            }
            Ok(estimate::recorded(target.method, &probes, Some(&trains)))
        }
    }
}

/// Sends the first probes at the usual pace, and the others in the remaining time, as far apart as the
/// first ones show to be needed.
fn small_probes<E>(
    load: &Load,
    mut exchange: impl FnMut(&Load) -> Result<Observed, E>,
) -> Result<Observed, E> {
    let first = load.packets.min(FIRST_PROBES);
    let mut probes = exchange(&Load { packets: first, ..*load })?;
    let left = load.every * (load.packets - first);
    let every = round_trips::spacing(&probes, load.every);
    let packets = left.as_nanos() / every.as_nanos();
    let packets = u32::try_from(packets).unwrap_or(u32::MAX);
    if packets > 0 {
        // The first ones took a second to send, and a second to wait for replies.
        let spent = load.every * first + PATIENCE;
        let give_up = load.give_up.saturating_sub(spent);
        let apart = exchange(&Load { packets, every, give_up, ..*load })?;
        // Where these are too few, the first ones count too.
        if every > load.every && apart.replies.len() >= round_trips::LEAST_ROUND_TRIPS {
            probes.apart_from = probes.sent.len();
        }
        probes.append(apart);
    }
    Ok(probes)
}

fn require_answers(target: &Target, probes: &Observed) -> Result<(), RecordError> {
    match probes.replies.is_empty() {
        true => Err(RecordError::no_answer(target, probes)),
        false => Ok(()),
    }
}

/// Requests to send one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// The length of each with its IP header.
    ip_bytes: u32,
    packets: u32,
    /// The time from one to the next; zero for as fast as possible.
    every: Duration,
    /// Whether a late sender sends faster until it has caught up.
    catch_up: bool,
    /// If no reply arrives for this long, the rest is not sent.
    give_up: Duration,
}

impl Load {
    /// Small probes.
    fn small(ip_bytes: u32, packets: u32) -> Self {
        Self {
            ip_bytes,
            packets,
            every: Duration::from_secs(1) / PROBES_PER_S,
            catch_up: false,
            give_up: GIVE_UP,
        }
    }

    /// A train.
    fn train(ip_bytes: u32, packets: u32, every: Duration) -> Self {
        Self { ip_bytes, packets, every, catch_up: true, give_up: Duration::MAX }
    }
}

#[cfg(test)]
mod simulated;
