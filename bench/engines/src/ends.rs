//! Who sends, who receives, who asks and who answers. Threads that block: their cost is not counted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::sys;

/// Sends `bytes` over `flows` connections, and waits until the receiver has ended each.
pub fn send(to: SocketAddr, flows: usize, bytes: usize) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..flows {
        streams.push(sys::connect(to)?);
    }
    in_threads(streams, move |mut stream| {
        let piece = vec![0x5a_u8; PIECE];
        let mut left = bytes / flows;
        while left > 0 {
            let count = stream.write(&piece[..PIECE.min(left)])?;
            left -= count;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    })
}

/// Receives until every connection has ended: how many bytes, and the time from the first to the last.
pub fn receive(listener: &TcpListener, flows: usize) -> io::Result<(u64, Duration)> {
    let streams = accepted(listener, flows)?;
    let threads: Vec<_> =
        streams.into_iter().map(|stream| thread::spawn(|| count(stream))).collect();
    let mut total = 0;
    let mut first: Option<Instant> = None;
    let mut last: Option<Instant> = None;
    for thread in threads {
        let (bytes, began, ended) = thread.join().expect("counts without panic")?;
        total += bytes;
        first = Some(first.map_or(began, |other| other.min(began)));
        last = Some(last.map_or(ended, |other| other.max(ended)));
    }
    let took = first.zip(last).map(|(first, last)| last - first);
    Ok((total, took.unwrap_or_default()))
}

fn count(mut stream: TcpStream) -> io::Result<(u64, Instant, Instant)> {
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    let mut began = None;
    loop {
        let count = stream.read(&mut piece)?;
        let began = *began.get_or_insert_with(Instant::now);
        if count == 0 {
            return Ok((total, began, Instant::now()));
        }
        total += count as u64;
    }
}

const PIECE: usize = 256 << 10;

/// Holds a network namespace of its own until killed.
pub fn hold() -> io::Result<()> {
    // SAFETY: no memory is passed.
    sys::checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    println!("holds");
    thread::sleep(Duration::MAX);
    Ok(())
}

/// Answers each `size` bytes of each connection with `answer` bytes.
pub fn answer(listener: &TcpListener, flows: usize, size: usize, answer: usize) -> io::Result<()> {
    in_threads(accepted(listener, flows)?, move |mut stream| {
        let mut question = vec![0; size];
        let reply = vec![1; answer];
        while stream.read_exact(&mut question).is_ok() {
            stream.write_all(&reply)?;
        }
        Ok(())
    })
}

/// What is asked, over each of `flows` connections.
#[derive(Clone, Copy)]
pub struct Question {
    pub flows: usize,
    /// Bytes there, and bytes back.
    pub size: usize,
    pub answer: usize,
    /// Round trips of each flow.
    pub rounds: usize,
}

/// All round trips, in nanoseconds, sorted.
pub fn ask(to: SocketAddr, question: Question) -> io::Result<Vec<u64>> {
    let Question { flows, size, answer, rounds } = question;
    let mut threads = Vec::new();
    for _ in 0..flows {
        let mut stream = sys::connect(to)?;
        threads.push(thread::spawn(move || -> io::Result<Vec<u64>> {
            let question = vec![0; size];
            let mut reply = vec![0; answer];
            let mut times = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                let began = Instant::now();
                stream.write_all(&question)?;
                stream.read_exact(&mut reply)?;
                times.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(times)
        }));
    }
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().expect("asks without panic")?);
    }
    all.sort_unstable();
    Ok(all)
}

fn accepted(listener: &TcpListener, flows: usize) -> io::Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for _ in 0..flows {
        let (stream, _) = listener.accept()?;
        sys::prepare(stream.as_raw_fd())?;
        streams.push(stream);
    }
    Ok(streams)
}

fn in_threads(
    streams: Vec<TcpStream>,
    run: impl Fn(TcpStream) -> io::Result<()> + Send + Clone + 'static,
) -> io::Result<()> {
    let threads: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let run = run.clone();
            thread::spawn(move || run(stream))
        })
        .collect();
    for thread in threads {
        thread.join().expect("runs without panic")?;
    }
    Ok(())
}
