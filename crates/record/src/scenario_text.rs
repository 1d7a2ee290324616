//! The scenario as TOML text.

use std::time::Duration;

use lastbyte_link::{BurstLoss, Direction, Jitter, Shape, Spec};
use lastbyte_units::{BitRate, Span, Unit, grouped};

use super::{Figure, Method, Outcome, Recorded, Target};

/// How wide a comment may be.
const WIDTH: usize = 100;
/// The longest name of a host (RFC 1035 section 2.3.4); the user's text is truncated to it.
const LONGEST_NAME: usize = 255;

/// TOML that `Scenario::parse` reads.
pub(super) fn toml(recorded: &Recorded, target: &Target, of: &str, on: &str) -> String {
    let (of, on) = (plain(of), plain(on));
    let address = target.address.ip();
    let packets = grouped(recorded.packets);
    let asked = match target.method {
        Method::Echo => {
            format!("{packets} ICMP echo requests of {} bytes in all", grouped(recorded.bytes))
        }
        Method::Connect => format!("{packets} TCP connects to port {}", target.address.port()),
    };
    let mut text = String::new();
    comment(
        &mut text,
        &format!(
            "Recorded by lastbyte link record from one end, {on}: the path to {of} ({address}), with \
             {asked}."
        ),
    );
    comment(&mut text, "");
    for figure in &recorded.figures {
        let (subject, value, basis) = (figure.subject, value(figure), &figure.basis);
        comment(&mut text, &format!("{subject}: {value}: {basis}."));
    }
    comment(&mut text, "");
    comment(&mut text, "What this assumes:");
    for assumed in &recorded.assumes {
        comment(&mut text, &format!("- {assumed}."));
    }
    text += &format!("title = \"recorded {on}: {of}\"\n");
    let Spec { up, down, .. } = &recorded.spec;
    let mut lines = keys(up);
    if down.jitter != up.jitter {
        lines.push("[down]".to_owned());
        lines.extend(jitter_keys(down));
    }
    text + &lines.join("\n") + "\n"
}

/// The keys of both directions.
fn keys(both: &Direction) -> Vec<String> {
    let mut keys = vec![format!("rtt = {}", time(both.delay * 2))];
    keys.extend(jitter_keys(both));
    keys.extend(both.loss.map(|loss| format!("loss = {}", quoted(&loss))));
    keys.extend(both.burst_loss.map(|BurstLoss { share, packets, .. }| {
        format!("burst_loss = {{ share = {}, packets = {packets:?} }}", quoted(&share))
    }));
    keys.extend(both.duplicate.map(|share| format!("duplicate = {}", quoted(&share))));
    let rate = |rate: BitRate| rate.to_string().replace("/s", "").to_lowercase();
    keys.extend(both.rate.map(|bits| format!("rate = {}", quoted(&rate(bits)))));
    keys.extend(both.queue.map(|queue| format!("queue = {}", quoted(&queue))));
    keys
}

fn jitter_keys(direction: &Direction) -> Vec<String> {
    let Some(Jitter { shape, reorders }) = &direction.jitter else { return Vec::new() };
    let mut keys = match shape {
        Shape::Uniform(size) | Shape::Normal(size) => {
            let is_normal = matches!(shape, Shape::Normal(_));
            let shape = if is_normal { "normal" } else { "uniform" };
            vec![format!("jitter = {}", time(*size)), format!("jitter_shape = \"{shape}\"")]
        }
        Shape::Table(table) => {
            let table: Vec<_> = table.iter().map(|added| time(*added)).collect();
            vec![format!("jitter_table = [{}]", table.join(", "))]
        }
    };
    keys.push(format!("reorder = {reorders}"));
    keys
}

fn time(time: Duration) -> String {
    quoted(&Span::from(time))
}

fn quoted(value: &impl ToString) -> String {
    format!("\"{}\"", value.to_string().replace(' ', ""))
}

/// A figure in words.
pub(super) fn value(figure: &Figure) -> String {
    let one = |value| in_unit(figure.unit, value);
    match figure.outcome {
        Outcome::Known { got, low, high } if low == high => one(got),
        Outcome::Known { got, low, high } => {
            format!("{} ({} to {})", one(got), one(low), one(high))
        }
        Outcome::Below(limit) => format!("none seen, less than {}", one(limit)),
        Outcome::Above(limit) => format!("more than {}", one(limit)),
        Outcome::Unknown => "not known".to_owned(),
    }
}

fn in_unit(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => format!("{:.2} ms", value * 1e3),
        Unit::Share if value > 0.0 && value < 0.001 => format!("{:.4} %", value * 100.0),
        Unit::Share => format!("{:.2} %", value * 100.0),
        Unit::BitsPerS if value < 1e6 => format!("{:.1} kbit/s", value / 1e3),
        Unit::BitsPerS => format!("{:.2} Mbit/s", value / 1e6),
        Unit::Bytes => {
            #[expect(clippy::cast_possible_truncation, reason = "saturates")]
            #[expect(clippy::cast_sign_loss, reason = "saturates")]
            let whole = value.round() as u64;
            format!("{} bytes", grouped(whole))
        }
        Unit::Packets => format!("{value:.1} packets"),
    }
}

/// Adds a comment, wrapped into lines.
fn comment(text: &mut String, content: &str) {
    let mut line = "#".to_owned();
    for word in content.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line != "#" {
            *text += &line;
            text.push('\n');
            "#  ".clone_into(&mut line);
        }
        line.push(' ');
        line += word;
    }
    *text += &line;
    text.push('\n');
}

/// Text that is safe in a comment and in a quoted string: without control characters, quotes and
/// backslashes.
fn plain(text: &str) -> String {
    let bad = |c: char| c.is_control() || matches!(c, '"' | '\\');
    text.chars().map(|c| if bad(c) { '?' } else { c }).take(LONGEST_NAME).collect()
}
