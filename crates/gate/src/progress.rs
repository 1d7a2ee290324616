//! How far a flow is: its own task writes it, other threads may read it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use lastbyte_core::account::Traffic;
use lastbyte_relay::{Relay, Side};

use crate::config::Target;
use crate::lock::lock;

/// The bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes read from one side.
    pub received: u64,
    /// Of those, bytes that this kernel took for the other side.
    pub written: u64,
}

/// The bytes of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From the client to the upstream.
    pub up: Bytes,
    /// From the upstream to the client.
    pub down: Bytes,
}

impl Moved {
    pub(crate) fn of(up: &Traffic, down: &Traffic) -> Self {
        let bytes = |traffic: &Traffic| {
            let Traffic { received, written, .. } = *traffic;
            Bytes { received, written }
        };
        Self { up: bytes(up), down: bytes(down) }
    }

    /// What has moved since `before`.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        let less = |now: Bytes, before: Bytes| Bytes {
            received: now.received.saturating_sub(before.received),
            written: now.written.saturating_sub(before.written),
        };
        Self { up: less(self.up, before.up), down: less(self.down, before.down) }
    }
}

/// How far a flow is.
///
/// Only its own task writes, so that nothing is locked while bytes move. A reader may see the figures of
/// different moments.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    wanted: Mutex<Option<Arc<Target>>>,
    upstream: OnceLock<SocketAddr>,
    /// [`Moved`], in the order of its fields.
    moved: [AtomicU64; 4],
}

impl Progress {
    /// The target that is being connected to.
    pub(crate) fn set_wanted(&self, wanted: Option<&Arc<Target>>) {
        *lock(&self.wanted) = wanted.cloned();
    }

    pub(crate) fn wanted(&self) -> Option<String> {
        lock(&self.wanted).as_deref().map(ToString::to_string)
    }

    /// The address that was connected to.
    pub(crate) fn set_upstream(&self, upstream: Option<SocketAddr>) {
        if let Some(upstream) = upstream {
            let _ = self.upstream.set(upstream);
        }
    }

    pub(crate) fn upstream(&self) -> Option<SocketAddr> {
        self.upstream.get().copied()
    }

    /// Notes how far a relay is. Returns what has moved since the last time, if anything has.
    pub(crate) fn follow(&self, relay: &Relay) -> Option<Moved> {
        let bytes = |from| {
            let traffic = relay.traffic(from);
            Bytes { received: traffic.received, written: traffic.written }
        };
        let now = Moved { up: bytes(Side::Client), down: bytes(Side::Upstream) };
        let before = self.moved();
        if now == before {
            return None;
        }
        let all = [now.up.received, now.up.written, now.down.received, now.down.written];
        for (kept, bytes) in self.moved.iter().zip(all) {
            kept.store(bytes, Ordering::Relaxed);
        }
        Some(now.since(before))
    }

    /// What has moved so far, and was counted.
    pub(crate) fn moved(&self) -> Moved {
        let [up_received, up_written, down_received, down_written] =
            self.moved.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        Moved {
            up: Bytes { received: up_received, written: up_written },
            down: Bytes { received: down_received, written: down_written },
        }
    }
}
