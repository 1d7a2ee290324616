"""Proof that the bytes of a socket arrived.

When ``sendall`` returns, the local kernel has accepted the bytes, no more. ``close`` may discard
them: with unread input it resets the connection, and raises no error. :func:`finish` ends a
connection without losing bytes, and proves how far they came::

    with lastbyte.create_connection(address, timeout=10) as sock:
        sock.sendall(data)
        receipt = lastbyte.finish(sock)   # raises lastbyte.FinishError if it could not be proven
        print(receipt)                    # acked: 0 bytes left unacked, ...

:func:`create_connection` replaces :func:`socket.create_connection`: it connects to the address of a
host that works first. For :mod:`asyncio` there are :func:`lastbyte.asyncio.open_connection`
and :func:`lastbyte.asyncio.finish`. Linux only.
"""

from lastbyte._dial import create_connection
from lastbyte._socket import HasFileno, SocketLike, finish, info, observed_end, prepare
from lastbyte._types import (
    Delivery,
    End,
    FinishError,
    FinishReset,
    FinishTimeout,
    NotAStream,
    PeerEnd,
    Receipt,
    State,
    TcpInfo,
    Unproven,
)

__all__ = [
    "Delivery",
    "End",
    "FinishError",
    "FinishReset",
    "FinishTimeout",
    "HasFileno",
    "NotAStream",
    "PeerEnd",
    "Receipt",
    "SocketLike",
    "State",
    "TcpInfo",
    "Unproven",
    "create_connection",
    "finish",
    "info",
    "observed_end",
    "prepare",
]
