//! What probes and trains say of a path: arithmetic alone.

use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, grouped};

use crate::check::Unit;
use crate::interval::{Z_99, wilson, wilson_share};
use crate::spec::{BurstLoss, Direction, Jitter, Queue, Shape, Spec};

use super::dispersion::{Rate, Surroundings, at_least, median};
use super::seen::Seen;
use super::trains::{Ended, Trains};
use super::{Figure, Method, Outcome, Recorded, Subject};

/// Without variation the round trip is this quantile: not the least, which may be a clock's whim, but
/// what the path does when nothing else is going on.
pub(super) const FLOOR: f64 = 0.05;
/// A jitter smaller than this in one direction is not told from the wake-ups of two hosts and this
/// machine.
pub(super) const LEAST_JITTER: Duration = Duration::from_micros(100);
/// Probes are this many standard deviations of the round trip apart: one of 400 is held up then, where
/// the delay is normal. More would leave too few of them.
const APART: f64 = 4.0;
const APART_AT_MOST: Duration = Duration::from_millis(200);
/// A shape whose distance is not smaller by this factor than the other's is the right one less than 19
/// times of 20 with 300 probes.
const CLEARLY: f64 = 1.5;
/// With fewer round trips nothing is said of how they vary.
pub(super) const LEAST_ROUND_TRIPS: usize = 20;
/// Losses that follow a loss more often than chance would have it are called bursts where chance does
/// it this rarely.
pub(super) const BURST_CHANCE: f64 = 0.01;
/// Replies that came after one to a later request, as a share: from here on a scenario's packets may
/// overtake each other. Below it that would be more reordering than was seen.
pub(super) const LEAST_REORDERING: f64 = 0.01;

/// How far apart small probes have to be for their round trips to be those of single packets: where
/// order is kept, one that is late holds up those behind it. At least `usual`.
pub(super) fn spacing(scouts: &Seen, usual: Duration) -> Duration {
    let far = APART * surroundings(scouts).varies;
    Duration::from_secs_f64(far.min(APART_AT_MOST.as_secs_f64())).max(usual)
}

/// What trains need to know of the small probes.
pub(super) fn surroundings(probes: &Seen) -> Surroundings {
    let varied = Varied::of(probes);
    let losses = Losses::of(&probes.lost());
    Surroundings {
        varies: match varied.as_ref().and_then(|varied| varied.jitter) {
            // The standard deviation of the sum of both directions.
            Some((size, Shape::Uniform)) => size * (2.0_f64 / 3.0).sqrt(),
            Some((size, Shape::Normal)) => size * 2.0_f64.sqrt(),
            None => 0.0,
        },
        loss: losses.interval().1,
        burst: if losses.are_bursts() { losses.mean_run() } else { 1.0 },
    }
}

/// All that was seen, as a scenario and its figures.
pub(super) fn recorded(method: Method, probes: &Seen, trains: Option<&Trains>) -> Recorded {
    let mut fit = Fit {
        method,
        probes,
        trains,
        direction: Direction::default(),
        figures: Vec::new(),
        assumes: Vec::new(),
    };
    let rate = trains.and_then(Trains::rate);
    fit.delay(rate);
    fit.loss();
    fit.duplicates();
    fit.rate(rate);
    fit.queue(rate);
    fit.assume();
    let small = probes.sent.len() as u64;
    let (packets, bytes) = trains.map_or((0, 0), |trains| (trains.packets, trains.bytes));
    Recorded {
        spec: Spec { up: fit.direction.clone(), down: fit.direction },
        figures: fit.figures,
        assumes: fit.assumes,
        packets: small + packets,
        bytes: small * u64::from(probes.ip_bytes) + bytes,
    }
}

struct Fit<'a> {
    method: Method,
    probes: &'a Seen,
    trains: Option<&'a Trains>,
    /// The same for both.
    direction: Direction,
    figures: Vec<Figure>,
    assumes: Vec<String>,
}

impl Fit<'_> {
    fn add(&mut self, subject: Subject, unit: Unit, outcome: Outcome, basis: String) {
        self.figures.push(Figure { subject, unit, outcome, basis });
    }

    fn delay(&mut self, rate: Option<Rate>) {
        let Some(varied) = Varied::of(self.probes) else { return };
        // What the probe's own bytes take at the rate is no delay: a link adds it again.
        let own = rate.map_or(0.0, |rate| 2.0 * self.own_time(rate.bits_per_s));
        let rtt = round((varied.centre - own).max(0.0), 1e-5);
        self.direction.delay = Duration::from_secs_f64(rtt) / 2;
        let Varied { trips, floor, middle, p99, .. } = varied;
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

    fn jitter(&mut self, varied: &Varied) {
        let (subject, unit) = (Subject::Jitter, Unit::Seconds);
        let least = LEAST_JITTER.as_secs_f64();
        if varied.trips < LEAST_ROUND_TRIPS {
            let basis =
                format!("only {} round trips, fewer than {LEAST_ROUND_TRIPS}", varied.trips);
            return self.add(subject, unit, Outcome::Unknown, basis);
        }
        let Some((size, shape)) = varied.jitter else {
            let basis = "what varies less is not told from this machine and the host".to_owned();
            return self.add(subject, unit, Outcome::Below(least), basis);
        };
        let size = round(size, 1e-5);
        let (shape_is, other) = match shape {
            Shape::Uniform => ("uniform, half its width", "normal"),
            Shape::Normal => ("normal, standard deviation", "uniform"),
        };
        let [uniform, normal] = varied.distances;
        let nearer = if uniform.max(normal) < uniform.min(normal) * CLEARLY {
            "hardly nearer"
        } else {
            "nearer"
        };
        let [uniform, normal] = varied.distances.map(ms);
        let mut basis = format!(
            "{shape_is}, the same each way; {nearer} than {other} (distance of quantiles: uniform \
             {uniform}, normal {normal})"
        );
        if varied.is_skewed {
            basis += "; seen is a longer tail above than below, which no shape here has";
        }
        let doubt = Z_99 * size / (2.0 * varied.trips as f64).sqrt();
        let known = Outcome::Known { got: size, low: (size - doubt).max(0.0), high: size + doubt };
        self.add(subject, unit, known, basis);
        let reorders = self.reordering();
        self.direction.jitter =
            Some(Jitter { size: Duration::from_secs_f64(size), shape, reorders });
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
        let basis = format!(
            "{} of {} replies to trains came after one to a later request{}",
            grouped(behind),
            grouped(all),
            if behind > 0 && share < LEAST_REORDERING { ": too few, not written" } else { "" }
        );
        self.add(subject, unit, counted(behind, all), basis);
        share >= LEAST_REORDERING
    }

    fn loss(&mut self) {
        let losses = Losses::of(&self.probes.lost());
        let Losses { sent, lost, runs, .. } = losses;
        let (low, high) = losses.interval();
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
                ms(self.probes.every())
            );
            let doubt = Z_99 * packets / (runs as f64).sqrt();
            let (low, high) = ((packets - doubt).max(1.0), packets + doubt);
            let known = Outcome::Known { got: packets, low, high };
            self.add(Subject::BurstLength, Unit::Packets, known, basis);
            self.direction.burst_loss = Some(BurstLoss { share, packets });
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
        let (low, high) = wilson(copies.min(sent), sent.max(1), Z_99);
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
        let which = if trains.replies_are_cut() {
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
            (None, Ended::Busy) => "longer trains would block the path for too long".to_owned(),
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
        self.assumes = assumes.into_iter().map(str::to_owned).collect();
    }
}

/// How round trips vary; times in seconds.
#[derive(Clone, Debug, PartialEq)]
struct Varied {
    trips: usize,
    least: f64,
    floor: f64,
    middle: f64,
    p99: f64,
    /// What a link without variation would take.
    centre: f64,
    /// How far off the centre may be.
    doubt: f64,
    /// The size in one direction, and its shape.
    jitter: Option<(f64, Shape)>,
    /// How far quantiles are from those of a uniform and of a normal jitter.
    distances: [f64; 2],
    is_skewed: bool,
}

impl Varied {
    /// `None` without any round trip.
    fn of(probes: &Seen) -> Option<Self> {
        let trips = probes.round_trips().into_iter().skip(probes.apart_from);
        let mut trips: Vec<f64> = trips.flatten().collect();
        trips.sort_by(f64::total_cmp);
        let at = |share| quantile(&trips, share);
        let [uniform, normal] =
            [Shape::Uniform, Shape::Normal].map(|shape| Shaped::of(&trips, shape));
        let (best, shape) = if uniform.distance < normal.distance {
            (uniform, Shape::Uniform)
        } else {
            (normal, Shape::Normal)
        };
        let (low, middle, high) = (at(FLOOR), at(0.5), at(1.0 - FLOOR));
        let varies = trips.len() >= LEAST_ROUND_TRIPS && best.size >= LEAST_JITTER.as_secs_f64();
        Some(Self {
            least: *trips.first()?,
            trips: trips.len(),
            floor: low,
            middle,
            p99: at(0.99),
            centre: if varies { best.centre } else { low },
            doubt: Z_99 * best.size * 2.0_f64.sqrt() / (trips.len() as f64).sqrt(),
            jitter: varies.then_some((best.size, shape)),
            distances: [uniform.distance, normal.distance],
            is_skewed: high - middle > 2.0 * (middle - low),
        })
    }
}

/// A shape fitted to round trips.
#[derive(Clone, Copy, Debug)]
struct Shaped {
    centre: f64,
    /// In one direction.
    size: f64,
    /// From the quantiles seen to those of the shape: root of the mean square.
    distance: f64,
}

/// Shares of the upper half with their normal quantiles. The first nine make the fit, so that a few
/// slow ones do not; the others too tell the shapes apart.
const QUANTILES: [(f64, f64); 12] = [
    (0.55, 0.125_661),
    (0.60, 0.253_347),
    (0.65, 0.385_320),
    (0.70, 0.524_401),
    (0.75, 0.674_490),
    (0.80, 0.841_621),
    (0.85, 1.036_433),
    (0.90, 1.281_552),
    (0.95, 1.644_854),
    (0.975, 1.959_964),
    (0.99, 2.326_348),
    (0.995, 2.575_829),
];
const FITTED: usize = 9;
/// A quantile further out than that many samples from the end is left to chance.
const LEAST_BEYOND: f64 = 2.5;

impl Shaped {
    fn of(trips: &[f64], shape: Shape) -> Self {
        // Each quantile with that of the sum of two directions of size 1; the lower half mirrors the
        // upper one.
        let enough = |(share, _): &&(f64, f64)| (1.0 - share) * trips.len() as f64 >= LEAST_BEYOND;
        let pairs: Vec<[(f64, f64); 2]> = QUANTILES
            .iter()
            .enumerate()
            .filter(|(place, pair)| *place < FITTED || enough(pair))
            .map(|(_, (share, z))| {
                let unit = match shape {
                    Shape::Normal => 2.0_f64.sqrt() * z,
                    // Two uniform ones make a triangle.
                    Shape::Uniform => 2.0 * (1.0 - (2.0 * (1.0 - share)).sqrt()),
                };
                [(unit, quantile(trips, *share)), (-unit, quantile(trips, 1.0 - share))]
            })
            .collect();
        let fitted = pairs.iter().take(FITTED).flatten();
        let (mut squares, mut products, mut sum) = (0.0, 0.0, 0.0);
        for (unit, seen) in fitted {
            (squares, products, sum) = (squares + unit * unit, products + unit * seen, sum + seen);
        }
        let (centre, size) = (sum / (2 * FITTED) as f64, products / squares);
        let errors =
            pairs.iter().flatten().map(|(unit, seen)| (seen - centre - size * unit).powi(2));
        let distance = (errors.sum::<f64>() / (2 * pairs.len()) as f64).sqrt();
        Self { centre, size, distance }
    }
}

/// The quantile of a sorted list, between two of its values where it lies between them; 0 of an empty
/// one.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len() as f64 - 0.5).clamp(0.0, sorted.len().max(1) as f64 - 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "an index of the list")]
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    let index = place as usize;
    let Some(below) = sorted.get(index) else { return 0.0 };
    let above = sorted.get(index + 1).unwrap_or(below);
    below + (above - below) * (place - place.floor())
}

/// Losses of round trips, and how they follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Losses {
    sent: u64,
    lost: u64,
    /// Losses that follow each other are one run.
    runs: u64,
    /// The chance that of independent losses so many follow another one.
    chance: f64,
}

impl Losses {
    fn of(lost: &[bool]) -> Self {
        let count = lost.iter().filter(|lost| **lost).count() as u64;
        let follows = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as u64;
        // After the last request nothing can follow.
        let before = count - u64::from(lost.last() == Some(&true));
        let others = (lost.len() as u64).saturating_sub(1);
        let share = count.saturating_sub(1) as f64 / others.max(1) as f64;
        // Of two losses at least, the share of the others among which one may follow.
        let chance = if follows == 0 { 1.0 } else { at_least(follows, before, share) };
        Self { sent: lost.len() as u64, lost: count, runs: count - follows, chance }
    }

    fn are_bursts(&self) -> bool {
        self.lost < self.sent && self.chance < BURST_CHANCE
    }

    /// Of the share, 99 %. Losses in bursts tell as much as fewer requests would: those of a chain of
    /// two states count as (1 - r) / (1 + r) of them, r being how far one predicts the next.
    fn interval(&self) -> (f64, f64) {
        let (sent, lost) = (self.sent.max(1) as f64, self.lost as f64);
        let share = lost / sent;
        let worth = if self.are_bursts() {
            let again = 1.0 - 1.0 / self.mean_run();
            let predicts = ((again - share) / (1.0 - share)).clamp(0.0, 1.0);
            (1.0 - predicts) / (1.0 + predicts)
        } else {
            1.0
        };
        wilson_share(share, (sent * worth).max(1.0), Z_99)
    }

    fn mean_run(&self) -> f64 {
        self.lost as f64 / self.runs.max(1) as f64
    }

    /// The mean length of a burst in one direction: runs of the round trip are those of both, which
    /// may touch. For two independent chains of Gilbert's, alike.
    fn burst(&self) -> f64 {
        let lost = self.lost as f64 / self.sent as f64;
        let share = one_way(lost);
        // The round trip begins a run with the chance that either does.
        let begins = (lost / ((1.0 - lost) * self.mean_run())).min(1.0);
        let enter = 1.0 - (1.0 - begins).sqrt();
        let leave = enter * (1.0 - share) / share;
        if leave > 0.0 { (1.0 / leave).max(1.0) } else { self.mean_run() }
    }
}

/// One direction's share of losses from the round trip's, both alike.
fn one_way(both: f64) -> f64 {
    1.0 - (1.0 - both).sqrt()
}

fn counted(hits: u64, trials: u64) -> Outcome {
    let (low, high) = wilson(hits, trials.max(1), Z_99);
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

/// To a multiple of a step.
fn round(value: f64, step: f64) -> f64 {
    (value / step).round() * step
}

/// To so many digits.
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
mod tests {
    use super::super::seen::Reply;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Probes 10 ms apart that took so long; `None` for one that was lost.
    fn probes(took: impl IntoIterator<Item = Option<f64>>) -> Seen {
        let mut seen = Seen { ip_bytes: 40, ..Seen::default() };
        for (number, took) in (0_u32..).zip(took) {
            let sent = MS * 10 * number;
            seen.sent.push(sent);
            let reply =
                |took| Reply { number, at: sent + Duration::from_secs_f64(took), ip_bytes: 40 };
            seen.replies.extend(took.map(reply));
        }
        seen
    }

    fn lost(text: &str) -> Losses {
        Losses::of(&text.chars().map(|c| c == 'x').collect::<Vec<_>>())
    }

    /// A word over and over.
    fn often(word: &str, times: usize) -> String {
        word.repeat(times)
    }

    #[test]
    fn losses_in_a_row_are_bursts_and_pairs_by_chance_are_not() {
        let apart = often("x.........", 100);
        assert!(!lost(&apart).are_bursts());
        let bursts = [often("xxxx", 10), often(".", 960)].concat();
        assert!(lost(&bursts).are_bursts());
        let bursts = lost(&often("xxxx................", 50));
        assert!(bursts.are_bursts() && bursts.runs == 50, "{bursts:?}");
        assert!((bursts.mean_run() - 4.0).abs() < 1e-9);
        // Of 2 losses among n, one follows the other in 2 of n cases.
        let pair = |others| [often(".", others), "xx".to_owned(), often(".", 1)].concat();
        assert!(lost(&pair(200)).are_bursts() && !lost(&pair(190)).are_bursts());
        assert!(!lost("x").are_bursts() && !lost("").are_bursts() && !lost(".x").are_bursts());
        assert!(!lost("xxxxxxxx").are_bursts(), "all of them say nothing of each other");
    }

    /// Two chains of Gilbert's side by side: bursts of 5 at 5 % each make runs of 5.16 at 9.75 %.
    #[test]
    fn a_burst_is_that_of_one_direction() {
        let losses = Losses { sent: 1_000_000, lost: 97_500, runs: 18_895, chance: 0.0 };
        assert!((losses.burst() - 5.0).abs() < 0.01, "{}", losses.burst());
        assert!((one_way(0.0975) - 0.05).abs() < 1e-12);
    }

    #[test]
    fn losses_in_bursts_tell_less() {
        let width = |losses: Losses| losses.interval().1 - losses.interval().0;
        let apart = lost(&often("x...................", 50));
        let bursts = lost(&often(&[often("x", 5), often(".", 95)].concat(), 10));
        assert_eq!((apart.lost, apart.sent), (bursts.lost, bursts.sent));
        assert!(width(bursts) > 2.0 * width(apart));
        assert_eq!(lost("....").interval().0, 0.0);
    }

    #[test]
    fn few_round_trips_give_a_delay_and_no_jitter() {
        let varying = |many: usize| (0..many).map(|at| Some(0.02 + 0.001 * (at * 7 % 20) as f64));
        let few = Varied::of(&probes(varying(19))).unwrap();
        assert_eq!(few.jitter, None);
        assert!(Varied::of(&probes(varying(20))).unwrap().jitter.is_some());
        assert_eq!(Varied::of(&probes([None, None])), None);
        let one = recorded(Method::Echo, &probes([None, Some(0.02), None]), None);
        assert_eq!(one.spec.rtt(), 20 * MS);
        let what: Vec<_> = one.figures.iter().map(|figure| figure.subject).collect();
        use Subject::{BurstLength, Jitter, Loss, Queue, Rate, RoundTrip};
        assert_eq!(what, [RoundTrip, Jitter, Loss, BurstLength, Rate, Queue]);
        assert_eq!(one.figures[1].outcome, Outcome::Unknown);
        one.spec.check().unwrap();
    }

    #[test]
    fn a_slow_one_now_and_then_is_no_jitter() {
        let slow =
            |at: usize| if at.is_multiple_of(40) { 0.05 } else { 0.02 + 1e-6 * (at % 30) as f64 };
        let varied = Varied::of(&probes((0..1000).map(|at| Some(slow(at))))).unwrap();
        assert_eq!(varied.jitter, None);
        assert!((varied.centre - 0.02).abs() < 1e-5, "{varied:?}");
    }

    #[test]
    fn probes_are_apart_by_what_their_delay_varies() {
        let usual = MS * 10;
        let of = |half: f64| {
            let took = (0..200).map(|at| Some(2.0 + half * ((at * 77 % 200) as f64 / 100.0 - 1.0)));
            spacing(&probes(took), usual)
        };
        assert_eq!((of(0.0), of(0.003)), (usual, usual));
        let far = of(0.01);
        assert!(far > MS * 20 && far < MS * 30, "{far:?}");
        assert_eq!(of(1.0), APART_AT_MOST);
        assert_eq!(spacing(&Seen::default(), usual), usual);
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
