//! The driver of [`Pump`]: two streams, and the calls that it asks for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lastbyte_core::End;
use lastbyte_core::pump::{Carried, Next, Pump, Side};
use lastbyte_socket::Stream;
use tokio::time::{self, Instant, Sleep};

use crate::held::{Held, Manner};
use crate::pool::Pool;

/// How often each way is looked at before others have their turn: 4 MiB or so of a fast flow.
const TURNS: usize = 8;

/// Time limits of a relay. None of them ends a flow on which data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayTimes {
    /// How long nothing may move with nothing waiting to be written; `None` for ever, the default.
    pub idle: Option<Duration>,
    /// How long a side that has bytes to take may take none; `None` for ever, the default.
    pub stall: Option<Duration>,
    /// The same once the other side has ended or was cut, and for acknowledgements at the end: 30 s.
    pub settle: Duration,
}

impl Default for RelayTimes {
    fn default() -> Self {
        Self { idle: None, stall: None, settle: Duration::from_secs(30) }
    }
}

/// Why a relay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Over {
    /// Both sides ended with a FIN, and each was passed on; this one was the first.
    Fin(Side),
    /// This side was cut: reset, or given up by our kernel.
    Cut(Side),
    /// Nothing moved for [`RelayTimes::idle`].
    Idle,
    /// This side took nothing for [`RelayTimes::stall`], or, the other having ended, for
    /// [`RelayTimes::settle`].
    Stalled {
        /// This one.
        side: Side,
        /// The side that had been cut before, if one was.
        cut_by: Option<Side>,
    },
    /// The caller stopped it.
    Stopped,
}

/// Two connected streams, joined.
///
/// A future that is ready when both ways are over; then [`Relay::finish`] ends both connections as
/// what happened asks for. Dropped before that, or with the program killed, both are reset.
#[derive(Debug)]
pub struct Relay {
    pub(crate) legs: [Stream; 2],
    pub(crate) pump: Pump,
    ways: [Way; 2],
    pool: Pool,
    pub(crate) times: RelayTimes,
    waiting: Option<Waiting>,
    pub(crate) over: Option<Over>,
}

/// What one way has beside what the machine knows of it.
#[derive(Default)]
struct Way {
    held: Held,
    manner: Manner,
    /// Since when the other side takes nothing more.
    blocked: Option<Instant>,
    /// For how long that was so before.
    was_blocked: Duration,
}

impl Way {
    fn on_blocked(&mut self) {
        self.blocked.get_or_insert_with(Instant::now);
    }

    fn on_taken(&mut self) {
        if let Some(since) = self.blocked.take() {
            self.was_blocked += since.elapsed();
        }
    }
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.manner.fmt(f)
    }
}

/// A time limit that runs.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// What was unacknowledged on both legs when it was last looked at, if it was.
    unacked: Option<[u32; 2]>,
    timer: Pin<Box<Sleep>>,
}

/// What became of a turn.
#[derive(PartialEq, Eq)]
enum Turn {
    Moved,
    Waits,
}

impl Relay {
    /// Joins two streams: one that was accepted, the client's, and one that was opened for it. `early`
    /// is what was read from the client before, and is for the upstream.
    #[must_use]
    pub fn new(
        mut client: Stream,
        mut upstream: Stream,
        early: Vec<u8>,
        times: RelayTimes,
        pool: &Pool,
    ) -> Self {
        for leg in [&mut client, &mut upstream] {
            // One that is gone already needs none.
            let _ = leg.reset_when_closed(true);
        }
        let pump = Pump::new(early.len() as u64);
        let up = Way { held: Held::early(early), ..Way::default() };
        let (legs, ways) = ([client, upstream], [up, Way::default()]);
        Self { legs, pump, ways, pool: pool.clone(), times, waiting: None, over: None }
    }

    /// The leg of one side.
    #[must_use]
    pub fn leg(&self, side: Side) -> &Stream {
        &self.legs[side as usize]
    }

    /// What went from this side to the other so far.
    #[must_use]
    pub fn carried(&self, from: Side) -> Carried {
        self.pump.carried(from)
    }

    /// For how long bytes that this side had sent waited for room on the other side's leg.
    pub(crate) fn blocked(&self, from: Side) -> Duration {
        let Way { blocked, was_blocked, .. } = &self.ways[from as usize];
        *was_blocked + blocked.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Ends the relay now, whatever is on its way: [`Relay::finish`] then resets both connections.
    pub fn stop(&mut self) {
        self.over.get_or_insert(Over::Stopped);
    }

    /// One turn of a way.
    fn turn(&mut self, from: Side, cx: &mut Context<'_>) -> io::Result<Turn> {
        let to = from.other();
        match self.pump.next(from) {
            Next::Over => return Ok(Turn::Waits),
            Next::Read => {
                let source = &mut self.legs[from as usize];
                if source.poll_readable(cx)?.is_pending() {
                    return Ok(Turn::Waits);
                }
                let Way { held, manner, .. } = &mut self.ways[from as usize];
                match held.fill(manner, source, &self.pool) {
                    Ok(0) => self.pump.on_end(from, source.observed_end().unwrap_or(End::Unknown)),
                    Ok(bytes) => self.pump.on_read(from, bytes as u64),
                    // The next turn waits for it.
                    Err(error) if is_passing(&error) => {}
                    Err(_) => self.pump.on_end(from, End::Reset),
                }
            }
            Next::Write => {
                let (sink, way) = (&mut self.legs[to as usize], &mut self.ways[from as usize]);
                match way.held.drain(sink, &self.pool) {
                    Ok(bytes) => {
                        way.on_taken();
                        self.pump.on_written(from, bytes as u64);
                    }
                    Err(error) if is_passing(&error) => {
                        way.on_blocked();
                        if sink.poll_writable(cx)?.is_pending() {
                            return Ok(Turn::Waits);
                        }
                    }
                    Err(_) => self.pump.on_dead(to),
                }
            }
            Next::HalfClose => match self.legs[to as usize].half_close() {
                Ok(()) => self.pump.on_half_closed(from),
                Err(_) => self.pump.on_dead(to),
            },
        }
        Ok(Turn::Moved)
    }

    /// Looks at both ways until both wait or are over. Returns whether there still is something to do.
    fn turns(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..TURNS {
            let mut open = false;
            for from in Side::BOTH {
                // A message is read and written in one go.
                for _ in 0..3 {
                    if self.turn(from, cx)? == Turn::Waits {
                        break;
                    }
                    open = true;
                }
            }
            if !open {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Watches the legs that nothing is read from: a reset there ends the other way too. Returns
    /// whether one was found.
    fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut found = false;
        for leg in Side::BOTH {
            let watched = self.pump.next(leg) != Next::Read && !self.pump.is_dead(leg);
            let stream = &self.legs[leg as usize];
            if watched
                && stream.poll_failed(cx)?.is_ready()
                // Where we have ended our direction too, the other's FIN looks the same.
                && (!self.pump.has_fin(leg) || stream.has_failed()?)
            {
                self.pump.on_dead(leg);
                found = true;
            }
        }
        Ok(found)
    }

    /// Waits for the limit that counts now, if there is one.
    fn poll_limit(&mut self, moved: bool, cx: &mut Context<'_>) -> Poll<Over> {
        let stuck = Side::BOTH.into_iter().find(|from| self.pump.next(*from) == Next::Write);
        let limit = match stuck {
            Some(_) if self.pump.is_ending() => Some(self.times.settle),
            Some(_) => self.times.stall,
            None => self.times.idle,
        };
        let Some(limit) = limit else {
            self.waiting = None;
            return Poll::Pending;
        };
        let now = Instant::now();
        // One that the clock cannot tell is none.
        if now.checked_add(limit).is_none() {
            self.waiting = None;
            return Poll::Pending;
        }
        let unacked = |legs: &[Stream; 2]| legs.each_ref().map(|leg| leg.unacked().unwrap_or(0));
        let waiting = self.waiting.get_or_insert_with(|| {
            let timer = Box::pin(time::sleep_until(now + limit));
            Waiting { since: now, timer, unacked: None }
        });
        if moved {
            (waiting.since, waiting.unacked) = (now, None);
        }
        if stuck.is_some() && waiting.unacked.is_none() {
            waiting.unacked = Some(unacked(&self.legs));
        }
        // A timer that is early is put off when it ends: cheaper than with every byte.
        loop {
            let until = waiting.since + limit;
            if waiting.timer.deadline() > until {
                waiting.timer.as_mut().reset(until);
            }
            ready!(waiting.timer.as_mut().poll(cx));
            if waiting.timer.deadline() < until {
                waiting.timer.as_mut().reset(until);
                continue;
            }
            // What was written may still be on its way to a side, which takes it slowly.
            let left = unacked(&self.legs);
            let moves = match waiting.unacked {
                Some(before) => left.iter().zip(before).any(|(left, before)| *left < before),
                None => left != [0, 0],
            };
            if !moves {
                let cut_by = self.pump.cut_by();
                return Poll::Ready(match stuck {
                    Some(from) => Over::Stalled { side: from.other(), cut_by },
                    None => Over::Idle,
                });
            }
            (waiting.since, waiting.unacked) = (Instant::now(), Some(left));
        }
    }

    /// What has happened so far, to be compared.
    fn mark(&self) -> [Carried; 2] {
        Side::BOTH.map(|from| self.pump.carried(from))
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Over>> {
        let before = self.mark();
        let mut died = false;
        loop {
            let more = self.turns(cx)?;
            if self.pump.is_over() {
                return Poll::Ready(Ok(match self.pump.cut_by() {
                    Some(side) => Over::Cut(side),
                    None => Over::Fin(self.pump.first_end().unwrap_or(Side::Client)),
                }));
            }
            if more {
                if let Some(waiting) = &mut self.waiting {
                    (waiting.since, waiting.unacked) = (Instant::now(), None);
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.watch(cx)? {
                // From a death on another limit counts.
                let moved = died || self.mark() != before;
                return self.poll_limit(moved, cx).map(Ok);
            }
            died = true;
        }
    }
}

impl Future for Relay {
    type Output = Over;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Over> {
        let relay = self.get_mut();
        if let Some(over) = relay.over {
            return Poll::Ready(over);
        }
        // Only an event loop that is gone fails: there is nothing left to do then.
        let over = ready!(relay.poll_over(cx)).unwrap_or(Over::Stopped);
        relay.over = Some(over);
        relay.waiting = None;
        Poll::Ready(over)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
