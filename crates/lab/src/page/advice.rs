//! The recommendation, the command to repeat the experiment, and how to read the page.

use maud::{Markup, html};

use super::View;
use super::text::{command_line, one_line};

pub(super) fn section(view: &View<'_>) -> Markup {
    html! {
        (recommendation(view))
        (again(view))
        (reading())
    }
}

fn recommendation(view: &View<'_>) -> Markup {
    let advice = view.advice;
    html! {
        section aria-labelledby="advice" {
            h2 id="advice" { "What to do" }
            @for sentence in &advice.conclusion { p { bdi { (sentence) } } }
            @if advice.conclusion.is_empty() { p { "Nothing is advised: there was nothing to choose between." } }
            @for warning in &advice.warnings { p.warn { b { "Note first: " } bdi { (warning) } } }
            @for (scope, lines) in &advice.methods {
                div.keep {
                    h3 { bdi { (scope) } }
                    pre { @for line in lines { (one_line(line)) "\n" } }
                }
            }
        }
    }
}

fn again(view: &View<'_>) -> Markup {
    let words = &view.experiment.about.command;
    html! {
        section aria-labelledby="again" {
            h2 id="again" { "How to repeat it" }
            @if words.is_empty() {
                p { "The command is not known." }
            } @else {
                pre { (command_line(words)) "\n" }
            }
        }
    }
}

fn reading() -> Markup {
    html! {
        section aria-labelledby="reading" {
            h2 id="reading" { "How to read this page" }
            dl.facts {
                @for (word, means) in TERMS { dt { (word) } dd { (means) } }
            }
        }
    }
}

const TERMS: [(&str, &str); 9] = [
    (
        "received",
        "bytes that the receiver read, over the receiver's time, from its connection to its last byte: the only \
         figure that is compared",
    ),
    (
        "claimed",
        "bytes that write() accepted, over the time until its last return. They may still be in the sender's buffer, \
         so this may be more than what arrived",
    ),
    (
        "written",
        "the local kernel accepted the byte: write() returned. It says nothing about the peer",
    ),
    ("acked", "the peer's kernel acknowledged the byte"),
    (
        "closed",
        "acked, and the peer closed afterwards. It does not say that its program read anything",
    ),
    ("complete", "every byte written was received, with a FIN and a proof"),
    (
        "median",
        "the middle run: half were faster, half slower. Beside it are always the slowest and the fastest, and every \
         single run is shown",
    ),
    (
        "a difference",
        "is claimed only if chance alone shows it in at most 1 of 20 experiments, over all rounds and subjects \
         together; otherwise two subjects are alike (within 5 %), or undecided",
    ),
    ("limit", "the most TCP payload that the path can carry after the headers of its packets"),
];
