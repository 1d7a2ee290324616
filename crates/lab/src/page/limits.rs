//! What limited each subject: the share of time under each limit.

use maud::{Markup, html};

use super::text::percent;
use super::{Subject, View};
use crate::record::LimitKind;

pub(super) fn section(view: &View<'_>) -> Markup {
    if view.subjects.is_empty() {
        return html! {};
    }
    html! {
        section.limited aria-labelledby="limited-by" {
            h2 id="limited-by" { "What limited it" }
            p.note {
                "The share of the sending time in which each limit kept the sender from sending more, as its "
                "kernel reports it, over all runs. The largest share is the one to work on; shares under 0.5 % are not named."
            }
            @for subject in &view.subjects { (stack(subject)) }
            dl.facts.note {
                @for kind in KINDS { dt { (swatch(kind)) (name(kind)) } dd { (meaning(kind)) } }
            }
        }
    }
}

const KINDS: [LimitKind; 6] = [
    LimitKind::Application,
    LimitKind::SendBuffer,
    LimitKind::ReceiveWindow,
    LimitKind::CongestionWindow,
    LimitKind::Pacing,
    LimitKind::Unknown,
];

/// Smaller shares are in the bar and in its text alternative, but not named below it.
const NAMED: f64 = 0.005;

/// The bar, and below it the names of the shares, because the bar has no text.
fn stack(subject: &Subject<'_>) -> Markup {
    let shares = subject.row.limited.shares();
    let seen: Vec<(LimitKind, f64)> =
        shares.into_iter().filter(|(_, share)| share.is_finite() && *share > 0.0).collect();
    let whole: f64 = seen.iter().map(|(_, share)| share).sum();
    let mut from = 0.0;
    let parts = seen.iter().map(|(kind, share)| {
        let part = (*kind, from, share / whole);
        from += share / whole;
        part
    });
    let parts: Vec<(LimitKind, f64, f64)> = parts.collect();
    let place = |share: f64| format!("{:.2}%", share * 100.0);
    html! {
        div {
            h3 { bdi { (subject.name) } }
            @if parts.is_empty() {
                p.note { "Unknown: its sender was not sampled." }
            } @else {
                svg.stack width="100%" height="20" role="img" {
                    title { (subject.name) ": " (in_words(&seen)) }
                    @for (kind, from, share) in &parts {
                        rect class=(class(*kind)) x=(place(*from)) width=(place(*share)) height="20" {}
                        rect fill={ "url(#on-" (class(*kind)) ")" } x=(place(*from)) width=(place(*share)) height="20" {}
                    }
                }
                ul.shares aria-hidden="true" {
                    @for (kind, share) in seen.iter().filter(|(_, share)| *share >= NAMED) {
                        li { (swatch(*kind)) span { (name(*kind)) " " b { (percent(*share)) } } }
                    }
                }
            }
        }
    }
}

fn in_words(shares: &[(LimitKind, f64)]) -> String {
    let each = shares.iter().map(|(kind, share)| format!("{} {}", name(*kind), percent(*share)));
    each.collect::<Vec<_>>().join(", ")
}

fn swatch(kind: LimitKind) -> Markup {
    html! {
        svg width="16" height="12" aria-hidden="true" {
            rect class=(class(kind)) width="16" height="12" {}
            rect fill={ "url(#on-" (class(kind)) ")" } width="16" height="12" {}
        }
    }
}

/// Patterns over the colours, so that no meaning depends on colour alone: the congestion window has
/// none.
pub(super) fn patterns() -> Markup {
    let hatch = |id: &str, size: u32, lines: &str| {
        html! {
            pattern id=(id) width=(size) height=(size) patternUnits="userSpaceOnUse" {
                path.hatch d=(lines) stroke-width="1.4" {}
            }
        }
    };
    html! {
        svg.defs aria-hidden="true" focusable="false" {
            defs {
                pattern id="on-application" width="6" height="6" patternUnits="userSpaceOnUse" {
                    circle.spot cx="3" cy="3" r="1.3" {}
                }
                (hatch("on-send-buffer", 7, "M-1 8L8 -1M-1 1L1 -1M6 8L8 6"))
                (hatch("on-receive-window", 7, "M-1 -1L8 8M6 -1L8 1M-1 6L1 8"))
                pattern id="on-congestion-window" width="6" height="6" patternUnits="userSpaceOnUse" {}
                (hatch("on-pacing", 5, "M0 2.5H5"))
                (hatch("on-unknown", 6, "M0 0L6 6M6 0L0 6"))
            }
        }
    }
}

/// The CSS class of its colour.
pub(super) fn class(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Application => "application",
        LimitKind::SendBuffer => "send-buffer",
        LimitKind::ReceiveWindow => "receive-window",
        LimitKind::CongestionWindow => "congestion-window",
        LimitKind::Pacing => "pacing",
        LimitKind::Unknown => "unknown",
    }
}

pub(super) fn name(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Application => "application",
        LimitKind::SendBuffer => "send buffer",
        LimitKind::ReceiveWindow => "receive window",
        LimitKind::CongestionWindow => "congestion window",
        LimitKind::Pacing => "pacing",
        LimitKind::Unknown => "unknown",
    }
}

fn meaning(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Application => "the program had nothing to send",
        LimitKind::SendBuffer => {
            "the send buffer was too small for the path's bandwidth-delay product"
        }
        LimitKind::ReceiveWindow => {
            "the receive buffer was too small, or the receiving program read too slowly"
        }
        LimitKind::CongestionWindow => "the congestion control allowed no more in flight",
        LimitKind::Pacing => "the pacing rate was the limit",
        LimitKind::Unknown => "the kernel did not report it",
    }
}
