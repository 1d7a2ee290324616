//! What is checked, and how a fresh link is loaded for it.

use std::time::Instant;

use lastbyte_link::{Direction, Link, LinkError, PROMISED_LATENESS, Report, Spec, Way};

use crate::asked::Asked;
use crate::finding::{Finding, Outcome, Phase, Subject};
use crate::part::Part;
use crate::probe::{self, Flow, Observed};

/// Both directions are loaded at once up to this sum of their loads, in bit/s; faster ones one after
/// the other, so that senders and carrier do not wait for each other's processor.
const AT_ONCE: f64 = 250e6;

/// A path, and what it asks of each direction.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    pub(crate) spec: &'a Spec,
    /// Decides which packets are lost.
    pub(crate) seed: u64,
    /// Up, down.
    pub(crate) asked: [Asked; 2],
}

/// Whether the flows of both directions are sent at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    Always,
    /// Up to [`AT_ONCE`].
    IfSlow,
    Never,
}

/// What was observed of a link under load.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// When the link was made.
    pub(crate) began: Instant,
    /// Up, down: the flow and what was observed of it, if there was one.
    pub(crate) observed: [Option<(Flow, Observed)>; 2],
    /// `None` where there was no flow, so that no link was made.
    pub(crate) run: Option<LinkRun>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(spec: &'a Spec, seed: u64) -> Self {
        Self { spec, seed, asked: Way::BOTH.map(|way| Asked::of(spec, way)) }
    }

    /// The part of the path that `keep` keeps of each direction.
    pub(crate) fn part(&self, keep: fn(&Direction) -> Direction) -> Part {
        Part::of(self.spec, keep)
    }

    /// Loads a fresh link with the flows that `flow` gives for each direction, and takes it down.
    pub(crate) fn load(
        &self,
        phase: Phase,
        part: &Part,
        flow: impl Fn(&Asked) -> Option<Flow>,
        together: Together,
    ) -> Result<Loaded, LinkError> {
        let flows = self.asked.each_ref().map(flow);
        let sent: Vec<Flow> = flows.iter().flatten().copied().collect();
        if sent.is_empty() {
            return Ok(Loaded { began: Instant::now(), observed: [None, None], run: None });
        }
        let at_once = match together {
            Together::Always => true,
            Together::IfSlow => sent.iter().map(Flow::bits_per_s).sum::<f64>() <= AT_ONCE,
            Together::Never => false,
        };
        let link = Link::up(&part.spec, self.seed)?;
        let began = Instant::now();
        let observed = send(&link, &sent, at_once)?;
        let run = take_down(phase, link, &sent, &observed)?;
        let mut observed = observed.into_iter();
        let observed = flows.map(|flow| Some((flow?, observed.next()?)));
        Ok(Loaded { began, observed, run: Some(run) })
    }
}

/// Sends flows over a link, all at once or one after the other.
pub(crate) fn send(link: &Link, flows: &[Flow], at_once: bool) -> Result<Vec<Observed>, LinkError> {
    let mut observed = Vec::new();
    for flows in flows.chunks(if at_once { 2 } else { 1 }) {
        observed.extend(probe::run(link, flows)?);
    }
    Ok(observed)
}

/// Takes down a link that has carried nothing but these flows.
pub(crate) fn take_down(
    phase: Phase,
    link: Link,
    flows: &[Flow],
    observed: &[Observed],
) -> Result<LinkRun, LinkError> {
    let report = link.down()?;
    let mut counts = [Counts::default(); 2];
    for (flow, observed) in flows.iter().zip(observed) {
        let counts = &mut counts[flow.way.index()];
        counts.sent += observed.sent.len() as u64;
        counts.arrived += observed.arrivals.len() as u64 + observed.overflowed + observed.refused;
    }
    Ok(LinkRun { phase, report, counts })
}

/// What a link reported of itself, and what its hosts counted.
#[derive(Clone, Debug)]
pub(crate) struct LinkRun {
    pub(crate) phase: Phase,
    pub(crate) report: Report,
    /// Up, down.
    pub(crate) counts: [Counts; 2],
}

/// One direction's packets, counted outside of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    /// Received, refused as corrupt, or dropped because the receiving socket's buffer was full.
    pub(crate) arrived: u64,
}

/// The result of one attempt at a phase.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) list: Vec<Finding>,
    pub(crate) runs: Vec<LinkRun>,
    /// Whether the probe itself was later than its figures allow.
    pub(crate) late: bool,
}

impl Attempt {
    pub(crate) fn of(run: Option<LinkRun>) -> Self {
        Self { runs: run.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, subject: Subject, way: Option<Way>, outcome: Outcome) {
        self.list.push(Finding { subject, way, outcome });
    }

    /// Adds a finding about a direction that was measured over a part of the path; a figure says what
    /// was left out.
    pub(crate) fn add_over(&mut self, part: &Part, way: Way, finding: (Subject, Outcome)) {
        let (subject, mut outcome) = finding;
        let left_out = part.left_out(way);
        if let Outcome::Measured(measured) = &mut outcome
            && !left_out.is_empty()
        {
            measured.basis += &format!("; without {left_out}");
        }
        self.add(subject, Some(way), outcome);
    }

    /// How busy the machine was: the figures that are missing for that reason, and whether packets were
    /// late or dropped by a device.
    pub(crate) fn busy(&self) -> (usize, bool) {
        let is_missing = |one: &&Finding| matches!(one.outcome, Outcome::TooBusy(_));
        let broken = self
            .runs
            .iter()
            .any(|run| run.report.lateness.p99 > PROMISED_LATENESS || run.report.device_drops > 0);
        (self.list.iter().filter(is_missing).count(), self.late || broken)
    }
}
