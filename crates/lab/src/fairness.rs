//! How a flow and a flow of cubic share a bottleneck.
//!
//! Both start at the same time, in the same direction, over the same bottleneck, and send as much
//! as they can for the whole load. Only bytes count that the receivers got while both flows were
//! active and past their start: in the first quarter of that time, and in the first ten round
//! trips, the shares only show which flow left slow start first.
//!
//! A share needs time to settle: over 20 Mbit/s, 40 ms and a queue of 4 products, reno has two thirds
//! of a load of 10 s and less than half of one of 30 s, because cubic leaves slow start earlier.
//!
//! How a bottleneck is shared depends on its queue more than on its rate, so a path with a rate is
//! measured with two: of 1 and of 4 times the bandwidth-delay product, as a modern access router's and
//! as a bloated one's.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lastbyte_link::{Queue, Report, Spec, Way};

use crate::error::LabError;
use crate::event::{Event, Watch};
use crate::path::{Path, PathUp};
use crate::plan::Plan;
use crate::record::{Beside, Received, Void};
use crate::setting::{Buffers, Setting, Settings};
use crate::subject::{Outcome, RunOptions, Subject};

/// The queues, in bandwidth-delay products.
const QUEUES: [f64; 2] = [1.0, 4.0];
/// How often each pair of a subject and a queue is measured, unless the plan has fewer rounds:
/// enough to see the spread of a share.
const ROUNDS: u32 = 3;
/// How often a run whose link missed its promise is repeated alone before it is given up.
const MAX_REPEATS: u32 = 2;
/// The first percent of the time in which both flows are active that do not count,
const START_PERCENT: u32 = 25;
/// and the first round trips, unless these are more than half of the time.
const START_ROUND_TRIPS: u32 = 10;

/// Measures some subjects of a plan beside a flow of cubic, in rounds over subjects and queues; the
/// order turns from round to round. As many as [`Plan::parallel`] run at once, each on its own link.
///
/// Other programs are left out: their sockets could not be told from cubic's. A run whose link
/// breaks its promise even when repeated alone is left out too, and reported as [`Event::Void`].
///
/// # Errors
/// The first run that failed, unless the error concerns one subject: then it is reported as
/// [`Event::Void`].
pub fn fairness(
    plan: &Plan,
    which: &[usize],
    watch: &mut Watch<'_>,
) -> Result<Vec<Beside>, LabError> {
    let queues = queues(&plan.path);
    let pairs = which.iter().flat_map(|subject| queues.iter().map(move |queue| (*subject, *queue)));
    let pairs: Vec<Pair> = pairs
        .filter_map(|(subject, queue)| Some(Pair { subject, queue, settings: own(plan, subject)? }))
        .collect();
    let mut jobs: Vec<(&Pair, u32)> = Vec::new();
    for round in 0..plan.rounds.least_rounds.min(ROUNDS) {
        let mut turn: Vec<&Pair> = pairs.iter().collect();
        turn.rotate_left(round as usize % pairs.len().max(1));
        jobs.extend(turn.into_iter().map(|pair| (pair, round)));
    }
    let mut all = Vec::with_capacity(jobs.len());
    for (number, batch) in jobs.chunks(plan.parallel.max(1)).enumerate() {
        let (done, of) = (number * plan.parallel.max(1), jobs.len());
        let subjects: Vec<usize> = batch.iter().map(|(pair, _)| pair.subject).collect();
        if watch(Event::RunningBeside { done, of, subjects: &subjects }).is_break() {
            return Ok(all);
        }
        for ((pair, round), made) in batch.iter().zip(at_once(plan, batch)) {
            match made.and_then(|made| pair.accept_or_repeat(plan, *round, made, watch)) {
                Ok(beside) => {
                    let flow = watch(Event::Beside(&beside));
                    all.push(beside);
                    if flow.is_break() {
                        return Ok(all);
                    }
                }
                Err(error) if error.is_of_subject() => {
                    let (subject, why) = (pair.subject, error.to_string());
                    // The next event asks again whether to end.
                    let _ = watch(Event::Void(&Void { subject, round: *round, why, beside: true }));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(all)
}

/// The queues to measure with over a path; `None` is the path's own.
#[must_use]
pub fn queues(path: &Path) -> Vec<Option<f64>> {
    let has_rate =
        |spec: &Spec| Way::BOTH.iter().any(|way| spec.direction(*way).mean_rate().is_some());
    match path.scenario() {
        Some(scenario) if has_rate(&scenario.spec) => QUEUES.map(Some).to_vec(),
        _ => vec![None],
    }
}

fn own(plan: &Plan, subject: usize) -> Option<Settings> {
    match plan.subjects.get(subject)?.setting() {
        Setting::Own(settings) => Some(settings),
        Setting::Command(_) => None,
    }
}

/// A run and its link's report.
type Made = Result<(Beside, Option<Report>), LabError>;

/// Makes the runs of one batch at the same time.
fn at_once(plan: &Plan, batch: &[(&Pair, u32)]) -> Vec<Made> {
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(batch.len());
        for (pair, round) in batch {
            threads.push(scope.spawn(move || pair.make(plan, *round)));
        }
        threads.into_iter().map(joined).collect()
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Measures one subject of a plan beside a flow of cubic once, over the path with a queue of so
/// many bandwidth-delay products, or with its own. A run whose link breaks its promise is repeated.
///
/// # Errors
/// If the run failed, if one of the two received nothing past its start, or if the link broke its
/// promise each time.
pub fn beside(
    plan: &Plan,
    subject: usize,
    queue: Option<f64>,
    round: u32,
) -> Result<Beside, LabError> {
    let settings = own(plan, subject)
        .ok_or_else(|| LabError::Unsuited("only our own sender runs beside cubic".to_owned()))?;
    let pair = Pair { subject, settings, queue };
    pair.accept_or_repeat(plan, round, pair.make(plan, round)?, &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
}

/// A subject, and the queue over which it meets cubic.
struct Pair {
    subject: usize,
    settings: Settings,
    queue: Option<f64>,
}

impl Pair {
    /// Returns the run if its link kept its promise; else repeats it, alone.
    fn accept_or_repeat(
        &self,
        plan: &Plan,
        round: u32,
        made: (Beside, Option<Report>),
        watch: &mut Watch<'_>,
    ) -> Result<Beside, LabError> {
        let (mut beside, mut report) = made;
        let mut repeats = 0;
        while let Some(why) = report.as_ref().and_then(Report::broken_promise) {
            if repeats == MAX_REPEATS {
                return Err(LabError::Unsuited(why));
            }
            repeats += 1;
            let _ = watch(Event::Repeating { subject: self.subject, why: &why });
            (beside, report) = self.make(plan, round)?;
        }
        Ok(beside)
    }

    /// Makes the path, lets both use it, and takes it down.
    fn make(&self, plan: &Plan, round: u32) -> Made {
        let path = with_queue(&plan.path, self.queue);
        let up = path.up(plan.seed.wrapping_add(round.into()))?;
        let (subject, cubic) = self.both(plan, &up);
        let (subject, cubic) = (received(subject?), received(cubic?));
        let report = up.down()?;
        let window = Window::of(&subject, &cubic, path.description().rtt.unwrap_or_default())?;
        let beside = Beside {
            subject: self.subject,
            round,
            queue_bdp: self.queue,
            subject_bits_per_s: window.rate(&subject),
            cubic_bits_per_s: window.rate(&cubic),
        };
        Ok((beside, report))
    }

    /// Runs both from the same moment on.
    fn both(&self, plan: &Plan, path: &PathUp) -> (Ran, Ran) {
        let direction = self.settings.direction;
        let cubic = Settings { direction, ..Settings::new("cubic", Buffers::Auto) };
        let options = RunOptions { load: plan.load, latency: false, port: plan.port };
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let cubic = scope.spawn(|| {
                start.wait();
                // The subject has the plan's port.
                cubic.run(path, &RunOptions { port: 0, ..options })
            });
            start.wait();
            (self.settings.run(path, &options), joined(cubic))
        })
    }
}

type Ran = Result<Outcome, LabError>;

/// The path with a queue of so many bandwidth-delay products in both directions.
fn with_queue(path: &Path, queue: Option<f64>) -> Path {
    let mut path = path.clone();
    if let (Path::Link(scenario), Some(multiple)) = (&mut path, queue) {
        let spec = &mut scenario.spec;
        let later = spec.changes.iter_mut().flat_map(|change| [&mut change.up, &mut change.down]);
        for direction in [&mut spec.up, &mut spec.down].into_iter().chain(later) {
            if direction.mean_rate().is_some() {
                direction.queue = Some(Queue::Bdp(multiple));
            }
        }
    }
    path
}

fn received(outcome: Outcome) -> Vec<Received> {
    outcome.flows.into_iter().filter_map(|flow| flow.received).collect()
}

/// The time that counts, in tenths of a second since both began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: usize,
    to: usize,
}

impl Window {
    /// From when all connections of both were established until the first of them ended, without
    /// the start.
    fn of(subject: &[Received], cubic: &[Received], rtt: Duration) -> Result<Self, LabError> {
        let nothing = || LabError::Unsuited(NOT_TOGETHER.to_owned());
        let all = || subject.iter().chain(cubic);
        if subject.is_empty() || cubic.is_empty() {
            return Err(nothing());
        }
        let from = all().map(|one| one.began).max().unwrap_or_default();
        let to = all().map(|one| one.began + one.time).min().unwrap_or_default();
        let together = to.saturating_sub(from);
        let start = (together * START_PERCENT / 100).max(rtt * START_ROUND_TRIPS).min(together / 2);
        let (from, to) = (tenths(from + start) + 1, tenths(to));
        if from < to { Ok(Self { from, to }) } else { Err(nothing()) }
    }

    /// The rate at the receivers within the window, in bit/s.
    fn rate(self, flows: &[Received]) -> f64 {
        let bytes: u64 = flows
            .iter()
            .map(|flow| {
                let began = tenths(flow.began);
                let from = self.from.saturating_sub(began);
                let length = self.to - self.from;
                flow.tenths.iter().skip(from).take(length).sum::<u64>()
            })
            .sum();
        bytes as f64 * 8.0 * 10.0 / (self.to - self.from) as f64
    }
}

const NOT_TOGETHER: &str = "its flow and cubic's did not overlap long enough to be compared";

fn tenths(time: Duration) -> usize {
    usize::try_from(time.as_millis() / 100).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use lastbyte_link::Scenario;

    use super::*;

    /// So many bytes in each tenth of a second.
    fn steady(began_ms: u64, tenths: usize, bytes: u64) -> Received {
        Received {
            bytes: bytes * tenths as u64,
            began: Duration::from_millis(began_ms),
            time: Duration::from_millis(100 * tenths as u64),
            end: None,
            tenths: vec![bytes; tenths],
            receive_buffer_bytes: None,
            answers: Vec::new(),
        }
    }

    #[test]
    fn only_the_time_in_which_both_are_there_counts() {
        let mut subject = steady(0, 100, 10_000);
        subject.tenths[..30].fill(1_000_000);
        let cubic = steady(1_000, 80, 20_000);
        let rtt = Duration::from_millis(40);
        let (subject, cubic) = ([subject], [cubic]);
        let window = Window::of(&subject, &cubic, rtt).unwrap();
        // From 1 s to 9 s, without its first quarter.
        assert_eq!(window, Window { from: 31, to: 90 });
        assert!((window.rate(&subject) - 0.8e6).abs() < 1e-3);
        assert!((window.rate(&cubic) - 1.6e6).abs() < 1e-3);
        // Ten round trips of half a second would leave nothing: half of the time is left.
        let long = Window::of(&subject, &cubic, Duration::from_millis(500)).unwrap();
        assert_eq!(long, Window { from: 51, to: 90 });
    }

    #[test]
    fn flows_that_never_met_share_nothing() {
        let rtt = Duration::from_millis(40);
        let (one, other) = ([steady(0, 10, 1)], [steady(2_000, 10, 1)]);
        assert!(Window::of(&one, &other, rtt).is_err());
        assert!(Window::of(&one, &[], rtt).is_err());
        assert!(Window::of(&[], &other, rtt).is_err());
    }

    #[test]
    fn a_path_with_a_rate_is_measured_with_two_queues() {
        let path = |toml| Path::Link(Box::new(Scenario::parse("t", toml).unwrap()));
        assert_eq!(queues(&Path::Loopback), [None]);
        assert_eq!(queues(&path("rtt = '1ms'")), [None]);
        let rated = path("rtt = '40ms'\nrate = '20mbit'\nqueue = '2s'");
        assert_eq!(queues(&rated), [Some(1.0), Some(4.0)]);
        let spec = |path: &Path| path.scenario().unwrap().spec.clone();
        let changed = spec(&with_queue(&rated, Some(4.0)));
        for way in Way::BOTH {
            assert_eq!(changed.direction(way).queue, Some(Queue::Bdp(4.0)));
        }
        assert_eq!(spec(&with_queue(&rated, None)), spec(&rated));
    }
}
