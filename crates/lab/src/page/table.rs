//! The figures of every subject.

use std::time::Duration;

use lastbyte_stats::{compare, quantile};
use maud::{Markup, html};

use super::text::{NONE, duration, number, percent};
use super::{Standing, Subject, View};
use crate::record::Run;

pub(super) fn section(view: &View<'_>) -> Markup {
    if view.subjects.is_empty() {
        return html! {};
    }
    let columns = Columns::of(view);
    html! {
        section aria-labelledby="figures" {
            h2 id="figures" { "The figures" }
            // A box that scrolls must be reachable by keyboard.
            div.scroll role="region" aria-labelledby="figures" tabindex="0" {
                table {
                    caption { "Rates in " (view.unit.name()) ", at the receiver; the highest median first." }
                    thead { (columns.heads()) }
                    tbody { @for subject in &view.subjects { (columns.row(view, subject)) } }
                }
            }
            p.note {
                "Of limit: the median's share of the most TCP payload that the path can carry. "
                "Against the best: the ratio of the medians, and between which ratios single runs of the two "
                "stand; for the best itself, against the next best. "
                "Needlessly: resent although the link had dropped nothing for it. "
                @if columns.latency {
                    "RTT: question and answer on new connections beside the load, over all runs: half of "
                    "them, and 95 of 100, took at most this. "
                }
                "Complete: every byte written was received, and the end was proven."
            }
        }
    }
}

/// Which columns have something to show.
struct Columns {
    limit: bool,
    latency: bool,
    rpm: bool,
}

impl Columns {
    fn of(view: &View<'_>) -> Self {
        let rows = || view.subjects.iter();
        let latency: Vec<Latency> = rows().filter_map(|one| Latency::of(&one.runs)).collect();
        Self {
            limit: rows().any(|one| one.row.limit_bits_per_s.is_some()),
            latency: !latency.is_empty(),
            rpm: latency.iter().any(|one| one.rpm.is_some()),
        }
    }

    fn heads(&self) -> Markup {
        let head = |name: &str| html! { th scope="col" { (name) } };
        html! {
            tr {
                (head("subject")) (head("median")) (head("min")) (head("max"))
                @if self.limit { (head("of limit")) }
                (head("against the best")) (head("claimed")) (head("resent")) (head("needlessly"))
                @if self.latency { (head("RTT idle")) (head("RTT p50 loaded")) (head("RTT p95 loaded")) }
                @if self.rpm { (head("round trips per minute")) }
                (head("complete"))
            }
        }
    }

    fn row(&self, view: &View<'_>, subject: &Subject<'_>) -> Markup {
        let (row, unit) = (subject.row, view.unit);
        let cell = |text: Option<String>| html! { td { (text.as_deref().unwrap_or(NONE)) } };
        let latency = Latency::of(&subject.runs);
        let of_limit = row.limit_bits_per_s.map(|limit| percent(row.received.median / limit));
        html! {
            tr {
                th scope="row" { bdi { (subject.name) } }
                td { b { (unit.figure(row.received.median)) } }
                td { (unit.figure(row.received.min)) }
                td { (unit.figure(row.received.max)) }
                @if self.limit { (cell(of_limit)) }
                td { (against(view, subject)) }
                td { (unit.figure(row.claimed)) }
                (cell(row.resent.map(percent)))
                (cell(row.resent_needlessly.map(percent)))
                @if self.latency {
                    (cell(latency.and_then(|one| one.idle).map(duration)))
                    (cell(latency.map(|one| duration(one.p50))))
                    (cell(latency.map(|one| duration(one.p95))))
                }
                @if self.rpm { (cell(latency.and_then(|one| one.rpm).map(number))) }
                td { (row.complete) " of " (row.samples.len()) }
            }
        }
    }
}

/// The best against the next best, the others against the best.
fn against(view: &View<'_>, subject: &Subject<'_>) -> Markup {
    let is_best = subject.standing == Standing::Best;
    let other = if is_best { view.next() } else { view.best() };
    let Some(other) = other else { return html! { (NONE) } };
    let comparison = compare(&subject.row.samples, &other.row.samples);
    let Some(ratio) = comparison.ratio else { return html! { (NONE) } };
    html! {
        (number(ratio)) " ×"
        @if is_best { " next" }
        @if let Some(range) = comparison.ratio_range {
            small { (number(range.low)) " to " (number(range.high)) }
        }
    }
}

/// Round trips of a subject, over all its runs.
#[derive(Clone, Copy)]
struct Latency {
    /// Half of those before the load took at most this.
    idle: Option<Duration>,
    p50: Duration,
    p95: Duration,
    /// Round trips per minute under load, where they have been worked out.
    rpm: Option<f64>,
}

impl Latency {
    fn of(runs: &[&Run]) -> Option<Self> {
        let latencies = || runs.iter().filter_map(|run| run.latency.as_ref());
        let beside = sorted(latencies().flat_map(|latency| &latency.beside));
        let idle = sorted(latencies().flat_map(|latency| &latency.idle));
        Some(Self {
            idle: at(&idle, 0.5),
            p50: at(&beside, 0.5)?,
            p95: at(&beside, 0.95)?,
            rpm: None,
        })
    }
}

fn sorted<'a>(times: impl Iterator<Item = &'a Duration>) -> Vec<f64> {
    let mut sorted: Vec<f64> = times.map(Duration::as_secs_f64).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

fn at(sorted: &[f64], share: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(quantile(sorted, share)?).ok()
}
