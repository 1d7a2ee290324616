//! An experiment as one page of HTML: no script, nothing loaded from elsewhere, every text escaped.
//!
//! The page suits phones, wide screens and paper, light and dark. Text is HTML in the reader's own
//! size; only those parts of a plot that have no text are stretched. No meaning depends on colour
//! alone: a shape, position or word repeats it, and each plot has a table or a text with its
//! figures.

mod advice;
mod bars;
mod evidence;
mod fairness;
mod limits;
mod line;
mod style;
mod table;
mod text;
mod times;

use std::time::Duration;

use lastbyte_units::UtcTime;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::text::Unit;
use crate::findings::{Findings, Row};
use crate::record::{About, Experiment, Run};

/// The advice that follows from an experiment, which the page prints as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Sentences. The first one is the answer, at the top of the page.
    pub conclusion: Vec<String>,
    /// How to apply it: the scope of each method (`this route`), and its exact lines.
    pub methods: Vec<(String, Vec<String>)>,
    /// What to know before applying it.
    pub warnings: Vec<String>,
}

/// Writes the page. It is self-contained: write it to a file that ends in `.html`.
///
/// `findings` are those of this experiment. Control characters, and characters that change the
/// direction of text, are shown by number, whatever their source.
#[must_use]
pub fn page(experiment: &Experiment, findings: &Findings, advice: &Advice) -> String {
    let view = View::of(experiment, findings, advice);
    let about = &experiment.about;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                // Even text that got past the escaping could load and run nothing.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "lastbyte " (about.version) };
                title { "lastbyte lab: " (about.path.name) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                (limits::patterns())
                main {
                    (head(&view))
                    (bars::section(&view))
                    (table::section(&view))
                    (limits::section(&view))
                    (times::section(&view))
                    (fairness::section(&view))
                    (evidence::section(&view))
                    (advice::section(&view))
                }
            }
        }
    };
    text::made_visible(&page.into_string())
}

/// The content of the page, in its order.
struct View<'a> {
    experiment: &'a Experiment,
    advice: &'a Advice,
    /// The highest median first.
    subjects: Vec<Subject<'a>>,
    /// The unit of all rates.
    unit: Unit,
}

/// A subject with runs that count.
struct Subject<'a> {
    row: &'a Row,
    name: String,
    /// The runs, in the order in which they ended.
    runs: Vec<&'a Run>,
    /// Whether the recommendation calls it best, or next.
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Best,
    Next,
    Other,
}

impl<'a> View<'a> {
    fn of(experiment: &'a Experiment, findings: &'a Findings, advice: &'a Advice) -> Self {
        let mut order: Vec<usize> = (0..findings.rows.len()).collect();
        let median = |place: &usize| findings.rows[*place].received.median;
        order.sort_by(|a, b| median(b).total_cmp(&median(a)));
        let (best, next) = match &findings.recommendation {
            Some(advice) => (Some(advice.best), advice.next),
            None => (order.first().copied(), None),
        };
        let next = next.or_else(|| order.iter().copied().find(|place| Some(*place) != best));
        let role = |place| match Some(place) {
            place if place == best => Role::Best,
            place if place == next => Role::Next,
            _ => Role::Other,
        };
        let subject = |place: usize| {
            let row = &findings.rows[place];
            let runs = experiment.runs.iter().filter(|run| run.subject == row.subject).collect();
            Subject { row, name: row.setting.to_string(), runs, role: role(place) }
        };
        let subjects: Vec<Subject<'_>> = order.into_iter().map(subject).collect();
        let rates = subjects
            .iter()
            .flat_map(|one| [one.row.received.max, one.row.limit_bits_per_s.unwrap_or(0.0)]);
        let unit = Unit::of_rates(rates.filter(|rate| rate.is_finite()).fold(0.0, f64::max));
        Self { experiment, advice, subjects, unit }
    }

    fn best(&self) -> Option<&Subject<'a>> {
        self.subjects.iter().find(|subject| subject.role == Role::Best)
    }

    fn next(&self) -> Option<&Subject<'a>> {
        self.subjects.iter().find(|subject| subject.role == Role::Next)
    }

    /// The name of the subject at an index in the plan.
    fn name_of(&self, subject: usize) -> String {
        let setting = self.experiment.about.subjects.get(subject);
        setting.map_or_else(|| format!("subject {subject}"), ToString::to_string)
    }
}

impl<'a> Subject<'a> {
    /// The run whose rate is nearest to the median; of two at the same distance, the first.
    fn front(&self) -> Option<&'a Run> {
        let off = |run: &Run| (run.received_bits_per_s() - self.row.received.median).abs();
        self.runs.iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)))
    }
}

/// The path, the answer in one sentence, and where and when it was measured.
fn head(view: &View<'_>) -> Markup {
    let about = &view.experiment.about;
    html! {
        header {
            p.kicker { "lastbyte lab · counted at the receiver" }
            h1 { bdi { (about.path.name) } }
            @if !about.path.description.is_empty() { p.path { bdi { (about.path.description) } } }
            p.answer { (answer(view)) }
            p.meta {
                (began(about))
                " · Linux " bdi { (about.kernel) }
                " · lastbyte " bdi { (about.version) }
                " · " (text::count(view.experiment.runs.len(), "run"))
            }
        }
    }
}

fn began(about: &About) -> String {
    let began = UtcTime::since_1970(Duration::from_secs(about.began_unix_s));
    began.map_or_else(|| "at an unknown time".to_owned(), |began| began.to_string())
}

/// The answer, in one sentence.
fn answer(view: &View<'_>) -> String {
    if let Some(first) = view.advice.conclusion.first() {
        return first.clone();
    }
    let of = |subject: &Subject<'_>| {
        format!("{} carried {}", subject.name, view.unit.with_name(subject.row.received.median))
    };
    match (view.best(), view.next()) {
        (None, _) => "No run counts: there is no answer.".to_owned(),
        (Some(best), None) => format!("{}.", of(best)),
        (Some(best), Some(next)) => format!("{}; {}.", of(best), of(next)),
    }
}
