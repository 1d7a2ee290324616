//! The time line as text: a line for each event, and under them a bar for each thing that took time.

use std::time::Duration;

use lastbyte_dial::{Timeline, What};

use super::words::{self, Tally, ms};
use crate::output::wrap;

/// The time and the two spaces after it.
const MARGIN: usize = 13;
/// Shorter ones show nothing.
const SHORTEST_BAR: usize = 20;

/// Draws what happened.
pub(super) fn draw(host: &str, timeline: &Timeline, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, text) in moments(host, timeline) {
        let text = format!("{:>8.1} ms  {text}", ms(at));
        lines.extend(wrap(&text, MARGIN, width));
    }
    let bars = bars(timeline);
    let worth = bars.len() > 1 && !timeline.took.is_zero();
    if let Some(drawn) = worth.then(|| draw_bars(&bars, timeline.took, width)).flatten() {
        lines.push(String::new());
        lines.extend(drawn);
    }
    lines
}

/// The events in words; questions that were asked at once in one line.
fn moments(host: &str, timeline: &Timeline) -> Vec<(Duration, String)> {
    let tally = Tally::of(timeline);
    let mut moments: Vec<(Duration, String)> = Vec::new();
    let mut asked = false;
    for event in &timeline.events {
        match (&event.what, moments.last_mut()) {
            (What::Asked(question), Some((_, text))) if asked => {
                *text += " and ";
                *text += &question.to_string();
            }
            (what, _) => {
                moments.extend(words::event(host, what, &tally).map(|text| (event.at, text)));
            }
        }
        asked = matches!(event.what, What::Asked(_));
    }
    moments
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bar {
    label: String,
    /// The label where there is little room.
    short: String,
    from: Duration,
    to: Duration,
    /// What became of it; `None` while nothing has.
    end: Option<&'static str>,
}

fn bars(timeline: &Timeline) -> Vec<Bar> {
    let tally = Tally::of(timeline);
    let mut questions: Vec<Bar> = Vec::new();
    let mut attempts: Vec<Bar> = Vec::new();
    let bar = |label: String, short: String, from| {
        let (to, end) = (timeline.took.max(from), None);
        Bar { label, short, from, to, end }
    };
    let settle = |bar: Option<&mut Bar>, at, end| {
        if let Some(bar) = bar.filter(|bar| bar.end.is_none()) {
            (bar.to, bar.end) = (at, Some(end));
        }
    };
    for event in &timeline.events {
        let at = event.at;
        match &event.what {
            What::Asked(question) => {
                let label = question.to_string();
                questions.push(bar(label.clone(), label, at));
            }
            What::Answered(answer) => {
                let label = answer.question.to_string();
                let end = if answer.found.is_ok() { "answered" } else { "no address" };
                settle(questions.iter_mut().find(|bar| bar.label == label), at, end);
            }
            What::Started { attempt, address, .. } => {
                let short = (attempt + 1).to_string();
                attempts.push(bar(format!("{short} {}", words::without_port(*address)), short, at));
            }
            What::Failed { attempt, .. } => settle(attempts.get_mut(*attempt), at, "failed"),
            What::Connected { attempt, .. } => settle(attempts.get_mut(*attempt), at, "connected"),
            What::Cancelled { attempt, .. } => {
                settle(attempts.get_mut(*attempt), at, tally.cancelled_word());
            }
            _ => {}
        }
    }
    questions.into_iter().chain(attempts).collect()
}

/// One line for each bar, all to the same scale; `None` where there is no room.
fn draw_bars(bars: &[Bar], whole: Duration, width: usize) -> Option<Vec<String>> {
    let longest = |label: fn(&Bar) -> &String| {
        bars.iter().map(|bar| label(bar).chars().count()).max().unwrap_or(0)
    };
    let ends: Vec<String> = bars.iter().map(told).collect();
    let told = ends.iter().map(|end| end.chars().count()).max().unwrap_or(0);
    let room =
        |label: usize| width.checked_sub(label + told + 4).filter(|room| *room >= SHORTEST_BAR);
    let label: fn(&Bar) -> &String = match room(longest(|bar| &bar.label)) {
        Some(_) => |bar| &bar.label,
        None => |bar| &bar.short,
    };
    let names = longest(label);
    let room = room(names)?;
    let lines = bars.iter().zip(&ends).map(|(bar, end)| {
        let (from, to) = (place(bar.from, whole, room), place(bar.to, whole, room));
        let length = (to - from).max(1);
        let from = from.min(room - length);
        let drawn = format!("{}{}", " ".repeat(from), "=".repeat(length));
        format!("{:names$}  {drawn:room$}  {end}", label(bar))
    });
    Some(lines.collect())
}

/// How long it took, and what became of it.
fn told(bar: &Bar) -> String {
    let took = ms(bar.to.saturating_sub(bar.from));
    format!("{took:>7.1} ms {}", bar.end.unwrap_or("unanswered"))
}

/// The column of a time, 0 to `room`.
fn place(at: Duration, whole: Duration, room: usize) -> usize {
    let share = (at.as_secs_f64() / whole.as_secs_f64()).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and `room`, whole")]
    let column = (share * room as f64).round() as usize;
    column.min(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, from: u64, to: u64, end: Option<&'static str>) -> Bar {
        let (from, to) = (Duration::from_millis(from), Duration::from_millis(to));
        let short = label.split(' ').next().unwrap_or_default().to_owned();
        Bar { label: label.to_owned(), short, from, to, end }
    }

    fn dial() -> Vec<Bar> {
        vec![
            bar("AAAA", 0, 20, Some("answered")),
            bar("A", 0, 30, Some("no address")),
            bar("1 2001:db8::1", 20, 240, Some("cancelled")),
            bar("2 192.0.2.1", 220, 240, Some("connected")),
            bar("3 192.0.2.2", 240, 240, None),
        ]
    }

    #[test]
    fn bars_are_to_one_scale() {
        let drawn = draw_bars(&dial(), Duration::from_millis(240), 61).unwrap();
        assert_eq!(
            drawn,
            [
                "AAAA           ==                          20.0 ms answered",
                "A              ===                         30.0 ms no address",
                "1 2001:db8::1    =====================    220.0 ms cancelled",
                "2 192.0.2.1                         ==     20.0 ms connected",
                "3 192.0.2.2                          =      0.0 ms unanswered",
            ]
        );
        let widest = drawn.iter().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 61);
    }

    #[test]
    fn long_labels_give_way_and_then_the_bars_do() {
        let whole = Duration::from_millis(240);
        let drawn = draw_bars(&dial(), whole, 50).unwrap();
        assert!(drawn[3].starts_with("2     "), "{drawn:#?}");
        assert!(drawn.iter().all(|line| line.chars().count() <= 50), "{drawn:#?}");
        assert_eq!(draw_bars(&dial(), whole, 40), None);
    }
}
