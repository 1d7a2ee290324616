//! The driver of [`Pump`]: two streams, and the system calls that it asks for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lastbyte_core::End;
use lastbyte_core::pump::{Next, Pump, Side, Traffic};
use lastbyte_socket::Stream;
use tokio::time::{self, Instant, Sleep};

use crate::buffered::{Buffered, Transfer};
use crate::pool::Pool;

/// How often each way gets a turn before other flows do: about 4 MiB of a fast flow.
const TURNS: usize = 8;

/// Time limits of a relay. None of them ends a flow on which bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayTimes {
    /// How long nothing may move while nothing waits to be written; `None`, the default, for no limit.
    pub idle: Option<Duration>,
    /// How long a side may read none of the bytes that wait for it; `None`, the default, for no limit.
    pub stall: Option<Duration>,
    /// The same once the other side has ended or was reset, and for acknowledgements at the end: 30 s.
    pub settle: Duration,
}

impl Default for RelayTimes {
    fn default() -> Self {
        Self { idle: None, stall: None, settle: Duration::from_secs(30) }
    }
}

/// Why a relay has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelayEnd {
    /// Both sides ended with a FIN, and both were passed on; this side was the first.
    Fin(Side),
    /// The connection of this side was reset, or given up by our kernel.
    Reset(Side),
    /// Nothing moved for [`RelayTimes::idle`].
    Idle,
    /// A side read nothing for [`RelayTimes::stall`], or, after the other has ended, for
    /// [`RelayTimes::settle`].
    Stalled {
        /// This side.
        side: Side,
        /// The side that had been reset before, if one was.
        reset_by: Option<Side>,
    },
    /// The caller stopped it.
    Stopped,
}

/// Two connected streams, joined.
///
/// A future that is ready when both ways have ended; then [`Relay::finish`] ends both connections
/// accordingly. If it is dropped before that, or the program is killed, both are reset.
#[derive(Debug)]
pub struct Relay {
    pub(crate) legs: [Stream; 2],
    pub(crate) pump: Pump,
    ways: [Way; 2],
    pool: Pool,
    pub(crate) times: RelayTimes,
    waiting: Option<Waiting>,
    pub(crate) end: Option<RelayEnd>,
}

/// The state of one way that the machine does not have.
#[derive(Default)]
struct Way {
    buffered: Buffered,
    transfer: Transfer,
    /// Since when the other side's send buffer is full.
    blocked: Option<Instant>,
    /// For how long it was full before.
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
        self.transfer.fmt(f)
    }
}

/// A running time limit.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// The unacknowledged bytes of both legs at the last look, if there was one.
    unacked: Option<[u32; 2]>,
    timer: Pin<Box<Sleep>>,
}

/// The result of a turn.
#[derive(PartialEq, Eq)]
enum Turn {
    Moved,
    Waits,
}

impl Relay {
    /// Joins two streams: the accepted one of a client, and the one that was opened for it. `early` has
    /// bytes that were read from the client before, for the upstream.
    #[must_use]
    pub fn new(
        mut client: Stream,
        mut upstream: Stream,
        early: Vec<u8>,
        times: RelayTimes,
        pool: &Pool,
    ) -> Self {
        for leg in [&mut client, &mut upstream] {
            // It fails only on a connection that is gone.
            let _ = leg.reset_when_closed(true);
        }
        let pump = Pump::new(early.len() as u64);
        let up = Way { buffered: Buffered::early(early), ..Way::default() };
        let (legs, ways) = ([client, upstream], [up, Way::default()]);
        Self { legs, pump, ways, pool: pool.clone(), times, waiting: None, end: None }
    }

    /// The leg of one side.
    #[must_use]
    pub fn leg(&self, side: Side) -> &Stream {
        &self.legs[side as usize]
    }

    /// What this way has relayed so far: from this side to the other.
    #[must_use]
    pub fn traffic(&self, from: Side) -> Traffic {
        self.pump.traffic(from)
    }

    /// For how long bytes from this side waited for space in the other side's send buffer.
    pub(crate) fn blocked(&self, from: Side) -> Duration {
        let Way { blocked, was_blocked, .. } = &self.ways[from as usize];
        *was_blocked + blocked.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Ends the relay now, also with bytes in flight: [`Relay::finish`] then resets both connections.
    pub fn stop(&mut self) {
        self.end.get_or_insert(RelayEnd::Stopped);
    }

    /// Gives a way one turn.
    fn turn(&mut self, from: Side, cx: &mut Context<'_>) -> io::Result<Turn> {
        let to = from.other();
        match self.pump.next(from) {
            Next::Done => return Ok(Turn::Waits),
            Next::Read => {
                let source = &mut self.legs[from as usize];
                if source.poll_readable(cx)?.is_pending() {
                    return Ok(Turn::Waits);
                }
                let Way { buffered, transfer, .. } = &mut self.ways[from as usize];
                match buffered.fill(transfer, source, &self.pool) {
                    Ok(0) => self.pump.on_end(from, source.observed_end().unwrap_or(End::Unknown)),
                    Ok(bytes) => self.pump.on_read(from, bytes as u64),
                    // The next turn waits for readiness.
                    Err(error) if is_passing(&error) => {}
                    Err(_) => self.pump.on_end(from, End::Reset),
                }
            }
            Next::Write => {
                let (sink, way) = (&mut self.legs[to as usize], &mut self.ways[from as usize]);
                match way.buffered.drain(sink, &self.pool) {
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

    /// Gives both ways turns until both wait or have ended. Returns whether there is more to do.
    fn turns(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..TURNS {
            let mut open = false;
            for from in Side::BOTH {
                // So that a message is read and written in the same turn.
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

    /// Looks for a reset of the legs that nothing is read from: it ends the other way too. Returns whether
    /// there was one.
    fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut found = false;
        for leg in Side::BOTH {
            let watched = self.pump.next(leg) != Next::Read && !self.pump.is_dead(leg);
            let stream = &self.legs[leg as usize];
            if watched
                && stream.poll_failed(cx)?.is_ready()
                // After our own half-close the peer's FIN looks the same to the poller.
                && (!self.pump.has_fin(leg) || stream.has_failed()?)
            {
                self.pump.on_dead(leg);
                found = true;
            }
        }
        Ok(found)
    }

    /// Waits for the time limit that applies now, if one does.
    fn poll_limit(&mut self, moved: bool, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let stuck = Side::BOTH.into_iter().find(|from| self.pump.next(*from) == Next::Write);
        let limit = match stuck {
            Some(_) if self.pump.is_flushing() => Some(self.times.settle),
            Some(_) => self.times.stall,
            None => self.times.idle,
        };
        let Some(limit) = limit else {
            self.waiting = None;
            return Poll::Pending;
        };
        let now = Instant::now();
        // A limit beyond the range of the clock is none.
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
        // A timer that ends too early is set anew then: cheaper than setting it with every byte.
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
            // Written bytes may still be in flight to a slow side.
            let left = unacked(&self.legs);
            let moves = match waiting.unacked {
                Some(before) => left.iter().zip(before).any(|(left, before)| *left < before),
                None => left != [0, 0],
            };
            if !moves {
                let reset_by = self.pump.reset_by();
                return Poll::Ready(match stuck {
                    Some(from) => RelayEnd::Stalled { side: from.other(), reset_by },
                    None => RelayEnd::Idle,
                });
            }
            (waiting.since, waiting.unacked) = (Instant::now(), Some(left));
        }
    }

    /// The progress so far, for comparison.
    fn progress(&self) -> [Traffic; 2] {
        Side::BOTH.map(|from| self.pump.traffic(from))
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<RelayEnd>> {
        let before = self.progress();
        let mut died = false;
        loop {
            let more = self.turns(cx)?;
            if self.pump.is_done() {
                return Poll::Ready(Ok(match self.pump.reset_by() {
                    Some(side) => RelayEnd::Reset(side),
                    None => RelayEnd::Fin(self.pump.first_end().unwrap_or(Side::Client)),
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
                // After a reset another limit applies.
                let moved = died || self.progress() != before;
                return self.poll_limit(moved, cx).map(Ok);
            }
            died = true;
        }
    }
}

impl Future for Relay {
    type Output = RelayEnd;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let relay = self.get_mut();
        if let Some(end) = relay.end {
            return Poll::Ready(end);
        }
        // It fails only without an event loop: there is nothing left to do then.
        let end = ready!(relay.poll_end(cx)).unwrap_or(RelayEnd::Stopped);
        relay.end = Some(end);
        relay.waiting = None;
        Poll::Ready(end)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
