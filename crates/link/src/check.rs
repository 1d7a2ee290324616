//! Measures what a link claims to do, with probes of its own.
//!
//! UDP packets go from one host to the other through real kernels, and both ends are in this
//! process, so that one clock stamps them: a one-way delay is measured, not guessed as half of a
//! round trip. Nothing is taken from the link but its [`Report`], which is checked too.
//!
//! Each [`Phase`] has a fresh link:
//!
//! - delay: small packets one at a time, on the path as asked; what the same probe takes over
//!   loopback, its own lateness, is taken off;
//! - loss: numbered small packets, slowly enough for the queue, on the path as asked;
//! - rate: full packets at [`OFFERED`] times the rate, on the path without its losses, whose chance
//!   would be in the figure;
//! - queue: a burst that does not fit, without losses too.
//!
//! What a phase cannot tell it says: [`Outcome::NotChecked`] where nothing was asked or this module
//! does not know it, [`Outcome::NotMeasured`] where it tried in vain.

mod asked;
mod judge;
mod probe;

use std::fmt;
use std::time::Duration;

use crate::error::LinkError;
use crate::host::Host;
use crate::link::Link;
use crate::report::{DirectionReport, PROMISED_LATENESS, Report};
use crate::spec::{Spec, Way};

use asked::Asked;
use probe::{Lane, Load, Seen};

/// How far the median of a delay may be off, and that of the round trip: four wake-ups of the link's
/// thread on an idle machine, twice in each direction, with room.
pub const DELAY_TOLERANCE: Duration = Duration::from_micros(300);
/// How far a rate may be off, as a share of it: more would be seen in the lab's results, which
/// differ by a few percent between runs.
pub const RATE_TOLERANCE: f64 = 0.01;
/// How far a full queue may be off, as a share of it; but one packet, which may just not have fitted,
/// and [`DELAY_TOLERANCE`] at the link's rate are always allowed.
pub const QUEUE_TOLERANCE: f64 = 0.02;
/// The share of fair links whose losses are called wrong by chance, in one direction: the interval of
/// the loss is that of 99 %. With the same seed and path the answer is always the same.
pub const LOSS_DOUBT: f64 = 0.01;
/// As many losses are wanted before a share is judged: their count then has a standard deviation of
/// less than a quarter of itself.
pub const LOSSES_WANTED: f64 = 20.0;
/// What is offered to measure a rate, as a multiple of it: enough that a sender that is late now and
/// then leaves the link no gap.
pub const OFFERED: f64 = 1.1;

/// Packets to measure delays with, and the time between them: half a second, and a p99 that is not the
/// slowest of a few.
const DELAY_PROBES: u32 = 100;
const DELAY_EVERY: Duration = Duration::from_millis(5);
const DELAY_WITHIN: Duration = Duration::from_secs(3);
/// Packets over loopback, to know how late the probe itself is.
const OWN_PROBES: u32 = 50;
/// With fewer of them there is no median worth the name.
const LEAST_PROBES: usize = 20;
/// Packets to judge a loss with.
const LEAST_LOSS_PACKETS: f64 = 5_000.0;
const MOST_LOSS_PACKETS: f64 = 100_000.0;
/// Numbered packets per second in each direction: well below what one core carries.
const LOSS_PACKETS_PER_S: f64 = 20_000.0;
/// The share of a rate that numbered packets may take: the queue stays all but empty.
const LOSS_SHARE_OF_RATE: f64 = 0.5;
/// How late a link may be to read while the queue still takes the numbered packets that pile up.
const LOSS_LATE: Duration = Duration::from_millis(50);
/// How long numbered packets are sent at most.
const LOSS_WITHIN: Duration = Duration::from_secs(12);
/// How long full packets are sent to measure a rate; a low one takes longer, for enough packets.
const RATE_FOR: Duration = Duration::from_secs(2);
const RATE_WITHIN: Duration = Duration::from_secs(5);
const RATE_PACKETS: u64 = 200;
/// With fewer a rate is not measured.
const LEAST_RATE_PACKETS: u32 = 20;
/// How long a full queue may take to run empty, and a sender to fill it.
const QUEUE_WITHIN: Duration = Duration::from_secs(5);
/// What is offered to fill a queue, as a multiple of the rate, as far as the sender gets: as a burst
/// comes from a faster line. What comes faster than the link's thread can read waits before it.
const QUEUE_OFFERED: f64 = 8.0;
/// As many packets may follow at once when the sender was late.
const QUEUE_BURST: u32 = 64;
/// Sent beyond what the queue takes, in packets, and what leaves it while the link is late to read.
const QUEUE_EXCESS: u64 = 20;
const QUEUE_LATE: Duration = Duration::from_millis(50);
/// Both directions are loaded at once up to this sum of their rates, in bit/s; faster ones one after
/// the other, so that senders and carrier do not wait for each other's processor.
const AT_ONCE: u64 = 200_000_000;
/// IP packets: the largest, and that of a probe with nothing but its number.
const FULL_PACKET: u32 = 1500;
const SMALL_PACKET: u32 = probe::HEADERS + probe::NUMBER;

impl Way {
    fn from(self) -> Host {
        match self {
            Self::Up => Host::Near,
            Self::Down => Host::Far,
        }
    }

    fn to(self) -> Host {
        match self {
            Self::Up => Host::Far,
            Self::Down => Host::Near,
        }
    }

    fn of(self, report: &Report) -> &DirectionReport {
        match self {
            Self::Up => &report.up,
            Self::Down => &report.down,
        }
    }
}

/// What is being measured, each on a link of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Delays.
    Delay,
    /// Losses.
    Loss,
    /// Rates.
    Rate,
    /// Queues.
    Queue,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::Rate => "rate",
            Self::Queue => "queue",
        })
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subject {
    /// The median of the sum of both delays.
    RoundTrip,
    /// The median of one way's delay; the packet's own transmission and the probe's own lateness are
    /// taken off.
    Delay,
    /// The share of packets lost.
    Loss,
    /// IP bytes over time.
    Rate,
    /// How long the last packet that a full queue took had to wait.
    QueueTime,
    /// How many bytes a full queue held.
    QueueBytes,
    /// How late 99 % of packets were at most, as the link tells.
    Lateness,
    /// Packets dropped at the devices, as the link tells.
    UnaskedDrops,
    /// Packets of which the link's counts and the receivers' do not tell what became.
    Unaccounted,
    /// Something asked that this module does not know.
    Unknown(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundTrip => "round trip",
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::Rate => "rate",
            Self::QueueTime => "queue time",
            Self::QueueBytes => "queue bytes",
            Self::Lateness => "lateness",
            Self::UnaskedDrops => "unasked drops",
            Self::Unaccounted => "unaccounted",
            Self::Unknown(what) => what,
        })
    }
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// A share of one.
    Share,
    /// Bits per second.
    BitsPerS,
    /// IP bytes.
    Bytes,
    /// Packets.
    Packets,
}

/// A figure, and what it says about what was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The unit of the next four.
    pub unit: Unit,
    /// What was asked of the link.
    pub asked: f64,
    /// What was measured.
    pub got: f64,
    /// The least that may have been asked for this to come out.
    pub low: f64,
    /// The most that may have been asked; infinite where what is asked is a limit.
    pub high: f64,
    /// What it rests on: samples and spread.
    pub basis: String,
}

impl Measured {
    /// Whether what was asked agrees with what was measured.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.low <= self.asked && self.asked <= self.high
    }

    /// How far it is off, in its unit.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.got - self.asked
    }
}

/// What came of measuring one thing.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A figure.
    Measured(Measured),
    /// Nothing was asked, or this module does not know how to check it: which.
    NotChecked(String),
    /// It was tried, and there is no figure to be believed: why.
    NotMeasured(String),
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub subject: Subject,
    /// In which direction; `None` for what is of both.
    pub way: Option<Way>,
    /// What came of it.
    pub outcome: Outcome,
}

/// All that was found out about a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// In the order of the phases; what the link said of itself comes last.
    pub list: Vec<Finding>,
}

impl Findings {
    /// Whether all that was asked and can be checked was measured, and is inside its tolerance.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        self.list.iter().all(|finding| match &finding.outcome {
            Outcome::Measured(measured) => measured.is_inside(),
            Outcome::NotChecked(_) => true,
            Outcome::NotMeasured(_) => false,
        })
    }
}

/// Measures a path. Takes about 10 s, at most about 30 s and some round trips of the path; `watch` is
/// told of each phase as it begins. `seed` decides which packets are lost.
///
/// # Errors
/// [`LinkError::Rights`] says what is missing and how to get it. What a link does wrong is no error,
/// but a finding.
pub fn measure(
    spec: &Spec,
    seed: u64,
    watch: &mut dyn FnMut(Phase),
) -> Result<Findings, LinkError> {
    let asked = Way::BOTH.map(|way| Asked::of(spec, way));
    let spec = &asked::what_is_measured(spec);
    let whole = asked::without_loss(spec);
    let mut course = Course { seed, list: Vec::new(), certificates: Vec::new() };
    watch(Phase::Delay);
    course.delay(spec, &asked)?;
    watch(Phase::Loss);
    course.loss(spec, &asked)?;
    watch(Phase::Rate);
    course.rate(&whole, &asked)?;
    watch(Phase::Queue);
    course.queue(&whole, &asked)?;
    for (asked, way) in asked.iter().zip(Way::BOTH) {
        for (what, why) in &asked.unknown {
            course.add(Subject::Unknown(what), Some(way), Outcome::NotChecked((*why).to_owned()));
        }
    }
    course.list.extend(judge::certificates(&course.certificates));
    Ok(Findings { list: course.list })
}

/// What a link said of itself, and what arrived at the receivers besides.
#[derive(Clone, Debug)]
struct Certificate {
    phase: Phase,
    report: Report,
    /// Up and down: packets given to the link, and packets that came out of it.
    ends: [Ends; 2],
}

/// One direction's packets, counted outside of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    sent: u64,
    /// Received, or come too late for the receiving socket's buffer.
    arrived: u64,
}

/// The measurements so far.
#[derive(Debug)]
struct Course {
    seed: u64,
    list: Vec<Finding>,
    certificates: Vec<Certificate>,
}

impl Course {
    fn add(&mut self, subject: Subject, way: Option<Way>, outcome: Outcome) {
        self.list.push(Finding { subject, way, outcome });
    }

    /// Loads a fresh link, all lanes at once or one after the other, and takes it down.
    fn load(
        &mut self,
        phase: Phase,
        spec: &Spec,
        lanes: &[Lane],
        at_once: bool,
    ) -> Result<Vec<Seen>, LinkError> {
        let link = Link::up(spec, self.seed)?;
        self.load_link(phase, link, lanes, at_once)
    }

    fn load_link(
        &mut self,
        phase: Phase,
        link: Link,
        lanes: &[Lane],
        at_once: bool,
    ) -> Result<Vec<Seen>, LinkError> {
        let mut seen = Vec::new();
        for lanes in lanes.chunks(if at_once { 2 } else { 1 }) {
            seen.extend(probe::run(&link, lanes)?);
        }
        let report = link.down()?;
        let mut ends = [Ends::default(); 2];
        for (lane, seen) in lanes.iter().zip(&seen) {
            let ends = &mut ends[usize::from(lane.way == Way::Down)];
            ends.sent += seen.sent.len() as u64;
            ends.arrived += seen.arrivals.len() as u64 + seen.overflowed;
        }
        self.certificates.push(Certificate { phase, report, ends });
        Ok(seen)
    }

    fn delay(&mut self, spec: &Spec, asked: &[Asked; 2]) -> Result<(), LinkError> {
        let slowest = asked.iter().map(|asked| asked.time_of(SMALL_PACKET)).max();
        let every = DELAY_EVERY.max(slowest.unwrap_or_default() * 3);
        let load = Load {
            packets: DELAY_PROBES,
            within: DELAY_WITHIN,
            prompt: true,
            ..Load::paced(SMALL_PACKET, every)
        };
        let lanes = asked.each_ref().map(|asked| Lane {
            way: asked.way,
            load,
            linger: asked.longest_wait(),
        });
        let link = Link::up(spec, self.seed)?;
        let alone = Load { packets: OWN_PROBES, every: DELAY_EVERY, ..load };
        let late =
            judge::median(probe::run_on_loopback(&link, alone)?.delays().flatten().collect());
        // One way after the other: their threads would wake at the same moments.
        let seen = self.load_link(Phase::Delay, link, &lanes, false)?;
        let mut ways = Vec::new();
        for (asked, seen) in asked.iter().zip(&seen) {
            let own = asked.time_of(SMALL_PACKET).as_secs_f64() + late;
            ways.push(
                seen.delays().map(|delay| delay.map(|delay| delay - own)).collect::<Vec<_>>(),
            );
        }
        let both = ways[0].iter().zip(&ways[1]).filter_map(|(up, down)| Some((*up)? + (*down)?));
        let rtt = judge::delay(spec.rtt(), both.collect(), 2.0 * late);
        self.add(Subject::RoundTrip, None, rtt);
        for (asked, delays) in asked.iter().zip(ways) {
            let outcome = judge::delay(asked.delay, delays.into_iter().flatten().collect(), late);
            self.add(Subject::Delay, Some(asked.way), outcome);
        }
        Ok(())
    }

    fn loss(&mut self, spec: &Spec, asked: &[Asked; 2]) -> Result<(), LinkError> {
        let lanes = asked.each_ref().map(|asked| Lane {
            way: asked.way,
            load: asked.loss_load(),
            linger: asked.longest_wait(),
        });
        let seen = self.load(Phase::Loss, spec, &lanes, true)?;
        for (asked, seen) in asked.iter().zip(&seen) {
            let report = self.certificates.last().map(|last| asked.way.of(&last.report));
            let dropped = report.map_or(0, |report| report.dropped);
            let outcome = match seen.spoiled().or_else(|| judge::dropped(dropped)) {
                Some(why) => Outcome::NotMeasured(why),
                None => judge::loss(asked.loss, seen.lost(), seen.sent.len() as u64),
            };
            self.add(Subject::Loss, Some(asked.way), outcome);
        }
        Ok(())
    }

    fn rate(&mut self, spec: &Spec, asked: &[Asked; 2]) -> Result<(), LinkError> {
        let lanes: Vec<Lane> = asked.iter().filter_map(Asked::rate_lane).collect();
        let sum: u64 = asked.iter().filter_map(|asked| asked.rate).map(|r| r.bits_per_s()).sum();
        let seen = match lanes.is_empty() {
            true => Vec::new(),
            false => self.load(Phase::Rate, spec, &lanes, sum <= AT_ONCE)?,
        };
        for asked in asked {
            let place = lanes.iter().position(|lane| lane.way == asked.way);
            let outcome = match (asked.rate, place.map(|place| (&lanes[place], &seen[place]))) {
                (None, _) => Outcome::NotChecked("no rate asked".to_owned()),
                (Some(rate), None) => Outcome::NotMeasured(format!(
                    "{rate} carries fewer than {LEAST_RATE_PACKETS} packets in {} s",
                    RATE_WITHIN.as_secs()
                )),
                (Some(rate), Some((lane, seen))) => match seen.spoiled() {
                    Some(why) => Outcome::NotMeasured(why),
                    None => judge::rate(rate, asked.queue, lane.load.ip_bytes, seen),
                },
            };
            self.add(Subject::Rate, Some(asked.way), outcome);
        }
        Ok(())
    }

    fn queue(&mut self, spec: &Spec, asked: &[Asked; 2]) -> Result<(), LinkError> {
        let lanes: Vec<Lane> = asked.iter().filter_map(Asked::queue_lane).collect();
        let seen = match lanes.is_empty() {
            true => Vec::new(),
            false => self.load(Phase::Queue, spec, &lanes, false)?,
        };
        for asked in asked {
            let place = lanes.iter().position(|lane| lane.way == asked.way);
            let [time, bytes] = match (asked.rate.zip(asked.queue), place.map(|at| &seen[at])) {
                (None, _) => [(); 2].map(|()| Outcome::NotChecked("no queue asked".to_owned())),
                (Some((rate, queue)), None) => {
                    let time = rate.time_to_send(queue).as_secs_f64();
                    let limit = QUEUE_WITHIN.as_secs();
                    let why = format!("it takes {time:.0} s to run empty, more than {limit} s");
                    [(); 2].map(|()| Outcome::NotMeasured(why.clone()))
                }
                (Some((rate, queue)), Some(seen)) => match seen.spoiled() {
                    Some(why) => [(); 2].map(|()| Outcome::NotMeasured(why.clone())),
                    None => judge::queue(rate, queue, asked.delay, seen),
                },
            };
            self.add(Subject::QueueTime, Some(asked.way), time);
            self.add(Subject::QueueBytes, Some(asked.way), bytes);
        }
        Ok(())
    }
}
