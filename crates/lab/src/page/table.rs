//! The figures of every subject.

use lastbyte_stats::Position;
use maud::{Markup, html};

use super::text::{NONE, number, percent, time};
use super::{Subject, View};
use crate::findings::Row;
use crate::latency::{Confidence, Responsiveness};

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
                    caption { span { "Rates in " (view.unit.name()) ", at the receiver; the highest median first." } }
                    thead { (columns.heads()) }
                    tbody { @for subject in &view.subjects { (columns.row(view, subject)) } }
                }
            }
            p.note {
                @if columns.limit {
                    "Of limit: the median's share of the most TCP payload that the path can carry. "
                }
                @if columns.against {
                    "Against the best: the confidence interval of the difference to the best, over all rounds and "
                    "all subjects together; for the best itself, its lead over the next best. "
                }
                "Needlessly: resent although the link had dropped no such packet. "
                @if columns.latency {
                    "RTT loaded: round trips on new connections beside the load, at its end: the median and the 95th "
                    "percentile. RPM: round trips per minute, more is better. "
                }
                "Complete: every byte written was received, and the end was proven."
            }
        }
    }
}

/// Which columns have something to show.
struct Columns {
    limit: bool,
    against: bool,
    latency: bool,
}

impl Columns {
    fn of(view: &View<'_>) -> Self {
        let rows = || view.subjects.iter();
        Self {
            limit: rows().any(|one| one.row.limit_bits_per_s.is_some()),
            against: rows().any(|one| one.row.next.is_some()),
            latency: rows().any(|one| one.row.latency.is_some()),
        }
    }

    fn heads(&self) -> Markup {
        let head = |name: &str| html! { th scope="col" { (name) } };
        html! {
            tr {
                (head("subject")) (head("median")) (head("min")) (head("max"))
                @if self.limit { (head("of limit")) }
                @if self.against { (head("against the best")) }
                (head("claimed")) (head("resent")) (head("needlessly"))
                @if self.latency {
                    (head("RTT idle")) (head("RTT loaded")) (head("RPM"))
                }
                (head("complete"))
            }
        }
    }

    fn row(&self, view: &View<'_>, subject: &Subject<'_>) -> Markup {
        let (row, unit) = (subject.row, view.unit);
        let cell = |text: Option<String>| html! { td { (text.as_deref().unwrap_or(NONE)) } };
        let of_limit = row.limit_bits_per_s.map(|limit| percent(row.received.median / limit));
        let latency = row.latency.as_ref();
        html! {
            tr {
                th scope="row" { bdi { (subject.name) } }
                td { b { (unit.figure(row.received.median)) } }
                td { (unit.figure(row.received.min)) }
                td { (unit.figure(row.received.max)) }
                @if self.limit { (cell(of_limit)) }
                @if self.against { td { (against(row)) } }
                td { (unit.figure(row.claimed)) }
                (cell(row.resent.map(percent)))
                (cell(row.resent_needlessly.map(percent)))
                @if self.latency {
                    (cell(latency.map(|one| time(one.idle_p50))))
                    td {
                        @if let Some(latency) = latency {
                            (time(latency.loaded_p50)) small { "p95\u{a0}" (time(latency.loaded_p95)) }
                        } @else { (NONE) }
                    }
                    td { @if let Some(latency) = latency { (per_minute(latency)) } @else { (NONE) } }
                }
                td { (row.complete) " of " (row.samples.len()) }
            }
        }
    }
}

/// The best compared with the next best, the others compared with the best.
fn against(row: &Row) -> Markup {
    let by = |ratio: f64| {
        let percent = (ratio - 1.0) * 100.0;
        if percent.abs() < 1e6 {
            format!("{percent:+.0}").replace('-', "−")
        } else {
            format!("{percent:+.0e}")
        }
    };
    let spread = |low: f64, high: f64| format!("{} to {}\u{a0}%", by(low), by(high));
    let (standing, is_best) = match (&row.next, &row.standing) {
        (Some(next), _) => (next, true),
        (None, Some(standing)) => (standing, false),
        (None, None) => return html! { (NONE) },
    };
    let interval = standing.interval.filter(|it| it.low.is_finite() && it.high.is_finite());
    let interval = match interval {
        Some(it) if is_best && it.low > 0.0 => Some(spread(1.0 / it.high, 1.0 / it.low)),
        Some(it) if !is_best => Some(spread(it.low, it.high)),
        _ => None,
    };
    let word = match (standing.position, is_best) {
        (Position::Worse, true) => "ahead of the next",
        (Position::Worse, false) => "worse",
        (Position::Alike, true) => "best, with others",
        (Position::Alike, false) => "alike",
        (_, true) => "best, undecided",
        (_, false) => "undecided",
    };
    html! { (interval.as_deref().unwrap_or(NONE)) small { (word) } }
}

fn per_minute(latency: &Responsiveness) -> Markup {
    let word = match latency.confidence {
        Confidence::Low => "short\u{a0}load",
        Confidence::Medium => "varying",
        Confidence::High => "steady",
    };
    html! { (number(latency.rpm.median)) small { (word) } }
}
