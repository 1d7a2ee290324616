"""Functions of one socket: finish, info, prepare, observed_end."""

from __future__ import annotations

import math
import numbers
import sys
from typing import Callable, Optional, Protocol, Union

from lastbyte import _lastbyte
from lastbyte._types import Delivery, End, PeerEnd, Receipt, State, TcpInfo, Unproven, failure


class HasFileno(Protocol):
    """An object with a descriptor, such as a :class:`socket.socket`."""

    def fileno(self) -> int: ...


SocketLike = Union[int, HasFileno]
"""A socket: an object with ``fileno()``, or the descriptor itself."""


def finish(
    sock: SocketLike,
    timeout: float = 30.0,
    *,
    want: Delivery = Delivery.ACKED,
    drain: int | None = 1 << 20,
) -> Receipt:
    """End a connection without losing bytes, and return what was proven.

    Ends our direction (``SHUT_WR``), waits until the peer's kernel has acknowledged all bytes and
    our FIN, and meanwhile discards what the peer still sends, so that closing does not become a
    reset. The socket stays open: close it next, best with ``with``::

        with socket.create_connection(address) as sock:
            sock.sendall(data)
            lastbyte.finish(sock)

    It blocks even if the socket is non-blocking; other threads run, and Ctrl-C works. No other
    thread may read or write meanwhile. How much was written before is not known, so
    ``Receipt.written`` is ``None``, and ``unacked`` counts what is left.

    :param timeout: Seconds to wait for proof.
    :param want: The level to wait for. No socket can prove ``CONFIRMED``.
    :param drain: How many bytes from the peer to discard at most; further bytes stay unread.
        ``None`` discards nothing: read them afterwards.
    :raises FinishTimeout: The deadline passed first; also a ``TimeoutError``.
    :raises FinishReset: The connection was reset; also a ``ConnectionResetError``.
    :raises NotAStream: Nothing was done: not an open stream socket; also a ``ValueError``.
    :raises FinishError: Another reason; also an ``OSError``. See ``why`` and ``receipt``.
    :raises ValueError: ``timeout``, ``want`` or ``drain`` is invalid, or the socket has TLS on it,
        which has to end first: ``unwrap()`` it.
    """
    return finish_unless(sock, checked(timeout, want, drain), None)


Wanted = tuple[float, Delivery, Optional[int]]
"""The time-out in seconds, the level, and how many bytes to discard."""


def checked(timeout: float, want: Delivery, drain: int | None) -> Wanted:
    """Raises for invalid arguments, before anything is done."""
    if not isinstance(timeout, numbers.Real):
        raise TypeError(f"timeout must be a number of seconds: {timeout!r} is not")
    if not (math.isfinite(timeout) and timeout >= 0):
        raise ValueError(f"timeout must be finite and not negative: {timeout!r} is not")
    if drain is not None and not (isinstance(drain, int) and 0 <= drain < 1 << 64):
        raise ValueError(f"drain must be a number of bytes, or None: {drain!r} is not")
    return float(timeout), Delivery(want), drain


def finish_unless(sock: SocketLike, wanted: Wanted, stop: Callable[[], bool] | None) -> Receipt:
    """:func:`finish`, which ends early once ``stop`` returns true."""
    _refuse_tls(sock)
    fields, failed = _lastbyte.finish(_number_of(sock), wanted, stop)
    receipt = Receipt(
        **{**fields, "level": Delivery(fields["level"]), "peer": PeerEnd(fields["peer"])}
    )
    if failed is not None:
        raise failure(Unproven(failed["why"]), failed["number"], failed["text"], receipt)
    return receipt


def info(sock: SocketLike) -> TcpInfo:
    """Ask the kernel about a TCP connection.

    :raises OSError: It is not an open TCP socket.
    """
    fields = _lastbyte.info(_number_of(sock))
    state = fields["state"]
    return TcpInfo(**{**fields, "state": State(state) if isinstance(state, str) else state})


def prepare(sock: SocketLike) -> None:
    """Let :func:`observed_end` distinguish a FIN from a reset. Call it before the first ``recv``.

    Keeps urgent bytes in the stream (``SO_OOBINLINE``). Otherwise one that is read separately or
    skipped counts like a FIN.

    :raises OSError: It is not an open socket.
    """
    _lastbyte.prepare(_number_of(sock))


def observed_end(sock: SocketLike, bytes_read: int) -> End:
    """Return how a stream ended whose last ``recv`` returned ``b""``.

    Linux reports a reset once. If a failed ``send`` takes that report, the reader sees an end that
    looks clean. The kernel's counters distinguish the two.

    :param bytes_read: How many bytes were read over the life of the connection.
    :returns: ``End.UNKNOWN`` if it is not known: not a TCP socket, a wrong number, or not
        prepared.
    :raises OSError: It is not an open socket.
    """
    return End(_lastbyte.observed_end(_number_of(sock), bytes_read))


def _number_of(sock: SocketLike) -> int:
    """The descriptor; -1, which is never open, for an invalid number."""
    number: object = sock
    if not isinstance(sock, int):
        fileno = getattr(sock, "fileno", None)
        number = fileno() if callable(fileno) else None
    if not isinstance(number, int) or isinstance(number, bool):
        kind = type(sock).__name__
        raise TypeError(f"a socket is wanted, an object with fileno(), or an int: not {kind}")
    return number if 0 <= number < 1 << 31 else -1


def _refuse_tls(sock: SocketLike) -> None:
    """Raises for a socket with TLS. Without the module ssl there is none."""
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(sock, ssl.SSLSocket) and sock.version() is not None:
        raise ValueError(
            "over TLS an end without close_notify looks truncated to the peer: "
            "call sock = sock.unwrap() first, then finish that"
        )
