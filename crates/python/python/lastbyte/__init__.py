"""Proof that the bytes of a socket arrived.

``sendall`` returning means that the kernel took the bytes. ``close`` may throw them away: with
unread input it resets the connection, and nobody is told. :func:`finish` ends a connection so that
nothing is lost, and says how far the bytes came::

    with socket.create_connection(address) as sock:
        sock.sendall(data)
        receipt = lastbyte.finish(sock)   # raises lastbyte.FinishError if it could not be proven
        print(receipt)                    # acked: 0 bytes left unacked, ...

For :mod:`asyncio` there is :func:`lastbyte.asyncio.finish`. Linux only.
"""

from lastbyte._socket import HasFileno, SocketLike, ended, finish, info, prepare
from lastbyte._words import (
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
    "ended",
    "finish",
    "info",
    "prepare",
]
