//! Both ways at once: an input to the peer, and what the peer sends to an output.
//!
//! This crate forbids a part of the input that looks whole to the peer: until all is written, the kernel
//! resets the connection however this process ends, and afterwards the end of what was sent is proven.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::blocking::{OwnedReadHalf, OwnedWriteHalf, Stream};
use lastbyte_socket::{Delivery, Drain, End, FinishError, FinishOptions, Receipt, Unproven};
use lastbyte_sys::{poll, socket};

/// Copied at a time.
const CHUNK: usize = 64 << 10;
/// What fits into a SYN everywhere: an IPv6 packet of 1,280 bytes (RFC 8200 section 5) without its
/// headers.
const EARLY: usize = 1_200;

/// What is to be sent.
#[derive(Debug)]
pub struct Input {
    file: File,
    /// Somebody types it, and has no more to say to a peer that has ended.
    typed: bool,
    /// What was read of it before there is a connection.
    pub early: Vec<u8>,
}

impl Input {
    /// What comes from `file`; `typed` if somebody types it.
    #[must_use]
    pub fn new(file: File, typed: bool) -> Self {
        Self { file, typed, early: Vec::new() }
    }

    /// Reads what can go with the SYN.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn read_early(&mut self) -> io::Result<()> {
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
pub struct Transfer {
    /// How far what was written has come.
    pub proof: Result<Receipt, FinishError>,
    /// Whether the input was written to its end.
    pub all_written: bool,
    /// Bytes of the peer.
    pub received: u64,
    /// How they ended.
    pub answer: Answer,
    /// Nobody reads the output any more.
    pub unheard: bool,
}

/// How what the peer sends ended.
#[derive(Debug)]
pub enum Answer {
    /// So.
    Ended(End),
    /// By this error.
    Cut(io::Error),
    /// Not yet.
    Unended,
}

/// What a transfer has to do.
#[derive(Debug)]
pub struct Task {
    /// Where what the peer sends goes; without a file it is only counted.
    pub output: Option<File>,
    /// What has to be proven, and within which time.
    pub finish: FinishOptions,
    /// How long to go on reading after the proof, if the peer does not end; `None` is for ever.
    pub wait: Option<Duration>,
    /// Gets the error if the output cannot be written, though somebody reads it. The answer is lost then,
    /// and the transfer goes on without it, unless this ends the process.
    pub lost_output: fn(&io::Error),
}

/// Why a transfer did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The input cannot be read.
    #[error("reading the input: {0}")]
    Input(io::Error),
    /// The kernel refuses a thread or an option.
    #[error("{0}")]
    System(io::Error),
}

/// Copies until both have ended, or what is wanted is proven and nobody waits for more.
///
/// # Errors
/// When the input cannot be read: then the connection is reset.
pub fn transfer(stream: Stream, input: &mut Input, task: Task) -> Result<Transfer, TransferError> {
    let Task { output, finish, wait, lost_output } = task;
    // However this process ends before all is written: what the peer then has is no whole.
    socket::set_linger(&stream, Some(Duration::ZERO)).map_err(TransferError::System)?;
    let early = usize::try_from(stream.written()).unwrap_or(usize::MAX).min(input.early.len());
    let (reading, mut writing) = stream.into_split();
    let received = Arc::new(AtomicU64::new(0));
    let output = Output { file: output, received: Arc::clone(&received), lost_output };
    let (stop, stopped) = UnixStream::pair().map_err(TransferError::System)?;
    let (teller, news) = mpsc::channel();
    let receiver = Receiver { reading, output, stopped, teller };
    thread::Builder::new()
        .name("receiver".to_owned())
        .spawn(move || receiver.run())
        .map_err(TransferError::System)?;

    let all_written = send(input, early, &mut writing).map_err(TransferError::Input)?;
    if all_written {
        // From here on a close says no more than is so.
        socket::set_linger(&writing, None).map_err(TransferError::System)?;
    }
    let proven = if finish.want > Delivery::Acked {
        drop(stop);
        prove_closed(writing, &news, finish)
    } else {
        let proven = prove_acked(writing, &news, finish, wait);
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
fn prove_acked(
    mut writing: OwnedWriteHalf,
    news: &mpsc::Receiver<News>,
    options: FinishOptions,
    wait: Option<Duration>,
) -> Proven {
    let began = Instant::now();
    let proof = writing.prove_with(options);
    let patience = match &proof {
        Ok(_) => wait.unwrap_or(Duration::MAX),
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
            let mut proof = proof.and_then(|_| whole(reading, writing).finish_with(options));
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
struct Output {
    file: Option<File>,
    received: Arc<AtomicU64>,
    lost_output: fn(&io::Error),
}

impl Default for Output {
    fn default() -> Self {
        Self { file: None, received: Arc::default(), lost_output: |_| {} }
    }
}

impl Output {
    /// Takes bytes; `false` once, when it turns out that nobody reads them any more.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let heard = self.file.as_mut().is_none_or(|file| is_written(file, bytes, self.lost_output));
        if !heard {
            self.file = None;
        }
        heard
    }
}

/// Whether somebody reads it.
fn is_written(output: &mut File, mut bytes: &[u8], lost_output: fn(&io::Error)) -> bool {
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
                lost_output(&error);
                return false;
            }
        }
    }
    true
}
