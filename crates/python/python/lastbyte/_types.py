"""Types: how far bytes came, how a stream ended, and errors."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lastbyte import _lastbyte


class Delivery(enum.IntEnum):
    """How far the bytes of a connection are known to have come. Later is stronger."""

    WRITTEN = 0
    """The local kernel accepted the bytes: ``send`` returned. They may still be discarded."""
    SENT = 1
    """The bytes left the send queue at least once. They may still be lost."""
    ACKED = 2
    """The peer's *kernel* acknowledged the bytes. Its program may not have read them."""
    CLOSED = 3
    """Acked, and the peer's FIN came after ours was acknowledged. It does not prove that the
    peer's program read anything: it may have half-closed early, or be a proxy."""
    CONFIRMED = 4
    """The peer's *program* confirmed them, by a message of its protocol. TCP itself has none."""


class PeerEnd(str, enum.Enum):
    """How the peer's direction had ended when a finish ended."""

    OPEN = "open"
    """It was still connected and had not ended its direction."""
    FIN = "FIN"
    """It ended its direction with a FIN."""
    RESET = "RST"
    """It reset the connection, or our kernel gave it up with an error."""
    SILENT = "silence"
    """It did not end its direction before the deadline."""
    UNKNOWN = "unknown"
    """Its stream ended, and how is not known."""


class End(str, enum.Enum):
    """How a stream ended that was read to its end."""

    FIN = "FIN"
    """The peer ended its direction with a FIN after the last byte that was read."""
    RESET = "RST"
    """The connection was reset: bytes may be missing, even if the end looked clean."""
    TRUNCATED = "truncated"
    """The transport ended with a FIN, but a layer above it did not (TLS without ``close_notify``)."""
    UNKNOWN = "unknown"
    """Not known."""


class Unproven(str, enum.Enum):
    """Why a finish could not prove the wanted level."""

    DEADLINE = "deadline"
    """The deadline passed first."""
    RESET = "reset"
    """The peer reset the connection, or our kernel gave it up."""
    NOT_CONNECTED = "not connected"
    """The connection was closed or never established, so no FIN could be queued."""
    EARLY_FIN = "early FIN"
    """The peer ended its direction before it acknowledged our FIN: its FIN proves nothing about our
    bytes."""
    UNKNOWABLE = "unknowable"
    """The kernel cannot prove this level for this kind of socket."""
    REFUSED = "refused"
    """The kernel refused a system call that should succeed on every connection: see ``errno``."""
    STOPPED = "stopped"
    """The caller stopped waiting."""
    NOT_OPEN = "not open"
    """Nothing was done: the socket is closed, or no such descriptor is open."""
    NO_SOCKET = "no socket"
    """Nothing was done: the descriptor is a file, a pipe or something else, not a socket."""
    NO_STREAM = "no stream"
    """Nothing was done: a datagram socket has no stream to end."""
    LISTENING = "listening"
    """Nothing was done: a listening socket has no peer. Closing it resets its accept queue."""


class State(str, enum.Enum):
    """TCP connection states of RFC 9293 section 3.3.2."""

    LISTEN = "LISTEN"
    SYN_SENT = "SYN-SENT"
    SYN_RECEIVED = "SYN-RECEIVED"
    ESTABLISHED = "ESTABLISHED"
    FIN_WAIT_1 = "FIN-WAIT-1"
    FIN_WAIT_2 = "FIN-WAIT-2"
    CLOSE_WAIT = "CLOSE-WAIT"
    CLOSING = "CLOSING"
    LAST_ACK = "LAST-ACK"
    TIME_WAIT = "TIME-WAIT"
    CLOSED = "CLOSED"


@dataclass(frozen=True)
class Receipt:
    """What a finish proved about one connection's outgoing bytes.

    ``written == acked + unacked`` wherever all three are known. As a ``str`` it is one line to log.
    """

    level: Delivery
    """The highest level that *all* written bytes reached."""
    written: int | None
    """Bytes that the local kernel accepted; ``None`` if not known, as for any socket that
    other code wrote to."""
    sent: int | None
    """Of those, bytes that left the send queue at least once."""
    acked: int | None
    """Of those, bytes that the peer's kernel acknowledged."""
    unacked: int | None
    """Bytes written and not acknowledged; known even if ``written`` is not. ``None`` if the kernel
    does not count them: Unix sockets, MPTCP."""
    drained: int
    """Bytes from the peer that arrived while finishing and were discarded."""
    peer: PeerEnd
    """How the peer ended."""
    took: float
    """Seconds from the start of the finish to this receipt."""

    def __str__(self) -> str:
        return _lastbyte.describe(self)


@dataclass(frozen=True)
class TcpInfo:
    """What the kernel knows of one TCP connection (``TCP_INFO``). ``None`` means unknown to this
    kernel."""

    state: State | int
    """A number if this version has no name for it."""
    mss_bytes: int
    """The largest segment that is sent."""
    unacked_segments: int
    """Segments in flight. Zeroed by a reset: no proof of delivery."""
    rtt_us: int
    """The smoothed round-trip time."""
    cwnd_segments: int
    """The congestion window."""
    retransmitted_segments: int
    """Retransmissions over the life of the connection."""
    pacing_bytes_per_s: int | None
    """The pacing rate; ``None`` also without pacing."""
    acked_bytes: int | None
    """Acknowledged by the peer. SYN (on the connecting side) and FIN count one each."""
    received_bytes: int | None
    """Received in order. The peer's FIN counts one."""
    unsent_bytes: int | None
    """Written and not sent yet."""
    min_rtt_us: int | None
    """The shortest recent round-trip time."""
    delivery_bytes_per_s: int | None
    """The recent rate of delivery, by acknowledgements."""
    busy_us: int | None
    """Time with unacknowledged bytes."""
    receive_window_limited_us: int | None
    """Time limited by the peer's receive window."""
    send_buffer_limited_us: int | None
    """Time limited by our send buffer. The kernel misses cases."""
    sent_bytes: int | None
    """Sent, retransmissions included."""
    retransmitted_bytes: int | None
    """Retransmitted."""
    peer_window_bytes: int | None
    """The peer's receive window, as last advertised."""


class FinishError(OSError):
    """A finish could not prove the wanted level.

    Catch this, or by cause :class:`FinishTimeout`, :class:`FinishReset`, :class:`NotAStream`.
    """

    why: Unproven
    """Why."""
    receipt: Receipt
    """What was proven nevertheless."""

    def __init__(self, errno: int, strerror: str, why: Unproven, receipt: Receipt) -> None:
        super().__init__(errno, strerror)
        self.why = why
        self.receipt = receipt

    def __reduce__(self) -> tuple[type[FinishError], tuple[object, ...]]:
        return type(self), (self.errno, self.strerror, self.why, self.receipt)


class FinishTimeout(FinishError, TimeoutError):
    """The deadline passed first. Bytes in flight may still arrive."""


class FinishReset(FinishError, ConnectionResetError):
    """The connection was reset: bytes are lost, or their delivery is unknown. See the receipt."""


class NotAStream(FinishError, ValueError):
    """Nothing was done: a closed, listening or datagram socket, or not a socket."""


def failure(why: Unproven, errno: int, text: str, receipt: Receipt) -> FinishError:
    """The exception for this reason."""
    return _BY_CAUSE.get(why, FinishError)(errno, text, why, receipt)


_BY_CAUSE: dict[Unproven, type[FinishError]] = {
    Unproven.DEADLINE: FinishTimeout,
    Unproven.RESET: FinishReset,
    Unproven.NOT_OPEN: NotAStream,
    Unproven.NO_SOCKET: NotAStream,
    Unproven.NO_STREAM: NotAStream,
    Unproven.LISTENING: NotAStream,
}

for _public in (
    *(Delivery, PeerEnd, End, Unproven, State, Receipt, TcpInfo),
    *(FinishError, FinishTimeout, FinishReset, NotAStream),
):
    _public.__module__ = "lastbyte"
