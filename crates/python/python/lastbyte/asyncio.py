"""The same for streams of :mod:`asyncio`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl as tls
import threading
import time
from concurrent.futures import Executor
from typing import cast

from lastbyte._dial import (
    Host,
    Port,
    ResolverName,
    SourceAddress,
    Wishes,
    dial_unless,
    seconds,
    sources_of,
)
from lastbyte._socket import HasFileno, Wanted, checked, finish_unless
from lastbyte._types import Delivery, Receipt

__all__ = ["finish", "open_connection"]


async def open_connection(
    host: Host,
    port: Port,
    *,
    timeout: float | None = None,
    limit: int = 1 << 16,
    ssl: tls.SSLContext | bool | None = None,
    server_hostname: str | None = None,
    local_addr: SourceAddress = None,
    resolver: ResolverName = "dns",
    family: int = socket.AF_UNSPEC,
    congestion: str | None = None,
    mptcp: bool = False,
    executor: Executor | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a host by the address that works, first, and return streams as those of
    :func:`asyncio.open_connection`.

    The dial is that of :func:`lastbyte.create_connection`, which tells of its options and errors; it
    waits in a thread of ``executor`` (that of the loop, unless given). Cancelled, it leaves no
    socket. ::

        reader, writer = await lastbyte.asyncio.open_connection("example.org", 4000)

    :param timeout: Seconds for the dial; ``None`` for no limit.
    :param limit: How much the reader takes in before it waits to be read, in bytes.
    :param ssl: TLS over the connection: a context, or ``True`` for a default one. It takes its own
        time, ``ssl_handshake_timeout`` of asyncio.
    :param server_hostname: The name that the certificate must have: the host, unless given.
    :param local_addr: Address and port to connect from; the port must be 0.
    """
    if local_addr is not None and local_addr[1] != 0:
        raise ValueError("to connect from a port other than 0 use asyncio.open_connection")
    how = Wishes.checked(resolver, family, congestion, mptcp)
    how.timeout = seconds(timeout)
    source = local_addr[0] if local_addr else ""
    if not isinstance(ssl, (tls.SSLContext, bool, type(None))):
        raise TypeError(f"ssl must be an SSLContext, a bool or None: {ssl!r} is not")
    if server_hostname is not None and not ssl:
        raise ValueError("server_hostname is only meaningful with ssl")
    if ssl and server_hostname is None:
        server_hostname = host.decode("ascii") if isinstance(host, bytes) else host or "localhost"

    sock = await _dialed_in_a_thread((host, port), source, how, executor)
    sock.setblocking(False)
    # From here on it is for the transport to close, whatever happens.
    return await asyncio.open_connection(
        sock=sock, limit=limit, ssl=ssl, server_hostname=server_hostname
    )


async def _dialed_in_a_thread(
    address: tuple[Host, Port], source: str, how: Wishes, executor: Executor | None
) -> socket.socket:
    """Runs the dial. When cancelled, it tells it so and waits for it: a twentieth of a second, or not
    at all where it has not begun."""
    begun, stop = threading.Event(), threading.Event()

    def run() -> socket.socket | None:
        begun.set()
        if stop.is_set():
            return None
        how.sources = sources_of(source)
        return dial_unless(address, how, stop.is_set)

    running = asyncio.get_running_loop().run_in_executor(executor, run)
    try:
        sock = await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        running.add_done_callback(_close_what_came)
        if begun.is_set():
            await asyncio.wait({running})
        raise
    assert sock is not None, "only who was cancelled has none"
    return sock


def _close_what_came(dialed: asyncio.Future[socket.socket | None]) -> None:
    """It connected before it was told to stop."""
    if dialed.cancelled() or dialed.exception() is not None:
        return
    sock = dialed.result()
    if sock is not None:
        sock.close()


async def finish(
    writer: asyncio.StreamWriter,
    timeout: float = 30.0,
    *,
    want: Delivery = Delivery.ACKED,
    drain: int | None = 1 << 20,
    executor: Executor | None = None,
) -> Receipt:
    """End a stream so that nothing is lost, and return what could be proven.

    Writes out what the writer still holds, then does what :func:`lastbyte.finish` does, in a thread
    of ``executor`` (that of the loop, unless given), and closes the writer. What its reader has
    taken before stays there to be read; what comes later is thrown away. No other task may read or
    write meanwhile. ::

        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(data)
            receipt = await lastbyte.asyncio.finish(writer)
        finally:
            writer.close()

    With ``drain=None`` nothing is thrown away and the writer stays open: read the rest from its
    reader, then close it. It stays open as well when this fails or is cancelled.

    :param timeout: Seconds for all of it.
    :raises TimeoutError: The writer could not write out its bytes in time, so that nothing was
        ended; or, as :class:`lastbyte.FinishTimeout`, there was no proof in time.
    :raises ConnectionError: The connection was lost before; or, as :class:`lastbyte.FinishReset`,
        while finishing.
    :raises ValueError: The stream has TLS on it. There ``write_eof`` is not to be had, and an end
        without close_notify looks truncated to the peer.
    """
    _, want, drain = checked(timeout, want, drain)
    transport = writer.transport
    sock = writer.get_extra_info("socket")
    if writer.get_extra_info("ssl_object") is not None:
        raise ValueError(
            "over TLS the bytes of a stream cannot be proven from here: its end has to come first, "
            "and asyncio cannot end TLS and keep the connection"
        )
    if sock is None:
        raise TypeError(f"a StreamWriter over a socket is wanted, not over {transport!r}")
    if transport.is_closing():
        raise ConnectionError("the writer is closed already, so that nothing can be proven")
    ends = time.monotonic() + timeout
    await _write_out(writer, timeout)

    # From here on the bytes of the peer are for whoever finishes.
    reading = cast(asyncio.ReadTransport, transport)
    paused = reading.is_reading()
    if paused:
        reading.pause_reading()
    try:
        left = max(0.0, ends - time.monotonic())
        receipt = await _in_a_thread(sock, (left, want, drain), executor)
    finally:
        if paused and not transport.is_closing():
            reading.resume_reading()
    if drain is not None:
        writer.close()
        # What it could tell is in the receipt.
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return receipt


async def _write_out(writer: asyncio.StreamWriter, timeout: float) -> None:
    """Waits until the transport holds nothing. ``drain`` alone waits for its low-water mark."""
    transport = writer.transport
    if transport.get_write_buffer_size() == 0:
        return
    low, high = transport.get_write_buffer_limits()
    transport.set_write_buffer_limits(0, 0)
    # Not `wait_for`, which up to Python 3.11 may swallow that this task was cancelled.
    draining = asyncio.ensure_future(writer.drain())
    try:
        done, _ = await asyncio.wait({draining}, timeout=timeout)
    finally:
        transport.set_write_buffer_limits(high, low)
        draining.cancel()
    if not done:
        held = transport.get_write_buffer_size()
        raise TimeoutError(
            f"{held} bytes could not be written within {timeout} s; nothing was ended"
        )
    draining.result()


async def _in_a_thread(sock: HasFileno, wanted: Wanted, executor: Executor | None) -> Receipt:
    """Runs the finish. When cancelled, it tells it so and waits for it: a twentieth of a second, or
    not at all where it has not begun."""
    begun, stop = threading.Event(), threading.Event()
    # The thread may have to wait for its turn, and by then the number may mean something else.
    number = os.dup(sock.fileno())

    def run() -> Receipt | None:
        begun.set()
        return None if stop.is_set() else finish_unless(number, wanted, stop.is_set)

    running = asyncio.get_running_loop().run_in_executor(executor, run)
    running.add_done_callback(lambda _: os.close(number))
    try:
        receipt = await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        if begun.is_set():
            await asyncio.wait({running})
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
    assert receipt is not None, "only who was cancelled has none"
    return receipt
