//! Both ways at once: the input to the peer, and what the peer sends to the output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lastbyte_socket::{
    Delivery, Drain, End, FinishError, FinishOptions, ReadHalf, Receipt, Stream, Unproven,
    WriteHalf,
};
use lastbyte_sys::{poll, socket};

use super::plan::{Plan, Voice};
use crate::output::talk;

/// Copied at a time.
const CHUNK: usize = 64 << 10;
/// What fits into a SYN everywhere: an IPv6 packet of 1,280 bytes (RFC 8200 section 5) without its
/// headers.
const EARLY: usize = 1_200;

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    /// Somebody types it, and has no more to say to a peer that has ended.
    typed: bool,
    /// What was read of it before there is a connection.
    pub(super) early: Vec<u8>,
}

impl Input {
    pub(super) fn new(file: File, typed: bool) -> Self {
        Self { file, typed, early: Vec::new() }
    }

    /// Reads what can go with the SYN.
    pub(super) fn read_early(&mut self) -> io::Result<()> {
        let mut early = vec![0; EARLY];
        let read = loop {
            poll::wait([(&self.file, poll::READABLE)], None)?;
            match self.file.read(&mut early) {
                Err(error) if is_passing(&error) => {}
                read => break read?,
            }
        };
        early.truncate(read);
        self.early = early;
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Transfer {
    /// How far what was written has come.
    pub(super) proof: Result<Receipt, FinishError>,
    /// Whether the input was written to its end.
    pub(super) all_written: bool,
    /// Bytes of the peer.
    pub(super) received: u64,
    /// How they ended.
    pub(super) answer: Answer,
    /// Nobody reads the output any more.
    pub(super) unheard: bool,
}

/// How what the peer sends ended.
#[derive(Debug)]
pub(super) enum Answer {
    /// So.
    Ended(End),
    /// By this error.
    Cut(io::Error),
    /// Not yet.
    Unended,
}

/// Copies until both have ended, or what is wanted is proven and nobody waits for more.
///
/// # Errors
/// When the input cannot be read: then the connection is reset.
pub(super) fn run(stream: Stream, input: &mut Input, plan: &Plan) -> Result<Transfer> {
    // However this process ends before everything is said: what the peer then has is no whole.
    socket::set_linger(&stream, Some(Duration::ZERO))?;
    let early = usize::try_from(stream.written()).unwrap_or(usize::MAX).min(input.early.len());
    let (reading, mut writing) = stream.into_split();
    let output = match plan.voice {
        Voice::Json => None,
        _ => Some(File::from(io::stdout().as_fd().try_clone_to_owned().context("stdout")?)),
    };
    let received = Arc::new(AtomicU64::new(0));
    let (teller, news) = mpsc::channel();
    let count = Arc::clone(&received);
    thread::Builder::new()
        .name("receiver".to_owned())
        .spawn(move || receive(reading, output, &count, &teller))?;

    let all_written = send(input, early, &mut writing).context("reading the input")?;
    let began = Instant::now();
    let proof = writing.prove(plan.finish);
    // All is said: now a close is a close.
    socket::set_linger(&writing, None)?;
    let patience = match &proof {
        Ok(_) => plan.wait.unwrap_or(Duration::MAX),
        // The reader meets the end of a connection that is gone, after what had come before.
        Err(error) if error.why == Unproven::Reset => Duration::MAX,
        Err(_) => Duration::ZERO,
    };
    let mut unheard = false;
    let enough = plan.finish.want <= Delivery::Acked;
    let (answer, reading) = await_end(&news, patience, || {
        unheard = true;
        enough
    });
    let proof = match (proof, reading) {
        (Ok(_), Some(reading)) if matches!(answer, Answer::Ended(_)) => {
            finish(reading, writing, (plan.finish, began))
        }
        (proof, _) => proof,
    };
    let received = received.load(Ordering::Relaxed);
    Ok(Transfer { proof, all_written, received, answer, unheard })
}

/// Writes the input to its end; whether it came to that. What was lost of it the proof tells.
fn send(input: &mut Input, early: usize, writing: &mut WriteHalf) -> io::Result<bool> {
    if writing.write_all(&input.early[early..]).is_err() {
        return Ok(false);
    }
    // Else the end of the connection alone: a peer that has ended its direction may still listen.
    let end = if input.typed { poll::PEER_END } else { 0 };
    let mut chunk = vec![0; CHUNK];
    loop {
        let [ready, ended] = poll::wait([(&input.file, poll::READABLE), (&*writing, end)], None)?;
        if ended {
            return Ok(input.typed);
        }
        if !ready {
            continue;
        }
        match input.file.read(&mut chunk) {
            Ok(0) => return Ok(true),
            Ok(read) => {
                if writing.write_all(&chunk[..read]).is_err() {
                    return Ok(false);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What the receiver tells.
enum News {
    /// Nobody reads the output any more; the peer is read on, so that it does not stop to read.
    Unheard,
    /// The peer's stream has ended.
    Ended(ReadHalf, io::Result<End>),
}

/// Writes what the peer sends to the output, to its end.
fn receive(
    mut reading: ReadHalf,
    mut output: Option<File>,
    received: &AtomicU64,
    teller: &Sender<News>,
) {
    let mut chunk = vec![0; CHUNK];
    let end = loop {
        match reading.read(&mut chunk) {
            Ok(0) => break Ok(reading.ended().unwrap_or(End::Unknown)),
            Ok(read) => {
                received.fetch_add(read as u64, Ordering::Relaxed);
                if let Some(file) = &mut output
                    && !is_written(file, &chunk[..read])
                {
                    output = None;
                    // Whoever is told may be gone.
                    let _ = teller.send(News::Unheard);
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => break Err(error),
        }
    };
    let _ = teller.send(News::Ended(reading, end));
}

/// Whether somebody reads it. Where it cannot be written for another reason, the program ends.
fn is_written(output: &mut File, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let error = match output.write(bytes) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(written) => {
                bytes = &bytes[written..];
                continue;
            }
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::BrokenPipe => return false,
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => {
                // A terminal that another program has made so.
                let _ = poll::wait([(&*output, poll::WRITABLE)], None);
            }
            _ => {
                talk(&format!("lastbyte: cannot write the answer: {error}"));
                std::process::exit(2);
            }
        }
    }
    true
}

/// Waits for the end of what the peer sends; not for more than is wanted where nobody reads it.
fn await_end(
    news: &Receiver<News>,
    patience: Duration,
    mut is_enough: impl FnMut() -> bool,
) -> (Answer, Option<ReadHalf>) {
    let until = Instant::now().checked_add(patience);
    loop {
        let told = match until {
            None => news.recv().ok(),
            Some(until) => news.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
        };
        match told {
            Some(News::Ended(reading, Ok(end))) => return (Answer::Ended(end), Some(reading)),
            Some(News::Ended(reading, Err(error))) => return (Answer::Cut(error), Some(reading)),
            Some(News::Unheard) if !is_enough() => {}
            _ => return (Answer::Unended, None),
        }
    }
}

/// The proof of the whole connection, once both directions have ended.
fn finish(
    reading: ReadHalf,
    writing: WriteHalf,
    (options, began): (FinishOptions, Instant),
) -> Result<Receipt, FinishError> {
    let Ok(stream) = reading.reunite(writing) else {
        unreachable!("the halves are of one stream");
    };
    let options = FinishOptions { drain: Drain::Keep, ..options };
    let took = |receipt| Receipt { took: began.elapsed(), ..receipt };
    match stream.finish(options) {
        Ok(receipt) => Ok(took(receipt)),
        Err(error) => Err(FinishError { receipt: took(error.receipt), ..error }),
    }
}
