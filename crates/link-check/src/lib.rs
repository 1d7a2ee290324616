//! Measures what a link claims to do, with probes of its own.
//!
//! This crate forbids a property of a path that is neither measured nor called unchecked.
//!
//! UDP packets go from one host to the other through real kernels, and both ends are in this
//! process, so that one clock stamps them: a one-way delay is measured, not guessed as half of a
//! round trip. Nothing is taken from the link but its [`Report`], which is checked too.
//!
//! Each [`Phase`] has a fresh link with as much of the path as does not hide what it is about; a
//! figure says what was left out. Changes and cuts are left out of all but their own:
//!
//! - delay: small packets one at a time; what the same probe takes over loopback, its own lateness,
//!   is taken off. Where the delay varies, quantiles and the distance from the distribution asked;
//! - loss: numbered small packets, slowly enough for the queue; each kind of loss by itself, damage
//!   and second copies together. Packets that came in the wrong order are counted there too;
//! - rate: full packets at [`OFFERED`] times the rate;
//! - queue: a burst that does not fit;
//! - recorded rate: more at once than it carries in the time, compared with its opportunities;
//! - `CoDel`: full packets at [`CODEL_OFFERED`] times the rate. What it does is compared with what
//!   the model does with packets that come when these were sent: the wire is checked against the
//!   model, and the model's own tests check that against RFC 8289;
//! - marks above a length of the queue: the same;
//! - policer: a burst that does not pass whole, and a load behind it;
//! - cuts: a probe every [`CUT_EVERY`], on a link beside the others, because it takes longest;
//! - changes: the same for delays; loads over the time of the change for rates and losses.
//!
//! A phase that the machine was too busy for is repeated by itself, [`ATTEMPTS`] times in all. Whether
//! it was is told by the link's lateness and the probe's own, and by a sender that was late, never by
//! the figures. What a phase cannot tell it says: [`Outcome::NotChecked`] where nothing was asked or it
//! is too far off, [`Outcome::NotMeasured`] and [`Outcome::TooBusy`] where it tried in vain.

#![forbid(unsafe_code)]

mod asked;
mod course;
mod finding;
mod judge;
mod limits;
mod parts;
mod probe;
mod timetable;

use std::thread;
use std::time::Duration;

use lastbyte_link::{LinkError, PROMISED_LATENESS, Report, Spec, Way};

use asked::Asked;
use course::Course;

pub use finding::{Finding, Findings, Measured, Moment, Outcome, Phase, Subject};

/// How far the median of a delay may be off, and that of the round trip: four wake-ups of the link's
/// thread on an idle machine, twice in each direction, with room.
pub const DELAY_TOLERANCE: Duration = Duration::from_micros(300);
/// How far a rate may be off, as a share of it: more would be seen in the lab's results, which
/// differ by a few percent between runs.
pub const RATE_TOLERANCE: f64 = 0.01;
/// How far a full queue may be off, as a share of it; but one packet, which may just not have fitted,
/// and [`DELAY_TOLERANCE`] at the link's rate are always allowed.
pub const QUEUE_TOLERANCE: f64 = 0.02;
/// The share of fair links of which a figure that rests on chance is called wrong by chance, each
/// figure by itself: the intervals are those of 99 %. With the same seed and path the answer is always
/// the same.
pub const DOUBT: f64 = 0.01;
/// As many losses are wanted before a share is judged: their count then has a standard deviation of
/// less than a quarter of itself.
pub const LOSSES_WANTED: f64 = 20.0;
/// What is offered to measure a rate, as a multiple of it: enough that a sender that is late now and
/// then leaves the link no gap.
pub const OFFERED: f64 = 1.1;
/// What is offered to a managed queue and to a policer, as a multiple of the rate: a queue that grows
/// by a quarter of the time is above 5 ms after 20 ms, and 1 ms of lateness moves that by 4 ms.
pub const CODEL_OFFERED: f64 = 1.25;
/// How far the number of packets that `CoDel` drops or marks may be off, as a share of it; 2 always.
pub const STRIKES_TOLERANCE: f64 = 0.05;
/// The time from one probe to the next where the wire is cut, which is how exactly a cut is seen.
pub const CUT_EVERY: Duration = Duration::from_millis(10);
/// How exactly the time of a change is seen: a probe's distance, and as much for the link's beginning.
pub const STEP_TOLERANCE: Duration = Duration::from_millis(20);
/// Cuts that end later are not waited for.
pub const CUTS_WITHIN: Duration = Duration::from_secs(50);
/// Changes that come later are not waited for.
pub const CHANGES_WITHIN: Duration = Duration::from_secs(20);
/// How often a phase is tried when the machine is too busy for it.
pub const ATTEMPTS: u32 = 3;

/// Packets to measure delays with, and the time between them: half a second, and a p99 that is not the
/// slowest of a few.
const DELAY_PROBES: u32 = 100;
const DELAY_EVERY: Duration = Duration::from_millis(5);
const DELAY_WITHIN: Duration = Duration::from_secs(3);
/// Where the delay varies: so many, at least so far from each other, and about so long, because each has
/// to arrive before the next.
const JITTER_PROBES: u32 = 1000;
const JITTER_EVERY: Duration = Duration::from_millis(2);
const JITTER_FOR: Duration = Duration::from_secs(8);
/// Packets over loopback, to know how late the probe itself is.
const OWN_PROBES: u32 = 50;
/// With fewer of them there is no median worth the name.
const LEAST_PROBES: usize = 20;
/// Packets to judge a loss with; more for bursts, of which there are fewer than losses.
const LEAST_LOSS_PACKETS: f64 = 5_000.0;
const BURST_PACKETS: f64 = 20_000.0;
const MOST_LOSS_PACKETS: f64 = 100_000.0;
/// Numbered packets per second in each direction: well below what one core carries.
const LOSS_PACKETS_PER_S: f64 = 20_000.0;
/// The share of a rate that numbered packets may take: the queue stays all but empty.
const LOSS_SHARE_OF_RATE: f64 = 0.5;
/// How late a link may be to read while the queue still takes the numbered packets that pile up.
const LOSS_LATE: Duration = Duration::from_millis(50);
/// How long numbered packets are sent at most.
const LOSS_WITHIN: Duration = Duration::from_secs(8);
/// How long full packets are sent to measure a rate; a low one takes longer, for enough packets.
const RATE_FOR: Duration = Duration::from_secs(2);
const RATE_WITHIN: Duration = Duration::from_secs(5);
const RATE_PACKETS: u64 = 200;
/// With fewer a rate is not measured.
const LEAST_RATE_PACKETS: u32 = 20;
/// How often a fast sender writes, many packets at once.
const SEND_EVERY: Duration = Duration::from_micros(200);
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
/// How long a managed queue is loaded: its law drops about 80 packets in that time.
const CODEL_FOR: Duration = Duration::from_secs(2);
/// What is sent to a policer at once, as a multiple of its burst.
const POLICER_BURST: u64 = 2;
/// As much as a recorded rate carries in this time is sent to it; a whole round of it where that takes
/// no longer than the second time.
const TRACE_FOR: Duration = Duration::from_secs(3);
const TRACE_WITHIN: Duration = Duration::from_secs(10);
/// How well it is known when a link began.
const START_UNSURE: Duration = Duration::from_millis(20);
/// How long a state before and after a change is measured.
const STEP_FOR: Duration = Duration::from_secs(1);
/// Both directions are loaded at once up to this sum of their loads, in bit/s; faster ones one after
/// the other, so that senders and carrier do not wait for each other's processor.
const AT_ONCE: f64 = 250e6;
/// IP packets: the largest, and that of a probe with nothing but its number.
const FULL_PACKET: u32 = 1500;
const SMALL_PACKET: u32 = probe::HEADERS + probe::NUMBER;

/// Measures a path. Takes about 10 s for a plain one, some more for each thing beyond delay, loss,
/// rate and queue, and as long as the last cut or change that is waited for; `watch` is told of each
/// phase as it begins. `seed` decides which packets are lost.
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
    let mut course = Course::new(spec, seed, asked);
    let beside = thread::scope(|scope| {
        // Beside the others: it takes longest, and a few probes disturb nobody.
        let beside = scope.spawn(|| timetable::cuts_and_delays(spec, seed));
        course.run(watch)?;
        watch(Phase::Timetable);
        beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    course.keep(beside);
    course.attempt(Phase::Timetable, |_| timetable::rates_and_losses(spec, seed))?;
    course.keep(timetable::not_checked(spec));
    Ok(course.findings())
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
    /// Received, refused as damaged, or come too late for the receiving socket's buffer.
    arrived: u64,
}
