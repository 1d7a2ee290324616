//! What follows a relay: each connection is ended as its side is to learn of the other's end.

use std::time::Duration;

use futures_util::future::join;
use lastbyte_core::account::{Carried, Leg};
use lastbyte_core::finish::{Drain, Unproven};
use lastbyte_core::pump::{Last, Side};
use lastbyte_core::sample::{LimitedBy, State, TcpInfo};
use lastbyte_core::{Delivery, Receipt};
use lastbyte_socket::{AsyncStream, FinishError, FinishOptions};

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
    /// What is known of it without asking the kernel: nothing of acknowledgements.
    #[must_use]
    pub fn known(&self) -> Relayed {
        let leg = |side: Side| {
            let (mut leg, stream) = (Leg::default(), self.leg(side));
            (leg.local, leg.peer) = (stream.local_addr(), stream.peer_addr());
            leg
        };
        Relayed {
            over: self.over.unwrap_or(Over::Stopped),
            up: self.carried(Side::Client).into(),
            down: self.carried(Side::Upstream).into(),
            unacked: None,
            client: leg(Side::Client),
            upstream: leg(Side::Upstream),
        }
    }

    /// Ends both connections: orderly where both sides ended so, else by a reset once what was written
    /// is acknowledged. `lasted` is how long they were there, for what held them back.
    pub async fn finish(mut self, lasted: Duration) -> Relayed {
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
        let client = Ending::of(client, Side::Client, ends[0]);
        let upstream = Ending::of(upstream, Side::Upstream, ends[1]);
        down.limited_by = client.held_back(lasted, blocked[Side::Upstream as usize]);
        up.limited_by = upstream.held_back(lasted, blocked[Side::Client as usize]);
        let (client_leg, upstream_leg) = (client.leg(), upstream.leg());
        let (to_client, to_upstream) = join(client.end(), upstream.end()).await;
        down.acked = to_client.acked_of(down.written);
        up.acked = to_upstream.acked_of(up.written);
        let unproven = [(Side::Client, to_client.why), (Side::Upstream, to_upstream.why)];
        let unacked = unproven.into_iter().find_map(|(side, why)| Some((side, why?)));
        Relayed { over, up, down, unacked, client: client_leg, upstream: upstream_leg }
    }
}

/// A connection that is to be ended.
struct Ending {
    stream: AsyncStream,
    side: Side,
    last: Last,
    within: Duration,
    info: Option<TcpInfo>,
}

/// What is known of the bytes that were written to a side.
struct Ended {
    unacked: Option<u64>,
    why: Option<Unproven>,
}

impl Ending {
    fn of(stream: AsyncStream, side: Side, (last, within): (Last, Duration)) -> Self {
        let info = stream.info().ok();
        Self { stream, side, last, within, info }
    }

    fn leg(&self) -> Leg {
        let mut leg = Leg::default();
        leg.local = self.stream.local_addr();
        leg.peer = self.stream.peer_addr();
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

    async fn end(self) -> Ended {
        let (want, drain, deadline) = (Delivery::Acked, Drain::Keep, self.within);
        let options = FinishOptions { deadline, want, drain, patient: true };
        match self.last {
            Last::Drop => {
                let acked = self.acked_before();
                let unacked = acked.map(|acked| self.stream.written().saturating_sub(acked));
                Ended { unacked, why: None }
            }
            // The connection is over: closing it now neither sends nor loses anything.
            Last::Finish if self.is_over() => Ended { unacked: Some(0), why: None },
            Last::Finish => {
                let _ = self.stream.reset_when_closed(false);
                Ended::of(self.stream.finish(options).await)
            }
            // Nobody waits for an acknowledgement where there is no time.
            Last::Reset if self.within.is_zero() => {
                Ended { why: None, ..Ended::of(self.stream.abort_with(options).await) }
            }
            Last::Reset => Ended::of(self.stream.abort_with(options).await),
        }
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
