//! The figures of all rounds, as text.

use std::time::Duration;

use crate::request::{Ending, Usage};

/// One ending's turn in one round.
pub(crate) struct Batch {
    pub(crate) transport: &'static str,
    pub(crate) ending: Ending,
    pub(crate) connections: usize,
    /// Every byte came, and then the end of the stream.
    pub(crate) complete: usize,
    /// Every byte came, and then a reset.
    pub(crate) then_reset: usize,
    pub(crate) used: Usage,
    pub(crate) took: Duration,
}

impl Batch {
    #[allow(clippy::cast_precision_loss, reason = "a figure to be read by people")]
    fn of_each(&self, sum: u64) -> f64 {
        sum as f64 / self.connections as f64
    }

    fn cpu_us(&self) -> f64 {
        self.of_each(self.used.cpu_ns) / 1e3
    }
}

pub(crate) fn print(title: &str, batches: &[Batch]) {
    println!("{title}");
    println!(
        "{:<9} {:<7} {:<27} {:<24} {:>8}  {:>13}  {:>10}  {:>8}  CPU s in all",
        "transport",
        "ending",
        "CPU us of the server",
        "beside close",
        "wake-ups",
        "complete",
        "then reset",
        "proven",
    );
    let mut seen: Vec<(&str, Ending)> = Vec::new();
    for batch in batches {
        let cell = (batch.transport, batch.ending);
        if !seen.contains(&cell) {
            seen.push(cell);
        }
    }
    seen.sort_by_key(|(transport, ending)| (*transport, *ending as u8));
    for (transport, ending) in seen {
        println!("{}", row(batches, transport, ending));
    }
}

fn row(batches: &[Batch], transport: &str, ending: Ending) -> String {
    let all = |ending| {
        batches.iter().filter(move |batch| (batch.transport, batch.ending) == (transport, ending))
    };
    let sum = |of: fn(&Batch) -> usize| all(ending).map(of).sum::<usize>();
    let cpu = spread(all(ending).map(Batch::cpu_us).collect(), 1, "");
    // In each round, so that what the machine did meanwhile is taken out.
    let beside = all(ending).zip(all(Ending::Close));
    let beside = beside.map(|(this, close)| this.cpu_us() / close.cpu_us());
    let beside = match ending {
        Ending::Close => String::new(),
        _ => compared(beside.collect()),
    };
    let wake_ups: f64 = all(ending).map(|batch| batch.of_each(batch.used.wake_ups)).sum();
    let rounds = all(ending).count();
    let connections = sum(|batch| batch.connections);
    let complete = format!("{}/{connections}", sum(|batch| batch.complete));
    let proven: u64 = all(ending).map(|batch| batch.used.proven).sum();
    let seconds: Duration = all(ending).map(|batch| Duration::from_nanos(batch.used.cpu_ns)).sum();
    let took: Duration = all(ending).map(|batch| batch.took).sum();
    format!(
        "{transport:<9} {ending:<7} {cpu:<27} {beside:<24} {:>8.2}  {complete:>13}  {:>10}  \
         {proven:>8}  {:.2} in {:.1} s",
        wake_ups / rounds_of(rounds),
        sum(|batch| batch.then_reset),
        seconds.as_secs_f64(),
        took.as_secs_f64(),
    )
}

#[allow(clippy::cast_precision_loss, reason = "a handful of rounds")]
fn rounds_of(rounds: usize) -> f64 {
    rounds.max(1) as f64
}

/// In percent more, or in times as much where that is easier to read.
fn compared(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    if ratios.get(ratios.len() / 2).is_some_and(|median| *median >= 10.0) {
        return spread(ratios, 0, " times");
    }
    spread(ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect(), 0, " %")
}

/// The median, and the least and the most.
fn spread(mut samples: Vec<f64>, digits: usize, unit: &str) -> String {
    samples.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (samples.first(), samples.last()) else {
        return "-".to_owned();
    };
    let median = samples[samples.len() / 2];
    format!("{median:.digits$}{unit} ({least:.digits$} to {most:.digits$})")
}
