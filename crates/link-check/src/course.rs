//! The course of a check: its phases, one after the other, and again where the machine was too busy.

use std::time::Duration;

use lastbyte_link::{Direction, Link, LinkError, PROMISED_LATENESS, Spec, Way};

use super::asked::Asked;
use super::finding::{Finding, Findings, Outcome, Phase, Subject};
use super::judge::{self, Varying};
use super::parts;
use super::probe::{self, Lane, Load, Seen};
use super::{
    ATTEMPTS, Certificate, DELAY_EVERY, DELAY_TOLERANCE, Ends, JITTER_EVERY, OWN_PROBES,
    SMALL_PACKET,
};

/// A packet of the greatest length that takes longer than this to be transmitted is not tried.
const LONGEST_PACKET_WITHIN: Duration = Duration::from_millis(200);

/// Packets of the greatest length: of as many not all are lost.
const LONGEST_PACKETS: u32 = 10;

/// The measurements so far.
#[derive(Debug)]
pub(super) struct Course<'a> {
    pub(super) spec: &'a Spec,
    pub(super) seed: u64,
    pub(super) asked: [Asked; 2],
    list: Vec<Finding>,
    certificates: Vec<Certificate>,
    repeated: usize,
}

/// A phase.
type Measure<'a> = fn(&Course<'a>) -> Result<Attempt, LinkError>;

/// What one try of a phase came to.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) list: Vec<Finding>,
    pub(super) certificates: Vec<Certificate>,
    /// How late the probe itself was, beyond what its figures allow.
    pub(super) late: bool,
}

impl Attempt {
    pub(super) fn add(&mut self, subject: Subject, way: Option<Way>, outcome: Outcome) {
        self.list.push(Finding { subject, way, outcome });
    }

    /// As [`Attempt::add`], and says what of the path was left out for it.
    pub(super) fn add_without(&mut self, subject: Subject, way: Way, outcome: Outcome, left: &str) {
        let mut outcome = outcome;
        if let Outcome::Measured(measured) = &mut outcome
            && !left.is_empty()
        {
            measured.basis += &format!("; without {left}");
        }
        self.add(subject, Some(way), outcome);
    }

    /// How busy the machine was: figures missed for that reason, and whether packets were late or
    /// dropped unasked.
    fn busy(&self) -> (usize, bool) {
        let missed = |one: &&Finding| matches!(one.outcome, Outcome::TooBusy(_));
        let broken = self
            .certificates
            .iter()
            .any(|one| one.report.lateness.p99 > PROMISED_LATENESS || one.report.device_drops > 0);
        (self.list.iter().filter(missed).count(), self.late || broken)
    }
}

impl<'a> Course<'a> {
    pub(super) fn new(spec: &'a Spec, seed: u64, asked: [Asked; 2]) -> Self {
        Self { spec, seed, asked, list: Vec::new(), certificates: Vec::new(), repeated: 0 }
    }

    /// All phases that the path asks for, but for those of its timetable.
    pub(super) fn run(&mut self, watch: &mut dyn FnMut(Phase)) -> Result<(), LinkError> {
        let any = |is: fn(&Asked) -> bool| self.asked.iter().any(is);
        let phases: [(Phase, bool, Measure<'a>); 11] = [
            (Phase::Delay, true, Self::delay),
            (Phase::Loss, true, Self::loss),
            (Phase::Bursts, any(|asked| asked.bursts.is_some()), Self::bursts),
            (Phase::Counting, any(|asked| asked.lose_every.is_some()), Self::counting),
            (Phase::Damage, any(|asked| asked.corrupt + asked.duplicate > 0.0), Self::damage),
            (Phase::Rate, true, Self::rate),
            (Phase::Queue, true, Self::queue),
            (Phase::Recorded, any(|asked| asked.trace.is_some()), Self::recorded),
            (Phase::Codel, any(|asked| asked.codel), Self::codel),
            (Phase::Marks, any(|asked| asked.threshold().is_some()), Self::marks),
            (Phase::Policer, any(|asked| asked.policer.is_some()), Self::policer),
        ];
        for (phase, is_asked, measure) in phases {
            if is_asked {
                watch(phase);
                self.attempt(phase, measure)?;
            }
        }
        Ok(())
    }

    /// Tries a phase until the machine was not too busy for it, and keeps the best try.
    pub(super) fn attempt(
        &mut self,
        phase: Phase,
        measure: impl Fn(&Self) -> Result<Attempt, LinkError>,
    ) -> Result<(), LinkError> {
        let mut best: Option<Attempt> = None;
        for _ in 0..ATTEMPTS {
            let attempt = measure(self)?;
            debug_assert!(attempt.certificates.iter().all(|one| one.phase == phase));
            let (better, worse) = match best.take() {
                Some(best) if best.busy() <= attempt.busy() => (best, Some(attempt)),
                other => (attempt, other),
            };
            self.repeated += worse.map_or(0, |worse| worse.certificates.len());
            let idle = better.busy() == (0, false);
            best = Some(better);
            if idle {
                break;
            }
        }
        self.keep(best.unwrap_or_default());
        Ok(())
    }

    /// Counts a try among the findings.
    pub(super) fn keep(&mut self, attempt: Attempt) {
        self.list.extend(attempt.list);
        self.certificates.extend(attempt.certificates);
    }

    /// All that was found; what the links said of themselves comes last.
    pub(super) fn findings(mut self) -> Findings {
        self.list.extend(judge::certificates(&self.certificates, self.repeated));
        Findings { list: self.list }
    }

    /// The path with what is kept of it, and what is left out of each direction.
    pub(super) fn part(&self, keep: fn(&Direction) -> Direction) -> (Spec, [String; 2]) {
        let spec = parts::path(self.spec, keep);
        let left =
            Way::BOTH.map(|way| parts::left_out(self.spec.direction(way), spec.direction(way)));
        (spec, left)
    }

    fn delay(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::steady);
        let mut attempt = Attempt::default();
        let slowest = self.asked.iter().map(|asked| asked.time_of(SMALL_PACKET)).max();
        let every = JITTER_EVERY.max(slowest.unwrap_or_default() * 3);
        // Both ways get the same number of packets, because they are added.
        let varying = self.asked.iter().filter(|asked| asked.jitter.is_some());
        let slowest = varying.map(|asked| asked.delay_load(every)).max_by_key(|load| load.every);
        let lanes = self.asked.each_ref().map(|asked| {
            let load = slowest.unwrap_or_else(|| asked.delay_load(every));
            asked.lane(load, asked.idle_wait())
        });
        let link = Link::up(&spec, self.seed)?;
        let alone = Load { packets: OWN_PROBES, every: DELAY_EVERY, ..lanes[0].load };
        let alone = probe::run_on_loopback(&link, alone)?;
        let late = judge::median(alone.delays().flatten().collect());
        // One way after the other: their threads would wake at the same moments. Not so where the
        // delay varies, which takes long.
        let mut seen = run(&link, &lanes, slowest.is_some())?;
        let (long_lanes, long) = self.longest_packets(&link, &mut seen)?;
        let lanes: Vec<Lane> = lanes.into_iter().chain(long_lanes).collect();
        let (seen, certificate) = certified(Phase::Delay, link, &lanes, seen)?;
        attempt.certificates.push(certificate);
        let seen = &seen[..Way::BOTH.len()];
        let allowed = DELAY_TOLERANCE.as_secs_f64();
        attempt.late = late > allowed || seen.iter().chain([&alone]).any(|one| one.late > allowed);
        self.judge_delay(seen, late, &left, &mut attempt);
        attempt.list.extend(long);
        Ok(attempt)
    }

    fn judge_delay(&self, seen: &[Seen], late: f64, left: &[String; 2], attempt: &mut Attempt) {
        let ways: Vec<Vec<Option<f64>>> = self
            .asked
            .iter()
            .zip(seen)
            .map(|(asked, seen)| {
                let own = asked.time_of(SMALL_PACKET).as_secs_f64() + late;
                seen.delays().map(|delay| delay.map(|delay| delay - own)).collect()
            })
            .collect();
        let both = ways[0].iter().zip(&ways[1]).filter_map(|(up, down)| Some((*up)? + (*down)?));
        let both: Vec<f64> = both.collect();
        let [up, down] = self.asked.each_ref().map(varying);
        let fixed = up.jitter.is_none() && down.jitter.is_none();
        let round_trip = if fixed {
            judge::delay(self.spec.rtt(), both, 2.0 * late)
        } else {
            judge::varying_sum([&up, &down], both)
        };
        attempt.add(Subject::RoundTrip, None, round_trip);
        for ((asked, delays), left) in self.asked.iter().zip(ways).zip(left) {
            let delays: Vec<f64> = delays.into_iter().flatten().collect();
            let found = match asked.jitter {
                None => vec![(Subject::Delay, judge::delay(asked.delay, delays, late))],
                Some(_) => judge::varying(&varying(asked), delays),
            };
            for (subject, outcome) in found {
                attempt.add_without(subject, asked.way, outcome, left);
            }
        }
    }

    /// Tries packets of the greatest length, and one byte more; adds what was seen of them.
    fn longest_packets(
        &self,
        link: &Link,
        seen: &mut Vec<Seen>,
    ) -> Result<(Vec<Lane>, Vec<Finding>), LinkError> {
        let (mut lanes, mut list) = (Vec::new(), Vec::new());
        for asked in &self.asked {
            let time = asked.time_of(asked.mtu);
            let outcome = if time > LONGEST_PACKET_WITHIN {
                let seconds = time.as_secs_f64();
                let why = format!("one of {} bytes takes {seconds:.1} s to send", asked.mtu);
                Outcome::NotMeasured(why)
            } else {
                let refused = probe::refuses_longer(link, asked.way, asked.mtu)?;
                let within = Duration::from_secs(60);
                let load = Load::paced(asked.mtu, (time * 2).max(DELAY_EVERY));
                let load = Load { packets: LONGEST_PACKETS, within, ..load };
                let lane = asked.lane(load, asked.idle_wait() + time);
                let mut one = probe::run(link, &[lane])?;
                let arrived = one.iter().flat_map(|one| &one.arrivals).map(|one| one.ip_bytes);
                let outcome = judge::longest_packet(asked.mtu, refused, arrived.max());
                lanes.push(lane);
                seen.append(&mut one);
                outcome
            };
            list.push(Finding { subject: Subject::LongestPacket, way: Some(asked.way), outcome });
        }
        Ok((lanes, list))
    }

    /// Loads a fresh link, all lanes at once or one after the other, and takes it down.
    pub(super) fn load(
        &self,
        phase: Phase,
        spec: &Spec,
        lanes: &[Lane],
        at_once: bool,
    ) -> Result<(Vec<Seen>, Certificate), LinkError> {
        let link = Link::up(spec, self.seed)?;
        let seen = run(&link, lanes, at_once)?;
        certified(phase, link, lanes, seen)
    }

    fn loss(&self) -> Result<Attempt, LinkError> {
        let lane = |asked: &Asked| Some(asked.lane(asked.loss_load(asked.loss), asked.idle_wait()));
        self.numbered(Phase::Loss, parts::loss, lane, |asked, seen| {
            let lost = judge::share(asked.loss, seen.lost(), seen.sent.len() as u64);
            let varying = varying(asked);
            let order = judge::overtaken(asked.reorders().then_some(&varying), seen);
            vec![(Subject::Loss, lost), (Subject::Overtaken, order)]
        })
    }

    fn bursts(&self) -> Result<Attempt, LinkError> {
        let lane =
            |asked: &Asked| Some(asked.lane(asked.burst_load(asked.bursts?), asked.idle_wait()));
        self.numbered(Phase::Bursts, parts::bursts, lane, |asked, seen| {
            asked.bursts.map_or_else(Vec::new, |bursts| judge::bursts(bursts, seen))
        })
    }

    fn counting(&self) -> Result<Attempt, LinkError> {
        let lane = |asked: &Asked| {
            Some(asked.lane(asked.every_load(asked.lose_every?), asked.idle_wait()))
        };
        self.numbered(Phase::Counting, parts::every_nth, lane, |asked, seen| {
            let every = asked.lose_every.map(|every| judge::every_nth(every, seen));
            every.map(|outcome| (Subject::LoseEvery, outcome)).into_iter().collect()
        })
    }

    fn damage(&self) -> Result<Attempt, LinkError> {
        let lane = |asked: &Asked| {
            let shares = [asked.corrupt, asked.duplicate].into_iter().filter(|share| *share > 0.0);
            let rarest = shares.reduce(f64::min)?;
            Some(asked.lane(asked.loss_load(rarest), asked.idle_wait()))
        };
        self.numbered(Phase::Damage, parts::damage, lane, |asked, seen| {
            let damaged = (Subject::Damaged, judge::damaged(asked.corrupt, seen));
            let doubled = (Subject::Doubled, judge::doubled(asked.duplicate, seen));
            vec![damaged, doubled]
        })
    }

    /// Numbered packets in the directions that have a lane, both at once.
    fn numbered(
        &self,
        phase: Phase,
        keep: fn(&Direction) -> Direction,
        lane: impl Fn(&Asked) -> Option<Lane>,
        judge: impl Fn(&Asked, &Seen) -> Vec<(Subject, Outcome)>,
    ) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(keep);
        let lanes: Vec<Lane> = self.asked.iter().filter_map(lane).collect();
        let (seen, certificate) = self.load(phase, &spec, &lanes, true)?;
        let mut attempt = Attempt::default();
        for (lane, seen) in lanes.iter().zip(&seen) {
            let place = usize::from(lane.way == Way::Down);
            let dropped = certificate.report.direction(lane.way).dropped;
            for (subject, outcome) in judge(&self.asked[place], seen) {
                let outcome = match seen.spoiled() {
                    Some(why) => Outcome::TooBusy(why),
                    None => judge::dropped(dropped).unwrap_or(outcome),
                };
                attempt.add_without(subject, lane.way, outcome, &left[place]);
            }
        }
        attempt.certificates.push(certificate);
        Ok(attempt)
    }
}

/// The distribution that is asked of a direction's delay.
fn varying(asked: &Asked) -> Varying<'_> {
    Varying { delay: asked.delay, jitter: asked.jitter.as_ref() }
}

/// Loads a link, all lanes at once or one after the other.
pub(super) fn run(link: &Link, lanes: &[Lane], at_once: bool) -> Result<Vec<Seen>, LinkError> {
    let mut seen = Vec::new();
    for lanes in lanes.chunks(if at_once { 2 } else { 1 }) {
        seen.extend(probe::run(link, lanes)?);
    }
    Ok(seen)
}

/// Takes a link down that has carried nothing but these lanes.
pub(super) fn certified(
    phase: Phase,
    link: Link,
    lanes: &[Lane],
    seen: Vec<Seen>,
) -> Result<(Vec<Seen>, Certificate), LinkError> {
    let report = link.down()?;
    let mut ends = [Ends::default(); 2];
    for (lane, seen) in lanes.iter().zip(&seen) {
        let ends = &mut ends[usize::from(lane.way == Way::Down)];
        ends.sent += seen.sent.len() as u64;
        ends.arrived += seen.arrivals.len() as u64 + seen.overflowed + seen.refused;
    }
    Ok((seen, Certificate { phase, report, ends }))
}
