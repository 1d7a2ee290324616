//! The phases about what holds packets up or drops them: rates, queues, CoDel, policers.

use std::time::Instant;

use lastbyte_link::Spec;
use lastbyte_link::model::nanos;
use lastbyte_link::model::{Fate, Model, Packet};
use lastbyte_link::{Link, LinkError};

use super::asked::Asked;
use super::course::{Attempt, Course, certified, run};
use super::finding::{Outcome, Phase, Subject};
use super::judge::{self, Struck};
use super::probe::{Lane, Seen};
use super::{AT_ONCE, LEAST_RATE_PACKETS, QUEUE_WITHIN, RATE_WITHIN, Way, parts};

/// What was seen of each direction that had a lane.
type Found = Vec<Option<(Lane, Seen)>>;

impl Course<'_> {
    pub(super) fn rate(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::rate);
        let (found, mut attempt) = self.loaded(Phase::Rate, &spec, Asked::rate_lane)?;
        for ((asked, seen), left) in self.asked.iter().zip(&found).zip(&left) {
            let outcome = match (asked.rate, seen) {
                (None, _) if asked.trace.is_some() => continue,
                (None, _) => Outcome::NotChecked("no rate asked".to_owned()),
                (Some(rate), None) => Outcome::NotMeasured(format!(
                    "{rate} carries fewer than {LEAST_RATE_PACKETS} packets in {} s",
                    RATE_WITHIN.as_secs()
                )),
                (Some(rate), Some((lane, seen))) => {
                    let outcome = judge::rate(rate, asked.queue, lane.load.ip_bytes, seen);
                    seen.spoiled().map_or(outcome, Outcome::TooBusy)
                }
            };
            attempt.add_without(Subject::Rate, asked.way, outcome, left);
        }
        Ok(attempt)
    }

    pub(super) fn queue(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::rate);
        let lane = |asked: &Asked| asked.rate.and_then(|_| asked.queue_lane());
        let (found, mut attempt) = self.loaded(Phase::Queue, &spec, lane)?;
        for ((asked, seen), left) in self.asked.iter().zip(&found).zip(&left) {
            let outcomes = match (asked.rate.zip(asked.queue), seen) {
                (None, _) if asked.trace.is_some() => continue,
                (None, _) => [(); 2].map(|()| Outcome::NotChecked("no queue asked".to_owned())),
                (Some((rate, queue)), None) => {
                    let time = rate.time_to_send(queue).as_secs_f64();
                    let limit = QUEUE_WITHIN.as_secs();
                    let why = format!("it takes {time:.0} s to run empty, more than {limit} s");
                    [(); 2].map(|()| Outcome::NotMeasured(why.clone()))
                }
                (Some((rate, queue)), Some((_, seen))) => {
                    judge::queue(rate, queue, asked.delay, seen)
                        .map(|outcome| seen.spoiled().map_or(outcome, Outcome::TooBusy))
                }
            };
            let subjects = [Subject::QueueTime, Subject::QueueBytes];
            for (subject, outcome) in subjects.into_iter().zip(outcomes) {
                attempt.add_without(subject, asked.way, outcome, left);
            }
        }
        Ok(attempt)
    }

    pub(super) fn recorded(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::recorded);
        let lanes: Vec<Lane> = self.asked.iter().filter_map(Asked::trace_lane).collect();
        let link = Link::up(&spec, self.seed)?;
        let began = Instant::now();
        let seen = run(&link, &lanes, true)?;
        let (seen, certificate) = certified(Phase::Recorded, link, &lanes, seen)?;
        let mut attempt = Attempt::default();
        attempt.certificates.push(certificate);
        for (lane, seen) in lanes.iter().zip(&seen) {
            let place = usize::from(lane.way == Way::Down);
            let asked = &self.asked[place];
            let Some(trace) = &asked.trace else { continue };
            for (subject, outcome) in judge::recorded(trace, asked.delay, began, seen) {
                let outcome = seen.spoiled().map_or(outcome, Outcome::TooBusy);
                attempt.add_without(subject, lane.way, outcome, &left[place]);
            }
        }
        self.recorded_queue(&mut attempt)?;
        Ok(attempt)
    }

    fn recorded_queue(&self, attempt: &mut Attempt) -> Result<(), LinkError> {
        let (spec, left) = self.part(parts::recorded_queue);
        let lane = |asked: &Asked| asked.trace.as_ref().and_then(|_| asked.queue_lane());
        let (found, queue) = self.loaded(Phase::Recorded, &spec, lane)?;
        attempt.certificates.extend(queue.certificates);
        for ((asked, seen), left) in self.asked.iter().zip(&found).zip(&left) {
            let (Some(rate), Some(queue), Some(_)) = (asked.mean_rate, asked.queue, &asked.trace)
            else {
                continue;
            };
            let outcome = match seen {
                None => Outcome::NotMeasured("it takes too long to run empty".to_owned()),
                Some((_, seen)) => {
                    let outcome = judge::recorded_queue(queue, rate, asked.delay, seen);
                    seen.spoiled().map_or(outcome, Outcome::TooBusy)
                }
            };
            attempt.add_without(Subject::QueueBytes, asked.way, outcome, left);
        }
        Ok(())
    }

    pub(super) fn codel(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::managed);
        let (found, mut attempt) = self.loaded(Phase::Codel, &spec, Asked::codel_lane)?;
        for ((asked, seen), left) in self.asked.iter().zip(&found).zip(&left) {
            let (Some((lane, seen)), Some(rate)) = (seen, asked.mean_rate) else { continue };
            let expected = expected_strikes(&spec, lane, seen);
            let subjects = [Subject::FirstStrike, Subject::Strikes];
            for (subject, outcome) in judge::struck(subjects, &expected, rate, lane.load.ecn, seen)
            {
                let outcome = seen.spoiled().map_or(outcome, Outcome::TooBusy);
                attempt.add_without(subject, asked.way, outcome, left);
            }
        }
        Ok(attempt)
    }

    pub(super) fn marks(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::managed);
        let (found, mut attempt) = self.loaded(Phase::Marks, &spec, Asked::marks_lane)?;
        for ((asked, seen), left) in self.asked.iter().zip(&found).zip(&left) {
            let (Some(rate), Some(threshold)) = (asked.mean_rate, asked.threshold()) else {
                continue;
            };
            let Some((lane, seen)) = seen else {
                let time = rate.time_to_send(threshold).as_secs_f64();
                let why = format!("the queue takes too long to be {time:.1} s long");
                attempt.add(Subject::Marks, Some(asked.way), Outcome::NotMeasured(why));
                continue;
            };
            let expected = expected_strikes(&spec, lane, seen);
            let subjects = [Subject::FirstMark, Subject::Marks];
            for (subject, outcome) in judge::struck(subjects, &expected, rate, true, seen) {
                let outcome = seen.spoiled().map_or(outcome, Outcome::TooBusy);
                attempt.add_without(subject, asked.way, outcome, left);
            }
        }
        Ok(attempt)
    }

    pub(super) fn policer(&self) -> Result<Attempt, LinkError> {
        let (spec, left) = self.part(parts::policed);
        let (found, mut attempt) = self.loaded(Phase::Policer, &spec, Asked::policer_lane)?;
        for ((asked, seen), left) in self.asked.iter().zip(&found).zip(&left) {
            let Some(policer) = asked.policer else { continue };
            let Some((lane, seen)) = seen else {
                let why = format!("{} lets too few packets pass", policer.rate);
                attempt.add(Subject::PolicerRate, Some(asked.way), Outcome::NotMeasured(why));
                continue;
            };
            for (subject, outcome) in judge::policer(policer, lane.load.at_start, seen) {
                let outcome = seen.spoiled().map_or(outcome, Outcome::TooBusy);
                attempt.add_without(subject, asked.way, outcome, left);
            }
        }
        Ok(attempt)
    }

    /// Loads a fresh link with the lanes that there are, both at once where that is little; what was seen
    /// of each direction. Bursts that a queue does not take come one after the other.
    fn loaded(
        &self,
        phase: Phase,
        spec: &Spec,
        lane: impl Fn(&Asked) -> Option<Lane>,
    ) -> Result<(Found, Attempt), LinkError> {
        let lanes: Vec<Option<Lane>> = self.asked.iter().map(lane).collect();
        let some: Vec<Lane> = lanes.iter().flatten().copied().collect();
        let mut attempt = Attempt::default();
        if some.is_empty() {
            return Ok((vec![None, None], attempt));
        }
        let bits_per_s = |lane: &Lane| {
            let bits = f64::from(lane.load.ip_bytes) * 8.0;
            bits / lane.load.every.as_secs_f64().max(1e-9)
        };
        let sum: f64 = some.iter().map(bits_per_s).sum();
        let at_once = phase != Phase::Queue && sum <= AT_ONCE;
        let (seen, certificate) = self.load(phase, spec, &some, at_once)?;
        attempt.certificates.push(certificate);
        let mut seen = seen.into_iter();
        let found = lanes.into_iter().map(|lane| Some((lane?, seen.next()?))).collect();
        Ok((found, attempt))
    }
}

/// What the queue does with packets that come when these were sent.
fn expected_strikes(spec: &Spec, lane: &Lane, seen: &Seen) -> Struck {
    let mut model = Model::new(spec, lane.way, 0);
    let packet = Packet { bytes: lane.load.ip_bytes, ecn_capable: lane.load.ecn };
    let first = seen.sent.first().copied();
    let mut strikes = |at: &Instant| {
        let now = first.map_or(0, |first| nanos(*at - first));
        match model.offer(now, packet) {
            Fate::Deliver(arrival) => arrival.marked,
            _ => true,
        }
    };
    let numbers = (0..).zip(&seen.sent).filter(|(_, at)| strikes(at));
    Struck(numbers.map(|(number, _)| number).collect())
}
