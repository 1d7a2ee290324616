//! Another program as a subject.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_link::{Host, Way};

use crate::error::LabError;
use crate::foreign::{self, Connection, Ending as Ended, ForeignCommand, Launch, Pair, Stream};
use crate::path::PathUp;
use crate::record::{Ending, Flow, Limited, Received, Sample, Sent};
use crate::setting::{Command, Setting};
use crate::subject::{Outcome, RunOptions, Subject};

/// How much longer than our own sender a program may take.
const BEYOND: Duration = Duration::from_secs(120);
/// The share of a direction's bytes that the smallest connections may have together to be left out
/// of its rate: they are control connections.
const ASIDE: f64 = 0.01;

/// A program that is started for each run, on fresh hosts.
pub struct Program {
    setting: Command,
    command: ForeignCommand,
    launch: Arc<dyn Launch + Send>,
}

impl Program {
    /// A program on the near host, with a server on the far one if there is one.
    ///
    /// # Errors
    /// An invalid command.
    pub fn new(setting: Command, launch: Arc<dyn Launch + Send>) -> Result<Self, LabError> {
        let command = ForeignCommand::parse(&setting.near, setting.far.as_deref())?;
        Ok(Self { setting, command, launch })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.setting).finish()
    }
}

impl Subject for Program {
    fn setting(&self) -> Setting {
        Setting::Command(self.setting.clone())
    }

    fn run(&self, path: &PathUp, options: &RunOptions) -> Result<Outcome, LabError> {
        let Some(link) = path.link() else {
            let what = "other programs are measured over an emulated path only";
            return Err(LabError::Unsuited(what.to_owned()));
        };
        let limit = options.load.time.unwrap_or_default() + BEYOND;
        let done = foreign::run(link, &*self.launch, &self.command, limit)?;
        if done.timed_out || done.near.code != 0 {
            let end = if done.timed_out { "was stopped" } else { "failed" };
            let output = done.near.stderr.text + &done.near.stdout.text;
            let output: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = output[output.len().saturating_sub(3)..].join("; ");
            return Err(LabError::Unsuited(format!(
                "{} {end} after {:.1} s with {}: {last}",
                self.setting.near,
                done.ran.as_secs_f64(),
                done.near.code
            )));
        }
        Ok(Outcome { flows: flows(&done.connections), latency: None })
    }
}

/// The directions of all connections that carried bytes.
fn flows(pairs: &[Pair]) -> Vec<Flow> {
    let totals = Way::BOTH.map(|way| received_on(pairs, way));
    let mut flows = Vec::new();
    for (way, total) in Way::BOTH.into_iter().zip(totals) {
        let mut carried: Vec<&Pair> =
            pairs.iter().filter(|pair| side(pair, way).received > 0).collect();
        carried.sort_by_key(|pair| side(pair, way).received);
        // A direction that only has responses is control.
        let is_control = (total as f64) < ASIDE * totals.iter().sum::<u64>() as f64;
        let mut small = 0;
        for (number, pair) in carried.into_iter().enumerate() {
            small += side(pair, way).received;
            let aside = is_control || (small as f64) < ASIDE * total as f64;
            flows.push(flow(pair, way, u32::try_from(number).unwrap_or(u32::MAX), aside));
        }
    }
    flows
}

fn received_on(pairs: &[Pair], way: Way) -> u64 {
    pairs.iter().map(|pair| side(pair, way).received).sum()
}

fn side(pair: &Pair, way: Way) -> &Stream {
    match way {
        Way::Up => &pair.up,
        Way::Down => &pair.down,
    }
}

fn flow(pair: &Pair, way: Way, stream: u32, aside: bool) -> Flow {
    let (sender, receiver) = match way {
        Way::Up => (&pair.near, &pair.far),
        Way::Down => (&pair.far, &pair.near),
    };
    let bytes = side(pair, way);
    Flow {
        way,
        stream,
        aside,
        received: receiver.as_ref().map(|receiver| received(pair, way, receiver)),
        sent: sender.as_ref().and_then(|sender| sent(pair, bytes, sender)),
    }
}

fn received(pair: &Pair, way: Way, receiver: &Connection) -> Received {
    let began = receiver.first_byte.unwrap_or(receiver.first_seen);
    let ended = receiver.last_byte.unwrap_or(began);
    let stream = side(pair, way);
    let mut tenths = Vec::new();
    let first = receiver.tenths.first().map_or(0, |(tenth, _)| *tenth);
    for (tenth, bytes) in &receiver.tenths {
        tenths.resize(tenths.len().max(tenth - first + 1), 0);
        tenths[tenth - first] += bytes;
    }
    Received {
        bytes: stream.received,
        began,
        time: ended.saturating_sub(began),
        end: match (stream.fin, pair.ending) {
            (Some(true), _) | (_, Ended::Orderly) => Some(Ending::Fin),
            (_, Ended::AbortedBy(_) | Ended::Reset) => Some(Ending::Reset),
            (_, Ended::TimedOut | Ended::Truncated) => Some(Ending::Truncated),
            (_, Ended::Open) => None,
            _ => Some(Ending::Unknown),
        },
        tenths,
        receive_buffer_bytes: receiver.memory.map(|memory| memory.receive_buffer),
        answers: Vec::new(),
    }
}

fn sent(pair: &Pair, bytes: &Stream, sender: &Connection) -> Option<Sent> {
    // After a reset by the sender, its last count is lost; what was received was sent.
    let written = bytes.sent?.max(bytes.received);
    let first = sender.samples.first().map_or(sender.first_seen, |sample| sample.at);
    let last = sender.samples.last().map_or(first, |sample| sample.at);
    let orderly = bytes.fin == Some(true) || pair.ending == Ended::Orderly;
    let samples = sender.samples.iter();
    Some(Sent {
        written,
        writing: last.saturating_sub(first),
        level: if bytes.acked == Some(written) { "acked" } else { "sent" }.to_owned(),
        acked_bytes: bytes.acked,
        failure: (!orderly).then(|| setting(pair.ending)),
        congestion: sender.congestion.clone().unwrap_or_default(),
        send_buffer_bytes: sender.memory.map(|memory| memory.send_buffer),
        send_buffer_fixed: None,
        sent_bytes: Some(written + bytes.retransmitted.unwrap_or_default()),
        resent_bytes: bytes.retransmitted,
        min_rtt: sender
            .info
            .and_then(|info| info.min_rtt_us)
            .map(|us| Duration::from_micros(us.into())),
        limited: Limited::from(&sender.limits()),
        samples: samples
            .map(|sample| Sample::of(sample.at.saturating_sub(first), &sample.info, None))
            .collect(),
    })
}

fn setting(ending: Ended) -> String {
    let host = |host| match host {
        Host::Near => "near",
        Host::Far => "far",
    };
    match ending {
        Ended::AbortedBy(by) => format!("the {} program reset it", host(by)),
        Ended::Reset => "it was reset".to_owned(),
        Ended::TimedOut => "it timed out".to_owned(),
        Ended::Truncated => "no FIN came".to_owned(),
        Ended::Open => "it was still open".to_owned(),
        _ => "its end is unknown".to_owned(),
    }
}
