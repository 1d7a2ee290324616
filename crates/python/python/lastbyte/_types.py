"""The words: how far bytes came, how a stream ended, and what can go wrong."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lastbyte import _lastbyte


class Delivery(enum.IntEnum):
    """How far the bytes of a connection are known to have come. Later is stronger."""

    WRITTEN = 0
    """The local kernel accepted the bytes: ``send`` returned. They may still be thrown away."""
    SENT = 1
    """The bytes left the send queue at least once. They may still be lost."""
    ACKED = 2
    """The peer's *kernel* acknowledged the bytes. Its program may not have read them."""
    CLOSED = 3
    """Acked, and the peer's FIN came after ours was acknowledged. It does not say that its program
    read anything: it may have half-closed early, or be a proxy."""
    CONFIRMED = 4
    """The peer's *program* said so, in a protocol that has such an answer. TCP alone has none."""


class PeerEnd(str, enum.Enum):
    """How the other side stood when a finish was over."""

    OPEN = "open"
    """It was still connected and had not ended its direction."""
    FIN = "FIN"
    """It ended its direction with a FIN."""
    RESET = "RST"
    """It reset the connection, or our kernel gave it up with an error."""
    SILENT = "silence"
    """It did not answer until the deadline."""
    UNKNOWN = "unknown"
    """Its stream ended, and nothing can be said about how."""


class End(str, enum.Enum):
    """How a stream that was read to its end really ended."""

    FIN = "FIN"
    """The peer ended its direction with a FIN after the last byte that was read."""
    RESET = "RST"
    """The connection was reset: bytes may be missing, however clean the end looked."""
    TRUNCATED = "truncated"
    """The transport ended well, a layer above it did not (TLS without ``close_notify``)."""
    UNKNOWN = "unknown"
    """Nothing can be said."""


class Unproven(str, enum.Enum):
    """Why a finish could not prove what was wanted."""

    DEADLINE = "deadline"
    """The deadline passed first."""
    RESET = "reset"
    """The peer reset the connection, or our kernel gave it up."""
    NOT_CONNECTED = "not connected"
    """The connection was gone, or never there, before a FIN could be queued."""
    EARLY_FIN = "early FIN"
    """The peer had ended its direction before our FIN was acknowledged: its FIN says nothing about
    our bytes."""
    UNKNOWABLE = "unknowable"
    """The kernel cannot know it for this kind of socket or this level."""
    REFUSED = "refused"
    """The kernel refused a call that it grants every connection: see ``errno``."""
    STOPPED = "stopped"
    """The caller stopped it while it waited."""
    NOT_OPEN = "not open"
    """Nothing was done: the socket is closed, or the number stands for no open descriptor."""
    NO_SOCKET = "no socket"
    """Nothing was done: a file, a pipe, or another descriptor that is no socket."""
    NO_STREAM = "no stream"
    """Nothing was done: a socket of datagrams, which has no stream to end."""
    LISTENING = "listening"
    """Nothing was done: a listening socket. Closing it resets what waits to be accepted."""


class State(str, enum.Enum):
    """TCP connection states, in the words of RFC 9293 section 3.3.2."""

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
    """What a finish could prove about one connection's outgoing bytes.

    ``written == acked + unacked`` wherever all three are known. As a ``str`` it is one line to log.
    """

    level: Delivery
    """The highest level that *all* written bytes reached."""
    written: int | None
    """Bytes that the local kernel accepted; ``None`` where nobody counted, as for any socket that
    others wrote to."""
    sent: int | None
    """Of those, bytes that left the send queue at least once."""
    acked: int | None
    """Of those, bytes that the peer's kernel acknowledged."""
    unacked: int | None
    """Bytes that the peer's kernel is not known to have, known also where ``written`` is not.
    ``None`` where the kernel does not count them: Unix sockets, MPTCP."""
    drained: int
    """Bytes of the peer that arrived while finishing and were thrown away."""
    peer: PeerEnd
    """How the peer ended."""
    took: float
    """Seconds from the start of the finish to this receipt."""

    def __str__(self) -> str:
        return _lastbyte.describe(self)


@dataclass(frozen=True)
class TcpInfo:
    """What the kernel knows of one TCP connection (``TCP_INFO``). ``None`` is unknown, to this
    kernel at least."""

    state: State | int
    """A number where this version has no name for it."""
    mss_bytes: int
    """The largest segment that is sent."""
    unacked_segments: int
    """Segments in flight. Zeroed by a reset: no proof of delivery."""
    rtt_us: int
    """The smoothed round trip."""
    cwnd_segments: int
    """The congestion window."""
    retransmitted_segments: int
    """Retransmissions over the life of the connection."""
    pacing_bytes_per_s: int | None
    """The rate at which packets are spaced out; ``None`` also where nothing paces."""
    acked_bytes: int | None
    """Acknowledged by the peer. SYN (on the connecting side) and FIN count one each."""
    received_bytes: int | None
    """Received in order. The peer's FIN counts one."""
    unsent_bytes: int | None
    """Written and not sent yet."""
    min_rtt_us: int | None
    """The shortest round trip of late."""
    delivery_bytes_per_s: int | None
    """The rate at which the peer acknowledged of late."""
    busy_us: int | None
    """Time with bytes outstanding."""
    receive_window_limited_us: int | None
    """Time held back by the peer's window."""
    send_buffer_limited_us: int | None
    """Time held back by our send buffer. The kernel misses cases."""
    sent_bytes: int | None
    """Sent, retransmissions included."""
    retransmitted_bytes: int | None
    """Sent again."""
    peer_window_bytes: int | None
    """The peer's window, as it last said."""


class FinishError(OSError):
    """A finish could not prove what was wanted.

    Catch this, or by cause :class:`FinishTimeout`, :class:`FinishReset`, :class:`NotAStream`.
    """

    why: Unproven
    """Why."""
    receipt: Receipt
    """What was proven all the same."""

    def __init__(self, errno: int, strerror: str, why: Unproven, receipt: Receipt) -> None:
        super().__init__(errno, strerror)
        self.why = why
        self.receipt = receipt

    def __reduce__(self) -> tuple[type[FinishError], tuple[object, ...]]:
        return type(self), (self.errno, self.strerror, self.why, self.receipt)


class FinishTimeout(FinishError, TimeoutError):
    """The deadline passed first. What is still on its way may yet arrive, or not."""


class FinishReset(FinishError, ConnectionResetError):
    """The connection was reset: bytes are lost, or their fate is unknown. See the receipt."""


class NotAStream(FinishError, ValueError):
    """Nothing was done: a closed socket, a listening one, one of datagrams, or no socket at all."""


def failure(why: Unproven, errno: int, text: str, receipt: Receipt) -> FinishError:
    """The exception for it."""
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
