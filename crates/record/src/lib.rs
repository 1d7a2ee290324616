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
//! `probe` and `connect` ask the network, `trains` decides what to send next, `varied`, `losses`,
//! `dispersion` and `fit` are arithmetic, `write` makes the text.

#![forbid(unsafe_code)]

mod connect;
mod dispersion;
mod echo;
mod fit;
mod losses;
mod probe;
mod seen;
mod trains;
mod varied;
mod write;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lastbyte_link::Spec;
use lastbyte_units::{ByteSize, Unit};

use probe::Prober;
use seen::Seen;
use trains::Trains;

/// Small echo requests per second: 32 kbit/s, less than a telephone call.
pub const PROBES_PER_S: u32 = 100;
/// TCP connects per second: each makes work for a program on the host.
pub const CONNECTS_PER_S: u32 = 10;
/// How long small probes are sent where nothing else is said: 1200 of them, which see a loss of 0.5 %
/// on the round trip six times.
pub const PROBES_FOR: Duration = Duration::from_secs(12);
/// What all trains together may send where nothing else is said, and get back: about two pages of the
/// web.
pub const TRAIN_BUDGET: ByteSize = ByteSize::from_bytes(6_000_000);
/// How long trains may take, all together.
pub const TRAINS_WITHIN: Duration = Duration::from_secs(10);
/// A host that has answered nothing for so long is given up.
pub const GIVE_UP: Duration = Duration::from_secs(3);

/// How long the first replies are waited for after the last request. Later ones are waited for half as
/// long again as the slowest took so far and thrice the longest gap between them, and at least
/// [`LATE`].
const PATIENCE: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_millis(100);

/// Probes that show how much the delay varies, before the others are sent: a second of them.
const SCOUTS: u32 = PROBES_PER_S;

/// How a host is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// ICMP echo requests.
    Echo,
    /// TCP connects to the port of the address.
    Connect,
}

/// Whom to ask, and how.
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

/// How much to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How long small probes are sent.
    pub probes_for: Duration,
    /// IP bytes that all trains together may send; as many may come back.
    pub train_budget: ByteSize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { probes_for: PROBES_FOR, train_budget: TRAIN_BUDGET }
    }
}

impl Plan {
    /// Small probes that are sent at most.
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
    /// Trains of so many full packets.
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
    /// There and back with empty queues.
    RoundTrip,
    /// How the delay of one direction varies: the size as a scenario has it.
    Jitter,
    /// Replies that came after one to a later request, as a share.
    Reordering,
    /// The share of packets lost in one direction.
    Loss,
    /// The mean length of a burst of losses in one direction.
    BurstLength,
    /// The share of packets that arrive twice in one direction.
    Duplicates,
    /// IP bytes over time.
    Rate,
    /// What may wait in front of the rate.
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
    /// A figure, and between what it lies: its basis says in which sense.
    Known {
        /// The figure.
        got: f64,
        /// Not less.
        low: f64,
        /// Not more.
        high: f64,
    },
    /// None was seen, and it is less than this.
    Below(f64),
    /// More than this, and how much more cannot be told.
    Above(f64),
    /// Nothing can be said.
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
        write::value(self)
    }
}

/// What was recorded of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The path as it can be emulated: both directions alike.
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
        write::toml(self, target, of, on)
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
    #[error("{address} answered none of {sent} {probes} in {seconds:.0} s{}; {advice}", said(.complaint))]
    NoAnswer {
        /// Whom.
        address: IpAddr,
        /// How many probes.
        sent: u64,
        /// What they were.
        probes: &'static str,
        /// For how long.
        seconds: f64,
        /// What the network answered instead.
        complaint: Option<String>,
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

fn said(complaint: &Option<String>) -> String {
    complaint.as_ref().map_or_else(String::new, |what| format!(" (the network said: {what})"))
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

    fn no_answer(target: &Target, seen: &Seen) -> Self {
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
            complaint: seen.complaint.clone(),
            advice,
        }
    }
}

/// Records the path to a host, with what `plan` allows. `watch` is told of each phase as it begins.
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
            must_have_answers(target, &probes)?;
            Ok(fit::recorded(target.method, &probes, None))
        }
        Method::Echo => {
            let mut prober = Prober::open(target.address)?;
            let load = Load::small(prober.shortest(), packets);
            let probes = small_probes(&load, |load| prober.exchange(load))?;
            must_have_answers(target, &probes)?;
            let mut trains = Trains::new(plan.train_budget, &probes);
            while let Some(load) = trains.next() {
                watch(Phase::Train(load.packets));
                let seen = prober.exchange(&load)?;
                trains.took(seen);
            }
            Ok(fit::recorded(target.method, &probes, Some(&trains)))
        }
    }
}

/// Sends some probes at the usual pace, and the others as far apart as these show to be needed, in the
/// time that is left.
fn small_probes<E>(
    load: &Load,
    mut exchange: impl FnMut(&Load) -> Result<Seen, E>,
) -> Result<Seen, E> {
    let scouts = load.packets.min(SCOUTS);
    let mut probes = exchange(&Load { packets: scouts, ..*load })?;
    let left = load.every * (load.packets - scouts);
    let every = varied::spacing(&probes, load.every);
    let packets = left.as_nanos() / every.as_nanos();
    let packets = u32::try_from(packets).unwrap_or(u32::MAX);
    if packets > 0 {
        // Those had a second to be sent in, and a second to be answered.
        let spent = load.every * scouts + PATIENCE;
        let give_up = load.give_up.saturating_sub(spent);
        let apart = exchange(&Load { packets, every, give_up, ..*load })?;
        // The others count again where these are too few to tell anything.
        if every > load.every && apart.replies.len() >= varied::LEAST_ROUND_TRIPS {
            probes.apart_from = probes.sent.len();
        }
        probes.append(apart);
    }
    Ok(probes)
}

fn must_have_answers(target: &Target, probes: &Seen) -> Result<(), RecordError> {
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
    /// The time from one to the next; zero for as fast as it goes.
    every: Duration,
    /// Whether a sender that was late goes faster until it has caught up.
    catch_up: bool,
    /// Without any reply for so long the rest is not sent.
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
