//! Each subject over time: throughput, round-trip time, window, and what limited it.

use lastbyte_link::Way;
use maud::{Markup, html};

use super::limits;
use super::line::{HEIGHT, Plane, WIDTH, ticks};
use super::text::{self, NONE, Unit, count, percent};
use super::{Role, Subject, View};
use crate::record::{Flow, LimitKind, Received, Run, Sample};

/// The most points of a front line: two for each pixel.
const FRONT: usize = 1400;
/// The most points of all faint lines of the page together: under a megabyte.
const FAINT: usize = 120_000;
/// The fewest points of a faint line: rather than fewer points, there are fewer lines.
const FAINT_LEAST: usize = 40;
/// The most runs in one table.
const LISTED: usize = 200;
/// How many panels have faint lines.
const PANELS: usize = 3;

/// The length of a bin of [`Received::tenths`], in seconds.
const BIN_S: f64 = 0.1;

pub(super) fn section(view: &View<'_>) -> Markup {
    if view.subjects.is_empty() {
        return html! {};
    }
    let scales = Scales::of(view);
    html! {
        section aria-labelledby="over-time" {
            h2 id="over-time" { "Over time" }
            p.note {
                "In front is the run whose rate is nearest to the median; faint, the others. Time, throughput and "
                "round trip have one scale for all subjects, windows have one for each."
                @if scales.is_cut {
                    " Throughput beyond the upper border is clipped: when a lost packet arrives at last, the reader gets all that "
                    "waited behind it at the same time."
                }
            }
            @for subject in &view.subjects { (block(view, subject, &scales)) }
        }
    }
}

/// The scales that all subjects share.
struct Scales {
    seconds: f64,
    rate: f64,
    is_cut: bool,
    rtt_s: f64,
    /// The most faint lines of a panel, and the most points of each.
    faint: (usize, usize),
}

impl Scales {
    fn of(view: &View<'_>) -> Self {
        let runs = || view.subjects.iter().flat_map(|subject| &subject.runs);
        let greatest = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(|value| value.is_finite()).fold(0.0, f64::max)
        };
        let samples = || runs().filter_map(|run| samples(run)).flatten();
        let throughputs: Vec<Vec<(f64, f64)>> = runs().map(|run| throughput(run)).collect();
        let points = || throughputs.iter().flatten();
        let seconds = greatest(&mut points().map(|point| point.0 + BIN_S / 2.0));
        let seconds = seconds.max(greatest(&mut samples().map(|sample| sample.at.as_secs_f64())));
        let highest = greatest(&mut points().map(|point| point.1));
        let limits = view.subjects.iter().filter_map(|subject| subject.row.limit_bits_per_s);
        let limit = greatest(&mut limits.into_iter());
        let is_cut = limit > 0.0 && highest > limit * 1.6;
        let rtt_s = greatest(&mut samples().map(|sample| f64::from(sample.rtt_us) / 1e6));
        let path = view.experiment.about.path.rtt.map_or(0.0, |rtt| rtt.as_secs_f64());
        let lines = runs().count().saturating_sub(view.subjects.len()).max(1) * PANELS;
        let each = (FAINT / lines).clamp(FAINT_LEAST, FRONT);
        let faint = FAINT / each / PANELS / view.subjects.len();
        Self {
            seconds: positive(seconds),
            rate: positive(if is_cut { limit * 1.6 } else { highest.max(limit) * 1.04 }),
            is_cut,
            rtt_s: positive(rtt_s.max(path) * 1.08),
            faint: (faint, each),
        }
    }
}

/// A scale from zero to zero would divide by zero.
fn positive(value: f64) -> f64 {
    if value > 0.0 && value.is_finite() { value } else { 1.0 }
}

fn block(view: &View<'_>, subject: &Subject<'_>, scales: &Scales) -> Markup {
    let Some(front) = subject.front() else { return html! {} };
    let others: Vec<&Run> = subject
        .runs
        .iter()
        .copied()
        .filter(|run| !std::ptr::eq(*run, front))
        .take(scales.faint.0)
        .collect();
    let flows = front.flows.len();
    html! {
        details open[subject.role != Role::Other] {
            summary {
                bdi { (subject.name) }
                span { " · median " (view.unit.with_name(subject.row.received.median)) }
            }
            p.note {
                "In front: round " (u64::from(front.round) + 1) ", "
                (view.unit.with_name(front.received_bits_per_s()))
                "."
                @if !others.is_empty() {
                    " Faint: " (count(others.len(), "other run"))
                    @if others.len() + 1 < subject.runs.len() { " of " (subject.runs.len() - 1) }
                    "."
                }
                @if flows > 1 {
                    " Throughput is the sum of " (flows) " connections; round trip, window and limit are those of "
                    "the one that carried most."
                }
            }
            (rate_panel(view, subject, (front, &others), scales))
            @if samples(front).is_some() {
                (rtt_panel(view, (front, &others), scales))
                (window_panel((front, &others), scales))
                (limit_panel(front, scales))
            } @else {
                p.note { "Its sender was not sampled: round trip, window and limit are unknown." }
            }
            (runs_table(view, subject, front))
        }
    }
}

/// The run in front, and the faint ones.
type Runs<'a> = (&'a Run, &'a [&'a Run]);

fn rate_panel(view: &View<'_>, subject: &Subject<'_>, runs: Runs<'_>, scales: &Scales) -> Markup {
    let plane = Plane { right: scales.seconds, top: scales.rate };
    let faint = runs.1.iter().map(|run| plane.line(throughput(run).into_iter(), scales.faint.1));
    let line = plane.line(throughput(runs.0).into_iter(), FRONT);
    let highest = throughput(runs.0).iter().map(|point| point.1).fold(0.0, f64::max);
    let title = format!(
        "{}: throughput at the receiver over time, on the whole {}, at most {} in a tenth of a second",
        subject.name,
        view.unit.with_name(runs.0.received_bits_per_s()),
        view.unit.with_name(highest)
    );
    let lines = html! {
        @for line in faint { path.faint d=(line) {} }
        @if let Some(limit) = subject.row.limit_bits_per_s {
            @let line = plane.line([(0.0, limit), (scales.seconds, limit)].into_iter(), 2);
            path.line.of-limit d=(line) {}
        }
        path.line.of-rate d=(line) {}
        @if let Some(mark) = writing_ended(runs.0).and_then(|end| plane.upright(end)) {
            path.line.of-claim d=(mark) {}
        }
    };
    html! {
        div.panel {
            h4 { "Throughput at the receiver " span {
                "in " (view.unit.name()) ", each tenth of a second"
                @if subject.row.limit_bits_per_s.is_some() { "; " (key("of-limit")) "limit of the path" }
                @if writing_ended(runs.0).is_some() { "; " (key("of-claim")) "the last write() had returned" }
            } }
            (plot(&title, plane, view.unit, &lines))
        }
    }
}

fn rtt_panel(view: &View<'_>, runs: Runs<'_>, scales: &Scales) -> Markup {
    let plane = Plane { right: scales.seconds, top: scales.rtt_s };
    let unit = Unit::of_times(scales.rtt_s);
    let rtt = |sample: &Sample| f64::from(sample.rtt_us) / 1e6;
    let highest = samples(runs.0).into_iter().flatten().map(rtt).fold(0.0, f64::max);
    let path = view.experiment.about.path.rtt.map(|rtt| rtt.as_secs_f64());
    let title = format!("Smoothed round trip over time, at most {}", unit.with_name(highest));
    let lines = html! {
        @for run in runs.1 { path.faint d=(sampled(run, &plane, scales.faint.1, rtt)) {} }
        @if let Some(path) = path {
            @let line = plane.line([(0.0, path), (scales.seconds, path)].into_iter(), 2);
            path.line.of-limit d=(line) {}
        }
        path.line.of-rtt d=(sampled(runs.0, &plane, FRONT, rtt)) {}
    };
    html! {
        div.panel {
            h4 {
                "Round trip " span { "in " (unit.name()) ", smoothed by the sender's kernel"
                @if path.is_some() { "; " (key("of-limit")) "with empty queues" } }
            }
            (plot(&title, plane, unit, &lines))
        }
    }
}

fn window_panel(runs: Runs<'_>, scales: &Scales) -> Markup {
    let cwnd = |sample: &Sample| sample.cwnd_bytes as f64;
    let flight = |sample: &Sample| sample.unacked_bytes as f64;
    let front = || samples(runs.0).into_iter().flatten();
    let in_flight = front().map(flight).fold(0.0, f64::max);
    let cwnds = || std::iter::once(&runs.0).chain(runs.1).filter_map(|run| samples(run)).flatten();
    let highest = cwnds().map(cwnd).fold(in_flight, f64::max);
    // An unlimited window says less than the bytes in flight.
    let top = if in_flight > 0.0 { highest.min(in_flight * 2.5) } else { highest };
    let plane = Plane { right: scales.seconds, top: positive(top * 1.04) };
    let unit = Unit::of_sizes(plane.top);
    let title = format!(
        "Congestion window over time, at most {}, and bytes in flight, at most {}",
        text::size(front().map(cwnd).fold(0.0, f64::max)),
        text::size(in_flight)
    );
    let lines = html! {
        @for run in runs.1 { path.faint d=(sampled(run, &plane, scales.faint.1, cwnd)) {} }
        path.line.of-cwnd d=(sampled(runs.0, &plane, FRONT, cwnd)) {}
        path.line.of-flight d=(sampled(runs.0, &plane, FRONT, flight)) {}
    };
    html! {
        div.panel {
            h4 {
                "Window " span { "in " (unit.name()) ": "
                (key("of-cwnd")) "congestion window, " (key("of-flight")) "in flight"
                @if highest > plane.top { "; the window goes beyond the upper border" } }
            }
            (plot(&title, plane, unit, &lines))
        }
    }
}

fn key(class: &str) -> Markup {
    html! {
        svg.key width="22" height="8" aria-hidden="true" { path class={ "line " (class) } d="M0 4h22" {} }
    }
}

/// A plot, with ticks at the left and below.
fn plot(title: &str, plane: Plane, unit: Unit, lines: &Markup) -> Markup {
    let down = |value: f64| format!("{:.2}%", (1.0 - value / plane.top) * 100.0);
    html! {
        div.plot {
            svg height="92" role="img" {
                title { (title) }
                @for tick in ticks(plane.top) {
                    line.grid x1="0" x2="100%" y1=(down(tick)) y2=(down(tick)) {}
                    text x="-7" y=(down(tick)) dy=".32em" text-anchor="end" { (unit.tick(tick)) }
                }
                svg width="100%" height="100%" viewBox=(view_box()) preserveAspectRatio="none" { (lines) }
            }
            (time_axis(plane.right))
        }
    }
}

fn view_box() -> String {
    format!("0 0 {WIDTH} {HEIGHT}")
}

fn time_axis(seconds: f64) -> Markup {
    let unit = Unit::of_times(seconds);
    let across = |value: f64| format!("{:.2}%", value / seconds * 100.0);
    html! {
        svg height="18" aria-hidden="true" {
            @for tick in ticks(seconds) {
                line.base x1=(across(tick)) x2=(across(tick)) y1="0" y2="4" {}
                text x=(across(tick)) y="15" text-anchor=(anchor(tick / seconds)) {
                    (unit.tick(tick)) " " (unit.name())
                }
            }
        }
    }
}

/// A label at a border lies inside.
fn anchor(share: f64) -> &'static str {
    match share {
        0.0 => "start",
        late if late > 0.97 => "end",
        _ => "middle",
    }
}

/// One lane for each limit that occurred, told apart by position, not colour.
fn limit_panel(run: &Run, scales: &Scales) -> Markup {
    let plane = Plane { right: scales.seconds, top: 1.0 };
    let spans = spans(samples(run).unwrap_or_default());
    let lanes: Vec<(LimitKind, String)> = LANES
        .into_iter()
        .filter_map(|kind| {
            let spans = spans.iter().filter(|span| span.0 == kind);
            let lane: String =
                spans.filter_map(|span| plane.span(span.1, span.2)).map(cell).collect();
            (!lane.is_empty()).then_some((kind, lane))
        })
        .collect();
    if lanes.is_empty() {
        return html! {};
    }
    html! {
        div.panel {
            h4 { "Limited by " span { "the limit that held longest in each tenth of a second" } }
            div.plot {
                @for (kind, lane) in &lanes {
                    svg height="15" role="img" {
                        title { (limits::name(*kind)) ": " (percent(share(&spans, *kind))) " of the samples' time" }
                        rect.lane width="100%" height="12" {}
                        text x="-7" y="6" dy=".34em" text-anchor="end" { (kind.short()) }
                        svg width="100%" height="12" viewBox=(view_box()) preserveAspectRatio="none" {
                            path class=(limits::class(*kind)) d=(lane) {}
                        }
                    }
                }
                (time_axis(scales.seconds))
            }
        }
    }
}

const LANES: [LimitKind; 6] = [
    LimitKind::Application,
    LimitKind::SendBuffer,
    LimitKind::ReceiveWindow,
    LimitKind::CongestionWindow,
    LimitKind::Pacing,
    LimitKind::Unknown,
];

fn cell((from, length): (i32, i32)) -> String {
    // Even a very short span is visible.
    format!("M{from} 0h{}v{HEIGHT}h-{}z", length.max(8), length.max(8))
}

/// The spans of each limit; neighbours with the same limit are merged.
fn spans(samples: &[Sample]) -> Vec<(LimitKind, f64, f64)> {
    let mut spans: Vec<(LimitKind, f64, f64)> = Vec::new();
    let mut before = 0.0;
    for sample in samples {
        let at = sample.at.as_secs_f64();
        if let Some(kind) = sample.limited_by {
            match spans.last_mut() {
                Some(last) if last.0 == kind && last.2 == before => last.2 = at,
                _ => spans.push((kind, before, at)),
            }
        }
        before = at;
    }
    spans
}

fn share(spans: &[(LimitKind, f64, f64)], kind: LimitKind) -> f64 {
    let time = |span: &(LimitKind, f64, f64)| (span.2 - span.1).max(0.0);
    let whole: f64 = spans.iter().map(time).sum();
    spans.iter().filter(|span| span.0 == kind).map(time).sum::<f64>() / whole
}

/// When the last write of a run returned, in seconds.
fn writing_ended(run: &Run) -> Option<f64> {
    let ends = run.sent().map(|sent| sent.writing.as_secs_f64());
    ends.max_by(f64::total_cmp).filter(|end| *end > 0.0)
}

/// The receivers' rate in each tenth of a second, in bit/s, at the middle of that tenth.
fn throughput(run: &Run) -> Vec<(f64, f64)> {
    let received = || run.flows.iter().filter_map(|flow| flow.received.as_ref());
    let Some(began) = received().map(|one| one.began).min() else { return Vec::new() };
    let offset = |one: &Received| {
        let bins = (one.began.saturating_sub(began).as_secs_f64() / BIN_S).min(1e6);
        #[expect(clippy::cast_possible_truncation, reason = "at most a million")]
        let bins = bins as usize;
        bins
    };
    let bins =
        received().map(|one| offset(one).saturating_add(one.tenths.len())).max().unwrap_or(0);
    let mut sums = vec![0_u64; bins];
    for one in received() {
        for (sum, bytes) in sums.iter_mut().skip(offset(one)).zip(&one.tenths) {
            *sum = sum.saturating_add(*bytes);
        }
    }
    let point =
        |(place, bytes): (usize, u64)| ((place as f64 + 0.5) * BIN_S, bytes as f64 * 8.0 / BIN_S);
    sums.into_iter().enumerate().map(point).collect()
}

/// The samples of the connection that carried most, among those with samples: another program may
/// have control connections.
fn samples(run: &Run) -> Option<&[Sample]> {
    let sampled = run.flows.iter().filter_map(|flow| {
        let samples = flow.sent.as_ref()?.samples.as_slice();
        let bytes = flow.received.as_ref().map_or(0, |received| received.bytes);
        (!samples.is_empty()).then_some((bytes, samples))
    });
    // Of equal ones, the first.
    let most = sampled.reduce(|most, one| if one.0 > most.0 { one } else { most });
    most.map(|(_, samples)| samples)
}

fn sampled(run: &Run, plane: &Plane, most: usize, figure: impl Fn(&Sample) -> f64) -> String {
    let samples = samples(run).unwrap_or_default().iter();
    plane.line(samples.map(|sample| (sample.at.as_secs_f64(), figure(sample))), most)
}

/// A table of every run, for readers who cannot see the plots.
fn runs_table(view: &View<'_>, subject: &Subject<'_>, front: &Run) -> Markup {
    let unit = view.unit;
    let left_out = subject.runs.len().saturating_sub(LISTED);
    let label = format!("All runs of {}", subject.name);
    let most = subject.runs.iter().map(|run| run.written_bytes()).max().unwrap_or(0);
    let units = (unit, Unit::of_sizes(most as f64));
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table {
                caption { span { "Every run; rates in " (unit.name()) "." @if left_out > 0 { " " (left_out) " more are not listed." } } }
                thead {
                    tr {
                        @for head in ["round", "received", "claimed", "written", "not received", "resent", "least RTT", "middle RTT", "middle cwnd"] {
                            th scope="col" { (head) }
                        }
                        th scope="col" { "end" }
                    }
                }
                tbody {
                    @for run in subject.runs.iter().take(LISTED) { (run_row(units, run, std::ptr::eq(*run, front))) }
                }
            }
        }
    }
}

fn run_row((unit, sizes): (Unit, Unit), run: &Run, in_front: bool) -> Markup {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let (written, received) = (run.written_bytes(), run.received_bytes());
    let samples = samples(run).unwrap_or_default();
    let rtt = middle(samples.iter().map(|sample| f64::from(sample.rtt_us) / 1e6));
    let cwnd = middle(samples.iter().map(|sample| sample.cwnd_bytes as f64));
    html! {
        tr.front[in_front] {
            th scope="row" { (u64::from(run.round) + 1) @if in_front { " (in front)" } }
            td { (unit.figure(run.received_bits_per_s())) }
            td { (unit.figure(run.claimed_bits_per_s())) }
            td { (sizes.with_name(written as f64)) }
            td { @if received < written { (text::size((written - received) as f64)) } @else { "0" } }
            td { (or_none(run.resent_share().map(percent))) }
            td { (or_none(run.min_rtt().map(text::duration))) }
            td { (or_none(rtt.map(text::time))) }
            td { (or_none(cwnd.map(text::size))) }
            td { (ending(run)) }
        }
    }
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    lastbyte_stats::quantile(&values, 0.5)
}

/// How a run ended: complete, or why not.
fn ending(run: &Run) -> String {
    if run.is_complete() {
        return "complete".to_owned();
    }
    let why = |flow: &Flow| {
        let way = match flow.way {
            Way::Up => "up",
            Way::Down => "down",
        };
        let failure = flow.sent.as_ref().and_then(|sent| sent.failure.clone());
        let end = flow.received.as_ref().and_then(|received| received.end);
        let kind = failure.or_else(|| end.map(|end| format!("its end: {end:?}").to_lowercase()));
        format!("{way}: {}", kind.unwrap_or_else(|| "unknown at its receiver".to_owned()))
    };
    match run.flows.iter().find(|flow| !flow.is_complete()) {
        Some(flow) => format!("not complete; {}", why(flow)),
        None => "no connection".to_owned(),
    }
}
