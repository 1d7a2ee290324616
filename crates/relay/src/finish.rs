//! The end of a relay: each connection ends as the other side's did.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lastbyte_core::account::{Leg, Traffic};
use lastbyte_core::finish::{Drain, Unproven};
use lastbyte_core::pump::{Closing, Side};
use lastbyte_core::sample::{LimitedBy, State, TcpInfo};
use lastbyte_core::{Delivery, Receipt};
use lastbyte_socket::{FinishError, FinishOptions, Stream};

use crate::relay::{Relay, RelayEnd};

/// A relay that has ended, with both connections closed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Relayed {
    /// Why it ended.
    pub end: RelayEnd,
    /// From the client to the upstream.
    pub up: Traffic,
    /// From the upstream to the client.
    pub down: Traffic,
    /// The side that did not acknowledge all that was written to it in time, and why that is unproven.
    pub unacked: Option<(Side, Unproven)>,
    /// The client's leg, as it was when everything was written.
    pub client: Leg,
    /// The upstream's leg, as it was when everything was written.
    pub upstream: Leg,
}

impl Relay {
    /// Ends both connections: by a FIN if both sides ended so, else by a reset once what was written is
    /// acknowledged. `lasted` is how long the flow lasted, to find out what limited it.
    ///
    /// All that needs no waiting is done when this returns.
    pub fn finish(mut self, lasted: Duration) -> Finishing {
        // A relay that has not ended is stopped.
        self.stop();
        let end = self.end.unwrap_or(RelayEnd::Stopped);
        let ends = Side::BOTH.map(|leg| match end {
            RelayEnd::Fin(_) | RelayEnd::Reset(_) => (self.pump.closing(leg), self.times.settle),
            RelayEnd::Idle | RelayEnd::Stalled { .. } | RelayEnd::Stopped => {
                (Closing::Reset, Duration::ZERO)
            }
        });
        let [mut up, mut down] = Side::BOTH.map(|from| Traffic::from(self.pump.traffic(from)));
        let blocked = Side::BOTH.map(|from| self.blocked(from));
        let [client, upstream] = self.legs;
        let to_client = Ending::of(client, Side::Client, ends[0]);
        let to_upstream = Ending::of(upstream, Side::Upstream, ends[1]);
        down.limited_by = to_client.limited_by(lasted, blocked[Side::Upstream as usize]);
        up.limited_by = to_upstream.limited_by(lasted, blocked[Side::Client as usize]);
        let (client, upstream) = (to_client.leg(), to_upstream.leg());
        let relayed = Relayed { end, up, down, unacked: None, client, upstream };
        Finishing { relayed: Some(relayed), ends: [to_client, to_upstream].map(Ending::begin) }
    }
}

/// A relay whose connections are being ended: see [`Relay::finish`]. If it is dropped, it closes them, and
/// later acknowledgements are never known.
#[must_use = "it ends nothing unless it is awaited"]
pub struct Finishing {
    /// What is known without waiting; `None` once it was returned.
    relayed: Option<Relayed>,
    /// To the client, and to the upstream.
    ends: [Progress; 2],
}

impl Finishing {
    /// Stops waiting, and returns what is known: [`RelayEnd::Stopped`].
    ///
    /// # Panics
    /// After it was ready.
    #[must_use]
    pub fn stop(mut self) -> Relayed {
        let relayed = self.relayed.take().expect("it was not ready before");
        Relayed { end: RelayEnd::Stopped, ..relayed }
    }
}

impl Future for Finishing {
    type Output = Relayed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Relayed> {
        let [to_client, to_upstream] = self.ends.each_mut().map(|end| end.poll(cx));
        let (to_client, to_upstream) = (ready!(to_client), ready!(to_upstream));
        let mut relayed = self.relayed.take().expect("it was not ready before");
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

/// The progress of ending a connection.
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
    closing: Closing,
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
    fn of(stream: Stream, side: Side, (closing, within): (Closing, Duration)) -> Self {
        let info = stream.info().ok();
        Self { stream, side, closing, within, info }
    }

    fn leg(&self) -> Leg {
        let mut leg = Leg::default();
        leg.local = self.stream.local_addr().ok();
        leg.peer = self.stream.peer_addr().ok();
        leg.rtt = self.info.map(|info| Duration::from_micros(u64::from(info.rtt_us)));
        leg.retransmitted_segments = self.info.map(|info| info.total_retrans_segments);
        leg
    }

    /// What limited the sending on this connection for the longest time. While no byte waited for buffer
    /// space it was the side that the bytes come from. The kernel's clocks explain a part of the other
    /// time, and the rest is the congestion window's, or that of a configured pacing rate.
    fn limited_by(&self, lasted: Duration, blocked: Duration) -> Option<(LimitedBy, Duration)> {
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

    /// How many of the bytes written to a connection that is gone were acknowledged before. The kernel's
    /// queue is gone too, but its count remains; on a connection that we opened it includes our SYN.
    fn acked_before(&self) -> Option<u64> {
        let counted = self.info?.bytes_acked?;
        let syn = u64::from(self.side == Side::Upstream);
        Some(counted.saturating_sub(syn).min(self.stream.written()))
    }

    /// Whether both FINs are acknowledged, ours with everything that was written before it: the kernel counts
    /// it as a byte.
    fn is_over(&self) -> bool {
        let is_closed = self.info.is_some_and(|info| info.state == State::Close);
        let syn = u64::from(self.side == Side::Upstream);
        let counted = self.info.and_then(|info| info.bytes_acked);
        is_closed && counted == Some(syn + self.stream.written() + 1)
    }

    /// Does all that needs no waiting.
    fn begin(self) -> Progress {
        match self.closing {
            Closing::Drop => {
                let acked = self.acked_before();
                let unacked = acked.map(|acked| self.stream.written().saturating_sub(acked));
                Progress::Ended(Ended { unacked, why: None })
            }
            // The connection is over: closing it now neither sends nor loses anything.
            Closing::Finish if self.is_over() => {
                Progress::Ended(Ended { unacked: Some(0), why: None })
            }
            Closing::Finish | Closing::Reset => Progress::Waits(Box::pin(self.end())),
        }
    }

    async fn end(self) -> Ended {
        let (want, drain, deadline) = (Delivery::Acked, Drain::Keep, self.within);
        let options =
            FinishOptions::default().within(deadline).want(want).drain(drain).patient(true);
        let mut stream = self.stream;
        if self.closing == Closing::Finish {
            let _ = stream.reset_when_closed(false);
            return Ended::of(stream.finish_with(options).await);
        }
        let ended = Ended::of(stream.abort_with(options).await);
        // Without time to wait a missing acknowledgement is not reported.
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
