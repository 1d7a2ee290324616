//! What goes into the machine and comes out of it.

use std::time::Duration;

use crate::{Delivery, End, Kind};

/// What the caller of a finish wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishOptions {
    /// How long to wait for proof, from the start of the finish. Default 30 s: with a first
    /// retransmission time-out of 0.4 s, as on a path of 200 ms, six retransmissions of the last
    /// segment fit in (the sixth leaves after 25 s).
    pub deadline: Duration,
    /// The level to wait for. Default [`Delivery::Acked`]. No transport can prove
    /// [`Delivery::Confirmed`]: asking for it fails once everything else is proven.
    pub want: Delivery,
    /// What to do with bytes that the peer still sends. Default: discard up to 1 MiB of them.
    pub drain: Drain,
    /// Whether the deadline begins anew whenever more bytes are seen to be acknowledged, so that a
    /// slow peer is given up only if nothing moves. Default: no.
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

    /// Sets what is done with bytes that the peer [still sends](field@Self::drain).
    #[must_use]
    pub fn drain(self, drain: Drain) -> Self {
        Self { drain, ..self }
    }

    /// Sets whether the deadline [begins anew](field@Self::patient) with each acknowledgement.
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

/// What to do with bytes of the peer that arrive while finishing.
///
/// If bytes are unread when the descriptor is closed, the kernel resets the connection. After our
/// FIN was acknowledged that can no longer take our bytes from a Linux peer, but it is no clean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Read at most so many bytes and discard them. Past the limit they stay unread.
    Discard(u64),
    /// Read nothing: the bytes are for whoever reads this connection afterwards.
    Keep,
}

/// What is known of the connection before it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of socket.
    pub kind: Kind,
    /// The handshake is known to be over: the connection came from our own connect or accept.
    pub connected: bool,
    /// Our FIN is known to be queued: we half-closed before, and recorded that it succeeded.
    pub half_closed: bool,
    /// Bytes written over the life of the connection; `None` when others may have written.
    pub written: Option<u64>,
    /// Bytes read over the life of the connection; `None` when others may have read.
    pub read: Option<u64>,
    /// How the peer's stream ended, if its end was read already.
    pub ended: Option<End>,
    /// The descriptor is registered with an edge-triggered poller already, so that waiting for an
    /// edge costs nothing more. Its driver reports events that come after the finish began.
    pub registered: bool,
    /// Nothing else reads or writes while it is finished, or takes an error of the socket: the kernel
    /// reports a reset that comes after our half-close to our own `recv`.
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
    /// Read and discard at most so many bytes, without waiting; then
    /// [`on_drained`](super::Finish::on_drained).
    Drain {
        /// Bytes, at least 1.
        limit: u64,
    },
    /// Wait, at most until this time; then [`on_wake`](super::Finish::on_wake).
    Wait {
        /// On the same clock as `now`.
        until: Duration,
        /// What to be woken by. A driver that is registered for edges may wait for these always.
        wake: Wake,
    },
    /// It is over: [`outcome`](super::Finish::outcome).
    Done,
}

/// What ends a wait before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The peer's end or an error; with `data` also bytes to read. `poll` can wait for these, and
    /// needs no registration. It misses the acknowledgement of our FIN.
    Level {
        /// Bytes to read end the wait.
        data: bool,
    },
    /// Any new event on an edge-triggered registration, the acknowledgement of our FIN among them.
    Edge,
}

/// What ended a wait: the whole state of the descriptor, not only what is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// There may be something to read: bytes, the end of the stream, or an error.
    pub readable: bool,
    /// The peer ended its direction, or the connection failed.
    pub ended: bool,
    /// No event will wake the driver any more: both directions look closed to its poller.
    pub blind: bool,
}

/// What a `recv` that discards returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// So many bytes, at least 1.
    Bytes(u64),
    /// The end of the stream, whatever it means.
    End,
    /// Nothing is there now.
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
    /// The connection was gone, or never there, before a FIN could be queued.
    #[error("the socket was not connected")]
    NotConnected,
    /// The peer had ended its direction before our FIN was acknowledged: its FIN says nothing
    /// about our bytes.
    #[error("the peer's FIN came before ours was acknowledged")]
    EarlyFin,
    /// The kernel cannot know it for this kind of socket or this level.
    #[error("this cannot be known for this socket")]
    Unknowable,
    /// The kernel refused a call that it grants every connection: see the error beside it.
    #[error("a system call failed")]
    Refused,
    /// The caller was asked while it waited, and did not want to go on.
    #[error("the caller stopped it")]
    Stopped,
    /// Nothing was done: the number stands for no open descriptor.
    #[error("the descriptor is not open")]
    NotOpen,
    /// Nothing was done: a file, a pipe, or another descriptor that is no socket.
    #[error("the descriptor is no socket")]
    NoSocket,
    /// Nothing was done: a socket of datagrams, which has no stream to end.
    #[error("the socket is no stream")]
    NoStream,
    /// Nothing was done: a listening socket. Closing it resets what waits to be accepted.
    #[error("the socket is listening, it has no peer")]
    Listening,
}
