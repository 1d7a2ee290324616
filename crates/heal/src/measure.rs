//! How fast a connection was and is, by what the peer acknowledged and what came in.

use std::time::{Duration, Instant};

use lastbyte_core::sample::State;

use crate::door::take;
use crate::find::Target;
use crate::settings::info;

/// How long it is looked at before a change, and what of the time after it counts.
pub const WINDOW: Duration = Duration::from_secs(2);
/// Between two looks.
const TICK: Duration = Duration::from_millis(250);

/// A look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Since the first look of its course.
    at: Duration,
    acked: u64,
    received: u64,
}

/// What was seen of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    looks: Vec<Look>,
    /// It ended, or its program closed it, before the time was over.
    pub is_over: bool,
}

/// Looks at connections for so long, or until `pause` returns something other than `None`, which is
/// returned. `pause` waits until a time between two looks.
///
/// # Errors
/// Those of `pause`.
pub fn watch<T, E>(
    targets: &[&Target],
    time: Duration,
    pause: &mut dyn FnMut(Instant) -> Result<Option<T>, E>,
) -> Result<(Vec<Course>, Option<T>), E> {
    let mut courses = vec![Course::default(); targets.len()];
    let begin = Instant::now();
    let mut due = Duration::ZERO;
    loop {
        for (course, target) in courses.iter_mut().zip(targets) {
            course.look(target, begin);
        }
        if due >= time || courses.iter().all(|course| course.is_over) {
            return Ok((courses, None));
        }
        due = (due + TICK).min(time);
        if let Some(ended) = pause(begin + due)? {
            return Ok((courses, Some(ended)));
        }
    }
}

impl Course {
    fn look(&mut self, target: &Target, begin: Instant) {
        if self.is_over {
            return;
        }
        let taken = take(target.cookie, &target.holders).ok().flatten();
        let told =
            taken.and_then(|fd| info(&fd).ok().flatten().map(|info| (begin.elapsed(), info)));
        let is_over = |state| matches!(state, State::Close | State::TimeWait);
        match told {
            Some((at, info)) => {
                let count = |bytes: Option<u64>| bytes.unwrap_or_default();
                let (acked, received) = (count(info.bytes_acked), count(info.bytes_received));
                self.looks.push(Look { at, acked, received });
                self.is_over = is_over(info.state);
            }
            None => self.is_over = true,
        }
    }

    /// How long it was looked at.
    fn lasted(&self) -> Duration {
        self.looks.last().map_or(Duration::ZERO, |look| look.at)
    }

    /// What moved in the last `window` of it, as rates in bits a second: acked and received.
    fn rates(&self, window: Duration) -> Option<[f64; 2]> {
        let last = self.looks.last()?;
        let from = last.at.saturating_sub(window + TICK / 2);
        let first = self.looks.iter().find(|look| look.at >= from)?;
        let seconds = (last.at - first.at).as_secs_f64();
        // Two looks that close to each other say nothing.
        if seconds < TICK.as_secs_f64() / 2.0 {
            return None;
        }
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 * 8.0 / seconds;
        Some([rate(last.acked, first.acked), rate(last.received, first.received)])
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Away from the program.
    Sent,
    /// To the program.
    Received,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The way by which more went.
    pub way: Way,
    /// In the window before the change; `None` where it was too short to tell.
    pub before_bits_per_s: Option<f64>,
    /// In the last window after it.
    pub after_bits_per_s: Option<f64>,
    /// How long it was looked at after it.
    pub after: Duration,
    /// It ended before the time was over.
    pub is_over: bool,
}

impl Gain {
    /// Compares the last window before a change to the last one after it.
    #[must_use]
    pub fn of(before: &Course, after: &Course) -> Self {
        let (then, now) = (before.rates(WINDOW), after.rates(WINDOW));
        let both = |way: usize| {
            [then, now]
                .into_iter()
                .flatten()
                .map(|rates| rates.get(way).copied())
                .map(Option::unwrap_or_default)
                .sum::<f64>()
        };
        let way = if both(1) > both(0) { Way::Received } else { Way::Sent };
        let of_way = |rates: [f64; 2]| match way {
            Way::Sent => rates[0],
            Way::Received => rates[1],
        };
        Self {
            way,
            before_bits_per_s: then.map(of_way),
            after_bits_per_s: now.map(of_way),
            after: after.lasted(),
            is_over: before.is_over || after.is_over,
        }
    }

    /// Whether no more moved than the kernel counts for an end.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        /// A byte in a window, in bits a second, and room for rounding.
        const NOTHING: f64 = 100.0;
        let moved = |rate: Option<f64>| rate.is_some_and(|rate| rate > NOTHING);
        !moved(self.before_bits_per_s) && !moved(self.after_bits_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 250 ms, with so many bytes more each time.
    fn course(acked: &[u64], received: u64) -> Course {
        let mut looks = vec![Look { at: Duration::ZERO, acked: 7, received: 9 }];
        for more in acked {
            let last = looks.last().copied().unwrap();
            let at = last.at + TICK;
            looks.push(Look { at, acked: last.acked + more, received: last.received + received });
        }
        Course { looks, is_over: false }
    }

    #[test]
    fn the_gain_is_that_of_the_last_window() {
        let before = course(&[250_000; 8], 0);
        let mut growing = vec![300_000; 32];
        growing.extend([500_000; 8]);
        let gain = Gain::of(&before, &course(&growing, 1));
        assert_eq!((gain.way, gain.before_bits_per_s), (Way::Sent, Some(8e6)));
        assert_eq!((gain.after_bits_per_s, gain.after), (Some(16e6), 10 * WINDOW / 2));
        assert!(!gain.is_idle() && !gain.is_over);
    }

    #[test]
    fn the_way_is_that_of_most_bytes() {
        let gain = Gain::of(&course(&[10; 8], 1000), &course(&[10; 8], 2000));
        assert_eq!(gain.way, Way::Received);
        assert_eq!((gain.before_bits_per_s, gain.after_bits_per_s), (Some(32e3), Some(64e3)));
    }

    #[test]
    fn what_did_not_move_is_idle_also_if_it_ended() {
        let idle = Gain::of(&course(&[0; 8], 0), &course(&[0; 8], 0));
        assert!(idle.is_idle());
        let mut ended = course(&[0, 0, 1], 0);
        ended.is_over = true;
        let gain = Gain::of(&course(&[0; 8], 0), &ended);
        assert!(gain.is_idle() && gain.is_over);
        assert_eq!(gain.after, 3 * TICK);
    }

    #[test]
    fn a_single_look_tells_no_rate() {
        let gain = Gain::of(&course(&[], 0), &Course::default());
        assert_eq!((gain.before_bits_per_s, gain.after_bits_per_s), (None, None));
        assert!(gain.is_idle());
    }
}
