//! The findings as one HTML page: no script, nothing loaded from elsewhere, all text escaped.

use lastbyte_core::text::plain;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::event::Scope;
use crate::explain::explain;
use crate::finding::{Class, Evidence, Finding};
use crate::summary::Summary;
use crate::text::{bytes, count};

/// The page, to be written to a file that ends in `.html`. Names of programs are shown without
/// characters that change the direction of text.
#[must_use]
pub fn page(findings: &[Finding], summary: &Summary) -> String {
    let (harmless, found): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.harmless);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                // Even unescaped text could load and run nothing.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "lastbyte " (env!("CARGO_PKG_VERSION")) };
                title { "lastbyte doctor: " (answer(summary)) }
                style { (PreEscaped(include_str!("page/style.css"))) }
            }
            body {
                main {
                    (head(summary))
                    @if !found.is_empty() {
                        h2 { "Findings" }
                        @for finding in &found { (article(finding)) }
                    }
                    @if !harmless.is_empty() {
                        h2 { "Harmless" }
                        p.note { "Looked like trouble; nothing was lost." }
                        @for finding in &harmless { (article(finding)) }
                    }
                    (servers(summary))
                    (meanings(findings))
                }
            }
        }
    };
    plain(&page.into_string()).into_owned()
}

fn head(summary: &Summary) -> Markup {
    let scope = match summary.scope {
        Scope::Machine => "the whole machine".to_owned(),
        Scope::Process(pid) => format!("process {pid} and what it started"),
        Scope::Port(port) => format!("TCP port {port}"),
    };
    let is_bad = summary.loss > 0;
    html! {
        header {
            p.kicker { "lastbyte doctor" }
            h1 { "What happened to the bytes" }
            p.answer.bad[is_bad] { (answer(summary)) }
            p.meta {
                "Watched: " (scope) ", for " (format!("{:.1}", summary.watched_s)) " s, "
                (summary.tier.words()) ", Linux " (summary.kernel) "."
            }
            @if let Some(looks) = summary.looks {
                p.meta {
                    (count(looks)) " scans of the socket tables."
                    @if let Some(unseen) = summary.unseen_connections {
                        " At most " (count(unseen)) " ends of connections came and went between two of them."
                    }
                }
            }
            @if !summary.sees_each_loss { p.warn { "A loss could have been missed from there." } }
            @if summary.dropped > 0 {
                p.warn { (summary.dropped) " events came too fast and were dropped: something may be missing." }
            }
        }
    }
}

/// One sentence as the answer.
fn answer(summary: &Summary) -> String {
    let count = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let parts = [
        count(summary.loss, "loss", "losses"),
        count(summary.slow, "reason why it was slow", "reasons why it was slow"),
        count(summary.cpu, "waste of processor time", "wastes of processor time"),
        count(summary.connect, "trouble with connecting", "troubles with connecting"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match (parts.is_empty(), summary.bytes_lost) {
        (true, _) if !summary.sees_each_loss => {
            "Nothing was found, but a loss could have been missed.".to_owned()
        }
        (true, _) => "Nothing was found.".to_owned(),
        (false, 0) if summary.loss > 0 => {
            format!("Found {}; how many bytes did not arrive is not known.", parts.join(", "))
        }
        (false, 0) => format!("Found {}.", parts.join(", ")),
        (false, lost) => {
            let about = summary.bytes_lost_precision.prefix();
            format!("Found {}; {about}{} did not arrive.", parts.join(", "), bytes(lost))
        }
    }
}

fn article(finding: &Finding) -> Markup {
    let class = match finding.class {
        Class::Loss => "loss",
        Class::Slow => "slow",
        Class::Cpu => "cpu",
        Class::Connect => "connect",
        Class::Note => "note-class",
    };
    let title = explain(finding.code).map_or("", |page| page.title);
    html! {
        article class=(class) {
            h3 { span.code { (finding.code) } " " (finding.class) ": " (title) }
            (who(finding))
            p { (finding.sentence) }
            @if !finding.harmless { p { b { "Fix: " } (with_code(&finding.fix)) } }
            @if let Some(heal) = &finding.heal { pre { (heal) } }
            @if !finding.evidence.is_empty() {
                details {
                    summary { "Evidence" }
                    dl {
                        @for (name, value) in &finding.evidence {
                            dt { (name.replace('_', " ")) }
                            dd { bdi { (figure(value)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Words of ours, in which code stands between backquotes.
fn with_code(words: &str) -> Markup {
    html! {
        @for (place, part) in words.split('`').enumerate() {
            @if place % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}

fn who(finding: &Finding) -> Markup {
    let about = &finding.about;
    html! {
        p.who {
            @if let Some(pid) = about.pid {
                bdi { (about.name.as_deref().unwrap_or("?")) } " [" (pid) "] "
            }
            @if let Some(place) = about.place() { bdi { (place) } " " }
            @if let (Some(local), Some(peer)) = (about.local, about.peer) {
                (local)
                @if peer.port() != 0 { " to " (peer) }
            }
            @if finding.times > 1 { ", " (finding.times) " times" }
            @if let (Class::Loss, Some(lost)) = (finding.class, finding.bytes) {
                ", " (finding.precision().prefix()) (bytes(lost))
            }
        }
    }
}

/// What a connection took of those that accepted any.
fn servers(summary: &Summary) -> Markup {
    html! {
        @if !summary.served.is_empty() {
            h2 { "Servers" }
            @for one in &summary.served {
                p { bdi { (one.name) } " [" (one.pid) "] " (one.sentence()) }
            }
        }
    }
}

fn figure(value: &Evidence) -> String {
    match value {
        Evidence::Count(count) => count.to_string(),
        Evidence::Number(number) => format!("{number:.3}"),
        Evidence::Word(word) => word.clone(),
    }
}

/// The explanations of the codes that were found.
fn meanings(findings: &[Finding]) -> Markup {
    let mut codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let pages: Vec<_> = codes.into_iter().filter_map(explain).collect();
    html! {
        @if !pages.is_empty() {
            h2 { "What the codes mean" }
            @for page in pages {
                details {
                    summary { (page.code) ": " (page.title) }
                    pre { (page.text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Served;
    use crate::event::{Precision, Tier};
    use crate::finding::{About, Code};

    #[test]
    fn a_hostile_name_stays_text() {
        let finding = Finding {
            code: Code(101),
            class: Class::Loss,
            harmless: false,
            bytes: Some(7),
            at_ns: 0,
            times: 1,
            about: About {
                pid: Some(1),
                name: Some("<script>\u{1b}]0;x\u{7}\u{202e}".to_owned()),
                ..About::default()
            },
            sentence: "7 bytes & more".to_owned(),
            fix: "`a<b>` does".to_owned(),
            heal: None,
            evidence: [("lost_bytes".to_owned(), 7_u64.into())].into(),
        };
        let summary = Summary {
            tier: Tier::Procfs,
            scope: Scope::Machine,
            kernel: "6.18".to_owned(),
            watched_s: 1.0,
            sockets: 1,
            loss: 1,
            bytes_lost: 7,
            bytes_lost_precision: Precision::About,
            sees_each_loss: false,
            slow: 0,
            cpu: 0,
            connect: 0,
            harmless: 0,
            dropped: 3,
            looks: Some(9),
            unseen_connections: Some(2),
            looks_per_s: None,
            served: vec![Served {
                pid: 9,
                name: "<b>".to_owned(),
                connections: 4,
                connections_precision: Precision::Exact,
                user_ms: Some(600.0),
                system_ms: Some(200.0),
                cpu_ms_per_connection: Some(200.0),
                cpu_precision: Precision::Exact,
                exchanges: None,
                cpu_ms_per_exchange: None,
                calls_per_connection: None,
                top_calls: None,
            }],
        };
        let page = page(&[finding], &summary);
        assert!(
            page.contains("<bdi>&lt;b&gt;</bdi> [9] accepted 4 connections; processor time"),
            "{page}"
        );
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
        assert!(!page.contains(['\u{1b}', '\u{202e}']) && page.contains("7 bytes &amp; more"));
        assert!(page.contains("<b>Fix: </b><code>a&lt;b&gt;</code> does"), "{page}");
        assert!(
            page.contains("Found 1 loss; about 7 bytes did not arrive.")
                && page.contains("3 events")
        );
    }
}
