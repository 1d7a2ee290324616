//! Both ways at once: the input to the peer, and what the peer sends to the output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lastbyte_socket::blocking::{OwnedReadHalf, OwnedWriteHalf, Stream};
use lastbyte_socket::{Delivery, Drain, End, FinishError, FinishOptions, Receipt, Unproven};
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
    // However this process ends before all is written: what the peer then has is no whole.
    socket::set_linger(&stream, Some(Duration::ZERO))?;
    let early = usize::try_from(stream.written()).unwrap_or(usize::MAX).min(input.early.len());
    let (reading, mut writing) = stream.into_split();
    let output = match plan.voice {
        Voice::Json => None,
        _ => Some(File::from(io::stdout().as_fd().try_clone_to_owned().context("stdout")?)),
    };
    let received = Arc::new(AtomicU64::new(0));
    let output = Output { file: output, received: Arc::clone(&received) };
    let (stop, stopped) = UnixStream::pair()?;
    let (teller, news) = mpsc::channel();
    let receiver = Receiver { reading, output, stopped, teller };
    thread::Builder::new().name("receiver".to_owned()).spawn(move || receiver.run())?;

    let all_written = send(input, early, &mut writing).context("reading the input")?;
    if all_written {
        // From here on a close says no more than is so.
        socket::set_linger(&writing, None)?;
    }
    let proven = if plan.finish.want > Delivery::Acked {
        drop(stop);
        prove_closed(writing, &news, plan.finish)
    } else {
        let proven = prove_acked(writing, &news, plan);
        drop(stop);
        proven
    };
    let Proven { proof, answer, unheard } = proven;
    let received = received.load(Ordering::Relaxed);
    Ok(Transfer { proof, all_written, received, answer, unheard })
}

/// What is proven, and how the peer's stream ended.
struct Proven {
    proof: Result<Receipt, FinishError>,
    answer: Answer,
    unheard: bool,
}

/// Ends our direction and waits for its proof, and then for the peer's end while the receiver reads.
fn prove_acked(mut writing: OwnedWriteHalf, news: &mpsc::Receiver<News>, plan: &Plan) -> Proven {
    let began = Instant::now();
    let proof = writing.prove_with(plan.finish);
    let patience = match &proof {
        Ok(_) => plan.wait.unwrap_or(Duration::MAX),
        // The receiver meets the end of a connection that is gone, after what had come before.
        Err(error) if error.why == Unproven::Reset => Duration::MAX,
        Err(_) => Duration::ZERO,
    };
    let until = Instant::now().checked_add(patience);
    let mut unheard = false;
    let told = loop {
        let told = match until {
            None => news.recv().ok(),
            Some(until) => news.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
        };
        match told {
            Some(News::Unheard) => unheard = true,
            told => break told,
        }
        if proof.is_ok() {
            break None;
        }
    };
    match told {
        Some(News::Ended(reading, Ok(end))) => {
            // How the peer ended belongs to the receipt.
            let mut proof = proof.and_then(|_| whole(reading, writing).finish_with(plan.finish));
            if let Ok(receipt) = &mut proof {
                receipt.took = began.elapsed();
            }
            Proven { proof, answer: Answer::Ended(end), unheard }
        }
        Some(News::Ended(_, Err(error))) => Proven { proof, answer: Answer::Cut(error), unheard },
        _ => Proven { proof, answer: Answer::Unended, unheard },
    }
}

/// Ends the connection and reads the rest of the answer: which of the two ends came first can only be
/// told where one does both.
fn prove_closed(
    writing: OwnedWriteHalf,
    news: &mpsc::Receiver<News>,
    options: FinishOptions,
) -> Proven {
    let mut unheard = false;
    loop {
        let (reading, mut output) = match news.recv() {
            Ok(News::Stopped(reading, output)) => (reading, output),
            Ok(News::Ended(reading, _)) => (reading, Output::default()),
            Ok(News::Unheard) => {
                unheard = true;
                continue;
            }
            Err(_) => unreachable!("the receiver tells how it ended"),
        };
        let options = options.drain(Drain::Discard(u64::MAX));
        let mut rest = |bytes: &[u8]| {
            unheard |= !output.take(bytes);
        };
        let proof = whole(reading, writing).finish_into(options, &mut rest);
        // A proof of this level is one of the peer's end too.
        let answer = if proof.is_ok() { Answer::Ended(End::Fin) } else { Answer::Unended };
        return Proven { proof, answer, unheard };
    }
}

fn whole(reading: OwnedReadHalf, writing: OwnedWriteHalf) -> Stream {
    match reading.reunite(writing) {
        Ok(stream) => stream,
        Err(_) => unreachable!("the halves are of one stream"),
    }
}

/// Writes the input to its end; whether it came to that. What was lost of it the proof tells.
fn send(input: &mut Input, early: usize, writing: &mut OwnedWriteHalf) -> io::Result<bool> {
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
    /// It was told to stop.
    Stopped(OwnedReadHalf, Output),
    /// The peer's stream has ended.
    Ended(OwnedReadHalf, io::Result<End>),
}

/// Writes what the peer sends to the output, to its end, or until it is told to stop.
struct Receiver {
    reading: OwnedReadHalf,
    output: Output,
    /// Its other end is closed to stop.
    stopped: UnixStream,
    teller: Sender<News>,
}

impl Receiver {
    fn run(mut self) {
        let mut chunk = vec![0; CHUNK];
        let end = loop {
            match self.read(&mut chunk) {
                Ok(None) => {
                    let _ = self.teller.send(News::Stopped(self.reading, self.output));
                    return;
                }
                Ok(Some(0)) => break Ok(self.reading.observed_end().unwrap_or(End::Unknown)),
                Ok(Some(read)) => {
                    if !self.output.take(&chunk[..read]) {
                        // Whoever is told may be gone.
                        let _ = self.teller.send(News::Unheard);
                    }
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => break Err(error),
            }
        };
        let _ = self.teller.send(News::Ended(self.reading, end));
    }

    /// What has come; `None` when it is to stop.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        let (socket, stop) = (&self.reading, &self.stopped);
        let [_, stops] = poll::wait([(socket, poll::READABLE), (stop, poll::READABLE)], None)?;
        if stops { Ok(None) } else { self.reading.read(chunk).map(Some) }
    }
}

/// Where what the peer sends goes; without a file it is only counted.
#[derive(Default)]
struct Output {
    file: Option<File>,
    received: Arc<AtomicU64>,
}

impl Output {
    /// Takes bytes; `false` once, when it turns out that nobody reads them any more.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let heard = self.file.as_mut().is_none_or(|file| is_written(file, bytes));
        if !heard {
            self.file = None;
        }
        heard
    }
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
