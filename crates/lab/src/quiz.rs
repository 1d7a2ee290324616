//! The quiz of the classic article: one program connects, writes a million bytes and closes; the
//! other sends a greeting, which the first never reads, and counts. How many bytes arrive?

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::Host;
use lastbyte_socket::blocking::{Stream, TcpListener};
use lastbyte_socket::{ConnectOptions, End, Receipt};
use lastbyte_sys::file;

use crate::error::LabError;
use crate::path::PathUp;

/// What the receiver sends first, and the sender never reads.
const GREETING: &[u8] = b"220 welcome, please say hello first\r\n";
/// How long either side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How the sender ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// `close()`, as most programs do.
    Close,
    /// `SO_LINGER` of 30 s, then `close()`: the advice of many answers on the web.
    Linger,
    /// `shutdown(SHUT_WR)`, read to the end, `close()`: complete if the peer closes too; it proves
    /// nothing and may wait for ever.
    ShutdownRead,
    /// `sendfile()` from a file, then `close()`, as file servers do.
    SendFile,
    /// [`Stream::finish`].
    Finish,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Close, Self::Linger, Self::SendFile, Self::ShutdownRead, Self::Finish];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Close => "close",
            Self::Linger => "SO_LINGER",
            Self::ShutdownRead => "shutdown + read",
            Self::SendFile => "sendfile, close",
            Self::Finish => "finish",
        })
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Bytes that the sender's kernel accepted.
    pub written: u64,
    /// Bytes that the receiver read.
    pub arrived: u64,
    /// How the stream ended for the receiver.
    pub end: Option<End>,
    /// Whether any call of the sender reported a failure.
    pub sender_saw_error: bool,
    /// The proof, with [`Method::Finish`].
    pub receipt: Option<Receipt>,
    /// The sender's time from the first write to the end of its last call.
    pub took: Duration,
}

impl Outcome {
    /// Whether every byte arrived and the receiver saw a clean end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.arrived == self.written && self.end == Some(End::Fin)
    }
}

/// Plays the quiz `runs` times over a path, `at_once` of them at the same time.
///
/// # Errors
/// If a listener or a connection failed.
pub fn play(
    path: &PathUp,
    method: Method,
    bytes: usize,
    (runs, at_once): (usize, usize),
) -> Result<Vec<Outcome>, LabError> {
    let mut outcomes = Vec::with_capacity(runs);
    while outcomes.len() < runs {
        let batch = at_once.clamp(1, runs - outcomes.len());
        let played: Vec<Result<Outcome, LabError>> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..batch).map(|_| scope.spawn(|| play_once(path, method, bytes))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        for outcome in played {
            outcomes.push(outcome?);
        }
    }
    Ok(outcomes)
}

fn play_once(path: &PathUp, method: Method, bytes: usize) -> Result<Outcome, LabError> {
    let address = SocketAddr::new(path.address(Host::Far), 0);
    let listener = path.run(Host::Far, || TcpListener::bind(address))??;
    let address = listener.local_addr().map_err(LabError::Receiver)?;
    let receiver = path.spawn(Host::Far, "receiver", move || greet_and_count(&listener))?;
    let sent = path.run(Host::Near, || send(address, method, bytes))??;
    let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let (arrived, end) = received??;
    let Sent { written, sender_saw_error, receipt, took } = sent;
    Ok(Outcome { written, arrived, end, sender_saw_error, receipt, took })
}

fn greet_and_count(listener: &TcpListener) -> Result<(u64, Option<End>), LabError> {
    let mut stream = listener.accept_within(TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(LabError::Receiver)?;
    // The sender may have closed already: what it wrote still counts.
    let _ = stream.write_all(GREETING);
    let mut chunk = vec![0; 65_536];
    while let Ok(1..) = stream.read(&mut chunk) {}
    Ok((stream.bytes_read(), stream.observed_end()))
}

struct Sent {
    written: u64,
    sender_saw_error: bool,
    receipt: Option<Receipt>,
    took: Duration,
}

fn send(address: SocketAddr, method: Method, bytes: usize) -> Result<Sent, LabError> {
    let mut stream = Stream::connect_with(address, &ConnectOptions::default().within(TIMEOUT))?;
    let content = vec![0x5A; bytes];
    let mut file = file::in_memory().map_err(LabError::File)?;
    if method == Method::SendFile {
        file.write_all(&content).map_err(LabError::File)?;
    }
    let started = Instant::now();
    let (wrote, written) = if method == Method::SendFile {
        send_file(&file, &stream, bytes)
    } else {
        (stream.write_all(&content), stream.written())
    };
    let (ended, receipt) = match method {
        Method::Close | Method::SendFile => {
            drop(stream);
            (Ok(()), None)
        }
        Method::Linger => {
            let ended = linger_and_close(stream.into_inner());
            (ended, None)
        }
        Method::ShutdownRead => (shutdown_and_read(stream.into_inner()), None),
        Method::Finish => match stream.finish().wait() {
            Ok(receipt) => (Ok(()), Some(receipt)),
            Err(error) => (Err(io::Error::other(error.to_string())), Some(error.receipt)),
        },
    };
    let sender_saw_error = wrote.is_err() || ended.is_err();
    Ok(Sent { written, sender_saw_error, receipt, took: started.elapsed() })
}

/// Sends a file's content without a copy through the program. Returns how many bytes the kernel
/// accepted.
fn send_file(file: &File, tcp: &impl AsFd, most: usize) -> (io::Result<()>, u64) {
    let mut offset = 0;
    let sent = loop {
        match file::send(file, tcp, &mut offset, most) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    (sent, u64::try_from(offset).unwrap_or_default())
}

fn linger_and_close(tcp: TcpStream) -> io::Result<()> {
    lastbyte_sys::socket::set_linger(&tcp, Some(Duration::from_secs(30)))?;
    drop(tcp);
    Ok(())
}

fn shutdown_and_read(mut tcp: TcpStream) -> io::Result<()> {
    tcp.shutdown(Shutdown::Write)?;
    io::copy(&mut tcp, &mut io::sink()).map(drop)
}
