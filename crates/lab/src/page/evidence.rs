//! The path, the links' reports of themselves, how the rounds ended, and what was left out.

use maud::{Markup, html};

use super::View;
use super::text::{self, count, duration, percent, rate, size, time};
use crate::record::{LinkFigures, PathDescription, Void};

pub(super) fn section(view: &View<'_>) -> Markup {
    html! {
        section aria-labelledby="path" {
            h2 id="path" { "The path" }
            (path(&view.experiment.about.path))
        }
        section aria-labelledby="certificate" {
            h2 id="certificate" { "Is it reliable?" }
            (certificate(view))
            (rounds(view))
            (left_out(view))
        }
    }
}

fn path(path: &PathDescription) -> Markup {
    let either = |up: Option<String>, down: Option<String>| match (up, down) {
        (Some(up), Some(down)) if up == down => Some(format!("{up} each way")),
        (Some(up), Some(down)) => Some(format!("{up} up, {down} down")),
        (Some(up), None) => Some(format!("{up} up")),
        (None, Some(down)) => Some(format!("{down} down")),
        (None, None) => None,
    };
    let rates = either(
        path.up_bits_per_s.map(|bits| rate(bits as f64)),
        path.down_bits_per_s.map(|bits| rate(bits as f64)),
    );
    let limits = either(path.up_limit_bits_per_s.map(rate), path.down_limit_bits_per_s.map(rate));
    let kind = if path.emulated { "emulated on one machine, with real kernel TCP" } else { "real" };
    let facts = [
        ("name", Some(path.name.clone())),
        ("description", Some(path.description.clone()).filter(|words| !words.is_empty())),
        ("kind", Some(kind.to_owned())),
        ("round trip, empty queues", path.rtt.map(duration)),
        ("rate, IP bytes", rates),
        ("most TCP payload", limits),
        ("queue up", path.up_queue_bytes.map(|bytes| size(bytes as f64))),
        ("loss up", path.up_loss_share.map(percent)),
    ];
    html! {
        dl.facts {
            @for (name, fact) in facts {
                @if let Some(fact) = fact { dt { (name) } dd { bdi { (fact) } } }
            }
        }
    }
}

/// The links' reports of themselves; for a path without links, that nothing vouches for it.
fn certificate(view: &View<'_>) -> Markup {
    let links: Vec<&LinkFigures> =
        view.experiment.runs.iter().filter_map(|run| run.link.as_ref()).collect();
    if links.is_empty() {
        return html! {
            p { "The path was not emulated: nothing vouches for what it did during a run. Interleaved rounds "
                "spread its changes over all subjects." }
        };
    }
    let worst = |figure: fn(&LinkFigures) -> f64| {
        let worst = links.iter().map(|link| figure(link)).fold(0.0, f64::max);
        time(worst / 1e3)
    };
    let drops = links.iter().fold(0_u64, |sum, link| sum.saturating_add(link.device_drops_packets));
    let repeated = view.experiment.runs.iter().filter(|run| run.repeated > 0).count();
    let packets = links.iter().fold(0_u64, |sum, link| {
        sum.saturating_add(link.up.packets).saturating_add(link.down.packets)
    });
    html! {
        p {
            "Each run had its own link, which measures how late it delivers every packet. A run whose link broke its "
            "promise is repeated alone, or does not count."
        }
        dl.facts {
            dt { "packets" } dd { (lastbyte_units::grouped(packets)) " in " (count(links.len(), "run")) }
            dt { "late, half of them" } dd { "at most " (worst(|link| link.late_p50_ms)) ", in the worst run" }
            dt { "late, 99 of 100" } dd { "at most " (worst(|link| link.late_p99_ms)) ", in the worst run" }
            dt { "late, the latest" } dd { (worst(|link| link.late_max_ms)) }
            dt { "dropped unasked" } dd { (lastbyte_units::grouped(drops)) " packets" }
            dt { "runs repeated" } dd { (repeated) }
        }
    }
}

fn rounds(view: &View<'_>) -> Markup {
    let (about, ended) = (&view.experiment.about, &view.experiment.ended);
    let load = [
        about.load.time.map(duration),
        about.load.bytes.map(|bytes| format!("{} bytes", lastbyte_units::grouped(bytes))),
    ];
    let load = load.into_iter().flatten().collect::<Vec<_>>().join(" or ");
    let (least, most) = (about.rounds.least_rounds, about.rounds.most_rounds);
    let planned = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let settled = match ended.settled {
        Some(true) => "yes: each subject's comparison with the best is decided",
        Some(false) if ended.interrupted.is_some() => "no: the experiment was interrupted before",
        Some(false) => "no: the most rounds allowed were not enough to tell the subjects apart",
        None => "not tested: the number of rounds was fixed",
    };
    html! {
        dl.facts {
            dt { "rounds" } dd { (ended.rounds) " of " (planned) " planned; each subject once in each, in rotating order" }
            @if !load.is_empty() { dt { "load of a run" } dd { (load) } }
            dt { "order settled" } dd { (settled) }
            @if let Some(cut) = &ended.interrupted { dt { "interrupted" } dd { bdi { (cut) } } }
            dt { "at the same time" } dd { (count(about.parallel, "run")) @if about.parallel > 1 { ", each on its own link" } }
            dt { "seed" } dd { (about.seed) ": it decides which packets are lost; all subjects of a round have the same" }
        }
    }
}

fn left_out(view: &View<'_>) -> Markup {
    let experiment = view.experiment;
    let without_runs: Vec<String> = (0..experiment.about.subjects.len())
        .filter(|subject| !view.subjects.iter().any(|one| one.row.subject == *subject))
        .map(|subject| view.name_of(subject))
        .collect();
    if without_runs.is_empty() && experiment.void.is_empty() {
        return html! { p { "Nothing was left out: every run that was made counts." } };
    }
    html! {
        h3 { "Left out" }
        @if !without_runs.is_empty() {
            p { "No run counts of: " @for (place, name) in without_runs.iter().enumerate() { @if place > 0 { ", " } bdi { (name) } } "." }
        }
        @if !experiment.void.is_empty() {
            ul {
                @for void in experiment.void.iter().take(LISTED) { (why(view, void)) }
                @if experiment.void.len() > LISTED { li { (experiment.void.len() - LISTED) " more" } }
            }
        }
    }
}

/// Runs that do not count, one by one.
const LISTED: usize = 100;

fn why(view: &View<'_>, void: &Void) -> Markup {
    html! {
        li { bdi { (view.name_of(void.subject)) } ", round " (u64::from(void.round) + 1) ": " bdi { (text::one_line(&void.why)) } }
    }
}
