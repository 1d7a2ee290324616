//! What a congestion control costs: CPU time for a gigabyte over loopback, both ends together.
//!
//! ```text
//! congestion_cost [BYTES [ROUNDS]]
//! ```
//!
//! Each algorithm in BPF that the kernel has too is measured beside it, in turn, round after round: the
//! ratio of a round holds where the figures themselves vary. Needs root.

#![allow(clippy::print_stdout, reason = "its answer")]

use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_congestion::{Given, all, available, load};
use lastbyte_sys::{process, tcp};

/// What is sent in a run.
const BYTES: u64 = 4_000_000_000;
/// How often each runs.
const ROUNDS: usize = 9;
/// A write, and a read.
const BLOCK: usize = 1 << 18;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a run took.
struct Run {
    cpu: Duration,
    wall: Duration,
}

fn main() -> Outcome<()> {
    let mut words = env::args().skip(1);
    let bytes = words.next().map_or(Ok(BYTES), |word| word.parse())?;
    let rounds = words.next().map_or(Ok(ROUNDS), |word| word.parse())?;
    let kernels = available()?;
    println!("{bytes} bytes over loopback, {rounds} rounds in turn; CPU seconds per GB, both ends");
    println!("{:10} {:>8} {:>8} {:>8} {:>8} {:>8}", "", "kernel", "bpf", "ratio", "min", "max");
    for algorithm in all().iter().filter(|one| kernels.iter().any(|name| name == one.plain)) {
        let registered = load(algorithm, Given::default())?;
        let mut pairs = Vec::new();
        for round in 0..rounds {
            // Who is first has the caches of the one before: it turns.
            let mut names = [algorithm.plain, registered.name()];
            names.rotate_left(round % 2);
            let mut runs = [run(names[0], bytes)?, run(names[1], bytes)?];
            runs.rotate_left(round % 2);
            pairs.push(runs);
        }
        tell(algorithm.plain, bytes, &pairs);
    }
    Ok(())
}

/// Sends over a connection of its own.
fn run(name: &str, bytes: u64) -> Outcome<Run> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    tcp::set_congestion(&near, name)?;
    let (far, _) = listener.accept()?;
    let began = Instant::now();
    let sender = thread::spawn(move || send(near, bytes));
    let receiver = thread::spawn(move || receive(far, bytes));
    let joined = sender.join().map_err(|_| "the sender")??;
    let cpu = joined + receiver.join().map_err(|_| "the receiver")??;
    Ok(Run { cpu, wall: began.elapsed() })
}

fn send(mut near: TcpStream, bytes: u64) -> Outcome<Duration> {
    let block = vec![7; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
        left -= near.write(&block[..length])? as u64;
    }
    Ok(process::thread_cpu_time()?)
}

fn receive(mut far: TcpStream, bytes: u64) -> Outcome<Duration> {
    let mut block = vec![0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let length = far.read(&mut block)?;
        if length == 0 {
            return Err("the sender ended early".into());
        }
        left -= length as u64;
    }
    Ok(process::thread_cpu_time()?)
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 bytes")]
fn tell(name: &str, bytes: u64, pairs: &[[Run; 2]]) {
    let gigabytes = bytes as f64 / 1e9;
    let cost = |place: usize| {
        median(pairs.iter().map(|pair| pair[place].cpu.as_secs_f64() / gigabytes).collect())
    };
    let ratios: Vec<f64> = pairs
        .iter()
        .map(|[kernel, bpf]| bpf.cpu.as_secs_f64() / kernel.cpu.as_secs_f64())
        .collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let walls: Vec<f64> = pairs.iter().map(|pair| pair[1].wall.as_secs_f64()).collect();
    println!(
        "{name:10} {:8.4} {:8.4} {:8.3} {least:8.3} {most:8.3}   ({:.1} Gbit/s)",
        cost(0),
        cost(1),
        median(ratios),
        8.0 * gigabytes / median(walls)
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
