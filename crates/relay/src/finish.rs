//! What follows a relay: each connection is ended as its side is to learn of the other's end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lastbyte_core::account::{Carried, Leg};
use lastbyte_core::finish::{Drain, Unproven};
use lastbyte_core::pump::{Last, Side};
use lastbyte_core::sample::{LimitedBy, State, TcpInfo};
use lastbyte_core::{Delivery, Receipt};
use lastbyte_socket::{FinishError, FinishOptions, Stream};

use crate::relay::{Over, Relay};

/// A relay that has ended, with both connections closed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Relayed {
    /// Why.
    pub over: Over,
    /// From the client to the upstream.
    pub up: Carried,
    /// From the upstream to the client.
    pub down: Carried,
    /// The side that was not seen to acknowledge all that was written to it, though it was waited for.
    pub unacked: Option<(Side, Unproven)>,
    /// The leg of the client, as it was when all was written.
    pub client: Leg,
    /// The leg of the upstream, as it was when all was written.
    pub upstream: Leg,
}

impl Relay {
    /// Ends both connections: orderly where both sides ended so, else by a reset once what was written
    /// is acknowledged. `lasted` is how long they were there, for what held them back.
    ///
    /// What need not be waited for is done when this returns.
    pub fn finish(mut self, lasted: Duration) -> Finishing {
        // Where it is not over, it is as good as stopped.
        self.stop();
        let over = self.over.unwrap_or(Over::Stopped);
        let ends = Side::BOTH.map(|leg| match over {
            Over::Fin(_) | Over::Cut(_) => (self.pump.last(leg), self.times.settle),
            Over::Idle | Over::Stalled { .. } | Over::Stopped => (Last::Reset, Duration::ZERO),
        });
        let [mut up, mut down] = Side::BOTH.map(|from| Carried::from(self.pump.carried(from)));
        let blocked = Side::BOTH.map(|from| self.blocked(from));
        let [client, upstream] = self.legs;
        let to_client = Ending::of(client, Side::Client, ends[0]);
        let to_upstream = Ending::of(upstream, Side::Upstream, ends[1]);
        down.limited_by = to_client.held_back(lasted, blocked[Side::Upstream as usize]);
        up.limited_by = to_upstream.held_back(lasted, blocked[Side::Client as usize]);
        let (client, upstream) = (to_client.leg(), to_upstream.leg());
        let relayed = Relayed { over, up, down, unacked: None, client, upstream };
        Finishing { relayed: Some(relayed), ends: [to_client, to_upstream].map(Ending::begin) }
    }
}

/// A relay whose connections are being ended: see [`Relay::finish`]. Dropped, it closes them, and what
/// is not acknowledged then never will be known to be.
#[must_use = "it ends nothing unless it is awaited"]
pub struct Finishing {
    /// What is known without waiting; `None` once it is handed out.
    relayed: Option<Relayed>,
    /// To the client, and to the upstream.
    ends: [Progress; 2],
}

impl Finishing {
    /// Waits for nothing any more: what came of it as far as is known, [`Over::Stopped`].
    ///
    /// # Panics
    /// Once it was ready.
    #[must_use]
    pub fn stop(mut self) -> Relayed {
        let relayed = self.relayed.take().expect("nobody asks twice");
        Relayed { over: Over::Stopped, ..relayed }
    }
}

impl Future for Finishing {
    type Output = Relayed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Relayed> {
        let [to_client, to_upstream] = self.ends.each_mut().map(|end| end.poll(cx));
        let (to_client, to_upstream) = (ready!(to_client), ready!(to_upstream));
        let mut relayed = self.relayed.take().expect("nobody polls what was ready");
        relayed.down.acked = to_client.acked_of(relayed.down.written);
        relayed.up.acked = to_upstream.acked_of(relayed.up.written);
        let unproven = [(Side::Client, to_client.why), (Side::Upstream, to_upstream.why)];
        relayed.unacked = unproven.into_iter().find_map(|(side, why)| Some((side, why?)));
        Poll::Ready(relayed)
    }
}

impl fmt::Debug for Finishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finishing").field("relayed", &self.relayed).finish_non_exhaustive()
    }
}

/// How far the end of a connection is.
enum Progress {
    Waits(Pin<Box<dyn Future<Output = Ended> + Send>>),
    Ended(Ended),
}

impl Progress {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let ended = match self {
            Self::Waits(end) => ready!(end.as_mut().poll(cx)),
            Self::Ended(ended) => *ended,
        };
        *self = Self::Ended(ended);
        Poll::Ready(ended)
    }
}

/// A connection that is to be ended.
struct Ending {
    stream: Stream,
    side: Side,
    last: Last,
    within: Duration,
    info: Option<TcpInfo>,
}

/// What is known of the bytes that were written to a side.
#[derive(Clone, Copy)]
struct Ended {
    unacked: Option<u64>,
    why: Option<Unproven>,
}

impl Ending {
    fn of(stream: Stream, side: Side, (last, within): (Last, Duration)) -> Self {
        let info = stream.info().ok();
        Self { stream, side, last, within, info }
    }

    fn leg(&self) -> Leg {
        let mut leg = Leg::default();
        leg.local = self.stream.local_addr().ok();
        leg.peer = self.stream.peer_addr().ok();
        leg.rtt = self.info.map(|info| Duration::from_micros(u64::from(info.rtt_us)));
        leg.retransmitted_segments = self.info.map(|info| info.total_retrans_segments);
        leg
    }

    /// What held the sending on this connection back for the longest time. Where no byte waited for room
    /// it was the side that the bytes come from; of the time that some did, the kernel's clocks explain
    /// a part, and the rest is the congestion window's, or that of a pace that we were told to keep.
    fn held_back(&self, lasted: Duration, blocked: Duration) -> Option<(LimitedBy, Duration)> {
        let info = self.info?;
        let blocked = blocked.min(lasted);
        let clock = |micros: Option<u64>| Some(Duration::from_micros(micros?).min(blocked));
        let window = clock(info.rwnd_limited_us)?;
        let buffer = clock(info.sndbuf_limited_us)?;
        let paced = info.max_pacing_rate.is_some_and(|most| most != u64::MAX);
        let rest = if paced { LimitedBy::Pacing } else { LimitedBy::CongestionWindow };
        let times = [
            (LimitedBy::Application, lasted - blocked),
            (LimitedBy::ReceiveWindow, window),
            (LimitedBy::SendBuffer, buffer),
            (rest, blocked.saturating_sub(window + buffer)),
        ];
        times.into_iter().max_by_key(|(_, time)| *time)
    }

    /// How many of all bytes written to a connection that is gone were acknowledged before. The kernel's
    /// queue is gone too; its count remains, in which the side that connected has its SYN.
    fn acked_before(&self) -> Option<u64> {
        let counted = self.info?.bytes_acked?;
        let syn = u64::from(self.side == Side::Upstream);
        Some(counted.saturating_sub(syn).min(self.stream.written()))
    }

    /// Whether both FINs are acknowledged, ours with all that was written before it: the kernel counts it
    /// as a byte.
    fn is_over(&self) -> bool {
        let is_closed = self.info.is_some_and(|info| info.state == State::Close);
        let syn = u64::from(self.side == Side::Upstream);
        let counted = self.info.and_then(|info| info.bytes_acked);
        is_closed && counted == Some(syn + self.stream.written() + 1)
    }

    /// Does all that need not be waited for.
    fn begin(self) -> Progress {
        match self.last {
            Last::Drop => {
                let acked = self.acked_before();
                let unacked = acked.map(|acked| self.stream.written().saturating_sub(acked));
                Progress::Ended(Ended { unacked, why: None })
            }
            // The connection is over: closing it now neither sends nor loses anything.
            Last::Finish if self.is_over() => {
                Progress::Ended(Ended { unacked: Some(0), why: None })
            }
            Last::Finish | Last::Reset => Progress::Waits(Box::pin(self.end())),
        }
    }

    async fn end(self) -> Ended {
        let (want, drain, deadline) = (Delivery::Acked, Drain::Keep, self.within);
        let options =
            FinishOptions::default().within(deadline).want(want).drain(drain).patient(true);
        let mut stream = self.stream;
        if self.last == Last::Finish {
            let _ = stream.reset_when_closed(false);
            return Ended::of(stream.finish_with(options).await);
        }
        let ended = Ended::of(stream.abort_with(options).await);
        // Nobody waits for an acknowledgement where there is no time.
        if self.within.is_zero() { Ended { why: None, ..ended } } else { ended }
    }
}

impl Ended {
    fn of(finished: Result<Receipt, FinishError>) -> Self {
        match finished {
            Ok(receipt) => Self { unacked: receipt.unacked, why: None },
            Err(error) => Self { unacked: error.receipt.unacked, why: Some(error.why) },
        }
    }

    /// How many of `written` bytes, the last ones on the connection, are acknowledged.
    fn acked_of(&self, written: u64) -> Option<u64> {
        self.unacked.map(|unacked| written.saturating_sub(unacked))
    }
}
