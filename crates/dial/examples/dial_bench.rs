//! What a dial takes, costs and shares out: `bench/dial.sh` runs it.
//!
//! ```text
//! dial_bench times host=www.example port=80 count=10
//! dial_bench cost host=127.0.0.1 ports=7001,7002 total=10000 at-once=5000
//! dial_bench shares host=www.example port=80 total=10000 at-once=500 memory=none
//! ```
//!
//! - `times` dials again and again with one dialer, and prints a line of JSON for each: how long it
//!   took, and which attempts there were. The first one's time has in it that the system's
//!   configuration is read. With `step=1` each further dial waits for a line on stdin.
//! - `cost` dials in waves of `at-once`; a wave's connections stay open until all of them are there.
//! - `shares` counts which address each dial reached. With `memory=none` each has a dialer of its own;
//!   the answers of DNS are shared.
//!
//! `resolver=system` asks `getaddrinfo`. All of it happens in one thread, but for that.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lastbyte_dial::{DialError, DialOptions, Dialed, Dialer, Resolver, Timeline, What};
use lastbyte_socket::Stream;
use tokio::runtime;
use tokio::task::JoinSet;

type Outcome = Result<Dialed<Stream>, DialError>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let words = Words::of(arguments)?;
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        match command.as_str() {
            "times" => times(&words).await,
            "cost" => cost(&words).await,
            "shares" => shares(&words).await,
            _ => Err("say times, cost or shares, and key=value".into()),
        }
    })
}

// --- times ---------------------------------------------------------------------------------------

async fn times(words: &Words) -> Result<(), Box<dyn Error>> {
    let (host, port) = (words.text("host")?, words.number("port", 0)?);
    let step = words.number("step", 0)? != 0;
    let options = options(words)?;
    let began = Instant::now();
    let dialer = Dialer::new(resolver(words)?);
    let outcome = dialer.dial((host, port), &options).await;
    println!("{}", told(began.elapsed(), &outcome));
    drop(outcome);
    for _ in 1..words.number("count", 1)? {
        if step {
            std::io::stdin().read_line(&mut String::new())?;
        }
        let began = Instant::now();
        let outcome = dialer.dial((host, port), &options).await;
        println!("{}", told(began.elapsed(), &outcome));
    }
    Ok(())
}

/// A dial as a line of JSON.
fn told(took: Duration, outcome: &Outcome) -> String {
    let ms = took.as_secs_f64() * 1e3;
    match outcome {
        Ok(Dialed { stream, timeline, .. }) => {
            let peer = stream.peer_addr().map_or_else(|_| String::new(), |peer| peer.to_string());
            let attempts = attempts(timeline);
            format!(r#"{{"ms":{ms:.3},"peer":"{peer}","attempts":{attempts}}}"#)
        }
        Err(error) => {
            let text = error.to_string().replace(['"', '\\'], "'");
            let attempts = attempts(&error.timeline);
            format!(r#"{{"ms":{ms:.3},"error":"{text}","attempts":{attempts}}}"#)
        }
    }
}

/// Address and beginning of each attempt.
fn attempts(timeline: &Timeline) -> String {
    let started = timeline.events.iter().filter_map(|event| match &event.what {
        What::Started { address, .. } => {
            Some(format!(r#"["{address}",{:.3}]"#, event.at.as_secs_f64() * 1e3))
        }
        _ => None,
    });
    format!("[{}]", started.collect::<Vec<_>>().join(","))
}

// --- cost ----------------------------------------------------------------------------------------

async fn cost(words: &Words) -> Result<(), Box<dyn Error>> {
    let host: Arc<str> = words.text("host")?.into();
    let ports: Vec<u16> =
        words.text("ports")?.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let options = Arc::new(options(words)?);
    let began = Instant::now();
    let dialer = Dialer::new(resolver(words)?);
    let (mut completed, mut failed) = (0_u64, 0_u64);
    for wave in waves(words)? {
        let dials = wave.map(|number| {
            let (dialer, host, options) = (dialer.clone(), host.clone(), options.clone());
            let port = ports[number % ports.len()];
            async move { dialer.dial((&*host, port), &options).await }
        });
        let (connected, refused): (Vec<_>, Vec<_>) =
            all(dials).await.into_iter().partition(Result::is_ok);
        completed += connected.len() as u64;
        failed += refused.len() as u64;
    }
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let peak = peak_kb()?;
    println!(r#"{{"ms":{ms:.3},"completed":{completed},"failed":{failed},"peak_kb":{peak}}}"#);
    Ok(())
}

/// The most memory that was resident, in units of 1024 bytes: proc_pid_status(5).
fn peak_kb() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("/proc/self/status has no VmHWM")?.parse()?)
}

// --- shares --------------------------------------------------------------------------------------

async fn shares(words: &Words) -> Result<(), Box<dyn Error>> {
    let (host, port): (Arc<str>, _) = (words.text("host")?.into(), words.number("port", 0)?);
    let options = Arc::new(options(words)?);
    let resolver = resolver(words)?;
    let one = Dialer::new(resolver.clone());
    let alone = match words.text("memory")? {
        "none" => true,
        "kept" => false,
        other => return Err(format!("memory={other}: say none or kept").into()),
    };
    // The answers are there for all that follow.
    drop(Dialer::new(resolver.clone()).dial((&*host, port), &options).await);
    let mut counts: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    let mut failed = 0_u64;
    for wave in waves(words)? {
        let dials = wave.map(|_| {
            let dialer = if alone { Dialer::new(resolver.clone()) } else { one.clone() };
            let (host, options) = (host.clone(), options.clone());
            async move { dialer.dial((&*host, port), &options).await }
        });
        for outcome in all(dials).await {
            match outcome.ok().and_then(|dialed| dialed.stream.peer_addr().ok()) {
                Some(peer) => *counts.entry(peer).or_default() += 1,
                None => failed += 1,
            }
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(peer, count)| format!(r#""{peer}":{count}"#)).collect();
    println!(r#"{{"failed":{failed},"shares":{{{}}}}}"#, counts.join(","));
    Ok(())
}

// --- words, and what is common -------------------------------------------------------------------

/// `total` numbers in rows of `at-once`.
fn waves(
    words: &Words,
) -> Result<impl Iterator<Item = std::ops::Range<usize>> + use<>, Box<dyn Error>> {
    let (total, at_once) = (words.number("total", 1_usize)?, words.number("at-once", 1_usize)?);
    let at_once = at_once.max(1);
    Ok((0..total).step_by(at_once).map(move |first| first..total.min(first + at_once)))
}

/// Runs all at once, each as a task, and waits for all.
async fn all<T: Send + 'static>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    futures.collect::<JoinSet<T>>().join_all().await
}

fn options(words: &Words) -> Result<DialOptions, Box<dyn Error>> {
    let mut options = DialOptions::default();
    options.race.deadline = Duration::from_secs(words.number("deadline", 20)?);
    Ok(options)
}

fn resolver(words: &Words) -> Result<Resolver, Box<dyn Error>> {
    match words.text("resolver") {
        Ok("system") => Ok(Resolver::system()),
        Ok("dns") | Err(_) => Ok(Resolver::dns()?),
        Ok(other) => Err(format!("resolver={other}: say dns or system").into()),
    }
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

    fn text(&self, key: &str) -> Result<&str, Box<dyn Error>> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("{key}= is missing").into())
    }

    fn number<T: FromStr>(&self, key: &str, otherwise: T) -> Result<T, Box<dyn Error>> {
        match self.text(key) {
            Err(_) => Ok(otherwise),
            Ok(text) => text.parse().map_err(|_| format!("{key}={text} is no number").into()),
        }
    }
}
