//! A bar for each median, with every run, the limit of the path and the senders' claims.

use maud::{Markup, html};

use super::line::ticks;
use super::text::{self, count};
use super::{Role, Subject, View};

/// How far beyond the limit and the best run a claim may extend the scale.
const STRETCH: f64 = 1.5;

pub(super) fn section(view: &View<'_>) -> Markup {
    let Some(scale) = Scale::of(view) else {
        return html! {
            section { h2 { "What arrived" } p { "No run counts; the reasons are below." } }
        };
    };
    html! {
        section aria-labelledby="arrived" {
            h2 id="arrived" { "What arrived" }
            p.note {
                "Each bar is the median over the runs of one subject, in " (view.unit.name())
                ": the receiver's bytes over the receiver's time. Higher is better."
            }
            (legend(view))
            div.rows {
                @for subject in &view.subjects { (row(view, subject, &scale)) }
                (axis(view, &scale))
            }
        }
    }
}

/// The horizontal scale; it begins at zero.
struct Scale {
    right: f64,
}

impl Scale {
    fn of(view: &View<'_>) -> Option<Self> {
        let rows = || view.subjects.iter().map(|subject| subject.row);
        let greatest = |values: &mut dyn Iterator<Item = f64>| {
            values.filter(|value| value.is_finite()).fold(0.0, f64::max)
        };
        let received =
            rows().flat_map(|row| [row.received.max, row.limit_bits_per_s.unwrap_or(0.0)]);
        let received = greatest(&mut received.into_iter());
        let claimed = greatest(&mut rows().map(|row| row.claimed));
        let right = if claimed <= received * STRETCH { received.max(claimed) } else { received };
        // A scale from zero to zero would divide by zero.
        let right = if right > 0.0 { right } else { 1.0 };
        (!view.subjects.is_empty()).then_some(Self { right: right * 1.02 })
    }

    /// The position of a value, in percent of the width.
    fn place(&self, value: f64) -> String {
        let share = value / self.right;
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        format!("{:.2}%", share * 100.0)
    }
}

fn legend(view: &View<'_>) -> Markup {
    let limits = || view.subjects.iter().filter_map(|subject| subject.row.limit_bits_per_s);
    let same = limits().all(|limit| Some(limit) == limits().next());
    html! {
        ul.legend {
            li {
                svg width="22" height="14" aria-hidden="true" { rect.bar y="2" width="22" height="10" {} }
                "median"
            }
            li {
                svg width="30" height="14" aria-hidden="true" {
                    line.range x1="1" x2="29" y1="7" y2="7" {}
                    @for x in ["4", "12", "26"] { circle.dot cx=(x) cy="7" r="3" {} }
                }
                "every run, from min to max"
            }
            @if let Some(limit) = limits().next() {
                li {
                    svg width="8" height="16" aria-hidden="true" { line.limit x1="4" x2="4" y1="0" y2="16" {} }
                    "the most TCP payload that the path can carry"
                    @if same { ": " (view.unit.with_name(limit)) }
                }
            }
            li {
                svg width="14" height="16" aria-hidden="true" { (claim_mark("7")) }
                "what the sender would have claimed from write()"
            }
        }
    }
}

fn row(view: &View<'_>, subject: &Subject<'_>, scale: &Scale) -> Markup {
    let row = subject.row;
    let unit = view.unit;
    let outside = row.claimed > scale.right;
    html! {
        div.row {
            div.name {
                bdi { (subject.name) }
                @if subject.role == Role::Best && view.subjects.len() > 1 { " " small.tag { "best" } }
            }
            div.plotted {
                svg width="100%" height="100%" role="img" {
                    title { (in_words(view, subject)) }
                    @for tick in ticks(scale.right) {
                        line.grid x1=(scale.place(tick)) x2=(scale.place(tick)) y1="0" y2="100%" {}
                    }
                    rect.bar x="0" y="8" width=(scale.place(row.received.median)) height="16" {}
                    line.range x1=(scale.place(row.received.min)) x2=(scale.place(row.received.max)) y1="33" y2="33" {}
                    @for end in [row.received.min, row.received.max] {
                        line.range x1=(scale.place(end)) x2=(scale.place(end)) y1="29" y2="37" {}
                    }
                    @for sample in &row.samples {
                        circle.dot cx=(scale.place(*sample)) cy="33" r="3" { title { (unit.with_name(*sample)) } }
                    }
                    @if let Some(limit) = row.limit_bits_per_s {
                        line.limit x1=(scale.place(limit)) x2=(scale.place(limit)) y1="0" y2="100%" {}
                    }
                    @if outside {
                        svg x="100%" y="0" { path.claim d="M-12 11l8 5l-8 5z" {} }
                    } @else {
                        (claim_mark(&scale.place(row.claimed)))
                    }
                }
            }
            div.value {
                b { (unit.figure(row.received.median)) }
                span {
                    @if let Some(limit) = row.limit_bits_per_s {
                        (text::percent(row.received.median / limit)) " of the limit"
                    } @else { (unit.name()) }
                }
                span { "claimed " (unit.figure(row.claimed)) @if outside { " ▸" } }
            }
        }
    }
}

/// A line through the bar, with a triangle on top.
fn claim_mark(x: &str) -> Markup {
    html! {
        svg x=(x) y="0" { path.claim d="M0 7L-4 1h8z" {} line.claim x1="0" x2="0" y1="4" y2="27" {} }
    }
}

fn in_words(view: &View<'_>, subject: &Subject<'_>) -> String {
    let (row, unit) = (subject.row, view.unit);
    let limit = row.limit_bits_per_s.map(|limit| format!("; limit {}", unit.with_name(limit)));
    format!(
        "{}: median {} of {}, from {} to {}; claimed {}{}",
        subject.name,
        unit.with_name(row.received.median),
        count(row.samples.len(), "run"),
        unit.figure(row.received.min),
        unit.figure(row.received.max),
        unit.figure(row.claimed),
        limit.unwrap_or_default()
    )
}

fn axis(view: &View<'_>, scale: &Scale) -> Markup {
    html! {
        div.row.axis aria-hidden="true" {
            div.name {}
            div.plotted {
                svg width="100%" height="20" {
                    line.base x1="0" x2="100%" y1="0.5" y2="0.5" {}
                    @for tick in ticks(scale.right) {
                        line.base x1=(scale.place(tick)) x2=(scale.place(tick)) y1="0" y2="5" {}
                        text x=(scale.place(tick)) y="17" text-anchor=(if tick == 0.0 { "start" } else { "middle" }) {
                            (view.unit.tick(tick))
                        }
                    }
                }
            }
            div.value { span { (view.unit.name()) } }
        }
    }
}
