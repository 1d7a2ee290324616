//! `lastbyte dial`.

mod drawing;
mod granted;
mod json;
mod plan;
mod repeat;
mod words;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use lastbyte_core::text::in_one_line;
use lastbyte_dial::blocking::Dialer;
use lastbyte_dial::{DialError, Dialed, Timeline, Undialed};
use lastbyte_socket::blocking::Stream;
use lastbyte_socket::{Delivery, Operation, SocketError};
use lastbyte_transfer::{self as transfer, Answer, Input, Transfer};
use lastbyte_units::{Span, grouped};

use crate::args::DialArgs;
use crate::output::{Progress, say, talk, width, wrap};
use crate::verdict::Verdict;

use granted::Options;
use plan::{Plan, Task, Voice};
use words::Tally;

/// How long the end of a connection that nothing was sent over may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Dials, and does over the connection what was asked for. The verdict: was there one, and is all
/// that was sent proven?
pub(crate) fn run(args: &DialArgs) -> Result<Verdict> {
    let (plan, task) = plan::plan(args)?;
    let dialer = Dialer::new(plan.resolver.clone()).context("starting to dial")?;
    match task {
        Task::Draw => draw(&plan, &dialer),
        Task::Repeat(times) => repeat::run(&plan, &dialer, times),
        Task::Send(input) => send(&plan, &dialer, input),
    }
}

impl Plan {
    /// Dials once, with a word on the terminal meanwhile.
    fn dial(&self, dialer: &Dialer) -> Result<Dialed<Stream>, DialError> {
        let progress = Progress::new();
        progress.show(&format!("dialing {} port {}", in_one_line(&self.host), self.port));
        dialer.dial((&*self.host, self.port), &self.options)
    }
}

/// Connects, draws, and ends the connection.
fn draw(plan: &Plan, dialer: &Dialer) -> Result<Verdict> {
    let Dialed { stream, timeline, .. } = match plan.dial(dialer) {
        Ok(dialed) => dialed,
        Err(error) => {
            show(plan, &error.timeline)?;
            return undialed(plan, &error, 1);
        }
    };
    show(plan, &timeline)?;
    connected(plan, &stream, &timeline, 1)?;
    Ok(Verdict::from(end(plan, stream)))
}

/// The time line, where there is something in it.
fn show(plan: &Plan, timeline: &Timeline) -> Result<()> {
    match plan.voice {
        Voice::Json => json::events(&plan.host, timeline, 1),
        Voice::Text if !timeline.events.is_empty() => {
            drawing::draw(&plan.host, timeline, width()).iter().for_each(|line| say(line));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Says that there is a connection, and with which options.
fn connected(plan: &Plan, stream: &Stream, timeline: &Timeline, dial: u32) -> Result<()> {
    let options = Options::read(stream, &plan.options.connect)?;
    match plan.voice {
        Voice::Json => json::dialed(plan, stream, (timeline, dial), &options)?,
        Voice::Text => {
            say("");
            let tally = Tally::of(timeline);
            let lines = [tally.connected(timeline.took), options.granted.join(", ")];
            let lines = lines.iter().flat_map(|line| wrap(line, 0, width()));
            lines.for_each(|line| say(&line));
        }
        Voice::Quiet => {}
    }
    warn(&options);
    Ok(())
}

fn warn(options: &Options) {
    for less in &options.less {
        talk(&format!("dial: {less}"));
    }
}

/// Ends a connection that nothing was sent over. What becomes of it is judged only where a level was
/// asked for that only the peer can bring about.
fn end(plan: &Plan, stream: Stream) -> bool {
    if plan.finish.want <= Delivery::Acked {
        // There is nothing that could be lost.
        let _ = stream.finish().within(FAREWELL).wait();
        return true;
    }
    let finished = stream.finish_with(plan.finish);
    if let Err(error) = &finished {
        talk(&format!("lastbyte: {error}"));
    }
    finished.is_ok()
}

/// Says why there is no connection; the verdict is whether anything was tried at all.
fn undialed(plan: &Plan, error: &DialError, dial: u32) -> Result<Verdict> {
    if plan.voice == Voice::Json {
        json::undialed(error, dial)?;
    }
    talk(&format!("lastbyte: {}", in_one_line(&error.to_string())));
    Ok(verdict_of(error))
}

/// No attempt connected: that is an answer. That there was none to make is a failure, and so is an
/// option or a source address that no attempt could be made with.
fn verdict_of(error: &DialError) -> Verdict {
    let was_made = |error: &SocketError| {
        let ours = matches!(error.operation, Operation::Set(_) | Operation::Bind);
        let local = [ErrorKind::AddrNotAvailable, ErrorKind::InvalidInput];
        !ours && !local.contains(&error.cause.kind())
    };
    let mut attempts = error.attempts.iter();
    let any_made = attempts.any(|attempt| attempt.error.as_ref().is_none_or(was_made));
    match error.why {
        Undialed::AllFailed | Undialed::TimedOut if any_made => Verdict::No,
        _ => Verdict::Failed,
    }
}

/// Connects, and copies both ways.
fn send(plan: &Plan, dialer: &Dialer, mut input: Input) -> Result<Verdict> {
    let mut plan = plan.clone();
    plan.options.connect.early.clone_from(&input.early);
    let Dialed { stream, timeline, .. } = match plan.dial(dialer) {
        Ok(dialed) => dialed,
        Err(error) => {
            if plan.voice == Voice::Json {
                json::events(&plan.host, &error.timeline, 1)?;
            }
            return undialed(&plan, &error, 1);
        }
    };
    let options = Options::read(&stream, &plan.options.connect)?;
    match plan.voice {
        Voice::Json => {
            json::events(&plan.host, &timeline, 1)?;
            json::dialed(&plan, &stream, (&timeline, 1), &options)?;
        }
        Voice::Text => {
            tell(&plan, &Tally::of(&timeline).connected(timeline.took));
            if !options.asked.is_empty() {
                tell(&plan, &options.asked.join(", "));
            }
        }
        Voice::Quiet => {}
    }
    warn(&options);
    let output = match plan.voice {
        Voice::Json => None,
        _ => Some(File::from(io::stdout().as_fd().try_clone_to_owned().context("stdout")?)),
    };
    let task = transfer::Task { output, finish: plan.finish, wait: plan.wait, lost_output };
    let transfer = transfer::transfer(stream, &mut input, task)?;
    if plan.voice == Voice::Json {
        json::sent(&transfer)?;
    }
    Ok(Verdict::from(account(&plan, &transfer)))
}

/// The answer cannot be written, though somebody reads it: nothing else matters then.
fn lost_output(error: &io::Error) {
    talk(&format!("lastbyte: cannot write the answer: {error}"));
    std::process::exit(2);
}

/// Says what became of the bytes; whether all is well with them.
fn account(plan: &Plan, transfer: &Transfer) -> bool {
    let received = format!("{} bytes received", grouped(transfer.received));
    let said = match &transfer.proof {
        Ok(receipt) => format!("{receipt}; {received}"),
        Err(_) => received,
    };
    tell(plan, &said);
    let wrong = what_is_wrong(transfer);
    if let Some(sentence) = &wrong {
        talk(&format!("lastbyte: {}", in_one_line(sentence)));
    } else if matches!(transfer.answer, Answer::Unended) && !transfer.unheard {
        let waited = Span::from(plan.wait.unwrap_or_default());
        tell(plan, &format!("the peer did not end within {waited}"));
    }
    wrong.is_none()
}

fn tell(plan: &Plan, line: &str) {
    if plan.voice == Voice::Text {
        talk(&format!("dial: {line}"));
    }
}

/// Why not all is proven, or not all of the answer is there.
fn what_is_wrong(transfer: &Transfer) -> Option<String> {
    let cut = "not all of the input was sent";
    match &transfer.proof {
        Err(error) if transfer.all_written => return Some(error.to_string()),
        Err(error) => return Some(format!("{error}; {cut}")),
        Ok(_) if !transfer.all_written => return Some(format!("the connection has ended: {cut}")),
        Ok(_) => {}
    }
    match &transfer.answer {
        Answer::Cut(error) => Some(format!(
            "the peer's answer was cut after {} bytes, and may be incomplete: {error}",
            grouped(transfer.received)
        )),
        Answer::Ended(_) | Answer::Unended => None,
    }
}
