//! What counting costs: nanoseconds for each count, with one thread and with two at once, beside
//! other ways to count.
//!
//! ```sh
//! cargo run --release -p lastbyte-metrics --example cost
//! ```
//!
//! Rounds go through all ways in turn; a figure is the median of the rounds, with the first and the
//! third quartile. That of two threads is the time of the later one. Other work on the machine spoils
//! it: two threads that do not run at the same time do not meet.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the table is the answer")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_metrics::{Counter, Family, Histogram, statistics};

statistics! {
    /// What a route counts.
    struct Route {
        /// Flows accepted.
        flows: Counter,
        /// Time to connect.
        connect_seconds: Histogram<Duration> = &[
            Duration::from_millis(1), Duration::from_millis(3), Duration::from_millis(10),
            Duration::from_millis(30), Duration::from_millis(100), Duration::from_millis(300),
            Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10),
        ],
    }
}

fn main() {
    let family = Family::<Route>::new("route");
    let route = family.register("db");
    let one = AtomicU64::new(0);
    let apart = [Apart::default(), Apart::default()];
    let two = [AtomicU64::new(0), AtomicU64::new(0)];
    let names = Mutex::new(HashMap::from([("flows".to_owned(), 0_u64)]));

    let ways: [(&str, &(dyn Fn(usize) + Sync)); 7] = [
        ("nothing, called alike", &|thread| {
            black_box(thread);
        }),
        ("Counter::add", &|_| route.flows.add(1)),
        ("Histogram::observe", &|_| route.connect_seconds.observe(Duration::from_millis(17))),
        ("one AtomicU64 each, apart", &|thread| {
            apart[thread].0.fetch_add(1, Ordering::Relaxed);
        }),
        ("one AtomicU64 for all", &|_| {
            one.fetch_add(1, Ordering::Relaxed);
        }),
        ("one each, neighbours", &|thread| {
            two[thread].fetch_add(1, Ordering::Relaxed);
        }),
        ("Mutex<HashMap<String, _>>", &|_| {
            let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = names.get_mut(black_box("flows")) {
                *count += 1;
            }
        }),
    ];

    let mut figures = vec![[Vec::new(), Vec::new()]; ways.len()];
    for _ in 0..ROUNDS {
        for ((_, count), figures) in ways.iter().zip(&mut figures) {
            for (threads, figures) in [1, 2].into_iter().zip(figures) {
                figures.push(nanoseconds_each(threads, *count));
            }
        }
    }

    println!("ns for each count: median (quartiles) of {ROUNDS} rounds of {COUNTS} counts");
    println!("{:28}{:>24}{:>24}", "", "1 thread", "2 threads, each");
    for ((name, _), [alone, together]) in ways.iter().zip(figures) {
        println!("{name:28}{:>24}{:>24}", shown(alone), shown(together));
    }
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

const ROUNDS: usize = 101;
const COUNTS: u32 = 200_000;

fn nanoseconds_each(threads: usize, count: &(dyn Fn(usize) + Sync)) -> f64 {
    let start = Barrier::new(threads);
    let time = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    count(thread);
                    start.wait();
                    let began = Instant::now();
                    for _ in 0..COUNTS {
                        count(thread);
                    }
                    began.elapsed()
                })
            })
            .collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    });
    time.as_secs_f64() * 1e9 / f64::from(COUNTS)
}

fn shown(mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    let quartile = |n: usize| figures[figures.len() * n / 4];
    format!("{:.1} ({:.1} to {:.1})", quartile(2), quartile(1), quartile(3))
}
