//! A dial as JSON Lines: its events, then `dialed` or `undialed`; `sent` for what was sent, and a
//! `summary` for each address after several.

use std::net::SocketAddr;

use anyhow::Result;
use lastbyte_dial::{Answer, Because, DialError, Origin, Timeline, Undialed, What};
use lastbyte_socket::blocking::Stream;
use lastbyte_transfer::{self as transfer, Transfer};
use serde::Serialize;

use super::granted::{GrantedPart, Options};
use super::plan::Plan;
use super::repeat::Row;
use super::words::{Tally, ms, without_port};
use crate::output::say_json;

/// The version of these lines.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct EventLine<'a> {
    r#type: &'static str,
    schema: u32,
    dial: u32,
    at_ms: f64,
    #[serde(flatten)]
    event: EventPart<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum EventPart<'a> {
    Asked {
        name: &'a str,
        question: String,
    },
    Answered {
        name: &'a str,
        question: String,
        addresses: Vec<String>,
        aliases: &'a [String],
        origin: Option<&'static str>,
        ttl_s: Option<f64>,
        error: Option<String>,
    },
    Started {
        attempt: usize,
        address: SocketAddr,
        because: &'static str,
    },
    Failed {
        attempt: usize,
        error: &'a str,
    },
    Connected {
        attempt: usize,
        local: Option<SocketAddr>,
    },
    Cancelled {
        attempt: usize,
        had_connected: bool,
    },
    Other,
}

/// What happened in a dial.
pub(super) fn events(host: &str, timeline: &Timeline, dial: u32) -> Result<()> {
    for event in &timeline.events {
        say_json(&EventLine {
            r#type: "event",
            schema: SCHEMA,
            dial,
            at_ms: ms(event.at),
            event: EventPart::of(host, &event.what),
        })?;
    }
    Ok(())
}

impl<'a> EventPart<'a> {
    fn of(host: &'a str, what: &'a What) -> Self {
        match what {
            What::Asked(question) => Self::Asked { name: host, question: question.to_string() },
            What::Answered(answer) => Self::of_answer(answer),
            What::Started { attempt, address, because } => Self::Started {
                attempt: attempt + 1,
                address: *address,
                because: because_word(*because),
            },
            What::Failed { attempt, error } => Self::Failed { attempt: attempt + 1, error },
            What::Connected { attempt, local } => {
                Self::Connected { attempt: attempt + 1, local: *local }
            }
            What::Cancelled { attempt, connected } => {
                Self::Cancelled { attempt: attempt + 1, had_connected: *connected }
            }
            _ => Self::Other,
        }
    }

    fn of_answer(answer: &'a Answer) -> Self {
        let found = answer.found.as_ref().ok();
        let origin = |origin: Origin| match origin {
            Origin::Literal => "literal",
            Origin::Hosts => "hosts",
            Origin::Dns => "dns",
            Origin::System => "system",
            _ => "other",
        };
        let addresses = found.map_or(&[][..], |found| &found.addresses);
        Self::Answered {
            name: &answer.name,
            question: answer.question.to_string(),
            addresses: addresses.iter().map(|address| without_port(*address)).collect(),
            aliases: found.map_or(&[], |found| &found.aliases),
            origin: found.map(|found| origin(found.origin)),
            ttl_s: found.and_then(|found| found.ttl).map(|ttl| ttl.as_secs_f64()),
            error: answer.found.as_ref().err().map(ToString::to_string),
        }
    }
}

fn because_word(because: Because) -> &'static str {
    match because {
        Because::Answered => "answered",
        Because::ResolutionDelay => "resolution_delay",
        Because::WorkedBefore => "worked_before",
        Because::Trial => "trial",
        Because::AttemptDelay => "attempt_delay",
        Because::Failed => "failed",
        Because::Better => "better",
        _ => "other",
    }
}

#[derive(Serialize)]
struct DialedLine<'a> {
    r#type: &'static str,
    schema: u32,
    dial: u32,
    host: &'a str,
    port: u16,
    address: Option<SocketAddr>,
    local: Option<SocketAddr>,
    time_to_connected_ms: f64,
    attempts: usize,
    attempt: Option<usize>,
    failed_attempts: usize,
    cancelled_attempts: usize,
    from_history: bool,
    granted: &'a GrantedPart,
}

/// That there is a connection.
pub(super) fn dialed(
    plan: &Plan,
    stream: &Stream,
    (timeline, dial): (&Timeline, u32),
    options: &Options,
) -> Result<()> {
    let tally = Tally::of(timeline);
    say_json(&DialedLine {
        r#type: "dialed",
        schema: SCHEMA,
        dial,
        host: &plan.host,
        port: plan.port,
        address: stream.peer_addr().ok(),
        local: stream.local_addr().ok(),
        time_to_connected_ms: ms(timeline.took),
        attempts: tally.attempts.len(),
        attempt: tally.winner,
        failed_attempts: tally.failed,
        cancelled_attempts: tally.cancelled,
        from_history: tally.from_history,
        granted: &options.json,
    })
}

#[derive(Serialize)]
struct UndialedLine<'a> {
    r#type: &'static str,
    schema: u32,
    dial: u32,
    host: &'a str,
    port: u16,
    took_ms: f64,
    why: &'static str,
    error: String,
    attempts: Vec<AttemptPart>,
}

#[derive(Serialize)]
struct AttemptPart {
    address: SocketAddr,
    started_ms: f64,
    error: Option<String>,
}

/// That there is none, and why.
pub(super) fn undialed(error: &DialError, dial: u32) -> Result<()> {
    let why = match error.why {
        Undialed::BadHost(_) => "bad_host",
        Undialed::BadPort => "bad_port",
        Undialed::NoAddress => "no_address",
        Undialed::AllFailed => "all_failed",
        Undialed::TimedOut => "timed_out",
        _ => "other",
    };
    let attempts = error.attempts.iter().map(|attempt| AttemptPart {
        address: attempt.address,
        started_ms: ms(attempt.started),
        error: attempt.error.as_ref().map(ToString::to_string),
    });
    say_json(&UndialedLine {
        r#type: "undialed",
        schema: SCHEMA,
        dial,
        host: &error.host,
        port: error.port,
        took_ms: ms(error.timeline.took),
        why,
        error: error.to_string(),
        attempts: attempts.collect(),
    })
}

#[derive(Serialize)]
struct SentLine {
    r#type: &'static str,
    schema: u32,
    level: String,
    written_bytes: Option<u64>,
    acked_bytes: Option<u64>,
    whole_input: bool,
    peer_ended: String,
    finish_ms: f64,
    received_bytes: u64,
    answer_ended: Option<String>,
    error: Option<String>,
}

/// What became of what was sent.
pub(super) fn sent(transfer: &Transfer) -> Result<()> {
    let (receipt, mut error) = match &transfer.proof {
        Ok(receipt) => (receipt, None),
        Err(error) => (&error.receipt, Some(error.to_string())),
    };
    let answer_ended = match &transfer.answer {
        transfer::Answer::Ended(end) => Some(end.to_string()),
        transfer::Answer::Cut(cut) => {
            error = error.or_else(|| Some(cut.to_string()));
            Some(lastbyte_socket::End::Reset.to_string())
        }
        transfer::Answer::Unended => None,
    };
    say_json(&SentLine {
        r#type: "sent",
        schema: SCHEMA,
        level: receipt.level.to_string(),
        written_bytes: receipt.written,
        acked_bytes: receipt.acked,
        whole_input: transfer.all_written,
        peer_ended: receipt.peer.to_string(),
        finish_ms: ms(receipt.took),
        received_bytes: transfer.received,
        answer_ended,
        error,
    })
}

#[derive(Serialize)]
struct SummaryLine {
    r#type: &'static str,
    schema: u32,
    address: SocketAddr,
    tried: u32,
    won: u32,
    dials: u32,
    median_ms: Option<f64>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
}

/// What became of an address in several dials.
pub(super) fn summary(row: &Row, dials: u32) -> Result<()> {
    let summary = row.summary();
    say_json(&SummaryLine {
        r#type: "summary",
        schema: SCHEMA,
        address: row.address,
        tried: row.tried,
        won: row.won(),
        dials,
        median_ms: summary.map(|summary| summary.median),
        min_ms: summary.map(|summary| summary.min),
        max_ms: summary.map(|summary| summary.max),
    })
}
