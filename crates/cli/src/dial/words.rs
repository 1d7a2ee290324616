//! What happened in a dial, in words.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lastbyte_core::text::in_one_line;
use lastbyte_dial::{Answer, Because, Found, Origin, Timeline, What};
use lastbyte_units::Span;

/// What a time line comes to. Attempts are numbered from 1 on, as people count.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) attempts: Vec<SocketAddr>,
    pub(super) failed: usize,
    pub(super) cancelled: usize,
    /// The number of the attempt that connected.
    pub(super) winner: Option<usize>,
    pub(super) local: Option<SocketAddr>,
    /// Whether the first attempt was chosen by what earlier dials had told.
    pub(super) from_history: bool,
}

impl Tally {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut tally = Self::default();
        for event in &timeline.events {
            match &event.what {
                What::Started { address, because, .. } => {
                    tally.attempts.push(*address);
                    tally.from_history |= matches!(because, Because::WorkedBefore | Because::Trial);
                }
                What::Failed { .. } => tally.failed += 1,
                What::Cancelled { .. } => tally.cancelled += 1,
                What::Connected { attempt, local } => {
                    (tally.winner, tally.local) = (Some(attempt + 1), *local);
                }
                _ => {}
            }
        }
        tally
    }

    /// The address that connected.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.attempts.get(self.winner?.checked_sub(1)?).copied()
    }

    /// What became of an attempt that was still going on at the end.
    pub(super) fn cancelled_word(&self) -> &'static str {
        if self.winner.is_some() { "cancelled" } else { "no answer" }
    }

    /// The dial in a line.
    pub(super) fn connected(&self, took: Duration) -> String {
        let mut text = "connected".to_owned();
        if let Some(address) = self.address() {
            let _ = write!(text, " to {address}");
        }
        if let Some(local) = self.local {
            let _ = write!(text, " from {local}");
        }
        let _ = write!(text, " in {:.1} ms", ms(took));
        text + &self.how()
    }

    /// What was special about it, to follow its time.
    pub(super) fn how(&self) -> String {
        match (self.winner, self.attempts.len()) {
            (Some(winner), of @ 2..) => format!(", by attempt {winner} of {of}"),
            _ if self.from_history => ", which worked before".to_owned(),
            _ => String::new(),
        }
    }
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What happened in a dial that came to this, in a line; `None` where there is nothing to say.
pub(super) fn event(host: &str, what: &What, tally: &Tally) -> Option<String> {
    Some(match what {
        What::Asked(question) => format!("asked {question}"),
        What::Answered(answer) => answered(host, answer),
        What::Started { attempt, address, because } => {
            let why = match because {
                Because::Answered => "",
                Because::ResolutionDelay => ": the resolution delay is over",
                Because::WorkedBefore => ": it worked before",
                Because::Trial => ": on trial, as good as one that worked before",
                Because::AttemptDelay => ": no answer yet, and the attempt delay is over",
                Because::Failed => ": the next one",
                Because::Better => ": more is known for it than against it",
                _ => "",
            };
            format!("{} -> {address}{why}", attempt + 1)
        }
        What::Failed { attempt, error } => {
            let cause = cause(error, tally.attempts.get(*attempt));
            format!("{} failed: {}", attempt + 1, in_one_line(cause))
        }
        What::Connected { attempt, local: Some(local) } => {
            format!("{} connected, from {local}", attempt + 1)
        }
        What::Connected { attempt, local: None } => format!("{} connected", attempt + 1),
        What::Cancelled { attempt, connected: false } => {
            format!("{} {}", attempt + 1, tally.cancelled_word())
        }
        What::Cancelled { attempt, connected: true } => {
            format!("{} had connected too, and was reset unused", attempt + 1)
        }
        _ => return None,
    })
}

/// An attempt's error without what its line says before.
fn cause<'a>(error: &'a str, address: Option<&SocketAddr>) -> &'a str {
    let Some(address) = address else { return error };
    match error.split_once(&format!("-> {address}: ")) {
        Some((operation, cause)) if operation.starts_with("connect ") => cause,
        _ => error,
    }
}

fn answered(host: &str, answer: &Answer) -> String {
    let record = answer.question;
    let found = match &answer.found {
        Ok(found) => found,
        Err(error) => return format!("{record}: {}", in_one_line(&error.to_string())),
    };
    let addresses: Vec<String> =
        found.addresses.iter().map(|address| without_port(*address)).collect();
    let notes = notes(host, answer, found);
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("{record}: {}{notes}", addresses.join(", "))
}

fn notes(host: &str, answer: &Answer, found: &Found) -> Vec<String> {
    let mut notes = Vec::new();
    if answer.name.trim_end_matches('.') != host.trim_end_matches('.') {
        notes.push(format!("as {}", in_one_line(&answer.name)));
    }
    if !found.aliases.is_empty() {
        let aliases: Vec<String> = found.aliases.iter().map(|alias| in_one_line(alias)).collect();
        notes.push(format!("alias of {}", aliases.join(", ")));
    }
    match found.origin {
        Origin::Hosts => notes.push("/etc/hosts".to_owned()),
        Origin::System => notes.push("getaddrinfo".to_owned()),
        _ => {}
    }
    if let Some(ttl) = found.ttl {
        notes.push(format!("for {}", Span::from(ttl)));
    }
    notes
}

/// An address alone, with its scope where it has one.
pub(super) fn without_port(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => IpAddr::to_string(&address.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_is_plain() {
        assert_eq!(in_one_line("a\u{1b}[31m\n\u{9b}b"), "a\\u{1b}[31m\\n\\u{9b}b");
        assert_eq!(in_one_line("\u{202e}txt"), "\\u{202e}txt", "which would turn the line round");
        assert_eq!(in_one_line("it's \"x\\y\" ümläut"), "it's \"x\\y\" ümläut");
    }

    #[test]
    fn an_error_is_told_without_the_address_of_its_line() {
        let address = "192.0.2.1:80".parse().unwrap();
        let told = |error| cause(error, Some(&address));
        assert_eq!(told("connect -> 192.0.2.1:80: refused"), "refused");
        assert_eq!(told("connect 192.0.2.9:0 -> 192.0.2.1:80: refused"), "refused");
        assert_eq!(told("set SO_MARK: not permitted"), "set SO_MARK: not permitted");
    }

    #[test]
    fn an_address_keeps_its_scope() {
        let scoped: SocketAddr = "[fe80::1%3]:80".parse().unwrap();
        assert_eq!(without_port(scoped), "fe80::1%3");
        assert_eq!(without_port("192.0.2.1:80".parse().unwrap()), "192.0.2.1");
    }
}
