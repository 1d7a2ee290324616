//! What goes into the machine and comes out of it.

use std::time::Duration;

use crate::{Delivery, End, Kind};

/// What the caller of a finish wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishOptions {
    /// How long to wait for proof, from the start of the finish. Default 30 s: on a path of 200 ms,
    /// with a first retransmission time-out of 0.4 s, that allows six retransmissions of the last
    /// segment (the sixth is sent after 25 s).
    pub deadline: Duration,
    /// The level to wait for. Default [`Delivery::Acked`]. No transport can prove
    /// [`Delivery::Confirmed`]: a finish that wants it fails once everything else is proven.
    pub want: Delivery,
    /// What to do with bytes that the peer still sends. Default: discard up to 1 MiB of them.
    pub drain: Drain,
    /// Whether each acknowledgement of more bytes restarts the deadline, so that the finish gives
    /// up only when nothing moves. Default: no.
    pub patient: bool,
}

impl FinishOptions {
    /// Sets the [deadline](field@Self::deadline).
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets the level to [wait for](field@Self::want).
    #[must_use]
    pub fn want(self, want: Delivery) -> Self {
        Self { want, ..self }
    }

    /// Sets what to do with bytes that the peer [still sends](field@Self::drain).
    #[must_use]
    pub fn drain(self, drain: Drain) -> Self {
        Self { drain, ..self }
    }

    /// Sets whether each acknowledgement [restarts](field@Self::patient) the deadline.
    #[must_use]
    pub fn patient(self, patient: bool) -> Self {
        Self { patient, ..self }
    }
}

impl Default for FinishOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            want: Delivery::Acked,
            drain: Drain::Discard(1 << 20),
            patient: false,
        }
    }
}

/// What to do with bytes from the peer that arrive while finishing.
///
/// If bytes are unread when the descriptor is closed, the kernel resets the connection. Once our
/// FIN is acknowledged, that reset cannot lose our bytes at a Linux peer, but it is not a clean
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Read and discard at most this many bytes. Further bytes stay unread.
    Discard(u64),
    /// Read nothing: the caller reads these bytes afterwards.
    Keep,
}

/// What is known about the connection before it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of socket.
    pub kind: Kind,
    /// The handshake is complete: the connection came from our own connect or accept.
    pub connected: bool,
    /// Our FIN is queued: an earlier half-close of ours succeeded.
    pub half_closed: bool,
    /// Bytes written over the life of the connection; `None` when others may have written.
    pub written: Option<u64>,
    /// Bytes read over the life of the connection; `None` when others may have read.
    pub read: Option<u64>,
    /// How the peer's stream ended, if its end was read already.
    pub ended: Option<End>,
    /// The descriptor is already registered with an edge-triggered poller, so waiting for an edge
    /// needs no further call. The driver reports the events that come after the finish began.
    pub registered: bool,
    /// Nothing else reads, writes or takes the socket's error during the finish, so the kernel
    /// reports a reset after our half-close to our own `recv`.
    pub alone: bool,
}

/// The next system call to make, and the method that takes its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `getsockopt(TCP_INFO)`; then [`on_info`](super::Finish::on_info).
    Inspect,
    /// `poll` for the peer's end alone, without waiting; then
    /// [`on_look`](super::Finish::on_look).
    LookForEnd,
    /// `shutdown(SHUT_WR)`; then [`on_half_close`](super::Finish::on_half_close).
    HalfClose,
    /// `ioctl(SIOCOUTQ)`; then [`on_unacked`](super::Finish::on_unacked).
    CountUnacked,
    /// `ioctl(SIOCOUTQNSD)`; then [`on_unsent`](super::Finish::on_unsent).
    CountUnsent,
    /// `ioctl(SIOCINQ)`; then [`on_unread`](super::Finish::on_unread).
    CountUnread,
    /// `getsockopt(SO_ERROR)`; then [`on_error`](super::Finish::on_error).
    TakeError,
    /// Read and discard at most this many bytes, without waiting; then
    /// [`on_drained`](super::Finish::on_drained).
    Drain {
        /// Bytes, at least 1.
        limit: u64,
    },
    /// Wait, at most until this time; then [`on_wake`](super::Finish::on_wake).
    Wait {
        /// On the same clock as `now`.
        until: Duration,
        /// What ends the wait early. A driver registered for edges may always wait for edges.
        wake: Wake,
    },
    /// The finish is done: [`outcome`](super::Finish::outcome).
    Done,
}

/// What ends a wait before its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The peer's end or an error; with `data` also bytes to read. `poll` can wait for these
    /// without a registration. It misses the acknowledgement of our FIN.
    Level {
        /// Bytes to read end the wait.
        data: bool,
    },
    /// Any new event on an edge-triggered registration, the acknowledgement of our FIN among them.
    Edge,
}

/// The state of the descriptor after a wait, not only what has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// There may be something to read: bytes, the end of the stream, or an error.
    pub readable: bool,
    /// The peer ended its direction, or the connection failed.
    pub ended: bool,
    /// No further event can wake the driver: its poller sees both directions as closed.
    pub blind: bool,
}

/// What a `recv` that discards returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// This many bytes, at least 1.
    Bytes(u64),
    /// The end of the stream, of whatever kind.
    End,
    /// Nothing to read now.
    Nothing,
    /// The connection failed: reset, or given up by our kernel.
    Failed,
}

/// Why a finish could not prove what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unproven {
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The peer reset the connection, or our kernel gave it up.
    #[error("the connection was reset")]
    Reset,
    /// The connection was closed or never established, so no FIN could be queued.
    #[error("the socket was not connected")]
    NotConnected,
    /// The peer ended its direction before it acknowledged our FIN: its FIN proves nothing about
    /// our bytes.
    #[error("the peer's FIN came before ours was acknowledged")]
    EarlyFin,
    /// The kernel cannot prove the wanted level for this kind of socket.
    #[error("the kernel cannot prove this level for this kind of socket")]
    Unknowable,
    /// The kernel refused a system call that should succeed on every connection: see the error's
    /// `source`.
    #[error("a system call failed")]
    Refused,
    /// The caller's function said not to go on waiting.
    #[error("the caller stopped waiting")]
    Stopped,
    /// Nothing was done: no such descriptor is open.
    #[error("the descriptor is not open")]
    NotOpen,
    /// Nothing was done: the descriptor is a file, a pipe or something else, not a socket.
    #[error("the descriptor is not a socket")]
    NoSocket,
    /// Nothing was done: a datagram socket has no stream to end.
    #[error("the socket is not a stream socket")]
    NoStream,
    /// Nothing was done: a listening socket has no peer. Closing it resets the connections in its
    /// accept queue.
    #[error("the socket is listening and has no peer")]
    Listening,
}
