"""Functions of one socket: finish, info, prepare, observed_end."""

from __future__ import annotations

import math
import numbers
import sys
from typing import Callable, Optional, Protocol, Union

from lastbyte import _lastbyte
from lastbyte._types import Delivery, End, PeerEnd, Receipt, State, TcpInfo, Unproven, failure


class HasFileno(Protocol):
    """Whatever has a descriptor, such as a :class:`socket.socket`."""

    def fileno(self) -> int: ...


SocketLike = Union[int, HasFileno]
"""A socket: an object with ``fileno()``, or the number itself."""


def finish(
    sock: SocketLike,
    timeout: float = 30.0,
    *,
    want: Delivery = Delivery.ACKED,
    drain: int | None = 1 << 20,
) -> Receipt:
    """End a connection so that nothing is lost, and return what could be proven.

    Ends our direction (``SHUT_WR``), waits until the peer has acknowledged everything and that end
    too, and meanwhile throws away what the peer still sends, so that closing cannot turn into a
    reset. The socket stays open: close it next, best by ``with``::

        with socket.create_connection(address) as sock:
            sock.sendall(data)
            lastbyte.finish(sock)

    It blocks, also where the socket does not; other threads run, and Ctrl-C works. No other thread
    may read or write meanwhile. Nothing is known of what was written before, so
    ``Receipt.written`` is ``None``, and ``unacked`` tells what is left over.

    :param timeout: Seconds to wait for proof.
    :param want: The level to wait for. No socket can prove ``CONFIRMED``.
    :param drain: How many bytes of the peer to throw away at most; past that they stay unread.
        ``None`` throws nothing away: read them afterwards.
    :raises FinishTimeout: The deadline passed first; also a ``TimeoutError``.
    :raises FinishReset: The connection was reset; also a ``ConnectionResetError``.
    :raises NotAStream: Nothing was done: no open, connected stream socket; also a ``ValueError``.
    :raises FinishError: The others; also an ``OSError``. ``why`` and ``receipt`` tell more.
    :raises ValueError: ``timeout``, ``want`` or ``drain`` make no sense, or the socket has TLS on
        it, whose end has to come first: ``unwrap()`` it.
    """
    return finish_unless(sock, checked(timeout, want, drain), None)


Wanted = tuple[float, Delivery, Optional[int]]
"""How long at most, which level, how much to throw away."""


def checked(timeout: float, want: Delivery, drain: int | None) -> Wanted:
    """Refuses what makes no sense, before anything is done."""
    if not isinstance(timeout, numbers.Real):
        raise TypeError(f"timeout must be a number of seconds: {timeout!r} is not")
    if not (math.isfinite(timeout) and timeout >= 0):
        raise ValueError(f"timeout must be finite and not negative: {timeout!r} is not")
    if drain is not None and not (isinstance(drain, int) and 0 <= drain < 1 << 64):
        raise ValueError(f"drain must be a number of bytes, or None: {drain!r} is not")
    return float(timeout), Delivery(want), drain


def finish_unless(sock: SocketLike, wanted: Wanted, stop: Callable[[], bool] | None) -> Receipt:
    """As finish, and asks ``stop`` while it waits whether to end early."""
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

    :raises OSError: It is no open TCP socket.
    """
    fields = _lastbyte.info(_number_of(sock))
    state = fields["state"]
    return TcpInfo(**{**fields, "state": State(state) if isinstance(state, str) else state})


def prepare(sock: SocketLike) -> None:
    """Let :func:`observed_end` tell a FIN from a reset: to be called before the first ``recv``.

    Keeps urgent bytes in the stream (``SO_OOBINLINE``). One that is read apart from it, or passed
    over, would be counted like a FIN.

    :raises OSError: It is no open socket.
    """
    _lastbyte.prepare(_number_of(sock))


def observed_end(sock: SocketLike, bytes_read: int) -> End:
    """Tell how a stream ended whose last ``recv`` returned ``b""``.

    On Linux a reset is reported once. Whoever takes that report, such as a ``send`` that failed,
    leaves the reader with an end that looks clean. The kernel's counters tell the two apart.

    :param bytes_read: How many bytes were read over the life of the connection.
    :returns: ``End.UNKNOWN`` where nothing tells: other sockets than TCP, a wrong number, one that
        was not prepared.
    :raises OSError: It is no open socket.
    """
    return End(_lastbyte.observed_end(_number_of(sock), bytes_read))


def _number_of(sock: SocketLike) -> int:
    """The number of the descriptor; -1, which is never open, for what cannot be one."""
    number: object = sock
    if not isinstance(sock, int):
        fileno = getattr(sock, "fileno", None)
        number = fileno() if callable(fileno) else None
    if not isinstance(number, int) or isinstance(number, bool):
        kind = type(sock).__name__
        raise TypeError(f"a socket is wanted, an object with fileno(), or an int: not {kind}")
    return number if 0 <= number < 1 << 31 else -1


def _refuse_tls(sock: SocketLike) -> None:
    """Where nobody has loaded the module, nobody has such a socket."""
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(sock, ssl.SSLSocket) and sock.version() is not None:
        raise ValueError(
            "over TLS an end without close_notify looks like a cut to the peer: "
            "call sock = sock.unwrap() first, then finish that"
        )
