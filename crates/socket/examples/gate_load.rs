//! The load that proxies are measured with: `bench/gate.sh` runs it.
//!
//! ```text
//! gate_load serve listen=127.0.0.1:7000
//! gate_load bulk to=127.0.0.1:7001 flows=8 bytes=4000000000
//! gate_load connects to=127.0.0.1:7001 at-once=64 ms=3000
//! gate_load ping to=127.0.0.1:7001 connections=1 ms=2000
//! gate_load hold to=127.0.0.1:7001 flows=4000 bytes=1024
//! ```
//!
//! - `serve` is the upstream of all the others. The first byte of a connection asks for what it does.
//! - `bulk` fetches `bytes`, shared by all flows. The figure is the receiver's: its bytes, and its time
//!   from the first connect to the last end of a stream.
//! - `connects` makes connections in `at-once` rows: connect, one byte each way, close. The client
//!   closes first, by a FIN, so that it is the one that has to remember the connection.
//! - `ping` sends 64 bytes, waits until they are back, and again, on each connection.
//! - `hold` sends `bytes` on each flow, waits until they are back, says so, and holds the flows until
//!   there is a line on stdin.
//!
//! Each mode prints a line of JSON and ends with an error where not everything went well, but for
//! `connects`, which counts what failed. It is to cost little beside a proxy: one thread and one
//! event loop each, and what is received in bulk is counted and thrown away without a copy. The
//! congestion control is cubic, whatever the machine prefers.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use lastbyte_sys::{socket, tcp};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let words = Words::of(arguments)?;
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        match command.as_str() {
            "serve" => serve(&words).await,
            "bulk" => bulk(&words).await,
            "connects" => connects(&words).await,
            "ping" => ping(&words).await,
            "hold" => hold(&words).await,
            _ => Err("say serve, bulk, connects, ping or hold, and key=value".into()),
        }
    })
}

// --- the upstream --------------------------------------------------------------------------------

/// The first byte of a connection: so many bytes (a big-endian u64 follows), one byte, or all that
/// comes, back.
const BULK: u8 = b'B';
const ONE: u8 = b'1';
const ECHO: u8 = b'E';

async fn serve(words: &Words) -> Result<(), Box<dyn Error>> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    // What it accepts inherits it.
    tcp::set_congestion(&socket, "cubic")?;
    socket.bind(words.value("listen")?)?;
    let listener: TcpListener = socket.listen(16_384)?;
    println!(r#"{{"ready":true}}"#);
    loop {
        let (stream, _) = listener.accept().await?;
        // The client's figures tell of a connection that failed.
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    match stream.read_u8().await? {
        BULK => {
            let bytes = stream.read_u64().await?;
            send(&mut stream, bytes).await?;
        }
        ONE => stream.write_u8(ONE).await?,
        _ => {
            stream.set_nodelay(true)?;
            return echo(&mut stream).await;
        }
    }
    // The client is the first to close.
    stream.read_u8().await.map(|_| ())
}

async fn send(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    static BLOCK: [u8; 256 * 1024] = [0x5a; 256 * 1024];
    let mut left = bytes;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK.len());
        left -= stream.write(&BLOCK[..most]).await? as u64;
    }
    stream.shutdown().await
}

async fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read]).await?,
        }
    }
}

// --- bulk ----------------------------------------------------------------------------------------

async fn bulk(words: &Words) -> Result<(), Box<dyn Error>> {
    let (to, flows) = (words.value("to")?, words.value("flows")?);
    let each = words.value::<u64>("bytes")? / flows;
    let began = Instant::now();
    let counts = all((0..flows).map(|_| fetch(to, each))).await;
    let seconds = began.elapsed().as_secs_f64();
    let mut bytes = 0;
    for count in counts {
        let count = count?;
        if count != each {
            return Err(format!("{count} bytes of {each} before the end of the stream").into());
        }
        bytes += count;
    }
    println!(r#"{{"bytes":{bytes},"seconds":{seconds:.6}}}"#);
    Ok(())
}

/// The bytes that came before the end of the stream.
async fn fetch(to: SocketAddr, bytes: u64) -> io::Result<u64> {
    let mut stream = connect(to).await?;
    let mut request = vec![BULK];
    request.extend(bytes.to_be_bytes());
    stream.write_all(&request).await?;
    let mut room = vec![MaybeUninit::uninit(); 1 << 20];
    let mut count = 0;
    loop {
        let discard = || SockRef::from(&stream).recv_with_flags(&mut room, MSG_TRUNC);
        match stream.async_io(Interest::READABLE, discard).await? {
            0 => return Ok(count),
            read => count += read as u64,
        }
    }
}

/// The kernel discards the bytes instead of copying them: tcp(7).
const MSG_TRUNC: i32 = 0x20;

// --- connects ------------------------------------------------------------------------------------

async fn connects(words: &Words) -> Result<(), Box<dyn Error>> {
    let (to, at_once) = (words.value("to")?, words.value::<usize>("at-once")?);
    let began = Instant::now();
    let until = began + words.milliseconds("ms")?;
    let counts = all((0..at_once).map(|_| row_of_exchanges(to, until))).await;
    let seconds = began.elapsed().as_secs_f64();
    let completed: u64 = counts.iter().map(|(completed, _)| completed).sum();
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for (error, count) in counts.iter().flat_map(|(_, errors)| errors) {
        *errors.entry(error).or_default() += count;
    }
    let failed: u64 = errors.values().sum();
    let errors: Vec<String> =
        errors.iter().map(|(error, count)| format!(r#""{error}":{count}"#)).collect();
    println!(
        r#"{{"completed":{completed},"failed":{failed},"seconds":{seconds:.6},"errors":{{{}}}}}"#,
        errors.join(",")
    );
    Ok(())
}

/// How many were completed, one after the other, and what became of the rest.
async fn row_of_exchanges(to: SocketAddr, until: Instant) -> (u64, BTreeMap<String, u64>) {
    const PATIENCE: Duration = Duration::from_secs(5);
    let (mut completed, mut errors) = (0, BTreeMap::new());
    let row = async {
        while Instant::now() < until {
            match exchange_one(to).await {
                Ok(()) => completed += 1,
                Err(error) => *errors.entry(format!("{:?}", error.kind())).or_default() += 1,
            }
        }
    };
    let in_time = time::timeout_at((until + PATIENCE).into(), row).await.is_ok();
    if !in_time {
        *errors.entry("silence".to_owned()).or_default() += 1;
    }
    (completed, errors)
}

async fn exchange_one(to: SocketAddr) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    // So that not its own search for ports is measured. An older kernel goes without.
    let _ = socket::take_any_port(&socket);
    let mut stream = socket.connect(to).await?;
    stream.write_u8(ONE).await?;
    stream.read_u8().await.map(|_| ())
}

// --- ping ----------------------------------------------------------------------------------------

async fn ping(words: &Words) -> Result<(), Box<dyn Error>> {
    let (to, connections) = (words.value("to")?, words.value::<usize>("connections")?);
    let length = words.milliseconds("ms")?;
    let mut took = Vec::new();
    for found in all((0..connections).map(|_| round_trips(to, length))).await {
        took.extend(found?);
    }
    took.sort_unstable();
    let count = took.len();
    if count == 0 {
        return Err("no round trip was completed".into());
    }
    let at = |percent: usize| took[(count * percent / 100).min(count - 1)].as_secs_f64() * 1e6;
    println!(r#"{{"count":{count},"p50_us":{:.3},"p99_us":{:.3}}}"#, at(50), at(99));
    Ok(())
}

/// Those of the first tenth are not kept: caches and windows are still cold.
async fn round_trips(to: SocketAddr, length: Duration) -> io::Result<Vec<Duration>> {
    let mut stream = connect(to).await?;
    stream.write_u8(ECHO).await?;
    let (mut message, mut took) = ([0x5a; 64], Vec::with_capacity(1 << 16));
    let began = Instant::now();
    loop {
        let sent = Instant::now();
        if sent - began > length {
            return Ok(took);
        }
        stream.write_all(&message).await?;
        stream.read_exact(&mut message).await?;
        if sent - began > length / 10 {
            took.push(sent.elapsed());
        }
    }
}

// --- hold ----------------------------------------------------------------------------------------

async fn hold(words: &Words) -> Result<(), Box<dyn Error>> {
    const AT_ONCE: usize = 32;
    let (to, flows) = (words.value("to")?, words.value::<usize>("flows")?);
    let bytes = words.value::<usize>("bytes")?;
    let mut held = Vec::with_capacity(flows);
    for first in (0..flows).step_by(AT_ONCE) {
        let these = first..flows.min(first + AT_ONCE);
        for flow in all(these.map(|_| used_flow(to, bytes))).await {
            held.push(flow?);
        }
    }
    println!(r#"{{"held":{}}}"#, held.len());
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// A flow that has moved so many bytes there and back.
async fn used_flow(to: SocketAddr, bytes: usize) -> io::Result<TcpStream> {
    let mut stream = connect(to).await?;
    stream.write_u8(ECHO).await?;
    let (mut reader, mut writer) = stream.split();
    let (message, mut room) = ([0x5a; 16 * 1024], [0; 16 * 1024]);
    let write = async {
        for sent in (0..bytes).step_by(message.len()) {
            writer.write_all(&message[..message.len().min(bytes - sent)]).await?;
        }
        io::Result::Ok(())
    };
    let read = async {
        let mut missing = bytes;
        while missing > 0 {
            match reader.read(&mut room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => missing -= read,
            }
        }
        Ok(())
    };
    tokio::try_join!(write, read)?;
    Ok(stream)
}

// --- words, and what is common -------------------------------------------------------------------

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    tcp::set_congestion(&socket, "cubic")?;
    socket.set_nodelay(true)?;
    socket.connect(to).await
}

/// Runs all at once, each as a task, and waits for all.
async fn all<T: Send + 'static>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    futures.collect::<JoinSet<T>>().join_all().await
}

struct Words(BTreeMap<String, String>);

impl Words {
    fn of(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut words = BTreeMap::new();
        for word in arguments {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no ="))?;
            words.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self(words))
    }

    fn value<T: FromStr>(&self, key: &str) -> Result<T, Box<dyn Error>> {
        let text = self.0.get(key).ok_or_else(|| format!("{key}= is missing"))?;
        text.parse().map_err(|_| format!("{key}={text} makes no sense").into())
    }

    fn milliseconds(&self, key: &str) -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::from_millis(self.value(key)?))
    }
}
