//! Estimates a path from probes and trains: pure arithmetic.

use std::time::Duration;

use lastbyte_link::{BurstLoss, Direction, Jitter, Queue, Shape, Spec};
use lastbyte_stats::{Interval, Z_99, wilson};
use lastbyte_units::{BitRate, ByteSize, Share, Unit, grouped};

use super::dispersion::Rate;
use super::losses::{Losses, one_way};
use super::observed::Observed;
use super::packet_trains::{PacketTrains, StopReason};
use super::round_trips::{JitterShape, LEAST_JITTER, LEAST_ROUND_TRIPS, RoundTrips};
use super::statistics::median;
use super::{Figure, Method, Outcome, Recorded, Subject};

/// With 300 probes, a shape whose distance is not smaller than the other's by this factor is the right
/// one in fewer than 19 of 20 cases.
const CLEARLY: f64 = 1.5;
/// The share of replies after one to a later request, from which on the scenario reorders. Below it, it
/// would reorder more than was observed.
pub(super) const LEAST_REORDERING: f64 = 0.01;

/// A queue fills where packets arrive at this multiple of the rate at least; where this machine sends
/// slower, they wait in this machine.
const FAST_ENOUGH: f64 = 2.0;
/// Where this machine wakes up late by more than this part of a jitter, the jitter may be its own.
const BUSY: f64 = 0.25;

/// Everything that was observed, as a scenario and its figures.
pub(super) fn recorded(
    method: Method,
    probes: &Observed,
    trains: Option<&PacketTrains>,
) -> Recorded {
    let mut estimate = Estimate {
        method,
        probes,
        trains,
        direction: Direction::default(),
        skewed: None,
        figures: Vec::new(),
        assumes: Vec::new(),
    };
    let rate = trains.and_then(PacketTrains::rate);
    estimate.delay(rate);
    estimate.loss();
    estimate.duplicates();
    estimate.rate(rate);
    estimate.queue(rate);
    estimate.assume();
    let small = probes.sent.len() as u64;
    let (packets, bytes) = trains.map_or((0, 0), |trains| (trains.packets, trains.bytes));
    Recorded {
        spec: Spec {
            down: Direction {
                jitter: estimate.skewed.or_else(|| estimate.direction.jitter.clone()),
                ..estimate.direction.clone()
            },
            up: estimate.direction,
            ..Spec::default()
        },
        figures: estimate.figures,
        assumes: estimate.assumes,
        packets: small + packets,
        bytes: small * u64::from(probes.ip_bytes) + bytes,
    }
}

struct Estimate<'a> {
    method: Method,
    probes: &'a Observed,
    trains: Option<&'a PacketTrains>,
    /// The same for both directions.
    direction: Direction,
    /// A skewed jitter, all of it in the downward direction.
    skewed: Option<Jitter>,
    figures: Vec<Figure>,
    assumes: Vec<String>,
}

impl Estimate<'_> {
    fn add(&mut self, subject: Subject, unit: Unit, outcome: Outcome, basis: String) {
        self.figures.push(Figure { subject, unit, outcome, basis });
    }

    fn delay(&mut self, rate: Option<Rate>) {
        let Some(varied) = RoundTrips::of(self.probes) else { return };
        // The transmission of the probe itself is not part of the delay: a link adds it again.
        let own = rate.map_or(0.0, |rate| 2.0 * self.own_time(rate.bits_per_s));
        let rtt = round((varied.centre - own).max(0.0), 1e-5);
        self.direction.delay = Duration::from_secs_f64(rtt) / 2;
        let RoundTrips { trips, floor, middle, p99, .. } = varied;
        let which = match varied.jitter {
            Some(_) => "the middle of the jitter",
            None => "the 5 % quantile",
        };
        let basis = format!(
            "{which} of {} round trips; 5 % below {}, 50 % below {}, 99 % below {}",
            grouped(trips as u64),
            ms(floor),
            ms(middle),
            ms(p99)
        );
        let (low, high) = match varied.jitter {
            Some(_) => (rtt - varied.doubt, rtt + varied.doubt),
            None => (varied.least - own, middle - own),
        };
        let known = Outcome::Known { got: rtt, low: low.min(rtt).max(0.0), high: high.max(rtt) };
        self.add(Subject::RoundTrip, Unit::Seconds, known, basis);
        self.jitter(&varied);
    }

    fn own_time(&self, bits_per_s: f64) -> f64 {
        f64::from(self.probes.ip_bytes) * 8.0 / bits_per_s
    }

    fn jitter(&mut self, varied: &RoundTrips) {
        let (subject, unit) = (Subject::Jitter, Unit::Seconds);
        let least = LEAST_JITTER.as_secs_f64();
        if varied.trips < LEAST_ROUND_TRIPS {
            let basis =
                format!("only {} round trips, fewer than {LEAST_ROUND_TRIPS}", varied.trips);
            return self.add(subject, unit, Outcome::Unknown, basis);
        }
        let Some((size, form)) = varied.jitter else {
            let basis = "what varies less is not told from this machine and the host".to_owned();
            self.add(subject, unit, Outcome::Below(least), basis);
            if self.trains.is_some_and(|trains| trains.overtaken().0 > 0) {
                self.reordering();
            }
            return;
        };
        if self.method == Method::Echo && varied.own_lateness > size * BUSY {
            self.assumes.push(format!(
                "this machine was busy and woke up {} late in 1 of 20 cases: jitter and delay may be \
                 its own, record once more",
                ms(varied.own_lateness)
            ));
        }
        if let Some(table) = &varied.skewed {
            return self.skewed(table);
        }
        let size = round(size, 1e-5);
        let (shape_is, other) = match form {
            JitterShape::Uniform => ("uniform, half its width", "normal"),
            JitterShape::Normal => ("normal, standard deviation", "uniform"),
        };
        let [uniform, normal] = varied.distances;
        let nearer = if uniform.max(normal) < uniform.min(normal) * CLEARLY {
            "hardly nearer"
        } else {
            "nearer"
        };
        let [uniform, normal] = varied.distances.map(ms);
        let basis = format!(
            "{shape_is}, the same each way; {nearer} than {other} (distance of quantiles: uniform \
             {uniform}, normal {normal})"
        );
        let doubt = Z_99 * size / (2.0 * varied.trips as f64).sqrt();
        let known = Outcome::Known { got: size, low: (size - doubt).max(0.0), high: size + doubt };
        self.add(subject, unit, known, basis);
        let reorders = self.reordering();
        self.direction.jitter = Some(Jitter { shape: form.sized(size), reorders });
    }

    /// A delay that is often short and sometimes long, by its quantiles.
    fn skewed(&mut self, table: &[f64]) {
        let table: Vec<Duration> =
            table.iter().map(|added| Duration::from_secs_f64(round(*added, 1e-5))).collect();
        let shape = Shape::Table(table.into());
        let got = shape.deviation().as_secs_f64();
        let basis =
            "standard deviation of the round trip, with a longer tail above than below: as \
                     quantiles of what was seen"
                .to_owned();
        let known = Outcome::Known { got, low: got, high: got };
        self.add(Subject::Jitter, Unit::Seconds, known, basis);
        self.assumes.push("all of the jitter is on the way back".to_owned());
        let reorders = self.reordering();
        self.skewed = Some(Jitter { shape, reorders });
    }

    /// Whether packets overtake each other.
    fn reordering(&mut self) -> bool {
        let (subject, unit) = (Subject::Reordering, Unit::Share);
        let Some(trains) = self.trains.filter(|trains| !trains.seen.is_empty()) else {
            let basis = "only packets close to each other can tell".to_owned();
            self.add(subject, unit, Outcome::Unknown, basis);
            return false;
        };
        let (behind, all) = trains.overtaken();
        let share = behind as f64 / all.max(1) as f64;
        let least = LEAST_REORDERING * 100.0;
        let basis = format!(
            "{} of {} replies to trains came after one to a later request; written with jitter, from \
             {least} % on",
            grouped(behind),
            grouped(all)
        );
        self.add(subject, unit, counted(behind, all), basis);
        share >= LEAST_REORDERING
    }

    fn loss(&mut self) {
        let losses = Losses::of(&self.probes.lost());
        let Losses { sent, lost, runs, .. } = losses;
        let Interval { low, high } = losses.interval();
        let (low, high) = (one_way(low), one_way(high));
        let what = match self.method {
            Method::Echo => "round trips",
            Method::Connect => "connects",
        };
        let mut basis = format!("{} of {} {what} lost", grouped(lost), grouped(sent));
        if self.probes.overflowed > 0 {
            basis += &format!(
                "; {} of these found no room on this machine, which is too busy",
                grouped(self.probes.overflowed)
            );
        }
        if lost == 0 {
            return self.add(Subject::Loss, Unit::Share, Outcome::Below(high), basis + "; 99 %");
        }
        let got = significant(one_way(lost as f64 / sent as f64), 3);
        basis += "; 99 % interval";
        self.add(Subject::Loss, Unit::Share, Outcome::Known { got, low, high }, basis);
        let Ok(share) = Share::from_fraction(got) else { return };
        let (mean, chance) = (losses.mean_run(), losses.chance);
        if lost == 1 {
            self.direction.loss = Some(share);
            return;
        }
        let basis = format!("{} in {}", grouped(lost), many(runs, "run"));
        if losses.are_bursts() {
            let packets = significant(losses.burst(), 3);
            let basis = format!(
                "{basis}; so many follow each other by chance in {} of cases; counted in probes {} \
                 apart",
                percent(chance),
                ms(RoundTrips::of(self.probes).map_or(0.0, |varied| varied.every))
            );
            let doubt = Z_99 * packets / (runs as f64).sqrt();
            let (low, high) = ((packets - doubt).max(1.0), packets + doubt);
            let known = Outcome::Known { got: packets, low, high };
            self.add(Subject::BurstLength, Unit::Packets, known, basis);
            self.direction.burst_loss = Some(BurstLoss { share, packets, in_burst: Share::ALL });
        } else {
            let basis = format!("{basis}: no more than chance makes of independent losses");
            let known = Outcome::Known { got: mean, low: mean, high: mean };
            self.add(Subject::BurstLength, Unit::Packets, known, basis);
            self.direction.loss = Some(share);
        }
    }

    fn duplicates(&mut self) {
        let copies = self.probes.duplicates();
        if copies == 0 || self.method == Method::Connect {
            return;
        }
        let sent = self.probes.sent.len() as u64;
        // Each way doubles a share d of packets: (1 + d)^2 replies to a request.
        let got = significant((1.0 + copies as f64 / sent as f64).sqrt() - 1.0, 3);
        let Interval { low, high } = wilson(copies.min(sent), sent.max(1), Z_99);
        let each = |both: f64| (1.0 + both).sqrt() - 1.0;
        let known = Outcome::Known { got, low: each(low), high: each(high) };
        let basis = format!("{} second replies to {}", grouped(copies), grouped(sent));
        self.add(Subject::Duplicates, Unit::Share, known, basis + " requests; 99 % interval");
        self.direction.duplicate = Share::from_fraction(got).ok().filter(|d| d.fraction() > 0.0);
    }

    fn rate(&mut self, rate: Option<Rate>) {
        let (subject, unit) = (Subject::Rate, Unit::BitsPerS);
        let Some(trains) = self.trains else {
            let basis = "connects carry nothing that could show it".to_owned();
            return self.add(subject, unit, Outcome::Unknown, basis);
        };
        let bytes = trains.ip_bytes();
        let Some(rate) = rate else {
            let (outcome, basis) = match trains.rate_above() {
                Some(above) => (
                    Outcome::Above(significant(above, 2)),
                    format!("the path spread none of {}", many(trains.seen.len() as u64, "train")),
                ),
                None => {
                    let why = "no train of larger echo requests was answered";
                    (Outcome::Unknown, why.to_owned())
                }
            };
            return self.add(subject, unit, outcome, basis);
        };
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        #[expect(clippy::cast_sign_loss, reason = "not negative")]
        let bits = significant(rate.bits_per_s, 4) as u64;
        self.direction.rate = BitRate::from_bits_per_s(bits).ok();
        let which = if trains.replies_are_shorter() {
            "of the way out, as replies came back shorter"
        } else {
            "the smaller one of both directions"
        };
        let basis = format!(
            "{which}: dispersion of packets of {bytes} bytes, weighted mean of {}, range of the {} \
             most exact",
            many(trains.seen.len() as u64, "train"),
            rate.trains
        );
        let known = Outcome::Known { got: bits as f64, low: rate.low, high: rate.high };
        self.add(subject, unit, known, basis);
    }

    fn queue(&mut self, rate: Option<Rate>) {
        let (subject, unit) = (Subject::Queue, Unit::Bytes);
        let rate = rate.filter(|_| self.direction.rate.is_some());
        let Some((trains, rate)) = self.trains.zip(rate) else {
            let basis = "only with a rate is there a queue to be seen".to_owned();
            return self.add(subject, unit, Outcome::Unknown, basis);
        };
        let tails = trains.tails();
        let own = f64::from(trains.ip_bytes());
        let held = |waited: f64| (waited * rate.bits_per_s / 8.0 + own).round();
        let queued = tails.iter().filter(|tail| tail.is_queue).map(|tail| held(tail.waited));
        let mut queued: Vec<f64> = queued.collect();
        queued.sort_by(f64::total_cmp);
        let sent_at = trains.sent_at(&rate);
        if sent_at < FAST_ENOUGH && (tails.is_empty() || !queued.is_empty()) {
            self.direction.queue = Some(Queue::Bdp(1.0));
            let basis = format!(
                "this machine sends no faster than {sent_at:.1} times the rate, so that what waits, \
                 waits here; 1bdp is written"
            );
            return self.add(subject, unit, Outcome::Unknown, basis);
        }
        if let (Some(got), Some(low), Some(high)) =
            (median(queued.clone()), queued.first(), queued.last())
        {
            let basis = format!(
                "what those waited for that just fitted, in {} that lost the tail, at the rate; in \
                 front of the smaller rate",
                many(queued.len() as u64, "train")
            );
            let known = Outcome::Known { got: got.round(), low: *low, high: *high };
            self.add(subject, unit, known, basis);
            self.direction.queue = Some(Queue::Bytes(bytes(got)));
            return;
        }
        let most = held(trains.longest_wait());
        let bdp = rate.bits_per_s / 8.0 * self.direction.delay.as_secs_f64() * 2.0;
        let queue = if most > bdp { Queue::Bytes(bytes(most)) } else { Queue::Bdp(1.0) };
        self.direction.queue = Some(queue);
        let why = match (tails.first(), trains.ended) {
            (Some(tail), _) => format!(
                "trains lost what came after {} packets, but not as a full queue does: a policer, or a \
                 limit on echo requests",
                tail.fitted
            ),
            (None, StopReason::Busy) => {
                "longer trains would block the path for too long".to_owned()
            }
            (None, _) => format!("no train lost its tail with {} bytes", grouped(trains.bytes)),
        };
        let written = if queue == Queue::Bdp(1.0) { "; 1bdp is written" } else { "" };
        self.add(subject, unit, Outcome::Above(most), why + written);
    }

    fn assume(&mut self) {
        let mut assumes = vec![
            "delay, jitter and loss: one end sees their sum, so half of each is written each way",
        ];
        if self.direction.rate.is_some() {
            assumes.push("rate and queue: those of the slower direction are written for both");
            assumes.push(
                "the host answered each echo request at once: what it held back, or limits, is in \
                 these figures",
            );
        }
        if self.direction.burst_loss.is_some() {
            assumes.push(
                "bursts: a time without packets looks the same as a number of them; at full rate \
                 they may be longer",
            );
        }
        assumes.push(
            "other traffic on the path is part of what was seen; policers, queue management, cuts \
             and changes of the rate were not looked for",
        );
        self.assumes.extend(assumes.into_iter().map(str::to_owned));
        let discarded = self.trains.map_or(0, |trains| trains.discarded);
        if discarded > 0 {
            let trains = many(discarded, "train");
            self.assumes.push(format!(
                "this machine was too busy to take all replies: {trains} left out, record once more"
            ));
        }
    }
}

fn counted(hits: u64, trials: u64) -> Outcome {
    let Interval { low, high } = wilson(hits, trials.max(1), Z_99);
    match hits {
        0 => Outcome::Below(high),
        _ => Outcome::Known { got: hits as f64 / trials.max(1) as f64, low, high },
    }
}

fn bytes(number: f64) -> ByteSize {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    #[expect(clippy::cast_sign_loss, reason = "saturates")]
    let bytes = number.round() as u64;
    // A queue shorter than a packet carries nothing.
    ByteSize::from_bytes(bytes.max(1500))
}

/// Rounded to a multiple of a step.
fn round(value: f64, step: f64) -> f64 {
    (value / step).round() * step
}

/// Rounded to this many significant digits.
fn significant(value: f64, digits: u8) -> f64 {
    let text = format!("{value:.*e}", usize::from(digits.saturating_sub(1)));
    text.parse().unwrap_or(value)
}

/// A number of things.
fn many(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

fn ms(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.01 { "less than 0.01 %".to_owned() } else { format!("{percent:.2} %") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::observed::Reply;
    use super::super::round_trips::quantile;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Probes 10 ms apart with these round trips in seconds; `None` for one that was lost.
    pub(in super::super) fn probes(took: impl IntoIterator<Item = Option<f64>>) -> Observed {
        let mut seen = Observed { ip_bytes: 40, ..Observed::default() };
        for (number, took) in (0_u32..).zip(took) {
            let sent = MS * 10 * number;
            seen.sent.push(sent);
            let reply =
                |took| Reply { number, at: sent + Duration::from_secs_f64(took), ip_bytes: 40 };
            seen.replies.extend(took.map(reply));
        }
        seen
    }

    #[test]
    fn few_round_trips_give_a_delay_and_no_jitter() {
        let varying = |many: usize| (0..many).map(|at| Some(0.02 + 0.001 * (at * 7 % 20) as f64));
        let few = RoundTrips::of(&probes(varying(19))).unwrap();
        assert_eq!(few.jitter, None);
        assert!(RoundTrips::of(&probes(varying(20))).unwrap().jitter.is_some());
        assert_eq!(RoundTrips::of(&probes([None, None])), None);
        let one = recorded(Method::Echo, &probes([None, Some(0.02), None]), None);
        assert_eq!(one.spec.rtt(), 20 * MS);
        let what: Vec<_> = one.figures.iter().map(|figure| figure.subject).collect();
        use Subject::{BurstLength, Jitter, Loss, Queue, Rate, RoundTrip};
        assert_eq!(what, [RoundTrip, Jitter, Loss, BurstLength, Rate, Queue]);
        assert_eq!(one.figures[1].outcome, Outcome::Unknown);
        one.spec.check().unwrap();
    }

    #[test]
    fn a_machine_that_wakes_up_late_says_that_jitter_may_be_its_own() {
        let said = |late: u32| {
            let mut seen =
                probes((0..200).map(|at| Some(0.02 + 0.00002 * f64::from(at * 77 % 200))));
            for (place, sent) in seen.sent.iter_mut().enumerate() {
                *sent += MS * if place % 10 == 0 { late } else { 0 };
            }
            for reply in &mut seen.replies {
                reply.at += MS * if reply.number % 10 == 0 { late } else { 0 };
            }
            let got = recorded(Method::Echo, &seen, None);
            assert!(got.spec.up.jitter.is_some());
            got.assumes.iter().any(|assumed| assumed.contains("busy"))
        };
        assert!(!said(0) && said(1));
    }

    #[test]
    fn connects_know_neither_rate_nor_queue() {
        let got = recorded(Method::Connect, &probes(vec![Some(0.02); 50]), None);
        let unknown: Vec<_> =
            got.figures.iter().filter(|figure| figure.outcome == Outcome::Unknown).collect();
        assert_eq!([unknown[0].subject, unknown[1].subject], [Subject::Rate, Subject::Queue]);
        assert_eq!((got.spec.up.rate, got.packets), (None, 50));
    }

    #[test]
    fn figures_are_rounded_to_what_they_are_worth() {
        assert_eq!(
            (significant(0.012_345, 3), significant(95_041_234.0, 4)),
            (0.0123, 95_040_000.0)
        );
        assert_eq!((significant(0.0, 3), round(0.217_164, 1e-5)), (0.0, 0.217_160_000_000_000_02));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 0.99)), (0.0, 7.0));
    }
}
