//! How responsive a path is under load, as one figure: round trips per minute.
//!
//! The figure is the Responsiveness of draft-ietf-ippm-responsiveness-08, as far as a load of plain
//! TCP can be measured by its method. As there:
//!
//! - Foreign probes are new connections beside the load, self probes are requests on a connection
//!   that carries it (section 5.3); as many of one kind as of the other, evenly spaced.
//! - Probes are sent at fixed times, whether or not earlier ones were answered (section 5.4), and
//!   take no more than 5 % of the path (PTC, section 5.2).
//! - What counts is the last four intervals of one second (MAD and ID, section 5.2), when the
//!   queues are full, of each kind of probe the mean of the samples up to their 95th percentile (TMP,
//!   section 5.3.1).
//! - Without TLS the figure is that of section 5.3.1.2: `60000 / ((tcp_f + http_f) / 2)` for
//!   foreign probes and `60000 / http_l` for self probes, all in milliseconds, and the mean of the
//!   two. `tcp_f` is a handshake, `http_f` a request and its response.
//! - The confidence is that of section 5.4.1: whether four such figures in a row lie within 5 % (SDT).
//!
//! It differs in these points:
//!
//! - The load is the one under test: a congestion control, its buffers, so many connections.
//!   Section 5.4 adds connections until the goodput no longer rises, to load a path as much as can
//!   be; here it measures what these settings do. So saturation is not searched for: it is assumed
//!   for the last four seconds, or the second half of a load of less than eight.
//! - Request and response are one byte each, without TLS and HTTP (section 4 asks for HTTP/2 over
//!   TLS, because that is what people use): a figure here is higher than one through a server with
//!   work to do, and there is no `tls_f`.
//! - A self probe's response is the head of the next frame of 16 KiB that the load's sender writes,
//!   as a stream of HTTP/2 beside the load would have to wait for the frame that is being written.
//!   The connections of a load take turns; section 5.3 chooses one at random.
//! - Ten probes a second of each kind instead of up to a hundred (MPS, section 5.2): the load's rate is
//!   the first result of a run, and the probes cost it less than 1 %.
//! - A load of another program has no self probes: the figure is that of the foreign probes alone.

use std::time::Duration;

use lastbyte_stats::{Summary, quantile, trimmed_mean};

use crate::record::{Flow, Latency, RoundTrip};

/// How much of the end of a load counts (MAD times ID).
const COUNTED: Duration = Duration::from_secs(4);
/// The time between two figures that are compared for the confidence (ID).
const INTERVAL: Duration = Duration::from_secs(1);
/// How many figures are compared (MAD).
const COMPARED: u32 = 4;
/// Their largest standard deviation, as a share of the last (SDT).
const STABLE: f64 = 0.05;
/// The share of probes of each kind that count, the shortest (TMP).
const TRIMMED: f64 = 0.95;

/// The responsiveness of one subject's runs under load. Times in seconds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Responsiveness {
    /// The median round trip of the idle path.
    pub idle_p50: f64,
    /// The median round trip beside the load.
    pub loaded_p50: f64,
    /// The 95th percentile of round trips beside the load.
    pub loaded_p95: f64,
    /// What the load adds to the median round trip; noise may make it negative.
    pub added_p50: f64,
    /// What the load adds to the idle round trip at the 95th percentile.
    pub added_p95: f64,
    /// The median round trip under load, divided by the idle one.
    pub inflation_p50: f64,
    /// The 95th percentile under load, divided by the idle round trip.
    pub inflation_p95: f64,
    /// The median round trip through the load's own connection, its sender's buffer included;
    /// `None` with other programs.
    pub inside_p50: Option<f64>,
    /// The 95th percentile of these.
    pub inside_p95: Option<f64>,
    /// Round trips per minute, by run.
    pub rpm: Summary,
    /// The lowest confidence of a run.
    pub confidence: Confidence,
    /// How many round trips beside the load count.
    pub samples: usize,
    /// Probes without a response, over all runs. If there are many, the path was worse than the
    /// figures.
    pub unanswered: u32,
}

/// The confidence in a figure (section 5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// The load was shorter than the intervals to compare.
    Low,
    /// The intervals differ.
    Medium,
    /// The intervals agree.
    High,
}

impl Responsiveness {
    /// Summarizes the runs of one subject; `None` if no run has a response both on the idle and on
    /// the loaded path.
    #[must_use]
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Latency>) -> Option<Self> {
        let runs: Vec<&Latency> = runs.into_iter().collect();
        let idle = runs.iter().flat_map(|run| &run.idle).map(Duration::as_secs_f64).collect();
        let idle_p50 = quantile(&sorted(idle), 0.5).filter(|idle| *idle > 0.0)?;
        let rpm: Vec<f64> = runs.iter().filter_map(|run| run.rpm()).collect();
        let samples = |of: fn(&Latency) -> Vec<f64>| -> Vec<f64> {
            sorted(runs.iter().flat_map(|run| of(run)).collect())
        };
        let loaded = samples(|run| {
            let kinds = [&run.handshakes, &run.beside].map(|kind| run.counted(kind, run.load));
            kinds.concat()
        });
        let inside = samples(|run| run.counted(&run.inside, run.load));
        let (loaded_p50, loaded_p95) = (quantile(&loaded, 0.5)?, quantile(&loaded, 0.95)?);
        Some(Self {
            idle_p50,
            loaded_p50,
            loaded_p95,
            added_p50: loaded_p50 - idle_p50,
            added_p95: loaded_p95 - idle_p50,
            inflation_p50: loaded_p50 / idle_p50,
            inflation_p95: loaded_p95 / idle_p50,
            inside_p50: quantile(&inside, 0.5),
            inside_p95: quantile(&inside, 0.95),
            rpm: Summary::of(&rpm)?,
            confidence: runs.iter().map(|run| run.confidence()).min()?,
            samples: loaded.len(),
            unanswered: runs.iter().map(|run| run.unanswered).sum(),
        })
    }
}

impl Latency {
    /// Round trips per minute at the end of the load; `None` without responses.
    #[must_use]
    pub fn rpm(&self) -> Option<f64> {
        self.rpm_until(self.load)
    }

    /// The confidence in [`Latency::rpm`].
    #[must_use]
    pub fn confidence(&self) -> Confidence {
        if self.load < COUNTED + INTERVAL * COMPARED {
            return Confidence::Low;
        }
        let earlier = (0..COMPARED).map(|back| self.rpm_until(self.load - INTERVAL * back));
        let Some(figures) = earlier.collect::<Option<Vec<f64>>>() else { return Confidence::Low };
        let n = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / n;
        let variance = figures.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / n;
        if variance.sqrt() <= STABLE * figures[0] { Confidence::High } else { Confidence::Medium }
    }

    fn rpm_until(&self, end: Duration) -> Option<f64> {
        let mean = |kind: &[RoundTrip]| trimmed_mean(&self.counted(kind, end), TRIMMED);
        let per_minute = |seconds: f64| 60.0 / seconds;
        let foreign = per_minute(f64::midpoint(mean(&self.handshakes)?, mean(&self.beside)?));
        if self.inside.is_empty() {
            return Some(foreign);
        }
        Some(f64::midpoint(foreign, per_minute(mean(&self.inside)?)))
    }

    /// The round trips that began in the last seconds before `end`, in seconds.
    fn counted(&self, trips: &[RoundTrip], end: Duration) -> Vec<f64> {
        let begin = end - COUNTED.min(self.load / 2).min(end);
        let counts = |trip: &&RoundTrip| (begin..end).contains(&trip.at);
        trips.iter().filter(counts).map(|trip| trip.took.as_secs_f64()).collect()
    }

    /// Adds the round trips inside the flows of the load, and how long the load ran.
    pub(crate) fn with_load(mut self, flows: &[Flow]) -> Self {
        let answers = flows.iter().filter_map(|flow| flow.received.as_ref());
        self.inside = answers.flat_map(|received| received.answers.clone()).collect();
        self.inside.sort_by_key(|trip| trip.at);
        let load = flows.iter().filter(|flow| !flow.aside);
        self.load = load.filter_map(on_for).min().unwrap_or_default();
        self
    }
}

/// How long a flow's sender wrote; if unknown, how long its receiver read. After that, bytes in
/// buffers still arrive, but requests get no response.
fn on_for(flow: &Flow) -> Option<Duration> {
    let wrote = flow.sent.as_ref().map(|sent| sent.writing);
    wrote.or_else(|| flow.received.as_ref().map(|received| received.time))
}

fn sorted(mut samples: Vec<f64>) -> Vec<f64> {
    samples.sort_by(f64::total_cmp);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A probe of each kind every 100 ms.
    fn probed(load: Duration, took: impl Fn(Duration) -> [u64; 3]) -> Latency {
        let mut latency = Latency { idle: vec![ms(20), ms(20)], load, ..Latency::default() };
        for tenth in 0..=u64::try_from(load.as_millis() / 100).unwrap() {
            let at = ms(tenth * 100);
            let trip = |one: u64| RoundTrip { at, took: ms(one) };
            let [handshake, beside, inside] = took(at).map(trip);
            latency.handshakes.push(handshake);
            latency.beside.push(beside);
            latency.inside.push(inside);
        }
        latency
    }

    #[test]
    fn the_figure_of_section_5_3_1_2() {
        let latency = probed(ms(10_000), |_| [50, 100, 200]);
        let rpm = latency.rpm().unwrap();
        // (60000 / 75 + 60000 / 200) / 2
        assert!((rpm - 550.0).abs() < 1e-9, "{rpm}");
        let one = Responsiveness::of([&latency]).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(one.idle_p50, 0.020);
        near(one.loaded_p50, 0.075);
        near(one.added_p95, 0.080);
        near(one.inflation_p95, 5.0);
        near(one.inside_p95.unwrap(), 0.2);
        near(one.rpm.median, 550.0);
        assert_eq!((one.samples, one.confidence), (80, Confidence::High));
    }

    #[test]
    fn without_self_probes_the_foreign_ones_stand_alone() {
        let mut latency = probed(ms(10_000), |_| [50, 100, 200]);
        latency.inside.clear();
        assert!((latency.rpm().unwrap() - 800.0).abs() < 1e-9);
        assert_eq!(Responsiveness::of([&latency]).unwrap().inside_p50, None);
    }

    #[test]
    fn what_was_before_the_queue_filled_or_after_the_load_does_not_count() {
        for load in [3_000, 10_000] {
            let counted = (load - 4_000.min(load / 2))..load;
            let mut latency = probed(ms(load), |at| {
                let counts = counted.contains(&u64::try_from(at.as_millis()).unwrap());
                [if counts { 500 } else { 20 }; 3]
            });
            latency.handshakes.push(RoundTrip { at: ms(load + 500), took: ms(9_000) });
            assert!((latency.rpm().unwrap() - 120.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_figure_is_as_sure_as_it_is_stable() {
        let steady = |load| probed(ms(load), |_| [50, 50, 50]);
        assert_eq!(steady(7_000).confidence(), Confidence::Low);
        assert_eq!(steady(8_000).confidence(), Confidence::High);
        let growing =
            probed(ms(10_000), |at| [u64::try_from(at.as_millis()).unwrap() / 10 + 20; 3]);
        assert_eq!(growing.confidence(), Confidence::Medium);
        let both = Responsiveness::of([&steady(10_000), &growing]).unwrap();
        assert_eq!(both.confidence, Confidence::Medium);
    }

    #[test]
    fn without_answers_there_is_no_figure() {
        let idle = Latency { idle: vec![ms(20)], load: ms(10_000), ..Latency::default() };
        assert_eq!(Responsiveness::of([&idle]), None);
        let unknown = Latency { idle: Vec::new(), ..probed(ms(10_000), |_| [50; 3]) };
        assert_eq!(Responsiveness::of([&unknown]), None);
        assert_eq!(Responsiveness::of([]), None);
    }
}
